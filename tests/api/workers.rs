//! Workers by unary calls: register, poll, heartbeat, report, unregister.

use crate::harness::*;
use orbit::proto::worker::{self as proto, report_outcome::Reason};
use orbit::proto::workflow::{Failure, execution::State, step_status};
use std::time::{Duration, Instant};
use tonic::Code;

fn fail(token: &str, code: &str, message: &str) -> proto::FailTaskRequest {
    let failure = Failure { code: code.to_owned(), message: message.to_owned(), ..Default::default() };
    proto::FailTaskRequest { task_token: token.to_owned(), failure: Some(failure), ..Default::default() }
}

#[tokio::test]
async fn c017_two_processes_with_one_name_have_two_sessions() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    let (one, two) = (server.register("echo@1").await, server.register("echo@1").await);
    assert_ne!(one, two);
    server.start("echo", "a", "1").await;
    let task = server.take(&two).await;
    server.worker.unregister_worker(proto::UnregisterWorkerRequest { session_id: one.clone() }).await.unwrap();
    assert_eq!(server.get("a").await.steps[0].state(), step_status::State::Running);
    assert!(server.complete(&task.task_token, "1").await.accepted);

    // One that is gone is gone, and ending it again is fine.
    server.worker.unregister_worker(proto::UnregisterWorkerRequest { session_id: one.clone() }).await.unwrap();
    let poll = proto::PollTasksRequest { session_id: one.clone(), ..Default::default() };
    assert_refused(server.worker.poll_tasks(poll).await, Code::NotFound, "SESSION_NOT_FOUND");
    let beat = proto::HeartbeatRequest { session_id: one, ..Default::default() };
    assert_refused(server.worker.heartbeat(beat).await, Code::NotFound, "SESSION_NOT_FOUND");

    let workers = orbit::proto::admin::ListWorkersRequest::default();
    let workers = server.admin.list_workers(workers).await.unwrap().into_inner().workers;
    assert_eq!(workers.iter().map(|worker| worker.session_id.as_str()).collect::<Vec<_>>(), [two.as_str()]);
    assert_eq!(workers[0].contracts, ["echo@1"]);
    server.end().await;
}

#[tokio::test]
async fn a_session_is_taken_back_and_a_version_that_nobody_uses_is_told() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    let request = |previous: &str| proto::RegisterWorkerRequest {
        worker_id: "host-1".to_owned(),
        contracts: vec!["echo@2".to_owned()],
        previous_session_id: previous.to_owned(),
        ..Default::default()
    };
    let first = server.worker.register_worker(request("")).await.unwrap().into_inner();
    assert!(!first.resumed);
    assert!(first.warnings[0].contains("version 2") && first.warnings[0].contains('1'), "{:?}", first.warnings);
    assert_eq!(first.session_timeout, Some(seconds(30)));
    let again = server.worker.register_worker(request(&first.session_id)).await.unwrap().into_inner();
    assert_eq!((again.session_id, again.resumed), (first.session_id, true));
    server.end().await;
}

