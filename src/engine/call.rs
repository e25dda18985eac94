//! What callers and workers ask of the engine, and what they get: values without a wire form.

use crate::domain::{
    Delivery, ExecutionId, Failure, Payload, Rejection, RequestKey, SessionId, TaskToken, Timestamp, Uid,
    decide::StartSignal, definition::Fault, query::QueryError,
};
use crate::store::{self, ExecutionRow, ExecutionState};
use crate::wire::Invalid;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Why the engine did not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The rules forbid it; nothing was changed.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// A query has no answer.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// No current execution has this id, or it has another uid.
    #[error("execution {id:?} not found")]
    ExecutionNotFound {
        /// The id that was asked for.
        id: String,
    },
    /// The id is taken by an execution with another workflow or input.
    #[error("execution {id:?} exists with another workflow or input")]
    ExecutionAlreadyExists {
        /// The id.
        id: String,
        /// Uid of the one that has it.
        uid: Uid,
        /// Its workflow.
        workflow: Arc<str>,
        /// Its state.
        state: ExecutionState,
    },
    /// The execution to repeat has no such step under `steps`.
    #[error("workflow {workflow} has no step {step:?} to begin with")]
    StepNotFound {
        /// Its workflow, with the version.
        workflow: String,
        /// The step that was asked for.
        step: Arc<str>,
    },
    /// No definition has this name, or this version of it.
    #[error("definition {name:?}{} not found", version.as_ref().map(|v| format!(" version {v:?}")).unwrap_or_default())]
    DefinitionNotFound {
        /// Name of the workflow.
        name: String,
        /// Version, if one was asked for.
        version: Option<String>,
    },
    /// This version of the definition has other content.
    #[error("definition {name}@{version} exists with other content")]
    DefinitionAlreadyExists {
        /// Name of the workflow.
        name: String,
        /// Version.
        version: String,
    },
    /// A definition has an `http` step, and no server of this database runs such steps.
    #[error("step {step:?} is an http step, which no server here runs: start one with --http-allow")]
    HttpDisabled {
        /// The first such step.
        step: Arc<str>,
    },
    /// No batch has this id, or it was deleted long after its end.
    #[error("batch {id:?} not found")]
    BatchNotFound {
        /// The id that was asked for.
        id: String,
    },
    /// No schedule has this id, or it has another uid.
    #[error("schedule {id:?} not found")]
    ScheduleNotFound {
        /// The id that was asked for.
        id: String,
    },
    /// The id is taken by another schedule.
    #[error("schedule {id:?} exists")]
    ScheduleAlreadyExists {
        /// The id.
        id: String,
        /// Uid of the one that has it.
        uid: Uid,
    },
    /// What is stored of a schedule cannot be used.
    #[error("schedule {id:?} cannot be used: {why}")]
    ScheduleInvalid {
        /// The id.
        id: String,
        /// Why, for people.
        why: Arc<str>,
    },
    /// A schedule was changed since its etag was read.
    #[error("schedule {id:?} has been changed: its etag is {etag} now")]
    EtagMismatch {
        /// The id.
        id: String,
        /// The etag that it has.
        etag: String,
    },
    /// A schedule has as many backfills under way as it may have.
    #[error("schedule {id:?} has {most} backfills under way, as many as it may have")]
    BackfillsPending {
        /// The id.
        id: String,
        /// The most.
        most: usize,
    },
    /// Something that only the state tells to be wrong with a request.
    #[error("{0}")]
    Invalid(#[from] Invalid),
    /// Definitions that cannot be deployed together: each fault with the place of its definition among them.
    #[error("definitions have {} faults", faults.len())]
    DefinitionsInvalid {
        /// The faults.
        faults: Arc<[(usize, Fault)]>,
    },
    /// The session ended or never was.
    #[error("session not found")]
    SessionNotFound,
    /// As many executions are open as may be.
    #[error("{limit} executions are open, and no more may be")]
    TooManyExecutions {
        /// How many may be.
        limit: u64,
    },
    /// A queue inside the server is full.
    #[error("server is overloaded: {what} is full")]
    Overloaded {
        /// The queue.
        what: &'static str,
    },
    /// The server shuts down.
    #[error("server is shutting down")]
    Draining,
    /// The database did not work.
    #[error("database is unavailable")]
    Store(#[source] store::Error),
    /// Others changed the same execution at the same time, again and again.
    #[error("execution is changed by others at the same time")]
    WriteConflict,
    /// The execution has events of a newer server.
    #[error("execution has events that this server does not know")]
    EventUnknown,
    /// It takes events that other nodes, which still run, do not know; possible once they have been replaced.
    #[error("other servers do not know the events that this takes")]
    LevelTooHigh,
    /// The execution was set aside.
    #[error("execution is set aside: {why}")]
    Quarantined {
        /// Why.
        why: Arc<str>,
    },
    /// A fault of the server's; the log has it.
    #[error("internal error")]
    Internal,
}

/// Names an execution.
#[derive(Clone, Debug)]
pub struct ExecutionName {
    /// Public id.
    pub id: ExecutionId,
    /// Uid that it must have, if given.
    pub uid: Option<Uid>,
}

/// Asks for a new execution.
#[derive(Clone, Debug)]
pub struct StartExecution {
    /// Id; the server makes one if absent (from the request key, if there is one).
    pub id: Option<ExecutionId>,
    /// Workflow.
    pub workflow: Arc<str>,
    /// Version; the highest release if absent.
    pub version: Option<Arc<str>>,
    /// Input as it was sent.
    pub input: Payload,
    /// Digest of workflow and canonical JSON of the input as it was sent, before defaults.
    pub input_digest: [u8; 16],
    /// Labels of the call.
    pub labels: BTreeMap<String, String>,
    /// The call's `request_id`.
    pub request: Option<RequestKey>,
    /// What may be done if another execution has the id.
    pub id_reuse: IdReuse,
    /// W3C `traceparent`; may be empty.
    pub trace_parent: Arc<str>,
    /// Pause before the first step.
    pub delay: Option<Duration>,
    /// Signal that comes with the start, or goes to the open execution of the same workflow that has the id.
    pub signal: Option<StartSignal>,
}

/// Asks for a new execution that repeats another one from a step on.
#[derive(Clone, Debug)]
pub struct RerunExecution {
    /// The one to repeat.
    pub source: ExecutionName,
    /// Id of the step to begin with.
    pub from_step: Arc<str>,
    /// Input as it was sent; that of the one to repeat if absent.
    pub input: Option<Payload>,
    /// Id; the server makes one if absent (from the request key, if there is one).
    pub id: Option<ExecutionId>,
    /// Labels of the call.
    pub labels: BTreeMap<String, String>,
    /// The call's `request_id`.
    pub request: Option<RequestKey>,
    /// W3C `traceparent`; may be empty.
    pub trace_parent: Arc<str>,
}

/// What a start may do if an execution has its id that the same call did not make.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IdReuse {
    /// Nothing: one with the same workflow and input is found, any other refuses the start, also when it is closed.
    #[default]
    Reject,
    /// Take the place of a closed one. An open one is as with [`Reject`](Self::Reject).
    AllowWhenClosed,
    /// Take its place, and terminate it first if it is open: both or neither.
    TerminateRunning,
}

