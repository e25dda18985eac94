//! What is decided about a schedule: its new state, its ledger's rows, and when to decide again.

use super::{Ending, Slot, State};
use crate::domain::{ExecutionId, Timestamp};
use std::sync::Arc;

/// What the decision needs to know beyond the schedule and its state.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The time.
    pub now: Timestamp,
    /// How many of the schedule's runs are open, whatever started them.
    pub open_runs: u32,
    /// Why the schedule cannot start anything at present (its workflow is gone, its input does not fit): slots that
    /// would start fail to, and nothing else does.
    pub obstacle: Option<&'a str>,
}

/// What is to be done. All of it belongs into one transaction, and only if the state is still the one that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The new state.
    pub state: State,
    /// Rows of the ledger, oldest first: new ones, and new outcomes of a slot that waited. Each [`Outcome::Started`] is
    /// an execution that begins in the same transaction.
    pub entries: Vec<Entry>,
    /// What to ask of all open runs, as long as the state has it; asking twice does no harm.
    pub ending: Option<Ending>,
    /// When to decide again; not later than now if there is more to do at once. Beside that, a decision is due when
    /// a run of the schedule has ended. None: no time brings another slot.
    pub wake: Option<Timestamp>,
}

/// A row of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The slot, or the first of several in a row that went alike.
    pub slot: Slot,
    /// The nominal time of the last of them; the slot's own if it is one.
    pub last: Timestamp,
    /// How many.
    pub count: u64,
    /// When the slot may start at the earliest: its nominal time and the jitter. That of the first, if there are several.
    pub due: Timestamp,
    /// What became of it.
    pub outcome: Outcome,
}

impl Entry {
    /// The row of one slot.
    pub(super) const fn one(slot: Slot, due: Timestamp, outcome: Outcome) -> Self {
        let last = slot.nominal;
        Self { slot, last, count: 1, due, outcome }
    }
}

/// What became of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has started this execution.
    Started {
        /// The id, which follows from the schedule's uid and the slot.
        execution: ExecutionId,
    },
    /// It waits until the open runs have ended.
    Buffered,
    /// It never starts.
    Skipped(SkipReason),
    /// Its time had passed for longer than the catch-up window.
    Missed,
    /// It could not be started.
    Failed {
        /// Why, for people.
        reason: Arc<str>,
    },
}

/// Why a slot never starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// A run was open.
    Overlap,
    /// It waited, and a newer slot took its place.
    Superseded,
    /// The schedule was paused.
    Paused,
    /// The schedule's times were changed before it could start, or it waited and `max_actions` was lowered.
    Replaced,
}
