//! The appends with two fences: a new execution in the place of another, and a closed one that is taken up again.

use crate::{make::*, on_every_store, written};
use orbit::domain::Uid;
use orbit::store::{
    Append, Committed, ExecutionKey, ExecutionState, Find, ListFilter, Replacement, StateChange, Store, Target,
    WakeChange,
};

on_every_store![
    a_closed_execution_gives_its_id_to_a_new_one,
    an_open_execution_keeps_its_id,
    a_running_execution_is_ended_and_replaced_or_neither,
    who_has_not_the_id_cannot_give_it,
    the_same_replacement_again_is_written_once,
    of_many_replacements_one_wins,
    a_closed_execution_is_taken_up_again,
    one_that_was_replaced_is_not_taken_up_again,
    of_a_replacement_and_a_reopening_one_wins,
    a_paused_execution_is_listed_and_counted_as_such,
];

async fn outcome(store: &dyn Store, append: Append) -> Committed {
    store.commit(vec![append]).await.unwrap().remove(0)
}

/// A start in the place of another execution.
fn replacing(id: &str, number: u128, old: ExecutionKey, end: Option<Append>) -> Append {
    let start = start(id, number);
    let Target::New(new) = start.target else { unreachable!() };
    Append { target: Target::Replacing(Box::new(Replacement { new: *new, old, end })), ..start }
}

fn terminating(key: ExecutionKey, first_number: u64) -> Append {
    Append { ready_removed: vec!["u".into()], ..ending(key, first_number, ExecutionState::Terminated, 70) }
}

fn reopening(key: ExecutionKey, first_number: u64, from: ExecutionState) -> Append {
    Append {
        state: Some(StateChange { from, to: ExecutionState::Running, close_time: None }),
        wake: WakeChange::Set(Some(time(90))),
        ..append(key, first_number, first_number)
    }
}

async fn holder(store: &dyn Store, id: &str) -> Option<Uid> {
    store.execution(&Find::Id(id.into())).await.unwrap().map(|row| row.uid)
}

async fn a_closed_execution_gives_its_id_to_a_new_one(store: &dyn Store) {
    let old = written(store, start("a", 1)).await;
    written(store, ending(old, 3, ExecutionState::Failed, 50)).await;
    let new = written(store, with_ready(replacing("a", 2, old, None))).await;
    assert_ne!(new, old);
    assert_eq!(holder(store, "a").await, Some(Uid(uuid(2))));
    let row = store.execution(&Find::Uid(Uid(uuid(1)))).await.unwrap().unwrap();
    assert_eq!((row.key, row.current, row.state), (old, false, ExecutionState::Failed));
    assert_eq!(store.history(new, 0, 9, usize::MAX).await.unwrap().len(), 1);
    assert_eq!(store.ready(&pool(), 9).await.unwrap().len(), 1);
    assert_eq!(store.count().await.unwrap(), [(ExecutionState::Running, 1), (ExecutionState::Failed, 1)].into());
    assert_eq!(store.list(&ListFilter::default(), None, 9).await.unwrap().rows.len(), 2);
}

fn with_ready(append: Append) -> Append {
    Append { ready_added: vec![unit("u", 3, 1)], ..append }
}

async fn an_open_execution_keeps_its_id(store: &dyn Store) {
    let old = written(store, start("a", 1)).await;
    assert_eq!(outcome(store, with_ready(replacing("a", 2, old, None))).await, Committed::Conflict);
    assert_eq!(holder(store, "a").await, Some(Uid(uuid(1))));
    assert_eq!(store.execution(&Find::Uid(Uid(uuid(2)))).await.unwrap(), None);
    assert_eq!(store.ready(&pool(), 9).await.unwrap(), []);
}

