//! The service of workers: register, poll or stream, heartbeat, report.

mod parse;
mod reader;
mod stream;

use super::{call::Calls, render, status::Refusal};
use crate::domain::TaskToken;
use crate::engine::{Engine, Report};
use crate::proto::worker::{self as proto, worker_service_server::WorkerService};
use crate::wire::{Invalid, time};
use std::pin::Pin;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

pub(super) use stream::Streams;

/// Answers `orbit.worker.v1.WorkerService`.
pub struct Worker {
    /// What does the work.
    pub(super) engine: Engine,
    /// What surrounds every call.
    pub(super) calls: Calls,
    /// What all streams share.
    pub(super) streams: Streams,
}

impl Worker {
    async fn report(
        &self,
        rpc: &'static str,
        report: Result<(TaskToken, Report), Invalid>,
    ) -> Result<Response<proto::ReportOutcome>, Status> {
        let engine = self.engine.clone();
        let work = async move {
            let (token, report) = report?;
            Ok(render::outcome(engine.report(token, report).await?))
        };
        self.calls.write(rpc, work).await
    }
}

#[tonic::async_trait]
impl WorkerService for Worker {
    async fn register_worker(
        &self,
        request: Request<proto::RegisterWorkerRequest>,
    ) -> Result<Response<proto::RegisterWorkerResponse>, Status> {
        let engine = self.engine.clone();
        let work = async move {
            let registered = engine.register(parse::registration(request.into_inner())?).await?;
            Ok(proto::RegisterWorkerResponse {
                session_id: registered.session.to_string(),
                heartbeat_interval: Some(time::render_span(registered.heartbeat_interval)),
                session_timeout: Some(time::render_span(registered.session_timeout)),
                warnings: registered.warnings,
                resumed: registered.resumed,
            })
        };
        self.calls.write("RegisterWorker", work).await
    }

    async fn poll_tasks(
        &self,
        request: Request<proto::PollTasksRequest>,
    ) -> Result<Response<proto::PollTasksResponse>, Status> {
        // Not a write of the kind that runs on alone: a poll whose call is gone gives its tasks back.
        let work = async {
            let poll = parse::poll(&request.into_inner())?;
            let polled = self.engine.poll(poll.session, poll.max_tasks, poll.wait).await?;
            let tasks = polled.tasks.iter().map(render::task).collect();
            Ok(proto::PollTasksResponse { tasks, draining: polled.draining })
        };
        self.calls.read("PollTasks", work).await
    }

    type StreamTasksStream = Pin<Box<dyn Stream<Item = Result<proto::StreamTasksResponse, Status>> + Send>>;

    async fn stream_tasks(
        &self,
        request: Request<Streaming<proto::StreamTasksRequest>>,
    ) -> Result<Response<Self::StreamTasksStream>, Status> {
        Ok(Response::new(self.streams.open(self.engine.clone(), self.calls.clone(), request.into_inner())))
    }

    async fn heartbeat(
        &self,
        request: Request<proto::HeartbeatRequest>,
    ) -> Result<Response<proto::HeartbeatResponse>, Status> {
        let work = async {
            let (session, held) = parse::heartbeat(request.into_inner())?;
            Ok(render::heartbeat(&self.engine.heartbeat(session, held).await?))
        };
        self.calls.read("Heartbeat", work).await
    }

    async fn complete_task(
        &self,
        request: Request<proto::CompleteTaskRequest>,
    ) -> Result<Response<proto::CompleteTaskResponse>, Status> {
        let reply = self.report("CompleteTask", parse::complete(request.into_inner())).await?;
        Ok(reply.map(|outcome| proto::CompleteTaskResponse { outcome: Some(outcome) }))
    }

    async fn fail_task(
        &self,
        request: Request<proto::FailTaskRequest>,
    ) -> Result<Response<proto::FailTaskResponse>, Status> {
        let reply = self.report("FailTask", parse::fail(request.into_inner())).await?;
        Ok(reply.map(|outcome| proto::FailTaskResponse { outcome: Some(outcome) }))
    }

    async fn release_task(
        &self,
        request: Request<proto::ReleaseTaskRequest>,
    ) -> Result<Response<proto::ReleaseTaskResponse>, Status> {
        let reply = self.report("ReleaseTask", parse::release(&request.into_inner())).await?;
        Ok(reply.map(|outcome| proto::ReleaseTaskResponse { outcome: Some(outcome) }))
    }

    async fn unregister_worker(
        &self,
        request: Request<proto::UnregisterWorkerRequest>,
    ) -> Result<Response<proto::UnregisterWorkerResponse>, Status> {
        let engine = self.engine.clone();
        let work = async move {
            let session = parse::session(&request.into_inner().session_id)?;
            engine.unregister(session).await.map_err(Refusal::Engine)?;
            Ok(proto::UnregisterWorkerResponse {})
        };
        self.calls.write("UnregisterWorker", work).await
    }
}
