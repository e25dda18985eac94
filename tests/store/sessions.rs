//! Sessions, presence and the deliveries that are held.

use crate::{make::*, on_every_store};
use orbit::domain::SessionId;
use orbit::store::{ExecutionKey, HeldRow, NodeRow, Presence, SessionRow, Store};
use std::time::Duration;

on_every_store![
    a_session_is_stored_listed_and_ended,
    a_session_is_taken_back_with_a_new_connection,
    a_session_ends_only_at_the_contact_that_was_judged,
    a_contact_never_moves_back,
    presence_answers_with_the_time_of_every_node,
    held_rows_are_replaced_and_deleted,
    a_beat_is_not_moved_back_and_progress_is_not_taken_back,
    held_rows_are_found_by_session_and_by_execution,
    held_rows_of_ended_sessions_are_found,
    held_rows_that_are_overdue_are_found,
    a_token_is_missing_for_too_long_by_the_timeout_of_its_session,
];

async fn a_session_is_stored_listed_and_ended(store: &dyn Store) {
    for number in [3, 1, 2] {
        store.put_session(&session(number, 100)).await.unwrap();
    }
    assert_eq!(store.session(SessionId(uuid(2))).await.unwrap(), Some(session(2, 100)));
    assert_eq!(store.session(SessionId(uuid(4))).await.unwrap(), None);
    assert_eq!(store.sessions(None, 2).await.unwrap(), [session(1, 100), session(2, 100)]);
    assert_eq!(store.sessions(Some(SessionId(uuid(2))), 2).await.unwrap(), [session(3, 100)]);
    assert!(store.end_session(SessionId(uuid(2)), None).await.unwrap());
    assert!(!store.end_session(SessionId(uuid(2)), None).await.unwrap());
    assert_eq!(store.sessions(None, 10).await.unwrap().len(), 2);
}

async fn a_session_is_taken_back_with_a_new_connection(store: &dyn Store) {
    store.put_session(&session(1, 100)).await.unwrap();
    let announced = SessionRow {
        slots: 4,
        queues: vec![],
        worker_id: "renamed".into(),
        register_time: time(999),
        connection: 77,
        timeout: Some(Duration::from_secs(9)),
        ..session(1, 90)
    };
    let resumed = store.resume_session(&announced).await.unwrap().unwrap();
    // The contact always moves, so that whoever judged the one before ends nothing.
    let expected = SessionRow { contact_time: time(101), register_time: time(10), connection: 2, ..announced.clone() };
    assert_eq!(resumed, expected);
    assert_eq!(store.session(SessionId(uuid(1))).await.unwrap(), Some(expected));
    let later = store.resume_session(&SessionRow { contact_time: time(200), ..announced }).await.unwrap().unwrap();
    assert_eq!((later.contact_time, later.connection), (time(200), 3));
    assert_eq!(store.resume_session(&session(2, 1)).await.unwrap(), None);
    assert_eq!(store.session(SessionId(uuid(2))).await.unwrap(), None);
}

async fn a_session_ends_only_at_the_contact_that_was_judged(store: &dyn Store) {
    store.put_session(&session(1, 100)).await.unwrap();
    assert!(!store.end_session(SessionId(uuid(1)), Some(time(99))).await.unwrap());
    assert!(store.end_session(SessionId(uuid(1)), Some(time(100))).await.unwrap());
    assert_eq!(store.session(SessionId(uuid(1))).await.unwrap(), None);
}

async fn a_contact_never_moves_back(store: &dyn Store) {
    store.put_session(&session(1, 100)).await.unwrap();
    let contact = async |contacts: &[(u128, i64)]| {
        let contacts = contacts.iter().map(|(id, at)| (SessionId(uuid(*id)), time(*at))).collect();
        store.presence(&Presence { contacts, ..Presence::default() }).await.unwrap();
        store.session(SessionId(uuid(1))).await.unwrap().unwrap().contact_time
    };
    assert_eq!(contact(&[(1, 99)]).await, time(100));
    assert_eq!(contact(&[(1, 130), (1, 150), (1, 140), (404, 1)]).await, time(150));
    assert_eq!(store.session(SessionId(uuid(404))).await.unwrap(), None);
}

