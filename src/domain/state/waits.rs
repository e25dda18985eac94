//! What an execution waits for, for those who ask why it does not move.

use super::unit::UnitState;
use super::{State, Timer, UnitKey};
use crate::domain::definition::{Role, StepIndex};
use crate::domain::{ExecutionId, Timestamp};
use std::sync::Arc;

impl State {
    /// Units that have begun and not ended: each step with its items, in the definition's order.
    pub(in crate::domain) fn active(&self) -> impl Iterator<Item = (UnitKey, &UnitState)> {
        let steps = self.definition.indexed().flat_map(|(step, _)| {
            let own = UnitKey::of(step);
            let items = self.units.items_of(step).map(|(key, unit)| (*key, unit));
            std::iter::once((own, self.unit(own))).chain(items)
        });
        steps.filter(|(_, unit)| unit.status.is_active())
    }

    /// Steps that would begin by themselves and are held back: by steps that they need, by a pause or a delayed start, or by
    /// whatever runs, as handlers are while something is undone, and a step that ends the run is by handlers of signals.
    pub(in crate::domain) fn blocked(&self) -> impl Iterator<Item = StepIndex> + '_ {
        let steps = self.definition.indexed().filter(|(index, step)| {
            let is_its_turn = match step.role {
                Role::Main => self.is_live(*index),
                Role::Handler(winding) => self.is_live(*index) && self.winding() == Some(winding),
                Role::Compensation { .. } | Role::OnEvent { .. } => false,
            };
            let unit = self.unit(UnitKey::of(*index));
            let is_kept = || !unit.is_unblocked() || self.is_held() || !self.work_due_now();
            is_its_turn && unit.status.is_pending() && is_kept()
        });
        steps.map(|(index, _)| index)
    }

    /// When a unit's wait ends by itself, if it does.
    pub(in crate::domain) fn wait_ends(&self, key: UnitKey) -> Option<Timestamp> {
        let give_up_time = self.give_up_time().filter(|_| !self.is_live(key.step));
        let timers = self.unit(key).timers(self.step(key.step), give_up_time, self.is_paused());
        // That a worker is looked for ends nothing if it is there.
        timers.into_iter().flatten().filter(|(_, timer)| *timer != Timer::Check).map(|(time, _)| time).min()
    }

    /// Whether a step may begin as far as the steps go that it needs.
    pub(in crate::domain) fn is_unblocked(&self, step: StepIndex) -> bool {
        self.unit(UnitKey::of(step)).is_unblocked()
    }

    /// Since when it is paused and why, while it is.
    pub(in crate::domain) fn paused(&self) -> Option<(Timestamp, &Arc<str>)> {
        let pause = self.course.pause.as_ref().filter(|_| self.is_paused())?;
        Some((pause.time, &pause.reason))
    }

    /// Since when nothing begins, while a pause or a delayed start holds it.
    pub(in crate::domain) fn held_since(&self) -> Option<Timestamp> {
        let delayed = || self.is_delayed().then_some(self.start_time);
        self.paused().map(|(since, _)| since).or_else(delayed)
    }

    /// Since when it winds down.
    pub(in crate::domain) fn winding_since(&self) -> Option<Timestamp> {
        self.wind_down.as_ref().map(|wind_down| wind_down.time)
    }

    /// Since when a step that has not begun waits as it does: for steps that it needs, or, if none holds it back, for its
    /// turn.
    pub(in crate::domain) fn blocked_since(&self, step: StepIndex, free_since: Option<Timestamp>) -> Timestamp {
        let turn = match self.step(step).role {
            Role::Main | Role::Compensation { .. } | Role::OnEvent { .. } => None,
            Role::Handler(_) => self.winding_since(),
        };
        free_since.or(turn).unwrap_or(self.course.begin_time)
    }

    /// When deliveries that are out are given up, once it winds down.
    pub(in crate::domain) fn give_up_time(&self) -> Option<Timestamp> {
        self.wind_down.as_ref().map(|wind_down| wind_down.give_up_time)
    }

    /// Units of the execution's run that somebody else has, so that a wind-down waits for them.
    pub(in crate::domain) fn engaged(&self) -> usize {
        self.indexes.engaged
    }

    /// Units that are to be undone and whose undoing has not begun.
    pub(in crate::domain) fn undos_left(&self) -> usize {
        if self.next_undo().is_some() { self.indexes.undo.len() } else { 0 }
    }

    /// Children that no unit waits for and that have no cancel yet, and since when each is so.
    pub(in crate::domain) fn abandoned_children(
        &self,
    ) -> impl ExactSizeIterator<Item = (&ExecutionId, Option<Timestamp>)> + Clone {
        self.effects.abandoned.iter().map(|(id, abandoned)| (id, abandoned.since))
    }

    /// Whether something is being undone.
    pub(in crate::domain) fn is_undoing(&self) -> bool {
        self.indexes.active.undo > 0
    }
}
