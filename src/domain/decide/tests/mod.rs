//! Given events, when a command, then events or a refusal.
//!
//! [`check`] is for one decision; [`Run`] tells a longer story. Both hold every decision to the invariants of
//! [`Run::decide_at`]. Times are seconds from the start.

mod begin;
mod cancel;
mod child;
mod compensation;
mod course;
mod event;
mod explain;
mod fan_out;
mod flow;
mod handler;
mod limit;
mod property;
mod reopen;
mod request;
mod retention;
mod run;
mod send;
mod signal;
mod size;
mod story;
mod task;
mod timer;
mod undo_table;

use super::{Birth, Context, EVENTS_MAX, Start, StartSignal, begin_run, decide, start};
use crate::domain::definition::{Definition, Pin};
use crate::domain::*;
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};
use uuid::Uuid;

/// Hash of the definition of every child.
pub(super) const CHILD_HASH: [u8; 32] = [7; 32];

/// When every execution here starts.
const START: i64 = 1_000_000_000_000_000;

/// So many seconds after the start.
pub(super) fn at(seconds: f64) -> Timestamp {
    #[expect(clippy::cast_possible_truncation, reason = "tests use small numbers")]
    Timestamp::from_micros(START + (seconds * 1e6).round() as i64)
}

pub(super) fn span(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// A definition from the lines after its name and version.
pub(super) fn definition(lines: &str) -> Arc<Definition> {
    let text = format!("name: test\nversion: 1.0.0\n{lines}");
    let (definition, _) =
        Definition::parse("test.yaml", &text).unwrap_or_else(|faults| panic!("{faults:?}\nin\n{text}"));
    let version = definition.version.clone();
    Arc::new(definition.with_pins(|_| Some(Pin { version: version.clone(), hash: CHILD_HASH })))
}

pub(super) fn context(seconds: f64, settings: Settings) -> Context {
    Context { now: at(seconds), settings }
}

fn arc(text: &str) -> Arc<str> {
    Arc::from(text)
}

pub(super) fn json(text: &str) -> Payload {
    Payload::from_json(text)
}

pub(super) fn a_start(input: &str) -> Start {
    Start {
        id: ExecutionId::parse("e").unwrap(),
        uid: Uid(Uuid::from_u128(7)),
        input: json(input),
        labels: BTreeMap::new(),
        request: None,
        trace_parent: arc(""),
        delay: None,
        signal: None,
        results: Vec::new(),
        birth: None,
    }
}

pub(super) fn request(key: u8, content: u8) -> RequestKey {
    RequestKey { key: [key; 16], content: [content; 16] }
}

// Commands.

pub(super) fn reference(unit: &str, delivery: u32) -> DeliveryRef {
    DeliveryRef { unit: arc(unit), delivery }
}

/// Messages that take any task.
pub(super) const WIDE: usize = 4 * 1024 * 1024;

pub(super) fn dispatch(unit: &str) -> Command {
    dispatch_to(unit, WIDE)
}

pub(super) fn dispatch_to(unit: &str, message_bytes_max: usize) -> Command {
    let claimant = Claimant {
        session_id: SessionId(Uuid::from_u128(1)),
        worker_id: arc("w"),
        message_bytes_max,
        session_timeout: Duration::from_secs(30),
    };
    Command::Dispatch { unit: arc(unit), claimant }
}

pub(super) fn complete(unit: &str, delivery: u32, output: &str) -> Command {
    Command::Complete { delivery: reference(unit, delivery), output: json(output) }
}

pub(super) fn failure(unit: &str, code: &str) -> Failure {
    Failure { code: arc(code), message: arc("it broke"), details: None, unit: arc(unit) }
}

pub(super) fn fail(unit: &str, delivery: u32, code: &str) -> Command {
    Command::Fail {
        delivery: reference(unit, delivery),
        failure: failure("", code),
        retryable: true,
        retry_after: None,
        progress: None,
    }
}

pub(super) fn fail_for_good(unit: &str, delivery: u32, code: &str) -> Command {
    Command::Fail {
        delivery: reference(unit, delivery),
        failure: failure("", code),
        retryable: false,
        retry_after: None,
        progress: None,
    }
}

pub(super) fn hold(unit: &str, delivery: u32) -> Command {
    Command::Hold { delivery: reference(unit, delivery) }
}

pub(super) fn end(unit: &str, delivery: u32, reason: EndReason) -> Command {
    Command::EndDelivery { delivery: reference(unit, delivery), reason, progress: None }
}

pub(super) fn miss_beat(unit: &str, delivery: u32) -> Command {
    Command::MissBeat { delivery: reference(unit, delivery), progress: None }
}

pub(super) fn signal(name: &str, payload: &str) -> Command {
    Command::Signal { name: arc(name), payload: json(payload), expire_time: None, request: None }
}

pub(super) fn signal_until(name: &str, payload: &str, seconds: f64) -> Command {
    Command::Signal { name: arc(name), payload: json(payload), expire_time: Some(at(seconds)), request: None }
}

pub(super) fn cancel() -> Command {
    Command::Cancel { reason: arc("enough"), request: None }
}

pub(super) fn terminate() -> Command {
    Command::Terminate { reason: arc("stop"), request: None }
}

pub(super) fn wake() -> Command {
    Command::Wake { held: Vec::new(), early: Vec::new() }
}

pub(super) fn wake_holding(held: &[(&str, u32)]) -> Command {
    Command::Wake { held: held.iter().map(|(unit, delivery)| reference(unit, *delivery)).collect(), early: Vec::new() }
}

// Outcomes.

pub(super) const ACCEPTED: Outcome = Outcome::Report(ReportOutcome::Accepted);
pub(super) const DUPLICATE: Outcome = Outcome::Report(ReportOutcome::Duplicate);

pub(super) fn refused(reason: RefusalReason) -> Outcome {
    Outcome::Report(ReportOutcome::Refused(reason))
}

// Events, as short texts: `a scheduled 1`. What a case is not about (hashes, times that follow from others) is left out.

/// One line for an event.
pub(super) fn line(kind: &EventKind) -> String {
    let seconds = |time: &Timestamp| {
        let micros = time.as_micros() - START;
        if micros % 1_000_000 == 0 { format!("{}", micros / 1_000_000) } else { format!("{:.3}", micros as f64 / 1e6) }
    };
    let until =
        |time: &Option<Timestamp>| time.as_ref().map_or(String::new(), |time| format!(" until {}", seconds(time)));
    let saved =
        |progress: &Option<Payload>| progress.as_ref().map_or(String::new(), |text| format!(" at {}", text.as_str()));
    match kind {
        EventKind::ExecutionCreated(created) => format!("created {}", created.input.as_str()),
        EventKind::StepScheduled { unit, attempt, input } => {
            let input = input.as_ref().map_or(String::new(), |input| format!(" {}", input.as_str()));
            format!("{unit} scheduled {attempt}{input}")
        }
        EventKind::StepDispatched { unit, attempt, delivery, expire_time, .. } => {
            format!("{unit} dispatched {attempt}/{delivery}{}", until(expire_time))
        }
        EventKind::TaskHeld { unit, delivery } => format!("{unit} held {delivery}"),
        EventKind::DeliveryEnded { unit, delivery, reason, progress } => {
            format!("{unit} ended {delivery} {reason:?}{}", saved(progress))
        }
        EventKind::AttemptFailed { unit, attempt, delivery, failure, retry_time, progress, .. } => {
            let retry = retry_time.as_ref().map_or("no retry".into(), |time| format!("retry {}", seconds(time)));
            format!("{unit} attempt {attempt}/{delivery} failed {}, {retry}{}", failure.code, saved(progress))
        }
        EventKind::StepSucceeded { unit, output, delivery, signal_number, .. } => {
            let delivery = if *delivery == 0 { String::new() } else { format!(" by {delivery}") };
            let signal = signal_number.map_or(String::new(), |number| format!(" from {number}"));
            format!("{unit} succeeded {}{delivery}{signal}", output.as_str())
        }
        EventKind::StepFailed { unit, failure } => format!("{unit} failed {}", failure.code),
        EventKind::StepSkipped { unit, .. } => format!("{unit} skipped"),
        EventKind::StepCancelled { unit } => format!("{unit} cancelled"),
        EventKind::FanOutStarted { unit, items } => format!("{unit} goes through {}", items.as_str()),
        EventKind::FanOutEnded { unit } => format!("{unit} joined"),
        EventKind::SleepStarted { unit, wake_time } => format!("{unit} sleeps until {}", seconds(wake_time)),
        EventKind::AwaitStarted { unit, expire_time } => format!("{unit} awaits{}", until(expire_time)),
        EventKind::SignalReceived { name, payload, .. } => format!("signal {name} {}", payload.as_str()),
        EventKind::SignalExpired { signal_number } => format!("signal {signal_number} expired"),
        EventKind::LateSuccess { unit, delivery, output } => format!("{unit} late {delivery} {}", output.as_str()),
        EventKind::WindDownStarted { cause, give_up_time } => {
            let cause = match cause {
                Cause::Failure(failure) => format!("failure {}", failure.code),
                Cause::Cancel(_) => "cancel".into(),
                Cause::Timeout => "timeout".into(),
            };
            format!("winding down for {cause} until {}", seconds(give_up_time))
        }
        EventKind::ExecutionSucceeded { output } => format!("SUCCEEDED {}", output.as_str()),
        EventKind::ExecutionFailed { failure } => format!("FAILED {}", failure.code),
        EventKind::ExecutionCancelled => "CANCELLED".into(),
        EventKind::ExecutionTimedOut => "TIMED_OUT".into(),
        EventKind::ExecutionTerminated { .. } => "TERMINATED".into(),
        EventKind::ExecutionPaused { .. } => "PAUSED".into(),
        EventKind::ExecutionResumed => "RESUMED".into(),
        EventKind::ContinuedAsNew { unit, input } => format!("{unit} ends the run, next {}", input.as_str()),
        EventKind::RunStarted(start) => format!("run {} {}", start.created.run, start.created.input.as_str()),
        EventKind::ExecutionReopened { steps, generation, expire_time } => {
            let step = |step: &ReopenedStep| match &*step.items {
                [] => step.unit.to_string(),
                items => format!("{}{items:?}", step.unit),
            };
            let steps: Vec<String> = steps.iter().map(step).collect();
            format!("REOPENED {generation}: {}{}", steps.join(" "), until(expire_time))
        }
        EventKind::EventTaken { unit, signal_number } => format!("{unit} takes {signal_number}"),
        EventKind::Woke => "woke".into(),
        EventKind::ChildRequested { unit, attempt, input, expire_time, child_id: _ } => {
            let input = input.as_ref().map_or(String::new(), |input| format!(" {}", input.as_str()));
            format!("{unit} asks for child {attempt}{input}{}", until(expire_time))
        }
        EventKind::ChildStarted { unit, attempt, .. } => format!("{unit} child {attempt} started"),
        EventKind::ChildCancelSent { unit, attempt, .. } => format!("{unit} child {attempt} has the cancel"),
        EventKind::DeletionBegan => "deletion began".into(),
        EventKind::ParentTold => "parent told".into(),
        EventKind::SignalRequested { unit, recipient, name, payload } => {
            format!("{unit} sends {name} {} to {}", payload.as_str(), recipient.id)
        }
    }
}

pub(super) fn lines(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| line(&event.kind)).collect()
}

