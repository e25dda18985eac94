//! What a worker sees: tasks, priorities, retries, timeouts, reports.

use crate::harness::*;
use orbit::domain::{Phase, RefusalReason, ReportOutcome, StepState};
use orbit::engine::Report;
use std::time::Duration;

const ONE_TASK: &str = "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1}\n";

#[tokio::test(start_paused = true)]
async fn a_parked_poll_gets_a_task_at_once() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    let engine = orbit.engine.clone();
    let polling = tokio::spawn(async move { engine.poll(session, 1, Duration::from_secs(25)).await.unwrap() });
    pass(2.0).await;
    orbit.start("one", "e").await;
    let polled = polling.await.unwrap();
    assert_eq!(polled.tasks.len(), 1);
    assert_eq!(orbit.now().since(START), Duration::from_secs(2));
    assert!(orbit.ready("a@1").await.is_empty());
    assert_eq!(orbit.kinds("e").await, ["execution_created", "step_scheduled", "step_dispatched"]);
}

#[tokio::test(start_paused = true)]
async fn an_empty_poll_waits_as_long_as_it_was_told() {
    let orbit = orbit();
    let session = orbit.worker(&["a@1"]).await;
    assert!(orbit.poll_for(session, 1, 25.0).await.tasks.is_empty());
    assert_eq!(orbit.now().since(START), Duration::from_secs(25));
}

#[tokio::test(start_paused = true)]
async fn tasks_that_waited_come_by_priority_then_age() {
    let orbit = orbit();
    let lines =
        |priority: u8| format!("tasks: {{a@1: {{}}}}\nsteps:\n  - {{id: a, task: a@1, priority: {priority}}}\n");
    for priority in [1, 3, 5] {
        orbit.deploy(&format!("p{priority}"), &lines(priority)).await;
    }
    for (workflow, id) in [("p5", "last"), ("p3", "second"), ("p3", "third"), ("p1", "first")] {
        orbit.start(workflow, id).await;
        pass(1.0).await;
    }
    let session = orbit.worker(&["a@1"]).await;
    let mut order = Vec::new();
    for _ in 0..4 {
        let polled = orbit.poll_for(session, 1, 1.0).await;
        order.push(polled.tasks[0].execution_id.to_string());
    }
    assert_eq!(order, ["first", "second", "third", "last"]);
}

#[tokio::test(start_paused = true)]
async fn of_units_that_become_ready_together_the_urgent_one_goes_first() {
    let orbit = orbit();
    let lines = "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1, priority: 5}\n  - {id: b, task: a@1, priority: 1}\n";
    orbit.deploy("two", lines).await;
    let session = orbit.worker(&["a@1"]).await;
    let engine = orbit.engine.clone();
    let polling = tokio::spawn(async move { engine.poll(session, 1, Duration::from_secs(25)).await.unwrap() });
    pass(1.0).await;
    orbit.start("two", "e").await;
    assert_eq!(&*polling.await.unwrap().tasks[0].delivery.reference.unit, "b");
}

