//! `StreamTasks`: tasks, reports and heartbeats on one stream.

use crate::harness::*;
use orbit::proto::worker::{
    self as proto, Complete, Fail, Report, StreamTasksRequest, StreamTasksResponse, report::Kind,
};
use orbit::proto::workflow::{Failure, execution::State};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

/// The client's side of a stream.
struct Client {
    frames: mpsc::Sender<StreamTasksRequest>,
    answers: Streaming<StreamTasksResponse>,
}

impl Client {
    async fn open(server: &mut Harness, session: &str, credits: i32) -> Self {
        let (frames, receiver) = mpsc::channel(16);
        let answers = server.worker.stream_tasks(ReceiverStream::new(receiver)).await.unwrap().into_inner();
        let client = Self { frames, answers };
        client.send(StreamTasksRequest { session_id: session.to_owned(), credits, ..Default::default() }).await;
        client
    }

    async fn send(&self, frame: StreamTasksRequest) {
        self.frames.send(frame).await.unwrap();
    }

    async fn report(&self, token: &str, kind: Kind) {
        let report = Report { task_token: token.to_owned(), kind: Some(kind) };
        self.send(StreamTasksRequest { reports: vec![report], ..Default::default() }).await;
    }

    async fn next(&mut self) -> Result<Option<StreamTasksResponse>, Status> {
        tokio::time::timeout(Duration::from_secs(5), self.answers.message()).await.expect("a frame comes")
    }

    /// The next frame, which is there.
    async fn frame(&mut self) -> StreamTasksResponse {
        self.next().await.unwrap().expect("the stream goes on")
    }
}

fn complete(output: &str) -> Kind {
    Kind::Complete(Complete { output: json(output) })
}

#[tokio::test]
async fn tasks_come_and_reports_are_answered_on_one_stream() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    let session = server.register("echo@1").await;
    let mut client = Client::open(&mut server, &session, 2).await;
    server.start("echo", "s1", "1").await;
    let task = client.frame().await.tasks.pop().unwrap();
    client.report(&task.task_token, complete("2")).await;
    let result = client.frame().await.results.pop().unwrap();
    assert_eq!(result.task_token, task.task_token);
    assert!(result.outcome.unwrap().accepted && result.error.is_none());
    assert_eq!(server.wait("s1").await.state(), State::Succeeded);

    // A report that is wrong in itself is answered with its fault; the stream goes on.
    let failure = Failure { code: "not a code".to_owned(), ..Default::default() };
    client.report(&task.task_token, Kind::Fail(Fail { failure: Some(failure), ..Default::default() })).await;
    let result = client.frame().await.results.pop().unwrap();
    let error = result.error.unwrap();
    assert_eq!((error.reason.as_str(), error.retryable), ("FIELD_VIOLATION", false));
    assert!(error.message.contains("fail.failure.code"), "{}", error.message);

    let heartbeat = Some(proto::HeartbeatRequest::default());
    client.send(StreamTasksRequest { heartbeat, ..Default::default() }).await;
    assert_eq!(client.frame().await.heartbeat, Some(proto::HeartbeatResponse::default()));
    server.end().await;
}

#[tokio::test]
async fn only_as_many_tasks_come_as_credits_were_granted() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    let session = server.register("echo@1").await;
    let mut client = Client::open(&mut server, &session, 2).await;
    for index in 0..5 {
        server.start("echo", &format!("c{index}"), "1").await;
    }
    let mut tasks = Vec::new();
    while tasks.len() < 2 {
        tasks.extend(client.frame().await.tasks);
    }
    let more = tokio::time::timeout(Duration::from_millis(200), client.answers.message()).await;
    assert!(more.is_err(), "no third task came: {more:?}");
    client.send(StreamTasksRequest { credits: 1, ..Default::default() }).await;
    tasks.extend(client.frame().await.tasks);
    assert_eq!(tasks.len(), 3);
    server.end().await;
}

