//! One fault after the other, and how soon everything goes on.
//!
//! The nodes' machines have clocks that are minutes apart all the while. Some callers and workers are busy beside what is
//! measured; at the end everybody's journal is judged.

use super::{Cluster, clock, proxy::Rule};
use crate::{
    caller::{Caller, Load},
    chance,
    connect::{self, Answer, admin_of},
    postgres::Stop,
    run::{Run, Serve as _, alone},
    server::Options,
    workflow::Plan,
};
use orbit::proto::worker::RegisterWorkerRequest;
use sqlx::{Connection as _, PgConnection};
use std::{
    fmt::Write as _,
    net::SocketAddr,
    time::{Duration, Instant},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How far the machines' clocks are ahead of the database's.
const CLOCKS_SECONDS: [i64; 3] = [0, 300, -420];

/// A task that was on its way when its node died is handed out again after this, so it is part of a recovery.
const SESSION_TIMEOUT: Duration = Duration::from_secs(2);

/// Within this everything must go on.
const RECOVERY_MAX: Duration = Duration::from_secs(5);

/// A recovery that takes this long does not come.
const PATIENCE: Duration = Duration::from_secs(40);

/// Tasks that are held when a fault begins.
const HELD: u64 = 6;

/// How long they are held.
const HELD_MILLIS: u64 = 300;

/// How long those that a fault is about are asked at least, while it lasts.
const ASKED_MIN: Duration = Duration::from_millis(500);

/// What is measured while a fault of the database lasts.
const MEANWHILE: &str = "all, while it lasts";

/// The first name of an execution that is measured; below are those of the callers beside. A name's remainder by eight says
/// what makes its start safe to repeat, so they go in eights: an id and a request id.
const FIRST_KEY: u64 = 1 << 32;

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// Nothing; what a recovery takes where there is none.
    Nothing,
    NodeKilled,
    NodeStopped,
    NodeRefusedByDatabase,
    NodeCutOffInSilence,
    NodeDeafToNews,
    DatabaseRestartedFast,
    DatabaseRestartedImmediately,
    DatabaseKilled,
    DatabaseStopped,
    DatabaseRefusing,
    DatabaseSlow,
    DatabaseOutOfConnections,
    DatabaseReadOnly,
}