async fn a_running_execution_is_ended_and_replaced_or_neither(store: &dyn Store) {
    let old = written(store, with_ready(start("a", 1))).await;
    // It has gone on since its end was decided: its first fence is lost, and nothing is written.
    written(store, append(old, 3, 3)).await;
    let stale = replacing("a", 2, old, Some(terminating(old, 3)));
    assert_eq!(outcome(store, stale).await, Committed::Conflict);
    assert_eq!((holder(store, "a").await, store.ready(&pool(), 9).await.unwrap().len()), (Some(Uid(uuid(1))), 1));

    let new = written(store, replacing("a", 3, old, Some(terminating(old, 4)))).await;
    let row = store.execution(&Find::Key(old)).await.unwrap().unwrap();
    assert_eq!((row.state, row.close_time, row.current), (ExecutionState::Terminated, Some(time(70)), false));
    assert_eq!((holder(store, "a").await, store.ready(&pool(), 9).await.unwrap().len()), (Some(Uid(uuid(3))), 0));
    assert_eq!(store.history(old, 3, 9, usize::MAX).await.unwrap().len(), 1);
    assert_eq!(store.count().await.unwrap(), [(ExecutionState::Running, 1), (ExecutionState::Terminated, 1)].into());

    // The second fence is lost where another one has the id: then the end is not written either.
    let late = replacing("a", 4, old, Some(ending(old, 5, ExecutionState::Terminated, 80)));
    assert_eq!(outcome(store, late).await, Committed::Conflict);
    assert_eq!(store.history(old, 4, 9, usize::MAX).await.unwrap(), []);
    assert_eq!(holder(store, "a").await, store.execution(&Find::Key(new)).await.unwrap().map(|row| row.uid));
}

async fn who_has_not_the_id_cannot_give_it(store: &dyn Store) {
    let old = written(store, start("a", 1)).await;
    written(store, ending(old, 3, ExecutionState::Succeeded, 50)).await;
    assert_eq!(outcome(store, replacing("b", 2, old, None)).await, Committed::Conflict);
    assert_eq!(outcome(store, replacing("a", 3, ExecutionKey(404), None)).await, Committed::Conflict);
    assert_eq!((holder(store, "a").await, holder(store, "b").await), (Some(Uid(uuid(1))), None));
    let closes_nothing = replacing("a", 4, old, Some(append(old, 4, 4)));
    assert!(matches!(outcome(store, closes_nothing).await, Committed::Failed { .. }));
}

async fn the_same_replacement_again_is_written_once(store: &dyn Store) {
    let old = written(store, start("a", 1)).await;
    let replacement = replacing("a", 2, old, Some(terminating(old, 3)));
    let new = written(store, replacement.clone()).await;
    assert_eq!(outcome(store, replacement.clone()).await, Committed::Written(new));
    written(store, append(new, 3, 3)).await;
    let batch = vec![start("b", 5), replacement, append(new, 4, 4)];
    let outcomes = store.commit(batch).await.unwrap();
    assert_eq!(outcomes[1..], [Committed::Written(new), Committed::Written(new)]);
    let states = [(ExecutionState::Running, 2), (ExecutionState::Terminated, 1)];
    assert_eq!(store.count().await.unwrap(), states.into());
}

async fn of_many_replacements_one_wins(store: &dyn Store) {
    let mut holder = written(store, start("a", 1)).await;
    for round in 1..6_u128 {
        let rivals: Vec<_> = (0..4)
            .map(|rival| {
                let end = Some(ending(holder, 3, ExecutionState::Terminated, 50));
                store.commit(vec![replacing("a", round * 10 + rival, holder, end)])
            })
            .collect();
        let outcomes = futures_util::future::join_all(rivals).await;
        let won: Vec<ExecutionKey> = outcomes
            .into_iter()
            .filter_map(|outcome| match outcome.unwrap()[0] {
                Committed::Written(key) => Some(key),
                Committed::Conflict | Committed::Failed { .. } => None,
            })
            .collect();
        assert_eq!(won.len(), 1, "round {round}");
        holder = won[0];
    }
    let states = [(ExecutionState::Running, 1), (ExecutionState::Terminated, 5)];
    assert_eq!(store.count().await.unwrap(), states.into());
}

