//! Which headers mean something: to the gateway, to the service, to the caller.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use tonic::metadata::MetadataMap;

use crate::proto::json::Reader;

/// Headers that become the call's metadata. All others end here: a browser's cookies and a proxy's notes are no part of
/// a call.
const FORWARDED: [HeaderName; 6] = [
    header::AUTHORIZATION,
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("baggage"),
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("idempotency-key"),
];

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const REQUEST_TIMEOUT: HeaderName = HeaderName::from_static("request-timeout");

/// The metadata of a call: the forwarded headers, and its timeout in gRPC's form, whichever header it came by.
pub(super) fn metadata(headers: &HeaderMap, timeout: Option<Duration>) -> HeaderMap {
    let mut metadata = HeaderMap::new();
    for name in FORWARDED {
        for value in headers.get_all(&name) {
            metadata.append(&name, value.clone());
        }
    }
    if let Some(timeout) = timeout {
        metadata.insert(GRPC_TIMEOUT, grpc_timeout(timeout));
    }
    metadata
}

/// How long the caller waits: `Request-Timeout` in seconds, or `grpc-timeout`; the shorter of both.
pub(super) fn timeout(headers: &HeaderMap, reader: &mut Reader) -> Option<Duration> {
    let mut read = |name: HeaderName, parse: fn(&str) -> Option<Duration>, expected: &str| {
        let value = headers.get(&name)?;
        let timeout = value.to_str().ok().and_then(parse);
        if timeout.is_none() {
            reader.at(name.as_str(), |reader| reader.fault(format!("expected {expected}")));
        }
        timeout
    };
    let http = read(REQUEST_TIMEOUT, parse_seconds, "a number of seconds such as 5 or 0.5");
    let grpc = read(GRPC_TIMEOUT, parse_grpc_timeout, "1 to 8 digits and a unit of H M S m u n, such as 5S");
    http.into_iter().chain(grpc).min()
}

fn parse_seconds(text: &str) -> Option<Duration> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.parse().ok().filter(|_| plain).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

fn parse_grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// In milliseconds, or where the 8 digits are too few for that, in seconds.
fn grpc_timeout(timeout: Duration) -> HeaderValue {
    const MOST: u128 = 99_999_999;
    let millis = timeout.as_millis();
    let text = if millis <= MOST { format!("{millis}m") } else { format!("{}S", (millis / 1000).min(MOST)) };
    HeaderValue::from_str(&text).expect("digits and a letter are a header's value")
}

/// The text of a header, without the quotes that structured headers have around it.
pub(super) fn text(headers: &HeaderMap, name: &'static str, reader: &mut Reader) -> Option<String> {
    let value = headers.get(name)?;
    let Ok(text) = value.to_str() else {
        reader.at(name, |reader| reader.fault("expected visible ASCII"));
        return None;
    };
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    Some(inner.unwrap_or(text).to_owned())
}

/// Whether the caller names this media type in `Accept`.
pub(super) fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let values = headers.get_all(header::ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
    let mut types = values.flat_map(|value| value.split(',')).filter_map(|range| range.split(';').next());
    types.any(|accepted| accepted.trim().eq_ignore_ascii_case(media_type))
}

/// Copies the service's metadata to the answer's headers under the same names, except what belongs to gRPC's framing.
pub(super) fn answer(metadata: &MetadataMap, headers: &mut HeaderMap) {
    for (name, value) in &metadata.clone().into_headers() {
        let text = name.as_str();
        let framing =
            text.starts_with("grpc-") || text.ends_with("-bin") || text == "te" || text.starts_with("content-");
        if !framing && !headers.contains_key(name) {
            headers.insert(name, value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_timeout_counts_and_goes_along_in_grpcs_form() {
        let read = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, HeaderValue::from_static(value));
            }
            let mut reader = Reader::default();
            let timeout = timeout(&headers, &mut reader);
            let metadata = metadata(&headers, timeout);
            reader.finish().map(|()| metadata.get("grpc-timeout").cloned()).map_err(|faults| faults.to_string())
        };
        let is = |text| Ok(Some(HeaderValue::from_static(text)));
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[("request-timeout", "5")]), is("5000m"));
        assert_eq!(read(&[("request-timeout", "5"), ("grpc-timeout", "250m")]), is("250m"));
        assert_eq!(read(&[("grpc-timeout", "99999999H")]), is("99999999S"));
        for bad in ["-1", "inf", "1e3", "", "5s"] {
            assert!(read(&[("request-timeout", bad)]).is_err(), "{bad}");
        }
        for bad in ["", "S", "5", "123456789S", "5X", "-1S"] {
            assert!(read(&[("grpc-timeout", bad)]).is_err(), "{bad}");
        }
    }
}
