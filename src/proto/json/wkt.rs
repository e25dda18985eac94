//! Times, durations and masks as text: `2026-01-31T12:00:00.500Z`, `1.500s` and `spec.startTime,policies`.

use prost_types::{Duration, FieldMask, Timestamp};

use super::{Scalar, Writer};

/// Seconds of the first and the last instant that a timestamp may hold: years 1 to 9999.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;
/// Most seconds of a duration, about 10,000 years.
const SPAN_SECONDS_MAX: i64 = 315_576_000_000;
const DAY: i64 = 86_400;

/// The codec of a [`Timestamp`]: RFC 3339, written in UTC with 0, 3, 6 or 9 digits of a second.
#[derive(Debug)]
pub struct Time;

impl Scalar for Time {
    type Value = Timestamp;

    const EXPECTED: &'static str = "a time such as \"2026-01-31T12:00:00Z\"";

    fn text(text: &str) -> Result<Timestamp, String> {
        parse_time(text).ok_or_else(|| format!("expected {}, not {text:?}", Self::EXPECTED))
    }

    fn print(value: &Timestamp, writer: &mut Writer) {
        match format_time(value) {
            Some(text) => writer.string(&text),
            None => writer.fail(format!("the time {} s {} ns is out of range", value.seconds, value.nanos)),
        }
    }
}

/// The codec of a [`Duration`]: seconds with an `s`.
#[derive(Debug)]
pub struct Span;

impl Scalar for Span {
    type Value = Duration;

    const EXPECTED: &'static str = "a duration in seconds such as \"90s\" or \"1.5s\"";

    fn text(text: &str) -> Result<Duration, String> {
        parse_span(text).ok_or_else(|| {
            let hint = in_seconds(text).map(|seconds| format!("; write \"{seconds}s\"")).unwrap_or_default();
            format!("expected {}, not {text:?}{hint}", Self::EXPECTED)
        })
    }

    fn print(value: &Duration, writer: &mut Writer) {
        match format_span(value) {
            Some(text) => writer.string(&text),
            None => writer.fail(format!("the duration {} s {} ns is out of range", value.seconds, value.nanos)),
        }
    }
}

/// The codec of a [`FieldMask`]: its paths with commas between, written in lowerCamelCase.
///
/// They are read as they stand, so that a refusal can name what the caller wrote, and a path may end with the key of a map.
/// Who looks for the fields takes both their names.
#[derive(Debug)]
pub struct Mask;

impl Scalar for Mask {
    type Value = FieldMask;

    const EXPECTED: &'static str = "names of fields such as \"spec.timezone,policies\"";

    fn text(text: &str) -> Result<FieldMask, String> {
        let paths = text.split(',').map(str::trim).filter(|path| !path.is_empty());
        Ok(FieldMask { paths: paths.map(str::to_owned).collect() })
    }

    fn print(value: &FieldMask, writer: &mut Writer) {
        let paths: Vec<String> = value.paths.iter().map(|path| camel_case(path)).collect();
        writer.string(&paths.join(","));
    }
}

fn camel_case(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut is_next = false;
    for character in path.chars() {
        match character {
            '_' => is_next = true,
            other if is_next => {
                out.push(other.to_ascii_uppercase());
                is_next = false;
            }
            other => out.push(other),
        }
    }
    out
}

fn format_time(time: &Timestamp) -> Option<String> {
    if !SECONDS.contains(&time.seconds) || !(0..1_000_000_000).contains(&time.nanos) {
        return None;
    }
    let (year, month, day) = date(time.seconds.div_euclid(DAY));
    let second = time.seconds.rem_euclid(DAY);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let fraction = fraction(time.nanos);
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z"))
}