async fn presence_answers_with_the_time_of_every_node(store: &dyn Store) {
    let node =
        |id, now| Presence { node: Some(NodeRow { id: uuid(id), now: time(now), level: 1 }), ..Presence::default() };
    let nows = async |presence| {
        let nodes = store.presence(&presence).await.unwrap();
        nodes.into_iter().map(|node| (node.id.as_u128(), node.now.as_micros())).collect::<Vec<_>>()
    };
    assert_eq!(nows(Presence::default()).await, []);
    assert_eq!(nows(node(1, 10)).await, [(1, 10)]);
    assert_eq!(nows(node(2, 5)).await, [(1, 10), (2, 5)]);
    assert_eq!(nows(node(1, 7)).await, [(1, 10), (2, 5)]);
    assert_eq!(nows(node(2, 11)).await, [(1, 10), (2, 11)]);
}

async fn put_held(store: &dyn Store, held: Vec<HeldRow>) {
    store.presence(&Presence { held, ..Presence::default() }).await.unwrap();
}

async fn held_rows_are_replaced_and_deleted(store: &dyn Store) {
    put_held(store, vec![held(1, 7, "a", 1), held(1, 7, "a", 2)]).await;
    let newer = HeldRow {
        session: SessionId(uuid(2)),
        missing_since: Some(time(5)),
        beat_time: time(106),
        heartbeat_timeout_micros: Some(7),
        progress: Some(r#"{"done":0.5}"#.into()),
        ..held(1, 7, "a", 1)
    };
    put_held(store, vec![newer.clone()]).await;
    assert_eq!(store.held_by_execution(ExecutionKey(7)).await.unwrap(), [newer.clone(), held(1, 7, "a", 2)]);
    store.delete_held(&[held_key(&newer), (ExecutionKey(1), "gone".into(), 1)]).await.unwrap();
    assert_eq!(store.held_by_execution(ExecutionKey(7)).await.unwrap(), [held(1, 7, "a", 2)]);
    store.delete_held(&[]).await.unwrap();
}

async fn a_beat_is_not_moved_back_and_progress_is_not_taken_back(store: &dyn Store) {
    let beat = |at: i64, progress: Option<&str>| HeldRow {
        beat_time: time(at),
        progress: progress.map(Into::into),
        ..held(1, 7, "a", 1)
    };
    // What several nodes heard comes in any order, and only some of them heard of progress.
    for (told, kept) in [
        (beat(100, Some("1")), beat(100, Some("1"))),
        (beat(140, None), beat(140, Some("1"))),
        (beat(120, Some("2")), beat(140, Some("1"))),
        (beat(150, Some("3")), beat(150, Some("3"))),
        (beat(150, Some("4")), beat(150, Some("4"))),
        (beat(110, None), beat(150, Some("4"))),
    ] {
        put_held(store, vec![told.clone()]).await;
        assert_eq!(store.held_by_execution(ExecutionKey(7)).await.unwrap(), [kept], "after {told:?}");
    }
    put_held(store, vec![HeldRow { unit: "b".into(), ..beat(140, None) }]).await;
    put_held(store, vec![HeldRow { unit: "b".into(), ..beat(130, Some("5")) }]).await;
    let late = HeldRow { unit: "b".into(), ..beat(140, Some("5")) };
    assert_eq!(store.held_by_execution(ExecutionKey(7)).await.unwrap()[1], late, "a beat without progress came first");
}

async fn held_rows_are_found_by_session_and_by_execution(store: &dyn Store) {
    let rows = [held(1, 1, "a", 1), held(1, 1, "b", 1), held(1, 1, "b", 2), held(2, 1, "c", 1), held(1, 2, "a", 1)];
    put_held(store, rows.iter().rev().cloned().collect()).await;
    let first = SessionId(uuid(1));
    assert_eq!(store.held_by_session(first, 10).await.unwrap(), [&rows[..3], &rows[4..]].concat());
    assert_eq!(store.held_by_session(first, 2).await.unwrap(), rows[..2]);
    assert_eq!(store.held_by_execution(ExecutionKey(1)).await.unwrap(), rows[..4]);
    assert_eq!(store.held_by_execution(ExecutionKey(3)).await.unwrap(), []);
}

async fn held_rows_of_ended_sessions_are_found(store: &dyn Store) {
    for number in [1, 2, 3] {
        store.put_session(&session(number, 100)).await.unwrap();
    }
    put_held(
        store,
        vec![held(3, 1, "a", 1), held(1, 2, "a", 1), held(2, 3, "a", 1), held(1, 1, "b", 1), held(9, 5, "z", 1)],
    )
    .await;
    assert_eq!(store.held_without_session(10).await.unwrap(), [held(9, 5, "z", 1)]);
    assert!(store.end_session(SessionId(uuid(1)), None).await.unwrap());
    // The rows stay until each is answered.
    let gone = [held(1, 1, "b", 1), held(1, 2, "a", 1), held(9, 5, "z", 1)];
    assert_eq!(store.held_without_session(10).await.unwrap(), gone);
    assert_eq!(store.held_without_session(2).await.unwrap(), gone[..2]);
}

async fn held_rows_that_are_overdue_are_found(store: &dyn Store) {
    let missing = |unit: &str, since| HeldRow { missing_since: Some(time(since)), ..held(1, 1, unit, 1) };
    let beating = |unit: &str, beat, timeout| HeldRow {
        beat_time: time(beat),
        heartbeat_timeout_micros: Some(timeout),
        ..held(1, 1, unit, 1)
    };
    let both = HeldRow { missing_since: Some(time(1)), ..beating("both", 1, 1) };
    let rows = vec![
        missing("m10", 10),
        missing("m20", 20),
        beating("b30", 10, 20),
        beating("b31", 11, 20),
        held(1, 1, "ok", 1),
        both.clone(),
    ];
    put_held(store, rows).await;
    store.put_session(&SessionRow { timeout: None, ..session(1, 1) }).await.unwrap();
    let found = async |missing_before: i64, now: i64, limit| {
        let timeout = Duration::from_micros(now.abs_diff(missing_before));
        let rows = store.held_overdue(time(now), timeout, limit).await.unwrap();
        rows.iter().map(|row| row.unit.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(found(0, 0, 10).await, [""; 0]);
    assert_eq!(found(11, 30, 10).await, ["b30", "both", "m10"]);
    assert_eq!(found(10, 31, 10).await, ["b30", "b31", "both"]);
    assert_eq!(found(100, 100, 10).await, ["b30", "b31", "both", "m10", "m20"]);
    assert_eq!(found(100, 100, 1).await, ["both"]);
}

async fn a_token_is_missing_for_too_long_by_the_timeout_of_its_session(store: &dyn Store) {
    for (number, timeout) in [(1, Some(30)), (2, Some(3)), (3, None)] {
        let timeout = timeout.map(Duration::from_micros);
        store.put_session(&SessionRow { timeout, ..session(number, 100) }).await.unwrap();
    }
    let missing = |number, unit: &str, since| HeldRow { missing_since: Some(time(since)), ..held(number, 1, unit, 1) };
    // The last one's session is gone.
    put_held(
        store,
        vec![missing(1, "own", 100), missing(2, "short", 101), missing(3, "none", 102), missing(4, "gone", 103)],
    )
    .await;
    let found = async |now| {
        let rows = store.held_overdue(time(now), Duration::from_micros(10), 10).await.unwrap();
        rows.iter().map(|row| row.unit.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(found(104).await, [""; 0]);
    assert_eq!(found(105).await, ["short"]);
    assert_eq!(found(113).await, ["none", "short"]);
    assert_eq!(found(114).await, ["gone", "none", "short"]);
    assert_eq!(found(130).await, ["gone", "none", "short"]);
    assert_eq!(found(131).await, ["gone", "none", "own", "short"]);
    // Taken back, it goes by what it is told now.
    store.resume_session(&SessionRow { timeout: Some(Duration::from_secs(1)), ..session(2, 100) }).await.unwrap();
    assert_eq!(found(131).await, ["gone", "none", "own"]);
}
