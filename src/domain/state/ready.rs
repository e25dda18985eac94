//! Which units wait for a worker, and how that changed since somebody last asked.

use super::units::UnitKey;
use crate::domain::{Timestamp, Unit};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A unit that waits for a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingUnit {
    /// Unit.
    pub unit: Unit,
    /// Queue that it waits in.
    pub queue: Arc<str>,
    /// Contract `name@version`.
    pub contract: Arc<str>,
    /// Language that its worker must have; nothing for any.
    pub language: Option<Arc<str>>,
    /// 1 first to 5 last.
    pub priority: u8,
    /// Since when its attempt waits. A delivery that was lost goes back to this place.
    pub since: Timestamp,
}

/// How one unit's waiting differs from when the changes were last taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// It did not wait and does now.
    Added,
    /// It waited and does not now; `since` is where it stood.
    Removed { since: Timestamp },
    /// It waits as before, but at another place.
    Moved { since: Timestamp },
}

/// The waiting units and a journal of their changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Ready {
    waiting: BTreeSet<UnitKey>,
    changes: BTreeMap<UnitKey, Change>,
}

/// The journal says what somebody has been told, not what the execution is: it does not count.
impl PartialEq for Ready {
    fn eq(&self, other: &Self) -> bool {
        self.waiting == other.waiting
    }
}

impl Ready {
    /// The units that wait, in the definition's order.
    pub(super) fn waiting(&self) -> impl Iterator<Item = UnitKey> + '_ {
        self.waiting.iter().copied()
    }

    /// A unit begins to wait at a place in the queue.
    pub(super) fn add(&mut self, key: UnitKey, since: Timestamp) {
        self.waiting.insert(key);
        match self.changes.get(&key) {
            None => self.changes.insert(key, Change::Added),
            Some(Change::Removed { since: before }) if *before == since => self.changes.remove(&key),
            Some(Change::Removed { since: before } | Change::Moved { since: before }) => {
                self.changes.insert(key, Change::Moved { since: *before })
            }
            Some(Change::Added) => None,
        };
    }

    /// A unit that waited since then waits no longer.
    pub(super) fn remove(&mut self, key: UnitKey, since: Timestamp) {
        self.waiting.remove(&key);
        match self.changes.get(&key) {
            None => self.changes.insert(key, Change::Removed { since }),
            Some(Change::Added) => self.changes.remove(&key),
            Some(Change::Moved { since: before }) => self.changes.insert(key, Change::Removed { since: *before }),
            Some(Change::Removed { .. }) => None,
        };
    }

    /// What was added and removed since this was last called. A unit that changed its place is in both.
    pub(super) fn take_changes(&mut self) -> (Vec<UnitKey>, Vec<UnitKey>) {
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        for (key, change) in std::mem::take(&mut self.changes) {
            match change {
                Change::Added => added.push(key),
                Change::Removed { .. } => removed.push(key),
                Change::Moved { .. } => {
                    removed.push(key);
                    added.push(key);
                }
            }
        }
        (added, removed)
    }
}
