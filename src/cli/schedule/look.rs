//! Commands that look at schedules.

use super::{
    show,
    spec::{SpecArguments, with_zone},
};
use crate::{
    cli::{
        client::{Connection, call},
        error::Error,
        output::Output,
    },
    proto::{
        json::{Scalar as _, Time},
        schedule::{
            GetScheduleRequest, ListSchedulesRequest, ListSlotsRequest, PreviewScheduleRequest, schedule::State,
            slot::Outcome,
        },
    },
};

/// Shows a schedule.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Get {
    /// Id of the schedule
    id: String,
    /// Uid that it must have; finds one that was deleted, too
    #[arg(long, value_name = "UID", default_value = "", hide_default_value = true)]
    uid: String,
    #[command(flatten)]
    connection: Connection,
}

/// Lists schedules by id.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct List {
    /// Those that start this workflow
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    workflow: String,
    /// Those in this state
    #[arg(long, value_name = "STATE", value_enum, ignore_case = true)]
    state: Option<StateArgument>,
    /// Most entries to show, 1 to 1,000
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(i32).range(1..=1_000))]
    limit: i32,
    #[command(flatten)]
    connection: Connection,
}

/// State of a schedule.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum StateArgument {
    Active,
    Paused,
    Invalid,
    Completed,
}

impl From<StateArgument> for State {
    fn from(state: StateArgument) -> Self {
        match state {
            StateArgument::Active => Self::Active,
            StateArgument::Paused => Self::Paused,
            StateArgument::Invalid => Self::Invalid,
            StateArgument::Completed => Self::Completed,
        }
    }
}

/// Shows the next slots of a schedule, or of a spec that is not stored, with the times that are left out and why.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  orbit schedule next nightly
  orbit schedule next --cron '30 1 * * *' --timezone America/New_York --after 2026-10-31T00:00:00Z")]
pub(in crate::cli) struct Next {
    /// Id of the schedule; without one the options below make a spec
    id: Option<String>,
    #[command(flatten)]
    spec: SpecArguments,
    /// How many slots, 1 to 1,000
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(i32).range(1..=1_000))]
    limit: i32,
    /// After which instant [default: now]
    #[arg(long, value_name = "TIME", value_parser = Time::text)]
    after: Option<prost_types::Timestamp>,
    #[command(flatten)]
    connection: Connection,
}

/// Shows what became of a schedule's slots, the newest first.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct History {
    /// Id of the schedule
    id: String,
    /// Uid that it must have; finds one that was deleted, too
    #[arg(long, value_name = "UID", default_value = "", hide_default_value = true)]
    uid: String,
    /// Slots with this outcome
    #[arg(long, value_name = "OUTCOME", value_enum, ignore_case = true)]
    outcome: Option<OutcomeArgument>,
    /// Most entries to show, 1 to 1,000
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(i32).range(1..=1_000))]
    limit: i32,
    #[command(flatten)]
    connection: Connection,
}

/// What became of a slot.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum OutcomeArgument {
    Started,
    Buffered,
    Overlapped,
    Superseded,
    Paused,
    Replaced,
    Missed,
    Failed,
}

impl From<OutcomeArgument> for Outcome {
    fn from(outcome: OutcomeArgument) -> Self {
        match outcome {
            OutcomeArgument::Started => Self::Started,
            OutcomeArgument::Buffered => Self::Buffered,
            OutcomeArgument::Overlapped => Self::Overlapped,
            OutcomeArgument::Superseded => Self::Superseded,
            OutcomeArgument::Paused => Self::Paused,
            OutcomeArgument::Replaced => Self::Replaced,
            OutcomeArgument::Missed => Self::Missed,
            OutcomeArgument::Failed => Self::Failed,
        }
    }
}

impl Get {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let request = GetScheduleRequest { id: self.id, uid: self.uid };
        let found = self.connection.schedules().get_schedule(call(request)).await?.into_inner();
        show::schedule(&found.schedule.unwrap_or_default(), output)
    }
}

impl List {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let request = ListSchedulesRequest {
            workflow: self.workflow,
            state: self.state.map_or(State::Unspecified, Into::into).into(),
            page_size: self.limit,
            page_token: String::new(),
        };
        let page = self.connection.schedules().list_schedules(call(request)).await?.into_inner();
        show::list(&page.schedules, output)?;
        if !page.next_page_token.is_empty() {
            output.note(&format!("showing {}; --limit shows more", page.schedules.len()));
        }
        Ok(())
    }
}

impl Next {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let (spec, paths) = self.spec.read()?;
        let spec = match (&self.id, paths.is_empty()) {
            (Some(_), true) => None,
            (None, false) => Some(with_zone(spec)),
            (Some(_), false) => return Err(Error::usage("takes an id or a spec, not both")),
            (None, true) => return Err(Error::usage("needs the id of a schedule, or a spec such as --cron EXPR")),
        };
        let request = PreviewScheduleRequest {
            id: self.id.unwrap_or_default(),
            spec,
            after_time: self.after,
            max_slots: self.limit,
        };
        let preview = self.connection.schedules().preview_schedule(call(request)).await?.into_inner();
        show::preview(&preview, output)
    }
}

impl History {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let request = ListSlotsRequest {
            id: self.id,
            uid: self.uid,
            outcome: self.outcome.map_or(Outcome::Unspecified, Into::into).into(),
            page_size: self.limit,
            page_token: String::new(),
        };
        let page = self.connection.schedules().list_slots(call(request)).await?.into_inner();
        show::slots(&page.slots, output)?;
        if !page.next_page_token.is_empty() {
            output.note(&format!("showing {}; --limit shows more", page.slots.len()));
        }
        Ok(())
    }
}
