//! A schedule's times that have been checked: which slot comes after an instant.
//!
//! # Clocks that change
//!
//! Local times are looked for in their own order, each then turned into its instant. Taken at their first instants, or at
//! their last, times never run backwards over a change of the clocks, and what is missing counts as the instant of the
//! change; so the slot after an instant is found from one local time on ([`Zone::threshold`]), without trying what lies
//! before. Where both passes of a repeated hour fire, it is the earlier of the two.

use super::{
    Draft, Fault, Missing, Repeated, check,
    civil::{Civil, DAY},
    code, fault,
    pattern::Pattern,
    zone::{Pass, Resolved, Zone},
};
use crate::domain::{Timestamp, definition::duration::format_time};

/// 2101-01-01T00:00:00Z, where intervals end, in seconds. Dates end with 2100 in their own zone.
const END: i64 = 4_133_980_800;

/// Most candidates that one search looks at. An excluded one may cost another, though whole days are passed over at once;
/// at under a microsecond each this bounds a call to some ten milliseconds.
const WORK_MAX: u32 = 20_000;

/// The times of a schedule, ready to be searched.
#[derive(Clone, Debug)]
pub struct Spec {
    draft: Draft,
    zone: Zone,
    sources: Vec<Source>,
    exclusions: Vec<Exclusion>,
}

/// Two specs are equal if they say the same in the same words.
impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        self.draft == other.draft
    }
}

impl Eq for Spec {}

/// One thing that makes slots.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Clock(Box<Clock>),
    Interval { every: i64, offset: i64 },
}

/// Local times, and what becomes of those that clocks leave out or repeat.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    pub(super) pattern: Pattern,
    pub(super) missing: Missing,
    pub(super) repeated: Repeated,
}

/// Something that keeps slots from firing: a pattern or a span of days, both included.
#[derive(Clone, Debug)]
pub(super) struct Exclusion {
    /// The field, for a preview.
    pub(super) path: String,
    pub(super) pattern: Option<Pattern>,
    pub(super) days: Option<(i64, i64)>,
}

/// What comes after an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upcoming {
    /// This slot.
    At(Timestamp),
    /// No slot up to this instant, itself included: so many were excluded that the search stopped here. It goes on from
    /// here.
    NotBefore(Timestamp),
    /// No slot ever.
    Never,
}

/// An instant at which something would be, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) at: i64,
    pub(super) verdict: Verdict,
}

/// What clocks make of a candidate; exclusions come after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Fires,
    /// The local time is missing, and such times are left out.
    Missing(Civil),
    /// The local time is repeated, and the other one fires.
    Repeated,
}

/// Which candidates are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Firing,
    /// Also those that the clocks' changes keep from firing.
    All,
}

impl Spec {
    /// Judges a draft, whatever the time: one that is stored stays right.
    ///
    /// # Errors
    ///
    /// All faults of it, at least one.
    pub fn check(draft: &Draft) -> Result<Self, Vec<Fault>> {
        check::check(draft)
    }

    pub(super) const fn new(draft: Draft, zone: Zone, sources: Vec<Source>, exclusions: Vec<Exclusion>) -> Self {
        Self { draft, zone, sources, exclusions }
    }

    /// What was checked.
    #[must_use]
    pub const fn draft(&self) -> &Draft {
        &self.draft
    }

    /// Whether anything fires after an instant; to be asked when a schedule is made or changed.
    ///
    /// # Errors
    ///
    /// The fault, if nothing does, or if so much is excluded that nobody can tell within bounds.
    pub fn fires_after(&self, now: Timestamp) -> Result<(), Fault> {
        let (path, message) = match self.upcoming(now) {
            Upcoming::At(_) => return Ok(()),
            Upcoming::NotBefore(_) => ("exclusions", format!("they leave out {WORK_MAX} times in a row")),
            Upcoming::Never => match self.draft.end_time {
                Some(end) if end <= now => ("end_time", format!("{} has passed", format_time(end))),
                Some(_) => ("", "no time of the schedule is before its end".to_owned()),
                None => ("", "no time of the schedule is left".to_owned()),
            },
        };
        let hint = "a schedule must have a slot that is still to come; backfill starts those that have passed";
        Err(fault(path, code::NEVER_FIRES, message, hint))
    }

