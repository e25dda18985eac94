//! How a store on PostgreSQL starts: several nodes at once, on a new or an older schema; and what it refuses in plain words.

use crate::{OnPostgres, PostgresOptions, make::*, postgres_server, written};
use futures_util::future::join_all;
use orbit::domain::Timestamp;
use orbit::store::{Error, NodeRow, PostgresStore, Presence, Store};
use postgres_server::{Database, PrivateServer, execute, fresh_database};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use std::time::Duration;

/// The newest migration.
const NEWEST: u32 = 9;

/// Takes back what the migrations after the first did.
const TO_SCHEMA_1: &str = "DELETE FROM orbit_migrations WHERE version > 1; DROP INDEX executions_workflow_state; \
     ALTER TABLE sessions DROP COLUMN timeout; DROP TABLE batches, schedules, slots, schedule_requests; DROP TABLE runs; ALTER TABLE executions DROP COLUMN run, DROP COLUMN delete_time, DROP COLUMN schedule_uid; DROP INDEX IF EXISTS executions_close; \
     ALTER TABLE executions DROP CONSTRAINT executions_state_is_known, DROP CONSTRAINT executions_closed_has_time, \
       ADD CONSTRAINT executions_state_is_known CHECK (state BETWEEN 1 AND 7), \
       ADD CONSTRAINT executions_closed_has_time CHECK ((state >= 3) = (close_time IS NOT NULL)); \
     ALTER TABLE nodes DROP CONSTRAINT nodes_slot; ALTER TABLE nodes DROP COLUMN seen; ALTER TABLE nodes ALTER COLUMN slot SET NOT NULL";

async fn open(database: &Database) -> Result<PostgresStore, Error> {
    PostgresStore::open(PostgresOptions::new(database.url())).await
}

async fn refused(url: &str) -> String {
    match PostgresStore::open(PostgresOptions::new(url)).await {
        Err(Error::Refused(why)) => why,
        Err(other) => panic!("not refused but {other:?}"),
        Ok(_) => panic!("opened"),
    }
}

async fn number(url: &str, query: &str) -> i64 {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::query_scalar(AssertSqlSafe(query.to_owned())).fetch_one(&mut connection).await.unwrap()
}

