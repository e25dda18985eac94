//! Ends a run and begins the next one.
//!
//! - The last event of a run ends its decision, and with it the append: the next run's first event is the first of
//!   another. So whatever is before a run can be removed in whole rows.
//! - The next run begins before anything else is decided. It carries on the signals that nobody took, the calls that are
//!   remembered, and the execution's timeout, which counts from the start of the first run.
//! - What a run did is not undone once it has ended: compensation ends with the run.

use super::{Context, Decision};
use crate::domain::definition::{ContinueAsNew, Definition};
use crate::domain::state::UnitKey;
use crate::domain::{Event, EventKind, Payload, State, code};

/// Begins the next run of an execution whose run has ended ([`State::is_between_runs`]); gives its first event, already applied.
pub fn begin_run(state: &mut State, context: &Context) -> Vec<Event> {
    let mut decision = Decision::new(state, context);
    decision.begin_run();
    decision.events
}

impl Decision<'_> {
    /// Ends the run. An input that the next one cannot take fails the step.
    pub(super) fn begin_continue_as_new(&mut self, key: UnitKey, step: &ContinueAsNew) {
        let input = match &step.input {
            Some(template) => match self.evaluate(key, template) {
                Ok(input) => input,
                Err(error) => return self.evaluation_failed(key, &error, code::INPUT_TOO_LARGE),
            },
            None => self.state.input().clone(),
        };
        match checked_input(&self.state.definition().clone(), input) {
            Ok(input) => {
                let unit = self.name(key);
                self.emit(EventKind::ContinuedAsNew { unit, input });
            }
            Err(violations) => {
                let message = format!("input of the next run does not fit the schema: {violations}");
                self.fail_unit_with(key, code::INPUT_INVALID, message);
            }
        }
    }

    fn begin_run(&mut self) {
        if let Some(start) = self.state.next_run() {
            self.emit(EventKind::RunStarted(Box::new(start)));
        }
    }
}

/// An input with the schema's defaults filled in.
///
/// # Errors
/// What does not fit, for people.
pub fn checked_input(definition: &Definition, input: Payload) -> Result<Payload, String> {
    let Some(schema) = &definition.input else { return Ok(input) };
    let input = schema.with_defaults(&input);
    schema.validate(&input)?;
    Ok(input)
}
