//! When a schedule fires, as its owner wrote it: nothing here has been judged yet. [`Spec::check`](super::Spec::check)
//! does so.

use crate::domain::Timestamp;
use std::time::Duration;

/// The times of a schedule. They are the union of all crons, intervals and calendars, without what is excluded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    /// Cron expressions: five fields, or a word such as `@daily`. At most [`SOURCES_MAX`](super::SOURCES_MAX).
    pub crons: Vec<String>,
    /// Whether crons, also excluded ones, may have six fields, the first for seconds. Default: no, so that a field too
    /// many is an error and not another meaning of all the others.
    pub cron_seconds: bool,
    /// Intervals. At most [`SOURCES_MAX`](super::SOURCES_MAX).
    pub intervals: Vec<Interval>,
    /// Calendars. At most [`SOURCES_MAX`](super::SOURCES_MAX).
    pub calendars: Vec<Calendar>,
    /// What never fires.
    pub exclusions: Exclusions,
    /// IANA name of the zone that crons, calendars and excluded dates are read in, such as `Europe/London` or `UTC`.
    /// Required, except where there are intervals only, which no zone changes.
    pub timezone: String,
    /// First instant that may be a slot; none: no limit.
    pub start_time: Option<Timestamp>,
    /// Last instant that may be a slot; none: no limit.
    pub end_time: Option<Timestamp>,
    /// How much later than its slot a run may start, at most; 0 to 24 h. The delay follows from the schedule's uid and
    /// the slot, so it is always the same; it ends before the next slot begins.
    pub jitter: Duration,
    /// What becomes of local times that a change of the clocks leaves out. Default: [`Missing::Shift`] for fixed times,
    /// [`Missing::Skip`] for those that follow the clock round (every hour, every minute).
    pub missing: Option<Missing>,
    /// What becomes of local times that a change of the clocks repeats. Default: [`Repeated::First`] for fixed times,
    /// [`Repeated::Both`] for those that follow the clock round.
    pub repeated: Option<Repeated>,
}

/// Every so often, counted from 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The span from one to the next: whole seconds, 1 s to 36,500 days.
    pub every: Duration,
    /// How much later than the multiples of `every`: whole seconds, below `every`.
    pub offset: Duration,
}

/// Dates and times of the day by their parts. A time matches if every part does, so a weekday and a day of the month
/// together mean both (a cron means either).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calendar {
    /// 1970 to 2100; empty: every year.
    pub years: Vec<Range>,
    /// 1 to 12; empty: every month.
    pub months: Vec<Range>,
    /// 1 to 31, or -1 to -31 counted from the month's end (-1 is its last day); empty: every day.
    pub days: Vec<Range>,
    /// 0 to 7, where 0 and 7 are Sunday; empty: every day.
    pub weekdays: Vec<Range>,
    /// 0 to 23; empty: 0, and every hour in an exclusion.
    pub hours: Vec<Range>,
    /// 0 to 59; empty: 0, and every minute in an exclusion.
    pub minutes: Vec<Range>,
    /// 0 to 59; empty: 0, and every second in an exclusion.
    pub seconds: Vec<Range>,
}

/// Numbers from `first` to `last` in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub first: i32,
    /// The last that may be; `first` itself, if only that one is meant.
    pub last: i32,
    /// From one to the next, at least 1.
    pub step: i32,
}

impl Range {
    /// One number.
    #[must_use]
    pub const fn one(number: i32) -> Self {
        Self { first: number, last: number, step: 1 }
    }
}

/// What never fires, although a cron, an interval or a calendar says so. It is judged by the local time of the slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusions {
    /// Every time in a minute that matches (in a second, with six fields).
    pub crons: Vec<String>,
    /// Every time that matches; without hours, minutes and seconds the whole day.
    pub calendars: Vec<Calendar>,
    /// Whole days, from the first to the last.
    pub dates: Vec<DateRange>,
}

/// Days from one to another, both included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DateRange {
    /// The first day, such as `2026-12-24`; 1970 to 2100.
    pub first: String,
    /// The last day; none: the first.
    pub last: Option<String>,
}

/// What becomes of local times that do not exist, because the clocks were put forward over them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// They are left out.
    Skip,
    /// All of them together fire once, at the instant at which the clocks were put forward.
    Shift,
}

/// What becomes of local times that exist twice, because the clocks were put back over them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeated {
    /// The first time fires.
    First,
    /// The second time fires.
    Last,
    /// Both fire: two slots.
    Both,
}
