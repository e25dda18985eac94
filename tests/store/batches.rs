//! Batches: stored, listed, worked off portion by portion, cancelled, deleted.

use crate::{make::*, on_every_store};
use orbit::store::{BatchAction, BatchProgress, BatchRow, BatchState, ExecutionKey, ListCursor, Store};
use uuid::Uuid;

on_every_store![
    a_batch_is_stored_once_and_found_whole,
    batches_are_listed_newest_first_and_worked_off_oldest_first,
    of_those_who_did_the_same_portion_one_writes_it,
    a_cancelled_batch_stays_so_and_tells_what_was_done,
    batches_that_ended_long_ago_are_deleted,
];

pub(crate) fn batch(number: u128, create_time: i64) -> BatchRow {
    BatchRow {
        id: uuid(number),
        request_content: None,
        action: BatchAction::Cancel,
        reason: "tenant left".into(),
        filter: "labels.tenant = \"a\"".into(),
        executions_max: 0,
        expected: 100,
        is_counted: true,
        create_time: time(create_time),
        progress: BatchProgress {
            portion: 0,
            state: BatchState::Running,
            end_time: None,
            cursor: None,
            done: 0,
            skipped: 0,
            failed: 0,
            failures: "[]".into(),
        },
    }
}

/// The first portion is done.
fn advanced(row: &BatchRow) -> BatchProgress {
    BatchProgress {
        portion: 1,
        cursor: Some(ListCursor { start_time: time(-5), key: ExecutionKey(9) }),
        done: 30,
        skipped: 2,
        failed: 1,
        failures: r#"[["e","u","it broke"]]"#.into(),
        ..row.progress.clone()
    }
}

fn ids(rows: &[BatchRow]) -> Vec<Uuid> {
    rows.iter().map(|row| row.id).collect()
}

async fn a_batch_is_stored_once_and_found_whole(store: &dyn Store) {
    for (number, action) in (1..).zip(BatchAction::ALL) {
        let row = BatchRow {
            action,
            request_content: Some([7; 16]),
            executions_max: 50,
            is_counted: false,
            ..batch(number, 10)
        };
        assert_eq!(store.put_batch(&row).await.unwrap(), row);
        assert_eq!(store.batch(row.id).await.unwrap(), Some(row));
    }
    let other = BatchRow { request_content: Some([8; 16]), ..batch(1, 99) };
    let there = store.put_batch(&other).await.unwrap();
    assert_eq!((there.request_content, there.create_time), (Some([7; 16]), time(10)), "the first one stays");
    assert_eq!(store.batch(uuid(9)).await.unwrap(), None);
}

async fn batches_are_listed_newest_first_and_worked_off_oldest_first(store: &dyn Store) {
    for (number, create_time) in [(1, 30), (2, 10), (3, 20), (4, 20)] {
        store.put_batch(&batch(number, create_time)).await.unwrap();
    }
    let page = store.batches(None, 2).await.unwrap();
    assert_eq!(ids(&page), [uuid(1), uuid(4)]);
    let next = store.batches(Some((time(20), uuid(4))), 9).await.unwrap();
    assert_eq!(ids(&next), [uuid(3), uuid(2)]);
    assert_eq!(ids(&store.running_batches(3).await.unwrap()), [uuid(2), uuid(3), uuid(4)]);
    store.cancel_batch(uuid(3), time(50)).await.unwrap();
    assert_eq!(ids(&store.running_batches(9).await.unwrap()), [uuid(2), uuid(4), uuid(1)]);
}

async fn of_those_who_did_the_same_portion_one_writes_it(store: &dyn Store) {
    let row = store.put_batch(&batch(1, 10)).await.unwrap();
    let first = advanced(&row);
    assert!(store.advance_batch(row.id, &first).await.unwrap());
    assert!(!store.advance_batch(row.id, &BatchProgress { done: 99, ..first.clone() }).await.unwrap());
    assert_eq!(store.batch(row.id).await.unwrap().unwrap().progress, first);
    let last = BatchProgress { portion: 2, state: BatchState::Succeeded, end_time: Some(time(70)), done: 60, ..first };
    assert!(store.advance_batch(row.id, &last).await.unwrap());
    assert_eq!(store.batch(row.id).await.unwrap().unwrap().progress, last);
    assert!(!store.advance_batch(uuid(5), &last).await.unwrap(), "there is none");
    let cancelled = store.cancel_batch(row.id, time(80)).await.unwrap().unwrap();
    assert_eq!(cancelled.progress, last, "it had ended");
}

async fn a_cancelled_batch_stays_so_and_tells_what_was_done(store: &dyn Store) {
    let row = store.put_batch(&batch(1, 10)).await.unwrap();
    let cancelled = store.cancel_batch(row.id, time(20)).await.unwrap().unwrap();
    assert_eq!((cancelled.progress.state, cancelled.progress.end_time), (BatchState::Cancelled, Some(time(20))));
    let done = BatchProgress { state: BatchState::Succeeded, end_time: Some(time(30)), ..advanced(&row) };
    assert!(store.advance_batch(row.id, &done).await.unwrap());
    let kept = BatchProgress { state: BatchState::Cancelled, end_time: Some(time(20)), ..done };
    assert_eq!(store.batch(row.id).await.unwrap().unwrap().progress, kept);
    assert_eq!(store.cancel_batch(row.id, time(90)).await.unwrap().unwrap().progress, kept);
    assert_eq!(store.cancel_batch(uuid(5), time(90)).await.unwrap(), None);
}

async fn batches_that_ended_long_ago_are_deleted(store: &dyn Store) {
    for number in 1..=4 {
        store.put_batch(&batch(number, 10)).await.unwrap();
    }
    for (number, end_time) in [(1, 50), (2, 40), (3, 60)] {
        store.cancel_batch(uuid(number), time(end_time)).await.unwrap();
    }

    assert_eq!(store.delete_batches(time(60), 1).await.unwrap(), 1);
    assert_eq!(store.batch(uuid(2)).await.unwrap(), None, "the oldest end goes first");
    assert_eq!(store.delete_batches(time(60), 9).await.unwrap(), 1);
    assert_eq!(ids(&store.batches(None, 9).await.unwrap()), [uuid(4), uuid(3)]);
}
