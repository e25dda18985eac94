//! Whether PostgreSQL finds what the loops ask for through the index that they count on, in tables of a usual shape; and what
//! commits write to, in empty ones too.

#[path = "../../../tests/support/postgres.rs"]
mod server;

use super::{
    Options, PostgresStore,
    append::Ordered,
    connection::{self, Connector, Purpose},
};
use crate::domain::Timestamp;
use crate::store::{
    Append, ExecutionKey, ExecutionState, LargePayload, ListCursor, ListFilter, NewExecution, ReadyUnit, Snapshot,
    StateChange, Store as _, Target, WakeChange,
    sql::{Dialect, Row as _, Value, Values, list, list::Walk, retention, schedules, text as sql},
};
use sqlx::{AssertSqlSafe, postgres::PgConnection};

/// 30,000 executions of ten workflows, a hundred tenants; a tenth runs and is due at some time, a fiftieth failed.
const FILL: [&str; 8] = [
    "INSERT INTO executions (uid, namespace, id, current, workflow, version, definition_hash, input_digest, request_key, \
       request_content, state, labels, start_time, close_time, wake_time) \
     SELECT decode(md5(CAST(n AS TEXT)), 'hex'), 'default', 'e' || n, 1, 'workflow-' || n % 10, '1.0.0', '\\x01', '\\x02', \
       decode(md5('r' || n), 'hex'), '\\x03', CASE WHEN n % 10 = 0 THEN 1 WHEN n % 50 = 7 THEN 4 ELSE 3 END, '{}', n * 1000, \
       CASE WHEN n % 10 <> 0 THEN n * 1000 END, CASE WHEN n % 10 = 0 THEN n * 1000 END FROM generate_series(1, 30000) AS n",
    "INSERT INTO labels SELECT 'default', 'tenant', 'tenant-' || key % 100, start_time, key FROM executions",
    "INSERT INTO history SELECT key, 1 + 2 * n, 2 + 2 * n, 1, '\\x01', 1, '\\x02' \
     FROM executions CROSS JOIN generate_series(0, 3) AS n",
    "INSERT INTO ready SELECT key, 'unit', 'queue-' || key % 3, 'charge@1', '', 3, start_time FROM executions WHERE state = 1",
    "INSERT INTO sessions SELECT decode(md5('s' || n), 'hex'), '', '', '', '', '[]', '[]', 1, 1, 1, 1, 1 \
     FROM generate_series(1, 100) AS n",
    "INSERT INTO held SELECT key, 'unit', 1, decode(md5('s' || key % 200), 'hex'), CASE WHEN key % 4 = 0 THEN key END, key, \
       CASE WHEN key % 3 = 0 THEN 60 END, NULL FROM executions WHERE state = 1",
    "INSERT INTO schedules (uid, namespace, id, version, revision, write_id, workflow, settings, state, note, cursor_time, \
       next_time, progress, started, skipped, missed, failed, create_time, update_time) \
     SELECT decode(md5('schedule' || n), 'hex'), 'default', 's' || n, 1, 1, '\\x01', 'workflow-' || n % 10, '{}', 1, '', n, \
       n * 1000, '{}', 0, 0, 0, 0, n, n FROM generate_series(1, 20000) AS n",
    "INSERT INTO slots SELECT n % 100, n * 1000, 1, '', n * 1000, n * 1000, 7, n * 1000, 1, NULL, NULL, '' \
     FROM generate_series(1, 20000) AS n",
];

async fn filled() -> (PostgresStore, server::Database) {
    let database = server::fresh_database().await;
    let store = PostgresStore::open(Options::new(database.url())).await.unwrap();
    for insert in FILL {
        server::execute(&database.url(), insert).await;
    }
    (store, database)
}

/// The plan that a statement has in the end: prepared, and used so often that the planner may take one for all values.
async fn plan(connection: &mut PgConnection, text: &str, types: &str, values: &str) -> String {
    let run = async |connection: &mut PgConnection, text: String| {
        sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(connection).await.unwrap()
    };
    run(connection, format!("PREPARE q ({types}) AS {text}")).await;
    let mut steps = Vec::new();
    for _ in 0..7 {
        steps = run(connection, format!("EXPLAIN EXECUTE q ({values})")).await;
    }
    run(connection, "DEALLOCATE q".to_owned()).await;
    steps.iter().map(|step| step.text(0).unwrap().to_owned()).collect::<Vec<_>>().join("\n")
}

