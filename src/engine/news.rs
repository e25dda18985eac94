//! News between the nodes of a shared store: what this one tells, and what it does about what it hears.
//!
//! - News saves waiting, and nothing depends on it: whatever is lost, a look at the store once a second finds.
//! - Nothing is told while no other node lives. What is told is collected, and goes out at most a hundred times a
//!   second; what has no room is dropped.
//! - What is heard makes this node look, never act: it may be old, come twice, or not be true any more.

use super::{Core, membership::Membership};
use crate::store::{self, ExecutionKey, Heard, Hints, Pool};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;

/// Pause after each publication: what is to be told meanwhile goes together.
const PUBLISH_PAUSE: Duration = Duration::from_millis(10);
/// Executions of one publication: as many as a node changes in a pause at tens of thousands of steps a second.
const EXECUTIONS_MAX: usize = 1_000;
/// Queues of one publication.
const QUEUES_MAX: usize = 1_000;
/// How often pools that workers wait for are looked at although nobody told of them.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Pools of one look.
const POOLS_MAX: usize = 256;

/// What is to be told, and what is to be looked at.
pub(super) struct News {
    is_shared: bool,
    members: Arc<Membership>,
    told: Mutex<Hints>,
    is_told: Notify,
    doubts: Mutex<Doubts>,
    is_doubted: Notify,
}

/// What may have changed without this node's doing.
#[derive(Default)]
struct Doubts {
    queues: BTreeSet<Arc<str>>,
    everything: bool,
}

impl News {
    pub(super) fn new(is_shared: bool, members: Arc<Membership>) -> Self {
        Self {
            is_shared,
            members,
            told: Mutex::default(),
            is_told: Notify::new(),
            doubts: Mutex::default(),
            is_doubted: Notify::new(),
        }
    }

    fn has_listeners(&self) -> bool {
        self.is_shared && self.members.has_others()
    }

    fn told(&self) -> MutexGuard<'_, Hints> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn doubts(&self) -> MutexGuard<'_, Doubts> {
        self.doubts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This node has committed events of an execution; the newest has this number.
    pub(super) fn changed(&self, key: ExecutionKey, number: u64) {
        if !self.has_listeners() {
            return;
        }
        let mut told = self.told();
        if told.executions.len() >= EXECUTIONS_MAX && !told.executions.contains_key(&key) {
            return;
        }
        let newest = told.executions.entry(key).or_default();
        *newest = number.max(*newest);
        drop(told);
        self.is_told.notify_one();
    }

    /// A unit waits in this queue, and none of this node's workers is there to take it.
    pub(super) fn waiting(&self, queue: &Arc<str>) {
        if !self.has_listeners() {
            return;
        }
        let mut told = self.told();
        if told.queues.len() >= QUEUES_MAX || !told.queues.insert(queue.clone()) {
            return;
        }
        drop(told);
        self.is_told.notify_one();
    }

    /// Another node told of units that wait in these queues.
    fn doubt(&self, queues: BTreeSet<Arc<str>>) {
        if queues.is_empty() {
            return;
        }
        let mut doubts = self.doubts();
        // The queues that this node's workers wait for are few; others are forgotten when they are looked at.
        if doubts.queues.len() + queues.len() > QUEUES_MAX {
            doubts.everything = true;
        } else {
            doubts.queues.extend(queues);
        }
        drop(doubts);
        self.is_doubted.notify_one();
    }

    /// Anything may have been missed.
    fn doubt_everything(&self) {
        self.doubts().everything = true;
        self.is_doubted.notify_one();
    }
}

/// Starts what a shared store needs; where no other node can be, nothing.
pub(super) fn start(core: &Arc<Core>) {
    if core.store.is_shared() {
        core.tasks.spawn(publish(core.clone()));
        core.tasks.spawn(hear(core.clone()));
        core.tasks.spawn(look(core.clone()));
    }
}

/// Tells other nodes, until the engine stops.
async fn publish(core: Arc<Core>) {
    let publish_all = async {
        loop {
            core.news.is_told.notified().await;
            let hints = std::mem::take(&mut *core.news.told());
            if hints.is_empty() {
                continue;
            }
            match core.store.publish(&hints).await {
                Ok(()) => metrics::counter!(crate::telemetry::NEWS_PUBLISHED).increment(1),
                // Nobody misses it for longer than the next look.
                Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "news could not be published"),
            }
            crate::clock::sleep(PUBLISH_PAUSE).await;
        }
    };
    tokio::select! {
        biased;
        () = core.stop.cancelled() => {}
        () = publish_all => {}
    }
}

/// Listens to other nodes, until the engine stops.
async fn hear(core: Arc<Core>) {
    let mut news = core.store.listen();
    loop {
        let heard = tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            heard = news.recv() => heard,
        };
        match heard {
            Some(Heard::Hints(hints)) => {
                metrics::counter!(crate::telemetry::NEWS_HEARD).increment(1);
                for (key, number) in &hints.executions {
                    core.cache.heard(*key, *number);
                    core.timers.doubt(*key);
                }
                core.dispatch.doubt(&hints.executions);
                core.news.doubt(hints.queues);
            }
            Some(Heard::Gap) => {
                metrics::counter!(crate::telemetry::NEWS_GAPS).increment(1);
                core.news.doubt_everything();
            }
            None => {
                tracing::warn!("no news comes any more; looks at the database once a second replace it");
                return;
            }
        }
    }
}

/// Looks for units that wait for this node's workers: where news came of them at once, everywhere once a second.
async fn look(core: Arc<Core>) {
    let mut next = core.clock.monotonic() + LOOK_INTERVAL;
    loop {
        let rest = next.saturating_sub(core.clock.monotonic());
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = core.news.is_doubted.notified() => {}
            () = crate::clock::sleep(rest) => {}
        }
        let doubts = std::mem::take(&mut *core.news.doubts());
        let is_time = core.clock.monotonic() >= next;
        if is_time {
            next = core.clock.monotonic() + LOOK_INTERVAL;
        }
        let queues = (!is_time && !doubts.everything).then_some(&doubts.queues);
        let pools = core.dispatch.waited_for(queues);
        let looked = tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            looked = look_at(&core, &pools) => looked,
        };
        match looked {
            Ok(()) if is_time => core.duty_done("waiting tasks"),
            Ok(()) => {}
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "looking for waiting tasks failed");
            }
        }
    }
}

async fn look_at(core: &Core, pools: &[Pool]) -> Result<(), store::Error> {
    for pools in pools.chunks(POOLS_MAX) {
        for pool in core.store.waiting_pools(pools).await? {
            core.dispatch.found(&pool);
        }
    }
    Ok(())
}
