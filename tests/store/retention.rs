//! What is let go of: executions whose deletion has begun, and runs that ended.

use crate::{make::*, on_every_store, written};
use orbit::domain::{RequestKey, SessionId, Uid};
use orbit::store::{
    Append, Committed, Deletion, ExecutionKey, ExecutionState, Find, ListFilter, Presence, RunRow, Store, WakeChange,
};

on_every_store![
    what_is_being_deleted_is_not_found_any_more,
    an_id_is_free_as_soon_as_the_deletion_has_begun,
    a_deletion_is_found_by_its_request,
    rows_are_removed_in_portions_the_execution_s_own_last,
    only_what_is_being_deleted_is_removed,
    what_was_closed_before_a_time_is_found_in_order,
    a_run_that_begins_is_where_reading_begins,
    the_floor_stands_just_before_a_run,
    a_run_that_was_trimmed_is_gone_with_its_payloads,
    events_up_to_the_floor_are_never_written_again,
    runs_are_found_by_when_they_began,
];

async fn outcome(store: &dyn Store, append: Append) -> Committed {
    store.commit(vec![append]).await.unwrap().remove(0)
}

async fn removed(store: &dyn Store, key: ExecutionKey, limit: usize, with_row: bool) -> bool {
    store.delete_rows(&[(key, with_row)], limit).await.unwrap()[0]
}

/// What begins the deletion of an execution that [`closed`] made.
pub(crate) fn deletion(key: ExecutionKey, first_number: u64, at: i64, request: Option<RequestKey>) -> Append {
    let deletion = Deletion {
        time: time(at),
        request,
        state: ExecutionState::Succeeded,
        labels: [("tenant".to_owned(), "a".to_owned())].into(),
        start_time: time(1_000_000),
    };
    Append {
        wake: WakeChange::Set(None),
        deletion: Some(Box::new(deletion)),
        ..append(key, first_number, first_number)
    }
}

/// An execution that is closed, with a row in every table that has any of an execution.
pub(crate) async fn closed(store: &dyn Store, id: &str, number: u128) -> ExecutionKey {
    let begin = Append { payloads: vec![payload(1, "1")], ..with_labels(start(id, number), &[("tenant", "a")]) };
    let key = written(store, with_request(begin, 7)).await;
    written(store, Append { snapshot: Some(snapshot(3)), ..append(key, 3, 3) }).await;
    let run = Append { run: 2, begins_run: Some(time(40)), payloads: vec![payload(2, "2")], ..append(key, 4, 5) };
    written(store, run).await;
    written(store, Append { run: 2, ..ending(key, 6, ExecutionState::Succeeded, 50) }).await;
    let held = vec![held(9, key.0, "u", 1), held(9, key.0, "u", 2), held(9, key.0, "v", 1)];
    store.presence(&Presence { held, ..Presence::default() }).await.unwrap();
    key
}

async fn what_is_being_deleted_is_not_found_any_more(store: &dyn Store) {
    let key = closed(store, "a", 1).await;
    let other = written(store, with_labels(start("b", 2), &[("tenant", "a")])).await;
    written(store, deletion(key, 7, 60, None)).await;
    for find in [Find::Key(key), Find::Id("a".into()), Find::Uid(Uid(uuid(1)))] {
        assert_eq!(store.execution(&find).await.unwrap(), None, "{find:?}");
    }
    assert!(store.load(key).await.unwrap().is_none());
    assert!(store.load_tail(key, 3).await.unwrap().is_none());
    assert_eq!(store.newest_numbers(&[key, other]).await.unwrap(), [None, Some(2)]);
    assert_eq!(store.history(key, 0, 9, usize::MAX).await.unwrap(), []);
    assert_eq!(store.count().await.unwrap(), [(ExecutionState::Running, 1)].into());
    let with_label = ListFilter { labels: vec![("tenant".into(), "a".into())], ..ListFilter::default() };
    let of_workflow = ListFilter { workflow: Some("order".into()), ..ListFilter::default() };
    let in_state = ListFilter { states: vec![ExecutionState::Succeeded], ..ListFilter::default() };
    for (filter, found) in [(ListFilter::default(), 1), (with_label, 1), (of_workflow, 1), (in_state, 0)] {
        let rows = store.list(&filter, None, 9).await.unwrap().rows;
        assert_eq!(rows.len(), found, "{filter:?}");
        assert!(rows.iter().all(|row| row.key == other));
    }
    // The fence holds: a report that comes late is a conflict, and its turn finds nothing.
    assert_eq!(outcome(store, append(key, 7, 7)).await, Committed::Conflict);
}

