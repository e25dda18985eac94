//! Lets go of what has been closed for long: executions, and runs that ended in those that are still there.
//!
//! - A deletion begins with an ordinary command, so that no rule is passed over; the trimming of runs with a floor that is
//!   raised. From then on nobody finds what is to go.
//! - Rows are removed [`REMOVAL_DELAY`] later, when no statement that missed the mark can still run. A node counts that time
//!   itself, from when it first saw the mark, by its monotonic time: a clock that leaps shortens nothing, a restart lengthens it.
//! - Small portions, and after each a rest of four times as long, so the write path is another's for four fifths of the time
//!   at least. Lists are gone through by cursors: what cannot be deleted (yet) stands in nothing's way.
//! - A node looks after its own executions. Where two do the same, the second finds nothing left to do.

use super::{Core, call::Error};
use crate::domain::{Command, EventKind, Timestamp};
use crate::store::{ExecutionKey, RunRow};
use futures_util::{StreamExt as _, stream};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Pause between two looks while there is little to do.
const INTERVAL: Duration = Duration::from_secs(10);
/// Pause while there is more.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// How long rows stay once they are marked: longer than any statement may run (a minute at most), its retries included.
const REMOVAL_DELAY: Duration = Duration::from_secs(90);
/// How long the row of an execution remembers the call that had it deleted.
const REQUEST_MEMORY: Duration = Duration::from_hours(24);
/// Entries of one page of a list.
const PAGE: usize = 256;
/// Deletions that are begun at once, which the writers of all executions share.
const BEGUN_AT_ONCE: usize = 16;
/// Executions whose rows are removed in one transaction, and most rows of each kind of each of them: some milliseconds.
const REMOVED_AT_ONCE: usize = 16;
const ROWS_MAX: usize = 64;
/// Portions of one round, so that each kind of work has its turn.
const PORTIONS_MAX: usize = 32;
/// Marks that are remembered; what is beyond comes later.
const MARKS_MAX: usize = 10_000;

/// An execution that is to be removed.
#[derive(Clone, Copy)]
struct Mark {
    /// When it was first seen, by monotonic time.
    since: Duration,
    /// When its own row may go, by the node's time.
    row_until: Timestamp,
}

/// Runs that are to be removed from an execution: up to this event.
#[derive(Clone, Copy)]
struct Floor {
    number: u64,
    since: Duration,
}

struct Retention {
    core: Arc<Core>,
    /// Where the next page of each list begins.
    closed: Option<(Timestamp, ExecutionKey)>,
    deleted: Option<(Timestamp, ExecutionKey)>,
    runs: Option<RunRow>,
    marks: BTreeMap<ExecutionKey, Mark>,
    floors: BTreeMap<ExecutionKey, Floor>,
    /// Executions of which only their row is left, which stays for a while.
    emptied: BTreeSet<ExecutionKey>,
}

/// Runs until the engine stops.
pub(super) async fn run(core: Arc<Core>) {
    let mut retention = Retention {
        core: core.clone(),
        closed: None,
        deleted: None,
        runs: None,
        marks: BTreeMap::new(),
        floors: BTreeMap::new(),
        emptied: BTreeSet::new(),
    };
    let mut pause = INTERVAL;
    loop {
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = crate::clock::sleep(pause) => {}
        }
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            round = retention.round() => pause = match round {
                Ok(pause) => {
                    core.duty_done("retention");
                    pause
                }
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "removing what is old failed");
                    INTERVAL
                }
            },
        }
    }
}

impl Retention {
    /// Does a bounded part of what is to be done; says how long to wait for the next round. What fails is told in the end, and
    /// keeps nothing else from being done.
    async fn round(&mut self) -> Result<Duration, Error> {
        let retention = self.core.config.retention;
        let before = self.core.clock.wall() - retention;
        let (mut begun, mut raised) = (Ok(false), Ok(false));
        if !retention.is_zero() {
            // Old servers would not know what the event means.
            if self.core.level() >= EventKind::DeletionBegan.level() {
                begun = self.begin_deletions(before).await;
            }
            raised = self.raise_floors(before).await;
        }
        let found = self.find_deleted().await;
        let removed = self.remove_deleted().await;
        let trimmed = self.remove_trimmed().await;
        let is_busy = begun? | raised? | found? | removed? | trimmed?;
        Ok(if is_busy { BUSY_PAUSE } else { INTERVAL })
    }

    /// Begins the deletion of executions that were closed before a time; says whether there are more.
    async fn begin_deletions(&mut self, before: Timestamp) -> Result<bool, Error> {
        let core = &self.core;
        let page = core.store.closed_before(before, self.closed, PAGE).await.map_err(Error::Store)?;
        let is_full = page.len() == PAGE;
        self.closed = page.last().copied().filter(|_| is_full);
        let live = core.members.live();
        let mine: Vec<ExecutionKey> = page.into_iter().map(|(_, key)| key).filter(|key| live.is_mine(*key)).collect();
        for portion in mine.chunks(BEGUN_AT_ONCE) {
            self.at_leisure(async {
                let begin =
                    |key| async move { (key, core.execute(key, Command::BeginDeletion { request: None }).await) };
                let mut begun = stream::iter(portion.iter().copied().map(begin)).buffer_unordered(BEGUN_AT_ONCE);
                while let Some((key, outcome)) = begun.next().await {
                    match outcome {
                        Ok(_) => {}
                        // It was taken up again, has something left to do, or another node was first.
                        Err(Error::Rejected(_) | Error::ExecutionNotFound { .. } | Error::WriteConflict) => {}
                        Err(error) => tracing::debug!(execution = key.0, %error, "it is kept for now"),
                    }
                }
            })
            .await;
        }
        Ok(is_full)
    }

