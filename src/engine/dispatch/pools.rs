//! The pools of waiting units that this node knows of, and who waits for them.

use super::{
    Place,
    waiter::{Parked, Reservation, Waiter, WaiterId},
};
use crate::domain::{Claimant, SessionId, Timestamp};
use crate::engine::{call::Task, membership::Membership};
use crate::store::{ExecutionKey, Pool, ReadyRow, ReadyUnit};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{Notify, mpsc};

/// Rows of a pool that are kept in memory.
pub(super) const WINDOW_LENGTH: usize = 256;
/// Units that are handed out after a read of their pool before news of other nodes makes it be read again.
const FRESH_HANDS: u32 = 32;
/// Most credits that a waiter can have.
const CREDITS_MAX: u32 = 10_000;

/// What this node knows of one pool.
#[derive(Default)]
struct Shelf {
    /// The first rows, in order.
    window: BTreeSet<Place>,
    /// Whether the window holds all rows of the pool.
    is_complete: bool,
    /// Whether the store is being asked; then new rows are kept in `arrivals` until its answer comes.
    is_loading: bool,
    arrivals: Vec<Place>,
    /// Whether a unit was seen in the store while it was being asked: its answer may be older than that.
    is_doubted: bool,
    /// Executions in the window that another node has changed since it was read: their units may be taken.
    suspects: HashSet<ExecutionKey>,
    /// How many more units are handed out whether suspect or not.
    fresh_hands: u32,
    /// Rows whose dispatch is under way.
    taken: HashSet<(ExecutionKey, Arc<str>)>,
    /// Who may have credits, in turn; entries of waiters without any are dropped when met.
    waiting: VecDeque<WaiterId>,
    /// Waiters that serve the pool; without any it is forgotten.
    users: usize,
}

#[derive(Default)]
struct Pools {
    shelves: BTreeMap<Pool, Shelf>,
    waiters: HashMap<WaiterId, Waiter>,
    next_waiter: WaiterId,
    /// Pools where something may be done now.
    dirty: VecDeque<Pool>,
    is_dirty: HashSet<Pool>,
}

/// What the matcher does next.
pub(in crate::engine) enum Step {
    /// Ask the store for the first `limit` rows of a pool, then call [`Dispatch::loaded`].
    Load {
        /// The pool.
        pool: Pool,
        /// The window, and as many as are being dispatched already.
        limit: usize,
    },
    /// Dispatch a unit, then call [`Dispatch::settled`].
    Hand {
        /// Its pool.
        pool: Pool,
        /// Its execution.
        execution: ExecutionKey,
        /// The unit.
        unit: Arc<str>,
        /// Who gets it.
        reservation: Reservation,
    },
    /// Nothing; wait for [`Dispatch::changed`].
    Rest,
}

/// All pools and waiters of this node.
pub(in crate::engine) struct Dispatch {
    members: Arc<Membership>,
    pools: Mutex<Pools>,
    changed: Notify,
    unsent: mpsc::UnboundedSender<Task>,
}

impl Dispatch {
    /// Tasks that never left the server come out of the second value; their deliveries must be ended.
    pub(in crate::engine) fn new(members: Arc<Membership>) -> (Arc<Self>, mpsc::UnboundedReceiver<Task>) {
        let (unsent, returned) = mpsc::unbounded_channel();
        (Arc::new(Self { members, pools: Mutex::default(), changed: Notify::new(), unsent }), returned)
    }

    fn lock(&self) -> MutexGuard<'_, Pools> {
        // Nothing that runs under the lock leaves it half changed in a way that hints do not bear.
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Parks a worker that serves these pools. It has no credits yet.
    pub(in crate::engine) fn park(self: &Arc<Self>, claimant: Claimant, pools: Vec<Pool>) -> Parked {
        let (sender, tasks) = mpsc::unbounded_channel();
        let mut all = self.lock();
        let id = all.next_waiter;
        all.next_waiter += 1;
        for pool in &pools {
            all.shelves.entry(pool.clone()).or_default().users += 1;
        }
        all.waiters.insert(id, Waiter { claimant, pools, credits: 0, reserved: 0, tasks: sender });
        Parked { dispatch: self.clone(), id, tasks, has_left: false }
    }

