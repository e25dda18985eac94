//! One start through several nodes.

use super::{Node, ONE_TASK, OPEN, nodes};
use crate::harness::*;
use orbit::engine::Error;
use orbit::store::faulty::{Call, Fate};
use std::time::Duration;

fn slow(call: Call<'_>) -> Fate {
    if matches!(call, Call::Commit(_)) { Fate::Takes(Duration::from_millis(4)) } else { Fate::Works }
}

#[tokio::test(start_paused = true)]
async fn k15_the_same_start_at_the_same_time_makes_one_execution() {
    let nodes: [Node; 3] = nodes();
    nodes[0].deploy("one", ONE_TASK).await;
    for node in &nodes {
        node.meets(slow);
    }
    for with_request in [false, true] {
        let mut call = start_of("one", if with_request { "r" } else { "e" }, "{}");
        call.request = with_request.then(|| request("r", "1"));
        let calls = nodes.iter().flat_map(|node| [node, node]).map(|node| {
            let (engine, call) = (node.engine.clone(), call.clone());
            tokio::spawn(async move { engine.start_execution(call).await.unwrap() })
        });
        let mut started = Vec::new();
        for call in calls.collect::<Vec<_>>() {
            started.push(call.await.unwrap());
        }
        assert!(started.iter().all(|start| start.uid == started[0].uid), "{started:?}");
        let created = started.iter().filter(|start| start.created).count();
        assert_eq!(created, if with_request { started.len() } else { 1 }, "{started:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_id_that_another_node_has_given_to_other_work_is_refused() {
    let [a, b] = nodes();
    a.deploy("one", ONE_TASK).await;
    a.start("one", "e").await;
    let refused = b.engine.start_execution(start_of("one", "e", "{\"other\":1}")).await;
    assert!(matches!(refused, Err(Error::ExecutionAlreadyExists { .. })), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_start_whose_commit_was_lost_is_found_on_another_node() {
    let [a, b] = nodes();
    a.deploy("one", ONE_TASK).await;
    a.meets(|call| if matches!(call, Call::Commit(_)) { Fate::FailsAfter } else { Fate::Works });
    let mut call = start_of("one", "e", "{}");
    call.id = None;
    call.request = Some(request("r", "1"));
    assert!(matches!(a.engine.start_execution(call.clone()).await, Err(Error::Store(_))));
    let started = b.engine.start_execution(call.clone()).await.unwrap();
    assert!(started.created, "the same request has the same answer");
    a.meets(|_| Fate::Works);
    assert_eq!(a.engine.start_execution(call).await.unwrap(), started);
    let session = b.worker(&["a@1"]).await;
    assert_eq!(b.poll_for(session, 1, 20.0).await.tasks.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_overtaken_before_its_answer_tells_nothing_old() {
    let [a, b] = nodes();
    a.deploy("open", OPEN).await;
    a.meets(|call| if matches!(call, Call::Commit(_)) { Fate::Takes(Duration::from_millis(20)) } else { Fate::Works });
    let engine = a.engine.clone();
    let starting = tokio::spawn(async move { engine.start_execution(start_of("open", "e", "{}")).await.unwrap() });
    // It is committed, and A does not know yet.
    pass(0.015).await;
    b.signal("e", "s", "1").await.unwrap();
    assert_eq!(a.standing("e").await.state.buffered_signals(), 1);
    b.signal("e", "s", "1").await.unwrap();
    assert!(starting.await.unwrap().created);
    assert_eq!(a.standing("e").await.state.buffered_signals(), 2);
    assert_eq!(a.signal("e", "s", "1").await.unwrap(), 5);
}
