//! What SQLite alone promises: durability over a restart, one server, refusals in plain words, faults that heal, a short
//! log.

use crate::{make::*, temporary, temporary_with, written};
use orbit::store::{
    Append, Change, Committed, Error, ExecutionState, Find, FindDefinition, NodeRow, Presence, SqliteStore, Store,
    WakeChange, sqlite::Options,
};
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};
use std::{path::Path, time::Duration};

/// A connection of another program, which knows nothing of ours.
async fn foreign(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).connect().await.unwrap()
}

async fn execute(connection: &mut SqliteConnection, sql: &'static str) {
    sqlx::raw_sql(sql).execute(connection).await.unwrap();
}

async fn refused(path: &Path) -> String {
    match SqliteStore::open(path, Options::default()).await {
        Err(Error::Refused(why)) => why,
        Err(other) => panic!("not refused but {other:?}"),
        Ok(_) => panic!("opened"),
    }
}

/// Looks again and again until the condition holds, for a minute at most.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let mut look = tokio::time::interval(Duration::from_millis(10));
    for _ in 0..6000 {
        look.tick().await;
        if holds().await {
            return;
        }
    }
    panic!("never: {what}");
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let before = temporary().await;
    let begin = Append {
        payloads: vec![payload(1, "1")],
        ready_added: vec![unit("u", 1, 1)],
        wake: WakeChange::Set(Some(time(9))),
        snapshot: Some(snapshot(1)),
        ..with_request(with_labels(start("a", 1), &[("k", "v")]), 3)
    };
    let key = written(&before.store, begin).await;
    written(&before.store, append(key, 3, 4)).await;
    before.store.put_definition(&definition("order", "1.0.0", 1)).await.unwrap();
    before.store.put_session(&session(1, 100)).await.unwrap();
    let node = |id, now| Some(NodeRow { id: uuid(id), now: time(now), level: 1 });
    before
        .store
        .presence(&Presence { held: vec![held(1, key.0, "u", 1)], node: node(1, 55), ..Presence::default() })
        .await
        .unwrap();
    before.store.presence(&Presence { node: node(2, 44), ..Presence::default() }).await.unwrap();
    let loaded = before.store.load(key).await.unwrap().unwrap();
    before.store.close().await.unwrap();

    let after = SqliteStore::open(&before.path(), Options::default()).await.unwrap();
    assert_eq!(after.opened().newest_now, Some(time(55)));
    assert_eq!(after.opened().schema_version, 9);
    let again = after.load(key).await.unwrap().unwrap();
    assert_eq!(
        (again.row, again.snapshot, again.history, again.payloads),
        (loaded.row, loaded.snapshot, loaded.history, loaded.payloads)
    );
    assert_eq!(after.count().await.unwrap(), [(ExecutionState::Running, 1)].into());
    assert_eq!(after.due(time(9), 1).await.unwrap().len(), 1);
    assert_eq!(after.ready(&pool(), 1).await.unwrap().len(), 1);
    assert_eq!(after.held_by_execution(key).await.unwrap().len(), 1);
    assert!(after.definition(&FindDefinition::Hash([1; 32])).await.unwrap().is_some());
    // The counters go on from what was there.
    written(&after, start("b", 2)).await;
    written(&after, ending(key, 5, ExecutionState::Succeeded, 60)).await;
    assert_eq!(after.count().await.unwrap(), [(ExecutionState::Running, 1), (ExecutionState::Succeeded, 1)].into());
}

#[tokio::test]
async fn the_database_is_as_it_was_meant_to_be() {
    let temporary = temporary().await;
    let mut connection = foreign(&temporary.path()).await;
    let pragma = async |connection: &mut SqliteConnection, sql: &'static str| {
        sqlx::query_scalar::<_, i64>(sql).fetch_one(connection).await.unwrap()
    };
    assert_eq!(pragma(&mut connection, "PRAGMA page_size").await, 8192);
    assert_eq!(pragma(&mut connection, "PRAGMA application_id").await, 0x4f52_4254);
    let journal: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut connection).await.unwrap();
    assert_eq!(journal, "wal");
}

#[tokio::test]
async fn a_node_s_row_tells_the_machine_s_clock_beside_the_node_s_own() {
    let temporary = temporary().await;
    let node = NodeRow { id: uuid(1), now: time(5), level: 1 };
    temporary.store.presence(&Presence { node: Some(node), ..Presence::default() }).await.unwrap();
    let mut connection = foreign(&temporary.path()).await;
    let age = "SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER) - seen FROM nodes";
    let age: i64 = sqlx::query_scalar(age).fetch_one(&mut connection).await.unwrap();
    assert!((0..60_000_000).contains(&age), "{age}");
}