/// A database as an earlier version left it, with an execution.
async fn older() -> Database {
    let database = fresh_database().await;
    let store = open(&database).await.unwrap();
    written(&store, start("a", 1)).await;
    store.close().await.unwrap();
    execute(&database.url(), TO_SCHEMA_1).await;
    assert_eq!(PostgresStore::schema(&PostgresOptions::new(database.url())).await.unwrap().found, 1);
    database
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c105_five_nodes_migrate_at_once() {
    for database in [fresh_database().await, older().await] {
        let nodes = join_all((0..5).map(|_| open(&database))).await;
        for node in &nodes {
            let node = node.as_ref().unwrap();
            assert_eq!(node.opened().schema_version, NEWEST);
        }
        let applied = number(&database.url(), "SELECT count(*) FROM orbit_migrations").await;
        assert_eq!(applied, i64::from(NEWEST), "each migration once");
        written(nodes[4].as_ref().unwrap(), start("b", 2)).await;
        for node in nodes {
            node.unwrap().close().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c105_a_migration_that_is_killed_half_way_leaves_the_old_schema_and_the_next_does_it() {
    let database = older().await;
    let url = database.url();
    // Who reads the table keeps the migration from changing it, half-way.
    let mut reader = PgConnection::connect(&url).await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT * FROM nodes").execute(&mut reader).await.unwrap();
    let options = PostgresOptions::new(&url);
    let killed = tokio::spawn(async move { PostgresStore::migrate(&options).await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while number(&url, waits).await == 0 {}
    let options = PostgresOptions::new(&url);
    let waiting = tokio::spawn(async move { PostgresStore::migrate(&options).await });
    while number(&url, waits).await < 2 {}
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() \
         AND wait_event = 'relation' AND query LIKE 'ALTER TABLE%'";
    execute(&url, kill).await;
    assert!(matches!(killed.await.unwrap(), Err(Error::Unavailable(_))));
    sqlx::raw_sql("COMMIT").execute(&mut reader).await.unwrap();
    // The one that waited found the old schema as it was.
    assert_eq!(waiting.await.unwrap().unwrap().found, 1);
    let store = open(&database).await.unwrap();
    assert_eq!(store.opened().schema_version, NEWEST);
    store.close().await.unwrap();
}

#[tokio::test]
async fn c105_a_newer_schema_is_refused_and_told() {
    let database = fresh_database().await;
    open(&database).await.unwrap().close().await.unwrap();
    let url = database.url();
    execute(&url, "INSERT INTO orbit_migrations (version, name, checksum) VALUES (999, 'later', '\\x00')").await;
    let why = refused(&url).await;
    assert!(why.contains("was written by a newer version of Orbit: its schema is 999"), "{why}");
    let schema = PostgresStore::schema(&PostgresOptions::new(&url)).await.unwrap();
    assert!(schema.is_newer() && schema.pending.is_empty(), "{schema:?}");
    assert!(matches!(PostgresStore::migrate(&PostgresOptions::new(&url)).await, Err(Error::Refused(_))));
}

#[tokio::test]
async fn what_would_be_done_is_told_without_doing_it() {
    let database = fresh_database().await;
    let schema = PostgresStore::schema(&PostgresOptions::new(database.url())).await.unwrap();
    assert_eq!((schema.found, schema.known, schema.pending.len()), (0, NEWEST, NEWEST as usize));
    assert_eq!(number(&database.url(), "SELECT count(*) FROM pg_class WHERE relname = 'orbit_migrations'").await, 0);
    let found = PostgresStore::migrate(&PostgresOptions::new(database.url())).await.unwrap();
    assert_eq!(found, schema);
    let found = PostgresStore::migrate(&PostgresOptions::new(database.url())).await.unwrap();
    assert_eq!((found.found, found.pending.len()), (NEWEST, 0));
}

#[tokio::test]
async fn a_schema_that_was_made_otherwise_is_refused() {
    let database = fresh_database().await;
    open(&database).await.unwrap().close().await.unwrap();
    execute(&database.url(), "UPDATE orbit_migrations SET checksum = '\\x00' WHERE version = 1").await;
    let why = refused(&database.url()).await;
    assert!(why.contains("another migration"), "{why}");
}

#[tokio::test]
async fn a_database_of_another_program_is_refused_and_one_with_a_view_of_an_extension_is_not() {
    let database = fresh_database().await;
    execute(&database.url(), "CREATE TABLE customers (id INT)").await;
    let why = refused(&database.url()).await;
    assert!(why.contains("tables of another program"), "{why}");
    assert_eq!(number(&database.url(), "SELECT count(*) FROM pg_class WHERE relname = 'executions'").await, 0);
    // A schema of one's own in the same database will do.
    execute(&database.url(), "CREATE SCHEMA ours").await;
    let url = format!("{}?options=-csearch_path%3Dours", database.url());
    let store = PostgresStore::open(PostgresOptions::new(url)).await.unwrap();
    written(&store, start("a", 1)).await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn what_is_missing_is_refused_in_plain_words() {
    let database = fresh_database().await;
    let url = database.url();
    let nowhere = postgres_server::with_database(&url, "nowhere");
    assert!(refused(&nowhere).await.starts_with("there is no such database; create it first"));
    assert!(refused("mysql://localhost/orbit").await.starts_with("this is no address of a PostgreSQL database"));
    let why = refused(&format!("{url}?options=-csearch_path%3Dnowhere")).await;
    assert!(why.contains("search_path"), "{why}");
    let ascii = format!("ascii_{}", uuid::Uuid::new_v4().simple());
    let create = format!("CREATE DATABASE {ascii} TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'");
    execute(&url, &create).await;
    let why = refused(&postgres_server::with_database(&url, &ascii)).await;
    assert!(why.contains("create it with the encoding UTF8"), "{why}");
    execute(&url, &format!("DROP DATABASE {ascii}")).await;
}

#[tokio::test]
async fn a_server_that_does_not_sync_is_refused_at_any_time_and_weak_commits_are_made_strong() {
    let mut server = PrivateServer::start();
    let database = Database::make(server.url()).await;
    server.set("synchronous_commit", Some("off"));
    let store = open(&database).await.unwrap();
    written(&store, start("a", 1)).await;
    let mut sessions = PgConnection::connect(&database.url()).await.unwrap();
    let weak: String = sqlx::query_scalar("SHOW synchronous_commit").fetch_one(&mut sessions).await.unwrap();
    assert_eq!(weak, "off", "for others, who asked for nothing");
    for setting in ["fsync", "full_page_writes"] {
        server.set(setting, Some("off"));
        while postgres_server::show(&database.url(), setting).await != "off" {}
        let why = refused(&database.url()).await;
        assert!(why.contains(&format!("{setting}=off")), "{why}");
        let options = PostgresOptions { unsafe_without_sync: true, ..PostgresOptions::new(database.url()) };
        PostgresStore::open(options).await.unwrap().close().await.unwrap();
        server.set(setting, None);
        while postgres_server::show(&database.url(), setting).await != "on" {}
    }
    store.close().await.unwrap();
    drop(database);
}

fn node(number: u128, now: i64) -> Presence {
    Presence { node: Some(NodeRow { id: uuid(number), now: time(now), level: 1 }), ..Presence::default() }
}

async fn slots(url: &str) -> Vec<(i64, Option<i64>)> {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let query = "SELECT ('x' || right(encode(id, 'hex'), 8))::bit(32)::bigint, slot FROM nodes ORDER BY id";
    sqlx::query_as(query).fetch_all(&mut connection).await.unwrap()
}

/// Makes a node's row look as if it had not been written for so long.
async fn age(url: &str, number: u128, age: Duration) {
    let micros = age.as_micros();
    let id = uuid(number).simple();
    execute(url, &format!("UPDATE nodes SET seen = seen - {micros} WHERE id = '\\x{id}'")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_live_node_has_a_slot_and_a_dead_one_s_is_taken() {
    let on_postgres = OnPostgres::new().await;
    let (store, url) = (&on_postgres.store, on_postgres.database.url());
    let claims = (1..=5).map(|number| store.presence(Box::leak(Box::new(node(number, 1)))));
    for claimed in join_all(claims).await {
        claimed.unwrap();
    }
    let mut taken: Vec<i64> = slots(&url).await.into_iter().map(|(_, slot)| slot.unwrap()).collect();
    taken.sort_unstable();
    assert_eq!(taken, [1, 2, 3, 4, 5]);
    let third = slots(&url).await[2].1;
    age(&url, 3, Duration::from_secs(11)).await;
    store.presence(&node(6, 1)).await.unwrap();
    assert_eq!(slots(&url).await[5].1, third);
    assert_eq!(slots(&url).await[2].1, None);
    // It was only stopped for a while, and takes another.
    store.presence(&node(3, 1)).await.unwrap();
    assert_eq!(slots(&url).await[2].1, Some(6));
    // Who has been dead for an hour is forgotten, when the next one comes.
    age(&url, 4, Duration::from_secs(3_601)).await;
    age(&url, 5, Duration::from_secs(3_601)).await;
    store.presence(&node(5, 2)).await.unwrap();
    let rows = store.presence(&node(7, 1)).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.id.as_u128()).collect::<Vec<_>>(), [1, 2, 3, 5, 6, 7]);
}

#[tokio::test]
async fn c121_time_goes_on_from_that_of_live_nodes_whatever_the_machine_s_clock() {
    let on_postgres = OnPostgres::new().await;
    let (store, url) = (&on_postgres.store, on_postgres.database.url());
    let database_now = async || {
        Timestamp::from_micros(
            number(&url, "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)").await,
        )
    };
    let newest_now = async || {
        let node = on_postgres.another_node().await;
        let newest = node.opened().newest_now.unwrap();
        node.close().await.unwrap();
        newest
    };
    // As old as a row of a live node may be.
    let is_about = |found: Timestamp, expected: i64| (expected..expected + 10_000_000).contains(&found.as_micros());
    // Nobody lives: the database's clock.
    let before = database_now().await;
    let found = newest_now().await;
    assert!(before <= found && found <= database_now().await);
    // A live node is five minutes behind it, and another a little less.
    let behind = before.as_micros() - 300_000_000;
    store.presence(&node(1, behind)).await.unwrap();
    store.presence(&node(2, behind + 1)).await.unwrap();
    assert!(is_about(newest_now().await, behind + 1));
    // And one five minutes ahead.
    let ahead = before.as_micros() + 300_000_000;
    store.presence(&node(3, ahead)).await.unwrap();
    assert!(is_about(newest_now().await, ahead));
    // All are dead: what is later, their time or the database's.
    for number in 1..=3 {
        age(&url, number, Duration::from_secs(11)).await;
    }
    assert_eq!(newest_now().await, time(ahead));
    execute(&url, "DELETE FROM nodes WHERE now > 0 AND slot = 3").await;
    assert!(newest_now().await >= before);
    // A row's time never goes back.
    store.presence(&node(1, 5)).await.unwrap();
    let rows = store.presence(&Presence::default()).await.unwrap();
    assert_eq!(rows[0].now, time(behind));
}