    /// Takes note of executions whose deletion has begun; says whether there are more.
    async fn find_deleted(&mut self) -> Result<bool, Error> {
        let core = &self.core;
        let page = core.store.deleted(self.deleted, PAGE).await.map_err(Error::Store)?;
        let is_full = page.len() == PAGE;
        self.deleted = page.last().map(|row| (row.delete_time, row.key)).filter(|_| is_full);
        let (live, since, now) = (core.members.live(), core.clock.monotonic(), core.clock.now());
        for row in page.into_iter().filter(|row| live.is_mine(row.key)) {
            let row_until = if row.has_request { row.delete_time + REQUEST_MEMORY } else { row.delete_time };
            let is_to_do = row_until <= now || !self.emptied.contains(&row.key);
            if is_to_do && self.marks.len() < MARKS_MAX {
                self.marks.entry(row.key).or_insert(Mark { since, row_until });
            }
        }
        Ok(is_full)
    }

    /// Removes rows of executions that were marked long enough ago; says whether there are more.
    async fn remove_deleted(&mut self) -> Result<bool, Error> {
        for _ in 0..PORTIONS_MAX {
            let core = &self.core;
            let (monotonic, now) = (core.clock.monotonic(), core.clock.now());
            let due = self.marks.iter().filter(|(_, mark)| monotonic.saturating_sub(mark.since) >= REMOVAL_DELAY);
            let due: Vec<_> = due.take(REMOVED_AT_ONCE).map(|(key, mark)| (*key, mark.row_until <= now)).collect();
            if due.is_empty() {
                return Ok(false);
            }
            let removed = self.at_leisure(core.store.delete_rows(&due, ROWS_MAX)).await.map_err(Error::Store)?;
            for ((key, with_row), _) in due.into_iter().zip(removed).filter(|(_, is_empty)| *is_empty) {
                self.marks.remove(&key);
                if with_row {
                    self.emptied.remove(&key);
                    metrics::counter!(crate::telemetry::EXECUTIONS_DELETED).increment(1);
                } else {
                    // What is forgotten is only looked at once more.
                    if self.emptied.len() >= MARKS_MAX {
                        self.emptied.clear();
                    }
                    self.emptied.insert(key);
                }
            }
        }
        Ok(true)
    }

    /// Says of runs that ended before a time that they may go; says whether there are more.
    async fn raise_floors(&mut self, before: Timestamp) -> Result<bool, Error> {
        let core = &self.core;
        let page = core.store.runs_begun_before(before, self.runs, PAGE).await.map_err(Error::Store)?;
        let is_full = page.len() == PAGE;
        self.runs = page.last().copied().filter(|_| is_full);
        let live = core.members.live();
        let mut floors: BTreeMap<ExecutionKey, u64> = BTreeMap::new();
        for row in page.into_iter().filter(|row| live.is_mine(row.execution)) {
            let floor = floors.entry(row.execution).or_default();
            *floor = row.first_number.saturating_sub(1).max(*floor);
        }
        for (key, number) in floors {
            // Not before the last ones are gone: else a floor that rises again and again would let nothing go.
            if self.floors.contains_key(&key) || self.floors.len() >= MARKS_MAX {
                continue;
            }
            if self.at_leisure(core.store.raise_floor(key, number)).await.map_err(Error::Store)? {
                self.floors.insert(key, Floor { number, since: core.clock.monotonic() });
            }
        }
        Ok(is_full)
    }

    /// Removes rows of runs whose floor was raised long enough ago; says whether there are more.
    async fn remove_trimmed(&mut self) -> Result<bool, Error> {
        for _ in 0..PORTIONS_MAX {
            let core = &self.core;
            let monotonic = core.clock.monotonic();
            let due = |floor: &Floor| monotonic.saturating_sub(floor.since) >= REMOVAL_DELAY;
            let Some((key, floor)) =
                self.floors.iter().find(|(_, floor)| due(floor)).map(|(key, floor)| (*key, *floor))
            else {
                return Ok(false);
            };
            let rows_max = ROWS_MAX * REMOVED_AT_ONCE;
            let trimmed = core.store.delete_trimmed(key, floor.number, rows_max);
            if self.at_leisure(trimmed).await.map_err(Error::Store)? {
                self.floors.remove(&key);
            }
        }
        Ok(true)
    }

    /// Does a portion of work and rests for four times as long.
    async fn at_leisure<T>(&self, work: impl Future<Output = T>) -> T {
        let began = self.core.clock.monotonic();
        let done = work.await;
        let taken = self.core.clock.monotonic().saturating_sub(began);
        crate::clock::sleep(taken * 4).await;
        done
    }
}
