//! A server of its own for each test, and the few things that all tests do with it.

use orbit::api::{Options, Server};
use orbit::clock::{SystemClock, SystemEntropy};
use orbit::engine::{Config, Engine};
use orbit::gateway::{Gateway, Limits};
use orbit::proto::admin::{self, admin_service_client::AdminServiceClient};
use orbit::proto::schedule::schedule_service_client::ScheduleServiceClient;
use orbit::proto::worker::{self, worker_service_client::WorkerServiceClient};
use orbit::proto::workflow::{self, Payload, payload::Content};
use orbit::store::{MemoryStore, Store};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, transport::Channel};
use tonic_types::StatusExt;

/// A definition with a task and a signal.
pub(crate) const ORDER: &str = r#"
name: order
version: 1.0.0
description: Takes an order.
input: {type: object, required: [cents], properties: {cents: {type: integer}}}
labels: {team: shop}
signals:
  approved: {type: object, properties: {by: {type: string}}}
steps:
  - id: charge
    task: payments.charge@1
    input: {cents: "${ input.cents }"}
    timeout: 30s
    retry: {max_attempts: 2, initial_interval: 1ms, jitter: 0}
  - id: approval
    needs: [charge]
    await: {signal: approved, timeout: 1h}
result: {receipt: "${ steps.charge.output.receipt }", by: "${ steps.approval.output.by }"}
"#;

/// A definition that gives its input to a worker and its worker's output to its caller.
pub(crate) const ECHO: &str = r#"
name: echo
version: 1.0.0
steps:
  - id: echo
    task: echo@1
    input: ${ input }
    timeout: 5m
result: ${ steps.echo.output }
"#;

/// A running server; it ends with the test.
pub(crate) struct Harness {
    pub(crate) address: SocketAddr,
    pub(crate) admin: AdminServiceClient<Channel>,
    pub(crate) worker: WorkerServiceClient<Channel>,
    pub(crate) schedules: ScheduleServiceClient<Channel>,
    pub(crate) stop: CancellationToken,
    pub(crate) done: JoinHandle<Result<(), orbit::api::Error>>,
}

/// A server with the usual options.
pub(crate) async fn server() -> Harness {
    server_with(|_| {}, Arc::new(MemoryStore::new())).await
}

/// A server with options and a store of the test's own.
pub(crate) async fn server_with(change: impl FnOnce(&mut Options), store: Arc<dyn Store>) -> Harness {
    server_of(change, store, Config::default()).await
}

/// The same, with an engine of the test's own, too.
pub(crate) async fn server_of(change: impl FnOnce(&mut Options), store: Arc<dyn Store>, config: Config) -> Harness {
    let mut options = Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        drain_timeout: Duration::from_secs(5),
        ..Options::default()
    };
    change(&mut options);
    let engine = Engine::start(store, Arc::new(SystemClock::starting_at(None)), Arc::new(SystemEntropy), config);
    let server = Server::bind(options).await.unwrap();
    let address = server.address();
    let stop = CancellationToken::new();
    let serving = {
        let stop = stop.clone();
        async move {
            server
                .serve(
                    engine,
                    |services| {
                        let gateway =
                            Gateway::new(&services.admin, &services.worker, &services.schedules, Limits::default());
                        move |request| async move { gateway.handle(request).await }
                    },
                    stop.cancelled(),
                )
                .await
        }
    };
    let done = tokio::spawn(serving);
    let channel = connect(address).await;
    Harness {
        address,
        admin: AdminServiceClient::new(channel.clone()),
        worker: WorkerServiceClient::new(channel.clone()),
        schedules: ScheduleServiceClient::new(channel),
        stop,
        done,
    }
}

