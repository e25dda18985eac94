//! What a store keeps, as values: appends on the way in, rows on the way out.

use crate::domain::{ExecutionKey, RequestKey, SessionId, Timestamp, Uid};
use bytes::Bytes;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use uuid::Uuid;

/// State of an execution as its row has it, for lists and counters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(i16)]
#[allow(missing_docs, reason = "documented at Execution.State in execution.proto, whose numbers these are")]
pub enum ExecutionState {
    Running = 1,
    WindingDown = 2,
    Succeeded = 3,
    Failed = 4,
    Cancelled = 5,
    TimedOut = 6,
    Terminated = 7,
}

impl ExecutionState {
    /// All states, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Running,
        Self::WindingDown,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
        Self::TimedOut,
        Self::Terminated,
    ];

    /// Whether nothing can happen any more.
    #[must_use]
    pub const fn is_closed(self) -> bool {
        !matches!(self, Self::Running | Self::WindingDown)
    }
}

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
}

/// What an append goes to.
#[derive(Clone, Debug)]
pub enum Target {
    /// A new execution. The fence is its id among current executions.
    New(Box<NewExecution>),
    /// One that exists. The fence is `first_number`, which must be one more than the newest event's.
    Existing(ExecutionKey),
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
}

/// A payload that is stored apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargePayload {
    /// SHA-256 of the text.
    pub sha256: [u8; 32],
    /// JSON text.
    pub json: Arc<str>,
}

/// A unit that waits for a worker, as its row has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyUnit {
    /// Unit.
    pub unit: Arc<str>,
    /// Queue.
    pub queue: Arc<str>,
    /// Contract `name@version`.
    pub contract: Arc<str>,
    /// Language that the step names; empty for any.
    pub language: Arc<str>,
    /// 1 first to 5 last.
    pub priority: u8,
    /// Since when it waits.
    pub ready_time: Timestamp,
}

/// A waiting unit with its execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyRow {
    /// Execution.
    pub execution: ExecutionKey,
    /// The unit.
    pub unit: ReadyUnit,
}

/// Which waiting units are asked for. They come in order of (priority, `ready_time`, execution, unit).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pool {
    /// Queue.
    pub queue: Arc<str>,
    /// Contract.
    pub contract: Arc<str>,
    /// Language; empty for steps that name none.
    pub language: Arc<str>,
}

/// A change of an execution's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateChange {
    /// State before.
    pub from: ExecutionState,
    /// State after.
    pub to: ExecutionState,
    /// When it was closed, if `to` is closed.
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

/// A stored state, always optional.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Number of the last event that it includes.
    pub number: u64,
    /// Format of the bytes.
    pub format: u16,
    /// Hash of the definition that it was made with.
    pub definition_hash: [u8; 32],
    /// The state.
    pub bytes: Bytes,
}

/// What became of an append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// It is durable. The key is the new execution's, or the target's.
    Written(ExecutionKey),
    /// Another writer took the number, or the id, first; nothing of this append was written.
    Conflict,
    /// It contradicts itself or a rule of the schema, so it can never be written: a bug of who made it. Nothing of it
    /// was written, and the rest of the batch does not suffer.
    Failed {
        /// The rule, in the store's words; without payloads.
        what: String,
    },
}

/// An execution's row.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecutionRow {
    /// Key.
    pub key: ExecutionKey,
    /// Uid.
    pub uid: Uid,
    /// Public id.
    pub id: Arc<str>,
    /// Whether it is the current holder of its id.
    pub current: bool,
    /// Workflow.
    pub workflow: Arc<str>,
    /// Version of the definition.
    pub version: Arc<str>,
    /// Hash of the definition.
    pub definition_hash: [u8; 32],
    /// Digest of workflow and input.
    pub input_digest: [u8; 16],
    /// The start call's `request_id`.
    pub request: Option<RequestKey>,
    /// State.
    pub state: ExecutionState,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// When it was started.
    pub start_time: Timestamp,
    /// When it was closed.
    pub close_time: Option<Timestamp>,
    /// When it is next looked at, at the latest.
    pub wake_time: Option<Timestamp>,
    /// Why it was set aside, if it was.
    pub quarantined: Option<Arc<str>>,
}

/// One row of history: the events of one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRow {
    /// Run.
    pub run: u32,
    /// Number of the first event.
    pub first_number: u64,
    /// Number of the last event.
    pub last_number: u64,
    /// Whose append it was.
    pub batch_id: Uuid,
    /// Format of the bytes.
    pub format: u16,
    /// `EventBatch`, encoded.
    pub events: Bytes,
}

/// An execution as it is read to be decided on: one consistent view.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Its row.
    pub row: ExecutionRow,
    /// The newest snapshot, if one was asked for and is there.
    pub snapshot: Option<Snapshot>,
    /// History after the snapshot, or after the number that was asked for.
    pub history: Vec<HistoryRow>,
    /// The large payloads that the execution has.
    pub payloads: Vec<LargePayload>,
}

/// How an execution is found.
#[derive(Clone, Debug)]
pub enum Find {
    /// By key.
    Key(ExecutionKey),
    /// The current holder of a public id.
    Id(Arc<str>),
    /// By uid.
    Uid(Uid),
}

/// Which executions a list has, newest start first (`start_time`, then key, both descending).
#[derive(Clone, Debug, Default)]
pub struct ListFilter {
    /// In one of these states; empty for any.
    pub states: Vec<ExecutionState>,
    /// Of this workflow.
    pub workflow: Option<Arc<str>>,
    /// With all these labels.
    pub labels: Vec<(String, String)>,
    /// Started at or after.
    pub start_from: Option<Timestamp>,
    /// Started before (exclusive).
    pub start_until: Option<Timestamp>,
}

