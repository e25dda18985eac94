//! What an execution is, folded from its events.
//!
//! - [`State::evolve`] evaluates nothing and never fails on an event that [`decide`](super::decide) made; the same
//!   events give the same state, which a stored [`snapshot`](State::to_bytes) gives back.
//! - Whatever is due is found without a scan: timers, waiting units, deliveries that are out and steps that may begin
//!   are indexes, each a function of the units alone ([`State::change`] keeps them).
//! - What is due at once ([`State::work_due_now`]) is a function of the state too, so a decision that stopped at its
//!   limit, or a server that died, loses none of it.

mod course;
mod effects;
mod event;
mod evolve;
mod fan_out;
mod index;
mod ready;
mod reopen;
mod requests;
mod run;
mod signals;
mod snapshot;
mod timer;
mod unit;
mod units;
mod view;
mod waits;
mod work;

pub(in crate::domain) use fan_out::{Group, NotItems, places};
pub use ready::WaitingUnit;
pub(in crate::domain) use requests::Known;
pub(in crate::domain) use signals::Signals;
pub(in crate::domain) use timer::{Due, Timer};
pub(in crate::domain) use unit::{ChildWait, RELEASE_HASH, Report, Status, UnitState, attempts_of, await_of, task_of};
pub(in crate::domain) use units::UnitKey;
pub use view::{FanOutStatus, Phase, StepState, StepStatus};
pub(in crate::domain) use work::Work;

use super::definition::{Definition, Step, StepIndex, Winding};
use super::{
    Cause, Created, DeliveryRef, ExecutionId, Failure, Parent, Payload, RequestKey, SessionId, Timestamp, Uid, Unit,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// An execution, folded from its events.
#[derive(Clone, Debug)]
pub struct State {
    definition: Arc<Definition>,
    created: Box<Created>,
    start_time: Timestamp,
    last_number: u64,
    last_time: Timestamp,
    phase: Phase,
    /// Whether its deletion has begun.
    deleting: bool,
    wind_down: Option<WindDown>,
    close_time: Option<Timestamp>,
    output: Option<Payload>,
    terminate_reason: Option<Arc<str>>,
    /// Why it ended FAILED, where that is not why it wound down.
    end_failure: Option<Failure>,
    course: course::Course,
    units: units::Units,
    /// What the handlers of `on_event` work on.
    handlers: BTreeMap<StepIndex, event::Handler>,
    signals: Signals,
    requests: requests::Requests,
    /// Signals of other executions' steps that came, by what names the step.
    senders: requests::Requests,
    effects: effects::Effects,
    indexes: index::Indexes,
}

/// Why and since when an execution winds down, or wound down.
#[derive(Clone, Debug, PartialEq)]
struct WindDown {
    cause: Cause,
    /// Number of the event that began it.
    number: u64,
    /// When it began.
    time: Timestamp,
    /// When deliveries that are out are given up.
    give_up_time: Timestamp,
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.definition.hash == other.definition.hash
            && self.created == other.created
            && (self.start_time, self.last_number, self.last_time)
                == (other.start_time, other.last_number, other.last_time)
            && (self.phase, self.close_time, self.deleting) == (other.phase, other.close_time, other.deleting)
            && self.wind_down == other.wind_down
            && self.output == other.output
            && (&self.terminate_reason, &self.end_failure) == (&other.terminate_reason, &other.end_failure)
            && self.course == other.course
            && (&self.units, &self.handlers) == (&other.units, &other.handlers)
            && self.signals == other.signals
            && self.requests == other.requests
            && (&self.senders, &self.effects) == (&other.senders, &other.effects)
            && self.indexes == other.indexes
    }
}

impl State {
    /// The public id.
    #[must_use]
    pub fn id(&self) -> &ExecutionId {
        &self.created.id
    }

    /// The uid.
    #[must_use]
    pub fn uid(&self) -> Uid {
        self.created.uid
    }

    /// Number of the run, from 1.
    #[must_use]
    pub fn run(&self) -> u32 {
        self.created.run
    }

    /// Its definition, which it keeps for ever.
    #[must_use]
    pub fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    /// Number of the newest event.
    #[must_use]
    pub fn last_number(&self) -> u64 {
        self.last_number
    }

    /// Time of the newest event; no later event has an earlier one.
    #[must_use]
    pub fn last_time(&self) -> Timestamp {
        self.last_time
    }

