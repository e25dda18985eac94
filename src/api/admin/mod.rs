//! The service of callers and operators. Each rpc is parse, call, render; a file for each family of them.

mod batch;
mod change;
mod definition;
mod execution;
mod explain;
mod history;
mod rerun;
mod server_info;
mod start;

use super::{call::Calls, connection::Closing, status::Refusal};
use crate::engine::{Engine, ExecutionName};
use crate::proto::admin::{self as proto, admin_service_server::AdminService};
use crate::wire::{self, Violations};
use std::{pin::Pin, time::Duration};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

/// Longest wait of `WaitExecution`.
const WAIT_MAX: Duration = Duration::from_secs(50);

/// Answers `orbit.admin.v1.AdminService`.
pub struct Admin {
    /// What does the work.
    pub(super) engine: Engine,
    /// What surrounds every call.
    pub(super) calls: Calls,
}

/// What the handlers give.
type Answer<T> = Result<T, Refusal>;

#[tonic::async_trait]
impl AdminService for Admin {
    async fn deploy_definition(
        &self,
        request: Request<proto::DeployDefinitionRequest>,
    ) -> Result<Response<proto::DeployDefinitionResponse>, Status> {
        self.calls.write("DeployDefinition", definition::deploy(self.engine.clone(), request.into_inner())).await
    }

    async fn deploy_definitions(
        &self,
        request: Request<proto::DeployDefinitionsRequest>,
    ) -> Result<Response<proto::DeployDefinitionsResponse>, Status> {
        self.calls.write("DeployDefinitions", definition::deploy_all(self.engine.clone(), request.into_inner())).await
    }

    async fn get_definition(
        &self,
        request: Request<proto::GetDefinitionRequest>,
    ) -> Result<Response<proto::GetDefinitionResponse>, Status> {
        self.calls.read("GetDefinition", definition::get(&self.engine, request.into_inner())).await
    }

    async fn list_definitions(
        &self,
        request: Request<proto::ListDefinitionsRequest>,
    ) -> Result<Response<proto::ListDefinitionsResponse>, Status> {
        self.calls.read("ListDefinitions", definition::list(&self.engine, request.into_inner())).await
    }

    async fn start_execution(
        &self,
        request: Request<proto::StartExecutionRequest>,
    ) -> Result<Response<proto::StartExecutionResponse>, Status> {
        let trace_parent = start::trace_parent(request.metadata());
        let start = start::start(self.engine.clone(), request.into_inner(), trace_parent);
        self.calls.write("StartExecution", start).await
    }

    async fn get_execution(
        &self,
        request: Request<proto::GetExecutionRequest>,
    ) -> Result<Response<proto::GetExecutionResponse>, Status> {
        self.calls.read("GetExecution", execution::get(&self.engine, request.into_inner())).await
    }

    async fn query_execution(
        &self,
        request: Request<proto::QueryExecutionRequest>,
    ) -> Result<Response<proto::QueryExecutionResponse>, Status> {
        self.calls.read("QueryExecution", execution::query(&self.engine, request.into_inner())).await
    }

    async fn explain_execution(
        &self,
        request: Request<proto::ExplainExecutionRequest>,
    ) -> Result<Response<proto::ExplainExecutionResponse>, Status> {
        self.calls.read("ExplainExecution", explain::explain(&self.engine, request.into_inner())).await
    }

    async fn wait_execution(
        &self,
        request: Request<proto::WaitExecutionRequest>,
    ) -> Result<Response<proto::WaitExecutionResponse>, Status> {
        self.calls.read("WaitExecution", execution::wait(&self.engine, request.into_inner())).await
    }

    async fn list_executions(
        &self,
        request: Request<proto::ListExecutionsRequest>,
    ) -> Result<Response<proto::ListExecutionsResponse>, Status> {
        self.calls.read("ListExecutions", execution::list(&self.engine, request.into_inner())).await
    }

    async fn count_executions(
        &self,
        _: Request<proto::CountExecutionsRequest>,
    ) -> Result<Response<proto::CountExecutionsResponse>, Status> {
        self.calls.read("CountExecutions", execution::count(&self.engine)).await
    }

    async fn list_events(
        &self,
        request: Request<proto::ListEventsRequest>,
    ) -> Result<Response<proto::ListEventsResponse>, Status> {
        self.calls.read("ListEvents", history::list(&self.engine, request.into_inner())).await
    }

    type WatchEventsStream = Pin<Box<dyn Stream<Item = Result<proto::WatchEventsResponse, Status>> + Send>>;

    async fn watch_events(
        &self,
        request: Request<proto::WatchEventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        let closing = Closing::of(request.extensions());
        let watch = history::watch(&self.engine, self.calls.clone(), closing, request.into_inner());
        self.calls.read("WatchEvents", watch).await
    }

