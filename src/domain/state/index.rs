//! What is looked up often. All of it follows from the units, the phase and the times: whoever changes a unit does it
//! through [`State::change`], which takes it out of the indexes before and puts it in after.

use super::fan_out::Group;
use super::unit::{Status, UnitState, await_of};
use super::{Phase, State, UnitKey, WindDown, effects, ready, timer};
use crate::domain::Timestamp;
use crate::domain::definition::{Definition, Lifetime, Role, Step, StepIndex, Unknown};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The indexes of a state.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Indexes {
    pub(super) timers: timer::Timers,
    pub(super) ready: ready::Ready,
    /// Steps that may begin as soon as their lifetime has come.
    pub(super) runnable: BTreeSet<StepIndex>,
    /// Fan-outs of which another item may begin, or all have ended.
    pub(super) movable: BTreeSet<StepIndex>,
    /// Units with a delivery out.
    pub(super) out: BTreeSet<UnitKey>,
    /// Awaits by signal, the longest wait first.
    pub(super) signal_waits: BTreeMap<Arc<str>, BTreeSet<(u64, UnitKey)>>,
    /// Units that a wind-down undoes, by the number of the event that ended them.
    pub(super) undo: BTreeSet<(u64, UnitKey)>,
    /// Undoing that failed for good.
    pub(super) undo_failed: BTreeSet<UnitKey>,
    /// Steps under `steps` that have not ended.
    pub(super) unresolved: usize,
    /// Units that have begun and not ended, by when they may live.
    pub(super) active: ByLifetime,
    /// Units of the execution's run that somebody else has, so that a wind-down waits for them.
    pub(super) engaged: usize,
    /// Units of irreversible steps that happened, or may have.
    pub(super) irreversible: usize,
    /// What another execution must be told, or made to be.
    pub(super) effects: effects::Open,
    /// Bytes of the texts that units hold.
    pub(super) text_bytes: usize,
}

/// A count for each lifetime.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ByLifetime {
    pub(super) forward: usize,
    pub(super) undo: usize,
    pub(super) handler: usize,
}

impl ByLifetime {
    fn of(&mut self, lifetime: Lifetime) -> &mut usize {
        match lifetime {
            Lifetime::Forward => &mut self.forward,
            Lifetime::Undo => &mut self.undo,
            Lifetime::Handler => &mut self.handler,
        }
    }
}

/// Where a unit stands in the indexes: those that do not depend on the phase.
struct Place<'a> {
    step: &'a Step,
    unit: &'a UnitState,
    key: UnitKey,
    /// When it is given up, if it should stop.
    give_up_time: Option<Timestamp>,
    /// What becomes of an unknown outcome, if something undoes it.
    unknown: Option<Unknown>,
    /// Whether a pause holds it.
    is_paused: bool,
}

impl Indexes {
    fn insert(&mut self, place: &Place<'_>) {
        let Place { step, unit, key, give_up_time, is_paused, .. } = *place;
        for (time, timer) in unit.timers(step, give_up_time, is_paused).into_iter().flatten() {
            self.timers.insert((time, timer, Some(key)));
        }
        self.text_bytes += unit.text_bytes();
        self.count(place, |count| *count += 1);
        if let Some(undo) = undo_of(place) {
            self.undo.insert(undo);
        }
        if let Some(effect) = State::effect_of(unit, key, give_up_time.is_some()) {
            self.effects.insert(&effect);
        }
        match unit.status {
            Status::Pending { .. } if unit.is_unblocked() && may_be_runnable(step, key) => {
                self.runnable.insert(key.step);
            }
            Status::Waiting { .. } if !is_paused => self.ready.add(key, unit.attempt_time()),
            Status::Out(_) => {
                self.out.insert(key);
            }
            Status::Awaiting { number, .. } => {
                self.signal_waits.entry(awaited_signal(step).clone()).or_default().insert((number, key));
            }
            Status::Failed if step.role.lifetime() == Lifetime::Undo => {
                self.undo_failed.insert(key);
            }
            Status::Pending { .. }
            | Status::Waiting { .. }
            | Status::BackingOff { .. }
            | Status::Spent
            | Status::Sleeping { .. }
            | Status::FanOut { .. }
            | Status::Child(_)
            | Status::Sending { .. }
            | Status::Succeeded
            | Status::Failed
            | Status::Skipped
            | Status::Cancelled => {}
        }
    }

