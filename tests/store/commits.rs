//! The fence: who wins a number or an id, and what the others are told.

use crate::{make::*, on_every_store, written};
use orbit::store::{Append, Committed, ExecutionKey, ExecutionState, Find, Store, WakeChange};

on_every_store![
    a_number_that_is_taken_is_a_conflict,
    a_number_that_leaves_a_gap_is_a_conflict,
    a_number_inside_a_row_is_a_conflict,
    an_execution_that_is_not_there_is_a_conflict,
    an_id_that_is_taken_is_a_conflict,
    a_conflict_leaves_the_rest_of_its_batch_written,
    a_loser_leaves_nothing_behind,
    the_same_append_again_is_written_once,
    the_same_start_again_is_written_once,
    a_batch_of_many_is_answered_in_its_order,
    of_many_writers_one_wins_each_number,
];

async fn outcome(store: &dyn Store, append: Append) -> Committed {
    store.commit(vec![append]).await.unwrap().remove(0)
}

async fn a_number_that_is_taken_is_a_conflict(store: &dyn Store) {
    let key = written(store, start("a", 1)).await;
    written(store, append(key, 3, 4)).await;
    assert_eq!(outcome(store, append(key, 3, 3)).await, Committed::Conflict);
    assert_eq!(outcome(store, append(key, 1, 1)).await, Committed::Conflict);
    assert_eq!(outcome(store, append(key, 5, 5)).await, Committed::Written(key));
}

async fn a_number_that_leaves_a_gap_is_a_conflict(store: &dyn Store) {
    let key = written(store, start("a", 1)).await;
    assert_eq!(outcome(store, append(key, 4, 4)).await, Committed::Conflict);
    assert_eq!(outcome(store, append(key, 3, 3)).await, Committed::Written(key));
}

async fn a_number_inside_a_row_is_a_conflict(store: &dyn Store) {
    let key = written(store, start("a", 1)).await;
    written(store, append(key, 3, 9)).await;
    // The unique key alone would let it in.
    assert_eq!(outcome(store, append(key, 5, 5)).await, Committed::Conflict);
    assert_eq!(outcome(store, append(key, 2, 2)).await, Committed::Conflict);
}

async fn an_execution_that_is_not_there_is_a_conflict(store: &dyn Store) {
    assert_eq!(outcome(store, append(ExecutionKey(404), 1, 1)).await, Committed::Conflict);
    assert!(store.load(ExecutionKey(404)).await.unwrap().is_none());
}

async fn an_id_that_is_taken_is_a_conflict(store: &dyn Store) {
    let key = written(store, start("a", 1)).await;
    let second = with_labels(Append { ready_added: vec![unit("u", 1, 1)], ..start("a", 2) }, &[("k", "v")]);
    assert_eq!(outcome(store, second).await, Committed::Conflict);
    assert_eq!(store.execution(&Find::Id("a".into())).await.unwrap().unwrap().key, key);
    assert_eq!(store.execution(&Find::Uid(orbit::domain::Uid(uuid(2)))).await.unwrap(), None);
    assert_eq!(store.ready(&pool(), 10).await.unwrap(), []);
    assert_eq!(store.count().await.unwrap(), [(ExecutionState::Running, 1)].into());
}

async fn a_conflict_leaves_the_rest_of_its_batch_written(store: &dyn Store) {
    let a = written(store, start("a", 1)).await;
    let b = written(store, start("b", 2)).await;
    let batch = vec![append(a, 9, 9), start("b", 3), append(b, 3, 3), start("c", 4)];
    let outcomes = store.commit(batch).await.unwrap();
    let Committed::Written(c) = outcomes[3] else { panic!("{outcomes:?}") };
    assert_eq!(outcomes, [Committed::Conflict, Committed::Conflict, Committed::Written(b), Committed::Written(c)]);
    assert_eq!(store.execution(&Find::Id("c".into())).await.unwrap().unwrap().key, c);
    assert_eq!(store.history(b, 0, 10, usize::MAX).await.unwrap().len(), 2);
    assert_eq!(store.count().await.unwrap(), [(ExecutionState::Running, 3)].into());
}

