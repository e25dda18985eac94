//! From a decision to what is written, and on to what follows from it.

use super::{begin::Looked, progress::Run};
use crate::domain::schedule::{Decision, Ending, Entry, Outcome, PauseReason, SkipReason, Slot, SlotKind, State};
use crate::domain::{Command, RequestKey, Timestamp, digest16};
use crate::engine::{Core, call::Error, start::Prepared};
use crate::store::{
    self, ExecutionKey, Find, ScheduleKey, ScheduleRow, ScheduleState, ScheduleWrite, ScheduleWritten, SlotName,
    SlotOutcome, SlotRow,
};
use crate::telemetry;
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

/// How soon a schedule is looked at again of which something waits for the end of an execution: usually that end is heard of.
const RECHECK: Duration = Duration::from_secs(10);
/// Executions that begin in one transaction, and bytes of them, one schedule's excepted.
const STARTS_MAX: usize = 512;
const BYTES_MAX: usize = 8 * 1024 * 1024;

/// Why open executions are asked to end.
const ENDED: &str = "the next slot of its schedule has come";

/// A decision with all that is to be written.
pub(super) struct Firing {
    pub(super) write: ScheduleWrite,
    /// What begins with it, in the order of `write.starts`.
    openings: Vec<Prepared>,
    /// The slot that had waited for the end of an execution, whose lateness is meant.
    waited: Option<SlotName>,
    /// What is asked of which open executions, for which slot.
    ending: Option<(Ending, Slot, Vec<Run>)>,
}

/// What became of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fired {
    /// It is in force, and durable.
    Written(ScheduleKey),
    /// Somebody else was first.
    Conflict,
    /// It can never be written; the log has why.
    Failed,
}

impl Firing {
    /// Whether nothing would change.
    pub(super) fn is_idle(&self, before: &ScheduleRow) -> bool {
        let row = &self.write.row;
        self.write.slots.is_empty()
            && row.progress == before.progress
            && row.next_time == before.next_time
            && row.cursor_time == before.cursor_time
            && row.state == before.state
    }
}

impl Core {
    /// Makes what is to be written of a decision. The row is as it was, but for what a caller has changed in it.
    ///
    /// # Errors
    /// Those of starts that have nothing to do with the schedule, such as `LevelTooHigh`.
    pub(super) fn draft_firing(
        self: &Arc<Self>,
        looked: &Looked,
        decision: Decision,
        now: Timestamp,
    ) -> Result<Firing, Error> {
        let Decision { state, entries, ending, mut wake } = decision;
        let mut progress = looked.record.progress.clone();
        let open_before = progress.open.clone();
        progress.state = state;
        let mut row = looked.record.row.clone();
        let (mut slots, mut openings) = (Vec::with_capacity(entries.len()), Vec::new());
        for entry in entries {
            let opened = match &entry.outcome {
                Outcome::Started { .. } => Some(self.open_slot(looked, &entry.slot, now)?),
                Outcome::Buffered | Outcome::Skipped(_) | Outcome::Missed | Outcome::Failed { .. } => None,
            };
            let mut slot = slot_row(&entry, now);
            match (opened, &entry.outcome) {
                (Some(Ok(prepared)), _) => {
                    let run = Run { id: prepared.id().clone(), uid: prepared.uid() };
                    slot.execution = Some((run.id.clone(), run.uid));
                    progress.started(run);
                    openings.push(prepared);
                    row.invalid = None;
                }
                (Some(Err(why)), _) => {
                    slot.outcome = SlotOutcome::Failed;
                    slot.detail = why.clone();
                    let is_regular = entry.slot.kind == SlotKind::Regular;
                    progress.state.actions = progress.state.actions.saturating_sub(u64::from(is_regular));
                    if let Ok(plan) = &looked.record.plan {
                        plan.schedule.run_ended(&mut progress.state, Some(&why), now);
                    }
                    row.invalid = Some(why);
                    // The rules took it for started, and so perhaps for the last one that may, or for an open one.
                    wake = Some(wake.map_or(now, |wake| wake.min(now)));
                }
                (None, Outcome::Failed { reason }) => row.invalid = Some(reason.clone()),
                (None, _) => {}
            }
            count(&mut row, &slot);
            slots.push(slot);
        }
        if let Err(why) = &looked.record.plan {
            if row.invalid.as_ref() != Some(why) {
                tracing::error!(schedule = &*row.id, %why, "a schedule cannot be read and waits for its owner");
            }
            row.invalid = Some(why.clone());
        }
        let state = &progress.state;
        row.next_time = next_time(state, wake, now);
        row.state = life(&row, state);
        if !looked.record.is_damaged {
            row.note = match state.pause.as_ref().map(|pause| &pause.reason) {
                Some(PauseReason::Asked { note } | PauseReason::Failure { note }) => note.clone(),
                None => Arc::from(""),
            };
            row.cursor_time = state.cursor;
            row.progress = progress.store().into();
        }
        let decided_on = row.version;
        row.version += 1;
        let ending = ending.zip(progress.state.waiting.map(|waiting| waiting.slot));
        Ok(Firing {
            write: ScheduleWrite {
                write_id: self.entropy.uuid(),
                decided_on: Some(decided_on),
                row,
                is_change: false,
                slots,
                request: None,
                starts: openings.iter().map(|prepared| prepared.append().clone()).collect(),
            },
            openings,
            waited: looked.record.progress.state.waiting.as_ref().map(|waiting| slot_name(&waiting.slot)),
            ending: ending.map(|(ending, slot)| (ending, slot, open_before)),
        })
    }

