//! What every append must satisfy, whatever the store: the rules that do not depend on what is stored.

use super::{Append, Target, WakeChange};

/// Largest number that all databases can hold.
const NUMBER_MAX: u64 = i64::MAX as u64;

impl Append {
    /// Says which rule the append breaks.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if self.first_number < 1 || self.last_number < self.first_number || self.last_number > NUMBER_MAX {
            return Err("history_is_numbered: numbers start at 1 and do not run backwards");
        }
        if self.ready_added.iter().any(|unit| !(1..=5).contains(&unit.priority)) {
            return Err("ready_priority_range: a priority is 1 to 5");
        }
        match &self.target {
            Target::New(new) => {
                if self.first_number != 1 {
                    return Err("a new execution's first event has the number 1");
                }
                if self.state.is_some() {
                    return Err("a new execution has its state in its row, not as a change");
                }
                if new.state.is_closed() != new.close_time.is_some() {
                    return Err(
                        "executions_closed_has_time: what is closed has a time of closing, and nothing else has",
                    );
                }
            }
            Target::Existing(_) => {
                if self.state.is_some_and(|change| change.to.is_closed() != change.close_time.is_some()) {
                    return Err(
                        "executions_closed_has_time: what is closed has a time of closing, and nothing else has",
                    );
                }
            }
        }
        Ok(())
    }

    /// The wake-up time that the append sets, if it touches it.
    pub(super) fn wake_set(&self) -> Option<Option<crate::domain::Timestamp>> {
        match self.wake {
            WakeChange::Keep => None,
            WakeChange::Set(time) => Some(time),
        }
    }
}