async fn a_loser_leaves_nothing_behind(store: &dyn Store) {
    let key = written(store, Append { ready_added: vec![unit("kept", 1, 1)], ..start("a", 1) }).await;
    let before = store.load(key).await.unwrap().unwrap();
    let loser = Append {
        payloads: vec![payload(1, "1")],
        ready_added: vec![unit("lost", 1, 1)],
        ready_removed: vec!["kept".into()],
        snapshot: Some(snapshot(2)),
        ..ending(key, 2, ExecutionState::Cancelled, 5)
    };
    assert_eq!(outcome(store, Append { wake: WakeChange::Set(Some(time(1))), ..loser }).await, Committed::Conflict);
    let after = store.load(key).await.unwrap().unwrap();
    assert_eq!(after.row, before.row);
    assert_eq!((after.snapshot, after.history, after.payloads), (None, before.history, vec![]));
    assert_eq!(store.ready(&pool(), 10).await.unwrap().len(), 1);
    assert_eq!(store.count().await.unwrap(), [(ExecutionState::Running, 1)].into());
}

async fn the_same_append_again_is_written_once(store: &dyn Store) {
    let key = written(store, start("a", 1)).await;
    let end = ending(key, 3, ExecutionState::Succeeded, 9);
    assert_eq!(outcome(store, end.clone()).await, Committed::Written(key));
    assert_eq!(outcome(store, end.clone()).await, Committed::Written(key));
    written(store, append(key, 4, 4)).await;
    assert_eq!(outcome(store, end).await, Committed::Written(key));
    assert_eq!(store.count().await.unwrap(), [(ExecutionState::Succeeded, 1)].into());
    assert_eq!(store.history(key, 0, 10, usize::MAX).await.unwrap().len(), 3);
}

async fn the_same_start_again_is_written_once(store: &dyn Store) {
    let begin = with_labels(start("a", 1), &[("k", "v")]);
    let key = written(store, begin.clone()).await;
    let outcomes = store.commit(vec![start("b", 2), begin]).await.unwrap();
    assert_eq!(outcomes[1], Committed::Written(key));
    assert_eq!(store.count().await.unwrap(), [(ExecutionState::Running, 2)].into());
}

async fn a_batch_of_many_is_answered_in_its_order(store: &dyn Store) {
    // More rows than one statement takes, and a number of them that is no power of two.
    let starts: Vec<Append> =
        (0..700).map(|n| with_labels(start(&format!("e{n}"), n + 1), &[("n", &n.to_string())])).collect();
    let outcomes = store.commit(starts).await.unwrap();
    let mut appends = Vec::new();
    for (n, outcome) in outcomes.iter().enumerate() {
        let Committed::Written(key) = outcome else { panic!("{n}: {outcome:?}") };
        assert_eq!(&*store.execution(&Find::Key(*key)).await.unwrap().unwrap().id, &*format!("e{n}"));
        let first = if n % 7 == 0 { 8 } else { 3 };
        appends.push(Append { ready_added: vec![unit("u", 3, n as i64)], ..append(*key, first, first) });
    }
    appends.reverse();
    let outcomes = store.commit(appends).await.unwrap();
    for (n, outcome) in outcomes.iter().rev().enumerate() {
        assert_eq!(matches!(outcome, Committed::Written(_)), n % 7 != 0, "{n}: {outcome:?}");
    }
    assert_eq!(store.ready(&pool(), 1000).await.unwrap().len(), 600);
    assert_eq!(store.count().await.unwrap(), [(ExecutionState::Running, 700)].into());
}

async fn of_many_writers_one_wins_each_number(store: &dyn Store) {
    let key = written(store, start("a", 1)).await;
    for number in 3..13 {
        let rivals: Vec<_> = (0..8).map(|_| store.commit(vec![append(key, number, number)])).collect();
        let outcomes = futures_util::future::join_all(rivals).await;
        let won =
            outcomes.into_iter().filter(|outcome| outcome.as_ref().unwrap()[0] == Committed::Written(key)).count();
        assert_eq!(won, 1);
    }
    let numbers: Vec<u64> =
        store.history(key, 0, 100, usize::MAX).await.unwrap().iter().map(|row| row.last_number).collect();
    assert_eq!(numbers, (2..13).collect::<Vec<u64>>());
}