#[tokio::test(start_paused = true)]
async fn a_stream_gets_as_many_tasks_as_it_has_credits() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    let mut stream = orbit.engine.open_stream(session).await.unwrap();
    for id in 0..5 {
        orbit.start("one", &format!("e{id}")).await;
    }
    stream.granter().grant(2);
    pass(0.1).await;
    let mut tasks = stream.next().await.unwrap();
    assert_eq!(tasks.len(), 2);
    assert_eq!(orbit.ready("a@1").await.len(), 3);
    stream.granter().grant(10);
    pass(0.1).await;
    tasks.extend(stream.next().await.unwrap());
    assert_eq!(tasks.len(), 5);
    for task in &tasks {
        assert_eq!(orbit.report(task, complete("1")).await, ReportOutcome::Accepted);
    }
    orbit.start("one", "handed-off").await;
    assert_eq!(stream.next().await.unwrap().len(), 1, "credits are left, so it is handed off");
    orbit.engine.drain();
    assert!(stream.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_gives_back_what_nobody_took() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    let stream = orbit.engine.open_stream(session).await.unwrap();
    stream.granter().grant(10);
    orbit.start("one", "e").await;
    assert_eq!(orbit.step("e", "a").await, StepState::Running);
    drop(stream);
    pass(0.1).await;
    assert_eq!(orbit.step("e", "a").await, StepState::Scheduled);
    let task = orbit.task(session).await;
    assert_eq!((task.delivery.attempt, task.delivery.reference.delivery), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_poll_that_is_dropped_gives_back_what_was_on_its_way() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    let engine = orbit.engine.clone();
    let polling = tokio::spawn(async move { engine.poll(session, 1, Duration::from_secs(25)).await });
    pass(1.0).await;
    let engine = orbit.engine.clone();
    let starting = tokio::spawn(async move { engine.start_execution(start_of("one", "e", "{}")).await });
    polling.abort();
    starting.await.unwrap().unwrap();
    pass(0.1).await;
    assert_eq!(orbit.step("e", "a").await, StepState::Scheduled);
    orbit.task(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_is_tried_again_after_its_pause() {
    let orbit = orbit();
    let lines = "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1, retry: {max_attempts: 3, initial_interval: 2s, backoff_coefficient: 2, jitter: 0}}\n";
    orbit.deploy("retry", lines).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("retry", "e").await;
    let task = orbit.task(session).await;
    assert_eq!(orbit.report(&task, fail("NO")).await, ReportOutcome::Accepted);
    assert_eq!(orbit.report(&task, fail("NO")).await, ReportOutcome::Duplicate);
    assert_eq!(orbit.step("e", "a").await, StepState::BackingOff);
    let polled = orbit.poll_for(session, 1, 60.0).await;
    let waited = orbit.now().since(task.delivery.dispatch_time);
    assert!(waited >= Duration::from_secs(2) && waited < Duration::from_millis(2_100), "{waited:?}");
    assert_eq!(polled.tasks[0].delivery.attempt, 2);
    assert_eq!(polled.tasks[0].delivery.idempotency_key, task.delivery.idempotency_key);
    orbit.report(&polled.tasks[0], fail("NO")).await;
    let last = orbit.poll_for(session, 1, 60.0).await;
    orbit.report(&last.tasks[0], fail("NO")).await;
    assert_eq!(orbit.phase("e").await, Phase::Failed);
    assert_eq!(&*orbit.standing("e").await.state.failure().unwrap().code, "NO");
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_takes_too_long_fails_its_attempt() {
    let orbit = orbit();
    let lines = "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1, timeout: 5s, retry: {max_attempts: 2, initial_interval: 0s}}\n";
    orbit.deploy("slow", lines).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("slow", "e").await;
    let first = orbit.task(session).await;
    let second = orbit.poll_for(session, 1, 60.0).await.tasks.remove(0);
    let waited = orbit.now().since(first.delivery.dispatch_time);
    assert!(waited >= Duration::from_secs(5) && waited < Duration::from_millis(5_100), "{waited:?}");
    assert_eq!(second.delivery.attempt, 2);
    assert_eq!(orbit.report(&first, fail("LATE")).await, ReportOutcome::Refused(RefusalReason::StaleToken));
    assert_eq!(orbit.report(&first, complete("1")).await, ReportOutcome::Accepted, "the work really happened");
    assert_eq!(orbit.report(&second, complete("2")).await, ReportOutcome::Refused(RefusalReason::ExecutionClosed));
    assert_eq!(orbit.phase("e").await, Phase::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_no_worker_takes_fails_after_its_queue_timeout() {
    let orbit = orbit();
    orbit.deploy("queue", "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1, queue_timeout: 20s}\n").await;
    orbit.start("queue", "e").await;
    assert_eq!(orbit.wait("e", 60.0).await, Phase::Failed);
    assert!(orbit.now().since(START) < Duration::from_millis(20_100));
    assert!(orbit.ready("a@1").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_released_task_goes_to_the_next_poll_as_a_redelivery() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("one", "e").await;
    let task = orbit.task(session).await;
    assert_eq!(orbit.report(&task, Report::Release).await, ReportOutcome::Accepted);
    let again = orbit.task(session).await;
    assert_eq!((again.delivery.attempt, again.delivery.redelivery), (1, true));
    assert_eq!(orbit.report(&task, Report::Release).await, ReportOutcome::Duplicate);
    orbit.report(&again, complete("1")).await;
    assert_eq!(orbit.report(&again, complete("1")).await, ReportOutcome::Duplicate);
    assert_eq!(orbit.report(&again, Report::Release).await, ReportOutcome::Refused(RefusalReason::ExecutionClosed));
}

#[tokio::test(start_paused = true)]
async fn only_workers_of_its_language_get_a_step_that_names_one() {
    let orbit = orbit();
    orbit.deploy("go", "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1, language: go}\n").await;
    orbit.start("go", "e").await;
    let python = orbit.worker(&["a@1"]).await;
    assert!(orbit.poll(python).await.is_empty());
    let mut gopher = registration(&["a@1"]);
    gopher.language = arc("go");
    let gopher = orbit.engine.register(gopher).await.unwrap().session;
    orbit.task(gopher).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_hears_of_contracts_in_another_version() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let warnings = orbit.engine.register(registration(&["a@2", "b@1"])).await.unwrap().warnings;
    assert_eq!(warnings, ["a is announced at version 2; definitions use 1"]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_token_is_answered_and_changes_nothing() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("one", "e").await;
    let task = orbit.task(session).await;
    let mut foreign = task.clone();
    foreign.token.uid = orbit::domain::Uid(uuid::Uuid::from_u128(1));
    assert_eq!(orbit.report(&foreign, complete("1")).await, ReportOutcome::Refused(RefusalReason::ExecutionClosed));
    let mut gone = task.clone();
    gone.token.execution = orbit::domain::ExecutionKey(99);
    assert_eq!(orbit.report(&gone, Report::Release).await, ReportOutcome::Refused(RefusalReason::ExecutionClosed));
    assert_eq!(orbit.step("e", "a").await, StepState::Running);
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_polls_and_still_takes_reports() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("one", "e").await;
    let task = orbit.task(session).await;
    let engine = orbit.engine.clone();
    let polling = tokio::spawn(async move { engine.poll(session, 1, Duration::from_secs(25)).await.unwrap() });
    pass(1.0).await;
    orbit.engine.drain();
    assert!(polling.await.unwrap().draining);
    assert_eq!(orbit.report(&task, complete("1")).await, ReportOutcome::Accepted);
    assert!(orbit.heartbeat(session, vec![]).await.draining);
}
