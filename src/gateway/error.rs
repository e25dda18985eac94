//! The one envelope of all errors: `{"error": {"code", "status", "message", "details"}}`.
//!
//! `code` is the HTTP status, `status` the name of the gRPC code, `details` the standard messages of `google.rpc`, each
//! with its `@type`. The first detail to look at is the one `ErrorInfo`: its `reason` is the name of an
//! [`ErrorReason`], its `domain` is `orbit`.

use std::{collections::HashMap, time::Duration};

use http::{HeaderValue, StatusCode, header};
use tonic::{Code, Status};
use tonic_types::{ErrorDetail, ErrorDetails, FieldViolation, StatusExt as _};

use super::{Response, body, headers};
use crate::{
    clock::{Entropy as _, SystemEntropy},
    proto::{
        json::{Fault, Faults, Unwritable},
        workflow::ErrorReason,
    },
};

mod envelope;

pub use envelope::{code_name, envelope};

const DOMAIN: &str = "orbit";

/// A refusal of the gateway's own.
pub(super) fn refusal(
    code: Code,
    reason: ErrorReason,
    message: impl Into<String>,
    metadata: impl IntoIterator<Item = (&'static str, String)>,
) -> Status {
    let metadata: HashMap<_, _> = metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    Status::with_error_details(code, message, ErrorDetails::with_error_info(name(reason), DOMAIN, metadata))
}

/// The refusal of a request for all that is wrong with its fields.
pub(super) fn faults(faults: Faults) -> Status {
    let violations: Vec<_> = faults
        .0
        .into_iter()
        // What is wrong with the document as a whole is the body's fault.
        .map(
            |Fault { field, description }| {
                if field.is_empty() { ("body".to_owned(), description) } else { (field, description) }
            },
        )
        .map(|(field, description)| FieldViolation::new(field, description))
        .collect();
    let more = match violations.len() {
        0 | 1 => String::new(),
        all => format!(" (and {} more)", all - 1),
    };
    let first = violations.first().map(|first| format!("{}: {}", first.field, first.description)).unwrap_or_default();
    let mut details = ErrorDetails::with_error_info(name(ErrorReason::FieldViolation), DOMAIN, HashMap::new());
    details.set_bad_request(violations);
    Status::with_error_details(Code::InvalidArgument, first + &more, details)
}

/// The refusal of a request for one field.
pub(super) fn field(field: &str, description: &str) -> Status {
    faults(Faults(vec![Fault { field: field.to_owned(), description: description.to_owned() }]))
}

/// The error of an answer that cannot be written: a bug, or a damaged row.
pub(super) fn unwritable(why: &Unwritable) -> Status {
    let id = SystemEntropy.uuid().to_string();
    tracing::error!(%id, %why, "an answer could not be written as JSON");
    refusal(Code::Internal, ErrorReason::Internal, "the answer could not be written as JSON", [("id", id)])
}

fn name(reason: ErrorReason) -> &'static str {
    reason.as_str_name().trim_start_matches("ERROR_REASON_")
}

/// The HTTP response of an error.
pub(super) fn response(status: &Status) -> Response {
    let details = status.get_error_details_vec();
    let code = http_code(status.code(), &details);
    let mut response = body::json(code, envelope(status));
    let to = response.headers_mut();
    headers::answer(status.metadata(), to);
    let delay = details.iter().find_map(|detail| match detail {
        ErrorDetail::RetryInfo(info) => info.retry_delay,
        _ => None,
    });
    if let Some(delay) = delay
        && matches!(code, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
    {
        to.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(delay)));
    }
    if code == StatusCode::UNAUTHORIZED {
        to.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Rounded up, and at least one: an earlier try would come too early.
fn whole_seconds(delay: Duration) -> u64 {
    (delay.as_secs() + u64::from(delay.subsec_nanos() > 0)).max(1)
}

/// The HTTP status, as `google/rpc/code.proto` has it, except for the reasons that HTTP has a status of its own for.
fn http_code(code: Code, details: &[ErrorDetail]) -> StatusCode {
    const CLIENT_CLOSED_REQUEST: u16 = 499;
    let is = |reason| {
        details.iter().any(|detail| match detail {
            ErrorDetail::ErrorInfo(info) => info.domain == DOMAIN && info.reason == name(reason),
            _ => false,
        })
    };
    match code {
        Code::InvalidArgument if is(ErrorReason::PayloadTooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
        Code::InvalidArgument if is(ErrorReason::MediaTypeUnsupported) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Code::Unimplemented if is(ErrorReason::MethodNotAllowed) => StatusCode::METHOD_NOT_ALLOWED,
        Code::Ok => StatusCode::OK,
        Code::Cancelled => StatusCode::from_u16(CLIENT_CLOSED_REQUEST).expect("three digits are a status"),
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
