//! Starts an execution, and waits for its end if asked to: `start`.

use super::{
    client::{Backoff, Connection, Deadline, call},
    error::Error,
    execution::request_id,
    input::{PayloadArgument, parse_label},
    output::Output,
    wait::{self, Interrupt, Waiting},
};
use crate::{
    config::parse_duration,
    proto::admin::{
        IdReusePolicy, StartExecutionRequest, StartExecutionResponse, StartSignal,
        admin_service_client::AdminServiceClient,
    },
};
use std::time::Duration;
use tonic::transport::Channel;

/// With --wait, how long a server that is away may stay away before the execution is accepted: a restart, no more.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// Starts an execution of a workflow and prints its id.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  orbit start order --id order-42 --input '{\"order_id\": \"42\"}'
  orbit start order --input @order.json --wait --timeout 5m -o json | jq .output

Repeating a start with the same --id, workflow and input finds the same execution.")]
pub(super) struct Start {
    /// Name of the workflow
    workflow: String,
    /// Id of the execution [default: the server makes one]
    #[arg(long)]
    id: Option<String>,
    /// Version of the definition [default: the highest, without pre-releases]
    #[arg(long)]
    version: Option<String>,
    /// Input: JSON text, @FILE, or - for stdin [default: null]
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    input: Option<PayloadArgument>,
    /// Label; may be given again
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    labels: Vec<(String, String)>,
    /// What may be done if another execution has the id
    #[arg(long, value_name = "POLICY", value_enum, default_value_t = IdReuse::Reject)]
    id_reuse: IdReuse,
    /// Pause before the first step, such as 30s, 1h30m or 7d
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    delay: Option<Duration>,
    /// Signal that it gets with its start; if an open execution of the workflow has the id, that one gets it
    #[arg(long, value_name = "NAME")]
    signal: Option<String>,
    /// Payload of the signal: JSON text, @FILE, or - for stdin [default: null]
    #[arg(long, value_name = "JSON", allow_hyphen_values = true, requires = "signal")]
    signal_payload: Option<PayloadArgument>,
    /// Makes the call safe to repeat: the same id again finds what the first call did [default: a new one]
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    connection: Connection,
}

/// What may be done if another execution has the id.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum IdReuse {
    /// Find one with the same workflow and input, else refuse
    Reject,
    /// Take the place of a closed one
    AllowWhenClosed,
    /// Take its place, and terminate it if it is open
    TerminateRunning,
}

impl From<IdReuse> for IdReusePolicy {
    fn from(reuse: IdReuse) -> Self {
        match reuse {
            IdReuse::Reject => Self::Reject,
            IdReuse::AllowWhenClosed => Self::AllowWhenClosed,
            IdReuse::TerminateRunning => Self::TerminateRunning,
        }
    }
}

impl Start {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let payload = self.signal_payload.map(|payload| payload.read("--signal-payload")).transpose()?;
        let signal = self.signal.map(|name| StartSignal { name, payload });
        let request = StartExecutionRequest {
            id: self.id.unwrap_or_default(),
            workflow: self.workflow,
            version: self.version.unwrap_or_default(),
            input: self.input.map(|input| input.read("--input")).transpose()?,
            labels: self.labels.into_iter().collect(),
            request_id: request_id(self.request_id),
            id_reuse_policy: IdReusePolicy::from(self.id_reuse).into(),
            start_delay: self.delay.map(to_proto).transpose()?,
            signal,
        };
        let workflow = request.workflow.clone();
        let mut client = self.connection.admin();
        if !self.waiting.wait {
            let started = client.start_execution(call(request)).await?.into_inner();
            return show(&workflow, &started, output);
        }
        let patience = self.waiting.timeout.map_or(START_PATIENCE, |timeout| timeout.min(START_PATIENCE));
        let mut interrupt = Interrupt::listen()?;
        let request_id = request.request_id.clone();
        let started = interrupt
            .or(start_with_patience(&mut client, request, patience), || {
                "interrupted before the server answered".to_owned()
            })
            .await
            .map_err(|error| {
                error.hint(format!("the same call with --request-id {request_id} finds what this one did"))
            })?;
        // As JSON, stderr is for errors alone, and the result says all of this.
        if !output.is_json() {
            output.note(&sentence(&workflow, &started));
        }
        let name = (&*started.id, &*started.uid);
        let ended = wait::until_closed(&mut client, name, &self.waiting, &mut interrupt, output).await?;
        wait::show_end(&ended, output)
    }
}

/// Tries again while the server is away. One `request_id` for all tries makes that one start.
async fn start_with_patience(
    client: &mut AdminServiceClient<Channel>,
    request: StartExecutionRequest,
    patience: Duration,
) -> Result<StartExecutionResponse, Error> {
    let deadline = Deadline::after(Some(patience));
    let mut backoff = Backoff::new();
    loop {
        match client.start_execution(call(request.clone())).await {
            Ok(response) => return Ok(response.into_inner()),
            Err(status) => backoff.pause(status, &deadline).await?,
        }
    }
}

fn show(workflow: &str, started: &StartExecutionResponse, output: Output) -> Result<(), Error> {
    if output.is_json() {
        return output.json(started);
    }
    output.note(&sentence(workflow, started));
    output.line(&started.id)
}

fn to_proto(delay: Duration) -> Result<prost_types::Duration, Error> {
    prost_types::Duration::try_from(delay).map_err(|error| Error::usage(format!("--delay is too long: {error}")))
}

fn sentence(workflow: &str, started: &StartExecutionResponse) -> String {
    let what = if started.created { "started" } else { "exists already:" };
    format!("{what} {} of {workflow}@{}", started.id, started.version)
}
