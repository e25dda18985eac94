//! One batch of decisions about one execution, until it is an append.
//!
//! Decides the commands in order, hands units that became ready to workers that wait, and works out what the append
//! writes beside the events: ready rows, the state, the wake-up time, a snapshot.

use super::Config;
use super::dispatch::{Dispatch, Reservation};
use super::mailbox::Hot;
use crate::domain::{
    Command, Delivery, Event, EventKind, Outcome, Phase, Rejection, State, Timestamp, Unit,
    decide::{self, Context},
};
use crate::store::{
    Append, Deletion, EVENT_FORMAT, ExecutionRow, ExecutionState, LargePayload, ReadyUnit, Snapshot, StateChange,
    Target, WakeChange,
};
use crate::wire;
use std::{collections::BTreeMap, sync::Arc};
use uuid::Uuid;

/// Events of one append, a single command's excepted.
const EVENTS_MAX: usize = 1_000;
/// Bytes of one append, as far as they can be told before encoding, a single command's excepted.
const BYTES_MAX: usize = 1024 * 1024;

/// A hand-off or dispatch that counts once the append is committed.
pub(super) struct Handed {
    pub(super) reservation: Reservation,
    pub(super) delivery: Delivery,
}

/// What the decisions so far come to.
pub(super) struct Draft {
    pub(super) events: Vec<Event>,
    pub(super) handed: Vec<Handed>,
    bytes: usize,
    added: BTreeMap<Unit, ReadyUnit>,
    removed: Vec<Unit>,
}

/// An append, and what remains to be done once it is committed.
pub(super) struct Drafted {
    pub(super) append: Append,
    pub(super) added: Vec<ReadyUnit>,
    pub(super) wake_time: Option<Timestamp>,
    pub(super) snapshot_bytes: Option<usize>,
}

impl Draft {
    pub(super) fn new(events: Vec<Event>) -> Self {
        let bytes = events.iter().map(|event| decide::event_bytes(&event.kind)).sum();
        Self { events, handed: Vec::new(), bytes, added: BTreeMap::new(), removed: Vec::new() }
    }

    /// Whether the next command must wait for the next append.
    pub(super) fn is_full(&self) -> bool {
        // The next run's first event is the first of an append, so that what is before it can be removed in whole rows.
        // Likewise what is taken up again: the store sees to it that its id is still its own.
        let is_cut =
            |kind: &EventKind| matches!(kind, EventKind::ContinuedAsNew { .. } | EventKind::ExecutionReopened { .. });
        self.events.last().is_some_and(|event| is_cut(&event.kind))
            || self.events.len() >= EVENTS_MAX
            || self.bytes >= BYTES_MAX
    }

    /// The newest kind among its events: whoever reads them must know it.
    pub(super) fn level(&self) -> u32 {
        self.events.iter().map(|event| event.kind.level()).max().unwrap_or(0)
    }

    /// Decides one command.
    pub(super) fn decide(
        &mut self,
        state: &mut State,
        command: Command,
        context: &Context,
    ) -> Result<Outcome, Rejection> {
        if state.is_between_runs() {
            debug_assert!(self.events.is_empty(), "a run begins with an append");
            self.extend(decide::begin_run(state, context));
        }
        let (events, outcome) = decide::decide(state, command, context)?;
        self.extend(events);
        Ok(outcome)
    }

    fn extend(&mut self, events: Vec<Event>) {
        self.bytes += events.iter().map(|event| decide::event_bytes(&event.kind)).sum::<usize>();
        self.events.extend(events);
    }

    /// Dispatches a unit to a worker whose slot is reserved. Where the unit waits no longer, or its input is too large
    /// for this worker, the reservation comes back.
    pub(super) fn hand(
        &mut self,
        state: &mut State,
        unit: Unit,
        reservation: Reservation,
        context: &Context,
    ) -> Option<Reservation> {
        let command = Command::Dispatch { unit, claimant: reservation.claimant().clone() };
        let Ok(Outcome::Dispatched(delivery)) = self.decide(state, command, context) else { return Some(reservation) };
        self.handed.push(Handed { reservation, delivery: *delivery });
        None
    }

    /// Hands units that became ready to workers that wait, until none is left that can be.
    pub(super) fn hand_off(&mut self, state: &mut State, dispatch: &Arc<Dispatch>, context: &Context) {
        loop {
            let (added, removed) = state.take_ready_changes();
            let mut fresh = Vec::new();
            for unit in removed {
                if self.added.remove(&unit).is_none() {
                    self.removed.push(unit);
                }
            }
            for waiting in added {
                let unit = ready_unit(&waiting);
                fresh.push(unit.clone());
                self.added.insert(unit.unit.clone(), unit);
            }
            // Where several became ready together, the most urgent goes first.
            fresh.sort_by(|a, b| (a.priority, a.ready_time, &a.unit).cmp(&(b.priority, b.ready_time, &b.unit)));
            let mut was_decided = false;
            for unit in fresh {
                if self.is_full() {
                    break;
                }
                if let Some(reservation) = dispatch.reserve(&unit) {
                    // One that comes back gives its slot back.
                    drop(self.hand(state, unit.unit, reservation, context));
                    was_decided = true;
                }
            }
            if !was_decided {
                return;
            }
        }
    }

