//! What each action writes, line by line of the cost table, through the engine on SQLite and on PostgreSQL.
//!
//! Presence (one transaction a second where anything was heard, with the node's row in it) is told apart by that row.
#![allow(
    clippy::disallowed_methods,
    reason = "databases work in threads and processes of their own, so these tests wait in real time"
)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use orbit::clock::{SystemClock, SystemEntropy};
use orbit::domain::{ExecutionId, Payload, Phase, SessionId, Settings, definition::Definition};
use orbit::engine::{
    Config, Engine, ExecutionName, HeldToken, Outlet, Registration, Report, StartExecution, Task, input_digest,
};
use orbit::store::{Change, PostgresStore, SqliteStore, Statistics, Store, postgres, sqlite};
use std::{any::Any, collections::BTreeMap, sync::Arc, time::Duration};

#[path = "support/postgres.rs"]
mod server;

/// Long enough that nothing of it is due in a test that does not wait for it.
const CALM: Duration = Duration::from_secs(60);
/// Short enough to wait for.
const SHORT: Duration = Duration::from_millis(1_500);

const TWO_TASKS: &str =
    "labels: {team: shop}\ntasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1}\n  - {id: b, task: a@1, needs: [a]}\n";

/// Which store is measured.
#[derive(Clone, Copy)]
enum On {
    Sqlite,
    Postgres,
}

struct Bench {
    engine: Engine,
    statistics: Box<dyn Fn() -> Statistics>,
    /// What goes with the test: its file or its database.
    _database: Box<dyn Any>,
}

/// Makes a test on each store of each case: `async fn(On)`.
macro_rules! on_both {
    ($($case:ident),+ $(,)?) => {
        mod on_sqlite {
            $(#[tokio::test]
            async fn $case() {
                super::$case(super::On::Sqlite).await;
            })+
        }
        mod on_postgres {
            $(#[tokio::test]
            async fn $case() {
                super::$case(super::On::Postgres).await;
            })+
        }
    };
}

/// What was written, presence apart.
#[derive(PartialEq, Eq, Debug)]
struct Cost {
    transactions: u64,
    rows: Vec<(Change, u64)>,
}

fn cost<const N: usize>(transactions: u64, rows: [(Change, u64); N]) -> Cost {
    Cost { transactions, rows: rows.into() }
}

impl Bench {
    async fn new(on: On, session_timeout: Duration) -> Self {
        match on {
            On::Sqlite => {
                let directory = tempfile::tempdir().unwrap();
                let file = directory.path().join("orbit.db");
                let store = Arc::new(SqliteStore::open(&file, sqlite::Options::default()).await.unwrap());
                let engine = engine(store.clone(), session_timeout);
                Self { engine, statistics: Box::new(move || store.statistics()), _database: Box::new(directory) }
            }
            On::Postgres => {
                let database = server::fresh_database().await;
                let options = postgres::Options::new(database.url());
                let store = Arc::new(PostgresStore::open(options).await.unwrap());
                let engine = engine(store.clone(), session_timeout);
                Self { engine, statistics: Box::new(move || store.statistics()), _database: Box::new(database) }
            }
        }
    }

    async fn deploy(&self, name: &str, lines: &str) {
        let text = format!("name: {name}\nversion: 1.0.0\n{lines}");
        let (definition, _) = Definition::parse("test.yaml", &text).unwrap();
        self.engine.deploy(definition, text).await.unwrap();
    }

    async fn worker(&self) -> SessionId {
        let registration = Registration {
            worker_id: "w".into(),
            language: "".into(),
            sdk: "".into(),
            build: "".into(),
            queues: vec!["default".into()],
            contracts: vec!["a@1".into()],
            slots: 100,
            message_bytes_max: 4 << 20,
            previous_session: None,
        };
        self.engine.register(registration).await.unwrap().session
    }

    /// A worker that waits for as many tasks.
    async fn waiting(&self, credits: u32) -> Outlet {
        let stream = self.engine.open_stream(self.worker().await).await.unwrap();
        stream.granter().grant(credits);
        // The pool must be known before a hand-off may be.
        tokio::time::sleep(Duration::from_millis(50)).await;
        stream
    }

    async fn start(&self, workflow: &str, id: &str) {
        self.engine.start_execution(start(workflow, id)).await.unwrap();
    }

    async fn complete(&self, task: &Task) {
        let report = Report::Complete { output: Payload::from_json("1") };
        self.engine.report(task.token.clone(), report).await.unwrap();
    }

    async fn poll(&self, session: SessionId) -> Vec<Task> {
        self.engine.poll(session, 1, Duration::from_millis(300)).await.unwrap().tasks
    }

    /// What an action writes.
    async fn cost<T>(&self, action: impl Future<Output = T>) -> (Cost, T) {
        let before = (self.statistics)();
        let answer = action.await;
        (without_presence(&(self.statistics)().since(&before)), answer)
    }
}