/// One decision: what was asked when, and what must come of it.
pub(super) struct When {
    command: Command,
    seconds: f64,
}

pub(super) fn when(seconds: f64, command: Command) -> When {
    When { command, seconds }
}

/// What a decision must give: the answer and the events, or the refusal.
pub(super) type Then = Result<(Outcome, Vec<String>), Rejection>;

pub(super) fn then(outcome: Outcome, events: &[&str]) -> Then {
    Ok((outcome, events.iter().map(ToString::to_string).collect()))
}

pub(super) fn then_rejected(rejection: Rejection) -> Then {
    Err(rejection)
}

/// Decides the given commands, then the one in question, and compares. The given ones are (second, command) pairs.
#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "a case reads as one sentence")]
pub(super) fn check(lines: &str, given: Vec<(f64, Command)>, when: When, then: Then) {
    let mut run = Run::start(lines, "{}");
    for (seconds, command) in given {
        let text = format!("{command:?}");
        run.decide_at(seconds, command).unwrap_or_else(|rejection| panic!("given {text}: {rejection}"));
    }
    let from = run.log.len();
    let result = run.decide_at(when.seconds, when.command);
    let result = result.map(|outcome| {
        // A dispatch's answer is looked at by the cases that are about it.
        let outcome = if let Outcome::Dispatched(_) = outcome { Outcome::Done } else { outcome };
        (outcome, self::lines(&run.log[from..]))
    });
    assert_eq!(result, then);
}

