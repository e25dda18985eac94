//! Wakes executions when something of theirs is due.
//!
//! Hot timers, those of the next ten seconds, sit in a bounded wheel; the index of `wake_time` finds the rest. A timer
//! that is lost here is found by the next scan; one that is stale finds nothing due and writes nothing.
//!
//! Where several nodes share the store:
//!
//! - A node keeps the timers of its own commits, whoever owns the execution; of what a scan finds it keeps its own
//!   executions'. Those may have been served by whoever committed them: they are confirmed, many at once, before
//!   anything is loaded for them.
//! - What nobody has served a second after it was due is taken by whoever comes next in the execution's order of nodes,
//!   and a second later by everybody: so a dead node's timers are late by about two seconds at most.

use super::{Core, mailbox::Item, membership::Live};
use crate::domain::Timestamp;
use crate::store::ExecutionKey;
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{Notify, Semaphore};

/// How far ahead the wheel looks.
const HORIZON: Duration = Duration::from_secs(10);
/// Timers in the wheel; what has no room is found by a scan.
const WHEEL_LENGTH: usize = 100_000;
/// Rows of one scan.
const SCAN_LENGTH: usize = 1_000;
/// Rows by which a scan is longer at most, where other nodes' rows stand before this one's.
const SCAN_GROWTH_MAX: usize = 9_000;
/// Pause after a scan that did not find the end.
const FULL_SCAN_PAUSE: Duration = Duration::from_millis(200);
/// Wake-ups that may be under way at once, so that a thousand sleepers that end together do not crowd out the rest.
const WAKES_MAX: usize = 256;
/// Timers that are confirmed at once.
const CONFIRM_LENGTH: usize = 256;
/// How much later than its time a timer is confirmed that another node may have committed, and then fires itself.
const HEAD_START: Duration = Duration::from_millis(100);
/// How often timers are looked for that nobody has served, and from when on they count as such.
const RESCUE_INTERVAL: Duration = Duration::from_secs(1);

/// Timers in order; one of each execution.
#[derive(Default)]
struct Wheel {
    /// By when they fire.
    order: BTreeSet<(Timestamp, ExecutionKey)>,
    by_key: HashMap<ExecutionKey, Timer>,
}

#[derive(Clone, Copy)]
struct Timer {
    /// When it fires here.
    fire: Timestamp,
    /// When it is due.
    due: Timestamp,
}

impl Wheel {
    fn insert(&mut self, key: ExecutionKey, timer: Timer) {
        self.remove(key);
        self.order.insert((timer.fire, key));
        self.by_key.insert(key, timer);
    }

    fn remove(&mut self, key: ExecutionKey) -> Option<Timer> {
        let timer = self.by_key.remove(&key)?;
        self.order.remove(&(timer.fire, key));
        Some(timer)
    }

    fn take_due(&mut self, now: Timestamp) -> Option<(ExecutionKey, Timer)> {
        let (_, key) = self.order.first().copied().filter(|(fire, _)| *fire <= now)?;
        Some((key, self.remove(key).expect("what is ordered is there")))
    }

    fn next(&self) -> Option<Timestamp> {
        self.order.first().map(|(fire, _)| *fire)
    }
}

#[derive(Default)]
struct Wheels {
    /// Of this node's commits, or of a store that only this node writes.
    own: Wheel,
    /// Found in a shared store: to be confirmed.
    found: Wheel,
    /// Until here none is confirmed, since the store did not answer.
    confirm_from: Timestamp,
    /// What is noted as due until here is put into the wheel; the rest is found by a scan.
    known_until: Timestamp,
}

impl Wheels {
    fn len(&self) -> usize {
        self.own.by_key.len() + self.found.by_key.len()
    }

    /// When an execution's timer is due, if one is known.
    fn due(&self, key: ExecutionKey) -> Option<Timestamp> {
        self.own.by_key.get(&key).or_else(|| self.found.by_key.get(&key)).map(|timer| timer.due)
    }

    fn has(&self, key: ExecutionKey) -> bool {
        self.due(key).is_some()
    }
}

/// The timers of this node.
#[derive(Default)]
pub(super) struct Timers {
    wheels: Mutex<Wheels>,
    changed: Notify,
}