fn engine(store: Arc<dyn Store>, session_timeout: Duration) -> Engine {
    let config = Config {
        settings: Settings { session_timeout, ..Settings::default() },
        cache_bytes_max: 1 << 20,
        ..Config::default()
    };
    let clock = match store.opened().newest_now {
        Some(now) if store.is_shared() => SystemClock::starting_exactly_at(now),
        newest => SystemClock::starting_at(newest),
    };
    Engine::start(store, Arc::new(clock), Arc::new(SystemEntropy), config)
}

fn start(workflow: &str, id: &str) -> StartExecution {
    StartExecution {
        id: Some(ExecutionId::parse(id).unwrap()),
        workflow: workflow.into(),
        version: None,
        input: Payload::from_json("{}"),
        input_digest: input_digest(workflow, "{}"),
        labels: BTreeMap::new(),
        request: None,
        id_reuse: orbit::engine::IdReuse::Reject,
        trace_parent: "".into(),
        delay: None,
        signal: None,
    }
}

fn without_presence(written: &Statistics) -> Cost {
    let presence = written.rows(Change::NodeWritten);
    let is_presence = |change: &Change| matches!(change, Change::NodeWritten | Change::SessionWritten);
    let rows = Change::ALL.iter().filter(|change| !is_presence(change));
    Cost {
        transactions: written.transactions - presence,
        rows: rows.map(|change| (*change, written.rows(*change))).filter(|(_, rows)| *rows > 0).collect(),
    }
}

on_both![
    a_start_with_a_worker_waiting_is_one_transaction_of_its_execution_its_labels_and_one_history_row,
    a_start_without_a_worker_adds_a_ready_row,
    a_poll_that_takes_a_queued_unit_is_one_history_row_and_its_ready_row,
    a_step_that_is_done_and_the_next_that_is_handed_off_are_one_history_row,
    heartbeats_and_empty_polls_write_nothing_but_one_row_of_presence_at_a_time,
    a_task_longer_than_a_session_timeout_costs_two_transactions_and_its_row_s_end_one_more,
    counters_cost_one_row_for_each_state_and_batch,
    sleeping_executions_cost_nothing_and_take_no_memory,
];

async fn a_start_with_a_worker_waiting_is_one_transaction_of_its_execution_its_labels_and_one_history_row(on: On) {
    let bench = Bench::new(on, CALM).await;
    bench.deploy("two", TWO_TASKS).await;
    let mut worker = bench.waiting(1).await;
    let (written, ()) = bench.cost(bench.start("two", "e")).await;
    let rows = [
        (Change::ExecutionInserted, 1),
        (Change::HistoryInserted, 1),
        (Change::LabelInserted, 1),
        (Change::CounterChanged, 1),
    ];
    assert_eq!(written, cost(1, rows));
    assert_eq!(worker.next().await.unwrap().len(), 1);
}

async fn a_start_without_a_worker_adds_a_ready_row(on: On) {
    let bench = Bench::new(on, CALM).await;
    bench.deploy("two", TWO_TASKS).await;
    let (written, ()) = bench.cost(bench.start("two", "e")).await;
    let rows = [
        (Change::ExecutionInserted, 1),
        (Change::HistoryInserted, 1),
        (Change::ReadyInserted, 1),
        (Change::LabelInserted, 1),
        (Change::CounterChanged, 1),
    ];
    assert_eq!(written, cost(1, rows));
}

async fn a_poll_that_takes_a_queued_unit_is_one_history_row_and_its_ready_row(on: On) {
    let bench = Bench::new(on, CALM).await;
    bench.deploy("two", TWO_TASKS).await;
    let session = bench.worker().await;
    bench.start("two", "e").await;
    let (written, tasks) = bench.cost(bench.poll(session)).await;
    // The first delivery of an execution that had nothing due is the first thing that is: its row learns when.
    let rows = [(Change::ExecutionUpdated, 1), (Change::HistoryInserted, 1), (Change::ReadyDeleted, 1)];
    assert_eq!(written, cost(1, rows));
    bench.complete(&tasks[0]).await;
    let (written, tasks) = bench.cost(bench.poll(session)).await;
    assert_eq!(tasks.len(), 1);
    assert_eq!(written, cost(1, [(Change::HistoryInserted, 1), (Change::ReadyDeleted, 1)]), "from then on it knows");
}

async fn a_step_that_is_done_and_the_next_that_is_handed_off_are_one_history_row(on: On) {
    let bench = Bench::new(on, CALM).await;
    bench.deploy("two", TWO_TASKS).await;
    let mut worker = bench.waiting(2).await;
    bench.start("two", "e").await;
    let first = worker.next().await.unwrap().remove(0);
    let (written, ()) = bench.cost(bench.complete(&first)).await;
    assert_eq!(written, cost(1, [(Change::HistoryInserted, 1)]));
    let second = worker.next().await.unwrap().remove(0);
    let (written, ()) = bench.cost(bench.complete(&second)).await;
    let rows = [(Change::ExecutionUpdated, 1), (Change::HistoryInserted, 1), (Change::CounterChanged, 2)];
    assert_eq!(written, cost(1, rows), "the last step closes its execution");
}

