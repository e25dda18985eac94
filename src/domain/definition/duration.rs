//! Durations and times as people write them: `1h30m`, `7d`, `250ms`, ProtoJSON's `1.500s`; RFC 3339.

use crate::domain::{SPAN_MAX, Timestamp};
use std::{fmt::Write as _, time::Duration};

const NANOS_PER_SECOND: u128 = 1_000_000_000;
const DAY_SECONDS: i64 = 86_400;

/// Units from the longest down, with their length in nanoseconds.
const UNITS: [(&str, u128); 7] = [
    ("d", 86_400 * NANOS_PER_SECOND),
    ("h", 3_600 * NANOS_PER_SECOND),
    ("m", 60 * NANOS_PER_SECOND),
    ("s", NANOS_PER_SECOND),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Why a text is not a duration that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text is no duration at all.
    #[error("is not a duration; write it like `90s`, `1h30m`, `7d`, `250ms`")]
    Syntax,
    /// Durations do not run backwards.
    #[error("is negative; a duration is at least 0")]
    Negative,
    /// The duration is longer than [`SPAN_MAX`].
    #[error("is longer than 36,500 days, the longest duration there is")]
    TooLong,
}

/// Reads a duration: numbers with units `d h m s ms us ns`, longest first, each at most once, with decimals down to
/// the nanosecond. 0 to 36,500 days.
///
/// # Errors
///
/// [`DurationError`], if the text is not such a duration.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    if rest.is_empty() {
        return Err(DurationError::Syntax);
    }
    let mut total = 0_u128;
    let mut units = UNITS.iter();
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or(DurationError::Syntax)?;
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let (_, length) = units.find(|(name, _)| *name == unit).ok_or(DurationError::Syntax)?;
        total = total.saturating_add(nanos(number, *length)?);
        rest = after;
    }
    if negative && total > 0 {
        return Err(DurationError::Negative);
    }
    if total > SPAN_MAX.as_nanos() {
        return Err(DurationError::TooLong);
    }
    let seconds = u64::try_from(total / NANOS_PER_SECOND).map_err(|_| DurationError::TooLong)?;
    let nanos = u32::try_from(total % NANOS_PER_SECOND).expect("a remainder of 10^9 fits 32 bits");
    Ok(Duration::new(seconds, nanos))
}

/// `number * length`, where `number` is decimal text.
fn nanos(number: &str, length: u128) -> Result<u128, DurationError> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return Err(DurationError::Syntax);
    }
    // More than 20 digits is beyond the limit in every unit, so there is nothing to compute.
    let whole = whole.trim_start_matches('0');
    if whole.len() > 20 {
        return Err(DurationError::TooLong);
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| DurationError::Syntax)? };
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > 18 {
        return Err(DurationError::Syntax);
    }
    let mut part = 0;
    if !fraction.is_empty() {
        let digits: u128 = fraction.parse().map_err(|_| DurationError::Syntax)?;
        let divisor = 10_u128.pow(u32::try_from(fraction.len()).expect("at most 18"));
        let product = digits * length;
        if !product.is_multiple_of(divisor) {
            // Finer than a nanosecond: rounding would change what was written.
            return Err(DurationError::Syntax);
        }
        part = product / divisor;
    }
    Ok(whole.saturating_mul(length).saturating_add(part))
}

/// A number of seconds, as an expression may yield it.
///
/// # Errors
///
/// [`DurationError`], if it is negative, not finite or too long.
pub fn from_seconds(seconds: f64) -> Result<Duration, DurationError> {
    if seconds.is_nan() {
        return Err(DurationError::Syntax);
    }
    if seconds < 0.0 {
        return Err(DurationError::Negative);
    }
    Duration::try_from_secs_f64(seconds).ok().filter(|span| *span <= SPAN_MAX).ok_or(DurationError::TooLong)
}

/// ProtoJSON's form: seconds with 0, 3, 6 or 9 decimals and an `s`.
#[must_use]
pub fn format(span: Duration) -> String {
    let mut out = span.as_secs().to_string();
    let nanos = span.subsec_nanos();
    let written = match nanos {
        0 => Ok(()),
        _ if nanos.is_multiple_of(1_000_000) => write!(out, ".{:03}", nanos / 1_000_000),
        _ if nanos.is_multiple_of(1_000) => write!(out, ".{:06}", nanos / 1_000),
        _ => write!(out, ".{nanos:09}"),
    };
    written.expect("a string takes everything");
    out.push('s');
    out
}

