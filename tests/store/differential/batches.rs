//! Batches in the random history: few of them, so that they are met in every state.

use super::{Random, Subject, ask, equal};
use crate::{batches::batch, make::*};
use orbit::domain::Timestamp;
use orbit::store::{BatchAction, BatchProgress, BatchRow, BatchState, ExecutionKey, ListCursor};
use uuid::Uuid;

fn any_id(random: &mut Random) -> Uuid {
    uuid(u128::from(random.below(8)))
}

fn any_time(random: &mut Random) -> Timestamp {
    time(i64::try_from(random.below(1_000)).unwrap())
}

/// Makes, advances, cancels or deletes some.
pub(super) async fn change(random: &mut Random, subjects: &[Subject<'_>]) {
    let id = any_id(random);
    match random.below(6) {
        0 | 1 => {
            let row = BatchRow {
                id,
                request_content: random.one_in(2).then_some([3; 16]),
                action: random.of(&BatchAction::ALL),
                reason: random.of(&["", "tenant left"]).into(),
                executions_max: random.below(3),
                is_counted: random.one_in(2),
                ..batch(0, i64::try_from(random.below(5)).unwrap())
            };
            ask!(subjects, ("put_batch", id), |subject| subject.store.put_batch(&row).await.unwrap());
        }
        2 | 3 => {
            let state = random.of(&[BatchState::Running, BatchState::Running, BatchState::Succeeded]);
            let progress = BatchProgress {
                portion: 1 + random.below(4),
                state,
                end_time: (state != BatchState::Running).then(|| any_time(random)),
                cursor: random.one_in(2).then(|| ListCursor { start_time: any_time(random), key: ExecutionKey(3) }),
                done: random.below(100),
                skipped: random.below(100),
                failed: random.below(100),
                failures: random.of(&["[]", "[[\"e\",\"u\",\"it broke\"]]"]).into(),
            };
            ask!(subjects, ("advance_batch", id), |subject| {
                subject.store.advance_batch(id, &progress).await.unwrap()
            });
        }
        4 => {
            let end_time = any_time(random);
            ask!(subjects, ("cancel_batch", id), |subject| subject.store.cancel_batch(id, end_time).await.unwrap());
        }
        _ => {
            let (before, limit) = (any_time(random), 1 + usize::try_from(random.below(3)).unwrap());
            ask!(subjects, ("delete_batches", before, limit), |subject| {
                subject.store.delete_batches(before, limit).await.unwrap()
            });
        }
    }
}

/// Asks for all of them, in pages and those that run.
pub(super) async fn compare(random: &mut Random, subjects: &[Subject<'_>]) {
    let (id, limit) = (any_id(random), 1 + usize::try_from(random.below(5)).unwrap());
    ask!(subjects, ("batch", id), |subject| subject.store.batch(id).await.unwrap());
    let after = random.one_in(2).then(|| (time(i64::try_from(random.below(5)).unwrap()), id));
    ask!(subjects, ("batches", after, limit), |subject| subject.store.batches(after, limit).await.unwrap());
    ask!(subjects, ("running_batches", limit), |subject| subject.store.running_batches(limit).await.unwrap());
}
