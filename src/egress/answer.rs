//! From a response to the result of a step.
//!
//! - 2xx is a success: `{status, headers, body}`.
//! - 408, 425, 429 and 5xx, but 501 and 505, may be better at the next attempt; `Retry-After` says when.
//! - Any other status is for good: `HTTP_404` and its like, with what the other side said in the details.

use super::{Fault, client::Response, request::is_json};
use crate::domain::{Failure, PAYLOAD_BYTES_MAX, Payload, Timestamp, code, json::write_string};
use crate::wire::payload;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use std::{collections::BTreeMap, fmt::Write as _, sync::Arc, time::Duration};

/// Longest pause that `Retry-After` gets.
const RETRY_AFTER_MAX: Duration = Duration::from_hours(24);

/// Headers of a response that a failure shows: what helps to find the cause, and no cookies.
const SHOWN: [&str; 5] = ["content-type", "location", "retry-after", "www-authenticate", "x-request-id"];

/// Characters of one header's value that a failure shows.
const SHOWN_CHARACTERS_MAX: usize = 1_000;

/// An attempt that failed.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    /// What the step's failure says.
    pub(crate) failure: Failure,
    /// Whether another attempt may help.
    pub(crate) retryable: bool,
    /// Shortest pause before it, if the other side named one.
    pub(crate) retry_after: Option<Duration>,
}

/// The result of an attempt that got a response. `wall` is the time by the machine's clock.
///
/// # Errors
/// The failure, where the status or the size of the response is none of a success.
pub(crate) fn of_response(response: &Response, wall: Timestamp) -> Result<Payload, Box<Failed>> {
    if (200..300).contains(&response.status) { output(response) } else { Err(Box::new(refused(response, wall))) }
}

/// The failure of an attempt that got no response.
pub(crate) fn of_fault(fault: Fault) -> Box<Failed> {
    let (code, message, retryable) = match fault {
        Fault::Invalid(message) => (code::INPUT_INVALID, message, false),
        Fault::Forbidden(message) => (code::HTTP_FORBIDDEN, message, false),
        Fault::TooLarge(message) => (code::HTTP_TOO_LARGE, message, false),
        Fault::Failed(message) => (code::HTTP_FAILED, message, true),
    };
    Box::new(Failed { failure: Failure::new(code, message, &Arc::from("")), retryable, retry_after: None })
}

fn output(response: &Response) -> Result<Payload, Box<Failed>> {
    let headers = joined(&response.headers, |_| true);
    let exact = exact_json(response).map(|body| document(response.status, &headers, body));
    // A body may be nested so deep that with the object around it is too deep to be stored.
    if let Some(Ok(output)) = exact.map(|text| payload::parse_text(text, PAYLOAD_BYTES_MAX)) {
        return Ok(output);
    }
    let text = document(response.status, &headers, &text_or_bytes(&response.body));
    if text.len() > PAYLOAD_BYTES_MAX {
        let message = format!("the response takes {} bytes as JSON; at most {PAYLOAD_BYTES_MAX} are kept", text.len());
        return Err(of_fault(Fault::TooLarge(message)));
    }
    Ok(Payload::from_json(text))
}

fn refused(response: &Response, wall: Timestamp) -> Failed {
    let status = response.status;
    let retryable = match status {
        408 | 425 | 429 => true,
        501 | 505 => false,
        _ => (500..600).contains(&status),
    };
    let mut headers = joined(&response.headers, |name| SHOWN.contains(&name.as_str()));
    for value in headers.values_mut() {
        *value = value.chars().take(SHOWN_CHARACTERS_MAX).collect();
    }
    let exact = exact_json(response).map(|body| document(status, &headers, body));
    let exact = exact.and_then(|text| payload::parse_text(text, PAYLOAD_BYTES_MAX).ok());
    let details = exact.unwrap_or_else(|| {
        let body = if response.is_cut { whole_characters(&response.body) } else { &response.body };
        Payload::from_json(document(status, &headers, &text_or_bytes(body)))
    });
    Failed {
        failure: Failure {
            code: format!("HTTP_{status}").into(),
            message: message(status, &response.headers).into(),
            details: Some(details),
            unit: Arc::from(""),
        },
        retryable,
        retry_after: response
            .headers
            .get(header::RETRY_AFTER)
            .filter(|_| retryable)
            .and_then(|value| pause(value, wall)),
    }
}

