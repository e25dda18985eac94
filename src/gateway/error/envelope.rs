//! The envelope as text, with the standard details of `google.rpc` in their JSON form.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;
use tonic::{Code, Status};
use tonic_types::{ErrorDetail, StatusExt as _};

/// The envelope of a status, as text on one line.
#[must_use]
pub fn envelope(status: &Status) -> String {
    let mut details = status.get_error_details_vec();
    // First what every error has, so that a script finds it at `details[0]`.
    details.sort_by_key(|detail| !matches!(detail, ErrorDetail::ErrorInfo(_)));
    let error = Error {
        code: super::http_code(status.code(), &details).as_u16(),
        status: code_name(status.code()),
        message: status.message(),
        details: details.into_iter().filter_map(Detail::of).collect(),
    };
    serde_json::to_string(&Envelope { error }).expect("text and numbers always have a JSON form")
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: Error<'a>,
}

#[derive(Serialize)]
struct Error<'a> {
    code: u16,
    status: &'static str,
    message: &'a str,
    details: Vec<Detail>,
}

#[derive(Serialize)]
#[serde(tag = "@type", rename_all_fields = "camelCase")]
enum Detail {
    #[serde(rename = "type.googleapis.com/google.rpc.ErrorInfo")]
    ErrorInfo { reason: String, domain: String, metadata: BTreeMap<String, String> },
    #[serde(rename = "type.googleapis.com/google.rpc.BadRequest")]
    BadRequest { field_violations: Vec<Violation> },
    #[serde(rename = "type.googleapis.com/google.rpc.RetryInfo")]
    RetryInfo { retry_delay: String },
    #[serde(rename = "type.googleapis.com/google.rpc.ResourceInfo")]
    ResourceInfo { resource_type: String, resource_name: String, owner: String, description: String },
    #[serde(rename = "type.googleapis.com/google.rpc.PreconditionFailure")]
    PreconditionFailure { violations: Vec<Precondition> },
    #[serde(rename = "type.googleapis.com/google.rpc.QuotaFailure")]
    QuotaFailure { violations: Vec<Quota> },
    #[serde(rename = "type.googleapis.com/google.rpc.RequestInfo")]
    RequestInfo { request_id: String, serving_data: String },
    #[serde(rename = "type.googleapis.com/google.rpc.Help")]
    Help { links: Vec<Link> },
}

#[derive(Serialize)]
struct Violation {
    field: String,
    description: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

#[derive(Serialize)]
struct Precondition {
    r#type: String,
    subject: String,
    description: String,
}

#[derive(Serialize)]
struct Quota {
    subject: String,
    description: String,
}

#[derive(Serialize)]
struct Link {
    description: String,
    url: String,
}

impl Detail {
    /// None for details that are not for callers, such as stack traces.
    fn of(detail: ErrorDetail) -> Option<Self> {
        Some(match detail {
            ErrorDetail::ErrorInfo(info) => Self::ErrorInfo {
                reason: info.reason,
                domain: info.domain,
                metadata: info.metadata.into_iter().collect(),
            },
            ErrorDetail::BadRequest(bad) => Self::BadRequest {
                field_violations: all(bad.field_violations, |v| Violation {
                    field: v.field,
                    description: v.description,
                    reason: v.reason,
                }),
            },
            ErrorDetail::RetryInfo(info) => Self::RetryInfo { retry_delay: seconds(info.retry_delay?) },
            ErrorDetail::ResourceInfo(info) => Self::ResourceInfo {
                resource_type: info.resource_type,
                resource_name: info.resource_name,
                owner: info.owner,
                description: info.description,
            },
            ErrorDetail::PreconditionFailure(failure) => Self::PreconditionFailure {
                violations: all(failure.violations, |v| Precondition {
                    r#type: v.r#type,
                    subject: v.subject,
                    description: v.description,
                }),
            },
            ErrorDetail::QuotaFailure(failure) => Self::QuotaFailure {
                violations: all(failure.violations, |v| Quota { subject: v.subject, description: v.description }),
            },
            ErrorDetail::RequestInfo(info) => {
                Self::RequestInfo { request_id: info.request_id, serving_data: info.serving_data }
            }
            ErrorDetail::Help(help) => {
                Self::Help { links: all(help.links, |l| Link { description: l.description, url: l.url }) }
            }
            _ => return None,
        })
    }
}

fn all<A, B>(from: Vec<A>, to: impl Fn(A) -> B) -> Vec<B> {
    from.into_iter().map(to).collect()
}

/// A duration as JSON has it: seconds, with three digits after the point where they say something.
fn seconds(span: Duration) -> String {
    match span.subsec_millis() {
        0 => format!("{}s", span.as_secs()),
        millis => format!("{}.{millis:03}s", span.as_secs()),
    }
}

/// The name of a gRPC code, such as `NOT_FOUND`.
#[must_use]
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
