//! An engine with a store, and short words for what callers and workers ask of it.

use orbit::clock::{Clock, SeededEntropy, TokioClock};
use orbit::domain::{
    Event, EventKind, ExecutionId, Failure, Payload, Phase, ReportOutcome, RequestKey, SessionId, StepState, Timestamp,
    definition::Definition, digest16,
};
use orbit::engine::{
    Config, Engine, Error, ExecutionName, HeartbeatAnswer, HeldToken, Polled, Registration, Report, Standing,
    StartExecution, Started, Task, input_digest,
};
use orbit::store::{MemoryStore, ReadyRow, Store};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// When every test begins.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_000_000_000_000_000);

/// An engine on a store in memory.
pub(crate) struct Orbit {
    pub(crate) engine: Engine,
    pub(crate) memory: MemoryStore,
    pub(crate) clock: Arc<TokioClock>,
}

/// An engine with default settings on an empty store.
pub(crate) fn orbit() -> Orbit {
    let memory = MemoryStore::new();
    orbit_on(memory.clone(), Arc::new(memory), Config::default())
}

/// An engine on a store that may stand before `memory`.
pub(crate) fn orbit_on(memory: MemoryStore, store: Arc<dyn Store>, config: Config) -> Orbit {
    let clock = Arc::new(TokioClock::starting_at(store.opened().newest_now.unwrap_or(START)));
    let engine = Engine::start(store, clock.clone(), Arc::new(SeededEntropy::new(7)), config);
    Orbit { engine, memory, clock }
}

/// Lets time pass, and everything that is due in it happen.
pub(crate) async fn pass(seconds: f64) {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
}

pub(crate) fn arc(text: &str) -> Arc<str> {
    Arc::from(text)
}

pub(crate) fn json(text: &str) -> Payload {
    Payload::from_json(text)
}

pub(crate) fn name(id: &str) -> ExecutionName {
    ExecutionName { id: ExecutionId::parse(id).unwrap(), uid: None }
}

pub(crate) fn request(id: &str, content: &str) -> RequestKey {
    RequestKey { key: digest16(&[id.as_bytes()]), content: digest16(&[content.as_bytes()]) }
}

/// Checks and compiles a definition from the lines after its version.
pub(crate) fn definition(workflow: &str, lines: &str) -> (Definition, String) {
    let text = format!("name: {workflow}\nversion: 1.0.0\n{lines}");
    let (definition, _) =
        Definition::parse("test.yaml", &text).unwrap_or_else(|faults| panic!("{faults:?}\nin\n{text}"));
    (definition, text)
}

pub(crate) fn start_of(workflow: &str, id: &str, input: &str) -> StartExecution {
    StartExecution {
        id: Some(ExecutionId::parse(id).unwrap()),
        workflow: arc(workflow),
        version: None,
        input: json(input),
        input_digest: input_digest(workflow, input),
        labels: BTreeMap::new(),
        request: None,
        id_reuse: orbit::engine::IdReuse::Reject,
        trace_parent: arc(""),
        delay: None,
        signal: None,
    }
}

pub(crate) fn registration(contracts: &[&str]) -> Registration {
    Registration {
        worker_id: arc("w"),
        language: arc("python"),
        sdk: arc("sdk"),
        build: arc("build"),
        queues: vec![arc("default")],
        contracts: contracts.iter().map(|contract| arc(contract)).collect(),
        slots: 10,
        message_bytes_max: 4 << 20,
        previous_session: None,
    }
}

pub(crate) fn complete(output: &str) -> Report {
    Report::Complete { output: json(output) }
}

pub(crate) fn fail(code: &str) -> Report {
    let failure = Failure { code: arc(code), message: arc("it broke"), details: None, unit: arc("") };
    Report::Fail { failure, retryable: true, retry_after: None }
}

pub(crate) fn listed(task: &Task) -> HeldToken {
    HeldToken { token: task.token.clone(), progress: None, beat: false }
}

