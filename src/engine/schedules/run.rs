//! Finds schedules that have something to decide, and decides it.
//!
//! - A look goes by the index of what is due, so schedules that wait cost nothing. Without any that is due, this node sleeps until
//!   the next one is, and reads the wall clock once a second, since that may be moved.
//! - What is due is read, decided and written many schedules at once.
//! - Where several nodes share the store, each looks first at its own; what its owner has not served a second later is the next
//!   node's, too, and so on. Whoever comes second finds the version raised.
//! - A schedule that fails for a reason of its own rests in memory, and the others go on.

use super::{
    begin::Looked,
    change::decide,
    fire::{Fired, Firing},
};
use crate::domain::Timestamp;
use crate::engine::{Core, call::Error};
use crate::store::{self, FindSchedule, REQUEST_MEMORY, ScheduleKey, ScheduleRow};
use crate::telemetry;
use std::{collections::HashMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

/// Schedules that are decided on together.
const TOGETHER: usize = 256;
/// Rows of one look at what is due, and looks of one round.
const PAGE: usize = 1_000;
const PAGES_MAX: usize = 20;
/// Longest sleep: the wall clock may be moved, and another node may make a schedule that is due soon.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// How long a node leaves what is due to each of those who come before it.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a schedule rests that failed for a reason of its own.
const REST: Duration = Duration::from_secs(30);
/// Schedules that may rest; the rest of them is tried each round.
const RESTING_MAX: usize = 10_000;
/// Pause between two looks for what is old, and the first one: nothing is written for a start.
const CLEANING_INTERVAL: Duration = Duration::from_mins(10);
const FIRST_CLEANING: Duration = Duration::from_mins(5);
/// Rows of each kind that are deleted at once.
const DELETED_AT_ONCE: usize = 500;

/// Runs until the engine stops.
pub(in crate::engine) async fn run(core: Arc<Core>) {
    let next_cleaning = core.clock.monotonic() + FIRST_CLEANING;
    let mut keeper = Keeper { core: core.clone(), resting: HashMap::new(), next_cleaning, next_due: None };
    let mut pause = Duration::ZERO;
    loop {
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = core.schedules.changed.notified() => keeper.next_due = None,
            () = crate::clock::sleep(pause) => {}
        }
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            round = keeper.round() => pause = match round {
                Ok(pause) => {
                    core.duty_done("schedules");
                    pause
                }
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "looking for due schedules failed");
                    keeper.next_due = None;
                    core.config.retry_pause
                }
            },
        }
    }
}

struct Keeper {
    core: Arc<Core>,
    /// Schedules that failed, and until when they are left alone, by monotonic time.
    resting: HashMap<ScheduleKey, Duration>,
    next_cleaning: Duration,
    /// When the next schedule is due that this node knows of; none if it must be looked for.
    next_due: Option<Timestamp>,
}

/// Whether a schedule has something to decide now: it is due, or waits for the end of an execution.
fn hears_of(looked: &Looked, now: Timestamp) -> bool {
    let state = &looked.record.progress.state;
    let is_fragile = looked.record.plan.as_ref().is_ok_and(|plan| plan.schedule.policies.pause_on_failure);
    let waits = is_fragile || state.waiting.is_some() || !state.backfills.is_empty();
    waits || looked.record.row.next_time.is_some_and(|time| time <= now)
}

/// A time that never comes.
const NEVER: Timestamp = Timestamp::from_micros(i64::MAX);

impl Keeper {
    /// Decides on a bounded number of schedules; says how long to wait for the next round.
    async fn round(&mut self) -> Result<Duration, Error> {
        self.clean().await?;
        let hinted = self.hinted().await?;
        let now = self.core.clock.wall();
        if hinted.is_empty() && self.next_due.is_some_and(|due| due > now) && !self.core.store.is_shared() {
            return Ok(self.until_next(now));
        }
        let (keys, has_more) = self.due(now).await?;
        let mut rows = self.read(&keys).await?;
        rows.extend(hinted.into_iter().filter(|row| !keys.contains(&row.key)));
        if !rows.is_empty() {
            self.decide_on(rows).await?;
        }
        if has_more {
            return Ok(Duration::ZERO);
        }
        let next = self.core.store.next_schedule_time().await.map_err(Error::Store)?;
        self.next_due = Some(next.unwrap_or(NEVER));
        Ok(self.until_next(self.core.clock.wall()))
    }

    /// How long to sleep. What is due and yet not this node's turn, or rests, is looked at again soon.
    fn until_next(&self, now: Timestamp) -> Duration {
        let next = self.next_due.unwrap_or(now);
        if next <= now { PATIENCE / 4 } else { next.since(now).min(SLEEP_MAX) }
    }