    /// Writes decisions of different schedules, as many at once as make sense, and does what follows from each. Answers in their
    /// order.
    pub(super) async fn fire(self: &Arc<Self>, firings: Vec<Firing>) -> Result<Vec<Fired>, Error> {
        let mut fired = Vec::with_capacity(firings.len());
        let mut rest = firings.into_iter().peekable();
        while rest.peek().is_some() {
            let (mut writes, mut after) = (Vec::new(), Vec::new());
            let (mut starts, mut bytes) = (0, 0);
            while let Some(next) = rest.peek() {
                starts += next.write.starts.len();
                bytes += next.write.starts.iter().map(|start| start.events.len()).sum::<usize>();
                if !writes.is_empty() && (starts > STARTS_MAX || bytes > BYTES_MAX) {
                    break;
                }
                let Some(Firing { write, openings, waited, ending }) = rest.next() else { break };
                after.push((write.row.uid, told(&write.slots, waited.as_ref()), openings, ending));
                writes.push(write);
            }
            self.committer.set_written();
            let written = self.store.write_schedules(writes).await.map_err(Error::Store)?;
            for ((uid, told, openings, ending), written) in after.into_iter().zip(written) {
                fired.push(match written {
                    ScheduleWritten::Written(key, executions) => {
                        self.has_fired(uid, &told, openings.into_iter().zip(executions), ending);
                        Fired::Written(key)
                    }
                    ScheduleWritten::Conflict => Fired::Conflict,
                    ScheduleWritten::Failed { what } => {
                        tracing::error!(schedule = %uid, what, "a decision of a schedule cannot be written");
                        Fired::Failed
                    }
                });
            }
        }
        Ok(fired)
    }

    /// Does what follows from a decision that was written.
    fn has_fired(
        self: &Arc<Self>,
        uid: Uuid,
        told: &[Told],
        begun: impl Iterator<Item = (Prepared, ExecutionKey)>,
        ending: Option<(Ending, Slot, Vec<Run>)>,
    ) {
        for Told { outcome, slots, lag } in told {
            metrics::counter!(telemetry::SCHEDULE_SLOTS, "outcome" => outcome_name(*outcome)).increment(*slots);
            if let Some(lag) = lag {
                metrics::histogram!(telemetry::SCHEDULE_FIRE_LAG).record(lag.as_secs_f64());
            }
        }
        for (prepared, key) in begun {
            self.has_begun(prepared, key);
        }
        if let Some((ending, slot, open)) = ending {
            self.tasks.spawn(end_open(self.clone(), uid, ending, slot, open));
        }
    }
}

/// What metrics tell of a row of the ledger.
struct Told {
    outcome: SlotOutcome,
    slots: u64,
    /// How late it started, if nothing but the server made it late.
    lag: Option<Duration>,
}

fn told(slots: &[SlotRow], waited: Option<&SlotName>) -> Vec<Told> {
    let told = |slot: &SlotRow| {
        let is_punctual = slot.outcome == SlotOutcome::Started
            && slot.name.kind == store::SlotKind::Regular
            && waited.is_none_or(|waited| *waited != slot.name);
        Told {
            outcome: slot.outcome,
            slots: slot.slot_count,
            lag: is_punctual.then(|| slot.actual_time.since(slot.planned_time)),
        }
    };
    slots.iter().map(told).collect()
}

