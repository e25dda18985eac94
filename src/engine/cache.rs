//! The executions that are hot: mailboxes, and states bounded in bytes.
//!
//! Nothing is loaded to start, and nothing here is needed: another process finds the rows. Closed executions leave at
//! once, sleeping ones are evicted first and have a quarter of the room, then those not used for longest. Mailboxes are
//! gone when idle.

use super::mailbox::{Item, Mailbox, Progress};
use crate::domain::Uid;
use crate::store::ExecutionKey;
use std::{
    collections::{BTreeMap, HashMap, btree_map},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

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
    /// Public id and uid, while it has a state.
    name: Option<(Arc<str>, Uid)>,
}

#[derive(Default)]
struct Entries {
    by_key: HashMap<ExecutionKey, Entry>,
    by_id: HashMap<Arc<str>, ExecutionKey>,
    /// How many watch each, if any.
    watched: BTreeMap<ExecutionKey, usize>,
    order: BTreeMap<(Warmth, u64), ExecutionKey>,
    bytes: usize,
    /// Of them, those of executions that sleep.
    sleeping_bytes: usize,
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

    /// The mailbox of an execution, made if there is none. Whoever takes it must [`release`](Self::release) it.
    pub(super) fn mailbox(&self, key: ExecutionKey) -> Arc<Mailbox> {
        self.lock().entry(key).mailbox.clone()
    }

    /// Puts an item into a mailbox. If the caller must start a turn, it gets the mailbox; the item comes back if there
    /// is no room.
    pub(super) fn put(&self, key: ExecutionKey, item: Item) -> Result<Option<Arc<Mailbox>>, Box<Item>> {
        let mut entries = self.lock();
        let mailbox = &entries.entry(key).mailbox;
        Ok(mailbox.put(item)?.then(|| mailbox.clone()))
    }

    /// Watches an execution's progress.
    pub(super) fn watch(&self, key: ExecutionKey) -> Watch<'_> {
        let mut entries = self.lock();
        *entries.watched.entry(key).or_default() += 1;
        let mailbox = entries.entry(key).mailbox.clone();
        Watch { cache: self, progress: Some(mailbox.watch()), mailbox: Some(mailbox) }
    }

    /// Executions that somebody watches: the first ones after `after`, in order.
    pub(super) fn watched(&self, after: Option<ExecutionKey>, limit: usize) -> Vec<ExecutionKey> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.lock().watched.range((from, Bound::Unbounded)).take(limit).map(|(key, _)| *key).collect()
    }

    /// Another node is said to have written the event of this number. Whoever watches looks for it, and the next turn
    /// reads it before it decides; of an execution that this node does not have in memory nothing is kept.
    pub(super) fn heard(&self, key: ExecutionKey, number: u64) {
        if let Some(entry) = self.lock().by_key.get(&key) {
            entry.mailbox.hear(number);
        }
    }

    /// The key of a hot execution by its public id, and only that of this uid, if one is given. Where other nodes write,
    /// an id alone may have passed to another one if this one has been closed since.
    pub(super) fn key_of(&self, id: &str, uid: Option<Uid>) -> Option<ExecutionKey> {
        let entries = self.lock();
        let key = *entries.by_id.get(id)?;
        let (_, found) = entries.by_key.get(&key)?.name.as_ref()?;
        uid.is_none_or(|uid| uid == *found).then_some(key)
    }

    /// Takes note that a mailbox now holds a state of this size, and makes room for it. It is found by its id and uid, if
    /// they are given.
    pub(super) fn keep(&self, key: ExecutionKey, name: Option<(&Arc<str>, Uid)>, bytes: usize, warmth: Warmth) {
        let evicted = {
            let mut entries = self.lock();
            entries.tick += 1;
            let rank = (warmth, entries.tick);
            let Some(entry) = entries.by_key.get_mut(&key) else { return };
            let (old_rank, old_bytes) = (entry.rank.replace(rank), std::mem::replace(&mut entry.bytes, bytes));
            let is_found = entry.name.as_ref().map(|(id, uid)| (id, *uid)) == name;
            let old_name = if is_found { None } else { entry.name.take() };
            entries.count_out(old_rank, old_bytes);
            entries.count_in(rank, bytes);
            if let Some(old) = old_rank {
                entries.order.remove(&old);
            }
            if !is_found {
                entries.forget_name(key, old_name);
                entries.take_name(key, name);
            }
            entries.order.insert(rank, key);
            entries.make_room(self.bytes_max)
        };
        for mailbox in evicted {
            mailbox.evict();
            self.release(mailbox);
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

    /// Gives a mailbox back; if it is idle, has no state, and nobody else holds it, it is forgotten.
    pub(super) fn release(&self, mailbox: Arc<Mailbox>) {
        let mut entries = self.lock();
        let key = mailbox.key();
        // Handles are dropped under the lock, so that of two that are given back at once the second sees itself alone.
        drop(mailbox);
        let is_unused = entries.by_key.get(&key).is_some_and(|entry| {
            entry.rank.is_none() && Arc::strong_count(&entry.mailbox) == 1 && entry.mailbox.is_idle()
        });
        if is_unused {
            entries.by_key.remove(&key);
        }
    }

    /// Mailboxes and bytes of states: for metrics.
    pub(super) fn sizes(&self) -> (usize, usize) {
        let entries = self.lock();
        (entries.by_key.len(), entries.bytes)
    }
}

/// Somebody who watches an execution; the mailbox stays as long.
pub(super) struct Watch<'a> {
    cache: &'a Cache,
    // Taken when it ends.
    progress: Option<watch::Receiver<Progress>>,
    mailbox: Option<Arc<Mailbox>>,
}

