//! Asks for children, and takes their ends.
//!
//! - Each attempt of a unit is a child of its own, whose id derives from the attempt. The server starts it once the event
//!   that asked for it is durable ([`Effect`](crate::domain::Effect)), and tells its end.
//! - The child's output is the unit's; its failure is, too, with the child's ids in the details. Only a child that failed
//!   or timed out is tried again.
//! - An attempt that times out leaves its child to be cancelled and does not wait; nobody cares how that ends. A wind-down
//!   has children cancelled and waits for their ends, since they may have something to undo.

use super::Decision;
use super::task::AttemptEnd;
use crate::domain::definition::ChildStep;
use crate::domain::state::{UnitKey, attempts_of};
use crate::domain::{
    ChildEnd, ChildOutcome, EventKind, ExecutionId, Failure, NESTING_MAX, Outcome, PAYLOAD_BYTES_MAX, Payload, Settled,
    Uid, Unit, code,
};
use std::sync::Arc;

impl Decision<'_> {
    /// Begins a unit that starts a child.
    pub(super) fn begin_child(&mut self, key: UnitKey, child: &ChildStep) {
        if child.pin.is_none() {
            let message = format!("workflow {} has no version that it was deployed with", child.workflow);
            return self.fail_unit_with(key, code::CHILD_NOT_STARTED, message);
        }
        if self.state.depth() >= NESTING_MAX {
            let message = format!("more than {NESTING_MAX} executions would stand above the child");
            return self.fail_unit_with(key, code::NESTING_TOO_DEEP, message);
        }
        let input = match &child.input {
            Some(template) => self.evaluate(key, template),
            None => Ok(Payload::null()),
        };
        match input {
            Ok(input) => self.request_child(key, 1, Some(input)),
            Err(error) => self.evaluation_failed(key, &error, code::INPUT_TOO_LARGE),
        }
    }

    /// Asks for the child of an attempt.
    pub(super) fn request_child(&mut self, key: UnitKey, attempt: u32, input: Option<Payload>) {
        let unit = self.name(key);
        let child_id =
            ExecutionId::of_child(self.state.uid(), self.state.run(), &unit, self.state.generation_of(key), attempt);
        let timeout = attempts_of(self.state.step(key.step)).and_then(|attempts| attempts.timeout);
        let expire_time = timeout.map(|timeout| self.now + timeout);
        self.emit(EventKind::ChildRequested { unit, attempt, input, child_id, expire_time });
    }

    /// Takes note of what came of an effect. What nobody waits for any more changes nothing.
    pub(super) fn settle_effect(&mut self, settled: Settled) -> Outcome {
        match settled {
            Settled::ChildStarted { unit, child_id, child_uid } => {
                if let Some(key) = self.waiting_for(&unit, &child_id) {
                    self.child_started(key, child_uid);
                }
            }
            Settled::ChildRefused { unit, child_id, code, message } => {
                if let Some(key) = self.waiting_for(&unit, &child_id) {
                    let failure = Failure::new(code, message, &unit);
                    self.attempt_failed(key, AttemptEnd::of_child(failure, false, &child_id));
                }
            }
            Settled::ChildCancelled { unit, child_id, is_gone } => self.child_cancelled(unit, child_id, is_gone),
            Settled::ParentTold => {
                if self.state.has_news_for_parent() {
                    self.emit(EventKind::ParentTold);
                }
            }
            Settled::SignalTaken { unit, number } => self.signal_taken(&unit, number),
            Settled::SignalRefused { unit, number, reason, message } => {
                self.signal_refused(&unit, number, reason, message);
            }
        }
        Outcome::Done
    }

    /// Takes a child's end.
    pub(super) fn end_child(&mut self, end: ChildEnd) -> Outcome {
        let ChildEnd { unit, child_id, child_uid, outcome } = end;
        let Some(key) = self.waiting_for(&unit, &child_id) else { return Outcome::Done };
        // The end may overtake the news of the start.
        self.child_started(key, child_uid);
        let (failure, retryable) = match outcome {
            ChildOutcome::Succeeded(output) => {
                self.succeed(key, output, None);
                return Outcome::Done;
            }
            ChildOutcome::Failed(failure) => (failure, true),
            ChildOutcome::TimedOut => (of_child(code::CHILD_TIMED_OUT, "the child's timeout passed"), true),
            ChildOutcome::Cancelled(reason) => (of_child(code::CHILD_CANCELLED, because("cancelled", &reason)), false),
            ChildOutcome::Terminated(reason) => {
                (of_child(code::CHILD_TERMINATED, because("terminated", &reason)), false)
            }
        };
        let details = details(&child_id, child_uid, failure.details.as_ref());
        let failure = Failure { unit, details: Some(details), ..failure };
        self.attempt_failed(key, AttemptEnd::of_child(failure, retryable, &child_id));
        Outcome::Done
    }

    /// The unit, if it waits for this child.
    fn waiting_for(&self, unit: &str, child_id: &ExecutionId) -> Option<UnitKey> {
        self.state.find(unit).filter(|key| self.state.child_wait(*key, child_id).is_some())
    }

    fn child_started(&mut self, key: UnitKey, child_uid: Uid) {
        let unit = self.state.unit(key);
        if unit.child().is_some_and(|child| child.uid.is_some()) {
            return;
        }
        let attempt = unit.task.as_ref().map_or(0, |task| task.attempt);
        let unit = self.name(key);
        self.emit(EventKind::ChildStarted { unit, attempt, child_uid });
    }

    /// A child that is wanted no more has its cancel. Of one that is gone nobody will hear an end.
    fn child_cancelled(&mut self, unit: Unit, child_id: ExecutionId, is_gone: bool) {
        if let Some(attempt) = self.state.abandoned(&child_id) {
            self.emit(EventKind::ChildCancelSent { unit, attempt, child_id });
            return;
        }
        let Some(key) = self.waiting_for(&unit, &child_id).filter(|key| !self.state.is_live(key.step)) else { return };
        if self.state.child_wait(key, &child_id).is_some_and(|wait| !wait.cancel_sent) {
            let attempt = self.state.unit(key).task.as_ref().map_or(0, |task| task.attempt);
            self.emit(EventKind::ChildCancelSent { unit: unit.clone(), attempt, child_id });
        }
        if is_gone {
            self.emit(EventKind::StepCancelled { unit });
        }
    }
}

fn of_child(code: &str, message: impl Into<Arc<str>>) -> Failure {
    Failure::new(code, message, &Arc::from(""))
}

fn because(what: &str, reason: &str) -> String {
    if reason.is_empty() { format!("the child was {what}") } else { format!("the child was {what}: {reason}") }
}

/// Which child failed, and what it said itself, as far as that fits.
fn details(child_id: &ExecutionId, child_uid: Uid, own: Option<&Payload>) -> Payload {
    let with = |own: &str| format!(r#"{{"child_id":"{child_id}","child_uid":"{child_uid}","details":{own}}}"#);
    let text = with(own.map_or("null", Payload::as_str));
    // Nested children add to each other's.
    Payload::from_json(if text.len() <= PAYLOAD_BYTES_MAX { text } else { with("null") })
}
