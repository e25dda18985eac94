//! Several engines on one store: each decides by its own memory, and none is wrong for what another has written.
//!
//! - [`turns`], [`watching`] and [`starts`] tell one story each; [`random`] checks what any client may rely on, whatever
//!   the order of its calls and the nodes that they go to; [`cost`] counts what a node asks of the store for it;
//!   [`silence`] measures how long callers wait for a store that says nothing.

mod cost;
mod random;
mod silence;
mod starts;
mod turns;
mod watching;

use crate::harness::{Orbit, START};
use orbit::clock::{SeededEntropy, TokioClock};
use orbit::engine::{Config, Engine};
use orbit::store::{
    Faulty, MemoryStore, Store,
    faulty::{Call, Fate},
};
use std::{
    collections::BTreeMap,
    ops::Deref,
    sync::{Arc, Mutex},
};

/// One task, whose output is the result.
const ONE_TASK: &str = "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1}\nresult: ${ steps.a.output }\n";
/// Takes signals for a day.
const OPEN: &str = "signals: {s: {}, end: {}}\nsteps:\n  - {id: a, await: {signal: end}}\n";

type Plan = Box<dyn FnMut(Call<'_>) -> Fate + Send>;

/// One node of several: an engine with its own handle of the store, and its own faults.
struct Node {
    orbit: Orbit,
    /// How often each method of the store was called, commits under their own name.
    calls: Arc<Mutex<BTreeMap<&'static str, usize>>>,
    plan: Arc<Mutex<Plan>>,
}

impl Deref for Node {
    type Target = Orbit;

    fn deref(&self) -> &Orbit {
        &self.orbit
    }
}

impl Node {
    fn on(memory: &MemoryStore, number: usize) -> Self {
        let memory = memory.another_node(number);
        Self::with(Arc::new(memory.clone()), memory, number)
    }

    fn with(store: Arc<dyn Store>, memory: MemoryStore, number: usize) -> Self {
        let calls: Arc<Mutex<BTreeMap<&'static str, usize>>> = Arc::default();
        let plan: Arc<Mutex<Plan>> = Arc::new(Mutex::new(Box::new(|_| Fate::Works)));
        let (counted, asked) = (calls.clone(), plan.clone());
        let fate = move |call: Call<'_>| {
            let method = match call {
                Call::Commit(_) => "commit",
                Call::Write(method) | Call::Read(method) => method,
            };
            *counted.lock().unwrap().entry(method).or_default() += 1;
            (asked.lock().unwrap())(call)
        };
        let clock = Arc::new(TokioClock::starting_at(START));
        let entropy = Arc::new(SeededEntropy::new(7 + 1_000 * u64::try_from(number).unwrap()));
        let store = Arc::new(Faulty::new(store, fate));
        let engine = Engine::start(store, clock.clone(), entropy, Config::default());
        Self { orbit: Orbit { engine, memory, clock }, calls, plan }
    }

    /// From now on the store treats this node's calls so.
    fn meets(&self, plan: impl FnMut(Call<'_>) -> Fate + Send + 'static) {
        *self.plan.lock().unwrap() = Box::new(plan);
    }

    /// How often a method has been called.
    fn calls_of(&self, method: &str) -> usize {
        self.calls.lock().unwrap().get(method).copied().unwrap_or(0)
    }
}

/// Nodes with one store.
fn nodes<const N: usize>() -> [Node; N] {
    let memory = MemoryStore::shared();
    std::array::from_fn(|number| Node::on(&memory, number))
}
