//! The end of a server, and what it refuses to begin with.

use crate::harness::*;
use orbit::api::{Options, Server};
use orbit::proto::health::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
use orbit::proto::worker::{self as proto, worker_service_client::WorkerServiceClient};
use std::{net::SocketAddr, time::Duration};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

#[tokio::test]
async fn a_server_with_polls_streams_and_watches_open_ends_in_time() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    server.start("echo", "open", "1").await;
    let session = server.register("other@1").await;
    let channel = connect(server.address).await;
    let polls: Vec<_> = (0..50)
        .map(|_| {
            let mut client = WorkerServiceClient::new(channel.clone());
            let poll = proto::PollTasksRequest {
                session_id: session.clone(),
                wait_duration: Some(seconds(20)),
                ..Default::default()
            };
            tokio::spawn(async move { client.poll_tasks(poll).await })
        })
        .collect();
    let mut streams = Vec::new();
    for _ in 0..10 {
        let (frames, receiver) = mpsc::channel(1);
        let answers = server.worker.stream_tasks(ReceiverStream::new(receiver)).await.unwrap().into_inner();
        frames
            .send(proto::StreamTasksRequest { session_id: session.clone(), credits: 1, ..Default::default() })
            .await
            .unwrap();
        streams.push((frames, answers));
    }
    let watch = orbit::proto::admin::WatchEventsRequest { id: "open".to_owned(), ..Default::default() };
    let mut events = server.admin.watch_events(watch).await.unwrap().into_inner();
    let mut health =
        HealthClient::new(channel.clone()).watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(health.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    tokio::time::sleep(Duration::from_millis(200)).await;

    server.stop.cancel();
    assert_eq!(health.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    for poll in polls {
        let polled = poll.await.unwrap().unwrap().into_inner();
        assert!(polled.tasks.is_empty() && polled.draining);
    }
    for (_frames, mut answers) in streams {
        let mut draining = false;
        while let Some(frame) = answers.message().await.unwrap() {
            draining |= frame.draining;
        }
        assert!(draining);
    }
    let end = loop {
        match events.message().await {
            Ok(Some(_)) => {}
            other => break other,
        }
    };
    assert_refused(end, Code::Unavailable, "SERVER_DRAINING");
    server.end().await;
}

#[tokio::test]
async fn a_call_that_does_not_end_is_cut_at_the_drain_timeout() {
    let server = server_with(
        |options| options.drain_timeout = Duration::from_millis(300),
        std::sync::Arc::new(orbit::store::MemoryStore::new()),
    )
    .await;
    // A stream whose first frame never comes is waited for at most ten seconds, and here not even that.
    let (frames, receiver) = mpsc::channel::<proto::StreamTasksRequest>(1);
    let mut client = server.worker.clone();
    let mut answers = client.stream_tasks(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    let start = std::time::Instant::now();
    server.end().await;
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert!(answers.message().await.is_err());
    drop(frames);
}

#[tokio::test]
async fn an_address_that_others_reach_is_refused_unless_allowed_in_so_many_words() {
    let listen = SocketAddr::from(([0, 0, 0, 0], 0));
    let refused = Server::bind(Options { listen, ..Options::default() }).await.unwrap_err();
    assert!(refused.to_string().contains("not a loopback address"), "{refused}");
    Server::bind(Options { listen, allow_anonymous: true, ..Options::default() }).await.unwrap();
}
