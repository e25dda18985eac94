//! Who runs `http` steps: a server that was told so, and what becomes of them where there is none.

use crate::harness::{Site, answer, definition, end, engine, engine_on, rules, start};
use orbit::config::Http;
use orbit::domain::Phase;
use orbit::engine::Error;
use orbit::store::MemoryStore;
use std::{sync::Arc, time::Duration};

const STEP: &str = "  - {id: call, http: {url: \"http://a.test/\"}}\n";

#[tokio::test]
async fn where_no_server_runs_http_steps_a_definition_with_one_is_refused() {
    let engine = engine();
    engine.serve_http(&Http::default());
    let (http, text) = definition(STEP);
    assert!(matches!(engine.check_served(&http).await, Err(Error::HttpDisabled { step }) if *step == *"call"));
    assert!(matches!(engine.deploy(http, text).await, Err(Error::HttpDisabled { .. })));
    let (other, text) = definition("  - {id: call, compute: 1}\n");
    assert!(engine.deploy(other, text).await.unwrap());
    engine.shutdown().await;
}

#[tokio::test]
async fn another_node_that_runs_http_steps_is_enough() {
    let store = MemoryStore::new();
    let site = Site::start(|_, _| async { answer(200, "text/plain", "") }).await;
    let with = engine_on(Arc::new(store.clone()), Duration::from_secs(30));
    with.serve_http(&rules(&[&site]));
    let (http, _) = definition(STEP);
    // Before its worker has registered, it knows by itself.
    with.check_served(&http).await.unwrap();
    start(&with, &format!("  - {{id: call, http: {{url: \"{}\"}}}}\n", site.url("/"))).await;
    end(&with).await;
    let without = engine_on(Arc::new(store), Duration::from_secs(30));
    without.check_served(&http).await.unwrap();
    with.shutdown().await;
    assert!(matches!(without.check_served(&http).await, Err(Error::HttpDisabled { .. })), "it unregistered");
    without.shutdown().await;
}

#[tokio::test]
async fn a_step_that_waits_already_runs_as_soon_as_a_server_may() {
    let site = Site::start(|_, _| async { answer(200, "text/plain", "") }).await;
    let store = MemoryStore::new();
    // It may, and has not begun when it ends.
    let first = engine_on(Arc::new(store.clone()), Duration::from_secs(30));
    let closed = Http { slots: 0, ..rules(&[&site]) };
    first.serve_http(&closed);
    start(&first, &format!("  - {{id: call, http: {{url: \"{}\"}}}}\n", site.url("/"))).await;
    first.shutdown().await;
    assert!(site.asked().is_empty());
    let second = engine_on(Arc::new(store), Duration::from_secs(30));
    second.serve_http(&rules(&[&site]));
    assert_eq!(end(&second).await.state.phase(), Phase::Succeeded);
    second.shutdown().await;
}
