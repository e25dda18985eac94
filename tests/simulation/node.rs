//! One node of a simulated world: an engine in a runtime of its own, with its own time and its own way to the store.
//!
//! - It is killed by dropping its runtime: nothing of it goes on, and what it had in memory is gone.
//! - It is frozen by not running it, and when it thaws all the time that it missed has passed at once.
//! - Its clock may run fast or slow, and its machine's wall clock be off by minutes.

use crate::{coverage::Fault, random::Random, world::Shared};
use orbit::clock::{Clock, SeededEntropy, TokioClock};
use orbit::domain::Timestamp;
use orbit::engine::{Config, Engine};
use orbit::store::{
    Append, Committed, Faulty, MemoryStore, Target,
    faulty::{Call, Fate},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::runtime::{Handle, Runtime};

/// Longest that a call takes, or news are late, on a node that is cut off.
const CUT_OFF_CALL: Duration = Duration::from_secs(2);

/// How the store, and the way to it, behave now.
struct Weather {
    fault: Fault,
    random: Random,
    /// Longest time that a call takes.
    slowness: Duration,
    /// One in how many news from other nodes is lost, comes twice or late; none of them, if it is 0.
    news_odds: usize,
}

impl Weather {
    fn fate(&mut self, call: Call<'_>) -> Fate {
        let strikes = !self.random.one_in(4);
        match (self.fault, call) {
            (Fault::CommitFails, Call::Commit(_)) | (Fault::ReadFails, Call::Read(_)) if strikes => Fate::FailsBefore,
            (Fault::CommitLost, Call::Commit(_)) if strikes => Fate::FailsAfter,
            (Fault::WriteFails, Call::Write(_)) if strikes => *self.random.pick(&[Fate::FailsBefore, Fate::FailsAfter]),
            (Fault::CutOff, _) => match self.random.below(4) {
                0 => Fate::FailsAfter,
                1 => Fate::Takes(self.up_to(CUT_OFF_CALL)),
                _ => Fate::FailsBefore,
            },
            (_, Call::Commit(_) | Call::Write(_) | Call::Read(_)) => {
                if self.slowness.is_zero() {
                    Fate::Works
                } else {
                    Fate::Takes(self.up_to(self.slowness))
                }
            }
        }
    }

    /// What becomes of news from another node.
    fn news(&mut self) -> Fate {
        if self.fault == Fault::CutOff {
            return Fate::FailsBefore;
        }
        if self.news_odds == 0 || !self.random.one_in(self.news_odds) {
            return Fate::Works;
        }
        match self.random.below(3) {
            0 => Fate::FailsAfter,
            1 => Fate::Takes(self.up_to(CUT_OFF_CALL)),
            _ => Fate::FailsBefore,
        }
    }

    fn up_to(&mut self, longest: Duration) -> Duration {
        Duration::from_micros(self.random.next() % u64::try_from(longest.as_micros()).unwrap())
    }
}

/// A node as clients and workers know it.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) number: usize,
    pub(crate) engine: Engine,
    pub(crate) shared: Arc<Mutex<Shared>>,
    clock: Arc<TokioClock>,
    weather: Arc<Mutex<Weather>>,
    handle: Handle,
}

impl Server {
    /// Makes faults of the store, and how long its calls take; says what the fault was before.
    pub(crate) fn weather(&self, fault: Fault, slowness: Duration) -> Fault {
        let mut weather = self.weather.lock().unwrap();
        weather.slowness = slowness;
        std::mem::replace(&mut weather.fault, fault)
    }

    /// Makes news from other nodes unreliable: one in so many; 0 for none.
    pub(crate) fn unreliable_news(&self, odds: usize) {
        self.weather.lock().unwrap().news_odds = odds;
    }

    pub(crate) fn now(&self) -> Timestamp {
        let _inside = self.handle.enter();
        self.clock.now()
    }

    /// Moves the wall clock of its machine.
    pub(crate) fn jump_wall(&self, micros: i64) {
        self.clock.jump_wall(micros);
    }

    /// Runs something on the node until it ends or the node dies.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(work);
    }
}

