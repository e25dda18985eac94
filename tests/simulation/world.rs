//! What outlives a server: the store, the clients with their journal, the workers, time.

use crate::{
    coverage::{Command, Coverage, Fault, Of},
    definitions::{CONTRACTS, QUEUES},
    harness::definition,
    invariants::{self, Histories},
    journal::{Content, Journal},
    random::Random,
};
use orbit::clock::{Clock, SeededEntropy, TokioClock};
use orbit::domain::{Settings, Timestamp, definition::Definition};
use orbit::engine::{Config, Engine, StartExecution, Task};
use orbit::store::{
    Faulty, MemoryStore, Pool, Store,
    faulty::{Call, Fate},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

/// A worker process.
#[derive(Default)]
pub(crate) struct Worker {
    /// Raised when it loses its memory, so that what was on its way to it is lost.
    pub(crate) life: u32,
    pub(crate) session: Option<orbit::domain::SessionId>,
    pub(crate) held: Vec<Task>,
}

/// A command that is under way.
struct Flight {
    command: Command,
    of: Of,
    faults: [u64; Fault::ALL.len()],
}

/// What clients, workers and the store's faults share.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) journal: Journal,
    pub(crate) workers: Vec<Worker>,
    /// Every task that any worker ever got.
    pub(crate) tasks: Vec<Task>,
    /// Every report that was sent.
    pub(crate) sent: Vec<(Task, Content)>,
    pub(crate) coverage: Coverage,
    flights: BTreeMap<u64, Flight>,
    newest_flight: u64,
    faults: [u64; Fault::ALL.len()],
}

impl Shared {
    pub(crate) fn begin(&mut self, command: Command, of: Of) -> u64 {
        self.newest_flight += 1;
        self.flights.insert(self.newest_flight, Flight { command, of, faults: self.faults });
        self.newest_flight
    }

    /// Counts a command that was answered, with the faults that happened meanwhile.
    pub(crate) fn end(&mut self, flight: u64) {
        let flight = self.flights.remove(&flight).expect("it was under way");
        let mut was_fine = true;
        for fault in Fault::ALL {
            if self.faults[fault as usize] > flight.faults[fault as usize] {
                was_fine = false;
                self.coverage.count(flight.command, flight.of, fault);
            }
        }
        if was_fine {
            self.coverage.count(flight.command, flight.of, Fault::None);
        }
    }

    /// The server died: what was under way has no answer.
    fn crash(&mut self) {
        for flight in std::mem::take(&mut self.flights).into_values() {
            self.coverage.count(flight.command, flight.of, Fault::Crash);
        }
    }

    pub(crate) fn happens(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    /// Whether the store failed while a command was under way.
    pub(crate) fn store_failed_since(&self, flight: u64) -> bool {
        let since = self.flights[&flight].faults;
        [Fault::CommitFails, Fault::CommitLost, Fault::ReadFails, Fault::WriteFails]
            .iter()
            .any(|fault| self.faults[*fault as usize] > since[*fault as usize])
    }
}

/// How the store behaves now.
struct Weather {
    fault: Fault,
    random: Random,
    /// Longest time that a call takes.
    slowness: Duration,
}

impl Weather {
    fn fate(&mut self, call: Call<'_>) -> Fate {
        let strikes = !self.random.one_in(4);
        match (self.fault, call) {
            (Fault::CommitFails, Call::Commit(_)) | (Fault::ReadFails, Call::Read(_)) if strikes => Fate::FailsBefore,
            (Fault::CommitLost, Call::Commit(_)) if strikes => Fate::FailsAfter,
            (Fault::WriteFails, Call::Write(_)) if strikes => *self.random.pick(&[Fate::FailsBefore, Fate::FailsAfter]),
            (_, Call::Commit(_) | Call::Write(_) | Call::Read(_)) => {
                let micros = u64::try_from(self.slowness.as_micros()).unwrap();
                if micros == 0 { Fate::Works } else { Fate::Takes(Duration::from_micros(self.random.next() % micros)) }
            }
        }
    }
}

/// A workflow that may be started.
pub(crate) struct Workflow {
    pub(crate) definition: Arc<Definition>,
    pub(crate) text: String,
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
    /// Signals that were sent with a `request_id`: the start's position, the payload, the request's name.
    pub(crate) signals: Vec<(usize, String, String)>,
    /// Real time, and how far the wall clock is off.
    pub(crate) now: Timestamp,
    pub(crate) wall_off: i64,
    /// Id of the execution that this moment is about.
    pub(crate) focus: Option<Arc<str>>,
    seen: Option<Histories>,
    pub(crate) settings: Settings,
    pub(crate) cache_bytes_max: usize,
    pub(crate) snapshot_tail_bytes_min: usize,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = 2 + random.below(3);
        let workflows: Vec<Workflow> = (0..count)
            .map(|number| {
                let lines = crate::definitions::lines(&mut random);
                let (definition, text) = definition(&format!("w{number}"), &lines);
                Workflow { definition: Arc::new(definition), text }
            })
            .collect();
        let definitions =
            workflows.iter().map(|workflow| (workflow.definition.name.clone(), workflow.definition.clone())).collect();
        let shared = Shared { workers: (0..3).map(|_| Worker::default()).collect(), ..Shared::default() };
        Self {
            memory: MemoryStore::new(),
            shared: Arc::new(Mutex::new(shared)),
            workflows,
            definitions,
            starts: Vec::new(),
            signals: Vec::new(),
            now: crate::harness::START,
            wall_off: 0,
            focus: None,
            seen: None,
            settings: Settings {
                session_timeout: Duration::from_secs(6),
                cancel_grace: Duration::from_secs(8),
                deliveries_max: 4,
                buffered_signals_max: 4,
            },
            cache_bytes_max: *random.pick(&[1, 8 << 10, 64 << 20]),
            snapshot_tail_bytes_min: *random.pick(&[0, 500, 64 << 10]),
            random,
        }
    }

