//! Keeps and finds; never judges.
//!
//! Promises of every store:
//!
//! - [`Store::commit`] writes each append of a batch whole or not at all, and says which; what it says is durable.
//!   The unique key of `history` is the only lock: an append whose number another writer took first is a conflict and
//!   changes nothing. One append's conflict fails that append alone.
//! - What is committed together: events, ready rows, state, wake-up time, labels, counters, snapshot, large payloads.
//! - Reads see whole commits only, and never block a commit.
//! - A shared store ([`Store::is_shared`]) may be written by other nodes at any time; hints between nodes may be lost.
//! - `memory` is the model; one conformance suite and one seeded differential run hold over all stores.
//!
//! # Design
//! Rows hold bytes and keys; what events mean is known to `wire` and `domain` alone. Times are microseconds.

mod append;
mod batch;
mod batches;
mod check;
pub mod faulty;
pub mod memory;
pub mod postgres;
mod rows;
mod schedules;
pub mod schema;
pub(crate) mod sql;
pub mod sqlite;
mod statistics;
mod unbroken;

pub use append::{Append, Committed, Deletion, NewExecution, Replacement, StateChange, Target, WakeChange};
pub use batches::{BatchAction, BatchCursor, BatchProgress, BatchRow, BatchState};
pub use faulty::Faulty;
pub use memory::MemoryStore;
pub use postgres::PostgresStore;
pub use rows::{
    DefinitionRow, DefinitionStored, DeletedRow, ExecutionRow, ExecutionState, Find, FindDefinition, Heard, HeldRow,
    Hints, HistoryRow, LargePayload, ListCursor, ListFilter, ListPage, Loaded, NodeRow, Opened, Pool, Presence,
    ReadyRow, ReadyUnit, RunRow, SessionRow, Size, Snapshot,
};
pub use schedules::{
    FindSchedule, REQUEST_MEMORY, ScheduleFilter, ScheduleKey, ScheduleRequest, ScheduleRow, ScheduleRun,
    ScheduleState, ScheduleWrite, ScheduleWritten, SlotCounts, SlotKind, SlotName, SlotOutcome, SlotRow,
};
pub use schema::Schema;
pub use sqlite::SqliteStore;
pub use statistics::{Change, Statistics};

use crate::domain::{RequestKey, SessionId, Timestamp, Uid};
use async_trait::async_trait;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::sync::mpsc;
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

