//! Server streams as lines and as events.

use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt as _;
use serde_json::Value;

use super::Bench;

const WATCH: &str = "/v1/executions/a/events:watch";
const EVENTS: (&str, &str) = ("accept", "text/event-stream");

#[tokio::test]
async fn lines_end_with_an_explicit_end() {
    let answer = Bench::new().get(WATCH).await;
    assert_eq!(answer.header("content-type"), "application/x-ndjson");
    assert_eq!(answer.header("x-accel-buffering"), "no");
    assert_eq!(
        answer.text(),
        "{\"result\":{\"event\":{\"number\":\"1\"}}}\n{\"result\":{\"event\":{\"number\":\"2\"}}}\n\
         {\"result\":{\"event\":{\"number\":\"3\"}}}\n{\"end\":{}}\n"
    );
}

#[tokio::test]
async fn events_have_ids_and_end_with_an_explicit_end() {
    let bench = Bench::new();
    let answer = bench.send("GET", WATCH, &[("accept", "text/html, text/event-stream;q=0.9")], "").await;
    assert_eq!(answer.header("content-type"), "text/event-stream");
    assert_eq!(
        answer.text(),
        "id: 1\ndata: {\"result\":{\"event\":{\"number\":\"1\"}}}\n\nid: 2\ndata: {\"result\":{\"event\":{\"number\":\"2\"}}}\n\n\
         id: 3\ndata: {\"result\":{\"event\":{\"number\":\"3\"}}}\n\nevent: end\ndata: {\"end\":{}}\n\n"
    );
}

#[tokio::test]
async fn a_stream_resumes_after_the_last_id_that_was_seen() {
    let bench = Bench::new();
    let path = format!("{WATCH}?afterNumber=1");
    assert!(bench.get(&path).await.text().starts_with("{\"result\":{\"event\":{\"number\":\"2\"}}}\n"));
    let resumed = bench.send("GET", &path, &[EVENTS, ("last-event-id", "2")], "").await;
    assert!(resumed.text().starts_with("id: 3\n"), "{}", resumed.text());
    assert_eq!(bench.send("GET", &path, &[EVENTS, ("last-event-id", "")], "").await.status, 200);
    let bad = bench.send("GET", &path, &[EVENTS, ("last-event-id", "x")], "").await;
    assert_eq!(bad.violations(), ["last-event-id: expected the id of an event"]);
}

#[tokio::test]
async fn an_error_in_the_middle_is_the_last_object() {
    let bench = Bench::new();
    let path = "/v1/executions/broken/events:watch?after_number=2";
    let lines = bench.get(path).await;
    let last: Value = serde_json::from_str(lines.text().lines().last().unwrap()).unwrap();
    assert_eq!((&last["error"]["code"], &last["error"]["status"]), (&503.into(), &"UNAVAILABLE".into()));
    assert_eq!(last["error"]["details"][0]["reason"], "SERVER_DRAINING");
    assert!(lines.text().ends_with("}\n") && lines.text().lines().count() == 2);
    let events = bench.send("GET", path, &[EVENTS], "").await;
    assert!(events.text().contains("\n\nevent: error\ndata: {\"error\":{\"code\":503,"), "{}", events.text());
}

#[tokio::test]
async fn an_error_before_the_first_message_is_a_plain_error() {
    let bench = Bench::new();
    let answer = bench.send("GET", "/v1/executions/missing/events:watch", &[EVENTS], "").await;
    assert_eq!(answer.refusal(), (404, "EXECUTION_NOT_FOUND".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_silent_event_stream_sends_pings_and_a_silent_line_stream_sends_nothing() {
    let bench = Bench::new();
    let path = "/v1/executions/silent/events:watch?after_number=3";
    let open = async |headers: &[(&str, &str)]| {
        let request =
            headers.iter().fold(http::Request::get(path), |builder, (name, value)| builder.header(*name, *value));
        bench.gateway.handle(request.body(Body::empty()).unwrap()).await.into_body()
    };
    let mut events = open(&[EVENTS]).await;
    let started = tokio::time::Instant::now();
    for pings in 1..=3 {
        let frame = events.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((frame, started.elapsed()), (": ping\n\n".into(), Duration::from_secs(15 * pings)));
    }
    let mut lines = open(&[]).await;
    assert!(tokio::time::timeout(Duration::from_secs(3600), lines.frame()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_an_error_when_its_caller_no_longer_waits() {
    let bench = Bench::new();
    let path = "/v1/executions/silent/events:watch?after_number=2";
    let answer = bench.send("GET", path, &[("request-timeout", "5")], "").await;
    let lines: Vec<&str> = answer.text().lines().collect();
    assert_eq!(lines[0], "{\"result\":{\"event\":{\"number\":\"3\"}}}");
    assert!(lines.len() == 2 && lines[1].starts_with("{\"error\":{\"code\":504,\"status\":\"DEADLINE_EXCEEDED\""));
}

#[tokio::test]
async fn head_of_a_stream_has_no_body() {
    let answer = Bench::new().send("HEAD", "/v1/executions/silent/events:watch", &[], "").await;
    assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 0));
}
