//! The tokens that one session lists.

use crate::domain::{DeliveryRef, Payload, SessionId, TaskToken, Timestamp, Uid};
use crate::store::{ExecutionKey, HeldRow};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
    time::Duration,
};
use uuid::Uuid;

/// A token that a heartbeat listed.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Listed {
    /// When it was last listed.
    list_time: Timestamp,
    /// Newest progress or explicit beat; at first, when it was first listed.
    beat_time: Timestamp,
    /// Whether `beat_time` is one of a beat.
    has_beat: bool,
    progress: Option<Payload>,
    /// What its execution last said of it; absent if it must be asked (again).
    look: Option<Look>,
    missing_since: Option<Timestamp>,
    /// Whether its row is in `held`, or may be: from when it is first written, since nobody knows when that is done.
    is_held: bool,
    /// Whether the row is behind.
    is_dirty: bool,
}

impl Listed {
    fn beat(&self) -> Beat {
        Beat { time: self.beat_time, progress: self.progress.clone() }
    }

    /// Takes in its row in the store. A newer beat there came by another node; one here is still to be written.
    fn take_in(&mut self, row: &HeldRow) {
        self.is_held = true;
        let is_newer = row.beat_time > self.beat_time || !self.has_beat;
        if is_newer {
            (self.beat_time, self.has_beat) = (row.beat_time, true);
        }
        if is_newer || self.progress.is_none() {
            self.progress = row.progress.clone().map(Payload::from_json).or(self.progress.take());
        }
        if !self.is_dirty {
            self.missing_since = row.missing_since;
        }
    }
}

/// What an execution says of a token.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Look {
    /// Whether its work is wanted.
    pub(in crate::engine) is_wanted: bool,
    /// Number of its execution's newest event then: with a newer one it must be asked again.
    pub(in crate::engine) number: u64,
    /// When it was handed out; absent if it is out no more.
    pub(in crate::engine) dispatch_time: Option<Timestamp>,
    /// Longest time between two beats.
    pub(in crate::engine) heartbeat_timeout: Option<Duration>,
    /// Its row in `held`, if it was there before this node knew the token.
    pub(in crate::engine) held: Option<HeldRow>,
}

/// The newest that a worker said of a task that it does.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Beat {
    pub(in crate::engine) time: Timestamp,
    pub(in crate::engine) progress: Option<Payload>,
}

impl Beat {
    pub(in crate::engine) fn of(row: &HeldRow) -> Self {
        Self { time: row.beat_time, progress: row.progress.clone().map(Payload::from_json) }
    }
}

/// All tokens that a session lists.
#[derive(Default)]
pub(in crate::engine) struct Tokens {
    by_token: BTreeMap<TaskToken, Listed>,
}

impl Tokens {
    /// A heartbeat lists a token.
    pub(in crate::engine) fn list(
        &mut self,
        token: TaskToken,
        progress: Option<Payload>,
        is_beat: bool,
        now: Timestamp,
    ) {
        let listed = self.by_token.entry(token).or_insert_with(|| Listed {
            list_time: now,
            beat_time: now,
            has_beat: false,
            progress: None,
            look: None,
            missing_since: None,
            is_held: false,
            is_dirty: false,
        });
        listed.list_time = now;
        listed.is_dirty |= listed.missing_since.take().is_some() && listed.is_held;
        if is_beat || progress.is_some() {
            (listed.beat_time, listed.has_beat) = (now, true);
            listed.progress = progress.or(listed.progress.take());
            listed.is_dirty = true;
        }
    }

    /// The session's rows in the store, some of which other nodes wrote, or an engine before this one. Back come those
    /// whose token is not known.
    pub(in crate::engine) fn take_in(&mut self, rows: Vec<HeldRow>) -> Vec<HeldRow> {
        let mut rows: BTreeMap<_, _> =
            rows.into_iter().map(|row| ((row.execution, row.unit.clone(), row.delivery), row)).collect();
        for (token, listed) in &mut self.by_token {
            let key = (token.execution, token.delivery.unit.clone(), token.delivery.delivery);
            match rows.remove(&key) {
                Some(row) => listed.take_in(&row),
                // It was written and is there no more: another node has seen the delivery's end.
                None if listed.is_held && !listed.is_dirty => {
                    (listed.is_held, listed.missing_since, listed.look) = (false, None, None);
                }
                None => {}
            }
        }
        rows.into_values().collect()
    }

    /// A row of a token that was not known.
    pub(in crate::engine) fn take_in_new(&mut self, token: TaskToken, row: &HeldRow) {
        let listed = self.by_token.entry(token).or_insert_with(|| Listed {
            list_time: row.beat_time,
            beat_time: row.beat_time,
            has_beat: false,
            progress: None,
            look: None,
            missing_since: row.missing_since,
            is_held: true,
            is_dirty: false,
        });
        listed.take_in(row);
    }

    /// Tokens that the heartbeat at `now` did not list: those with a row are missing from now on, the others are left
    /// to their execution's first check and returned.
    pub(in crate::engine) fn miss(&mut self, listed: &BTreeSet<TaskToken>, now: Timestamp) -> Vec<TaskToken> {
        let mut dropped = Vec::new();
        for (token, entry) in &mut self.by_token {
            if listed.contains(token) {
                continue;
            }
            if !entry.is_held {
                dropped.push(token.clone());
            } else if entry.missing_since.is_none() {
                entry.missing_since = Some(now);
                entry.is_dirty = true;
                entry.look = None;
            }
        }
        for token in &dropped {
            self.by_token.remove(token);
        }
        dropped
    }