#[tokio::test]
async fn a_second_server_is_refused_until_the_first_is_gone() {
    let first = temporary().await;
    let why = refused(&first.path()).await;
    assert!(why.ends_with("orbit.db is in use by another server; stop it first"), "{why}");
    first.store.close().await.unwrap();
    SqliteStore::open(&first.path(), Options::default()).await.unwrap().close().await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn a_second_server_is_refused_whatever_the_name_that_it_finds_the_file_by() {
    let first = temporary().await;
    let link = first.path().with_file_name("link.db");
    std::os::unix::fs::symlink(first.path(), &link).unwrap();
    let why = refused(&link).await;
    assert!(why.ends_with("orbit.db is in use by another server; stop it first"), "{why}");
    let name = first.path().with_file_name("name.db");
    std::fs::hard_link(first.path(), &name).unwrap();
    let why = refused(&name).await;
    assert!(why.contains("name.db has 2 names (hard links)"), "{why}");
    std::fs::remove_file(&name).unwrap();

    first.store.close().await.unwrap();
    SqliteStore::open(&link, Options::default()).await.unwrap().close().await.unwrap();
    std::fs::remove_file(first.path()).unwrap();
    let why = refused(&link).await;
    assert!(why.contains("link.db is a link that leads nowhere"), "{why}");
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_as_it_is() {
    let temporary = temporary().await;
    temporary.store.close().await.unwrap();
    let mut connection = foreign(&temporary.path()).await;
    execute(
        &mut connection,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (999, 'later', 1, x'00', 1)",
    )
    .await;
    connection.close().await.unwrap();
    let before = std::fs::read(temporary.path()).unwrap();
    let why = refused(&temporary.path()).await;
    assert!(why.contains("was written by a newer version of Orbit: its schema is 999"), "{why}");
    assert_eq!(std::fs::read(temporary.path()).unwrap(), before);
}

#[tokio::test]
async fn what_is_no_database_of_ours_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("notes.txt");
    std::fs::write(&text, "not a database, but long enough to look like the header of one, if nobody reads it")
        .unwrap();
    assert!(refused(&text).await.ends_with("notes.txt is not a SQLite database"));
    assert!(std::fs::read_to_string(&text).unwrap().starts_with("not a database"));

    let other = directory.path().join("other.db");
    let mut connection = SqliteConnectOptions::new().filename(&other).create_if_missing(true).connect().await.unwrap();
    execute(&mut connection, "CREATE TABLE t (x)").await;
    connection.close().await.unwrap();
    assert!(refused(&other).await.ends_with("other.db is a database of another program"));

    let why = refused(&directory.path().join("missing").join("orbit.db")).await;
    assert!(why.contains("missing") && why.contains("no such directory"), "{why}");
    let why = refused(directory.path()).await;
    assert!(why.contains("is a directory"), "{why}");
}

#[tokio::test]
async fn an_append_that_the_database_refuses_stands_alone_in_the_end() {
    let temporary = temporary().await;
    let mut connection = foreign(&temporary.path()).await;
    execute(
        &mut connection,
        "CREATE TRIGGER poison BEFORE INSERT ON labels WHEN NEW.value = 'poison' BEGIN SELECT RAISE(ABORT, 'poisoned'); END",
    )
    .await;
    let batch: Vec<Append> = (0..100)
        .map(|n| {
            with_labels(start(&format!("e{n}"), n + 1), &[("k", if n == 17 || n == 64 { "poison" } else { "fine" })])
        })
        .collect();
    let outcomes = temporary.store.commit(batch).await.unwrap();
    for (n, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Committed::Failed { what } => assert!((n == 17 || n == 64) && what.contains("poisoned"), "{n}: {what}"),
            Committed::Written(_) => assert!(n != 17 && n != 64),
            Committed::Conflict => panic!("{n} lost to nobody"),
        }
    }
    assert_eq!(temporary.store.execution(&Find::Id("e17".into())).await.unwrap(), None);
    assert_eq!(temporary.store.count().await.unwrap(), [(ExecutionState::Running, 98)].into());
}

#[tokio::test]
async fn a_busy_database_is_unavailable_and_then_works_again() {
    let temporary = temporary_with(Options { busy_timeout: Duration::from_millis(50), ..Options::default() }).await;
    let key = written(&temporary.store, start("a", 1)).await;
    let mut connection = foreign(&temporary.path()).await;
    execute(&mut connection, "BEGIN IMMEDIATE").await;
    let append = append(key, 3, 3);
    assert!(matches!(temporary.store.commit(vec![append.clone()]).await, Err(Error::Unavailable(_))));
    assert!(matches!(temporary.store.put_session(&session(1, 1)).await, Err(Error::Unavailable(_))));
    // A writer that waits does not stop readers.
    assert_eq!(temporary.store.history(key, 0, 10, usize::MAX).await.unwrap().len(), 1);
    execute(&mut connection, "ROLLBACK").await;
    written(&temporary.store, append).await;
}

