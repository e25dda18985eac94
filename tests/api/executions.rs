//! Starting, reading, waiting for, listing and ending executions.

use crate::harness::*;
use orbit::proto::admin as proto;
use orbit::proto::workflow::{Payload, execution::State, payload::Content};
use tonic::Code;

#[tokio::test]
async fn an_order_runs_from_start_to_end() {
    let mut server = server().await;
    server.deploy(ORDER).await;
    let started = server.start("order", "order:42", "{\"cents\": 9007199254740993}").await;
    assert_eq!((started.id.as_str(), started.version.as_str(), started.created), ("order:42", "1.0.0", true));

    let session = server.register("payments.charge@1").await;
    let task = server.take(&session).await;
    assert_eq!((task.step.as_str(), task.attempt, task.delivery, task.redelivery), ("charge", 1, 1, false));
    assert_eq!(text(task.input.as_ref()), "{\"cents\":9007199254740993}");
    assert_eq!(task.idempotency_key.len(), 32);
    assert!(server.complete(&task.task_token, "{\"receipt\":\"r-1\"}").await.accepted);

    let signal = proto::SignalExecutionRequest {
        id: "order:42".to_owned(),
        name: "approved".to_owned(),
        payload: json("{\"by\":\"ann\"}"),
        ..Default::default()
    };
    assert!(server.admin.signal_execution(signal).await.unwrap().into_inner().event_number > 0);

    let ended = server.wait("order:42").await;
    assert_eq!(ended.state(), State::Succeeded);
    assert_eq!(text(ended.output.as_ref()), "{\"receipt\":\"r-1\",\"by\":\"ann\"}");
    let whole = server.get("order:42").await;
    assert_eq!(whole.steps.iter().map(|step| step.step.as_str()).collect::<Vec<_>>(), ["charge", "approval"]);
    assert_eq!((whole.uid, whole.labels["team"].as_str()), (started.uid, "shop"));
    server.end().await;
}

#[tokio::test]
async fn c095_the_same_start_is_one_execution_and_another_one_is_refused() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    let with_request = |request_id: &str, input: &str| proto::StartExecutionRequest {
        request_id: request_id.to_owned(),
        ..start_request("echo", "k", input)
    };
    let first = server.admin.start_execution(with_request("r1", "1")).await.unwrap().into_inner();
    let again = server.admin.start_execution(with_request("r1", "1")).await.unwrap().into_inner();
    assert_eq!(again, first, "the same request gets the first answer");
    assert!(first.created);

    let other_request = server.admin.start_execution(with_request("r2", "1")).await.unwrap().into_inner();
    assert_eq!((other_request.uid, other_request.created), (first.uid.clone(), false));

    let reused = server.admin.start_execution(with_request("r1", "2")).await;
    let status = assert_refused(reused, Code::InvalidArgument, "REQUEST_ID_REUSED");
    assert_eq!(bad_fields(&status), ["request_id"]);

    let taken = server.admin.start_execution(with_request("r3", "2")).await;
    let status = assert_refused(taken, Code::AlreadyExists, "EXECUTION_ALREADY_EXISTS");
    assert_eq!(metadata(&status, "uid"), first.uid);
    assert_eq!((metadata(&status, "workflow"), metadata(&status, "state")), ("echo".into(), "RUNNING".into()));

    // Without an id, the request alone names the execution.
    let nameless = |input: &str| proto::StartExecutionRequest { id: String::new(), ..with_request("r9", input) };
    let one = server.admin.start_execution(nameless("1")).await.unwrap().into_inner();
    assert_eq!(server.admin.start_execution(nameless("1")).await.unwrap().into_inner(), one);
    assert_refused(server.admin.start_execution(nameless("2")).await, Code::InvalidArgument, "REQUEST_ID_REUSED");

    // Also after the end.
    let end = proto::TerminateExecutionRequest { id: "k".to_owned(), ..Default::default() };
    server.admin.terminate_execution(end).await.unwrap();
    assert_eq!(server.admin.start_execution(with_request("r1", "1")).await.unwrap().into_inner(), first);
    server.end().await;
}

