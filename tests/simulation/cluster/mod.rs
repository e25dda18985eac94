//! Several nodes on one store: what they tell each other, and what happens when one of them falls silent.

mod news;

use crate::harness::*;
use orbit::clock::{SeededEntropy, TokioClock};
use orbit::domain::Timestamp;
use orbit::engine::{Config, Engine};
use orbit::store::{
    Faulty, MemoryStore, Store,
    faulty::{Call, Fate},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// A workflow of one task.
pub(crate) const ONE_TASK: &str = "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1}\n";

type Weather = Box<dyn FnMut(Call<'_>) -> Fate + Send>;

/// Nodes that share a store.
pub(crate) struct Cluster {
    pub(crate) memory: MemoryStore,
    pub(crate) nodes: Vec<Node>,
}

/// One of them.
pub(crate) struct Node {
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
    /// As many nodes, who know each other.
    pub(crate) async fn new(count: usize) -> Self {
        let mut cluster = Self { memory: MemoryStore::shared(), nodes: Vec::new() };
        for _ in 0..count {
            cluster.join();
        }
        // Two rounds of presence: the first tells of a node, the second finds it.
        pass(2.5).await;
        cluster
    }

    /// One more node; back comes its number.
    pub(crate) fn join(&mut self) -> usize {
        let now = self.nodes.iter().map(|node| node.now()).max().unwrap_or(START);
        self.join_at(now)
    }

    /// One more node, whose clock shows this.
    pub(crate) fn join_at(&mut self, now: Timestamp) -> usize {
        self.join_with(now, Config::default())
    }

    pub(crate) fn join_with(&mut self, now: Timestamp, config: Config) -> usize {
        let number = self.nodes.len();
        let weather: Arc<Mutex<Weather>> = Arc::new(Mutex::new(Box::new(|_| Fate::Works)));
        let skies = weather.clone();
        let store = Faulty::new(Arc::new(self.memory.another_node(number)), move |call| (skies.lock().unwrap())(call));
        let clock = Arc::new(TokioClock::starting_at(now));
        let entropy = Arc::new(SeededEntropy::new(100 + number as u64));
        let engine = Engine::start(Arc::new(store), clock.clone(), entropy, config);
        self.nodes.push(Node { orbit: Orbit { engine, memory: self.memory.clone(), clock }, weather });
        number
    }
}

impl Node {
    /// From now on the node's store behaves like this.
    pub(crate) fn weather(&self, plan: impl FnMut(Call<'_>) -> Fate + Send + 'static) {
        *self.weather.lock().unwrap() = Box::new(plan);
    }
}