    /// Tokens whose execution must be asked about them.
    pub(in crate::engine) fn doubtful(&self) -> Vec<TaskToken> {
        self.by_token.iter().filter(|(_, listed)| listed.look.is_none()).map(|(token, _)| token.clone()).collect()
    }

    /// Executions that have said something of a token, with the number of their newest event then.
    pub(in crate::engine) fn looked_at(&self) -> BTreeMap<ExecutionKey, u64> {
        let mut looked_at = BTreeMap::new();
        for (token, listed) in &self.by_token {
            if let Some(look) = &listed.look {
                let number = looked_at.entry(token.execution).or_insert(look.number);
                *number = look.number.min(*number);
            }
        }
        looked_at
    }

    /// Takes in what an execution said.
    pub(in crate::engine) fn seen(&mut self, token: &TaskToken, look: Look) {
        let Some(listed) = self.by_token.get_mut(token) else { return };
        if let Some(row) = &look.held
            && !listed.is_held
        {
            listed.is_held = true;
            // An earlier session's row: it is this one's from now on, and not missing, since it is listed.
            let is_listed = listed.missing_since.is_none();
            listed.take_in(row);
            if is_listed {
                listed.is_dirty |= listed.missing_since.take().is_some();
            }
        }
        listed.look = Some(look);
    }

    /// Tokens to stop.
    pub(in crate::engine) fn unwanted(&self) -> Vec<TaskToken> {
        let is_unwanted = |listed: &Listed| {
            listed.missing_since.is_none() && listed.look.as_ref().is_some_and(|look| !look.is_wanted)
        };
        self.by_token.iter().filter(|(_, listed)| is_unwanted(listed)).map(|(token, _)| token.clone()).collect()
    }

    /// Tokens that are missing and unwanted: nobody needs to watch them. They are dropped; back comes whether each had
    /// a row.
    pub(in crate::engine) fn drop_settled(&mut self) -> Vec<(TaskToken, bool)> {
        let is_settled = |listed: &Listed| {
            listed.missing_since.is_some() && listed.look.as_ref().is_some_and(|look| !look.is_wanted)
        };
        let settled: Vec<(TaskToken, bool)> = self
            .by_token
            .iter()
            .filter(|(_, listed)| is_settled(listed))
            .map(|(token, listed)| (token.clone(), listed.is_held))
            .collect();
        for (token, _) in &settled {
            self.by_token.remove(token);
        }
        settled
    }

    /// Something happened in this execution: what was known of its tokens is in doubt.
    pub(in crate::engine) fn doubt(&mut self, key: ExecutionKey) {
        for (_, listed) in self.by_token.range_mut(of(key)) {
            listed.look = None;
        }
    }

    /// Forgets a token; says whether it had a row.
    pub(in crate::engine) fn remove(&mut self, token: &TaskToken) -> bool {
        self.by_token.remove(token).is_some_and(|listed| listed.is_held)
    }

    pub(in crate::engine) fn has(&self, key: ExecutionKey) -> bool {
        self.by_token.range(of(key)).next().is_some()
    }

    /// Whether the newest heartbeat lists this token.
    pub(in crate::engine) fn is_listed(&self, token: &TaskToken) -> bool {
        self.by_token.get(token).is_some_and(|listed| listed.missing_since.is_none())
    }

    pub(in crate::engine) fn beat_of(&self, token: &TaskToken) -> Option<Beat> {
        self.by_token.get(token).map(Listed::beat)
    }

    /// Takes all out, with their newest beat.
    pub(in crate::engine) fn drain(&mut self) -> BTreeMap<TaskToken, Beat> {
        std::mem::take(&mut self.by_token).into_iter().map(|(token, listed)| (token, listed.beat())).collect()
    }

    /// Rows that are behind, or that are due for the first time: once a token is listed a third of the session timeout
    /// after it was handed out, at once with progress or for a step that wants beats.
    pub(in crate::engine) fn rows_to_write(&mut self, session: SessionId, third: Duration) -> Vec<HeldRow> {
        let mut rows = Vec::new();
        for (token, listed) in &mut self.by_token {
            let Some(look) = listed.look.as_ref().filter(|look| look.is_wanted) else { continue };
            let is_old = look.dispatch_time.is_some_and(|time| listed.list_time.since(time) >= third);
            let is_due = !listed.is_held && (is_old || look.heartbeat_timeout.is_some());
            if is_due || listed.is_dirty {
                (listed.is_held, listed.is_dirty) = (true, true);
                rows.push(HeldRow {
                    session,
                    execution: token.execution,
                    unit: token.delivery.unit.clone(),
                    delivery: token.delivery.delivery,
                    missing_since: listed.missing_since,
                    beat_time: listed.beat_time,
                    heartbeat_timeout_micros: look
                        .heartbeat_timeout
                        .map(|span| i64::try_from(span.as_micros()).unwrap_or(i64::MAX)),
                    progress: listed.progress.as_ref().map(|progress| progress.as_str().into()),
                });
            }
        }
        rows
    }

    /// A row was written as it was at that time.
    pub(in crate::engine) fn written(&mut self, row: &HeldRow) {
        for (token, listed) in self.by_token.range_mut(of(row.execution)) {
            if token.delivery.unit == row.unit && token.delivery.delivery == row.delivery {
                listed.is_dirty = listed.beat_time != row.beat_time || listed.missing_since != row.missing_since;
            }
        }
    }
}

/// The tokens of an execution, as a range of all.
fn of(key: ExecutionKey) -> Range<TaskToken> {
    let first = |key| {
        let delivery = DeliveryRef { unit: Arc::from(""), delivery: 0 };
        TaskToken { execution: key, uid: Uid(Uuid::nil()), delivery }
    };
    first(key)..first(ExecutionKey(key.0 + 1))
}
