//! What ends a request from outside: a cancel, a server that ends well, and one that dies.

use crate::harness::{Site, answer, end, engine, engine_on, name, rules, start, until};
use orbit::domain::Phase;
use orbit::store::MemoryStore;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Becomes true when a request's connection is gone.
#[derive(Clone, Default)]
struct Gone(Arc<AtomicBool>);

struct Alive(Gone);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

impl Gone {
    fn is_true(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A site whose first request is never answered, and all others at once.
async fn stuck(gone: &Gone) -> Site {
    let gone = gone.clone();
    Site::start(move |_, before| {
        let alive = Alive(gone.clone());
        async move {
            if before == 0 {
                std::future::pending::<()>().await;
            }
            std::mem::forget(alive);
            answer(200, "text/plain", "done")
        }
    })
    .await
}

#[tokio::test]
async fn a_cancel_ends_the_connection_within_seconds() {
    let gone = Gone::default();
    let site = stuck(&gone).await;
    let engine = engine();
    engine.serve_http(&rules(&[&site]));
    start(&engine, &format!("  - {{id: call, http: {{url: \"{}\"}}, timeout: 1h}}\n", site.url("/"))).await;
    site.asked_at_least(1).await;
    let begin = Instant::now();
    engine.cancel(&name(), "enough".into(), None).await.unwrap();
    until(|| gone.is_true()).await;
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert_eq!(site.asked().len(), 1);
    engine.shutdown().await;
}

#[tokio::test]
async fn a_server_that_ends_gives_its_requests_back_and_the_next_one_makes_them_with_the_same_key() {
    let gone = Gone::default();
    let site = stuck(&gone).await;
    let store = MemoryStore::new();
    let first = engine_on(Arc::new(store.clone()), Duration::from_secs(30));
    first.serve_http(&rules(&[&site]));
    start(&first, &format!("  - {{id: call, http: {{url: \"{}\"}}, timeout: 1h}}\n", site.url("/"))).await;
    site.asked_at_least(1).await;
    let begin = Instant::now();
    first.shutdown().await;
    until(|| gone.is_true()).await;
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());

    let second = engine_on(Arc::new(store), Duration::from_secs(30));
    second.serve_http(&rules(&[&site]));
    let standing = end(&second).await;
    assert_eq!(standing.state.phase(), Phase::Succeeded);
    assert!(begin.elapsed() < Duration::from_secs(10), "nobody waited for a lost session");
    let asked = site.asked();
    assert_eq!((asked.len(), &asked[0].idempotency_key), (2, &asked[1].idempotency_key));
    let step = standing.state.steps().next().unwrap();
    assert_eq!((step.attempt, step.delivery), (1, 2), "the same attempt, delivered again");
    second.shutdown().await;
}

#[tokio::test]
async fn while_the_server_drains_a_request_that_runs_goes_on() {
    let site = Site::start(|_, _| async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        answer(200, "text/plain", "done")
    })
    .await;
    let engine = engine();
    engine.serve_http(&rules(&[&site]));
    start(&engine, &format!("  - {{id: call, http: {{url: \"{}\"}}}}\n", site.url("/"))).await;
    site.asked_at_least(1).await;
    engine.drain();
    engine.http_settled().await;
    assert_eq!(engine.execution(&name()).await.unwrap().state.phase(), Phase::Succeeded);
    engine.shutdown().await;
}
