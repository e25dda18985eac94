//! Nodes whose session timeouts differ, as while the setting is changed on one after the other: a session is judged by what
//! its worker was told.

use super::*;
use orbit::engine::Registration;
use orbit::store::SessionRow;

/// Heartbeats through each node in turn, so many times, with a pause after each.
async fn beat(cluster: &Cluster, session: SessionId, tasks: &[&Task], times: usize, pause: f64) {
    for time in 0..times {
        let node = &cluster.nodes[time % cluster.nodes.len()];
        node.heartbeat(session, tasks.iter().map(|task| listed(task)).collect()).await;
        pass(pause).await;
    }
}

async fn is_there(cluster: &Cluster, session: SessionId) -> bool {
    cluster.memory.session(session).await.unwrap().is_some()
}

#[tokio::test(start_paused = true)]
async fn a_session_lives_and_is_lost_by_the_timeout_that_its_worker_was_told() {
    let cluster = Cluster::with_session_timeouts(&[60, 3]).await;
    let mut sessions = Vec::new();
    for _ in 0..6 {
        let (slow, fast) = (cluster.nodes[0].worker(&["a@1"]).await, cluster.nodes[1].worker(&["a@1"]).await);
        sessions.push((slow, fast));
    }
    for second in 0..120 {
        for (slow, fast) in &sessions {
            if second % 20 == 0 {
                cluster.nodes[second / 20 % 2].heartbeat(*slow, Vec::new()).await;
            }
            cluster.nodes[second % 2].heartbeat(*fast, Vec::new()).await;
        }
        pass(1.0).await;
    }
    // A judge that is not the first for it waits for five seconds more, and reads every five what others heard.
    pass(2.0).await;
    for (slow, fast) in &sessions {
        assert!(is_there(&cluster, *slow).await && is_there(&cluster, *fast).await);
    }
    pass(12.0).await;
    for (slow, fast) in &sessions {
        assert!(is_there(&cluster, *slow).await && !is_there(&cluster, *fast).await);
    }
    pass(20.0).await;
    for (slow, _) in &sessions {
        assert!(is_there(&cluster, *slow).await);
    }
    pass(45.0).await;
    for (slow, _) in &sessions {
        assert!(!is_there(&cluster, *slow).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_is_looked_for_by_the_timeout_of_its_session_whichever_node_handed_it_out() {
    let cluster = Cluster::with_session_timeouts(&[60, 3]).await;
    cluster.nodes[0].deploy("one", ONE_TASK).await;
    let session = cluster.nodes[0].worker(&["a@1"]).await;
    cluster.nodes[1].start("one", "e").await;
    let task = cluster.nodes[1].task(session).await;
    pass(20.0).await;
    beat(&cluster, session, &[&task], 6, 20.0).await;
    assert_eq!(cluster.nodes[0].count("e", |kind| matches!(kind, EventKind::DeliveryEnded { .. })).await, 0);
    assert_eq!(cluster.nodes[0].count("e", |kind| matches!(kind, EventKind::TaskHeld { .. })).await, 1);

    // And one that its worker never lists is found after its three seconds at a node that has sixty.
    let fast = cluster.nodes[1].worker(&["a@1"]).await;
    cluster.nodes[0].start("one", "f").await;
    cluster.nodes[0].task(fast).await;
    beat(&cluster, fast, &[], 8, 1.0).await;
    assert_eq!(cluster.nodes[0].count("f", ended(EndReason::NotListed)).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_task_is_missing_by_the_timeout_of_its_session() {
    let cluster = Cluster::with_session_timeouts(&[60, 3]).await;
    cluster.nodes[0].deploy("one", ONE_TASK).await;
    let (slow, fast) = (cluster.nodes[0].worker(&["a@1"]).await, cluster.nodes[1].worker(&["a@1"]).await);
    cluster.nodes[0].start("one", "slow").await;
    let of_slow = cluster.nodes[0].task(slow).await;
    cluster.nodes[0].start("one", "fast").await;
    let of_fast = cluster.nodes[0].task(fast).await;
    for second in 0..80 {
        if second % 20 == 0 {
            cluster.nodes[0].heartbeat(slow, vec![listed(&of_slow)]).await;
        }
        cluster.nodes[0].heartbeat(fast, vec![listed(&of_fast)]).await;
        pass(1.0).await;
    }
    for id in ["slow", "fast"] {
        assert_eq!(cluster.nodes[0].count(id, |kind| matches!(kind, EventKind::TaskHeld { .. })).await, 1, "{id}");
    }
    for second in 0..50 {
        if second % 20 == 0 {
            cluster.nodes[0].heartbeat(slow, Vec::new()).await;
        }
        cluster.nodes[0].heartbeat(fast, Vec::new()).await;
        pass(1.0).await;
        let is_over = cluster.nodes[0].count("fast", ended(EndReason::NotListed)).await == 1;
        assert!(if second < 2 { !is_over } else { second < 12 || is_over }, "after {second} s: {is_over}");
    }
    // It was only forgotten for fifty seconds.
    assert_eq!(cluster.nodes[1].count("slow", ended(EndReason::NotListed)).await, 0);
    beat(&cluster, slow, &[&of_slow], 4, 20.0).await;
    assert_eq!(cluster.nodes[1].count("slow", ended(EndReason::NotListed)).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_taken_back_goes_by_the_timeout_that_it_is_told_then() {
    let cluster = Cluster::with_session_timeouts(&[60, 3]).await;
    cluster.nodes[0].deploy("one", ONE_TASK).await;
    let session = cluster.nodes[1].worker(&["a@1"]).await;
    cluster.nodes[1].start("one", "e").await;
    let task = cluster.nodes[1].task(session).await;
    pass(1.0).await;
    let again = || Registration { previous_session: Some(session), ..registration(&["a@1"]) };
    let told = cluster.nodes[0].engine.register(again()).await.unwrap();
    assert!(told.resumed);
    assert_eq!((told.session_timeout, told.heartbeat_interval), (Duration::from_secs(60), Duration::from_secs(20)));
    // Its next heartbeat comes long after the first check that its task was handed out with.
    pass(20.0).await;
    beat(&cluster, session, &[&task], 4, 20.0).await;
    assert_eq!(cluster.nodes[0].count("e", |kind| matches!(kind, EventKind::DeliveryEnded { .. })).await, 0);
    assert!(is_there(&cluster, session).await);

    let told = cluster.nodes[1].engine.register(again()).await.unwrap();
    assert_eq!(told.session_timeout, Duration::from_secs(3));
    beat(&cluster, session, &[&task], 20, 1.0).await;
    assert!(is_there(&cluster, session).await);
    pass(15.0).await;
    assert!(!is_there(&cluster, session).await);
    assert_eq!(cluster.nodes[0].count("e", ended(EndReason::SessionLost)).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_without_a_timeout_of_its_own_goes_by_the_node_s() {
    let cluster = Cluster::with_session_timeouts(&[20]).await;
    let session = cluster.nodes[0].worker(&["a@1"]).await;
    // As a version that did not store it leaves it.
    let row = cluster.memory.session(session).await.unwrap().unwrap();
    cluster.memory.put_session(&SessionRow { timeout: None, connection: 2, ..row }).await.unwrap();
    pass(10.0).await;
    cluster.nodes[0].heartbeat(session, Vec::new()).await;
    pass(15.0).await;
    assert!(is_there(&cluster, session).await);
    pass(10.0).await;
    assert!(!is_there(&cluster, session).await);
}
