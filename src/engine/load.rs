//! Reads an execution from the store and folds it.
//!
//! A fact that this version does not know stops the fold; data that contradicts itself sets the execution aside, so
//! that one broken execution never stops another.

use super::{Core, call::Error, mailbox::Hot};
use crate::domain::{Event, State, definition::Definition};
use crate::store::{EVENT_FORMAT, ExecutionKey, HistoryRow, LargePayload, Loaded, Snapshot};
use crate::wire::event::{DecodeError, decode_batch};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    panic::AssertUnwindSafe,
    sync::Arc,
};

impl Core {
    /// Reads an execution whole.
    pub(super) async fn load(&self, key: ExecutionKey) -> Result<Box<Hot>, Error> {
        let loaded = self.store.load(key).await.map_err(Error::Store)?;
        let Some(mut loaded) = loaded else { return Err(Error::ExecutionNotFound { id: String::new() }) };
        if let Some(why) = &loaded.row.quarantined {
            return Err(Error::Quarantined { why: why.clone() });
        }
        let definition = self.definition_of(loaded.row.definition_hash).await?;
        let snapshot = loaded.snapshot.take();
        let snapshot_bytes = snapshot.as_ref().map_or(0, |snapshot| snapshot.bytes.len());
        let has_snapshot = snapshot.is_some();
        let state = std::panic::catch_unwind(AssertUnwindSafe(|| from_snapshot(&definition, snapshot))).unwrap_or(None);
        if has_snapshot && state.is_none() {
            // A snapshot is always optional: on any mismatch the events tell, from the first one of the newest run on.
            let whole = self.store.load_tail(key, 0).await.map_err(Error::Store)?;
            loaded = whole.ok_or_else(|| Error::ExecutionNotFound { id: String::new() })?;
        }
        metrics::counter!(crate::telemetry::EXECUTIONS_LOADED).increment(1);
        let folded = std::panic::catch_unwind(AssertUnwindSafe(|| fold(&definition, loaded, state, snapshot_bytes)));
        match folded.unwrap_or_else(|_| Err(Unreadable::of_panic())) {
            Ok(hot) => Ok(hot),
            Err(unreadable) => Err(self.give_up_reading(key, unreadable).await),
        }
    }

    /// Brings a state up to date with what others have committed since it was read or written here. Fails as
    /// [`load`](Self::load) does.
    pub(super) async fn catch_up(&self, mut hot: Box<Hot>) -> Result<Box<Hot>, Error> {
        let key = hot.row.key;
        let tail = self.store.load_tail(key, hot.state.last_number()).await.map_err(Error::Store)?;
        let Some(tail) = tail else { return Err(Error::ExecutionNotFound { id: String::new() }) };
        if let Some(why) = &tail.row.quarantined {
            return Err(Error::Quarantined { why: why.clone() });
        }
        metrics::counter!(crate::telemetry::EXECUTIONS_CAUGHT_UP).increment(1);
        let folded = std::panic::catch_unwind(AssertUnwindSafe(|| fold_tail(&mut hot, tail)));
        match folded.unwrap_or_else(|_| Err(Unreadable::of_panic())) {
            Ok(Some(events)) => {
                self.sessions.note_events(key, &events);
                Ok(hot)
            }
            Ok(None) => self.load(key).await,
            Err(unreadable) => Err(self.give_up_reading(key, unreadable).await),
        }
    }

    /// Says why an execution cannot be read; one that never can be is set aside.
    async fn give_up_reading(&self, key: ExecutionKey, unreadable: Unreadable) -> Error {
        match unreadable {
            Unreadable::Unknown(what) => {
                tracing::warn!(execution = key.0, what, "events of a newer version");
                Error::EventUnknown
            }
            Unreadable::Damaged(why) => {
                tracing::error!(execution = key.0, why, "set aside: its stored data is damaged");
                match self.store.quarantine(key, &why).await {
                    Ok(()) => Error::Quarantined { why: why.into() },
                    Err(error) => Error::Store(error),
                }
            }
        }
    }

