//! What comes of a request: outputs, failures, retries, time limits.

use crate::harness::{Site, answer, end, engine, rules, start};
use axum::{body::Body, response::Response};
use orbit::config::Http;
use orbit::domain::{Failure, Phase, StepState};
use orbit::engine::Engine;
use std::time::Duration;

/// An engine that may call this site.
fn serving(site: &Site) -> Engine {
    let engine = engine();
    engine.serve_http(&rules(&[site]));
    engine
}

async fn failure(engine: &Engine) -> Failure {
    let standing = end(engine).await;
    assert_eq!(standing.state.phase(), Phase::Failed);
    standing.state.failure().unwrap().clone()
}

#[tokio::test]
async fn a_response_is_the_output_of_the_step_with_every_digit() {
    let site = Site::start(|_, _| async { answer(201, "application/json", r#"{"n": 12345678901234567890}"#) }).await;
    let engine = serving(&site);
    start(&engine, &format!("  - {{id: call, http: {{url: \"{}\", body: {{a: 1}}}}}}\n", site.url("/orders"))).await;
    let standing = end(&engine).await;
    let output = standing.state.output().unwrap().as_str();
    assert!(output.starts_with("{\"status\":201,\"headers\":{\"content-length\":\"27\","), "{output}");
    assert!(output.ends_with("},\"body\":{\"n\": 12345678901234567890}}"), "{output}");
    assert_eq!(site.asked()[0].path, "/orders");
    engine.shutdown().await;
}

#[tokio::test]
async fn a_server_that_is_better_later_is_asked_again_with_the_same_key() {
    let site =
        Site::start(|_, before| async move { answer(if before == 0 { 500 } else { 200 }, "text/plain", "thanks") })
            .await;
    let engine = serving(&site);
    let retry = "retry: {initial_interval: 1ms, jitter: 0}";
    start(&engine, &format!("  - {{id: call, http: {{method: POST, url: \"{}\"}}, {retry}}}\n", site.url("/"))).await;
    let standing = end(&engine).await;
    assert!(standing.state.output().unwrap().as_str().ends_with("\"body\":\"thanks\"}"));
    assert_eq!(standing.state.steps().next().unwrap().attempt, 2);
    let asked = site.asked();
    assert_eq!(asked.len(), 2);
    assert!(asked[0].idempotency_key.len() == 32 && asked[0].idempotency_key == asked[1].idempotency_key);
    engine.shutdown().await;
}

#[tokio::test]
async fn retry_after_is_longer_than_the_steps_own_pause() {
    let site = Site::start(|_, before| async move {
        if before > 0 {
            return answer(200, "text/plain", "");
        }
        Response::builder().status(429).header("retry-after", "1").body(Body::empty()).unwrap()
    })
    .await;
    let engine = serving(&site);
    let retry = "retry: {initial_interval: 1ms, jitter: 0}";
    let begin = std::time::Instant::now();
    start(&engine, &format!("  - {{id: call, http: {{url: \"{}\"}}, {retry}}}\n", site.url("/"))).await;
    end(&engine).await;
    assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
    engine.shutdown().await;
}

#[tokio::test]
async fn a_refusal_fails_the_step_at_once_and_says_what_was_said() {
    let site = Site::start(|_, _| async { answer(404, "application/json", r#"{"no": "such order"}"#) }).await;
    let engine = serving(&site);
    start(&engine, &format!("  - {{id: call, http: {{url: \"{}\"}}}}\n", site.url("/"))).await;
    let failure = failure(&engine).await;
    assert_eq!((&*failure.code, &*failure.message), ("HTTP_404", "the answer was 404 Not Found"));
    assert!(failure.details.unwrap().as_str().ends_with(r#""body":{"no": "such order"}}"#));
    assert_eq!(site.asked().len(), 1);
    engine.shutdown().await;
}

#[tokio::test]
async fn c153_what_the_operator_does_not_allow_fails_the_step_at_once() {
    let inside = Site::start(|_, _| async { answer(200, "text/plain", "secret") }).await;
    let port = inside.address.port();
    let engine = engine();
    // Any name on that port, and no private address.
    let allow = vec![format!("*:{port}").parse().unwrap()];
    engine.serve_http(&Http { allow, ..Http::default() });
    start(&engine, &format!("  - {{id: call, http: {{url: \"http://localhost:{port}/\"}}}}\n")).await;
    let failure = failure(&engine).await;
    assert_eq!(&*failure.code, "HTTP_FORBIDDEN");
    assert!(failure.message.contains("loopback"), "{}", failure.message);
    assert!(inside.asked().is_empty());
    engine.shutdown().await;
}

#[tokio::test]
async fn a_request_that_takes_too_long_times_out_and_is_made_again() {
    let site = Site::start(|_, before| async move {
        if before == 0 {
            std::future::pending::<()>().await;
        }
        answer(200, "text/plain", "at last")
    })
    .await;
    let engine = serving(&site);
    let rest = "timeout: 300ms, retry: {initial_interval: 1ms, jitter: 0}";
    start(&engine, &format!("  - {{id: call, http: {{url: \"{}\"}}, {rest}}}\n", site.url("/"))).await;
    let standing = end(&engine).await;
    assert_eq!((standing.state.phase(), site.asked().len()), (Phase::Succeeded, 2));
    engine.shutdown().await;
}

#[tokio::test]
async fn a_body_without_end_does_not_outlive_its_time() {
    let site = Site::start(|_, _| async {
        let drip = futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>("drip"));
        answer(200, "text/plain", Body::from_stream(drip))
    })
    .await;
    let engine = serving(&site);
    start(&engine, &format!("  - {{id: call, http: {{url: \"{}\"}}}}\n", site.url("/"))).await;
    assert_eq!(&*failure(&engine).await.code, "HTTP_TOO_LARGE");
    engine.shutdown().await;
}

#[tokio::test]
async fn more_requests_than_slots_wait_and_are_all_made() {
    let site = Site::start(|_, _| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        answer(200, "text/plain", "")
    })
    .await;
    let engine = engine();
    engine.serve_http(&Http { slots: 2, ..rules(&[&site]) });
    let steps: String =
        (0..10).map(|step| format!("  - {{id: s{step}, http: {{url: \"{}\"}}}}\n", site.url("/"))).collect();
    start(&engine, &format!("{steps}  - {{id: call, compute: 1}}\n")).await;
    let standing = end(&engine).await;
    assert!(standing.state.steps().all(|step| step.state == StepState::Succeeded));
    assert_eq!(site.asked().len(), 10);
    engine.shutdown().await;
}
