//! The one table from what went wrong to gRPC codes; nothing else in the program knows them.
//!
//! Every error carries one `ErrorInfo` (reason from `ErrorReason`, domain `orbit`, everything dynamic in its metadata),
//! all bad fields in one `BadRequest`, `RetryInfo` where waiting helps and `ResourceInfo` where something is named.
//! The matches are exhaustive: a new rejection does not compile without a code.

use crate::domain::Rejection;
use crate::domain::definition::Fault;
use crate::domain::query::QueryError;
use crate::engine;
use crate::proto::{worker, workflow::ErrorReason};
use crate::store;
use crate::wire::{self, Invalid, Violation, field_path};
use std::time::Duration;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt};

/// Domain of every `ErrorInfo`.
pub(super) const DOMAIN: &str = "orbit";

/// Most bytes of an error's message.
const MESSAGE_BYTES_MAX: usize = 512;

/// Most bytes of one violation's description.
const DESCRIPTION_BYTES_MAX: usize = 512;

/// Most bytes of all violations of an error: base64 makes a third more of it, and proxies drop trailers over 8 KiB.
const VIOLATIONS_BYTES_MAX: usize = 4_500;

/// A fault of one of several definitions.
#[derive(Clone, Debug)]
pub(super) struct FileFault {
    /// Place of the definition in the request.
    pub(super) index: usize,
    /// Name of its file.
    pub(super) file: String,
    /// The fault.
    pub(super) fault: Fault,
}

/// Why a call is not answered with what it asked for.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// The request is not valid.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The definition has faults.
    #[error("definition is not valid")]
    DefinitionInvalid(Vec<Fault>),
    /// Some of several definitions have faults.
    #[error("definitions are not valid")]
    DefinitionsInvalid(Vec<FileFault>),
    /// The engine did not do it.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// The store did not work, on a read that goes past the engine.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A message is larger than the limit.
    #[error("message of {actual} bytes is larger than the limit of {limit} bytes")]
    MessageTooLarge {
        /// Most bytes.
        limit: usize,
        /// Its bytes.
        actual: usize,
    },
    /// The call's deadline passed.
    #[error("deadline exceeded; a write may have happened, which the same call with the same request_id tells")]
    DeadlineExceeded,
    /// There is no such rpc.
    #[error("unknown rpc {path:?}")]
    MethodUnknown {
        /// Path of the call.
        path: String,
    },
    /// The server's own fault; the log has it under this id.
    #[error("internal error; the server's log has it under {incident}")]
    Bug {
        /// The id.
        incident: String,
    },
}

/// What a caller is told.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    code: Code,
    reason: ErrorReason,
    message: String,
    metadata: Vec<(&'static str, String)>,
    violations: Vec<Violation>,
    /// How many more there are.
    unlisted: usize,
    retry_after: Option<Duration>,
    resource: Option<(&'static str, String)>,
}

impl Verdict {
    fn new(code: Code, reason: ErrorReason, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            metadata: Vec::new(),
            violations: Vec::new(),
            unlisted: 0,
            retry_after: None,
            resource: None,
        }
    }

    fn with(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.metadata.push((key, value.into()));
        self
    }

    fn violation(mut self, field: &str, description: impl Into<String>) -> Self {
        self.violations.push(Violation { field: field.to_owned(), description: description.into() });
        self
    }

    fn retry_after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }

    fn resource(mut self, kind: &'static str, name: impl Into<String>) -> Self {
        self.resource = Some((kind, name.into()));
        self
    }

    /// The code.
    pub(super) fn code(&self) -> Code {
        self.code
    }

    /// Whether the same call may do better later.
    pub(super) fn is_retryable(&self) -> bool {
        self.retry_after.is_some()
    }

    /// The status of a call.
    pub(super) fn into_status(self) -> Status {
        let mut details = ErrorDetails::new();
        let metadata =
            self.metadata.into_iter().map(|(key, value)| (key.to_owned(), cut(value, DESCRIPTION_BYTES_MAX)));
        details.set_error_info(reason_name(self.reason), DOMAIN, metadata.collect::<std::collections::HashMap<_, _>>());
        if !self.violations.is_empty() {
            details.set_bad_request(bounded(self.violations, self.unlisted));
        }
        if let Some(pause) = self.retry_after {
            details.set_retry_info(Some(pause));
        }
        if let Some((kind, name)) = self.resource {
            details.set_resource_info(kind, name, "", "");
        }
        Status::with_error_details(self.code, cut(self.message, MESSAGE_BYTES_MAX), details)
    }

    /// The error of one report on a stream.
    pub(super) fn into_report_error(self) -> worker::ReportError {
        worker::ReportError {
            reason: reason_name(self.reason).to_owned(),
            message: cut(self.message, MESSAGE_BYTES_MAX),
            retryable: self.retry_after.is_some(),
            retry_after: self.retry_after.map(wire::time::render_span),
        }
    }
}

