//! What other nodes have written: whether a cached state is the newest, and how far watched executions have come.
//!
//! - In a shared store an answer that writes nothing is given only after the state's number was compared with the
//!   store's, by a look that began after the question came. All that wait go into one look; while it runs the next
//!   gather. An append needs none: the fence is its check.
//! - What waits behind a look that fails, fails with it: nobody waits for longer than one look may take.
//! - Whatever somebody watches is looked at once a second, so that lost news of other nodes cost no more than that.
//!
//! In a store of this node's own there is nothing to look for, and nothing of this runs.

use super::{Core, call::Error};
use crate::store::{ExecutionKey, Store};
use crate::telemetry;
use std::{sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

/// Questions that may wait; each mailbox has at most one.
const QUEUE_LENGTH: usize = 8_192;
/// Most executions of one look: one index probe each, so that it takes a few milliseconds.
const LOOK_LENGTH_MAX: usize = 1_000;
/// How often watched executions are looked at.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

struct Question {
    key: ExecutionKey,
    answer: oneshot::Sender<Result<Option<u64>, Error>>,
}

/// The way to the store's newest numbers.
pub(super) struct Probe {
    questions: mpsc::Sender<Question>,
}

impl Probe {
    /// Starts to look, in a task that ends when this is dropped; nothing where no other node writes.
    pub(super) fn start(store: &Arc<dyn Store>, tasks: &TaskTracker) -> Option<Self> {
        if !store.is_shared() {
            return None;
        }
        let (questions, queue) = mpsc::channel(QUEUE_LENGTH);
        tasks.spawn(look(store.clone(), queue));
        Some(Self { questions })
    }

    /// The number of an execution's newest event at some time after the call; nothing if there is no such execution.
    pub(super) async fn newest_number(&self, key: ExecutionKey) -> Result<Option<u64>, Error> {
        let (answer, number) = oneshot::channel();
        self.questions.send(Question { key, answer }).await.map_err(|_| Error::Draining)?;
        number.await.map_err(|_| Error::Draining)?
    }
}

async fn look(store: Arc<dyn Store>, mut queue: mpsc::Receiver<Question>) {
    let mut waiting = Vec::new();
    while queue.recv_many(&mut waiting, LOOK_LENGTH_MAX).await > 0 {
        let keys: Vec<ExecutionKey> = waiting.iter().map(|question| question.key).collect();
        let timed = telemetry::Timed::begin(telemetry::PROBE_DURATION);
        let looked = store.newest_numbers(&keys).await;
        timed.end();
        match looked {
            Ok(numbers) => {
                assert_eq!(numbers.len(), keys.len(), "the store answers for each execution");
                for (question, number) in waiting.drain(..).zip(numbers) {
                    let _ = question.answer.send(Ok(number));
                }
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, executions = keys.len(), "probe failed");
                let behind = std::iter::from_fn(|| queue.try_recv().ok());
                for question in waiting.drain(..).chain(behind) {
                    let _ = question.answer.send(Err(Error::Store(error.clone())));
                }
            }
        }
    }
}

/// Looks at watched executions until the engine stops.
pub(super) async fn run(core: Arc<Core>) {
    loop {
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = crate::clock::sleep(WATCH_INTERVAL) => {}
        }
        if let Err(error) = look_at_watched(&core).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "looking at watched executions failed");
            // Who waits must not wait on while this node cannot see what becomes of it: a look of its own fails as well,
            // and tells so, or finds what there is.
            suspect_watched(&core);
        }
    }
}

/// Makes everybody who watches look.
fn suspect_watched(core: &Core) {
    let mut after = None;
    loop {
        let keys = core.cache.watched(after, LOOK_LENGTH_MAX);
        let Some(last) = keys.last() else { return };
        for key in &keys {
            core.cache.heard(*key, u64::MAX);
        }
        after = Some(*last);
    }
}

async fn look_at_watched(core: &Core) -> Result<(), Error> {
    let mut after = None;
    loop {
        let keys = core.cache.watched(after, LOOK_LENGTH_MAX);
        let Some(last) = keys.last() else { return Ok(()) };
        let numbers = core.store.newest_numbers(&keys).await.map_err(Error::Store)?;
        for (key, number) in keys.iter().zip(numbers) {
            // Who watches what is gone must look, too.
            core.cache.heard(*key, number.unwrap_or(u64::MAX));
        }
        after = Some(*last);
    }
}
