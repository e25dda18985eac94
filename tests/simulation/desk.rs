//! Where the answer of a call goes: into the journal, and what should not have been answered among its faults.

use crate::{
    coverage::Fault,
    journal::Journal,
    world::{Shared, ready},
};
use orbit::domain::Timestamp;
use orbit::engine::{Error, Standing};
use orbit::store::{MemoryStore, Pool, SessionRow, Store};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// How late a parked call may hear of what it waits for, although the news of it were lost.
const PATIENCE: Duration = Duration::from_millis(2_500);

/// A command that is under way, and where its answer goes.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) shared: Arc<Mutex<Shared>>,
    pub(crate) flight: u64,
}

impl Desk {
    pub(crate) fn journal(&self, write: impl FnOnce(&mut Journal)) {
        write(&mut self.shared.lock().unwrap().journal);
    }

    /// Whether anything went wrong with the node meanwhile.
    pub(crate) fn was_disturbed(&self) -> bool {
        self.shared.lock().unwrap().happened_since(self.flight, &Fault::ALL)
    }

    /// A wait was answered: soon after the close, if nothing disturbed it.
    pub(crate) fn waited(&self, standing: &Standing, begin: Timestamp, now: Timestamp) {
        let Some(closed) = standing.row.close_time.filter(|_| !self.was_disturbed()) else { return };
        let late = now.since(closed.max(begin));
        if late > PATIENCE {
            self.journal(|journal| journal.faults.push(format!("a wait was answered {late:?} after the close")));
        }
    }

    /// A poll brought nothing: then nothing was there for it, if it waited long enough and nothing disturbed it.
    pub(crate) fn polled_nothing(&self, memory: &MemoryStore, asked: &SessionRow, waited: Duration, now: Timestamp) {
        // One that was taken back serves other pools, which a node that was not asked for it hears of seconds later.
        let is_first = ready(memory.session(asked.id)).unwrap().is_some_and(|row| row.connection == 1);
        if !is_first || waited < PATIENCE || self.was_disturbed() {
            return;
        }
        for pool in pools_of(asked) {
            for left in ready(memory.ready(&pool, 10)).unwrap() {
                let waits = now.since(left.unit.ready_time);
                if waits > PATIENCE {
                    let what = format!("{left:?} has waited for {waits:?}, and a poll for it found nothing");
                    self.journal(|journal| journal.faults.push(what));
                }
            }
        }
    }

    /// Takes note of an error: a store that failed excuses itself, and so does another node that was first again and
    /// again; a refusal must be one of those that may be.
    pub(crate) fn error(&self, error: &Error, is_expected: bool) {
        let mut shared = self.shared.lock().unwrap();
        let is_excused = match error {
            Error::Store(_) => shared.happened_since(self.flight, &Fault::OF_STORE),
            Error::WriteConflict => shared.happened_since(self.flight, &[Fault::Conflict]),
            _ => false,
        };
        if !is_expected && !is_excused {
            shared.journal.faults.push(format!("unexpected answer: {error:?}"));
        }
    }
}

/// The pools that a session serves.
pub(crate) fn pools_of(row: &SessionRow) -> Vec<Pool> {
    let mut pools = Vec::new();
    for queue in &row.queues {
        for contract in &row.contracts {
            for language in ["".into(), row.language.clone()] {
                pools.push(Pool { queue: queue.clone(), contract: contract.clone(), language });
            }
        }
    }
    pools
}
