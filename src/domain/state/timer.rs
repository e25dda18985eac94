//! What becomes due by time, in the order in which it is done.

use super::units::UnitKey;
use crate::domain::Timestamp;
use std::collections::BTreeSet;

/// A kind of thing that becomes due. At the same instant the earlier in this list comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::domain) enum Timer {
    /// A delivery that is still out is given up.
    GiveUp,
    /// The execution's own timeout passes.
    Execution,
    /// The first step begins, after the start's delay.
    Begin,
    /// A task's `total_timeout` passes.
    Total,
    /// A delivery's `timeout` passes.
    Delivery,
    /// A delivery is looked for for the first time.
    Check,
    /// A task's `queue_timeout` passes.
    Queue,
    /// The next attempt begins.
    Retry,
    /// A sleep ends.
    Sleep,
    /// An await times out.
    Await,
    /// Open effects are looked at again.
    Effects,
}

/// A timer: when, what, and of which unit (none for the execution's own).
pub(in crate::domain) type Due = (Timestamp, Timer, Option<UnitKey>);

/// All timers of an execution, by time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Timers(BTreeSet<Due>);

impl Timers {
    pub(super) fn insert(&mut self, due: Due) {
        self.0.insert(due);
    }

    pub(super) fn remove(&mut self, due: &Due) {
        self.0.remove(due);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The earliest.
    pub(super) fn first(&self) -> Option<Due> {
        self.0.first().copied()
    }

    /// Those up to an instant, earliest first.
    pub(super) fn until(&self, now: Timestamp) -> impl Iterator<Item = Due> + '_ {
        self.0.iter().copied().take_while(move |(time, _, _)| *time <= now)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