#[tokio::test]
async fn every_request_of_a_worker_is_judged_with_all_its_fields() {
    let mut server = server().await;
    let worker = &mut server.worker;
    let register = proto::RegisterWorkerRequest { slots: -1, ..Default::default() };
    let status = assert_refused(worker.register_worker(register).await, Code::InvalidArgument, "FIELD_VIOLATION");
    assert_eq!(bad_fields(&status), ["worker_id", "contracts", "slots"]);
    let poll = proto::PollTasksRequest { max_tasks: 1_001, wait_duration: Some(seconds(-1)), ..Default::default() };
    let status = assert_refused(worker.poll_tasks(poll).await, Code::InvalidArgument, "FIELD_VIOLATION");
    assert_eq!(bad_fields(&status), ["session_id", "max_tasks", "wait_duration"]);
    let held = vec![proto::HeldTask { task_token: "x".to_owned(), ..Default::default() }];
    let beat = proto::HeartbeatRequest { session_id: String::new(), held };
    let status = assert_refused(worker.heartbeat(beat).await, Code::InvalidArgument, "FIELD_VIOLATION");
    assert_eq!(bad_fields(&status), ["session_id", "held[0].task_token"]);
    let complete = proto::CompleteTaskRequest::default();
    let status = assert_refused(worker.complete_task(complete).await, Code::InvalidArgument, "FIELD_VIOLATION");
    assert_eq!(bad_fields(&status), ["task_token", "output"]);
    let status = assert_refused(worker.fail_task(fail("x", "", "")).await, Code::InvalidArgument, "FIELD_VIOLATION");
    assert_eq!(bad_fields(&status), ["task_token", "failure.code"]);
    let release = proto::ReleaseTaskRequest::default();
    let status = assert_refused(worker.release_task(release).await, Code::InvalidArgument, "FIELD_VIOLATION");
    assert_eq!(bad_fields(&status), ["task_token"]);
    let unregister = proto::UnregisterWorkerRequest { session_id: "x".to_owned() };
    let status = assert_refused(worker.unregister_worker(unregister).await, Code::InvalidArgument, "FIELD_VIOLATION");
    assert_eq!(bad_fields(&status), ["session_id"]);
    server.end().await;
}

#[tokio::test]
async fn an_empty_poll_is_ok_when_its_wait_is_over() {
    let mut server = server().await;
    let session_id = server.register("echo@1").await;
    let start = Instant::now();
    let wait_duration = Some(prost_types::Duration { seconds: 0, nanos: 300_000_000 });
    let poll = proto::PollTasksRequest { session_id, wait_duration, ..Default::default() };
    let polled = server.worker.poll_tasks(poll).await.unwrap().into_inner();
    assert!(polled.tasks.is_empty() && !polled.draining);
    assert!((Duration::from_millis(300)..Duration::from_secs(2)).contains(&start.elapsed()), "{:?}", start.elapsed());
    server.end().await;
}

#[tokio::test]
async fn c001_a_poll_that_is_gone_gets_no_task() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    let (gone, alive) = (server.register("echo@1").await, server.register("echo@1").await);
    for round in 0..20 {
        let mut client =
            orbit::proto::worker::worker_service_client::WorkerServiceClient::new(connect(server.address).await);
        let poll = proto::PollTasksRequest {
            session_id: gone.clone(),
            wait_duration: Some(seconds(20)),
            ..Default::default()
        };
        let parked = tokio::spawn(async move { client.poll_tasks(poll).await.map(drop) });
        tokio::time::sleep(Duration::from_millis(10)).await;
        parked.abort();
        let _ = parked.await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        server.start("echo", &format!("r{round}"), "1").await;
        let start = Instant::now();
        let task = server.take(&alive).await;
        assert_eq!((task.delivery, task.redelivery), (1, false));
        assert!(start.elapsed() < Duration::from_secs(1), "round {round}: {:?}", start.elapsed());
    }
    server.end().await;
}