/// Reads an RFC 3339 time of the years 1 to 9999; decimals beyond microseconds are cut off.
#[must_use]
pub fn parse_time(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
        let part = bytes.get(from..to)?;
        part.iter()
            .all(u8::is_ascii_digit)
            .then(|| part.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')))
    };
    let separator = |at: usize, allowed: &[u8]| bytes.get(at).is_some_and(|byte| allowed.contains(byte));
    let shape =
        separator(4, b"-") && separator(7, b"-") && separator(10, b"Tt ") && separator(13, b":") && separator(16, b":");
    if !shape {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let month_days = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let days_in_month = *month_days.get(usize::try_from(month.checked_sub(1)?).ok()?)?;
    // A leap second is read as the second before it, as POSIX clocks show it.
    let second = if second == 60 { 59 } else { second };
    if year < 1 || !(1..=days_in_month).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut at = 19;
    let mut micros = 0;
    if separator(at, b".") {
        let end = (at + 1..bytes.len()).find(|index| !bytes[*index].is_ascii_digit())?;
        if end == at + 1 {
            return None;
        }
        for index in 0..6 {
            let digit = if at + 1 + index < end { i64::from(bytes[at + 1 + index] - b'0') } else { 0 };
            micros = micros * 10 + digit;
        }
        at = end;
    }
    let offset = match bytes.get(at)? {
        b'Z' | b'z' if bytes.len() == at + 1 => 0,
        sign @ (b'+' | b'-') if bytes.len() == at + 6 && separator(at + 3, b":") => {
            let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            (hours * 60 + minutes) * if *sign == b'-' { -60 } else { 60 }
        }
        _ => return None,
    };
    let seconds = days_from_epoch(year, month, day) * DAY_SECONDS + hour * 3_600 + minute * 60 + second - offset;
    Some(Timestamp::from_micros(seconds * 1_000_000 + micros))
}

/// RFC 3339 in UTC with as many decimals as are needed, at most six.
#[must_use]
pub fn format_time(time: Timestamp) -> String {
    let micros = time.as_micros().rem_euclid(1_000_000);
    let seconds = time.as_micros().div_euclid(1_000_000);
    let (year, month, day) = date_from_epoch(seconds.div_euclid(DAY_SECONDS));
    let of_day = seconds.rem_euclid(DAY_SECONDS);
    let mut out =
        format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}", of_day / 3_600, of_day / 60 % 60, of_day % 60);
    if micros != 0 {
        write!(out, ".{micros:06}").expect("a string takes everything");
        out.truncate(out.trim_end_matches('0').len());
    }
    out.push('Z');
    out
}

/// Days from 1970-01-01 to a date of the proleptic Gregorian calendar. Years are counted from March, so that the leap
/// day is the last day of one.
pub(in crate::domain) fn days_from_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The inverse of [`days_from_epoch`].
pub(in crate::domain) fn date_from_epoch(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_write_them() {
        for (text, nanos) in [
            ("0s", 0),
            ("-0s", 0),
            ("90s", 90_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("7d", 604_800_000_000_000),
            ("1.5s", 1_500_000_000),
            ("1.500s", 1_500_000_000),
            ("0.000000001s", 1),
            ("250ms", 250_000_000),
            ("1m0.5s", 60_500_000_000),
            ("1us", 1_000),
            ("36500d", 3_153_600_000_000_000_000),
            ("00001s", 1_000_000_000),
        ] {
            assert_eq!(parse(text).map(|span| span.as_nanos()), Ok(nanos), "{text}");
        }
    }

    #[test]
    fn c049_absurd_durations_are_refused_with_their_reason() {
        for (text, error) in [
            ("", DurationError::Syntax),
            ("-", DurationError::Syntax),
            ("5", DurationError::Syntax),
            ("s", DurationError::Syntax),
            ("1e30s", DurationError::Syntax),
            ("P1000000D", DurationError::Syntax),
            ("PT5M", DurationError::Syntax),
            ("1 h", DurationError::Syntax),
            ("1m1h", DurationError::Syntax),
            ("1s1s", DurationError::Syntax),
            ("1.s", DurationError::Syntax),
            (".5s", DurationError::Syntax),
            ("1.2.3s", DurationError::Syntax),
            ("0.0000000001s", DurationError::Syntax),
            ("1y", DurationError::Syntax),
            ("٣s", DurationError::Syntax),
            ("inf", DurationError::Syntax),
            ("-5s", DurationError::Negative),
            ("36500d1ns", DurationError::TooLong),
            ("1844674407370955161s", DurationError::TooLong),
            ("999999999999999999999999999999999999999999d", DurationError::TooLong),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
        assert_eq!(from_seconds(f64::NAN), Err(DurationError::Syntax));
        assert_eq!(from_seconds(f64::INFINITY), Err(DurationError::TooLong));
        assert_eq!(from_seconds(-0.1), Err(DurationError::Negative));
        assert_eq!(from_seconds(1.5), Ok(Duration::from_millis(1_500)));
    }

    #[test]
    fn durations_are_written_as_protojson() {
        for (nanos, text) in
            [(0, "0s"), (1_500_000_000, "1.500s"), (1_000, "0.000001s"), (1, "0.000000001s"), (90_000_000_000, "90s")]
        {
            assert_eq!(format(Duration::from_nanos(nanos)), text);
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)));
        }
    }

    #[test]
    fn times_read_and_write_as_rfc_3339() {
        for (text, micros, written) in [
            ("1970-01-01T00:00:00Z", 0, "1970-01-01T00:00:00Z"),
            ("2026-02-28T23:59:59.5Z", 1_772_323_199_500_000, "2026-02-28T23:59:59.5Z"),
            ("2024-02-29T12:00:00.123456789+02:00", 1_709_200_800_123_456, "2024-02-29T10:00:00.123456Z"),
            ("1969-12-31T23:59:59.999999Z", -1, "1969-12-31T23:59:59.999999Z"),
            ("0001-01-01T00:00:00Z", -62_135_596_800_000_000, "0001-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59Z", 253_402_300_799_000_000, "9999-12-31T23:59:59Z"),
            ("2016-12-31T23:59:60Z", 1_483_228_799_000_000, "2016-12-31T23:59:59Z"),
        ] {
            let time = parse_time(text).expect(text);
            assert_eq!(time.as_micros(), micros, "{text}");
            assert_eq!(format_time(time), written);
        }
    }

    #[test]
    fn texts_that_are_no_time_are_refused() {
        for text in [
            "",
            "2026",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+0200",
            "2026-01-01T00:00:00Zx",
            "262143-01-01T00:00:00Z",
            "2026-01-01T00:00:00.5",
            "0000-01-01T00:00:00Z",
            "２０２６-01-01T00:00:00Z",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    #[test]
    fn every_day_of_four_centuries_reads_back() {
        for day in 0..146_097 {
            let time = Timestamp::from_micros(day * DAY_SECONDS * 1_000_000);
            assert_eq!(parse_time(&format_time(time)), Some(time));
        }
    }
}