async fn heartbeats_and_empty_polls_write_nothing_but_one_row_of_presence_at_a_time(on: On) {
    let bench = Bench::new(on, SHORT).await;
    bench.deploy("two", TWO_TASKS).await;
    let mut worker = bench.waiting(1).await;
    let session = bench.worker().await;
    bench.start("two", "e").await;
    let task = worker.next().await.unwrap().remove(0);
    let before = (bench.statistics)();
    let began = tokio::time::Instant::now();
    for _ in 0..10 {
        let held = HeldToken { token: task.token.clone(), progress: None, beat: false };
        bench.engine.heartbeat(session, vec![held]).await.unwrap();
        bench.engine.poll(session, 1, Duration::from_millis(10)).await.unwrap();
    }
    let written = (bench.statistics)().since(&before);
    assert_eq!(without_presence(&written), cost(0, []));
    let rounds = began.elapsed().as_millis() / (SHORT.as_millis() / 10) + 1;
    assert!(u128::from(written.transactions) <= rounds, "{} transactions in {rounds} rounds", written.transactions);
}

async fn a_task_longer_than_a_session_timeout_costs_two_transactions_and_its_row_s_end_one_more(on: On) {
    let bench = Bench::new(on, SHORT).await;
    bench.deploy("two", TWO_TASKS).await;
    let session = bench.worker().await;
    bench.start("two", "e").await;
    let task = bench.poll(session).await.remove(0);
    let (written, ()) = bench
        .cost(async {
            for _ in 0..12 {
                let held = HeldToken { token: task.token.clone(), progress: None, beat: false };
                bench.engine.heartbeat(session, vec![held]).await.unwrap();
                tokio::time::sleep(SHORT / 4).await;
            }
        })
        .await;
    // The held row goes with presence; the append that tells of it also says when the execution is due next.
    let rows = [(Change::ExecutionUpdated, 1), (Change::HistoryInserted, 1), (Change::HeldWritten, 1)];
    assert_eq!(written, cost(1, rows), "for the whole task, however long");
    let (written, ()) = bench
        .cost(async {
            bench.complete(&task).await;
            tokio::time::sleep(SHORT / 2).await;
        })
        .await;
    assert_eq!(written.transactions, 2);
    assert!(written.rows.contains(&(Change::HeldDeleted, 1)), "{written:?}");
}

async fn counters_cost_one_row_for_each_state_and_batch(on: On) {
    const EXECUTIONS: u64 = 200;
    let bench = Bench::new(on, CALM).await;
    bench.deploy("two", TWO_TASKS).await;
    bench.deploy("done", "steps:\n  - {id: a, compute: 1}\n").await;
    let count = |written: &Cost| written.rows.iter().find(|(change, _)| *change == Change::CounterChanged).unwrap().1;
    for (workflow, states) in [("two", 1), ("done", 1)] {
        let (written, ()) = bench
            .cost(async {
                let starts = (0..EXECUTIONS).map(|number| {
                    let engine = bench.engine.clone();
                    let call = start(workflow, &format!("{workflow}-{number}"));
                    tokio::spawn(async move { engine.start_execution(call).await.unwrap() })
                });
                for start in starts.collect::<Vec<_>>() {
                    start.await.unwrap();
                }
            })
            .await;
        assert!(written.transactions < EXECUTIONS / 4, "they share transactions: {written:?}");
        assert!(count(&written) <= states * written.transactions, "{written:?}");
    }
    // What ends changes two: the state it leaves and the one it comes to.
    let (written, ()) = bench
        .cost(async {
            let ends = (0..EXECUTIONS).map(|number| {
                let engine = bench.engine.clone();
                let name = ExecutionName { id: ExecutionId::parse(&format!("two-{number}")).unwrap(), uid: None };
                tokio::spawn(async move { engine.terminate(&name, "".into(), None).await.unwrap() })
            });
            for end in ends.collect::<Vec<_>>() {
                end.await.unwrap();
            }
        })
        .await;
    assert!(count(&written) <= 2 * written.transactions, "{written:?}");
}

async fn sleeping_executions_cost_nothing_and_take_no_memory(on: On) {
    let bench = Bench::new(on, SHORT).await;
    bench.deploy("nap", "steps:\n  - {id: a, sleep: {for: 1h}}\n").await;
    for number in 0..1_000 {
        bench.start("nap", &format!("e{number}")).await;
    }
    let (written, ()) = bench.cost(tokio::time::sleep(2 * SHORT)).await;
    assert_eq!(written, cost(0, []));
    let sizes = bench.engine.sizes();
    assert_eq!(sizes.timers, 0, "no tick");
    assert!(sizes.cache_bytes <= 1 << 20, "memory is bounded in bytes: {sizes:?}");
    let name = ExecutionName { id: ExecutionId::parse("e0").unwrap(), uid: None };
    assert_eq!(bench.engine.execution(&name).await.unwrap().state.phase(), Phase::Running);
}
