//! Batches: one action on all executions that a filter names, worked off by whichever node lives.
//!
//! - A batch is a row with a cursor. A node lists a portion after it, acts on each execution as any caller would, and
//!   moves the cursor by a compare-and-set; of two nodes that did the same portion one moves it.
//! - To do a portion twice is harmless: what is asked of an execution has a request id that derives from the batch and the
//!   execution, so the second time it is answered and not done.
//! - A portion that fails in the middle counts what it did once it is done again, on the same node. A node that dies in one
//!   leaves what it did uncounted where that does not match any more.
//! - What does not match any more when its turn comes is left alone, and so is what was started after the batch was made.
//! - Small portions, and after each a rest of four times as long: the write path is others' most of the time, and the
//!   busier they are the slower a batch goes.
//! - One node works on a batch, as hashing says; the next one does if nothing has moved for a while, whatever the reason.

use super::{
    Core, Engine,
    call::{Error, ExecutionName},
    lists::filter_of,
};
use crate::domain::{ExecutionId, Rejection, RequestKey, Timestamp, digest16};
use crate::store::{
    BatchAction, BatchCursor, BatchProgress, BatchRow, BatchState, ExecutionKey, ExecutionRow, ExecutionState, Find,
    ListCursor, ListFilter, ListPage,
};
use crate::wire::filter::Filter;
use futures_util::{StreamExt as _, stream};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use uuid::Uuid;

/// Executions of one portion, which are acted on together.
const PORTION: usize = 32;
/// Batches that are worked on in turn; the others wait until one of them has ended.
const RUNNING_MAX: usize = 64;
/// Pause between two looks for batches while there is none to work on.
const INTERVAL: Duration = Duration::from_secs(5);
/// How long a batch may stand still before the next node works on it, too.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two looks for batches that ended long ago.
const CLEANING_INTERVAL: Duration = Duration::from_hours(1);
/// When a node that started first looks for them: nothing is written for a start.
const FIRST_CLEANING: Duration = Duration::from_mins(5);
/// Batches that are deleted at once.
const DELETED_AT_ONCE: usize = 100;
/// Executions that are counted at most, time that counting takes at most, and executions of one read.
const COUNT_MAX: u64 = 100_000;
const COUNT_TIME_MAX: Duration = Duration::from_millis(500);
const COUNT_PAGE: usize = 1_000;
/// How often an execution that others write to, too, is tried, and the pause between.
const TRIES: u32 = 5;
const TRY_PAUSE: Duration = Duration::from_millis(100);
/// Failures that are kept as samples.
const FAILURES_MAX: usize = 10;

/// Asks for a batch.
#[derive(Clone, Debug)]
pub struct NewBatch {
    /// What is done.
    pub action: BatchAction,
    /// Why, for people; may be empty.
    pub reason: Arc<str>,
    /// Which executions, in the language of lists; one that [`Filter::parse`] takes.
    pub filter: Arc<str>,
    /// Most executions that are reached; 0 for no limit.
    pub executions_max: u64,
    /// The call's `request_id`.
    pub request: Option<RequestKey>,
}

/// An execution with which a batch failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchFailure {
    /// Id of the execution.
    pub id: String,
    /// Uid of the execution.
    pub uid: String,
    /// Why, for people.
    pub message: String,
}

impl BatchFailure {
    /// The first failures of a batch.
    #[must_use]
    pub fn all_of(progress: &BatchProgress) -> Vec<Self> {
        let stored: Vec<[String; 3]> = serde_json::from_str(&progress.failures).unwrap_or_default();
        stored.into_iter().map(|[id, uid, message]| Self { id, uid, message }).collect()
    }

    fn store(failures: Vec<Self>) -> Arc<str> {
        let stored: Vec<[String; 3]> =
            failures.into_iter().map(|failure| [failure.id, failure.uid, failure.message]).collect();
        serde_json::to_string(&stored).expect("texts are JSON").into()
    }
}

