//! Where domain meets store and clock: every change of an execution goes through here.
//!
//! A command waits in its execution's [mailbox], is decided in a [turn] with whatever else waits, becomes
//! one append in a [draft], and is committed with the appends of other executions by the [committer]. Where it comes to
//! no append, a [probe] asks whether another node knows better.
//! Units that became ready are handed to workers that wait in the same commit ([dispatch]). [Timers](timers)
//! and the [session loop](sessions) are callers like any other.
//!
//! - One write path: whoever wants a change, an RPC, a timer, a lost worker, puts a command into the mailbox.
//! - The database is the state; memory is a cache: nothing is loaded at start, and nothing here is needed after it.
//! - Every queue is bounded; a full one answers `Overloaded`.
//! - What changes state runs in a task of its own, so a call that is dropped leaves nothing half done.

mod admission;
mod batches;
mod cache;
pub mod call;
mod committer;
mod definitions;
mod deploy;
mod dispatch;
mod draft;
mod effects;
mod executions;
mod explain;
mod http;
mod lists;
mod load;
mod mailbox;
mod membership;
mod news;
mod probe;
mod rerun;
mod retention;
mod schedules;
mod sessions;
mod start;
mod timers;
mod turn;
mod workers;

pub use batches::{BatchFailure, NewBatch};
pub use call::{
    Error, ExecutionName, HeartbeatAnswer, HeldToken, IdReuse, Polled, Registered, Registration, Report,
    RerunExecution, Standing, StartExecution, Started, Task,
};
pub use deploy::Deployment;
pub use dispatch::Granter;
pub use explain::Explained;
pub use lists::filter_of;
pub use schedules::{BackfillSpan, Etag, NewSchedule, Patch, Progress, Run, Viewed};
pub use start::input_digest;
pub use workers::Outlet;

use crate::clock::{Clock, Entropy};
use crate::domain::{Event, EventKind, Settings, State};
use crate::store::{ExecutionKey, Store};
use dispatch::{Dispatch, Step};
use mailbox::Item;
use std::{sync::Arc, time::Duration};
use tokio::sync::{Notify, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

/// Newest kind of event that this version reads and writes.
pub(crate) const EVENT_LEVEL: u32 = EventKind::LEVEL;

/// Settings of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// What the rules depend on.
    pub settings: Settings,
    /// Bytes of states that are kept in memory, as estimated. Default 256 MiB. More makes more executions hot; fewer
    /// makes more of them be read again when something happens to them.
    pub cache_bytes_max: usize,
    /// Bytes of events since the last snapshot that are worth a new one, if they also outweigh it. Default 256 KiB. Less
    /// makes executions load faster and write more.
    pub snapshot_tail_bytes_min: usize,
    /// Pause before a failed background read is tried again. Default 1 s.
    pub retry_pause: Duration,
    /// How often pools that workers wait for are looked at although no hint came. Default 15 s. In a shared store,
    /// where others make units ready, it is once a second.
    pub rescan_interval: Duration,
    /// How long closed executions, and runs that ended, are kept, by the machine's clock. Default 30 days; zero keeps them for
    /// ever. Less makes the database smaller.
    pub retention: Duration,
    /// Executions that may be open when another one is started by a call; a start beyond them is refused. Default: no limit.
    pub active_executions_max: Option<u64>,
    /// How long the ledger of schedules is kept, by the machine's clock. Default 30 days; zero keeps it for ever.
    pub slot_retention: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            cache_bytes_max: 256 * 1024 * 1024,
            snapshot_tail_bytes_min: 256 * 1024,
            retry_pause: Duration::from_secs(1),
            rescan_interval: Duration::from_secs(15),
            retention: Duration::from_hours(30 * 24),
            active_executions_max: None,
            slot_retention: Duration::from_hours(30 * 24),
        }
    }
}

/// How often presence is written: once a second, or ten times the shortest session timeout where that is shorter.
fn presence_interval(session_timeout: Duration) -> Duration {
    (session_timeout / 10).clamp(Duration::from_millis(20), Duration::from_secs(1))
}

