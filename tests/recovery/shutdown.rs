//! SIGTERM while everything that can wait for the server waits.

use crate::{
    caller::payload,
    run::beside_others,
    server::{Options, Server},
    workflow,
};
use orbit::proto::{
    admin::{StartExecutionRequest, WaitExecutionRequest, WatchEventsRequest},
    health::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient},
    worker::{PollTasksRequest, RegisterWorkerRequest, StreamTasksRequest},
};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::{sync::mpsc, task::JoinSet};
use tokio_stream::wrappers::UnboundedReceiverStream;

/// How long calls that run may take to end after SIGTERM in this test.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

const POLLS: usize = 50;
const STREAMS: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_parked_polls_and_open_streams_in_peace() {
    let _beside_others = beside_others().await;
    let environment = vec![("ORBIT_DRAIN_TIMEOUT", format!("{}s", DRAIN_TIMEOUT.as_secs()))];
    let mut server = Server::start_with(Options { environment, ..Options::default() }).await;
    let mut admin = server.admin();
    workflow::deploy(&mut admin).await;
    let request = StartExecutionRequest {
        id: "waits".to_owned(),
        workflow: "patient".to_owned(),
        input: Some(payload(&json!({"value": 1}))),
        ..StartExecutionRequest::default()
    };
    admin.start_execution(request).await.unwrap();

    let mut health = HealthClient::new(crate::connect::channel(server.address()));
    let mut health = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(health.message().await.unwrap().unwrap().status(), ServingStatus::Serving);

    let mut tasks = server.tasks();
    let session = |number: usize| RegisterWorkerRequest {
        worker_id: format!("idle-{number}"),
        contracts: vec!["no.work@1".to_owned()],
        ..RegisterWorkerRequest::default()
    };
    let mut polls = JoinSet::new();
    for number in 0..POLLS {
        let session_id = tasks.register_worker(session(number)).await.unwrap().into_inner().session_id;
        let mut tasks = tasks.clone();
        polls.spawn(
            async move { tasks.poll_tasks(PollTasksRequest { session_id, ..PollTasksRequest::default() }).await },
        );
    }
    let mut streams = Vec::new();
    for number in 0..STREAMS {
        let session_id = tasks.register_worker(session(number)).await.unwrap().into_inner().session_id;
        let (frames, receiver) = mpsc::unbounded_channel();
        frames.send(StreamTasksRequest { session_id, credits: 5, ..StreamTasksRequest::default() }).unwrap();
        let stream = tasks.stream_tasks(UnboundedReceiverStream::new(receiver)).await.unwrap().into_inner();
        streams.push((frames, stream));
    }
    let watch = WatchEventsRequest { id: "waits".to_owned(), after_number: 0, ..WatchEventsRequest::default() };
    let mut watch = admin.watch_events(watch).await.unwrap().into_inner();
    assert!(watch.message().await.unwrap().is_some());
    let mut waiting = admin.clone();
    let wait = tokio::spawn(async move {
        waiting.wait_execution(WaitExecutionRequest { id: "waits".to_owned(), ..WaitExecutionRequest::default() }).await
    });

    let begin = Instant::now();
    let (status, ()) = tokio::join!(server.terminate(), async {
        assert_eq!(health.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
        while let Some(poll) = polls.join_next().await {
            let response = poll.unwrap().expect("a parked poll is answered").into_inner();
            assert!(response.tasks.is_empty() && response.draining, "{response:?}");
        }
        for (_frames, mut stream) in streams {
            // The last frames may say that the server drains; then the stream ends with OK.
            while let Some(frame) = stream.message().await.expect("a stream ends with OK") {
                assert!(frame.tasks.is_empty(), "{frame:?}");
            }
        }
        wait.await.unwrap().expect("a wait is answered with the open execution");
        while let Ok(Some(_)) = watch.message().await {}
    });
    assert!(status.success(), "{status}");
    assert!(begin.elapsed() < DRAIN_TIMEOUT, "it took {:?}", begin.elapsed());
}
