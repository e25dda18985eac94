//! Holds executions and has them run again: `pause`, `resume`, `retry`, `rerun`.

use super::{
    client::{Connection, call},
    error::Error,
    execution::{Name, request_id},
    input::{PayloadArgument, parse_label},
    output::Output,
};
use crate::proto::admin::{
    PauseExecutionRequest, RerunExecutionRequest, ResumeExecutionRequest, RetryExecutionRequest,
};

/// Holds an execution: nothing begins until it is resumed; tasks that workers have go on.
#[derive(Debug, clap::Args)]
pub(super) struct Pause {
    #[command(flatten)]
    name: Name,
    /// Why, for people
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    #[command(flatten)]
    calling: Calling,
}

/// Lets a paused execution go on.
#[derive(Debug, clap::Args)]
pub(super) struct Resume {
    #[command(flatten)]
    name: Name,
    #[command(flatten)]
    calling: Calling,
}

/// Has what failed of a FAILED or TIMED_OUT execution run again; what has ended well stays.
#[derive(Debug, clap::Args)]
pub(super) struct Retry {
    #[command(flatten)]
    name: Name,
    #[command(flatten)]
    calling: Calling,
}

/// Starts a new execution that repeats another one from a step on, with its earlier results, and prints its id.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  orbit rerun order-42 --from ship --input @corrected.json --new-id order-42b")]
pub(super) struct Rerun {
    #[command(flatten)]
    name: Name,
    /// Step to begin with; it and all that depend on it run
    #[arg(long = "from", value_name = "STEP")]
    from_step: String,
    /// Input: JSON text, @FILE, or - for stdin [default: that of the other one]
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    input: Option<PayloadArgument>,
    /// Id of the new execution [default: the server makes one]
    #[arg(long, value_name = "ID")]
    new_id: Option<String>,
    /// Label; may be given again
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    calling: Calling,
}

#[derive(Debug, clap::Args)]
struct Calling {
    /// Makes the call safe to repeat: the same id again changes nothing [default: a new one]
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

impl Pause {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let ((id, uid), Calling { request_id: request, connection }) = (self.name.parts(), self.calling);
        let request =
            PauseExecutionRequest { id: id.clone(), uid, reason: self.reason, request_id: request_id(request) };
        let response = connection.admin().pause_execution(call(request)).await?.into_inner();
        if output.is_json() {
            return output.json(&response);
        }
        output.line(&format!("{id} is paused since event {}", response.event_number))
    }
}

impl Resume {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let ((id, uid), Calling { request_id: request, connection }) = (self.name.parts(), self.calling);
        let request = ResumeExecutionRequest { id: id.clone(), uid, request_id: request_id(request) };
        let response = connection.admin().resume_execution(call(request)).await?.into_inner();
        if output.is_json() {
            return output.json(&response);
        }
        output.line(&match response.event_number {
            0 => format!("{id} was not paused"),
            number => format!("{id} goes on since event {number}"),
        })
    }
}

impl Retry {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let ((id, uid), Calling { request_id: request, connection }) = (self.name.parts(), self.calling);
        let request = RetryExecutionRequest { id: id.clone(), uid, request_id: request_id(request) };
        let response = connection.admin().retry_execution(call(request)).await?.into_inner();
        if output.is_json() {
            return output.json(&response);
        }
        output.line(&format!("{id} runs again since event {}", response.event_number))
    }
}

impl Rerun {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let ((id, uid), Calling { request_id: request, connection }) = (self.name.parts(), self.calling);
        let request = RerunExecutionRequest {
            id: id.clone(),
            uid,
            from_step: self.from_step,
            input: self.input.map(|input| input.read("--input")).transpose()?,
            new_id: self.new_id.unwrap_or_default(),
            labels: self.labels.into_iter().collect(),
            request_id: request_id(request),
        };
        let from_step = request.from_step.clone();
        let response = connection.admin().rerun_execution(call(request)).await?.into_inner();
        if output.is_json() {
            return output.json(&response);
        }
        let what = if response.created { "started" } else { "exists already:" };
        output.note(&format!("{what} {}, which repeats {id} from {from_step} on", response.id));
        output.line(&response.id)
    }
}
