//! The calls that an execution remembers by their `request_id`.

use crate::domain::{RememberedCall, RequestKey, Timestamp};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long a call is remembered, at least: until an event comes this much later.
pub(super) const MEMORY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a signal of another execution's step is remembered, at least, if it is among the newest [`SENDERS_MAX`]: its
/// sender may have been out of its database for days before it tries again.
pub(super) const SENDERS_MEMORY: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Most signals of other executions' steps that are remembered.
pub(super) const SENDERS_MAX: usize = 10_000;

/// What a call's key leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remembered {
    /// Event that recorded it.
    pub(super) number: u64,
    /// When.
    pub(super) time: Timestamp,
    /// Hash of its content.
    pub(super) content: [u8; 16],
}

/// What is known of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::domain) enum Known {
    /// It was made before and is recorded in this event.
    Same(u64),
    /// Its id was used for another call.
    Other,
    /// It is new.
    No,
}

/// Remembered calls. Event times never go back, so the oldest is always in front.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Requests {
    by_key: BTreeMap<[u8; 16], Remembered>,
    by_time: VecDeque<[u8; 16]>,
}

impl Requests {
    pub(super) fn find(&self, request: &RequestKey) -> Known {
        match self.by_key.get(&request.key) {
            None => Known::No,
            Some(known) if known.content == request.content => Known::Same(known.number),
            Some(_) => Known::Other,
        }
    }

    /// The event that recorded a key, whatever its content.
    pub(super) fn number_of(&self, key: &[u8; 16]) -> Option<u64> {
        self.by_key.get(key).map(|known| known.number)
    }

    pub(super) fn insert(&mut self, key: [u8; 16], remembered: Remembered) {
        if self.by_key.insert(key, remembered).is_none() {
            self.by_time.push_back(key);
        }
    }

    /// Forgets what is too old at the time of an event, and the oldest where there are too many; each is forgotten once,
    /// so this costs nothing much.
    pub(super) fn forget(&mut self, now: Timestamp, memory: Duration, count_max: usize) {
        while let Some(oldest) = self.by_time.front() {
            let is_young = self.by_key.get(oldest).is_some_and(|known| now.since(known.time) <= memory);
            if is_young && self.by_key.len() <= count_max {
                return;
            }
            self.by_key.remove(oldest);
            self.by_time.pop_front();
        }
    }

    /// All of them, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8; 16], &Remembered)> {
        self.by_time.iter().filter_map(|key| self.by_key.get_key_value(key))
    }

    /// All of them as the next run gets them, oldest first.
    pub(super) fn remembered(&self) -> impl Iterator<Item = RememberedCall> + '_ {
        self.iter().map(|(key, known)| RememberedCall {
            request: RequestKey { key: *key, content: known.content },
            number: known.number,
            time: known.time,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }
}