/// A reason as clients know it, without the prefix of the enum.
pub(super) fn reason_name(reason: ErrorReason) -> &'static str {
    let name = reason.as_str_name();
    name.strip_prefix("ERROR_REASON_").unwrap_or(name)
}

fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        let mut end = bytes_max - '…'.len_utf8();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

/// The violations that fit into a trailer; the last one counts those that do not, and those that were not even listed.
fn bounded(violations: Vec<Violation>, unlisted: usize) -> Vec<FieldViolation> {
    let count = violations.len() + unlisted;
    let mut bytes = 0;
    let mut kept = Vec::new();
    for violation in violations {
        let (field, description) = (cut(violation.field, 256), cut(violation.description, DESCRIPTION_BYTES_MAX));
        bytes += field.len() + description.len() + 8;
        if bytes > VIOLATIONS_BYTES_MAX {
            break;
        }
        kept.push(FieldViolation::new(field, description));
    }
    if kept.len() < count {
        kept.push(FieldViolation::new("", format!("and {} more", count - kept.len())));
    }
    kept
}

/// What a caller is told about a refusal.
pub(super) fn verdict(refusal: &Refusal) -> Verdict {
    let text = refusal.to_string();
    match refusal {
        Refusal::Invalid(invalid) => of_invalid(invalid),
        Refusal::DefinitionInvalid(faults) => of_faults(faults),
        Refusal::DefinitionsInvalid(faults) => of_file_faults(faults),
        Refusal::Engine(error) => of_engine(error),
        Refusal::Store(error) => of_store(error),
        Refusal::MessageTooLarge { limit, actual } => {
            Verdict::new(Code::InvalidArgument, ErrorReason::PayloadTooLarge, text)
                .with("limit", limit.to_string())
                .with("actual", actual.to_string())
        }
        Refusal::DeadlineExceeded => Verdict::new(Code::DeadlineExceeded, ErrorReason::DeadlineExceeded, text),
        Refusal::MethodUnknown { path } => {
            Verdict::new(Code::Unimplemented, ErrorReason::MethodUnknown, text).with("path", path)
        }
        Refusal::Bug { incident } => {
            Verdict::new(Code::Internal, ErrorReason::Internal, text).with("incident", incident)
        }
    }
}

fn of_invalid(invalid: &Invalid) -> Verdict {
    let mut verdict = Verdict::new(Code::InvalidArgument, ErrorReason::FieldViolation, invalid.to_string());
    if let Some((limit, actual)) = invalid.too_large {
        verdict.reason = ErrorReason::PayloadTooLarge;
        verdict = verdict.with("limit", limit.to_string()).with("actual", actual.to_string());
    } else if invalid.page_token {
        verdict.reason = ErrorReason::PageTokenInvalid;
    }
    verdict.violations.clone_from(&invalid.violations);
    verdict.unlisted = invalid.unlisted;
    verdict
}

