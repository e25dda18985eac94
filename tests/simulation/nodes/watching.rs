//! Waits and watches on one node for what another one writes.

use super::{ONE_TASK, OPEN, nodes};
use crate::harness::*;
use orbit::domain::Phase;
use orbit::engine::Error;
use orbit::store::faulty::{Call, Fate};
use std::time::Duration;

/// The longest that lost news cost: a look each second, and what it takes.
const BEHIND_MAX: Duration = Duration::from_millis(1_100);

fn without_hints(call: Call<'_>) -> Fate {
    if matches!(call, Call::Write("publish")) { Fate::FailsBefore } else { Fate::Works }
}

#[tokio::test(start_paused = true)]
async fn a_wait_hears_of_the_end_on_another_node_within_a_second_although_no_news_come() {
    let [a, b] = nodes();
    a.meets(without_hints);
    a.deploy("open", OPEN).await;
    a.start("open", "e").await;
    for is_hot in [false, true] {
        let id = if is_hot { "hot" } else { "e" };
        if is_hot {
            a.start("open", id).await;
            b.standing(id).await;
        }
        let engine = b.engine.clone();
        let waiting = tokio::spawn(async move { engine.wait(&name(id), Duration::from_secs(60)).await.unwrap() });
        pass(5.3).await;
        a.signal(id, "s", "1").await.unwrap();
        pass(5.0).await;
        assert!(!waiting.is_finished());
        a.signal(id, "end", "1").await.unwrap();
        let before = b.now();
        assert_eq!(waiting.await.unwrap().state.phase(), Phase::Succeeded);
        assert!(b.now().since(before) < BEHIND_MAX, "{:?}", b.now().since(before));
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_gives_every_event_of_other_nodes_once_and_ends_with_the_close() {
    let [a, b, c] = nodes();
    for node in [&a, &b] {
        node.meets(without_hints);
    }
    a.deploy("open", OPEN).await;
    a.start("open", "e").await;
    let mut watch = c.engine.watch(&name("e"), 0).await.unwrap();
    let mut numbers = Vec::new();
    for round in 0..4 {
        while numbers.len() < 2 + round {
            numbers.push(watch.recv().await.unwrap().unwrap().number);
        }
        let before = c.now();
        let node = if round % 2 == 0 { &a } else { &b };
        node.signal("e", "s", "1").await.unwrap();
        numbers.push(watch.recv().await.unwrap().unwrap().number);
        assert!(c.now().since(before) < BEHIND_MAX);
    }
    b.engine.terminate(&name("e"), arc("enough"), None).await.unwrap();
    while let Some(event) = watch.recv().await {
        numbers.push(event.unwrap().number);
    }
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_open_with_its_time_and_leaves_nothing_behind() {
    let [a, b] = nodes();
    a.deploy("one", ONE_TASK).await;
    a.start("one", "e").await;
    assert_eq!(b.wait("e", 3.5).await, Phase::Running);
    assert!(matches!(b.engine.wait(&name("nobody"), Duration::ZERO).await, Err(Error::ExecutionNotFound { .. })));
    a.engine.terminate(&name("e"), arc(""), None).await.unwrap();
    assert_eq!(b.wait("e", 1.0).await, Phase::Terminated);
    let looks = b.calls_of("newest_numbers");
    pass(5.0).await;
    assert_eq!(b.calls_of("newest_numbers"), looks, "nobody watches");
    assert_eq!(b.engine.sizes().mailboxes, 0);
}
