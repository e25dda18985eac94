//! The handlers of `on_event`: which signal each works on.
//!
//! A handler has one unit at a time, the newest; when it takes the next signal, what the one before it was is forgotten.

use super::unit::UnitState;
use super::{Phase, State, UnitKey, Work};
use crate::domain::definition::StepIndex;
use crate::domain::{Payload, Timestamp};

/// How far a handler has come.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Handler {
    /// Number of its newest unit, from 0.
    pub(super) item: u32,
    /// The signal that it works on, or has worked on.
    pub(super) event: Payload,
}

impl State {
    /// The newest unit of a handler.
    pub(super) fn newest_of(&self, handler: StepIndex) -> Option<UnitKey> {
        self.handlers.get(&handler).map(|newest| UnitKey::item(handler, newest.item))
    }

    /// The unit that takes a handler's next signal.
    pub(in crate::domain) fn next_of(&self, handler: StepIndex) -> UnitKey {
        UnitKey::item(handler, self.handlers.get(&handler).map_or(0, |newest| newest.item + 1))
    }

    /// The signal that a handler's unit works on: `event` in its expressions.
    pub(in crate::domain) fn event_of(&self, key: UnitKey) -> Option<&Payload> {
        let handler = self.handlers.get(&key.step)?;
        (key.item == Some(handler.item)).then_some(&handler.event)
    }

    /// The oldest signal that waits for a handler, with when it expires.
    pub(in crate::domain) fn signal_for(&self, handler: StepIndex) -> Option<(u64, Option<Timestamp>)> {
        self.signals.first_for(&self.step(handler).id)
    }

    /// What the handlers do next: begin on a signal that was taken, or take the next one.
    pub(super) fn next_of_events(&self, takes: bool) -> Option<Work> {
        let next = |handler: &StepIndex| {
            let newest = self.newest_of(*handler);
            match newest.map(|key| self.unit(key).status) {
                Some(status) if status.is_pending() => newest.map(Work::BeginEvent),
                Some(status) if !status.is_resolved() => None,
                Some(_) | None => self.signal_for(*handler).filter(|_| takes).map(|_| Work::TakeEvent(*handler)),
            }
        };
        self.definition.handlers.on_event.iter().find_map(next)
    }

    /// A handler took a signal.
    pub(super) fn take_event(&mut self, key: UnitKey, signal_number: u64) {
        debug_assert_eq!(self.phase, Phase::Running, "nothing is taken while it winds down");
        let Some(signal) = self.signals.take(signal_number) else { return };
        if let Some(before) = self.newest_of(key.step) {
            self.forget_unit(before);
        }
        let newest = Handler { item: key.item.unwrap_or_default(), event: signal.payload };
        self.event_bytes_changed(key.step, Some(newest));
        self.change(key, |_| {});
    }

    /// Puts what a handler works on in the place of what it worked on.
    fn event_bytes_changed(&mut self, handler: StepIndex, newest: Option<Handler>) {
        let bytes = |handler: Option<&Handler>| handler.map_or(0, |handler| handler.event.len());
        self.indexes.text_bytes -= bytes(self.handlers.get(&handler));
        self.indexes.text_bytes += bytes(newest.as_ref());
        match newest {
            Some(newest) => drop(self.handlers.insert(handler, newest)),
            None => drop(self.handlers.remove(&handler)),
        }
    }

    /// Drops a unit that has ended; repeats of its reports are still known.
    fn forget_unit(&mut self, key: UnitKey) {
        self.unindex(key);
        let Some(UnitState { task: Some(task), .. }) = self.units.items.remove(&key) else { return };
        let name = self.name(key);
        self.course.keep_reports(&name, &task.reports);
    }

    /// Bytes of the signals that handlers work on.
    pub(super) fn event_bytes(&self) -> usize {
        self.handlers.values().map(|handler| handler.event.len()).sum()
    }
}
