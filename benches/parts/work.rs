//! The work of each part, prepared so that only the part itself is measured.

use bytes::Bytes;
use orbit::{
    domain::{
        Claimant, Command, DeliveryRef, Event, ExecutionId, Payload, SessionId, Settings, State, Timestamp, Uid,
        decide::{Context, Start, decide, start},
        definition::{Definition, ExecutionScope, Scope, StepIndex, StepLookup, StepView},
    },
    store::{
        Append, Committed, ExecutionKey, ExecutionState, NewExecution, SqliteStore, Store as _, Target, WakeChange,
        sqlite,
    },
    wire::event,
};
use std::{cell::Cell, collections::BTreeMap, fmt::Write as _, sync::Arc, time::Duration};
use uuid::Uuid;

const STEPS: usize = 10;

/// Executions of one commit.
const APPENDS: usize = 64;

/// Bytes of a step's events, as `encode` gives them for inputs of 250 bytes.
const EVENT_BYTES: usize = 700;

/// One execution of ten task steps with inputs of 250 bytes.
pub(crate) struct Life {
    definition: Arc<Definition>,
    input: Payload,
    appends: Vec<Vec<Event>>,
    encoded: Vec<Bytes>,
}

impl Life {
    pub(crate) fn new() -> Self {
        let (definition, _) = Definition::parse("parts.yaml", &source()).expect("a right definition");
        let input = Payload::from_json(input());
        let mut life = Self { definition: Arc::new(definition), input, appends: Vec::new(), encoded: Vec::new() };
        life.appends = life.decide();
        life.encoded = life.encode();
        life
    }

    /// Every decision from start to end; the events of each append.
    pub(crate) fn decide(&self) -> Vec<Vec<Event>> {
        let context = Context { now: Timestamp::from_micros(1_000_000), settings: Settings::default() };
        let (mut state, events) = start(self.definition.clone(), self.start(), &context).expect("it starts");
        let mut appends = vec![events];
        let output = Payload::from_json(format!("\"{}\"", "x".repeat(248)));
        for step in 0..STEPS {
            let unit: Arc<str> = format!("s{step}").into();
            let dispatch = Command::Dispatch { unit: unit.clone(), claimant: claimant() };
            let (mut events, _) = decide(&mut state, dispatch, &context).expect("it is ready");
            let complete = Command::Complete { delivery: DeliveryRef { unit, delivery: 1 }, output: output.clone() };
            events.extend(decide(&mut state, complete, &context).expect("it is out").0);
            appends.push(events);
        }
        assert!(state.is_closed());
        appends
    }

    /// The state after all events.
    pub(crate) fn evolve(&self) -> State {
        let mut events = self.appends.iter().flatten();
        let mut state = State::begin(self.definition.clone(), events.next().expect("there are events"));
        events.for_each(|event| state.evolve(event));
        state
    }

    pub(crate) fn encode(&self) -> Vec<Bytes> {
        self.appends.iter().map(|events| event::encode_batch(events).bytes).collect()
    }

    pub(crate) fn decode(&self) -> Vec<Vec<Event>> {
        let decode = |bytes| event::decode_batch(bytes, event::FORMAT, &|_| None).expect("what was encoded");
        self.encoded.iter().map(|bytes| decode(bytes)).collect()
    }

    /// The result of the definition, which adds up the items of the input.
    pub(crate) fn expression(&self) -> Payload {
        let scope = Scope {
            input: &self.input,
            steps: &NoSteps,
            signal: None,
            event: None,
            failure: None,
            item: None,
            execution: ExecutionScope { id: "e", run: 1, start_time: Timestamp::from_micros(0) },
            schedule: None,
            meter: None,
        };
        self.definition.result.as_ref().expect("it has a result").evaluate(&scope).expect("the input is right")
    }

    pub(crate) fn schema(&self) {
        let schema = self.definition.input.as_ref().expect("it has a schema");
        schema.validate(&self.input).expect("the input is right");
    }

    fn start(&self) -> Start {
        Start {
            id: ExecutionId::parse("parts").expect("a right id"),
            uid: Uid(Uuid::from_u128(1)),
            input: self.input.clone(),
            labels: BTreeMap::new(),
            request: None,
            trace_parent: "".into(),
            delay: None,
            signal: None,
            results: Vec::new(),
            birth: None,
        }
    }
}