#[tokio::test]
async fn reports_are_idempotent_by_token_and_refused_where_they_come_too_late() {
    let mut server = server().await;
    server.deploy(ORDER).await;
    server.start("order", "o", "{\"cents\":1}").await;
    let session = server.register("payments.charge@1").await;
    let first = server.take(&session).await;
    let failed = server.worker.fail_task(fail(&first.task_token, "BUSY", "try later")).await.unwrap().into_inner();
    assert!(failed.outcome.unwrap().accepted);
    let again = server.worker.fail_task(fail(&first.task_token, "BUSY", "try later")).await.unwrap().into_inner();
    let again = again.outcome.unwrap();
    assert!(again.accepted && again.duplicate);

    let second = server.take(&session).await;
    assert_eq!((second.attempt, second.delivery, &second.idempotency_key), (2, 2, &first.idempotency_key));
    let stale =
        server.worker.fail_task(fail(&first.task_token, "OTHER", "")).await.unwrap().into_inner().outcome.unwrap();
    assert_eq!((stale.accepted, stale.reason()), (false, Reason::StaleToken));

    let release = proto::ReleaseTaskRequest { task_token: second.task_token.clone() };
    assert!(server.worker.release_task(release).await.unwrap().into_inner().outcome.unwrap().accepted);
    let third = server.take(&session).await;
    assert_eq!((third.attempt, third.redelivery), (2, true));

    // A success counts by any token of the unit.
    assert!(server.complete(&second.task_token, "{\"receipt\":\"r\"}").await.accepted);
    assert!(server.complete(&second.task_token, "{\"receipt\":\"r\"}").await.duplicate);
    let late = server.complete(&third.task_token, "{\"receipt\":\"other\"}").await;
    assert_eq!((late.accepted, late.reason()), (false, Reason::UnitResolved));

    let end = orbit::proto::admin::TerminateExecutionRequest { id: "o".to_owned(), ..Default::default() };
    server.admin.terminate_execution(end).await.unwrap();
    let closed = server.worker.fail_task(fail(&third.task_token, "X", "")).await.unwrap().into_inner().outcome.unwrap();
    assert_eq!((closed.accepted, closed.reason()), (false, Reason::ExecutionClosed));
    server.end().await;
}

#[tokio::test]
async fn a_heartbeat_names_the_tasks_that_are_not_wanted_any_more() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    server.start("echo", "hb", "1").await;
    let session = server.register("echo@1").await;
    let task = server.take(&session).await;
    let beat = || proto::HeartbeatRequest {
        session_id: session.clone(),
        held: vec![proto::HeldTask { task_token: task.task_token.clone(), progress: json("50"), beat: true }],
    };
    let answer = server.worker.heartbeat(beat()).await.unwrap().into_inner();
    assert!(answer.stop.is_empty() && !answer.draining);
    let cancel = orbit::proto::admin::CancelExecutionRequest { id: "hb".to_owned(), ..Default::default() };
    server.admin.cancel_execution(cancel).await.unwrap();
    let mut stop = Vec::new();
    for _ in 0..50 {
        stop = server.worker.heartbeat(beat()).await.unwrap().into_inner().stop;
        if !stop.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(stop, std::slice::from_ref(&task.task_token));
    server.worker.fail_task(fail(&task.task_token, "STOPPED", "")).await.unwrap();
    assert_eq!(server.wait("hb").await.state(), State::Cancelled);
    server.end().await;
}

#[tokio::test]
async fn c075_control_characters_are_refused_in_payloads_and_cleaned_in_texts() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    server.start("echo", "nul", "1").await;
    let session = server.register("echo@1").await;
    let task = server.take(&session).await;
    for output in ["{\"r\":\"a\\u0000b\"}", "\"\\ud800\"", "\"a\u{0}b\""] {
        let complete = proto::CompleteTaskRequest { task_token: task.task_token.clone(), output: json(output) };
        let status =
            assert_refused(server.worker.complete_task(complete).await, Code::InvalidArgument, "FIELD_VIOLATION");
        assert_eq!(bad_fields(&status), ["output"]);
    }
    let request = proto::FailTaskRequest { retryable: Some(false), ..fail(&task.task_token, "BOOM", "x\0y\u{1b}[31m") };
    assert!(server.worker.fail_task(request).await.unwrap().into_inner().outcome.unwrap().accepted);
    let failure = server.wait("nul").await.failure.unwrap();
    assert_eq!((failure.code.as_str(), failure.message.as_str()), ("BOOM", "x\u{FFFD}y\u{FFFD}[31m"));
    let id = server.admin.start_execution(start_request("echo", "a\0b", "1")).await;
    assert_eq!(bad_fields(&assert_refused(id, Code::InvalidArgument, "FIELD_VIOLATION")), ["id"]);
    server.end().await;
}
