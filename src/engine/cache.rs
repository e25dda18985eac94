//! The executions that are hot: mailboxes, and states bounded in bytes.
//!
//! Nothing is loaded to start, and nothing here is needed: another process finds the rows. Closed executions leave at
//! once, sleeping ones are evicted first, then those not used for longest. Mailboxes are gone when idle.

use super::mailbox::Mailbox;
use crate::store::ExecutionKey;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// How an execution ranks for eviction: lower goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Warmth {
    /// Nothing is out and nothing waits for a worker: it sleeps or awaits.
    Sleeping,
    /// Something is under way.
    Active,
}

struct Entry {
    mailbox: Arc<Mailbox>,
    /// Rank and size of its cached state; absent while it has none.
    rank: Option<(Warmth, u64)>,
    bytes: usize,
    /// Public id, while it has a state.
    id: Option<Arc<str>>,
}

#[derive(Default)]
struct Entries {
    by_key: HashMap<ExecutionKey, Entry>,
    by_id: HashMap<Arc<str>, ExecutionKey>,
    order: BTreeMap<(Warmth, u64), ExecutionKey>,
    bytes: usize,
    tick: u64,
}

/// All mailboxes of this node.
pub(super) struct Cache {
    entries: Mutex<Entries>,
    bytes_max: usize,
}

impl Cache {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { entries: Mutex::default(), bytes_max }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mailbox of an execution, made if there is none.
    pub(super) fn mailbox(&self, key: ExecutionKey) -> Arc<Mailbox> {
        self.lock()
            .by_key
            .entry(key)
            .or_insert_with(|| Entry { mailbox: Arc::new(Mailbox::new(key)), rank: None, bytes: 0, id: None })
            .mailbox
            .clone()
    }

    /// The key of a hot execution by its public id.
    pub(super) fn key_of(&self, id: &str) -> Option<ExecutionKey> {
        self.lock().by_id.get(id).copied()
    }

    /// Takes note that a mailbox now holds a state of this size, and makes room for it.
    pub(super) fn keep(&self, key: ExecutionKey, id: &Arc<str>, bytes: usize, warmth: Warmth) {
        let evicted = {
            let mut entries = self.lock();
            entries.tick += 1;
            let rank = (warmth, entries.tick);
            let Some(entry) = entries.by_key.get_mut(&key) else { return };
            let (old_rank, old_bytes) = (entry.rank.replace(rank), std::mem::replace(&mut entry.bytes, bytes));
            entry.id = Some(id.clone());
            if let Some(old) = old_rank {
                entries.order.remove(&old);
            } else {
                entries.by_id.insert(id.clone(), key);
            }
            entries.order.insert(rank, key);
            entries.bytes = entries.bytes - old_bytes + bytes;
            entries.make_room(self.bytes_max)
        };
        for mailbox in evicted {
            mailbox.evict();
            self.forget_if_idle(&mailbox);
        }
    }

    /// Takes note that a mailbox holds no state any more.
    pub(super) fn drop_state(&self, key: ExecutionKey) {
        let mut entries = self.lock();
        if let Some(rank) = entries.by_key.get(&key).and_then(|entry| entry.rank) {
            entries.order.remove(&rank);
            entries.take_state(key);
        }
    }

    /// Forgets a mailbox that is idle, has no state, and that nobody else holds.
    pub(super) fn forget_if_idle(&self, mailbox: &Arc<Mailbox>) {
        let mut entries = self.lock();
        let is_unused = entries.by_key.get(&mailbox.key()).is_some_and(|entry| {
            // Two: the map's own and the caller's. Under this lock nobody can take another from the map.
            entry.rank.is_none() && Arc::strong_count(&entry.mailbox) <= 2 && mailbox.is_idle()
        });
        if is_unused {
            entries.by_key.remove(&mailbox.key());
        }
    }

    /// Mailboxes and bytes of states: for metrics.
    pub(super) fn sizes(&self) -> (usize, usize) {
        let entries = self.lock();
        (entries.by_key.len(), entries.bytes)
    }
}

impl Entries {
    fn make_room(&mut self, bytes_max: usize) -> Vec<Arc<Mailbox>> {
        let mut evicted = Vec::new();
        // The newest stays, however large it is: it is in use.
        while self.bytes > bytes_max && self.order.len() > 1 {
            let Some((_, key)) = self.order.pop_first() else { break };
            evicted.push(self.take_state(key));
        }
        evicted
    }

    fn take_state(&mut self, key: ExecutionKey) -> Arc<Mailbox> {
        let entry = self.by_key.get_mut(&key).expect("what is ordered is there");
        entry.rank = None;
        self.bytes -= std::mem::take(&mut entry.bytes);
        if let Some(id) = entry.id.take()
            && self.by_id.get(&id) == Some(&key)
        {
            self.by_id.remove(&id);
        }
        entry.mailbox.clone()
    }
}
