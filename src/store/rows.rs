//! What a store keeps, as values: rows on the way out, and what is asked for.

use crate::domain::{ExecutionKey, RequestKey, SessionId, Timestamp, Uid};
use bytes::Bytes;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
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
    Paused = 8,
}

impl ExecutionState {
    /// All states, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Running,
        Self::WindingDown,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
        Self::TimedOut,
        Self::Terminated,
        Self::Paused,
    ];

    /// Whether nothing can happen any more.
    #[must_use]
    pub const fn is_closed(self) -> bool {
        !matches!(self, Self::Running | Self::WindingDown | Self::Paused)
    }
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
    /// The newest run, from 1.
    pub run: u32,
    /// Workflow.
    pub workflow: Arc<str>,
    /// Version of the definition.
    pub version: Arc<str>,
    /// Hash of the definition.
    pub definition_hash: [u8; 32],
    /// Digest of workflow and input.
    pub input_digest: [u8; 16],
    /// The start call's `request_id`; once the deletion has begun, that of the call that asked for it.
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
    /// When its deletion began. Only [`Store::execution_by_request`](super::Store::execution_by_request) finds such a row.
    pub delete_time: Option<Timestamp>,
}

/// An execution whose deletion has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletedRow {
    /// When it began.
    pub delete_time: Timestamp,
    /// Execution.
    pub key: ExecutionKey,
    /// Whether a call with a `request_id` asked for it, which the row remembers.
    pub has_request: bool,
}

/// The beginning of a run, the first excepted. The one before it ended then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunRow {
    /// When it began.
    pub start_time: Timestamp,
    /// Execution.
    pub execution: ExecutionKey,
    /// Run, from 2.
    pub run: u32,
    /// Number of its first event.
    pub first_number: u64,
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
    /// The newest snapshot, if one was asked for and is there; none of a run before the newest.
    pub snapshot: Option<Snapshot>,
    /// History after the snapshot, or after the number that was asked for; of the newest run alone.
    pub history: Vec<HistoryRow>,
    /// The large payloads of the newest run.
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
    /// Silence after which it is lost, as its worker was told when it was last connected; by it every node judges it.
    /// Absent in rows of versions that did not store it: then a node goes by its own setting.
    pub timeout: Option<Duration>,
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
