//! Random calls through random nodes, while commits and reads take their time, fail, or lose their answers.
//!
//! What any client may rely on, whichever node it asks: a read has everything that was acknowledged, or read, before it
//! began; a request has one answer; a signal is in the history once, under the number that was answered, and those of
//! one sender in their order; a unit's result is accepted once; a history has no gap.

use super::{Node, nodes};
use crate::{harness::*, postgres::fresh_database, random::Random};
use orbit::domain::{Event, EventKind, Payload, Rejection, ReportOutcome};
use orbit::engine::Error;
use orbit::store::{
    MemoryStore, PostgresStore,
    faulty::{Call, Fate},
    postgres::Options,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

const IDS: [&str; 3] = ["e0", "e1", "e2"];
const LINES: &str = "tasks: {t@1: {output: {type: integer}}}\nsignals: {s: {}, end: {}}\nsteps:\n  - {id: end, await: {signal: end}}\n  - {id: a, task: t@1}\n  - {id: b, task: t@1, needs: [a]}\n  - {id: c, task: t@1, needs: [a]}\n  - {id: d, task: t@1, needs: [b, c]}\n  - {id: e, task: t@1, needs: [b]}\n";
const CLIENTS: usize = 5;
const CALLS: usize = 30;

/// What clients know together.
#[derive(Default)]
struct Journal {
    /// The newest number of each execution that anybody was told of.
    reached: BTreeMap<&'static str, u64>,
    closed: BTreeSet<&'static str>,
    /// Answered signals, by execution and payload.
    signals: BTreeMap<(&'static str, String), u64>,
    accepted: BTreeSet<(String, String)>,
}

struct World {
    nodes: [Node; 3],
    journal: Mutex<Journal>,
}

impl World {
    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap()
    }

    fn reached(&self, id: &'static str) -> u64 {
        self.journal().reached.get(id).copied().unwrap_or(0)
    }

    fn told(&self, id: &'static str, number: u64) {
        let mut journal = self.journal();
        let reached = journal.reached.entry(id).or_default();
        *reached = number.max(*reached);
    }
}

/// Whether the same call may do better.
fn is_passing(error: &Error) -> bool {
    matches!(error, Error::Store(_) | Error::WriteConflict)
}

struct Client {
    world: Arc<World>,
    random: Random,
    number: usize,
    sent: usize,
}

impl Client {
    fn node(&mut self) -> usize {
        self.random.below(3)
    }

    async fn run(mut self) {
        for _ in 0..CALLS {
            let id = *self.random.pick(&IDS);
            match self.random.below(10) {
                0..=3 => self.signal(id).await,
                4..=6 => self.read(id).await,
                7 => self.history(id).await,
                8 => self.repeat(id).await,
                _ => self.wait(id).await,
            }
            if self.random.one_in(3) {
                pass(0.001 * self.random.below(20) as f64).await;
            }
        }
    }

    /// Sends a signal until it is answered, each time through any node.
    async fn signal(&mut self, id: &'static str) {
        let payload = format!("{}", self.number * 1_000 + self.sent);
        self.sent += 1;
        let was_closed = self.world.journal().closed.contains(id);
        match self.send(id, "s", &payload).await {
            Ok(number) => {
                assert!(!was_closed, "{id} took a signal after it was closed");
                self.world.told(id, number);
                self.world.journal().signals.insert((id, payload), number);
            }
            Err(rejection) => {
                assert!(matches!(rejection, Rejection::ExecutionClosed { .. }), "{rejection:?}");
                self.world.journal().closed.insert(id);
            }
        }
    }

    async fn send(&mut self, id: &'static str, signal: &str, payload: &str) -> Result<u64, Rejection> {
        let key = request(&format!("{id} {signal} {payload}"), payload);
        loop {
            let node = self.node();
            let engine = self.world.nodes[node].engine.clone();
            match engine.signal(&name(id), arc(signal), json(payload), None, Some(key)).await {
                Ok(number) => return Ok(number),
                Err(Error::Rejected(rejection)) => return Err(rejection),
                Err(error) => assert!(is_passing(&error), "{error:?}"),
            }
        }
    }

    /// The same request has the same answer, through any node and at any time.
    async fn repeat(&mut self, id: &'static str) {
        let answered = {
            let journal = self.world.journal();
            let of_it: Vec<_> = journal.signals.iter().filter(|((of, _), _)| *of == id).collect();
            match of_it.as_slice() {
                [] => return,
                all => {
                    let ((_, payload), number) = all[self.random.below(all.len())];
                    (payload.clone(), *number)
                }
            }
        };
        assert_eq!(self.send(id, "s", &answered.0).await.unwrap(), answered.1);
    }

    async fn read(&mut self, id: &'static str) {
        let (reached, was_closed) = (self.world.reached(id), self.world.journal().closed.contains(id));
        let node = self.node();
        let engine = self.world.nodes[node].engine.clone();
        match engine.execution(&name(id)).await {
            Ok(standing) => {
                let number = standing.state.last_number();
                assert!(number >= reached, "node {node} knows {id} up to {number}; {reached} was told of before");
                assert!(!was_closed || standing.state.is_closed(), "{id} has been opened again");
                self.world.told(id, number);
                if standing.state.is_closed() {
                    self.world.journal().closed.insert(id);
                }
            }
            Err(error) => assert!(is_passing(&error), "{error:?}"),
        }
    }

    async fn wait(&mut self, id: &'static str) {
        let reached = self.world.reached(id);
        let node = self.node();
        let engine = self.world.nodes[node].engine.clone();
        match engine.wait(&name(id), Duration::from_millis(self.random.below(1_500) as u64)).await {
            Ok(standing) => {
                assert!(standing.state.last_number() >= reached);
                self.world.told(id, standing.state.last_number());
            }
            Err(error) => assert!(is_passing(&error), "{error:?}"),
        }
    }

    async fn history(&mut self, id: &'static str) {
        let reached = self.world.reached(id);
        let node = self.node();
        let engine = self.world.nodes[node].engine.clone();
        match engine.events(&name(id), 0, 10_000).await {
            Ok(events) => {
                is_gapless(&events);
                assert!(events.len() as u64 >= reached);
                self.world.told(id, events.len() as u64);
            }
            Err(error) => assert!(is_passing(&error), "{error:?}"),
        }
    }

    /// A worker: takes tasks from one node and reports to any, sometimes twice.
    async fn work(mut self) {
        let session = loop {
            let node = self.node();
            if let Ok(registered) = self.world.nodes[node].engine.clone().register(registration(&["t@1"])).await {
                break registered.session;
            }
        };
        for round in 0..40_u32 {
            let node = self.node();
            let engine = self.world.nodes[node].engine.clone();
            let Ok(polled) = engine.poll(session, 3, Duration::from_millis(150)).await else { continue };
            for task in polled.tasks {
                let output = format!("{}", u32::try_from(self.number).unwrap() * 100 + round);
                let mut answers_left = 1 + self.random.below(2);
                while answers_left > 0 {
                    let node = self.node();
                    let engine = self.world.nodes[node].engine.clone();
                    match engine.report(task.token.clone(), complete(&output)).await {
                        Ok(ReportOutcome::Accepted) => {
                            let unit = (task.execution_id.as_str().to_owned(), task.token.delivery.unit.to_string());
                            let is_first = self.world.journal().accepted.insert(unit.clone());
                            assert!(is_first, "{unit:?} was accepted twice");
                            answers_left -= 1;
                        }
                        Ok(ReportOutcome::Duplicate | ReportOutcome::Refused(_)) => answers_left -= 1,
                        Err(error) => assert!(is_passing(&error), "{error:?}"),
                    }
                }
            }
        }
    }
}

fn is_gapless(events: &[Event]) {
    assert!(events.iter().map(|event| event.number).eq(1..=events.len() as u64), "{events:?}");
}

/// What a node's store does.
fn weather(mut random: Random) -> impl FnMut(Call<'_>) -> Fate + Send {
    move |call| {
        let takes = Fate::Takes(Duration::from_micros(random.next() % 3_000));
        match call {
            Call::Commit(_) => match random.below(25) {
                0 => Fate::FailsBefore,
                1 => Fate::FailsAfter,
                _ => takes,
            },
            Call::Write("publish") if random.one_in(2) => Fate::FailsBefore,
            Call::Write(_) | Call::Read(_) => {
                if random.one_in(40) {
                    Fate::FailsBefore
                } else {
                    takes
                }
            }
        }
    }
}

async fn run(seed: u64, nodes: [Node; 3]) -> Met {
    let mut random = Random::new(seed);
    nodes[0].deploy("w", LINES).await;
    for (number, id) in IDS.iter().enumerate() {
        nodes[number].start("w", id).await;
    }
    for node in &nodes {
        node.meets(weather(Random::new(random.next())));
    }
    let world = Arc::new(World { nodes, journal: Mutex::default() });
    let client = |number: usize, seed: u64| Client { world: world.clone(), random: Random::new(seed), number, sent: 0 };
    let mut under_way = Vec::new();
    for number in 0..CLIENTS {
        under_way.push(tokio::spawn(client(number, random.next()).run()));
    }
    for number in 0..2 {
        under_way.push(tokio::spawn(client(number, random.next()).work()));
    }
    // One of them ends while the others still speak to it.
    let mut ender = client(CLIENTS, random.next());
    pass(0.4).await;
    ender.send(IDS[0], "end", "0").await.unwrap();
    for client in under_way {
        client.await.unwrap();
    }
    for node in &world.nodes {
        node.meets(|_| Fate::Works);
    }
    for id in IDS {
        check(&world, id).await;
    }
    let of_all = |method| world.nodes.iter().map(|node| node.calls_of(method)).sum::<usize>();
    let journal = world.journal();
    Met { signals: journal.signals.len(), accepted: journal.accepted.len(), tails: of_all("load_tail") }
}

/// What a run has met.
#[derive(Clone, Copy, Default, Debug)]
struct Met {
    signals: usize,
    accepted: usize,
    tails: usize,
}

/// The histories bear out everything that was answered.
async fn check(world: &World, id: &'static str) {
    let events = world.nodes[0].events(id).await;
    is_gapless(&events);
    for node in &world.nodes {
        assert_eq!(node.events(id).await, events);
        assert_eq!(node.standing(id).await.state.last_number(), events.len() as u64);
    }
    let mut taken: BTreeMap<String, u64> = BTreeMap::new();
    let mut newest_of_sender = BTreeMap::new();
    let mut results = BTreeSet::new();
    for event in &events {
        match &event.kind {
            EventKind::SignalReceived { name, payload, .. } if &**name == "s" => {
                let payload = Payload::as_str(payload).to_owned();
                let sent: usize = payload.parse().unwrap();
                let before = newest_of_sender.insert(sent / 1_000, sent);
                assert!(before.is_none_or(|before| before < sent), "{id}: {sent} came after {before:?}");
                assert_eq!(taken.insert(payload, event.number), None, "{id} has a signal twice");
            }
            EventKind::StepSucceeded { unit, .. } => {
                assert!(results.insert(unit.to_string()), "{id}/{unit} ended twice")
            }
            _ => {}
        }
    }
    let journal = world.journal();
    for ((_, payload), number) in journal.signals.iter().filter(|((of, _), _)| *of == id) {
        assert_eq!(taken.get(payload), Some(number), "{id} has lost {payload}");
    }
    for (_, unit) in journal.accepted.iter().filter(|(of, _)| of == id) {
        assert!(results.contains(unit), "{id}/{unit} was accepted and lost");
    }
}

/// Prints the seed of a run that fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed; the same again: SEED={} cargo test --test simulation nodes::random", self.0);
        }
    }
}