    pub(crate) fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap()
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
    pub(crate) async fn check(&mut self) {
        let histories = invariants::check(&self.memory, &self.definitions, &Self::pools()).await;
        if let Some(earlier) = &self.seen {
            histories.goes_on_from(earlier);
        }
        let mut shared = self.shared.lock().unwrap();
        for standing in std::mem::take(&mut shared.journal.read) {
            invariants::check_standing(&standing, &histories);
        }
        shared.journal.check(&histories);
        drop(shared);
        self.seen = Some(histories);
    }

    pub(crate) fn histories(&self) -> &Histories {
        self.seen.as_ref().expect("it was checked")
    }

    /// One life of the server, on a thread of its own time: what it leaves behind is the store. Afterwards everything
    /// that it had in memory is gone, as after `kill -9`.
    pub(crate) fn live(&mut self, scene: impl AsyncFnOnce(&mut Self, &Server)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let began = self.now;
        let clock = runtime.block_on(async {
            // A node starts from the newest time that was written, or from its machine's clock.
            let wall = Timestamp::from_micros(self.now.as_micros() + self.wall_off);
            let start = self.memory.opened().newest_now.map_or(wall, |newest| newest.max(wall));
            let clock = Arc::new(TokioClock::starting_at(start));
            let weather = Weather { fault: Fault::None, random: self.random.clone(), slowness: Duration::ZERO };
            self.random.next();
            let weather = Arc::new(Mutex::new(weather));
            let (skies, shared) = (weather.clone(), self.shared.clone());
            let plan = move |call: Call<'_>| {
                let mut weather = skies.lock().unwrap();
                let fate = weather.fate(call);
                if matches!(fate, Fate::FailsBefore | Fate::FailsAfter) {
                    shared.lock().unwrap().happens(weather.fault);
                }
                fate
            };
            let store = Arc::new(Faulty::new(Arc::new(self.memory.clone()), plan));
            let config = Config {
                settings: self.settings,
                cache_bytes_max: self.cache_bytes_max,
                snapshot_tail_bytes_min: self.snapshot_tail_bytes_min,
                ..Config::default()
            };
            let entropy = Arc::new(SeededEntropy::new(self.random.next()));
            let engine = Engine::start(store, clock.clone(), entropy, config);
            let server = Server { engine, clock: clock.clone(), weather, shared: self.shared.clone() };
            scene(self, &server).await;
            clock
        });
        let lasted = runtime.block_on(async { clock.monotonic() });
        self.now = began + lasted;
        drop(runtime);
        self.shared().crash();
    }
}

/// A server that lives.
pub(crate) struct Server {
    pub(crate) engine: Engine,
    pub(crate) clock: Arc<TokioClock>,
    weather: Arc<Mutex<Weather>>,
    pub(crate) shared: Arc<Mutex<Shared>>,
}

impl Server {
    pub(crate) fn weather(&self, fault: Fault, slowness: Duration) {
        let mut weather = self.weather.lock().unwrap();
        (weather.fault, weather.slowness) = (fault, slowness);
    }
}