#[tokio::test]
async fn after_a_commit_that_fails_nothing_is_half_done_and_the_next_works() {
    let temporary = temporary().await;
    let key = written(&temporary.store, start("a", 1)).await;
    // A broken reference that is only looked at by COMMIT: the nearest to a COMMIT that fails of itself.
    let mut connection = foreign(&temporary.path()).await;
    execute(
        &mut connection,
        "CREATE TABLE parents (x INTEGER PRIMARY KEY); \
         CREATE TABLE broken (x INTEGER REFERENCES parents (x) DEFERRABLE INITIALLY DEFERRED); \
         CREATE TRIGGER breaks AFTER INSERT ON history BEGIN INSERT INTO broken VALUES (1); END",
    )
    .await;
    let end = ending(key, 3, ExecutionState::Succeeded, 5);
    assert!(matches!(temporary.store.commit(vec![end.clone()]).await, Err(Error::Unavailable(_))));
    assert_eq!(temporary.store.history(key, 0, 10, usize::MAX).await.unwrap().len(), 1);
    assert_eq!(temporary.store.count().await.unwrap(), [(ExecutionState::Running, 1)].into());
    execute(&mut connection, "DROP TRIGGER breaks").await;
    written(&temporary.store, end).await;
    assert_eq!(temporary.store.count().await.unwrap(), [(ExecutionState::Succeeded, 1)].into());
}

