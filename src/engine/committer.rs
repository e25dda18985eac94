//! Group commit: the one writer of executions.
//!
//! - All appends that wait are written in one transaction with one sync; while it is being synced the next gather.
//!   There is no artificial delay.
//! - An answer leaves after the commit, never before.
//! - Of one batch, no two appends go to the same execution (a mailbox has one commit in flight) or make the same id
//!   (the second waits for the next batch, where the fence refuses it).

use super::call::Error;
use crate::store::{Append, Committed, ExecutionKey, Store, Target};
use std::{collections::HashSet, sync::Arc};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

/// Appends that may wait. Each mailbox has at most one, so this is a bound on executions that change at once.
const QUEUE_LENGTH: usize = 8_192;
/// Most appends of one batch: enough to amortise the sync, few enough that a batch takes milliseconds.
const BATCH_LENGTH_MAX: usize = 512;
/// Most bytes of events in one batch, a single append excepted.
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

struct Job {
    append: Append,
    done: oneshot::Sender<Result<ExecutionKey, Error>>,
}

/// The way to the writer.
#[derive(Clone)]
pub(super) struct Committer {
    jobs: mpsc::Sender<Job>,
}

impl Committer {
    /// Starts the writer; it ends when the last handle is dropped.
    pub(super) fn start(store: Arc<dyn Store>, tasks: &TaskTracker) -> Self {
        let (jobs, queue) = mpsc::channel(QUEUE_LENGTH);
        tasks.spawn(write(store, queue));
        Self { jobs }
    }

    /// Commits an append. `WriteConflict` if another writer was first: then nothing was written.
    pub(super) async fn commit(&self, append: Append) -> Result<ExecutionKey, Error> {
        let (done, answer) = oneshot::channel();
        self.jobs.send(Job { append, done }).await.map_err(|_| Error::Draining)?;
        answer.await.map_err(|_| Error::Draining)?
    }
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
        let result = store.commit(appends).await;
        metrics::histogram!(crate::telemetry::COMMIT_BATCH_APPENDS).record(size as f64);
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
                for answer in answers {
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
        let is_alone = match &job.append.target {
            Target::New(new) => ids.insert(new.id.clone()),
            Target::Existing(_) => true,
        };
        if fits && is_alone {
            bytes += size;
            batch.push(job);
        } else {
            rest.push(job);
        }
    }
    (batch, rest)
}
