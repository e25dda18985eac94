//! Field cases as callers and workers see them, each on one node and on two that are called in turn; some also on one node
//! with SQLite and on two with PostgreSQL ([`database`]).
//!
//! A case is one story: `nodes.next()` is whichever node the next call goes to. On one node that is always the same; on
//! two the one that has just written is not the one that is asked next.

mod batches;
mod cancel;
mod children;
mod database;
mod delivery;
mod language;
mod late_report;
mod presence;
mod retry;
mod send;
mod signals;
mod timeout;

use crate::harness::*;
use orbit::clock::{SeededEntropy, TokioClock};
use orbit::domain::{EventKind, Phase, SessionId, Timestamp};
use orbit::engine::{Config, Engine, Polled, Task};
use orbit::store::{
    Append, Faulty, MemoryStore, Store, Target,
    faulty::{Call, Fate},
};
use std::{
    cell::Cell,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::task::JoinHandle;

/// Makes tests of cases: each on one node, and on two.
macro_rules! on_one_and_two_nodes {
    ($($case:ident),+ $(,)?) => {
        mod on_one_node {
            $(#[tokio::test(start_paused = true)]
            async fn $case() {
                super::$case(crate::cases::Nodes::start(1).await).await;
            })+
        }

        mod on_two_nodes {
            $(#[tokio::test(start_paused = true)]
            async fn $case() {
                super::$case(crate::cases::Nodes::start(2).await).await;
            })+
        }
    };
}
pub(crate) use on_one_and_two_nodes;

/// Makes tests of cases: each on one node with SQLite, and on two with PostgreSQL.
macro_rules! on_databases {
    ($($case:ident),+ $(,)?) => {
        mod on_sqlite {
            $(#[test]
            fn $case() {
                crate::cases::database::on_sqlite(super::$case);
            })+
        }

        mod on_postgres {
            $(#[test]
            fn $case() {
                crate::cases::database::on_postgres(super::$case);
            })+
        }
    };
}
pub(crate) use on_databases;

/// One task, whose output is the result.
const ONE_TASK: &str = "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1}\nresult: ${ steps.a.output }\n";
/// How much later something may come that another node must hear of first: the pause of its look for lost news, and
/// some for the way.
const HEARD: Duration = Duration::from_millis(1_200);

/// The nodes of one case.
struct Nodes {
    /// What all of them share, to be looked into.
    store: Arc<dyn Store>,
    /// Gives the node of a number its store.
    open: Box<dyn FnMut(usize) -> Arc<dyn Store>>,
    /// Whether time stands still while the store works.
    is_real: bool,
    config: Config,
    nodes: Vec<Node>,
    turn: Cell<usize>,
    began: tokio::time::Instant,
    /// Nodes that there have been.
    made: usize,
    /// What becomes of commits, by what they write.
    fates: Fates,
}

/// What becomes of a commit that has such an append in it.
type Fates = Arc<Mutex<Vec<(fn(&Append) -> bool, Fate)>>>;

/// Whether an append makes a child.
fn makes_child(append: &Append) -> bool {
    matches!(&append.target, Target::New(new) if new.id.starts_with('~'))
}

/// Whether an append has an event of this kind.
fn has(append: &Append, is_it: fn(&EventKind) -> bool) -> bool {
    let events = orbit::wire::event::decode_batch(&append.events, 1, &|_| Some(arc("null"))).unwrap();
    events.iter().any(|event| is_it(&event.kind))
}

struct Node {
    orbit: Orbit,
    is_dead: Arc<AtomicBool>,
}

impl Nodes {
    /// So many nodes, which know each other.
    async fn start(count: usize) -> Self {
        let memory = if count == 1 { MemoryStore::new() } else { MemoryStore::shared() };
        let store = Arc::new(memory.clone());
        Self::on(store, Box::new(move |number| Arc::new(memory.another_node(number))), count, false).await
    }

    async fn on(
        store: Arc<dyn Store>,
        open: Box<dyn FnMut(usize) -> Arc<dyn Store>>,
        count: usize,
        is_real: bool,
    ) -> Self {
        // Looking at it takes time as any other call does.
        let looked_at = Faulty::new(store, |_| Fate::Works);
        let handle = tokio::runtime::Handle::current();
        let looked_at = if is_real { looked_at.holding(move || database::stop_time(&handle)) } else { looked_at };
        let mut nodes = Self {
            store: Arc::new(looked_at),
            open,
            is_real,
            config: Config::default(),
            nodes: Vec::new(),
            turn: Cell::new(0),
            began: tokio::time::Instant::now(),
            made: 0,
            fates: Fates::default(),
        };
        for _ in 0..count {
            nodes.join();
        }
        pass(3.0).await;
        nodes
    }

    /// One more node.
    fn join(&mut self) {
        let number = self.made;
        self.made += 1;
        let is_dead = Arc::new(AtomicBool::new(false));
        let dead = is_dead.clone();
        // Nothing that a dead node still does reaches the store.
        let fates = self.fates.clone();
        let plan = move |call: Call<'_>| match call {
            _ if dead.load(Ordering::Relaxed) => Fate::FailsBefore,
            Call::Commit(batch) => {
                let fates = fates.lock().unwrap();
                let fate = fates.iter().find(|(is_it, _)| batch.iter().any(is_it));
                fate.map_or(Fate::Works, |(_, fate)| *fate)
            }
            Call::Write(_) | Call::Read(_) => Fate::Works,
        };
        let mut store = Faulty::new((self.open)(number), plan);
        if self.is_real {
            let handle = tokio::runtime::Handle::current();
            store = store.holding(move || database::stop_time(&handle));
        }
        let clock = Arc::new(TokioClock::starting_at(self.now()));
        let entropy = Arc::new(SeededEntropy::new(50 + number as u64));
        let engine = Engine::start(Arc::new(store), clock.clone(), entropy, self.config);
        // A case looks into the store that all nodes share.
        self.nodes.push(Node { orbit: Orbit { engine, memory: MemoryStore::new(), clock }, is_dead });
    }

    /// The time, which all nodes agree about.
    fn now(&self) -> Timestamp {
        START + self.began.elapsed()
    }

    /// The node that the next call goes to.
    fn next(&self) -> &Orbit {
        let turn = self.turn.get();
        self.turn.set(turn + 1);
        &self.nodes[turn % self.nodes.len()].orbit
    }

    /// The node that has been called last dies. Where it was the only one, another is started on what it leaves.
    fn lose_last(&mut self) {
        let lost = (self.turn.get() + self.nodes.len() - 1) % self.nodes.len();
        self.nodes.remove(lost).is_dead.store(true, Ordering::Relaxed);
        if self.nodes.is_empty() {
            self.join();
        }
    }

    /// All nodes die, and as many others come with this configuration.
    async fn configure(&mut self, config: Config) {
        self.config = config;
        for node in std::mem::take(&mut self.nodes) {
            node.is_dead.store(true, Ordering::Relaxed);
            self.join();
        }
        pass(3.0).await;
    }

    /// From now on commits that write such a thing meet this fate.
    fn fate(&self, is_it: fn(&Append) -> bool, fate: Fate) {
        self.fates.lock().unwrap().push((is_it, fate));
    }

    /// All commits work again.
    fn mend(&self) {
        self.fates.lock().unwrap().clear();
    }

    /// The execution of an id ends so within so many seconds.
    async fn ends(&self, id: &str, phase: Phase, seconds: f64) {
        let reached = self.next().wait(id, seconds).await;
        assert_eq!(reached, phase, "{id}: {:#?}", self.next().events(id).await);
    }

    /// The id of the child of a step.
    async fn child(&self, id: &str, step: &str) -> String {
        let standing = self.next().standing(id).await;
        let child = standing.state.steps().find(|status| &**status.step == step).and_then(|status| status.child);
        child.expect("it has asked for a child").0.to_string()
    }

    /// Waits for a task in the background.
    fn waiting(&self, session: SessionId) -> JoinHandle<Polled> {
        let engine = self.next().engine.clone();
        tokio::spawn(async move { engine.poll(session, 1, Duration::from_secs(25)).await.unwrap() })
    }

    /// The next task of a session, which comes within so long. Its worker beats meanwhile, as one that holds nothing.
    async fn task_within(&self, session: SessionId, longest: Duration) -> Task {
        let begin = self.now();
        loop {
            self.next().heartbeat(session, Vec::new()).await;
            if let Some(task) = self.next().poll_for(session, 1, 5.0).await.tasks.pop() {
                let waited = self.now().since(begin);
                assert!(waited <= longest, "it came after {waited:?}");
                return task;
            }
            assert!(self.now().since(begin) <= longest, "no task comes within {longest:?}");
        }
    }

    /// The next task, which waits already.
    async fn task(&self, session: SessionId) -> Task {
        self.task_within(session, HEARD).await
    }

    /// Heartbeats for so long, listing these tasks.
    async fn hold(&self, session: SessionId, tasks: &[&Task], seconds: u32) {
        for _ in 0..seconds / 10 {
            self.next().heartbeat(session, tasks.iter().map(|task| listed(task)).collect()).await;
            pass(10.0).await;
        }
    }

    /// How many deliveries of an execution there were.
    async fn dispatches(&self, id: &str) -> usize {
        self.next().count(id, |kind| matches!(kind, EventKind::StepDispatched { .. })).await
    }
}
