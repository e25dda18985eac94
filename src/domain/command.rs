//! What may be asked of an execution, and what comes of it.

use super::{ChildEnd, DeliveryRef, EndReason, Failure, Payload, RequestKey, SessionId, Settled, Timestamp, Unit};
use std::{sync::Arc, time::Duration};

/// The server's settings that rules depend on.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Silence after which a delivery or a session is lost, of sessions that connect from now on. Default 30 s.
    pub session_timeout: Duration,
    /// How long deliveries that are out may still report once the execution winds down. Default 30 s.
    pub cancel_grace: Duration,
    /// Deliveries of one unit that may end with unknown outcome before it fails. Default 10.
    pub deliveries_max: u32,
    /// Signals that may wait in one execution. Default 10,000.
    pub buffered_signals_max: usize,
    /// Events that one run may have, counted anew once it is taken up again: a run that reaches them fails. A guard against
    /// loops without an end, not a limit to plan for. Default 1,000,000.
    pub history_events_max: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            session_timeout: Duration::from_secs(30),
            cancel_grace: Duration::from_secs(30),
            deliveries_max: 10,
            buffered_signals_max: 10_000,
            history_events_max: 1_000_000,
        }
    }
}

/// A worker that waits for a task, as far as a dispatch needs to know it.
#[derive(Clone, Debug)]
pub struct Claimant {
    /// Its session.
    pub session_id: SessionId,
    /// Its name.
    pub worker_id: Arc<str>,
    /// Largest message that it can take, in bytes.
    pub message_bytes_max: usize,
    /// Its session's timeout: a task is looked for so long after it was handed out.
    pub session_timeout: Duration,
}

/// Everything that can be asked of an execution that exists.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the variants say what their fields are")]
pub enum Command {
    /// Hands a waiting unit to a worker that waits.
    Dispatch { unit: Unit, claimant: Claimant },
    /// A worker reports success.
    Complete { delivery: DeliveryRef, output: Payload },
    /// A worker reports failure. `progress` is the newest known.
    Fail {
        delivery: DeliveryRef,
        failure: Failure,
        retryable: bool,
        retry_after: Option<Duration>,
        progress: Option<Payload>,
    },
    /// A delivery is known to be held by its worker, which from now on its session watches.
    Hold { delivery: DeliveryRef },
    /// A delivery ended without a report: released by its worker, lost with its session, never sent.
    EndDelivery { delivery: DeliveryRef, reason: EndReason, progress: Option<Payload> },
    /// A held delivery sent no beat for its `heartbeat_timeout`.
    MissBeat { delivery: DeliveryRef, progress: Option<Payload> },
    /// A caller gives a signal.
    Signal { name: Arc<str>, payload: Payload, expire_time: Option<Timestamp>, request: Option<RequestKey> },
    /// A caller cancels.
    Cancel { reason: Arc<str>, request: Option<RequestKey> },
    /// A caller terminates.
    Terminate { reason: Arc<str>, request: Option<RequestKey> },
    /// An operator holds the execution.
    Pause { reason: Arc<str>, request: Option<RequestKey> },
    /// An operator lets it go on.
    Resume { request: Option<RequestKey> },
    /// An operator has what failed run again. The obstacle is one that lies outside of the execution.
    Retry { obstacle: Option<Obstacle>, request: Option<RequestKey> },
    /// A caller, or retention, wants to be rid of the execution.
    BeginDeletion { request: Option<RequestKey> },
    /// A step of another execution, under its name, gives a signal.
    SignalFrom { sender: [u8; 16], name: Arc<str>, payload: Payload },
    /// A child has ended.
    EndChild(Box<ChildEnd>),
    /// Something that another execution had to be told, or made to be, is.
    Settle(Settled),
    /// Time has passed: does all that is due. `held` are the deliveries due for their first check that a worker is
    /// known to hold; the others that are due are lost, but for those of which it cannot be told yet: `early` ones stay
    /// due.
    Wake { held: Vec<DeliveryRef>, early: Vec<DeliveryRef> },
}

/// What came of a command.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A report was judged.
    Report(ReportOutcome),
    /// The call is recorded in the event of this number, now or when it was first made.
    Recorded(u64),
    /// The unit was handed out.
    Dispatched(Box<Delivery>),
    /// Done, or nothing was to do.
    Done,
}