fn parse_time(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = text.get(range)?;
        if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
    };
    let punctuated = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if !text.is_ascii() || bytes.len() < 20 || punctuated.iter().any(|(at, mark)| bytes[*at] != *mark) {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let zone = text[19..].find(['Z', '+', '-'])? + 19;
    let nanos = if zone == 19 { 0 } else { nanos(text[19..zone].strip_prefix('.')?)? };
    let offset = match &text[zone..] {
        "Z" => 0,
        offset if offset.len() == 6 && offset.as_bytes()[3] == b':' => {
            let (hours, minutes) = (number(zone + 1..zone + 3)?, number(zone + 4..zone + 6)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            (hours * 3600 + minutes * 60) * if bytes[zone] == b'-' { -1 } else { 1 }
        }
        _ => return None,
    };
    let days = days(year, month, day);
    // A month or a day that does not exist comes back as another one.
    if date(days) != (year, month, day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = days * DAY + hour * 3600 + minute * 60 + second - offset;
    SECONDS.contains(&seconds).then_some(Timestamp { seconds, nanos })
}

fn format_span(span: &Duration) -> Option<String> {
    let mixed = span.seconds > 0 && span.nanos < 0 || span.seconds < 0 && span.nanos > 0;
    if mixed || span.seconds.abs() > SPAN_SECONDS_MAX || span.nanos.abs() > 999_999_999 {
        return None;
    }
    let sign = if span.seconds < 0 || span.nanos < 0 { "-" } else { "" };
    Some(format!("{sign}{}{}s", span.seconds.abs(), fraction(span.nanos.abs())))
}

fn parse_span(text: &str) -> Option<Duration> {
    let number = text.strip_suffix('s')?;
    let (sign, number) = number.strip_prefix('-').map_or((1, number), |number| (-1, number));
    let (whole, fraction) = number.split_once('.').map_or((number, None), |(whole, f)| (whole, Some(f)));
    if whole.is_empty() || !whole.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let seconds: i64 = whole.parse().ok()?;
    let nanos = fraction.map_or(Some(0), nanos)?;
    (seconds <= SPAN_SECONDS_MAX).then(|| Duration { seconds: i64::from(sign) * seconds, nanos: sign * nanos })
}

/// The whole seconds of a text such as `1h30m`, `7d` or a bare `90`, to tell how to write it.
fn in_seconds(text: &str) -> Option<i64> {
    let (mut total, mut number) = (0_i64, String::new());
    for c in text.trim().chars() {
        if c.is_ascii_digit() {
            number.push(c);
            continue;
        }
        let unit = match c {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => DAY,
            _ => return None,
        };
        total = number.parse::<i64>().ok()?.checked_mul(unit)?.checked_add(total)?;
        number.clear();
    }
    let rest = if number.is_empty() { 0 } else { number.parse().ok()? };
    (!text.is_empty() && (total == 0 || rest == 0)).then(|| total + rest).filter(|total| *total <= SPAN_SECONDS_MAX)
}

/// A fraction of a second with 0, 3, 6 or 9 digits.
fn fraction(nanos: i32) -> String {
    match nanos {
        0 => String::new(),
        n if n % 1_000_000 == 0 => format!(".{:03}", n / 1_000_000),
        n if n % 1_000 == 0 => format!(".{:06}", n / 1_000),
        n => format!(".{n:09}"),
    }
}

fn nanos(digits: &str) -> Option<i32> {
    if digits.is_empty() || digits.len() > 9 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    format!("{digits:0<9}").parse().ok()
}

/// Days from 1970-01-01 to a date of the Gregorian calendar (Howard Hinnant's method).
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The date of a day counted from 1970-01-01: the reverse of [`days`].
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_instant_whatever_their_offset() {
        let read = |text: &str| parse_time(text).and_then(|time| format_time(&time));
        for same in [
            "1970-01-01T00:00:00Z",
            "2024-02-29T23:59:59.123456789Z",
            "0001-01-01T00:00:00Z",
            "9999-12-31T23:59:59.500Z",
        ] {
            assert_eq!(read(same).as_deref(), Some(same));
        }
        assert_eq!(read("2026-01-01T01:30:00.1+02:00").as_deref(), Some("2025-12-31T23:30:00.100Z"));
        assert_eq!(read("2026-01-01T01:30:00-00:30").as_deref(), Some("2026-01-01T02:00:00Z"));
        let bad = [
            "2026-02-30T00:00:00Z",
            "2026-01-01",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01 00:00:00Z",
        ];
        for bad in bad.into_iter().chain([
            "0000-01-01T00:00:00Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:0üZ",
            "2026-01-01T00:00:00+24:00",
        ]) {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn durations_are_seconds_and_others_get_a_hint() {
        let read = |text: &str| parse_span(text).and_then(|span| format_span(&span));
        assert_eq!(read("90s").as_deref(), Some("90s"));
        assert_eq!(read("1.5s").as_deref(), Some("1.500s"));
        assert_eq!(read("-0.000001s").as_deref(), Some("-0.000001s"));
        assert_eq!(read("315576000001s"), None);
        let hint = |text: &str| Span::text(text).unwrap_err();
        assert!(hint("1m30s").ends_with("not \"1m30s\"; write \"90s\""), "{}", hint("1m30s"));
        assert!(hint("7d").ends_with("write \"604800s\""));
        assert!(hint("90").ends_with("write \"90s\""));
        assert!(hint("soon").ends_with("not \"soon\""));
        assert!(hint("").ends_with("not \"\""));
    }

    #[test]
    fn a_mask_is_read_as_it_stands() {
        let paths = |text: &str| Mask::text(text).unwrap().paths;
        assert_eq!(
            paths("Description, spec.startTime,,spec.end_time"),
            ["Description", "spec.startTime", "spec.end_time"]
        );
        assert_eq!(paths("start.labels.teamA"), ["start.labels.teamA"]);
        assert!(paths("").is_empty());
    }
}