fn types_and_values(values: &Values) -> (String, String) {
    let one = |value: &Value| match value {
        Value::Integer(value) => ("BIGINT", value.map_or("NULL".to_owned(), |value| value.to_string())),
        Value::Text(value) => ("TEXT", value.as_ref().map_or("NULL".to_owned(), |value| format!("'{value}'"))),
        Value::Bytes(_) => ("BYTEA", "NULL".to_owned()),
    };
    let (types, values): (Vec<_>, Vec<_>) = values.0.iter().map(one).unzip();
    (types.join(", "), values.join(", "))
}

/// Runs a test on a connection of the store's pool.
macro_rules! on_a_connection {
    ($store:expr, |$connection:ident| $body:block) => {
        $store
            .connections
            .read(move |$connection| {
                Box::pin(async move {
                    $body;
                    Ok(())
                })
            })
            .await
            .unwrap()
    };
}

/// Whether a plan has a step that reads all of something, or puts it in order, before it answers the first row.
fn reads_all(plan: &str) -> bool {
    ["Seq Scan", "Bitmap", "Hash Join", "Merge Join", "Sort  (", "Materialize"].iter().any(|step| plan.contains(step))
}

#[tokio::test]
async fn each_query_that_loops_uses_its_index() {
    let (store, database) = filled().await;
    let queries = || {
        let of_key = ("BIGINT", "4711");
        let of_session = ("BYTEA, BIGINT", "decode(md5('s5'), 'hex'), 100");
        [
            (sql::EXECUTION_BY_KEY, of_key, "executions_key"),
            (sql::EXECUTION_BY_UID, ("BYTEA", "decode(md5('7'), 'hex')"), "executions_uid"),
            (sql::EXECUTION_BY_ID, ("TEXT, TEXT", "'default', 'e7'"), "executions_current_id"),
            (
                sql::EXECUTION_BY_REQUEST,
                ("TEXT, TEXT, BYTEA", "'default', 'e7', decode(md5('r7'), 'hex')"),
                "executions_request",
            ),
            (sql::DUE, ("BIGINT, BIGINT", "10000000, 256"), "executions_wake"),
            (sql::READY, ("TEXT, TEXT, TEXT, BIGINT", "'queue-0', 'charge@1', '', 256"), "ready_pool"),
            (sql::HELD_BY_SESSION, of_session, "held_session"),
            (sql::HELD_BY_EXECUTION, of_key, "held_once"),
            (sql::HELD_MISSING, ("BIGINT, BIGINT, BIGINT", "20000, 10, 100"), "held_missing"),
            (sql::HELD_OVERDUE, ("BIGINT, BIGINT", "20000, 100"), "held_beat"),
            (sql::HISTORY, ("BIGINT, BIGINT, BIGINT, BIGINT", "4711, 4, 100, 1000000"), "history_fence"),
            (sql::SESSIONS, ("BYTEA, BIGINT", "'\\x', 1000"), "sessions_id"),
            (retention::CLOSED, ("BIGINT, BIGINT, BIGINT, BIGINT", "9000000, 1000, 5, 100"), "executions_close"),
            (retention::DELETED, ("BIGINT, BIGINT, BIGINT", "1000, 5, 100"), "executions_delete"),
            (retention::RUNS, ("BIGINT, BIGINT, BIGINT, BIGINT, BIGINT", "9000, 10, 5, 2, 100"), "runs_start"),
            (schedules::DUE, ("BIGINT, BIGINT", "5000000, 256"), "schedules_next"),
            (schedules::DUE_AFTER, ("BIGINT, BIGINT, BIGINT, BIGINT", "5000000, 256, 1000, 5"), "schedules_next"),
            (schedules::ALL, ("TEXT, TEXT, BIGINT", "'default', 's5', 100"), "schedules_id"),
            (schedules::LEDGER, ("BIGINT, BIGINT, BIGINT", "7, 100, 0"), "slots_once"),
        ]
    };
    let many = || {
        [
            (&sql::NEWEST_NUMBERS, ("BIGINT[]", "ARRAY[7, 4711, 40000]"), ["executions_key", "history_fence"]),
            (&sql::STILL_DUE, ("BIGINT[], BIGINT[]", "ARRAY[7, 4711], ARRAY[1000, 1000]"), ["executions_key"; 2]),
            (
                &sql::WAITING_POOLS,
                ("TEXT[], TEXT[], TEXT[]", "ARRAY['queue-0', 'none'], ARRAY['charge@1', 'x@1'], ARRAY['', '']"),
                ["ready_pool"; 2],
            ),
            (&sql::CONTACTS, ("BYTEA[], BIGINT[]", "ARRAY[decode(md5('s7'), 'hex')], ARRAY[5]"), ["sessions_id"; 2]),
            (
                &sql::HELD_DELETE,
                ("BIGINT[], TEXT[], BIGINT[]", "ARRAY[10, 20], ARRAY['unit', 'unit'], ARRAY[1, 1]"),
                ["held_once"; 2],
            ),
        ]
    };
    let ordered = || {
        [
            (sql::LOAD, ("BIGINT", "4711"), "history_fence"),
            (sql::LOAD_TAIL, ("BIGINT, BIGINT", "4711, 5"), "history_fence"),
            (sql::HELD_WITHOUT_SESSION, ("BIGINT", "100"), "held_session"),
            (retention::DELETE_HISTORY, ("BIGINT, BIGINT, BIGINT", "4711, 5, 100"), "history_fence"),
            (retention::DELETE_PAYLOADS, ("BIGINT, BIGINT, BIGINT", "4711, 5, 100"), "payloads_once"),
            (retention::DELETE_RUNS, ("BIGINT, BIGINT, BIGINT", "4711, 5, 100"), "runs_once"),
            (retention::DELETE_HELD, ("BIGINT, BIGINT", "4711, 100"), "held_once"),
            (retention::DELETE_READY, ("BIGINT, BIGINT", "4711, 100"), "ready_once"),
        ]
    };
    for analyzed in [false, true] {
        if analyzed {
            server::execute(&database.url(), "ANALYZE").await;
        }
        on_a_connection!(store, |connection| {
            for (text, (types, values), index) in queries() {
                let plan = plan(connection, text, types, values).await;
                assert!(plan.contains(index) && !reads_all(&plan), "analyzed: {analyzed}\n{text}\n{plan}");
            }
            for (statement, (types, values), indexes) in many() {
                let text = statement.with_arrays();
                let plan = plan(connection, text.as_str(), types, values).await;
                let uses_them = indexes.iter().all(|index| plan.contains(index));
                assert!(uses_them && !reads_all(&plan), "analyzed: {analyzed}\n{}\n{plan}", text.as_str());
            }
            // What they put in order is what one execution has, or what sessions that are gone have held.
            for (text, (types, values), index) in ordered() {
                let plan = plan(connection, text, types, values).await.replace("Sort  (", "");
                assert!(plan.contains(index) && !reads_all(&plan), "analyzed: {analyzed}\n{text}\n{plan}");
            }
        });
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_list_walks_the_index_of_its_filter() {
    let (store, database) = filled().await;
    let labels = vec![("tenant".to_owned(), "tenant-7".to_owned()), ("day".to_owned(), "1".to_owned())];
    let tenant = vec![labels[0].clone()];
    let states = |states: &[ExecutionState]| ListFilter { states: states.to_vec(), ..ListFilter::default() };
    let workflow = Some("workflow-3".into());
    let open = [ExecutionState::Running, ExecutionState::WindingDown];
    let filters = [
        (ListFilter::default(), "executions_start"),
        (states(&[ExecutionState::Running]), "executions_state"),
        (states(&open), "executions_state"),
        (ListFilter { workflow: workflow.clone(), ..ListFilter::default() }, "executions_workflow"),
        (ListFilter { workflow: workflow.clone(), ..states(&open) }, "executions_workflow_state"),
        (ListFilter { workflow: workflow.clone(), ..states(&[ExecutionState::Failed]) }, "executions_workflow_state"),
        (ListFilter { labels: tenant.clone(), ..ListFilter::default() }, "labels_once"),
        (ListFilter { labels: tenant.clone(), ..states(&open) }, "executions_state"),
        (
            ListFilter { labels: labels.clone(), workflow: workflow.clone(), ..states(&open) },
            "executions_workflow_state",
        ),
        (ListFilter { labels: tenant, workflow, ..ListFilter::default() }, "executions_workflow"),
        (ListFilter { labels, start_from: Some(Timestamp::default()), ..ListFilter::default() }, "labels_once"),
    ];
    for analyzed in [false, true] {
        if analyzed {
            server::execute(&database.url(), "ANALYZE").await;
        }
        let filters = filters.clone();
        on_a_connection!(store, |connection| {
            let cursor = |seconds: i64| {
                let (start_time, key) = (Timestamp::from_micros(seconds * 1_000_000), ExecutionKey(seconds * 1000));
                Some(ListCursor { start_time, key })
            };
            for (filter, index) in filters {
                for (after, end) in [(None, None), (cursor(15), None), (cursor(15), cursor(12))] {
                    let search = list::Search::new(Dialect::Postgres, &filter, after);
                    let walks = search.walks();
                    let mut statements = Vec::new();
                    if walks.len() > 1 {
                        let index = if walks.contains(&Walk::Rows) { index } else { "labels_once" };
                        statements.push((search.reach(&walks), vec!["labels_once", index], false));
                    }
                    for walk in walks {
                        // Without statistics an entry may be looked up in another index that tells as well.
                        let of_label = if analyzed { vec!["labels_once", index] } else { vec!["labels_once"] };
                        let indexes = if walk == Walk::Rows { vec![index] } else { of_label };
                        // The pages that a label has in each state may be put in order rather than merged.
                        let is_sorted = walk != Walk::Rows && filter.states.len() > 1;
                        statements.push((search.page(walk, end, 100), indexes, is_sorted));
                    }
                    for ((text, values), indexes, is_sorted) in statements {
                        let (types, values) = types_and_values(&values);
                        let mut plan = plan(connection, &text, &types, &values).await;
                        if is_sorted {
                            plan = plan.replace("Sort  (", "");
                        }
                        let are_walked = indexes.iter().all(|index| plan.contains(index));
                        assert!(are_walked && !reads_all(&plan), "analyzed: {analyzed}\n{filter:?}\n{text}\n{plan}");
                    }
                }
            }
        });
    }
    store.close().await.unwrap();
}

/// An append with everything that one can have.
fn whole(target: Target, first_number: u64) -> Append {
    let unit = |name: &str| ReadyUnit {
        unit: name.into(),
        queue: "q".into(),
        contract: "c@1".into(),
        language: "".into(),
        priority: 3,
        ready_time: Timestamp::default(),
    };
    let is_new = matches!(target, Target::New(_));
    Append {
        target,
        run: 1,
        first_number,
        last_number: first_number,
        batch_id: uuid::Uuid::new_v4(),
        events: vec![1].into(),
        payloads: vec![LargePayload { sha256: [1; 32], json: "1".into() }],
        ready_added: vec![unit("added")],
        ready_removed: vec!["removed".into()],
        state: (!is_new).then_some(StateChange {
            from: ExecutionState::Running,
            to: ExecutionState::WindingDown,
            close_time: None,
        }),
        wake: WakeChange::Set(None),
        snapshot: Some(Snapshot { number: 1, format: 1, definition_hash: [1; 32], bytes: vec![1].into() }),
        begins_run: None,
        deletion: None,
    }
}

#[tokio::test]
async fn a_batch_finds_every_row_by_a_key_in_an_empty_database_too() {
    let database = server::fresh_database().await;
    let options = Options::new(database.url());
    let store = PostgresStore::open(options.clone()).await.unwrap();
    let new = NewExecution {
        uid: crate::domain::Uid(uuid::Uuid::from_u128(1)),
        id: "new".into(),
        workflow: "w".into(),
        version: "1".into(),
        definition_hash: [1; 32],
        input_digest: [1; 16],
        request: None,
        start_time: Timestamp::default(),
        state: ExecutionState::Running,
        close_time: None,
        labels: [("a".to_owned(), "b".to_owned())].into(),
        schedule: None,
    };
    let mut connection = Connector::new(&options).unwrap().connect(Purpose::Commit).await.unwrap();
    for filled in [false, true] {
        if filled {
            for insert in FILL {
                server::execute(&database.url(), insert).await;
            }
            server::execute(&database.url(), "ANALYZE").await;
        }
        let batch = [whole(Target::New(Box::new(new.clone())), 1), whole(Target::Existing(ExecutionKey(7)), 9)];
        let (text, values) = Ordered::of(&batch.iter().collect::<Vec<_>>()).statement(1, 0);
        let explain = AssertSqlSafe(format!("EXPLAIN {}", text.as_str()));
        let steps = connection::rows(&mut connection, explain, values).await.unwrap();
        let steps: Vec<&str> = steps.iter().map(|step| step.text(0).unwrap()).collect();
        let plan = steps.join("\n");
        assert!(!plan.contains("Seq Scan"), "filled: {filled}\n{plan}");
        for (step, next) in steps.iter().zip(&steps[1..]).filter(|(step, _)| step.contains("Index")) {
            let is_by_key = !step.contains(" Scan ") || next.contains("Index Cond");
            assert!(is_by_key, "filled: {filled}\n{step}\n{plan}");
        }
    }
    store.close().await.unwrap();
}
