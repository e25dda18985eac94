//! Looks at one execution, and acts on it: `get`, `signal`, `cancel`, `terminate`, `delete`.

use super::{
    client::{Connection, call},
    error::Error,
    input::PayloadArgument,
    output::{Output, Tone, span},
    table::{Cell, Table},
    wait::{self, Interrupt, Waiting},
};
use crate::proto::{
    admin::{
        CancelExecutionRequest, DeleteExecutionRequest, GetExecutionRequest, SignalExecutionRequest,
        TerminateExecutionRequest,
    },
    workflow::{Execution, Failure, Payload, StepStatus, execution::State, payload::Content, step_status},
};
use std::{collections::HashMap, time::Duration};

/// Shows an execution with its steps.
#[derive(Debug, clap::Args)]
pub(super) struct Get {
    #[command(flatten)]
    name: Name,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    connection: Connection,
}

/// Gives an execution a signal.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  orbit signal order-42 approved --payload '{\"by\": \"ada\"}'")]
pub(super) struct Signal {
    #[command(flatten)]
    execution: Name,
    /// Name of a signal that the definition declares
    name: String,
    /// Payload: JSON text, @FILE, or - for stdin [default: null]
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    payload: Option<PayloadArgument>,
    /// Makes the call safe to repeat: the same id again changes nothing [default: a new one]
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Cancels an execution: nothing new starts, and tasks that are out get 30 s to stop.
#[derive(Debug, clap::Args)]
pub(super) struct Cancel {
    #[command(flatten)]
    ending: Ending,
}

/// Ends an execution at once, without waiting for its tasks.
#[derive(Debug, clap::Args)]
pub(super) struct Terminate {
    #[command(flatten)]
    ending: Ending,
}

/// Deletes a closed execution: nothing finds it any more, and its id is free.
#[derive(Debug, clap::Args)]
pub(super) struct Delete {
    #[command(flatten)]
    name: Name,
    /// Makes the call safe to repeat: the same id again changes nothing [default: a new one]
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Names an execution.
#[derive(Debug, clap::Args)]
pub(super) struct Name {
    /// Id of the execution
    id: String,
    /// Uid that it must have, for ids that are used again
    #[arg(long)]
    uid: Option<String>,
}

impl Name {
    /// Id and uid as requests have them.
    pub(super) fn parts(self) -> (String, String) {
        (self.id, self.uid.unwrap_or_default())
    }
}

#[derive(Debug, clap::Args)]
struct Ending {
    #[command(flatten)]
    name: Name,
    /// Why, for people
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    /// Makes the call safe to repeat: the same id again changes nothing [default: a new one]
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

impl Get {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let mut client = self.connection.admin();
        let Name { id, uid } = self.name;
        let uid = uid.unwrap_or_default();
        if self.waiting.wait {
            let mut interrupt = Interrupt::listen()?;
            let ended = wait::until_closed(&mut client, (&id, &uid), &self.waiting, &mut interrupt, output).await?;
            return wait::show_end(&ended, output);
        }
        let response = client.get_execution(call(GetExecutionRequest { id, uid })).await?.into_inner();
        show(&response.execution.unwrap_or_default(), output)
    }
}

impl Signal {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let payload = self.payload.map(|payload| payload.read("--payload")).transpose()?;
        let Name { id, uid } = self.execution;
        let request = SignalExecutionRequest {
            id: id.clone(),
            uid: uid.unwrap_or_default(),
            name: self.name.clone(),
            payload,
            expire_time: None,
            request_id: request_id(self.request_id),
        };
        let response = self.connection.admin().signal_execution(call(request)).await?.into_inner();
        if output.is_json() {
            return output.json(&response);
        }
        output.line(&format!("{id} has signal {} as event {}", self.name, response.event_number))
    }
}

impl Cancel {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let Ending { name: Name { id, uid }, reason, request_id: request, connection } = self.ending;
        let uid = uid.unwrap_or_default();
        let request = CancelExecutionRequest { id: id.clone(), uid, reason, request_id: request_id(request) };
        let response = connection.admin().cancel_execution(call(request)).await?.into_inner();
        if output.is_json() {
            return output.json(&response);
        }
        output.line(&format!("{id} is being cancelled since event {}", response.event_number))
    }
}

impl Terminate {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let Ending { name: Name { id, uid }, reason, request_id: request, connection } = self.ending;
        let uid = uid.unwrap_or_default();
        let request = TerminateExecutionRequest { id: id.clone(), uid, reason, request_id: request_id(request) };
        let response = connection.admin().terminate_execution(call(request)).await?.into_inner();
        if output.is_json() {
            return output.json(&response);
        }
        output.line(&format!("{id} was terminated with event {}", response.event_number))
    }
}

impl Delete {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let Name { id, uid } = self.name;
        let uid = uid.unwrap_or_default();
        let request = DeleteExecutionRequest { id: id.clone(), uid, request_id: request_id(self.request_id) };
        let response = self.connection.admin().delete_execution(call(request)).await?.into_inner();
        if output.is_json() {
            return output.json(&response);
        }
        output.line(&format!("{id} was deleted"))
    }
}

/// The caller's, or a new one, so that a call that a proxy repeats happens once.
pub(super) fn request_id(given: Option<String>) -> String {
    given.unwrap_or_else(|| uuid::Uuid::now_v7().to_string())
}

