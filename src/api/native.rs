//! Rewrites the statuses that the gRPC library makes by itself, so that callers see this service's contract only.
//!
//! - A message over the limit (OUT_OF_RANGE there) is INVALID_ARGUMENT `PAYLOAD_TOO_LARGE`.
//! - A message that is not protobuf (INTERNAL there) is INVALID_ARGUMENT `FIELD_VIOLATION`.
//! - An unknown rpc of a known service is UNIMPLEMENTED `METHOD_UNKNOWN`.

use super::status::{Refusal, verdict};
use crate::wire::Invalid;
use http::{Response, header};
use tonic::{Code, Status};

/// A status that the library made, as the caller is to see it; nothing if it may stay.
pub(super) fn translate(status: &Status, path: &str) -> Option<Status> {
    if !status.details().is_empty() {
        return None;
    }
    let message = status.message();
    let refusal = match status.code() {
        Code::OutOfRange => {
            let (actual, limit) = sizes(message)?;
            Refusal::MessageTooLarge { limit, actual }
        }
        Code::Internal if message.contains("failed to decode Protobuf message") => {
            Refusal::Invalid(Invalid::field("", format!("the request is not a message of this rpc: {message}")))
        }
        Code::Unimplemented if message.is_empty() => Refusal::MethodUnknown { path: path.to_owned() },
        _ => return None,
    };
    Some(verdict(&refusal).into_status())
}

/// The numbers in "… found 5 bytes, the limit is: 4 bytes".
fn sizes(message: &str) -> Option<(usize, usize)> {
    let mut numbers = message.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// A response whose status, if it is one of the library's, is translated.
pub(super) fn rewrite(response: Response<axum::body::Body>, path: &str) -> Response<axum::body::Body> {
    // Only an error without a body has its status among the headers.
    if !response.headers().contains_key(Status::GRPC_STATUS) {
        return response;
    }
    let translated = Status::from_header_map(response.headers()).and_then(|status| translate(&status, path));
    match translated {
        Some(status) => {
            let mut rewritten = status.into_http();
            if let Some(id) = response.headers().get(header::DATE) {
                rewritten.headers_mut().insert(header::DATE, id.clone());
            }
            rewritten
        }
        None => response,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic_types::StatusExt;

    #[test]
    fn the_librarys_own_statuses_become_the_contracts() {
        let large =
            Status::out_of_range("Error, decoded message length too large: found 5 bytes, the limit is: 4 bytes");
        let status = translate(&large, "/x").unwrap();
        assert_eq!(status.code(), Code::InvalidArgument);
        let info = status.get_details_error_info().unwrap();
        assert_eq!(
            (info.reason.as_str(), &*info.metadata["limit"], &*info.metadata["actual"]),
            ("PAYLOAD_TOO_LARGE", "4", "5")
        );

        let unknown = translate(&Status::unimplemented(""), "/a.B/C").unwrap();
        assert_eq!(unknown.get_details_error_info().unwrap().reason, "METHOD_UNKNOWN");
        assert!(translate(&Status::unimplemented("Content is compressed with `x`"), "/a.B/C").is_none());
        assert!(translate(&Status::not_found("gone"), "/a.B/C").is_none());
    }
}
