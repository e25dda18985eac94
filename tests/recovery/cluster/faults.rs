//! One fault after the other, and how soon everything goes on.
//!
//! The nodes' machines have clocks that are minutes apart all the while. Some callers and workers are busy beside what is
//! measured; at the end everybody's journal is judged.

mod asking;
mod fault;
mod table;

use super::{Cluster, clock, proxy::Rule};
use crate::{
    caller::{Caller, Load, accepted},
    chance,
    connect::admin_of,
    journal::{Life, Start},
    postgres::{PrivateServer, Stop},
    run::{Run, Serve as _, alone},
    server::Options,
    workflow::Plan,
};
use asking::{Asked, Asking, Question};
use fault::Fault;
use orbit::proto::workflow::execution::State;
use sqlx::{Connection as _, PgConnection};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use table::Table;
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

/// What is measured while a fault of the database lasts.
const MEANWHILE: &str = "all, while it lasts";

/// The first name of an execution of these trials; below are those of the callers beside.
const FIRST_KEY: u64 = 1 << 32;

/// A name's remainder by this says what makes its start safe to repeat; that of these is nought: an id and a request id.
const KEYS_PER_LIFE: u64 = 8;

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
    let mut trials = Trials {
        run,
        keys: Arc::new(AtomicU64::new(FIRST_KEY)),
        eaters: Vec::new(),
        standby: None,
        table: Table::default(),
    };
    for number in 0..tries {
        for fault in Fault::ALL {
            trials.endure(fault, number % CLOCKS_SECONDS.len()).await;
        }
    }
    let Trials { run, table, .. } = trials;
    eprintln!("{table}");
    let verdict = run.end().await;
    eprintln!("{verdict:?}");
    assert!(table.slow().is_empty(), "{:?}", table.slow());
}

struct Trials {
    run: Run<Cluster>,
    keys: Arc<AtomicU64>,
    /// Connections that leave none for the nodes.
    eaters: Vec<PgConnection>,
    /// What stands in for the database once that is gone.
    standby: Option<PrivateServer>,
    table: Table,
}

impl Trials {
    /// One fault, from the work that it meets to the work that goes on.
    async fn endure(&mut self, fault: Fault, victim: usize) {
        let all = self.run.server.addresses();
        let others: Vec<SocketAddr> = all.iter().filter(|address| **address != all[victim]).copied().collect();
        let callers = if fault.is_of_one_node() { &others } else { &all };
        let asked: &[SocketAddr] = if fault.is_of_one_node() { &all[victim..=victim] } else { &all };
        if fault == Fault::DatabaseFailedOver {
            self.standby = Some(self.run.server.add_standby().await);
        }
        let mut known = self.know(asked).await;
        let mut held = self.hold(callers).await;
        let begin = Instant::now();
        self.begin(fault, victim).await;
        if fault.is_of_one_node() {
            // What the others say meanwhile is what counts, whatever the one remembers.
            self.terminate(&mut known, &others).await;
        }
        let question = self.question(&known);
        let asking = Asking::begin(asked, &question);
        if fault.is_of_one_node() {
            self.works(&mut held, &others, begin).await;
            self.table.add(fault, "the others, from it on", begin.elapsed(), Asked::default());
        }
        asking.go_on(fault, begin + fault.span()).await;
        if fault == Fault::DatabaseSlow {
            self.works(&mut held, &all, begin).await;
            self.table.add(fault, MEANWHILE, begin.elapsed(), Asked::default());
        }
        let end = self.end(fault, victim).await;
        asking.stop();
        self.works(&mut held, asked, end).await;
        let what = match fault {
            Fault::DatabaseFailedOver => "all, from its promotion on",
            _ if fault.is_of_one_node() => "itself, from its end on",
            _ => "all, from its end on",
        };
        let took = end.elapsed();
        self.table.add(fault, what, took, asking.end(fault).await);
        if !fault.is_of_one_node() {
            self.terminate(&mut known, &all).await;
        }
        self.run.journal.life(known);
    }

    /// Starts an execution that waits until it is terminated, and lets each of these nodes have it in memory.
    async fn know(&mut self, nodes: &[SocketAddr]) -> Life {
        let plan = Plan::Patient { value: 0, ends: State::Terminated };
        let mut life = Life::begun(self.keys.fetch_add(KEYS_PER_LIFE, Ordering::Relaxed), plan);
        let started = self.caller(nodes, life.key).start(&life).await.expect("its start is safe to repeat");
        life.start = accepted(&life, started);
        let question = self.question(&life);
        for node in nodes {
            question.look(*node).await;
        }
        life
    }

    /// Terminates it, through these nodes.
    async fn terminate(&mut self, life: &mut Life, nodes: &[SocketAddr]) {
        self.caller(nodes, life.key).act(&id_of(life), life).await;
    }

    /// What is asked of an execution of which that much is known.
    fn question(&self, life: &Life) -> Question {
        Question {
            id: id_of(life),
            state: life.stop.map_or(State::Running, |stop| stop.state),
            keys: Arc::clone(&self.keys),
            journal: self.run.journal.clone(),
        }
    }

    fn caller(&mut self, nodes: &[SocketAddr], key: u64) -> Caller {
        Caller::new(admin_of(nodes), &self.run.journal, &self.run.flight, self.run.chance.fork(key))
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
        let key = self.keys.fetch_add(KEYS_PER_LIFE, Ordering::Relaxed);
        let mut caller = self.caller(addresses, key);
        lives.spawn(async move {
            let plan = Plan::Pass { value: i64::try_from(key).expect("it is small"), millis };
            caller.live(key, plan, &CancellationToken::new()).await;
        });
    }

    /// Waits until what was held has gone on, and each of these nodes has brought a new start to its end.
    async fn works(&mut self, held: &mut JoinSet<()>, nodes: &[SocketAddr], since: Instant) {
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
            let (faults, log) = (self.run.journal.lock().faults.clone(), self.run.server.log_tail());
            panic!("it does not go on, {:?} after it should\n{faults:?}\n{log}", since.elapsed());
        }
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
            Fault::DatabaseKilled | Fault::DatabaseFailedOver => {
                tokio::task::block_in_place(|| cluster.database.kill());
            }
            Fault::DatabaseStopped => cluster.database.freeze(),
            Fault::DatabaseSilent => cluster.nodes.iter().for_each(|node| node.back.set(Rule::Silent)),
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

    /// Ends it. Answers with the moment from which on nothing is wrong.
    async fn end(&mut self, fault: Fault, victim: usize) -> Instant {
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
            Fault::DatabaseSilent | Fault::DatabaseRefusing | Fault::DatabaseSlow => {
                cluster.nodes.iter().for_each(|node| node.back.set(Rule::Carry));
            }
            Fault::DatabaseOutOfConnections => self.eaters.clear(),
            Fault::DatabaseReadOnly => cluster.database.set("default_transaction_read_only", None),
            Fault::DatabaseFailedOver => {
                let (gone, end) = cluster.fail_over(self.standby.take().expect("it has begun")).await;
                // Its files are many; nothing waits for their removal.
                tokio::task::spawn_blocking(|| drop(gone));
                return end;
            }
        }
        Instant::now()
    }
}

fn id_of(life: &Life) -> String {
    match &life.start {
        Start::Accepted { id, .. } => id.clone(),
        Start::Unknown => panic!("nobody knows its id: {life:?}"),
    }
}
