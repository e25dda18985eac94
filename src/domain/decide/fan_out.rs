//! Runs a step once for each item of a list.
//!
//! - Items begin in the order of the list, at most `max_parallel` at once; each is a unit with attempts, timeouts and an
//!   undo of its own. What does not fit into a decision begins in the next one.
//! - One that fails for good ends the execution; with `on_error: continue`, or in a handler, the others go on.
//! - A list without items gives `[]`: `Group::is_done` in `state::fan_out` holds at once, and `State::join` in `state::evolve` makes
//!   the output, as for any other. Null in the place of a step that was skipped skips this one too; any other null is a
//!   mistake.
//! - When all have ended the step does: its output is the list of theirs, in the order of the items, null for those that
//!   failed.

use super::Decision;
use crate::domain::definition::{ForEach, ITEMS_MAX, OnError, StepIndex};
use crate::domain::state::{NotItems, Status, UnitKey, places};
use crate::domain::{EventKind, PAYLOAD_BYTES_MAX, SkipReason, code};

/// Characters of what is no list that a message shows.
const SHOWN_MAX: usize = 50;

impl Decision<'_> {
    /// Begins a step with `for_each`.
    pub(super) fn begin_fan_out(&mut self, key: UnitKey, for_each: &ForEach) {
        let items = match self.evaluate(key, &for_each.items) {
            Ok(items) => items,
            Err(error) => return self.evaluation_failed(key, &error, code::RESULT_TOO_LARGE),
        };
        match places(items.as_str()) {
            Ok(_) => {
                let unit = self.name(key);
                self.emit(EventKind::FanOutStarted { unit, items });
            }
            Err(NotItems::NoList) if items.as_str() == "null" && self.is_upstream_skipped(key) => {
                self.skip(key, SkipReason::NothingUpstream);
            }
            Err(NotItems::NoList) => {
                let shown: String = items.as_str().chars().take(SHOWN_MAX).collect();
                self.fail_unit_with(key, code::EXPRESSION_FAILED, format!("`for_each` gives no list, but `{shown}`"));
            }
            Err(NotItems::TooMany) => {
                self.fail_unit_with(
                    key,
                    code::FAN_OUT_TOO_LARGE,
                    format!("`for_each` gives more than {ITEMS_MAX} items"),
                );
            }
        }
    }

    /// Whether a step that this one needs was skipped, so that a null in its place means that there is nothing.
    fn is_upstream_skipped(&self, key: UnitKey) -> bool {
        let needs = &self.state.step(key.step).needs;
        needs.iter().any(|need| self.state.unit(UnitKey::of(*need)).status == Status::Skipped)
    }

    /// Begins the next item.
    pub(super) fn begin_item(&mut self, step: StepIndex) {
        let definition = self.state.definition().clone();
        let Some(group) = self.state.group(step) else { return };
        let key = UnitKey::item(step, group.next_item());
        self.act(key, &definition.step(step).action);
    }

    /// All items have ended.
    pub(super) fn join(&mut self, step: StepIndex) {
        let Some(group) = self.state.group(step) else { return };
        let key = UnitKey::of(step);
        // While the execution runs an item's failure has ended it; in a handler it ends the step, once all are done.
        if let (OnError::Fail, Some(failure)) = (self.state.step(step).on_error, &group.failure) {
            return self.fail_unit(key, (**failure).clone());
        }
        if group.output_bytes > PAYLOAD_BYTES_MAX {
            let message = format!("the outputs of {} items are larger than {PAYLOAD_BYTES_MAX} bytes", group.count());
            return self.fail_unit_with(key, code::RESULT_TOO_LARGE, message);
        }
        let unit = self.name(key);
        self.emit(EventKind::FanOutEnded { unit });
    }
}
