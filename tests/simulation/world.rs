//! What outlives every server: the store, the clients with their journal, the workers, time.

use crate::{
    batches,
    coverage::{Command, Coverage, Fault, Of},
    deeds::Deeds,
    definitions::{CONTRACTS, QUEUES},
    families,
    harness::definition,
    invariants::{self, Histories},
    journal::{Content, Journal},
    node::{Node, Server, Setup},
    random::Random,
    steady::{self, Steady},
};
use orbit::domain::{Settings, Timestamp, Uid, definition::Definition};
use orbit::engine::{Config, NewBatch, RerunExecution, StartExecution, Task};
use orbit::store::{Append, BatchProgress, BatchRow, BatchState, Committed, FindDefinition, MemoryStore, Pool, Store};
use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::sync::oneshot;
use uuid::Uuid;

/// Nodes that a world has at most.
pub(crate) const NODES_MAX: usize = 3;
/// Signals that an execution buffers.
pub(crate) const SIGNALS_MAX: usize = 4;
/// How late anything that is due may be while a node is healthy.
const LATENESS_MAX: Duration = Duration::from_secs(3);
/// How long a node must have been healthy for that: until it has seen who else lives, has scanned, and has heard of all
/// tasks that workers hold, which takes a session timeout.
const SETTLED: Duration = Duration::from_secs(10);
/// Longest that the scene waits for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// Longest time between two looks for that answer.
const ASK_SLICE_MAX: Duration = Duration::from_millis(16);

/// A worker process.
#[derive(Default)]
pub(crate) struct Worker {
    /// Raised when it loses its memory, so that what was on its way to it is lost.
    pub(crate) life: u32,
    pub(crate) session: Option<orbit::domain::SessionId>,
    pub(crate) held: Vec<Task>,
}

type Faults = [u64; Fault::ALL.len()];

/// A command that is under way.
struct Flight {
    command: Command,
    of: Of,
    node: usize,
    faults: Faults,
}

/// What clients, workers and the nodes' faults share.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) journal: Journal,
    pub(crate) workers: Vec<Worker>,
    /// Every task that any worker ever got.
    pub(crate) tasks: Vec<Task>,
    /// Every report that was sent.
    pub(crate) sent: Vec<(Task, Content)>,
    pub(crate) coverage: Coverage,
    deeds: Deeds,
    flights: BTreeMap<u64, Flight>,
    newest_flight: u64,
    /// How often each fault has happened to each node.
    faults: [Faults; NODES_MAX],
}

impl Shared {
    pub(crate) fn begin(&mut self, node: usize, command: Command, of: Of) -> u64 {
        self.newest_flight += 1;
        self.flights.insert(self.newest_flight, Flight { command, of, node, faults: self.faults[node] });
        self.newest_flight
    }

    /// Counts a command that was answered, with the faults that happened meanwhile.
    pub(crate) fn end(&mut self, flight: u64) {
        let flight = self.flights.remove(&flight).expect("it was under way");
        let mut was_fine = true;
        for fault in Fault::ALL {
            if self.faults[flight.node][fault as usize] > flight.faults[fault as usize] {
                was_fine = false;
                self.coverage.count(flight.command, flight.of, fault);
            }
        }
        if was_fine {
            self.coverage.count(flight.command, flight.of, Fault::None);
        }
    }

    /// A node died: what was under way there has no answer.
    fn crash(&mut self, node: usize, is_last: bool) {
        let (dead, others) = std::mem::take(&mut self.flights).into_iter().partition(|(_, flight)| flight.node == node);
        self.flights = others;
        for flight in BTreeMap::into_values(dead) {
            self.coverage.count(flight.command, flight.of, Fault::Crash);
        }
        for other in (0..NODES_MAX).filter(|other| *other != node) {
            self.faults[other][Fault::OtherDies as usize] += 1;
        }
        self.deeds.happens(if is_last { Fault::Crash } else { Fault::OtherDies });
    }

    pub(crate) fn happens(&mut self, node: usize, fault: Fault) {
        self.faults[node][fault as usize] += 1;
        self.deeds.happens(fault);
    }