impl Timers {
    fn lock(&self) -> MutexGuard<'_, Wheels> {
        self.wheels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An execution's wake-up time is now this.
    pub(super) fn note(&self, key: ExecutionKey, wake_time: Option<Timestamp>) {
        let mut wheels = self.lock();
        wheels.own.remove(key);
        wheels.found.remove(key);
        let Some(time) = wake_time.filter(|time| *time <= wheels.known_until) else { return };
        if wheels.len() >= WHEEL_LENGTH {
            wheels.known_until = time;
            return;
        }
        let is_first = wheels.own.next().is_none_or(|first| time < first);
        wheels.own.insert(key, Timer { fire: time, due: time });
        drop(wheels);
        if is_first {
            self.changed.notify_one();
        }
    }

    /// The same of what may be older than what is known, or may not have been written: only an earlier time counts.
    pub(super) fn note_earlier(&self, key: ExecutionKey, wake_time: Option<Timestamp>) {
        let known = self.lock().due(key);
        if known.is_none_or(|known| wake_time.is_some_and(|time| time < known)) {
            self.note(key, wake_time);
        }
    }

    /// Another node is said to have changed the execution: its timer may be served there, and is confirmed before it
    /// fires here.
    pub(super) fn doubt(&self, key: ExecutionKey) {
        let mut wheels = self.lock();
        if let Some(Timer { due, .. }) = wheels.own.remove(key) {
            wheels.found.insert(key, Timer { fire: due + HEAD_START, due });
        }
    }

    /// From now on everything that is noted as due until here is kept.
    fn expect_until(&self, horizon: Timestamp) {
        let mut wheels = self.lock();
        wheels.known_until = wheels.known_until.max(horizon);
    }

    fn take_own(&self, now: Timestamp) -> Option<(ExecutionKey, Timer)> {
        self.lock().own.take_due(now)
    }

    fn take_found(&self, now: Timestamp) -> Vec<(ExecutionKey, Timer)> {
        let mut wheels = self.lock();
        if now < wheels.confirm_from {
            return Vec::new();
        }
        std::iter::from_fn(|| wheels.found.take_due(now)).take(CONFIRM_LENGTH).collect()
    }

    fn next(&self) -> Option<Timestamp> {
        let wheels = self.lock();
        let found = wheels.found.next().map(|fire| fire.max(wheels.confirm_from));
        wheels.own.next().into_iter().chain(found).min()
    }

    /// Takes in what a scan found, where nothing is known. With `head_start`, somebody else may serve it first.
    fn fill(&self, rows: impl IntoIterator<Item = (ExecutionKey, Timestamp)>, is_shared: bool, head_start: Duration) {
        let mut wheels = self.lock();
        for (key, due) in rows {
            if wheels.len() < WHEEL_LENGTH && !wheels.has(key) {
                let wheel = if is_shared { &mut wheels.found } else { &mut wheels.own };
                wheel.insert(key, Timer { fire: due + head_start, due });
            }
        }
    }

    /// Puts back what could not be confirmed. From then on it is tried again, together with all that comes due meanwhile:
    /// an outage must not cost a call for each timer.
    fn put_back(&self, found: Vec<(ExecutionKey, Timer)>, confirm_from: Timestamp) {
        let mut wheels = self.lock();
        wheels.confirm_from = confirm_from;
        for (key, timer) in found {
            // What was noted meanwhile is newer.
            if !wheels.has(key) {
                wheels.found.insert(key, timer);
            }
        }
    }

    /// Timers in the wheel: for metrics.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }
}

/// Fires timers until the engine stops.
pub(super) async fn run(core: Arc<Core>) {
    let mut timekeeper = Timekeeper {
        is_shared: core.store.is_shared(),
        wakes: Arc::new(Semaphore::new(WAKES_MAX)),
        next_scan: core.clock.now(),
        next_rescue: core.clock.now() + RESCUE_INTERVAL,
        others_before: 0,
        core: core.clone(),
    };
    loop {
        let next = tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            next = timekeeper.round() => next,
        };
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = core.timers.changed.notified() => {}
            () = crate::clock::sleep(next.since(core.clock.now())) => {}
        }
    }
}

struct Timekeeper {
    core: Arc<Core>,
    is_shared: bool,
    wakes: Arc<Semaphore>,
    next_scan: Timestamp,
    next_rescue: Timestamp,
    /// Rows of other nodes that the last scan found: the next one must see beyond them.
    others_before: usize,
}