    pub(super) fn grant(&self, id: WaiterId, count: u32) {
        let mut all = self.lock();
        all.add_credits(id, count);
        drop(all);
        self.changed.notify_one();
    }

    /// Waits until [`Dispatch::step`] may have something to do.
    pub(in crate::engine) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Reserves a waiter for a unit that has just become ready, if the hand-off passes nothing.
    pub(in crate::engine) fn reserve(self: &Arc<Self>, unit: &ReadyUnit) -> Option<Reservation> {
        let pool = Pool { queue: unit.queue.clone(), contract: unit.contract.clone(), language: unit.language.clone() };
        let mut all = self.lock();
        let shelf = all.shelves.get(&pool)?;
        if !shelf.is_complete || shelf.is_loading || !shelf.window.is_empty() {
            return None;
        }
        let id = all.next_waiting(&pool, |all, waiter| all.passes_nothing(waiter, unit.priority, unit.ready_time))?;
        Some(self.reservation(&mut all, id))
    }

    /// A unit waits, by a commit that is durable. Says whether a worker that waits here is free to take it.
    pub(in crate::engine) fn added(&self, execution: ExecutionKey, unit: &ReadyUnit) -> bool {
        let pool = Pool { queue: unit.queue.clone(), contract: unit.contract.clone(), language: unit.language.clone() };
        let place = Place::of(execution, unit, &self.members.live());
        let mut all = self.lock();
        // A pool that nobody has asked for yet is read from the store once somebody does.
        let Some(shelf) = all.shelves.get_mut(&pool) else { return false };
        if shelf.is_loading {
            shelf.arrivals.push(place);
        } else {
            shelf.keep(place);
            all.touch(&pool);
        }
        let is_wanted = all.has_credits_for_window(&pool);
        drop(all);
        self.changed.notify_one();
        is_wanted
    }

    /// What to do next.
    pub(in crate::engine) fn step(self: &Arc<Self>) -> Step {
        let mut all = self.lock();
        while let Some(pool) = all.dirty.pop_front() {
            all.is_dirty.remove(&pool);
            let Some(id) = all.next_waiting(&pool, |_, _| true) else { continue };
            // The most urgent row of all that this waiter serves, which must be known for that.
            let served = all.waiters[&id].pools.clone();
            let unknown = served.iter().find(|pool| {
                let shelf = &all.shelves[*pool];
                shelf.window.is_empty() && !shelf.is_complete
            });
            if let Some(unknown) = unknown.cloned() {
                let shelf = all.shelves.get_mut(&unknown).expect("a waiter's pools have shelves");
                if shelf.is_loading || shelf.taken.len() >= WINDOW_LENGTH {
                    // The store's answer, or the outcome of a dispatch, makes the waiter's pools dirty again.
                    continue;
                }
                shelf.is_loading = true;
                shelf.suspects.clear();
                let limit = WINDOW_LENGTH + shelf.taken.len();
                return Step::Load { pool: unknown, limit };
            }
            let best = served.iter().filter_map(|pool| Some((all.shelves[pool].window.first()?, pool))).min();
            let Some((place, from)) = best else { continue };
            let (place, from) = (place.clone(), from.clone());
            let shelf = all.shelves.get_mut(&from).expect("a waiter's pools have shelves");
            if let Some(limit) = shelf.begin_again(&place) {
                return Step::Load { pool: from, limit };
            }
            shelf.window.remove(&place);
            shelf.taken.insert((place.execution, place.unit.clone()));
            all.touch(&pool);
            all.touch(&from);
            let reservation = self.reservation(&mut all, id);
            return Step::Hand { pool: from, execution: place.execution, unit: place.unit, reservation };
        }
        Step::Rest
    }