/// Everything that the engine's parts share.
struct Core {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    config: Config,
    node: Uuid,
    cache: cache::Cache,
    committer: committer::Committer,
    /// Compares what is in memory with the store, where other nodes write to it.
    probe: Option<probe::Probe>,
    dispatch: Arc<Dispatch>,
    timers: timers::Timers,
    effects: effects::Effects,
    sessions: sessions::Sessions,
    members: Arc<membership::Membership>,
    news: news::News,
    definitions: definitions::Definitions,
    admission: admission::Admission,
    event_counters: crate::telemetry::EventCounters,
    /// A batch was made here.
    batch_made: Notify,
    schedules: schedules::Schedules,
    http: http::Http,
    tasks: TaskTracker,
    /// Polls answer, streams end.
    draining: CancellationToken,
    /// Loops end.
    stop: CancellationToken,
}

/// A running engine. Clones share it.
#[derive(Clone)]
pub struct Engine {
    core: Arc<Core>,
}

impl Engine {
    /// Starts an engine on a store. Nothing is loaded.
    #[must_use]
    pub fn start(store: Arc<dyn Store>, clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>, config: Config) -> Self {
        let tasks = TaskTracker::new();
        let node = entropy.uuid();
        let members = Arc::new(membership::Membership::new(node, EVENT_LEVEL));
        let steadiness = sessions::Steadiness::new(
            presence_interval(config.settings.session_timeout),
            clock.monotonic(),
            clock.now(),
        );
        let (dispatch, returned) = Dispatch::new(members.clone());
        let core = Arc::new(Core {
            committer: committer::Committer::start(&store, &tasks),
            probe: probe::Probe::start(&store, &tasks),
            node,
            news: news::News::new(store.is_shared(), members.clone()),
            members,
            store,
            clock,
            entropy,
            config,
            cache: cache::Cache::new(config.cache_bytes_max),
            dispatch,
            timers: timers::Timers::default(),
            effects: effects::Effects::default(),
            sessions: sessions::Sessions::new(steadiness, config.settings.session_timeout),
            definitions: definitions::Definitions::default(),
            admission: admission::Admission::default(),
            event_counters: crate::telemetry::EventCounters::default(),
            batch_made: Notify::new(),
            schedules: schedules::Schedules::default(),
            http: http::Http::default(),
            tasks,
            draining: CancellationToken::new(),
            stop: CancellationToken::new(),
        });
        core.tasks.spawn(timers::run(core.clone()));
        sessions::start(&core);
        core.tasks.spawn(match_workers(core.clone()));
        news::start(&core);
        core.tasks.spawn(take_back(core.clone(), returned));
        core.tasks.spawn(retention::run(core.clone()));
        core.tasks.spawn(batches::run(core.clone()));
        core.tasks.spawn(schedules::run(core.clone()));
        if core.probe.is_some() {
            core.tasks.spawn(probe::run(core.clone()));
        }
        Self { core }
    }

    /// The store, for reads that need no rules: counts, definitions, sessions, size.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.core.store
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.core.clock
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.core.config
    }

    /// This node's id, new at each start.
    #[must_use]
    pub fn node(&self) -> Uuid {
        self.core.node
    }

    /// The nodes of this store that live with the newest kind of event that each reads, by id; this one among them.
    #[must_use]
    pub fn nodes(&self) -> Vec<(Uuid, u32)> {
        self.core.members.nodes()
    }

    /// Whether the engine drains.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.core.draining.is_cancelled()
    }

    /// Begins to drain: parked polls answer empty, streams and watches end, waits return. Reports are still taken.
    pub fn drain(&self) {
        self.core.draining.cancel();
    }

    /// Drains and stops: what was begun is committed and answered, loops end. The store stays open.
    pub async fn shutdown(self) {
        self.drain();
        self.core.stop.cancel();
        self.core.tasks.close();
        // These end with the core, which this task still holds; they have nothing to do once all others have ended.
        let servants = self.core.committer.lanes() + usize::from(self.core.probe.is_some());
        while self.core.tasks.len() > servants {
            crate::clock::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Sizes of what is in memory, for metrics.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        let (mailboxes, cache_bytes) = self.core.cache.sizes();
        let (waiters, ready_rows) = self.core.dispatch.sizes();
        let (timers, sessions, effects) = (self.core.timers.len(), self.core.sessions.len(), self.core.effects.len());
        Sizes { mailboxes, cache_bytes, waiters, ready_rows, timers, sessions, effects }
    }

    /// Runs something that changes state to its end, also if the caller goes away.
    async fn detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        // In a box: a task's future is moved several times until it stands where it is polled, and this one has kilobytes.
        self.core.tasks.spawn(Box::pin(work)).await.unwrap_or(Err(Error::Internal))
    }
}

