//! What is written: appends on the way in, and what became of them.

use super::{ExecutionState, LargePayload, ReadyUnit, Snapshot};
use crate::domain::{ExecutionKey, RequestKey, Timestamp, Uid};
use bytes::Bytes;
use std::{collections::BTreeMap, sync::Arc};
use uuid::Uuid;

/// One append: everything that one decision about one execution writes.
#[derive(Clone, Debug)]
pub struct Append {
    /// Which execution.
    pub target: Target,
    /// Run that the events belong to.
    pub run: u32,
    /// Number of the first event; the fence. 1 for a new execution.
    pub first_number: u64,
    /// Number of the last event.
    pub last_number: u64,
    /// Random; tells after a lost COMMIT whose row stands at this number.
    pub batch_id: Uuid,
    /// `EventBatch`, encoded; at most 1,000 events or 1 MiB, or a single event.
    pub events: Bytes,
    /// Payloads of more than 64 KiB that the events mention by digest.
    pub payloads: Vec<LargePayload>,
    /// Units that begin to wait for a worker.
    pub ready_added: Vec<ReadyUnit>,
    /// Units that wait no longer.
    pub ready_removed: Vec<Arc<str>>,
    /// New state of the row, if it changes; absent for a new execution, whose row has it.
    pub state: Option<StateChange>,
    /// What happens to the row's wake-up time.
    pub wake: WakeChange,
    /// A snapshot of the state after these events.
    pub snapshot: Option<Snapshot>,
    /// When the run began, if its first event is this append's first; absent for a new execution, whose first run needs no
    /// row of its own. From then on the execution is read from this event on.
    pub begins_run: Option<Timestamp>,
    /// Begins the deletion of the execution, which is closed: from then on no read finds it, and its id is free.
    pub deletion: Option<Box<Deletion>>,
}

impl Append {
    /// The row that it makes, if it makes one.
    #[must_use]
    pub fn new_execution(&self) -> Option<&NewExecution> {
        match &self.target {
            Target::New(new) => Some(new),
            Target::Existing(_) => None,
            Target::Replacing(replacement) => Some(&replacement.new),
        }
    }

    /// Whether it takes a closed execution up again, which must be the current one of its id still.
    #[must_use]
    pub fn reopens(&self) -> bool {
        self.state.is_some_and(|change| change.from.is_closed() && !change.to.is_closed())
    }

    /// Whether it has two fences, so that it is written in a transaction of its own.
    pub(super) fn has_two_fences(&self) -> bool {
        matches!(self.target, Target::Replacing(_)) || self.reopens()
    }
}

/// What an append goes to.
#[derive(Clone, Debug)]
pub enum Target {
    /// A new execution. The fence is its id among current executions.
    New(Box<NewExecution>),
    /// One that exists. The fence is `first_number`, which must be one more than the newest event's. An append that
    /// [reopens](Append::reopens) one is a conflict, too, if another execution has the id.
    Existing(ExecutionKey),
    /// A new execution in the place of the one that has its id. Both are written or neither: it is a conflict if the other one
    /// does not have the id any more, is open without being ended here, or has newer events than its end knows.
    Replacing(Box<Replacement>),
}

/// A new execution and the one that gives its id to it.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// The new one's row.
    pub new: NewExecution,
    /// Who has the id until then.
    pub old: ExecutionKey,
    /// What closes the old one, if it is open: an append to it.
    pub end: Option<Append>,
}

/// What a row says of an execution whose deletion has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// When it began.
    pub time: Timestamp,
    /// The call that asked for it, if it had a `request_id`: it takes the place of the start's in the row.
    pub request: Option<RequestKey>,
    /// State of the row; it is counted no longer.
    pub state: ExecutionState,
    /// Labels of the row, whose entries go at once.
    pub labels: BTreeMap<String, String>,
    /// Start time of the row, which the entries of its labels have, too.
    pub start_time: Timestamp,
}

/// The row of a new execution.
#[derive(Clone, Debug)]
pub struct NewExecution {
    /// Uid.
    pub uid: Uid,
    /// Public id.
    pub id: Arc<str>,
    /// Workflow.
    pub workflow: Arc<str>,
    /// Version of the definition.
    pub version: Arc<str>,
    /// Hash of the definition.
    pub definition_hash: [u8; 32],
    /// Digest of the workflow and the canonical JSON of the input as it was sent.
    pub input_digest: [u8; 16],
    /// The start call's `request_id` (key and content hash), if it had one.
    pub request: Option<RequestKey>,
    /// When it was started.
    pub start_time: Timestamp,
    /// State after the first append.
    pub state: ExecutionState,
    /// When it was closed, if the first append closed it.
    pub close_time: Option<Timestamp>,
    /// Labels, for filters and lists.
    pub labels: BTreeMap<String, String>,
    /// Uid of the schedule that starts it, if one does.
    pub schedule: Option<Uuid>,
}

/// A change of an execution's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateChange {
    /// State before.
    pub from: ExecutionState,
    /// State after.
    pub to: ExecutionState,
    /// When it was closed, if `to` is closed; else the row's is cleared.
    pub close_time: Option<Timestamp>,
}

/// What an append does to the row's wake-up time, which may be early but never late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeChange {
    /// Nothing: the row is not touched for it.
    Keep,
    /// Sets it, or clears it where nothing will ever be due.
    Set(Option<Timestamp>),
}

/// What became of an append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// It is durable. The key is the new execution's, or the target's.
    Written(ExecutionKey),
    /// Another writer took the number, or the id, first (or one of the two); nothing of this append was written.
    Conflict,
    /// It contradicts itself or a rule of the schema, so it can never be written: a bug of who made it. Nothing of it
    /// was written, and the rest of the batch does not suffer.
    Failed {
        /// The rule, in the store's words; without payloads.
        what: String,
    },
}