async fn an_id_is_free_as_soon_as_the_deletion_has_begun(store: &dyn Store) {
    let key = closed(store, "a", 1).await;
    let begin = deletion(key, 7, 60, None);
    written(store, begin.clone()).await;
    let new = written(store, start("a", 2)).await;
    assert_eq!(outcome(store, begin).await, Committed::Written(key), "the same again");
    assert_eq!(store.execution(&Find::Id("a".into())).await.unwrap().unwrap().key, new);
    assert!(removed(store, key, 100, true).await);
    assert_eq!(store.execution(&Find::Id("a".into())).await.unwrap().unwrap().key, new);
    assert_eq!(store.load(new).await.unwrap().unwrap().history.len(), 1);
}

async fn a_deletion_is_found_by_its_request(store: &dyn Store) {
    let key = closed(store, "a", 1).await;
    let request = RequestKey { key: [3; 16], content: [4; 16] };
    written(store, deletion(key, 7, 60, Some(request))).await;
    let found = store.execution_by_request("a", [3; 16]).await.unwrap().unwrap();
    assert_eq!((found.key, found.request, found.delete_time), (key, Some(request), Some(time(60))));
    assert_eq!(store.execution_by_request("a", [7; 16]).await.unwrap(), None, "the start is forgotten");
    let listed = store.deleted(None, 9).await.unwrap();
    assert_eq!(
        listed.iter().map(|row| (row.delete_time, row.key, row.has_request)).collect::<Vec<_>>(),
        [(time(60), key, true)]
    );
    // Its row stays as long as it is wanted, though nothing else does.
    assert!(removed(store, key, 100, false).await);
    assert!(store.execution_by_request("a", [3; 16]).await.unwrap().is_some());
    assert!(removed(store, key, 100, true).await);
    assert_eq!(store.execution_by_request("a", [3; 16]).await.unwrap(), None);
    assert_eq!(store.deleted(None, 9).await.unwrap(), []);
}

async fn rows_are_removed_in_portions_the_execution_s_own_last(store: &dyn Store) {
    let key = closed(store, "a", 1).await;
    let kept = closed(store, "b", 2).await;
    written(store, deletion(key, 7, 60, None)).await;
    let mut portions = 0;
    while !removed(store, key, 2, true).await {
        portions += 1;
        assert!(portions < 20, "it comes to an end");
        assert_eq!(store.deleted(None, 9).await.unwrap().len(), 1, "its own row is there until the end");
        assert_eq!(outcome(store, append(key, 7, 7)).await, Committed::Conflict, "and nothing can be added");
    }
    assert!(portions > 1);
    assert_eq!(store.deleted(None, 9).await.unwrap(), []);
    assert_eq!(store.held_by_execution(key).await.unwrap(), []);
    assert_eq!(store.payloads(key, &[[1; 32], [2; 32]]).await.unwrap(), []);
    assert!(removed(store, key, 2, true).await, "again, with nothing to do");

    let loaded = store.load(kept).await.unwrap().unwrap();
    assert_eq!(loaded.history.len(), 2);
    assert_eq!(store.held_by_session(SessionId(uuid(9)), 99).await.unwrap().len(), 3);
    // A key is never used again.
    assert!(written(store, start("c", 3)).await > kept);
}

async fn only_what_is_being_deleted_is_removed(store: &dyn Store) {
    let key = closed(store, "a", 1).await;
    assert!(removed(store, key, 100, true).await);
    assert!(removed(store, ExecutionKey(404), 100, true).await);
    assert_eq!(store.history(key, 0, 9, usize::MAX).await.unwrap().len(), 4);
    let open = written(store, start("b", 2)).await;
    let mut of_open = deletion(open, 3, 60, None);
    of_open.deletion.as_mut().unwrap().state = ExecutionState::Running;
    assert!(matches!(outcome(store, of_open).await, Committed::Failed { .. }));
}

async fn what_was_closed_before_a_time_is_found_in_order(store: &dyn Store) {
    let mut keys = Vec::new();
    for (number, close_time) in [(1_u128, 30), (2, 10), (3, 20), (4, 20), (5, 40)] {
        let key = written(store, start(&format!("e{number}"), number)).await;
        written(store, ending(key, 3, ExecutionState::Failed, close_time)).await;
        keys.push(key);
    }
    written(store, start("open", 9)).await;
    let (a, b, c, d) = (keys[1], keys[2], keys[3], keys[0]);
    assert_eq!(
        store.closed_before(time(40), None, 9).await.unwrap(),
        [(time(10), a), (time(20), b), (time(20), c), (time(30), d)]
    );
    let first = store.closed_before(time(40), None, 2).await.unwrap();
    let rest = store.closed_before(time(40), first.last().copied(), 9).await.unwrap();
    assert_eq!(rest, [(time(20), c), (time(30), d)]);
    store.quarantine(c, "damaged").await.unwrap();
    let mut begin = deletion(a, 4, 60, None);
    begin.deletion.as_mut().unwrap().state = ExecutionState::Failed;
    written(store, begin).await;
    assert_eq!(store.closed_before(time(40), None, 9).await.unwrap(), [(time(20), b), (time(30), d)]);
}

