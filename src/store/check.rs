//! What every append must satisfy, whatever the store: the rules that do not depend on what is stored.

use super::{Append, NewExecution, ScheduleWrite, Target, WakeChange};

/// Largest number that all databases can hold.
const NUMBER_MAX: u64 = i64::MAX as u64;

const CLOSED_HAS_TIME: &str = "executions_closed_has_time: what is closed has a time of closing, and nothing else has";

const NO_NULL: &str = "text is without U+0000: PostgreSQL cannot keep it, so no store does";

impl ScheduleWrite {
    /// Says which rule the write breaks.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if self.row.version != self.decided_on.unwrap_or(0) + 1 {
            return Err("schedules_version_counts: a version is one more than the one it was decided on");
        }
        if self.row.delete_time.is_some() && self.row.next_time.is_some() {
            return Err("schedules_deleted_is_quiet: what is deleted is never due");
        }
        let texts = [&self.row.id, &self.row.workflow, &self.row.settings, &self.row.note, &self.row.progress];
        let details = self.slots.iter().map(|slot| &slot.detail);
        if texts.into_iter().chain(&self.row.invalid).chain(details).any(|text| text.contains('\0')) {
            return Err(NO_NULL);
        }
        if self.starts.iter().any(|start| !matches!(start.target, Target::New(_))) {
            return Err("what a slot starts is new");
        }
        self.starts.iter().try_for_each(Append::check)
    }
}

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
            return Err(NO_NULL);
        }
        match &self.target {
            Target::New(new) => self.check_new(new)?,
            Target::Existing(_) => {
                if self.state.is_some_and(|change| change.to.is_closed() != change.close_time.is_some()) {
                    return Err(CLOSED_HAS_TIME);
                }
                if self.begins_run.is_some() && self.run < 2 {
                    return Err("runs_are_later_ones: a run that begins in an execution is the second or a later one");
                }
            }
            Target::Replacing(replacement) => {
                self.check_new(&replacement.new)?;
                if let Some(end) = &replacement.end {
                    end.check()?;
                    if !matches!(end.target, Target::Existing(key) if key == replacement.old)
                        || !end.state.is_some_and(|change| change.to.is_closed())
                    {
                        return Err("what ends the execution that is replaced closes it");
                    }
                }
            }
        }
        if let Some(deletion) = &self.deletion
            && (self.state.is_some() || !deletion.state.is_closed() || !self.ready_added.is_empty())
        {
            return Err("only what is closed and stays so is deleted");
        }
        Ok(())
    }

    fn check_new(&self, new: &NewExecution) -> Result<(), &'static str> {
        if self.first_number != 1 {
            return Err("a new execution's first event has the number 1");
        }
        if self.state.is_some() {
            return Err("a new execution has its state in its row, not as a change");
        }
        if self.begins_run.is_some() || self.deletion.is_some() {
            return Err("a new execution begins with its first run, and is not deleted by it");
        }
        if new.state.is_closed() != new.close_time.is_some() {
            return Err(CLOSED_HAS_TIME);
        }
        Ok(())
    }

    /// All text that is written as such.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let new = self.new_execution();
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