fn of_rejection(rejection: &Rejection) -> Verdict {
    let text = rejection.to_string();
    let invalid = |reason| Verdict::new(Code::InvalidArgument, reason, text.clone());
    let unmet = |reason| Verdict::new(Code::FailedPrecondition, reason, text.clone());
    match rejection {
        Rejection::ExecutionClosed { state } => unmet(ErrorReason::ExecutionClosed).with("state", *state),
        Rejection::EffectsOpen => {
            Verdict::new(Code::Unavailable, ErrorReason::ExecutionOpen, &*text).retry_after(Duration::from_secs(1))
        }
        Rejection::ExecutionOpen { state } => unmet(ErrorReason::ExecutionOpen).with("state", *state),
        // Callers are told so with the id, by the engine's own error; this is for who is not told which one it was.
        Rejection::Deleted => Verdict::new(Code::NotFound, ErrorReason::ExecutionNotFound, &*text),
        Rejection::WindingDown { cause } => unmet(ErrorReason::ExecutionWindingDown).with("cause", *cause),
        Rejection::RequestIdReused => {
            invalid(ErrorReason::RequestIdReused).violation("request_id", "was used for another call; take a new one")
        }
        Rejection::SignalUnknown { name } => {
            invalid(ErrorReason::FieldViolation).with("signal", &**name).violation("name", &*text)
        }
        Rejection::SignalInvalid { name, violations } => {
            invalid(ErrorReason::FieldViolation).with("signal", &**name).violation("payload", violations)
        }
        Rejection::SignalBufferFull { limit } => {
            Verdict::new(Code::ResourceExhausted, ErrorReason::SignalBufferFull, &*text)
                .with("limit", limit.to_string())
                .retry_after(Duration::from_secs(1))
        }
        Rejection::InputInvalid { violations } => invalid(ErrorReason::FieldViolation).violation("input", violations),
        Rejection::NotRetryable { state, obstacle } => {
            unmet(ErrorReason::ExecutionNotRetryable).with("state", *state).with("obstacle", obstacle.as_str())
        }
        // Only a dispatch sees this, and no call is one.
        Rejection::NotWaiting { unit } => {
            Verdict::new(Code::Internal, ErrorReason::Internal, &*text).with("unit", &**unit)
        }
    }
}

