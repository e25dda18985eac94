//! What one append writes, and what is found of it.

use crate::{make::*, on_every_store, written};
use orbit::store::{Append, Committed, ExecutionState, Find, ListFilter, Store, WakeChange};

on_every_store![
    a_new_execution_is_found_by_key_id_and_uid,
    an_append_is_found_in_the_history,
    everything_of_an_append_is_written_with_it,
    a_closed_execution_has_its_end_in_its_row,
    a_wake_up_time_is_kept_set_and_cleared,
    an_older_snapshot_does_not_replace_a_newer_one,
    a_snapshot_cuts_what_is_loaded,
    a_ready_row_is_replaced_and_deleted,
    a_start_is_found_by_its_request,
    odd_text_survives,
    a_large_payload_survives_once,
    an_empty_batch_is_answered,
    what_contradicts_itself_fails_alone,
];

async fn a_new_execution_is_found_by_key_id_and_uid(store: &dyn Store) {
    let start = with_request(with_labels(start("order-1", 1), &[("tenant", "a"), ("day", "monday")]), 9);
    let key = written(store, start.clone()).await;
    let orbit::store::Target::New(new) = start.target else { unreachable!() };
    let row = store.execution(&Find::Key(key)).await.unwrap().unwrap();
    assert_eq!(row.key, key);
    assert_eq!((row.uid, &row.id, row.current), (new.uid, &new.id, true));
    assert_eq!((&row.workflow, &row.version, row.definition_hash), (&new.workflow, &new.version, new.definition_hash));
    assert_eq!((row.input_digest, row.request, row.state), (new.input_digest, new.request, new.state));
    assert_eq!((&row.labels, row.start_time, row.close_time), (&new.labels, new.start_time, None));
    assert_eq!((row.wake_time, row.quarantined.clone()), (None, None));
    assert_eq!(store.execution(&Find::Id("order-1".into())).await.unwrap().as_ref(), Some(&row));
    assert_eq!(store.execution(&Find::Uid(new.uid)).await.unwrap(), Some(row));
    assert_eq!(store.execution(&Find::Id("order-2".into())).await.unwrap(), None);
    assert_eq!(store.execution(&Find::Key(orbit::store::ExecutionKey(key.0 + 1))).await.unwrap(), None);
    assert!(store.load(orbit::store::ExecutionKey(key.0 + 1)).await.unwrap().is_none());
}

async fn an_append_is_found_in_the_history(store: &dyn Store) {
    let first = start("a", 1);
    let key = written(store, first.clone()).await;
    let second = Append { run: 2, ..append(key, 3, 7) };
    assert_eq!(written(store, second.clone()).await, key);
    let rows = store.history(key, 0, 10, usize::MAX).await.unwrap();
    let told: Vec<_> =
        rows.iter().map(|row| (row.run, row.first_number, row.last_number, row.batch_id, row.events.clone())).collect();
    assert_eq!(told, [(1, 1, 2, first.batch_id, first.events), (2, 3, 7, second.batch_id, second.events)]);
    assert!(rows.iter().all(|row| row.format == orbit::store::EVENT_FORMAT));
}