fn message(status: u16, headers: &HeaderMap) -> String {
    let reason = http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    let told =
        reason.map_or_else(|| format!("the answer was {status}"), |reason| format!("the answer was {status} {reason}"));
    if (300..400).contains(&status) && headers.contains_key(header::LOCATION) {
        return format!("{told}: this redirect is not followed");
    }
    told
}

/// `{status, headers, body}`; the body is JSON text.
fn document(status: u16, headers: &BTreeMap<&str, String>, body: &str) -> String {
    let mut out = String::with_capacity(body.len() + 1024);
    write!(out, "{{\"status\":{status},\"headers\":{{").expect("a string takes everything");
    for (index, (name, value)) in headers.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_string(&mut out, name);
        out.push(':');
        write_string(&mut out, value);
    }
    out.push_str("},\"body\":");
    out.push_str(body);
    out.push('}');
    out
}

/// Headers by name in lower case; those that came several times joined with commas, as HTTP means it.
fn joined(headers: &HeaderMap, is_wanted: impl Fn(&HeaderName) -> bool) -> BTreeMap<&str, String> {
    let mut joined: BTreeMap<&str, String> = BTreeMap::new();
    for (name, value) in headers.iter().filter(|(name, _)| is_wanted(name)) {
        let text = joined.entry(name.as_str()).or_default();
        if !text.is_empty() {
            text.push_str(", ");
        }
        // Bytes beyond ASCII have no encoding in HTTP; each stands for the character of its number, so none is lost.
        text.extend(value.as_bytes().iter().copied().map(char::from));
    }
    joined
}

/// The body as it came, if it says that it is JSON and is JSON that can be kept.
fn exact_json(response: &Response) -> Option<&str> {
    let content_type = response.headers.get(header::CONTENT_TYPE)?;
    if response.is_cut || !is_json(content_type.as_bytes()) {
        return None;
    }
    let text = std::str::from_utf8(&response.body).ok()?;
    payload::parse_text(text.to_owned(), PAYLOAD_BYTES_MAX).ok()?;
    Some(text)
}

/// A body as JSON text: null for none, a string for text, else `{"base64": …}`, so that nobody takes one for the other.
fn text_or_bytes(body: &[u8]) -> String {
    let mut out = String::new();
    match std::str::from_utf8(body) {
        Ok("") => out.push_str("null"),
        // U+0000 cannot be stored in a text.
        Ok(text) if !text.contains('\0') => write_string(&mut out, text),
        Ok(_) | Err(_) => {
            out.push_str("{\"base64\":\"");
            STANDARD.encode_string(body, &mut out);
            out.push_str("\"}");
        }
    }
    out
}

/// A body without the character that the cut went through.
fn whole_characters(body: &[u8]) -> &[u8] {
    match std::str::from_utf8(body) {
        Err(error) if error.error_len().is_none() => &body[..error.valid_up_to()],
        Ok(_) | Err(_) => body,
    }
}

/// The pause that `Retry-After` asks for: seconds, or a date. One in the past is no pause.
fn pause(value: &HeaderValue, wall: Timestamp) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    let pause = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number has are a long time, too.
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        let date = httpdate::parse_http_date(text).ok()?;
        let since_epoch = date.duration_since(std::time::UNIX_EPOCH).ok()?;
        let micros = i64::try_from(since_epoch.as_micros()).ok()?;
        Timestamp::from_micros(micros).since(wall)
    };
    Some(pause.min(RETRY_AFTER_MAX))
}
