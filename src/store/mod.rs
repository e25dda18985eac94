//! Keeps and finds; never judges.
//!
//! Promises of every store:
//!
//! - [`Store::commit`] writes each append of a batch whole or not at all, and says which; what it says is durable.
//!   The unique key of `history` is the only lock: an append whose number another writer took first is a conflict and
//!   changes nothing. One append's conflict fails that append alone.
//! - What is committed together: events, ready rows, state, wake-up time, labels, counters, snapshot, large payloads.
//! - Reads see whole commits only, and never block a commit.
//! - `memory` is the model; one conformance suite and one seeded differential run hold over all stores.
//!
//! # Design
//! Rows hold bytes and keys; what events mean is known to `wire` and `domain` alone. Times are microseconds.

mod check;
pub mod faulty;
pub mod memory;
pub(crate) mod sql;
pub mod sqlite;
mod statistics;

pub use faulty::Faulty;
pub use memory::MemoryStore;
pub use sqlite::SqliteStore;
pub use statistics::{Change, Statistics};

use crate::domain::{SessionId, Timestamp, Uid};
use async_trait::async_trait;
use bytes::Bytes;
use std::{collections::BTreeMap, sync::Arc};
use uuid::Uuid;

/// The namespace of everything until there are more; part of each unique key from the start.
pub const NAMESPACE: &str = "default";

/// Format number of event bytes that this version writes.
pub const EVENT_FORMAT: u16 = 1;

pub use crate::domain::ExecutionKey;

/// Key of a definition's row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DefinitionKey(pub i64);

/// The world did not work; the same call may work later.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be reached, is busy, full or read-only.
    #[error("store is unavailable")]
    Unavailable(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// What is stored contradicts itself; `what` names the row.
    #[error("stored data is damaged: {what}")]
    Damaged {
        /// The row and what is wrong with it.
        what: String,
    },
    /// The database was written by a newer version; or another process has it open.
    #[error("{0}")]
    Refused(String),
}

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
    pub request: Option<crate::domain::RequestKey>,
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
    pub request: Option<crate::domain::RequestKey>,
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

/// Where a page begins: after this entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListCursor {
    /// Start time of the last entry of the page before.
    pub start_time: Timestamp,
    /// Its key.
    pub key: ExecutionKey,
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
    /// Held rows to insert or replace, by (execution, unit, delivery).
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
    /// The newest time that any node wrote; time goes on from there. Absent in a new database.
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

