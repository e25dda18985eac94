//! Whether the queries that run in loops use the index that they count on; and faults that only the inside can make.

use super::{connection::Writer, open};
use crate::domain::Timestamp;
use crate::store::{
    Error, ExecutionKey, ExecutionState, Find, ListCursor, ListFilter, Presence, SqliteStore, Store as _,
    sql::{Connection as _, Dialect, Rows, Values, batches, list, list::Walk, retention, schedules, text as sql},
    sqlite::{Options, commit},
};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Row as _, sqlite::SqliteConnectOptions};

/// The steps of a statement's plan, in one text.
async fn plan(store: &SqliteStore, sql: &str) -> String {
    let mut connection = SqliteConnectOptions::new().filename(&store.path).connect().await.unwrap();
    let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
    let steps = sqlx::query(explain).fetch_all(&mut connection).await.unwrap();
    steps.iter().map(|step| step.get::<String, _>(3)).collect::<Vec<_>>().join("\n")
}

async fn store() -> (SqliteStore, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    (SqliteStore::open(&directory.path().join("orbit.db"), Options::default()).await.unwrap(), directory)
}

#[tokio::test]
async fn each_query_that_loops_uses_its_index() {
    let (store, _directory) = store().await;
    for (sql, index) in [
        (sql::EXECUTION_BY_ID, "executions_current_id"),
        (sql::EXECUTION_BY_REQUEST, "executions_request"),
        (sql::DUE, "executions_wake"),
        (sql::READY, "ready_pool"),
        (sql::HELD_BY_SESSION, "held_session"),
        (sql::HELD_BY_EXECUTION, "PRIMARY KEY (execution_key=?)"),
        (sql::HELD_MISSING, "held_missing"),
        (sql::HELD_OVERDUE, "held_beat"),
        (retention::CLOSED, "executions_close"),
        (retention::DELETED, "executions_delete"),
        (retention::RUNS, "runs_start"),
        (batches::BATCHES, "batches_create"),
        (batches::BATCHES_FIRST, "batches_create"),
        (schedules::ALL, "schedules_id"),
        (schedules::OF_STATE, "schedules_state"),
        (schedules::OF_WORKFLOW, "schedules_workflow"),
        (schedules::DUE, "schedules_next"),
        (schedules::DUE_AFTER, "schedules_next"),
        (schedules::NEXT, "schedules_next"),
        (schedules::OPEN, "executions_schedule"),
        (schedules::LEDGER, "PRIMARY KEY (schedule_key=?"),
        (schedules::LEDGER_AFTER, "PRIMARY KEY (schedule_key=?"),
        (sql::DEFINITION_BY_HASH, "definitions_hash"),
        (sql::DEFINITION_LATEST, "definitions_order"),
        (sql::CONTRACT_VERSIONS, "PRIMARY KEY (namespace=? AND task_name=?)"),
    ] {
        let plan = plan(&store, sql).await;
        assert!(plan.contains(index), "{sql}\n{plan}");
        assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{sql}\n{plan}");
    }
    // Passes over the sizes of the rows that it found, and over nothing else.
    let plan = self::plan(&store, sql::HISTORY).await;
    assert!(
        plan.contains("SEARCH h USING INDEX history_fence (execution_key=? AND first_seq>? AND first_seq<?)"),
        "{plan}"
    );
    assert!(!["SCAN h", "SCAN f", "TEMP B-TREE"].iter().any(|step| plan.contains(step)), "{plan}");
    for load in [sql::LOAD, sql::LOAD_TAIL] {
        let plan = self::plan(&store, load).await;
        assert!(plan.contains("SEARCH h USING INDEX history_fence (execution_key=? AND first_seq>?)"), "{plan}");
        assert!(plan.contains("SEARCH r USING PRIMARY KEY (execution_key=?)"), "{plan}");
        // The number at which the newest run begins is a table of one row.
        let plan = plan.replace("SCAN CONSTANT ROW", "").replace("SCAN b", "");
        assert!(!plan.contains("SCAN"), "{plan}");
    }
    for delete in [
        retention::DELETE_HISTORY,
        retention::DELETE_PAYLOADS,
        retention::DELETE_RUNS,
        retention::DELETE_HELD,
        retention::DELETE_READY,
        batches::DELETE,
        schedules::DELETE_SLOTS,
        schedules::DELETE_SCHEDULES,
        schedules::DELETE_REQUESTS,
    ] {
        let plan = self::plan(&store, delete).await;
        // The portion that goes is found first.
        let plan = plan.replace("SCAN d", "");
        assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{delete}\n{plan}");
    }
    // Walks over an index that has those alone which run.
    assert_eq!(self::plan(&store, batches::RUNNING).await, "SCAN batches USING INDEX batches_running");
    // The end of the table, backwards.
    assert_eq!(self::plan(&store, commit::NEWEST_HISTORY).await, "SCAN history");
    // Walks over sessions, not over held rows.
    let plan = self::plan(&store, sql::HELD_WITHOUT_SESSION).await;
    assert!(plan.contains("SEARCH h USING INDEX held_session (session=?)") && !plan.contains("SCAN h\n"), "{plan}");
}