/// What a node starts with.
pub(crate) struct Setup {
    pub(crate) number: usize,
    pub(crate) memory: MemoryStore,
    pub(crate) config: Config,
    /// What its clock shows.
    pub(crate) start: Timestamp,
    /// How much faster its clock runs than real time, in millionths.
    pub(crate) drift: i64,
    pub(crate) shared: Arc<Mutex<Shared>>,
    pub(crate) random: Random,
}

pub(crate) struct Node {
    runtime: Runtime,
    pub(crate) server: Server,
    drift: i64,
    /// Microseconds of its own time that it has not run yet.
    owed: i64,
    pub(crate) is_frozen: bool,
    /// Since when nothing keeps it from its work.
    pub(crate) healthy_since: Timestamp,
}

impl Node {
    pub(crate) fn start(setup: Setup, now: Timestamp) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let Setup { number, memory, config, start, drift, shared, mut random } = setup;
        let entropy = Arc::new(SeededEntropy::new(random.next()));
        let weather = Weather { fault: Fault::None, random, slowness: Duration::ZERO, news_odds: 0 };
        let weather = Arc::new(Mutex::new(weather));
        let store = Faulty::new(Arc::new(memory), plan(number, &weather, &shared))
            .hearing(hear_plan(number, &weather, &shared))
            .watched(watcher(number, &shared));
        let (clock, engine) = runtime.block_on(async {
            let clock = Arc::new(TokioClock::starting_at(start));
            let engine = Engine::start(Arc::new(store), clock.clone(), entropy, config);
            (clock, engine)
        });
        let server = Server { number, engine, shared, clock, weather, handle: runtime.handle().clone() };
        Self { runtime, server, drift, owed: 0, is_frozen: false, healthy_since: now }
    }

    /// Lets time pass on the node.
    pub(crate) fn run(&mut self, span: Duration) {
        let micros = i64::try_from(span.as_micros()).unwrap();
        self.owed += micros + micros * self.drift / 1_000_000;
        if self.is_frozen {
            return;
        }
        let span = self.take_owed();
        self.runtime.block_on(async {
            // Whatever came from outside is seen before time goes on.
            tokio::task::yield_now().await;
            if !span.is_zero() {
                tokio::time::sleep(span).await;
            }
        });
    }

    /// The time that it has not run yet, in whole milliseconds, as its runtime counts.
    fn take_owed(&mut self) -> Duration {
        let millis = self.owed / 1_000;
        self.owed -= millis * 1_000;
        Duration::from_millis(u64::try_from(millis).unwrap())
    }

    /// The node goes on: all that it missed has passed at once.
    pub(crate) fn thaw(&mut self, now: Timestamp) {
        (self.is_frozen, self.healthy_since) = (false, now);
        let missed = self.take_owed();
        self.runtime.block_on(tokio::time::advance(missed));
        self.server.shared.lock().unwrap().happens(self.server.number, Fault::Freeze);
    }
}

fn plan(
    node: usize,
    weather: &Arc<Mutex<Weather>>,
    shared: &Arc<Mutex<Shared>>,
) -> impl FnMut(Call<'_>) -> Fate + Send + 'static {
    let (weather, shared) = (weather.clone(), shared.clone());
    move |call| {
        let mut weather = weather.lock().unwrap();
        let fate = weather.fate(call);
        if matches!(fate, Fate::FailsBefore | Fate::FailsAfter) || weather.fault == Fault::CutOff {
            shared.lock().unwrap().happens(node, weather.fault);
        }
        fate
    }
}

fn hear_plan(
    node: usize,
    weather: &Arc<Mutex<Weather>>,
    shared: &Arc<Mutex<Shared>>,
) -> impl FnMut(&orbit::store::Heard) -> Fate + Send + 'static {
    let (weather, shared) = (weather.clone(), shared.clone());
    move |_| {
        let fate = weather.lock().unwrap().news();
        if fate != Fate::Works {
            shared.lock().unwrap().happens(node, Fault::NewsLost);
        }
        fate
    }
}

fn watcher(node: usize, shared: &Arc<Mutex<Shared>>) -> impl FnMut(&Append, &Committed) + Send + 'static {
    let shared = shared.clone();
    move |append, committed| {
        shared.lock().unwrap().written(append, committed);
        // An id that is taken is no conflict of nodes.
        if matches!(append.target, Target::Existing(_)) && *committed == Committed::Conflict {
            shared.lock().unwrap().happens(node, Fault::Conflict);
        }
    }
}
