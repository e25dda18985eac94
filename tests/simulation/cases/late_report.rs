//! Reports that come late, twice, or from who no longer holds the task.

use super::*;
use orbit::domain::{Phase, RefusalReason, ReportOutcome, StepState};
use orbit::engine::{HeldToken, Report};

on_one_and_two_nodes!(
    c011_a_slow_worker_that_completes_after_its_replacement_changes_nothing,
    c013_a_worker_that_lost_its_task_can_neither_fail_nor_release_nor_hold_it,
    c013_a_late_success_of_an_open_unit_counts_and_the_later_one_is_refused,
);

/// A task that its worker stalls on, and the same one as another worker has it.
async fn stalled(nodes: &Nodes) -> (SessionId, Task, SessionId, Task) {
    let slow = nodes.next().worker(&["a@1"]).await;
    let stalled = nodes.task(slow).await;
    pass(40.0).await;
    let quick = nodes.next().worker(&["a@1"]).await;
    let task = nodes.task(quick).await;
    assert_eq!((task.delivery.attempt, task.delivery.reference.delivery, task.delivery.redelivery), (1, 2, true));
    (slow, stalled, quick, task)
}

async fn c011_a_slow_worker_that_completes_after_its_replacement_changes_nothing(nodes: Nodes) {
    let lines = "tasks: {a@1: {}, b@1: {}}\nsteps:\n  - {id: a, task: a@1}\n  - {id: b, needs: [a], task: b@1}\nresult: ${ steps.a.output }\n";
    nodes.next().deploy("two", lines).await;
    nodes.next().start("two", "e").await;
    let (_, stalled, _, task) = stalled(&nodes).await;
    assert_eq!(nodes.next().report(&task, complete("\"quick\"")).await, ReportOutcome::Accepted);
    for _ in 0..3 {
        let late = nodes.next().report(&stalled, complete("\"slow\"")).await;
        assert_eq!(late, ReportOutcome::Refused(RefusalReason::UnitResolved));
    }
    assert_eq!(nodes.next().count("e", |kind| matches!(kind, EventKind::LateSuccess { .. })).await, 1);
    let last = nodes.next().worker(&["b@1"]).await;
    let task_b = nodes.task(last).await;
    assert_eq!(nodes.next().report(&task_b, complete("1")).await, ReportOutcome::Accepted);
    let before = nodes.next().events("e").await;
    let late = nodes.next().report(&stalled, complete("\"slow\"")).await;
    assert!(matches!(late, ReportOutcome::Refused(_)), "{late:?}");
    assert_eq!(nodes.next().report(&task, complete("\"quick\"")).await, ReportOutcome::Duplicate);
    assert_eq!(nodes.next().events("e").await, before, "nothing is written after the close");
    assert_eq!(nodes.next().output("e").await, "\"quick\"");
}

async fn c013_a_worker_that_lost_its_task_can_neither_fail_nor_release_nor_hold_it(nodes: Nodes) {
    nodes.next().deploy("one", ONE_TASK).await;
    nodes.next().start("one", "e").await;
    let (_, lost, quick, task) = stalled(&nodes).await;
    nodes.next().heartbeat(quick, vec![listed(&task)]).await;
    let before = nodes.next().events("e").await;
    let stale = ReportOutcome::Refused(RefusalReason::StaleToken);
    assert_eq!(nodes.next().report(&lost, fail("LATE")).await, stale);
    assert_eq!(nodes.next().report(&lost, Report::Release).await, stale);
    let another = nodes.next().worker(&["a@1"]).await;
    let beat = HeldToken { token: lost.token.clone(), progress: Some(json("1")), beat: true };
    assert_eq!(nodes.next().heartbeat(another, vec![beat]).await.stop, std::slice::from_ref(&lost.token));
    assert_eq!(nodes.next().events("e").await, before, "nothing was written");
    // The one that has it keeps it, for longer than a session timeout.
    nodes.hold(quick, &[&task], 60).await;
    assert_eq!(nodes.next().step("e", "a").await, StepState::Running);
    assert_eq!(nodes.next().report(&task, complete("2")).await, ReportOutcome::Accepted);
    assert_eq!(nodes.next().output("e").await, "2");
}

async fn c013_a_late_success_of_an_open_unit_counts_and_the_later_one_is_refused(nodes: Nodes) {
    nodes.next().deploy("one", ONE_TASK).await;
    nodes.next().start("one", "e").await;
    let (_, lost, quick, task) = stalled(&nodes).await;
    nodes.next().heartbeat(quick, vec![listed(&task)]).await;
    assert_eq!(nodes.next().report(&lost, complete("1")).await, ReportOutcome::Accepted, "the work was done");
    for _ in 0..2 {
        let stop = nodes.next().heartbeat(quick, vec![listed(&task)]).await.stop;
        assert_eq!(stop, std::slice::from_ref(&task.token), "nobody waits for it any more");
    }
    let later = nodes.next().report(&task, complete("2")).await;
    assert_eq!(later, ReportOutcome::Refused(RefusalReason::ExecutionClosed));
    assert_eq!((nodes.next().phase("e").await, nodes.next().output("e").await), (Phase::Succeeded, "1".to_owned()));
}
