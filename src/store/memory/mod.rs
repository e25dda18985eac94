//! The model: what a store does, as simply as it can be said. Nothing is lost while the process lives, nothing waits.
//!
//! Deterministic: ordered maps under one lock, no clock, no randomness. A clone is the same store, so that a test can
//! stop an engine and start another one on what the first left behind.

mod batches;
mod commit;
mod retention;
mod schedules;
mod tables;

use super::statistics::Totals;
use super::{
    Append, BatchCursor, BatchProgress, BatchRow, Committed, DefinitionRow, DefinitionStored, DeletedRow, Error,
    ExecutionKey, ExecutionRow, ExecutionState, Find, FindDefinition, FindSchedule, Heard, HeldRow, Hints, HistoryRow,
    LargePayload, ListCursor, ListFilter, ListPage, Loaded, NodeRow, Opened, Pool, Presence, ReadyRow, RunRow,
    ScheduleFilter, ScheduleKey, ScheduleRequest, ScheduleRow, ScheduleRun, ScheduleState, ScheduleWrite,
    ScheduleWritten, SessionRow, Size, SlotName, SlotOutcome, SlotRow, Statistics, Store,
};
use crate::domain::{RequestKey, SessionId, Timestamp, Uid};
use async_trait::async_trait;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tables::Tables;
use tokio::sync::mpsc;
use uuid::Uuid;

/// Hints that one node may be behind; more are lost.
const HINTS_BEHIND_MAX: usize = 64;

/// A store in memory.
#[derive(Clone, Default)]
pub struct MemoryStore {
    tables: Arc<Mutex<Tables>>,
    totals: Arc<Totals>,
    /// Those who listen, if several nodes share the store; and which of the nodes this is.
    listeners: Option<Arc<Mutex<Vec<Listener>>>>,
    node: usize,
}