    /// Makes the append. `row` is the execution's as it stands, or is to be inserted.
    pub(super) fn finish(
        &mut self,
        state: &State,
        row: &ExecutionRow,
        target: Target,
        tail: Tail,
        batch_id: Uuid,
    ) -> Drafted {
        let first_number = self.events.first().expect("an append has events").number;
        let last_number = self.events.last().expect("an append has events").number;
        let encoded = wire::event::encode_batch(&self.events);
        let added: Vec<ReadyUnit> = std::mem::take(&mut self.added).into_values().collect();
        let begins_run = self.events.first().filter(|event| matches!(event.kind, EventKind::RunStarted(_)));
        let begins_run = begins_run.map(|event| event.time);
        let to = execution_state(state);
        let state_change =
            (to != row.state).then(|| StateChange { from: row.state, to, close_time: state.close_time() });
        let wake = self.wake_change(state, row.wake_time);
        // Nothing before a run's first event is read again.
        let tail = if begins_run.is_some() { Tail { tail_bytes: 0, snapshot_bytes: 0, ..tail } } else { tail };
        let deletion = self.events.iter().find(|event| matches!(event.kind, EventKind::DeletionBegan));
        let deletion = deletion.map(|event| Deletion {
            time: event.time,
            request: event.request,
            state: row.state,
            labels: row.labels.clone(),
            start_time: row.start_time,
        });
        let tail_bytes = tail.tail_bytes + encoded.bytes.len();
        let is_snapshot_due = !to.is_closed() && tail_bytes > tail.least_bytes.max(tail.snapshot_bytes);
        let snapshot = is_snapshot_due.then(|| Snapshot {
            number: last_number,
            format: EVENT_FORMAT,
            definition_hash: state.definition().hash,
            bytes: state.to_bytes().into(),
        });
        Drafted {
            snapshot_bytes: snapshot.as_ref().map(|snapshot| snapshot.bytes.len()),
            wake_time: match wake {
                WakeChange::Keep => row.wake_time,
                WakeChange::Set(time) => time,
            },
            append: Append {
                target,
                run: state.run(),
                first_number,
                last_number,
                batch_id,
                events: encoded.bytes,
                payloads: encoded
                    .payloads
                    .into_iter()
                    .map(|large| LargePayload { sha256: large.sha256, json: large.json })
                    .collect(),
                ready_added: added.clone(),
                ready_removed: std::mem::take(&mut self.removed),
                state: state_change,
                wake,
                snapshot,
                begins_run,
                deletion: deletion.map(Box::new),
            },
            added,
        }
    }

    /// The wake-up time may be early, never late: it is lowered when something is due earlier, and set exactly when no
    /// delivery is out and nothing waits for one, or when its time has come. Otherwise the row stays untouched.
    fn wake_change(&self, state: &State, stored: Option<Timestamp>) -> WakeChange {
        let deadline = state.deadline();
        let is_exact = state.is_closed()
            || !(state.deliveries_out() || state.waiting().next().is_some())
            || stored.is_some_and(|stored| stored <= state.last_time());
        let is_earlier = deadline.is_some_and(|deadline| stored.is_none_or(|stored| deadline < stored));
        if (is_exact && deadline != stored) || is_earlier { WakeChange::Set(deadline) } else { WakeChange::Keep }
    }
}

/// What of an execution's history no snapshot includes yet; a snapshot is due once it outweighs the last one.
#[derive(Clone, Copy)]
pub(super) struct Tail {
    tail_bytes: usize,
    snapshot_bytes: usize,
    /// Smallest tail that is worth a snapshot.
    least_bytes: usize,
}

impl Tail {
    /// Of an execution that is made now.
    pub(super) const fn none(config: &Config) -> Self {
        Self { tail_bytes: 0, snapshot_bytes: 0, least_bytes: config.snapshot_tail_bytes_min }
    }

    pub(super) const fn of(hot: &Hot, config: &Config) -> Self {
        Self { tail_bytes: hot.tail_bytes, snapshot_bytes: hot.snapshot_bytes, ..Self::none(config) }
    }
}

/// The state of an execution's row.
pub(super) fn execution_state(state: &State) -> ExecutionState {
    match state.phase() {
        Phase::Running if state.is_paused() => ExecutionState::Paused,
        Phase::Running => ExecutionState::Running,
        Phase::WindingDown => ExecutionState::WindingDown,
        Phase::Succeeded => ExecutionState::Succeeded,
        Phase::Failed => ExecutionState::Failed,
        Phase::Cancelled => ExecutionState::Cancelled,
        Phase::TimedOut => ExecutionState::TimedOut,
        Phase::Terminated => ExecutionState::Terminated,
    }
}

fn ready_unit(waiting: &crate::domain::WaitingUnit) -> ReadyUnit {
    ReadyUnit {
        unit: waiting.unit.clone(),
        queue: waiting.queue.clone(),
        contract: waiting.contract.clone(),
        language: waiting.language.clone().unwrap_or_default(),
        priority: waiting.priority,
        ready_time: waiting.since,
    }
}