/// Prints an execution in full.
pub(super) fn show(execution: &Execution, output: Output) -> Result<(), Error> {
    if output.is_json() {
        return output.json(execution);
    }
    let mut table = Table::default();
    table.field("Id", &*execution.id);
    table.field("Uid", &*execution.uid);
    table.field("Workflow", format!("{}@{}", execution.workflow, execution.version));
    table.field("State", state_cell(execution.state()));
    table.field("Started", output.time(execution.start_time.as_ref()));
    if let Some(begin) = &execution.begin_time {
        table.field("First step", output.time(Some(begin)));
    }
    if let Some(close) = &execution.close_time {
        table.field("Closed", format!("{}, after {}", output.time(Some(close)), lifetime(execution)));
    } else if let Some(expire) = &execution.expire_time {
        table.field("Times out", output.time(Some(expire)));
    }
    table.field("Labels", labels(&execution.labels));
    table.field("Input", json_text(execution.input.as_ref()));
    table.field("Output", json_text(execution.output.as_ref()));
    if let Some(failure) = &execution.failure {
        table.field("Failure", Cell::toned(Tone::Bad, failure_text(failure)));
    }
    table.field("Reason", &*execution.reason);
    table.field("Events", execution.last_event_number.to_string());
    if execution.buffered_signals > 0 {
        table.field("Signals", format!("{} not taken yet", execution.buffered_signals));
    }
    if execution.payloads_omitted {
        table.field("Payloads", "too large to show all; `orbit history` has them");
    }
    output.table(&table)?;
    if execution.steps.is_empty() {
        return Ok(());
    }
    let mut steps = Table::with_headers(&["STEP", "STATE", "ATTEMPT", "WORKER", "DETAIL"]);
    for step in &execution.steps {
        let attempt = if step.attempt == 0 { "-".to_owned() } else { step.attempt.to_string() };
        let worker = if step.worker_id.is_empty() { "-" } else { &step.worker_id };
        let state = step.state();
        let cell = Cell::toned(step_tone(state), bare(state.as_str_name()));
        steps.row([(&*step.step).into(), cell, attempt.into(), worker.into(), step_detail(step, output).into()]);
    }
    output.line("")?;
    output.table(&steps)
}

/// The state as a word in its colour.
pub(super) fn state_cell(state: State) -> Cell {
    let tone = match state {
        State::Unspecified => Tone::Plain,
        State::Running => Tone::Busy,
        State::Paused | State::WindingDown | State::Cancelled | State::Terminated => Tone::Warning,
        State::Succeeded => Tone::Good,
        State::Failed | State::TimedOut => Tone::Bad,
    };
    Cell::toned(tone, bare(state.as_str_name()))
}

/// An enum's name without its prefix.
fn bare(name: &str) -> &str {
    name.strip_prefix("STATE_").unwrap_or(name)
}

fn step_tone(state: step_status::State) -> Tone {
    use step_status::State;
    match state {
        State::Unspecified => Tone::Plain,
        State::Pending | State::Skipped => Tone::Faint,
        State::Scheduled | State::Running | State::Sleeping | State::Awaiting => Tone::Busy,
        State::BackingOff | State::Cancelled => Tone::Warning,
        State::Succeeded => Tone::Good,
        State::Failed => Tone::Bad,
    }
}

fn step_detail(step: &StepStatus, output: Output) -> String {
    use step_status::State;
    let failure = || step.failure.as_ref().map(failure_text).unwrap_or_default();
    let wake = || output.time(step.wake_time.as_ref());
    match step.state() {
        State::Scheduled => format!("waits for a worker of {} in queue {}", step.task, step.queue),
        State::BackingOff => format!("next attempt {}; {}", wake(), failure()),
        State::Sleeping => format!("wakes {}", wake()),
        State::Awaiting if step.wake_time.is_some() => format!("times out {}", wake()),
        State::Succeeded => json_text(step.output.as_ref()),
        State::Failed => failure(),
        State::Unspecified | State::Pending | State::Running | State::Awaiting | State::Skipped | State::Cancelled => {
            json_text(step.progress.as_ref())
        }
    }
}

/// `CODE: message (in unit)`.
pub(super) fn failure_text(failure: &Failure) -> String {
    let message = if failure.message.is_empty() { String::new() } else { format!(": {}", failure.message) };
    let unit = if failure.unit.is_empty() { String::new() } else { format!(" (in {})", failure.unit) };
    format!("{}{message}{unit}", failure.code)
}

/// A payload's text; answers have no other form.
pub(super) fn json_text(payload: Option<&Payload>) -> String {
    match payload.and_then(|payload| payload.content.as_ref()) {
        Some(Content::Json(text)) => text.clone(),
        Some(Content::Value(_) | Content::Reference(_)) | None => String::new(),
    }
}

/// The labels by key.
pub(super) fn labels(labels: &HashMap<String, String>) -> String {
    let mut labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    labels.sort();
    labels.join(" ")
}

/// How long it lived; empty while it does.
pub(super) fn lifetime(execution: &Execution) -> String {
    let micros = |time: &prost_types::Timestamp| time.seconds * 1_000_000 + i64::from(time.nanos) / 1_000;
    match (&execution.start_time, &execution.close_time) {
        (Some(start), Some(close)) => {
            span(Duration::from_micros(u64::try_from(micros(close) - micros(start)).unwrap_or(0)))
        }
        _ => String::new(),
    }
}
