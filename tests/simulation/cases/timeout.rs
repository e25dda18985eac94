//! Timeouts, whichever node looks after them.

use super::*;
use orbit::domain::{Phase, ReportOutcome, StepState};

on_one_and_two_nodes!(
    c029_timeouts_of_two_tasks_are_independent,
    c031_a_task_that_only_ever_loses_its_worker_fails_its_execution,
    c033_every_attempt_times_out_and_the_last_one_fails_the_step,
);

async fn c029_timeouts_of_two_tasks_are_independent(nodes: Nodes) {
    let lines = "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1, timeout: 10s}\n  - {id: b, task: a@1, timeout: 10s, retry: {max_attempts: 1}}\n";
    nodes.next().deploy("both", lines).await;
    nodes.next().start("both", "e").await;
    let session = nodes.next().worker(&["a@1"]).await;
    let mut tasks = nodes.next().poll_for(session, 2, 2.0).await.tasks;
    if tasks.len() < 2 {
        tasks.extend(nodes.next().poll_for(session, 1, 2.0).await.tasks);
    }
    let begin = tasks.iter().map(|task| task.delivery.dispatch_time).max().unwrap();
    let a = tasks.iter().find(|task| &*task.delivery.reference.unit == "a").unwrap();
    pass(9.99 - nodes.now().since(a.delivery.dispatch_time).as_secs_f64()).await;
    assert_eq!(nodes.next().report(a, complete("1")).await, ReportOutcome::Accepted);
    assert_eq!(nodes.next().step("e", "b").await, StepState::Running);
    assert_eq!(nodes.next().wait("e", 60.0).await, Phase::Failed);
    let took = nodes.now().since(begin);
    assert!(took >= Duration::from_millis(9_990) && took < Duration::from_secs(10) + 2 * HEARD, "{took:?}");
    assert_eq!(&*nodes.next().standing("e").await.state.failure().unwrap().code, "TIMEOUT");
}

async fn c031_a_task_that_only_ever_loses_its_worker_fails_its_execution(nodes: Nodes) {
    nodes.next().deploy("one", ONE_TASK).await;
    nodes.next().start("one", "e").await;
    for delivery in 1..=10 {
        // Its worker dies with it each time: only the silence tells.
        let session = nodes.next().worker(&["a@1"]).await;
        let task = nodes.task_within(session, Duration::from_secs(2)).await;
        assert_eq!((task.delivery.reference.delivery, task.delivery.attempt), (delivery, 1));
        pass(45.0).await;
    }
    assert_eq!(nodes.next().phase("e").await, Phase::Failed);
    assert_eq!(&*nodes.next().standing("e").await.state.failure().unwrap().code, "DELIVERIES_EXHAUSTED");
    assert_eq!(nodes.next().count("e", |kind| matches!(kind, EventKind::StepFailed { .. })).await, 1);
}

async fn c033_every_attempt_times_out_and_the_last_one_fails_the_step(nodes: Nodes) {
    let lines = "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1, timeout: 2s, retry: {max_attempts: 2, initial_interval: 1s, jitter: 0}}\n";
    nodes.next().deploy("slow", lines).await;
    let session = nodes.next().worker(&["a@1"]).await;
    nodes.next().start("slow", "e").await;
    nodes.task(session).await;
    let begin = nodes.now();
    let again = nodes.task_within(session, Duration::from_secs(3) + 2 * HEARD).await;
    assert_eq!(again.delivery.attempt, 2);
    assert_eq!(nodes.next().wait("e", 60.0).await, Phase::Failed);
    let took = nodes.now().since(begin);
    assert!(took < Duration::from_secs(5) + 3 * HEARD, "{took:?}");
    assert_eq!(nodes.next().count("e", |kind| matches!(kind, EventKind::AttemptFailed { .. })).await, 2);
}
