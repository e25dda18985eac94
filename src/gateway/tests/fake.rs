//! Services that record each call and answer by what the id asks for.

use std::{pin::Pin, sync::Mutex, time::Duration};

use futures_util::{Stream, StreamExt as _, stream};
use tonic::{Code, Request, Response, Status, Streaming, metadata::MetadataMap};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::proto::{
    admin::{admin_service_server::AdminService, *},
    schedule::{schedule_service_server::ScheduleService, *},
    worker::{worker_service_server::WorkerService, *},
    workflow::{Event, Execution, Payload},
};

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Records calls. `GetExecution` answers with the input of the last start.
#[derive(Default)]
pub(super) struct Fake {
    calls: Mutex<Vec<String>>,
    metadata: Mutex<MetadataMap>,
    input: Mutex<Option<Payload>>,
}

impl Fake {
    /// The calls since the last look: the rpc and its message.
    pub(super) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    /// The metadata of the last call.
    pub(super) fn metadata(&self) -> MetadataMap {
        self.metadata.lock().unwrap().clone()
    }

    fn record<T: std::fmt::Debug>(&self, rpc: &str, request: Request<T>) -> T {
        let (metadata, _, message) = request.into_parts();
        self.calls.lock().unwrap().push(format!("{rpc} {message:?}"));
        *self.metadata.lock().unwrap() = metadata;
        message
    }
}

/// The error that an id asks for.
async fn asked_for(id: &str) -> Result<(), Status> {
    let error = |code, reason: &str, details: ErrorDetails| {
        let mut all = ErrorDetails::with_error_info(reason, "orbit", [("id".to_owned(), id.to_owned())]);
        if let Some(delay) = details.retry_info().and_then(|info| info.retry_delay) {
            all.set_retry_info(Some(delay));
        }
        if let Some(resource) = details.resource_info() {
            all.set_resource_info(&resource.resource_type, &resource.resource_name, "", &resource.description);
        }
        if let Some(failure) = details.precondition_failure() {
            all.set_precondition_failure(failure.violations.clone());
        }
        Err(Status::with_error_details(code, format!("asked for {id}"), all))
    };
    let wait = |millis| ErrorDetails::with_retry_info(Some(Duration::from_millis(millis)));
    match id {
        "missing" => error(
            Code::NotFound,
            "EXECUTION_NOT_FOUND",
            ErrorDetails::with_resource_info("execution", id, "", "no such execution"),
        ),
        "closed" => error(
            Code::FailedPrecondition,
            "EXECUTION_CLOSED",
            ErrorDetails::with_precondition_failure_violation("STATE", id, "is closed"),
        ),
        "draining" => error(Code::Unavailable, "SERVER_DRAINING", wait(1500)),
        "overloaded" => error(Code::ResourceExhausted, "OVERLOADED", wait(3000)),
        "large" => error(Code::InvalidArgument, "PAYLOAD_TOO_LARGE", ErrorDetails::new()),
        "stranger" => error(Code::Unauthenticated, "CREDENTIALS_MISSING", ErrorDetails::new()),
        "slow" => std::future::pending().await,
        _ => Ok(()),
    }
}

macro_rules! service {
    (impl $service:ident { $($method:ident($request:ident) -> $response:ident;)* } $($rest:tt)*) => {
        #[tonic::async_trait]
        impl $service for Fake {
            $(async fn $method(&self, request: Request<$request>) -> Result<Response<$response>, Status> {
                self.record(stringify!($method), request);
                Ok(Response::new($response::default()))
            })*
            $($rest)*
        }
    };
}

service! {
    impl ScheduleService {
        create_schedule(CreateScheduleRequest) -> CreateScheduleResponse;
        get_schedule(GetScheduleRequest) -> GetScheduleResponse;
        list_schedules(ListSchedulesRequest) -> ListSchedulesResponse;
        update_schedule(UpdateScheduleRequest) -> UpdateScheduleResponse;
        delete_schedule(DeleteScheduleRequest) -> DeleteScheduleResponse;
        pause_schedule(PauseScheduleRequest) -> PauseScheduleResponse;
        resume_schedule(ResumeScheduleRequest) -> ResumeScheduleResponse;
        trigger_schedule(TriggerScheduleRequest) -> TriggerScheduleResponse;
        backfill_schedule(BackfillScheduleRequest) -> BackfillScheduleResponse;
        preview_schedule(PreviewScheduleRequest) -> PreviewScheduleResponse;
        list_slots(ListSlotsRequest) -> ListSlotsResponse;
    }
}

