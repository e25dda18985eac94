//! What an execution asks of others, as far as it is not settled.
//!
//! - Children and signals are their units' affair: a unit that waits for one says what is to be done. A child that its
//!   unit waits for no more is *abandoned* and kept here until it has its cancel; so is whether the parent knows the end.
//! - Open effects keep the execution due: they are looked at a second after the event that made one, then after twice as
//!   long each time, at most ten minutes; what is settled in between begins that anew. `Woke` moves it.
//! - Whoever drives effects is told of each once when it opens ([`State::take_fresh_effects`]), and again when they are
//!   looked at: a bounded number at a time, in turn.

use super::unit::{ChildWait, Status, UnitState};
use super::{Phase, State, Timer, UnitKey};
use crate::domain::definition::StepIndex;
use crate::domain::{
    AbandonedChild, Cause, ChildEnd, ChildOutcome, ChildRequest, Effect, ExecutionId, Failure, Payload, SignalRequest,
    Timestamp, sender_key,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

/// The first pause before effects that are open are looked at again.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(10 * 60);
/// Effects that one look brings up: as many as whoever drives them has room for.
const LOOK_LENGTH: usize = 1_000;

/// What of effects does not follow from the units.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Effects {
    /// Children that no unit waits for and that do not have their cancel.
    pub(super) abandoned: BTreeMap<ExecutionId, AbandonedChild>,
    /// Whether the parent has the end.
    pub(super) is_parent_told: bool,
    /// When open effects are looked at again; none while there are none.
    pub(super) look: Option<Look>,
}

/// When open effects are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// The next time.
    pub(super) time: Timestamp,
    /// How long after the last one that is.
    pub(super) pause: Duration,
}

/// Names an open effect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// Start the child of a unit's attempt.
    Start(UnitKey, u32),
    /// Cancel the child of a unit's attempt, which waits for its end.
    Cancel(UnitKey, u32),
    /// Cancel a child that no unit waits for.
    Abandoned(ExecutionId),
    /// Tell the parent.
    Tell,
    /// Give the signal of a unit that the event of this number asked for.
    Signal(UnitKey, u64),
}

/// How an effect differs from when somebody was last told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Opened,
    Settled,
}

/// The open effects and a journal of their changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Open {
    keys: BTreeSet<Key>,
    changes: BTreeMap<Key, Change>,
    /// What the event that is being applied has changed.
    moved: BTreeMap<Key, Change>,
    /// The last one that a look brought up.
    looked_at: Option<Key>,
}

/// Notes that an effect opened or was settled; what was out for a moment only has not changed.
fn note(changes: &mut BTreeMap<Key, Change>, key: &Key, change: Change) {
    match changes.get(key) {
        Some(before) if *before != change => {
            changes.remove(key);
        }
        Some(_) | None => {
            changes.insert(key.clone(), change);
        }
    }
}

/// The journal says what somebody has been told, not what the execution is: it does not count.
impl PartialEq for Open {
    fn eq(&self, other: &Self) -> bool {
        self.keys == other.keys
    }
}

impl Open {
    pub(super) fn insert(&mut self, key: &Key) {
        if self.keys.insert(key.clone()) {
            note(&mut self.moved, key, Change::Opened);
            note(&mut self.changes, key, Change::Opened);
        }
    }

    pub(super) fn remove(&mut self, key: &Key) {
        if self.keys.remove(key) {
            note(&mut self.moved, key, Change::Settled);
            note(&mut self.changes, key, Change::Settled);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Begins as if whoever drives effects had been told of all that are open.
    pub(super) fn forget_changes(&mut self) {
        self.changes.clear();
        self.moved.clear();
    }

    /// Brings up some of the open ones again, those whose turn has come.
    fn look(&mut self) {
        let after = self.looked_at.take().map_or(Bound::Unbounded, Bound::Excluded);
        let first = self.keys.range((after.clone(), Bound::Unbounded));
        let rest = match &after {
            Bound::Excluded(last) => Some(self.keys.range(..=last)),
            Bound::Included(_) | Bound::Unbounded => None,
        };
        let turn: Vec<Key> = first.chain(rest.into_iter().flatten()).take(LOOK_LENGTH).cloned().collect();
        self.looked_at = turn.last().cloned();
        self.changes.extend(turn.into_iter().map(|key| (key, Change::Opened)));
    }
}

impl State {
    /// Whether another execution must be told or made to be before this one has nothing to do with any: then it is not
    /// deleted.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.indexes.effects.len() > 0
    }

    /// What is to be done outside of this execution, and is not settled.
    pub fn pending(&self) -> impl Iterator<Item = Effect> + '_ {
        self.indexes.effects.keys.iter().map(|key| self.effect(key))
    }

    /// The effects that have opened since this was last called, and those that a look has brought up.
    ///
    /// Folding history opens effects too: whoever loads a state takes and drops them once, since whoever wrote the
    /// history drives them, or a look will.
    pub fn take_fresh_effects(&mut self) -> Vec<Effect> {
        let changes = std::mem::take(&mut self.indexes.effects.changes);
        let opened = changes.into_iter().filter(|(_, change)| *change == Change::Opened);
        opened.map(|(key, _)| self.effect(&key)).collect()
    }

