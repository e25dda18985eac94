//! Everything at once, at random: three nodes, six worker processes, several clients, one database.

use super::{Cluster, proxy::Rule};
use crate::{
    caller::Load,
    chance,
    postgres::Stop,
    run::{Run, Serve as _, alone},
    server::{Options, SESSION_TIMEOUT},
    worker::process::Process,
    workflow::Plan,
};
use std::{
    collections::{BTreeMap, HashSet},
    time::{Duration, Instant},
};

const NODES: usize = 3;
const WORKERS: u64 = 6;

/// Tasks that each worker has at the same time.
const SLOTS: usize = 8;

/// Nodes that something may be wrong with at the same time; the database comes on top.
const TROUBLED_MAX: usize = 2;

/// How often processes that ended are looked after.
const TEND: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread")]
async fn nothing_accepted_is_lost_or_repeated_whatever_happens_to_nodes_workers_connections_and_the_database() {
    let _alone = alone().await;
    let seconds = u64::try_from(chance::count("CHAOS_SECONDS", 120)).unwrap();
    let cluster = Cluster::start((0..NODES).map(|_| Options::default()).collect()).await;
    let mut run = Run::on(cluster, "chaos").await;
    run.add_processes(WORKERS, SLOTS);
    run.schedule().await;
    run.call(Load { clients: 4, lives: 8, plan });

    let mut chaos = Chaos::new(run);
    chaos.reign(Duration::from_secs(seconds)).await;
    let Chaos { run, tally, .. } = chaos;
    let faults: usize = tally.values().sum();
    let verdict = run.end().await;
    eprintln!("{faults} faults in {seconds} s:");
    for (fault, count) in &tally {
        eprintln!("  {count:4} x {fault}");
    }
    eprintln!("{verdict:?}");
    let executions = usize::try_from(seconds).unwrap();
    assert!(verdict.executions > executions, "there was too little load: {verdict:?}");
}

/// Mostly fast work, and some that workers hold for a while.
fn plan(chance: &mut chance::Chance) -> Plan {
    if chance.percent(25) { Plan::holding(chance) } else { Plan::any(chance) }
}

/// What something can be wrong with; one thing at a time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Part {
    Node(usize),
    Worker,
    Database,
}

/// What ends a fault.
#[derive(Debug)]
enum Cure {
    StartNode(usize),
    ThawNode(usize),
    HealFront(usize),
    HealBack(usize),
    ThawWorker(Process),
    StartDatabase,
    ThawDatabase,
    /// Its end needs nothing; it counts as a trouble until then.
    Nothing,
}

struct Chaos {
    run: Run<Cluster>,
    begin: Instant,
    cures: Vec<(Instant, Part, Cure)>,
    troubled: HashSet<Part>,
    tally: BTreeMap<&'static str, usize>,
    workers: u64,
}

impl Chaos {
    fn new(run: Run<Cluster>) -> Self {
        Self {
            run,
            begin: Instant::now(),
            cures: Vec::new(),
            troubled: HashSet::new(),
            tally: BTreeMap::new(),
            workers: WORKERS,
        }
    }

    /// Breaks one thing after the other for so long, then mends everything.
    async fn reign(&mut self, span: Duration) {
        let mut next = Instant::now();
        while self.begin.elapsed() < span {
            let now = Instant::now();
            self.cure(|due| due <= now);
            if next <= now {
                self.fault().await;
                next = Instant::now() + self.run.chance.millis(200, 2_500);
            }
            for node in &mut self.run.server.nodes {
                node.tend();
            }
            tokio::time::sleep(TEND).await;
        }
        self.cure(|_| true);
        self.say("everything is mended");
        self.run.server.well().await;
        self.say("every node is well");
    }

    /// Ends the faults that are due.
    fn cure(&mut self, is_due: impl Fn(Instant) -> bool) {
        let (due, later) = std::mem::take(&mut self.cures).into_iter().partition(|(at, ..)| is_due(*at));
        self.cures = later;
        for (_, part, cure) in due {
            let cluster = &mut self.run.server;
            match cure {
                Cure::StartNode(node) => cluster.nodes[node].spawn(),
                Cure::ThawNode(node) => cluster.nodes[node].server.signal(libc::SIGCONT),
                Cure::HealFront(node) => cluster.nodes[node].front.set(Rule::Carry),
                Cure::HealBack(node) => cluster.nodes[node].back.set(Rule::Carry),
                Cure::ThawWorker(worker) => {
                    worker.signal(libc::SIGCONT);
                    self.run.processes.push(worker);
                }
                Cure::StartDatabase => tokio::task::block_in_place(|| cluster.database.start_again()),
                Cure::ThawDatabase => cluster.database.thaw(),
                Cure::Nothing => {}
            }
            self.troubled.remove(&part);
        }
    }

    async fn fault(&mut self) {
        match self.run.chance.below(100) {
            0..70 => self.fault_of_a_node(),
            70..88 => self.fault_of_a_worker().await,
            _ => self.fault_of_the_database(),
        }
    }

