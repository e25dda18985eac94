//! Group commit: the writers of executions, as many lanes as the store takes commits at once.
//!
//! - All appends that wait in a lane are written in one transaction with one sync; while it is being synced the next
//!   gather. There is no artificial delay.
//! - An answer leaves after the commit, never before.
//! - What waits behind a batch that the store cannot take fails with it: a store that is silent keeps each caller waiting
//!   for as long as one commit may take, not for as many as are in front of it.
//! - Of all batches under way, no two appends go to the same execution (its lane follows from its key, and a mailbox
//!   has one commit in flight) or make the same id (its lane follows from the id, and the second one waits for the
//!   next batch, where the fence refuses it).

use super::call::Error;
use crate::store::{Append, Committed, ExecutionKey, Store, Target};
use crate::telemetry;
use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

/// Appends that may wait in all lanes together. Each mailbox has at most one, so this is a bound on executions that change at once.
const QUEUE_LENGTH: usize = 8_192;
/// Most appends of one batch: enough to amortise the sync, few enough that a batch takes milliseconds.
const BATCH_LENGTH_MAX: usize = 512;
/// Most bytes of events in one batch, a single append excepted.
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

struct Job {
    append: Append,
    done: oneshot::Sender<Result<ExecutionKey, Error>>,
}

/// The way to the writers.
pub(super) struct Committer {
    lanes: Box<[mpsc::Sender<Job>]>,
    /// Whether anything may have been written since this node's time was.
    has_written: AtomicBool,
}

impl Committer {
    /// Starts the writers; they end when it is dropped.
    pub(super) fn start(store: &Arc<dyn Store>, tasks: &TaskTracker) -> Self {
        let count = store.committers().max(1);
        let lane = |_| {
            let (jobs, queue) = mpsc::channel((QUEUE_LENGTH / count).max(1));
            tasks.spawn(write(store.clone(), queue));
            jobs
        };
        Self { lanes: (0..count).map(lane).collect(), has_written: AtomicBool::new(false) }
    }

    /// Whether anything may have been written since this was asked, or said, last.
    pub(super) fn take_written(&self) -> bool {
        self.has_written.swap(false, Ordering::Relaxed)
    }

    /// Says that something may have been written.
    pub(super) fn set_written(&self) {
        self.has_written.store(true, Ordering::Relaxed);
    }

    /// How many writers there are, each a task.
    pub(super) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Commits an append. `WriteConflict` if another writer was first: then nothing was written.
    pub(super) async fn commit(&self, append: Append) -> Result<ExecutionKey, Error> {
        let (done, answer) = oneshot::channel();
        self.set_written();
        let lane = &self.lanes[lane_of(&append, self.lanes.len())];
        lane.send(Job { append, done }).await.map_err(|_| Error::Draining)?;
        answer.await.map_err(|_| Error::Draining)?
    }
}

/// The lane of an execution, or of a new one's id.
fn lane_of(append: &Append, lanes: usize) -> usize {
    if lanes == 1 {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    match &append.target {
        Target::New(new) => new.id.hash(&mut hasher),
        Target::Existing(key) => key.hash(&mut hasher),
        // The one that it replaces has no other append under way: its mailbox made this one, or it is closed.
        Target::Replacing(replacement) => replacement.new.id.hash(&mut hasher),
    }
    usize::try_from(hasher.finish() % lanes as u64).expect("it is less than a number of lanes")
}

async fn write(store: Arc<dyn Store>, mut queue: mpsc::Receiver<Job>) {
    let mut waiting: Vec<Job> = Vec::new();
    loop {
        if waiting.is_empty() && queue.recv_many(&mut waiting, BATCH_LENGTH_MAX).await == 0 {
            return;
        }
        while waiting.len() < BATCH_LENGTH_MAX
            && let Ok(job) = queue.try_recv()
        {
            waiting.push(job);
        }
        let (batch, rest) = split(waiting);
        waiting = rest;
        let (appends, answers): (Vec<_>, Vec<_>) = batch.into_iter().map(|job| (job.append, job.done)).unzip();
        let size = appends.len();
        let timed = telemetry::Timed::begin(telemetry::COMMIT_DURATION);
        let result = store.commit(appends).await;
        timed.end();
        metrics::histogram!(telemetry::COMMIT_BATCH_APPENDS).record(size as f64);
        match result {
            Ok(committed) => {
                assert_eq!(committed.len(), answers.len(), "the store answers each append");
                for (answer, committed) in answers.into_iter().zip(committed) {
                    let _ = answer.send(match committed {
                        Committed::Written(key) => Ok(key),
                        Committed::Conflict => Err(Error::WriteConflict),
                        Committed::Failed { what } => {
                            tracing::error!(what, "an append breaks a rule of the schema");
                            Err(Error::Internal)
                        }
                    });
                }
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, appends = size, "commit failed");
                let behind = waiting
                    .drain(..)
                    .map(|job| job.done)
                    .chain(std::iter::from_fn(|| Some(queue.try_recv().ok()?.done)));
                for answer in answers.into_iter().chain(behind) {
                    let _ = answer.send(Err(Error::Store(error.clone())));
                }
            }
        }
    }
}

/// Takes the next batch from the front: bounded in bytes, and no public id twice.
fn split(waiting: Vec<Job>) -> (Vec<Job>, Vec<Job>) {
    let (mut batch, mut rest) = (Vec::with_capacity(waiting.len()), Vec::new());
    let mut ids = HashSet::new();
    let mut bytes = 0;
    for job in waiting {
        let size =
            job.append.events.len() + job.append.payloads.iter().map(|payload| payload.json.len()).sum::<usize>();
        let fits = batch.is_empty() || bytes + size <= BATCH_BYTES_MAX;
        let is_alone = job.append.new_execution().is_none_or(|new| ids.insert(new.id.clone()));
        if fits && is_alone {
            bytes += size;
            batch.push(job);
        } else {
            rest.push(job);
        }
    }
    (batch, rest)
}
