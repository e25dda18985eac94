//! Judges a draft: all of its faults at once, each with its field, its place in the text and what to do about it.

use super::{
    Calendar, DateRange, Draft, Fault, Interval, Missing, Range, Repeated, SOURCES_MAX, Spec,
    civil::{Civil, days_in_month},
    code, cron, fault,
    pattern::{DAYS, Days, HOURS, MONTHS, Pattern, SIXTY, WEEKDAYS, YEARS, Years},
    spec::{Clock, Exclusion, Source},
    zone::Zone,
};
use crate::domain::{
    SPAN_MAX,
    definition::{
        duration::{days_from_epoch, format, format_time},
        shorten,
    },
};
use std::time::Duration;

/// Most jitter: 24 h.
pub const JITTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Most ranges in one part of a calendar.
const RANGES_MAX: usize = 100;

/// Whether a calendar says when to fire or when not to: the parts of the day that it leaves out mean 0 or all.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Fires,
    Excludes,
}

/// One part of a calendar.
struct Part {
    name: &'static str,
    first: i64,
    last: i64,
}

pub(super) fn check(draft: &Draft) -> Result<Spec, Vec<Fault>> {
    let mut checker = Checker { faults: Vec::new() };
    let mut sources = Vec::new();
    for (index, text) in checker.bounded(&draft.crons, "crons") {
        if let Some(cron) = checker.cron(text, draft.cron_seconds, &format!("crons[{index}]")) {
            sources.push(clock(draft, cron.pattern, cron.follows_the_clock));
        }
    }
    for (index, calendar) in checker.bounded(&draft.calendars, "calendars") {
        if let Some(pattern) = checker.calendar(calendar, Use::Fires, &format!("calendars[{index}]")) {
            let follows_the_clock = pattern.seconds == SIXTY || pattern.minutes == SIXTY || pattern.hours == HOURS;
            sources.push(clock(draft, pattern, follows_the_clock));
        }
    }
    for (index, interval) in checker.bounded(&draft.intervals, "intervals") {
        sources.extend(checker.interval(*interval, &format!("intervals[{index}]")));
    }
    let exclusions = checker.exclusions(draft);
    if draft.crons.is_empty() && draft.calendars.is_empty() && draft.intervals.is_empty() {
        let message = "the schedule has no times";
        checker.refuse("crons", code::FIELD_REQUIRED, message, "give a cron, an interval or a calendar");
    }
    let zone = checker.zone(draft);
    checker.limits(draft);
    match zone {
        Some(zone) if checker.faults.is_empty() => Ok(Spec::new(draft.clone(), zone, sources, exclusions)),
        Some(_) | None => Err(checker.faults),
    }
}

/// A source that follows the clocks, with what becomes of times that they leave out or repeat. A daily job shall run
/// each day, and once; what follows the clock round shall keep its pace instead.
fn clock(draft: &Draft, pattern: Pattern, follows_the_clock: bool) -> Source {
    let (missing, repeated) =
        if follows_the_clock { (Missing::Skip, Repeated::Both) } else { (Missing::Shift, Repeated::First) };
    Source::Clock(Box::new(Clock {
        pattern,
        missing: draft.missing.unwrap_or(missing),
        repeated: draft.repeated.unwrap_or(repeated),
    }))
}

struct Checker {
    faults: Vec<Fault>,
}

impl Checker {
    fn refuse(
        &mut self,
        path: impl Into<String>,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.faults.push(fault(path, code, message, hint));
    }

