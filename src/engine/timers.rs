//! Wakes executions when something of theirs is due.
//!
//! Hot timers, those of the next ten seconds, sit in a bounded wheel; the index of `wake_time` finds the rest. A timer
//! that is lost here is found by the next scan; one that is stale finds nothing due and writes nothing.

use super::{Core, mailbox::Item};
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
/// Pause after a scan that did not find the end.
const FULL_SCAN_PAUSE: Duration = Duration::from_millis(200);
/// Wake-ups that may be under way at once, so that a thousand sleepers that end together do not crowd out the rest.
const WAKES_MAX: usize = 256;

#[derive(Default)]
struct Wheel {
    order: BTreeSet<(Timestamp, ExecutionKey)>,
    by_key: HashMap<ExecutionKey, Timestamp>,
    /// What is noted as due until here is put into the wheel; the rest is found by a scan.
    known_until: Timestamp,
}

/// The wheel of this node.
#[derive(Default)]
pub(super) struct Timers {
    wheel: Mutex<Wheel>,
    changed: Notify,
}

impl Timers {
    fn lock(&self) -> MutexGuard<'_, Wheel> {
        self.wheel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An execution's wake-up time is now this.
    pub(super) fn note(&self, key: ExecutionKey, wake_time: Option<Timestamp>) {
        let mut wheel = self.lock();
        if let Some(old) = wheel.by_key.remove(&key) {
            wheel.order.remove(&(old, key));
        }
        let Some(time) = wake_time.filter(|time| *time <= wheel.known_until) else { return };
        if wheel.by_key.len() >= WHEEL_LENGTH {
            wheel.known_until = time;
            return;
        }
        let is_first = wheel.order.first().is_none_or(|first| (time, key) < *first);
        wheel.order.insert((time, key));
        wheel.by_key.insert(key, time);
        drop(wheel);
        if is_first {
            self.changed.notify_one();
        }
    }

    /// The same of what may be older than what is known: only an earlier time counts.
    pub(super) fn note_earlier(&self, key: ExecutionKey, wake_time: Option<Timestamp>) {
        let known = self.lock().by_key.get(&key).copied();
        if known.is_none_or(|known| wake_time.is_some_and(|time| time < known)) {
            self.note(key, wake_time);
        }
    }

    /// From now on everything that is noted as due until here is kept.
    fn expect_until(&self, horizon: Timestamp) {
        let mut wheel = self.lock();
        wheel.known_until = wheel.known_until.max(horizon);
    }

    fn take_due(&self, now: Timestamp) -> Option<(Timestamp, ExecutionKey)> {
        let mut wheel = self.lock();
        let first = wheel.order.first().copied().filter(|(time, _)| *time <= now)?;
        wheel.order.remove(&first);
        wheel.by_key.remove(&first.1);
        Some(first)
    }

    fn next(&self) -> Option<Timestamp> {
        self.lock().order.first().map(|(time, _)| *time)
    }

    fn fill(&self, rows: &[(ExecutionKey, Timestamp)]) {
        let mut wheel = self.lock();
        for &(key, time) in rows {
            if wheel.by_key.len() < WHEEL_LENGTH && !wheel.by_key.contains_key(&key) {
                wheel.order.insert((time, key));
                wheel.by_key.insert(key, time);
            }
        }
    }

    /// Timers in the wheel: for metrics.
    pub(super) fn len(&self) -> usize {
        self.lock().by_key.len()
    }
}

/// Fires timers until the engine stops.
pub(super) async fn run(core: Arc<Core>) {
    let wakes = Arc::new(Semaphore::new(WAKES_MAX));
    let mut next_scan = core.clock.now();
    loop {
        let now = core.clock.now();
        if now >= next_scan {
            next_scan = scan(&core, now).await;
        }
        while let Some((time, key)) = core.timers.take_due(core.clock.now()) {
            metrics::histogram!(crate::telemetry::TIMER_LAG).record(core.clock.now().since(time).as_secs_f64());
            let permit = wakes.clone().acquire_owned().await.expect("the semaphore is never closed");
            core.put(key, Item::Wake { permit: Some(permit) });
        }
        let next = core.timers.next().map_or(next_scan, |next| next.min(next_scan));
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = core.timers.changed.notified() => {}
            () = crate::clock::sleep(next.since(core.clock.now())) => {}
        }
    }
}

/// Takes in what is due until the horizon; says when to look again.
async fn scan(core: &Core, now: Timestamp) -> Timestamp {
    let horizon = now + HORIZON;
    // Before the rows are read, so that what is committed meanwhile is not missed.
    core.timers.expect_until(horizon);
    match core.store.due(horizon, SCAN_LENGTH).await {
        Ok(rows) => {
            let is_all = rows.len() < SCAN_LENGTH;
            core.timers.fill(&rows);
            // Where there was more, come back once these are under way.
            now + if is_all { HORIZON / 2 } else { FULL_SCAN_PAUSE }
        }
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "looking for due executions failed");
            now + core.config.retry_pause
        }
    }
}