impl Watch<'_> {
    /// The mailbox.
    pub(super) fn mailbox(&self) -> &Mailbox {
        self.mailbox.as_ref().expect("it is there until the end")
    }

    /// How far the execution has come.
    pub(super) fn progress(&mut self) -> &mut watch::Receiver<Progress> {
        self.progress.as_mut().expect("it is there until the end")
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.progress = None;
        let Some(mailbox) = self.mailbox.take() else { return };
        self.cache.lock().unwatch(mailbox.key());
        self.cache.release(mailbox);
    }
}

impl Entries {
    fn entry(&mut self, key: ExecutionKey) -> &mut Entry {
        self.by_key.entry(key).or_insert_with(|| Entry {
            mailbox: Arc::new(Mailbox::new(key)),
            rank: None,
            bytes: 0,
            name: None,
        })
    }

    fn unwatch(&mut self, key: ExecutionKey) {
        if let btree_map::Entry::Occupied(mut count) = self.watched.entry(key) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    fn make_room(&mut self, bytes_max: usize) -> Vec<Arc<Mailbox>> {
        let mut evicted = Vec::new();
        // The newest stays, however large it is: it is in use.
        while (self.bytes > bytes_max || self.sleeping_bytes > bytes_max / 4) && self.order.len() > 1 {
            let Some((_, key)) = self.order.pop_first() else { break };
            evicted.push(self.take_state(key));
        }
        evicted
    }

    fn count_in(&mut self, (warmth, _): (Warmth, u64), bytes: usize) {
        self.bytes += bytes;
        if warmth == Warmth::Sleeping {
            self.sleeping_bytes += bytes;
        }
    }

    fn count_out(&mut self, rank: Option<(Warmth, u64)>, bytes: usize) {
        self.bytes -= bytes;
        if matches!(rank, Some((Warmth::Sleeping, _))) {
            self.sleeping_bytes -= bytes;
        }
    }

    fn take_state(&mut self, key: ExecutionKey) -> Arc<Mailbox> {
        let entry = self.by_key.get_mut(&key).expect("what is ordered is there");
        let (rank, bytes) = (entry.rank.take(), std::mem::take(&mut entry.bytes));
        let (name, mailbox) = (entry.name.take(), entry.mailbox.clone());
        self.count_out(rank, bytes);
        self.forget_name(key, name);
        mailbox
    }

    /// An execution is found by this name from now on.
    fn take_name(&mut self, key: ExecutionKey, name: Option<(&Arc<str>, Uid)>) {
        let Some((id, uid)) = name else { return };
        self.by_id.insert(id.clone(), key);
        if let Some(entry) = self.by_key.get_mut(&key) {
            entry.name = Some((id.clone(), uid));
        }
    }

    /// An id names this execution no more; unless it is another's by now, it names none.
    fn forget_name(&mut self, key: ExecutionKey, name: Option<(Arc<str>, Uid)>) {
        if let Some((id, _)) = name
            && self.by_id.get(&id) == Some(&key)
        {
            self.by_id.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps a state of so many bytes.
    fn keep(cache: &Cache, key: i64, bytes: usize, warmth: Warmth) {
        let key = ExecutionKey(key);
        drop(cache.mailbox(key));
        cache.keep(key, None, bytes, warmth);
    }

    #[test]
    fn those_that_sleep_have_a_quarter_of_the_room_and_leave_first() {
        let cache = Cache::new(1_000);
        for key in 0..10 {
            keep(&cache, key, 100, Warmth::Sleeping);
        }
        assert_eq!(cache.sizes(), (2, 200), "the newest two");
        for key in 10..18 {
            keep(&cache, key, 100, Warmth::Active);
        }
        assert_eq!(cache.sizes(), (10, 1_000));
        keep(&cache, 18, 100, Warmth::Active);
        keep(&cache, 19, 100, Warmth::Active);
        assert_eq!(cache.sizes(), (10, 1_000), "both that slept have left");
        keep(&cache, 10, 100, Warmth::Sleeping);
        let sleeping = || cache.lock().sleeping_bytes;
        assert_eq!(sleeping(), 100);
        cache.drop_state(ExecutionKey(10));
        assert_eq!(sleeping(), 0);
        assert_eq!(cache.sizes().1, 900);
    }
}
