//! Which local times match: sets of seconds, minutes, hours, days, months and years.
//!
//! A set is a word of bits, so the next match of a month, day or minute is found without trying any between. The work of
//! a search is bounded by the months of [`YEARS`], whatever the sets are.

use super::civil::{Civil, days_in_month, weekday};
use crate::domain::definition::duration::{date_from_epoch, days_from_epoch};
use std::ops::RangeInclusive;

/// The years in which a schedule may fire.
pub(super) const YEARS: RangeInclusive<i64> = 1970..=2100;

/// Every second or minute.
pub(super) const SIXTY: u64 = (1 << 60) - 1;

/// Every hour.
pub(super) const HOURS: u32 = (1 << 24) - 1;

/// Every day of a month, 1 to 31.
pub(super) const DAYS: u32 = u32::MAX - 1;

/// Every month, 1 to 12.
pub(super) const MONTHS: u16 = 0x1FFE;

/// Every weekday; bit 0 is Sunday.
pub(super) const WEEKDAYS: u8 = 0x7F;

/// The sets. A time matches if all of its parts do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// Bits 0 to 59.
    pub(super) seconds: u64,
    /// Bits 0 to 59.
    pub(super) minutes: u64,
    /// Bits 0 to 23.
    pub(super) hours: u32,
    /// Which days of a month.
    pub(super) days: Days,
    /// Bits 1 to 12.
    pub(super) months: u16,
    /// The years.
    pub(super) years: Years,
}

/// Which days of a month.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Days {
    /// Bits 1 to 31.
    pub(super) of_month: u32,
    /// Bits 1 to 31, where 1 is the last day of the month.
    pub(super) from_end: u32,
    /// Bits 0 to 6, where 0 is Sunday.
    pub(super) weekdays: u8,
    /// Whether a day of the month or a weekday is enough. Otherwise it must be both.
    pub(super) either: bool,
}

/// A set of years among [`YEARS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Years([u64; 3]);

impl Years {
    /// All.
    pub(super) fn all() -> Self {
        let mut years = Self::none();
        YEARS.for_each(|year| years.insert(year));
        years
    }

    /// None yet.
    pub(super) const fn none() -> Self {
        Self([0; 3])
    }

    /// Adds one; of those outside of [`YEARS`] nothing is remembered.
    pub(super) fn insert(&mut self, year: i64) {
        if let Some(index) = Self::index(year) {
            self.0[index / 64] |= 1 << (index % 64);
        }
    }

    fn contains(&self, year: i64) -> bool {
        Self::index(year).is_some_and(|index| self.0[index / 64] >> (index % 64) & 1 == 1)
    }

    fn index(year: i64) -> Option<usize> {
        YEARS.contains(&year).then(|| usize::try_from(year - YEARS.start()).expect("not before the first"))
    }
}

impl Days {
    /// The days of a month that match, as bits 1 to 31.
    fn of(&self, year: i64, month: i64) -> u32 {
        let length = days_in_month(year, month);
        // Turned so that bit 0 is the first of the month, and repeated for five weeks.
        let first = weekday(days_from_epoch(year, month, 1));
        let week = u64::from(self.weekdays);
        let week = (week >> first | week << (7 - first)) & u64::from(WEEKDAYS);
        let on_weekdays = (week * 0x1020_4081) << 1;
        // Turned round, so that bit 1 is the last of the month's days.
        let from_end = u64::from(self.from_end.reverse_bits()) << 1 >> (31 - length);
        let of_month = u64::from(self.of_month) | from_end;
        let days = if self.either { of_month | on_weekdays } else { of_month & on_weekdays };
        u32::try_from(days & u64::from(DAYS >> (31 - length))).expect("31 bits are left")
    }
}

impl Pattern {
    /// The first match at or after a time; none if there is none in [`YEARS`].
    pub(super) fn next(&self, from: Civil) -> Option<Civil> {
        let from = from.max(Civil::of_day(days_from_epoch(*YEARS.start(), 1, 1)));
        let today = from.day();
        if self.has_day(today)
            && let Some(second) = self.time_from(from.second_of_day())
        {
            return Some(Civil(Civil::of_day(today).0 + i64::from(second)));
        }
        let day = self.day_from(today + 1)?;
        Some(Civil(Civil::of_day(day).0 + i64::from(self.time_from(0)?)))
    }