#[test]
fn k15_every_node_tells_the_truth_whatever_the_others_do() {
    let seeds = match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (1..=40).collect(),
    };
    let (mut met, mut runs) = (Met::default(), 0);
    for seed in seeds {
        let _seed = Seed(seed);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let run = runtime.block_on(async { run(seed, nodes()).await });
        met.signals += run.signals;
        met.accepted += run.accepted;
        met.tails += run.tails;
        runs += 1;
    }
    assert!(
        runs == 1 || met.signals > 20 * runs && met.accepted > 5 * runs && met.tails > 20 * runs,
        "{met:?} in {runs} runs"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k15_every_node_tells_the_truth_on_postgresql() {
    for seed in 1..=2 {
        let _seed = Seed(seed);
        let database = fresh_database().await;
        let mut nodes = Vec::new();
        for number in 0..3 {
            let store = PostgresStore::open(Options::new(database.url())).await.unwrap();
            nodes.push(Node::with(Arc::new(store), MemoryStore::new(), number));
        }
        let nodes: [Node; 3] = nodes.try_into().ok().unwrap();
        let engines = nodes.each_ref().map(|node| node.engine.clone());
        let met = run(seed, nodes).await;
        assert!(met.signals > 5 && met.tails > 5, "{met:?}");
        for engine in engines {
            let store = engine.store().clone();
            engine.shutdown().await;
            store.close().await.unwrap();
        }
    }
}
