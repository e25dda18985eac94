//! Heartbeats and sessions, whichever node hears them.

use super::*;
use orbit::domain::{EndReason, Phase, ReportOutcome, StepState, definition::Definition};
use orbit::engine::{Error, HeldToken};

on_one_and_two_nodes!(
    c015_a_heartbeat_timeout_outlives_the_node_that_heard_the_beats,
    c017_two_workers_of_one_name_do_not_touch_each_other,
    c019_heartbeats_that_cannot_work_are_refused_and_the_interval_is_told,
);

const BEATS: &str = "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1, timeout: 1h, heartbeat_timeout: 10s, retry: {max_attempts: 2, initial_interval: 0s}}\n";

async fn c015_a_heartbeat_timeout_outlives_the_node_that_heard_the_beats(mut nodes: Nodes) {
    nodes.next().deploy("beats", BEATS).await;
    nodes.next().start("beats", "e").await;
    let session = nodes.next().worker(&["a@1"]).await;
    // A node judges only what it has listened to for long enough; the one that dies is not the only one that has.
    nodes.hold(session, &[], 40).await;
    let task = nodes.task(session).await;
    let beat = || HeldToken { token: task.token.clone(), progress: Some(json("7")), beat: true };
    pass(5.0).await;
    nodes.next().heartbeat(session, vec![beat()]).await;
    let begin = nodes.now();
    let is_alone = nodes.nodes.len() == 1;
    // Time enough for the beat to be written; then the node dies, and nobody beats any more.
    pass(3.0).await;
    nodes.lose_last();
    let other = nodes.next().worker(&["a@1"]).await;
    let again = nodes.task_within(other, Duration::from_secs(60)).await;
    let waited = again.delivery.dispatch_time.since(begin);
    // One that has just started listens for a session timeout first: the worker may have beaten while nobody heard it.
    let longest = Duration::from_secs(if is_alone { 40 } else { 16 });
    assert!(waited > Duration::from_secs(9) && waited < longest, "{waited:?}");
    assert_eq!((again.delivery.attempt, again.delivery.redelivery), (2, false), "a new attempt");
    assert_eq!(again.delivery.progress.as_ref().map(|progress| progress.as_str()), Some("7"));
    assert_eq!(nodes.next().report(&again, complete("1")).await, ReportOutcome::Accepted);
    assert_eq!(nodes.next().phase("e").await, Phase::Succeeded);
}

async fn c017_two_workers_of_one_name_do_not_touch_each_other(nodes: Nodes) {
    nodes.next().deploy("one", ONE_TASK).await;
    let (one, other) = (nodes.next().worker(&["a@1"]).await, nodes.next().worker(&["a@1"]).await);
    assert_ne!(one, other, "the same name, and two sessions");
    nodes.next().start("one", "ones").await;
    let task = nodes.task(one).await;
    nodes.next().start("one", "others").await;
    let others = nodes.task(other).await;
    nodes.hold(one, &[&task], 40).await;
    nodes.next().engine.unregister(other).await.unwrap();
    let again = nodes.task_within(one, Duration::from_secs(40)).await;
    assert_eq!(again.delivery.idempotency_key, others.delivery.idempotency_key);
    nodes.hold(one, &[&task, &again], 60).await;
    assert_eq!(nodes.next().report(&task, complete("1")).await, ReportOutcome::Accepted);
    assert_eq!(nodes.next().report(&again, complete("1")).await, ReportOutcome::Accepted);
    assert_eq!(nodes.next().count("ones", |kind| matches!(kind, EventKind::DeliveryEnded { .. })).await, 0);
    let ended = |kind: &EventKind| matches!(kind, EventKind::DeliveryEnded { reason: EndReason::SessionLost, .. });
    assert_eq!(nodes.next().count("others", ended).await, 0, "it went politely");
    let gone = nodes.next().engine.heartbeat(other, Vec::new()).await;
    assert!(matches!(gone, Err(Error::SessionNotFound)), "{gone:?}");
}

async fn c019_heartbeats_that_cannot_work_are_refused_and_the_interval_is_told(nodes: Nodes) {
    let longer = "name: longer\nversion: 1.0.0\ntasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1, timeout: 5s, heartbeat_timeout: 10s}\n";
    assert!(Definition::parse("test.yaml", longer).is_err(), "longer than the timeout of the delivery");
    nodes.next().deploy("beats", BEATS).await;
    let registered = nodes.next().engine.register(registration(&["a@1"])).await.unwrap();
    assert!(registered.heartbeat_interval * 3 <= registered.session_timeout);
    nodes.next().start("beats", "e").await;
    let task = nodes.task(registered.session).await;
    // At the interval that the worker was told, its session lives; its handler's own beats keep the attempt.
    for _ in 0..12 {
        let beat = HeldToken { token: task.token.clone(), progress: None, beat: true };
        nodes.next().heartbeat(registered.session, vec![beat]).await;
        pass(5.0).await;
        nodes.next().heartbeat(registered.session, vec![listed(&task)]).await;
        pass(registered.heartbeat_interval.as_secs_f64() - 6.0).await;
    }
    assert_eq!(nodes.next().step("e", "a").await, StepState::Running);
    assert_eq!(nodes.next().report(&task, complete("1")).await, ReportOutcome::Accepted);
}
