//! What a new execution takes over from one that it repeats from a step on.
//!
//! - Results are taken of the steps that have ended in the other one and do not depend on the step. They do not run, and
//!   since they are not this execution's work they are never undone by it.
//! - What was undone in the other one is no result: such a step runs again, and with it all that depends on it.

use crate::domain::definition::{Definition, OnError, Role, StepIndex};
use crate::domain::state::Status;
use crate::domain::{State, StepEnd, StepResult};
use std::collections::BTreeSet;

/// The results that remain if an execution is repeated from a step on; nothing if it is none of those under `steps`.
#[must_use]
pub fn results(state: &State, from_step: &str) -> Option<Vec<StepResult>> {
    let definition = state.definition();
    let from = definition.find(from_step).filter(|step| definition.step(*step).role == Role::Main)?;
    let runs = downstream(definition, |step| step == from || state.result_of(step).is_none());
    let mains = definition.indexed().filter(|(step, it)| it.role == Role::Main && !runs.contains(step));
    let result = |(step, it): (StepIndex, &crate::domain::definition::Step)| {
        Some(StepResult { step: it.id.clone(), end: state.result_of(step)? })
    };
    Some(mains.filter_map(result).collect())
}

/// Some of the steps under `steps`, and all that depend on one of them.
fn downstream(definition: &Definition, which: impl Fn(StepIndex) -> bool) -> BTreeSet<StepIndex> {
    let mains = definition.indexed().filter(|(_, step)| step.role == Role::Main).map(|(step, _)| step);
    let mut found: BTreeSet<StepIndex> = mains.filter(|step| which(*step)).collect();
    let mut open: Vec<StepIndex> = found.iter().copied().collect();
    while let Some(step) = open.pop() {
        open.extend(definition.step(step).dependents.iter().copied().filter(|dependent| found.insert(*dependent)));
    }
    found
}

impl State {
    /// What a step has given, if it has ended so that those that need it could go on, and it stands.
    fn result_of(&self, step: StepIndex) -> Option<StepEnd> {
        let key = crate::domain::state::UnitKey::of(step);
        let unit = self.unit(key);
        if self.is_undone(step) {
            return None;
        }
        match unit.status {
            Status::Succeeded => {
                Some(StepEnd::Succeeded(unit.output.clone().unwrap_or_else(crate::domain::Payload::null)))
            }
            Status::Skipped => Some(StepEnd::Skipped(crate::domain::SkipReason::WhenFalse)),
            Status::Failed if self.step(step).on_error == OnError::Continue => {
                unit.failure.as_deref().cloned().map(StepEnd::Failed)
            }
            Status::Failed
            | Status::Pending { .. }
            | Status::Waiting { .. }
            | Status::Out(_)
            | Status::BackingOff { .. }
            | Status::Spent
            | Status::Sleeping { .. }
            | Status::FanOut { .. }
            | Status::Awaiting { .. }
            | Status::Child(_)
            | Status::Sending { .. }
            | Status::Cancelled => None,
        }
    }
}
