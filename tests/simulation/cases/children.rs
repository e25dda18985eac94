//! Children, with whatever can happen between them and their parents.

use super::*;
use orbit::domain::{ExecutionId, ReportOutcome, code};
use orbit::store::Find;

on_one_and_two_nodes!(
    a_child_runs_and_its_output_is_the_steps,
    c037_a_cancel_before_the_child_exists_leaves_none_that_runs,
    c037_a_cancel_before_the_start_is_known_reaches_the_child,
    c093_two_parents_never_share_a_child_and_each_hears_of_its_own,
    c097_a_child_whose_start_was_not_written_down_is_adopted,
    c143_an_end_that_the_parent_was_not_told_of_is_told_after_a_crash,
    a_terminated_parent_has_its_child_cancelled_also_after_a_crash,
    a_failed_child_fails_its_parent_with_its_own_code,
    a_child_whose_input_does_not_fit_is_not_started,
    twenty_parents_may_stand_above_an_execution_and_no_more,
    many_children_at_once_are_done_once_each,
    a_parent_keeps_the_version_that_it_was_deployed_with,
);

on_databases!(
    c037_a_cancel_before_the_child_exists_leaves_none_that_runs,
    c037_a_cancel_before_the_start_is_known_reaches_the_child,
    c093_two_parents_never_share_a_child_and_each_hears_of_its_own,
    c097_a_child_whose_start_was_not_written_down_is_adopted,
    c143_an_end_that_the_parent_was_not_told_of_is_told_after_a_crash,
);

const CHILD: &str = "labels: {kind: child}\ninput: {type: object, properties: {n: {type: integer}}}\ntasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1, input: '${ input.n }'}\nresult: ${ steps.a.output }\n";
const PARENT: &str =
    "steps:\n  - {id: c, workflow: child@^1, input: {n: 7}, retry: {max_attempts: 1}}\nresult: ${ steps.c.output }\n";

/// Deploys both, starts a parent `p`.
async fn family(nodes: &Nodes) -> SessionId {
    nodes.next().deploy("child", CHILD).await;
    nodes.next().deploy("parent", PARENT).await;
    let session = nodes.next().worker(&["a@1"]).await;
    nodes.next().start("parent", "p").await;
    session
}

async fn a_child_runs_and_its_output_is_the_steps(nodes: Nodes) {
    let session = family(&nodes).await;
    let task = nodes.task(session).await;
    assert_eq!(task.delivery.input.as_str(), "7");
    let child = nodes.child("p", "c").await;
    assert_eq!(task.execution_id.as_str(), child);
    let standing = nodes.next().standing(&child).await;
    let parent = standing.state.parent().unwrap();
    assert_eq!((parent.id.as_str(), &*parent.unit, parent.attempt), ("p", "c", 1));
    assert_eq!(standing.row.labels.get("kind").map(String::as_str), Some("child"));
    assert_eq!(nodes.next().report(&task, complete("8")).await, ReportOutcome::Accepted);
    nodes.ends("p", Phase::Succeeded, 3.0).await;
    assert_eq!(nodes.next().output("p").await, "8");
    assert_eq!(
        nodes.next().kinds("p").await,
        ["execution_created", "child_requested", "child_started", "step_succeeded", "execution_succeeded"]
    );
    pass(1.0).await;
    assert_eq!(nodes.next().kinds(&child).await.last().unwrap(), &"parent_told");
    let row = nodes.store.execution(&Find::Id(arc(&child))).await.unwrap().unwrap();
    assert_eq!(row.wake_time, None, "nothing is left to do");
}

async fn c037_a_cancel_before_the_child_exists_leaves_none_that_runs(nodes: Nodes) {
    nodes.fate(makes_child, Fate::FailsBefore);
    let session = family(&nodes).await;
    pass(0.2).await;
    let child = nodes.child("p", "c").await;
    assert!(nodes.store.execution(&Find::Id(arc(&child))).await.unwrap().is_none());
    // A caller says it again where its commit was one with the start that fails.
    let mut calls = 0;
    while nodes.next().engine.cancel(&name("p"), arc("enough"), None).await.is_err() {
        calls += 1;
        assert!(calls < 100, "it is taken");
    }
    nodes.mend();
    nodes.ends("p", Phase::Cancelled, 5.0).await;
    assert_eq!(nodes.next().phase(&child).await, Phase::Cancelled);
    assert_eq!(nodes.dispatches(&child).await, 0);
    assert!(nodes.next().poll(session).await.is_empty());
}

