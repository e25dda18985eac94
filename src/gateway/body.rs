//! Reads the body of a request within its limit, and makes the body of an answer.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tonic::{Code, Status};

use super::{Response, error};
use crate::{clock, proto::workflow::ErrorReason};

/// How much of a body that is too large is read and thrown away, as a multiple of the limit. Many clients send all of
/// their body before they look at an answer; a connection that is closed before would hide the answer from them.
const DISCARDED_MAX: usize = 4;
/// How long that may take.
const DISCARD_TIME: Duration = Duration::from_secs(5);

/// Reads a body. An empty one needs no media type.
///
/// # Errors
/// `PAYLOAD_TOO_LARGE`, `MEDIA_TYPE_UNSUPPORTED`, or the connection broke.
pub(super) async fn read(headers: &HeaderMap, mut body: Body, limit: usize, takes_body: bool) -> Result<Bytes, Status> {
    let announced: Option<usize> =
        headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if let Some(length) = announced.filter(|length| *length > limit) {
        // Who waits for a "100 Continue" reads the answer first and then sends nothing.
        if !headers.contains_key(header::EXPECT) && length <= limit.saturating_mul(DISCARDED_MAX) {
            discard(&mut body, limit).await;
        }
        return Err(too_large(limit, Some(length)));
    }
    let bytes = match Limited::new(&mut body, limit).collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(why) if why.is::<LengthLimitError>() => {
            discard(&mut body, limit).await;
            return Err(too_large(limit, None));
        }
        Err(why) => return Err(error::field("body", &format!("broke off: {why}"))),
    };
    if takes_body && !bytes.is_empty() {
        check_media_type(headers)?;
    }
    Ok(bytes)
}

async fn discard(body: &mut Body, limit: usize) {
    let drained = async {
        let mut left = limit.saturating_mul(DISCARDED_MAX);
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(length) {
                Some(rest) => left = rest,
                None => break,
            }
        }
    };
    tokio::select! {
        () = drained => {}
        () = clock::sleep(DISCARD_TIME) => {}
    }
}

fn too_large(limit: usize, actual: Option<usize>) -> Status {
    let mut metadata = vec![("limit", limit.to_string())];
    metadata.extend(actual.map(|actual| ("actual", actual.to_string())));
    let message = format!("the body is larger than {limit} bytes");
    error::refusal(Code::InvalidArgument, ErrorReason::PayloadTooLarge, message, metadata)
}

fn check_media_type(headers: &HeaderMap) -> Result<(), Status> {
    let given = headers.get(header::CONTENT_TYPE).map_or("", |value| value.to_str().unwrap_or("unreadable"));
    let mut parts = given.split(';').map(str::trim);
    let is_json = parts.next().is_some_and(|media_type| media_type.eq_ignore_ascii_case("application/json"));
    let is_utf8 = |parameter: &str| {
        let charset = parameter.to_ascii_lowercase();
        charset.strip_prefix("charset=").is_none_or(|charset| charset.trim_matches('"') == "utf-8")
    };
    if is_json && parts.all(is_utf8) {
        return Ok(());
    }
    let message = format!("the body must be application/json in UTF-8, and its content-type is {given:?}");
    let metadata = [("content_type", given.to_owned())];
    Err(error::refusal(Code::InvalidArgument, ErrorReason::MediaTypeUnsupported, message, metadata))
}

/// An answer of JSON text.
pub(super) fn json(status: StatusCode, text: String) -> Response {
    let length = HeaderValue::from(text.len());
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Told here, and not left to the server, so that the answer to HEAD has it too.
    response.headers_mut().insert(header::CONTENT_LENGTH, length);
    response
}