#[tokio::test]
async fn a_list_walks_the_index_of_its_filter() {
    let (store, _directory) = store().await;
    let labels = vec![("tenant".to_owned(), "a".to_owned()), ("day".to_owned(), "1".to_owned())];
    let states = |states: &[ExecutionState]| ListFilter { states: states.to_vec(), ..ListFilter::default() };
    let workflow = Some("order".into());
    let open = [ExecutionState::Running, ExecutionState::WindingDown];
    let filters = [
        (ListFilter::default(), "executions_start"),
        (states(&ExecutionState::ALL), "executions_start"),
        (states(&open), "executions_state"),
        (ListFilter { workflow: workflow.clone(), ..ListFilter::default() }, "executions_workflow"),
        (ListFilter { workflow: workflow.clone(), ..states(&open) }, "executions_workflow_state"),
    ];
    for (filter, index) in filters {
        for labels in [&labels[..0], &labels[..1], &labels] {
            let labels = labels.to_vec();
            let filter = ListFilter { labels, start_from: Some(Timestamp::default()), ..filter.clone() };
            check_plans(&store, &filter, index).await;
        }
    }
}

/// Looks at each way to a list whose conditions on rows have this index.
async fn check_plans(store: &SqliteStore, filter: &ListFilter, index: &str) {
    let cursor = |key| Some(ListCursor { start_time: Timestamp::default(), key: ExecutionKey(key) });
    let of_rows = [format!("SEARCH e USING INDEX {index} ("), format!("SEARCH e USING COVERING INDEX {index} (")];
    let of_label = "SEARCH l USING PRIMARY KEY (namespace=? AND key=? AND value=? AND start_time>";
    for (after, end) in [(None, None), (cursor(9), None), (None, cursor(1)), (cursor(9), cursor(1))] {
        let search = list::Search::new(Dialect::Sqlite, filter, after);
        let walks = search.walks();
        let mut texts = Vec::new();
        if walks.len() > 1 {
            let steps = if walks.contains(&Walk::Rows) { vec![of_label, &of_rows[1]] } else { vec![of_label] };
            texts.push((search.reach(&walks).0, steps, false));
        }
        for walk in &walks {
            let (text, _) = search.page(*walk, end, 10);
            // The pages that a label has in each state are put in order to be merged.
            let is_sorted = *walk != Walk::Rows && filter.states.len() > 1;
            texts.push((text, vec![if *walk == Walk::Rows { &of_rows[0] } else { of_label }], is_sorted));
        }
        for (text, steps, is_sorted) in texts {
            let mut plan = plan(store, &text).await;
            assert!(steps.iter().all(|step| plan.contains(step)), "{filter:?}\n{text}\n{plan}");
            plan = plan.replace("SCAN found", "").replace("SCAN p", "");
            if is_sorted {
                plan = plan.replace("TEMP B-TREE FOR ORDER BY", "");
            }
            assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{filter:?}\n{text}\n{plan}");
            let lookups = plan.lines().filter(|step| step.contains("SEARCH o") || step.contains("SEARCH s"));
            for lookup in lookups {
                let is_of_labels = lookup.ends_with(
                    "o USING PRIMARY KEY (namespace=? AND key=? AND value=? AND start_time=? AND execution_key=?)",
                );
                assert!(
                    is_of_labels || lookup.contains(&format!("s USING COVERING INDEX {index} (")),
                    "{text}\n{plan}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_statement_over_many_rows_scans_nothing_but_its_list() {
    let (store, _directory) = store().await;
    let statements: Vec<&Rows> = commit::statements().into_iter().chain(sql::statements_over_many()).collect();
    for statement in statements {
        let plan = plan(&store, statement.with_values(32).as_str()).await;
        for scan in plan.lines().filter(|step| step.starts_with("SCAN")) {
            let is_the_list = ["SCAN v", "SCAN 32 CONSTANT ROWS", "SCAN 32-ROW VALUES CLAUSE"].contains(&scan);
            assert!(is_the_list, "{}\n{plan}", statement.with_values(1).as_str());
        }
        assert!(!plan.contains("AUTOMATIC"), "{}\n{plan}", statement.with_values(1).as_str());
    }
}

#[tokio::test]
async fn a_full_disk_is_unavailable_and_then_works_again() {
    let (store, _directory) = store().await;
    limit_pages(&mut *store.writer.lock().await, "PRAGMA max_page_count = 40").await;
    let start = |number: u128| crate::store::Append {
        target: crate::store::Target::New(Box::new(crate::store::NewExecution {
            uid: crate::domain::Uid(uuid::Uuid::from_u128(number)),
            id: format!("e{number}").into(),
            workflow: "order".into(),
            version: "1.0.0".into(),
            definition_hash: [0; 32],
            input_digest: [0; 16],
            request: None,
            start_time: Timestamp::default(),
            state: ExecutionState::Running,
            close_time: None,
            labels: [].into(),
            schedule: None,
        })),
        run: 1,
        first_number: 1,
        last_number: 1,
        batch_id: uuid::Uuid::from_u128(number),
        events: vec![1; 100_000].into(),
        payloads: Vec::new(),
        ready_added: Vec::new(),
        ready_removed: Vec::new(),
        state: None,
        wake: crate::store::WakeChange::Keep,
        snapshot: None,
        begins_run: None,
        deletion: None,
    };
    let mut written = 0;
    let full = loop {
        match store.commit(vec![start(written + 1), start(written + 2)]).await {
            Ok(_) => written += 2,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::Unavailable(_)), "{full:?}");
    assert_eq!(store.count().await.unwrap().values().sum::<u64>(), written as u64);
    limit_pages(&mut *store.writer.lock().await, "PRAGMA max_page_count = 100000").await;
    store.commit(vec![start(written + 1), start(written + 2)]).await.unwrap();
    assert_eq!(store.count().await.unwrap().values().sum::<u64>(), written as u64 + 2);
}

#[tokio::test]
async fn an_older_database_is_copied_before_it_is_brought_up_to_date() {
    let (store, directory) = store().await;
    store.presence(&Presence { node: Some(node()), ..Presence::default() }).await.unwrap();
    store.close().await.unwrap();
    let migrations = directory.path().join("migrations");
    std::fs::create_dir(&migrations).unwrap();
    for known in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/sqlite")).unwrap() {
        let known = known.unwrap();
        std::fs::copy(known.path(), migrations.join(known.file_name())).unwrap();
    }
    std::fs::write(migrations.join("9999_more.sql"), "CREATE TABLE more (x INTEGER) STRICT;").unwrap();
    let migrator = sqlx::migrate::Migrator::new(migrations).await.unwrap();

    let mut connection = SqliteConnectOptions::new().filename(&store.path).connect().await.unwrap();
    // As a copy that was broken off leaves it.
    let found = store.opened().schema_version;
    let copy = directory.path().join(format!("orbit.db.schema-{found}.copy"));
    std::fs::write(&copy, "half a copy").unwrap();
    open::migrate(&mut connection, &migrator, &store.path, found).await.unwrap();

    let tables = async |connection: &mut sqlx::SqliteConnection| -> i64 {
        let count = "SELECT count(*) FROM sqlite_schema WHERE name = 'more'";
        sqlx::query_scalar(count).fetch_one(connection).await.unwrap()
    };
    assert_eq!(tables(&mut connection).await, 1);
    let mut copied = SqliteConnectOptions::new().filename(&copy).connect().await.unwrap();
    assert_eq!(tables(&mut copied).await, 0);
    let nodes: i64 = sqlx::query_scalar("SELECT count(*) FROM nodes").fetch_one(&mut copied).await.unwrap();
    assert_eq!(nodes, 1);
    drop(copied);
    // The version of before opens the copy, and refuses what has become of the original.
    SqliteStore::open(&copy, Options::default()).await.unwrap();
    assert!(matches!(SqliteStore::open(&store.path, Options::default()).await, Err(Error::Refused(_))));
}

/// An empty database with the migrations before this one.
async fn older(before: &str) -> (sqlx::SqliteConnection, std::path::PathBuf, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orbit.db");
    let older = directory.path().join("migrations");
    std::fs::create_dir(&older).unwrap();
    for known in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/sqlite")).unwrap() {
        let known = known.unwrap();
        if known.file_name().to_str().is_some_and(|name| name < before) {
            std::fs::copy(known.path(), older.join(known.file_name())).unwrap();
        }
    }
    let migrator = sqlx::migrate::Migrator::new(older).await.unwrap();
    let mut connection = SqliteConnectOptions::new().filename(&path).create_if_missing(true).connect().await.unwrap();
    open::migrate(&mut connection, &migrator, &path, 0).await.unwrap();
    (connection, path, directory)
}

#[tokio::test]
async fn history_keeps_its_rows_and_its_fence_when_it_is_laid_in_the_order_of_writing() {
    let (mut connection, path, _directory) = older("0009").await;
    let fill = "INSERT INTO executions (uid, namespace, id, current, workflow, version, definition_hash, input_digest, state, \
                labels, start_time) VALUES \
                (x'00000000000000000000000000000001', 'default', 'a', 1, 'w', '1', zeroblob(32), zeroblob(16), 1, '{}', 5), \
                (x'00000000000000000000000000000002', 'default', 'b', 1, 'w', '1', zeroblob(32), zeroblob(16), 1, '{}', 6); \
                INSERT INTO history VALUES (1, 1, 2, 1, zeroblob(16), 1, x'01'), (2, 1, 1, 1, zeroblob(16), 1, x'02'), \
                (1, 3, 3, 1, zeroblob(16), 1, x'03'), (2, 2, 5, 1, zeroblob(16), 1, x'04'), (1, 4, 4, 2, zeroblob(16), 1, x'05');";
    sqlx::raw_sql(fill).execute(&mut connection).await.unwrap();
    sqlx::Connection::close(connection).await.unwrap();

    let store = SqliteStore::open(&path, Options::default()).await.unwrap();
    let history = async |key: i64| -> Vec<(u64, Vec<u8>)> {
        let rows = store.history(ExecutionKey(key), 0, 9, 99).await.unwrap();
        rows.into_iter().map(|row| (row.first_number, row.events.to_vec())).collect()
    };
    assert_eq!(history(1).await, [(1, vec![1]), (3, vec![3]), (4, vec![5])]);
    assert_eq!(history(2).await, [(1, vec![2]), (2, vec![4])]);
    assert_eq!(store.newest_numbers(&[ExecutionKey(1), ExecutionKey(2)]).await.unwrap(), [Some(4), Some(5)]);
    let mut connection = SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    for refused in ["(2, 2, 9, 1, zeroblob(16), 1, x'09')", "(2, 6, 5, 1, zeroblob(16), 1, x'09')"] {
        let insert = format!("INSERT INTO history VALUES {refused}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(insert)).execute(&mut connection).await.unwrap_err();
    }
}

#[tokio::test]
async fn executions_keep_their_rows_and_their_keys_when_their_table_is_made_anew() {
    let (mut connection, path, _directory) = older("0005").await;
    let fill = "INSERT INTO executions (uid, namespace, id, current, workflow, version, definition_hash, input_digest, state, \
                labels, start_time, close_time, wake_time, floor_seq) \
                VALUES (x'00000000000000000000000000000001', 'default', 'open', 1, 'w', '1', zeroblob(32), zeroblob(16), 2, '{}', 5, NULL, 9, 3), \
                (x'00000000000000000000000000000002', 'default', 'closed', 0, 'w', '1', zeroblob(32), zeroblob(16), 3, '{\"a\":\"b\"}', 6, 7, NULL, 0), \
                (x'00000000000000000000000000000003', 'default', 'last', 1, 'w', '1', zeroblob(32), zeroblob(16), 1, '{}', 8, NULL, NULL, 0); \
                DELETE FROM executions WHERE id = 'last'; \
                INSERT INTO counters VALUES (0, 0, 2, 1), (0, 0, 3, 1);";
    sqlx::raw_sql(fill).execute(&mut connection).await.unwrap();
    let indexes = "SELECT group_concat(name, ' ') FROM (SELECT name FROM sqlite_schema \
                   WHERE type = 'index' AND tbl_name = 'executions' ORDER BY name)";
    let before: String = sqlx::query_scalar(indexes).fetch_one(&mut connection).await.unwrap();
    sqlx::Connection::close(connection).await.unwrap();

    let store = SqliteStore::open(&path, Options::default()).await.unwrap();
    let open = store.execution(&Find::Id("open".into())).await.unwrap().unwrap();
    assert_eq!((open.key, open.state, open.run), (ExecutionKey(1), ExecutionState::WindingDown, 1));
    assert_eq!((open.start_time, open.wake_time), (Timestamp::from_micros(5), Some(Timestamp::from_micros(9))));
    let closed = store.execution(&Find::Key(ExecutionKey(2))).await.unwrap().unwrap();
    assert_eq!((closed.current, closed.close_time), (false, Some(Timestamp::from_micros(7))));
    assert_eq!(closed.labels, [("a".to_owned(), "b".to_owned())].into());
    assert_eq!(store.newest_numbers(&[ExecutionKey(1)]).await.unwrap(), [Some(3)], "the floor");
    assert_eq!(store.closed_before(Timestamp::from_micros(9), None, 9).await.unwrap().len(), 1);
    let mut connection = SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    let after: String = sqlx::query_scalar(indexes).fetch_one(&mut connection).await.unwrap();
    for index in before.split(' ') {
        assert!(after.contains(index), "{index} is missing: {after}");
    }
    let next = "INSERT INTO executions (uid, namespace, id, current, workflow, version, definition_hash, input_digest, state, labels, \
                start_time) VALUES (x'04', 'default', 'next', 1, 'w', '1', x'', x'', 8, '{}', 1) RETURNING key";
    let next: i64 = sqlx::query_scalar(next).fetch_one(&mut connection).await.unwrap();
    assert_eq!(next, 4, "a key is never used again");
}

#[tokio::test]
async fn a_write_that_panics_leaves_no_transaction_behind() {
    let (store, _directory) = store().await;
    let store = std::sync::Arc::new(store);
    let panics = store.clone();
    let panicked =
        tokio::spawn(async move { panics.write(|_| Box::pin(async { panic!("a bug") as sqlx::Result<()> })).await });
    assert!(panicked.await.unwrap_err().is_panic());
    store.quarantine(ExecutionKey(1), "works again").await.unwrap();
}

fn node() -> crate::store::NodeRow {
    crate::store::NodeRow { id: uuid::Uuid::from_u128(1), now: Timestamp::default(), level: 1 }
}

async fn limit_pages(writer: &mut Writer, pragma: &'static str) {
    let mut transaction = writer.begin().await.ok().unwrap();
    let limited = transaction.row(pragma, Values::default()).await;
    writer.finish(transaction, limited.map(drop)).await.ok().unwrap();
}