/// Sizes of what an engine keeps in memory.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Executions with a mailbox.
    pub mailboxes: usize,
    /// Bytes of cached states, as estimated.
    pub cache_bytes: usize,
    /// Polls and streams that wait.
    pub waiters: usize,
    /// Waiting units that are known.
    pub ready_rows: usize,
    /// Timers in the wheel.
    pub timers: usize,
    /// Sessions that were heard of.
    pub sessions: usize,
    /// Effects that wait or are under way.
    pub effects: usize,
}

impl Core {
    /// Puts an item into a mailbox and sees to it that it is worked off; says whether there was room.
    fn put(self: &Arc<Self>, key: ExecutionKey, item: Item) -> bool {
        match self.cache.put(key, item) {
            Ok(Some(mailbox)) => {
                self.begin_turns(mailbox);
                true
            }
            Ok(None) => true,
            Err(item) => {
                if let Item::Hand { pool, unit, .. } = *item {
                    self.dispatch.settled(&pool, key, &unit, false);
                }
                false
            }
        }
    }

    /// Works off a mailbox that the caller has taken.
    fn begin_turns(self: &Arc<Self>, mailbox: Arc<mailbox::Mailbox>) {
        // In a box, since it has kilobytes and would be moved several times.
        self.tasks.spawn(Box::pin(turn::run(self.clone(), mailbox)));
    }

    /// A background duty did its work without a failure.
    fn duty_done(&self, duty: &'static str) {
        crate::telemetry::duty_done(duty, self.clock.wall().as_micros());
    }

    /// Tells of a run that comes near the longest history with the events that were added.
    fn watch_length(&self, state: &State, added: usize) {
        let warning = self.config.settings.history_events_max / 5 * 4;
        let length = state.history_events();
        if length >= warning && length - (added as u64).min(length) < warning {
            metrics::counter!(crate::telemetry::HISTORIES_LONG).increment(1);
            tracing::warn!(execution = %state.uid(), id = %state.id(), events = length, "a history becomes too long");
        }
    }

    /// Counts events by kind.
    fn metrics_of(&self, events: &[Event]) {
        for event in events {
            self.event_counters.count(crate::wire::event::kind_name(&event.kind));
        }
    }
}

/// Brings waiting units that are in the store to workers that wait.
async fn match_workers(core: Arc<Core>) {
    let mut next_rescan = core.clock.monotonic() + core.config.rescan_interval;
    while !core.stop.is_cancelled() {
        match core.dispatch.step() {
            Step::Load { pool, limit } => match core.store.ready(&pool, limit).await {
                Ok(rows) => core.dispatch.loaded(&pool, limit, Some(&rows)),
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "looking for waiting tasks failed");
                    crate::clock::sleep(core.config.retry_pause).await;
                    core.dispatch.loaded(&pool, limit, None);
                }
            },
            Step::Hand { pool, execution, unit, reservation } => {
                core.put(execution, Item::Hand { pool, unit, reservation: Some(reservation) });
            }
            Step::Rest => {
                let rest = next_rescan.saturating_sub(core.clock.monotonic());
                tokio::select! {
                    biased;
                    () = core.stop.cancelled() => return,
                    () = core.dispatch.changed() => {}
                    () = crate::clock::sleep(rest), if !core.store.is_shared() => {
                        core.dispatch.rescan();
                        next_rescan = core.clock.monotonic() + core.config.rescan_interval;
                    }
                }
            }
        }
    }
}

/// Takes back tasks that nobody took.
async fn take_back(core: Arc<Core>, mut returned: mpsc::UnboundedReceiver<Task>) {
    loop {
        tokio::select! {
            biased;
            task = returned.recv() => match task {
                Some(task) => core.return_unsent(task),
                None => return,
            },
            () = core.stop.cancelled() => return,
        }
    }
}
