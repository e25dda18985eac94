//! One start through several nodes.

use super::{Node, ONE_TASK, OPEN, nodes};
use crate::harness::*;
use orbit::domain::{Phase, Rejection};
use orbit::engine::{Error, ExecutionName, IdReuse, StartExecution};
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

fn reusing(id: &str, input: &str, id_reuse: IdReuse) -> StartExecution {
    StartExecution { id_reuse, ..start_of("open", id, input) }
}

#[tokio::test(start_paused = true)]
async fn an_id_is_used_again_as_far_as_the_start_says() {
    let [a, b] = nodes();
    a.deploy("open", OPEN).await;
    let first = a.start("open", "e").await;
    // While it is open, only the last policy takes its place.
    let found = b.engine.start_execution(reusing("e", "{}", IdReuse::AllowWhenClosed)).await.unwrap();
    assert_eq!((found.uid, found.created), (first.uid, false));
    let refused = b.engine.start_execution(reusing("e", "1", IdReuse::AllowWhenClosed)).await;
    assert!(matches!(refused, Err(Error::ExecutionAlreadyExists { .. })), "{refused:?}");
    let second = b.engine.start_execution(reusing("e", "{}", IdReuse::TerminateRunning)).await.unwrap();
    assert!(second.created && second.uid != first.uid);
    for node in [&a, &b] {
        assert_eq!(node.standing("e").await.row.uid, second.uid);
        let old = ExecutionName { uid: Some(first.uid), ..name("e") };
        let old = node.engine.execution(&old).await.unwrap();
        assert_eq!((old.state.phase(), old.row.current), (Phase::Terminated, false));
        assert_eq!(old.state.reason().map(|reason| &**reason), Some("another execution was started in its place"));
    }
    // Once it is closed, so does the second; the default never does.
    a.signal("e", "end", "1").await.unwrap();
    let found = b.start("open", "e").await;
    assert_eq!((found.uid, found.created), (second.uid, false));
    let third = a.engine.start_execution(reusing("e", "{}", IdReuse::AllowWhenClosed)).await.unwrap();
    b.signal("e", "end", "1").await.unwrap();
    let fourth = b.engine.start_execution(reusing("e", "1", IdReuse::TerminateRunning)).await.unwrap();
    assert!(third.created && fourth.created && third.uid != fourth.uid);
    assert_eq!(a.standing("e").await.row.uid, fourth.uid);
    let free = b.engine.start_execution(reusing("free", "1", IdReuse::TerminateRunning)).await.unwrap();
    assert!(free.created);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_cannot_be_made_ends_nothing() {
    let [a, _] = nodes();
    a.deploy("open", OPEN).await;
    let first = a.start("open", "e").await;
    let unknown = StartExecution { workflow: arc("nothing"), ..reusing("e", "1", IdReuse::TerminateRunning) };
    assert!(matches!(a.engine.start_execution(unknown).await, Err(Error::DefinitionNotFound { .. })));
    let standing = a.standing("e").await;
    assert_eq!((standing.row.uid, standing.state.phase()), (first.uid, Phase::Running));
}

#[tokio::test(start_paused = true)]
async fn a_request_is_answered_before_any_policy_is_asked() {
    let [a, b] = nodes();
    a.deploy("open", OPEN).await;
    let with = |id: &str, policy| {
        let call = reusing("e", "{}", policy);
        StartExecution { request: Some(request(id, "1")), ..call }
    };
    let first = a.engine.start_execution(with("r1", IdReuse::TerminateRunning)).await.unwrap();
    let again = b.engine.start_execution(with("r1", IdReuse::TerminateRunning)).await.unwrap();
    assert_eq!(again, first, "it does not replace itself");
    let second = b.engine.start_execution(with("r2", IdReuse::TerminateRunning)).await.unwrap();
    assert_ne!(second.uid, first.uid);
    for node in [&a, &b] {
        let again = node.engine.start_execution(with("r1", IdReuse::TerminateRunning)).await.unwrap();
        assert_eq!(again, first, "the first answer again, although another one has the id");
        assert_eq!(node.standing("e").await.row.uid, second.uid);
    }
    let other = StartExecution { request: Some(request("r1", "2")), ..reusing("e", "{}", IdReuse::TerminateRunning) };
    let reused = a.engine.start_execution(other).await;
    assert!(matches!(reused, Err(Error::Rejected(Rejection::RequestIdReused))), "{reused:?}");
}

#[tokio::test(start_paused = true)]
async fn starts_that_replace_each_other_at_once_leave_one_and_end_all_others() {
    let nodes: [Node; 3] = nodes();
    nodes[0].deploy("open", OPEN).await;
    let mut uids = vec![nodes[0].start("open", "e").await.uid];
    for node in &nodes {
        node.meets(slow);
    }
    for _ in 0..5 {
        let calls = nodes.iter().flat_map(|node| [node, node]).map(|node| {
            let engine = node.engine.clone();
            tokio::spawn(async move { engine.start_execution(reusing("e", "{}", IdReuse::TerminateRunning)).await })
        });
        for call in calls.collect::<Vec<_>>() {
            match call.await.unwrap() {
                Ok(started) => uids.push(started.uid),
                Err(error) => assert!(matches!(error, Error::WriteConflict), "{error:?}"),
            }
        }
    }
    assert!(uids.len() > 6, "{uids:?}");
    let current = nodes[1].standing("e").await.row.uid;
    for uid in uids {
        let named = ExecutionName { uid: Some(uid), ..name("e") };
        let phase = nodes[2].engine.execution(&named).await.unwrap().state.phase();
        assert_eq!(phase, if uid == current { Phase::Running } else { Phase::Terminated });
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_beside_the_close_takes_the_place_of_what_it_meets() {
    let [a, b] = nodes();
    a.deploy("open", OPEN).await;
    for node in [&a, &b] {
        node.meets(slow);
    }
    let mut ends = std::collections::BTreeSet::new();
    for round in 0..20_u32 {
        let id = format!("e{round}");
        let old = a.start("open", &id).await;
        let (engine, call) = (b.engine.clone(), reusing(&id, "{}", IdReuse::TerminateRunning));
        let begun = tokio::spawn(async move { engine.start_execution(call).await.unwrap() });
        pass(f64::from(round) / 1_000.0).await;
        // Given to whichever has the id by then.
        let signalled = a.signal(&id, "end", "1").await;
        let new = begun.await.unwrap();
        assert!(new.created);
        let named = ExecutionName { uid: Some(old.uid), ..name(&id) };
        let phase = b.engine.execution(&named).await.unwrap().state.phase();
        assert!(signalled.is_ok() || phase == Phase::Terminated, "{signalled:?} {phase:?}");
        assert!([Phase::Terminated, Phase::Succeeded].contains(&phase), "{phase:?}");
        ends.insert(phase.as_str());
        assert_eq!(a.standing(&id).await.row.uid, new.uid);
    }
    assert_eq!(ends.len(), 2, "both orders were met: {ends:?}");
}