    /// A node wrote something.
    pub(crate) fn written(&mut self, append: &Append, committed: &Committed) {
        self.deeds.written(append, committed, &mut self.coverage);
    }

    /// A batch was made, unless it was there.
    pub(crate) fn batch_made(&mut self, row: &BatchRow) {
        if row.progress.state == BatchState::Running {
            self.deeds.batch_made(row.id, row.action);
        }
    }

    /// Whether one of these happened to the node of a command while that was under way.
    pub(crate) fn happened_since(&self, flight: u64, faults: &[Fault]) -> bool {
        let Flight { node, faults: since, .. } = &self.flights[&flight];
        faults.iter().any(|fault| self.faults[*node][*fault as usize] > since[*fault as usize])
    }
}

/// A workflow that may be started.
pub(crate) struct Workflow {
    pub(crate) definition: Arc<Definition>,
    pub(crate) text: String,
}

/// What happens to a node at some time.
#[derive(Clone, Copy, Debug)]
enum Change {
    Starts,
    Thaws,
    IsBack,
}

/// Everything of one run.
pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) memory: MemoryStore,
    pub(crate) shared: Arc<Mutex<Shared>>,
    pub(crate) workflows: Vec<Workflow>,
    definitions: BTreeMap<Arc<str>, Arc<Definition>>,
    /// Every start that was ever called.
    pub(crate) starts: Vec<StartExecution>,
    /// Every start with a signal and a `request_id` that was ever called.
    pub(crate) signal_starts: Vec<StartExecution>,
    /// Every rerun that was ever called.
    pub(crate) reruns: Vec<RerunExecution>,
    /// Every batch that was ever asked for.
    pub(crate) batches: Vec<NewBatch>,
    /// The workflow of which executions may be deleted, if any may.
    pub(crate) deletable: Option<Arc<str>>,
    /// Signals that were sent with a `request_id`: the execution's id, the payload, the request's name.
    pub(crate) signals: Vec<(Arc<str>, String, String)>,
    nodes: Vec<Option<Node>>,
    /// What will happen to nodes.
    changes: Vec<(Timestamp, usize, Change)>,
    /// Real time, and how far wall clocks are off.
    pub(crate) now: Timestamp,
    pub(crate) wall_off: i64,
    /// Longest time that nodes run for, one after another, without hearing of each other.
    pub(crate) slices: &'static [u64],
    /// Id of the execution that this moment is about.
    pub(crate) focus: Option<Arc<str>>,
    seen: Option<Histories>,
    seen_batches: BTreeMap<Uuid, BatchProgress>,
    config: Config,
    /// A worker that never loses anything; it takes part where there are several nodes.
    steady: Option<Steady>,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = 2 + random.below(3);
        let workflows: Vec<Workflow> = (0..count)
            .map(|number| {
                let lines = crate::definitions::lines(&mut random, number);
                let (definition, text) = definition(&format!("w{number}"), &lines);
                Workflow { definition: Arc::new(definition), text }
            })
            .collect();
        let definitions =
            workflows.iter().map(|workflow| (workflow.definition.name.clone(), workflow.definition.clone())).collect();
        let mut shared = Shared { workers: (0..3).map(|_| Worker::default()).collect(), ..Shared::default() };
        // In a part of the worlds some executions are let go of; in the others none may ever be missed.
        let deletable = random.one_in(3).then(|| random.pick(&workflows).definition.name.clone());
        // Half of the worlds have one node on a store of its own, the others several on a store that they share.
        let is_shared = seed % 2 == 1;
        let nodes = if is_shared { *random.pick(&[1, 2, 2, 3, 3]) } else { 1 };
        shared.deeds.nodes = nodes;
        let config = Config {
            settings: Settings {
                session_timeout: Duration::from_secs(6),
                cancel_grace: Duration::from_secs(8),
                deliveries_max: 4,
                buffered_signals_max: SIGNALS_MAX,
                ..Settings::default()
            },
            cache_bytes_max: *random.pick(&[1, 8 << 10, 64 << 20]),
            snapshot_tail_bytes_min: *random.pick(&[0, 500, 64 << 10]),
            ..Config::default()
        };
        Self {
            memory: if is_shared { MemoryStore::shared() } else { MemoryStore::new() },
            shared: Arc::new(Mutex::new(shared)),
            workflows,
            definitions,
            starts: Vec::new(),
            signal_starts: Vec::new(),
            reruns: Vec::new(),
            batches: Vec::new(),
            deletable,
            signals: Vec::new(),
            nodes: (0..nodes).map(|_| None).collect(),
            changes: Vec::new(),
            now: crate::harness::START,
            wall_off: 0,
            slices: &[1, 1, 2, 5, 20],
            focus: None,
            seen: None,
            seen_batches: BTreeMap::new(),
            config,
            steady: None,
            random,
        }
    }

    pub(crate) fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap()
    }

    pub(crate) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    fn alive(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().flatten()
    }

    fn awake(&self) -> impl Iterator<Item = &Node> {
        self.alive().filter(|node| !node.is_frozen)
    }

    /// Some node that can be called: mostly one that answers.
    pub(crate) fn some_server(&mut self) -> Server {
        let any = self.random.one_in(8);
        let servers: Vec<Server> =
            self.alive().filter(|node| any || !node.is_frozen).map(|node| node.server.clone()).collect();
        self.random.pick(&servers).clone()
    }

    /// Every node that is up.
    pub(crate) fn servers(&self) -> Vec<Server> {
        self.alive().map(|node| node.server.clone()).collect()
    }

    /// Starts the nodes that are down.
    pub(crate) fn start_nodes(&mut self) {
        for number in 0..self.nodes.len() {
            if self.nodes[number].is_none() {
                self.start_node(number);
            }
        }
    }

    fn start_node(&mut self, number: usize) {
        let wall = Timestamp::from_micros(self.now.as_micros() + self.wall_off);
        let newest = self.memory.opened().newest_now;
        let (memory, start, drift) = if self.memory.is_shared() {
            // From the newest time of a live node, or else what is later, a dead one's or the database's.
            let start = match newest {
                Some(newest) if self.alive().next().is_some() => newest,
                newest => newest.map_or(self.now, |newest| newest.max(self.now)),
            };
            // Up to one part in a hundred, more than any machine's clock.
            (self.memory.another_node(number), start, *self.random.pick(&[0, 0, -10_000, 10_000]))
        } else {
            // From the newest time that was written, or from its machine's clock.
            (self.memory.clone(), newest.map_or(wall, |newest| newest.max(wall)), 0)
        };
        let random = Random::new(self.random.next());
        let setup = Setup { number, memory, config: self.config, start, drift, shared: self.shared.clone(), random };
        let node = Node::start(setup, self.now);
        // Machines that share a store need not agree about the time of day.
        if self.memory.is_shared() {
            node.server.jump_wall(*self.random.pick(&[-300_000_000, 0, 300_000_000]));
        }
        self.nodes[number] = Some(node);
    }

    /// Kills a node: what it had in memory is gone, as after `kill -9`.
    pub(crate) fn kill(&mut self, number: usize) {
        tracing::info!(now = self.now.as_micros(), number, "killed");
        self.nodes[number] = None;
        self.changes.retain(|(_, of, _)| *of != number);
        let is_last = self.alive().next().is_none();
        self.shared().crash(number, is_last);
    }

    /// Does something to one of several nodes.
    pub(crate) fn trouble_some_node(&mut self) {
        let number = self.random.below(self.nodes.len());
        let (fault, spans): (_, &[u64]) = match self.random.below(4) {
            0 => (Fault::OtherDies, &[0, 300, 3_000, 15_000]),
            1 => (Fault::Freeze, &[50, 900, 4_000, 20_000]),
            2 => (Fault::CutOff, &[100, 2_000, 12_000]),
            _ => (Fault::NewsLost, &[0]),
        };
        let span = *self.random.pick(spans);
        self.trouble(number, fault, Duration::from_millis(span));
    }

    /// Has this happen to a node: it dies, is frozen or cut off for so long, or gets no reliable news; not if no other
    /// node would be left that works.
    pub(crate) fn trouble(&mut self, number: usize, fault: Fault, span: Duration) {
        let others_work = self.awake().any(|node| node.server.number != number && !self.is_cut_off(node));
        let is_troubled = self.changes.iter().any(|(_, of, _)| *of == number);
        let Some(node) = &mut self.nodes[number] else { return };
        if !others_work || is_troubled {
            return;
        }
        let change = match fault {
            Fault::OtherDies => {
                self.kill(number);
                Change::Starts
            }
            Fault::Freeze => {
                node.is_frozen = true;
                Change::Thaws
            }
            Fault::CutOff => {
                node.server.weather(Fault::CutOff, Duration::ZERO);
                Change::IsBack
            }
            _ => return node.server.unreliable_news(*self.random.pick(&[0, 1, 1, 3])),
        };
        tracing::info!(now = self.now.as_micros(), number, ?change, ?span, "trouble");
        self.changes.push((self.now + span, number, change));
    }

    fn change(&mut self, number: usize, change: Change) {
        tracing::info!(now = self.now.as_micros(), number, ?change, "change");
        match (change, &mut self.nodes[number]) {
            (Change::Starts, None) => self.start_node(number),
            (Change::Thaws, Some(node)) => node.thaw(self.now),
            (Change::IsBack, Some(node)) => {
                node.server.weather(Fault::None, Duration::ZERO);
                node.healthy_since = self.now;
            }
            (Change::Starts, Some(_)) | (Change::Thaws | Change::IsBack, None) => {}
        }
    }

    /// Ends all that troubles nodes: the dead start, the frozen thaw, those cut off are back.
    pub(crate) fn settle_nodes(&mut self) {
        for (_, number, change) in std::mem::take(&mut self.changes) {
            self.change(number, change);
        }
        self.start_nodes();
    }

    /// Makes faults of one node's store for a while; they say when it is over by calling it again without a fault.
    pub(crate) fn weather(&mut self, server: &Server, fault: Fault, slowness: Duration) {
        let now = self.now;
        let is_cut = self.nodes[server.number].as_ref().is_some_and(|node| self.is_cut_off(node));
        if let Some(node) = &mut self.nodes[server.number] {
            tracing::info!(now = now.as_micros(), number = server.number, ?fault, ?slowness, is_cut, "weather");
            // What cuts it off lasts as long as it was to last.
            if !is_cut && (node.server.weather(fault, slowness), fault) != (Fault::None, Fault::None) {
                node.healthy_since = now;
            }
        }
    }

    /// Lets time pass: nodes run one after another, a slice of time each, in an order that changes.
    pub(crate) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let next_change = self.changes.iter().map(|(time, ..)| *time).min();
            let until = next_change.map_or(end, |time| time.min(end)).since(self.now);
            let slice = if self.awake().count() > 1 {
                until.min(Duration::from_millis(*self.random.pick(self.slices)))
            } else if self.steady.is_some() {
                until.min(steady::BEAT / 10)
            } else {
                until
            };
            let first = self.random.below(self.nodes.len());
            for number in 0..self.nodes.len() {
                let number = (first + number) % self.nodes.len();
                if let Some(node) = &mut self.nodes[number] {
                    node.run(slice);
                }
            }
            self.now = self.now + slice;
            self.act_steadily();
            while let Some(due) = self.changes.iter().position(|(time, ..)| *time <= self.now) {
                let (_, number, change) = self.changes.remove(due);
                self.change(number, change);
            }
            if self.now >= end {
                return;
            }
        }
    }

    /// From now on the steady worker takes part, until all nodes are down or the end begins.
    pub(crate) fn begin_steady_work(&mut self) {
        if self.node_count() > 1 && self.steady.is_none() {
            self.steady = Some(Steady::new(Random::new(self.random.next()), self.now));
        }
    }

    /// The steady worker goes; what it held is lost with it.
    pub(crate) fn end_steady_work(&mut self) {
        self.steady = None;
    }

    fn act_steadily(&mut self) {
        let Some(mut steady) = self.steady.take() else { return };
        let healthy: Vec<Server> =
            self.awake().filter(|node| !self.is_cut_off(node)).map(|node| node.server.clone()).collect();
        steady.act(self.now, &healthy, &self.memory, &self.shared);
        self.steady = Some(steady);
    }

    fn is_cut_off(&self, node: &Node) -> bool {
        self.changes.iter().any(|(_, of, change)| *of == node.server.number && matches!(change, Change::IsBack))
    }

    /// Asks a node, and lets time pass until it has answered.
    pub(crate) fn ask<T: Send + 'static>(
        &mut self,
        server: &Server,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let (answer, mut answered) = oneshot::channel();
        server.spawn(async move { drop(answer.send(work.await)) });
        let begin = self.now;
        // Most answers come at once; of one that takes longer a few milliseconds do not matter.
        let mut slice = Duration::from_millis(1);
        loop {
            self.pass(slice);
            slice = (slice * 2).min(ASK_SLICE_MAX);
            match answered.try_recv() {
                Ok(answer) => return answer,
                Err(oneshot::error::TryRecvError::Empty) => {
                    assert!(self.now.since(begin) < ANSWER_MAX, "node {} does not answer", server.number);
                }
                Err(oneshot::error::TryRecvError::Closed) => panic!("node {} dropped a call", server.number),
            }
        }
    }

    /// Takes the definitions as they were stored: children have their pins.
    pub(crate) fn learn_definitions(&mut self) {
        for workflow in &self.workflows {
            let find = FindDefinition::Latest { name: workflow.definition.name.clone(), prerelease: false };
            let row = ready(self.memory.definition(&find)).unwrap().expect("it was deployed");
            let definition = Definition::parse_stored(&row.json).expect("what is stored compiles");
            self.definitions.insert(row.name, Arc::new(definition));
        }
    }

    fn pools() -> Vec<Pool> {
        let mut pools = Vec::new();
        for queue in QUEUES {
            for contract in CONTRACTS {
                for language in ["", "python"] {
                    pools.push(Pool { queue: queue.into(), contract: contract.into(), language: language.into() });
                }
            }
        }
        pools
    }

    /// Holds the store and everything that was told against the rules.
    pub(crate) fn check(&mut self) {
        let histories = ready(invariants::check(&self.memory, &self.definitions, &Self::pools()));
        let deletable = self.deletable.as_deref();
        if let Some(earlier) = &self.seen {
            histories.goes_on_from(earlier, deletable);
        }
        families::check(&histories, deletable.is_some());
        self.seen_batches = batches::check(&self.memory, &histories, &self.seen_batches, deletable);
        let mut shared = self.shared.lock().unwrap();
        let Shared { deeds, coverage, .. } = &mut *shared;
        for (id, progress) in &self.seen_batches {
            if progress.state != BatchState::Running {
                deeds.batch_ended(*id, coverage);
            }
        }
        for (standing, least) in std::mem::take(&mut shared.journal.read) {
            if !is_gone(&histories, standing.row.uid, deletable) {
                invariants::check_standing(&standing, &histories, least);
            }
        }
        shared.journal.check(&histories, deletable);
        drop(shared);
        self.check_lateness(&histories);
        if let Some(steady) = &self.steady {
            steady.check(&histories);
        }
        self.seen = Some(histories);
    }

    /// While a node is healthy, nothing that is due waits for long, whoever else was to look after it.
    fn check_lateness(&self, histories: &Histories) {
        for node in self.awake() {
            if self.now.since(node.healthy_since) < SETTLED {
                continue;
            }
            let now = node.server.now();
            for history in histories.all() {
                let late = history.row.wake_time.map_or(Duration::ZERO, |time| now.since(time));
                let (id, number) = (&history.row.id, node.server.number);
                assert!(late <= LATENESS_MAX, "{id} should have been woken {late:?} ago; node {number} is healthy");
            }
        }
    }

    pub(crate) fn histories(&self) -> &Histories {
        self.seen.as_ref().expect("it was checked")
    }
}

/// Whether an execution is not there any more, as one may be that was deleted.
pub(crate) fn is_gone(histories: &Histories, uid: Uid, deletable: Option<&str>) -> bool {
    deletable.is_some() && histories.by_uid(uid).is_none()
}

/// The answer of the memory store, which never waits.
pub(crate) fn ready<T>(call: impl Future<Output = T>) -> T {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("the memory store never waits"),
    }
}