async fn c037_a_cancel_before_the_start_is_known_reaches_the_child(nodes: Nodes) {
    nodes.fate(|append| has(append, |kind| matches!(kind, EventKind::ChildStarted { .. })), Fate::FailsBefore);
    let session = family(&nodes).await;
    let task = nodes.task(session).await;
    nodes.next().engine.cancel(&name("p"), arc("enough"), None).await.unwrap();
    pass(1.5).await;
    let answer = nodes.next().heartbeat(session, vec![listed(&task)]).await;
    assert_eq!(
        answer.stop,
        std::slice::from_ref(&task.token),
        "the child is cancelled, and its worker is asked to stop"
    );
    nodes.mend();
    nodes.next().report(&task, fail("STOPPED")).await;
    nodes.ends("p", Phase::Cancelled, 5.0).await;
    assert_eq!(nodes.next().phase(task.execution_id.as_str()).await, Phase::Cancelled);
}

async fn c093_two_parents_never_share_a_child_and_each_hears_of_its_own(nodes: Nodes) {
    let session = family(&nodes).await;
    // The same start again is the same parent; another one, at once and after the first, has a child of its own.
    assert!(!nodes.next().start("parent", "p").await.created);
    nodes.next().start("parent", "q").await;
    let mut seen = Vec::new();
    for round in 0..3 {
        if round == 2 {
            nodes.next().start("parent", "r").await;
        }
        let task = nodes.task(session).await;
        seen.push(task.execution_id.to_string());
        nodes.next().report(&task, complete(&round.to_string())).await;
        pass(1.0).await;
    }
    let mut children = Vec::new();
    for parent in ["p", "q", "r"] {
        nodes.ends(parent, Phase::Succeeded, 3.0).await;
        children.push(nodes.child(parent, "c").await);
    }
    children.sort();
    seen.sort();
    assert_eq!(children, seen);
    children.dedup();
    assert_eq!(children.len(), 3);
    // Nobody can take the id of a child.
    assert!(children.iter().all(|id| ExecutionId::choose(id).is_none() && ExecutionId::parse(id).is_some()));
}

async fn c097_a_child_whose_start_was_not_written_down_is_adopted(mut nodes: Nodes) {
    nodes.fate(|append| has(append, |kind| matches!(kind, EventKind::ChildStarted { .. })), Fate::FailsBefore);
    let session = family(&nodes).await;
    pass(0.2).await;
    let child = nodes.child("p", "c").await;
    let row = nodes.store.execution(&Find::Id(arc(&child))).await.unwrap().expect("it was made");
    nodes.lose_last();
    nodes.mend();
    let task = nodes.task_within(session, Duration::from_secs(60)).await;
    assert_eq!((task.execution_id.as_str(), task.token.uid), (&*child, row.uid));
    nodes.next().report(&task, complete("8")).await;
    nodes.ends("p", Phase::Succeeded, 20.0).await;
    assert_eq!(nodes.next().count("p", |kind| matches!(kind, EventKind::ChildStarted { .. })).await, 1);
    assert_eq!(nodes.next().count("p", |kind| matches!(kind, EventKind::ChildRequested { .. })).await, 1);
}

async fn c143_an_end_that_the_parent_was_not_told_of_is_told_after_a_crash(mut nodes: Nodes) {
    let session = family(&nodes).await;
    let task = nodes.task(session).await;
    nodes.fate(
        |append| has(append, |kind| matches!(kind, EventKind::StepSucceeded { delivery: 0, .. })),
        Fate::FailsBefore,
    );
    nodes.next().report(&task, complete("8")).await;
    pass(0.2).await;
    assert_eq!(nodes.next().phase("p").await, Phase::Running);
    nodes.lose_last();
    nodes.mend();
    nodes.ends("p", Phase::Succeeded, 20.0).await;
    pass(2.0).await;
    let child = nodes.child("p", "c").await;
    assert_eq!(nodes.next().count(&child, |kind| matches!(kind, EventKind::ParentTold)).await, 1);
}

async fn a_terminated_parent_has_its_child_cancelled_also_after_a_crash(mut nodes: Nodes) {
    let session = family(&nodes).await;
    let task = nodes.task(session).await;
    nodes.fate(|append| has(append, |kind| matches!(kind, EventKind::WindDownStarted { .. })), Fate::FailsBefore);
    nodes.next().engine.terminate(&name("p"), arc("stop"), None).await.unwrap();
    pass(0.2).await;
    let child = task.execution_id.to_string();
    assert_eq!(nodes.next().phase(&child).await, Phase::Running);
    nodes.lose_last();
    nodes.mend();
    pass(10.0).await;
    assert_eq!(nodes.next().phase(&child).await, Phase::WindingDown);
    assert_eq!(nodes.next().phase("p").await, Phase::Terminated);
    assert_eq!(nodes.next().kinds("p").await.last().unwrap(), &"child_cancel_sent");
    nodes.ends(&child, Phase::Cancelled, 40.0).await;
}