#[tokio::test]
async fn every_refusal_of_a_start_has_its_reason() {
    let mut server = server().await;
    server.deploy(ORDER).await;
    let unknown = server.admin.start_execution(start_request("nope", "a", "1")).await;
    assert_eq!(metadata(&assert_refused(unknown, Code::NotFound, "DEFINITION_NOT_FOUND"), "name"), "nope");
    let version = proto::StartExecutionRequest { version: "9.9.9".to_owned(), ..start_request("order", "a", "1") };
    assert_refused(server.admin.start_execution(version).await, Code::NotFound, "DEFINITION_NOT_FOUND");

    let misfit = server.admin.start_execution(start_request("order", "a", "{\"cents\":\"many\"}")).await;
    let status = assert_refused(misfit, Code::InvalidArgument, "FIELD_VIOLATION");
    assert_eq!(bad_fields(&status), ["input"]);

    let bad = proto::StartExecutionRequest { request_id: "x".repeat(65), ..start_request("", "a/b", "{") };
    let status = assert_refused(server.admin.start_execution(bad).await, Code::InvalidArgument, "FIELD_VIOLATION");
    assert_eq!(bad_fields(&status), ["id", "workflow", "input", "request_id"]);

    let large =
        server.admin.start_execution(start_request("order", "a", &format!("\"{}\"", "a".repeat(2 << 20)))).await;
    let status = assert_refused(large, Code::InvalidArgument, "PAYLOAD_TOO_LARGE");
    assert_eq!((metadata(&status, "limit"), metadata(&status, "actual")), ("2097152".into(), "2097154".into()));
    server.end().await;
}

#[tokio::test]
async fn c081_empty_values_come_through_as_they_went() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    let session = server.register("echo@1").await;
    for (index, value) in ["null", "{}", "[]", "0", "\"\"", "false"].into_iter().enumerate() {
        let id = format!("e{index}");
        server.start("echo", &id, value).await;
        let task = server.take(&session).await;
        assert_eq!(text(task.input.as_ref()), value);
        server.complete(&task.task_token, value).await;
        let ended = server.wait(&id).await;
        assert_eq!(text(ended.input.as_ref()), value);
        assert_eq!(text(ended.output.as_ref()), value);
    }
    // No input at all is null.
    server
        .admin
        .start_execution(proto::StartExecutionRequest { input: None, ..start_request("echo", "none", "") })
        .await
        .unwrap();
    assert_eq!(text(server.take(&session).await.input.as_ref()), "null");
    server.end().await;
}

#[tokio::test]
async fn a_structured_value_is_taken_exactly_or_refused() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    let number = |number: f64| {
        let value = prost_types::Value { kind: Some(prost_types::value::Kind::NumberValue(number)) };
        Some(Payload { content: Some(Content::Value(value)) })
    };
    let start = |id: &str, input| proto::StartExecutionRequest { input, ..start_request("echo", id, "") };
    server.admin.start_execution(start("a", number(3.0))).await.unwrap();
    assert_eq!(text(server.get("a").await.input.as_ref()), "3");
    let rounded = server.admin.start_execution(start("b", number(9_007_199_254_740_992.0))).await;
    assert_eq!(bad_fields(&assert_refused(rounded, Code::InvalidArgument, "FIELD_VIOLATION")), ["input"]);
    let armless = server.admin.start_execution(start("c", Some(Payload { content: None }))).await;
    assert_eq!(bad_fields(&assert_refused(armless, Code::InvalidArgument, "FIELD_VIOLATION")), ["input"]);
    server.end().await;
}

