//! Whether silence can be told from this node's own absence, and how old a stored time really is.
//!
//! - Presence is steady while every round of it works, and none comes late: after an outage, or once a process that was
//!   stopped goes on, whoever lives must get the time to be heard before anybody is taken for dead.
//! - A node's time may leap, when it meets one whose time is ahead by minutes. What was written before counts as if the
//!   leap had taken no time.

use crate::domain::Timestamp;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Rounds after which presence counts as interrupted if none has worked.
const ROUNDS_MISSED_MAX: u32 = 5;
/// Leaps, and absences, that are remembered. Of more, the oldest are forgotten: what is so old is seldom judged.
const GAPS_MAX: usize = 32;
/// What moves a node's time by less is no leap: nodes drift apart by as much between two rounds.
pub(in crate::engine) const LEAP_MIN: Duration = Duration::from_secs(1);

/// How far presence can be trusted.
#[derive(Debug)]
pub(in crate::engine) struct Steadiness {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// When the next round comes.
    interval: Duration,
    /// Since when it has been steady, by monotonic time.
    since: Duration,
    /// When it last worked, by monotonic time and by the node's.
    worked: Duration,
    worked_now: Timestamp,
    /// Whether a round has failed since.
    has_failed: bool,
    /// Times that never were: nothing happened in them.
    leaps: Gaps,
    /// Times in which this node could not hear of workers, or others not of it; leaps too.
    absences: Gaps,
}

/// Spans of time, apart from each other and in order.
#[derive(Debug, Default)]
struct Gaps(Vec<(Timestamp, Timestamp)>);

impl Gaps {
    fn add(&mut self, from: Timestamp, to: Timestamp) {
        let (mut from, mut to) = (from, to);
        self.0.retain(|(earlier_from, earlier_to)| {
            let is_apart = *earlier_to < from || to < *earlier_from;
            if !is_apart {
                (from, to) = (from.min(*earlier_from), to.max(*earlier_to));
            }
            is_apart
        });
        self.0.push((from, to));
        self.0.sort_unstable();
        if self.0.len() > GAPS_MAX {
            self.0.remove(0);
        }
    }

    /// The time from one moment to another, gaps left out.
    fn outside(&self, from: Timestamp, to: Timestamp) -> Duration {
        let inside: Duration = self.0.iter().map(|(begin, end)| to.min(*end).since(from.max(*begin))).sum();
        to.since(from).saturating_sub(inside)
    }
}

impl Inner {
    fn is_late(&self, monotonic: Duration) -> bool {
        monotonic.saturating_sub(self.worked) > self.interval * ROUNDS_MISSED_MAX
    }
}

