//! A task is lost or doubled when a worker fails, or the way to it.

use super::*;
use orbit::domain::{Phase, ReportOutcome};

on_one_and_two_nodes!(
    c001_a_task_never_waits_for_a_poll_that_is_gone,
    c003_a_task_whose_poll_goes_while_it_is_committed_costs_no_attempt,
    c003_a_task_whose_reply_is_lost_is_handed_out_again,
    c005_what_two_see_to_be_lost_is_ended_once,
    c007_a_start_while_a_node_starts_happens_once,
    c009_a_delayed_attempt_is_handed_out_once_and_not_before_it_is_due,
);

async fn c001_a_task_never_waits_for_a_poll_that_is_gone(nodes: Nodes) {
    nodes.next().deploy("one", ONE_TASK).await;
    for round in 0..200 {
        let id = format!("e{round}");
        let gone = nodes.next().worker(&["a@1"]).await;
        let dead = nodes.waiting(gone);
        pass(0.05).await;
        dead.abort();
        let session = nodes.next().worker(&["a@1"]).await;
        // Each party is at either node in turn.
        for _ in 0..round % 3 {
            nodes.next();
        }
        let waiting = nodes.waiting(session);
        pass(0.05).await;
        let begin = nodes.now();
        nodes.next().start("one", &id).await;
        let task = waiting.await.unwrap().tasks.pop().expect("the one that lives gets it");
        assert!(nodes.now().since(begin) < HEARD, "at once");
        assert_eq!(task.delivery.reference.delivery, 1, "nobody else had it");
        assert_eq!(nodes.next().report(&task, complete("1")).await, ReportOutcome::Accepted);
        nodes.next().engine.unregister(gone).await.unwrap();
        nodes.next().engine.unregister(session).await.unwrap();
    }
}

async fn c003_a_task_whose_poll_goes_while_it_is_committed_costs_no_attempt(nodes: Nodes) {
    nodes.next().deploy("one", ONE_TASK).await;
    for round in 0..20 {
        let id = format!("e{round}");
        let gone = nodes.next().worker(&["a@1"]).await;
        let engine = nodes.next().engine.clone();
        let polling = tokio::spawn(async move { engine.poll(gone, 1, Duration::from_secs(25)).await });
        pass(1.5).await;
        let (engine, call) = (nodes.next().engine.clone(), start_of("one", &id, "{}"));
        let starting = tokio::spawn(async move { engine.start_execution(call).await });
        polling.abort();
        starting.await.unwrap().unwrap();
        let session = nodes.next().worker(&["a@1"]).await;
        let task = nodes.task(session).await;
        assert_eq!(task.delivery.attempt, 1);
        assert_eq!(nodes.next().report(&task, complete("1")).await, ReportOutcome::Accepted);
        nodes.next().engine.unregister(gone).await.unwrap();
        nodes.next().engine.unregister(session).await.unwrap();
    }
}

async fn c003_a_task_whose_reply_is_lost_is_handed_out_again(nodes: Nodes) {
    nodes.next().deploy("one", ONE_TASK).await;
    nodes.next().start("one", "e").await;
    let session = nodes.next().worker(&["a@1"]).await;
    // The worker never hears of it, so it lists nothing.
    let lost = nodes.task(session).await;
    let again = nodes.task_within(session, Duration::from_secs(35)).await;
    assert_eq!((again.delivery.attempt, again.delivery.redelivery), (1, true));
    assert_eq!(again.delivery.idempotency_key, lost.delivery.idempotency_key);
    assert_eq!(nodes.next().report(&again, complete("1")).await, ReportOutcome::Accepted);
    assert_eq!(nodes.next().phase("e").await, Phase::Succeeded);
}

async fn c005_what_two_see_to_be_lost_is_ended_once(nodes: Nodes) {
    nodes.next().deploy("one", ONE_TASK).await;
    let session = nodes.next().worker(&["a@1"]).await;
    let mut tasks = Vec::new();
    for number in 0..20 {
        nodes.next().start("one", &format!("e{number}")).await;
        tasks.push(nodes.task(session).await);
    }
    nodes.hold(session, &tasks.iter().collect::<Vec<_>>(), 40).await;
    // It dies, and every node finds its session, its held rows and its executions in the same lists.
    pass(60.0).await;
    for number in 0..20 {
        let id = format!("e{number}");
        assert_eq!(nodes.next().count(&id, |kind| matches!(kind, EventKind::DeliveryEnded { .. })).await, 1, "{id}");
    }
    let other = nodes.next().worker(&["a@1"]).await;
    for _ in 0..20 {
        let task = nodes.task(other).await;
        assert_eq!((task.delivery.reference.delivery, task.delivery.attempt), (2, 1));
        assert_eq!(nodes.next().report(&task, complete("1")).await, ReportOutcome::Accepted);
    }
    assert!(nodes.next().poll_for(other, 1, 3.0).await.tasks.is_empty(), "none of them comes twice");
}

async fn c007_a_start_while_a_node_starts_happens_once(mut nodes: Nodes) {
    nodes.next().deploy("one", ONE_TASK).await;
    let session = nodes.next().worker(&["a@1"]).await;
    for round in 0..10 {
        let id = format!("e{round}");
        let starts = (0..4).map(|_| {
            let (engine, call) = (nodes.next().engine.clone(), start_of("one", &id, "{}"));
            tokio::spawn(async move { engine.start_execution(call).await })
        });
        let starts: Vec<_> = starts.collect();
        if nodes.store.is_shared() {
            nodes.join();
        } else {
            nodes.lose_last();
        }
        let mut created = 0;
        for start in starts {
            // A node that died has no answer that counts.
            created += usize::from(start.await.unwrap().is_ok_and(|started| started.created));
        }
        assert!(created <= 1, "{created} starts made it");
        nodes.next().start("one", &id).await;
        let task = nodes.task(session).await;
        assert_eq!(nodes.next().report(&task, complete("1")).await, ReportOutcome::Accepted);
        assert_eq!(nodes.dispatches(&id).await, 1);
        assert!(nodes.next().poll_for(session, 1, 1.5).await.tasks.is_empty(), "it does not run twice");
    }
}

async fn c009_a_delayed_attempt_is_handed_out_once_and_not_before_it_is_due(nodes: Nodes) {
    let lines = "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1, retry: {max_attempts: 2, initial_interval: 6h, max_interval: 6h, jitter: 0}}\n";
    nodes.next().deploy("later", lines).await;
    nodes.next().start("later", "e").await;
    let sessions = [nodes.next().worker(&["a@1"]).await, nodes.next().worker(&["a@1"]).await];
    let task = nodes.task(sessions[0]).await;
    nodes.next().report(&task, fail("NO")).await;
    let failed = nodes.now();
    let mut handed = Vec::new();
    while nodes.now().since(failed) < Duration::from_secs(6 * 3_600 + 120) {
        for session in sessions {
            let held: Vec<_> = handed.iter().filter(|(by, _)| *by == session).map(|(_, task)| listed(task)).collect();
            nodes.next().heartbeat(session, held).await;
            let polled = nodes.next().poll_for(session, 1, 10.0).await;
            handed.extend(polled.tasks.into_iter().map(|task| (session, task)));
        }
    }
    let [(_, again)] = &handed[..] else { panic!("it is handed out once: {handed:?}") };
    let waited = again.delivery.dispatch_time.since(failed);
    assert!(waited >= Duration::from_secs(6 * 3_600) && waited < Duration::from_secs(6 * 3_600) + HEARD, "{waited:?}");
    assert_eq!(again.delivery.attempt, 2);
}
