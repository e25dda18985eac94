//! Time zones: local time to instants and back, from the IANA data that is compiled in.
//!
//! # Design
//!
//! `chrono-tz` has the data in the program, so a container without any works, and expressions bring it anyway. Its tables
//! end with 2099. Rules of that time name weekdays of months, so 2100 is as 2094, which begins on the same weekday and
//! has as many days.

use super::civil::{Civil, DAY};
use crate::domain::definition::nearest;
use chrono::{DateTime, MappedLocalTime, NaiveDateTime, Offset, TimeZone};
use chrono_tz::{TZ_VARIANTS, Tz};

/// 2100-01-01T00:00:00Z: the tables end here.
const TABLES_END: i64 = 4_102_444_800;

/// From a time in 2094 to the one that is like it in 2100.
const CYCLE: i64 = 2_191 * DAY;

/// Further from any local time than its instant is: no zone is that far from UTC.
const OFFSET_BOUND: i64 = 2 * DAY;

/// Names that people use for a zone and that name none, or more than one.
const ABBREVIATIONS: [(&str, &str); 18] = [
    ("PST", "America/Los_Angeles"),
    ("PDT", "America/Los_Angeles"),
    ("PT", "America/Los_Angeles"),
    ("MDT", "America/Denver"),
    ("CST", "America/Chicago"),
    ("CDT", "America/Chicago"),
    ("CT", "America/Chicago"),
    ("EDT", "America/New_York"),
    ("ET", "America/New_York"),
    ("BST", "Europe/London"),
    ("CEST", "Europe/Berlin"),
    ("EEST", "Europe/Athens"),
    ("MSK", "Europe/Moscow"),
    ("IST", "Asia/Kolkata"),
    ("JST", "Asia/Tokyo"),
    ("SGT", "Asia/Singapore"),
    ("AEST", "Australia/Sydney"),
    ("AEDT", "Australia/Sydney"),
];

/// A zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Zone(Tz);

/// Where a local time is in a zone. Instants are seconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resolved {
    /// There is one such instant.
    Once(i64),
    /// The clocks were put back over it: the first instant and the second.
    Twice(i64, i64),
    /// The clocks were put forward over it.
    Never {
        /// When they were.
        at: i64,
        /// What they showed then.
        until: Civil,
    },
}

/// Which of two instants of a local time is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    First,
    Last,
}

impl Zone {
    pub(super) const UTC: Self = Self(Tz::UTC);

    /// The zone of a name, spelt as IANA does; otherwise a hint for the person who wrote it.
    pub(super) fn find(name: &str) -> Result<Self, String> {
        name.parse().map(Self).map_err(|_| hint(name))
    }

    /// What clocks show at an instant.
    pub(super) fn local(self, instant: i64) -> Civil {
        Civil(instant + self.offset(instant))
    }

    /// How far the clocks are ahead of UTC, in seconds.
    pub(super) fn offset(self, instant: i64) -> i64 {
        let like = if instant >= TABLES_END { instant - CYCLE } else { instant };
        i64::from(self.0.offset_from_utc_datetime(&naive(like)).fix().local_minus_utc())
    }

    /// The instants of a local time.
    pub(super) fn resolve(self, local: Civil) -> Resolved {
        let cycle = if local.0 >= TABLES_END { CYCLE } else { 0 };
        let instant = |offset: &<Tz as TimeZone>::Offset| local.0 - i64::from(offset.fix().local_minus_utc());
        match self.0.offset_from_local_datetime(&naive(local.0 - cycle)) {
            MappedLocalTime::Single(offset) => Resolved::Once(instant(&offset)),
            MappedLocalTime::Ambiguous(one, other) => {
                let (one, other) = (instant(&one), instant(&other));
                Resolved::Twice(one.min(other), one.max(other))
            }
            MappedLocalTime::None => {
                let at = bisect(local.0 - OFFSET_BOUND, local.0 + OFFSET_BOUND, |at| self.local(at) > local);
                Resolved::Never { at, until: self.local(at) }
            }
        }
    }

    /// The first local time whose instant in a pass is at or after `instant`. Those of times that are missing count as
    /// the instant at which the clocks were put forward. With each pass for itself instants never decrease as local time
    /// goes on, so what comes before this time is earlier and what comes after it is not.
    pub(super) fn threshold(self, instant: i64, pass: Pass) -> Civil {
        let local = self.local(instant);
        match (self.resolve(local), pass) {
            (Resolved::Twice(first, second), Pass::Last) if instant == first => {
                self.local(self.change_between(first, second))
            }
            (Resolved::Twice(first, second), Pass::First) if instant == second => {
                let before = self.change_between(first, second) - 1;
                Civil(self.local(before).0 + 1)
            }
            // Just after the clocks were put forward, what they left out counts as now.
            (Resolved::Once(_) | Resolved::Twice(..) | Resolved::Never { .. }, _) => {
                local.min(Civil(self.local(instant - 1).0 + 1))
            }
        }
    }

    /// When the clocks were put back between two instants that show the same time.
    fn change_between(self, first: i64, second: i64) -> i64 {
        let before = self.offset(first);
        bisect(first, second, |at| self.offset(at) != before)
    }
}

/// The first instant after `low` and not after `high` for which something holds that holds for `high`, not for `low`, and
/// changes once between.
fn bisect(mut low: i64, mut high: i64, holds: impl Fn(i64) -> bool) -> i64 {
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

fn naive(seconds: i64) -> NaiveDateTime {
    DateTime::from_timestamp(seconds, 0).unwrap_or_default().naive_utc()
}

/// What to write instead of a name that no zone has.
fn hint(name: &str) -> String {
    const EXAMPLE: &str = "write an IANA name such as `Europe/London`, or `UTC`";
    if name.trim().is_empty() {
        return format!("{EXAMPLE}; no zone is assumed");
    }
    if name.bytes().any(|byte| byte.is_ascii_digit()) && name.contains(['+', '-']) {
        return format!(
            "an offset is no zone; {EXAMPLE}. For a fixed offset there is `Etc/GMT-3`, which is 3 hours ahead of UTC"
        );
    }
    if let Some((_, zone)) = ABBREVIATIONS.iter().find(|(short, _)| short.eq_ignore_ascii_case(name)) {
        return format!("an abbreviation does not say which rules hold; did you mean `{zone}`?");
    }
    // A city alone, or the wrong capitals.
    let folded = |text: &str| text.to_ascii_lowercase().replace([' ', '-'], "_");
    let (wanted, names) = (folded(name), || TZ_VARIANTS.iter().map(|zone| zone.name()));
    let is_alike = |known: &&str| {
        let known = folded(known);
        known == wanted || known.rsplit('/').next() == wanted.rsplit('/').next()
    };
    let mut alike: Vec<&str> = names().filter(is_alike).take(3).collect();
    if alike.is_empty() {
        alike.extend(nearest(name, names()));
    }
    match alike.as_slice() {
        [] => EXAMPLE.to_owned(),
        [one] => format!("did you mean `{one}`?"),
        several => {
            let names: Vec<String> = several.iter().map(|name| format!("`{name}`")).collect();
            format!("did you mean {}?", names.join(" or "))
        }
    }
}
