//! What is open of a schedule: many at once, and what is open again after its end.

use super::{every, ledger};
use crate::harness::*;
use orbit::domain::{Phase, schedule::Overlap};
use orbit::store::{ExecutionState, ScheduleState, SlotOutcome, SlotRow, Store as _};
use std::sync::Arc;

#[tokio::test(start_paused = true)]
async fn of_more_open_executions_than_are_remembered_none_is_forgotten() {
    let orbit = orbit();
    orbit.deploy("long", "steps: [{id: a, sleep: {for: 1h}}]\n").await;
    orbit.schedule("many", &every(1, "long", r#"{"overlap":"OVERLAP_ALLOW"}"#)).await;
    pass(150.5).await;
    orbit.engine.pause_schedule(arc("many"), None, arc(""), None).await.unwrap();
    assert_eq!((orbit.viewed("many").await.row.counts.started, orbit.viewed("many").await.open().len()), (150, 100));
    let ids = |slots: Vec<SlotRow>| slots.into_iter().filter_map(|slot| slot.execution).map(|it| it.0);
    let newest_first: Vec<Arc<str>> = ids(ledger(&orbit.memory, &orbit.viewed("many").await).await).collect();
    // Those that are remembered end, or those that are not: some are open in either case.
    let (newer, older) = newest_first.split_at(75);
    for id in older {
        orbit.engine.terminate(&name(id), arc(""), None).await.unwrap();
    }
    let skip = Some(Overlap::Skip);
    pass(1.0).await;
    let met = orbit.engine.trigger_schedule(arc("many"), skip, None).await.unwrap();
    assert_eq!(met.outcome, SlotOutcome::Overlapped);
    assert_eq!(orbit.viewed("many").await.open().len(), 75, "the others are remembered now");
    for id in &newer[1..] {
        orbit.engine.terminate(&name(id), arc(""), None).await.unwrap();
    }
    pass(1.0).await;
    let met = orbit.engine.trigger_schedule(arc("many"), skip, None).await.unwrap();
    assert_eq!(met.outcome, SlotOutcome::Overlapped, "one is still open");
    orbit.engine.terminate(&name(&newer[0]), arc(""), None).await.unwrap();
    pass(1.0).await;
    let free = orbit.engine.trigger_schedule(arc("many"), skip, None).await.unwrap();
    assert_eq!(free.outcome, SlotOutcome::Started);
}

#[tokio::test(start_paused = true)]
async fn of_many_open_executions_all_are_asked_to_end() {
    let orbit = orbit();
    orbit.deploy("long", "steps: [{id: a, sleep: {for: 1h}}]\n").await;
    orbit.schedule("many", &every(1, "long", r#"{"overlap":"OVERLAP_ALLOW"}"#)).await;
    pass(250.5).await;
    orbit.engine.pause_schedule(arc("many"), None, arc(""), None).await.unwrap();
    let last = Some(Overlap::CancelPrevious);
    let slot = orbit.engine.trigger_schedule(arc("many"), last, None).await.unwrap();
    assert_eq!(slot.outcome, SlotOutcome::Buffered);
    pass(60.0).await;
    let viewed = orbit.viewed("many").await;
    let counts = orbit.memory.count().await.unwrap();
    assert_eq!((counts[&ExecutionState::Running], counts[&ExecutionState::Cancelled]), (1, 250));
    assert_eq!((viewed.open().len(), viewed.row.counts.started), (1, 251));
}

#[tokio::test(start_paused = true)]
async fn an_execution_that_is_open_again_is_one_that_a_slot_meets() {
    let orbit = orbit();
    orbit.deploy("often", "tasks: {a@1: {}}\nsteps: [{id: a, task: a@1, retry: {max_attempts: 1}}]\n").await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.schedule("a", &every(10, "often", r#"{"pauseOnFailure":true}"#)).await;
    pass(11.0).await;
    let task = orbit.task(session).await;
    orbit.report(&task, fail("X")).await;
    pass(1.0).await;
    orbit.engine.resume_schedule(arc("a"), None, None).await.unwrap();
    let (id, uid) = ledger(&orbit.memory, &orbit.viewed("a").await).await[0].execution.clone().unwrap();
    assert_eq!((orbit.phase(&id).await, orbit.viewed("a").await.open().len()), (Phase::Failed, 0));
    orbit.engine.retry(&name(&id), None).await.unwrap();
    pass(10.0).await;
    use SlotOutcome::{Overlapped, Started};
    assert_eq!(orbit.outcomes("a").await, [(10, Started), (20, Overlapped)]);
    assert_eq!(orbit.viewed("a").await.open().iter().map(|run| run.uid).collect::<Vec<_>>(), [uid]);
    // That it fails once more is told once more.
    let task = orbit.task(session).await;
    orbit.report(&task, fail("X")).await;
    pass(1.0).await;
    assert_eq!(orbit.viewed("a").await.row.state, ScheduleState::Paused);
}
