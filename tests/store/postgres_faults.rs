//! What a store on PostgreSQL makes of faults: lost answers, transactions in each other's way, calls that nobody waits for,
//! lines that die in silence, servers that are gone or became standbys.
#![allow(clippy::disallowed_methods, reason = "a database answers in real time")]

use crate::{
    OnPostgres, PostgresOptions,
    line::Line,
    make::*,
    postgres_server::{execute, with_database},
    written,
};
use futures_util::future::join_all;
use orbit::store::{
    Append, Change, Committed, Error, ExecutionKey, ExecutionState, Find, Heard, Hints, PostgresStore, Presence,
    ReadyUnit, Store,
};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::mpsc::Receiver;

/// Longer than anything may take that works.
const SOON: Duration = Duration::from_secs(10);

/// Raises an error in the first so many transactions that insert history: at once, or when they commit.
async fn raise(url: &str, code: &str, times: u32, at_commit: bool) {
    let (kind, when) = if at_commit { ("CONSTRAINT", "DEFERRABLE INITIALLY DEFERRED") } else { ("", "") };
    // A sequence counts on though its transaction is rolled back.
    let statements = format!(
        "CREATE SEQUENCE faults; \
         CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
           IF nextval('faults') <= {times} THEN RAISE EXCEPTION 'injected' USING ERRCODE = '{code}'; END IF; \
           RETURN NULL; END $$; \
         CREATE {kind} TRIGGER fault AFTER INSERT ON history {when} FOR EACH ROW EXECUTE FUNCTION fault()"
    );
    execute(url, &statements).await;
}

async fn heal(url: &str) {
    execute(url, "DROP TRIGGER fault ON history; DROP FUNCTION fault; DROP SEQUENCE faults").await;
}

/// Ends the server's side of every other connection to this database.
async fn end_sessions(url: &str, which: &str) {
    let end = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'orbit' AND {which}"
    );
    execute(url, &end).await;
}

async fn number(url: &str, query: &str) -> i64 {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::query_scalar(AssertSqlSafe(query.to_owned())).fetch_one(&mut connection).await.unwrap()
}

/// All that an execution has is there once.
async fn is_whole(store: &dyn Store, key: ExecutionKey, last_number: u64) {
    let history = store.history(key, 0, usize::MAX, usize::MAX).await.unwrap();
    let mut next = 1;
    for row in &history {
        assert_eq!(row.first_number, next);
        next = row.last_number + 1;
    }
    assert_eq!(next, last_number + 1);
}