#[tokio::test]
async fn c003_tasks_that_were_not_sent_come_back_when_the_stream_is_gone() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    let session = server.register("echo@1").await;
    let client = Client::open(&mut server, &session, 1_000).await;
    drop(client);
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.start("echo", "back", "1").await;
    let task = server.take(&session).await;
    assert_eq!((task.attempt, task.redelivery), (1, false));
    server.end().await;
}

#[tokio::test]
async fn a_report_is_carried_out_although_the_stream_is_gone() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    let session = server.register("echo@1").await;
    let mut client = Client::open(&mut server, &session, 1).await;
    server.start("echo", "r", "1").await;
    let task = client.frame().await.tasks.pop().unwrap();
    client.report(&task.task_token, complete("2")).await;
    // The client has said all; the answer still comes, and then the end.
    let Client { frames, mut answers } = client;
    drop(frames);
    let mut results = Vec::new();
    while let Some(frame) = answers.message().await.unwrap() {
        results.extend(frame.results);
    }
    assert_eq!(results.len(), 1);
    assert_eq!(server.wait("r").await.state(), State::Succeeded);
    server.end().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_frame_ends_the_stream_with_its_reason() {
    let mut server = server().await;
    let session = server.register("echo@1").await;
    for (session, credits, code, expected) in [
        ("", 0, Code::InvalidArgument, "FIELD_VIOLATION"),
        ("0190a000-0000-7000-8000-000000000001", 0, Code::NotFound, "SESSION_NOT_FOUND"),
        (session.as_str(), -1, Code::InvalidArgument, "FIELD_VIOLATION"),
        (session.as_str(), 10_001, Code::InvalidArgument, "FIELD_VIOLATION"),
    ] {
        let mut client = Client::open(&mut server, session, credits).await;
        assert_refused(client.next().await, code, expected);
    }
    let mut client = Client::open(&mut server, &session, 0).await;
    client.report("x", complete(&format!("\"{}\"", "a".repeat(5 << 20)))).await;
    let status = assert_refused(client.next().await, Code::InvalidArgument, "PAYLOAD_TOO_LARGE");
    assert_eq!(metadata(&status, "limit"), "4194304");
    server.end().await;
}

#[tokio::test]
async fn a_stream_ends_well_when_its_session_is_over_or_the_server_drains() {
    let mut server = server().await;
    let (one, two) = (server.register("echo@1").await, server.register("echo@1").await);
    let (mut first, mut second) = (Client::open(&mut server, &one, 1).await, Client::open(&mut server, &two, 1).await);
    server.worker.unregister_worker(proto::UnregisterWorkerRequest { session_id: one }).await.unwrap();
    assert_eq!(first.next().await.unwrap(), None);

    server.stop.cancel();
    let last = second.frame().await;
    assert!(last.draining && last.tasks.is_empty());
    assert_eq!(second.next().await.unwrap(), None);
    server.end().await;
}

#[tokio::test]
async fn many_reports_in_one_frame_are_all_answered() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    let session = server.register("echo@1").await;
    let mut client = Client::open(&mut server, &session, 200).await;
    for index in 0..200 {
        server.start("echo", &format!("m{index}"), "1").await;
    }
    let mut tasks = Vec::new();
    while tasks.len() < 200 {
        tasks.extend(client.frame().await.tasks);
    }
    let reports = tasks.iter().map(|task| Report { task_token: task.task_token.clone(), kind: Some(complete("2")) });
    client.send(StreamTasksRequest { reports: reports.collect(), ..Default::default() }).await;
    let (mut results, mut frames) = (Vec::new(), 0);
    while results.len() < 200 {
        results.extend(client.frame().await.results);
        frames += 1;
    }
    assert!(results.iter().all(|result| result.outcome.is_some_and(|outcome| outcome.accepted)));
    assert!(frames < 200, "answers share frames, {frames}");
    server.end().await;
}
