//! What runs again when a closed execution is retried, and how it is made to.
//!
//! - A unit that failed for good, was given up or was undone runs again; so does every step that depends on one. What else
//!   has ended stays, and with it what it gave.
//! - A failure that `on_error` allowed is a result like any other: what needs it has run with it.
//! - A fan-out of which only some items run again keeps the others; its dependents run again, since its output changes.
//! - Undoing and handlers are as if they had never begun: another end may need them.

use super::fan_out::Group;
use super::unit::{Status, UnitState};
use super::{Phase, State, UnitKey};
use crate::domain::definition::{OnError, Role, StepIndex};
use crate::domain::{Payload, ReopenedStep, Timestamp};
use std::collections::BTreeSet;

impl State {
    /// What runs again, in the definition's order.
    pub(in crate::domain) fn to_reopen(&self) -> Vec<ReopenedStep> {
        let whole = self.steps_again();
        let again = |(step, it): (StepIndex, &crate::domain::definition::Step)| {
            let items = match it.role {
                Role::Main if whole.contains(&step) => Vec::new(),
                Role::Main => self.items_again(step)?,
                Role::OnEvent { .. } => vec![self.event_again(step)?],
                Role::Compensation { .. } | Role::Handler(_) => return None,
            };
            Some(ReopenedStep { unit: it.id.clone(), items })
        };
        self.definition.indexed().filter_map(again).collect()
    }

    /// The steps under `steps` that run again as if they had never begun.
    fn steps_again(&self) -> BTreeSet<StepIndex> {
        let mains = || self.definition.indexed().filter(|(_, step)| step.role == Role::Main).map(|(step, _)| step);
        let mut open: Vec<StepIndex> = mains().filter(|step| self.is_again(*step)).collect();
        let mut whole: BTreeSet<StepIndex> =
            open.iter().copied().filter(|step| self.items_again(*step).is_none()).collect();
        while let Some(step) = open.pop() {
            for dependent in &self.step(step).dependents {
                if whole.insert(*dependent) {
                    open.push(*dependent);
                }
            }
        }
        whole
    }

    /// Whether a step itself is one that runs again, in whole or for some of its items.
    fn is_again(&self, step: StepIndex) -> bool {
        self.is_unit_again(UnitKey::of(step)) || self.items_again(step).is_some()
    }

    fn is_unit_again(&self, key: UnitKey) -> bool {
        let unit = self.unit(key);
        match unit.status {
            Status::Failed => self.step(key.step).on_error == OnError::Fail || unit.undone,
            Status::Succeeded | Status::Skipped => unit.undone,
            Status::Pending { .. }
            | Status::Waiting { .. }
            | Status::Out(_)
            | Status::BackingOff { .. }
            | Status::Spent
            | Status::Sleeping { .. }
            | Status::FanOut { .. }
            | Status::Awaiting { .. }
            | Status::Child(_)
            | Status::Sending { .. }
            | Status::Cancelled => true,
        }
    }

    /// The items of a fan-out that run again, with those that have not begun; nothing where none does.
    fn items_again(&self, step: StepIndex) -> Option<Vec<u32>> {
        let group = self.group(step)?;
        let items = self.units.items_of(step).filter(|(key, _)| self.is_unit_again(**key));
        let mut items: Vec<u32> = items.filter_map(|(key, _)| key.item).collect();
        items.extend(group.next..group.count());
        // One that ended without its items, as for the size of its output, ends so again.
        let is_whole = items.is_empty() && self.is_unit_again(UnitKey::of(step));
        if is_whole { None } else { Some(items).filter(|items| !items.is_empty()) }
    }

    /// Whether a step, or one of its items, was undone.
    pub(in crate::domain) fn is_undone(&self, step: StepIndex) -> bool {
        self.unit(UnitKey::of(step)).undone || self.units.items_of(step).any(|(_, unit)| unit.undone)
    }