fn waiting(name: &str) -> Vec<ReadyUnit> {
    vec![unit(name, 1, 1)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c099_a_lost_answer_to_a_commit_is_found_out() {
    let on_postgres = OnPostgres::new().await;
    let line = Line::to(&on_postgres.database.url()).await;
    let store = PostgresStore::open(PostgresOptions::new(line.url())).await.unwrap();
    let first = written(&store, start("first", 1)).await;
    for lost in 1..=3 {
        line.lose_answers(lost);
        // A start, its companions, a step, an end, and one that conflicts: all in one batch.
        let n = u128::from(lost) * 10;
        let other = written(&on_postgres.store, start(&format!("other-{lost}"), n)).await;
        let begin =
            Append { ready_added: waiting("u"), ..with_labels(start(&format!("new-{lost}"), n + 1), &[("k", "v")]) };
        let taken = start("first", n + 2);
        let step = append(first, 2 + u64::from(lost), 2 + u64::from(lost));
        let outcomes =
            store.commit(vec![begin, ending(other, 3, ExecutionState::Succeeded, 9), taken, step]).await.unwrap();
        let Committed::Written(new) = outcomes[0] else { panic!("{outcomes:?}") };
        assert_eq!(
            outcomes[1..],
            [Committed::Written(other), Committed::Conflict, Committed::Written(first)],
            "{lost} lost"
        );
        is_whole(&store, new, 2).await;
        is_whole(&store, other, 3).await;
        is_whole(&store, first, 2 + u64::from(lost)).await;
    }
    let counts = store.count().await.unwrap();
    assert_eq!(counts, [(ExecutionState::Running, 4), (ExecutionState::Succeeded, 3)].into(), "counted once");
    assert_eq!(store.ready(&pool(), 10).await.unwrap().len(), 3);
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c099_a_session_that_is_ended_in_the_middle_costs_no_append() {
    let on_postgres = OnPostgres::new().await;
    let (store, url) = (Arc::new(on_postgres.another_node().await), on_postgres.database.url());
    let keys = join_all((0..4).map(|n| {
        let store = store.clone();
        async move { written(&*store, start(&format!("e{n}"), n + 1)).await }
    }))
    .await;
    let lanes = keys.iter().map(|key| {
        let (store, key) = (store.clone(), *key);
        tokio::spawn(async move {
            for number in 3..=150 {
                assert_eq!(store.commit(vec![append(key, number, number)]).await.unwrap(), [Committed::Written(key)]);
            }
        })
    });
    let lanes = join_all(lanes);
    let killer = async {
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            end_sessions(&url, "query LIKE 'WITH %'").await;
        }
    };
    let (lanes, ()) = futures_util::future::join(lanes, killer).await;
    for lane in lanes {
        lane.unwrap();
    }
    for key in keys {
        is_whole(&*store, key, 150).await;
    }
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c109_failures_of_the_moment_are_tried_again_whole() {
    for code in ["40001", "40P01", "55P03"] {
        for at_commit in [false, true] {
            let on_postgres = OnPostgres::new().await;
            let (store, url) = (&on_postgres.store, on_postgres.database.url());
            let key = written(store, start("a", 1)).await;
            raise(&url, code, 3, at_commit).await;
            let outcomes = store.commit(vec![append(key, 3, 3), start("b", 2)]).await.unwrap();
            assert!(outcomes.iter().all(|outcome| matches!(outcome, Committed::Written(_))), "{code}: {outcomes:?}");
            assert_eq!(store.count().await.unwrap(), [(ExecutionState::Running, 2)].into());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c109_a_failure_that_does_not_end_is_unavailable_and_never_an_append_s_own() {
    let on_postgres = OnPostgres::new().await;
    let (store, url) = (&on_postgres.store, on_postgres.database.url());
    let key = written(store, start("a", 1)).await;
    raise(&url, "40001", 1_000_000, false).await;
    let begin = Instant::now();
    let failed = store.commit(vec![append(key, 3, 3)]).await;
    assert!(matches!(failed, Err(Error::Unavailable(_))), "{failed:?}");
    assert!(begin.elapsed() < SOON);
    heal(&url).await;
    assert_eq!(store.commit(vec![append(key, 3, 3)]).await.unwrap(), [Committed::Written(key)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_write_the_same_executions_in_other_orders_do_not_stop_each_other() {
    let on_postgres = OnPostgres::new().await;
    let nodes = [Arc::new(on_postgres.another_node().await), Arc::new(on_postgres.another_node().await)];
    let starts: Vec<Append> = (0..50).map(|n| start(&format!("e{n}"), n + 1)).collect();
    let mut keys = Vec::new();
    for outcome in on_postgres.store.commit(starts).await.unwrap() {
        let Committed::Written(key) = outcome else { panic!("{outcome:?}") };
        keys.push(key);
    }
    let begin = Instant::now();
    for round in 3..=20 {
        let rivals = (0..4).map(|rival: u64| {
            let (node, mut keys) = (nodes[rival as usize % 2].clone(), keys.clone());
            keys.rotate_left(rival as usize * 11);
            if rival.is_multiple_of(2) {
                keys.reverse();
            }
            tokio::spawn(async move {
                let batch = keys.iter().map(|key| append(*key, round, round)).collect();
                let outcomes = node.commit(batch).await.unwrap();
                outcomes.iter().filter(|outcome| matches!(outcome, Committed::Written(_))).count()
            })
        });
        let won: usize = join_all(rivals).await.into_iter().map(Result::unwrap).sum();
        assert_eq!(won, 50, "each number once");
    }
    // The server looks for a circle after a second.
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    let query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(number(&on_postgres.database.url(), query).await, 0);
}

#[tokio::test]
async fn an_append_that_the_database_refuses_stands_alone_in_the_end() {
    let on_postgres = OnPostgres::new().await;
    let store = &on_postgres.store;
    execute(&on_postgres.database.url(), "ALTER TABLE history ADD CONSTRAINT short CHECK (octet_length(events) < 100)")
        .await;
    let mut batch: Vec<Append> = (0..7).map(|n| start(&format!("e{n}"), n + 1)).collect();
    batch[4].events = vec![1; 100].into();
    let outcomes = store.commit(batch).await.unwrap();
    for (place, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Committed::Failed { what } if place == 4 => assert!(what.contains("short"), "{what}"),
            Committed::Written(_) if place != 4 => {}
            other => panic!("{place}: {other:?}"),
        }
    }
    assert_eq!(store.count().await.unwrap(), [(ExecutionState::Running, 6)].into());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c107_calls_that_nobody_waits_for_leave_no_transaction_behind_and_lose_no_write() {
    let on_postgres = OnPostgres::new().await;
    let url = on_postgres.database.url();
    let options = PostgresOptions { pool_size: 2, committers: 2, ..PostgresOptions::new(&url) };
    let store = Arc::new(PostgresStore::open(options).await.unwrap());
    let key = written(&*store, start("a", 1)).await;
    store.put_session(&session(1, 1)).await.unwrap();
    let storm = (0..2_000_u64).map(|n| {
        let store = store.clone();
        tokio::spawn(async move {
            let call = async {
                match n % 4 {
                    0 => drop(store.load(key).await),
                    1 => drop(store.put_definition(&definition("d", &format!("1.0.{n}"), n as u8)).await),
                    2 => {
                        let contacts = vec![(session(1, 0).id, time(n as i64))];
                        drop(store.presence(&Presence { contacts, ..Presence::default() }).await);
                    }
                    _ => drop(store.commit(vec![start(&format!("s{n}"), u128::from(n) + 10)]).await),
                }
            };
            // From before the first packet to after the last.
            let _ = tokio::time::timeout(Duration::from_micros(n * 7 % 5_000), call).await;
        })
    });
    for call in storm.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    // What is under way ends by itself.
    for number in 3..=60 {
        assert_eq!(store.commit(vec![append(key, number, number)]).await.unwrap(), [Committed::Written(key)]);
        store.put_session(&session(u128::from(number), 1)).await.unwrap();
        assert!(store.session(session(u128::from(number), 1).id).await.unwrap().is_some());
    }
    is_whole(&*store, key, 60).await;
    let idle = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    assert_eq!(number(&url, idle).await, 0);
    assert_eq!(number(&url, "SELECT count(*) FROM sessions").await, 59, "no write is lost");
    let executions = number(&url, "SELECT count(*) FROM executions").await;
    assert_eq!(store.count().await.unwrap(), [(ExecutionState::Running, u64::try_from(executions).unwrap())].into());
    assert_eq!(number(&url, "SELECT count(DISTINCT execution_key) FROM history").await, executions);
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_swallows_everything_is_unavailable_in_bounded_time_and_heals() {
    let on_postgres = OnPostgres::new().await;
    let line = Line::to(&on_postgres.database.url()).await;
    let options = PostgresOptions { operation_timeout: Duration::from_millis(500), ..PostgresOptions::new(line.url()) };
    let store = PostgresStore::open(options).await.unwrap();
    let key = written(&store, start("a", 1)).await;
    line.be_silent(true);
    let begin = Instant::now();
    let row = session(1, 1);
    let (committed, read, told) =
        tokio::join!(store.commit(vec![append(key, 3, 3)]), store.load(key), store.put_session(&row));
    assert!(matches!(committed, Err(Error::Unavailable(_))), "{committed:?}");
    assert!(matches!(read, Err(Error::Unavailable(_))), "{read:?}");
    assert!(matches!(told, Err(Error::Unavailable(_))), "{told:?}");
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    line.be_silent(false);
    assert_eq!(store.commit(vec![append(key, 3, 3)]).await.unwrap(), [Committed::Written(key)]);
    assert_eq!(store.load(key).await.unwrap().unwrap().history.len(), 2);
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_turns_read_only_is_unavailable_until_it_can_be_written_to() {
    let on_postgres = OnPostgres::new().await;
    let (store, url) = (&on_postgres.store, on_postgres.database.url());
    let key = written(store, start("a", 1)).await;
    let name = url.rsplit('/').next().unwrap().split('?').next().unwrap().to_owned();
    execute(&url, &format!("ALTER DATABASE {name} SET default_transaction_read_only = on")).await;
    end_sessions(&url, "true").await;
    let failed = store.commit(vec![append(key, 3, 3)]).await;
    assert!(matches!(failed, Err(Error::Unavailable(_))), "{failed:?}");
    assert!(matches!(store.put_session(&session(1, 1)).await, Err(Error::Unavailable(_))));
    assert!(
        matches!(store.load(key).await, Err(Error::Unavailable(_))),
        "it may be behind the one that has taken over"
    );
    execute(&with_database(&url, "postgres"), &format!("ALTER DATABASE {name} RESET default_transaction_read_only"))
        .await;
    assert_eq!(store.commit(vec![append(key, 3, 3)]).await.unwrap(), [Committed::Written(key)]);
    // The connections of before have gone with their failures.
    store.put_session(&session(1, 1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_restarted_costs_a_commit_nothing_but_time() {
    let server = crate::postgres_server::PrivateServer::start();
    let database = crate::postgres_server::Database::make(server.url()).await;
    let store = Arc::new(PostgresStore::open(PostgresOptions::new(database.url())).await.unwrap());
    let key = written(&*store, start("a", 1)).await;
    server.kill();
    let commit = {
        let store = store.clone();
        tokio::spawn(async move { store.commit(vec![append(key, 3, 3)]).await })
    };
    server.start_again();
    let committed = match commit.await.unwrap() {
        Ok(committed) => committed,
        // It took longer than a commit waits.
        Err(Error::Unavailable(_)) => store.commit(vec![append(key, 3, 3)]).await.unwrap(),
        Err(other) => panic!("{other:?}"),
    };
    assert_eq!(committed, [Committed::Written(key)]);
    is_whole(&*store, key, 3).await;
    assert!(store.execution(&Find::Id("a".into())).await.unwrap().is_some());
    store.close().await.unwrap();
    drop(database);
}

async fn heard(receiver: &mut Receiver<Heard>) -> Heard {
    tokio::time::timeout(SOON, receiver.recv()).await.unwrap().unwrap()
}

fn news(number: u64) -> Hints {
    Hints { queues: [format!("q{number}").into()].into(), executions: [(ExecutionKey(7), number)].into() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_nodes_hear_what_one_tells_and_it_does_not_hear_itself() {
    let on_postgres = OnPostgres::new().await;
    let other = on_postgres.another_node().await;
    let (mut own, mut others) = (on_postgres.store.listen(), other.listen());
    on_postgres.store.publish(&news(1)).await.unwrap();
    assert_eq!(heard(&mut others).await, Heard::Hints(news(1)));
    other.publish(&news(2)).await.unwrap();
    assert_eq!(heard(&mut own).await, Heard::Hints(news(2)));
    // More than one message takes.
    let many = Hints { executions: (0..5_000).map(|key| (ExecutionKey(key), 9)).collect(), ..Hints::default() };
    other.publish(&many).await.unwrap();
    let mut whole = Hints::default();
    while whole != many {
        let Heard::Hints(hints) = heard(&mut own).await else { panic!("a gap") };
        whole.executions.extend(hints.executions);
    }
    assert!(own.try_recv().is_err() && others.try_recv().is_err());
    other.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_listens_and_is_lost_or_dies_in_silence_is_a_gap() {
    let on_postgres = OnPostgres::new().await;
    let (store, url) = (&on_postgres.store, on_postgres.database.url());
    let line = Line::to(&url).await;
    let far = PostgresStore::open(PostgresOptions::new(line.url())).await.unwrap();
    let mut receiver = far.listen();
    store.publish(&news(1)).await.unwrap();
    assert_eq!(heard(&mut receiver).await, Heard::Hints(news(1)));
    end_sessions(&url, "query LIKE 'LISTEN%'").await;
    assert_eq!(heard(&mut receiver).await, Heard::Gap);
    store.publish(&news(2)).await.unwrap();
    assert_eq!(heard(&mut receiver).await, Heard::Hints(news(2)));
    // Both ends go on believing that the line is there.
    let begin = Instant::now();
    line.be_silent(true);
    store.publish(&news(3)).await.unwrap();
    line.be_silent(false);
    assert_eq!(heard(&mut receiver).await, Heard::Gap);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    store.publish(&news(4)).await.unwrap();
    assert_eq!(heard(&mut receiver).await, Heard::Hints(news(4)));
    far.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c113_commits_notify_nobody_and_news_do_not_slow_them() {
    let on_postgres = OnPostgres::new().await;
    let store = Arc::new(on_postgres.another_node().await);
    let mut receiver = on_postgres.store.listen();
    let keys: Vec<ExecutionKey> = {
        let starts = (0..200).map(|n| start(&format!("e{n}"), n + 1)).collect();
        let key = |outcome| match outcome {
            Committed::Written(key) => key,
            other => panic!("{other:?}"),
        };
        store.commit(starts).await.unwrap().into_iter().map(key).collect()
    };
    let lanes = async |first: u64| {
        let before = store.statistics();
        let begin = Instant::now();
        let lanes = keys.chunks(50).map(|keys| {
            let (store, keys) = (store.clone(), keys.to_vec());
            tokio::spawn(async move {
                for number in first..first + 40 {
                    store.commit(keys.iter().map(|key| append(*key, number, number)).collect()).await.unwrap();
                }
            })
        });
        join_all(lanes).await.into_iter().for_each(Result::unwrap);
        let written = store.statistics().since(&before);
        assert_eq!((written.transactions, written.rows(Change::HistoryInserted)), (160, 8_000));
        assert_eq!(written.rows_all(), 8_000);
        begin.elapsed()
    };
    let alone = lanes(3).await;
    assert!(receiver.try_recv().is_err(), "a commit tells nobody");
    let telling = tokio::spawn({
        let store = store.clone();
        async move {
            for number in 0.. {
                store.publish(&news(number)).await.unwrap();
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    });
    let beside = lanes(43).await;
    telling.abort();
    assert!(matches!(heard(&mut receiver).await, Heard::Hints(_)));
    assert!(beside < alone * 2 + Duration::from_millis(500), "{beside:?} with news, {alone:?} without");
    store.close().await.unwrap();
}