/// A store. All methods may be called at once from many tasks; of `commit`, at most [`Store::committers`] at once.
///
/// Every method fails with [`Error::Unavailable`] where the database did not work, having changed nothing or (after a
/// lost commit) having written something that the same call finds again.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Name for metrics and server info: `sqlite`, `postgres`, `memory`.
    fn kind(&self) -> &'static str;

    /// Whether other nodes may write to it: then what memory has of an execution may be old, and an answer that writes
    /// nothing is given only after a look at [`Store::newest_numbers`].
    fn is_shared(&self) -> bool;

    /// How many commits may run at once, at least 1.
    fn committers(&self) -> usize;

    /// What was found at the start.
    fn opened(&self) -> Opened;

    /// Commits a batch in one transaction with one sync; answers in the order of the batch.
    ///
    /// Of all batches that are under way from this node, no two appends go to the same execution, and none of one batch
    /// make the same id: the caller sees to it. An append with two fences ([`Target::Replacing`], [`Append::reopens`]) is
    /// written in a transaction of its own, and costs a sync of its own.
    /// A number is taken only if it is the next one, so numbers have no gaps. After [`Error::Unavailable`] it is not
    /// known whether the batch was written: the same batch (the same `batch_id`s) may be committed again, and what
    /// stands there already is answered as written. The future may be dropped: the batch is then written or not.
    async fn commit(&self, batch: Vec<Append>) -> Result<Vec<Committed>, Error>;

    /// Finds a row. One whose deletion has begun is not found, here and in all that follows, but where it is said.
    async fn execution(&self, find: &Find) -> Result<Option<ExecutionRow>, Error>;

    /// The newest row that has had this id and was started by this request, or whose deletion it asked for.
    async fn execution_by_request(&self, id: &str, key: [u8; 16]) -> Result<Option<ExecutionRow>, Error>;

    /// Reads an execution whole: its row, the newest snapshot, the history after it, its large payloads.
    async fn load(&self, key: ExecutionKey) -> Result<Option<Loaded>, Error>;

    /// Reads what an execution has after an event number that the caller knows: its row, the history after the number
    /// (whole rows, so the first may begin before it), and its large payloads if there is any such history.
    async fn load_tail(&self, key: ExecutionKey, after_number: u64) -> Result<Option<Loaded>, Error>;

    /// The number of the newest event of each, in the order of `keys`; none where there is no such execution.
    async fn newest_numbers(&self, keys: &[ExecutionKey]) -> Result<Vec<Option<u64>>, Error>;

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

    /// Lists executions: a page of at most `limit`. Where few of many entries match, it may have fewer and yet go on, so that
    /// every call is a bounded amount of work.
    async fn list(&self, filter: &ListFilter, after: Option<ListCursor>, limit: usize) -> Result<ListPage, Error>;

    /// Counts executions by state, from the counters; a state without executions is absent.
    async fn count(&self) -> Result<BTreeMap<ExecutionState, u64>, Error>;

    /// Executions with a wake-up time at or before `until`, earliest first (then by key), without quarantined ones.
    async fn due(&self, until: Timestamp, limit: usize) -> Result<Vec<(ExecutionKey, Timestamp)>, Error>;

    /// Which of these executions have a wake-up time at or before `now`, in the order of `keys`.
    async fn still_due(&self, keys: &[ExecutionKey], now: Timestamp) -> Result<Vec<ExecutionKey>, Error>;

    /// Which of these pools have a waiting unit, in the order of `pools`.
    async fn waiting_pools(&self, pools: &[Pool]) -> Result<Vec<Pool>, Error>;

    /// The first waiting units of a pool.
    async fn ready(&self, pool: &Pool, limit: usize) -> Result<Vec<ReadyRow>, Error>;

    /// Sets an execution aside after a fault in its data: it is not woken, and its ready rows are deleted.
    async fn quarantine(&self, key: ExecutionKey, why: &str) -> Result<(), Error>;

    /// Stores definitions, each of another name and version, in one transaction; answers in the order of `rows`. If one is
    /// [`DefinitionStored::Different`], none was stored, whatever is said of the others.
    async fn put_definitions(&self, rows: &[DefinitionRow]) -> Result<Vec<DefinitionStored>, Error>;

    /// Stores a definition, unless its name and version are taken.
    async fn put_definition(&self, row: &DefinitionRow) -> Result<DefinitionStored, Error> {
        let stored = self.put_definitions(std::slice::from_ref(row)).await?;
        Ok(stored.into_iter().next().expect("there is an answer for each row"))
    }

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

    /// Writes a second of presence in one transaction; answers with the rows of all nodes, dead ones too, by id.
    async fn presence(&self, presence: &Presence) -> Result<Vec<NodeRow>, Error>;

    /// Tells other nodes; does nothing where there cannot be any.
    async fn publish(&self, hints: &Hints) -> Result<(), Error>;

    /// What other nodes tell from now on; ends at once where there cannot be any. Called once.
    fn listen(&self) -> mpsc::Receiver<Heard>;

    /// All held rows of a session, at most `limit`, in order of (execution, unit, delivery).
    async fn held_by_session(&self, id: SessionId, limit: usize) -> Result<Vec<HeldRow>, Error>;

    /// Held rows of an execution, in order of (unit, delivery).
    async fn held_by_execution(&self, key: ExecutionKey) -> Result<Vec<HeldRow>, Error>;

    /// Held rows whose session has no row any more, at most `limit`, in order of (session, execution, unit, delivery).
    async fn held_without_session(&self, limit: usize) -> Result<Vec<HeldRow>, Error>;

    /// Held rows whose token is missing for longer than its session's timeout (`timeout`, where the session has none of its own
    /// or is gone), or with a beat due at or before `now`: the first `limit` of each kind, longest first, together in order of (execution, unit, delivery), cut at `limit`.
    async fn held_overdue(&self, now: Timestamp, timeout: Duration, limit: usize) -> Result<Vec<HeldRow>, Error>;

    /// Deletes held rows, by (execution, unit, delivery).
    async fn delete_held(&self, rows: &[(ExecutionKey, Arc<str>, u32)]) -> Result<(), Error>;

    /// Executions that were closed before a time, in order of (`close_time`, key), after one; without those that are
    /// quarantined.
    async fn closed_before(
        &self,
        before: Timestamp,
        after: Option<(Timestamp, ExecutionKey)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, ExecutionKey)>, Error>;

    /// Executions whose deletion has begun, in order of (`delete_time`, key), after one.
    async fn deleted(&self, after: Option<(Timestamp, ExecutionKey)>, limit: usize) -> Result<Vec<DeletedRow>, Error>;

    /// Removes, in one transaction, at most `limit` rows of each kind of executions whose deletion has begun; an execution's
    /// own row last, and only where it is said to go. Says of each whether nothing is left of what may go.
    ///
    /// No statement that began before the deletion may run any more: the caller waits for so long.
    async fn delete_rows(&self, executions: &[(ExecutionKey, bool)], limit: usize) -> Result<Vec<bool>, Error>;

    /// Beginnings of runs before a time, in order of (`start_time`, execution, run), after one; without those before which
    /// all has been [trimmed](Store::delete_trimmed).
    async fn runs_begun_before(
        &self,
        before: Timestamp,
        after: Option<RunRow>,
        limit: usize,
    ) -> Result<Vec<RunRow>, Error>;

    /// Says that events up to this number may go: it stands just before a run's first event, or nothing is done, as where
    /// the floor is as high. Says whether the floor is at least so high now.
    async fn raise_floor(&self, key: ExecutionKey, number: u64) -> Result<bool, Error>;

    /// Removes at most `limit` rows of each kind of what runs up to this number have left; nothing beyond the floor. Says
    /// whether nothing is left of it.
    ///
    /// No statement that began before the floor was raised may run any more: the caller waits for so long.
    async fn delete_trimmed(&self, key: ExecutionKey, number: u64, limit: usize) -> Result<bool, Error>;

    /// Stores a batch, unless one has its id; answers with the one that has it now.
    async fn put_batch(&self, row: &BatchRow) -> Result<BatchRow, Error>;

    /// Finds a batch.
    async fn batch(&self, id: Uuid) -> Result<Option<BatchRow>, Error>;

    /// Lists batches, the newest first (`create_time`, then id, both descending), after one.
    async fn batches(&self, after: Option<BatchCursor>, limit: usize) -> Result<Vec<BatchRow>, Error>;

    /// Batches that are to be worked off, the oldest first.
    async fn running_batches(&self, limit: usize) -> Result<Vec<BatchRow>, Error>;

    /// Writes how far a batch has come, if [`portion`](BatchProgress::portion) is the next one: of those who did the same
    /// portion one writes it. A batch that was cancelled meanwhile stays cancelled. Says whether it was written.
    async fn advance_batch(&self, id: Uuid, progress: &BatchProgress) -> Result<bool, Error>;

    /// Cancels a batch, if it runs; answers with it as it is then.
    async fn cancel_batch(&self, id: Uuid, end_time: Timestamp) -> Result<Option<BatchRow>, Error>;

    /// Deletes batches that ended before a time, the oldest end first; says how many.
    async fn delete_batches(&self, ended_before: Timestamp, limit: usize) -> Result<u64, Error>;

    /// Writes to schedules, with what their slots start, in one transaction with one sync; answers in the order of `writes`,
    /// which are of different schedules. Each is written whole or not at all, and one's conflict fails that one alone.
    ///
    /// After [`Error::Unavailable`] it is not known whether they were written. The same writes may be made again, and what
    /// stands there already is answered as written, for as long as nobody else has written to that schedule.
    async fn write_schedules(&self, writes: Vec<ScheduleWrite>) -> Result<Vec<ScheduleWritten>, Error>;

    /// Finds a schedule.
    async fn schedule(&self, find: &FindSchedule) -> Result<Option<ScheduleRow>, Error>;

    /// Reads schedules, in the order of their keys; those that are gone or deleted are left out.
    async fn schedules_of(&self, keys: &[ScheduleKey]) -> Result<Vec<ScheduleRow>, Error>;

    /// Lists schedules by id, after one.
    async fn schedules(
        &self,
        filter: &ScheduleFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ScheduleRow>, Error>;

    /// Counts existing schedules by state; a state without any is absent.
    async fn count_schedules(&self) -> Result<BTreeMap<ScheduleState, u64>, Error>;

    /// Schedules with something to decide at or before `until`, earliest first (then by key), after one.
    async fn schedules_due(
        &self,
        until: Timestamp,
        after: Option<(Timestamp, ScheduleKey)>,
        limit: usize,
    ) -> Result<Vec<(ScheduleKey, Timestamp)>, Error>;

    /// When a schedule next has something to decide, if any ever has.
    async fn next_schedule_time(&self) -> Result<Option<Timestamp>, Error>;

    /// The call of this request key, with the schedule that it changed. One that is older than [`REQUEST_MEMORY`] may be given,
    /// and stands in no other's way.
    async fn schedule_request(&self, key: [u8; 16]) -> Result<Option<ScheduleRequest>, Error>;

    /// Remembers a call that had nothing to change; says whether it does, or another one of the same key was first.
    async fn remember_schedule_request(&self, request: RequestKey, time: Timestamp) -> Result<bool, Error>;

    /// Lists the ledger of a schedule, the newest nominal time first, after one.
    async fn slots(
        &self,
        schedule: ScheduleKey,
        outcome: Option<SlotOutcome>,
        after: Option<SlotName>,
        limit: usize,
    ) -> Result<Vec<SlotRow>, Error>;

    /// Finds a row of the ledger.
    async fn slot(&self, schedule: ScheduleKey, name: &SlotName) -> Result<Option<SlotRow>, Error>;

    /// Open executions that schedules have started, by the schedules' uids, in their order; of each the oldest first, at most so
    /// many. One that has closed and is open again is among them.
    async fn open_runs(&self, schedules: &[Uuid], limit: usize) -> Result<Vec<Vec<ScheduleRun>>, Error>;

    /// The states of executions by uid, in their order; none where there is no such execution (any more).
    async fn states_of(&self, uids: &[Uid]) -> Result<Vec<Option<ExecutionState>>, Error>;

    /// Deletes, at most `limit` of each: slots that were decided before a time, but for those that wait; schedules that
    /// were deleted before it and have no slots; remembered calls from before another time, and what tells their answers (the
    /// slots of triggers, deleted schedules) not earlier than they. Says how many rows went.
    async fn delete_slots(
        &self,
        decided_before: Timestamp,
        called_before: Timestamp,
        limit: usize,
    ) -> Result<u64, Error>;

    /// Size of the database.
    async fn size(&self) -> Result<Size, Error>;

    /// Waits for what runs, truncates the log and closes. Nothing may be called after it.
    async fn close(&self) -> Result<(), Error>;
}