impl Engine {
    /// Makes a batch, which begins at once on whichever node; or with `dry_run` only counts what it would reach. The same
    /// request again gives the batch that it made.
    ///
    /// # Errors
    /// `Rejected` (the request id was used for another call), `Store`.
    pub async fn create_batch(&self, new: NewBatch, dry_run: bool) -> Result<BatchRow, Error> {
        let core = &self.core;
        let id = match &new.request {
            Some(request) => uuid::Builder::from_custom_bytes(request.key).into_uuid(),
            None => core.entropy.uuid(),
        };
        if !dry_run
            && new.request.is_some()
            && let Some(row) = core.store.batch(id).await.map_err(Error::Store)?
        {
            return same_call(row, new.request.as_ref());
        }
        let create_time = core.clock.now();
        let (expected, is_counted) = core.count_matching(&new.filter, create_time).await?;
        let progress = BatchProgress {
            portion: 0,
            state: BatchState::Running,
            end_time: None,
            cursor: None,
            done: 0,
            skipped: 0,
            failed: 0,
            failures: BatchFailure::store(Vec::new()),
        };
        let NewBatch { action, reason, filter, executions_max, request } = new;
        let request_content = request.map(|request| request.content);
        let row = BatchRow {
            id: if dry_run { Uuid::nil() } else { id },
            request_content,
            action,
            reason,
            filter,
            executions_max,
            expected,
            is_counted,
            create_time,
            progress,
        };
        if dry_run {
            return Ok(row);
        }
        let stored = core.store.put_batch(&row).await.map_err(Error::Store)?;
        core.batch_made.notify_one();
        same_call(stored, request.as_ref())
    }

    /// Reads a batch.
    ///
    /// # Errors
    /// `BatchNotFound`, `Store`.
    pub async fn batch(&self, id: Uuid) -> Result<BatchRow, Error> {
        let found = self.core.store.batch(id).await.map_err(Error::Store)?;
        found.ok_or_else(|| Error::BatchNotFound { id: id.to_string() })
    }

    /// Lists batches, the newest first, after one.
    ///
    /// # Errors
    /// `Store`.
    pub async fn batches(&self, after: Option<BatchCursor>, limit: usize) -> Result<Vec<BatchRow>, Error> {
        self.core.store.batches(after, limit).await.map_err(Error::Store)
    }

    /// Ends a batch, if it runs; what it has done stays done. Back comes the batch as it is then.
    ///
    /// # Errors
    /// `BatchNotFound`, `Store`.
    pub async fn cancel_batch(&self, id: Uuid) -> Result<BatchRow, Error> {
        let row = self.core.store.cancel_batch(id, self.core.clock.now()).await.map_err(Error::Store)?;
        row.ok_or_else(|| Error::BatchNotFound { id: id.to_string() })
    }
}

/// The batch that has the id of a call, if the same call made it.
fn same_call(row: BatchRow, request: Option<&RequestKey>) -> Result<BatchRow, Error> {
    let is_same = row.request_content == request.map(|request| request.content);
    if is_same { Ok(row) } else { Err(Rejection::RequestIdReused.into()) }
}

impl Core {
    /// How many executions match that were started by then, and whether those are all.
    async fn count_matching(&self, filter: &str, started_by: Timestamp) -> Result<(u64, bool), Error> {
        let Some(filter) = started_until(filter, started_by) else { return Ok((0, true)) };
        let until = self.clock.monotonic() + COUNT_TIME_MAX;
        let (mut count, mut after) = (0, None);
        loop {
            let page = self.store.list(&filter, after, COUNT_PAGE).await.map_err(Error::Store)?;
            count += page.rows.len() as u64;
            after = page.next;
            if after.is_none() {
                return Ok((count, true));
            }
            if count >= COUNT_MAX || self.clock.monotonic() >= until {
                return Ok((count, false));
            }
        }
    }
}

/// A filter and that the start was no later than this; nothing if none can match.
fn started_until(filter: &str, started_by: Timestamp) -> Option<ListFilter> {
    // It was judged when the batch was made. Should a later version not take it, nothing matches.
    let mut filter = Filter::parse(filter).ok()?;
    let next = started_by + Duration::from_micros(1);
    filter.start_until = Some(filter.start_until.map_or(next, |until| until.min(next)));
    (!filter.is_empty()).then(|| filter_of(filter))
}

/// Runs until the engine stops.
pub(super) async fn run(core: Arc<Core>) {
    let next_cleaning = core.clock.monotonic() + FIRST_CLEANING;
    let mut batches = Batches { core: core.clone(), seen: BTreeMap::new(), unwritten: BTreeMap::new(), next_cleaning };
    let mut pause = Duration::ZERO;
    loop {
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = core.batch_made.notified() => {}
            () = crate::clock::sleep(pause) => {}
        }
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            round = batches.round() => pause = match round {
                Ok(has_more) => {
                    core.duty_done("batches");
                    if has_more { Duration::ZERO } else { INTERVAL }
                }
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "working on batches failed");
                    INTERVAL
                }
            },
        }
    }
}

struct Batches {
    core: Arc<Core>,
    /// The newest portion of each batch that was seen, and since when, by monotonic time.
    seen: BTreeMap<Uuid, (u64, Duration)>,
    /// What is done of portions that failed in the middle. The next list may not have it any more, since it does not match
    /// any more; it counts all the same.
    unwritten: BTreeMap<Uuid, Unwritten>,
    next_cleaning: Duration,
}

