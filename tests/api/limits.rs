//! Sizes, deadlines and connections.

use crate::harness::*;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use orbit::proto::worker::{self as proto, worker_service_client::WorkerServiceClient};
use orbit::proto::{admin, health};
use prost::Message;
use std::time::{Duration, Instant};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::{Code, Request, Status, client::Grpc, codegen::http::uri::PathAndQuery};
use tonic_prost::ProstCodec;

/// Calls any rpc with any message.
async fn call(server: &Harness, path: &'static str, message: prost_types::Any) -> Result<prost_types::Any, Status> {
    let mut grpc = Grpc::new(connect(server.address).await);
    grpc.ready().await.unwrap();
    let codec = ProstCodec::<prost_types::Any, prost_types::Any>::default();
    grpc.unary(Request::new(message), PathAndQuery::from_static(path), codec).await.map(tonic::Response::into_inner)
}

/// A client that leaves `grpc-timeout` to the server.
fn plain_client() -> Client<HttpConnector, tonic::body::Body> {
    Client::builder(TokioExecutor::new()).http2_only(true).build_http()
}

#[tokio::test]
async fn every_service_has_the_message_limit() {
    let server = server().await;
    for path in [
        "/orbit.admin.v1.AdminService/GetExecution",
        "/orbit.worker.v1.WorkerService/CompleteTask",
        "/grpc.health.v1.Health/Check",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ] {
        let large = prost_types::Any { type_url: "a".repeat(5 << 20), ..Default::default() };
        let actual = large.encoded_len().to_string();
        let status = call(&server, path, large).await.expect_err(path);
        // Reflection is the library's own stream, which just ends.
        if path.contains("reflection") {
            assert_ne!(status.code(), Code::Ok, "{path}");
        } else {
            assert_eq!(reason(&status), (Code::InvalidArgument, "PAYLOAD_TOO_LARGE".to_owned()), "{path}");
            assert_eq!((metadata(&status, "limit"), metadata(&status, "actual")), ("4194304".into(), actual));
        }
    }
    server.end().await;
}

#[tokio::test]
async fn an_unknown_rpc_and_a_message_that_is_none_have_their_reasons() {
    let server = server().await;
    for path in ["/orbit.admin.v1.AdminService/Nope", "/orbit.admin.v9.Nope/Nope"] {
        let status = call(&server, path, prost_types::Any::default()).await.expect_err(path);
        assert_eq!(reason(&status), (Code::Unimplemented, "METHOD_UNKNOWN".to_owned()), "{path}");
    }
    // Field 1 of this rpc is a text; these bytes are no UTF-8.
    let bytes = prost_types::Any { value: vec![0xFF, 0xFE], ..Default::default() };
    let status = call(&server, "/orbit.admin.v1.AdminService/GetExecution", bytes).await.expect_err("no text");
    assert_eq!(reason(&status), (Code::InvalidArgument, "FIELD_VIOLATION".to_owned()));
    server.end().await;
}

#[tokio::test]
async fn a_call_that_is_late_is_told_so() {
    let mut server = server().await;
    let session_id = server.register("echo@1").await;
    // The usual client would not wait for the server's answer: it keeps the deadline itself.
    let plain = plain_client();
    let origin: tonic::codegen::http::Uri = format!("http://{}", server.address).parse().unwrap();
    let mut worker = WorkerServiceClient::with_origin(plain.clone(), origin.clone());
    let mut poll =
        Request::new(proto::PollTasksRequest { session_id, wait_duration: Some(seconds(20)), ..Default::default() });
    poll.metadata_mut().insert("grpc-timeout", "50m".parse().unwrap());
    let start = Instant::now();
    let status = assert_refused(worker.poll_tasks(poll).await, Code::DeadlineExceeded, "DEADLINE_EXCEEDED");
    assert!(start.elapsed() < Duration::from_secs(5), "{status:?}");

    server.deploy(ECHO).await;
    server.start("echo", "late", "1").await;
    let mut watch = Request::new(admin::WatchEventsRequest { id: "late".to_owned(), ..Default::default() });
    watch.metadata_mut().insert("grpc-timeout", "200m".parse().unwrap());
    let mut admin = admin::admin_service_client::AdminServiceClient::with_origin(plain, origin);
    let mut watch = admin.watch_events(watch).await.unwrap().into_inner();
    let end = loop {
        match watch.message().await {
            Ok(Some(_)) => {}
            other => break other,
        }
    };
    assert_refused(end, Code::DeadlineExceeded, "DEADLINE_EXCEEDED");
    server.end().await;
}

#[tokio::test]
async fn c079_a_poll_brings_no_more_than_its_worker_can_take() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    let session = server.register("echo@1").await;
    let input = format!("\"{}\"", "a".repeat(1 << 20));
    for index in 0..10 {
        server.start("echo", &format!("b{index}"), &input).await;
    }
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 10 {
        // The client's own limit is the 4 MiB that it registered with: a larger reply would fail here.
        let tasks = server.poll(&session, 10).await;
        assert!((1..=3).contains(&tasks.len()), "{} tasks", tasks.len());
        for task in tasks {
            assert!(!task.redelivery, "a task that was not sent burns no delivery");
            assert!(server.complete(&task.task_token, "1").await.accepted);
            seen.insert(task.execution_id);
        }
    }
    server.end().await;
}

