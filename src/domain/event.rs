//! The facts of an execution's history.
//!
//! - A fact keeps its meaning for ever; a reader that meets an unknown one stops.
//! - Every value that an expression gave is in its event; nothing is evaluated again later.
//!
//! How to add one: the message in `proto/orbit/workflow/v1/event.proto`, the variant here with its
//! [level](EventKind::level), the mapping in `wire/event.rs`, its fold in `state.rs`, and a case in the golden replay
//! test.

use super::{
    ExecutionId, Failure, Parent, Payload, Recipient, ReopenedStep, RequestKey, RunStart, SessionId, Timestamp, Uid,
    Unit,
};
use std::{collections::BTreeMap, sync::Arc};

/// One fact, numbered 1, 2, 3 … in its execution.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Number in the history.
    pub number: u64,
    /// When it happened; never before the event before it.
    pub time: Timestamp,
    /// The call that caused it, if that call had a `request_id`.
    pub request: Option<RequestKey>,
    /// What happened.
    pub kind: EventKind,
}

/// Why an execution winds down; the first cause wins.
#[derive(Clone, Debug, PartialEq)]
pub enum Cause {
    /// A step failed, or the output could not be made.
    Failure(Failure),
    /// Somebody cancelled it, with a reason that may be empty.
    Cancel(Arc<str>),
    /// The execution's own timeout passed.
    Timeout,
}

impl Cause {
    /// Its name as users know it.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Failure(_) => "FAILURE",
            Self::Cancel(_) => "CANCEL",
            Self::Timeout => "TIMEOUT",
        }
    }

    /// What handlers see of it.
    #[must_use]
    pub fn as_failure(&self) -> Failure {
        let of_no_unit = Arc::from("");
        match self {
            Self::Failure(failure) => failure.clone(),
            Self::Cancel(reason) => Failure::new("CANCELLED", reason.clone(), &of_no_unit),
            Self::Timeout => Failure::new("TIMED_OUT", "the execution's timeout passed", &of_no_unit),
        }
    }
}

/// How a delivery ended without its worker's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The session was silent for a session timeout.
    SessionLost,
    /// A live session did not list the token for a session timeout.
    NotListed,
    /// The worker unregistered.
    Unregistered,
    /// The worker gave the task back.
    Released,
    /// The task never left the server; counts as no delivery.
    NotSent,
}

/// Why a step did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// Its own `when` was false.
    WhenFalse,
    /// Its `for_each` gave null: there is nothing to go through.
    NothingUpstream,
}

/// How a step of an earlier execution ended, for one that repeats it from a later step on.
#[derive(Clone, Debug, PartialEq)]
pub struct StepResult {
    /// Id of the step.
    pub step: Arc<str>,
    /// How it ended.
    pub end: StepEnd,
}

/// A way for a step to end that lets those that need it go on.
#[derive(Clone, Debug, PartialEq)]
pub enum StepEnd {
    /// Well, with this output.
    Succeeded(Payload),
    /// It failed, which its `on_error` allowed.
    Failed(Failure),
    /// It did not run.
    Skipped(SkipReason),
}

/// How an execution began.
#[derive(Clone, Debug, PartialEq)]
pub struct Created {
    /// Id.
    pub id: ExecutionId,
    /// Uid.
    pub uid: Uid,
    /// Run that this event begins, from 1.
    pub run: u32,
    /// Workflow.
    pub workflow: Arc<str>,
    /// Version of the definition.
    pub version: Arc<str>,
    /// Hash of the definition.
    pub definition_hash: [u8; 32],
    /// Input with defaults filled in.
    pub input: Payload,
    /// Labels of the definition and the start call.
    pub labels: BTreeMap<String, String>,
    /// When the execution's timeout passes.
    pub expire_time: Option<Timestamp>,
    /// W3C `traceparent` of the start call, or of the parent; may be empty.
    pub trace_parent: Arc<str>,
    /// The unit that asked for it, if none of a caller's.
    pub parent: Option<Parent>,
    /// How many parents stand above it.
    pub depth: u32,
    /// When the first step begins; nothing for at once.
    pub begin_time: Option<Timestamp>,
    /// What steps gave in the execution that this one repeats; they do not run.
    pub results: Vec<StepResult>,
}