/// What is done of a portion, until that is written.
#[derive(Default)]
struct Unwritten {
    /// Number of the portion.
    portion: u64,
    acted: BTreeMap<ExecutionKey, (ExecutionRow, Acted)>,
}

/// What became of one execution.
enum Acted {
    Done,
    Skipped,
    Failed(String),
}

impl Acted {
    /// What metrics call it.
    const fn name(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::Failed(_) => "failed",
        }
    }
}

impl Batches {
    /// Does a portion of each batch whose turn it is; says whether there is more to do at once. One that fails keeps none
    /// of the others from going on.
    async fn round(&mut self) -> Result<bool, Error> {
        self.clean().await?;
        let running = self.core.store.running_batches(RUNNING_MAX).await.map_err(Error::Store)?;
        self.seen.retain(|id, _| running.iter().any(|batch| batch.id == *id));
        self.unwritten.retain(|id, _| running.iter().any(|batch| batch.id == *id));
        let live = self.core.members.live();
        let (mut has_more, mut outcome) = (false, Ok(()));
        for batch in running {
            let monotonic = self.core.clock.monotonic();
            let seen = self.seen.entry(batch.id).or_insert((batch.progress.portion, monotonic));
            if seen.0 != batch.progress.portion {
                *seen = (batch.progress.portion, monotonic);
            }
            let rank = u32::try_from(live.rank_of_batch(batch.id)).unwrap_or(u32::MAX);
            if monotonic.saturating_sub(seen.1) < PATIENCE.saturating_mul(rank) {
                continue;
            }
            match self.portion(&batch).await {
                Ok(goes_on) => has_more |= goes_on,
                Err(error) => outcome = Err(error),
            }
        }
        outcome.map(|()| has_more)
    }

    /// Deletes batches that ended as long ago as executions are kept.
    async fn clean(&mut self) -> Result<(), Error> {
        let (core, retention) = (&self.core, self.core.config.retention);
        let monotonic = core.clock.monotonic();
        if retention.is_zero() || monotonic < self.next_cleaning {
            return Ok(());
        }
        let before = core.clock.wall() - retention;
        let deleted = core.store.delete_batches(before, DELETED_AT_ONCE).await.map_err(Error::Store)?;
        if deleted < DELETED_AT_ONCE as u64 {
            self.next_cleaning = monotonic + CLEANING_INTERVAL;
        }
        Ok(())
    }

    /// Does the next portion of a batch; says whether another follows.
    async fn portion(&mut self, batch: &BatchRow) -> Result<bool, Error> {
        let began = self.core.clock.monotonic();
        let portion = batch.progress.portion;
        let of_this = self.unwritten.remove(&batch.id).filter(|unwritten| unwritten.portion == portion);
        let mut unwritten = of_this.unwrap_or_else(|| Unwritten { portion, ..Unwritten::default() });
        let written = match self.act_on_all(batch, &mut unwritten).await {
            Ok(next) => self.write(batch, &unwritten, next).await,
            Err(error) => Err(error),
        };
        if written.is_err() {
            self.unwritten.insert(batch.id, unwritten);
        }
        let goes_on = written?;
        let taken = self.core.clock.monotonic().saturating_sub(began);
        crate::clock::sleep(taken * 4).await;
        Ok(goes_on)
    }

    /// Acts on what the next portion has and nothing was done about; gives where the one after it begins. Where it fails
    /// with some, all the others are done.
    async fn act_on_all(&self, batch: &BatchRow, unwritten: &mut Unwritten) -> Result<Option<ListCursor>, Error> {
        let before = &batch.progress;
        let reached = before.done + before.skipped + before.failed + unwritten.acted.len() as u64;
        let room = match batch.executions_max {
            0 => PORTION,
            most => usize::try_from(most.saturating_sub(reached)).map_or(PORTION, |left| left.min(PORTION)),
        };
        let filter = started_until(&batch.filter, batch.create_time).filter(|_| room > 0);
        let page = match &filter {
            Some(filter) => self.core.store.list(filter, before.cursor, room).await.map_err(Error::Store)?,
            None => ListPage::default(),
        };
        let states = filter.map(|filter| filter.states).unwrap_or_default();
        let states = states.as_slice();
        let act = |row: ExecutionRow| async move {
            let outcome = self.act(batch, states, &row).await;
            (row, outcome)
        };
        let ListPage { rows, next } = page;
        let new: Vec<ExecutionRow> = rows.into_iter().filter(|row| !unwritten.acted.contains_key(&row.key)).collect();
        let mut acted = stream::iter(new).map(act).buffer_unordered(PORTION);
        let mut result = Ok(next);
        while let Some((row, outcome)) = acted.next().await {
            let outcome = match outcome {
                Ok(outcome) => outcome,
                Err(error) => {
                    result = Err(error);
                    continue;
                }
            };
            metrics::counter!(crate::telemetry::BATCH_EXECUTIONS, "outcome" => outcome.name()).increment(1);
            unwritten.acted.insert(row.key, (row, outcome));
        }
        result
    }

