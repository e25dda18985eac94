//! Why a step, an attempt or an execution failed.

use super::Payload;
use std::sync::Arc;

/// A failure, as events, expressions and callers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Error code, for programs: a worker's own, a definition's, or one of [`code`].
    pub code: Arc<str>,
    /// What went wrong, for people.
    pub message: Arc<str>,
    /// Further data of the worker's.
    pub details: Option<Payload>,
    /// Unit that failed; empty where the failure is of no unit.
    pub unit: Arc<str>,
}

impl Failure {
    /// A failure of the server's own making.
    #[must_use]
    pub fn new(code: &str, message: impl Into<Arc<str>>, unit: &Arc<str>) -> Self {
        Self { code: Arc::from(code), message: message.into(), details: None, unit: unit.clone() }
    }
}

/// The error codes that the server itself gives.
pub mod code {
    /// A delivery took longer than the step's `timeout`; retried.
    pub const TIMEOUT: &str = "TIMEOUT";
    /// No worker took the task within `queue_timeout`; not retried.
    pub const QUEUE_TIMEOUT: &str = "QUEUE_TIMEOUT";
    /// All attempts together took longer than `total_timeout`; not retried.
    pub const TOTAL_TIMEOUT: &str = "TOTAL_TIMEOUT";
    /// No beat came within `heartbeat_timeout`; retried.
    pub const HEARTBEAT_TIMEOUT: &str = "HEARTBEAT_TIMEOUT";
    /// No signal came within an await's `timeout`.
    pub const AWAIT_TIMEOUT: &str = "AWAIT_TIMEOUT";
    /// `max_deliveries` deliveries of one unit ended without a report: the task may kill its workers.
    pub const DELIVERIES_EXHAUSTED: &str = "DELIVERIES_EXHAUSTED";
    /// A task's input does not fit its contract; not retried.
    pub const INPUT_INVALID: &str = "INPUT_INVALID";
    /// An output does not fit its contract (of a task: retried) or the definition's output schema.
    pub const OUTPUT_INVALID: &str = "OUTPUT_INVALID";
    /// An expression could not be evaluated; not retried.
    pub const EXPRESSION_FAILED: &str = "EXPRESSION_FAILED";
    /// A task's input is larger than its worker's, or the server's, largest message; not retried.
    pub const INPUT_TOO_LARGE: &str = "INPUT_TOO_LARGE";
    /// The run has as many events as one may have; ends the execution.
    pub const HISTORY_TOO_LONG: &str = "HISTORY_TOO_LONG";
    /// A `for_each` has more than 100,000 items; not retried.
    pub const FAN_OUT_TOO_LARGE: &str = "FAN_OUT_TOO_LARGE";
    /// Something that had been done could not be undone; ends an execution that was cancelled or timed out FAILED.
    pub const COMPENSATION_FAILED: &str = "COMPENSATION_FAILED";
    /// A value is larger than a payload may be; not retried.
    pub const RESULT_TOO_LARGE: &str = "RESULT_TOO_LARGE";
    /// A child was cancelled by somebody else; not retried.
    pub const CHILD_CANCELLED: &str = "CHILD_CANCELLED";
    /// A child's own timeout passed; retried.
    pub const CHILD_TIMED_OUT: &str = "CHILD_TIMED_OUT";
    /// A child was terminated; not retried.
    pub const CHILD_TERMINATED: &str = "CHILD_TERMINATED";
    /// A child could not be started for another reason than its input; not retried.
    pub const CHILD_NOT_STARTED: &str = "CHILD_NOT_STARTED";
    /// A child would have more parents above it than may be; not retried.
    pub const NESTING_TOO_DEEP: &str = "NESTING_TOO_DEEP";
    /// The execution that a signal is for does not exist, is closed, or does not take it; not retried.
    pub const SIGNAL_NOT_DELIVERED: &str = "SIGNAL_NOT_DELIVERED";
    /// An `http` step got no response: the host or its name server did not work; retried. Where there is a response, the
    /// code is `HTTP_` and its status.
    pub const HTTP_FAILED: &str = "HTTP_FAILED";
    /// An `http` step asks for an address that the server's operator does not allow; not retried.
    pub const HTTP_FORBIDDEN: &str = "HTTP_FORBIDDEN";
    /// The response to an `http` step is larger than the server takes; not retried.
    pub const HTTP_TOO_LARGE: &str = "HTTP_TOO_LARGE";
}
