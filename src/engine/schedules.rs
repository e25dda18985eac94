//! Starts executions when schedules say so.
//!
//! - What a schedule does is decided by its rules (`domain::schedule`) from its row, and written with the row, the rows of the
//!   ledger and the first rows of what starts in one transaction. The fence is the version of the row: whoever has decided on an
//!   older one, on whichever node and however late, writes nothing. So there is no claim, no lease and nothing to clean up after a
//!   crash: what was not written is decided again.
//! - Callers' changes go the same way. Once one is answered, nothing of what was before it can be written.
//! - What is due is found by an index, many at once, and decided and written together. Which node looks first is a matter of
//!   hashing, and never one of being right.
//! - One schedule that cannot be used is marked in its row with why, and keeps no other from its turn.
//!
//! # Ends of executions
//! Where an execution of a schedule closes, the schedule is looked at ([`Schedules::ended`]), since a slot may wait for it. That
//! hint may be lost with its node; whoever waits is looked at again every few seconds.

mod begin;
mod change;
mod fire;
mod progress;
mod record;
mod run;

pub use change::{BackfillSpan, Etag, NewSchedule, Patch};
pub use progress::{Progress, Run};
pub use record::Viewed;
pub(super) use run::run;

use crate::domain::State;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;

/// Hints that may wait; what is beyond is found later.
const HINTS_MAX: usize = 10_000;

/// What this node knows of schedules beside the store.
#[derive(Default)]
pub(super) struct Schedules {
    /// Ids of schedules of which an execution has ended.
    ended: Mutex<BTreeSet<Arc<str>>>,
    changed: Notify,
}

impl Schedules {
    fn hints(&self) -> MutexGuard<'_, BTreeSet<Arc<str>>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An execution has closed: if a schedule started it, that one is looked at.
    pub(super) fn ended(&self, state: &State) {
        let Some(id) = state.labels().get(crate::wire::schedule::LABEL) else { return };
        let mut hints = self.hints();
        if hints.len() < HINTS_MAX {
            hints.insert(Arc::from(id.as_str()));
        }
        drop(hints);
        self.changed.notify_one();
    }

    /// A schedule was written here: the next one may be due earlier than was known.
    fn written(&self) {
        self.changed.notify_one();
    }

    /// Takes hints, at most so many; the rest has its turn at once.
    fn take_hints(&self, most: usize) -> Vec<Arc<str>> {
        let mut hints = self.hints();
        let taken: Vec<Arc<str>> = std::iter::from_fn(|| hints.pop_first()).take(most).collect();
        if !hints.is_empty() {
            self.changed.notify_one();
        }
        taken
    }
}