/// An execution that was started, now or before.
#[derive(Clone, Debug, PartialEq)]
pub struct Started {
    /// Id.
    pub id: Arc<str>,
    /// Uid.
    pub uid: Uid,
    /// Version that it runs.
    pub version: Arc<str>,
    /// Whether this call, or an earlier one with the same request, made it.
    pub created: bool,
    /// When it was started.
    pub start_time: Timestamp,
    /// Number of the event of the signal that came with the call.
    pub signal_number: Option<u64>,
}

/// How an execution ended or stands: what `WaitExecution` tells.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Its row.
    pub row: ExecutionRow,
    /// Its state, folded from its events.
    pub state: Arc<crate::domain::State>,
}

/// A worker as it registers.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each field is documented at RegisterWorkerRequest")]
pub struct Registration {
    pub worker_id: Arc<str>,
    pub language: Arc<str>,
    pub sdk: Arc<str>,
    pub build: Arc<str>,
    pub queues: Vec<Arc<str>>,
    pub contracts: Vec<Arc<str>>,
    pub slots: u32,
    pub message_bytes_max: u64,
    pub previous_session: Option<SessionId>,
}

/// A session that was made or taken back.
#[derive(Clone, Debug)]
pub struct Registered {
    /// Session.
    pub session: SessionId,
    /// Whether it is the one from before.
    pub resumed: bool,
    /// How often to send a heartbeat.
    pub heartbeat_interval: Duration,
    /// Silence after which it is lost.
    pub session_timeout: Duration,
    /// What the operator of the worker should know.
    pub warnings: Vec<String>,
}

/// A task on its way to a worker: a delivery with what its execution adds.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each field is documented at Task in task.proto")]
pub struct Task {
    pub token: TaskToken,
    pub delivery: Delivery,
    pub execution_id: ExecutionId,
    pub run: u32,
    pub workflow: Arc<str>,
    pub version: Arc<str>,
    pub trace_parent: Arc<str>,
}

/// What a poll brought.
#[derive(Clone, Debug, Default)]
pub struct Polled {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// Whether the server shuts down.
    pub draining: bool,
}

/// A worker's report on one delivery.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each field is documented in worker_service.proto")]
pub enum Report {
    Complete { output: Payload },
    Fail { failure: Failure, retryable: bool, retry_after: Option<Duration> },
    Release,
}

/// A token that a heartbeat lists.
#[derive(Clone, Debug)]
pub struct HeldToken {
    /// The token.
    pub token: TaskToken,
    /// New progress.
    pub progress: Option<Payload>,
    /// Whether the handler itself asked for this beat.
    pub beat: bool,
}

/// Answer to a heartbeat.
#[derive(Clone, Debug, Default)]
pub struct HeartbeatAnswer {
    /// Tokens whose work is not wanted any more.
    pub stop: Vec<TaskToken>,
    /// Whether the server shuts down.
    pub draining: bool,
}