    /// The first rows of a pool, from the store; or nothing if it did not answer.
    pub(in crate::engine) fn loaded(&self, pool: &Pool, limit: usize, rows: Option<&[ReadyRow]>) {
        let live = self.members.live();
        let mut all = self.lock();
        let shelf = all.shelves.get_mut(pool).expect("a pool that is loaded has a shelf");
        shelf.is_loading = false;
        shelf.fresh_hands = FRESH_HANDS;
        let was_doubted = std::mem::take(&mut shelf.is_doubted);
        let arrivals = std::mem::take(&mut shelf.arrivals);
        if let Some(rows) = rows {
            shelf.is_complete = rows.len() < limit && !was_doubted;
            for row in rows {
                let place = Place::of(row.execution, &row.unit, &live);
                if !shelf.taken.contains(&(place.execution, place.unit.clone())) {
                    shelf.window.insert(place);
                }
            }
        }
        for place in arrivals {
            if !shelf.taken.contains(&(place.execution, place.unit.clone())) {
                shelf.keep(place);
            }
        }
        all.touch_neighbours(pool);
        all.forget_if_unused(pool);
        drop(all);
        self.changed.notify_one();
    }

    /// A dispatch has its outcome. Where it failed for no fault of the unit's, the pool is read again.
    pub(in crate::engine) fn settled(&self, pool: &Pool, execution: ExecutionKey, unit: &Arc<str>, is_decided: bool) {
        let mut all = self.lock();
        // A unit that came back while it was being handed out may be taken twice; with the first outcome, and nobody
        // waiting, the pool is forgotten.
        let Some(shelf) = all.shelves.get_mut(pool) else { return };
        shelf.taken.remove(&(execution, unit.clone()));
        shelf.is_complete &= is_decided;
        all.touch_neighbours(pool);
        all.forget_if_unused(pool);
        drop(all);
        self.changed.notify_one();
    }

    /// Looks again at every pool that somebody waits for: finds what a lost hint left behind.
    pub(in crate::engine) fn rescan(&self) {
        let mut all = self.lock();
        let waited: Vec<Pool> = all
            .shelves
            .iter()
            .filter(|(_, shelf)| !shelf.waiting.is_empty() && shelf.window.is_empty())
            .map(|(pool, _)| pool.clone())
            .collect();
        for pool in waited {
            all.shelves.get_mut(&pool).expect("it was just seen").is_complete = false;
            all.touch(&pool);
        }
        drop(all);
        self.changed.notify_one();
    }

    /// The pools that a worker is free for and that are not known to have a unit: all, or those of some queues, which
    /// are known to have more than this node's windows.
    pub(in crate::engine) fn waited_for(&self, queues: Option<&BTreeSet<Arc<str>>>) -> Vec<Pool> {
        let mut all = self.lock();
        let Pools { shelves, waiters, .. } = &mut *all;
        let mut waited = Vec::new();
        for (pool, shelf) in shelves {
            if let Some(queues) = queues {
                if !queues.contains(&pool.queue) {
                    continue;
                }
                // Once the window is worked off, the pool is read again.
                shelf.is_complete &= shelf.window.is_empty();
            }
            let is_free = |id: &WaiterId| waiters.get(id).is_some_and(|waiter| waiter.credits > 0);
            if shelf.window.is_empty() && shelf.waiting.iter().any(is_free) {
                waited.push(pool.clone());
            }
        }
        waited
    }

    /// Other nodes have changed these executions: what is known of their waiting units is in doubt.
    pub(in crate::engine) fn doubt(&self, changed: &BTreeMap<ExecutionKey, u64>) {
        let mut all = self.lock();
        for shelf in all.shelves.values_mut() {
            if shelf.is_loading {
                shelf.suspects.extend(changed.keys());
            } else {
                let places = shelf.window.iter().map(|place| place.execution);
                shelf.suspects.extend(places.filter(|execution| changed.contains_key(execution)));
            }
        }
    }

