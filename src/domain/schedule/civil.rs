//! Local time: what a clock on the wall shows, without saying where the wall is.

use crate::domain::definition::duration::{date_from_epoch, days_from_epoch};
use std::fmt;

/// Seconds of one day on a clock. A change of the clocks makes a day longer or shorter, but not what clocks can show.
pub(super) const DAY: i64 = 86_400;

/// Seconds since the clock showed 1970-01-01T00:00:00, every day counted with 86,400.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Civil(pub(super) i64);

impl Civil {
    /// The beginning of a day that is so many after 1970-01-01.
    pub(super) const fn of_day(day: i64) -> Self {
        Self(day * DAY)
    }

    /// The day, counted from 1970-01-01.
    pub(super) const fn day(self) -> i64 {
        self.0.div_euclid(DAY)
    }

    /// The second of the day, 0 to 86,399.
    pub(super) fn second_of_day(self) -> u32 {
        u32::try_from(self.0.rem_euclid(DAY)).expect("a day has fewer seconds")
    }
}

/// As RFC 3339 without an offset.
impl fmt::Display for Civil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date_from_epoch(self.day());
        let second = self.second_of_day();
        write!(f, "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
    }
}

/// How many days a month has.
pub(super) fn days_in_month(year: i64, month: i64) -> u32 {
    let following = if month == 12 { days_from_epoch(year + 1, 1, 1) } else { days_from_epoch(year, month + 1, 1) };
    u32::try_from(following - days_from_epoch(year, month, 1)).expect("a month has at most 31 days")
}

/// The weekday of a day since 1970-01-01, which was a Thursday: 0 is Sunday.
pub(super) fn weekday(day: i64) -> u32 {
    u32::try_from((day + 4).rem_euclid(7)).expect("a week has seven days")
}