/// A store. All methods may be called at once from many tasks, but for `commit`, which its one committer calls.
///
/// Every method fails with [`Error::Unavailable`] where the database did not work, having changed nothing or (after a
/// lost commit) having written something that the same call finds again.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Name for metrics and server info: `sqlite`, `memory`.
    fn kind(&self) -> &'static str;

    /// What was found at the start.
    fn opened(&self) -> Opened;

    /// Commits a batch in one transaction with one sync; answers in the order of the batch.
    ///
    /// Two appends of one batch never go to the same execution, and never make the same id: the caller sees to it.
    /// A number is taken only if it is the next one, so numbers have no gaps. After [`Error::Unavailable`] it is not
    /// known whether the batch was written: the same batch (the same `batch_id`s) may be committed again, and what
    /// stands there already is answered as written. The future may be dropped: the batch is then written or not.
    async fn commit(&self, batch: Vec<Append>) -> Result<Vec<Committed>, Error>;

    /// Finds a row.
    async fn execution(&self, find: &Find) -> Result<Option<ExecutionRow>, Error>;

    /// The newest row that has had this id and was started by this request.
    async fn execution_by_request(&self, id: &str, key: [u8; 16]) -> Result<Option<ExecutionRow>, Error>;

    /// Reads an execution whole: its row, the newest snapshot, the history after it, its large payloads.
    async fn load(&self, key: ExecutionKey) -> Result<Option<Loaded>, Error>;

    /// Reads history after an event number: rows in order, until `rows_max` rows or about `bytes_max` bytes (at least
    /// one row if there is any). The first row may begin before the number.
    async fn history(
        &self,
        key: ExecutionKey,
        after_number: u64,
        rows_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<HistoryRow>, Error>;

    /// Reads large payloads of an execution, those of `digests` that it has, by digest.
    async fn payloads(&self, key: ExecutionKey, digests: &[[u8; 32]]) -> Result<Vec<LargePayload>, Error>;

    /// Lists executions.
    async fn list(
        &self,
        filter: &ListFilter,
        after: Option<ListCursor>,
        limit: usize,
    ) -> Result<Vec<ExecutionRow>, Error>;

    /// Counts executions by state, from the counters; a state without executions is absent.
    async fn count(&self) -> Result<BTreeMap<ExecutionState, u64>, Error>;

    /// Executions with a wake-up time at or before `until`, earliest first (then by key), without quarantined ones.
    async fn due(&self, until: Timestamp, limit: usize) -> Result<Vec<(ExecutionKey, Timestamp)>, Error>;

    /// The first waiting units of a pool.
    async fn ready(&self, pool: &Pool, limit: usize) -> Result<Vec<ReadyRow>, Error>;

    /// Sets an execution aside after a fault in its data: it is not woken, and its ready rows are deleted.
    async fn quarantine(&self, key: ExecutionKey, why: &str) -> Result<(), Error>;

    /// Stores a definition, unless its name and version are taken.
    async fn put_definition(&self, row: &DefinitionRow) -> Result<DefinitionStored, Error>;

    /// Finds a definition.
    async fn definition(&self, find: &FindDefinition) -> Result<Option<DefinitionRow>, Error>;

    /// Lists definitions by name, each name's versions from the highest down, after an entry (name, `version_order`).
    async fn definitions(
        &self,
        name: Option<&str>,
        after: Option<(&str, &[u8])>,
        limit: usize,
    ) -> Result<Vec<DefinitionRow>, Error>;

    /// Versions of contracts that deployed definitions use for a task of this name (`payments.charge` → `1`, `2`), in
    /// order of their text.
    async fn contract_versions(&self, task_name: &str) -> Result<Vec<String>, Error>;

    /// Stores a new session.
    async fn put_session(&self, row: &SessionRow) -> Result<(), Error>;

    /// Takes a session back: raises its connection number and contact time and replaces what the worker announces;
    /// nothing if the session is gone.
    async fn resume_session(&self, row: &SessionRow) -> Result<Option<SessionRow>, Error>;

    /// Finds a session.
    async fn session(&self, id: SessionId) -> Result<Option<SessionRow>, Error>;

    /// Lists sessions by id, after one.
    async fn sessions(&self, after: Option<SessionId>, limit: usize) -> Result<Vec<SessionRow>, Error>;

    /// Deletes a session if its contact time is still `contact_time` (any, if absent). Says whether it did.
    /// Its held rows stay until each is answered.
    async fn end_session(&self, id: SessionId, contact_time: Option<Timestamp>) -> Result<bool, Error>;

    /// Writes a second of presence in one transaction; answers with the newest time of any node.
    async fn presence(&self, presence: &Presence) -> Result<Option<Timestamp>, Error>;

    /// All held rows of a session, at most `limit`, in order of (execution, unit, delivery).
    async fn held_by_session(&self, id: SessionId, limit: usize) -> Result<Vec<HeldRow>, Error>;

    /// Held rows of an execution, in order of (unit, delivery).
    async fn held_by_execution(&self, key: ExecutionKey) -> Result<Vec<HeldRow>, Error>;

    /// Held rows whose session has no row any more, at most `limit`, in order of (session, execution, unit, delivery).
    async fn held_without_session(&self, limit: usize) -> Result<Vec<HeldRow>, Error>;

    /// Held rows with a missing token since before `missing_before`, or a beat due at or before `now`: the first
    /// `limit` of each kind, longest first, together in order of (execution, unit, delivery), cut at `limit`.
    async fn held_overdue(
        &self,
        missing_before: Timestamp,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<HeldRow>, Error>;

    /// Deletes held rows, by (execution, unit, delivery).
    async fn delete_held(&self, rows: &[(ExecutionKey, Arc<str>, u32)]) -> Result<(), Error>;

    /// Size of the database.
    async fn size(&self) -> Result<Size, Error>;

    /// Waits for what runs, truncates the log and closes. Nothing may be called after it.
    async fn close(&self) -> Result<(), Error>;
}
