//! Signals that steps give to other executions: once each, whatever gets lost.

use super::*;
use orbit::domain::code;

on_one_and_two_nodes!(
    a_step_signals_another_execution,
    a_signal_whose_delivery_was_not_written_down_is_not_given_twice,
    a_signal_to_a_closed_execution_fails_the_step,
    parents_and_children_signal_each_other,
    a_signal_waits_for_room,
);

const TAKER: &str =
    "signals: {go: {type: integer}}\nsteps:\n  - {id: w, await: {signal: go}}\nresult: ${ steps.w.output }\n";
const SENDER: &str = "steps:\n  - {id: s, signal: {execution: taker, name: go, payload: 5}}\n";

fn is_signal(kind: &EventKind) -> bool {
    matches!(kind, EventKind::SignalReceived { .. })
}

async fn a_step_signals_another_execution(nodes: Nodes) {
    nodes.next().deploy("taker", TAKER).await;
    nodes.next().deploy("sender", SENDER).await;
    nodes.next().start("taker", "taker").await;
    nodes.next().start("sender", "s").await;
    nodes.ends("s", Phase::Succeeded, 3.0).await;
    nodes.ends("taker", Phase::Succeeded, 3.0).await;
    assert_eq!(nodes.next().output("taker").await, "5");
}

async fn a_signal_whose_delivery_was_not_written_down_is_not_given_twice(mut nodes: Nodes) {
    nodes.next().deploy("taker", TAKER).await;
    nodes.next().deploy("sender", SENDER).await;
    nodes.next().start("taker", "taker").await;
    nodes.fate(
        |append| {
            has(append, |kind| matches!(kind, EventKind::ExecutionSucceeded { output } if output.as_str() == "null"))
        },
        Fate::FailsBefore,
    );
    nodes.next().start("sender", "s").await;
    pass(0.2).await;
    assert_eq!(nodes.next().count("taker", is_signal).await, 1);
    assert_eq!(nodes.next().phase("s").await, Phase::Running);
    nodes.lose_last();
    nodes.mend();
    nodes.ends("s", Phase::Succeeded, 30.0).await;
    assert_eq!(nodes.next().count("taker", is_signal).await, 1);
}

async fn a_signal_to_a_closed_execution_fails_the_step(nodes: Nodes) {
    nodes.next().deploy("taker", "signals: {go: {}}\nsteps: [{id: c, compute: 1}]").await;
    nodes.next().deploy("sender", SENDER).await;
    nodes.next().start("sender", "nobody").await;
    nodes.ends("nobody", Phase::Failed, 3.0).await;
    nodes.next().start("taker", "taker").await;
    nodes.next().start("sender", "late").await;
    nodes.ends("late", Phase::Failed, 3.0).await;
    for (id, reason) in [("nobody", "EXECUTION_NOT_FOUND"), ("late", "EXECUTION_CLOSED")] {
        let standing = nodes.next().standing(id).await;
        let failure = standing.state.failure().unwrap();
        assert_eq!(&*failure.code, code::SIGNAL_NOT_DELIVERED);
        assert!(failure.details.as_ref().unwrap().as_str().contains(reason), "{failure:?}");
    }
}

async fn parents_and_children_signal_each_other(nodes: Nodes) {
    nodes
        .next()
        .deploy(
            "child",
            "signals: {go: {}}\nsteps:\n  - {id: w, await: {signal: go}}\n  - {id: s, signal: {parent: true, name: \
             done, payload: '${ steps.w.output }'}}\n",
        )
        .await;
    nodes
        .next()
        .deploy(
            "parent",
            "signals: {done: {}}\nsteps:\n  - {id: t, signal: {child: c, name: go, payload: 9}}\n  - {id: c, \
             workflow: child@*}\n  - {id: d, await: {signal: done}}\nresult: ${ steps.d.output }\n",
        )
        .await;
    nodes.next().start("parent", "p").await;
    nodes.ends("p", Phase::Succeeded, 5.0).await;
    assert_eq!(nodes.next().output("p").await, "9");
    let child = nodes.child("p", "c").await;
    assert_eq!(nodes.next().count(&child, is_signal).await, 1);
}

async fn a_signal_waits_for_room(nodes: Nodes) {
    nodes.next().deploy("taker", "signals: {go: {}, never: {}}\nsteps: [{id: w, await: {signal: never}}]").await;
    nodes.next().deploy("sender", SENDER).await;
    nodes.next().start("taker", "taker").await;
    let expire_time = Some(nodes.now() + Duration::from_secs(30));
    for _ in 0..10_000 {
        let engine = &nodes.nodes[0].orbit.engine;
        engine.signal(&name("taker"), arc("go"), json("1"), expire_time, None).await.unwrap();
    }
    nodes.next().start("sender", "s").await;
    pass(10.0).await;
    assert_eq!(nodes.next().phase("s").await, Phase::Running);
    nodes.ends("s", Phase::Succeeded, 60.0).await;
}