/// What happened. Field comments are in `event.proto`.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each field is documented at its message in event.proto")]
pub enum EventKind {
    ExecutionCreated(Box<Created>),
    StepScheduled {
        unit: Unit,
        attempt: u32,
        input: Option<Payload>,
    },
    StepDispatched {
        unit: Unit,
        attempt: u32,
        delivery: u32,
        session_id: SessionId,
        worker_id: Arc<str>,
        check_time: Timestamp,
        expire_time: Option<Timestamp>,
    },
    TaskHeld {
        unit: Unit,
        delivery: u32,
    },
    DeliveryEnded {
        unit: Unit,
        delivery: u32,
        reason: EndReason,
        progress: Option<Payload>,
    },
    AttemptFailed {
        unit: Unit,
        attempt: u32,
        delivery: u32,
        failure: Failure,
        retry_time: Option<Timestamp>,
        progress: Option<Payload>,
        /// Hash of the report that caused it, to know a repeat; absent for a timeout.
        report: Option<[u8; 16]>,
    },
    StepSucceeded {
        unit: Unit,
        output: Payload,
        delivery: u32,
        signal_number: Option<u64>,
        report: Option<[u8; 16]>,
    },
    StepFailed {
        unit: Unit,
        failure: Failure,
    },
    StepSkipped {
        unit: Unit,
        reason: SkipReason,
    },
    StepCancelled {
        unit: Unit,
    },
    FanOutStarted {
        unit: Unit,
        items: Payload,
    },
    FanOutEnded {
        unit: Unit,
    },
    SleepStarted {
        unit: Unit,
        wake_time: Timestamp,
    },
    AwaitStarted {
        unit: Unit,
        expire_time: Option<Timestamp>,
    },
    SignalReceived {
        name: Arc<str>,
        payload: Payload,
        expire_time: Option<Timestamp>,
        /// Names the step that sent it, if no caller did.
        sender: Option<[u8; 16]>,
        /// Unit of the `on_event` step that takes it, unless an await does before.
        handler: Option<Unit>,
    },
    SignalExpired {
        signal_number: u64,
    },
    LateSuccess {
        unit: Unit,
        delivery: u32,
        output: Payload,
    },
    WindDownStarted {
        cause: Cause,
        give_up_time: Timestamp,
    },
    ExecutionSucceeded {
        output: Payload,
    },
    ExecutionFailed {
        failure: Failure,
    },
    ExecutionCancelled,
    ExecutionTimedOut,
    ExecutionTerminated {
        reason: Arc<str>,
    },
    Woke,
    ChildRequested {
        unit: Unit,
        attempt: u32,
        input: Option<Payload>,
        child_id: ExecutionId,
        expire_time: Option<Timestamp>,
    },
    ChildStarted {
        unit: Unit,
        attempt: u32,
        child_uid: Uid,
    },
    ChildCancelSent {
        unit: Unit,
        attempt: u32,
        child_id: ExecutionId,
    },
    ParentTold,
    SignalRequested {
        unit: Unit,
        recipient: Recipient,
        name: Arc<str>,
        payload: Payload,
    },
    ExecutionPaused {
        reason: Arc<str>,
    },
    ExecutionResumed,
    ContinuedAsNew {
        unit: Unit,
        input: Payload,
    },
    RunStarted(Box<RunStart>),
    ExecutionReopened {
        steps: Vec<ReopenedStep>,
        generation: u32,
        expire_time: Option<Timestamp>,
    },
    EventTaken {
        unit: Unit,
        signal_number: u64,
    },
    DeletionBegan,
}

impl EventKind {
    /// The newest level that this version reads and writes.
    pub const LEVEL: u32 = 2;

    /// Whether it may stand behind the close: what is settled with other executions then, what opens it again, and what
    /// begins its deletion.
    #[must_use]
    pub const fn follows_close(&self) -> bool {
        matches!(
            self,
            Self::ChildCancelSent { .. }
                | Self::ParentTold
                | Self::ExecutionReopened { .. }
                | Self::DeletionBegan
                | Self::Woke
        )
    }

    /// Which servers know it: those whose [`LEVEL`](Self::LEVEL) is at least this. It is written only once every live node's is.
    #[must_use]
    pub const fn level(&self) -> u32 {
        match self {
            // Others would not know whom to tell.
            Self::ExecutionCreated(created) if created.parent.is_some() => 2,
            Self::SignalReceived { sender: Some(_), .. }
            | Self::ChildRequested { .. }
            | Self::ChildStarted { .. }
            | Self::ChildCancelSent { .. }
            | Self::ParentTold
            | Self::SignalRequested { .. } => 2,
            // A server that does not know them would begin at once, or run what has run.
            Self::ExecutionCreated(created) if created.begin_time.is_some() || !created.results.is_empty() => 2,
            Self::ExecutionCreated(_)
            | Self::StepScheduled { .. }
            | Self::StepDispatched { .. }
            | Self::TaskHeld { .. }
            | Self::DeliveryEnded { .. }
            | Self::AttemptFailed { .. }
            | Self::StepSucceeded { .. }
            | Self::StepFailed { .. }
            | Self::StepCancelled { .. }
            | Self::SleepStarted { .. }
            | Self::AwaitStarted { .. }
            | Self::SignalExpired { .. }
            | Self::LateSuccess { .. }
            | Self::WindDownStarted { .. }
            | Self::ExecutionSucceeded { .. }
            | Self::ExecutionFailed { .. }
            | Self::ExecutionCancelled
            | Self::ExecutionTimedOut
            | Self::ExecutionTerminated { .. }
            | Self::Woke => 1,
            Self::StepSkipped { reason, .. } => match reason {
                SkipReason::WhenFalse => 1,
                SkipReason::NothingUpstream => 2,
            },
            Self::FanOutStarted { .. } | Self::FanOutEnded { .. } => 2,
            Self::SignalReceived { handler, .. } => {
                if handler.is_some() {
                    2
                } else {
                    1
                }
            }
            Self::ExecutionPaused { .. }
            | Self::ExecutionResumed
            | Self::ContinuedAsNew { .. }
            | Self::RunStarted(_)
            | Self::ExecutionReopened { .. }
            | Self::EventTaken { .. }
            | Self::DeletionBegan => 2,
        }
    }
}
