//! Slots: what a schedule starts at most one execution for, and how it is named.

use crate::domain::{ExecutionId, Timestamp, digest16};
use std::{fmt, sync::Arc};
use uuid::Uuid;

/// Uid of a schedule: made by the server, never reused, so a schedule that was deleted and made again under its name is
/// another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ScheduleUid(pub Uuid);

impl fmt::Display for ScheduleUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One time at which a schedule starts an execution, or would. With the schedule's uid it is the identity of the start:
/// neither a change of the schedule's jitter nor the time at which it really starts is part of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot {
    /// When it is planned: what the run is for, whenever it really starts.
    pub nominal: Timestamp,
    /// Why it is there.
    pub kind: SlotKind,
}

/// Why a slot is there.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SlotKind {
    /// The schedule's times say so.
    Regular,
    /// Somebody asked for a run now; `nominal` is when.
    Trigger {
        /// Names the call among those of the schedule.
        request: Arc<str>,
    },
    /// Somebody asked for the times of a span again.
    Backfill {
        /// Names the call among those of the schedule.
        request: Arc<str>,
    },
}

impl SlotKind {
    /// The kind as it is stored and as it is part of an execution's id; never changes.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Regular => "regular",
            Self::Trigger { .. } => "trigger",
            Self::Backfill { .. } => "backfill",
        }
    }

    /// The call that asked for it; empty for a regular one.
    #[must_use]
    pub fn request(&self) -> &str {
        match self {
            Self::Regular => "",
            Self::Trigger { request } | Self::Backfill { request } => request,
        }
    }
}

impl Slot {
    /// A slot of the schedule's own times.
    #[must_use]
    pub const fn regular(nominal: Timestamp) -> Self {
        Self { nominal, kind: SlotKind::Regular }
    }

    /// The id of the execution that the slot starts: one for each slot, which nobody can choose.
    #[must_use]
    pub fn execution_id(&self, schedule: ScheduleUid) -> ExecutionId {
        // A repeated call for a run now comes at another time, but is the same call.
        let nominal = match self.kind {
            SlotKind::Regular | SlotKind::Backfill { .. } => self.nominal.as_micros(),
            SlotKind::Trigger { .. } => 0,
        };
        ExecutionId::derived(digest16(&[
            b"slot",
            schedule.0.as_bytes(),
            self.kind.name().as_bytes(),
            &nominal.to_le_bytes(),
            self.kind.request().as_bytes(),
        ]))
    }
}
