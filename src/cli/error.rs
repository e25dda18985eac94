//! What went wrong, as the user sees it: `error: … (REASON)` and `hint: …`, or the error envelope as JSON.

use super::{exit::Exit, output::Output};
use crate::{
    gateway::{code_name, envelope},
    proto::workflow::ErrorReason,
};
use std::{error::Error as _, fmt::Write as _, time::Duration};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// Why a command did not do its work.
#[derive(Debug)]
pub(super) enum Error {
    /// The server refused or failed, or could not be reached.
    Call(Box<Status>),
    /// Found here, without a call.
    Local {
        /// Code to end with.
        exit: Exit,
        /// What is wrong.
        message: String,
        /// What to do about it; may be empty.
        hint: String,
    },
    /// All that there is to say stands in the output already.
    Said(Exit),
    /// stdout could not be written.
    Output(std::io::Error),
}

impl Error {
    /// A command line that is wrong in a way that only its execution finds.
    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self::Local { exit: Exit::Usage, message: message.into(), hint: String::new() }
    }

    /// A failure that has no code of its own.
    pub(super) fn failure(message: impl Into<String>) -> Self {
        Self::Local { exit: Exit::Failure, message: message.into(), hint: String::new() }
    }

    /// The same with advice.
    #[must_use]
    pub(super) fn hint(self, advice: impl Into<String>) -> Self {
        match self {
            Self::Local { exit, message, .. } => Self::Local { exit, message, hint: advice.into() },
            Self::Call(_) | Self::Said(_) | Self::Output(_) => self,
        }
    }

    /// The code that the program ends with.
    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Call(status) if is_transport(status) => Exit::Unavailable,
            Self::Call(status) => Exit::of_code(status.code()),
            Self::Local { exit, .. } | Self::Said(exit) => *exit,
            // `orbit list | head` is no failure: the reader has what it wanted.
            Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Ok,
            Self::Output(_) => Exit::Failure,
        }
    }

    /// Tells the user. `server` is the one that was to be called; may be empty.
    pub(super) fn report(&self, output: Output, server: &str) {
        match self {
            Self::Call(status) if is_transport(status) => {
                let at = if server.is_empty() { String::new() } else { format!(" at {server}") };
                let message = format!("cannot reach the server{at}: {}", innermost_cause(status));
                if output.is_json() {
                    output.note(&envelope(&Status::unavailable(message)));
                } else {
                    output
                        .complain(&message, "`orbit dev` starts a server here; --server or ORBIT_SERVER names another");
                }
            }
            Self::Call(status) if output.is_json() => output.note(&envelope(status)),
            Self::Call(status) => output.complain(&sentence(status), &hint(status)),
            Self::Local { exit, message, .. } if output.is_json() => {
                output.note(&envelope(&Status::new(exit.to_code(), message)));
            }
            Self::Local { message, hint, .. } => output.complain(message, hint),
            Self::Said(_) => {}
            Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            Self::Output(error) => output.complain(&format!("cannot write the output: {error}"), ""),
        }
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        Self::Call(Box::new(status))
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Output(error)
    }
}

/// Whether the connection and not the server speaks: a status from the wire has no source.
pub(super) fn is_transport(status: &Status) -> bool {
    status.source().is_some() && status.code() != Code::DeadlineExceeded && status.code() != Code::OutOfRange
}

/// Whether the same call may work later.
pub(super) fn is_temporary(status: &Status) -> bool {
    is_transport(status) || matches!(status.code(), Code::Unavailable | Code::ResourceExhausted)
}

/// The pause that the server asks for, if it does.
pub(super) fn retry_after(status: &Status) -> Option<Duration> {
    status.get_details_retry_info().and_then(|info| info.retry_delay)
}

fn reason(status: &Status) -> Option<String> {
    status.get_details_error_info().map(|info| info.reason)
}

/// The message with its reason, and below it each bad field.
fn sentence(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let reason = reason(status).unwrap_or_else(|| code_name(status.code()).to_owned());
    write!(text, " ({reason})").expect("a string takes everything");
    let violations = status.get_details_bad_request().map(|bad| bad.field_violations).unwrap_or_default();
    // One alone is usually the message already.
    if let [only] = &violations[..]
        && status.message().contains(&only.description)
    {
        return text;
    }
    for violation in violations {
        let field = if violation.field.is_empty() { String::new() } else { format!("{}: ", violation.field) };
        write!(text, "\n  {field}{}", violation.description).expect("a string takes everything");
    }
    text
}

/// The innermost cause says what happened ("connection refused"), the outer ones only that something did.
fn innermost_cause(status: &Status) -> String {
    let mut innermost = status.message().to_owned();
    let mut source = status.source();
    while let Some(error) = source {
        innermost = error.to_string();
        source = error.source();
    }
    innermost
}