    /// Where it is in its life.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether nothing can happen any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.phase.is_closed()
    }

    /// Whether its deletion has begun: then it is as good as gone.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.deleting
    }

    /// Why it winds down or wound down; nothing while it runs, after a success and after a terminate that came first.
    #[must_use]
    pub fn cause(&self) -> Option<&Cause> {
        self.wind_down.as_ref().map(|wind_down| &wind_down.cause)
    }

    /// Input with defaults filled in.
    #[must_use]
    pub fn input(&self) -> &Payload {
        &self.created.input
    }

    /// Output, once it succeeded.
    #[must_use]
    pub fn output(&self) -> Option<&Payload> {
        self.output.as_ref()
    }

    /// Why it failed, from when it winds down for a failure.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        if self.end_failure.is_some() {
            return self.end_failure.as_ref();
        }
        match self.cause()? {
            Cause::Failure(failure) => Some(failure),
            Cause::Cancel(_) | Cause::Timeout => None,
        }
    }

    /// Reason that the pause, while it is paused, the terminate, or else the cancel gave.
    #[must_use]
    pub fn reason(&self) -> Option<&Arc<str>> {
        if let Some(pause) = &self.course.pause {
            return Some(&pause.reason);
        }
        if self.terminate_reason.is_some() {
            return self.terminate_reason.as_ref();
        }
        match self.cause()? {
            Cause::Cancel(reason) => Some(reason),
            Cause::Failure(_) | Cause::Timeout => None,
        }
    }

    /// Labels of the definition and the start call.
    #[must_use]
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.created.labels
    }

    /// When it was started.
    #[must_use]
    pub fn start_time(&self) -> Timestamp {
        self.start_time
    }

    /// When it was closed.
    #[must_use]
    pub fn close_time(&self) -> Option<Timestamp> {
        self.close_time
    }

    /// When its own timeout passes.
    #[must_use]
    pub fn expire_time(&self) -> Option<Timestamp> {
        self.created.expire_time
    }

    /// W3C `traceparent` of the start call; may be empty.
    #[must_use]
    pub fn trace_parent(&self) -> &Arc<str> {
        &self.created.trace_parent
    }

    /// The unit that asked for it; nothing if a caller started it.
    #[must_use]
    pub fn parent(&self) -> Option<&Parent> {
        self.created.parent.as_ref()
    }

    /// Signals that have come and that no step has taken.
    #[must_use]
    pub fn buffered_signals(&self) -> usize {
        self.signals.len()
    }

    /// The next instant at which something becomes due; nothing if only a report, a signal or a call can move it.
    ///
    /// What is due at once counts as due at the newest event's time. An event may move it either way; it is never
    /// later than what is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        if self.work_due_now() {
            return Some(self.last_time);
        }
        self.indexes.timers.first().map(|(time, _, _)| time)
    }

    /// Whether a decision left something undone because it had reached its limit; the next [`Wake`] goes on.
    ///
    /// [`Wake`]: super::Command::Wake
    #[must_use]
    pub fn work_due_now(&self) -> bool {
        self.next_work().is_some()
    }

    /// Whether a worker has any of its tasks.
    #[must_use]
    pub fn deliveries_out(&self) -> bool {
        !self.indexes.out.is_empty()
    }

    /// Deliveries whose first check is due at an instant.
    #[must_use]
    pub fn checks_due(&self, now: Timestamp) -> Vec<DeliveryRef> {
        let checks = self.indexes.timers.until(now).filter(|(_, timer, _)| *timer == Timer::Check);
        checks.filter_map(|(_, _, key)| self.delivery_out(key?)).collect()
    }

    /// The units that wait for a worker, in the definition's order; none while it winds down or is closed.
    pub fn waiting(&self) -> impl Iterator<Item = WaitingUnit> + '_ {
        self.indexes.ready.waiting().map(|key| self.waiting_unit(key))
    }

    /// How the waiting units changed since this was last called: those that were added, those that were removed.
    ///
    /// What came and went in between is in neither. A unit whose attempt changed in between is in both: it is removed,
    /// then added. Folding history counts as change too: whoever loads a state takes and drops the changes once.
    pub fn take_ready_changes(&mut self) -> (Vec<WaitingUnit>, Vec<Unit>) {
        let (added, removed) = self.indexes.ready.take_changes();
        let added = added.into_iter().map(|key| self.waiting_unit(key)).collect();
        let removed = removed.into_iter().map(|key| self.name(key)).collect();
        (added, removed)
    }

    /// Whether a delivery is the newest of its unit and still out; only such a one may fail, beat or be given back.
    #[must_use]
    pub fn is_current(&self, delivery: &DeliveryRef) -> bool {
        self.find(&delivery.unit).is_some_and(|key| self.unit(key).is_current(delivery.delivery))
    }

    /// Whether a worker should go on with a delivery: it is current, and its unit is not to stop.
    #[must_use]
    pub fn delivery_wanted(&self, delivery: &DeliveryRef) -> bool {
        self.find(&delivery.unit).is_some_and(|key| self.is_live(key.step)) && self.is_current(delivery)
    }

    /// When a delivery that is out was handed out.
    #[must_use]
    pub fn dispatch_time(&self, delivery: &DeliveryRef) -> Option<Timestamp> {
        let (out, number) = self.unit(self.find(&delivery.unit)?).out()?;
        (number == delivery.delivery).then_some(out.dispatch_time)
    }

    /// The session that a delivery which is out was handed to, and after how long it is looked for for the first time.
    #[must_use]
    pub fn first_check(&self, delivery: &DeliveryRef) -> Option<(SessionId, Duration)> {
        let unit = self.unit(self.find(&delivery.unit).filter(|_| self.is_current(delivery))?);
        let (out, _) = unit.out()?;
        Some((unit.task.as_ref()?.session_id?, out.check_time.since(out.dispatch_time)))
    }

    /// Longest time between two beats of a delivery that is out; nothing if its step names none.
    #[must_use]
    pub fn heartbeat_timeout(&self, delivery: &DeliveryRef) -> Option<Duration> {
        let key = self.find(&delivery.unit).filter(|_| self.is_current(delivery))?;
        task_of(self.step(key.step))?.heartbeat_timeout
    }

    /// Estimate of the memory that it holds, without its definition, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        /// An entry of a map, with its share of the tree.
        const ENTRY: usize = 96;
        let labels: usize = self.labels().iter().map(|(key, value)| ENTRY + key.len() + value.len()).sum();
        let entries = self.indexes.timers.len()
            + self.indexes.out.len()
            + self.indexes.effects.len()
            + self.requests.len()
            + self.senders.len()
            + 2 * self.signals.len();
        size_of::<Self>()
            + size_of::<Created>()
            + labels
            + self.created.input.len()
            + self.output.as_ref().map_or(0, Payload::len)
            + self.units.steps.len() * size_of::<UnitState>()
            + self.units.items.len() * (size_of::<UnitState>() + ENTRY)
            + self.indexes.text_bytes
            + self.signals.payload_bytes()
            + entries * ENTRY
    }

    // What decisions read.

    pub(in crate::domain) fn step(&self, index: StepIndex) -> &Step {
        self.definition.step(index)
    }

    /// A unit that has begun, or a step's own.
    ///
    /// # Panics
    /// If it is an item that has not begun.
    pub(in crate::domain) fn unit(&self, key: UnitKey) -> &UnitState {
        self.units.get(key).expect("an item is asked for only once it has begun")
    }

    /// The unit of this name; nothing for an item that has not begun.
    pub(in crate::domain) fn find(&self, unit: &str) -> Option<UnitKey> {
        UnitKey::parse(&self.definition, unit).filter(|key| self.units.get(*key).is_some())
    }

    /// The name of a unit.
    pub(in crate::domain) fn name(&self, key: UnitKey) -> Unit {
        key.name(&self.definition)
    }

    /// What a fan-out that has begun goes through.
    pub(in crate::domain) fn group(&self, step: StepIndex) -> Option<&Group> {
        self.units.groups.get(&step)
    }

    /// Whether units of a step may go on: those that the execution runs, while it runs; undoing and handlers while it
    /// winds down.
    pub(in crate::domain) fn is_live(&self, step: StepIndex) -> bool {
        self.phase.is_live(self.step(step).role.lifetime())
    }

    /// Why it winds down or wound down.
    pub(in crate::domain) fn winding(&self) -> Option<Winding> {
        self.wind_down.as_ref().map(|wind_down| match wind_down.cause {
            Cause::Failure(_) => Winding::Failure,
            Cause::Cancel(_) => Winding::Cancel,
            Cause::Timeout => Winding::Timeout,
        })
    }

    pub(in crate::domain) fn signals(&self) -> &Signals {
        &self.signals
    }

    pub(in crate::domain) fn find_request(&self, request: &RequestKey) -> Known {
        self.requests.find(request)
    }

    /// The event of a signal that another execution's step gave, if it came before.
    pub(in crate::domain) fn find_sender(&self, sender: [u8; 16]) -> Option<u64> {
        self.senders.number_of(&sender)
    }

    /// How many parents stand above it.
    pub(in crate::domain) fn depth(&self) -> u32 {
        self.created.depth
    }

    /// The generation of a unit, from 1; an item that has not begun has its step's.
    pub(in crate::domain) fn generation_of(&self, key: UnitKey) -> u32 {
        self.units.get(key).unwrap_or_else(|| self.unit(UnitKey::of(key.step))).generation
    }

    /// Number of the event that began the wind-down, and why.
    pub(in crate::domain) fn wind_down(&self) -> Option<(u64, &Cause)> {
        self.wind_down.as_ref().map(|wind_down| (wind_down.number, &wind_down.cause))
    }

    /// Awaits for a signal of this name, the longest wait first.
    pub(in crate::domain) fn waits_for(&self, signal: &str) -> impl Iterator<Item = UnitKey> + '_ {
        self.indexes.signal_waits.get(signal).into_iter().flatten().map(|(_, key)| *key)
    }

    /// The delivery of a unit that is out.
    pub(in crate::domain) fn delivery_out(&self, key: UnitKey) -> Option<DeliveryRef> {
        let (_, delivery) = self.units.get(key)?.out()?;
        Some(DeliveryRef { unit: self.name(key), delivery })
    }

    /// The timers that are due, earliest first.
    pub(in crate::domain) fn due(&self, now: Timestamp) -> impl Iterator<Item = Due> + '_ {
        self.indexes.timers.until(now)
    }

    fn waiting_unit(&self, key: UnitKey) -> WaitingUnit {
        let task = task_of(self.step(key.step)).expect("only tasks wait for a worker");
        let since = self.unit(key).task.as_ref().expect("a task that waits has an attempt").attempt_time;
        WaitingUnit {
            unit: self.name(key),
            queue: task.queue.clone(),
            contract: task.contract.clone(),
            language: task.language.clone(),
            priority: task.priority,
            since,
        }
    }
}
