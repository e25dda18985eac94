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
        if self.texts().any(|text| text.contains('\0')) {
            return Err("text is without U+0000: PostgreSQL cannot keep it, so no store does");
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

    /// All text that is written as such.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let new = match &self.target {
            Target::New(new) => Some(new),
            Target::Existing(_) => None,
        };
        let row = new.into_iter().flat_map(|new| [&*new.id, &*new.workflow, &*new.version]);
        let labels =
            new.into_iter().flat_map(|new| &new.labels).flat_map(|(key, value)| [key.as_str(), value.as_str()]);
        row.chain(labels)
            .chain(
                self.ready_added.iter().flat_map(|unit| [&*unit.unit, &*unit.queue, &*unit.contract, &*unit.language]),
            )
            .chain(self.ready_removed.iter().map(|unit| &**unit))
            .chain(self.payloads.iter().map(|payload| &*payload.json))
    }

    /// The wake-up time that the append sets, if it touches it.
    pub(super) fn wake_set(&self) -> Option<Option<crate::domain::Timestamp>> {
        match self.wake {
            WakeChange::Keep => None,
            WakeChange::Set(time) => Some(time),
        }
    }
}
