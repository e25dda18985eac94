//! Test support: a store that fails when a plan says so.
//!
//! A simulation wraps the store of each life of its engine; the plan sees every call before it is made and decides its
//! fate, from a seed that the caller owns. Not used by the server.

use super::{
    Append, BatchCursor, BatchProgress, BatchRow, Committed, DefinitionRow, DefinitionStored, DeletedRow, Error,
    ExecutionKey, ExecutionRow, ExecutionState, Find, FindDefinition, FindSchedule, Heard, HeldRow, Hints, HistoryRow,
    LargePayload, ListCursor, ListFilter, ListPage, Loaded, NodeRow, Opened, Pool, Presence, ReadyRow, RunRow,
    ScheduleFilter, ScheduleKey, ScheduleRequest, ScheduleRow, ScheduleRun, ScheduleState, ScheduleWrite,
    ScheduleWritten, SessionRow, Size, SlotName, SlotOutcome, SlotRow, Store,
};
use crate::domain::{RequestKey, SessionId, Timestamp, Uid};
use async_trait::async_trait;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::mpsc;
use uuid::Uuid;

/// A call that is about to be made.
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    /// [`Store::commit`] of this batch.
    Commit(&'a [Append]),
    /// Another method that writes, by its name.
    Write(&'static str),
    /// A method that reads, by its name.
    Read(&'static str),
}

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It works.
    Works,
    /// It fails with [`Error::Unavailable`] and changes nothing.
    FailsBefore,
    /// It does its work and fails all the same: a lost COMMIT.
    FailsAfter,
    /// It works, and takes this long in tokio's time (half before the work and half after it).
    Takes(Duration),
    /// It fails with [`Error::Unavailable`] and changes nothing, after so long in tokio's time: a store that is silent.
    FailsLate(Duration),
    /// It does its work and never answers: what a process that is killed then would see.
    Hangs,
}

/// Decides what becomes of each call.
pub type Plan = Box<dyn FnMut(Call<'_>) -> Fate + Send>;

/// Decides what becomes of news from other nodes: one that [`Fate::FailsBefore`] or [`Fate::FailsLate`] is lost, one
/// that [`Fate::FailsAfter`] comes twice, one that [`Fate::Takes`] long comes late, with those behind it; with
/// [`Fate::Hangs`] the connection dies in silence, and nothing comes any more.
pub type HearPlan = Box<dyn FnMut(&Heard) -> Fate + Send>;

/// Is told what each append of a commit came to.
pub type Watcher = Box<dyn FnMut(&Append, &Committed) + Send>;

/// Gives what is kept for as long as a call is under way.
pub type Hold = Box<dyn Fn() -> Box<dyn Send> + Send + Sync>;

/// News that may wait between the store and who listens; as many more wait in the store itself.
const HEARD_LENGTH: usize = 16;

/// A store whose calls meet the fate that a plan gives them.
pub struct Faulty {
    inner: Arc<dyn Store>,
    plan: Mutex<Plan>,
    hear_plan: Mutex<Option<HearPlan>>,
    watcher: Mutex<Option<Watcher>>,
    hold: Option<Hold>,
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Faulty({})", self.inner.kind())
    }
}

impl Faulty {
    /// Wraps a store.
    pub fn new(inner: Arc<dyn Store>, plan: impl FnMut(Call<'_>) -> Fate + Send + 'static) -> Self {
        Self {
            inner,
            plan: Mutex::new(Box::new(plan)),
            hear_plan: Mutex::default(),
            watcher: Mutex::default(),
            hold: None,
        }
    }

    /// Keeps what `hold` gives for as long as a call is under way: whoever has paused tokio's time lets it stand still
    /// meanwhile, since a real database answers in real time.
    #[must_use]
    pub fn holding(self, hold: impl Fn() -> Box<dyn Send> + Send + Sync + 'static) -> Self {
        Self { hold: Some(Box::new(hold)), ..self }
    }

    /// Gives news from other nodes a fate, too.
    #[must_use]
    pub fn hearing(self, plan: impl FnMut(&Heard) -> Fate + Send + 'static) -> Self {
        Self { hear_plan: Mutex::new(Some(Box::new(plan))), ..self }
    }

    /// Tells what each append of a commit came to, also where nobody else will hear of it.
    #[must_use]
    pub fn watched(self, watcher: impl FnMut(&Append, &Committed) + Send + 'static) -> Self {
        Self { watcher: Mutex::new(Some(Box::new(watcher))), ..self }
    }

    fn fate(&self, call: Call<'_>) -> Fate {
        (self.plan.lock().unwrap_or_else(PoisonError::into_inner))(call)
    }

    async fn meet<T>(&self, fate: Fate, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let _held = self.hold.as_ref().map(|hold| hold());
        match fate {
            Fate::Works => work.await,
            Fate::FailsBefore => Err(injected("before the work")),
            Fate::FailsAfter => {
                work.await?;
                Err(injected("after the work"))
            }
            Fate::Takes(time) => {
                pass(time / 2).await;
                let answer = work.await;
                pass(time / 2).await;
                answer
            }
            Fate::FailsLate(time) => {
                pass(time).await;
                Err(injected("in silence"))
            }
            Fate::Hangs => {
                let _ = work.await;
                std::future::pending().await
            }
        }
    }

    async fn read<T>(&self, method: &'static str, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.meet(self.fate(Call::Read(method)), work).await
    }

    async fn write<T>(&self, method: &'static str, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.meet(self.fate(Call::Write(method)), work).await
    }
}

/// Lets tokio's time pass, which a simulation pauses and moves.
async fn pass(time: Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

/// Passes on what is heard, as far as its fate allows, until nobody listens.
async fn pass_on(mut heard: mpsc::Receiver<Heard>, mut plan: HearPlan, sender: mpsc::Sender<Heard>) {
    while let Some(news) = heard.recv().await {
        let copies = match plan(&news) {
            Fate::Works => 1,
            Fate::FailsBefore | Fate::FailsLate(_) => 0,
            Fate::FailsAfter => 2,
            Fate::Takes(time) => {
                pass(time).await;
                1
            }
            // Whoever listens hears no end either.
            Fate::Hangs => return sender.closed().await,
        };
        for _ in 0..copies {
            if sender.send(news.clone()).await.is_err() {
                return;
            }
        }
    }
}

fn injected(when: &str) -> Error {
    Error::Unavailable(Arc::from(Box::<dyn std::error::Error + Send + Sync>::from(format!("injected fault {when}"))))
}

#[async_trait]
impl Store for Faulty {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn opened(&self) -> Opened {
        self.inner.opened()
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    fn committers(&self) -> usize {
        self.inner.committers()
    }

    async fn commit(&self, batch: Vec<Append>) -> Result<Vec<Committed>, Error> {
        let fate = self.fate(Call::Commit(&batch));
        let work = async {
            let appends = batch.clone();
            let committed = self.inner.commit(batch).await?;
            if let Some(watcher) = &mut *self.watcher.lock().unwrap_or_else(PoisonError::into_inner) {
                appends.iter().zip(&committed).for_each(|(append, committed)| watcher(append, committed));
            }
            Ok(committed)
        };
        self.meet(fate, work).await
    }

    async fn execution(&self, find: &Find) -> Result<Option<ExecutionRow>, Error> {
        self.read("execution", self.inner.execution(find)).await
    }

    async fn execution_by_request(&self, id: &str, key: [u8; 16]) -> Result<Option<ExecutionRow>, Error> {
        self.read("execution_by_request", self.inner.execution_by_request(id, key)).await
    }

    async fn load(&self, key: ExecutionKey) -> Result<Option<Loaded>, Error> {
        self.read("load", self.inner.load(key)).await
    }

    async fn load_tail(&self, key: ExecutionKey, after_number: u64) -> Result<Option<Loaded>, Error> {
        self.read("load_tail", self.inner.load_tail(key, after_number)).await
    }

    async fn newest_numbers(&self, keys: &[ExecutionKey]) -> Result<Vec<Option<u64>>, Error> {
        self.read("newest_numbers", self.inner.newest_numbers(keys)).await
    }

    async fn history(
        &self,
        key: ExecutionKey,
        after_number: u64,
        rows_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<HistoryRow>, Error> {
        self.read("history", self.inner.history(key, after_number, rows_max, bytes_max)).await
    }

    async fn payloads(&self, key: ExecutionKey, digests: &[[u8; 32]]) -> Result<Vec<LargePayload>, Error> {
        self.read("payloads", self.inner.payloads(key, digests)).await
    }

    async fn list(&self, filter: &ListFilter, after: Option<ListCursor>, limit: usize) -> Result<ListPage, Error> {
        self.read("list", self.inner.list(filter, after, limit)).await
    }

    async fn count(&self) -> Result<BTreeMap<ExecutionState, u64>, Error> {
        self.read("count", self.inner.count()).await
    }

    async fn due(&self, until: Timestamp, limit: usize) -> Result<Vec<(ExecutionKey, Timestamp)>, Error> {
        self.read("due", self.inner.due(until, limit)).await
    }

    async fn still_due(&self, keys: &[ExecutionKey], now: Timestamp) -> Result<Vec<ExecutionKey>, Error> {
        self.read("still_due", self.inner.still_due(keys, now)).await
    }

    async fn waiting_pools(&self, pools: &[Pool]) -> Result<Vec<Pool>, Error> {
        self.read("waiting_pools", self.inner.waiting_pools(pools)).await
    }

    async fn ready(&self, pool: &Pool, limit: usize) -> Result<Vec<ReadyRow>, Error> {
        self.read("ready", self.inner.ready(pool, limit)).await
    }

    async fn quarantine(&self, key: ExecutionKey, why: &str) -> Result<(), Error> {
        self.write("quarantine", self.inner.quarantine(key, why)).await
    }

    async fn put_definitions(&self, rows: &[DefinitionRow]) -> Result<Vec<DefinitionStored>, Error> {
        self.write("put_definitions", self.inner.put_definitions(rows)).await
    }

    async fn definition(&self, find: &FindDefinition) -> Result<Option<DefinitionRow>, Error> {
        self.read("definition", self.inner.definition(find)).await
    }

    async fn definitions(
        &self,
        name: Option<&str>,
        after: Option<(&str, &[u8])>,
        limit: usize,
    ) -> Result<Vec<DefinitionRow>, Error> {
        self.read("definitions", self.inner.definitions(name, after, limit)).await
    }

    async fn contract_versions(&self, task_name: &str) -> Result<Vec<String>, Error> {
        self.read("contract_versions", self.inner.contract_versions(task_name)).await
    }

    async fn put_session(&self, row: &SessionRow) -> Result<(), Error> {
        self.write("put_session", self.inner.put_session(row)).await
    }

    async fn resume_session(&self, row: &SessionRow) -> Result<Option<SessionRow>, Error> {
        self.write("resume_session", self.inner.resume_session(row)).await
    }

    async fn session(&self, id: SessionId) -> Result<Option<SessionRow>, Error> {
        self.read("session", self.inner.session(id)).await
    }

    async fn sessions(&self, after: Option<SessionId>, limit: usize) -> Result<Vec<SessionRow>, Error> {
        self.read("sessions", self.inner.sessions(after, limit)).await
    }

    async fn end_session(&self, id: SessionId, contact_time: Option<Timestamp>) -> Result<bool, Error> {
        self.write("end_session", self.inner.end_session(id, contact_time)).await
    }

    async fn presence(&self, presence: &Presence) -> Result<Vec<NodeRow>, Error> {
        self.write("presence", self.inner.presence(presence)).await
    }

    async fn publish(&self, hints: &Hints) -> Result<(), Error> {
        self.write("publish", self.inner.publish(hints)).await
    }

    fn listen(&self) -> mpsc::Receiver<Heard> {
        let heard = self.inner.listen();
        match self.hear_plan.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(plan) => {
                let (sender, receiver) = mpsc::channel(HEARD_LENGTH);
                tokio::spawn(pass_on(heard, plan, sender));
                receiver
            }
            None => heard,
        }
    }

    async fn held_by_session(&self, id: SessionId, limit: usize) -> Result<Vec<HeldRow>, Error> {
        self.read("held_by_session", self.inner.held_by_session(id, limit)).await
    }

    async fn held_by_execution(&self, key: ExecutionKey) -> Result<Vec<HeldRow>, Error> {
        self.read("held_by_execution", self.inner.held_by_execution(key)).await
    }

    async fn held_without_session(&self, limit: usize) -> Result<Vec<HeldRow>, Error> {
        self.read("held_without_session", self.inner.held_without_session(limit)).await
    }

    async fn held_overdue(&self, now: Timestamp, timeout: Duration, limit: usize) -> Result<Vec<HeldRow>, Error> {
        self.read("held_overdue", self.inner.held_overdue(now, timeout, limit)).await
    }

    async fn delete_held(&self, rows: &[(ExecutionKey, Arc<str>, u32)]) -> Result<(), Error> {
        self.write("delete_held", self.inner.delete_held(rows)).await
    }

    async fn closed_before(
        &self,
        before: Timestamp,
        after: Option<(Timestamp, ExecutionKey)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, ExecutionKey)>, Error> {
        self.read("closed_before", self.inner.closed_before(before, after, limit)).await
    }

    async fn deleted(&self, after: Option<(Timestamp, ExecutionKey)>, limit: usize) -> Result<Vec<DeletedRow>, Error> {
        self.read("deleted", self.inner.deleted(after, limit)).await
    }

    async fn delete_rows(&self, executions: &[(ExecutionKey, bool)], limit: usize) -> Result<Vec<bool>, Error> {
        self.write("delete_rows", self.inner.delete_rows(executions, limit)).await
    }

    async fn runs_begun_before(
        &self,
        before: Timestamp,
        after: Option<RunRow>,
        limit: usize,
    ) -> Result<Vec<RunRow>, Error> {
        self.read("runs_begun_before", self.inner.runs_begun_before(before, after, limit)).await
    }

    async fn raise_floor(&self, key: ExecutionKey, number: u64) -> Result<bool, Error> {
        self.write("raise_floor", self.inner.raise_floor(key, number)).await
    }

    async fn delete_trimmed(&self, key: ExecutionKey, number: u64, limit: usize) -> Result<bool, Error> {
        self.write("delete_trimmed", self.inner.delete_trimmed(key, number, limit)).await
    }

    async fn put_batch(&self, row: &BatchRow) -> Result<BatchRow, Error> {
        self.write("put_batch", self.inner.put_batch(row)).await
    }

    async fn batch(&self, id: Uuid) -> Result<Option<BatchRow>, Error> {
        self.read("batch", self.inner.batch(id)).await
    }

    async fn batches(&self, after: Option<BatchCursor>, limit: usize) -> Result<Vec<BatchRow>, Error> {
        self.read("batches", self.inner.batches(after, limit)).await
    }

    async fn running_batches(&self, limit: usize) -> Result<Vec<BatchRow>, Error> {
        self.read("running_batches", self.inner.running_batches(limit)).await
    }

    async fn advance_batch(&self, id: Uuid, progress: &BatchProgress) -> Result<bool, Error> {
        self.write("advance_batch", self.inner.advance_batch(id, progress)).await
    }

    async fn cancel_batch(&self, id: Uuid, end_time: Timestamp) -> Result<Option<BatchRow>, Error> {
        self.write("cancel_batch", self.inner.cancel_batch(id, end_time)).await
    }

    async fn delete_batches(&self, ended_before: Timestamp, limit: usize) -> Result<u64, Error> {
        self.write("delete_batches", self.inner.delete_batches(ended_before, limit)).await
    }

    async fn write_schedules(&self, writes: Vec<ScheduleWrite>) -> Result<Vec<ScheduleWritten>, Error> {
        let starts: Vec<Vec<Append>> = writes.iter().map(|write| write.starts.clone()).collect();
        let work = async {
            let written = self.inner.write_schedules(writes).await?;
            let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(watcher) = watcher.as_mut() {
                for (starts, outcome) in starts.iter().zip(&written) {
                    let ScheduleWritten::Written(_, keys) = outcome else { continue };
                    for (start, key) in starts.iter().zip(keys) {
                        watcher(start, &Committed::Written(*key));
                    }
                }
            }
            drop(watcher);
            Ok(written)
        };
        self.write("write_schedules", work).await
    }

    async fn schedule(&self, find: &FindSchedule) -> Result<Option<ScheduleRow>, Error> {
        self.read("schedule", self.inner.schedule(find)).await
    }

    async fn schedules_of(&self, keys: &[ScheduleKey]) -> Result<Vec<ScheduleRow>, Error> {
        self.read("schedules_of", self.inner.schedules_of(keys)).await
    }

    async fn schedules(
        &self,
        filter: &ScheduleFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ScheduleRow>, Error> {
        self.read("schedules", self.inner.schedules(filter, after, limit)).await
    }

    async fn count_schedules(&self) -> Result<BTreeMap<ScheduleState, u64>, Error> {
        self.read("count_schedules", self.inner.count_schedules()).await
    }

    async fn schedules_due(
        &self,
        until: Timestamp,
        after: Option<(Timestamp, ScheduleKey)>,
        limit: usize,
    ) -> Result<Vec<(ScheduleKey, Timestamp)>, Error> {
        self.read("schedules_due", self.inner.schedules_due(until, after, limit)).await
    }

    async fn next_schedule_time(&self) -> Result<Option<Timestamp>, Error> {
        self.read("next_schedule_time", self.inner.next_schedule_time()).await
    }

    async fn schedule_request(&self, key: [u8; 16]) -> Result<Option<ScheduleRequest>, Error> {
        self.read("schedule_request", self.inner.schedule_request(key)).await
    }

    async fn remember_schedule_request(&self, request: RequestKey, time: Timestamp) -> Result<bool, Error> {
        self.write("remember_schedule_request", self.inner.remember_schedule_request(request, time)).await
    }

    async fn slots(
        &self,
        schedule: ScheduleKey,
        outcome: Option<SlotOutcome>,
        after: Option<SlotName>,
        limit: usize,
    ) -> Result<Vec<SlotRow>, Error> {
        self.read("slots", self.inner.slots(schedule, outcome, after, limit)).await
    }

    async fn slot(&self, schedule: ScheduleKey, name: &SlotName) -> Result<Option<SlotRow>, Error> {
        self.read("slot", self.inner.slot(schedule, name)).await
    }

    async fn open_runs(&self, schedules: &[Uuid], limit: usize) -> Result<Vec<Vec<ScheduleRun>>, Error> {
        self.read("open_runs", self.inner.open_runs(schedules, limit)).await
    }

    async fn states_of(&self, uids: &[Uid]) -> Result<Vec<Option<ExecutionState>>, Error> {
        self.read("states_of", self.inner.states_of(uids)).await
    }

    async fn delete_slots(
        &self,
        decided_before: Timestamp,
        called_before: Timestamp,
        limit: usize,
    ) -> Result<u64, Error> {
        self.write("delete_slots", self.inner.delete_slots(decided_before, called_before, limit)).await
    }

    async fn size(&self) -> Result<Size, Error> {
        self.inner.size().await
    }

    async fn close(&self) -> Result<(), Error> {
        self.inner.close().await
    }
}
