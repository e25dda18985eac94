//! Instants and spans on the wire.

use crate::domain::{SPAN_MAX, Timestamp};
use std::time::Duration;

/// First and last second that a protobuf timestamp can name: years 1 to 9999.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// An instant for the wire.
#[must_use]
pub fn render(time: Timestamp) -> prost_types::Timestamp {
    let micros = time.as_micros();
    prost_types::Timestamp {
        seconds: micros.div_euclid(1_000_000).clamp(*SECONDS.start(), *SECONDS.end()),
        nanos: i32::try_from(micros.rem_euclid(1_000_000)).expect("below a million") * 1_000,
    }
}

/// An instant from the wire; digits below a microsecond are cut.
///
/// # Errors
/// What is wrong with it.
pub fn parse(time: &prost_types::Timestamp) -> Result<Timestamp, String> {
    if !SECONDS.contains(&time.seconds) || !(0..1_000_000_000).contains(&time.nanos) {
        return Err("is not a time of the years 1 to 9999".to_owned());
    }
    Ok(Timestamp::from_micros(time.seconds * 1_000_000 + i64::from(time.nanos) / 1_000))
}

/// A span for the wire.
#[must_use]
pub fn render_span(span: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(span.subsec_nanos()).expect("below a thousand million"),
    }
}

/// A span from the wire: 0 to 36,500 days.
///
/// # Errors
/// What is wrong with it.
pub fn parse_span(span: &prost_types::Duration) -> Result<Duration, String> {
    let refusal = || "is not a duration of 0 to 36,500 days".to_owned();
    if !(0..1_000_000_000).contains(&span.nanos) {
        return Err(refusal());
    }
    let seconds = u64::try_from(span.seconds).map_err(|_| refusal())?;
    let span = Duration::new(seconds, span.nanos.unsigned_abs());
    if span > SPAN_MAX { Err(refusal()) } else { Ok(span) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_before_and_after_the_epoch_survive() {
        for micros in [-62_135_596_800_000_000, -1, 0, 1, 1_999_999, 253_402_300_799_999_999] {
            let time = Timestamp::from_micros(micros);
            assert_eq!(parse(&render(time)), Ok(time));
        }
    }

    #[test]
    fn times_and_spans_out_of_range_are_refused() {
        assert!(parse(&prost_types::Timestamp { seconds: i64::MAX, nanos: 0 }).is_err());
        assert!(parse(&prost_types::Timestamp { seconds: 0, nanos: -1 }).is_err());
        assert!(parse_span(&prost_types::Duration { seconds: -1, nanos: 0 }).is_err());
        assert!(parse_span(&prost_types::Duration { seconds: 0, nanos: -1 }).is_err());
        assert!(parse_span(&prost_types::Duration { seconds: i64::MAX, nanos: 999_999_999 }).is_err());
        assert_eq!(parse_span(&prost_types::Duration { seconds: 1, nanos: 5 }), Ok(Duration::new(1, 5)));
    }
}