    /// Schedules that are due and that this node may decide on now; and whether there are more.
    async fn due(&mut self, now: Timestamp) -> Result<(Vec<ScheduleKey>, bool), Error> {
        let monotonic = self.core.clock.monotonic();
        self.resting.retain(|_, until| *until > monotonic);
        let live = self.core.members.live();
        let (mut keys, mut after) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let page = self.core.store.schedules_due(now, after, PAGE).await.map_err(Error::Store)?;
            let is_last = page.len() < PAGE;
            after = page.last().map(|(key, time)| (*time, *key));
            for (key, time) in page {
                let rank = u32::try_from(live.rank_of_schedule(key)).unwrap_or(u32::MAX);
                let is_turn = rank == 0 || now.since(time) >= PATIENCE.saturating_mul(rank);
                if is_turn && !self.resting.contains_key(&key) {
                    if keys.len() == TOGETHER {
                        return Ok((keys, true));
                    }
                    keys.push(key);
                }
            }
            if is_last {
                break;
            }
        }
        Ok((keys, false))
    }

    /// Schedules of which an execution has ended.
    async fn hinted(&self) -> Result<Vec<ScheduleRow>, Error> {
        let mut rows = Vec::new();
        for id in self.core.schedules.take_hints(TOGETHER) {
            rows.extend(self.core.store.schedule(&FindSchedule::Id(id)).await.map_err(Error::Store)?);
        }
        Ok(rows)
    }

    /// Reads schedules. One whose row cannot be read keeps no other from its turn.
    async fn read(&mut self, keys: &[ScheduleKey]) -> Result<Vec<ScheduleRow>, Error> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        match self.core.store.schedules_of(keys).await {
            Ok(rows) => Ok(rows),
            Err(store::Error::Damaged { .. }) => {
                let mut rows = Vec::new();
                for key in keys {
                    match self.core.store.schedules_of(&[*key]).await {
                        Ok(row) => rows.extend(row),
                        Err(error @ store::Error::Damaged { .. }) => self.set_aside(*key, &error),
                        Err(error) => return Err(Error::Store(error)),
                    }
                }
                Ok(rows)
            }
            Err(error) => Err(Error::Store(error)),
        }
    }

    /// Decides on schedules and writes what comes of it.
    async fn decide_on(&mut self, rows: Vec<ScheduleRow>) -> Result<(), Error> {
        let now = self.core.clock.wall();
        let looked = self.core.look_at(rows, now).await?;
        let mut firings = Vec::with_capacity(looked.len());
        for looked in looked {
            if !hears_of(&looked, now) {
                continue;
            }
            let row = &looked.record.row;
            let is_due = row.next_time.is_some_and(|time| time <= now);
            let drafted = std::panic::catch_unwind(AssertUnwindSafe(|| self.draft(&looked, now)));
            match drafted {
                Ok(Ok(firing)) if is_due || !firing.is_idle(row) => firings.push(firing),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => self.set_aside(row.key, &error),
                Err(_) => self.set_aside(row.key, &Error::Internal),
            }
        }
        let keys: Vec<ScheduleKey> = firings.iter().map(|firing| firing.write.row.key).collect();
        let fired = self.core.fire(firings).await?;
        for (key, fired) in keys.into_iter().zip(fired) {
            match fired {
                // Who was first has decided; what is left to decide is found again.
                Fired::Written(_) | Fired::Conflict => {}
                Fired::Failed => self.set_aside(key, &Error::Internal),
            }
        }
        Ok(())
    }

    fn draft(&self, looked: &Looked, now: Timestamp) -> Result<Firing, Error> {
        self.core.draft_firing(looked, decide(looked, now), now)
    }

    /// Leaves a schedule alone for a while.
    fn set_aside(&mut self, key: ScheduleKey, why: &(dyn std::error::Error + 'static)) {
        tracing::warn!(schedule = key.0, error = why, "a schedule is left alone for a while");
        metrics::counter!(telemetry::SCHEDULES_SET_ASIDE).increment(1);
        if self.resting.len() < RESTING_MAX {
            self.resting.insert(key, self.core.clock.monotonic() + REST);
        }
    }

    /// Deletes what is old, a portion at a time.
    async fn clean(&mut self) -> Result<(), Error> {
        let (core, retention) = (&self.core, self.core.config.slot_retention);
        let monotonic = core.clock.monotonic();
        if monotonic < self.next_cleaning {
            return Ok(());
        }
        let wall = core.clock.wall();
        let slots_before = if retention.is_zero() { Timestamp::from_micros(i64::MIN) } else { wall - retention };
        let deleted = core.store.delete_slots(slots_before, wall - REQUEST_MEMORY, DELETED_AT_ONCE);
        let deleted = deleted.await.map_err(Error::Store)?;
        if deleted < DELETED_AT_ONCE as u64 {
            self.next_cleaning = monotonic + CLEANING_INTERVAL;
        }
        Ok(())
    }
}