fn of_engine(error: &engine::Error) -> Verdict {
    let text = error.to_string();
    match error {
        engine::Error::Rejected(rejection) => of_rejection(rejection),
        engine::Error::Query(QueryError::NotFound { name, declared }) => {
            Verdict::new(Code::NotFound, ErrorReason::QueryNotFound, text)
                .with("query", name)
                .with("declared", declared)
                .resource("query", name)
        }
        engine::Error::Query(QueryError::Failed { name, why }) => {
            Verdict::new(Code::FailedPrecondition, ErrorReason::QueryFailed, text).with("query", name).with("why", why)
        }
        engine::Error::ExecutionNotFound { id } => {
            Verdict::new(Code::NotFound, ErrorReason::ExecutionNotFound, text).with("id", id).resource("execution", id)
        }
        engine::Error::ExecutionAlreadyExists { id, uid, workflow, state } => {
            Verdict::new(Code::AlreadyExists, ErrorReason::ExecutionAlreadyExists, text)
                .with("id", id)
                .with("uid", uid.to_string())
                .with("workflow", &**workflow)
                .with("state", super::render::state_name(*state))
                .resource("execution", id)
        }
        engine::Error::StepNotFound { workflow, step } => {
            Verdict::new(Code::InvalidArgument, ErrorReason::FieldViolation, text.clone())
                .with("workflow", workflow)
                .with("step", &**step)
                .violation("from_step", text)
        }
        engine::Error::DefinitionNotFound { name, version } => {
            let verdict = Verdict::new(Code::NotFound, ErrorReason::DefinitionNotFound, text).with("name", name);
            match version {
                Some(version) => verdict.with("version", version).resource("definition", format!("{name}@{version}")),
                None => verdict.resource("definition", name),
            }
        }
        engine::Error::HttpDisabled { step } => {
            Verdict::new(Code::FailedPrecondition, ErrorReason::HttpDisabled, text).with("step", &**step)
        }
        engine::Error::DefinitionAlreadyExists { name, version } => {
            Verdict::new(Code::AlreadyExists, ErrorReason::DefinitionAlreadyExists, text)
                .with("name", name)
                .with("version", version)
                .resource("definition", format!("{name}@{version}"))
        }
        engine::Error::BatchNotFound { id } => {
            Verdict::new(Code::NotFound, ErrorReason::BatchNotFound, text).with("id", id).resource("batch", id)
        }
        engine::Error::ScheduleNotFound { id } => {
            Verdict::new(Code::NotFound, ErrorReason::ScheduleNotFound, text).with("id", id).resource("schedule", id)
        }
        engine::Error::ScheduleAlreadyExists { id, uid } => {
            Verdict::new(Code::AlreadyExists, ErrorReason::ScheduleAlreadyExists, text)
                .with("id", id)
                .with("uid", uid.to_string())
                .resource("schedule", id)
        }
        engine::Error::ScheduleInvalid { id, why } => {
            Verdict::new(Code::FailedPrecondition, ErrorReason::ScheduleInvalid, text)
                .with("id", id)
                .with("why", &**why)
        }
        engine::Error::EtagMismatch { id, etag } => {
            Verdict::new(Code::Aborted, ErrorReason::EtagMismatch, text).with("id", id).with("etag", etag)
        }
        engine::Error::BackfillsPending { id, most } => {
            Verdict::new(Code::ResourceExhausted, ErrorReason::BackfillsPending, text)
                .with("id", id)
                .with("limit", most.to_string())
                .retry_after(Duration::from_secs(10))
        }
        engine::Error::Invalid(invalid) => of_invalid(invalid),
        // Whoever deploys says which file has which.
        engine::Error::DefinitionsInvalid { faults } => {
            of_faults(&faults.iter().map(|(_, fault)| fault.clone()).collect::<Vec<_>>())
        }
        engine::Error::SessionNotFound => Verdict::new(Code::NotFound, ErrorReason::SessionNotFound, text),
        engine::Error::TooManyExecutions { limit } => {
            Verdict::new(Code::ResourceExhausted, ErrorReason::TooManyExecutions, text)
                .with("limit", limit.to_string())
                .retry_after(Duration::from_secs(1))
        }
        engine::Error::Overloaded { what } => Verdict::new(Code::ResourceExhausted, ErrorReason::Overloaded, text)
            .with("queue", *what)
            .retry_after(Duration::from_millis(500)),
        engine::Error::Draining => {
            Verdict::new(Code::Unavailable, ErrorReason::ServerDraining, text).retry_after(Duration::from_secs(1))
        }
        engine::Error::Store(error) => of_store(error),
        engine::Error::WriteConflict => {
            Verdict::new(Code::Unavailable, ErrorReason::WriteConflict, text).retry_after(Duration::from_millis(100))
        }
        engine::Error::EventUnknown | engine::Error::LevelTooHigh => {
            Verdict::new(Code::Unavailable, ErrorReason::EventUnknown, text).retry_after(Duration::from_secs(5))
        }
        engine::Error::Quarantined { why } => {
            Verdict::new(Code::FailedPrecondition, ErrorReason::ExecutionQuarantined, text).with("why", &**why)
        }
        engine::Error::Internal => Verdict::new(Code::Internal, ErrorReason::Internal, text),
    }
}

fn of_store(error: &store::Error) -> Verdict {
    match error {
        store::Error::Unavailable(_) | store::Error::Refused(_) => {
            Verdict::new(Code::Unavailable, ErrorReason::StoreUnavailable, "database is unavailable")
                .retry_after(Duration::from_secs(1))
        }
        store::Error::Damaged { .. } => Verdict::new(Code::Internal, ErrorReason::Internal, "stored data is damaged"),
    }
}

fn of_faults(faults: &[Fault]) -> Verdict {
    let message = match faults {
        [fault] => format!("definition is not valid: {fault}"),
        _ => format!("definition has {} faults", faults.len()),
    };
    let mut verdict = Verdict::new(Code::InvalidArgument, ErrorReason::DefinitionInvalid, message)
        .with("faults", faults.len().to_string());
    verdict.violations =
        faults.iter().map(|fault| Violation { field: fault.path.clone(), description: fault.to_string() }).collect();
    verdict
}