#[tokio::test]
async fn c077_an_input_beyond_its_workers_message_fails_before_dispatch() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    let request = proto::RegisterWorkerRequest {
        worker_id: "small".to_owned(),
        contracts: vec!["echo@1".to_owned()],
        message_bytes_max: 64 * 1024,
        ..Default::default()
    };
    let session = server.worker.register_worker(request).await.unwrap().into_inner().session_id;
    server.start("echo", "large", &format!("\"{}\"", "a".repeat(100_000))).await;
    server.start("echo", "small", "1").await;
    let task = server.take(&session).await;
    assert_eq!(task.execution_id, "small");
    assert_eq!(server.wait("large").await.failure.unwrap().code, "INPUT_TOO_LARGE");
    server.end().await;
}

#[tokio::test]
async fn c129_a_heartbeat_never_waits_behind_many_polls() {
    let mut server = server().await;
    let session = server.register("echo@1").await;
    let channel = connect(server.address).await;
    let polls: Vec<_> = (0..500)
        .map(|_| {
            let mut client = WorkerServiceClient::new(channel.clone());
            let poll = proto::PollTasksRequest {
                session_id: session.clone(),
                wait_duration: Some(seconds(20)),
                ..Default::default()
            };
            tokio::spawn(async move { client.poll_tasks(poll).await.map(drop) })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let start = Instant::now();
    let beat = proto::HeartbeatRequest { session_id: session, ..Default::default() };
    WorkerServiceClient::new(channel).heartbeat(beat).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    for poll in polls {
        poll.abort();
    }
    server.end().await;
}

#[tokio::test]
async fn c127_a_silent_connection_is_asked_and_a_dead_one_is_closed() {
    let (interval, timeout) = (Duration::from_millis(200), Duration::from_millis(200));
    let server = server_with(
        |options| options.keepalive = orbit::api::Keepalive { interval, timeout },
        std::sync::Arc::new(orbit::store::MemoryStore::new()),
    )
    .await;
    // A peer that says hello and then nothing more, as behind a cut cable.
    let mut dead = TcpStream::connect(server.address).await.unwrap();
    dead.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00").await.unwrap();
    let start = Instant::now();
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(5), dead.read_to_end(&mut bytes)).await.expect("it is closed");
    let took = start.elapsed();
    assert!((interval..Duration::from_secs(3)).contains(&took), "{took:?}");
    const PING: [u8; 4] = [0, 0, 8, 6];
    assert!(bytes.windows(4).any(|frame| frame == PING), "{bytes:?}");

    // One that answers stays, idle or not.
    let mut health = health::health_client::HealthClient::new(connect(server.address).await);
    tokio::time::sleep(Duration::from_secs(1)).await;
    health.check(health::HealthCheckRequest::default()).await.unwrap();
    server.end().await;
}

#[tokio::test]
async fn c133_an_aged_connection_ends_without_losing_a_call() {
    let mut server = server_with(
        |options| options.connection_age = Duration::from_millis(200),
        std::sync::Arc::new(orbit::store::MemoryStore::new()),
    )
    .await;
    server.deploy(ECHO).await;
    server.start("echo", "aged", "1").await;
    let watch = admin::WatchEventsRequest { id: "aged".to_owned(), ..Default::default() };
    let mut watch = server.admin.watch_events(watch).await.unwrap().into_inner();
    let session = server.register("other@1").await;
    // Longer than the connection's age: the poll ends as if nothing had happened.
    let poll = proto::PollTasksRequest {
        session_id: session,
        wait_duration: Some(prost_types::Duration { seconds: 0, nanos: 600_000_000 }),
        ..Default::default()
    };
    assert!(server.worker.poll_tasks(poll).await.unwrap().into_inner().tasks.is_empty());
    // The next calls go by another connection, and the watch on the old one misses nothing.
    let end = admin::TerminateExecutionRequest { id: "aged".to_owned(), ..Default::default() };
    let mut admin = admin::admin_service_client::AdminServiceClient::new(connect(server.address).await);
    admin.terminate_execution(end).await.unwrap();
    let mut numbers = Vec::new();
    while let Some(message) = watch.message().await.unwrap() {
        numbers.push(message.event.unwrap().number);
    }
    assert_eq!(numbers, (1..=numbers.len() as i64).collect::<Vec<_>>());
    server.end().await;
}

#[tokio::test]
async fn every_answer_names_the_server_and_the_call() {
    let server = server().await;
    let mut client = health::health_client::HealthClient::new(connect(server.address).await);
    let mut check = Request::new(health::HealthCheckRequest::default());
    check.metadata_mut().insert("x-request-id", "mine".parse().unwrap());
    let answer = client.check(check).await.unwrap();
    let metadata = answer.metadata();
    assert_eq!(metadata.get("orbit-server-version").unwrap(), env!("CARGO_PKG_VERSION"));
    assert_eq!(metadata.get("x-request-id").unwrap(), "mine");
    assert_eq!(metadata.get("orbit-request-id").unwrap().len(), 36);
    let answer = http(server.address, "GET", "/v1/server", "").await;
    assert!(answer.head.contains("orbit-server-version: ") && answer.head.contains("orbit-request-id: "), "{answer:?}");
    server.end().await;
}