    /// The store has a unit in this pool: it is read, unless what is read already shows one.
    pub(in crate::engine) fn found(&self, pool: &Pool) {
        let mut all = self.lock();
        let Some(shelf) = all.shelves.get_mut(pool) else { return };
        if shelf.is_loading {
            shelf.is_doubted = true;
        } else if shelf.window.is_empty() {
            shelf.is_complete = false;
            all.touch(pool);
        }
        drop(all);
        self.changed.notify_one();
    }

    pub(super) fn deliver(&self, id: WaiterId, task: Task) -> Result<(), Box<Task>> {
        let mut all = self.lock();
        let Some(waiter) = all.waiters.get_mut(&id) else { return Err(Box::new(task)) };
        waiter.reserved -= 1;
        let sent = waiter.tasks.send(task).map_err(|refused| Box::new(refused.0));
        all.forget_if_done(id);
        sent
    }

    pub(super) fn give_back(&self, id: WaiterId) {
        let mut all = self.lock();
        if let Some(waiter) = all.waiters.get_mut(&id) {
            waiter.reserved -= 1;
            let is_closing = waiter.is_closing();
            if is_closing {
                all.forget_if_done(id);
            } else {
                all.add_credits(id, 1);
            }
        }
        drop(all);
        self.changed.notify_one();
    }

    pub(super) fn close(&self, id: WaiterId) {
        let mut all = self.lock();
        all.withdraw(id);
        all.forget_if_done(id);
    }

    pub(super) fn remove(&self, id: WaiterId) {
        let mut all = self.lock();
        all.withdraw(id);
        all.waiters.remove(&id);
    }

    pub(super) fn return_unsent(&self, tasks: Vec<Task>) {
        for task in tasks {
            // The other end is the engine's; without it nothing can be dispatched anyway.
            let _ = self.unsent.send(task);
        }
    }

    fn reservation(self: &Arc<Self>, all: &mut Pools, id: WaiterId) -> Reservation {
        let waiter = all.waiters.get_mut(&id).expect("it was just found");
        waiter.credits -= 1;
        waiter.reserved += 1;
        Reservation { dispatch: self.clone(), waiter: id, claimant: waiter.claimant.clone(), is_open: true }
    }

    #[cfg(test)]
    pub(in crate::engine) fn known_pools(&self) -> usize {
        self.lock().shelves.len()
    }

    /// The sessions that could take a task at once.
    pub(in crate::engine) fn asking(&self) -> BTreeSet<SessionId> {
        let all = self.lock();
        let free = all.waiters.values().filter(|waiter| waiter.credits > 0);
        free.map(|waiter| waiter.claimant.session_id).collect()
    }

    /// How many polls and streams wait, and how many rows the windows hold: for metrics.
    pub(in crate::engine) fn sizes(&self) -> (usize, usize) {
        let all = self.lock();
        (all.waiters.len(), all.shelves.values().map(|shelf| shelf.window.len()).sum())
    }
}

impl Waiter {
    /// Whether it takes no further tasks than those under way.
    fn is_closing(&self) -> bool {
        self.pools.is_empty()
    }
}

impl Shelf {
    /// Empties the window to be read again, if the unit that is next has most likely been taken by another node. Says how
    /// many rows to ask for.
    fn begin_again(&mut self, next: &Place) -> Option<usize> {
        let is_likely = self.fresh_hands == 0 && self.suspects.contains(&next.execution);
        if !is_likely || self.is_loading || self.taken.len() >= WINDOW_LENGTH {
            self.fresh_hands = self.fresh_hands.saturating_sub(1);
            return None;
        }
        self.window.clear();
        self.suspects.clear();
        (self.is_complete, self.is_loading) = (false, true);
        Some(WINDOW_LENGTH + self.taken.len())
    }

    /// Takes in a row that is known to be in the store.
    fn keep(&mut self, place: Place) {
        // Beyond the last row of a part of the pool, a row is found by the next load.
        let is_inside = self.is_complete || self.window.last().is_some_and(|last| place < *last);
        if is_inside {
            self.window.insert(place);
        }
        if self.window.len() > WINDOW_LENGTH {
            self.window.pop_last();
            self.is_complete = false;
        }
    }
}