/// An execution that lives through a story, with its history.
pub(super) struct Run {
    pub(super) state: State,
    pub(super) log: Vec<Event>,
    pub(super) settings: Settings,
    definition: Arc<Definition>,
    /// Waiting units as the journal of changes told them.
    told: BTreeMap<Unit, WaitingUnit>,
    /// Effects that whoever drives them was told of.
    driven: HashSet<EffectId>,
    /// Those among them that nobody has taken from here.
    pub(super) fresh: Vec<Effect>,
    /// The state as its history says, by way of a snapshot after each decision.
    replayed: State,
    /// How many events of the history have been held to what is always true.
    held: usize,
}

impl Run {
    pub(super) fn start(lines: &str, input: &str) -> Self {
        Self::start_of(definition(lines), input, Settings::default())
    }

    pub(super) fn start_of(definition: Arc<Definition>, input: &str, settings: Settings) -> Self {
        Self::make(definition, a_start(input), settings)
    }

    /// An execution with all that a start may ask for.
    pub(super) fn start_with(lines: &str, start: Start) -> Self {
        Self::make(definition(lines), start, Settings::default())
    }

    fn make(definition: Arc<Definition>, start: Start, settings: Settings) -> Self {
        Self::try_start(definition, start, 0.0, settings).expect("the input fits")
    }