async fn a_closed_execution_is_taken_up_again(store: &dyn Store) {
    let key = written(store, start("a", 1)).await;
    written(store, ending(key, 3, ExecutionState::Failed, 50)).await;
    let again = reopening(key, 4, ExecutionState::Failed);
    written(store, again.clone()).await;
    let row = store.execution(&Find::Id("a".into())).await.unwrap().unwrap();
    assert_eq!((row.state, row.close_time, row.wake_time), (ExecutionState::Running, None, Some(time(90))));
    assert_eq!(store.count().await.unwrap(), [(ExecutionState::Running, 1)].into());
    assert_eq!(outcome(store, again).await, Committed::Written(key), "the same again");
    written(store, ending(key, 5, ExecutionState::Succeeded, 60)).await;
    assert_eq!(store.count().await.unwrap(), [(ExecutionState::Succeeded, 1)].into());
}

async fn one_that_was_replaced_is_not_taken_up_again(store: &dyn Store) {
    let old = written(store, start("a", 1)).await;
    written(store, ending(old, 3, ExecutionState::Failed, 50)).await;
    let new = written(store, replacing("a", 2, old, None)).await;
    assert_eq!(outcome(store, reopening(old, 4, ExecutionState::Failed)).await, Committed::Conflict);
    let row = store.execution(&Find::Key(old)).await.unwrap().unwrap();
    assert_eq!((row.state, row.close_time), (ExecutionState::Failed, Some(time(50))));
    assert_eq!(store.history(old, 3, 9, usize::MAX).await.unwrap(), []);
    // What changes nothing of it is still taken, and the rest of a batch does not suffer.
    let outcomes =
        store.commit(vec![append(new, 3, 3), reopening(old, 4, ExecutionState::Failed), start("b", 3)]).await.unwrap();
    assert_eq!(outcomes[..2], [Committed::Written(new), Committed::Conflict]);
    assert!(matches!(outcomes[2], Committed::Written(_)));
    written(store, append(old, 4, 4)).await;
}

async fn of_a_replacement_and_a_reopening_one_wins(store: &dyn Store) {
    for round in 0..10_u128 {
        let id = format!("a{round}");
        let old = written(store, start(&id, 1 + round * 10)).await;
        written(store, ending(old, 3, ExecutionState::Failed, 50)).await;
        let (replaced, reopened) = tokio::join!(
            store.commit(vec![replacing(&id, 2 + round * 10, old, None)]),
            store.commit(vec![reopening(old, 4, ExecutionState::Failed)]),
        );
        let won = |outcomes: &[Committed]| matches!(outcomes[0], Committed::Written(_));
        let (replaced, reopened) = (won(&replaced.unwrap()), won(&reopened.unwrap()));
        assert!(replaced != reopened, "round {round}: {replaced} {reopened}");
        let row = store.execution(&Find::Id(id.into())).await.unwrap().unwrap();
        assert_eq!((row.state, row.key == old), (ExecutionState::Running, reopened));
    }
    let counts = store.count().await.unwrap();
    assert_eq!(counts[&ExecutionState::Running], 10);
}

async fn a_paused_execution_is_listed_and_counted_as_such(store: &dyn Store) {
    let key = written(store, start("a", 1)).await;
    let change = |from, to| Some(StateChange { from, to, close_time: None });
    let (running, paused) = (ExecutionState::Running, ExecutionState::Paused);
    written(store, Append { state: change(running, paused), ..append(key, 3, 3) }).await;
    assert_eq!(store.count().await.unwrap(), [(paused, 1)].into());
    let filter = ListFilter { states: vec![paused], ..ListFilter::default() };
    let listed = store.list(&filter, None, 9).await.unwrap().rows;
    assert_eq!(listed.iter().map(|row| (row.key, row.state)).collect::<Vec<_>>(), [(key, paused)]);
    written(store, Append { state: change(paused, running), ..append(key, 4, 4) }).await;
    assert_eq!(store.count().await.unwrap(), [(running, 1)].into());
    assert_eq!(store.list(&filter, None, 9).await.unwrap().rows, []);
}