impl Fault {
    const ALL: [Self; 14] = [
        Self::Nothing,
        Self::NodeKilled,
        Self::NodeStopped,
        Self::NodeRefusedByDatabase,
        Self::NodeCutOffInSilence,
        Self::NodeDeafToNews,
        Self::DatabaseRestartedFast,
        Self::DatabaseRestartedImmediately,
        Self::DatabaseKilled,
        Self::DatabaseStopped,
        Self::DatabaseRefusing,
        Self::DatabaseSlow,
        Self::DatabaseOutOfConnections,
        Self::DatabaseReadOnly,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing but clocks minutes apart",
            Self::NodeKilled => "node killed",
            Self::NodeStopped => "node stopped (SIGSTOP)",
            Self::NodeRefusedByDatabase => "node refused by the database",
            Self::NodeCutOffInSilence => "node cut off in silence",
            Self::NodeDeafToNews => "node's LISTEN dead in silence",
            Self::DatabaseRestartedFast => "database restarted (fast)",
            Self::DatabaseRestartedImmediately => "database restarted (immediate)",
            Self::DatabaseKilled => "database killed",
            Self::DatabaseStopped => "database stopped (SIGSTOP)",
            Self::DatabaseRefusing => "database refusing",
            Self::DatabaseSlow => "database slow (+200 ms)",
            Self::DatabaseOutOfConnections => "database out of connections",
            Self::DatabaseReadOnly => "database read-only",
        }
    }

    /// Whether the other nodes go on meanwhile.
    fn is_of_one_node(self) -> bool {
        match self {
            Self::Nothing
            | Self::NodeKilled
            | Self::NodeStopped
            | Self::NodeRefusedByDatabase
            | Self::NodeCutOffInSilence
            | Self::NodeDeafToNews => true,
            Self::DatabaseRestartedFast
            | Self::DatabaseRestartedImmediately
            | Self::DatabaseKilled
            | Self::DatabaseStopped
            | Self::DatabaseRefusing
            | Self::DatabaseSlow
            | Self::DatabaseOutOfConnections
            | Self::DatabaseReadOnly => false,
        }
    }

    /// Whether whoever calls meanwhile must be told UNAVAILABLE, and when to come again.
    fn is_told(self) -> bool {
        match self {
            Self::NodeRefusedByDatabase
            | Self::DatabaseRestartedFast
            | Self::DatabaseRestartedImmediately
            | Self::DatabaseKilled
            | Self::DatabaseRefusing
            | Self::DatabaseOutOfConnections
            | Self::DatabaseReadOnly => true,
            // Who is dead or deaf tells nothing; who waits for an answer has none to give before its patience ends.
            Self::Nothing
            | Self::NodeKilled
            | Self::NodeStopped
            | Self::NodeCutOffInSilence
            | Self::NodeDeafToNews
            | Self::DatabaseStopped
            | Self::DatabaseSlow => false,
        }
    }

    /// How long it lasts.
    fn span(self) -> Duration {
        match self {
            Self::Nothing => Duration::ZERO,
            // Longer than the others take it for alive, and longer than a session lasts.
            Self::NodeStopped | Self::NodeCutOffInSilence => Duration::from_secs(5),
            Self::DatabaseStopped => Duration::from_secs(3),
            Self::NodeKilled
            | Self::NodeRefusedByDatabase
            | Self::NodeDeafToNews
            | Self::DatabaseRestartedFast
            | Self::DatabaseRestartedImmediately
            | Self::DatabaseKilled
            | Self::DatabaseRefusing
            | Self::DatabaseSlow
            | Self::DatabaseOutOfConnections
            | Self::DatabaseReadOnly => Duration::from_millis(1_500),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_goes_on_within_five_seconds_of_each_fault_of_a_node_or_of_the_database() {
    let _alone = alone().await;
    let tries = chance::count("FAULT_TRIES", 2);
    let machines = CLOCKS_SECONDS.map(|ahead| {
        let mut environment = clock::ahead(ahead);
        environment.push(("ORBIT_SESSION_TIMEOUT", format!("{}s", SESSION_TIMEOUT.as_secs())));
        Options { environment, ..Options::default() }
    });
    let mut run = Run::on(Cluster::start(machines.into()).await, "cluster faults").await;
    run.add_workers(6, 8);
    run.call(Load { clients: 3, lives: 2, plan: Plan::any });
    let mut trials = Trials { run, keys: FIRST_KEY, eaters: Vec::new(), table: Vec::new() };
    for number in 0..tries {
        for fault in Fault::ALL {
            trials.endure(fault, number % CLOCKS_SECONDS.len()).await;
        }
    }
    let table = trials.render();
    eprintln!("{table}");
    let slow: Vec<_> = trials.table.iter().filter(|row| row.is_recovery() && row.at(99) > RECOVERY_MAX).collect();
    let verdict = trials.run.end().await;
    eprintln!("{verdict:?}");
    assert!(slow.is_empty(), "{slow:?}");
}

/// A line of the table.
#[derive(Debug)]
struct Row {
    fault: Fault,
    /// Who goes on, and from when on that is measured.
    what: &'static str,
    spans: Vec<Duration>,
    /// Calls that were told UNAVAILABLE, with how long to wait.
    told: usize,
}

impl Row {
    /// Whether nothing is wrong any more, or not with those that go on. While every way to the database is slow, everything
    /// is, and nothing has recovered.
    fn is_recovery(&self) -> bool {
        (self.fault, self.what) != (Fault::DatabaseSlow, MEANWHILE)
    }

    fn at(&self, percent: usize) -> Duration {
        let mut spans = self.spans.clone();
        spans.sort();
        spans[(spans.len() * percent).div_ceil(100).max(1) - 1]
    }
}

struct Trials {
    run: Run<Cluster>,
    keys: u64,
    /// Connections that leave none for the nodes.
    eaters: Vec<PgConnection>,
    table: Vec<Row>,
}

impl Trials {
    /// One fault, from the work that it meets to the work that goes on.
    async fn endure(&mut self, fault: Fault, victim: usize) {
        let all = self.run.server.addresses();
        let others: Vec<SocketAddr> = all.iter().filter(|address| **address != all[victim]).copied().collect();
        let callers = if fault.is_of_one_node() { &others } else { &all };
        let mut held = self.hold(callers).await;
        let begin = Instant::now();
        self.begin(fault, victim).await;
        if fault.is_of_one_node() {
            self.works(&mut held, &others, begin, (fault, "the others, from it on"), 0).await;
        }
        let asked: &[SocketAddr] = if fault.is_of_one_node() { &all[victim..=victim] } else { &all };
        let told = self.told_until(fault, asked, (begin + fault.span()).max(Instant::now() + ASKED_MIN)).await;
        assert!(told > 0 || !fault.is_told(), "{fault:?}: nobody was told that something is wrong");
        if fault == Fault::DatabaseSlow {
            self.works(&mut held, &all, begin, (fault, MEANWHILE), told).await;
        }
        self.end(fault, victim);
        let end = Instant::now();
        let what = if fault.is_of_one_node() { "itself, from its end on" } else { "all, from its end on" };
        self.works(&mut held, asked, end, (fault, what), told).await;
    }

    /// Starts executions and waits until workers hold their tasks.
    async fn hold(&mut self, callers: &[SocketAddr]) -> JoinSet<()> {
        let before = self.run.journal.lock().received.len();
        let mut held = JoinSet::new();
        for _ in 0..HELD {
            self.live(&mut held, callers, HELD_MILLIS);
        }
        let begin = Instant::now();
        let held_at_least = usize::try_from(HELD).expect("it is small");
        while self.run.journal.lock().received.len() < before + held_at_least {
            assert!(begin.elapsed() < PATIENCE, "no task came to a worker\n{}", self.run.server.log_tail());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        held
    }

    /// Lets a caller of these nodes see an execution to its end.
    fn live(&mut self, lives: &mut JoinSet<()>, addresses: &[SocketAddr], millis: u64) {
        let (key, chance) = (self.keys, self.run.chance.fork(self.keys));
        self.keys += 8;
        let mut caller = Caller::new(admin_of(addresses), &self.run.journal, &self.run.flight, chance);
        lives.spawn(async move {
            let plan = Plan::Pass { value: i64::try_from(key).expect("it is small"), millis };
            caller.live(key, plan, &CancellationToken::new()).await;
        });
    }

    /// Waits until what was held has gone on, and each of these nodes has brought a new start to its end.
    async fn works(
        &mut self,
        held: &mut JoinSet<()>,
        nodes: &[SocketAddr],
        since: Instant,
        (fault, what): (Fault, &'static str),
        told: usize,
    ) {
        for node in nodes {
            // The one node alone: whoever measures it does not turn to another.
            self.live(held, &[*node], 0);
        }
        let done = tokio::time::timeout(PATIENCE, async {
            while let Some(ended) = held.join_next().await {
                ended.expect("a caller does not panic");
            }
        });
        if done.await.is_err() {
            panic!(
                "{fault:?}, {what}: it does not go on\n{:?}\n{}",
                self.run.journal.lock().faults,
                self.run.server.log_tail()
            );
        }
        let span = since.elapsed();
        eprintln!("{}: {what}: {} ms", fault.name(), span.as_millis());
        match self.table.iter_mut().find(|row| (row.fault, row.what) == (fault, what)) {
            Some(row) => {
                row.spans.push(span);
                row.told += told;
            }
            None => self.table.push(Row { fault, what, spans: vec![span], told }),
        }
    }

    /// Calls these nodes until then. Answers with how many calls were told UNAVAILABLE and when to come again.
    async fn told_until(&self, fault: Fault, nodes: &[SocketAddr], end: Instant) -> usize {
        let clients: Vec<_> = nodes.iter().map(|address| connect::tasks(*address)).collect();
        let mut told = 0;
        while Instant::now() < end {
            for tasks in &clients {
                // A write that hinders nobody: the session has no work, and ends by its silence.
                let request = RegisterWorkerRequest {
                    worker_id: "asks".to_owned(),
                    contracts: vec!["no.work@1".to_owned()],
                    ..RegisterWorkerRequest::default()
                };
                let mut tasks = tasks.clone();
                let call = tokio::time::timeout_at(end.into(), tasks.register_worker(request));
                let Ok(answer) = call.await else { continue };
                match Answer::of(answer) {
                    Answer::Unknown(why) => told += usize::from(why.contains("database is unavailable")),
                    Answer::Refused(refusal) => panic!("{fault:?}: {refusal:?}"),
                    Answer::Done(_) => {}
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        told
    }

    async fn begin(&mut self, fault: Fault, victim: usize) {
        let cluster = &mut self.run.server;
        let node = &mut cluster.nodes[victim];
        match fault {
            Fault::Nothing => {}
            Fault::NodeKilled => node.server.kill(&mut self.run.chance),
            Fault::NodeStopped => node.server.signal(libc::SIGSTOP),
            Fault::NodeRefusedByDatabase => node.back.set(Rule::Refuse),
            Fault::NodeCutOffInSilence => node.back.set(Rule::Silent),
            Fault::NodeDeafToNews => assert!(node.back.silence_listening() > 0, "no connection listens for news"),
            Fault::DatabaseRestartedFast => tokio::task::block_in_place(|| cluster.database.stop(Stop::Fast)),
            Fault::DatabaseRestartedImmediately => {
                tokio::task::block_in_place(|| cluster.database.stop(Stop::Immediate));
            }
            Fault::DatabaseKilled => tokio::task::block_in_place(|| cluster.database.kill()),
            Fault::DatabaseStopped => cluster.database.freeze(),
            Fault::DatabaseRefusing => cluster.nodes.iter().for_each(|node| node.back.set(Rule::Refuse)),
            Fault::DatabaseSlow => {
                let slow = Rule::Slow(Duration::from_millis(200));
                cluster.nodes.iter().for_each(|node| node.back.set(slow));
            }
            Fault::DatabaseOutOfConnections => {
                cluster.nodes.iter().for_each(|node| node.back.set(Rule::Refuse));
                while let Ok(connection) = PgConnection::connect(&cluster.url()).await {
                    self.eaters.push(connection);
                }
                cluster.nodes.iter().for_each(|node| node.back.set(Rule::Carry));
            }
            Fault::DatabaseReadOnly => cluster.database.set("default_transaction_read_only", Some("on")),
        }
    }

    fn end(&mut self, fault: Fault, victim: usize) {
        let cluster = &mut self.run.server;
        let node = &mut cluster.nodes[victim];
        match fault {
            // The listener must find out by itself.
            Fault::Nothing | Fault::NodeDeafToNews => {}
            Fault::NodeKilled => node.spawn(),
            Fault::NodeStopped => node.server.signal(libc::SIGCONT),
            Fault::NodeRefusedByDatabase | Fault::NodeCutOffInSilence => node.back.set(Rule::Carry),
            Fault::DatabaseRestartedFast | Fault::DatabaseRestartedImmediately | Fault::DatabaseKilled => {
                tokio::task::block_in_place(|| cluster.database.start_again());
            }
            Fault::DatabaseStopped => cluster.database.thaw(),
            Fault::DatabaseRefusing | Fault::DatabaseSlow => {
                cluster.nodes.iter().for_each(|node| node.back.set(Rule::Carry));
            }
            Fault::DatabaseOutOfConnections => self.eaters.clear(),
            Fault::DatabaseReadOnly => cluster.database.set("default_transaction_read_only", None),
        }
    }

    fn render(&self) -> String {
        let mut text = format!(
            "{:<34}  {:<24}  {:>5}  {:>8}  {:>8}  {:>8}  {:>11}\n",
            "fault", "who goes on", "tries", "p50", "p99", "max", "UNAVAILABLE"
        );
        for row in &self.table {
            let [middle, late, latest] = [50, 99, 100].map(|percent| format!("{} ms", row.at(percent).as_millis()));
            let (fault, tries) = (row.fault.name(), row.spans.len());
            writeln!(
                text,
                "{fault:<34}  {:<24}  {tries:>5}  {middle:>8}  {late:>8}  {latest:>8}  {:>11}",
                row.what, row.told
            )
            .expect("a text takes it");
        }
        text
    }
}
