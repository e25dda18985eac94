//! SQLite: one file, one server.
//!
//! - What is answered as written is on the disk: WAL with `synchronous=FULL`, read back at the start.
//! - One connection writes, in transactions that begin IMMEDIATE; a few read. Reads never wait for commits.
//! - No change that a caller stops waiting for is broken off: it runs in a task of its own.
//! - A lock file beside the database keeps a second server out; a newer schema is refused; an older one is copied before it
//!   is brought up to date.
//! - The log is copied into the database by a task of its own ([`checkpoint`]), and no read is older than
//!   [`Options::read_age_max`], so the log stays short.

mod checkpoint;
mod commit;
mod connection;
mod error;
mod open;
#[cfg(test)]
mod tests;

use super::{
    Append, BatchCursor, BatchProgress, BatchRow, Change, Committed, DefinitionRow, DefinitionStored, DeletedRow,
    Error, ExecutionKey, ExecutionRow, ExecutionState, Find, FindDefinition, FindSchedule, Heard, HeldRow, Hints,
    HistoryRow, LargePayload, ListCursor, ListFilter, ListPage, Loaded, NodeRow, Opened, Pool, Presence, ReadyRow,
    RunRow, ScheduleFilter, ScheduleKey, ScheduleRequest, ScheduleRow, ScheduleRun, ScheduleState, ScheduleWrite,
    ScheduleWritten, Schema, SessionRow, Size, SlotName, SlotOutcome, SlotRow, Statistics, Store,
    sql::{Transaction as _, batches, definitions, executions, list, retention, schedules, sessions},
};
use super::{statistics::Totals, unbroken::unbroken};
use crate::domain::{RequestKey, SessionId, Timestamp, Uid};
use async_trait::async_trait;
use checkpoint::Checkpointer;
use connection::{Readers, Transaction, Writer};
use futures_util::future::BoxFuture;
use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::sync::{Mutex, mpsc};
use uuid::Uuid;

/// Bytes of a page: one history row of a usual step fits many times, and the tables stay shallow.
const PAGE_BYTES: u32 = 8192;

const NODE_WRITE: &str = "INSERT INTO nodes (id, slot, now, level, seen) \
     VALUES ($1, 0, $2, $3, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) ON CONFLICT (id) DO UPDATE SET \
     now = CASE WHEN nodes.now < $2 THEN $2 ELSE nodes.now END, level = $3, seen = excluded.seen";

/// How the database is opened. [`Default`] is right for a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections that read, at least 1. Default 4; a read beyond them waits for one.
    pub readers: u32,
    /// Longest that a read may take, waiting included. Default 10 s; a longer one fails with [`Error::Unavailable`].
    pub read_age_max: Duration,
    /// How long a write waits for another process that writes to the file, which only tools do. Default 5 s.
    pub busy_timeout: Duration,
    /// Page cache of the writing connection, in bytes: what a few commits touch; the rest is in the cache of the system.
    /// Default 16 MiB.
    pub writer_cache_bytes: u64,
    /// Page cache of each reading connection, in bytes. Default 8 MiB.
    pub reader_cache_bytes: u64,
    /// Bytes of log that wait to be copied into the database before that is done. Default 16 MiB.
    pub log_copy_bytes: u64,
    /// Bytes of log after which it begins anew. Default 64 MiB.
    pub log_restart_bytes: u64,
    /// Bytes of log file (a reader kept it from beginning anew) from which it is cut to nothing then. Default 128 MiB.
    pub log_truncate_bytes: u64,
    /// Does not sync commits: a power loss then loses acknowledged work. Only to show that a test notices. Default false.
    pub unsafe_without_sync: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            readers: 4,
            read_age_max: Duration::from_secs(10),
            busy_timeout: Duration::from_secs(5),
            writer_cache_bytes: 16 << 20,
            reader_cache_bytes: 8 << 20,
            log_copy_bytes: 16 << 20,
            log_restart_bytes: 64 << 20,
            log_truncate_bytes: 128 << 20,
            unsafe_without_sync: false,
        }
    }
}

