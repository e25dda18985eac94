//! Gives signals to the handlers of `on_event`.
//!
//! - When a signal comes that no step awaits, the first handler in the order of the text whose `match` holds is to take it;
//!   an await that begins before it does wins. What the `match` gave is in the signal's event.
//! - A handler works on one signal at a time, in the order in which they came. One whose `match` cannot be evaluated takes
//!   the signal and fails.
//! - The execution ends well only when no handler works and no signal waits for one; a run takes them along to the next.
//!   While it winds down nothing is taken.

use super::Decision;
use crate::domain::definition::{EvaluationError, Role, Scope, Step, StepIndex};
use crate::domain::state::UnitKey;
use crate::domain::{EventKind, Payload, SkipReason, Unit, code};

impl Decision<'_> {
    /// The handler that is to take a signal that comes now.
    pub(super) fn handler_for(&self, name: &str, payload: &Payload) -> Option<Unit> {
        let definition = self.state.definition();
        let steps = definition.handlers.on_event.iter().map(|handler| definition.step(*handler));
        let takes = |step: &&Step| match &step.role {
            Role::OnEvent { signal, .. } => **signal == *name && self.matches_event(step, payload).unwrap_or(true),
            Role::Main | Role::Compensation { .. } | Role::Handler(_) => false,
        };
        steps.into_iter().find(takes).map(|step| step.id.clone())
    }

    /// Whether a handler takes a signal.
    fn matches_event(&self, step: &Step, payload: &Payload) -> Result<bool, EvaluationError> {
        match &step.role {
            Role::OnEvent { predicate: Some(predicate), .. } => {
                predicate.evaluate_bool(&Scope { event: Some(payload), meter: Some(&self.work), ..self.state.scope() })
            }
            Role::OnEvent { predicate: None, .. } | Role::Main | Role::Compensation { .. } | Role::Handler(_) => {
                Ok(true)
            }
        }
    }

    /// Lets a handler take the next signal that waits for it; one that has expired is dropped.
    pub(super) fn take_event(&mut self, handler: StepIndex) {
        let Some((signal_number, expire_time)) = self.state.signal_for(handler) else { return };
        if expire_time.is_some_and(|time| time <= self.now) {
            self.emit(EventKind::SignalExpired { signal_number });
            return;
        }
        let unit = self.name(self.state.next_of(handler));
        self.emit(EventKind::EventTaken { unit, signal_number });
    }

    /// Begins the unit of a handler that has taken its signal.
    pub(super) fn begin_event(&mut self, key: UnitKey) {
        let definition = self.state.definition().clone();
        let step = definition.step(key.step);
        let event = self.state.event_of(key).cloned().unwrap_or_else(Payload::null);
        // It was true when the signal came; here it only tells what could not be evaluated.
        if let Err(error) = self.matches_event(step, &event) {
            return self.evaluation_failed(key, &error, code::RESULT_TOO_LARGE);
        }
        match self.is_wanted(step, key) {
            Ok(true) => self.act(key, &step.action),
            Ok(false) => self.skip(key, SkipReason::WhenFalse),
            Err(error) => self.evaluation_failed(key, &error, code::RESULT_TOO_LARGE),
        }
    }
}