    fn remove(&mut self, place: &Place<'_>) {
        let Place { step, unit, key, give_up_time, is_paused, .. } = *place;
        for (time, timer) in unit.timers(step, give_up_time, is_paused).into_iter().flatten() {
            self.timers.remove(&(time, timer, Some(key)));
        }
        self.text_bytes -= unit.text_bytes();
        self.count(place, |count| *count -= 1);
        if let Some(undo) = undo_of(place) {
            self.undo.remove(&undo);
        }
        if let Some(effect) = State::effect_of(unit, key, give_up_time.is_some()) {
            self.effects.remove(&effect);
        }
        match unit.status {
            Status::Pending { .. } => {
                self.runnable.remove(&key.step);
            }
            Status::Waiting { .. } if !is_paused => self.ready.remove(key, unit.attempt_time()),
            Status::Out(_) => {
                self.out.remove(&key);
            }
            Status::Awaiting { number, .. } => {
                let signal = awaited_signal(step);
                if let Some(waits) = self.signal_waits.get_mut(signal) {
                    waits.remove(&(number, key));
                    if waits.is_empty() {
                        self.signal_waits.remove(signal);
                    }
                }
            }
            Status::Failed => {
                self.undo_failed.remove(&key);
            }
            Status::Waiting { .. }
            | Status::BackingOff { .. }
            | Status::Spent
            | Status::Sleeping { .. }
            | Status::FanOut { .. }
            | Status::Child(_)
            | Status::Sending { .. }
            | Status::Succeeded
            | Status::Skipped
            | Status::Cancelled => {}
        }
    }

    fn count(&mut self, place: &Place<'_>, change: impl Fn(&mut usize)) {
        let Place { step, unit, key, .. } = *place;
        let lifetime = step.role.lifetime();
        if step.role == Role::Main && key.item.is_none() && !unit.status.is_resolved() {
            change(&mut self.unresolved);
        }
        if unit.status.is_active() {
            change(self.active.of(lifetime));
        }
        if lifetime == Lifetime::Forward && unit.status.is_engaged() {
            change(&mut self.engaged);
        }
        if step.irreversible && unit.may_have_happened() {
            change(&mut self.irreversible);
        }
    }
}

/// Whether a step begins by itself once nothing holds it back. Undoing and handlers of signals are begun by what they are
/// for; items by their fan-out.
fn may_be_runnable(step: &Step, key: UnitKey) -> bool {
    let by_itself = match step.role {
        Role::Main | Role::Handler(_) => true,
        Role::Compensation { .. } | Role::OnEvent { .. } => false,
    };
    by_itself && key.item.is_none()
}

/// The entry of a unit that is to be undone. A fan-out's items are, not the fan-out.
fn undo_of(place: &Place<'_>) -> Option<(u64, UnitKey)> {
    let unknown = place.unknown.filter(|_| place.key.item.is_some() == place.step.for_each.is_some())?;
    place.unit.wants_undo(unknown).then_some((place.unit.end_number, place.key))
}

fn awaited_signal(step: &Step) -> &Arc<str> {
    &await_of(step).expect("only awaits await").signal
}

impl State {
    /// Changes a unit and every index with it. An item that has not begun begins.
    pub(super) fn change(&mut self, key: UnitKey, change: impl FnOnce(&mut UnitState)) {
        let before = self.unindex(key);
        change(self.units.entry(key));
        let after = self.index(key);
        if key.item.is_some() {
            self.item_changed(key, before, after);
        }
    }

    /// Changes the group of a fan-out.
    pub(super) fn change_group(&mut self, step: StepIndex, change: impl FnOnce(&mut Group)) {
        let Some(group) = self.units.groups.get_mut(&step) else { return };
        self.indexes.text_bytes -= group.bytes();
        change(group);
        self.indexes.text_bytes += group.bytes();
        self.index_group(step);
    }

