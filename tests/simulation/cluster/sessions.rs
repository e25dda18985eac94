//! Sessions: whoever judges, each is lost once, and what ended at one node has ended at all.

use super::*;
use orbit::domain::{ReportOutcome, StepState};
use orbit::engine::Error;

#[tokio::test(start_paused = true)]
async fn a_session_lives_whichever_node_hears_of_it() {
    let cluster = Cluster::new(3).await;
    let session = cluster.nodes[0].worker(&["a@1"]).await;
    for round in 0..60 {
        // Two of three nodes never hear of it for a minute each.
        cluster.nodes[round / 6 % 3].heartbeat(session, Vec::new()).await;
        pass(10.0).await;
    }
    assert!(cluster.memory.session(session).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_session_that_ended_at_one_node_is_over_at_the_others_within_seconds() {
    let cluster = Cluster::new(2).await;
    cluster.nodes[0].deploy("one", ONE_TASK).await;
    let session = cluster.nodes[0].worker(&["a@1"]).await;
    let mut stream = cluster.nodes[1].engine.open_stream(session).await.unwrap();
    stream.granter().grant(1);
    let engine = cluster.nodes[1].engine.clone();
    let poll = tokio::spawn(async move { engine.poll(session, 1, Duration::from_secs(50)).await });
    pass(1.0).await;
    let began = cluster.nodes[0].now();
    cluster.nodes[0].engine.unregister(session).await.unwrap();
    assert!(stream.next().await.is_none());
    assert!(poll.await.unwrap().unwrap().tasks.is_empty());
    assert!(cluster.nodes[0].now().since(began) < Duration::from_secs(7));
    let lost = cluster.nodes[1].engine.heartbeat(session, Vec::new()).await;
    assert!(matches!(lost, Err(Error::SessionNotFound)));
    let lost = cluster.nodes[1].engine.poll(session, 1, Duration::ZERO).await;
    assert!(matches!(lost, Err(Error::SessionNotFound)));
}

#[tokio::test(start_paused = true)]
async fn a_session_is_unregistered_through_any_node_with_what_it_holds() {
    let cluster = Cluster::new(2).await;
    cluster.nodes[0].deploy("one", ONE_TASK).await;
    let session = cluster.nodes[0].worker(&["a@1"]).await;
    cluster.nodes[0].start("one", "e").await;
    let task = cluster.nodes[0].task(session).await;
    for _ in 0..3 {
        cluster.nodes[0].heartbeat(session, vec![listed(&task)]).await;
        pass(10.0).await;
    }
    cluster.nodes[1].engine.unregister(session).await.unwrap();
    assert_eq!(cluster.nodes[1].count("e", ended(EndReason::Unregistered)).await, 1);
    let other = cluster.nodes[0].worker(&["a@1"]).await;
    assert!(cluster.nodes[0].task(other).await.delivery.redelivery);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_taken_back_at_another_node_ends_its_old_connection_here() {
    let cluster = Cluster::new(2).await;
    let session = cluster.nodes[0].worker(&["a@1"]).await;
    let mut stream = cluster.nodes[0].engine.open_stream(session).await.unwrap();
    stream.granter().grant(1);
    pass(1.0).await;
    let began = cluster.nodes[0].now();
    let mut again = registration(&["a@1"]);
    again.previous_session = Some(session);
    assert!(cluster.nodes[1].engine.register(again).await.unwrap().resumed);
    assert!(stream.next().await.is_none());
    assert!(cluster.nodes[0].now().since(began) < Duration::from_secs(7));
    cluster.nodes[0].heartbeat(session, Vec::new()).await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_session_is_ended_by_those_who_are_left() {
    let cluster = Cluster::new(3).await;
    let mut sessions = Vec::new();
    for number in 0..30 {
        sessions.push(cluster.nodes[number % 3].worker(&["a@1"]).await);
    }
    pass(1.5).await;
    cluster.nodes[0].kill();
    pass(25.0).await;
    for session in &sessions {
        assert!(cluster.memory.session(*session).await.unwrap().is_some());
    }
    pass(20.0).await;
    for session in &sessions {
        assert!(cluster.memory.session(*session).await.unwrap().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn c005_whoever_loses_the_race_for_a_lost_session_does_nothing_for_it() {
    for (winner, loser) in [(0, 1), (1, 0)] {
        let cluster = Cluster::new(2).await;
        cluster.nodes[0].deploy("one", ONE_TASK).await;
        let session = cluster.nodes[0].worker(&["a@1"]).await;
        cluster.nodes[0].start("one", "e").await;
        let task = cluster.nodes[0].task(session).await;
        for round in 0..8 {
            cluster.nodes[round % 2].heartbeat(session, vec![listed(&task)]).await;
            pass(5.0).await;
        }
        // The loser's compare-and-set is on its way for so long that the winner's comes first.
        let after = Arc::new(AtomicUsize::new(0));
        let counter = after.clone();
        let mut has_tried = false;
        cluster.nodes[loser].weather(move |call| match method(&call) {
            "end_session" => {
                has_tried = true;
                Fate::Takes(Duration::from_secs(60))
            }
            "held_by_session" | "commit" if has_tried => {
                counter.fetch_add(1, Ordering::Relaxed);
                Fate::Works
            }
            _ => Fate::Works,
        });
        pass(120.0).await;
        assert!(cluster.memory.session(session).await.unwrap().is_none());
        assert_eq!(cluster.nodes[winner].count("e", ended(EndReason::SessionLost)).await, 1);
        assert_eq!(after.load(Ordering::Relaxed), 0, "the loser goes no further");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_heard_of_while_it_is_judged_lives() {
    let cluster = Cluster::new(2).await;
    let session = cluster.nodes[0].worker(&["a@1"]).await;
    pass(1.5).await;
    for node in &cluster.nodes {
        node.weather(
            |call| if method(&call) == "end_session" { Fate::Takes(Duration::from_secs(10)) } else { Fate::Works },
        );
    }
    // Both nodes' compare-and-sets are on their way when it speaks again.
    pass(33.0).await;
    cluster.nodes[1].heartbeat(session, Vec::new()).await;
    for _ in 0..3 {
        pass(10.0).await;
        cluster.nodes[1].heartbeat(session, Vec::new()).await;
    }
    assert!(cluster.memory.session(session).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn c017_two_workers_of_one_name_at_two_nodes_are_two() {
    let cluster = Cluster::new(2).await;
    cluster.nodes[0].deploy("one", ONE_TASK).await;
    let first = cluster.nodes[0].worker(&["a@1"]).await;
    let second = cluster.nodes[1].worker(&["a@1"]).await;
    assert_ne!(first, second);
    for id in ["x", "y"] {
        cluster.nodes[0].start("one", id).await;
    }
    let of_first = cluster.nodes[0].poll_for(first, 1, 1.0).await.tasks.remove(0);
    let of_second = cluster.nodes[1].poll_for(second, 1, 2.0).await.tasks.remove(0);
    for _ in 0..4 {
        cluster.nodes[0].heartbeat(first, vec![listed(&of_first)]).await;
        cluster.nodes[1].heartbeat(second, vec![listed(&of_second)]).await;
        pass(10.0).await;
    }
    cluster.nodes[1].engine.unregister(first).await.unwrap();
    cluster.nodes[1].hold(second, &[&of_second], 60).await;
    assert_eq!(cluster.nodes[0].report(&of_second, complete("1")).await, ReportOutcome::Accepted);
    let id = of_second.execution_id.as_str();
    assert_eq!(cluster.nodes[0].count(id, |kind| matches!(kind, EventKind::DeliveryEnded { .. })).await, 0);
}

#[tokio::test(start_paused = true)]
async fn c117_a_duty_that_fails_keeps_no_other_from_being_done() {
    let cluster = Cluster::new(1).await;
    let node = &cluster.nodes[0];
    node.deploy("one", ONE_TASK).await;
    let session = node.worker(&["a@1"]).await;
    node.start("one", "e").await;
    let task = node.task(session).await;
    node.hold(session, &[&task], 40).await;
    let silent = node.worker(&["b@1"]).await;

    node.fails(&["held_overdue", "held_without_session", "delete_held", "due", "waiting_pools"]);
    node.hold(session, &[&task], 50).await;
    assert!(cluster.memory.session(silent).await.unwrap().is_none(), "sessions are judged");
    assert!(cluster.memory.session(session).await.unwrap().is_some(), "presence is written");

    node.fails(&["sessions", "delete_held", "waiting_pools"]);
    node.hold(session, &[], 60).await;
    assert_eq!(node.step("e", "a").await, StepState::Running, "who cannot read presence judges nobody");

    node.fails(&["end_session", "delete_held"]);
    let dead = node.worker(&["b@1"]).await;
    node.hold(session, &[], 60).await;
    assert!(cluster.memory.session(dead).await.unwrap().is_some());
    assert_eq!(node.count("e", ended(EndReason::NotListed)).await, 1, "held tasks are looked after");

    node.fails(&["presence"]);
    node.start("one", "f").await;
    assert_eq!(node.poll(session).await.len(), 2, "and work goes on");
    node.weather(|_| Fate::Works);
    node.hold(session, &[], 40).await;
    assert!(cluster.memory.session(dead).await.unwrap().is_none(), "what failed is done in the end");
}