/// What became of a worker's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportOutcome {
    /// It counts.
    Accepted,
    /// The same report was accepted before.
    Duplicate,
    /// It changes nothing.
    Refused(RefusalReason),
}

/// Why a report changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// The unit has ended.
    UnitResolved,
    /// The execution is closed, or gone.
    ExecutionClosed,
    /// Another delivery or attempt has replaced this one.
    StaleToken,
}

/// A delivery as its worker needs it; ids of the execution come from its state.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// Unit and number.
    pub reference: DeliveryRef,
    /// Contract `name@version`.
    pub contract: Arc<str>,
    /// Queue that it waited in.
    pub queue: Arc<str>,
    /// Input.
    pub input: Payload,
    /// Attempt, from 1.
    pub attempt: u32,
    /// Whether an earlier delivery of this attempt ended with unknown outcome.
    pub redelivery: bool,
    /// Key of the unit's work.
    pub idempotency_key: String,
    /// When the attempt began to wait.
    pub schedule_time: Timestamp,
    /// When it was handed out.
    pub dispatch_time: Timestamp,
    /// When it times out.
    pub expire_time: Option<Timestamp>,
    /// Longest time between two beats.
    pub heartbeat_timeout: Option<Duration>,
    /// Newest progress before this delivery.
    pub progress: Option<Payload>,
}

/// What stands in the way of a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// It is still open.
    #[error("only what is FAILED or TIMED_OUT can be retried, and it is open")]
    Open,
    /// It is closed, but did not fail.
    #[error("only what is FAILED or TIMED_OUT can be retried")]
    NotFailed,
    /// Another execution has its id.
    #[error("another execution has its id by now")]
    IdTaken,
    /// It is a child, and its parent does not wait for it any longer.
    #[error("its parent does not wait for it any longer")]
    ParentDone,
}

impl Obstacle {
    /// Its name, for programs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "OPEN",
            Self::NotFailed => "NOT_FAILED",
            Self::IdTaken => "ID_TAKEN",
            Self::ParentDone => "PARENT_DONE",
        }
    }
}

/// The rules forbid it; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The execution is closed, in this state.
    #[error("execution is closed ({state})")]
    ExecutionClosed {
        /// Its state, as `SUCCEEDED`.
        state: &'static str,
    },
    /// The execution is open, in this state.
    #[error("execution is open ({state})")]
    ExecutionOpen {
        /// Its state, as `RUNNING`.
        state: &'static str,
    },
    /// The execution is closed, but its parent must hear of it, or a child; that takes seconds, rarely longer.
    #[error("its parent or its children have not heard of its end yet")]
    EffectsOpen,
    /// The execution is being deleted: it is as good as gone.
    #[error("execution is being deleted")]
    Deleted,
    /// The execution winds down for another cause.
    #[error("execution already winds down ({cause})")]
    WindingDown {
        /// The cause, as `FAILURE`.
        cause: &'static str,
    },
    /// The `request_id` was used for another call.
    #[error("request_id was used for another call")]
    RequestIdReused,
    /// The definition declares no such signal.
    #[error("the definition declares no signal {name:?}")]
    SignalUnknown {
        /// The name that was given.
        name: Arc<str>,
    },
    /// The payload does not fit the signal's schema.
    #[error("payload does not fit the schema of signal {name:?}: {violations}")]
    SignalInvalid {
        /// The signal.
        name: Arc<str>,
        /// What does not fit, with paths.
        violations: String,
    },
    /// As many signals wait as may.
    #[error("{limit} signals wait already")]
    SignalBufferFull {
        /// How many may wait.
        limit: usize,
    },
    /// The input of a start does not fit the definition's schema.
    #[error("input does not fit the schema: {violations}")]
    InputInvalid {
        /// What does not fit, with paths.
        violations: String,
    },
    /// The execution cannot be retried.
    #[error("execution is {state}: {obstacle}")]
    NotRetryable {
        /// Its state, as `SUCCEEDED`.
        state: &'static str,
        /// What stands in the way.
        obstacle: Obstacle,
    },
    /// The unit does not wait for a worker (any more); only dispatch sees this.
    #[error("unit {unit:?} does not wait for a worker")]
    NotWaiting {
        /// The unit.
        unit: Unit,
    },
}