async fn a_failed_child_fails_its_parent_with_its_own_code(nodes: Nodes) {
    nodes.next().deploy("child", "steps: [{id: f, fail: {code: NO_STOCK, message: none left}}]").await;
    nodes.next().deploy("parent", PARENT).await;
    nodes.next().start("parent", "p").await;
    nodes.ends("p", Phase::Failed, 3.0).await;
    let (child, standing) = (nodes.child("p", "c").await, nodes.next().standing("p").await);
    let failure = standing.state.failure().unwrap();
    assert_eq!((&*failure.code, &*failure.message, &*failure.unit), ("NO_STOCK", "none left", "c"));
    assert!(failure.details.as_ref().unwrap().as_str().contains(&child));
}

async fn a_child_whose_input_does_not_fit_is_not_started(nodes: Nodes) {
    nodes.next().deploy("child", CHILD).await;
    nodes.next().deploy("parent", "steps: [{id: c, workflow: child@^1, input: {n: many}}]").await;
    nodes.next().start("parent", "p").await;
    nodes.ends("p", Phase::Failed, 3.0).await;
    assert_eq!(&*nodes.next().standing("p").await.state.failure().unwrap().code, code::INPUT_INVALID);
    let child = nodes.child("p", "c").await;
    assert!(nodes.store.execution(&Find::Id(arc(&child))).await.unwrap().is_none());
}

async fn twenty_parents_may_stand_above_an_execution_and_no_more(nodes: Nodes) {
    nodes.next().deploy("level0", "steps: [{id: c, compute: deep}]\nresult: ${ steps.c.output }").await;
    for level in 1..=21 {
        let child = level - 1;
        let lines = format!(
            "steps: [{{id: c, workflow: level{child}@*, retry: {{max_attempts: 1}}}}]\nresult: ${{ steps.c.output }}"
        );
        nodes.next().deploy(&format!("level{level}"), &lines).await;
    }
    nodes.next().start("level20", "works").await;
    nodes.ends("works", Phase::Succeeded, 60.0).await;
    assert_eq!(nodes.next().output("works").await, "\"deep\"");
    nodes.next().start("level21", "fails").await;
    nodes.ends("fails", Phase::Failed, 60.0).await;
    assert_eq!(&*nodes.next().standing("fails").await.state.failure().unwrap().code, code::NESTING_TOO_DEEP);
}

async fn many_children_at_once_are_done_once_each(nodes: Nodes) {
    nodes.next().deploy("child", "steps: [{id: c, compute: '${ input * 2 }'}]\nresult: ${ steps.c.output }").await;
    let items: Vec<String> = (0..1_500).map(|item| item.to_string()).collect();
    let lines = format!(
        "steps: [{{id: c, for_each: [{}], workflow: child@*, input: '${{ item.value }}'}}]\nresult: ${{ steps.c.output }}",
        items.join(",")
    );
    nodes.next().deploy("parent", &lines).await;
    nodes.next().start("parent", "p").await;
    nodes.ends("p", Phase::Succeeded, 120.0).await;
    let doubled: Vec<String> = (0..1_500).map(|item| (item * 2).to_string()).collect();
    assert_eq!(nodes.next().output("p").await, format!("[{}]", doubled.join(",")));
    assert_eq!(nodes.store.count().await.unwrap().values().sum::<u64>(), 1_501);
    pass(2.0).await;
    for _ in 0..2 {
        assert_eq!(nodes.next().engine.sizes().effects, 0);
    }
}

async fn a_parent_keeps_the_version_that_it_was_deployed_with(nodes: Nodes) {
    let deploy = async |text: String| {
        let (definition, _) = orbit::domain::definition::Definition::parse("test.yaml", &text).unwrap();
        nodes.next().engine.deploy(definition, text).await.unwrap()
    };
    let child = |version: &str| format!("name: child\nversion: {version}\nsteps: [{{id: c, compute: 1}}]");
    let parent = format!("name: parent\nversion: 1.0.0\n{PARENT}");
    assert!(deploy(child("1.0.0")).await);
    assert!(deploy(parent.clone()).await);
    assert!(deploy(child("1.1.0")).await);
    assert!(!deploy(parent).await, "the same text is the same definition");
    pass(1.5).await;
    nodes.next().start("parent", "p").await;
    nodes.ends("p", Phase::Succeeded, 3.0).await;
    let started = nodes.child("p", "c").await;
    assert_eq!(&*nodes.next().standing(&started).await.row.version, "1.0.0");
}