fn of_file_faults(faults: &[FileFault]) -> Verdict {
    let in_file = |FileFault { file, fault, .. }: &FileFault| format!("{file}: {fault}");
    let files = faults.iter().map(|fault| fault.index).collect::<std::collections::BTreeSet<_>>().len();
    let message = match faults {
        [fault] => format!("definition is not valid: {}", in_file(fault)),
        _ => format!("definitions have {} faults in {files} of the files", faults.len()),
    };
    let mut verdict = Verdict::new(Code::InvalidArgument, ErrorReason::DefinitionInvalid, message)
        .with("faults", faults.len().to_string());
    let violation = |it: &FileFault| Violation {
        field: field_path(&format!("files[{}]", it.index), &it.fault.path),
        description: in_file(it),
    };
    verdict.violations = faults.iter().map(violation).collect();
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalid(count: usize) -> Invalid {
        let violation = |index| Violation { field: format!("field_{index}"), description: "is wrong ".repeat(20) };
        Invalid { violations: (0..count).map(violation).collect(), unlisted: 7, too_large: None, page_token: false }
    }

    #[test]
    fn every_error_has_one_error_info_with_a_known_reason() {
        let refusals = [
            Refusal::Invalid(invalid(1)),
            Refusal::Engine(engine::Error::BatchNotFound { id: "b".to_owned() }),
            Refusal::Engine(engine::Error::TooManyExecutions { limit: 1 }),
            Refusal::Engine(engine::Error::SessionNotFound),
            Refusal::Engine(engine::Error::Rejected(Rejection::RequestIdReused)),
            Refusal::DeadlineExceeded,
            Refusal::Bug { incident: "1".to_owned() },
        ];
        for refusal in refusals {
            let status = verdict(&refusal).into_status();
            let info = status.get_details_error_info().unwrap();
            assert_eq!(info.domain, DOMAIN);
            assert!(ErrorReason::from_str_name(&format!("ERROR_REASON_{}", info.reason)).is_some(), "{}", info.reason);
        }
    }

    #[test]
    fn waiting_is_advised_exactly_where_it_helps() {
        let pause = |refusal: &Refusal| verdict(refusal).into_status().get_details_retry_info().is_some();
        assert!(pause(&Refusal::Engine(engine::Error::Draining)));
        for error in [
            engine::Error::Store(store::Error::Unavailable(std::sync::Arc::from(Box::from("connection reset")))),
            engine::Error::WriteConflict,
            engine::Error::EventUnknown,
            engine::Error::LevelTooHigh,
        ] {
            let refusal = Refusal::Engine(error);
            assert!(pause(&refusal), "{refusal}");
            assert_eq!(verdict(&refusal).code(), Code::Unavailable, "{refusal}");
        }
        assert!(pause(&Refusal::Engine(engine::Error::Overloaded { what: "mailbox" })));
        assert!(!pause(&Refusal::Engine(engine::Error::SessionNotFound)));
        assert!(!pause(&Refusal::Invalid(invalid(1))));
    }

    #[test]
    fn details_stay_small_enough_for_a_trailer_and_count_what_is_left_out() {
        let status = verdict(&Refusal::Invalid(invalid(50))).into_status();
        assert!(status.details().len() < 6_000 && status.message().len() <= MESSAGE_BYTES_MAX);
        let violations = status.get_details_bad_request().unwrap().field_violations;
        let kept = violations.len() - 1;
        assert_eq!(violations[kept].description, format!("and {} more", 57 - kept));
    }

    #[test]
    fn a_page_token_and_a_large_payload_have_reasons_of_their_own() {
        let mut bad = invalid(2);
        bad.page_token = true;
        assert_eq!(verdict(&Refusal::Invalid(bad.clone())).reason, ErrorReason::PageTokenInvalid);
        bad.too_large = Some((1, 2));
        let verdict = verdict(&Refusal::Invalid(bad));
        assert_eq!(verdict.reason, ErrorReason::PayloadTooLarge);
        assert_eq!(verdict.metadata, [("limit", "1".to_owned()), ("actual", "2".to_owned())]);
    }
}