service! {
    impl AdminService {
        deploy_definition(DeployDefinitionRequest) -> DeployDefinitionResponse;
        deploy_definitions(DeployDefinitionsRequest) -> DeployDefinitionsResponse;
        get_definition(GetDefinitionRequest) -> GetDefinitionResponse;
        list_definitions(ListDefinitionsRequest) -> ListDefinitionsResponse;
        query_execution(QueryExecutionRequest) -> QueryExecutionResponse;
        explain_execution(ExplainExecutionRequest) -> ExplainExecutionResponse;
        wait_execution(WaitExecutionRequest) -> WaitExecutionResponse;
        list_executions(ListExecutionsRequest) -> ListExecutionsResponse;
        count_executions(CountExecutionsRequest) -> CountExecutionsResponse;
        list_events(ListEventsRequest) -> ListEventsResponse;
        signal_execution(SignalExecutionRequest) -> SignalExecutionResponse;
        cancel_execution(CancelExecutionRequest) -> CancelExecutionResponse;
        terminate_execution(TerminateExecutionRequest) -> TerminateExecutionResponse;
        pause_execution(PauseExecutionRequest) -> PauseExecutionResponse;
        resume_execution(ResumeExecutionRequest) -> ResumeExecutionResponse;
        retry_execution(RetryExecutionRequest) -> RetryExecutionResponse;
        rerun_execution(RerunExecutionRequest) -> RerunExecutionResponse;
        delete_execution(DeleteExecutionRequest) -> DeleteExecutionResponse;
        create_batch(CreateBatchRequest) -> CreateBatchResponse;
        get_batch(GetBatchRequest) -> GetBatchResponse;
        list_batches(ListBatchesRequest) -> ListBatchesResponse;
        cancel_batch(CancelBatchRequest) -> CancelBatchResponse;
        list_workers(ListWorkersRequest) -> ListWorkersResponse;
        get_server_info(GetServerInfoRequest) -> GetServerInfoResponse;
    }

    async fn start_execution(
        &self,
        request: Request<StartExecutionRequest>,
    ) -> Result<Response<StartExecutionResponse>, Status> {
        let message = self.record("start_execution", request);
        *self.input.lock().unwrap() = message.input;
        let mut response = Response::new(StartExecutionResponse { id: message.id, ..Default::default() });
        response.metadata_mut().insert("x-request-id", "r1".parse().unwrap());
        response.metadata_mut().insert("grpc-inner", "hidden".parse().unwrap());
        Ok(response)
    }

    async fn get_execution(
        &self,
        request: Request<GetExecutionRequest>,
    ) -> Result<Response<GetExecutionResponse>, Status> {
        let id = self.record("get_execution", request).id;
        asked_for(&id).await?;
        let execution = Execution { id, input: self.input.lock().unwrap().clone(), ..Default::default() };
        Ok(Response::new(GetExecutionResponse { execution: Some(execution) }))
    }

    type WatchEventsStream = Answers<WatchEventsResponse>;

    async fn watch_events(
        &self,
        request: Request<WatchEventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        let message = self.record("watch_events", request);
        asked_for(&message.id).await?;
        let events = stream::iter(message.after_number + 1..=3)
            .map(|number| Ok(WatchEventsResponse { event: Some(Event { number, ..Default::default() }) }));
        Ok(Response::new(match message.id.as_str() {
            "silent" => Box::pin(events.chain(stream::pending())),
            "broken" => {
                let error = asked_for("draining").await.unwrap_err();
                Box::pin(events.chain(stream::iter([Err(error), Ok(WatchEventsResponse::default())])))
            }
            _ => Box::pin(events),
        }))
    }
}

service! {
    impl WorkerService {
        register_worker(RegisterWorkerRequest) -> RegisterWorkerResponse;
        poll_tasks(PollTasksRequest) -> PollTasksResponse;
        heartbeat(HeartbeatRequest) -> HeartbeatResponse;
        complete_task(CompleteTaskRequest) -> CompleteTaskResponse;
        fail_task(FailTaskRequest) -> FailTaskResponse;
        release_task(ReleaseTaskRequest) -> ReleaseTaskResponse;
        unregister_worker(UnregisterWorkerRequest) -> UnregisterWorkerResponse;
    }

    type StreamTasksStream = Answers<StreamTasksResponse>;

    async fn stream_tasks(
        &self,
        _: Request<Streaming<StreamTasksRequest>>,
    ) -> Result<Response<Self::StreamTasksStream>, Status> {
        Ok(Response::new(Box::pin(stream::empty())))
    }
}
