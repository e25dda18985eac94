//! Presence: which workers live, and which tasks they hold.
//!
//! - A delivery is watched by exactly one party: until it is known to be held, by its execution's deadline; from
//!   `TaskHeld` on, by the session loop, through its row in `held`.
//! - Contacts are kept in memory and written once a second; a heartbeat alone writes nothing.
//! - A session is lost when its contact has not changed for a session timeout of this node's monotonic time, and only
//!   after that long of uninterrupted presence: an outage or a suspended machine is no mass death.
//! - What is kept here is what this node has heard. In a shared store other nodes hear as much: what they wrote is read
//!   again with each heartbeat and every few seconds, and only a compare-and-set ends a session.

mod judge;
mod listed;
mod presence;
mod steady;

pub(super) use listed::Look;
pub(super) use steady::Steadiness;

use super::Core;

use crate::domain::{Event, EventKind, SessionId, TaskToken, Timestamp};
use crate::store::{ExecutionKey, HeldRow, SessionRow};
pub(super) use listed::Beat;
use listed::Tokens;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// Starts what watches.
pub(super) fn start(core: &Arc<Core>) {
    core.tasks.spawn(presence::run(core.clone()));
    core.tasks.spawn(judge::run(core.clone()));
}

/// A session that this node has heard of.
pub(super) struct Session {
    pub(super) row: SessionRow,
    /// By which it is judged: its own, or this node's where its row has none.
    pub(super) timeout: Duration,
    /// Ends polls and streams: the session is lost, unregistered, or has a newer connection.
    pub(super) over: CancellationToken,
    inner: Mutex<Inner>,
}

struct Inner {
    contact: Timestamp,
    written: Timestamp,
    tokens: Tokens,
    /// Whether `tokens` has the session's held rows: those that an engine before this one wrote, too.
    has_rows: bool,
}

