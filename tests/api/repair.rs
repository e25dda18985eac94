//! Holding executions and having them run again: the good way and each refusal of every call.

use crate::harness::*;
use orbit::proto::admin as proto;
use orbit::proto::workflow::{Execution, execution::State};
use std::sync::Arc;
use tonic::{Code, Status};

/// Fails where its input says so; else waits for a signal.
const FLOW: &str = r#"
name: flow
version: 1.0.0
input: {type: object, properties: {fails: {type: boolean, default: false}}}
signals: {go: {}}
steps:
  - {id: first, compute: "${ execution.id }"}
  - {id: broken, needs: [first], when: "${ input.fails }", fail: {code: NO}}
  - {id: hold, needs: [broken], await: {signal: go}}
result: ${ steps.first.output }
"#;
const OK: &str = "{\"fails\":false}";
const FAILS: &str = "{\"fails\":true}";

async fn flows() -> Harness {
    let mut server = server().await;
    server.deploy(FLOW).await;
    server
}

impl Harness {
    async fn pause(&mut self, id: &str, reason: &str, request_id: &str) -> Result<i64, Status> {
        let (id, reason, request_id) = (id.to_owned(), reason.to_owned(), request_id.to_owned());
        let request = proto::PauseExecutionRequest { id, reason, request_id, ..Default::default() };
        Ok(self.admin.pause_execution(request).await?.into_inner().event_number)
    }

    async fn resume(&mut self, id: &str, request_id: &str) -> Result<i64, Status> {
        let (id, request_id) = (id.to_owned(), request_id.to_owned());
        let request = proto::ResumeExecutionRequest { id, request_id, ..Default::default() };
        Ok(self.admin.resume_execution(request).await?.into_inner().event_number)
    }

    async fn retry(&mut self, id: &str, request_id: &str) -> Result<i64, Status> {
        let (id, request_id) = (id.to_owned(), request_id.to_owned());
        let request = proto::RetryExecutionRequest { id, request_id, ..Default::default() };
        Ok(self.admin.retry_execution(request).await?.into_inner().event_number)
    }

    async fn rerun(&mut self, request: proto::RerunExecutionRequest) -> Result<proto::RerunExecutionResponse, Status> {
        Ok(self.admin.rerun_execution(request).await?.into_inner())
    }

    async fn signal_go(&mut self, id: &str) {
        let request = proto::SignalExecutionRequest { id: id.to_owned(), name: "go".to_owned(), ..Default::default() };
        self.admin.signal_execution(request).await.unwrap();
    }

    async fn terminate(&mut self, id: &str) {
        let request = proto::TerminateExecutionRequest { id: id.to_owned(), ..Default::default() };
        self.admin.terminate_execution(request).await.unwrap();
    }

    async fn state(&mut self, id: &str) -> State {
        let execution: Execution = self.get(id).await;
        execution.state()
    }
}

