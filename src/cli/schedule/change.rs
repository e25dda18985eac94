//! Commands that change schedules.

use super::{
    show,
    spec::{OverlapArgument, PolicyArguments, SpecArguments, StartArguments, settings, with_zone},
};
use crate::{
    cli::{
        client::{Connection, call},
        error::Error,
        execution::request_id,
        output::Output,
    },
    proto::{
        json::{Scalar as _, Time},
        schedule::{
            BackfillScheduleRequest, CreateScheduleRequest, DeleteScheduleRequest, PauseScheduleRequest,
            ResumeScheduleRequest, TriggerScheduleRequest, UpdateScheduleRequest, schedule_policies,
        },
    },
};

/// Makes a schedule and shows it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  orbit schedule create nightly --workflow report --cron '30 1 * * *' --timezone Europe/London
  orbit schedule create sync --workflow sync --interval 15m --overlap buffer-one --jitter 1m
  orbit schedule create daily --workflow report --cron @daily --input '{\"day\": \"${ schedule.nominal_time }\"}'")]
pub(in crate::cli) struct Create {
    /// Id of the schedule
    id: String,
    #[command(flatten)]
    start: StartArguments,
    #[command(flatten)]
    spec: SpecArguments,
    #[command(flatten)]
    policies: PolicyArguments,
    /// What it is for, for people
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Makes it paused
    #[arg(long)]
    paused: bool,
    /// Why it is paused, for people
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true, requires = "paused")]
    note: String,
    /// Makes the call safe to repeat: the same id again finds what the first call did [default: a new one]
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Changes a schedule: what is given, and nothing else. Options that may be given again replace what there was of their kind;
/// labels are changed one by one.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  orbit schedule update nightly --cron '0 2 * * *' --overlap skip
  orbit schedule update nightly --label team=billing --remove-label trial")]