/// Asks open executions of a schedule to end. Asked again it changes nothing: each is asked under a name of the slot's.
async fn end_open(core: Arc<Core>, schedule: Uuid, ending: Ending, slot: Slot, open: Vec<Run>) {
    for run in open {
        let nominal = slot.nominal.as_micros().to_be_bytes();
        let key = digest16(&[b"end for slot", schedule.as_bytes(), &nominal, run.uid.0.as_bytes()]);
        let request = Some(RequestKey { key, content: digest16(&[b"end for slot"]) });
        let command = match ending {
            Ending::Cancel => Command::Cancel { reason: ENDED.into(), request },
            Ending::Terminate => Command::Terminate { reason: ENDED.into(), request },
        };
        let ended = match core.store.execution(&Find::Uid(run.uid)).await {
            Ok(Some(row)) if !row.state.is_closed() => {
                core.execute_for(row.key, Some(run.uid), command).await.map(drop)
            }
            Ok(_) => Ok(()),
            Err(error) => Err(Error::Store(error)),
        };
        match ended {
            // It has ended meanwhile, or winds down already.
            Ok(()) | Err(Error::Rejected(_) | Error::ExecutionNotFound { .. }) => {}
            // The schedule is looked at again, and this done again.
            Err(error) => tracing::debug!(execution = %run.id, %error, "an open execution could not be asked to end"),
        }
    }
}

fn slot_row(entry: &Entry, now: Timestamp) -> SlotRow {
    let (outcome, detail) = match &entry.outcome {
        Outcome::Started { .. } => (SlotOutcome::Started, Arc::from("")),
        Outcome::Buffered => (SlotOutcome::Buffered, Arc::from("")),
        Outcome::Skipped(SkipReason::Overlap) => (SlotOutcome::Overlapped, Arc::from("")),
        Outcome::Skipped(SkipReason::Superseded) => (SlotOutcome::Superseded, Arc::from("")),
        Outcome::Skipped(SkipReason::Paused) => (SlotOutcome::Paused, Arc::from("")),
        Outcome::Skipped(SkipReason::Replaced) => (SlotOutcome::Replaced, Arc::from("")),
        Outcome::Missed => (SlotOutcome::Missed, Arc::from("")),
        Outcome::Failed { reason } => (SlotOutcome::Failed, reason.clone()),
    };
    SlotRow {
        name: slot_name(&entry.slot),
        planned_time: entry.due,
        actual_time: now,
        outcome,
        last_time: entry.last,
        slot_count: entry.count,
        execution: None,
        detail,
    }
}

/// The name of a slot in the ledger.
pub(super) fn slot_name(slot: &Slot) -> SlotName {
    let kind = match &slot.kind {
        SlotKind::Regular => store::SlotKind::Regular,
        SlotKind::Trigger { .. } => store::SlotKind::Trigger,
        SlotKind::Backfill { .. } => store::SlotKind::Backfill,
    };
    SlotName { nominal_time: slot.nominal, kind, request: slot.kind.request().into() }
}

fn count(row: &mut ScheduleRow, slot: &SlotRow) {
    let count = match slot.outcome {
        SlotOutcome::Started => &mut row.counts.started,
        SlotOutcome::Overlapped | SlotOutcome::Superseded | SlotOutcome::Paused | SlotOutcome::Replaced => {
            &mut row.counts.skipped
        }
        SlotOutcome::Missed => &mut row.counts.missed,
        SlotOutcome::Failed => &mut row.counts.failed,
        SlotOutcome::Buffered => return,
    };
    *count += slot.slot_count;
}

const fn outcome_name(outcome: SlotOutcome) -> &'static str {
    match outcome {
        SlotOutcome::Started => "started",
        SlotOutcome::Buffered => "buffered",
        SlotOutcome::Overlapped => "overlapped",
        SlotOutcome::Superseded => "superseded",
        SlotOutcome::Paused => "paused",
        SlotOutcome::Replaced => "replaced",
        SlotOutcome::Missed => "missed",
        SlotOutcome::Failed => "failed",
    }
}

/// When there is something to decide. What has more to do at once takes its place behind those that are due already.
fn next_time(state: &State, wake: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    let is_held = |slot: &Slot| state.pause.is_some() && slot.kind == SlotKind::Regular;
    let waits = state.waiting.as_ref().is_some_and(|waiting| !is_held(&waiting.slot));
    let recheck = (waits || !state.backfills.is_empty()).then(|| now + RECHECK);
    wake.map(|wake| wake.max(now)).into_iter().chain(recheck).min()
}

fn life(row: &ScheduleRow, state: &State) -> ScheduleState {
    if state.pause.is_some() {
        ScheduleState::Paused
    } else if row.invalid.is_some() {
        ScheduleState::Invalid
    } else if row.next_time.is_none() && state.waiting.is_none() {
        ScheduleState::Completed
    } else {
        ScheduleState::Active
    }
}
