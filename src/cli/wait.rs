//! Waits for the end of an execution: through restarts of the server, until Ctrl-C detaches.

use super::{
    client::{Backoff, Deadline, call_within},
    error::Error,
    execution::{failure_text, json_text, lifetime},
    exit::Exit,
    output::Output,
};
use crate::{
    config::parse_duration,
    proto::{
        admin::{WaitExecutionRequest, admin_service_client::AdminServiceClient},
        json,
        workflow::{Execution, execution::State},
    },
};
use std::{future::Future, time::Duration};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tonic::transport::Channel;

/// How long one call waits; the server's own default.
const CALL_WAIT: Duration = Duration::from_secs(25);

/// Room for the answer beyond the wait, as servers and proxies under load need it.
const CALL_SLACK: Duration = Duration::from_secs(10);

/// Whether and how long to wait.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Waiting {
    /// Waits for the end; the exit code tells how it ended. Ctrl-C detaches, the execution goes on
    #[arg(long)]
    pub(super) wait: bool,
    /// With --wait, gives up after this time with exit code 6; the execution goes on [default: never]
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = parse_duration)]
    pub(super) timeout: Option<Duration>,
}

/// Ctrl-C, from when this was made on.
#[derive(Debug)]
pub(super) struct Interrupt(Signal);

impl Interrupt {
    /// Takes Ctrl-C over: it no longer ends the program by itself.
    pub(super) fn listen() -> Result<Self, Error> {
        let listening = signal(SignalKind::interrupt());
        Ok(Self(listening.map_err(|error| Error::failure(format!("cannot listen for Ctrl-C: {error}")))?))
    }

    /// Does the work, unless Ctrl-C comes first: then `message` is what there is to say.
    pub(super) async fn or<T>(
        &mut self,
        work: impl Future<Output = Result<T, Error>>,
        message: impl FnOnce() -> String,
    ) -> Result<T, Error> {
        tokio::select! {
            done = work => done,
            _ = self.0.recv() => {
                Err(Error::Local { exit: Exit::Interrupted, message: message(), hint: String::new() })
            }
        }
    }
}

/// Waits until the execution is closed. A server that is away is waited for too.
pub(super) async fn until_closed(
    client: &mut AdminServiceClient<Channel>,
    (id, uid): (&str, &str),
    waiting: &Waiting,
    interrupt: &mut Interrupt,
    output: Output,
) -> Result<Execution, Error> {
    let follow = follow(client, id, uid, Deadline::after(waiting.timeout), output);
    let waited = interrupt.or(follow, || format!("detached from {id}, which goes on")).await;
    waited.map_err(|error| error.hint(format!("`orbit get {id} --wait` waits for it again")))
}

async fn follow(
    client: &mut AdminServiceClient<Channel>,
    id: &str,
    uid: &str,
    deadline: Deadline,
    output: Output,
) -> Result<Execution, Error> {
    let mut backoff = Backoff::new();
    let mut told = false;
    loop {
        let wait = deadline.left(CALL_WAIT);
        let request = WaitExecutionRequest {
            id: id.to_owned(),
            uid: uid.to_owned(),
            wait_duration: Some(prost_types::Duration::try_from(wait).expect("25 s fit")),
        };
        match client.wait_execution(call_within(request, wait + CALL_SLACK)).await {
            Ok(response) => {
                let execution = response.into_inner().execution.unwrap_or_default();
                if Exit::of_state(execution.state()).is_some() {
                    return Ok(execution);
                }
                // An open execution before its time means that the server drains: it will be away for a moment.
                (backoff, told) = (Backoff::new(), false);
            }
            Err(status) => {
                let message = status.message().to_owned();
                backoff.pause(status, &deadline).await?;
                if !told {
                    output.note(&format!("server is away ({message}); waiting for it"));
                    told = true;
                }
            }
        }
        if deadline.passed() {
            return Err(Error::Local {
                exit: Exit::Unavailable,
                message: format!("time ran out while {id} goes on"),
                hint: String::new(),
            });
        }
    }
}

/// Prints the end of an execution: its output for people, all of it as JSON. Fails with the exit code of a bad end.
pub(super) fn show_end(execution: &Execution, output: Output) -> Result<(), Error> {
    let exit = Exit::of_state(execution.state()).unwrap_or(Exit::Failure);
    if output.is_json() {
        output.json(execution)?;
    } else if exit == Exit::Ok {
        output.note(&format!("{} succeeded after {}", execution.id, lifetime(execution)));
        output.line(&json::pretty(&json_text(execution.output.as_ref())))?;
    } else {
        output.complain(&bad_end(execution), &format!("`orbit history {}` shows what happened", execution.id));
    }
    if exit == Exit::Ok { Ok(()) } else { Err(Error::Said(exit)) }
}

fn bad_end(execution: &Execution) -> String {
    let id = &execution.id;
    let reason = if execution.reason.is_empty() { String::new() } else { format!(": {}", execution.reason) };
    match execution.state() {
        State::Failed => {
            let failure = execution.failure.as_ref().map(failure_text).unwrap_or_default();
            format!("{id} failed: {failure}")
        }
        State::Cancelled => format!("{id} was cancelled{reason}"),
        State::Terminated => format!("{id} was terminated{reason}"),
        State::TimedOut => format!("{id} was ended by its own timeout"),
        State::Unspecified | State::Running | State::Paused | State::WindingDown | State::Succeeded => {
            format!("{id} has not ended")
        }
    }
}
