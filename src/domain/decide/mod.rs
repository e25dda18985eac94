//! Decides what comes of a command: one file per family.
//!
//! - Pure: the same state, command and time give the same events, and folding those events gives the same state.
//! - [`decide`] evolves the state as it goes, so that a consequence (a step ends, the next begins) sees its own cause.
//!   A rejection has changed nothing.
//! - Every consequence of a command is in its decision, up to [`EVENTS_MAX`] events, [`BYTES_MAX`] or [`EXPRESSIONS_WORK_MAX`]; the rest stays in
//!   the state as work that is due at once ([`State::work_due_now`]) and is done by the next [`Command::Wake`].
//! - A call whose `request_id` is remembered is answered from its event before any other rule is asked.
//!
//! Where to look: [`mod@start`] begins an execution, `flow` lets steps begin, `fan_out` runs them for each item, `task`
//! judges workers' reports, `timer` does what time makes due, `signal` and `cancel` take callers' calls; `cancel` also
//! winds down and closes, `compensation` undoes in between. `event` gives signals to handlers, `pause` holds an execution,
//! `run` goes from run to run, `reopen` retries a closed one, `rerun` says what another one takes over, `retention` lets go of
//! what is closed.
//! `child` and `send` have to do with other executions.

mod cancel;
mod child;
mod compensation;
mod event;
mod fan_out;
mod flow;
mod pause;
mod reopen;
mod rerun;
mod retention;
mod run;
mod send;
mod signal;
mod start;
mod task;
#[cfg(test)]
mod tests;
mod timer;

pub use rerun::results;
pub use run::{begin_run, checked_input};
pub use start::{Birth, Start, StartSignal, start};

use signal::Giver;

use super::definition::{Meter, Scope, WORK_MAX};
use super::state::{Known, UnitKey};
use super::{
    Command, Created, EndReason, Event, EventKind, Failure, Outcome, Payload, Rejection, RequestKey, Settings, State,
    StepEnd, StepResult, Timestamp,
};

/// Most events of one decision.
pub const EVENTS_MAX: usize = 1_000;

/// Most bytes of one decision's events, by an estimate that counts a payload above [`PAYLOAD_INLINE_MAX`] as a digest.
pub const BYTES_MAX: usize = 1024 * 1024;

/// Payloads above this many bytes are stored apart from their event.
pub const PAYLOAD_INLINE_MAX: usize = 64 * 1024;

/// Most events that one piece of work adds: an attempt fails, its step with it, and the wind-down starts.
const WORK_EVENTS_MAX: usize = 3;

/// Most bytes that one piece of work adds: three times a failure with details and message, and progress.
const WORK_BYTES_MAX: usize = 320 * 1024;

/// Most work of the expressions of one decision, about a tenth of a second, as each of them may take; the last one may
/// exceed it.
const EXPRESSIONS_WORK_MAX: usize = WORK_MAX;

/// What a decision knows of the world.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// The time. Events get it, or the time of the event before them if that is later.
    pub now: Timestamp,
    /// The server's settings.
    pub settings: Settings,
}

/// Decides a command and applies what follows from it to the state.
///
/// Gives the events, already applied, and the answer; there may be an answer without events. A run that has ended is
/// followed by the next one first ([`begin_run`]).
///
/// # Errors
/// The rules forbid it; the state is as before.
pub fn decide(state: &mut State, command: Command, context: &Context) -> Result<(Vec<Event>, Outcome), Rejection> {
    debug_assert!(!state.is_between_runs(), "the next run begins first");
    let number = state.last_number();
    let mut decision = Decision::new(state, context);
    let result = decision.command(command);
    let events = decision.events;
    debug_assert!(result.is_ok() || state.last_number() == number, "a rejection changes nothing");
    result.map(|outcome| (events, outcome))
}

/// A decision in the making.
struct Decision<'a> {
    state: &'a mut State,
    settings: Settings,
    /// Time of the decision and of all its events.
    now: Timestamp,
    events: Vec<Event>,
    /// Estimated size of the events.
    bytes: usize,
    /// Work of the expressions.
    work: Meter,
}

impl<'a> Decision<'a> {
    fn new(state: &'a mut State, context: &Context) -> Self {
        let now = context.now.max(state.last_time());
        Self { state, settings: context.settings, now, events: Vec::new(), bytes: 0, work: Meter::default() }
    }

