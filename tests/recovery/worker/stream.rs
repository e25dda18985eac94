//! Fetching by stream: tasks, reports and heartbeats are frames.

use super::{Ended, Held, Session, Shared, failure, json, outcome, poll};
use crate::{
    connect::{Flying, Refusal},
    journal,
};
use orbit::proto::worker::{
    Complete, Fail, HeartbeatRequest, Report, ReportResult, StreamTasksRequest, StreamTasksResponse, report::Kind,
};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// How often reports that the server could not take are sent again.
const RESEND: Duration = Duration::from_millis(100);

/// How often that is before a worker turns to another node.
const RESENDS_MAX: u32 = 5;

/// One stream.
struct Stream<'a> {
    shared: &'a Arc<Shared>,
    frames: mpsc::UnboundedSender<StreamTasksRequest>,
    /// Reports on their way.
    flying: HashMap<String, Flying>,
    /// Reports that the server could not take.
    refused: Vec<String>,
    /// Credits that the server has not used.
    credits: usize,
}

/// Works until the connection or the session is lost.
pub(super) async fn work(
    shared: &Arc<Shared>,
    session: &Session,
    reported: &mut mpsc::UnboundedReceiver<String>,
    stop: &CancellationToken,
) -> Ended {
    // Unbounded, but never long: frames answer tasks, and those are bounded by the slots.
    let (frames, receiver) = mpsc::unbounded_channel();
    let mut stream = Stream { shared, frames, flying: HashMap::new(), refused: Vec::new(), credits: 0 };
    // What an earlier stream left unanswered is sent again; the queue of this worker's own has nothing else.
    while reported.try_recv().is_ok() {}
    let unanswered =
        shared.held().iter().filter(|(_, held)| held.report.is_some()).map(|(token, _)| token.clone()).collect();
    stream.send(
        unanswered,
        StreamTasksRequest { session_id: session.id.clone(), ..StreamTasksRequest::default() },
        stop,
    );
    let opened = shared.client.clone().stream_tasks(UnboundedReceiverStream::new(receiver)).await;
    let mut responses = match opened {
        Ok(response) => response.into_inner(),
        Err(status) => return ended(shared, &status),
    };
    let mut beats = tokio::time::interval(session.heartbeat_interval);
    let mut resends = tokio::time::interval(RESEND);
    let mut resent = 0;
    loop {
        tokio::select! {
            response = responses.message() => match response {
                Ok(Some(response)) => {
                    stream.take(response);
                    stream.send(Vec::new(), StreamTasksRequest::default(), stop);
                }
                Ok(None) => return Ended::Connection,
                Err(status) => return ended(shared, &status),
            },
            Some(token) = reported.recv() => {
                let mut tokens = vec![token];
                while let Ok(token) = reported.try_recv() {
                    tokens.push(token);
                }
                stream.send(tokens, StreamTasksRequest::default(), stop);
            }
            _ = beats.tick() => {
                let heartbeat = HeartbeatRequest { session_id: String::new(), held: shared.listed() };
                let frame = StreamTasksRequest { heartbeat: Some(heartbeat), ..StreamTasksRequest::default() };
                stream.send(Vec::new(), frame, stop);
            }
            _ = resends.tick() => {
                if stream.refused.is_empty() {
                    resent = 0;
                    continue;
                }
                resent += 1;
                if resent > RESENDS_MAX && shared.route.is_wide() {
                    shared.route.turn();
                    return Ended::Connection;
                }
                let tokens = std::mem::take(&mut stream.refused);
                stream.send(tokens, StreamTasksRequest::default(), stop);
            }
        }
    }
}

impl Stream<'_> {
    /// Sends these reports, and credits for the slots that are free; nothing, if there is nothing to send.
    fn send(&mut self, tokens: Vec<String>, mut frame: StreamTasksRequest, stop: &CancellationToken) {
        let reports = tokens.into_iter().filter_map(|token| {
            let report = self.shared.held().get(&token).and_then(|held| held.report.clone())?;
            self.flying.insert(token.clone(), self.shared.flight.take_off());
            Some(render(token, &report))
        });
        frame.reports = reports.collect();
        if !stop.is_cancelled() {
            let fresh = self.shared.room().saturating_sub(self.credits);
            self.credits += fresh;
            frame.credits = i32::try_from(fresh).expect("it is small");
        }
        if frame != StreamTasksRequest::default() {
            // A closed channel is a stream that has ended; the next response says how.
            let _ = self.frames.send(frame);
        }
    }

    fn take(&mut self, response: StreamTasksResponse) {
        for ReportResult { task_token: token, outcome, error } in response.results {
            self.flying.remove(&token);
            match (outcome, error) {
                (_, Some(error)) if error.retryable => self.refused.push(token),
                (_, Some(error)) => {
                    self.answered(&token, Err(Refusal { reason: error.reason, message: error.message }));
                }
                (Some(outcome), None) => self.answered(&token, Ok(self::outcome(&outcome))),
                (None, None) => self.shared.fault(&format!("no outcome and no error for {token}")),
            }
        }
        for task in response.tasks {
            if self.credits == 0 {
                self.shared.fault(&format!("{} came without a credit", task.task_token));
            }
            self.credits = self.credits.saturating_sub(1);
            self.shared.accept(task);
        }
        if let Some(heartbeat) = response.heartbeat {
            self.shared.stop_tasks(&heartbeat.stop);
        }
    }

    fn answered(&self, token: &str, outcome: Result<journal::Outcome, Refusal>) {
        let report = match self.shared.held().get(token) {
            Some(Held { report: Some(report), .. }) => report.clone(),
            Some(Held { report: None, .. }) | None => return,
        };
        self.shared.answered(token, report, outcome);
    }
}

fn render(task_token: String, report: &journal::Report) -> Report {
    let kind = match report {
        journal::Report::Success(output) => Kind::Complete(Complete { output: Some(json(output)) }),
        journal::Report::Failure(code) => Kind::Fail(Fail { failure: Some(failure(code)), ..Fail::default() }),
    };
    Report { task_token, kind: Some(kind) }
}

fn ended(shared: &Shared, status: &Status) -> Ended {
    Refusal::of(status).map_or(Ended::Connection, |refusal| poll::ended(shared, &refusal))
}
