//! A schedule in memory: its row with what the row's texts mean.

use super::progress::{Progress, Run};
use crate::domain::Timestamp;
use crate::domain::schedule::{PauseReason, Schedule, ScheduleUid, State};
use crate::store::ScheduleRow;
use crate::wire::schedule::{Setting, Settings, Start};
use std::sync::Arc;

/// A schedule as it was read.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// Its row.
    pub(super) row: ScheduleRow,
    /// What it remembers; of a damaged one nothing but how far it has come.
    pub(super) progress: Progress,
    /// Whether what it remembers cannot be read: then it is left as it stands, until a caller says what is to be.
    pub(super) is_damaged: bool,
    /// What its settings mean, if they and what it remembers can be used.
    pub(super) plan: Result<Plan, Arc<str>>,
}

/// What a schedule's settings mean.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Its rules.
    pub(super) schedule: Schedule,
    /// What it starts.
    pub(super) start: Start,
}

impl Record {
    /// Reads a row. What cannot be read makes the schedule one without a plan, and never an error.
    pub(super) fn of(row: ScheduleRow) -> Self {
        let (progress, plan, is_damaged) = match Progress::restore(&row.progress, row.cursor_time) {
            Ok(progress) => (progress, plan(&row), false),
            Err(why) => (Progress::new(State::new(row.cursor_time)), Err(Arc::from(why)), true),
        };
        Self { row, progress, is_damaged, plan }
    }

    /// Begins anew what cannot be read, as a schedule that has been paused since then. It may have been: so nothing starts that
    /// was due meanwhile. Its regular slots may have started as many as all of its slots together have.
    pub(super) fn begin_anew(&mut self, note: Arc<str>) {
        let mut state = State::new(self.row.cursor_time);
        state.actions = self.row.counts.started;
        state.pause(PauseReason::Asked { note }, self.row.cursor_time);
        self.progress = Progress { open: std::mem::take(&mut self.progress.open), ..Progress::new(state) };
        self.plan = plan(&self.row);
        self.is_damaged = false;
    }
}

fn plan(row: &ScheduleRow) -> Result<Plan, Arc<str>> {
    let Setting { spec, policies, start } = Settings::restore(&row.settings)?;
    Ok(Plan { schedule: Schedule { uid: ScheduleUid(row.uid), spec, policies }, start })
}

/// A schedule as callers see it.
#[derive(Clone, Debug)]
pub struct Viewed {
    /// Its row.
    pub row: ScheduleRow,
    /// What it remembers.
    pub progress: Progress,
    /// Nominal time of the next slot that has not been decided.
    pub next_slot: Option<Timestamp>,
}

impl Viewed {
    /// Reads a row.
    pub(super) fn of(row: ScheduleRow) -> Self {
        let Record { row, progress, plan, .. } = Record::of(row);
        let is_quiet = progress.state.pause.is_some() || row.delete_time.is_some();
        let next_slot = match &plan {
            Ok(plan) if !is_quiet && !plan.schedule.is_used_up(&progress.state) => {
                plan.schedule.spec.next(progress.state.cursor)
            }
            Ok(_) | Err(_) => None,
        };
        Self { row, progress, next_slot }
    }

    /// Executions that were open when it was last looked at, oldest first.
    #[must_use]
    pub fn open(&self) -> &[Run] {
        &self.progress.open
    }
}