/// A store in a SQLite database.
pub struct SqliteStore {
    path: PathBuf,
    log: PathBuf,
    writer: Arc<Mutex<Writer>>,
    readers: Readers,
    checkpointer: Mutex<Option<Checkpointer>>,
    totals: Arc<Totals>,
    opened: Opened,
    lock: Mutex<Option<File>>,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SqliteStore({})", self.path.display())
    }
}

impl SqliteStore {
    /// Opens the database, makes it if it is not there (its directory must be), and brings its schema up to date.
    ///
    /// [`Error::Refused`] says in plain words what to do something about: another server has it open, a newer version
    /// wrote it, it is no database of ours, its directory is missing.
    pub async fn open(path: &Path, options: Options) -> Result<Self, Error> {
        open::open(path, &options).await
    }

    /// The schema of the database at this path, which may be in use; changes nothing.
    ///
    /// [`Error::Refused`] as for [`SqliteStore::open`], but a newer schema is told as it is.
    pub async fn schema(path: &Path) -> Result<Schema, Error> {
        open::schema(path).await
    }

    /// Brings the schema up to date and no more. An older database is copied first. Answers with the schema as it was,
    /// and the copy if there is one.
    ///
    /// [`Error::Refused`] as for [`SqliteStore::open`].
    pub async fn migrate(path: &Path) -> Result<(Schema, Option<PathBuf>), Error> {
        open::migrate_alone(path).await
    }

