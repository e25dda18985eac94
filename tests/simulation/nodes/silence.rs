//! A store that is silent: who calls is told so within the time that one call of the store may take, however many wait.

use super::{Node, OPEN, nodes};
use crate::harness::*;
use orbit::engine::Error;
use orbit::store::faulty::Fate;
use std::time::Duration;
use tokio::{task::JoinSet, time::Instant};

/// How long the store may take for a call.
const LIMIT: Duration = Duration::from_secs(5);

/// Calls that begin one after the other, all within less than the limit.
const CALLS: u32 = 8;

/// Begins each call half a second after the one before, and looks whether each is told in time.
async fn all_are_told<F>(mut call: impl FnMut(u32) -> F)
where
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    let mut calls = JoinSet::new();
    for number in 0..CALLS {
        let call = call(number);
        calls.spawn(async move {
            pass(0.5 * f64::from(number)).await;
            let begin = Instant::now();
            let answer = call.await;
            assert!(matches!(answer, Err(Error::Store(_))), "call {number}: {answer:?}");
            assert!(begin.elapsed() <= LIMIT, "call {number} was told after {:?}", begin.elapsed());
        });
    }
    calls.join_all().await;
}

async fn silent_node() -> &'static Node {
    let [node] = nodes();
    // It lives as long as the calls, which are tasks of their own.
    let node: &Node = Box::leak(Box::new(node));
    node.deploy("open", OPEN).await;
    node.start("open", "e").await;
    node.phase("e").await;
    node.meets(|_| Fate::FailsLate(LIMIT));
    node
}

#[tokio::test(start_paused = true)]
async fn starts_behind_a_commit_that_is_not_answered_wait_no_longer_than_that_one() {
    let node = silent_node().await;
    all_are_told(|number| async move {
        let id = format!("e{number}");
        node.engine.start_execution(start_of("open", &id, "{}")).await.map(drop)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn commands_of_one_execution_behind_a_commit_that_is_not_answered_wait_no_longer_than_that_one() {
    let node = silent_node().await;
    all_are_told(|_| async move { node.signal("e", "s", "1").await.map(drop) }).await;
    node.meets(|_| Fate::Works);
    assert_eq!(node.signal("e", "s", "2").await.unwrap(), 3, "what was refused is not done later");
}

#[tokio::test(start_paused = true)]
async fn reads_behind_a_look_that_is_not_answered_wait_no_longer_than_that_one() {
    let node = silent_node().await;
    for number in 0..CALLS {
        node.meets(|_| Fate::Works);
        node.start("open", &format!("e{number}")).await;
    }
    node.meets(|_| Fate::FailsLate(LIMIT));
    // Of one execution, and of many.
    all_are_told(|_| async move { node.engine.execution(&name("e")).await.map(drop) }).await;
    all_are_told(|number| async move { node.engine.execution(&name(&format!("e{number}"))).await.map(drop) }).await;
}
