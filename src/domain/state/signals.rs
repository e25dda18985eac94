//! Signals that have come and that no step has taken.

use crate::domain::{Payload, Timestamp, Unit, UntakenSignal};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A signal that waits to be taken.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::domain) struct Signal {
    /// Name.
    pub(in crate::domain) name: Arc<str>,
    /// Payload.
    pub(in crate::domain) payload: Payload,
    /// When it expires.
    pub(in crate::domain) expire_time: Option<Timestamp>,
    /// Unit of the `on_event` step that takes it, unless an await does before.
    pub(in crate::domain) handler: Option<Unit>,
}

impl Signal {
    /// The signal that a run before left.
    pub(super) fn of(untaken: &UntakenSignal) -> Self {
        let UntakenSignal { name, payload, expire_time, handler, number: _ } = untaken.clone();
        Self { name, payload, expire_time, handler }
    }
}

/// The untaken signals, by the number of their event: in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::domain) struct Signals {
    by_number: BTreeMap<u64, Signal>,
    by_name: BTreeMap<Arc<str>, BTreeSet<u64>>,
    by_handler: BTreeMap<Unit, BTreeSet<u64>>,
    by_expiry: BTreeSet<(Timestamp, u64)>,
    payload_bytes: usize,
}

impl Signals {
    pub(super) fn insert(&mut self, number: u64, signal: Signal) {
        self.payload_bytes += signal.payload.len();
        self.by_name.entry(signal.name.clone()).or_default().insert(number);
        if let Some(handler) = &signal.handler {
            self.by_handler.entry(handler.clone()).or_default().insert(number);
        }
        if let Some(time) = signal.expire_time {
            self.by_expiry.insert((time, number));
        }
        self.by_number.insert(number, signal);
    }

    pub(super) fn take(&mut self, number: u64) -> Option<Signal> {
        let signal = self.by_number.remove(&number)?;
        self.payload_bytes -= signal.payload.len();
        forget(&mut self.by_name, &signal.name, number);
        if let Some(handler) = &signal.handler {
            forget(&mut self.by_handler, handler, number);
        }
        if let Some(time) = signal.expire_time {
            self.by_expiry.remove(&(time, number));
        }
        Some(signal)
    }

    /// How many there are.
    pub(in crate::domain) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// Bytes of their payloads.
    pub(super) fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// All of them, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Signal)> {
        self.by_number.iter().map(|(number, signal)| (*number, signal))
    }

    /// Those of a name, oldest first.
    pub(in crate::domain) fn of<'a>(&'a self, name: &str) -> impl Iterator<Item = (u64, &'a Signal)> {
        self.by_name
            .get(name)
            .into_iter()
            .flatten()
            .filter_map(|number| self.by_number.get_key_value(number))
            .map(|(number, signal)| (*number, signal))
    }

    /// All of them as the next run gets them, oldest first.
    pub(super) fn untaken(&self) -> impl Iterator<Item = UntakenSignal> + '_ {
        self.iter().map(|(number, signal)| {
            let Signal { name, payload, expire_time, handler } = signal.clone();
            UntakenSignal { number, name, payload, expire_time, handler }
        })
    }

    /// The oldest one that an `on_event` step takes, with when it expires.
    pub(super) fn first_for(&self, handler: &str) -> Option<(u64, Option<Timestamp>)> {
        let number = *self.by_handler.get(handler)?.first()?;
        Some((number, self.by_number.get(&number)?.expire_time))
    }

    /// Numbers of those that have expired, first expired first.
    pub(in crate::domain) fn expired(&self, now: Timestamp) -> impl Iterator<Item = u64> + '_ {
        self.by_expiry.iter().take_while(move |(time, _)| *time <= now).map(|(_, number)| *number)
    }
}

/// Takes a number out of a list, and the list if it is empty.
fn forget(lists: &mut BTreeMap<Arc<str>, BTreeSet<u64>>, key: &str, number: u64) {
    if let Some(numbers) = lists.get_mut(key) {
        numbers.remove(&number);
        if numbers.is_empty() {
            lists.remove(key);
        }
    }
}
