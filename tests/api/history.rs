//! Events in pages and as a stream.

use crate::harness::*;
use orbit::proto::admin as proto;
use orbit::proto::workflow::event::Kind;
use std::time::Duration;
use tonic::Code;

/// A server with an echo that has ended: created, scheduled, dispatched, succeeded, execution succeeded.
async fn ended() -> Harness {
    let mut server = server().await;
    server.deploy(ECHO).await;
    server.start("echo", "h", "1").await;
    let session = server.register("echo@1").await;
    let task = server.take(&session).await;
    server.complete(&task.task_token, "2").await;
    server.wait("h").await;
    server
}

#[tokio::test]
async fn events_are_read_in_pages_without_gaps() {
    let mut server = ended().await;
    let mut numbers = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = proto::ListEventsRequest { id: "h".to_owned(), page_size: 2, page_token, ..Default::default() };
        let page = server.admin.list_events(request).await.unwrap().into_inner();
        assert!(page.events.len() <= 2);
        numbers.extend(page.events.iter().map(|event| event.number));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(numbers, (1..=numbers.len() as i64).collect::<Vec<_>>());
    assert!(numbers.len() >= 5);

    let request = proto::ListEventsRequest {
        id: "h".to_owned(),
        page_token: "x".to_owned(),
        page_size: -1,
        ..Default::default()
    };
    let status = assert_refused(server.admin.list_events(request).await, Code::InvalidArgument, "PAGE_TOKEN_INVALID");
    assert_eq!(bad_fields(&status), ["page_size", "page_token"]);
    server.end().await;
}

#[tokio::test]
async fn a_page_ends_where_a_client_could_not_take_more_also_when_a_commit_holds_many_large_payloads() {
    let mut server = server().await;
    let steps: String = (0..10).map(|index| format!("  - {{id: s{index}, compute: \"${{ input }}\"}}\n")).collect();
    server.deploy(&format!("name: large\nversion: 1.0.0\nsteps:\n{steps}")).await;
    server.start("large", "l", &format!("\"{}\"", "x".repeat(1_500_000))).await;
    let mut numbers = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = proto::ListEventsRequest { id: "l".to_owned(), page_token, ..Default::default() };
        let page = server.admin.list_events(request).await.unwrap().into_inner();
        numbers.extend(page.events.iter().map(|event| event.number));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(numbers, (1..=12).collect::<Vec<_>>());
    let whole = server.get("l").await;
    assert!(whole.payloads_omitted && whole.state() == orbit::proto::workflow::execution::State::Succeeded);
    server.end().await;
}

#[tokio::test]
async fn a_token_does_not_lead_into_another_execution_with_the_same_id() {
    let mut server = ended().await;
    server.start("echo", "other", "1").await;
    let request = proto::ListEventsRequest { id: "h".to_owned(), page_size: 1, ..Default::default() };
    let page_token = server.admin.list_events(request).await.unwrap().into_inner().next_page_token;
    let request = proto::ListEventsRequest { id: "other".to_owned(), page_size: 1, page_token, ..Default::default() };
    assert_refused(server.admin.list_events(request).await, Code::InvalidArgument, "PAGE_TOKEN_INVALID");
    server.end().await;
}

#[tokio::test]
async fn a_watch_gives_every_event_once_and_ends_after_the_last() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    server.start("echo", "w", "1").await;
    let request = proto::WatchEventsRequest { id: "w".to_owned(), ..Default::default() };
    let mut watch = server.admin.watch_events(request).await.unwrap().into_inner();
    let session = server.register("echo@1").await;
    let task = server.take(&session).await;
    server.complete(&task.task_token, "2").await;
    let mut events = Vec::new();
    while let Some(message) = tokio::time::timeout(Duration::from_secs(5), watch.message()).await.unwrap().unwrap() {
        events.push(message.event.unwrap());
    }
    let numbers: Vec<_> = events.iter().map(|event| event.number).collect();
    assert_eq!(numbers, (1..=numbers.len() as i64).collect::<Vec<_>>());
    assert!(matches!(events.last().unwrap().kind, Some(Kind::ExecutionSucceeded(_))));

    // Resumed after the third event, it gives the rest.
    let request = proto::WatchEventsRequest { id: "w".to_owned(), after_number: 3, ..Default::default() };
    let mut watch = server.admin.watch_events(request).await.unwrap().into_inner();
    let first = watch.message().await.unwrap().unwrap().event.unwrap();
    assert_eq!(first.number, 4);

    let negative = proto::WatchEventsRequest { id: "w".to_owned(), after_number: -1, ..Default::default() };
    let status =
        assert_refused(server.admin.watch_events(negative).await.map(drop), Code::InvalidArgument, "FIELD_VIOLATION");
    assert_eq!(bad_fields(&status), ["after_number"]);
    server.end().await;
}