impl Timekeeper {
    /// Looks for timers where it is time to, and fires those that are due; says when to go on.
    async fn round(&mut self) -> Timestamp {
        let now = self.core.clock.now();
        if now >= self.next_scan {
            self.next_scan = self.scan(now).await;
        }
        if self.is_shared && now >= self.next_rescue {
            self.next_rescue = self.rescue(now).await;
        }
        // No more than a scan finds, so that whatever is due, scans go on.
        for _ in 0..SCAN_LENGTH {
            let Some((key, timer)) = self.core.timers.take_own(self.core.clock.now()) else { break };
            self.wake(key, timer).await;
        }
        let found = self.core.timers.take_found(self.core.clock.now());
        if !found.is_empty() {
            self.confirm(found).await;
        }
        let next = self.core.timers.next().map_or(self.next_scan, |next| next.min(self.next_scan));
        if self.is_shared { next.min(self.next_rescue) } else { next }
    }

    async fn wake(&self, key: ExecutionKey, timer: Timer) {
        let lag = self.core.clock.now().since(timer.due);
        metrics::histogram!(crate::telemetry::TIMER_LAG).record(lag.as_secs_f64());
        let permit = self.wakes.clone().acquire_owned().await.expect("the semaphore is never closed");
        self.core.put(key, Item::Wake { permit: Some(permit) });
    }

    /// Wakes those that are still due: what another node has served is no reason to load anything.
    async fn confirm(&self, found: Vec<(ExecutionKey, Timer)>) {
        let now = self.core.clock.now();
        let keys: Vec<ExecutionKey> = found.iter().map(|(key, _)| *key).collect();
        match self.core.store.still_due(&keys, now).await {
            Ok(due) => {
                let due: BTreeSet<ExecutionKey> = due.into_iter().collect();
                for (key, timer) in found.into_iter().filter(|(key, _)| due.contains(key)) {
                    self.wake(key, timer).await;
                }
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "confirming due executions failed");
                self.core.timers.put_back(found, now + self.core.config.retry_pause);
            }
        }
    }

    /// Takes in what is due until the horizon; says when to look again.
    async fn scan(&mut self, now: Timestamp) -> Timestamp {
        let core = &self.core;
        let horizon = now + HORIZON;
        // Before the rows are read, so that what is committed meanwhile is not missed.
        core.timers.expect_until(horizon);
        let limit = SCAN_LENGTH + self.others_before.min(SCAN_GROWTH_MAX);
        match core.store.due(horizon, limit).await {
            Ok(rows) => {
                let is_all = rows.len() < limit;
                let live = core.members.live();
                let count = rows.len();
                let mine: Vec<_> = rows.into_iter().filter(|(key, _)| live.is_mine(*key)).collect();
                self.others_before = count - mine.len();
                let head_start = if core.members.has_others() { HEAD_START } else { Duration::ZERO };
                core.timers.fill(mine, self.is_shared, head_start);
                core.duty_done("timers");
                // Where there was more, come back once these are under way.
                now + if is_all { HORIZON / 2 } else { FULL_SCAN_PAUSE }
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "looking for due executions failed");
                now + core.config.retry_pause
            }
        }
    }

    /// Takes in what is overdue, whoever's it is; says when to look again.
    async fn rescue(&self, now: Timestamp) -> Timestamp {
        let core = &self.core;
        let until = now - RESCUE_INTERVAL;
        match core.store.due(until, SCAN_LENGTH).await {
            Ok(rows) => {
                let is_all = rows.len() < SCAN_LENGTH;
                let live = core.members.live();
                let mine = rows.into_iter().filter(|(key, due)| now.since(*due) >= patience(&live, *key));
                core.timers.fill(mine, self.is_shared, Duration::ZERO);
                core.duty_done("overdue timers");
                now + if is_all { RESCUE_INTERVAL } else { FULL_SCAN_PAUSE }
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "looking for overdue executions failed");
                now + core.config.retry_pause
            }
        }
    }
}

/// How long this node leaves a timer that is due to those who come before it.
fn patience(live: &Live, key: ExecutionKey) -> Duration {
    let turns = u32::try_from(live.rank(key)).unwrap_or(u32::MAX).min(2);
    RESCUE_INTERVAL * turns
}