async fn a_run_that_begins_is_where_reading_begins(store: &dyn Store) {
    let key = written(store, Append { payloads: vec![payload(1, "1")], ..start("a", 1) }).await;
    written(store, Append { snapshot: Some(snapshot(4)), ..append(key, 3, 5) }).await;
    let begin = Append { run: 2, begins_run: Some(time(30)), payloads: vec![payload(2, "2")], ..append(key, 6, 7) };
    written(store, begin.clone()).await;
    written(store, Append { run: 2, ..append(key, 8, 8) }).await;
    let loaded = store.load(key).await.unwrap().unwrap();
    assert_eq!((loaded.row.run, &loaded.snapshot), (2, &None));
    assert_eq!(loaded.history.iter().map(|row| (row.run, row.first_number)).collect::<Vec<_>>(), [(2, 6), (2, 8)]);
    assert_eq!(loaded.payloads, [payload(2, "2")]);
    let firsts = async |after| {
        let tail = store.load_tail(key, after).await.unwrap().unwrap();
        tail.history.iter().map(|row| row.first_number).collect::<Vec<_>>()
    };
    assert_eq!(firsts(2).await, [6, 8], "no more than the newest run");
    assert_eq!(firsts(6).await, [6, 8], "a row comes whole");
    assert_eq!(firsts(7).await, [8]);
    // All can be read until it is trimmed.
    assert_eq!(store.history(key, 0, 9, usize::MAX).await.unwrap().len(), 4);
    assert_eq!(store.list(&ListFilter::default(), None, 9).await.unwrap().rows[0].run, 2);
    written(store, Append { run: 2, snapshot: Some(snapshot(8)), ..append(key, 9, 9) }).await;
    let loaded = store.load(key).await.unwrap().unwrap();
    assert_eq!((loaded.snapshot, loaded.history.len()), (Some(snapshot(8)), 1));
    assert_eq!(outcome(store, begin).await, Committed::Written(key), "the same again");
    let first_again = Append { begins_run: Some(time(1)), ..append(key, 10, 10) };
    assert!(matches!(outcome(store, first_again).await, Committed::Failed { .. }));
}

/// An execution of three runs, which begin with the events 1, 4 and 7.
async fn of_three_runs(store: &dyn Store) -> ExecutionKey {
    let key = written(store, Append { payloads: vec![payload(1, "1")], ..start("a", 1) }).await;
    written(store, Append { snapshot: Some(snapshot(3)), ..append(key, 3, 3) }).await;
    for (run, first) in [(2, 4), (3, 7)] {
        let payloads = vec![payload(1, "1"), payload(run as u8, "2")];
        let begins_run = Some(time(10 * i64::from(run)));
        written(store, Append { run, payloads, begins_run, ..append(key, first, first) }).await;
        written(store, Append { run, ..append(key, first + 1, first + 2) }).await;
    }
    key
}

async fn the_floor_stands_just_before_a_run(store: &dyn Store) {
    let key = of_three_runs(store).await;
    for number in [0, 1, 2, 4, 5, 7, 9, 10, u64::MAX] {
        let is_there = number == 0;
        assert_eq!(store.raise_floor(key, number).await.unwrap(), is_there, "{number}");
    }
    assert!(store.raise_floor(key, 6).await.unwrap());
    assert!(store.raise_floor(key, 3).await.unwrap(), "it is higher already");
    assert!(!store.raise_floor(ExecutionKey(404), 3).await.unwrap());
    // Nothing is gone yet, and a load begins where it did.
    assert_eq!(store.history(key, 0, 9, usize::MAX).await.unwrap().len(), 6);
    assert_eq!(store.load(key).await.unwrap().unwrap().history.len(), 2);
}

async fn a_run_that_was_trimmed_is_gone_with_its_payloads(store: &dyn Store) {
    let key = of_three_runs(store).await;
    assert!(store.delete_trimmed(key, 3, 9).await.unwrap());
    assert_eq!(store.history(key, 0, 9, usize::MAX).await.unwrap().len(), 6, "the floor is not there yet");
    assert!(store.raise_floor(key, 6).await.unwrap());
    let mut portions = 0;
    while !store.delete_trimmed(key, 6, 2).await.unwrap() {
        portions += 1;
        assert!(portions < 20, "it comes to an end");
    }
    let numbers: Vec<u64> =
        store.history(key, 0, 9, usize::MAX).await.unwrap().iter().map(|row| row.first_number).collect();
    assert_eq!(numbers, [7, 8]);
    let loaded = store.load(key).await.unwrap().unwrap();
    assert_eq!((loaded.snapshot, loaded.history.len()), (None, 2));
    assert_eq!(loaded.payloads, [payload(1, "1"), payload(3, "2")]);
    assert_eq!(store.payloads(key, &[[2; 32]]).await.unwrap(), [], "what was not carried over is gone");
    assert_eq!(store.newest_numbers(&[key]).await.unwrap(), [Some(9)]);
    assert_eq!(store.runs_begun_before(time(i64::MAX), None, 9).await.unwrap(), []);
    written(store, Append { run: 3, ..append(key, 10, 10) }).await;
    written(store, Append { run: 4, begins_run: Some(time(50)), ..append(key, 11, 11) }).await;
    assert_eq!(store.load(key).await.unwrap().unwrap().history.len(), 1);
}

