//! The rules of undoing: what, in which order, and before which handlers.

use super::history::End;
use super::*;
use crate::domain::definition::{Role, Unknown};

impl History {
    /// The units that are to be undone, in the order in which they ended.
    fn to_undo(&self, run: &Run) -> Vec<(u64, &Unit)> {
        let step_of = |unit: &Unit| run.definition.step(step_of(run, unit));
        let happened = |unit: &Unit, end: End| end == End::Succeeded || self.unknown.contains(unit);
        if self.ended.iter().any(|(unit, (_, end))| step_of(unit).irreversible && happened(unit, *end)) {
            return Vec::new();
        }
        let wanted = self.ended.iter().filter(|(unit, (_, end))| {
            let step = step_of(unit);
            let Some(undo) = step.compensation else { return false };
            let skips = matches!(run.definition.step(undo).role, Role::Compensation { unknown: Unknown::Skip, .. });
            let is_unit = unit.contains('[') == step.for_each.is_some();
            let is_unknown = !skips && self.unknown.contains(*unit);
            is_unit && !self.undone.contains(*unit) && (*end == End::Succeeded || is_unknown)
        });
        let mut wanted: Vec<_> = wanted.map(|(unit, (number, _))| (*number, unit)).collect();
        wanted.sort_by_key(|(number, unit)| (*number, super::step_of(run, unit), unit.len(), *unit));
        wanted
    }

    /// An undo begins: it is that of the unit that ended last, and the only one.
    pub(super) fn hold_undo(&mut self, run: &Run, undo: &str) {
        hold("nothing is undone after a handler began", !self.handling, || undo.to_owned());
        let last = self.to_undo(run).last().map(|(_, unit)| (*unit).clone());
        let unit = undo.trim_start_matches("compensate:");
        let is_last = last.as_deref() == Some(unit);
        hold("what ended last is undone first", is_last, || format!("{undo}, and not {last:?}"));
        let busy = |unit: &Unit| !self.ended.contains_key(format!("compensate:{unit}").as_str());
        hold("one is undone at a time", !self.undone.iter().any(busy), || undo.to_owned());
        self.undone.insert(arc(unit));
    }

    /// A handler begins: everything is undone.
    pub(super) fn hold_handler(&mut self, run: &Run, handler: &str) {
        if !self.handling {
            self.hold_undone(run);
            let busy = |unit: &Unit| !self.ended.contains_key(format!("compensate:{unit}").as_str());
            let is_busy = self.undone.iter().any(busy);
            hold("handlers begin after everything is undone", !is_busy, || handler.to_owned());
        }
        self.handling = true;
    }

    /// Nothing is left to undo.
    pub(super) fn hold_undone(&self, run: &Run) {
        let left = if self.handling { Vec::new() } else { self.to_undo(run) };
        hold("everything that happened is undone", left.is_empty(), || format!("{left:?}"));
    }
}