    fn command(&mut self, command: Command) -> Result<Outcome, Rejection> {
        if self.state.is_deleting() {
            return self.after_deletion(command);
        }
        let outcome = match command {
            Command::Dispatch { unit, claimant } => self.dispatch(unit, claimant)?,
            Command::Complete { delivery, output } => Outcome::Report(self.complete(&delivery, output)),
            Command::Fail { delivery, failure, retryable, retry_after, progress } => {
                let report = task::FailureReport { failure, retryable, retry_after, progress };
                Outcome::Report(self.fail_attempt(&delivery, report))
            }
            Command::Hold { delivery } => self.hold(&delivery),
            Command::EndDelivery { delivery, reason: EndReason::Released, progress } => {
                Outcome::Report(self.release(&delivery, progress))
            }
            Command::EndDelivery { delivery, reason, progress } => self.end_delivery(&delivery, reason, progress),
            Command::MissBeat { delivery, progress } => self.miss_beat(&delivery, progress),
            Command::Signal { name, payload, expire_time, request } => {
                self.once(request, |decision| decision.signal(&name, payload, expire_time, Giver::Caller(request)))?
            }
            Command::Cancel { reason, request } => self.once(request, |decision| decision.cancel(reason, request))?,
            Command::Terminate { reason, request } => {
                self.once(request, |decision| decision.terminate(reason, request))?
            }
            Command::Pause { reason, request } => self.once(request, |decision| decision.pause(reason, request))?,
            Command::Resume { request } => self.once(request, |decision| decision.resume(request))?,
            Command::Retry { obstacle, request } => self.once(request, |decision| decision.retry(obstacle, request))?,
            Command::BeginDeletion { request } => self.once(request, |decision| decision.begin_deletion(request))?,
            Command::SignalFrom { sender, name, payload } => self.signal_from(sender, &name, payload)?,
            Command::EndChild(end) => self.end_child(*end),
            Command::Settle(settled) => self.settle_effect(settled),
            Command::Wake { held, early } => self.wake(held, early),
        };
        self.settle();
        self.guard_history();
        Ok(outcome)
    }

    /// Makes a call unless its `request_id` is remembered; gives the number of the event that records it.
    fn once(
        &mut self,
        request: Option<RequestKey>,
        call: impl FnOnce(&mut Self) -> Result<u64, Rejection>,
    ) -> Result<Outcome, Rejection> {
        match request.as_ref().map_or(Known::No, |request| self.state.find_request(request)) {
            Known::Same(number) => Ok(Outcome::Recorded(number)),
            Known::Other => Err(Rejection::RequestIdReused),
            Known::No => call(self).map(Outcome::Recorded),
        }
    }