async fn events_up_to_the_floor_are_never_written_again(store: &dyn Store) {
    let key = of_three_runs(store).await;
    assert!(store.raise_floor(key, 6).await.unwrap());
    assert!(store.delete_trimmed(key, 6, 9).await.unwrap());
    for stale in [1, 3, 4, 6, 7, 8, 11] {
        assert_eq!(outcome(store, append(key, stale, stale)).await, Committed::Conflict, "{stale}");
    }
    assert_eq!(outcome(store, append(key, 10, 10)).await, Committed::Written(key));
}

async fn runs_are_found_by_when_they_began(store: &dyn Store) {
    let key = of_three_runs(store).await;
    let row = |run, first_number| RunRow { start_time: time(10 * i64::from(run)), execution: key, run, first_number };
    let (second, third) = (row(2, 4), row(3, 7));
    assert_eq!(store.runs_begun_before(time(31), None, 9).await.unwrap(), [second, third]);
    assert_eq!(store.runs_begun_before(time(30), None, 9).await.unwrap(), [second]);
    assert_eq!(store.runs_begun_before(time(31), None, 1).await.unwrap(), [second]);
    assert_eq!(store.runs_begun_before(time(31), Some(second), 9).await.unwrap(), [third]);
}

/// Tables that have rows of an execution, by the schema, and how many each has of one.
type Counts = std::collections::BTreeMap<String, i64>;

/// Begins to delete the second of two executions that have rows everywhere, and removes it; `count` counts its rows by table.
async fn nothing_is_left(store: &dyn Store, count: impl AsyncFn(ExecutionKey) -> Counts) {
    let kept = closed(store, "kept", 1).await;
    let key = closed(store, "gone", 2).await;
    // Only what is open waits for a worker; but a table that is forgotten must not go unnoticed.
    written(store, Append { run: 2, ready_added: vec![unit("u", 3, 1)], ..append(key, 7, 7) }).await;
    let before = count(key).await;
    assert!(before.values().all(|rows| *rows > 0), "this test must fill every table: {before:?}");
    let of_kept = count(kept).await;
    written(store, deletion(key, 8, 60, None)).await;
    while !removed(store, key, 1, true).await {}
    assert!(count(key).await.values().all(|rows| *rows == 0), "{:?}", count(key).await);
    assert_eq!(count(kept).await, of_kept);
}

const EXECUTION: &str = "executions";

#[tokio::test]
async fn of_what_was_deleted_no_table_of_sqlite_has_a_row() {
    let temporary = crate::temporary().await;
    let path = temporary.path();
    let connect = async || {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path);
        sqlx::ConnectOptions::connect(&options).await.unwrap()
    };
    nothing_is_left(&temporary.store, async |key| {
        let mut connection: sqlx::SqliteConnection = connect().await;
        let tables = "SELECT t.name FROM sqlite_schema AS t JOIN pragma_table_info(t.name) AS c ON c.name = 'execution_key' \
                      WHERE t.type = 'table'";
        let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut connection).await.unwrap();
        let mut counts = Counts::new();
        for table in tables.iter().map(String::as_str).chain([EXECUTION]) {
            let column = if table == EXECUTION { "key" } else { "execution_key" };
            let sql = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table} WHERE {column} = {}", key.0));
            counts.insert(table.to_owned(), sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap());
        }
        counts
    })
    .await;
}

#[tokio::test]
async fn of_what_was_deleted_no_table_of_postgres_has_a_row() {
    let on_postgres = crate::OnPostgres::new().await;
    nothing_is_left(&on_postgres.store, async |key| {
        let mut connection = on_postgres.foreign().await;
        let tables = "SELECT table_name::text FROM information_schema.columns \
                      WHERE column_name = 'execution_key' AND table_schema = current_schema()";
        let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut connection).await.unwrap();
        let mut counts = Counts::new();
        for table in tables.iter().map(String::as_str).chain([EXECUTION]) {
            let column = if table == EXECUTION { "key" } else { "execution_key" };
            let sql = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table} WHERE {column} = {}", key.0));
            counts.insert(table.to_owned(), sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap());
        }
        counts
    })
    .await;
}