async fn everything_of_an_append_is_written_with_it(store: &dyn Store) {
    let begin = Append {
        payloads: vec![payload(1, r#""big""#)],
        ready_added: vec![unit("charge", 3, 50)],
        wake: WakeChange::Set(Some(time(99))),
        snapshot: Some(snapshot(2)),
        ..start("a", 1)
    };
    let key = written(store, begin).await;
    let loaded = store.load(key).await.unwrap().unwrap();
    assert_eq!(loaded.row.wake_time, Some(time(99)));
    assert_eq!(loaded.snapshot, Some(snapshot(2)));
    assert_eq!(loaded.history, []);
    assert_eq!(loaded.payloads, [payload(1, r#""big""#)]);
    assert_eq!(store.due(time(99), 10).await.unwrap(), [(key, time(99))]);
    let ready = store.ready(&pool(), 10).await.unwrap();
    assert_eq!(
        ready.iter().map(|row| (row.execution, row.unit.clone())).collect::<Vec<_>>(),
        [(key, unit("charge", 3, 50))]
    );
    assert_eq!(store.count().await.unwrap(), [(ExecutionState::Running, 1)].into());
}

async fn a_closed_execution_has_its_end_in_its_row(store: &dyn Store) {
    let key = written(store, Append { wake: WakeChange::Set(Some(time(5))), ..start("a", 1) }).await;
    written(store, ending(key, 3, ExecutionState::Failed, 77)).await;
    let row = store.execution(&Find::Key(key)).await.unwrap().unwrap();
    assert_eq!((row.state, row.close_time, row.wake_time), (ExecutionState::Failed, Some(time(77)), None));
    assert_eq!(store.count().await.unwrap(), [(ExecutionState::Failed, 1)].into());
    assert_eq!(store.due(time(i64::MAX), 10).await.unwrap(), []);

    let born_closed = with_row(start("b", 2), |row| {
        row.state = ExecutionState::Succeeded;
        row.close_time = Some(time(78));
    });
    let key = written(store, born_closed).await;
    let row = store.execution(&Find::Key(key)).await.unwrap().unwrap();
    assert_eq!((row.state, row.close_time), (ExecutionState::Succeeded, Some(time(78))));
    assert_eq!(store.count().await.unwrap(), [(ExecutionState::Succeeded, 1), (ExecutionState::Failed, 1)].into());
}

async fn a_wake_up_time_is_kept_set_and_cleared(store: &dyn Store) {
    let key = written(store, Append { wake: WakeChange::Set(Some(time(10))), ..start("a", 1) }).await;
    written(store, append(key, 3, 3)).await;
    assert_eq!(store.due(time(10), 10).await.unwrap(), [(key, time(10))]);
    assert_eq!(store.due(time(9), 10).await.unwrap(), []);
    written(store, Append { wake: WakeChange::Set(Some(time(4))), ..append(key, 4, 4) }).await;
    assert_eq!(store.due(time(10), 10).await.unwrap(), [(key, time(4))]);
    written(store, Append { wake: WakeChange::Set(None), ..append(key, 5, 5) }).await;
    assert_eq!(store.due(time(10), 10).await.unwrap(), []);
}

async fn an_older_snapshot_does_not_replace_a_newer_one(store: &dyn Store) {
    let key = written(store, Append { snapshot: Some(snapshot(2)), ..start("a", 1) }).await;
    written(store, Append { snapshot: Some(snapshot(1)), ..append(key, 3, 3) }).await;
    assert_eq!(store.load(key).await.unwrap().unwrap().snapshot, Some(snapshot(2)));
    written(store, Append { snapshot: Some(snapshot(4)), ..append(key, 4, 4) }).await;
    assert_eq!(store.load(key).await.unwrap().unwrap().snapshot, Some(snapshot(4)));
}

async fn a_snapshot_cuts_what_is_loaded(store: &dyn Store) {
    let key = written(store, start("a", 1)).await;
    written(store, append(key, 3, 5)).await;
    // Made of the state after event 4, in the middle of a row, which must then come whole.
    written(store, Append { snapshot: Some(snapshot(4)), ..append(key, 6, 6) }).await;
    let loaded = store.load(key).await.unwrap().unwrap();
    assert_eq!(loaded.snapshot, Some(snapshot(4)));
    assert_eq!(loaded.history.iter().map(|row| row.first_number).collect::<Vec<_>>(), [3, 6]);
}

async fn a_ready_row_is_replaced_and_deleted(store: &dyn Store) {
    let key = written(store, Append { ready_added: vec![unit("a", 3, 1), unit("b", 3, 2)], ..start("a", 1) }).await;
    let change = Append {
        ready_removed: vec!["a".into(), "gone".into()],
        ready_added: vec![unit("b", 1, 3)],
        ..append(key, 3, 3)
    };
    written(store, change).await;
    let units = async || store.ready(&pool(), 10).await.unwrap().into_iter().map(|row| row.unit).collect::<Vec<_>>();
    assert_eq!(units().await, [unit("b", 1, 3)]);
    // Removed first and then added: a unit that is in both waits.
    written(store, Append { ready_removed: vec!["b".into()], ready_added: vec![unit("b", 2, 4)], ..append(key, 4, 4) })
        .await;
    assert_eq!(units().await, [unit("b", 2, 4)]);
}

async fn a_start_is_found_by_its_request(store: &dyn Store) {
    let key = written(store, with_request(start("a", 1), 5)).await;
    written(store, start("b", 2)).await;
    let found = store.execution_by_request("a", [5; 16]).await.unwrap().unwrap();
    assert_eq!((found.key, found.request.unwrap().content), (key, [4; 16]));
    assert_eq!(store.execution_by_request("b", [5; 16]).await.unwrap(), None);
    assert_eq!(store.execution_by_request("a", [6; 16]).await.unwrap(), None);
}

async fn odd_text_survives(store: &dyn Store) {
    let odd = ["\u{fffd}\u{10ffff}", "עברית ← 🦀", "quote ' \" \\ $1 ?", " ", ""];
    for (number, text) in odd.iter().enumerate() {
        let begin = with_row(with_labels(start(&format!("id {text}"), number as u128 + 1), &[("odd", text)]), |row| {
            row.workflow = (*text).into();
        });
        let begin = Append {
            payloads: vec![payload(1, text)],
            ready_added: vec![orbit::store::ReadyUnit { unit: (*text).into(), ..unit("", 1, 1) }],
            ..begin
        };
        let key = written(store, begin).await;
        let loaded = store.load(key).await.unwrap().unwrap();
        assert_eq!((&*loaded.row.id, &*loaded.row.workflow), (&*format!("id {text}"), *text));
        assert_eq!(loaded.row.labels["odd"], *text);
        assert_eq!(loaded.payloads, [payload(1, text)]);
        let filter = ListFilter { labels: vec![("odd".into(), (*text).into())], ..Default::default() };
        assert_eq!(store.list(&filter, None, 10).await.unwrap().rows, std::slice::from_ref(&loaded.row));
        let waiting = store.ready(&pool(), 100).await.unwrap();
        assert!(waiting.iter().any(|row| row.execution == key && *row.unit.unit == **text));
        assert_eq!(store.execution(&Find::Id(loaded.row.id.clone())).await.unwrap(), Some(loaded.row));
    }
}

async fn a_large_payload_survives_once(store: &dyn Store) {
    let json = format!("\"{}\"", "x".repeat(2 << 20));
    let key = written(store, Append { payloads: vec![payload(1, &json), payload(2, "2")], ..start("a", 1) }).await;
    written(store, Append { payloads: vec![payload(1, &json)], ..append(key, 3, 3) }).await;
    // The same payload again in another run is kept under it.
    written(store, Append { run: 2, payloads: vec![payload(1, &json)], ..append(key, 4, 4) }).await;
    assert_eq!(store.load(key).await.unwrap().unwrap().payloads, [payload(1, &json), payload(2, "2")]);
    assert_eq!(store.payloads(key, &[[2; 32], [9; 32], [2; 32]]).await.unwrap(), [payload(2, "2")]);
    assert_eq!(store.payloads(key, &[[2; 32], [1; 32]]).await.unwrap(), [payload(1, &json), payload(2, "2")]);
    assert_eq!(store.payloads(key, &[]).await.unwrap(), []);
}

async fn an_empty_batch_is_answered(store: &dyn Store) {
    assert_eq!(store.commit(Vec::new()).await.unwrap(), []);
}

async fn what_contradicts_itself_fails_alone(store: &dyn Store) {
    let key = written(store, start("a", 1)).await;
    let batch = vec![
        with_row(start("b", 2), |row| row.close_time = Some(time(1))),
        Append { first_number: 2, ..start("c", 3) },
        append(key, 5, 4),
        start("d", 4),
        Append { ready_added: vec![unit("u", 6, 1)], ..start("e", 5) },
        append(key, 0, 0),
        start("nul \0 inside", 6),
        with_labels(start("f", 7), &[("odd", "\0")]),
        Append { payloads: vec![payload(1, "\"\0\"")], ..start("g", 8) },
    ];
    let outcomes = store.commit(batch).await.unwrap();
    let fails: Vec<bool> = outcomes.iter().map(|outcome| matches!(outcome, Committed::Failed { .. })).collect();
    assert_eq!(fails, [true, true, true, false, true, true, true, true, true]);
    assert!(matches!(outcomes[3], Committed::Written(_)));
    for id in ["b", "c", "e", "f", "g"] {
        assert_eq!(store.execution(&Find::Id(id.into())).await.unwrap(), None);
    }
    let nul = vec![("odd".to_owned(), "\0".to_owned())];
    assert_eq!(store.list(&ListFilter { labels: nul, ..ListFilter::default() }, None, 10).await.unwrap().rows, []);
    assert_eq!(store.history(key, 0, 10, usize::MAX).await.unwrap().len(), 1);
    assert_eq!(store.count().await.unwrap(), [(ExecutionState::Running, 2)].into());
}