    /// Writes down what is done of a portion, and where the next one begins, if there is one; says whether there is.
    async fn write(&self, batch: &BatchRow, done: &Unwritten, next: Option<ListCursor>) -> Result<bool, Error> {
        let before = &batch.progress;
        let mut after = BatchProgress { portion: before.portion + 1, ..before.clone() };
        let mut failures = BatchFailure::all_of(before);
        for (row, outcome) in done.acted.values() {
            match outcome {
                Acted::Done => after.done += 1,
                Acted::Skipped => after.skipped += 1,
                Acted::Failed(message) => {
                    after.failed += 1;
                    if failures.len() < FAILURES_MAX {
                        let message = message.clone();
                        failures.push(BatchFailure { id: row.id.to_string(), uid: row.uid.to_string(), message });
                    }
                }
            }
        }
        after.failures = BatchFailure::store(failures);
        after.cursor = next.or(before.cursor);
        let is_full = batch.executions_max > 0 && after.done + after.skipped + after.failed >= batch.executions_max;
        if next.is_none() || is_full {
            (after.state, after.end_time) = (BatchState::Succeeded, Some(self.core.clock.now()));
        }
        // Where another node was first, its portion counts; what is next is read anew either way.
        self.core.store.advance_batch(batch.id, &after).await.map_err(Error::Store)?;
        Ok(after.state == BatchState::Running)
    }

    /// Acts on one execution, if it still matches. An error leaves it, and with it the rest of the batch, for later.
    async fn act(&self, batch: &BatchRow, states: &[ExecutionState], row: &ExecutionRow) -> Result<Acted, Error> {
        let Some(id) = ExecutionId::parse(&row.id) else { return Ok(Acted::Skipped) };
        let name = ExecutionName { id, uid: Some(row.uid) };
        let mut tries = 0;
        loop {
            let now = self.core.store.execution(&Find::Key(row.key)).await.map_err(Error::Store)?;
            if !now.is_some_and(|now| states.is_empty() || states.contains(&now.state)) {
                return Ok(Acted::Skipped);
            }
            tries += 1;
            match self.ask(batch, &name).await {
                Ok(()) => return Ok(Acted::Done),
                Err(Error::Rejected(Rejection::RequestIdReused)) => {
                    return Ok(Acted::Failed("its request id was used by another call".to_owned()));
                }
                // Its parent or its children are about to hear of its end.
                Err(Error::Rejected(Rejection::EffectsOpen)) if tries < TRIES => {
                    crate::clock::sleep(TRY_PAUSE * tries).await;
                }
                Err(error @ Error::Rejected(Rejection::EffectsOpen)) => return Ok(Acted::Failed(error.to_string())),
                // It was closed, or reopened, or went another way since it was listed.
                Err(Error::Rejected(_) | Error::ExecutionNotFound { .. }) => return Ok(Acted::Skipped),
                Err(Error::WriteConflict | Error::Overloaded { .. }) if tries < TRIES => {
                    crate::clock::sleep(TRY_PAUSE * tries).await;
                }
                Err(error @ (Error::Store(_) | Error::Draining | Error::LevelTooHigh)) => return Err(error),
                Err(error) => return Ok(Acted::Failed(error.to_string())),
            }
        }
    }

    /// Asks for the action as any caller would, under a request id of the batch's own.
    async fn ask(&self, batch: &BatchRow, name: &ExecutionName) -> Result<(), Error> {
        let engine = Engine { core: self.core.clone() };
        let uid = name.uid.expect("a batch names executions by uid");
        let request = Some(RequestKey {
            key: digest16(&[b"batch", batch.id.as_bytes(), uid.0.as_bytes()]),
            content: digest16(&[b"batch", batch.id.as_bytes()]),
        });
        match batch.action {
            BatchAction::Cancel => engine.cancel(name, batch.reason.clone(), request).await.map(drop),
            BatchAction::Terminate => engine.terminate(name, batch.reason.clone(), request).await.map(drop),
            BatchAction::Retry => engine.retry(name, request).await.map(drop),
            BatchAction::Delete => engine.delete(name, request).await,
        }
    }
}