pub(in crate::cli) struct Update {
    /// Id of the schedule
    id: String,
    #[command(flatten)]
    start: StartArguments,
    #[command(flatten)]
    spec: SpecArguments,
    #[command(flatten)]
    policies: PolicyArguments,
    /// Label that executions no longer get; may be given again
    #[arg(long = "remove-label", value_name = "KEY")]
    removed_labels: Vec<String>,
    /// What it is for, for people
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Etag that it must have, as `get` shows it [default: any]
    #[arg(long, value_name = "ETAG", default_value = "", hide_default_value = true)]
    etag: String,
    /// Makes the call safe to repeat: the same id again changes nothing [default: a new one]
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Pauses a schedule: nothing starts by itself until it is resumed.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Pause {
    /// Id of the schedule
    id: String,
    /// Why, for people
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    note: String,
    /// Makes the call safe to repeat: the same id again changes nothing [default: a new one]
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Ends a pause. Slots that came meanwhile are passed over for good.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Resume {
    /// Id of the schedule
    id: String,
    /// Makes the call safe to repeat: the same id again changes nothing [default: a new one]
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Starts an execution now, and prints its id; ends with 4 if nothing starts.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Trigger {
    /// Id of the schedule
    id: String,
    /// What to do while an execution of the schedule is open [default: what the schedule does]
    #[arg(long, value_name = "POLICY", value_enum)]
    overlap: Option<OverlapArgument>,
    /// Makes the call safe to repeat: the same id again starts nothing [default: a new one]
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Starts executions for the schedule's slots in a span, in the background, whether they have started before or not.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  orbit schedule backfill nightly --from 2026-11-01T00:00:00Z --to 2026-11-08T00:00:00Z")]
pub(in crate::cli) struct Backfill {
    /// Id of the schedule
    id: String,
    /// First instant of the span
    #[arg(long, value_name = "TIME", value_parser = Time::text)]
    from: prost_types::Timestamp,
    /// Last instant of the span; not in the future
    #[arg(long, value_name = "TIME", value_parser = Time::text)]
    to: prost_types::Timestamp,
    /// How many executions of the schedule may be open for another to start, 1 to 100
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=100))]
    concurrency: i32,
    /// Makes the call safe to repeat: the same id again starts nothing [default: a new one]
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Deletes a schedule. Executions that it has started go on.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Delete {
    /// Id of the schedule
    id: String,
    /// Is content if there is none
    #[arg(long)]
    allow_missing: bool,
    /// Etag that it must have, as `get` shows it [default: any]
    #[arg(long, value_name = "ETAG", default_value = "", hide_default_value = true)]
    etag: String,
    /// Makes the call safe to repeat: the same id again changes nothing [default: a new one]
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

impl Create {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let (settings, _) = settings(self.spec, self.start, self.policies, self.description)?;
        let request = CreateScheduleRequest {
            id: self.id,
            spec: settings.spec.map(with_zone),
            start: settings.start,
            policies: settings.policies,
            description: settings.description,
            paused: self.paused,
            pause_note: self.note,
            request_id: request_id(self.request_id),
        };
        let made = self.connection.schedules().create_schedule(call(request)).await?.into_inner();
        show::schedule(&made.schedule.unwrap_or_default(), output)
    }
}

impl Update {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let (settings, mut paths) = settings(self.spec, self.start, self.policies, self.description)?;
        // What is named and has no value is taken away.
        paths.extend(self.removed_labels.iter().map(|key| format!("start.labels.{key}")));
        if paths.is_empty() {
            return Err(Error::usage("says nothing to change").hint("`orbit schedule update --help` lists the options"));
        }
        let request = UpdateScheduleRequest {
            id: self.id,
            schedule: Some(settings),
            update_mask: Some(prost_types::FieldMask { paths }),
            etag: self.etag,
            request_id: request_id(self.request_id),
        };
        let changed = self.connection.schedules().update_schedule(call(request)).await?.into_inner();
        show::schedule(&changed.schedule.unwrap_or_default(), output)
    }
}

impl Pause {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let request = PauseScheduleRequest {
            id: self.id,
            note: self.note,
            etag: String::new(),
            request_id: request_id(self.request_id),
        };
        let changed = self.connection.schedules().pause_schedule(call(request)).await?.into_inner();
        show::schedule(&changed.schedule.unwrap_or_default(), output)
    }
}

impl Resume {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let request =
            ResumeScheduleRequest { id: self.id, etag: String::new(), request_id: request_id(self.request_id) };
        let changed = self.connection.schedules().resume_schedule(call(request)).await?.into_inner();
        show::schedule(&changed.schedule.unwrap_or_default(), output)
    }
}

impl Trigger {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let overlap = self.overlap.map_or(schedule_policies::Overlap::Unspecified, Into::into);
        let request =
            TriggerScheduleRequest { id: self.id, overlap: overlap.into(), request_id: request_id(self.request_id) };
        let triggered = self.connection.schedules().trigger_schedule(call(request)).await?.into_inner();
        show::triggered(&triggered.slot.unwrap_or_default(), output)
    }
}

impl Backfill {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let request = BackfillScheduleRequest {
            id: self.id,
            first_time: Some(self.from),
            last_time: Some(self.to),
            concurrency: self.concurrency,
            request_id: request_id(self.request_id),
        };
        let answer = self.connection.schedules().backfill_schedule(call(request)).await?.into_inner();
        if output.is_json() {
            return output.json(&answer);
        }
        output.note("it goes on in the background; `orbit schedule history ID` shows its slots");
        output.line(&answer.request)
    }
}

impl Delete {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let request = DeleteScheduleRequest {
            id: self.id.clone(),
            etag: self.etag,
            allow_missing: self.allow_missing,
            request_id: request_id(self.request_id),
        };
        let answer = self.connection.schedules().delete_schedule(call(request)).await?.into_inner();
        if output.is_json() {
            return output.json(&answer);
        }
        output.note(&format!("schedule {} is deleted", self.id));
        Ok(())
    }
}