impl Steadiness {
    /// Begins now, with a round every `interval`.
    pub(in crate::engine) fn new(interval: Duration, monotonic: Duration, now: Timestamp) -> Self {
        // Before its start a node has heard nothing.
        let absences = Gaps(vec![(Timestamp::from_micros(i64::MIN), now)]);
        let inner = Inner {
            interval,
            since: monotonic,
            worked: monotonic,
            worked_now: now,
            has_failed: false,
            leaps: Gaps::default(),
            absences,
        };
        Self { inner: Mutex::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A round of presence worked; the next one comes in `next`.
    pub(super) fn worked(&self, monotonic: Duration, now: Timestamp, next: Duration) {
        let mut inner = self.lock();
        if inner.is_late(monotonic) {
            (inner.since, inner.has_failed) = (monotonic, true);
        }
        if std::mem::take(&mut inner.has_failed) {
            let from = inner.worked_now;
            inner.absences.add(from, now);
        }
        (inner.worked, inner.worked_now, inner.interval) = (monotonic, now, next);
    }

    /// A round failed: what was to be heard in it may have been missed.
    pub(super) fn failed(&self, monotonic: Duration) {
        let mut inner = self.lock();
        (inner.since, inner.has_failed) = (monotonic, true);
    }

    /// Since when presence has been steady; nothing if it is not.
    pub(in crate::engine) fn since(&self, monotonic: Duration) -> Option<Duration> {
        let mut inner = self.lock();
        if inner.is_late(monotonic) {
            (inner.since, inner.has_failed) = (monotonic, true);
            return None;
        }
        Some(inner.since)
    }

    /// The time of this or another node went from one moment to another at once.
    pub(in crate::engine) fn leapt(&self, from: Timestamp, to: Timestamp) {
        if to.since(from) < LEAP_MIN {
            return;
        }
        let mut inner = self.lock();
        // Nodes that leap together tell of the same leap.
        inner.leaps.add(from, to);
        inner.absences.add(from, to);
        // Mostly a round of presence that was late, as in an outage; harmless, but it explains why something waits longer.
        tracing::info!(?from, ?to, "a node's time went on by more than a round of presence at once");
    }

    /// How long ago a time was that this or another node wrote, leaps left out.
    pub(in crate::engine) fn age(&self, time: Timestamp, now: Timestamp) -> Duration {
        self.lock().leaps.outside(time, now)
    }

    /// For how much of the time since then workers could be heard: neither before this node's start, nor while presence
    /// did not work. `monotonic` is now, too.
    pub(in crate::engine) fn attended(&self, time: Timestamp, now: Timestamp, monotonic: Duration) -> Duration {
        let inner = self.lock();
        // The round that is late, or has failed, ends its absence only once one works.
        let is_absent = inner.has_failed || inner.is_late(monotonic);
        let until = if is_absent { inner.worked_now } else { now };
        inner.absences.outside(time, until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_micros(second * 1_000_000)
    }

    /// Begins at second 100 by monotonic time, and 1,000 by the node's.
    fn steadiness() -> Steadiness {
        Steadiness::new(SECOND, 100 * SECOND, at(1_000))
    }

    fn works(steadiness: &Steadiness, seconds: std::ops::Range<u32>) {
        for second in seconds {
            steadiness.worked(second * SECOND, at(900 + i64::from(second)), SECOND);
        }
    }

    #[test]
    fn presence_is_steady_while_its_rounds_work_and_come_in_time() {
        let steadiness = steadiness();
        works(&steadiness, 101..110);
        assert_eq!(steadiness.since(110 * SECOND), Some(100 * SECOND));
        steadiness.failed(110 * SECOND);
        works(&steadiness, 111..112);
        assert_eq!(steadiness.since(112 * SECOND), Some(110 * SECOND), "a failure interrupts it");
        assert_eq!(steadiness.since(117 * SECOND), None, "and so does a round that does not come");
        works(&steadiness, 200..201);
        assert_eq!(steadiness.since(201 * SECOND), Some(200 * SECOND), "or comes late");
    }

    #[test]
    fn only_time_in_which_presence_worked_counts_as_attended() {
        let steadiness = steadiness();
        works(&steadiness, 101..111);
        assert_eq!(steadiness.attended(at(990), at(1_010), 110 * SECOND), 10 * SECOND, "not before the start");
        steadiness.failed(111 * SECOND);
        assert_eq!(
            steadiness.attended(at(1_005), at(1_015), 115 * SECOND),
            5 * SECOND,
            "an outage goes on until a round works"
        );
        works(&steadiness, 120..130);
        assert_eq!(steadiness.attended(at(1_005), at(1_029), 129 * SECOND), 14 * SECOND);
        assert_eq!(steadiness.attended(at(1_005), at(1_199), 299 * SECOND), 14 * SECOND, "before anybody has noticed");
        assert_eq!(steadiness.age(at(1_005), at(1_029)), 24 * SECOND, "while time passes all the same");
        works(&steadiness, 300..310);
        assert_eq!(
            steadiness.attended(at(1_029), at(1_209), 309 * SECOND),
            9 * SECOND,
            "a process that was stopped was absent"
        );
    }

    #[test]
    fn what_was_written_before_a_leap_is_as_old_as_without_it() {
        let steadiness = steadiness();
        steadiness.leapt(at(1_000), at(1_300));
        for (time, age) in [(1_000, 5), (1_299, 5), (1_302, 3), (1_400, 0)] {
            assert_eq!(steadiness.age(at(time), at(1_305)), age * SECOND, "{time}");
            assert_eq!(steadiness.attended(at(time), at(1_305), 105 * SECOND), age * SECOND, "{time}");
        }
        assert_eq!(steadiness.age(at(990), at(1_305)), 15 * SECOND);
    }

    #[test]
    fn several_nodes_that_leap_together_leapt_once() {
        let steadiness = steadiness();
        steadiness.leapt(at(1_000), at(1_300));
        steadiness.leapt(at(1_001), at(1_301));
        steadiness.leapt(at(5_000), at(5_100));
        steadiness.leapt(at(5_000), at(5_000) + SECOND / 2);
        assert_eq!(steadiness.age(at(990), at(1_305)), 14 * SECOND);
        assert_eq!(steadiness.age(at(4_999), at(5_101)), 2 * SECOND);
    }

    #[test]
    fn leaps_are_remembered_within_a_bound() {
        let steadiness = steadiness();
        for number in 2..200 {
            steadiness.leapt(at(number * 1_000), at(number * 1_000 + 100));
        }
        assert_eq!(steadiness.lock().leaps.0.len(), GAPS_MAX);
        assert_eq!(steadiness.lock().absences.0.len(), GAPS_MAX);
        assert_eq!(steadiness.age(at(198_990), at(199_110)), 20 * SECOND);
    }
}
