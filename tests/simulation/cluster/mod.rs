//! Several nodes on one store: what they tell each other, and what happens when one of them falls silent.

mod batches;
mod news;
mod presence;
mod sessions;
mod time;
mod timeouts;
mod timers;
mod waits;

use crate::harness::*;
use orbit::clock::{SeededEntropy, TokioClock};
use orbit::domain::{EndReason, EventKind, SessionId, Settings, Timestamp};
use orbit::engine::{Config, Engine, HeldToken, Task};
use orbit::store::{
    Faulty, MemoryStore, Store,
    faulty::{Call, Fate},
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// A workflow of one task.
const ONE_TASK: &str = "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1}\n";

type Weather = Box<dyn FnMut(Call<'_>) -> Fate + Send>;

/// Nodes that share a store.
struct Cluster {
    memory: MemoryStore,
    nodes: Vec<Node>,
}

/// One of them.
struct Node {
    orbit: Orbit,
    weather: Arc<Mutex<Weather>>,
}

impl std::ops::Deref for Node {
    type Target = Orbit;

    fn deref(&self) -> &Orbit {
        &self.orbit
    }
}

impl Cluster {
    /// As many nodes, who know each other and have done so for long enough to judge.
    async fn new(count: usize) -> Self {
        let mut cluster = Self { memory: MemoryStore::shared(), nodes: Vec::new() };
        for _ in 0..count {
            cluster.join(START);
        }
        pass(15.0).await;
        cluster
    }

    /// Nodes with these session timeouts, in seconds.
    async fn with_session_timeouts(seconds: &[u64]) -> Self {
        let mut cluster = Self { memory: MemoryStore::shared(), nodes: Vec::new() };
        for (number, seconds) in seconds.iter().enumerate() {
            let settings = Settings { session_timeout: Duration::from_secs(*seconds), ..Settings::default() };
            let config = Config { settings, ..Config::default() };
            cluster.nodes.push(Node::with(&cluster.memory, number, START, config));
        }
        pass(15.0).await;
        cluster
    }

    /// One more node, whose clock shows this; back comes its number.
    fn join(&mut self, now: Timestamp) -> usize {
        let number = self.nodes.len();
        self.nodes.push(Node::start(&self.memory, number, now));
        number
    }
}

impl Node {
    fn start(memory: &MemoryStore, number: usize, now: Timestamp) -> Self {
        Self::with(memory, number, now, Config::default())
    }

    fn with(memory: &MemoryStore, number: usize, now: Timestamp, config: Config) -> Self {
        let weather: Arc<Mutex<Weather>> = Arc::new(Mutex::new(Box::new(|_| Fate::Works)));
        let skies = weather.clone();
        let store = Faulty::new(Arc::new(memory.another_node(number)), move |call| (skies.lock().unwrap())(call));
        let clock = Arc::new(TokioClock::starting_at(now));
        let entropy = Arc::new(SeededEntropy::new(100 + number as u64));
        let engine = Engine::start(Arc::new(store), clock.clone(), entropy, config);
        Self { orbit: Orbit { engine, memory: memory.clone(), clock }, weather }
    }

    /// From now on the node's store behaves like this.
    fn weather(&self, plan: impl FnMut(Call<'_>) -> Fate + Send + 'static) {
        *self.weather.lock().unwrap() = Box::new(plan);
    }

    /// From now on calls of these methods fail.
    fn fails(&self, methods: &'static [&'static str]) {
        self.weather(move |call| if methods.contains(&method(&call)) { Fate::FailsBefore } else { Fate::Works });
    }

    /// Nothing that it does reaches the store any more, as after `kill -9`.
    fn kill(&self) {
        self.weather(|_| Fate::Takes(Duration::from_secs(1_000_000_000)));
    }

    /// Counts calls of these methods from now on.
    fn count_calls(&self, methods: &'static [&'static str]) -> Arc<AtomicUsize> {
        let count = Arc::new(AtomicUsize::new(0));
        let counter = count.clone();
        self.weather(move |call| {
            if methods.contains(&method(&call)) {
                counter.fetch_add(1, Ordering::Relaxed);
            }
            Fate::Works
        });
        count
    }
}

fn method(call: &Call<'_>) -> &'static str {
    match call {
        Call::Commit(_) => "commit",
        Call::Write(method) | Call::Read(method) => method,
    }
}

fn ended(why: EndReason) -> impl Fn(&EventKind) -> bool {
    move |kind| matches!(kind, EventKind::DeliveryEnded { reason, .. } if *reason == why)
}

fn with_progress(task: &Task, progress: &str) -> HeldToken {
    HeldToken { token: task.token.clone(), progress: Some(json(progress)), beat: false }
}

fn beat(task: &Task) -> HeldToken {
    HeldToken { token: task.token.clone(), progress: None, beat: true }
}