    fn fault_of_a_node(&mut self) {
        let free: Vec<usize> = (0..NODES).filter(|node| !self.troubled.contains(&Part::Node(*node))).collect();
        if free.len() + TROUBLED_MAX <= NODES {
            return;
        }
        let chance = &mut self.run.chance;
        let number = *chance.pick(&free);
        let node = &mut self.run.server.nodes[number];
        let (name, span, cure) = match chance.below(100) {
            // It is not there to be killed while it waits for its database.
            0..22 if node.server.is_running() => {
                node.server.kill(chance);
                ("kill of a node", chance.millis(0, 4_000), Cure::StartNode(number))
            }
            0..38 if node.server.is_running() => {
                node.server.signal(libc::SIGSTOP);
                // Up to longer than the others, and the database, take it for alive.
                ("stop of a node", chance.millis(300, 12_000), Cure::ThawNode(number))
            }
            0..46 => {
                node.front.cut();
                ("cut between callers and a node", Duration::ZERO, Cure::Nothing)
            }
            46..56 => {
                node.back.cut();
                ("cut between a node and its database", Duration::ZERO, Cure::Nothing)
            }
            56..61 => {
                node.front.set(Rule::Refuse);
                ("node that refuses its callers", chance.millis(200, 4_000), Cure::HealFront(number))
            }
            61..67 => {
                node.back.set(Rule::Refuse);
                ("database that refuses a node", chance.millis(200, 6_000), Cure::HealBack(number))
            }
            67..73 => {
                node.front.set(Rule::Slow(chance.millis(5, 250)));
                ("slow way from callers to a node", chance.millis(500, 6_000), Cure::HealFront(number))
            }
            73..81 => {
                node.back.set(Rule::Slow(chance.millis(5, 250)));
                ("slow way from a node to its database", chance.millis(500, 6_000), Cure::HealBack(number))
            }
            81..87 => {
                node.front.set(Rule::Silent);
                ("silence between callers and a node", chance.millis(500, 8_000), Cure::HealFront(number))
            }
            87..95 => {
                node.back.set(Rule::Silent);
                ("silence between a node and its database", chance.millis(500, 8_000), Cure::HealBack(number))
            }
            _ => {
                node.back.silence_listening();
                ("silence where a node listens for news", Duration::ZERO, Cure::Nothing)
            }
        };
        self.note(name, Part::Node(number), span, cure);
    }

    async fn fault_of_a_worker(&mut self) {
        let run = &mut self.run;
        // Some always work.
        let Some(count) = u64::try_from(run.processes.len()).ok().filter(|count| *count > WORKERS / 2) else { return };
        let victim = run.processes.swap_remove(usize::try_from(run.chance.below(count)).unwrap());
        if run.chance.percent(60) {
            victim.kill().await;
            let number = self.workers;
            self.workers += 1;
            let setup = run.setup(format!("process-{number}"), number, SLOTS);
            run.processes.push(Process::start(&setup, &run.journal));
            self.note("kill of a worker", Part::Worker, Duration::ZERO, Cure::Nothing);
        } else {
            victim.signal(libc::SIGSTOP);
            let asleep = run.chance.millis(300, 2_000) + SESSION_TIMEOUT * u32::from(run.chance.percent(60));
            self.note("stop of a worker", Part::Worker, asleep, Cure::ThawWorker(victim));
        }
    }

    fn fault_of_the_database(&mut self) {
        if self.troubled.contains(&Part::Database) {
            return;
        }
        let (chance, database) = (&mut self.run.chance, &self.run.server.database);
        let span = chance.millis(0, 3_000);
        let (name, cure) = match chance.below(100) {
            0..35 => {
                tokio::task::block_in_place(|| database.stop(Stop::Fast));
                ("fast restart of the database", Cure::StartDatabase)
            }
            35..65 => {
                tokio::task::block_in_place(|| database.stop(Stop::Immediate));
                ("immediate restart of the database", Cure::StartDatabase)
            }
            65..80 => {
                tokio::task::block_in_place(|| database.kill());
                ("kill of the database", Cure::StartDatabase)
            }
            _ => {
                database.freeze();
                ("stop of the database", Cure::ThawDatabase)
            }
        };
        self.note(name, Part::Database, span, cure);
    }

    fn note(&mut self, name: &'static str, part: Part, span: Duration, cure: Cure) {
        *self.tally.entry(name).or_default() += 1;
        self.say(&format!("{name} ({part:?}) for {} ms", span.as_millis()));
        self.troubled.insert(part);
        self.cures.push((Instant::now() + span, part, cure));
    }

    fn say(&self, what: &str) {
        let (completed, faults) = {
            let entries = self.run.journal.lock();
            (entries.reported.len(), entries.faults.len())
        };
        assert_eq!(faults, 0, "{:?}\n{}", self.run.journal.lock().faults, self.run.server.log_tail());
        let begin = self.begin.elapsed().as_secs_f64();
        eprintln!("{begin:8.3} s: {what}; {} commands in flight, {completed} reports", self.run.flight.count());
    }
}