    /// Decodes a row of history, with its large payloads.
    pub(super) async fn decode(&self, key: ExecutionKey, row: &HistoryRow) -> Result<Vec<Event>, Error> {
        let wanted = RefCell::new(BTreeSet::new());
        // A first pass finds which large payloads are mentioned; mostly there are none.
        let decoded = decode_batch(&row.events, row.format, &|digest| {
            wanted.borrow_mut().insert(*digest);
            Some(Arc::from("null"))
        });
        let wanted: Vec<[u8; 32]> = wanted.into_inner().into_iter().collect();
        if wanted.is_empty() {
            return decoded.map_err(|error| unreadable(key, &error));
        }
        let payloads = by_digest(self.store.payloads(key, &wanted).await.map_err(Error::Store)?);
        decode_batch(&row.events, row.format, &|digest| payloads.get(digest).cloned())
            .map_err(|error| unreadable(key, &error))
    }
}

fn unreadable(key: ExecutionKey, error: &DecodeError) -> Error {
    tracing::warn!(execution = key.0, %error, "events cannot be read");
    match error {
        DecodeError::Unknown { .. } => Error::EventUnknown,
        DecodeError::Damaged { .. } => Error::Quarantined { why: error.to_string().into() },
    }
}

/// Why an execution cannot be folded.
enum Unreadable {
    Unknown(String),
    Damaged(String),
}

impl Unreadable {
    fn of_panic() -> Self {
        Self::Damaged("folding its events panicked".into())
    }
}

impl From<DecodeError> for Unreadable {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Unknown { .. } => Self::Unknown(error.to_string()),
            DecodeError::Damaged { .. } => Self::Damaged(error.to_string()),
        }
    }
}

fn by_digest(payloads: Vec<LargePayload>) -> BTreeMap<[u8; 32], Arc<str>> {
    payloads.into_iter().map(|payload| (payload.sha256, payload.json)).collect()
}

/// The state that a snapshot has, if this version can read it.
fn from_snapshot(definition: &Arc<Definition>, snapshot: Option<Snapshot>) -> Option<State> {
    snapshot
        .filter(|snapshot| snapshot.format == EVENT_FORMAT && snapshot.definition_hash == definition.hash)
        .and_then(|snapshot| State::from_bytes(definition.clone(), &snapshot.bytes))
}

/// Folds history, on top of a snapshot's state if there is one.
fn fold(
    definition: &Arc<Definition>,
    loaded: Loaded,
    mut state: Option<State>,
    snapshot_bytes: usize,
) -> Result<Box<Hot>, Unreadable> {
    let payloads = by_digest(loaded.payloads);
    let resolve = |digest: &[u8; 32]| payloads.get(digest).cloned();
    // A row may begin before the snapshot that it reaches beyond.
    let included = state.as_ref().map_or(0, State::last_number);
    let mut tail_bytes = 0;
    for row in &loaded.history {
        for event in decode_batch(&row.events, row.format, &resolve)? {
            match &mut state {
                Some(_) if event.number <= included => {}
                Some(state) if event.number == state.last_number() + 1 => state.evolve(&event),
                None if State::begins_with(&event) => {
                    state = Some(State::begin(definition.clone(), &event));
                }
                Some(_) | None => return Err(Unreadable::Damaged(format!("event {} is out of order", event.number))),
            }
        }
        tail_bytes += row.events.len();
    }
    let mut state = state.ok_or_else(|| Unreadable::Damaged("it has no events".into()))?;
    // What waits now has its rows already.
    let _ = state.take_ready_changes();
    Ok(Box::new(Hot { row: loaded.row, state, tail_bytes, snapshot_bytes }))
}

/// Goes on with the events that follow a state; nothing if they do not, as when a new run has begun since.
fn fold_tail(hot: &mut Hot, tail: Loaded) -> Result<Option<Vec<Event>>, Unreadable> {
    if tail.row.definition_hash != hot.row.definition_hash {
        return Ok(None);
    }
    let payloads = by_digest(tail.payloads);
    let resolve = |digest: &[u8; 32]| payloads.get(digest).cloned();
    let included = hot.state.last_number();
    let mut events = Vec::new();
    for row in &tail.history {
        for event in decode_batch(&row.events, row.format, &resolve)? {
            if event.number <= included {
                continue;
            }
            if event.number != hot.state.last_number() + 1 {
                return Ok(None);
            }
            hot.state.evolve(&event);
            events.push(event);
        }
        // Another node may have written a snapshot meanwhile: then the next one comes early, which harms nobody.
        hot.tail_bytes += row.events.len();
    }
    // What waits now has its rows already.
    let _ = hot.state.take_ready_changes();
    hot.row = tail.row;
    Ok(Some(events))
}
