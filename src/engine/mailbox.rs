//! One execution's mailbox: what is asked of it waits here while a commit of it is in flight, and is then decided
//! together in one batch.
//!
//! - At most one turn of an execution runs at a time, in a task of its own: a dropped call never leaves half a change.
//! - A state that has been decided on but not committed is in the turn's hands only; if the commit fails it is dropped.

use super::cache::Warmth;
use super::call::{Error, Standing, Started};
use super::dispatch::Reservation;
use super::draft::Drafted;
use super::start::Begun;
use crate::domain::{Command, Outcome, State, Uid, Unit};
use crate::store::{ExecutionKey, ExecutionRow, Pool};
use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};

/// Commands that may wait for one execution; more are refused with `Overloaded`.
const QUEUE_LENGTH: usize = 10_000;
/// Items that are decided in one turn.
const BATCH_LENGTH: usize = 1_000;

/// What may be put into a mailbox.
pub(super) enum Item {
    /// A command, and where its answer goes. An execution that is not meant answers that it is not found.
    Command { command: Command, whose: Whose, answer: oneshot::Sender<Result<Outcome, Error>> },
    /// A command whose answer nobody needs.
    Tell(Command),
    /// Hand a waiting unit to a worker whose slot is reserved; the reservation is gone once it was decided on.
    Hand { pool: Pool, unit: Unit, reservation: Option<Reservation> },
    /// Time has passed. The permit bounds how many wake-ups are under way.
    Wake {
        #[expect(dead_code, reason = "it is held, not read")]
        permit: Option<OwnedSemaphorePermit>,
    },
    /// End the execution, if it is open, and put a new one in its place; nothing if it is closed or was changed meanwhile.
    Replace { begun: Box<Begun>, answer: oneshot::Sender<Result<Option<Started>, Error>> },
    /// Read the committed state; one that is open only if `even_open`, since that copies it.
    Read { even_open: bool, answer: oneshot::Sender<Result<Option<Standing>, Error>> },
}

/// Which execution a command means, beside that of its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Whose {
    /// That one.
    Any,
    /// Only if it has this uid: a key may be of another life of the database.
    Uid(Uid),
    /// Only while it is open, since it was found by an id that it has for certain only then.
    IfOpen,
}

impl Whose {
    /// Whether an execution is meant.
    pub(super) fn is(self, hot: &Hot) -> bool {
        match self {
            Self::Any => true,
            Self::Uid(uid) => uid == hot.row.uid,
            Self::IfOpen => !hot.state.is_closed(),
        }
    }
}

/// A state in memory, with what its next append must know of its rows.
pub(super) struct Hot {
    /// The row as it was last committed.
    pub(super) row: ExecutionRow,
    /// The state.
    pub(super) state: State,
    /// Bytes of events since the last snapshot.
    pub(super) tail_bytes: usize,
    /// Bytes of the last snapshot.
    pub(super) snapshot_bytes: usize,
}

impl Hot {
    /// Takes note of an append that was committed.
    pub(super) fn take_note(&mut self, drafted: &Drafted) {
        self.row.wake_time = drafted.wake_time;
        if let Some(change) = drafted.append.state {
            self.row.state = change.to;
            self.row.close_time = change.close_time;
        }
        if drafted.append.begins_run.is_some() {
            // It is read from here on.
            self.row.run = drafted.append.run;
            (self.tail_bytes, self.snapshot_bytes) = (0, 0);
        }
        match drafted.snapshot_bytes {
            Some(bytes) => (self.tail_bytes, self.snapshot_bytes) = (0, bytes),
            None => self.tail_bytes += drafted.append.events.len(),
        }
    }

    pub(super) fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.state.size_bytes()
    }

    pub(super) fn warmth(&self) -> Warmth {
        if self.state.deliveries_out() || self.state.waiting().next().is_some() {
            Warmth::Active
        } else {
            Warmth::Sleeping
        }
    }
}

/// How far an execution has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Progress {
    /// Number of the newest event that this node has committed or read; 0 until it has.
    pub(super) number: u64,
    /// Newest number that another node is said to have written and that was not looked for yet; 0 if there is none.
    pub(super) heard: u64,
    /// Whether it is closed.
    pub(super) is_closed: bool,
}

impl Progress {
    /// Whether another node is ahead of what this one knows.
    pub(super) fn is_behind(&self) -> bool {
        self.heard > self.number
    }
}

/// What can be said of an execution without waiting.
pub(super) enum Glance {
    /// It is closed, like this.
    Closed(Box<Standing>),
    /// It was open at the last commit that this node knows of.
    Open,
    /// This node does not have it in memory.
    Unknown,
}

#[derive(Default)]
struct Inner {
    queue: VecDeque<Item>,
    is_busy: bool,
    hot: Option<Box<Hot>>,
    closed: Option<Box<Standing>>,
}

pub(super) struct Mailbox {
    key: ExecutionKey,
    inner: Mutex<Inner>,
    progress: watch::Sender<Progress>,
}

