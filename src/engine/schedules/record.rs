//! A schedule in memory: its row with what the row's texts mean.

use super::progress::{Progress, Run};
use crate::domain::Timestamp;
use crate::domain::schedule::{Schedule, ScheduleUid, State};
use crate::store::ScheduleRow;
use crate::wire::schedule::{Settings, Start};
use std::sync::Arc;

/// A schedule as it was read.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// Its row.
    pub(super) row: ScheduleRow,
    /// What it remembers.
    pub(super) progress: Progress,
    /// What its settings mean, if they can be used.
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
        let uid = ScheduleUid(row.uid);
        let setting = Settings::restore(&row.settings);
        let progress = Progress::restore(&row.progress, row.cursor_time);
        let plan = match (setting, &progress) {
            (Ok(setting), Ok(_)) => {
                let schedule = Schedule { uid, spec: setting.spec, policies: setting.policies };
                Ok(Plan { schedule, start: setting.start })
            }
            (Err(why), _) => Err(Arc::from(why)),
            (_, Err(why)) => Err(Arc::from(why.as_str())),
        };
        let progress = progress.unwrap_or_else(|_| Progress::new(State::new(row.cursor_time)));
        Self { row, progress, plan }
    }
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
        let Record { row, progress, plan } = Record::of(row);
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
