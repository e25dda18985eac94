//! Schedules and slots as callers see them.

use crate::domain::Timestamp;
use crate::domain::schedule::{LeftOut, Preview};
use crate::engine::{Run, Viewed};
use crate::proto::schedule::{self as proto, planned_slot::Skip, schedule::State, slot};
use crate::store::{ScheduleState, SlotKind, SlotOutcome, SlotRow};
use crate::wire::{schedule as wire, time};

/// Writes a schedule. What it was set to is told as it is stored; settings that cannot be read are left out, and
/// `invalid_reason` says why.
pub(super) fn schedule(viewed: &Viewed) -> proto::Schedule {
    let row = &viewed.row;
    let progress = &viewed.progress.state;
    let settings = wire::stored(&row.settings).unwrap_or_default();
    let optional = |instant: Option<Timestamp>| instant.map(time::render);
    proto::Schedule {
        id: row.id.to_string(),
        uid: row.uid.to_string(),
        etag: viewed.etag(),
        state: self::state(row.state).into(),
        pause_note: row.note.to_string(),
        pause_time: optional(progress.pause.as_ref().map(|pause| pause.since)),
        invalid_reason: row.invalid.as_deref().unwrap_or_default().to_owned(),
        next_time: optional(viewed.next_slot),
        open_executions: viewed.open().iter().rev().map(run).collect(),
        last_execution: viewed.progress.last.as_ref().map(run),
        waiting_time: optional(progress.waiting.as_ref().map(|waiting| waiting.slot.nominal)),
        backfills: progress.backfills.iter().map(backfill).collect(),
        counts: Some(proto::SlotCounts {
            started: count(row.counts.started),
            skipped: count(row.counts.skipped),
            missed: count(row.counts.missed),
            failed: count(row.counts.failed),
        }),
        create_time: Some(time::render(row.create_time)),
        update_time: Some(time::render(row.update_time)),
        delete_time: optional(row.delete_time),
        ..settings
    }
}

fn run(run: &Run) -> proto::StartedExecution {
    proto::StartedExecution { id: run.id.to_string(), uid: run.uid.to_string() }
}

fn backfill(backfill: &crate::domain::schedule::Backfill) -> proto::PendingBackfill {
    proto::PendingBackfill {
        request: backfill.request.to_string(),
        cursor_time: Some(time::render(backfill.cursor)),
        last_time: Some(time::render(backfill.last)),
        concurrency: i32::try_from(backfill.concurrency).unwrap_or(i32::MAX),
    }
}

fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A row of the ledger.
pub(super) fn slot(row: &SlotRow) -> proto::Slot {
    let kind = match row.name.kind {
        SlotKind::Regular => slot::Kind::Regular,
        SlotKind::Trigger => slot::Kind::Trigger,
        SlotKind::Backfill => slot::Kind::Backfill,
    };
    proto::Slot {
        nominal_time: Some(time::render(row.name.nominal_time)),
        kind: kind.into(),
        request: row.name.request.to_string(),
        planned_time: Some(time::render(row.planned_time)),
        actual_time: Some(time::render(row.actual_time)),
        outcome: outcome(row.outcome).into(),
        last_time: Some(time::render(row.last_time)),
        slot_count: i64::try_from(row.slot_count).unwrap_or(i64::MAX),
        execution: row
            .execution
            .as_ref()
            .map(|(id, uid)| proto::StartedExecution { id: id.to_string(), uid: uid.to_string() }),
        detail: row.detail.to_string(),
    }
}

/// What became of a slot.
pub(super) const fn outcome(outcome: SlotOutcome) -> slot::Outcome {
    match outcome {
        SlotOutcome::Started => slot::Outcome::Started,
        SlotOutcome::Buffered => slot::Outcome::Buffered,
        SlotOutcome::Overlapped => slot::Outcome::Overlapped,
        SlotOutcome::Superseded => slot::Outcome::Superseded,
        SlotOutcome::Paused => slot::Outcome::Paused,
        SlotOutcome::Replaced => slot::Outcome::Replaced,
        SlotOutcome::Missed => slot::Outcome::Missed,
        SlotOutcome::Failed => slot::Outcome::Failed,
    }
}

/// The outcome that a list asks for; none for all.
///
/// # Errors
/// What is wrong with it.
pub(super) fn slot_outcome(number: i32) -> Result<Option<SlotOutcome>, String> {
    if number == 0 {
        return Ok(None);
    }
    let known = SlotOutcome::ALL.into_iter().find(|known| outcome(*known) as i32 == number);
    known.map(Some).ok_or_else(|| format!("{number} is no outcome"))
}

/// Where a schedule is in its life.
pub(super) const fn state(state: ScheduleState) -> State {
    match state {
        ScheduleState::Active => State::Active,
        ScheduleState::Paused => State::Paused,
        ScheduleState::Invalid => State::Invalid,
        ScheduleState::Completed => State::Completed,
    }
}

/// The state that a list asks for; none for all.
///
/// # Errors
/// What is wrong with it.
pub(super) fn state_of(number: i32) -> Result<Option<ScheduleState>, String> {
    if number == 0 {
        return Ok(None);
    }
    let known = ScheduleState::ALL.into_iter().find(|known| state(*known) as i32 == number);
    known.map(Some).ok_or_else(|| format!("{number} is no state"))
}

/// A slot that is to come; of a spec that is not stored `with_jitter` is false.
pub(super) fn planned(preview: &Preview, with_jitter: bool) -> proto::PlannedSlot {
    let (skip, detail) = match &preview.left_out {
        None => (Skip::Unspecified, String::new()),
        Some(LeftOut::Excluded(by)) => (Skip::Excluded, by.clone()),
        Some(LeftOut::Missing(local)) => (Skip::Missing, local.clone()),
        Some(LeftOut::Repeated) => (Skip::Repeated, String::new()),
    };
    let due = if with_jitter { preview.due } else { preview.nominal };
    proto::PlannedSlot {
        nominal_time: Some(time::render(preview.nominal)),
        planned_time: Some(time::render(due)),
        local_time: preview.local.clone(),
        skip: skip.into(),
        detail,
    }
}