    pub(super) fn try_start(
        definition: Arc<Definition>,
        start: Start,
        seconds: f64,
        settings: Settings,
    ) -> Result<Self, Rejection> {
        let (state, log) = super::start(definition.clone(), start, &context(seconds, settings))?;
        let replayed = State::begin(definition.clone(), &log[0]);
        let (told, driven, fresh) = (BTreeMap::new(), HashSet::new(), Vec::new());
        let mut run = Self { state, log, settings, definition, told, driven, fresh, replayed, held: 1 };
        run.hold_invariants();
        Ok(run)
    }

    /// Decides a command and holds the decision to what is always true.
    pub(super) fn decide_at(&mut self, seconds: f64, command: Command) -> Result<Outcome, Rejection> {
        if self.state.is_between_runs() {
            let events = begin_run(&mut self.state, &context(seconds, self.settings));
            self.log.extend(events);
            self.hold_invariants();
        }
        let before = self.state.clone();
        match decide(&mut self.state, command, &context(seconds, self.settings)) {
            Ok((events, outcome)) => {
                assert!(events.len() <= EVENTS_MAX, "a decision has a limit");
                self.log.extend(events);
                self.hold_invariants();
                Ok(outcome)
            }
            Err(rejection) => {
                assert!(self.state == before, "a rejection changed something");
                Err(rejection)
            }
        }
    }

    /// Hands a unit to a worker whose messages take so many bytes; gives what it is told.
    #[track_caller]
    pub(super) fn dispatch_at(&mut self, seconds: f64, unit: &str, message_bytes_max: usize) -> Delivery {
        let outcome = self.decide_at(seconds, dispatch_to(unit, message_bytes_max));
        let Ok(Outcome::Dispatched(delivery)) = outcome else { panic!("{unit} was not handed out: {outcome:?}") };
        *delivery
    }

    /// Decides a command that must not be rejected; gives its events as lines.
    #[track_caller]
    pub(super) fn at(&mut self, seconds: f64, command: Command) -> Vec<String> {
        let from = self.log.len();
        self.decide_at(seconds, command).expect("the command is allowed");
        lines(&self.log[from..])
    }

    pub(super) fn lines(&self) -> Vec<String> {
        lines(&self.log)
    }

    /// Forgets what only memory knows, as a server does that dies: the state comes from a snapshot.
    pub(super) fn crash(&mut self) {
        self.state = State::from_bytes(self.definition.clone(), &self.state.to_bytes()).expect("a snapshot is whole");
        self.state.take_ready_changes();
        self.state.take_fresh_effects();
        self.fresh.clear();
    }