    /// Whether a time matches.
    pub(super) fn contains(&self, time: Civil) -> bool {
        self.has_time(time.second_of_day()) && self.has_day(time.day())
    }

    /// The first time at or after one that does not match. Beyond [`YEARS`] nothing matches.
    pub(super) fn first_outside(&self, from: Civil) -> Civil {
        let mut at = from;
        // Unit by unit: at most the seconds of a minute, the minutes of an hour, the hours of a day, and the days.
        while self.contains(at) {
            let second = at.second_of_day();
            let unit = if self.seconds != SIXTY {
                1
            } else if self.minutes != SIXTY {
                60
            } else if self.hours != HOURS {
                3_600
            } else {
                return Civil::of_day(self.day_outside(at.day()));
            };
            at = Civil(at.0 - i64::from(second % unit) + i64::from(unit));
        }
        at
    }

    /// The first day after one that does not match.
    pub(super) fn day_outside(&self, day: i64) -> i64 {
        let mut day = day + 1;
        while self.has_day(day) {
            // A month at a time: a pattern may match all days of all years.
            let (year, month, first) = date_from_epoch(day);
            let missing = u64::from(!self.days.of(year, month));
            let length = days_in_month(year, month);
            let first = u32::try_from(first).expect("days count from 1");
            let outside = next_bit(missing, first).unwrap_or(length + 1).min(length + 1);
            day += i64::from(outside - first);
        }
        day
    }

    /// Whether every time of the day at which `other` matches is one of this pattern, too.
    pub(super) fn covers_times_of(&self, other: &Self) -> bool {
        other.seconds & !self.seconds == 0 && other.minutes & !self.minutes == 0 && other.hours & !self.hours == 0
    }

    fn has_day(&self, day: i64) -> bool {
        let (year, month, day) = date_from_epoch(day);
        self.years.contains(year) && self.months >> month & 1 == 1 && self.days.of(year, month) >> day & 1 == 1
    }

    fn has_time(&self, second: u32) -> bool {
        self.hours >> (second / 3_600) & 1 == 1
            && self.minutes >> (second / 60 % 60) & 1 == 1
            && self.seconds >> (second % 60) & 1 == 1
    }

    /// The first matching day at or after one.
    fn day_from(&self, day: i64) -> Option<i64> {
        let (mut year, mut month, first) = date_from_epoch(day);
        let mut first = u32::try_from(first).expect("days count from 1");
        while year <= *YEARS.end() {
            if self.years.contains(year) && self.months >> month & 1 == 1 {
                let days = u64::from(self.days.of(year, month));
                if let Some(day) = next_bit(days, first) {
                    return Some(days_from_epoch(year, month, i64::from(day)));
                }
            }
            first = 1;
            (year, month) = if month == 12 || !self.years.contains(year) { (year + 1, 1) } else { (year, month + 1) };
        }
        None
    }

    /// The first matching second of a day at or after one.
    fn time_from(&self, from: u32) -> Option<u32> {
        let (hour, minute, second) = (from / 3_600, from / 60 % 60, from % 60);
        let hours = u64::from(self.hours);
        if hours >> hour & 1 == 1 {
            if self.minutes >> minute & 1 == 1
                && let Some(second) = next_bit(self.seconds, second)
            {
                return Some(hour * 3_600 + minute * 60 + second);
            }
            if let Some(minute) = next_bit(self.minutes, minute + 1) {
                return Some(hour * 3_600 + minute * 60 + next_bit(self.seconds, 0)?);
            }
        }
        let hour = next_bit(hours, hour + 1)?;
        Some(hour * 3_600 + next_bit(self.minutes, 0)? * 60 + next_bit(self.seconds, 0)?)
    }
}

/// The lowest bit that is set at or after one.
fn next_bit(bits: u64, from: u32) -> Option<u32> {
    let rest = bits.checked_shr(from)?;
    (rest != 0).then(|| from + rest.trailing_zeros())
}
