//! Keeps schedules: `schedule create`, `get`, `list`, `update`, `pause`, `resume`, `trigger`, `backfill`, `next`, `history`,
//! `delete`.

mod change;
mod look;
mod show;
mod spec;

use super::{error::Error, output::Output};

/// Starts executions at given times.
#[derive(Debug, clap::Subcommand)]
pub(super) enum ScheduleCommand {
    Create(change::Create),
    Get(look::Get),
    #[command(visible_alias = "ls")]
    List(look::List),
    Update(change::Update),
    Pause(change::Pause),
    Resume(change::Resume),
    Trigger(change::Trigger),
    Backfill(change::Backfill),
    Next(look::Next),
    History(look::History),
    Delete(change::Delete),
}

impl ScheduleCommand {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        match self {
            Self::Create(create) => create.run(output).await,
            Self::Get(get) => get.run(output).await,
            Self::List(list) => list.run(output).await,
            Self::Update(update) => update.run(output).await,
            Self::Pause(pause) => pause.run(output).await,
            Self::Resume(resume) => resume.run(output).await,
            Self::Trigger(trigger) => trigger.run(output).await,
            Self::Backfill(backfill) => backfill.run(output).await,
            Self::Next(next) => next.run(output).await,
            Self::History(history) => history.run(output).await,
            Self::Delete(delete) => delete.run(output).await,
        }
    }
}