#[tokio::test]
async fn what_is_not_there_is_not_found_by_every_rpc() {
    let mut server = server().await;
    let id = || "nope".to_owned();
    let not_found = |status: Result<(), tonic::Status>| {
        let status = assert_refused(status, Code::NotFound, "EXECUTION_NOT_FOUND");
        assert_eq!(metadata(&status, "id"), "nope");
    };
    let admin = &mut server.admin;
    not_found(admin.get_execution(proto::GetExecutionRequest { id: id(), ..Default::default() }).await.map(drop));
    not_found(admin.wait_execution(proto::WaitExecutionRequest { id: id(), ..Default::default() }).await.map(drop));
    not_found(admin.list_events(proto::ListEventsRequest { id: id(), ..Default::default() }).await.map(drop));
    not_found(admin.watch_events(proto::WatchEventsRequest { id: id(), ..Default::default() }).await.map(drop));
    let name = "approved".to_owned();
    let signal = proto::SignalExecutionRequest { id: id(), name, ..Default::default() };
    not_found(admin.signal_execution(signal).await.map(drop));
    not_found(admin.cancel_execution(proto::CancelExecutionRequest { id: id(), ..Default::default() }).await.map(drop));
    let end = proto::TerminateExecutionRequest { id: id(), ..Default::default() };
    not_found(admin.terminate_execution(end).await.map(drop));

    server.deploy(ECHO).await;
    server.start("echo", "nope", "1").await;
    let uid = "0190a000-0000-7000-8000-000000000001".to_owned();
    let other = proto::GetExecutionRequest { id: id(), uid };
    not_found(server.admin.get_execution(other).await.map(drop));
    server.end().await;
}

#[tokio::test]
async fn an_execution_is_cancelled_or_terminated_once() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    server.start("echo", "c", "1").await;
    let cancel = |reason: &str| proto::CancelExecutionRequest {
        id: "c".to_owned(),
        reason: reason.to_owned(),
        request_id: "r".to_owned(),
        ..Default::default()
    };
    let number = server.admin.cancel_execution(cancel("enough")).await.unwrap().into_inner().event_number;
    let again = server.admin.cancel_execution(cancel("enough")).await.unwrap().into_inner();
    assert_eq!(again.event_number, number);
    let reused = server.admin.cancel_execution(cancel("other")).await;
    assert_refused(reused, Code::InvalidArgument, "REQUEST_ID_REUSED");
    let ended = server.wait("c").await;
    assert_eq!((ended.state(), ended.reason.as_str()), (State::Cancelled, "enough"));

    let end = || proto::TerminateExecutionRequest { id: "c".to_owned(), ..Default::default() };
    let closed = server.admin.terminate_execution(end()).await;
    let status = assert_refused(closed, Code::FailedPrecondition, "EXECUTION_CLOSED");
    assert_eq!(metadata(&status, "state"), "CANCELLED");

    server.start("echo", "t", "1").await;
    let end = proto::TerminateExecutionRequest { id: "t".to_owned(), reason: "stuck".to_owned(), ..Default::default() };
    server.admin.terminate_execution(end).await.unwrap();
    assert_eq!(server.get("t").await.state(), State::Terminated);
    let long = proto::CancelExecutionRequest { id: "t".to_owned(), reason: "x".repeat(1_025), ..Default::default() };
    let status = assert_refused(server.admin.cancel_execution(long).await, Code::InvalidArgument, "FIELD_VIOLATION");
    assert_eq!(bad_fields(&status), ["reason"]);
    server.end().await;
}

