//! A run: a server, callers and workers, until everything that was begun has ended and was judged.

use crate::{
    caller::{Callers, Load},
    chance::Chance,
    connect::{self, Flight},
    journal::Journal,
    oracle::{self, Verdict},
    server::{Options, Server},
    timetable::Timetable,
    worker::{Mode, Setup, Worker, process::Process},
    workflow,
};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// After a start of the server, workers must have results accepted again within this.
pub(crate) const RESUME_MAX: Duration = Duration::from_secs(5);

/// Runs that measure time, or need the whole machine, have it to themselves.
static MACHINE: RwLock<()> = RwLock::const_new(());

/// Waits until no other test runs, and keeps them waiting.
pub(crate) async fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().await
}

/// Runs beside others, but not beside one that is alone.
pub(crate) async fn beside_others() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().await
}

/// What serves a run.
pub(crate) trait Serve {
    /// Where it can be called; several nodes are one server.
    fn addresses(&self) -> Vec<SocketAddr>;

    /// The last lines that it has logged.
    fn log_tail(&self) -> String;

    /// Ends it as an operator would.
    async fn stop(&mut self);
}

/// The parts of a run.
pub(crate) struct Run<S = Server> {
    pub(crate) server: S,
    pub(crate) chance: Chance,
    pub(crate) journal: Journal,
    pub(crate) flight: Flight,
    pub(crate) workers: Vec<Worker>,
    pub(crate) processes: Vec<Process>,
    callers: Option<Callers>,
    timetable: Option<Timetable>,
}

impl Run {
    /// Starts a server and deploys the definitions.
    pub(crate) async fn begin(name: &str, options: Options) -> Self {
        Self::on(Server::start_with(options).await, name).await
    }
}

impl<S: Serve> Run<S> {
    /// Deploys the definitions to a server.
    pub(crate) async fn on(server: S, name: &str) -> Self {
        workflow::deploy(&mut connect::admin_of(&server.addresses())).await;
        Self {
            server,
            chance: Chance::named(name),
            journal: Journal::default(),
            flight: Flight::default(),
            workers: Vec::new(),
            processes: Vec::new(),
            callers: None,
            timetable: None,
        }
    }

    /// Adds workers of this process, by stream and by poll in turn.
    pub(crate) fn add_workers(&mut self, count: u64, slots: usize) {
        for number in 0..count {
            let setup = self.setup(format!("inside-{number}"), number, slots);
            self.workers.push(Worker::begin(setup, &self.journal, &self.flight));
        }
    }

    /// Adds workers that are processes, by stream and by poll in turn.
    pub(crate) fn add_processes(&mut self, count: u64, slots: usize) {
        for number in 0..count {
            let setup = self.setup(format!("process-{number}"), number, slots);
            self.processes.push(Process::start(&setup, &self.journal));
        }
    }

    /// The setup of a worker.
    pub(crate) fn setup(&mut self, name: String, number: u64, slots: usize) -> Setup {
        let mode = if number.is_multiple_of(2) { Mode::Stream } else { Mode::Poll };
        let mut addresses = self.server.addresses();
        let first = usize::try_from(number).expect("it is small") % addresses.len();
        addresses.rotate_left(first);
        Setup { name, addresses, mode, slots, seed: self.chance.next() }
    }

    /// Lets callers begin.
    pub(crate) fn call(&mut self, load: Load) {
        let chance = self.chance.fork(0);
        let callers = Callers::begin(&self.server.addresses(), load, &self.journal, &self.flight, &chance);
        self.callers = Some(callers);
    }

    /// Lets schedules begin.
    pub(crate) async fn schedule(&mut self) {
        self.timetable = Some(Timetable::begin(&self.server.addresses()).await);
    }

    /// Waits until so many workers have had a result accepted since then. Answers with how long that took.
    pub(crate) async fn resumed(&self, since: Instant, workers: usize) -> Duration {
        loop {
            if self.journal.completed_since(since) >= workers {
                return since.elapsed();
            }
            assert!(
                since.elapsed() < RESUME_MAX,
                "{} of {workers} workers went on within {RESUME_MAX:?}; {} commands in flight\n{:?}\n{}",
                self.journal.completed_since(since),
                self.flight.count(),
                self.journal.lock().faults,
                self.server.log_tail()
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits for a random moment, and from then on until this many commands are in flight. Answers with how many are.
    pub(crate) async fn moment(&mut self, longest_millis: u64, in_flight: usize) -> usize {
        let pause = self.chance.millis(0, longest_millis);
        tokio::time::sleep(pause).await;
        let begin = Instant::now();
        loop {
            let count = self.flight.count();
            if count >= in_flight {
                return count;
            }
            assert!(
                begin.elapsed() < Duration::from_secs(30),
                "only {count} commands in flight: the load is too small"
            );
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    }

    /// Ends callers, then executions, then workers, then the server; and judges.
    pub(crate) async fn end(mut self) -> Verdict {
        if let Some(callers) = self.callers.take() {
            callers.end().await;
        }
        if let Some(timetable) = &mut self.timetable {
            timetable.pause().await;
        }
        let mut admin = connect::admin_of(&self.server.addresses());
        oracle::adopt(&mut admin, &self.journal).await;
        oracle::drain(&mut admin, &self.journal).await;
        for worker in self.workers {
            worker.end().await;
        }
        for process in self.processes {
            process.end().await;
        }
        if let Some(timetable) = &mut self.timetable {
            let slots = timetable.check(&mut admin).await;
            eprintln!("{slots} slots of schedules, each started once");
        }
        let verdict = oracle::judge(&mut admin, &self.journal).await;
        self.server.stop().await;
        verdict
    }
}

/// The middle, the 99th percentile and the largest of some spans, in milliseconds.
pub(crate) fn spread(mut spans: Vec<Duration>) -> String {
    spans.sort();
    let at =
        |percent: usize| spans.get((spans.len() * percent / 100).min(spans.len() - 1)).map_or(0, Duration::as_millis);
    format!("p50 {} ms, p99 {} ms, max {} ms", at(50), at(99), at(100))
}
