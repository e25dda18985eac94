//! Whether the queries that run in loops use the index that they count on; and faults that only the inside can make.

use super::{connection::Writer, list};
use crate::domain::Timestamp;
use crate::store::{
    ExecutionKey, ExecutionState, ListCursor, ListFilter, SqliteStore,
    sql::{self, Rows},
    sqlite::{Options, commit, sessions},
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
        (sql::HISTORY, "PRIMARY KEY (execution_key=? AND first_seq>?)"),
        (sql::HELD_BY_SESSION, "held_session"),
        (sql::HELD_BY_EXECUTION, "PRIMARY KEY (execution_key=?)"),
        (sql::HELD_MISSING, "held_missing"),
        (sql::HELD_OVERDUE, "held_beat"),
        (sql::DEFINITION_BY_HASH, "definitions_hash"),
        (sql::DEFINITION_LATEST, "definitions_order"),
        (sql::CONTRACTS, "contracts_definition"),
        (sql::CONTRACT_VERSIONS, "PRIMARY KEY (namespace=? AND task_name=?)"),
    ] {
        let plan = plan(&store, sql).await;
        assert!(plan.contains(index), "{sql}\n{plan}");
        assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{sql}\n{plan}");
    }
    // Walks over sessions, not over held rows.
    let plan = plan(&store, sql::HELD_WITHOUT_SESSION).await;
    assert!(plan.contains("SEARCH h USING INDEX held_session (session=?)") && !plan.contains("SCAN h\n"), "{plan}");
}

#[tokio::test]
async fn a_list_walks_the_index_of_its_filter() {
    let (store, _directory) = store().await;
    let many = [(ExecutionState::Running, 500_000), (ExecutionState::Failed, 10)].into();
    let labels = vec![("tenant".to_owned(), "a".to_owned()), ("day".to_owned(), "1".to_owned())];
    let states = |states: &[ExecutionState]| ListFilter { states: states.to_vec(), ..ListFilter::default() };
    let workflow = Some("order".into());
    let open = [ExecutionState::Running, ExecutionState::WindingDown];
    for (filter, index) in [
        (ListFilter::default(), "executions_start"),
        (states(&ExecutionState::ALL), "executions_start"),
        (states(&open), "executions_state"),
        (ListFilter { workflow: workflow.clone(), ..ListFilter::default() }, "executions_workflow"),
        (ListFilter { workflow: workflow.clone(), ..states(&open) }, "executions_workflow"),
        (ListFilter { workflow, labels: labels.clone(), ..states(&[ExecutionState::Failed]) }, "executions_state"),
        (
            ListFilter { labels: labels.clone(), ..states(&open) },
            "SEARCH l USING PRIMARY KEY (namespace=? AND key=? AND value=?",
        ),
        (
            ListFilter { labels, start_from: Some(Timestamp::default()), ..ListFilter::default() },
            "SEARCH l USING PRIMARY KEY",
        ),
    ] {
        for after in [None, Some(ListCursor { start_time: Timestamp::default(), key: ExecutionKey(1) })] {
            let (text, _) = list::statement(&filter, &many, after, 10);
            let plan = plan(&store, &text).await;
            assert!(plan.contains(index), "{filter:?}\n{text}\n{plan}");
            assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{filter:?}\n{text}\n{plan}");
        }
    }
}

#[tokio::test]
async fn a_statement_over_many_rows_scans_nothing_but_its_list() {
    let (store, _directory) = store().await;
    let statements: Vec<&Rows> = commit::statements().into_iter().chain(sessions::statements()).collect();
    for statement in statements {
        let plan = plan(&store, &statement.text(32).0).await;
        for scan in plan.lines().filter(|step| step.starts_with("SCAN")) {
            let is_the_list = ["SCAN v", "SCAN 32 CONSTANT ROWS", "SCAN 32-ROW VALUES CLAUSE"].contains(&scan);
            assert!(is_the_list, "{}\n{plan}", statement.text(1).0);
        }
        assert!(!plan.contains("AUTOMATIC"), "{}\n{plan}", statement.text(1).0);
    }
}

#[tokio::test]
async fn a_full_disk_is_unavailable_and_then_works_again() {
    use crate::store::{Error, Store as _};
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

async fn limit_pages(writer: &mut Writer, pragma: &'static str) {
    let mut transaction = writer.begin().await.ok().unwrap();
    let limited = transaction.row(pragma, super::Values::default()).await;
    writer.finish(transaction, limited.map(drop)).await.ok().unwrap();
}