struct Listener {
    node: usize,
    heard: mpsc::Sender<Heard>,
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MemoryStore")
    }
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store that several nodes share: each needs a handle of its own, by [`another_node`](Self::another_node).
    #[must_use]
    pub fn shared() -> Self {
        Self { listeners: Some(Arc::default()), ..Self::default() }
    }

    /// The same store as another node has it: it hears what this one publishes. Nodes are numbered by the caller.
    #[must_use]
    pub fn another_node(&self, node: usize) -> Self {
        Self { node, ..self.clone() }
    }

    /// What has been written since the store was made.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.totals.read()
    }

    // A panic under the lock is a bug of this file; the maps are still the best that is known.
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write<T>(&self, work: impl FnOnce(&mut Tables, &mut Statistics) -> T) -> T {
        let mut changes = Statistics::default();
        let answer = work(&mut self.tables(), &mut changes);
        self.totals.committed(&changes);
        answer
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn opened(&self) -> Opened {
        Opened { newest_now: self.tables().newest_now(), schema_version: 0 }
    }

    fn is_shared(&self) -> bool {
        self.listeners.is_some()
    }

    fn committers(&self) -> usize {
        1
    }

    async fn commit(&self, batch: Vec<Append>) -> Result<Vec<Committed>, Error> {
        Ok(self.write(|tables, changes| batch.iter().map(|append| tables.commit(append, changes)).collect()))
    }

    async fn execution(&self, find: &Find) -> Result<Option<ExecutionRow>, Error> {
        Ok(self.tables().find(find).map(|execution| execution.row.clone()))
    }

    async fn execution_by_request(&self, id: &str, key: [u8; 16]) -> Result<Option<ExecutionRow>, Error> {
        let tables = self.tables();
        let asked = |row: &ExecutionRow| *row.id == *id && row.request.is_some_and(|request| request.key == key);
        Ok(tables.executions.values().rev().map(|execution| &execution.row).find(|row| asked(row)).cloned())
    }

    async fn load(&self, key: ExecutionKey) -> Result<Option<Loaded>, Error> {
        Ok(self.tables().existing(key).map(tables::Execution::load))
    }

    async fn load_tail(&self, key: ExecutionKey, after_number: u64) -> Result<Option<Loaded>, Error> {
        Ok(self.tables().existing(key).map(|execution| execution.load_tail(after_number)))
    }

    async fn newest_numbers(&self, keys: &[ExecutionKey]) -> Result<Vec<Option<u64>>, Error> {
        let tables = self.tables();
        Ok(keys.iter().map(|key| tables.existing(*key).map(tables::Execution::newest_number)).collect())
    }

    async fn history(
        &self,
        key: ExecutionKey,
        after_number: u64,
        rows_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<HistoryRow>, Error> {
        let tables = self.tables();
        Ok(tables
            .existing(key)
            .map(|execution| execution.history(after_number, rows_max, bytes_max))
            .unwrap_or_default())
    }

    async fn payloads(&self, key: ExecutionKey, digests: &[[u8; 32]]) -> Result<Vec<LargePayload>, Error> {
        let tables = self.tables();
        let mut found = tables.executions.get(&key).map(|execution| execution.payloads(0)).unwrap_or_default();
        found.retain(|payload| digests.contains(&payload.sha256));
        Ok(found)
    }

    async fn list(&self, filter: &ListFilter, after: Option<ListCursor>, limit: usize) -> Result<ListPage, Error> {
        Ok(self.tables().list(filter, after, limit))
    }

    async fn count(&self) -> Result<BTreeMap<ExecutionState, u64>, Error> {
        let counters = self.tables().counters.clone();
        Ok(counters.into_iter().filter(|(_, count)| *count > 0).collect())
    }

    async fn due(&self, until: Timestamp, limit: usize) -> Result<Vec<(ExecutionKey, Timestamp)>, Error> {
        Ok(self.tables().due(until, limit))
    }

    async fn still_due(&self, keys: &[ExecutionKey], now: Timestamp) -> Result<Vec<ExecutionKey>, Error> {
        let tables = self.tables();
        let is_due = |key: &ExecutionKey| {
            let row = tables.executions.get(key).map(|execution| &execution.row);
            row.is_some_and(|row| row.quarantined.is_none() && row.wake_time.is_some_and(|time| time <= now))
        };
        Ok(keys.iter().copied().filter(is_due).collect())
    }

    async fn waiting_pools(&self, pools: &[Pool]) -> Result<Vec<Pool>, Error> {
        let tables = self.tables();
        Ok(pools.iter().filter(|pool| !tables.ready(pool, 1).is_empty()).cloned().collect())
    }

    async fn ready(&self, pool: &Pool, limit: usize) -> Result<Vec<ReadyRow>, Error> {
        Ok(self.tables().ready(pool, limit))
    }

    async fn quarantine(&self, key: ExecutionKey, why: &str) -> Result<(), Error> {
        self.write(|tables, changes| tables.quarantine(key, why, changes));
        Ok(())
    }

    async fn put_definitions(&self, rows: &[DefinitionRow]) -> Result<Vec<DefinitionStored>, Error> {
        Ok(self.write(|tables, changes| tables.put_definitions(rows, changes)))
    }

    async fn definition(&self, find: &FindDefinition) -> Result<Option<DefinitionRow>, Error> {
        Ok(self.tables().definition(find))
    }

    async fn definitions(
        &self,
        name: Option<&str>,
        after: Option<(&str, &[u8])>,
        limit: usize,
    ) -> Result<Vec<DefinitionRow>, Error> {
        Ok(self.tables().definitions(name, after, limit))
    }

    async fn contract_versions(&self, task_name: &str) -> Result<Vec<String>, Error> {
        Ok(self.tables().contract_versions(task_name))
    }

    async fn put_session(&self, row: &SessionRow) -> Result<(), Error> {
        self.write(|tables, changes| tables.put_session(row, changes));
        Ok(())
    }

    async fn resume_session(&self, row: &SessionRow) -> Result<Option<SessionRow>, Error> {
        Ok(self.write(|tables, changes| tables.resume_session(row, changes)))
    }

    async fn session(&self, id: SessionId) -> Result<Option<SessionRow>, Error> {
        Ok(self.tables().sessions.get(&id).cloned())
    }

    async fn sessions(&self, after: Option<SessionId>, limit: usize) -> Result<Vec<SessionRow>, Error> {
        let tables = self.tables();
        Ok(tables
            .sessions
            .values()
            .filter(|row| after.is_none_or(|after| row.id > after))
            .take(limit)
            .cloned()
            .collect())
    }

    async fn end_session(&self, id: SessionId, contact_time: Option<Timestamp>) -> Result<bool, Error> {
        Ok(self.write(|tables, changes| tables.end_session(id, contact_time, changes)))
    }

    async fn presence(&self, presence: &Presence) -> Result<Vec<NodeRow>, Error> {
        Ok(self.write(|tables, changes| tables.presence(presence, changes)))
    }

    async fn publish(&self, hints: &Hints) -> Result<(), Error> {
        if let Some(listeners) = &self.listeners {
            let mut listeners = listeners.lock().unwrap_or_else(PoisonError::into_inner);
            listeners.retain(|listener| !listener.heard.is_closed());
            for listener in listeners.iter().filter(|listener| listener.node != self.node) {
                // One that is behind finds the rest by its scans.
                let _ = listener.heard.try_send(Heard::Hints(hints.clone()));
            }
        }
        Ok(())
    }

    fn listen(&self) -> mpsc::Receiver<Heard> {
        let (heard, receiver) = mpsc::channel(HINTS_BEHIND_MAX);
        if let Some(listeners) = &self.listeners {
            let listener = Listener { node: self.node, heard };
            listeners.lock().unwrap_or_else(PoisonError::into_inner).push(listener);
        }
        receiver
    }

    async fn held_by_session(&self, id: SessionId, limit: usize) -> Result<Vec<HeldRow>, Error> {
        Ok(self.tables().held.values().filter(|row| row.session == id).take(limit).cloned().collect())
    }

    async fn held_by_execution(&self, key: ExecutionKey) -> Result<Vec<HeldRow>, Error> {
        Ok(self.tables().held.values().filter(|row| row.execution == key).cloned().collect())
    }

    async fn held_without_session(&self, limit: usize) -> Result<Vec<HeldRow>, Error> {
        Ok(self.tables().held_without_session(limit))
    }

    async fn held_overdue(&self, now: Timestamp, timeout: Duration, limit: usize) -> Result<Vec<HeldRow>, Error> {
        Ok(self.tables().held_overdue(now, timeout, limit))
    }

    async fn delete_held(&self, rows: &[(ExecutionKey, Arc<str>, u32)]) -> Result<(), Error> {
        self.write(|tables, changes| tables.delete_held(rows, changes));
        Ok(())
    }

    async fn closed_before(
        &self,
        before: Timestamp,
        after: Option<(Timestamp, ExecutionKey)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, ExecutionKey)>, Error> {
        Ok(self.tables().closed_before(before, after, limit))
    }

    async fn deleted(&self, after: Option<(Timestamp, ExecutionKey)>, limit: usize) -> Result<Vec<DeletedRow>, Error> {
        Ok(self.tables().deleted(after, limit))
    }

    async fn delete_rows(&self, executions: &[(ExecutionKey, bool)], limit: usize) -> Result<Vec<bool>, Error> {
        Ok(self.write(|tables, changes| tables.delete_rows(executions, limit, changes)))
    }

    async fn runs_begun_before(
        &self,
        before: Timestamp,
        after: Option<RunRow>,
        limit: usize,
    ) -> Result<Vec<RunRow>, Error> {
        Ok(self.tables().runs_begun_before(before, after, limit))
    }

    async fn raise_floor(&self, key: ExecutionKey, number: u64) -> Result<bool, Error> {
        Ok(self.write(|tables, changes| tables.raise_floor(key, number, changes)))
    }

    async fn delete_trimmed(&self, key: ExecutionKey, number: u64, limit: usize) -> Result<bool, Error> {
        Ok(self.write(|tables, changes| tables.delete_trimmed(key, number, limit, changes)))
    }

    async fn put_batch(&self, row: &BatchRow) -> Result<BatchRow, Error> {
        Ok(self.write(|tables, changes| tables.put_batch(row, changes)))
    }

    async fn batch(&self, id: Uuid) -> Result<Option<BatchRow>, Error> {
        Ok(self.tables().batches.get(&id).cloned())
    }

    async fn batches(&self, after: Option<BatchCursor>, limit: usize) -> Result<Vec<BatchRow>, Error> {
        Ok(self.tables().batches_after(after, limit))
    }

    async fn running_batches(&self, limit: usize) -> Result<Vec<BatchRow>, Error> {
        Ok(self.tables().running_batches(limit))
    }

    async fn advance_batch(&self, id: Uuid, progress: &BatchProgress) -> Result<bool, Error> {
        Ok(self.write(|tables, changes| tables.advance_batch(id, progress, changes)))
    }

    async fn cancel_batch(&self, id: Uuid, end_time: Timestamp) -> Result<Option<BatchRow>, Error> {
        Ok(self.write(|tables, changes| tables.cancel_batch(id, end_time, changes)))
    }

    async fn delete_batches(&self, ended_before: Timestamp, limit: usize) -> Result<u64, Error> {
        Ok(self.write(|tables, changes| tables.delete_batches(ended_before, limit, changes)))
    }

    async fn write_schedules(&self, writes: Vec<ScheduleWrite>) -> Result<Vec<ScheduleWritten>, Error> {
        Ok(self.write(|tables, changes| writes.iter().map(|write| tables.write_schedule(write, changes)).collect()))
    }

    async fn schedule(&self, find: &FindSchedule) -> Result<Option<ScheduleRow>, Error> {
        Ok(self.tables().schedule(find))
    }

    async fn schedules_of(&self, keys: &[ScheduleKey]) -> Result<Vec<ScheduleRow>, Error> {
        Ok(self.tables().schedules_of(keys))
    }

    async fn schedules(
        &self,
        filter: &ScheduleFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ScheduleRow>, Error> {
        Ok(self.tables().schedules(filter, after, limit))
    }

    async fn count_schedules(&self) -> Result<BTreeMap<ScheduleState, u64>, Error> {
        Ok(self.tables().count_schedules())
    }

    async fn schedules_due(
        &self,
        until: Timestamp,
        after: Option<(Timestamp, ScheduleKey)>,
        limit: usize,
    ) -> Result<Vec<(ScheduleKey, Timestamp)>, Error> {
        Ok(self.tables().schedules_due(until, after, limit))
    }

    async fn next_schedule_time(&self) -> Result<Option<Timestamp>, Error> {
        Ok(self.tables().next_schedule_time())
    }

    async fn schedule_request(&self, key: [u8; 16]) -> Result<Option<ScheduleRequest>, Error> {
        Ok(self.tables().schedule_request(key))
    }

    async fn remember_schedule_request(&self, request: RequestKey, time: Timestamp) -> Result<bool, Error> {
        Ok(self.write(|tables, changes| tables.remember_schedule_request(request, time, changes)))
    }

    async fn slots(
        &self,
        schedule: ScheduleKey,
        outcome: Option<SlotOutcome>,
        after: Option<SlotName>,
        limit: usize,
    ) -> Result<Vec<SlotRow>, Error> {
        Ok(self.tables().slots(schedule, outcome, after.as_ref(), limit))
    }

    async fn slot(&self, schedule: ScheduleKey, name: &SlotName) -> Result<Option<SlotRow>, Error> {
        Ok(self.tables().slot(schedule, name))
    }

    async fn open_runs(&self, schedules: &[Uuid], limit: usize) -> Result<Vec<Vec<ScheduleRun>>, Error> {
        Ok(self.tables().open_runs(schedules, limit))
    }

    async fn states_of(&self, uids: &[Uid]) -> Result<Vec<Option<ExecutionState>>, Error> {
        Ok(self.tables().states_of(uids))
    }

    async fn delete_slots(
        &self,
        decided_before: Timestamp,
        called_before: Timestamp,
        limit: usize,
    ) -> Result<u64, Error> {
        Ok(self.write(|tables, changes| tables.delete_slots(decided_before, called_before, limit, changes)))
    }

    async fn size(&self) -> Result<Size, Error> {
        Ok(Size::default())
    }

    async fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}