    /// The entries of a list, as far as there may be any.
    fn bounded<'d, T>(&mut self, list: &'d [T], path: &str) -> impl Iterator<Item = (usize, &'d T)> + use<'d, T> {
        if list.len() > SOURCES_MAX {
            let message = format!("there are {} of them; there may be {SOURCES_MAX}", list.len());
            self.refuse(path, code::TOO_MANY, message, "make several schedules");
        }
        list.iter().take(SOURCES_MAX).enumerate()
    }

    fn cron(&mut self, text: &str, seconds_allowed: bool, path: &str) -> Option<cron::Cron> {
        cron::parse(text, seconds_allowed, path).map_err(|faults| self.faults.extend(faults)).ok()
    }

    fn interval(&mut self, interval: Interval, path: &str) -> Option<Source> {
        let Interval { every, offset } = interval;
        let is_whole = |span: Duration| span.subsec_nanos() == 0;
        let every_fits = is_whole(every) && !every.is_zero() && every <= SPAN_MAX;
        if !every_fits {
            let message = format!("{} is not a number of whole seconds from 1s to 876000h", format(every));
            self.refuse(format!("{path}.every"), code::OUT_OF_RANGE, message, "slots begin with a second");
        }
        if !is_whole(offset) || (every_fits && offset >= every) {
            let message = format!("{} is not a number of whole seconds below the interval", format(offset));
            self.refuse(format!("{path}.offset"), code::OUT_OF_RANGE, message, "the offset is within one interval");
            return None;
        }
        let seconds = |span: Duration| i64::try_from(span.as_secs()).expect("a span has at most 36,500 days");
        every_fits.then(|| Source::Interval { every: seconds(every), offset: seconds(offset) })
    }

    fn calendar(&mut self, calendar: &Calendar, use_: Use, path: &str) -> Option<Pattern> {
        let before = self.faults.len();
        let mut years = if calendar.years.is_empty() { Years::all() } else { Years::none() };
        let part = Part { name: "years", first: *YEARS.start(), last: *YEARS.end() };
        for year in self.numbers(&calendar.years, &part, path) {
            years.insert(year);
        }
        let of_day = |every: u64| if use_ == Use::Excludes { every } else { 1 };
        let mut bits = |ranges: &[Range], name, first, last, default: u64| {
            if ranges.is_empty() {
                return default;
            }
            self.numbers(ranges, &Part { name, first, last }, path).fold(0, |bits, number| bits | 1 << number)
        };
        let months = bits(&calendar.months, "months", 1, 12, u64::from(MONTHS));
        let weekdays = bits(&calendar.weekdays, "weekdays", 0, 7, u64::from(WEEKDAYS));
        let hours = bits(&calendar.hours, "hours", 0, 23, of_day(u64::from(HOURS)));
        let minutes = bits(&calendar.minutes, "minutes", 0, 59, of_day(SIXTY));
        let seconds = bits(&calendar.seconds, "seconds", 0, 59, of_day(SIXTY));
        let days = self.days(&calendar.days, path);
        if self.faults.len() > before {
            return None;
        }
        let narrow = "each number of a part is in its range";
        let pattern = Pattern {
            seconds,
            minutes,
            hours: u32::try_from(hours).expect(narrow),
            days: Days {
                weekdays: u8::try_from((weekdays | weekdays >> 7) & u64::from(WEEKDAYS)).expect(narrow),
                either: false,
                ..days
            },
            months: u16::try_from(months).expect(narrow),
            years,
        };
        if use_ == Use::Fires && pattern.next(Civil(0)).is_none() {
            let message = "it never fires: no month and year that it names has such a day";
            self.refuse(path, code::NEVER_FIRES, message, "a date must match every part; use two calendars for either");
            return None;
        }
        Some(pattern)
    }

    /// Days of a month, from its beginning and from its end.
    fn days(&mut self, ranges: &[Range], path: &str) -> Days {
        if ranges.is_empty() {
            return Days { of_month: DAYS, from_end: 0, weekdays: 0, either: false };
        }
        let mut days = Days { of_month: 0, from_end: 0, weekdays: 0, either: false };
        for day in self.numbers(ranges, &Part { name: "days", first: -31, last: 31 }, path) {
            let bit = 1 << day.unsigned_abs();
            if day > 0 {
                days.of_month |= bit;
            } else {
                days.from_end |= bit;
            }
        }
        days
    }

    /// The numbers of ranges, as far as they are right.
    fn numbers(&mut self, ranges: &[Range], part: &Part, path: &str) -> impl Iterator<Item = i64> + use<> {
        let Part { name, first, last } = part;
        let mut numbers = Vec::new();
        if ranges.len() > RANGES_MAX {
            let message = format!("there are {} of them; there may be {RANGES_MAX}", ranges.len());
            self.refuse(format!("{path}.{name}"), code::TOO_MANY, message, "ranges and steps say the same with fewer");
        }
        for (index, range) in ranges.iter().take(RANGES_MAX).enumerate() {
            let path = format!("{path}.{name}[{index}]");
            let (from, to) = (i64::from(range.first), i64::from(range.last));
            let fits = |number: i64| (*first..=*last).contains(&number) && !(*first < 0 && number == 0);
            if !fits(from) || !fits(to) {
                let bounds = if *first < 0 { "1 to 31 or -31 to -1".to_owned() } else { format!("{first} to {last}") };
                self.refuse(path, code::OUT_OF_RANGE, format!("{from} to {to} is outside {bounds}"), "");
            } else if from > to || (from < 0) != (to < 0) {
                let message = format!("{from} to {to} runs backwards");
                self.refuse(
                    path,
                    code::OUT_OF_RANGE,
                    message,
                    "write two ranges; days from a month's end are negative",
                );
            } else if let Some(step) = usize::try_from(range.step).ok().filter(|step| *step > 0) {
                numbers.extend((from..=to).step_by(step));
            } else {
                let message = format!("the step is {}; it is at least 1", range.step);
                self.refuse(path, code::OUT_OF_RANGE, message, "write 1 for every number of the range");
            }
        }
        numbers.into_iter()
    }

    fn exclusions(&mut self, draft: &Draft) -> Vec<Exclusion> {
        let excluded = &draft.exclusions;
        let mut exclusions = Vec::new();
        for (index, text) in self.bounded(&excluded.crons, "exclusions.crons") {
            let path = format!("exclusions.crons[{index}]");
            if let Some(cron::Cron { mut pattern, .. }) = self.cron(text, draft.cron_seconds, &path) {
                // Without a field for seconds an expression means the minute, not its first second.
                if text.split_whitespace().count() != 6 {
                    pattern.seconds = SIXTY;
                }
                exclusions.push(Exclusion { path, pattern: Some(pattern), days: None });
            }
        }
        for (index, calendar) in self.bounded(&excluded.calendars, "exclusions.calendars") {
            let path = format!("exclusions.calendars[{index}]");
            if let Some(pattern) = self.calendar(calendar, Use::Excludes, &path) {
                exclusions.push(Exclusion { path, pattern: Some(pattern), days: None });
            }
        }
        for (index, range) in self.bounded(&excluded.dates, "exclusions.dates") {
            let path = format!("exclusions.dates[{index}]");
            if let Some(days) = self.dates(range, &path) {
                exclusions.push(Exclusion { path, pattern: None, days: Some(days) });
            }
        }
        exclusions
    }

    /// The days of a span of dates, counted from 1970-01-01.
    fn dates(&mut self, range: &DateRange, path: &str) -> Option<(i64, i64)> {
        let first = self.date(&range.first, &format!("{path}.first_date"));
        let last = match &range.last {
            Some(last) => self.date(last, &format!("{path}.last_date")),
            None => first,
        };
        let (first, last) = (first?, last?);
        if first > last {
            self.refuse(path, code::DATE_INVALID, "the last day is before the first", "both days are included");
            return None;
        }
        Some((first, last))
    }

    /// A day, counted from 1970-01-01.
    fn date(&mut self, text: &str, path: &str) -> Option<i64> {
        const HINT: &str = "write it like 2026-12-24";
        if text.is_empty() {
            self.refuse(path, code::FIELD_REQUIRED, "there is no date", HINT);
            return None;
        }
        let exists = |&(year, month, day): &(i64, i64, i64)| {
            YEARS.contains(&year)
                && (1..=12).contains(&month)
                && (1..=i64::from(days_in_month(year, month))).contains(&day)
        };
        let Some((year, month, day)) = parts(text).filter(exists) else {
            let message = format!("`{}` is no date of the years 1970 to 2100", shorten(text, 20));
            self.refuse(path, code::DATE_INVALID, message, HINT);
            return None;
        };
        Some(days_from_epoch(year, month, day))
    }

    fn zone(&mut self, draft: &Draft) -> Option<Zone> {
        let excluded = &draft.exclusions;
        let is_needed = !(draft.crons.is_empty()
            && draft.calendars.is_empty()
            && excluded.crons.is_empty()
            && excluded.calendars.is_empty()
            && excluded.dates.is_empty());
        if draft.timezone.is_empty() && !is_needed {
            return Some(Zone::UTC);
        }
        match Zone::find(&draft.timezone) {
            Ok(zone) => Some(zone),
            Err(hint) if draft.timezone.is_empty() => {
                self.refuse("timezone", code::FIELD_REQUIRED, "the schedule has no time zone", hint);
                None
            }
            Err(hint) => {
                let message = format!("there is no time zone `{}`", shorten(&draft.timezone, 64));
                self.refuse("timezone", code::TIMEZONE_INVALID, message, hint);
                None
            }
        }
    }

    fn limits(&mut self, draft: &Draft) {
        if let (Some(start), Some(end)) = (draft.start_time, draft.end_time)
            && start > end
        {
            let message = format!("{} is before the start, {}", format_time(end), format_time(start));
            self.refuse("end_time", code::NEVER_FIRES, message, "both times are included");
        }
        if draft.jitter > JITTER_MAX {
            let message = format!("{} is outside 0s to 24h", format(draft.jitter));
            self.refuse("jitter", code::OUT_OF_RANGE, message, "the jitter also ends before the next slot");
        }
    }
}

/// Year, month and day of a text such as `2026-12-24`.
fn parts(text: &str) -> Option<(i64, i64, i64)> {
    let number = |text: &str, digits: usize| {
        let is_plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| is_plain)
    };
    match text.split('-').collect::<Vec<_>>()[..] {
        [year, month, day] => Some((number(year, 4)?, number(month, 2)?, number(day, 2)?)),
        _ => None,
    }
}