impl Session {
    fn new(row: SessionRow, own_timeout: Duration) -> Self {
        let timeout = row.timeout.unwrap_or(own_timeout);
        let inner =
            Inner { contact: row.contact_time, written: row.contact_time, tokens: Tokens::default(), has_rows: false };
        Self { row, timeout, over: CancellationToken::new(), inner: Mutex::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The worker was heard of. Whoever judges looks for a contact that changes, so it does even where the one before
    /// came from a node whose time is ahead.
    pub(super) fn touch(&self, now: Timestamp) {
        let mut inner = self.lock();
        inner.contact = now.max(inner.contact + Duration::from_micros(1));
    }

    /// When it was last heard of, and what of that is in its row.
    pub(super) fn contact(&self) -> (Timestamp, Timestamp) {
        let inner = self.lock();
        (inner.contact, inner.written)
    }

    /// Its row has this contact, which another node may have written.
    fn seen_in_store(&self, contact: Timestamp) {
        let mut inner = self.lock();
        inner.written = contact;
        inner.contact = inner.contact.max(contact);
    }

    /// Whether the session's held rows are known.
    pub(super) fn has_rows(&self) -> bool {
        self.lock().has_rows
    }

    /// Takes in the session's held rows: gives those whose token is not known yet, to be brought with their token.
    pub(super) fn take_in(&self, rows: Vec<HeldRow>) -> Vec<HeldRow> {
        let mut inner = self.lock();
        inner.has_rows = true;
        inner.tokens.take_in(rows)
    }

    /// Takes in rows whose token was not known.
    pub(super) fn take_in_new(&self, rows: impl IntoIterator<Item = (TaskToken, HeldRow)>) {
        let mut inner = self.lock();
        for (token, row) in rows {
            inner.tokens.take_in_new(token, &row);
        }
    }

    pub(super) fn tokens<T>(&self, with: impl FnOnce(&mut Tokens) -> T) -> T {
        with(&mut self.lock().tokens)
    }
}

/// What a held row is known by: execution, unit, delivery.
type HeldKey = (ExecutionKey, Arc<str>, u32);

fn held_key(token: &TaskToken) -> HeldKey {
    (token.execution, token.delivery.unit.clone(), token.delivery.delivery)
}

#[derive(Default)]
struct Known {
    sessions: BTreeMap<SessionId, Arc<Session>>,
    /// Who lists tokens of an execution.
    listing: BTreeMap<ExecutionKey, BTreeSet<SessionId>>,
    /// Held rows whose delivery has ended, until they are deleted.
    ended: BTreeSet<HeldKey>,
}

/// The sessions that this node has heard of.
pub(super) struct Sessions {
    known: Mutex<Known>,
    steadiness: Steadiness,
    /// This node's own, for sessions without one.
    timeout: Duration,
}

impl Sessions {
    pub(super) fn new(steadiness: Steadiness, timeout: Duration) -> Self {
        Self { known: Mutex::default(), steadiness, timeout }
    }

    /// How far this node can trust what it has not heard.
    pub(super) fn steadiness(&self) -> &Steadiness {
        &self.steadiness
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, id: SessionId) -> Option<Arc<Session>> {
        self.lock().sessions.get(&id).cloned()
    }

    /// Takes in a session's row; one with an older connection is over.
    pub(super) fn keep(&self, row: SessionRow) -> Arc<Session> {
        let mut known = self.lock();
        if let Some(session) = known.sessions.get(&row.id)
            && session.row.connection >= row.connection
        {
            return session.clone();
        }
        let id = row.id;
        let session = Arc::new(Session::new(row, self.timeout));
        if let Some(old) = known.sessions.insert(id, session.clone()) {
            // What the worker lists is the same process's; the newer connection goes on with it.
            let mut before = old.lock();
            let mut inner = session.lock();
            (inner.tokens, inner.has_rows) = (std::mem::take(&mut before.tokens), before.has_rows);
            drop((before, inner));
            old.over.cancel();
        }
        session
    }

    /// Forgets a session; what it listed, and no other session does, is returned.
    pub(super) fn forget(&self, id: SessionId) -> BTreeMap<TaskToken, Beat> {
        let mut known = self.lock();
        let Some(session) = known.sessions.remove(&id) else { return BTreeMap::new() };
        session.over.cancel();
        let mut tokens = session.tokens(Tokens::drain);
        for token in tokens.keys() {
            unlist(&mut known.listing, token.execution, id);
        }
        tokens.retain(|token, _| !known.is_listed(token));
        tokens
    }

    pub(super) fn all(&self) -> Vec<Arc<Session>> {
        self.lock().sessions.values().cloned().collect()
    }

    /// A session lists tokens of these executions.
    pub(super) fn list(&self, id: SessionId, executions: impl IntoIterator<Item = ExecutionKey>) {
        let mut known = self.lock();
        // A session that was lost meanwhile lists nothing any more.
        if !known.sessions.contains_key(&id) {
            return;
        }
        for key in executions {
            known.listing.entry(key).or_default().insert(id);
        }
    }

    /// Events that may end deliveries: what is listed of their execution is looked at again.
    pub(super) fn note_events(&self, key: ExecutionKey, events: &[Event]) {
        let may_end = |event: &Event| {
            matches!(
                event.kind,
                EventKind::WindDownStarted { .. }
                    | EventKind::ExecutionTerminated { .. }
                    | EventKind::AttemptFailed { .. }
                    | EventKind::DeliveryEnded { .. }
                    | EventKind::StepSucceeded { .. }
                    | EventKind::StepFailed { .. }
                    | EventKind::StepCancelled { .. }
            )
        };
        let known = self.lock();
        let Some(sessions) = known.listing.get(&key) else { return };
        if events.iter().any(may_end) {
            for id in sessions {
                if let Some(session) = known.sessions.get(id) {
                    session.tokens(|tokens| tokens.doubt(key));
                }
            }
        }
    }

    /// A report on this token was answered: nobody watches it any more.
    pub(super) fn reported(&self, token: &TaskToken) {
        let mut known = self.lock();
        let Some(ids) = known.listing.get(&token.execution).cloned() else { return };
        for id in ids {
            let Some(session) = known.sessions.get(&id).cloned() else { continue };
            let (was_held, is_last) = session.tokens(|tokens| (tokens.remove(token), !tokens.has(token.execution)));
            if was_held {
                known.ended.insert(held_key(token));
            }
            if is_last {
                unlist(&mut known.listing, token.execution, id);
            }
        }
    }

    /// Tokens that a session does not list any more and that need no watching.
    pub(super) fn unlisted(&self, id: SessionId, tokens: &[(TaskToken, bool)]) {
        let mut known = self.lock();
        for (token, was_held) in tokens {
            if *was_held {
                known.ended.insert(held_key(token));
            }
            let has_more =
                known.sessions.get(&id).is_some_and(|session| session.tokens(|tokens| tokens.has(token.execution)));
            if !has_more {
                unlist(&mut known.listing, token.execution, id);
            }
        }
    }

    /// The newest beat that a worker gave for this token, as far as this node has heard.
    pub(super) fn beat_of(&self, token: &TaskToken) -> Option<Beat> {
        let known = self.lock();
        let ids = known.listing.get(&token.execution)?;
        let beats = ids.iter().filter_map(|id| known.sessions.get(id)?.tokens(|tokens| tokens.beat_of(token)));
        beats.max_by_key(|beat| beat.time)
    }

    /// Whether a held row is only still there because it has not been deleted yet.
    pub(super) fn has_ended(&self, row: &HeldRow) -> bool {
        self.lock().ended.contains(&(row.execution, row.unit.clone(), row.delivery))
    }

    fn ended(&self) -> Vec<HeldKey> {
        self.lock().ended.iter().cloned().collect()
    }

    fn deleted(&self, rows: &[HeldKey]) {
        let mut known = self.lock();
        for row in rows {
            known.ended.remove(row);
        }
    }

    /// The shortest timeout of all sessions, and of this node's own.
    fn timeout_min(&self) -> Duration {
        self.lock().sessions.values().map(|session| session.timeout).fold(self.timeout, Duration::min)
    }

    /// What changed since it was last written.
    fn changes(&self) -> (Vec<(SessionId, Timestamp)>, Vec<HeldRow>) {
        let (mut contacts, mut held) = (Vec::new(), Vec::new());
        for session in self.all() {
            let mut inner = session.lock();
            if inner.contact > inner.written {
                contacts.push((session.row.id, inner.contact));
            }
            held.extend(inner.tokens.rows_to_write(session.row.id, session.timeout / 3));
        }
        // In one order at all nodes, so that two that write at the same time do not wait for each other.
        held.sort_by(|a, b| (a.execution, &a.unit, a.delivery).cmp(&(b.execution, &b.unit, b.delivery)));
        (contacts, held)
    }

    fn written(&self, contacts: &[(SessionId, Timestamp)], held: &[HeldRow]) {
        for (id, contact) in contacts {
            if let Some(session) = self.get(*id) {
                session.lock().written = *contact;
            }
        }
        for row in held {
            if let Some(session) = self.get(row.session) {
                session.tokens(|tokens| tokens.written(row));
            }
        }
    }

    /// Sessions that this node has heard of: for metrics.
    pub(super) fn len(&self) -> usize {
        self.lock().sessions.len()
    }
}

impl Known {
    /// Whether a session lists this very token.
    fn is_listed(&self, token: &TaskToken) -> bool {
        let ids = self.listing.get(&token.execution).into_iter().flatten();
        ids.filter_map(|id| self.sessions.get(id)).any(|session| session.tokens(|tokens| tokens.is_listed(token)))
    }
}

fn unlist(listing: &mut BTreeMap<ExecutionKey, BTreeSet<SessionId>>, key: ExecutionKey, id: SessionId) {
    if let Some(sessions) = listing.get_mut(&key) {
        sessions.remove(&id);
        if sessions.is_empty() {
            listing.remove(&key);
        }
    }
}
