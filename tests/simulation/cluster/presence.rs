//! One worker, heartbeats to any node: what it holds is watched by all of them, and by none in vain.

use super::*;
use orbit::domain::{Phase, ReportOutcome, StepState};
use orbit::engine::Error;

/// Lists tasks every ten seconds, at one node after the other.
async fn hold_anywhere(cluster: &Cluster, session: SessionId, tasks: &[&Task], seconds: u32) {
    for round in 0..seconds / 10 {
        let node = &cluster.nodes[round as usize % cluster.nodes.len()];
        node.heartbeat(session, tasks.iter().map(|task| listed(task)).collect()).await;
        pass(10.0).await;
    }
}

async fn one_task(cluster: &Cluster, lines: &str) -> (SessionId, Task) {
    cluster.nodes[0].deploy("one", lines).await;
    let session = cluster.nodes[0].worker(&["a@1"]).await;
    cluster.nodes[0].start("one", "e").await;
    let task = cluster.nodes[0].task(session).await;
    (session, task)
}

#[tokio::test(start_paused = true)]
async fn a_task_is_kept_whichever_nodes_its_heartbeats_go_to() {
    let cluster = Cluster::new(3).await;
    let (session, task) = one_task(&cluster, ONE_TASK).await;
    hold_anywhere(&cluster, session, &[&task], 600).await;
    let node = &cluster.nodes[2];
    assert_eq!(node.count("e", |kind| matches!(kind, EventKind::TaskHeld { .. })).await, 1);
    assert_eq!(node.kinds("e").await.len(), 4, "nothing else is written: {:?}", node.kinds("e").await);
    assert_eq!(node.report(&task, complete("1")).await, ReportOutcome::Accepted);
    hold_anywhere(&cluster, session, &[], 10).await;
    pass(2.0).await;
    assert!(cluster.memory.held_by_session(session, 10).await.unwrap().is_empty(), "its row goes");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_listed_at_one_node_is_missed_at_another() {
    let cluster = Cluster::new(2).await;
    let (session, task) = one_task(&cluster, ONE_TASK).await;
    for _ in 0..5 {
        cluster.nodes[0].heartbeat(session, vec![listed(&task)]).await;
        pass(10.0).await;
    }
    let node = &cluster.nodes[1];
    node.hold(session, &[], 20).await;
    assert_eq!(node.step("e", "a").await, StepState::Running, "for less than a session timeout it may come back");
    cluster.nodes[0].heartbeat(session, vec![listed(&task)]).await;
    pass(10.0).await;
    node.hold(session, &[], 20).await;
    assert_eq!(node.step("e", "a").await, StepState::Running, "it was listed elsewhere meanwhile");
    node.hold(session, &[], 30).await;
    assert_eq!(node.count("e", ended(EndReason::NotListed)).await, 1);
    assert!(node.task(session).await.delivery.redelivery);
}

#[tokio::test(start_paused = true)]
async fn a_failure_reported_at_one_node_carries_the_progress_that_another_one_heard() {
    let cluster = Cluster::new(2).await;
    let lines = "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1, retry: {max_attempts: 5, initial_interval: 0s}}\n";
    let (session, mut task) = one_task(&cluster, lines).await;
    for (number, report) in [fail("A"), orbit::engine::Report::Release, fail("B")].into_iter().enumerate() {
        cluster.nodes[0].heartbeat(session, vec![with_progress(&task, "1")]).await;
        pass(1.5).await;
        cluster.nodes[1].heartbeat(session, vec![with_progress(&task, &format!("{}", 40 + number))]).await;
        pass(1.5).await;
        cluster.nodes[0].heartbeat(session, vec![listed(&task)]).await;
        assert_eq!(cluster.nodes[number % 2].report(&task, report).await, ReportOutcome::Accepted);
        task = cluster.nodes[0].task(session).await;
        assert_eq!(task.delivery.progress.as_ref().unwrap().as_str(), format!("{}", 40 + number));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_session_s_task_goes_on_from_the_newest_progress_of_any_node() {
    let cluster = Cluster::new(2).await;
    let (session, task) = one_task(&cluster, ONE_TASK).await;
    cluster.nodes[0].heartbeat(session, vec![with_progress(&task, "1")]).await;
    pass(5.0).await;
    cluster.nodes[1].heartbeat(session, vec![with_progress(&task, "2")]).await;
    pass(50.0).await;
    assert_eq!(cluster.nodes[0].count("e", ended(EndReason::SessionLost)).await, 1);
    let other = cluster.nodes[0].worker(&["a@1"]).await;
    assert_eq!(cluster.nodes[0].task(other).await.delivery.progress.unwrap().as_str(), "2");
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_told_to_stop_by_a_node_that_heard_nothing_of_the_end() {
    let cluster = Cluster::new(2).await;
    cluster.nodes[0].fails(&["publish"]);
    let (session, task) = one_task(&cluster, ONE_TASK).await;
    assert!(cluster.nodes[1].heartbeat(session, vec![listed(&task)]).await.stop.is_empty());
    cluster.nodes[0].engine.cancel(&name("e"), arc(""), None).await.unwrap();
    let answer = cluster.nodes[1].heartbeat(session, vec![listed(&task)]).await;
    assert_eq!(answer.stop, std::slice::from_ref(&task.token));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_released_at_another_node_waits_again_at_once_and_its_row_goes() {
    let cluster = Cluster::new(2).await;
    let (session, task) = one_task(&cluster, ONE_TASK).await;
    hold_anywhere(&cluster, session, &[&task], 40).await;
    cluster.nodes[1].report(&task, orbit::engine::Report::Release).await;
    let again = cluster.nodes[0].task(session).await;
    assert_eq!((again.delivery.attempt, again.delivery.redelivery), (1, true));
    hold_anywhere(&cluster, session, &[&again], 20).await;
    let held = cluster.memory.held_by_session(session, 10).await.unwrap();
    assert_eq!(held.iter().map(|row| row.delivery).collect::<Vec<_>>(), [again.token.delivery.delivery]);
}

#[tokio::test(start_paused = true)]
async fn c015_a_missed_beat_is_noticed_by_those_who_are_left() {
    let cluster = Cluster::new(2).await;
    let lines = "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1, heartbeat_timeout: 12s, retry: {max_attempts: 1}}\n";
    let (session, task) = one_task(&cluster, lines).await;
    cluster.nodes[0].heartbeat(session, vec![beat(&task)]).await;
    let began = cluster.nodes[1].now();
    pass(5.0).await;
    cluster.nodes[0].kill();
    assert_eq!(cluster.nodes[1].wait("e", 60.0).await, Phase::Failed);
    let took = cluster.nodes[1].now().since(began).as_secs_f64();
    assert!((12.0..18.0).contains(&took), "{took}");
}

#[tokio::test(start_paused = true)]
async fn beats_at_any_node_keep_a_task() {
    let cluster = Cluster::new(3).await;
    let lines = "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1, heartbeat_timeout: 12s, retry: {max_attempts: 1}}\n";
    let (session, task) = one_task(&cluster, lines).await;
    for round in 0..30 {
        cluster.nodes[round % 3].heartbeat(session, vec![beat(&task)]).await;
        pass(10.0).await;
    }
    assert_eq!(cluster.nodes[0].step("e", "a").await, StepState::Running);
    for round in 0..3 {
        cluster.nodes[round].heartbeat(session, vec![listed(&task)]).await;
        pass(5.0).await;
    }
    assert_eq!(cluster.nodes[0].phase("e").await, Phase::Failed, "listing it is no beat");
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_store_costs_no_worker_its_task() {
    let cluster = Cluster::new(2).await;
    cluster.nodes[0].deploy("one", ONE_TASK).await;
    let session = cluster.nodes[0].worker(&["a@1"]).await;
    cluster.nodes[0].start("one", "held").await;
    let held = cluster.nodes[0].task(session).await;
    hold_anywhere(&cluster, session, &[&held], 40).await;
    cluster.nodes[0].start("one", "fresh").await;
    let fresh = cluster.nodes[0].task(session).await;
    for node in &cluster.nodes {
        node.weather(|_| Fate::FailsBefore);
    }
    for round in 0..9 {
        let lost = cluster.nodes[round % 2].engine.heartbeat(session, vec![listed(&held), listed(&fresh)]).await;
        assert!(matches!(lost, Err(Error::Store(_))));
        pass(10.0).await;
    }
    for node in &cluster.nodes {
        node.weather(|_| Fate::Works);
    }
    pass(5.0).await;
    hold_anywhere(&cluster, session, &[&held, &fresh], 120).await;
    for id in ["held", "fresh"] {
        assert_eq!(cluster.nodes[0].count(id, |kind| matches!(kind, EventKind::DeliveryEnded { .. })).await, 0, "{id}");
    }
}
