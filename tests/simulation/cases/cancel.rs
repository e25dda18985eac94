//! A cancel that meets a retry or the last report.

use super::*;
use orbit::domain::{Phase, Rejection, ReportOutcome};
use orbit::engine::Error;

on_one_and_two_nodes!(
    c035_a_cancel_during_a_pause_drops_the_retry,
    c039_a_cancel_beside_the_last_report_tells_what_happened,
);

async fn c035_a_cancel_during_a_pause_drops_the_retry(nodes: Nodes) {
    let lines = "tasks: {a@1: {}, b@1: {}}\nsteps:\n  - {id: a, task: a@1, retry: {max_attempts: 5, initial_interval: 30s, jitter: 0}}\n  - {id: b, needs: [a], task: b@1}\n";
    nodes.next().deploy("retry", lines).await;
    let session = nodes.next().worker(&["a@1", "b@1"]).await;
    nodes.next().start("retry", "e").await;
    let task = nodes.task(session).await;
    assert_eq!(nodes.next().report(&task, fail("NO")).await, ReportOutcome::Accepted);
    pass(5.0).await;
    nodes.next().engine.cancel(&name("e"), arc("enough"), None).await.unwrap();
    assert_eq!(nodes.next().phase("e").await, Phase::Cancelled);
    for _ in 0..6 {
        nodes.next().heartbeat(session, Vec::new()).await;
        assert!(nodes.next().poll_for(session, 1, 10.0).await.tasks.is_empty());
    }
    assert_eq!(nodes.dispatches("e").await, 1);
    assert_eq!(nodes.next().phase("e").await, Phase::Cancelled);
}

async fn c039_a_cancel_beside_the_last_report_tells_what_happened(nodes: Nodes) {
    nodes.next().deploy("one", ONE_TASK).await;
    let session = nodes.next().worker(&["a@1"]).await;
    let (mut cancelled, mut succeeded) = (0, 0);
    for round in 0..200 {
        let id = format!("e{round}");
        nodes.next().start("one", &id).await;
        let task = nodes.task(session).await;
        let (a, b) = (nodes.next().engine.clone(), nodes.next().engine.clone());
        let (named, token) = (name(&id), task.token.clone());
        // Whichever is called first may be decided last.
        let cancel = async { a.cancel(&named, arc("enough"), None).await };
        let report = async { b.report(token, complete("1")).await.unwrap() };
        let (cancel, report) = if round % 2 == 0 {
            tokio::join!(biased; cancel, report)
        } else {
            let (report, cancel) = tokio::join!(biased; report, cancel);
            (cancel, report)
        };
        assert_eq!(report, ReportOutcome::Accepted, "the work is taken, whatever becomes of the execution");
        match (cancel, nodes.next().phase(&id).await) {
            (Ok(_), Phase::Cancelled) => cancelled += 1,
            (Err(Error::Rejected(Rejection::ExecutionClosed { .. })), Phase::Succeeded) => succeeded += 1,
            (answer, phase) => panic!("the cancel was answered {answer:?}, and the execution is {phase:?}"),
        }
    }
    assert!(cancelled > 0 && succeeded > 0, "{cancelled} were cancelled, {succeeded} succeeded");
}