struct NoSteps;

impl StepLookup for NoSteps {
    fn step(&self, _: StepIndex) -> StepView<'_> {
        StepView { output: None, error: None, state: "WAITING" }
    }
}

fn claimant() -> Claimant {
    Claimant {
        session_id: SessionId(Uuid::from_u128(2)),
        worker_id: "worker".into(),
        message_bytes_max: 4 << 20,
        session_timeout: Duration::from_secs(30),
    }
}

fn source() -> String {
    let mut text = "name: parts\nversion: 1.0.0\n\
        input: {type: object, required: [note, items], properties: {note: {type: string}, items: {type: array, items: \
        {type: object, required: [sku, cents], properties: {sku: {type: string}, cents: {type: integer, minimum: 0}}}}}}\n\
        tasks: {parts.echo@1: {}}\nsteps:\n"
        .to_owned();
    let mut input = "input.note".to_owned();
    for step in 0..STEPS {
        writeln!(text, "  - {{id: s{step}, task: parts.echo@1, timeout: 1m, input: \"${{ {input} }}\"}}")
            .expect("a string takes everything");
        input = format!("steps.s{step}.output");
    }
    text + "result: ${ input.items.filter(i, i.cents > 50).map(i, i.cents).sum() }\n"
}

fn input() -> String {
    let items: Vec<_> = (0..10).map(|item| format!("{{\"sku\":\"a-{item}\",\"cents\":{}}}", item * 17)).collect();
    format!("{{\"note\":\"{}\",\"items\":[{}]}}", "n".repeat(248), items.join(","))
}

/// Executions in a new database, a step of each of which is one commit.
pub(crate) struct Commits {
    runtime: tokio::runtime::Runtime,
    store: SqliteStore,
    keys: Vec<ExecutionKey>,
    next_number: Cell<u64>,
    _directory: tempfile::TempDir,
}

impl Commits {
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("orbit.db");
        let open = SqliteStore::open(&file, sqlite::Options::default());
        let store = runtime.block_on(open).expect("a new database");
        let starts = (0..APPENDS).map(|number| append(Target::New(Box::new(execution(number))), 1)).collect();
        let written = runtime.block_on(store.commit(starts)).expect("the disk works");
        let keys = written.into_iter().map(key).collect();
        Self { runtime, store, keys, next_number: Cell::new(2), _directory: directory }
    }

    pub(crate) fn commit(&self) {
        let number = self.next_number.replace(self.next_number.get() + 1);
        let batch = self.keys.iter().map(|key| append(Target::Existing(*key), number)).collect();
        let written = self.runtime.block_on(self.store.commit(batch)).expect("the disk works");
        assert_eq!(written.into_iter().map(key).collect::<Vec<_>>(), self.keys);
    }
}

fn key(outcome: Committed) -> ExecutionKey {
    match outcome {
        Committed::Written(key) => key,
        other => panic!("{other:?}"),
    }
}

fn execution(number: usize) -> NewExecution {
    NewExecution {
        uid: Uid(Uuid::from_u128(u128::try_from(number + 1).expect("a number fits"))),
        id: format!("parts-{number}").into(),
        workflow: "parts".into(),
        version: "1.0.0".into(),
        definition_hash: [1; 32],
        input_digest: [2; 16],
        request: None,
        start_time: Timestamp::from_micros(1_000_000),
        state: ExecutionState::Running,
        close_time: None,
        labels: BTreeMap::new(),
        schedule: None,
    }
}

fn append(target: Target, number: u64) -> Append {
    Append {
        target,
        run: 1,
        first_number: number,
        last_number: number,
        batch_id: Uuid::from_u128(u128::from(number)),
        events: Bytes::from(vec![7; EVENT_BYTES]),
        payloads: Vec::new(),
        ready_added: Vec::new(),
        ready_removed: Vec::new(),
        state: None,
        wake: WakeChange::Keep,
        snapshot: None,
        begins_run: None,
        deletion: None,
    }
}