    /// Keeps the group of an item that began, went on or ended.
    pub(super) fn item_changed(&mut self, key: UnitKey, before: Option<Status>, after: Status) {
        let was_open = before.is_some_and(Status::is_active);
        let (is_open, ends) = (after.is_active(), after.is_resolved() && !before.is_some_and(Status::is_resolved));
        let unit = self.unit(key);
        let output_bytes = unit.output.as_ref().map_or("null".len(), crate::domain::Payload::len) + ",".len();
        let failure = if after == Status::Failed && ends { unit.failure.clone() } else { None };
        self.change_group(key.step, |group| {
            group.next = group.next.max(key.item.map_or(0, |item| item + 1));
            group.again.remove(&key.item.unwrap_or(u32::MAX));
            group.open = group.open + u32::from(is_open) - u32::from(was_open);
            if ends {
                group.output_bytes += output_bytes;
                group.failed += u32::from(failure.is_some());
                if group.failure.is_none() {
                    group.failure = failure;
                }
            }
        });
    }

    /// Whether a fan-out can go on: it runs, and another item may begin, or all have ended.
    fn index_group(&mut self, step: StepIndex) {
        let is_running = matches!(self.units.steps[step.position()].status, Status::FanOut { .. });
        let parallel_max = self.definition.step(step).for_each.as_ref().and_then(|for_each| for_each.parallel_max);
        let moves = |group: &Group| group.has_more(parallel_max) || group.is_done();
        if is_running && self.units.groups.get(&step).is_some_and(moves) {
            self.indexes.movable.insert(step);
        } else {
            self.indexes.movable.remove(&step);
        }
    }

    /// Takes a unit out of the indexes; gives its status, if it has begun or is a step's own.
    pub(super) fn unindex(&mut self, key: UnitKey) -> Option<Status> {
        let unit = self.units.get(key)?;
        let place =
            place(&self.definition, unit, key, self.phase, self.wind_down.as_ref(), self.course.pause.is_some());
        self.indexes.remove(&place);
        Some(unit.status)
    }

    /// Puts a unit into the indexes; gives its status.
    pub(super) fn index(&mut self, key: UnitKey) -> Status {
        let unit = self.units.get(key).expect("a unit is changed before it is put in");
        let place =
            place(&self.definition, unit, key, self.phase, self.wind_down.as_ref(), self.course.pause.is_some());
        self.indexes.insert(&place);
        let (status, is_fan_out) = (unit.status, place.step.for_each.is_some());
        if key.item.is_none() && is_fan_out {
            self.index_group(key.step);
        }
        status
    }

    /// Makes the indexes anew from the units.
    pub(super) fn rebuild_indexes(&mut self) {
        self.indexes = Indexes::default();
        self.index_execution();
        self.index_effects();
        for key in self.units.keys() {
            self.index(key);
        }
        self.indexes.text_bytes += self.units.groups.values().map(Group::bytes).sum::<usize>();
        self.indexes.text_bytes += self.event_bytes();
    }

    /// The timers of the execution itself, and whether its parent is to be told.
    pub(super) fn index_execution(&mut self) {
        self.index_tell();
        if let Some(due) = self.look_due() {
            self.indexes.timers.insert(due);
        }
        match self.phase {
            Phase::Running => {
                let expires = self.created.expire_time.map(|time| (time, timer::Timer::Execution, None));
                let begins = self.begin_timer().filter(|_| self.is_delayed());
                [expires, begins].into_iter().flatten().for_each(|due| self.indexes.timers.insert(due));
            }
            Phase::WindingDown
            | Phase::Succeeded
            | Phase::Failed
            | Phase::Cancelled
            | Phase::TimedOut
            | Phase::Terminated => {}
        }
    }

    /// The timer of a delayed start.
    pub(super) fn begin_timer(&self) -> Option<timer::Due> {
        self.created.begin_time.map(|time| (time, timer::Timer::Begin, None))
    }
}

fn place<'a>(
    definition: &'a Definition,
    unit: &'a UnitState,
    key: UnitKey,
    phase: Phase,
    wind_down: Option<&WindDown>,
    is_paused: bool,
) -> Place<'a> {
    let step = definition.step(key.step);
    // What the execution ran is given up some time after the wind-down began.
    let stops = !phase.is_live(step.role.lifetime());
    let give_up_time = wind_down.filter(|_| stops).map(|wind_down| wind_down.give_up_time);
    let undo = step.compensation.map(|undo| &definition.step(undo).role);
    let unknown = undo.and_then(|role| match role {
        Role::Compensation { unknown, .. } => Some(*unknown),
        Role::Main | Role::Handler(_) | Role::OnEvent { .. } => None,
    });
    Place { step, unit, key, give_up_time, unknown, is_paused }
}
