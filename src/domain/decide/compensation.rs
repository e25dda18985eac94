//! Undoes what succeeded, once the execution winds down.
//!
//! - What ended last is undone first, one unit after another, after everything that was out has ended (`state::work` picks it,
//!   from the index of what is to be undone in `state::index`).
//! - A unit of unknown outcome (it did not succeed, and some delivery ended without its worker's report) is undone too,
//!   unless its step says otherwise; its output is null to the template then.
//! - An undo has attempts of its own. One that fails for good is recorded, and the rest go on.
//! - Nothing is undone once a unit of an irreversible step succeeded, or may have.

use super::Decision;
use crate::domain::state::UnitKey;
use crate::domain::{Failure, code};
use std::sync::Arc;

/// Names of units that a message has room for.
const NAMES_MAX: usize = 10;

impl Decision<'_> {
    /// Begins to undo a unit.
    pub(super) fn undo(&mut self, key: UnitKey) {
        let definition = self.state.definition().clone();
        let Some(undo) = definition.step(key.step).compensation else { return };
        self.act(key.at(undo), &definition.step(undo).action);
    }

    /// What could not be undone, if there is such.
    pub(super) fn compensation_failure(&self) -> Option<Failure> {
        let failed = self.state.failed_undos();
        let count = failed.len();
        let names: Vec<String> = failed.take(NAMES_MAX).map(|key| self.name(key).to_string()).collect();
        let more = if count > NAMES_MAX { format!(" and {} more", count - NAMES_MAX) } else { String::new() };
        let message = format!("could not be undone: {}{more}", names.join(", "));
        (count > 0).then(|| Failure::new(code::COMPENSATION_FAILED, message, &Arc::from("")))
    }
}