/// A connection of its own.
pub(crate) async fn connect(address: SocketAddr) -> Channel {
    Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

impl Harness {
    pub(crate) async fn deploy(&mut self, source: &str) {
        let content = Some(admin::deploy_definition_request::Content::Source(source.to_owned()));
        let request = admin::DeployDefinitionRequest { content, ..Default::default() };
        self.admin.deploy_definition(request).await.unwrap();
    }

    /// Starts an execution of a workflow under an id.
    pub(crate) async fn start(&mut self, workflow: &str, id: &str, input: &str) -> admin::StartExecutionResponse {
        let request = start_request(workflow, id, input);
        self.admin.start_execution(request).await.unwrap().into_inner()
    }

    /// Registers a worker for one contract.
    pub(crate) async fn register(&mut self, contract: &str) -> String {
        let request = worker::RegisterWorkerRequest {
            worker_id: "host-1".to_owned(),
            contracts: vec![contract.to_owned()],
            ..Default::default()
        };
        self.worker.register_worker(request).await.unwrap().into_inner().session_id
    }

    /// Polls for tasks, for at most two seconds.
    pub(crate) async fn poll(&mut self, session: &str, max_tasks: i32) -> Vec<workflow::Task> {
        let request =
            worker::PollTasksRequest { session_id: session.to_owned(), max_tasks, wait_duration: Some(seconds(2)) };
        self.worker.poll_tasks(request).await.unwrap().into_inner().tasks
    }

    /// Polls for the one task that is there.
    pub(crate) async fn take(&mut self, session: &str) -> workflow::Task {
        self.poll(session, 1).await.pop().expect("a task waits")
    }

    pub(crate) async fn complete(&mut self, token: &str, output: &str) -> worker::ReportOutcome {
        let request = worker::CompleteTaskRequest { task_token: token.to_owned(), output: json(output) };
        self.worker.complete_task(request).await.unwrap().into_inner().outcome.unwrap()
    }

    pub(crate) async fn get(&mut self, id: &str) -> workflow::Execution {
        let request = admin::GetExecutionRequest { id: id.to_owned(), ..Default::default() };
        self.admin.get_execution(request).await.unwrap().into_inner().execution.unwrap()
    }

    /// Waits for the end of an execution.
    pub(crate) async fn wait(&mut self, id: &str) -> workflow::Execution {
        let request = admin::WaitExecutionRequest { id: id.to_owned(), ..Default::default() };
        self.admin.wait_execution(request).await.unwrap().into_inner().execution.unwrap()
    }

    /// Ends the server as SIGTERM would, and sees it end well.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(20), self.done).await.expect("it ends").unwrap().unwrap();
    }
}

pub(crate) fn start_request(workflow: &str, id: &str, input: &str) -> admin::StartExecutionRequest {
    admin::StartExecutionRequest {
        id: id.to_owned(),
        workflow: workflow.to_owned(),
        input: json(input),
        ..Default::default()
    }
}

pub(crate) fn json(text: &str) -> Option<Payload> {
    Some(Payload { content: Some(Content::Json(text.to_owned())) })
}

pub(crate) fn text(payload: Option<&Payload>) -> &str {
    match payload.and_then(|payload| payload.content.as_ref()) {
        Some(Content::Json(text)) => text,
        other => panic!("an answer has JSON text, not {other:?}"),
    }
}

pub(crate) fn seconds(seconds: i64) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos: 0 }
}

/// The code and the reason of an error, which has exactly one `ErrorInfo`.
pub(crate) fn reason(status: &Status) -> (Code, String) {
    let infos = status.get_error_details_vec();
    let infos: Vec<_> = infos.iter().filter(|d| matches!(d, tonic_types::ErrorDetail::ErrorInfo(_))).collect();
    let [tonic_types::ErrorDetail::ErrorInfo(info)] = infos[..] else { panic!("one ErrorInfo, not {status:?}") };
    assert_eq!(info.domain, "orbit");
    (status.code(), info.reason.clone())
}

/// Checks the code and the reason of an error.
pub(crate) fn assert_refused<T: std::fmt::Debug>(result: Result<T, Status>, code: Code, expected: &str) -> Status {
    let status = result.expect_err(expected);
    assert_eq!(reason(&status), (code, expected.to_owned()), "{status:?}");
    status
}

/// The fields of an error's `BadRequest`.
pub(crate) fn bad_fields(status: &Status) -> Vec<String> {
    let bad = status.get_details_bad_request().map(|bad| bad.field_violations).unwrap_or_default();
    bad.into_iter().map(|violation| violation.field).collect()
}

/// The metadata of an error.
pub(crate) fn metadata(status: &Status, key: &str) -> String {
    status.get_details_error_info().and_then(|info| info.metadata.get(key).cloned()).unwrap_or_default()
}

/// An HTTP/1.1 response.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl HttpResponse {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The reason of an error in the envelope.
    pub(crate) fn reason(&self) -> String {
        self.json()["error"]["details"][0]["reason"].as_str().unwrap_or_default().to_owned()
    }
}

/// Sends one HTTP/1.1 request, byte for byte, and reads the whole answer.
pub(crate) async fn http(address: SocketAddr, method: &str, path: &str, body: &str) -> HttpResponse {
    http_with(address, method, path, &[("content-type", "application/json")], body).await
}

pub(crate) async fn http_with(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> HttpResponse {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: orbit\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    // A server that refuses a large body may answer and close before all of it was sent.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    HttpResponse { status, head: head.to_lowercase(), body: body.to_owned() }
}
