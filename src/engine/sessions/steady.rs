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
/// Leaps that are remembered; there is one each time that a node joins whose time is ahead.
const LEAPS_MAX: usize = 8;
/// What moves a node's time by less is no leap: nodes drift apart by as much between two rounds.
pub(in crate::engine) const LEAP_MIN: Duration = Duration::from_secs(1);

/// How far presence can be trusted.
#[derive(Debug)]
pub(in crate::engine) struct Steadiness {
    interval: Duration,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Since when it has been steady, by monotonic time.
    since: Duration,
    /// When it last worked.
    worked: Duration,
    /// Times that never were, by when they ended: nothing happened between the two.
    leaps: Vec<(Timestamp, Timestamp)>,
}

impl Steadiness {
    /// Begins now, with a round every `interval`.
    pub(in crate::engine) fn new(interval: Duration, monotonic: Duration) -> Self {
        let inner = Inner { since: monotonic, worked: monotonic, leaps: Vec::new() };
        Self { interval, inner: Mutex::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A round of presence worked.
    pub(super) fn worked(&self, monotonic: Duration) {
        let mut inner = self.lock();
        if monotonic.saturating_sub(inner.worked) > self.interval * ROUNDS_MISSED_MAX {
            inner.since = monotonic;
        }
        inner.worked = monotonic;
    }

    /// A round failed: what was to be heard in it may have been missed.
    pub(super) fn failed(&self, monotonic: Duration) {
        self.lock().since = monotonic;
    }

    /// Since when presence has been steady; nothing if it is not.
    pub(in crate::engine) fn since(&self, monotonic: Duration) -> Option<Duration> {
        let mut inner = self.lock();
        if monotonic.saturating_sub(inner.worked) > self.interval * ROUNDS_MISSED_MAX {
            inner.since = monotonic;
            return None;
        }
        Some(inner.since)
    }

    /// Whether every worker that lives has had the time to say what it holds, and its word to be stored.
    pub(in crate::engine) fn has_heard_all(&self, monotonic: Duration, heartbeat_interval: Duration) -> bool {
        let needed = heartbeat_interval + self.interval * 2;
        self.since(monotonic).is_some_and(|since| monotonic.saturating_sub(since) >= needed)
    }

    /// The time of this or another node went from one moment to another at once.
    pub(in crate::engine) fn leapt(&self, from: Timestamp, to: Timestamp) {
        if to.since(from) < LEAP_MIN {
            return;
        }
        let mut inner = self.lock();
        // Nodes that leap together tell of the same leap.
        let (mut from, mut to) = (from, to);
        inner.leaps.retain(|(earlier_from, earlier_to)| {
            let is_apart = *earlier_to < from || to < *earlier_from;
            if !is_apart {
                (from, to) = (from.min(*earlier_from), to.max(*earlier_to));
            }
            is_apart
        });
        inner.leaps.push((from, to));
        inner.leaps.sort_unstable();
        if inner.leaps.len() > LEAPS_MAX {
            inner.leaps.remove(0);
        }
        tracing::warn!(?from, ?to, "the time of this or another node leapt ahead");
    }

    /// How long ago a time was that this or another node wrote, leaps left out.
    pub(in crate::engine) fn age(&self, time: Timestamp, now: Timestamp) -> Duration {
        let inner = self.lock();
        let leapt: Duration = inner.leaps.iter().map(|(from, to)| now.min(*to).since(time.max(*from))).sum();
        now.since(time).saturating_sub(leapt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_micros(second * 1_000_000)
    }

    fn steadiness() -> Steadiness {
        Steadiness::new(SECOND, 100 * SECOND)
    }

    #[test]
    fn presence_is_steady_while_its_rounds_work_and_come_in_time() {
        let steadiness = steadiness();
        for second in 101..110 {
            steadiness.worked(second * SECOND);
        }
        assert_eq!(steadiness.since(110 * SECOND), Some(100 * SECOND));
        steadiness.failed(110 * SECOND);
        steadiness.worked(111 * SECOND);
        assert_eq!(steadiness.since(112 * SECOND), Some(110 * SECOND), "a failure interrupts it");
        assert_eq!(steadiness.since(117 * SECOND), None, "and so does a round that does not come");
        steadiness.worked(200 * SECOND);
        assert_eq!(steadiness.since(201 * SECOND), Some(200 * SECOND), "or comes late");
    }

    #[test]
    fn all_are_heard_after_a_heartbeat_and_two_rounds() {
        let steadiness = steadiness();
        for second in 101..120 {
            steadiness.worked(second * SECOND);
            assert_eq!(steadiness.has_heard_all(second * SECOND, 10 * SECOND), second >= 112, "second {second}");
        }
    }

    #[test]
    fn what_was_written_before_a_leap_is_as_old_as_without_it() {
        let steadiness = steadiness();
        steadiness.leapt(at(1_000), at(1_300));
        assert_eq!(steadiness.age(at(990), at(995)), 5 * SECOND);
        assert_eq!(steadiness.age(at(990), at(1_305)), 15 * SECOND);
        assert_eq!(steadiness.age(at(1_299), at(1_305)), 5 * SECOND, "by a node that was ahead");
        assert_eq!(steadiness.age(at(1_302), at(1_305)), 3 * SECOND);
        assert_eq!(steadiness.age(at(1_400), at(1_305)), Duration::ZERO);
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
        for number in 0..100 {
            steadiness.leapt(at(number * 1_000), at(number * 1_000 + 100));
        }
        assert_eq!(steadiness.lock().leaps.len(), LEAPS_MAX);
        assert_eq!(steadiness.age(at(98_990), at(99_110)), 20 * SECOND);
    }
}