impl Orbit {
    pub(crate) async fn deploy(&self, workflow: &str, lines: &str) {
        let (definition, text) = definition(workflow, lines);
        self.engine.deploy(definition, text).await.unwrap();
    }

    pub(crate) async fn start(&self, workflow: &str, id: &str) -> Started {
        self.engine.start_execution(start_of(workflow, id, "{}")).await.unwrap()
    }

    pub(crate) async fn worker(&self, contracts: &[&str]) -> SessionId {
        self.engine.register(registration(contracts)).await.unwrap().session
    }

    /// Polls for up to 10 tasks without waiting long.
    pub(crate) async fn poll(&self, session: SessionId) -> Vec<Task> {
        self.poll_for(session, 10, 0.1).await.tasks
    }

    pub(crate) async fn poll_for(&self, session: SessionId, tasks: u32, seconds: f64) -> Polled {
        self.engine.poll(session, tasks, Duration::from_secs_f64(seconds)).await.unwrap()
    }

    /// Polls for the one task that must be there.
    pub(crate) async fn task(&self, session: SessionId) -> Task {
        let mut tasks = self.poll(session).await;
        assert_eq!(tasks.len(), 1, "one task waits: {tasks:?}");
        tasks.remove(0)
    }

    pub(crate) async fn report(&self, task: &Task, report: Report) -> ReportOutcome {
        self.engine.report(task.token.clone(), report).await.unwrap()
    }

    pub(crate) async fn heartbeat(&self, session: SessionId, held: Vec<HeldToken>) -> HeartbeatAnswer {
        self.engine.heartbeat(session, held).await.unwrap()
    }

    /// Heartbeats every ten seconds, listing these tasks, for so long.
    pub(crate) async fn hold(&self, session: SessionId, tasks: &[&Task], seconds: u32) {
        for _ in 0..seconds / 10 {
            self.heartbeat(session, tasks.iter().map(|task| listed(task)).collect()).await;
            pass(10.0).await;
        }
    }

    pub(crate) async fn signal(&self, id: &str, signal: &str, payload: &str) -> Result<u64, Error> {
        self.engine.signal(&name(id), arc(signal), json(payload), None, None).await
    }

    pub(crate) async fn standing(&self, id: &str) -> Standing {
        self.engine.execution(&name(id)).await.unwrap()
    }

    pub(crate) async fn phase(&self, id: &str) -> Phase {
        self.standing(id).await.state.phase()
    }

    pub(crate) async fn step(&self, id: &str, step: &str) -> StepState {
        let standing = self.standing(id).await;
        standing.state.steps().find(|status| &**status.step == step).unwrap().state
    }

    pub(crate) async fn output(&self, id: &str) -> String {
        self.standing(id).await.state.output().expect("it succeeded").as_str().to_owned()
    }

    pub(crate) async fn wait(&self, id: &str, seconds: f64) -> Phase {
        self.engine.wait(&name(id), Duration::from_secs_f64(seconds)).await.unwrap().state.phase()
    }

    pub(crate) async fn events(&self, id: &str) -> Vec<Event> {
        self.engine.events(&name(id), 0, 10_000).await.unwrap()
    }

    /// The names of the events' kinds.
    pub(crate) async fn kinds(&self, id: &str) -> Vec<&'static str> {
        self.events(id).await.iter().map(|event| orbit::wire::event::kind_name(&event.kind)).collect()
    }

    /// How often an event that looks so is in the history.
    pub(crate) async fn count(&self, id: &str, is_it: impl Fn(&EventKind) -> bool) -> usize {
        self.events(id).await.iter().filter(|event| is_it(&event.kind)).count()
    }

    /// The rows of the pool that all tests here use.
    pub(crate) async fn ready(&self, contract: &str) -> Vec<ReadyRow> {
        let pool = orbit::store::Pool { queue: arc("default"), contract: arc(contract), language: arc("") };
        self.memory.ready(&pool, 1_000).await.unwrap()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}