    /// The child that a unit waits for, if it is this one.
    pub(in crate::domain) fn child_wait(&self, key: UnitKey, child_id: &ExecutionId) -> Option<ChildWait> {
        let unit = self.unit(key);
        let Status::Child(wait) = unit.status else { return None };
        unit.child().is_some_and(|child| child.id == *child_id).then_some(wait)
    }

    /// Whether no unit waits for this child and it does not have its cancel; with the attempt that asked for it.
    pub(in crate::domain) fn abandoned(&self, child_id: &ExecutionId) -> Option<u32> {
        self.effects.abandoned.get(child_id).map(|abandoned| abandoned.child.attempt)
    }

    /// Whether the parent is to be told.
    pub(in crate::domain) fn has_news_for_parent(&self) -> bool {
        self.is_closed() && self.created.parent.is_some() && !self.effects.is_parent_told
    }

    /// What a unit's open effect is called, if it has one.
    pub(super) fn effect_of(unit: &UnitState, key: UnitKey, stops: bool) -> Option<Key> {
        let attempt = || unit.task.as_ref().map_or(0, |task| task.attempt);
        match unit.status {
            Status::Child(wait) if stops => (!wait.cancel_sent).then(|| Key::Cancel(key, attempt())),
            Status::Child(wait) => wait.start_time.is_none().then(|| Key::Start(key, attempt())),
            Status::Sending { number, .. } => Some(Key::Signal(key, number)),
            Status::Pending { .. }
            | Status::Waiting { .. }
            | Status::Out(_)
            | Status::BackingOff { .. }
            | Status::Spent
            | Status::Sleeping { .. }
            | Status::FanOut { .. }
            | Status::Awaiting { .. }
            | Status::Succeeded
            | Status::Failed
            | Status::Skipped
            | Status::Cancelled => None,
        }
    }

    /// A unit waits for its child no more, though that has not ended: somebody must cancel it.
    pub(super) fn abandon_child(&mut self, key: UnitKey) {
        let Some(unit) = self.units.get(key) else { return };
        let (Status::Child(wait), Some(child)) = (unit.status, unit.child()) else { return };
        if wait.cancel_sent {
            return;
        }
        let (id, has_started, since) = (child.id.clone(), wait.start_time.is_some(), Some(self.last_time));
        let abandoned = AbandonedChild { child: self.child_request(key), has_started, since };
        self.effects.abandoned.insert(id.clone(), abandoned);
        self.indexes.effects.insert(&Key::Abandoned(id));
    }

    /// A child has its cancel.
    pub(super) fn cancel_was_sent(&mut self, unit: &str, child_id: &ExecutionId) {
        if self.effects.abandoned.remove(child_id).is_some() {
            self.indexes.effects.remove(&Key::Abandoned(child_id.clone()));
            return;
        }
        let Some(key) = self.find(unit) else { return };
        self.change(key, |unit| {
            if let Status::Child(wait) = &mut unit.status {
                wait.cancel_sent = true;
            }
        });
    }

    /// A child started: what this execution has to give it can go.
    pub(super) fn bring_up_signals_to(&mut self, child: UnitKey) {
        if child.item.is_some() {
            // No signal step means one of many.
            return;
        }
        let from = Key::Signal(UnitKey::of(StepIndex(0)), 0);
        let name = self.name(child);
        let is_for_child = |key: &&Key| {
            let Key::Signal(sender, _) = key else { return false };
            self.unit(*sender).sending().is_some_and(|sending| sending.recipient.child.as_ref() == Some(&name))
        };
        let found: Vec<Key> = self.indexes.effects.keys.range(from..).filter(is_for_child).cloned().collect();
        self.indexes.effects.changes.extend(found.into_iter().map(|key| (key, Change::Opened)));
    }

    /// Puts the effects that are no unit's into the index.
    pub(super) fn index_effects(&mut self) {
        for id in self.effects.abandoned.keys() {
            self.indexes.effects.insert(&Key::Abandoned(id.clone()));
        }
        self.index_tell();
    }

    /// Whether the parent is to be told follows from the phase.
    pub(super) fn index_tell(&mut self) {
        if self.has_news_for_parent() {
            self.indexes.effects.insert(&Key::Tell);
        } else {
            self.indexes.effects.remove(&Key::Tell);
        }
    }

    /// The timer of the next look.
    pub(super) fn look_due(&self) -> Option<super::Due> {
        self.effects.look.map(|look| (look.time, Timer::Effects, None))
    }

