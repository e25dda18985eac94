//! Batches that delete what still has to tell others something.

use super::*;
use orbit::domain::ExecutionId;
use orbit::engine::{BatchFailure, Error, NewBatch};
use orbit::store::{BatchAction, BatchRow, BatchState};

on_one_and_two_nodes!(
    a_batch_deletes_what_waits_for_others_once_they_know,
    a_batch_fails_for_what_others_do_not_hear_of_and_goes_on,
);

on_databases!(
    a_batch_deletes_what_waits_for_others_once_they_know,
    a_batch_fails_for_what_others_do_not_hear_of_and_goes_on,
);

/// Executions that nothing keeps: more than a portion.
const FREE: usize = 40;

const CHILD: &str = "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1}\n";
const PARENT: &str = "steps:\n  - {id: c, workflow: child@*}\n";
const SLEEPER: &str = "steps:\n  - {id: a, sleep: {for: 30d}}\n";

fn is_cancel(append: &Append) -> bool {
    has(append, |kind| matches!(kind, EventKind::WindDownStarted { .. }))
}

fn delete(filter: &str) -> NewBatch {
    NewBatch { action: BatchAction::Delete, reason: arc(""), filter: arc(filter), executions_max: 0, request: None }
}

/// Terminates [`FREE`] sleepers and, as cancels meet that fate from now on, the parent `p` of a child that is at its
/// worker. Gives the child's id.
async fn terminated(nodes: &Nodes, fate: Fate) -> ExecutionId {
    for (workflow, lines) in [("child", CHILD), ("parent", PARENT), ("sleeper", SLEEPER)] {
        nodes.next().deploy(workflow, lines).await;
    }
    for number in 0..FREE {
        let id = format!("s{number}");
        nodes.next().start("sleeper", &id).await;
        nodes.next().engine.terminate(&name(&id), arc("over"), None).await.unwrap();
    }
    nodes.next().start("sleeper", "open").await;
    nodes.next().start("parent", "p").await;
    let session = nodes.next().worker(&["a@1"]).await;
    let task = nodes.task(session).await;
    nodes.fate(is_cancel, fate);
    nodes.next().engine.terminate(&name("p"), arc("over"), None).await.unwrap();
    task.execution_id
}

async fn ended(nodes: &Nodes, batch: &BatchRow) -> BatchRow {
    for _ in 0..600 {
        let batch = nodes.next().engine.batch(batch.id).await.unwrap();
        if batch.progress.state != BatchState::Running {
            return batch;
        }
        pass(0.1).await;
    }
    panic!("the batch does not end");
}

fn counts(batch: &BatchRow) -> (usize, usize, usize) {
    let count = |count: u64| usize::try_from(count).unwrap();
    (count(batch.progress.done), count(batch.progress.skipped), count(batch.progress.failed))
}

/// Whether a child has its cancel, once.
async fn knows(nodes: &Nodes, child: &ExecutionId) -> bool {
    nodes.next().count(child.as_str(), |kind| matches!(kind, EventKind::WindDownStarted { .. })).await == 1
}

async fn is_gone(nodes: &Nodes, id: &str) -> bool {
    matches!(nodes.next().engine.execution(&name(id)).await, Err(Error::ExecutionNotFound { .. }))
}

async fn a_batch_deletes_what_waits_for_others_once_they_know(nodes: Nodes) {
    // The child hears of it with the second try, a second later.
    let child = terminated(&nodes, Fate::FailsBefore).await;
    pass(0.4).await;
    nodes.mend();
    let engine = &nodes.next().engine;
    let counted = engine.create_batch(delete("state = TERMINATED"), true).await.unwrap();
    let all = FREE as u64 + 1;
    assert_eq!((counted.expected, counted.is_counted, counted.progress.done), (all, true, 0));
    assert!(engine.batches(None, 10).await.unwrap().is_empty(), "a dry run makes nothing");

    // Alone it is refused, so long as the child does not know.
    let refused = engine.delete(&name("p"), None).await;
    assert!(matches!(refused, Err(Error::Rejected(orbit::domain::Rejection::EffectsOpen))), "{refused:?}");
    let batch = engine.create_batch(delete("state = TERMINATED"), false).await.unwrap();
    assert_eq!(batch.expected, all);
    let batch = ended(&nodes, &batch).await;
    assert_eq!((batch.progress.state, counts(&batch)), (BatchState::Succeeded, (FREE + 1, 0, 0)));
    assert_eq!(BatchFailure::all_of(&batch.progress), []);
    assert!(is_gone(&nodes, "p").await && is_gone(&nodes, "s0").await && is_gone(&nodes, "s39").await);
    assert!(knows(&nodes, &child).await);
    assert_eq!(nodes.next().phase("open").await, Phase::Running);
}

async fn a_batch_fails_for_what_others_do_not_hear_of_and_goes_on(nodes: Nodes) {
    let child = terminated(&nodes, Fate::FailsBefore).await;
    let batch = nodes.next().engine.create_batch(delete("state = TERMINATED"), false).await.unwrap();
    let batch = ended(&nodes, &batch).await;
    assert_eq!((batch.progress.state, counts(&batch)), (BatchState::Succeeded, (FREE, 0, 1)));
    let failures = BatchFailure::all_of(&batch.progress);
    let [failure] = &failures[..] else { panic!("one failed: {failures:?}") };
    assert_eq!((&*failure.id, failure.message.is_empty()), ("p", false));
    assert_eq!(nodes.next().phase("p").await, Phase::Terminated);
    assert!(is_gone(&nodes, "s0").await && is_gone(&nodes, "s39").await);

    // Once the child knows, another batch finds nothing in its way.
    nodes.mend();
    pass(30.0).await;
    assert!(knows(&nodes, &child).await);
    let batch = nodes.next().engine.create_batch(delete("state = TERMINATED"), false).await.unwrap();
    let batch = ended(&nodes, &batch).await;
    assert_eq!((batch.expected, counts(&batch)), (1, (1, 0, 0)));
    assert!(is_gone(&nodes, "p").await);
}