    /// The whole history gives the state, however it was made.
    pub(super) fn hold_replay(&self) {
        let mut replayed = State::begin(self.definition.clone(), &self.log[0]);
        self.log[1..].iter().for_each(|event| replayed.evolve(event));
        assert!(replayed == self.state, "a replay gives the same state\n{replayed:?}\n{:?}", self.state);
    }

    /// What must be true after every decision.
    fn hold_invariants(&mut self) {
        // Numbers have no gaps, time never goes back.
        assert_eq!(self.log.last().map(|event| event.number), Some(self.state.last_number()));
        let pairs = self.log[self.held - 1..].windows(2);
        assert!(pairs.into_iter().all(|pair| pair[0].number + 1 == pair[1].number && pair[0].time <= pair[1].time));
        // The state is what its history says, and what a snapshot of it says, which goes on as the state does.
        for event in &self.log[self.held..] {
            self.replayed.evolve(event);
            if let EventKind::RunStarted(_) = event.kind {
                let of_run = State::begin(self.definition.clone(), event);
                assert!(of_run == self.replayed, "a run needs nothing that was before it\n{of_run:?}");
            }
        }
        self.held = self.log.len();
        assert!(self.replayed == self.state, "a replay gives the same state\n{:?}\n{:?}", self.replayed, self.state);
        let restored = State::from_bytes(self.definition.clone(), &self.state.to_bytes()).expect("a snapshot is whole");
        assert!(restored == self.state, "a snapshot gives the same state\n{restored:?}\n{:?}", self.state);
        self.replayed = restored;
        // The journal of changes leads from the waiting units of before to those of now.
        let (added, removed) = self.state.take_ready_changes();
        for unit in removed {
            assert!(self.told.remove(&unit).is_some(), "only what waited is removed: {unit}");
        }
        for waiting in added {
            assert!(self.told.insert(waiting.unit.clone(), waiting).is_none(), "only what did not wait is added");
        }
        let now: BTreeMap<_, _> = self.state.waiting().map(|waiting| (waiting.unit.clone(), waiting)).collect();
        assert_eq!(self.told, now, "the journal is complete");
        assert!(now.is_empty() || !self.state.is_held(), "nothing waits for a worker while it is held");
        let lives = |unit: &Unit| self.state.find(unit).is_some_and(|key| self.state.is_live(key.step));
        assert!(now.keys().all(lives), "only what may go on waits for a worker");
        self.hold_explained();
        // Every effect that is open is known to whoever drives them, and keeps the execution due.
        let fresh = self.state.take_fresh_effects();
        self.driven.extend(fresh.iter().map(Effect::id));
        self.fresh.extend(fresh);
        assert!(self.state.pending().all(|effect| self.driven.contains(&effect.id())), "an effect was kept secret");
        assert!(!self.state.has_pending() || self.state.deadline().is_some(), "an open effect is looked at again");
        // Nothing else is due once it is closed, and everything has ended.
        if self.state.is_closed() {
            assert!(self.state.has_pending() || self.state.deadline().is_none());
            assert!(!self.state.deliveries_out());
            assert!(self.state.steps().all(|step| {
                matches!(
                    step.state,
                    StepState::Succeeded | StepState::Failed | StepState::Skipped | StepState::Cancelled
                )
            }));
        } else {
            assert!(self.state.close_time().is_none());
        }
    }

    /// What it waits for is told: something always, and every step that has not ended.
    fn hold_explained(&self) {
        let explanation = self.state.explain(self.state.last_time());
        assert!(!explanation.waits.is_empty(), "there is something that it waits for, or it is closed");
        let is_told =
            |step: &StepStatus<'_>| explanation.waits.iter().any(|wait| wait.unit.as_ref() == Some(step.step));
        let has_room = explanation.more == 0 && !self.state.work_due_now();
        for step in self.state.steps().filter(|_| has_room) {
            match step.state {
                StepState::Pending
                | StepState::Scheduled
                | StepState::Running
                | StepState::BackingOff
                | StepState::Sleeping
                | StepState::Awaiting => assert!(is_told(&step), "what {} waits for: {explanation:?}", step.step),
                StepState::Succeeded | StepState::Failed | StepState::Skipped | StepState::Cancelled => {
                    assert!(!is_told(&step), "{} has ended: {explanation:?}", step.step);
                }
            }
        }
    }
}