    /// Says when open effects are looked at next, after an event.
    pub(super) fn set_look(&mut self, now: Timestamp, is_wake: bool) {
        let open = &mut self.indexes.effects;
        let moved = !std::mem::take(&mut open.moved).is_empty();
        let look = match self.effects.look {
            _ if open.keys.is_empty() => None,
            Some(look) if !moved => Some(look).map(|look| {
                if !is_wake || look.time > now {
                    return look;
                }
                let pause = (look.pause * 2).min(PAUSE_MAX);
                open.look();
                Look { time: now + pause, pause }
            }),
            before => {
                let time = before.map_or(now + PAUSE_MIN, |look| look.time.min(now + PAUSE_MIN));
                Some(Look { time, pause: PAUSE_MIN })
            }
        };
        if look == self.effects.look {
            return;
        }
        if let Some(due) = self.look_due() {
            self.indexes.timers.remove(&due);
        }
        self.effects.look = look;
        if let Some(due) = self.look_due() {
            self.indexes.timers.insert(due);
        }
    }

    // What an effect holds.

    fn effect(&self, key: &Key) -> Effect {
        match key {
            Key::Start(key, _) => Effect::StartChild(Box::new(self.child_request(*key))),
            Key::Cancel(key, _) => Effect::CancelChild {
                child: Box::new(self.child_request(*key)),
                has_started: matches!(self.unit(*key).status, Status::Child(wait) if wait.start_time.is_some()),
                reason: self.reason_for_child(),
            },
            Key::Abandoned(id) => {
                let abandoned = &self.effects.abandoned[id];
                let (child, has_started) = (Box::new(abandoned.child.clone()), abandoned.has_started);
                Effect::CancelChild { child, has_started, reason: self.reason_for_child() }
            }
            Key::Tell => self.tell_parent(),
            Key::Signal(key, _) => self.signal_request(*key),
        }
    }

    /// Why a child is cancelled, for people.
    fn reason_for_child(&self) -> Arc<str> {
        let why = match (self.phase, self.cause()) {
            (Phase::Terminated, _) => "was terminated",
            (_, Some(Cause::Cancel(_))) => "was cancelled",
            (_, Some(Cause::Failure(_))) => "failed",
            (_, Some(Cause::Timeout)) => "timed out",
            (_, None) => "waits for it no longer",
        };
        format!("its parent {} {why}", self.id()).into()
    }

    /// What the child of a unit's newest attempt is made of.
    fn child_request(&self, key: UnitKey) -> ChildRequest {
        let unit = self.unit(key);
        let task = unit.task.as_deref().expect("a unit that asked for a child has an attempt");
        let child = unit.child().expect("a unit that waits for a child knows it");
        let pin = self.step(key.step).action.as_child().and_then(|child| child.pin.as_ref());
        ChildRequest {
            id: child.id.clone(),
            definition_hash: pin.expect("nobody asks for a child without a pin").hash,
            input: task.input.clone().expect("a unit that waits for a child has its input"),
            run: self.run(),
            unit: self.name(key),
            generation: self.generation_of(key),
            attempt: task.attempt,
            depth: self.created.depth + 1,
            trace_parent: self.created.trace_parent.clone(),
        }
    }

    fn tell_parent(&self) -> Effect {
        let parent = self.created.parent.clone().expect("who has news for a parent has one");
        let reason = || self.reason().cloned().unwrap_or_default();
        let outcome = match self.phase {
            Phase::Succeeded => ChildOutcome::Succeeded(self.output.clone().unwrap_or_else(Payload::null)),
            Phase::Failed => ChildOutcome::Failed(self.failure().cloned().unwrap_or_else(unknown_failure)),
            Phase::Cancelled => ChildOutcome::Cancelled(reason()),
            Phase::TimedOut => ChildOutcome::TimedOut,
            Phase::Terminated => ChildOutcome::Terminated(reason()),
            Phase::Running | Phase::WindingDown => unreachable!("there is news for a parent only after the close"),
        };
        let end = ChildEnd { unit: parent.unit.clone(), child_id: self.id().clone(), child_uid: self.uid(), outcome };
        Effect::TellParent { parent, end: Box::new(end) }
    }

    fn signal_request(&self, key: UnitKey) -> Effect {
        let unit = self.unit(key);
        let (Status::Sending { number, .. }, Some(sending)) = (unit.status, unit.sending()) else {
            unreachable!("only a unit that sends has such an effect")
        };
        let name = self.name(key);
        Effect::Signal(Box::new(SignalRequest {
            number,
            recipient: sending.recipient.clone(),
            name: sending.name.clone(),
            payload: sending.payload.clone(),
            sender: sender_key(self.uid(), self.run(), &name, self.generation_of(key)),
            may_come: sending.recipient.child.as_ref().is_some_and(|child| self.may_start(child)),
            unit: name,
        }))
    }

    /// Whether a unit's child may still start.
    fn may_start(&self, unit: &str) -> bool {
        let status = self.find(unit).map(|key| self.unit(key).status);
        matches!(status, Some(Status::Pending { .. } | Status::Child(ChildWait { start_time: None, .. })))
    }
}

/// A failed execution says why; this stands in for what cannot be missing.
fn unknown_failure() -> Failure {
    Failure::new("UNKNOWN", "", &Arc::from(""))
}