impl Mailbox {
    pub(super) fn new(key: ExecutionKey) -> Self {
        Self { key, inner: Mutex::default(), progress: watch::Sender::default() }
    }

    pub(super) fn key(&self) -> ExecutionKey {
        self.key
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an item in. Says whether the caller must start a turn; the item comes back if the mailbox is full.
    pub(super) fn put(&self, item: Item) -> Result<bool, Box<Item>> {
        let mut inner = self.lock();
        if inner.queue.len() >= QUEUE_LENGTH {
            return Err(Box::new(item));
        }
        inner.queue.push_back(item);
        Ok(!std::mem::replace(&mut inner.is_busy, true))
    }

    /// Takes what waits and the state, for a turn; nothing if the turn is over.
    pub(super) fn begin(&self) -> Option<(Vec<Item>, Option<Box<Hot>>)> {
        let mut inner = self.lock();
        if inner.queue.is_empty() {
            inner.is_busy = false;
            return None;
        }
        let count = inner.queue.len().min(BATCH_LENGTH);
        let items = inner.queue.drain(..count).collect();
        Some((items, inner.hot.take()))
    }

    /// Ends a turn that cannot go on: what waits gets no answer, which its callers notice.
    pub(super) fn abandon(&self) {
        let abandoned = {
            let mut inner = self.lock();
            (inner.is_busy, inner.hot) = (false, None);
            std::mem::take(&mut inner.queue)
        };
        // Outside of the lock, since what is dropped gives slots back.
        drop(abandoned);
    }

    /// Puts back what a turn did not come to.
    pub(super) fn put_back(&self, items: Vec<Item>) {
        let mut inner = self.lock();
        for item in items.into_iter().rev() {
            inner.queue.push_front(item);
        }
    }

    /// Takes what somebody waits for an answer to.
    pub(super) fn take_asked(&self) -> Vec<Item> {
        let mut inner = self.lock();
        let (asked, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut inner.queue)
            .into_iter()
            .partition(|item| matches!(item, Item::Command { .. } | Item::Read { .. }));
        inner.queue = rest.into();
        asked
    }

    /// Gives back the state that is committed.
    pub(super) fn end(&self, hot: Box<Hot>) {
        self.lock().hot = Some(hot);
    }

    /// Takes the mailbox for what a commit of its own made; fails if a turn runs, or if somebody has come further.
    pub(super) fn occupy_at(&self, number: u64) -> bool {
        let mut inner = self.lock();
        let is_taken = inner.is_busy || inner.hot.is_some() || self.progress.borrow().number > number;
        inner.is_busy |= !is_taken;
        !is_taken
    }

    /// Tells those who watch how far the execution has come; a closed one is kept for them.
    pub(super) fn announce(&self, number: u64, closed: Option<impl FnOnce() -> Standing>) {
        let is_closed = closed.is_some();
        let kept = closed.filter(|_| self.progress.receiver_count() > 0).map(|closed| Box::new(closed()));
        // What was closed may have been taken up again.
        self.lock().closed = kept;
        self.progress.send_if_modified(|progress| {
            let is_news = (progress.number, progress.is_closed) != (number, is_closed);
            (progress.number, progress.is_closed) = (number, is_closed);
            is_news
        });
    }

    /// Another node is said to have written the event of this number.
    pub(super) fn hear(&self, number: u64) {
        self.progress.send_if_modified(|progress| {
            let is_news = number > progress.number.max(progress.heard);
            if is_news {
                progress.heard = number;
            }
            is_news
        });
    }

    /// The newest number that was heard of; 0 if there is none to look for.
    pub(super) fn heard(&self) -> u64 {
        self.progress.borrow().heard
    }

    /// What was heard of up to this number was looked for, found or not.
    pub(super) fn looked_for(&self, heard: u64) {
        self.progress.send_if_modified(|progress| {
            if progress.heard <= heard {
                progress.heard = 0;
            }
            false
        });
    }

    /// Watches how far the execution has come.
    pub(super) fn watch(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// What is known without waiting.
    pub(super) fn glance(&self) -> Glance {
        // What is behind may have been taken up again.
        let is_behind = self.progress.borrow().is_behind();
        let inner = self.lock();
        match inner.closed.as_ref().filter(|_| !is_behind) {
            Some(closed) => Glance::Closed(closed.clone()),
            None if inner.hot.as_ref().is_some_and(|hot| !hot.state.is_closed()) => Glance::Open,
            // A turn may be reading it.
            None => Glance::Unknown,
        }
    }

    /// Drops the state if no turn has it.
    pub(super) fn evict(&self) {
        self.lock().hot = None;
    }

    /// Whether nothing waits, runs, or watches.
    pub(super) fn is_idle(&self) -> bool {
        let inner = self.lock();
        !inner.is_busy && inner.queue.is_empty() && inner.hot.is_none() && self.progress.receiver_count() == 0
    }
}
