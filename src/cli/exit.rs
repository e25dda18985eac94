//! Exit codes: a contract with scripts, printed by `--help`.

use crate::proto::workflow::execution::State;
use std::process::ExitCode;

/// What each code means, for `--help`.
pub(super) const HELP: &str = "\
Exit codes:
    0  done
    1  failure: the server refused the arguments, a definition has faults, an internal error
    2  usage: the command line itself is wrong
    3  not found
    4  conflict, or not possible in this state; a trigger that starts nothing
    5  credentials are missing or not enough
    6  the server or its database is unavailable, or time ran out
   10  the execution failed                     (with --wait)
   11  it was cancelled or terminated           (with --wait)
   12  its own timeout ended it                 (with --wait)
   13  migrations are pending                   (migrate status)
  130  interrupted by Ctrl-C; an execution that was waited for goes on";

/// How the program ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Exit {
    /// Done.
    Ok = 0,
    /// Anything without a code of its own.
    Failure = 1,
    /// The command line is wrong.
    Usage = 2,
    /// What was named does not exist.
    NotFound = 3,
    /// It exists with other content, or its state forbids the call.
    Conflict = 4,
    /// The caller is unknown or may not do this.
    Credentials = 5,
    /// The server or its database cannot be reached or cannot work now, or a deadline passed.
    Unavailable = 6,
    /// The execution that was waited for FAILED.
    ExecutionFailed = 10,
    /// The execution that was waited for is CANCELLED or TERMINATED.
    ExecutionCancelled = 11,
    /// The execution that was waited for is TIMED_OUT.
    ExecutionTimedOut = 12,
    /// The schema of the database that was looked at is older than this version's.
    MigrationsPending = 13,
    /// Ctrl-C.
    Interrupted = 130,
}

impl Exit {
    /// The code for a call that was refused or failed.
    pub(super) fn of_code(code: tonic::Code) -> Self {
        match code {
            tonic::Code::Ok => Self::Ok,
            tonic::Code::NotFound => Self::NotFound,
            tonic::Code::AlreadyExists | tonic::Code::FailedPrecondition | tonic::Code::Aborted => Self::Conflict,
            tonic::Code::Unauthenticated | tonic::Code::PermissionDenied => Self::Credentials,
            tonic::Code::Unavailable
            | tonic::Code::DeadlineExceeded
            | tonic::Code::ResourceExhausted
            | tonic::Code::Cancelled => Self::Unavailable,
            tonic::Code::InvalidArgument
            | tonic::Code::OutOfRange
            | tonic::Code::Unknown
            | tonic::Code::Unimplemented
            | tonic::Code::Internal
            | tonic::Code::DataLoss => Self::Failure,
        }
    }

    /// The gRPC code that says the same, for errors that no server made.
    pub(super) fn to_code(self) -> tonic::Code {
        match self {
            Self::Ok => tonic::Code::Ok,
            Self::Failure => tonic::Code::Unknown,
            Self::Usage => tonic::Code::InvalidArgument,
            Self::NotFound => tonic::Code::NotFound,
            Self::Conflict
            | Self::ExecutionFailed
            | Self::ExecutionCancelled
            | Self::ExecutionTimedOut
            | Self::MigrationsPending => tonic::Code::FailedPrecondition,
            Self::Credentials => tonic::Code::Unauthenticated,
            Self::Unavailable => tonic::Code::DeadlineExceeded,
            Self::Interrupted => tonic::Code::Cancelled,
        }
    }

    /// The code for an execution that was waited for; none while it is open.
    pub(super) fn of_state(state: State) -> Option<Self> {
        match state {
            State::Unspecified | State::Running | State::Paused | State::WindingDown => None,
            State::Succeeded => Some(Self::Ok),
            State::Failed => Some(Self::ExecutionFailed),
            State::Cancelled | State::Terminated => Some(Self::ExecutionCancelled),
            State::TimedOut => Some(Self::ExecutionTimedOut),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