/// What the user can do about it.
fn hint(status: &Status) -> String {
    let name = reason(status).map(|reason| format!("ERROR_REASON_{reason}")).unwrap_or_default();
    let later = || match retry_after(status) {
        Some(pause) => format!("try again in {pause:?}"),
        None => "try again in a moment".to_owned(),
    };
    // In full, so that a new reason does not compile without a thought about its hint.
    match ErrorReason::from_str_name(&name).unwrap_or(ErrorReason::Unspecified) {
        ErrorReason::ExecutionNotFound => "`orbit list` shows the executions that there are".to_owned(),
        ErrorReason::BatchNotFound => "`orbit batch list` shows the batches that there are".to_owned(),
        ErrorReason::ScheduleNotFound => "`orbit schedule list` shows the schedules that there are".to_owned(),
        ErrorReason::ScheduleAlreadyExists => "choose another id, or `orbit schedule update ID` changes it".to_owned(),
        ErrorReason::ScheduleInvalid => "`orbit schedule update ID` sets it right".to_owned(),
        ErrorReason::EtagMismatch => "`orbit schedule get ID` shows it as it is now".to_owned(),
        ErrorReason::BackfillsPending => "`orbit schedule get ID` shows the backfills under way".to_owned(),
        ErrorReason::DefinitionNotFound => "`orbit deploy FILE` deploys a definition".to_owned(),
        ErrorReason::ExecutionAlreadyExists => "choose another --id, or none and the server makes one".to_owned(),
        ErrorReason::DefinitionAlreadyExists => "give the file a new `version` and deploy that".to_owned(),
        ErrorReason::HttpDisabled => "`orbit server --http-allow HOST` runs http steps to that host".to_owned(),
        ErrorReason::DefinitionInvalid => "`orbit validate FILE` shows each fault with its place".to_owned(),
        ErrorReason::RequestIdReused => "a new call needs a new --request-id".to_owned(),
        ErrorReason::ExecutionOpen => "`orbit terminate ID` ends it at once".to_owned(),
        ErrorReason::ExecutionClosed => "it has ended: `orbit get ID` shows how".to_owned(),
        ErrorReason::ExecutionWindingDown => "`orbit terminate ID` ends it at once".to_owned(),
        ErrorReason::ExecutionNotRetryable => "`orbit rerun ID --from STEP` makes a new execution of it".to_owned(),
        ErrorReason::SignalBufferFull
        | ErrorReason::Overloaded
        | ErrorReason::TooManyExecutions
        | ErrorReason::ServerDraining
        | ErrorReason::StoreUnavailable
        | ErrorReason::WriteConflict => later(),
        ErrorReason::DeadlineExceeded => "the call may have happened; look before you repeat it".to_owned(),
        ErrorReason::MethodUnknown | ErrorReason::EventUnknown => {
            "the server has another version than this program".to_owned()
        }
        ErrorReason::Internal | ErrorReason::ExecutionQuarantined => "the server's log tells more".to_owned(),
        ErrorReason::Unspecified
        | ErrorReason::FieldViolation
        | ErrorReason::PageTokenInvalid
        | ErrorReason::PayloadTooLarge
        | ErrorReason::SessionNotFound
        | ErrorReason::QueryNotFound
        | ErrorReason::QueryFailed
        | ErrorReason::RouteNotFound
        | ErrorReason::MethodNotAllowed
        | ErrorReason::MediaTypeUnsupported => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic_types::{ErrorDetails, FieldViolation};

    fn refused(message: &str, violations: &[(&str, &str)]) -> Status {
        let violations: Vec<_> = violations.iter().map(|(field, text)| FieldViolation::new(*field, *text)).collect();
        let mut details = ErrorDetails::with_bad_request(violations);
        details.set_error_info("FIELD_VIOLATION", "orbit", [("a".to_owned(), "b".to_owned())]);
        Status::with_error_details(Code::InvalidArgument, message, details)
    }

    #[test]
    fn all_bad_fields_are_told_and_one_alone_once() {
        let two = refused("2 fields are wrong", &[("id", "is empty"), ("input", "is no JSON")]);
        assert_eq!(sentence(&two), "2 fields are wrong (FIELD_VIOLATION)\n  id: is empty\n  input: is no JSON");
        let one = refused("id: is empty", &[("id", "is empty")]);
        assert_eq!(sentence(&one), "id: is empty (FIELD_VIOLATION)");
    }

    #[test]
    fn an_error_without_a_reason_has_the_name_of_its_code() {
        assert_eq!(sentence(&Status::unauthenticated("who are you?")), "who are you? (UNAUTHENTICATED)");
        assert_eq!(Error::from(Status::unauthenticated("")).exit(), Exit::Credentials);
    }

    #[test]
    fn a_connection_that_breaks_is_temporary_and_not_the_servers_word() {
        let broken = Status::from_error(Box::new(std::io::Error::other("connection reset")));
        assert!(is_transport(&broken) && is_temporary(&broken));
        assert_eq!(Error::from(broken).exit(), Exit::Unavailable);
        assert!(is_temporary(&Status::unavailable("draining")) && !is_transport(&Status::unavailable("draining")));
        assert!(!is_temporary(&Status::not_found("no")));
    }
}