#[tokio::test]
async fn signals_are_judged_by_the_definition() {
    let mut server = server().await;
    server.deploy(ORDER).await;
    server.start("order", "s", "{\"cents\":1}").await;
    let signal = |name: &str, payload: &str| proto::SignalExecutionRequest {
        id: "s".to_owned(),
        name: name.to_owned(),
        payload: json(payload),
        ..Default::default()
    };
    let unknown = server.admin.signal_execution(signal("nope", "{}")).await;
    assert_eq!(bad_fields(&assert_refused(unknown, Code::InvalidArgument, "FIELD_VIOLATION")), ["name"]);
    let misfit = server.admin.signal_execution(signal("approved", "{\"by\":1}")).await;
    assert_eq!(bad_fields(&assert_refused(misfit, Code::InvalidArgument, "FIELD_VIOLATION")), ["payload"]);
    server.admin.signal_execution(signal("approved", "{}")).await.unwrap();
    assert_eq!(server.get("s").await.buffered_signals, 1);

    let end = proto::TerminateExecutionRequest { id: "s".to_owned(), ..Default::default() };
    server.admin.terminate_execution(end).await.unwrap();
    let closed = server.admin.signal_execution(signal("approved", "{}")).await;
    assert_refused(closed, Code::FailedPrecondition, "EXECUTION_CLOSED");
    server.end().await;
}

#[tokio::test]
async fn executions_are_filtered_listed_in_stable_pages_and_counted() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    for index in 0..5 {
        let labels = [("tenant".to_owned(), if index == 0 { "b" } else { "a" }.to_owned())].into();
        let start = proto::StartExecutionRequest { labels, ..start_request("echo", &format!("l{index}"), "1") };
        server.admin.start_execution(start).await.unwrap();
    }
    let end = proto::TerminateExecutionRequest { id: "l4".to_owned(), ..Default::default() };
    server.admin.terminate_execution(end).await.unwrap();

    let filter = "state = RUNNING AND labels.tenant = \"a\" AND start_time > \"2020-01-01T00:00:00Z\"";
    let request = |page_token: &str| proto::ListExecutionsRequest {
        page_size: 2,
        page_token: page_token.to_owned(),
        filter: filter.to_owned(),
    };
    let first = server.admin.list_executions(request("")).await.unwrap().into_inner();
    // What starts meanwhile moves nothing.
    server.start("echo", "l9", "1").await;
    let second = server.admin.list_executions(request(&first.next_page_token)).await.unwrap().into_inner();
    let ids: Vec<_> =
        first.executions.iter().chain(&second.executions).map(|execution| execution.id.as_str()).collect();
    assert_eq!(ids, ["l3", "l2", "l1"]);
    assert_eq!(second.next_page_token, "");
    assert!(first.executions[0].input.is_none() && first.executions[0].steps.is_empty());

    let foreign = proto::ListExecutionsRequest { filter: String::new(), ..request(&first.next_page_token) };
    let status =
        assert_refused(server.admin.list_executions(foreign).await, Code::InvalidArgument, "PAGE_TOKEN_INVALID");
    assert_eq!(bad_fields(&status), ["page_token"]);
    let bad = proto::ListExecutionsRequest { page_size: -1, filter: "stat = 1".to_owned(), ..Default::default() };
    let status = assert_refused(server.admin.list_executions(bad).await, Code::InvalidArgument, "FIELD_VIOLATION");
    assert_eq!(bad_fields(&status), ["page_size", "filter"]);
    let nothing =
        proto::ListExecutionsRequest { filter: "state = RUNNING AND state = FAILED".to_owned(), ..Default::default() };
    assert!(server.admin.list_executions(nothing).await.unwrap().into_inner().executions.is_empty());

    let counts = server.admin.count_executions(proto::CountExecutionsRequest {}).await.unwrap().into_inner().counts;
    let counts: Vec<_> = counts.iter().map(|count| (count.state(), count.count)).collect();
    assert_eq!(counts, [(State::Running, 5), (State::Terminated, 1)]);
    server.end().await;
}

