//! What a store does, in PostgreSQL: each read is a statement or two, each write a transaction.

use super::{PostgresStore, nodes};
use crate::domain::{RequestKey, SessionId, Timestamp, Uid};
use crate::store::{
    Append, BatchCursor, BatchProgress, BatchRow, Change, Committed, DefinitionRow, DefinitionStored, DeletedRow,
    Error, ExecutionKey, ExecutionRow, ExecutionState, Find, FindDefinition, FindSchedule, Heard, HeldRow, Hints,
    HistoryRow, LargePayload, ListCursor, ListFilter, ListPage, Loaded, NodeRow, Opened, Pool, Presence, ReadyRow,
    RunRow, ScheduleFilter, ScheduleKey, ScheduleRequest, ScheduleRow, ScheduleRun, ScheduleState, ScheduleWrite,
    ScheduleWritten, SessionRow, Size, SlotName, SlotOutcome, SlotRow, Store,
    sql::{
        Connection as _, Row as _, Transaction as _, Values, batches, definitions, executions, list, retention,
        schedules, sessions,
    },
};
use async_trait::async_trait;
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::sync::mpsc;
use uuid::Uuid;

/// The database with its indexes; the log belongs to the whole server.
const SIZE: &str = "SELECT pg_database_size(current_database())";

#[async_trait]
impl Store for PostgresStore {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn committers(&self) -> usize {
        self.committers.count()
    }

    fn opened(&self) -> Opened {
        self.opened
    }

    async fn commit(&self, batch: Vec<Append>) -> Result<Vec<Committed>, Error> {
        self.committers.commit(batch).await
    }

    async fn execution(&self, find: &Find) -> Result<Option<ExecutionRow>, Error> {
        let find = find.clone();
        self.connections
            .read(move |connection| Box::pin(async move { executions::execution(connection, &find).await }))
            .await
    }

    async fn execution_by_request(&self, id: &str, key: [u8; 16]) -> Result<Option<ExecutionRow>, Error> {
        let id = id.to_owned();
        self.connections
            .read(move |connection| {
                Box::pin(async move { executions::execution_by_request(connection, &id, key).await })
            })
            .await
    }

    async fn load(&self, key: ExecutionKey) -> Result<Option<Loaded>, Error> {
        self.connections.read(move |connection| Box::pin(executions::load(connection, key))).await
    }

    async fn load_tail(&self, key: ExecutionKey, after_number: u64) -> Result<Option<Loaded>, Error> {
        self.connections.read(move |connection| Box::pin(executions::load_tail(connection, key, after_number))).await
    }

    async fn newest_numbers(&self, keys: &[ExecutionKey]) -> Result<Vec<Option<u64>>, Error> {
        let keys = keys.to_vec();
        self.connections
            .read(move |connection| Box::pin(async move { executions::newest_numbers(connection, &keys).await }))
            .await
    }