/// Where a page begins: after this entry. In the order of the entries, the oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListCursor {
    /// Start time of the last entry of the page before.
    pub start_time: Timestamp,
    /// Its key.
    pub key: ExecutionKey,
}

/// A page of a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListPage {
    /// Its rows, newest start first.
    pub rows: Vec<ExecutionRow>,
    /// Where the list goes on; absent at its end. A page that is not full goes on too where it has looked at as many entries as
    /// it may.
    pub next: Option<ListCursor>,
}

impl ListPage {
    /// Cuts a page of at most `most` rows (at least 1) from those that were found before `end`, where a search for
    /// more than `most` stopped.
    pub(crate) fn cut(mut rows: Vec<ExecutionRow>, most: usize, end: Option<ListCursor>) -> Self {
        let more = rows.len() > most;
        rows.truncate(most);
        let last = rows.last().map(|row| ListCursor { start_time: row.start_time, key: row.key });
        Self { rows, next: if more { last } else { end } }
    }
}

/// A definition's row.
#[derive(Clone, Debug, PartialEq)]
pub struct DefinitionRow {
    /// Name of the workflow.
    pub name: Arc<str>,
    /// Version.
    pub version: Arc<str>,
    /// Sorts as the version does by semver: see `domain::definition`'s sort key.
    pub version_order: Vec<u8>,
    /// Whether it is a pre-release.
    pub prerelease: bool,
    /// Hash of the meaning.
    pub hash: [u8; 32],
    /// Description.
    pub description: String,
    /// Its canonical JSON, from which it is compiled.
    pub json: String,
    /// The text that was deployed; empty if a message was.
    pub source: String,
    /// Task contracts `name@version` that it uses; read back in order and without repeats.
    pub contracts: Vec<Arc<str>>,
    /// When it was deployed.
    pub create_time: Timestamp,
}

/// What became of storing a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefinitionStored {
    /// It is new.
    Created,
    /// The same content was there.
    Same,
    /// Other content has this name and version.
    Different,
}

/// Which version of a definition.
#[derive(Clone, Debug)]
pub enum FindDefinition {
    /// By its hash.
    Hash([u8; 32]),
    /// This version.
    Version(Arc<str>, Arc<str>),
    /// The highest; a pre-release only if there is nothing else and `prerelease` allows it.
    Latest {
        /// Name of the workflow.
        name: Arc<str>,
        /// Whether a pre-release may answer where there is no release.
        prerelease: bool,
    },
}

/// A session's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Session.
    pub id: SessionId,
    /// Name of the worker.
    pub worker_id: Arc<str>,
    /// Language; empty for none.
    pub language: Arc<str>,
    /// SDK.
    pub sdk: Arc<str>,
    /// Build.
    pub build: Arc<str>,
    /// Queues.
    pub queues: Vec<Arc<str>>,
    /// Contracts.
    pub contracts: Vec<Arc<str>>,
    /// Most tasks at once.
    pub slots: u32,
    /// Largest message, in bytes.
    pub message_bytes_max: u64,
    /// When it registered.
    pub register_time: Timestamp,
    /// When it was last heard of; only ever moves forward.
    pub contact_time: Timestamp,
    /// How often it has been connected: raised when the session is taken back.
    pub connection: u32,
}

/// A delivery that outlives its first check: its token is listed by a live session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldRow {
    /// Session that lists it.
    pub session: SessionId,
    /// Execution.
    pub execution: ExecutionKey,
    /// Unit.
    pub unit: Arc<str>,
    /// Delivery.
    pub delivery: u32,
    /// Since when the session has not listed it; absent while it does.
    pub missing_since: Option<Timestamp>,
    /// Newest progress or explicit beat.
    pub beat_time: Timestamp,
    /// Longest time between two beats, as the step says; absent for no limit.
    pub heartbeat_timeout_micros: Option<i64>,
    /// Newest progress, JSON text.
    pub progress: Option<Arc<str>>,
}

/// What one second of presence writes, in one transaction.
#[derive(Clone, Debug, Default)]
pub struct Presence {
    /// Contacts of sessions; a row's time is never moved back.
    pub contacts: Vec<(SessionId, Timestamp)>,
    /// Held rows to insert or replace, by (execution, unit, delivery). A row's beat is never moved back, and its progress
    /// is the newest that was told: another node may have heard it, and this one not yet know.
    pub held: Vec<HeldRow>,
    /// This node and its time, written to `nodes`.
    pub node: Option<NodeRow>,
}

/// A node's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRow {
    /// Node, random at its start.
    pub id: Uuid,
    /// Its time.
    pub now: Timestamp,
    /// The newest kind of event that it can read.
    pub level: u32,
}

/// What a node finds in the store when it starts.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// The newest time that any node wrote; time goes on from there. Absent in a new database. Of a shared store it is the
    /// newest that a live node wrote, or else what is later, a dead node's or the database's clock, so it is always there.
    pub newest_now: Option<Timestamp>,
    /// Number of the newest migration.
    pub schema_version: u32,
}

/// Size and health, for metrics and `orbit bench`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Size {
    /// Bytes of the database, its log included.
    pub database_bytes: u64,
    /// Bytes of the write-ahead log alone; 0 where there is none.
    pub log_bytes: u64,
}

/// News for other nodes, which may be lost, come twice or late: they save waiting, and nothing depends on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Queues in which units wait for a worker.
    pub queues: BTreeSet<Arc<str>>,
    /// Executions that have changed, with the number of their newest event.
    pub executions: BTreeMap<ExecutionKey, u64>,
}

impl Hints {
    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.executions.is_empty()
    }
}

/// What a node hears from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// News of another node.
    Hints(Hints),
    /// The connection was lost meanwhile, or this node could not keep up: anything may have been missed.
    Gap,
}