    /// The nominal time of the next slot, strictly after an instant; none if there is none before the end of 2100, or none
    /// within the bounds of a search ([`upcoming`](Self::upcoming) tells which).
    #[must_use]
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self.upcoming(after) {
            Upcoming::At(slot) => Some(slot),
            Upcoming::NotBefore(_) | Upcoming::Never => None,
        }
    }

    /// What comes strictly after an instant. Takes bounded work, also where almost everything is excluded.
    #[must_use]
    pub fn upcoming(&self, after: Timestamp) -> Upcoming {
        let after = self.floor(after);
        let mut work = WORK_MAX;
        let mut nearest: Option<i64> = None;
        // Where the search of a source had to stop, nothing after it is known.
        let mut known_until: Option<i64> = None;
        for source in &self.sources {
            match self.firing(source, after, nearest, &mut work) {
                Ok(Some(at)) => nearest = Some(nearest.map_or(at, |best| best.min(at))),
                Ok(None) => {}
                Err(stopped) => known_until = Some(known_until.map_or(stopped, |known| known.min(stopped))),
            }
        }
        let end = self.draft.end_time.map_or(i64::MAX, |end| end.as_micros().div_euclid(1_000_000));
        match (nearest.filter(|at| *at <= end), known_until.filter(|at| *at < end)) {
            (Some(at), Some(known)) if known < at => Upcoming::NotBefore(seconds(known)),
            (Some(at), _) => Upcoming::At(seconds(at)),
            (None, Some(known)) => Upcoming::NotBefore(seconds(known)),
            (None, None) => Upcoming::Never,
        }
    }

    /// What clocks show at an instant, as RFC 3339 with its offset.
    #[must_use]
    pub fn local(&self, instant: Timestamp) -> String {
        let instant = instant.as_micros().div_euclid(1_000_000);
        let offset = self.zone.offset(instant);
        let sign = if offset < 0 { '-' } else { '+' };
        let (hours, minutes) = (offset.abs() / 3_600, offset.abs() / 60 % 60);
        format!("{}{sign}{hours:02}:{minutes:02}", self.zone.local(instant))
    }

    /// What clocks show at an instant.
    pub(super) fn local_time(&self, at: i64) -> Civil {
        self.zone.local(at)
    }

    /// Where a search that begins after an instant really begins, in seconds.
    pub(super) fn floor(&self, after: Timestamp) -> i64 {
        let after = after.as_micros().div_euclid(1_000_000);
        let start = self.draft.start_time.map(|start| (start.as_micros() + 999_999).div_euclid(1_000_000) - 1);
        // Far outside of all years searches would leave what instants can hold.
        start.map_or(after, |start| start.max(after)).clamp(-DAY * 366, END)
    }

    /// The next instant after one at which a source fires and nothing excludes it, or where the search had to stop.
    /// One after `bound` need not be found.
    fn firing(&self, source: &Source, after: i64, bound: Option<i64>, work: &mut u32) -> Result<Option<i64>, i64> {
        let mut after = after;
        loop {
            let Some(Candidate { at, .. }) = source.next(after, self.zone, Wanted::Firing) else { return Ok(None) };
            if bound.is_some_and(|bound| at >= bound) {
                return Ok(None);
            }
            let local = self.zone.local(at);
            let Some(exclusion) = self.excluding(local) else { return Ok(Some(at)) };
            after = at.max(self.beyond(exclusion, source, at, local));
            *work = work.saturating_sub(1);
            if *work == 0 {
                return Err(after);
            }
        }
    }

    /// The exclusion that a local time falls under.
    pub(super) fn excluding(&self, local: Civil) -> Option<&Exclusion> {
        self.exclusions.iter().find(|exclusion| exclusion.contains(local))
    }

    /// An instant up to which an exclusion leaves nothing of a source, given one that it excludes.
    fn beyond(&self, exclusion: &Exclusion, source: &Source, at: i64, local: Civil) -> i64 {
        let until = exclusion.first_outside(source, local);
        // In the first pass of a repeated hour the clocks will show what came before `local` once more, and that may not
        // be excluded.
        if matches!(self.zone.resolve(local), Resolved::Twice(first, _) if first == at) {
            return at;
        }
        match self.zone.resolve(until) {
            Resolved::Once(instant) | Resolved::Twice(instant, _) | Resolved::Never { at: instant, .. } => instant - 1,
        }
    }

    /// The candidates of all sources, to be gone through in order.
    pub(super) fn candidates(&self) -> Candidates<'_> {
        Candidates { spec: self, next: vec![Known::Nothing; self.sources.len()], searches: 0 }
    }
}

/// Candidates of all sources. What each has next is searched for once, until that has passed.
pub(super) struct Candidates<'s> {
    spec: &'s Spec,
    /// What is known of each source.
    next: Vec<Known>,
    /// How many searches it took.
    pub(super) searches: usize,
}

