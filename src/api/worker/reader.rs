//! The side of `StreamTasks` that reads: credits, reports, heartbeats.
//!
//! Reports run at the same time, heartbeats one after another, since an older list must not replace a newer one. Both
//! are bounded: a worker that sends faster than the store takes is read more slowly.

use super::{
    parse::{self, SLOTS_MAX},
    stream::REPORTS_MAX,
};
use crate::api::{call::Calls, native, render, status::Refusal};
use crate::domain::SessionId;
use crate::engine::{self, Engine, HeldToken};
use crate::proto::worker::{self as proto, StreamTasksRequest};
use crate::wire::Violations;
use futures_util::{StreamExt, stream::FuturesUnordered};
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, Streaming};

/// Name of this rpc in logs.
const RPC: &str = "StreamTasks";

/// Heartbeats of one stream that wait their turn.
const HEARTBEATS_MAX: usize = 4;

/// Something for the writer to say.
pub(super) enum Note {
    /// The answer to a report.
    Result(proto::ReportResult),
    /// The answer to a heartbeat.
    Heartbeat(proto::HeartbeatResponse),
    /// Why the stream ends.
    Fatal(Status),
}

/// Reads the frames of one stream.
pub(super) struct Reader {
    pub(super) engine: Engine,
    pub(super) calls: Calls,
    pub(super) session: SessionId,
    pub(super) granter: engine::Granter,
    pub(super) notes: mpsc::Sender<Note>,
}

impl Reader {
    /// Reads until the worker has said all, the stream is broken or `stop` is called. What was read is carried out.
    pub(super) async fn run(
        self,
        first: StreamTasksRequest,
        mut inbound: Streaming<StreamTasksRequest>,
        stop: CancellationToken,
    ) {
        let (heartbeats, waiting) = mpsc::channel(HEARTBEATS_MAX);
        self.calls.spawn(answer_heartbeats(
            self.engine.clone(),
            self.calls.clone(),
            self.session,
            waiting,
            self.notes.clone(),
        ));
        let reports = Arc::new(Semaphore::new(REPORTS_MAX));
        let mut frame = first;
        loop {
            if let Err(refusal) = self.take(frame, &heartbeats, &reports).await {
                let status = self.calls.refuse(RPC, &refusal);
                return drop(self.notes.send(Note::Fatal(status)).await);
            }
            let next = tokio::select! {
                next = inbound.message() => next,
                () = stop.cancelled() => return,
            };
            frame = match next {
                Ok(Some(frame)) => frame,
                Ok(None) => return,
                Err(status) => return self.broken(&status).await,
            };
        }
    }

    async fn take(
        &self,
        frame: StreamTasksRequest,
        heartbeats: &mpsc::Sender<Vec<HeldToken>>,
        reports: &Arc<Semaphore>,
    ) -> Result<(), Refusal> {
        let mut violations = Violations::new();
        let credits = u32::try_from(frame.credits).ok().filter(|credits| *credits <= SLOTS_MAX);
        let credits = violations.take("credits", credits.ok_or(format!("must be 0 to {SLOTS_MAX}")));
        let credits = violations.finish(credits)?;
        let held = frame.heartbeat.map(parse::stream_heartbeat).transpose()?;
        self.granter.grant(credits);
        if !frame.reports.is_empty() {
            self.spawn_reports(frame.reports, reports).await;
        }
        if let Some(held) = held {
            // Nobody takes it where the session is gone; the writer then knows why.
            let _ = heartbeats.send(held).await;
        }
        Ok(())
    }

    async fn spawn_reports(&self, reports: Vec<proto::Report>, running: &Arc<Semaphore>) {
        let count = u32::try_from(reports.len().min(REPORTS_MAX)).expect("the most is small");
        let permits = running.clone().acquire_many_owned(count).await.expect("nobody closes it");
        let (engine, calls, notes) = (self.engine.clone(), self.calls.clone(), self.notes.clone());
        self.calls.spawn(async move {
            let mut results: FuturesUnordered<_> =
                reports.into_iter().map(|report| answer_report(&engine, &calls, report)).collect();
            while let Some(result) = results.next().await {
                // The call may be gone; the rest is carried out all the same.
                let _ = notes.send(Note::Result(result)).await;
            }
            drop(permits);
        });
    }

    /// A message that is too large or no protobuf is the worker's mistake; anything else is a connection that is gone.
    async fn broken(&self, status: &Status) {
        if let Some(status) = native::translate(status, RPC) {
            let _ = self.notes.send(Note::Fatal(status)).await;
        } else if status.code() != Code::Cancelled {
            tracing::debug!(rpc = RPC, code = ?status.code(), "a stream broke off");
        }
    }
}

async fn answer_report(engine: &Engine, calls: &Calls, report: proto::Report) -> proto::ReportResult {
    let proto::Report { task_token, kind } = report;
    let work = async {
        let (token, report) = parse::report(&task_token, kind)?;
        Ok(render::outcome(engine.report(token, report).await?))
    };
    let (outcome, error) = match calls.guard(RPC, work).await {
        Ok(outcome) => (Some(outcome), None),
        Err(verdict) => (None, Some(verdict.into_report_error())),
    };
    proto::ReportResult { task_token, outcome, error }
}

async fn answer_heartbeats(
    engine: Engine,
    calls: Calls,
    session: SessionId,
    mut waiting: mpsc::Receiver<Vec<HeldToken>>,
    notes: mpsc::Sender<Note>,
) {
    while let Some(held) = waiting.recv().await {
        let work = async { Ok(render::heartbeat(&engine.heartbeat(session, held).await?)) };
        match calls.guard(RPC, work).await {
            Ok(answer) => {
                let _ = notes.send(Note::Heartbeat(answer)).await;
            }
            // A heartbeat that the store could not take comes again by itself; a session that is gone does not.
            Err(verdict) if verdict.is_retryable() => {}
            Err(verdict) => {
                let _ = notes.send(Note::Fatal(verdict.into_status())).await;
                return;
            }
        }
    }
}