    /// Runs something with what a unit's expressions see.
    fn with_scope<T>(&self, key: UnitKey, signal: Option<&Payload>, work: impl FnOnce(&Scope<'_>) -> T) -> T {
        self.state.with_scope(key, signal, |scope| work(&Scope { meter: Some(&self.work), ..*scope }))
    }

    /// Adds an event and applies it; gives its number.
    fn emit(&mut self, kind: EventKind) -> u64 {
        self.emit_for(None, kind)
    }

    /// Adds the event that records a call.
    fn emit_for(&mut self, request: Option<RequestKey>, kind: EventKind) -> u64 {
        let number = self.state.last_number() + 1;
        self.bytes += event_bytes(&kind);
        let event = Event { number, time: self.now, request, kind };
        self.state.evolve(&event);
        self.events.push(event);
        number
    }

    /// Whether another piece of work fits into this decision.
    fn has_room(&self) -> bool {
        // Nothing of the next run stands in the same append as the end of this one. What is taken up again is so in an
        // append of its own, so that its row says for a moment that it is open, which the store makes sure of.
        let is_reopened = matches!(self.events.last(), Some(Event { kind: EventKind::ExecutionReopened { .. }, .. }));
        let is_cut = self.state.is_between_runs() || is_reopened || self.work.units() >= EXPRESSIONS_WORK_MAX;
        !is_cut && self.events.len() + WORK_EVENTS_MAX <= EVENTS_MAX && self.bytes + WORK_BYTES_MAX <= BYTES_MAX
    }
}

/// Estimates the stored size of an event, in bytes.
pub fn event_bytes(kind: &EventKind) -> usize {
    /// A digest in the place of a payload.
    const DIGEST: usize = 40;
    event_bytes_with(kind, |payload| if payload.len() > PAYLOAD_INLINE_MAX { DIGEST } else { payload.len() })
}

/// Estimates the size of an event as a caller gets it, in bytes: with its payloads whole.
pub fn event_bytes_whole(kind: &EventKind) -> usize {
    event_bytes_with(kind, Payload::len)
}

fn event_bytes_with(kind: &EventKind, payload: impl Fn(&Payload) -> usize) -> usize {
    /// Number, time, tags, ids.
    const FIXED: usize = 160;
    let optional = |value: &Option<Payload>| value.as_ref().map_or(0, &payload);
    let failure = |failure: &Failure| failure.code.len() + failure.message.len() + optional(&failure.details);
    FIXED
        + match kind {
            EventKind::ExecutionCreated(created) => created_bytes(created, &payload),
            EventKind::StepScheduled { input, .. } | EventKind::ChildRequested { input, .. } => optional(input),
            EventKind::DeliveryEnded { progress, .. } => optional(progress),
            EventKind::AttemptFailed { failure: why, progress, .. } => failure(why) + optional(progress),
            EventKind::StepSucceeded { output, .. } | EventKind::LateSuccess { output, .. } => payload(output),
            EventKind::StepFailed { failure: why, .. } | EventKind::ExecutionFailed { failure: why } => failure(why),
            EventKind::SignalReceived { payload: content, .. }
            | EventKind::SignalRequested { payload: content, .. } => payload(content),
            EventKind::ExecutionSucceeded { output } => payload(output),
            EventKind::WindDownStarted { cause, .. } => match cause {
                super::Cause::Failure(why) => failure(why),
                super::Cause::Cancel(reason) => reason.len(),
                super::Cause::Timeout => 0,
            },
            EventKind::ExecutionTerminated { reason } => reason.len(),
            EventKind::FanOutStarted { items, .. } => payload(items),
            EventKind::ExecutionPaused { reason } => reason.len(),
            EventKind::ContinuedAsNew { input, .. } => payload(input),
            EventKind::RunStarted(start) => {
                let signals = start.signals.iter().map(|signal| FIXED + payload(&signal.payload)).sum::<usize>();
                let children = start.abandoned.iter().map(|it| FIXED + payload(&it.child.input)).sum::<usize>();
                let texts = (start.calls.len() + start.reports.len() + start.senders.len()) * FIXED;
                created_bytes(&start.created, &payload) + signals + children + texts
            }
            EventKind::ExecutionReopened { steps, .. } => {
                steps.iter().map(|step| step.unit.len() + 8 + 3 * step.items.len()).sum()
            }
            EventKind::StepDispatched { .. }
            | EventKind::FanOutEnded { .. }
            | EventKind::TaskHeld { .. }
            | EventKind::StepSkipped { .. }
            | EventKind::StepCancelled { .. }
            | EventKind::SleepStarted { .. }
            | EventKind::AwaitStarted { .. }
            | EventKind::SignalExpired { .. }
            | EventKind::ExecutionCancelled
            | EventKind::ExecutionTimedOut
            | EventKind::ChildStarted { .. }
            | EventKind::ChildCancelSent { .. }
            | EventKind::ParentTold
            | EventKind::ExecutionResumed
            | EventKind::EventTaken { .. }
            | EventKind::DeletionBegan
            | EventKind::Woke => 0,
        }
}

fn created_bytes(created: &Created, payload: &impl Fn(&Payload) -> usize) -> usize {
    let result = |result: &StepResult| match &result.end {
        StepEnd::Succeeded(output) => result.step.len() + payload(output),
        StepEnd::Failed(failure) => {
            let details = failure.details.as_ref().map_or(0, payload);
            result.step.len() + failure.code.len() + failure.message.len() + details
        }
        StepEnd::Skipped(_) => result.step.len(),
    };
    let labels = created.labels.iter().map(|(key, value)| key.len() + value.len() + 8).sum::<usize>();
    payload(&created.input) + labels + created.results.iter().map(result).sum::<usize>()
}
