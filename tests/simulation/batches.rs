//! What must be true of batches: each goes on and never back, and acts on an execution once.

use crate::{invariants::Histories, world::ready};
use orbit::domain::{EventKind, digest16};
use orbit::store::{BatchAction, BatchProgress, BatchRow, BatchState, MemoryStore, Store};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Holds the batches that there are against what they did, and against what they were before; gives how far they are.
pub(crate) fn check(
    memory: &MemoryStore,
    histories: &Histories,
    before: &BTreeMap<Uuid, BatchProgress>,
    deletable: Option<&str>,
) -> BTreeMap<Uuid, BatchProgress> {
    let batches = ready(memory.batches(None, 10_000)).unwrap();
    for batch in &batches {
        let now = &batch.progress;
        let reached = now.done + now.skipped + now.failed;
        assert!(batch.executions_max == 0 || reached <= batch.executions_max, "{batch:?} went too far");
        assert_eq!(now.state == BatchState::Running, now.end_time.is_none(), "{batch:?}");
        if let Some(before) = before.get(&batch.id) {
            let goes_on = before.done <= now.done && before.skipped <= now.skipped && before.failed <= now.failed;
            assert!(goes_on && before.portion <= now.portion, "{before:?} went back to {now:?}");
            assert!(before.state == BatchState::Running || before == now, "{before:?} had ended: {now:?}");
        }
        check_deeds(batch, histories, deletable);
    }
    let lost: Vec<_> = before.keys().filter(|id| !batches.iter().any(|batch| batch.id == **id)).collect();
    assert!(lost.is_empty(), "batches are lost: {lost:?}");
    batches.into_iter().map(|batch| (batch.id, batch.progress)).collect()
}

/// What it did to each execution is in that one's history once.
fn check_deeds(batch: &BatchRow, histories: &Histories, deletable: Option<&str>) {
    let mut deeds = 0;
    for history in histories.all() {
        let key = digest16(&[b"batch", batch.id.as_bytes(), history.row.uid.0.as_bytes()]);
        let is_of_batch = |event: &&orbit::domain::Event| event.request.is_some_and(|request| request.key == key);
        let done: Vec<_> = history.events.iter().filter(is_of_batch).collect();
        assert!(done.len() <= 1, "{batch:?} acted twice on {}: {done:?}", history.row.id);
        let is_right = done.iter().all(|event| match batch.action {
            BatchAction::Cancel => matches!(event.kind, EventKind::WindDownStarted { .. }),
            BatchAction::Terminate => matches!(event.kind, EventKind::ExecutionTerminated { .. }),
            BatchAction::Retry => matches!(event.kind, EventKind::ExecutionReopened { .. }),
            BatchAction::Delete => false,
        });
        assert!(is_right, "{batch:?} did something else: {done:?}");
        deeds += done.len() as u64;
    }
    // A second cancel finds the first one's event; of what is deleted nobody knows.
    let leaves_an_event = matches!(batch.action, BatchAction::Terminate | BatchAction::Retry);
    let done = batch.progress.done;
    assert!(!leaves_an_event || deletable.is_some() || done <= deeds, "{batch:?} counts more than {deeds}");
}
