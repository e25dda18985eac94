//! Schedules and their ledger, as they are stored; and what is written to them.

use super::{Append, ExecutionKey};
use crate::domain::{RequestKey, Timestamp, Uid};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

/// How long a call's `request_id` is remembered: a call that comes later is another one.
pub const REQUEST_MEMORY: Duration = Duration::from_hours(24);

/// Key of a schedule's row: never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ScheduleKey(pub i64);

/// Where a schedule is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i16)]
#[allow(missing_docs, reason = "documented at Schedule.State, whose numbers these are")]
pub enum ScheduleState {
    Active = 1,
    Paused = 2,
    Invalid = 3,
    Completed = 4,
}

impl ScheduleState {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Active, Self::Paused, Self::Invalid, Self::Completed];
}

/// A schedule's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRow {
    /// Key; of a new one whatever it says.
    pub key: ScheduleKey,
    /// Uid, made by the server.
    pub uid: Uuid,
    /// Public id.
    pub id: Arc<str>,
    /// Raised with every write, from 1: the fence.
    pub version: u64,
    /// Raised with a caller's change only, from 1.
    pub revision: u64,
    /// Workflow that it starts.
    pub workflow: Arc<str>,
    /// What callers set, JSON text.
    pub settings: Arc<str>,
    /// Where it is in its life.
    pub state: ScheduleState,
    /// Why it is paused, for people; may be empty.
    pub note: Arc<str>,
    /// Why it cannot go on, or why its last slot did not start, for people.
    pub invalid: Option<Arc<str>>,
    /// Slots up to here have been decided.
    pub cursor_time: Timestamp,
    /// When there is something to decide; none where there never will be.
    pub next_time: Option<Timestamp>,
    /// What the decisions have come to, JSON text.
    pub progress: Arc<str>,
    /// How many slots went which way.
    pub counts: SlotCounts,
    /// When it was made.
    pub create_time: Timestamp,
    /// When a caller last changed it.
    pub update_time: Timestamp,
    /// When it was deleted. Such a row is found by its key and its uid only.
    pub delete_time: Option<Timestamp>,
}

/// How many slots of a schedule went which way, in its whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SlotCounts {
    /// Started an execution.
    pub started: u64,
    /// Left out: another one was running, newer, or the schedule was paused or changed.
    pub skipped: u64,
    /// Came too late.
    pub missed: u64,
    /// Could not be started.
    pub failed: u64,
}

/// Why there is a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i16)]
#[allow(missing_docs, reason = "documented at Slot.Kind, whose numbers these are")]
pub enum SlotKind {
    Regular = 1,
    Trigger = 2,
    Backfill = 3,
}

impl SlotKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Regular, Self::Trigger, Self::Backfill];
}

/// What became of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i16)]
#[allow(missing_docs, reason = "documented at Slot.Outcome, whose numbers these are")]
pub enum SlotOutcome {
    Started = 1,
    Buffered = 2,
    Overlapped = 3,
    Superseded = 4,
    Paused = 5,
    Replaced = 6,
    Missed = 7,
    Failed = 8,
}

impl SlotOutcome {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Started,
        Self::Buffered,
        Self::Overlapped,
        Self::Superseded,
        Self::Paused,
        Self::Replaced,
        Self::Missed,
        Self::Failed,
    ];
}

/// The identity of a slot: at most one row of the ledger, and one execution, each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotName {
    /// Nominal time.
    pub nominal_time: Timestamp,
    /// Why there is one.
    pub kind: SlotKind,
    /// Names the call that asked for it; empty for a regular one.
    pub request: Arc<str>,
}

/// An execution that a schedule has started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRun {
    /// Its id.
    pub id: Arc<str>,
    /// Its uid.
    pub uid: Uid,
}

/// A row of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRow {
    /// Which slot.
    pub name: SlotName,
    /// Nominal time with its jitter.
    pub planned_time: Timestamp,
    /// When it was decided.
    pub actual_time: Timestamp,
    /// What became of it.
    pub outcome: SlotOutcome,
    /// The last nominal time of a stretch; else the slot's own.
    pub last_time: Timestamp,
    /// Slots of a stretch; else 1.
    pub slot_count: u64,
    /// Id and uid of the execution that it started.
    pub execution: Option<(Arc<str>, Uid)>,
    /// Why, for people; may be empty.
    pub detail: Arc<str>,
}

/// One write to one schedule: all of it, or nothing.
#[derive(Clone, Debug)]
pub struct ScheduleWrite {
    /// Random; tells after a lost COMMIT whose write stands.
    pub write_id: Uuid,
    /// The version that it was decided on, which must be the row's; none for a new schedule, whose id must be free.
    pub decided_on: Option<u64>,
    /// The row as it is to be. Its `version` is the next one.
    pub row: ScheduleRow,
    /// Whether a caller made it: only then what callers set is written.
    pub is_change: bool,
    /// Rows of the ledger. A slot that is there must be one that waits ([`SlotOutcome::Buffered`]), or nothing is written.
    pub slots: Vec<SlotRow>,
    /// The call that made it, if it had a `request_id`, and when. One that is remembered already has been answered: the write
    /// is a conflict.
    pub request: Option<(RequestKey, Timestamp)>,
    /// Executions that begin with it, each new.
    pub starts: Vec<Append>,
}

/// A call with a `request_id` that changed a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRequest {
    /// The schedule as it is now, also deleted; none if the call had found none.
    pub row: Option<ScheduleRow>,
    /// Hash of the call's content.
    pub content: [u8; 16],
    /// When it was written.
    pub time: Timestamp,
}

/// What became of a write to a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleWritten {
    /// It is durable, with the executions that it began, in their order.
    Written(ScheduleKey, Vec<ExecutionKey>),
    /// Another writer was first, the id is taken, or the call is remembered; nothing of it was written.
    Conflict,
    /// It breaks a rule of the schema, decides on a slot a second time, or begins an execution that is there: a bug of who
    /// made it. Nothing of it was written.
    Failed {
        /// The rule, in the store's words.
        what: String,
    },
}

/// Finds a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FindSchedule {
    /// The one that has this id.
    Id(Arc<str>),
    /// By its uid, also after its deletion.
    Uid(Uuid),
}

/// Which schedules a list has.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ScheduleFilter {
    /// Those of this workflow.
    pub workflow: Option<Arc<str>>,
    /// Those in this state.
    pub state: Option<ScheduleState>,
}
