//! Gives signals to other executions.
//!
//! - The server gives a signal once the event that asked for it is durable, and tries again until the recipient has it or
//!   refuses it for good. The recipient knows the sender and takes it once.
//! - While the execution winds down a signal that is on its way is waited for, for as long as a delivery would be: it may
//!   have come.

use super::{Decision, signal::Giver};
use crate::domain::definition::{SignalStep, SignalTarget, StepIndex};
use crate::domain::state::{Status, UnitKey};
use crate::domain::{EventKind, ExecutionId, Failure, Outcome, Payload, Recipient, Rejection, code, json};
use std::sync::Arc;

impl Decision<'_> {
    /// Begins a unit that gives a signal.
    pub(super) fn begin_signal(&mut self, key: UnitKey, signal: &SignalStep) {
        let recipient = match self.recipient(key, &signal.to) {
            Ok(recipient) => recipient,
            Err(Unknown::Evaluation(code, message)) => return self.fail_unit_with(key, code, message),
            Err(Unknown::Nobody(message)) => return self.fail_unit_with(key, code::SIGNAL_NOT_DELIVERED, message),
        };
        let payload = match &signal.payload {
            Some(template) => self.evaluate(key, template),
            None => Ok(Payload::null()),
        };
        let payload = match payload {
            Ok(payload) => payload,
            Err(error) => return self.evaluation_failed(key, &error, code::RESULT_TOO_LARGE),
        };
        let unit = self.name(key);
        self.emit(EventKind::SignalRequested { unit, recipient, name: signal.name.clone(), payload });
    }

    /// Who gets it.
    fn recipient(&self, key: UnitKey, target: &SignalTarget) -> Result<Recipient, Unknown> {
        match target {
            SignalTarget::Execution(template) => {
                let id = self.evaluate(key, template);
                let id = id.map_err(|error| Unknown::Evaluation(code::EXPRESSION_FAILED, error.to_string()))?;
                let text = json::Cursor::new(id.as_str()).string().ok();
                let id = text.and_then(|text| ExecutionId::parse(&text));
                let nobody = || Unknown::Nobody("`execution` gives no text that can be an execution's id".to_owned());
                Ok(Recipient { id: id.ok_or_else(nobody)?, uid: None, child: None })
            }
            SignalTarget::Parent => {
                let parent = self.state.parent();
                let parent = parent.ok_or_else(|| Unknown::Nobody("this execution has no parent".to_owned()))?;
                Ok(Recipient { id: parent.id.clone(), uid: Some(parent.uid), child: None })
            }
            SignalTarget::Child(step) => self.child_recipient(key, UnitKey::of(*step)),
        }
    }

    /// The child of the newest attempt; of a step that has not begun, the one that it will start first.
    fn child_recipient(&self, sender: UnitKey, child: UnitKey) -> Result<Recipient, Unknown> {
        let (unit, name) = (self.state.unit(child), self.name(child));
        if let Some(child) = unit.child() {
            return Ok(Recipient { id: child.id.clone(), uid: child.uid, child: Some(name) });
        }
        if !unit.status.is_pending() || self.waits_for_step(child.step, sender.step) {
            return Err(Unknown::Nobody(format!("step {name} has no child")));
        }
        let (uid, run, generation) = (self.state.uid(), self.state.run(), self.state.generation_of(child));
        Ok(Recipient { id: ExecutionId::of_child(uid, run, &name, generation, 1), uid: None, child: Some(name) })
    }

    /// Whether a step cannot begin before another one has ended.
    fn waits_for_step(&self, step: StepIndex, other: StepIndex) -> bool {
        let definition = self.state.definition();
        let mut seen = vec![false; definition.steps.len()];
        let mut found = vec![step];
        while let Some(step) = found.pop() {
            if step == other {
                return true;
            }
            if !std::mem::replace(&mut seen[step.position()], true) {
                found.extend(&definition.step(step).needs);
            }
        }
        false
    }

    /// The recipient has a unit's signal.
    pub(super) fn signal_taken(&mut self, unit: &str, number: u64) {
        if let Some(key) = self.sending(unit, number) {
            self.succeed(key, Payload::null(), None);
        }
    }

    /// The recipient does not take a unit's signal.
    pub(super) fn signal_refused(&mut self, unit: &str, number: u64, reason: &str, message: Arc<str>) {
        let Some(key) = self.sending(unit, number) else { return };
        let unit = self.name(key);
        if !self.state.is_live(key.step) {
            self.emit(EventKind::StepCancelled { unit });
            return;
        }
        let details = Payload::from_json(format!(r#"{{"reason":"{reason}"}}"#));
        let failure = Failure { details: Some(details), ..Failure::new(code::SIGNAL_NOT_DELIVERED, message, &unit) };
        self.fail_unit(key, failure);
    }

    /// The unit, if it waits for its signal of this number to be taken.
    fn sending(&self, unit: &str, number: u64) -> Option<UnitKey> {
        self.state.find(unit).filter(
            |key| matches!(self.state.unit(*key).status, Status::Sending { number: asked, .. } if asked == number),
        )
    }

    /// Takes a signal that a step of another execution gives; the same again is answered as before.
    pub(super) fn signal_from(
        &mut self,
        sender: [u8; 16],
        name: &Arc<str>,
        payload: Payload,
    ) -> Result<Outcome, Rejection> {
        match self.state.find_sender(sender) {
            Some(number) => Ok(Outcome::Recorded(number)),
            None => self.signal(name, payload, None, Giver::Step(sender)).map(Outcome::Recorded),
        }
    }
}

/// Why nobody gets a signal.
enum Unknown {
    /// The expression that names the recipient fails.
    Evaluation(&'static str, String),
    /// There is no such execution.
    Nobody(String),
}