    /// What has been written since the store was opened.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.totals.read()
    }

    /// Writes in a transaction of its own, in a task of its own.
    async fn write<T, W>(&self, work: W) -> Result<T, Error>
    where
        T: Send + 'static,
        W: for<'t> FnOnce(&'t mut Transaction) -> BoxFuture<'t, sqlx::Result<T>> + Send + 'static,
    {
        let writer = self.writer.clone();
        unbroken(async move {
            let mut writer = writer.lock().await;
            let mut transaction = writer.begin().await?;
            let answer = work(&mut transaction).await;
            Ok(writer.finish(transaction, answer).await?)
        })
        .await
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn kind(&self) -> &'static str {
        "sqlite"
    }

    fn opened(&self) -> Opened {
        self.opened
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn committers(&self) -> usize {
        1
    }

    async fn commit(&self, batch: Vec<Append>) -> Result<Vec<Committed>, Error> {
        let writer = self.writer.clone();
        unbroken(async move { commit::commit(&mut *writer.lock().await, &batch).await }).await
    }

    async fn execution(&self, find: &Find) -> Result<Option<ExecutionRow>, Error> {
        self.readers.read(async |reader| executions::execution(reader, find).await).await
    }

    async fn execution_by_request(&self, id: &str, key: [u8; 16]) -> Result<Option<ExecutionRow>, Error> {
        self.readers.read(async |reader| executions::execution_by_request(reader, id, key).await).await
    }

    async fn load(&self, key: ExecutionKey) -> Result<Option<Loaded>, Error> {
        self.readers.read(async |reader| executions::load(reader, key).await).await
    }

    async fn load_tail(&self, key: ExecutionKey, after_number: u64) -> Result<Option<Loaded>, Error> {
        self.readers.read(async |reader| executions::load_tail(reader, key, after_number).await).await
    }

    async fn newest_numbers(&self, keys: &[ExecutionKey]) -> Result<Vec<Option<u64>>, Error> {
        self.readers.read(async |reader| executions::newest_numbers(reader, keys).await).await
    }

    async fn history(
        &self,
        key: ExecutionKey,
        after_number: u64,
        rows_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<HistoryRow>, Error> {
        self.readers
            .read(async |reader| executions::history(reader, key, after_number, rows_max, bytes_max).await)
            .await
    }

    async fn payloads(&self, key: ExecutionKey, digests: &[[u8; 32]]) -> Result<Vec<LargePayload>, Error> {
        self.readers.read(async |reader| executions::payloads(reader, key, digests).await).await
    }

    async fn list(&self, filter: &ListFilter, after: Option<ListCursor>, limit: usize) -> Result<ListPage, Error> {
        self.readers.read(async |reader| list::list(reader, filter, after, limit).await).await
    }

    async fn count(&self) -> Result<BTreeMap<ExecutionState, u64>, Error> {
        self.readers.read(async |reader| executions::count(reader).await).await
    }

    async fn due(&self, until: Timestamp, limit: usize) -> Result<Vec<(ExecutionKey, Timestamp)>, Error> {
        self.readers.read(async |reader| executions::due(reader, until, limit).await).await
    }

    async fn still_due(&self, keys: &[ExecutionKey], now: Timestamp) -> Result<Vec<ExecutionKey>, Error> {
        self.readers.read(async |reader| executions::still_due(reader, keys, now).await).await
    }

    async fn waiting_pools(&self, pools: &[Pool]) -> Result<Vec<Pool>, Error> {
        self.readers.read(async |reader| executions::waiting_pools(reader, pools).await).await
    }

    async fn ready(&self, pool: &Pool, limit: usize) -> Result<Vec<ReadyRow>, Error> {
        self.readers.read(async |reader| executions::ready(reader, pool, limit).await).await
    }

    async fn quarantine(&self, key: ExecutionKey, why: &str) -> Result<(), Error> {
        let why = why.to_owned();
        self.write(move |transaction| Box::pin(async move { executions::quarantine(transaction, key, &why).await }))
            .await
    }

    async fn put_definitions(&self, rows: &[DefinitionRow]) -> Result<Vec<DefinitionStored>, Error> {
        let rows = rows.to_vec();
        self.write(move |transaction| Box::pin(async move { definitions::put(transaction, &rows).await })).await
    }

    async fn definition(&self, find: &FindDefinition) -> Result<Option<DefinitionRow>, Error> {
        self.readers.read(async |reader| definitions::definition(reader, find).await).await
    }

    async fn definitions(
        &self,
        name: Option<&str>,
        after: Option<(&str, &[u8])>,
        limit: usize,
    ) -> Result<Vec<DefinitionRow>, Error> {
        self.readers.read(async |reader| definitions::definitions(reader, name, after, limit).await).await
    }

    async fn contract_versions(&self, task_name: &str) -> Result<Vec<String>, Error> {
        self.readers.read(async |reader| definitions::contract_versions(reader, task_name).await).await
    }

    async fn put_session(&self, row: &SessionRow) -> Result<(), Error> {
        let row = row.clone();
        self.write(move |transaction| Box::pin(async move { sessions::put(transaction, &row).await })).await
    }

    async fn resume_session(&self, row: &SessionRow) -> Result<Option<SessionRow>, Error> {
        let row = row.clone();
        self.write(move |transaction| Box::pin(async move { sessions::resume(transaction, &row).await })).await
    }

    async fn session(&self, id: SessionId) -> Result<Option<SessionRow>, Error> {
        self.readers.read(async |reader| sessions::session(reader, id).await).await
    }

    async fn sessions(&self, after: Option<SessionId>, limit: usize) -> Result<Vec<SessionRow>, Error> {
        self.readers.read(async |reader| sessions::sessions(reader, after, limit).await).await
    }

    async fn end_session(&self, id: SessionId, contact_time: Option<Timestamp>) -> Result<bool, Error> {
        self.write(move |transaction| Box::pin(sessions::end(transaction, id, contact_time))).await
    }

    async fn presence(&self, presence: &Presence) -> Result<Vec<NodeRow>, Error> {
        let presence = presence.clone();
        self.write(move |transaction| {
            Box::pin(async move {
                sessions::write(transaction, &presence).await?;
                if let Some(node) = &presence.node {
                    let values = [node.id.as_bytes().into(), node.now.as_micros().into(), node.level.into()];
                    transaction.run(Change::NodeWritten, NODE_WRITE, values.into()).await?;
                }
                sessions::nodes(transaction).await
            })
        })
        .await
    }

    async fn publish(&self, _: &Hints) -> Result<(), Error> {
        Ok(())
    }

    fn listen(&self) -> mpsc::Receiver<Heard> {
        mpsc::channel(1).1
    }

    async fn held_by_session(&self, id: SessionId, limit: usize) -> Result<Vec<HeldRow>, Error> {
        self.readers.read(async |reader| sessions::held_by_session(reader, id, limit).await).await
    }

    async fn held_by_execution(&self, key: ExecutionKey) -> Result<Vec<HeldRow>, Error> {
        self.readers.read(async |reader| sessions::held_by_execution(reader, key).await).await
    }

    async fn held_without_session(&self, limit: usize) -> Result<Vec<HeldRow>, Error> {
        self.readers.read(async |reader| sessions::held_without_session(reader, limit).await).await
    }

    async fn held_overdue(&self, now: Timestamp, timeout: Duration, limit: usize) -> Result<Vec<HeldRow>, Error> {
        self.readers.read(async |reader| sessions::held_overdue(reader, now, timeout, limit).await).await
    }

    async fn delete_held(&self, rows: &[(ExecutionKey, Arc<str>, u32)]) -> Result<(), Error> {
        let rows = rows.to_vec();
        self.write(move |transaction| Box::pin(async move { sessions::delete_held(transaction, &rows).await })).await
    }

    async fn closed_before(
        &self,
        before: Timestamp,
        after: Option<(Timestamp, ExecutionKey)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, ExecutionKey)>, Error> {
        self.readers.read(async |reader| retention::closed_before(reader, before, after, limit).await).await
    }

    async fn deleted(&self, after: Option<(Timestamp, ExecutionKey)>, limit: usize) -> Result<Vec<DeletedRow>, Error> {
        self.readers.read(async |reader| retention::deleted(reader, after, limit).await).await
    }

    async fn delete_rows(&self, executions: &[(ExecutionKey, bool)], limit: usize) -> Result<Vec<bool>, Error> {
        let executions = executions.to_vec();
        self.write(move |transaction| {
            Box::pin(async move { retention::delete_rows(transaction, &executions, limit).await })
        })
        .await
    }

    async fn runs_begun_before(
        &self,
        before: Timestamp,
        after: Option<RunRow>,
        limit: usize,
    ) -> Result<Vec<RunRow>, Error> {
        self.readers.read(async |reader| retention::runs_begun_before(reader, before, after, limit).await).await
    }

    async fn raise_floor(&self, key: ExecutionKey, number: u64) -> Result<bool, Error> {
        self.write(move |transaction| Box::pin(retention::raise_floor(transaction, key, number))).await
    }

    async fn delete_trimmed(&self, key: ExecutionKey, number: u64, limit: usize) -> Result<bool, Error> {
        self.write(move |transaction| Box::pin(retention::delete_trimmed(transaction, key, number, limit))).await
    }

    async fn put_batch(&self, row: &BatchRow) -> Result<BatchRow, Error> {
        let row = row.clone();
        self.write(move |transaction| Box::pin(async move { batches::put(transaction, &row).await })).await
    }

    async fn batch(&self, id: Uuid) -> Result<Option<BatchRow>, Error> {
        self.readers.read(async |reader| batches::batch(reader, id).await).await
    }

    async fn batches(&self, after: Option<BatchCursor>, limit: usize) -> Result<Vec<BatchRow>, Error> {
        self.readers.read(async |reader| batches::batches(reader, after, limit).await).await
    }

    async fn running_batches(&self, limit: usize) -> Result<Vec<BatchRow>, Error> {
        self.readers.read(async |reader| batches::running(reader, limit).await).await
    }

    async fn advance_batch(&self, id: Uuid, progress: &BatchProgress) -> Result<bool, Error> {
        let progress = progress.clone();
        self.write(move |transaction| Box::pin(async move { batches::advance(transaction, id, &progress).await })).await
    }

    async fn cancel_batch(&self, id: Uuid, end_time: Timestamp) -> Result<Option<BatchRow>, Error> {
        self.write(move |transaction| Box::pin(batches::cancel(transaction, id, end_time))).await
    }

    async fn delete_batches(&self, ended_before: Timestamp, limit: usize) -> Result<u64, Error> {
        self.write(move |transaction| Box::pin(batches::delete(transaction, ended_before, limit))).await
    }

    async fn write_schedules(&self, writes: Vec<ScheduleWrite>) -> Result<Vec<ScheduleWritten>, Error> {
        let writer = self.writer.clone();
        unbroken(async move { commit::schedules::write(&mut *writer.lock().await, &writes).await }).await
    }

    async fn schedule(&self, find: &FindSchedule) -> Result<Option<ScheduleRow>, Error> {
        self.readers.read(async |reader| schedules::schedule(reader, find).await).await
    }

    async fn schedules_of(&self, keys: &[ScheduleKey]) -> Result<Vec<ScheduleRow>, Error> {
        self.readers.read(async |reader| schedules::schedules_of(reader, keys).await).await
    }

    async fn schedules(
        &self,
        filter: &ScheduleFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ScheduleRow>, Error> {
        self.readers.read(async |reader| schedules::schedules(reader, filter, after, limit).await).await
    }

    async fn count_schedules(&self) -> Result<BTreeMap<ScheduleState, u64>, Error> {
        self.readers.read(async |reader| schedules::count(reader).await).await
    }

    async fn schedules_due(
        &self,
        until: Timestamp,
        after: Option<(Timestamp, ScheduleKey)>,
        limit: usize,
    ) -> Result<Vec<(ScheduleKey, Timestamp)>, Error> {
        self.readers.read(async |reader| schedules::due(reader, until, after, limit).await).await
    }

    async fn next_schedule_time(&self) -> Result<Option<Timestamp>, Error> {
        self.readers.read(async |reader| schedules::next_time(reader).await).await
    }

    async fn schedule_request(&self, key: [u8; 16]) -> Result<Option<ScheduleRequest>, Error> {
        self.readers.read(async |reader| schedules::request(reader, key).await).await
    }

    async fn slots(
        &self,
        schedule: ScheduleKey,
        outcome: Option<SlotOutcome>,
        after: Option<SlotName>,
        limit: usize,
    ) -> Result<Vec<SlotRow>, Error> {
        self.readers.read(async |reader| schedules::slots(reader, schedule, outcome, after.as_ref(), limit).await).await
    }

    async fn slot(&self, schedule: ScheduleKey, name: &SlotName) -> Result<Option<SlotRow>, Error> {
        self.readers.read(async |reader| schedules::slot(reader, schedule, name).await).await
    }

    async fn open_runs(&self, schedules: &[Uuid], limit: usize) -> Result<Vec<Vec<ScheduleRun>>, Error> {
        self.readers.read(async |reader| schedules::open_of_each(reader, schedules, limit).await).await
    }

    async fn states_of(&self, uids: &[Uid]) -> Result<Vec<Option<ExecutionState>>, Error> {
        self.readers.read(async |reader| schedules::states_of(reader, uids).await).await
    }

    async fn remember_schedule_request(&self, request: RequestKey, time: Timestamp) -> Result<bool, Error> {
        self.write(move |transaction| Box::pin(schedules::remember(transaction, request, time))).await
    }

    async fn delete_slots(
        &self,
        decided_before: Timestamp,
        called_before: Timestamp,
        limit: usize,
    ) -> Result<u64, Error> {
        self.write(move |transaction| Box::pin(schedules::delete(transaction, decided_before, called_before, limit)))
            .await
    }

    async fn size(&self) -> Result<Size, Error> {
        let bytes = |path: PathBuf| async move { tokio::fs::metadata(path).await.map_or(0, |file| file.len()) };
        let log_bytes = bytes(self.log.clone()).await;
        Ok(Size { database_bytes: bytes(self.path.clone()).await + log_bytes, log_bytes })
    }

    async fn close(&self) -> Result<(), Error> {
        if let Some(checkpointer) = self.checkpointer.lock().await.take() {
            checkpointer.stop().await;
        }
        self.readers.close().await;
        let closed = self.writer.lock().await.close().await;
        drop(self.lock.lock().await.take());
        closed.map_err(error::from_sqlx)
    }
}