    async fn history(
        &self,
        key: ExecutionKey,
        after_number: u64,
        rows_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<HistoryRow>, Error> {
        self.connections
            .read(move |connection| Box::pin(executions::history(connection, key, after_number, rows_max, bytes_max)))
            .await
    }

    async fn payloads(&self, key: ExecutionKey, digests: &[[u8; 32]]) -> Result<Vec<LargePayload>, Error> {
        let digests = digests.to_vec();
        self.connections
            .read(move |connection| Box::pin(async move { executions::payloads(connection, key, &digests).await }))
            .await
    }

    async fn list(&self, filter: &ListFilter, after: Option<ListCursor>, limit: usize) -> Result<ListPage, Error> {
        let filter = filter.clone();
        self.connections
            .read(move |connection| Box::pin(async move { list::list(connection, &filter, after, limit).await }))
            .await
    }

    async fn count(&self) -> Result<BTreeMap<ExecutionState, u64>, Error> {
        self.connections.read(|connection| Box::pin(executions::count(connection))).await
    }

    async fn due(&self, until: Timestamp, limit: usize) -> Result<Vec<(ExecutionKey, Timestamp)>, Error> {
        self.connections.read(move |connection| Box::pin(executions::due(connection, until, limit))).await
    }

    async fn still_due(&self, keys: &[ExecutionKey], now: Timestamp) -> Result<Vec<ExecutionKey>, Error> {
        let keys = keys.to_vec();
        self.connections
            .read(move |connection| Box::pin(async move { executions::still_due(connection, &keys, now).await }))
            .await
    }

    async fn waiting_pools(&self, pools: &[Pool]) -> Result<Vec<Pool>, Error> {
        let pools = pools.to_vec();
        self.connections
            .read(move |connection| Box::pin(async move { executions::waiting_pools(connection, &pools).await }))
            .await
    }

    async fn ready(&self, pool: &Pool, limit: usize) -> Result<Vec<ReadyRow>, Error> {
        let pool = pool.clone();
        self.connections
            .read(move |connection| Box::pin(async move { executions::ready(connection, &pool, limit).await }))
            .await
    }

    async fn quarantine(&self, key: ExecutionKey, why: &str) -> Result<(), Error> {
        let why: Arc<str> = why.into();
        self.connections
            .write(move |transaction| {
                let why = why.clone();
                Box::pin(async move { executions::quarantine(transaction, key, &why).await })
            })
            .await
    }

    async fn put_definitions(&self, rows: &[DefinitionRow]) -> Result<Vec<DefinitionStored>, Error> {
        let rows: Arc<[DefinitionRow]> = rows.into();
        self.connections
            .write(move |transaction| {
                let rows = rows.clone();
                Box::pin(async move { definitions::put(transaction, &rows).await })
            })
            .await
    }

    async fn definition(&self, find: &FindDefinition) -> Result<Option<DefinitionRow>, Error> {
        let find = find.clone();
        self.connections
            .read(move |connection| Box::pin(async move { definitions::definition(connection, &find).await }))
            .await
    }

    async fn definitions(
        &self,
        name: Option<&str>,
        after: Option<(&str, &[u8])>,
        limit: usize,
    ) -> Result<Vec<DefinitionRow>, Error> {
        let name = name.map(str::to_owned);
        let after = after.map(|(name, order)| (name.to_owned(), order.to_vec()));
        self.connections
            .read(move |connection| {
                Box::pin(async move {
                    let after = after.as_ref().map(|(name, order)| (&**name, &**order));
                    definitions::definitions(connection, name.as_deref(), after, limit).await
                })
            })
            .await
    }

    async fn contract_versions(&self, task_name: &str) -> Result<Vec<String>, Error> {
        let name = task_name.to_owned();
        self.connections
            .read(move |connection| Box::pin(async move { definitions::contract_versions(connection, &name).await }))
            .await
    }

    async fn put_session(&self, row: &SessionRow) -> Result<(), Error> {
        let row = Arc::new(row.clone());
        self.connections
            .write(move |transaction| {
                let row = row.clone();
                Box::pin(async move { sessions::put(transaction, &row).await })
            })
            .await
    }

    async fn resume_session(&self, row: &SessionRow) -> Result<Option<SessionRow>, Error> {
        let row = Arc::new(row.clone());
        self.connections
            .write(move |transaction| {
                let row = row.clone();
                Box::pin(async move { sessions::resume(transaction, &row).await })
            })
            .await
    }

    async fn session(&self, id: SessionId) -> Result<Option<SessionRow>, Error> {
        self.connections.read(move |connection| Box::pin(sessions::session(connection, id))).await
    }

    async fn sessions(&self, after: Option<SessionId>, limit: usize) -> Result<Vec<SessionRow>, Error> {
        self.connections.read(move |connection| Box::pin(sessions::sessions(connection, after, limit))).await
    }

    async fn end_session(&self, id: SessionId, contact_time: Option<Timestamp>) -> Result<bool, Error> {
        self.connections.write(move |transaction| Box::pin(sessions::end(transaction, id, contact_time))).await
    }

    async fn presence(&self, presence: &Presence) -> Result<Vec<NodeRow>, Error> {
        let presence = Arc::new(presence.clone());
        let slot = self.slot.clone();
        self.connections
            .write(move |transaction| {
                let (presence, slot) = (presence.clone(), slot.clone());
                Box::pin(async move {
                    sessions::write(transaction, &presence).await?;
                    if let Some(node) = &presence.node {
                        slot.store(nodes::write(transaction.connection(), node).await?, Ordering::Relaxed);
                        transaction.changed(Change::NodeWritten, 1);
                    }
                    sessions::nodes(transaction).await
                })
            })
            .await
    }

    async fn publish(&self, hints: &Hints) -> Result<(), Error> {
        self.news.publish(hints).await
    }

    fn listen(&self) -> mpsc::Receiver<Heard> {
        self.news.listen()
    }

    async fn held_by_session(&self, id: SessionId, limit: usize) -> Result<Vec<HeldRow>, Error> {
        self.connections.read(move |connection| Box::pin(sessions::held_by_session(connection, id, limit))).await
    }

    async fn held_by_execution(&self, key: ExecutionKey) -> Result<Vec<HeldRow>, Error> {
        self.connections.read(move |connection| Box::pin(sessions::held_by_execution(connection, key))).await
    }

    async fn held_without_session(&self, limit: usize) -> Result<Vec<HeldRow>, Error> {
        self.connections.read(move |connection| Box::pin(sessions::held_without_session(connection, limit))).await
    }

    async fn held_overdue(&self, now: Timestamp, timeout: Duration, limit: usize) -> Result<Vec<HeldRow>, Error> {
        self.connections.read(move |connection| Box::pin(sessions::held_overdue(connection, now, timeout, limit))).await
    }

    async fn delete_held(&self, rows: &[(ExecutionKey, Arc<str>, u32)]) -> Result<(), Error> {
        let rows = Arc::new(rows.to_vec());
        self.connections
            .write(move |transaction| {
                let rows = rows.clone();
                Box::pin(async move { sessions::delete_held(transaction, &rows).await })
            })
            .await
    }

    async fn closed_before(
        &self,
        before: Timestamp,
        after: Option<(Timestamp, ExecutionKey)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, ExecutionKey)>, Error> {
        self.connections
            .read(move |connection| Box::pin(retention::closed_before(connection, before, after, limit)))
            .await
    }

    async fn deleted(&self, after: Option<(Timestamp, ExecutionKey)>, limit: usize) -> Result<Vec<DeletedRow>, Error> {
        self.connections.read(move |connection| Box::pin(retention::deleted(connection, after, limit))).await
    }

    async fn delete_rows(&self, executions: &[(ExecutionKey, bool)], limit: usize) -> Result<Vec<bool>, Error> {
        let executions = executions.to_vec();
        self.connections
            .write(move |transaction| {
                let executions = executions.clone();
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
        self.connections
            .read(move |connection| Box::pin(retention::runs_begun_before(connection, before, after, limit)))
            .await
    }

    async fn raise_floor(&self, key: ExecutionKey, number: u64) -> Result<bool, Error> {
        self.connections.write(move |transaction| Box::pin(retention::raise_floor(transaction, key, number))).await
    }

    async fn delete_trimmed(&self, key: ExecutionKey, number: u64, limit: usize) -> Result<bool, Error> {
        self.connections
            .write(move |transaction| Box::pin(retention::delete_trimmed(transaction, key, number, limit)))
            .await
    }

    async fn put_batch(&self, row: &BatchRow) -> Result<BatchRow, Error> {
        let row = Arc::new(row.clone());
        self.connections
            .write(move |transaction| {
                let row = row.clone();
                Box::pin(async move { batches::put(transaction, &row).await })
            })
            .await
    }

    async fn batch(&self, id: Uuid) -> Result<Option<BatchRow>, Error> {
        self.connections.read(move |connection| Box::pin(batches::batch(connection, id))).await
    }

    async fn batches(&self, after: Option<BatchCursor>, limit: usize) -> Result<Vec<BatchRow>, Error> {
        self.connections.read(move |connection| Box::pin(batches::batches(connection, after, limit))).await
    }

    async fn running_batches(&self, limit: usize) -> Result<Vec<BatchRow>, Error> {
        self.connections.read(move |connection| Box::pin(batches::running(connection, limit))).await
    }

    async fn advance_batch(&self, id: Uuid, progress: &BatchProgress) -> Result<bool, Error> {
        let progress = Arc::new(progress.clone());
        self.connections
            .write(move |transaction| {
                let progress = progress.clone();
                Box::pin(async move { batches::advance(transaction, id, &progress).await })
            })
            .await
    }

    async fn cancel_batch(&self, id: Uuid, end_time: Timestamp) -> Result<Option<BatchRow>, Error> {
        self.connections.write(move |transaction| Box::pin(batches::cancel(transaction, id, end_time))).await
    }

    async fn delete_batches(&self, ended_before: Timestamp, limit: usize) -> Result<u64, Error> {
        self.connections.write(move |transaction| Box::pin(batches::delete(transaction, ended_before, limit))).await
    }

    async fn write_schedules(&self, writes: Vec<ScheduleWrite>) -> Result<Vec<ScheduleWritten>, Error> {
        super::schedules::write(self, writes).await
    }

    async fn schedule(&self, find: &FindSchedule) -> Result<Option<ScheduleRow>, Error> {
        let find = find.clone();
        self.connections
            .read(move |connection| Box::pin(async move { schedules::schedule(connection, &find).await }))
            .await
    }

    async fn schedules_of(&self, keys: &[ScheduleKey]) -> Result<Vec<ScheduleRow>, Error> {
        let keys = keys.to_vec();
        self.connections
            .read(move |connection| Box::pin(async move { schedules::schedules_of(connection, &keys).await }))
            .await
    }

    async fn schedules(
        &self,
        filter: &ScheduleFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ScheduleRow>, Error> {
        let (filter, after) = (filter.clone(), after.map(str::to_owned));
        self.connections
            .read(move |connection| {
                Box::pin(async move { schedules::schedules(connection, &filter, after.as_deref(), limit).await })
            })
            .await
    }

    async fn count_schedules(&self) -> Result<BTreeMap<ScheduleState, u64>, Error> {
        self.connections.read(|connection| Box::pin(schedules::count(connection))).await
    }

    async fn schedules_due(
        &self,
        until: Timestamp,
        after: Option<(Timestamp, ScheduleKey)>,
        limit: usize,
    ) -> Result<Vec<(ScheduleKey, Timestamp)>, Error> {
        self.connections.read(move |connection| Box::pin(schedules::due(connection, until, after, limit))).await
    }

    async fn next_schedule_time(&self) -> Result<Option<Timestamp>, Error> {
        self.connections.read(|connection| Box::pin(schedules::next_time(connection))).await
    }

    async fn schedule_request(&self, key: [u8; 16]) -> Result<Option<ScheduleRequest>, Error> {
        self.connections.read(move |connection| Box::pin(schedules::request(connection, key))).await
    }

    async fn slots(
        &self,
        schedule: ScheduleKey,
        outcome: Option<SlotOutcome>,
        after: Option<SlotName>,
        limit: usize,
    ) -> Result<Vec<SlotRow>, Error> {
        self.connections
            .read(move |connection| {
                Box::pin(async move { schedules::slots(connection, schedule, outcome, after.as_ref(), limit).await })
            })
            .await
    }

    async fn slot(&self, schedule: ScheduleKey, name: &SlotName) -> Result<Option<SlotRow>, Error> {
        let name = name.clone();
        self.connections
            .read(move |connection| Box::pin(async move { schedules::slot(connection, schedule, &name).await }))
            .await
    }

    async fn open_runs(&self, schedules: &[Uuid], limit: usize) -> Result<Vec<Vec<ScheduleRun>>, Error> {
        let uids = schedules.to_vec();
        self.connections
            .read(move |connection| Box::pin(async move { schedules::open_of_many(connection, &uids, limit).await }))
            .await
    }

    async fn states_of(&self, uids: &[Uid]) -> Result<Vec<Option<ExecutionState>>, Error> {
        let uids = uids.to_vec();
        self.connections
            .read(move |connection| Box::pin(async move { schedules::states_of(connection, &uids).await }))
            .await
    }

    async fn remember_schedule_request(&self, request: RequestKey, time: Timestamp) -> Result<bool, Error> {
        self.connections.write(move |transaction| Box::pin(schedules::remember(transaction, request, time))).await
    }

    async fn delete_slots(
        &self,
        decided_before: Timestamp,
        called_before: Timestamp,
        limit: usize,
    ) -> Result<u64, Error> {
        self.connections
            .write(move |transaction| Box::pin(schedules::delete(transaction, decided_before, called_before, limit)))
            .await
    }

    async fn size(&self) -> Result<Size, Error> {
        let bytes = self.connections.read(|connection| {
            Box::pin(async {
                let row = connection.row(SIZE, Values::default()).await?.ok_or(sqlx::Error::RowNotFound)?;
                row.integer(0)
            })
        });
        Ok(Size { database_bytes: u64::try_from(bytes.await?).unwrap_or(0), log_bytes: 0 })
    }

    async fn close(&self) -> Result<(), Error> {
        self.committers.close().await;
        self.news.close().await;
        self.connections.close().await;
        Ok(())
    }
}
