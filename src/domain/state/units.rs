//! The units of an execution: one for each step, and those that `for_each` and `on_event` make.
//!
//! A step's own unit is there from the start. An item's is made by the first event that names it, so an execution costs
//! what it has begun, not what it may begin.

use super::fan_out::Group;
use super::unit::UnitState;
use crate::domain::Unit;
use crate::domain::definition::{Definition, StepIndex};
use std::{collections::BTreeMap, fmt};

/// Names a unit inside an execution: `ship` or `ship[3]`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::domain) struct UnitKey {
    /// The step that it is of.
    pub(in crate::domain) step: StepIndex,
    /// The item of a `for_each`, or the occurrence of an `on_event`, from 0; none for the step itself.
    pub(in crate::domain) item: Option<u32>,
}

impl UnitKey {
    /// A step's own unit.
    pub(in crate::domain) const fn of(step: StepIndex) -> Self {
        Self { step, item: None }
    }

    /// An item's unit.
    pub(in crate::domain) const fn item(step: StepIndex, item: u32) -> Self {
        Self { step, item: Some(item) }
    }

    /// The unit of the same item of another step.
    pub(in crate::domain) const fn at(self, step: StepIndex) -> Self {
        Self { step, ..self }
    }

    /// What a text names; nothing where there is no such step. An item is not judged: it may not have begun.
    pub(in crate::domain) fn parse(definition: &Definition, unit: &str) -> Option<Self> {
        let Some((step, item)) = unit.strip_suffix(']').and_then(|unit| unit.rsplit_once('[')) else {
            return definition.find(unit).map(Self::of);
        };
        let number: u32 = item.parse().ok()?;
        // `[03]` and `[+3]` are no names: a unit has one.
        (number.to_string() == item).then_some(Self::item(definition.find(step)?, number))
    }

    /// Its name.
    pub(in crate::domain) fn name(self, definition: &Definition) -> Unit {
        let step = &definition.step(self.step).id;
        match self.item {
            None => step.clone(),
            Some(item) => Unit::from(format!("{step}[{item}]")),
        }
    }
}

impl fmt::Debug for UnitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.item {
            None => write!(f, "{:?}", self.step),
            Some(item) => write!(f, "{:?}[{item}]", self.step),
        }
    }
}

/// All units.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Units {
    /// One for each step, in the definition's order.
    pub(super) steps: Vec<UnitState>,
    /// The items that have begun.
    pub(super) items: BTreeMap<UnitKey, UnitState>,
    /// What fan-outs that have begun go through.
    pub(super) groups: BTreeMap<StepIndex, Group>,
}

impl Units {
    pub(super) fn get(&self, key: UnitKey) -> Option<&UnitState> {
        match key.item {
            None => self.steps.get(key.step.position()),
            Some(_) => self.items.get(&key),
        }
    }

    /// The unit; an item that has not begun is made.
    pub(super) fn entry(&mut self, key: UnitKey) -> &mut UnitState {
        match key.item {
            None => &mut self.steps[key.step.position()],
            Some(_) => {
                let of = &self.steps[key.step.position()];
                let (generation, first_delivery) = (of.generation, of.first_delivery);
                let made = || UnitState { generation, first_delivery, ..UnitState::new(0) };
                self.items.entry(key).or_insert_with(made)
            }
        }
    }

    /// Whether they can be of this definition.
    pub(super) fn fit(&self, definition: &Definition) -> bool {
        let count = definition.steps.len();
        let known = |step: StepIndex| step.position() < count;
        self.steps.len() == count
            && self.items.keys().all(|key| known(key.step) && key.item.is_some())
            && self.groups.keys().all(|step| known(*step))
    }

    /// All of them, items last.
    pub(super) fn keys(&self) -> Vec<UnitKey> {
        let steps = (0..).take(self.steps.len()).map(|position| UnitKey::of(StepIndex(position)));
        steps.chain(self.items.keys().copied()).collect()
    }

    /// The items of a step that have begun, in order.
    pub(super) fn items_of(&self, step: StepIndex) -> impl Iterator<Item = (&UnitKey, &UnitState)> {
        self.items.range(UnitKey::item(step, 0)..=UnitKey::item(step, u32::MAX))
    }
}