#[tokio::test]
async fn a_commit_that_nobody_waits_for_is_done_all_the_same() {
    let temporary = temporary().await;
    for number in 1..40_u128 {
        let commit = temporary.store.commit(vec![start(&format!("e{number}"), number)]);
        // Polled a few times and dropped at some point of its way.
        let mut commit = std::pin::pin!(commit);
        for _ in 0..number % 5 + 1 {
            if futures_util::poll!(commit.as_mut()).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    written(&temporary.store, start("last", 99)).await;
    assert_eq!(temporary.store.count().await.unwrap(), [(ExecutionState::Running, 40)].into());
}

#[tokio::test]
async fn a_read_that_nobody_waits_for_leaves_no_transaction_behind() {
    let temporary = temporary_with(Options { readers: 1, ..Options::default() }).await;
    let key = written(&temporary.store, start("a", 1)).await;
    for polls in 0..30 {
        let mut load = std::pin::pin!(temporary.store.load(key));
        for _ in 0..polls {
            if futures_util::poll!(load.as_mut()).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    written(&temporary.store, append(key, 3, 3)).await;
    assert_eq!(temporary.store.load(key).await.unwrap().unwrap().history.len(), 2);
}

#[tokio::test]
async fn a_read_that_is_too_old_is_ended() {
    let temporary = temporary_with(Options { read_age_max: Duration::from_millis(100), ..Options::default() }).await;
    let list = async |limit| temporary.store.list(&orbit::store::ListFilter::default(), None, limit).await;
    // As many rows as it takes for one read of all to last longer than that, on whatever machine.
    let (mut rows, mut ended) = (0, false);
    while !ended {
        assert!(rows < 1_000_000, "reading them all takes longer");
        let batch = (rows..rows + 20_000).map(|n| with_labels(start(&format!("e{n}"), n + 1), &[("k", "v")])).collect();
        rows += 20_000;
        temporary.store.commit(batch).await.unwrap();
        ended = matches!(list(usize::MAX).await, Err(Error::Unavailable(_)));
    }
    // A short one is in time, as soon as the machine has a moment.
    let mut answers = 0;
    while list(1).await.is_err() {
        answers += 1;
        assert!(answers < 100, "a short read is in time");
    }
}

#[tokio::test]
async fn after_closing_every_call_is_unavailable() {
    let temporary = temporary().await;
    written(&temporary.store, start("a", 1)).await;
    temporary.store.close().await.unwrap();
    assert!(matches!(temporary.store.commit(vec![start("b", 2)]).await, Err(Error::Unavailable(_))));
    assert!(matches!(temporary.store.count().await, Err(Error::Unavailable(_))));
    assert_eq!(temporary.store.size().await.unwrap().log_bytes, 0);
    temporary.store.close().await.unwrap();
}

const SHORT_LOG: u64 = 256 << 10;

fn short_log() -> Options {
    let options = Options::default();
    Options {
        log_copy_bytes: SHORT_LOG,
        log_restart_bytes: 2 * SHORT_LOG,
        log_truncate_bytes: 4 * SHORT_LOG,
        ..options
    }
}

/// Commits events until the log has grown beyond `bytes`, or `rows` are written. Answers with the longest log.
async fn fill(store: &SqliteStore, id: &str, number: u128, rows: u64, bytes: u64) -> u64 {
    let key = written(store, start(id, number)).await;
    let mut longest = 0;
    for number in 3..3 + rows {
        written(store, Append { events: vec![7; 6000].into(), ..append(key, number, number) }).await;
        longest = longest.max(store.size().await.unwrap().log_bytes);
        if longest > bytes {
            break;
        }
    }
    longest
}

#[tokio::test]
async fn c101_an_old_reader_lets_the_log_grow_only_until_it_ends() {
    let temporary = temporary_with(short_log()).await;
    let mut reader = foreign(&temporary.path()).await;
    execute(&mut reader, "BEGIN; SELECT count(*) FROM history").await;
    let longest = fill(&temporary.store, "a", 1, 10_000, 16 * SHORT_LOG).await;
    assert!(longest > 16 * SHORT_LOG, "the reader did not hold the log");
    execute(&mut reader, "COMMIT").await;
    // Nobody commits any more: the log is shortened by itself.
    until("the log is short", async || temporary.store.size().await.unwrap().log_bytes < 4 * SHORT_LOG).await;
    assert_eq!(temporary.store.count().await.unwrap(), [(ExecutionState::Running, 1)].into());
}

#[tokio::test]
async fn c101_the_log_stays_short_while_commits_go_on() {
    let temporary = temporary_with(short_log()).await;
    // Six times what the log may have; a look comes every 100 ms, in which fast disks write some megabytes.
    let mut written_bytes = 0;
    for number in 1..=4 {
        fill(&temporary.store, &format!("e{number}"), number, 300, u64::MAX).await;
        written_bytes += 300 * 6000;
        until("the log is short", async || temporary.store.size().await.unwrap().log_bytes <= 6 * SHORT_LOG).await;
    }
    assert!(written_bytes > 6 * SHORT_LOG);
}

#[tokio::test]
async fn statistics_tell_what_an_append_costs() {
    let temporary = temporary().await;
    let before = temporary.store.statistics();
    let key = written(&temporary.store, with_labels(start("a", 1), &[("k", "v"), ("l", "w")])).await;
    let start_cost = temporary.store.statistics().since(&before);
    assert_eq!(start_cost.transactions, 1);
    for (change, rows) in [
        (Change::ExecutionInserted, 1),
        (Change::HistoryInserted, 1),
        (Change::LabelInserted, 2),
        (Change::CounterChanged, 1),
    ] {
        assert_eq!(start_cost.rows(change), rows, "{change:?}");
    }
    assert_eq!(start_cost.rows_all(), 5);

    let before = temporary.store.statistics();
    let rest = append(key, 4, 4);
    assert_eq!(temporary.store.commit(vec![append(key, 3, 3)]).await.unwrap(), [Committed::Written(key)]);
    let step_cost = temporary.store.statistics().since(&before);
    assert_eq!((step_cost.transactions, step_cost.rows(Change::HistoryInserted), step_cost.rows_all()), (1, 1, 1));

    let before = temporary.store.statistics();
    let stale = append(key, 3, 3);
    assert_eq!(temporary.store.commit(vec![stale]).await.unwrap(), [Committed::Conflict]);
    assert_eq!(temporary.store.statistics().since(&before).rows_all(), 0);
    written(&temporary.store, rest).await;
}

#[tokio::test]
async fn events_up_to_the_floor_are_never_written_again() {
    let temporary = temporary().await;
    let key = written(&temporary.store, start("a", 1)).await;
    written(&temporary.store, append(key, 3, 5)).await;
    let mut connection = foreign(&temporary.path()).await;
    execute(&mut connection, "UPDATE executions SET floor_seq = 5; DELETE FROM history").await;
    for stale in [1, 3, 5, 7] {
        assert_eq!(
            temporary.store.commit(vec![append(key, stale, stale)]).await.unwrap(),
            [Committed::Conflict],
            "{stale}"
        );
    }
    assert_eq!(temporary.store.commit(vec![append(key, 6, 6)]).await.unwrap(), [Committed::Written(key)]);
}

#[tokio::test]
async fn without_sync_is_only_what_was_asked_for() {
    let temporary = temporary_with(Options { unsafe_without_sync: true, ..Options::default() }).await;
    written(&temporary.store, start("a", 1)).await;
    temporary.store.close().await.unwrap();
}