impl Pools {
    fn add_credits(&mut self, id: WaiterId, count: u32) {
        let Some(waiter) = self.waiters.get_mut(&id) else { return };
        let was_idle = waiter.credits == 0;
        waiter.credits = waiter.credits.saturating_add(count).min(CREDITS_MAX);
        if !was_idle || waiter.credits == 0 {
            return;
        }
        for pool in waiter.pools.clone() {
            let shelf = self.shelves.get_mut(&pool).expect("a waiter's pools have shelves");
            if !shelf.waiting.contains(&id) {
                shelf.waiting.push_back(id);
            }
            if !shelf.window.is_empty() || !shelf.is_complete {
                self.touch(&pool);
            }
        }
    }

    /// The next waiter of a pool that has credits and is right for it; it goes to the end of the turn.
    fn next_waiting(&mut self, pool: &Pool, is_right: impl Fn(&Self, &Waiter) -> bool) -> Option<WaiterId> {
        let mut tries = self.shelves.get(pool)?.waiting.len();
        while tries > 0 {
            tries -= 1;
            let id = self.shelves.get_mut(pool)?.waiting.pop_front()?;
            let Some(waiter) = self.waiters.get(&id) else { continue };
            if waiter.credits == 0 {
                continue;
            }
            let found = is_right(self, waiter);
            self.shelves.get_mut(pool)?.waiting.push_back(id);
            if found {
                return Some(id);
            }
        }
        None
    }

    /// Whether no pool of this waiter has a row that goes before (`priority`, `since`).
    fn passes_nothing(&self, waiter: &Waiter, priority: u8, since: Timestamp) -> bool {
        waiter.pools.iter().all(|pool| {
            self.shelves[pool].window.first().is_none_or(|first| (first.priority, first.since) > (priority, since))
        })
    }

    /// Whether those who wait for a pool can take all that its window has.
    fn has_credits_for_window(&self, pool: &Pool) -> bool {
        let Some(shelf) = self.shelves.get(pool) else { return false };
        let mut missing = (shelf.window.len() + shelf.arrivals.len()).max(1);
        shelf.waiting.iter().filter_map(|id| self.waiters.get(id)).any(|waiter| {
            missing = missing.saturating_sub(waiter.credits as usize);
            missing == 0
        })
    }

    fn touch(&mut self, pool: &Pool) {
        if self.is_dirty.insert(pool.clone()) {
            self.dirty.push_back(pool.clone());
        }
    }

    /// Makes dirty every pool whose waiters also serve this one: they may have waited for its rows to be known.
    fn touch_neighbours(&mut self, pool: &Pool) {
        let ids: Vec<WaiterId> = self.shelves[pool].waiting.iter().copied().collect();
        let mut served: BTreeSet<Pool> = BTreeSet::from([pool.clone()]);
        for id in ids {
            if let Some(waiter) = self.waiters.get(&id) {
                served.extend(waiter.pools.iter().cloned());
            }
        }
        for pool in served {
            self.touch(&pool);
        }
    }

    /// Takes a waiter out of its pools; what is reserved for it may still come.
    fn withdraw(&mut self, id: WaiterId) {
        let Some(waiter) = self.waiters.get_mut(&id) else { return };
        waiter.credits = 0;
        for pool in std::mem::take(&mut waiter.pools) {
            let shelf = self.shelves.get_mut(&pool).expect("a waiter's pools have shelves");
            shelf.waiting.retain(|waiting| *waiting != id);
            shelf.users -= 1;
            self.forget_if_unused(&pool);
        }
    }

    fn forget_if_unused(&mut self, pool: &Pool) {
        if self.shelves.get(pool).is_some_and(|shelf| shelf.users == 0 && !shelf.is_loading && shelf.taken.is_empty()) {
            self.shelves.remove(pool);
        }
    }

    fn forget_if_done(&mut self, id: WaiterId) {
        if self.waiters.get(&id).is_some_and(|waiter| waiter.is_closing() && waiter.reserved == 0) {
            self.waiters.remove(&id);
        }
    }
}