    async fn signal_execution(
        &self,
        request: Request<proto::SignalExecutionRequest>,
    ) -> Result<Response<proto::SignalExecutionResponse>, Status> {
        self.calls.write("SignalExecution", change::signal(self.engine.clone(), request.into_inner())).await
    }

    async fn cancel_execution(
        &self,
        request: Request<proto::CancelExecutionRequest>,
    ) -> Result<Response<proto::CancelExecutionResponse>, Status> {
        self.calls.write("CancelExecution", change::cancel(self.engine.clone(), request.into_inner())).await
    }

    async fn terminate_execution(
        &self,
        request: Request<proto::TerminateExecutionRequest>,
    ) -> Result<Response<proto::TerminateExecutionResponse>, Status> {
        self.calls.write("TerminateExecution", change::terminate(self.engine.clone(), request.into_inner())).await
    }

    async fn pause_execution(
        &self,
        request: Request<proto::PauseExecutionRequest>,
    ) -> Result<Response<proto::PauseExecutionResponse>, Status> {
        self.calls.write("PauseExecution", change::pause(self.engine.clone(), request.into_inner())).await
    }

    async fn resume_execution(
        &self,
        request: Request<proto::ResumeExecutionRequest>,
    ) -> Result<Response<proto::ResumeExecutionResponse>, Status> {
        self.calls.write("ResumeExecution", change::resume(self.engine.clone(), request.into_inner())).await
    }

    async fn retry_execution(
        &self,
        request: Request<proto::RetryExecutionRequest>,
    ) -> Result<Response<proto::RetryExecutionResponse>, Status> {
        self.calls.write("RetryExecution", change::retry(self.engine.clone(), request.into_inner())).await
    }

    async fn rerun_execution(
        &self,
        request: Request<proto::RerunExecutionRequest>,
    ) -> Result<Response<proto::RerunExecutionResponse>, Status> {
        let trace_parent = start::trace_parent(request.metadata());
        let rerun = rerun::rerun(self.engine.clone(), request.into_inner(), trace_parent);
        self.calls.write("RerunExecution", rerun).await
    }

    async fn delete_execution(
        &self,
        request: Request<proto::DeleteExecutionRequest>,
    ) -> Result<Response<proto::DeleteExecutionResponse>, Status> {
        self.calls.write("DeleteExecution", change::delete(self.engine.clone(), request.into_inner())).await
    }

    async fn create_batch(
        &self,
        request: Request<proto::CreateBatchRequest>,
    ) -> Result<Response<proto::CreateBatchResponse>, Status> {
        self.calls.write("CreateBatch", batch::create(self.engine.clone(), request.into_inner())).await
    }

    async fn get_batch(
        &self,
        request: Request<proto::GetBatchRequest>,
    ) -> Result<Response<proto::GetBatchResponse>, Status> {
        self.calls.read("GetBatch", batch::get(&self.engine, request.into_inner())).await
    }

    async fn list_batches(
        &self,
        request: Request<proto::ListBatchesRequest>,
    ) -> Result<Response<proto::ListBatchesResponse>, Status> {
        self.calls.read("ListBatches", batch::list(&self.engine, request.into_inner())).await
    }

    async fn cancel_batch(
        &self,
        request: Request<proto::CancelBatchRequest>,
    ) -> Result<Response<proto::CancelBatchResponse>, Status> {
        self.calls.write("CancelBatch", batch::cancel(self.engine.clone(), request.into_inner())).await
    }

    async fn list_workers(
        &self,
        request: Request<proto::ListWorkersRequest>,
    ) -> Result<Response<proto::ListWorkersResponse>, Status> {
        self.calls.read("ListWorkers", server_info::list_workers(&self.engine, request.into_inner())).await
    }

    async fn get_server_info(
        &self,
        _: Request<proto::GetServerInfoRequest>,
    ) -> Result<Response<proto::GetServerInfoResponse>, Status> {
        self.calls.read("GetServerInfo", std::future::ready(Ok(server_info::tell(&self.engine)))).await
    }
}

/// Reads the id and the uid that every rpc about one execution has.
fn name(violations: &mut Violations, id: &str, uid: &str) -> Option<ExecutionName> {
    let id = violations.take("id", wire::field::execution_id(id));
    let uid = violations.take("uid", wire::field::uid(uid));
    Some(ExecutionName { id: id?, uid: uid? })
}

/// One page of entries that were read one further, and whether there was one further.
fn cut_page<T>(mut entries: Vec<T>, size: usize) -> (Vec<T>, bool) {
    let more = entries.len() > size;
    entries.truncate(size);
    (entries, more)
}