    /// The unit of a handler that runs again: the newest, if it did not end well.
    fn event_again(&self, handler: StepIndex) -> Option<u32> {
        let newest = self.newest_of(handler).filter(|key| self.is_unit_again(*key))?;
        newest.item
    }

    /// Makes a closed execution run again.
    pub(super) fn reopen(&mut self, steps: &[ReopenedStep], generation: u32, expire_time: Option<Timestamp>) {
        (self.phase, self.wind_down, self.close_time) = (Phase::Running, None, None);
        (self.output, self.terminate_reason, self.end_failure) = (None, None, None);
        self.created.expire_time = expire_time;
        (self.course.generation, self.course.history_from) = (generation, self.last_number);
        self.course.begin_time = self.last_time;
        let whole: Vec<StepIndex> = self.named_steps(steps, |step| step.items.is_empty());
        for step in &whole {
            self.renew_step(*step);
        }
        for reopened in steps.iter().filter(|step| !step.items.is_empty()) {
            self.renew_items(self.named(&reopened.unit).step, &reopened.items);
        }
        let aside = self.definition.clone();
        for (step, it) in aside.indexed() {
            match it.role {
                Role::Compensation { .. } | Role::Handler(_) => self.renew_step(step),
                Role::Main | Role::OnEvent { .. } => {}
            }
        }
        for (step, it) in aside.indexed() {
            let is_aside = !matches!(it.role, Role::Main);
            if is_aside || whole.contains(&step) {
                self.units.steps[step.position()].blockers = self.blockers_of(step);
            }
        }
        let ready = std::mem::take(&mut self.indexes.ready);
        self.rebuild_indexes();
        // Nothing waited for a worker, and nothing does yet: only the journal of changes goes on.
        self.indexes.ready = ready;
    }

    fn named_steps(&self, steps: &[ReopenedStep], which: impl Fn(&ReopenedStep) -> bool) -> Vec<StepIndex> {
        steps.iter().filter(|step| which(step)).map(|step| self.named(&step.unit).step).collect()
    }

    /// Makes a step as if it had never begun, its items with it.
    fn renew_step(&mut self, step: StepIndex) {
        let items: Vec<UnitKey> = self.units.items_of(step).map(|(key, _)| *key).collect();
        for key in items {
            self.renew(key, 0);
            self.units.items.remove(&key);
        }
        self.units.groups.remove(&step);
        self.renew(UnitKey::of(step), 0);
    }

    /// Makes some items as if they had never begun; those that have not need nothing.
    fn renew_items(&mut self, step: StepIndex, items: &[u32]) {
        for item in items {
            let key = UnitKey::item(step, *item);
            if self.units.items.contains_key(&key) {
                self.renew(key, 0);
            }
        }
        let unit = &mut self.units.steps[step.position()];
        (unit.generation, unit.first_delivery) = (self.course.generation, self.course.deliveries);
        if self.units.groups.contains_key(&step) {
            *unit = UnitState {
                status: Status::FanOut { since: self.last_time },
                generation: unit.generation,
                first_delivery: unit.first_delivery,
                ..UnitState::new(0)
            };
            self.recount(step);
        }
    }

    /// Counts a fan-out's items anew.
    fn recount(&mut self, step: StepIndex) {
        let items: Vec<(u32, UnitState)> =
            self.units.items_of(step).filter_map(|(key, unit)| Some((key.item?, unit.clone()))).collect();
        let Some(group) = self.units.groups.get_mut(&step) else { return };
        (group.open, group.failed, group.failure) = (0, 0, None);
        group.output_bytes = Group::EMPTY_BYTES;
        for (item, unit) in items {
            if !unit.status.is_resolved() {
                group.again.insert(item);
                continue;
            }
            group.output_bytes += unit.output.as_ref().map_or("null".len(), Payload::len) + ",".len();
            if unit.status == Status::Failed {
                group.failed += 1;
                group.failure = group.failure.take().or(unit.failure);
            }
        }
    }
}