#[derive(Clone, Copy)]
enum Known {
    Nothing,
    Next(Candidate),
    End,
}

impl Candidates<'_> {
    /// The next candidate after an instant, which is never before that of the call before; where several are at one, a
    /// firing one.
    pub(super) fn after(&mut self, after: i64) -> Option<Candidate> {
        for (source, known) in self.spec.sources.iter().zip(&mut self.next) {
            if matches!(known, Known::Nothing) || matches!(known, Known::Next(candidate) if candidate.at <= after) {
                self.searches += 1;
                *known = source.next(after, self.spec.zone, Wanted::All).map_or(Known::End, Known::Next);
            }
        }
        let candidates = self.next.iter().filter_map(|known| match known {
            Known::Next(candidate) => Some(*candidate),
            Known::Nothing | Known::End => None,
        });
        candidates.min_by_key(|candidate| (candidate.at, candidate.verdict != Verdict::Fires))
    }
}

impl Exclusion {
    fn contains(&self, local: Civil) -> bool {
        self.days.is_some_and(|(first, last)| (first..=last).contains(&local.day()))
            || self.pattern.as_ref().is_some_and(|pattern| pattern.contains(local))
    }

    /// The first local time after one that it contains at which it lets something of a source pass.
    fn first_outside(&self, source: &Source, local: Civil) -> Civil {
        if let Some((_, last)) = self.days.filter(|(first, last)| (first..=last).contains(&&local.day())) {
            return Civil::of_day(last + 1);
        }
        let Some(pattern) = &self.pattern else { return local };
        match source {
            // All that the source has on such a day is excluded, however finely it is divided.
            Source::Clock(clock) if pattern.covers_times_of(&clock.pattern) => {
                Civil::of_day(pattern.day_outside(local.day()))
            }
            Source::Clock(_) | Source::Interval { .. } => pattern.first_outside(local),
        }
    }
}

impl Source {
    /// The next candidate strictly after an instant.
    fn next(&self, after: i64, zone: Zone, wanted: Wanted) -> Option<Candidate> {
        match self {
            Self::Clock(clock) => clock.next(after + 1, zone, wanted),
            Self::Interval { every, offset } => {
                let at = (after - offset).div_euclid(*every).checked_add(1)? * every + offset;
                (at < END).then_some(Candidate { at, verdict: Verdict::Fires })
            }
        }
    }
}

impl Clock {
    /// The first candidate at or after an instant.
    fn next(&self, from: i64, zone: Zone, wanted: Wanted) -> Option<Candidate> {
        let (is_first_wanted, is_last_wanted) = match (wanted, self.repeated) {
            (Wanted::All, _) | (Wanted::Firing, Repeated::Both) => (true, true),
            (Wanted::Firing, Repeated::First) => (true, false),
            (Wanted::Firing, Repeated::Last) => (false, true),
        };
        let first = if is_first_wanted { self.scan(from, zone, wanted, Pass::First) } else { None };
        let last = if is_last_wanted { self.scan(from, zone, wanted, Pass::Last) } else { None };
        [first, last].into_iter().flatten().min_by_key(|candidate| (candidate.at, candidate.verdict != Verdict::Fires))
    }

    /// The same, of one pass.
    fn scan(&self, from: i64, zone: Zone, wanted: Wanted, pass: Pass) -> Option<Candidate> {
        let mut local = zone.threshold(from, pass);
        loop {
            local = self.pattern.next(local)?;
            let (at, verdict) = match (zone.resolve(local), pass, self.repeated) {
                (Resolved::Once(at), ..) => (at, Verdict::Fires),
                (Resolved::Twice(at, _), Pass::First, Repeated::First | Repeated::Both) => (at, Verdict::Fires),
                (Resolved::Twice(_, at), Pass::Last, Repeated::Last | Repeated::Both) => (at, Verdict::Fires),
                (Resolved::Twice(at, _), Pass::First, Repeated::Last) => (at, Verdict::Repeated),
                (Resolved::Twice(_, at), Pass::Last, Repeated::First) => (at, Verdict::Repeated),
                (Resolved::Never { at, until }, ..) => match (self.missing, wanted) {
                    (Missing::Shift, _) => (at, Verdict::Fires),
                    (Missing::Skip, Wanted::All) => (at, Verdict::Missing(local)),
                    (Missing::Skip, Wanted::Firing) => {
                        local = until;
                        continue;
                    }
                },
            };
            return Some(Candidate { at, verdict });
        }
    }
}

pub(super) const fn seconds(at: i64) -> Timestamp {
    Timestamp::from_micros(at * 1_000_000)
}