fn rerun_of(id: &str, from_step: &str, new_id: &str) -> proto::RerunExecutionRequest {
    proto::RerunExecutionRequest {
        id: id.to_owned(),
        from_step: from_step.to_owned(),
        new_id: new_id.to_owned(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_paused_execution_takes_signals_and_goes_on_when_it_is_resumed() {
    let mut server = flows().await;
    server.start("flow", "e", OK).await;
    let number = server.pause("e", "stocktaking", "r1").await.unwrap();
    assert_eq!(server.pause("e", "stocktaking", "r1").await.unwrap(), number, "the same call");
    assert_eq!(server.pause("e", "again", "").await.unwrap(), number, "it is paused already");
    assert_eq!(server.state("e").await, State::Paused);
    server.signal_go("e").await;
    let resumed = server.resume("e", "r2").await.unwrap();
    assert!(resumed > number);
    assert_eq!(server.resume("e", "r2").await.unwrap(), resumed, "the same call");
    assert_eq!(server.wait("e").await.state(), State::Succeeded);
    server.end().await;
}

#[tokio::test]
async fn a_pause_and_its_end_are_refused_where_nothing_can_be_held() {
    let mut server = flows().await;
    server.start("flow", "e", OK).await;
    server.pause("e", "", "r1").await.unwrap();
    let status = assert_refused(server.pause("e", "other", "r1").await, Code::InvalidArgument, "REQUEST_ID_REUSED");
    assert_eq!(bad_fields(&status), ["request_id"]);
    server.resume("e", "r2").await.unwrap();
    let long = "x".repeat(1_025);
    let status = assert_refused(server.pause("e", &long, "").await, Code::InvalidArgument, "FIELD_VIOLATION");
    assert_eq!(bad_fields(&status), ["reason"]);
    assert_refused(server.pause("nope", "", "").await, Code::NotFound, "EXECUTION_NOT_FOUND");
    assert_refused(server.resume("nope", "").await, Code::NotFound, "EXECUTION_NOT_FOUND");
    assert_refused(server.pause("not an id", "", "").await, Code::InvalidArgument, "FIELD_VIOLATION");

    server.terminate("e").await;
    let status = assert_refused(server.pause("e", "", "").await, Code::FailedPrecondition, "EXECUTION_CLOSED");
    assert_eq!(metadata(&status, "state"), "TERMINATED");
    assert_refused(server.resume("e", "").await, Code::FailedPrecondition, "EXECUTION_CLOSED");

    // A task is out, so that the cancel takes its time.
    server.deploy(ECHO).await;
    server.start("echo", "w", "1").await;
    let session = server.register("echo@1").await;
    server.take(&session).await;
    let cancel = proto::CancelExecutionRequest { id: "w".to_owned(), ..Default::default() };
    server.admin.cancel_execution(cancel).await.unwrap();
    assert_refused(server.pause("w", "", "").await, Code::FailedPrecondition, "EXECUTION_WINDING_DOWN");
    assert_refused(server.resume("w", "").await, Code::FailedPrecondition, "EXECUTION_WINDING_DOWN");
    server.end().await;
}

#[tokio::test]
async fn only_what_failed_is_retried_and_each_obstacle_is_named() {
    let mut server = flows().await;
    server.start("flow", "e", FAILS).await;
    assert_eq!(server.wait("e").await.state(), State::Failed);
    let number = server.retry("e", "r1").await.unwrap();
    assert_eq!(server.wait("e").await.state(), State::Failed, "its input is the same");
    assert_eq!(server.retry("e", "r1").await.unwrap(), number, "the same call");
    assert!(server.get("e").await.last_event_number > number);

    assert_refused(server.retry("nope", "").await, Code::NotFound, "EXECUTION_NOT_FOUND");
    server.start("flow", "open", OK).await;
    let obstacle = |status: &Status| (metadata(status, "state"), metadata(status, "obstacle"));
    let refused = |result| assert_refused(result, Code::FailedPrecondition, "EXECUTION_NOT_RETRYABLE");
    assert_eq!(obstacle(&refused(server.retry("open", "").await)), ("RUNNING".into(), "OPEN".into()));
    server.terminate("open").await;
    assert_eq!(obstacle(&refused(server.retry("open", "").await)), ("TERMINATED".into(), "NOT_FAILED".into()));

    // Its id has passed on.
    let failed = server.get("e").await.uid;
    let request = proto::StartExecutionRequest {
        id_reuse_policy: proto::IdReusePolicy::AllowWhenClosed.into(),
        ..start_request("flow", "e", OK)
    };
    server.admin.start_execution(request).await.unwrap();
    let request = proto::RetryExecutionRequest { id: "e".to_owned(), uid: failed, ..Default::default() };
    let status = refused(server.admin.retry_execution(request).await.map(|answer| answer.into_inner().event_number));
    assert_eq!(obstacle(&status), ("FAILED".into(), "ID_TAKEN".into()));

    // A child's end is its parent's.
    server.deploy("name: parent\nversion: 1.0.0\nsteps: [{id: c, workflow: flow@^1, input: {fails: true}, retry: {max_attempts: 1}}]").await;
    server.start("parent", "p", "{}").await;
    server.wait("p").await;
    let parent = server.get("p").await;
    let child = parent.steps[0].child.as_ref().unwrap().id.clone();
    let status = refused(server.retry(&child, "").await);
    assert_eq!(obstacle(&status), ("FAILED".into(), "PARENT_DONE".into()));
    server.end().await;
}

#[tokio::test]
async fn a_rerun_is_a_new_execution_with_the_earlier_results() {
    let mut server = flows().await;
    server.start("flow", "e", FAILS).await;
    server.wait("e").await;
    let with_input = |id: &str, input: &str| proto::RerunExecutionRequest {
        input: json(input),
        request_id: id.to_owned(),
        ..rerun_of("e", "broken", "e2")
    };
    let made = server.rerun(with_input("r1", OK)).await.unwrap();
    assert_eq!((&*made.id, &*made.version, made.created), ("e2", "1.0.0", true));
    assert_eq!(server.rerun(with_input("r1", OK)).await.unwrap(), made, "the same call");
    let same = server.rerun(with_input("r2", OK)).await.unwrap();
    assert_eq!((same.uid, same.created), (made.uid, false));
    server.signal_go("e2").await;
    let ended = server.wait("e2").await;
    assert_eq!((ended.state(), text(ended.output.as_ref())), (State::Succeeded, "\"e\""));

    let reused = server.rerun(with_input("r1", FAILS)).await;
    assert_refused(reused, Code::InvalidArgument, "REQUEST_ID_REUSED");
    let taken = server.rerun(with_input("r3", FAILS)).await;
    assert_refused(taken, Code::AlreadyExists, "EXECUTION_ALREADY_EXISTS");
    assert_refused(server.rerun(rerun_of("nope", "broken", "")).await, Code::NotFound, "EXECUTION_NOT_FOUND");
    let no_step = server.rerun(rerun_of("e", "nope", "")).await;
    assert_eq!(bad_fields(&assert_refused(no_step, Code::InvalidArgument, "FIELD_VIOLATION")), ["from_step"]);
    let wrong = proto::RerunExecutionRequest { new_id: String::new(), ..with_input("", "{\"fails\":1}") };
    assert_refused(server.rerun(wrong).await, Code::InvalidArgument, "FIELD_VIOLATION");
    let large = format!("\"{}\"", "x".repeat(2 << 20));
    let large = proto::RerunExecutionRequest { new_id: String::new(), ..with_input("", &large) };
    assert_refused(server.rerun(large).await, Code::InvalidArgument, "PAYLOAD_TOO_LARGE");
    server.end().await;
}

#[tokio::test]
async fn starts_beyond_the_limit_of_open_executions_are_refused_for_a_moment() {
    let config = orbit::engine::Config { active_executions_max: Some(1), ..Default::default() };
    let mut server = server_of(|_| {}, Arc::new(orbit::store::MemoryStore::new()), config).await;
    server.deploy(FLOW).await;
    server.start("flow", "a", OK).await;
    let refused = server.admin.start_execution(start_request("flow", "b", OK)).await;
    let status = assert_refused(refused, Code::ResourceExhausted, "TOO_MANY_EXECUTIONS");
    assert_eq!(metadata(&status, "limit"), "1");
    assert!(tonic_types::StatusExt::get_details_retry_info(&status).is_some(), "waiting helps");
    assert_refused(server.rerun(rerun_of("a", "hold", "b")).await, Code::ResourceExhausted, "TOO_MANY_EXECUTIONS");
    let body = "{\"id\":\"b\",\"workflow\":\"flow\",\"input\":{}}";
    let answer = http(server.address, "POST", "/v1/executions", body).await;
    assert_eq!((answer.status, answer.reason()), (429, "TOO_MANY_EXECUTIONS".to_owned()));
    assert!(!server.start("flow", "a", OK).await.created, "what is there is found");
    let info = server.admin.get_server_info(proto::GetServerInfoRequest::default()).await.unwrap().into_inner();
    let limits = info.limits.unwrap();
    assert_eq!((limits.active_executions_max, limits.history_events_max), (1, 1_000_000));

    server.terminate("a").await;
    let begin = std::time::Instant::now();
    while let Err(status) = server.admin.start_execution(start_request("flow", "b", OK)).await {
        assert_eq!(reason(&status).1, "TOO_MANY_EXECUTIONS");
        assert!(begin.elapsed() < std::time::Duration::from_secs(20), "there is room");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    server.end().await;
}

#[tokio::test]
async fn a_definition_with_http_steps_is_refused_where_no_server_makes_requests() {
    let mut server = server().await;
    let source = "name: call\nversion: 1.0.0\nsteps: [{id: get, http: {url: 'https://a.test/'}}]\n";
    let content = Some(proto::deploy_definition_request::Content::Source(source.to_owned()));
    let request = proto::DeployDefinitionRequest { content, ..Default::default() };
    let status =
        assert_refused(server.admin.deploy_definition(request).await, Code::FailedPrecondition, "HTTP_DISABLED");
    assert_eq!(metadata(&status, "step"), "get");
    server.end().await;
}