#[tokio::test]
async fn a_wait_returns_the_open_execution_when_its_time_is_over() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    server.start("echo", "w", "1").await;
    let short = prost_types::Duration { seconds: 0, nanos: 50_000_000 };
    let request = proto::WaitExecutionRequest { id: "w".to_owned(), wait_duration: Some(short), ..Default::default() };
    let open = server.admin.wait_execution(request).await.unwrap().into_inner().execution.unwrap();
    assert_eq!(open.state(), State::Running);
    let negative =
        proto::WaitExecutionRequest { id: "w".to_owned(), wait_duration: Some(seconds(-1)), ..Default::default() };
    let status = assert_refused(server.admin.wait_execution(negative).await, Code::InvalidArgument, "FIELD_VIOLATION");
    assert_eq!(bad_fields(&status), ["wait_duration"]);
    server.end().await;
}

#[tokio::test]
async fn an_id_is_used_again_as_the_policy_says() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    let first = server.start("echo", "r", "1").await;
    let with = |policy: proto::IdReusePolicy| proto::StartExecutionRequest {
        id_reuse_policy: policy.into(),
        ..start_request("echo", "r", "2")
    };
    for policy in
        [proto::IdReusePolicy::Unspecified, proto::IdReusePolicy::Reject, proto::IdReusePolicy::AllowWhenClosed]
    {
        let refused = server.admin.start_execution(with(policy)).await;
        assert_refused(refused, Code::AlreadyExists, "EXECUTION_ALREADY_EXISTS");
    }
    let second = with(proto::IdReusePolicy::TerminateRunning);
    let second = server.admin.start_execution(second).await.unwrap().into_inner();
    assert!(second.created && second.uid != first.uid);
    let old = proto::GetExecutionRequest { id: "r".to_owned(), uid: first.uid };
    let old = server.admin.get_execution(old).await.unwrap().into_inner().execution.unwrap();
    assert_eq!(old.state(), State::Terminated);
    let unknown = proto::StartExecutionRequest { id_reuse_policy: 9, ..start_request("echo", "r", "2") };
    let status = assert_refused(server.admin.start_execution(unknown).await, Code::InvalidArgument, "FIELD_VIOLATION");
    assert_eq!(bad_fields(&status), ["id_reuse_policy"]);
    server.end().await;
}

#[tokio::test]
async fn a_closed_execution_is_deleted_by_grpc_and_by_http() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    for id in ["a", "b"] {
        server.start("echo", id, "1").await;
    }
    let delete = |id: &str| proto::DeleteExecutionRequest {
        id: id.to_owned(),
        request_id: "r".to_owned(),
        ..Default::default()
    };
    let open = server.admin.delete_execution(delete("a")).await;
    let status = assert_refused(open, Code::FailedPrecondition, "EXECUTION_OPEN");
    assert_eq!(metadata(&status, "state"), "RUNNING");
    for id in ["a", "b"] {
        let end = proto::TerminateExecutionRequest { id: id.to_owned(), ..Default::default() };
        server.admin.terminate_execution(end).await.unwrap();
    }
    for _ in 0..2 {
        server.admin.delete_execution(delete("a")).await.unwrap();
    }
    let other = proto::DeleteExecutionRequest { request_id: "r2".to_owned(), ..delete("a") };
    let status = assert_refused(server.admin.delete_execution(other).await, Code::NotFound, "EXECUTION_NOT_FOUND");
    assert_eq!(metadata(&status, "id"), "a");

    let deleted = http(server.address, "DELETE", "/v1/executions/b?requestId=r", "").await;
    assert_eq!((deleted.status, deleted.body.as_str()), (200, "{}"));
    assert_eq!(http(server.address, "DELETE", "/v1/executions/b?requestId=r", "").await.status, 200);
    assert_eq!(http(server.address, "DELETE", "/v1/executions/b", "").await.status, 404);
    assert_eq!(http(server.address, "GET", "/v1/executions/b", "").await.status, 404);
    let listed = server.admin.list_executions(proto::ListExecutionsRequest::default()).await.unwrap().into_inner();
    assert_eq!(listed.executions, []);
    assert!(server.start("echo", "a", "1").await.created);
    server.end().await;
}
