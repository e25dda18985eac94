//! What a schedule remembers between two decisions. It is stored whole, with every decision that changes it.

use super::{Overlap, PACE, Slot};
use crate::domain::Timestamp;
use std::sync::Arc;

/// Most backfills of a schedule that are not done.
pub const BACKFILLS_MAX: usize = 10;

/// Most slots of one backfill.
pub const BACKFILL_SLOTS_MAX: u64 = 10_000;

/// Most runs that a backfill may keep open at once.
pub const BACKFILL_CONCURRENCY_MAX: u32 = 100;

/// The state of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Regular slots up to here, itself included, are decided. It never goes back.
    pub cursor: Timestamp,
    /// Regular slots that have started an execution.
    pub actions: u64,
    /// Why and since when nothing starts by itself.
    pub pause: Option<Pause>,
    /// When the last pause ended: slots up to here that are not decided yet were passed over by it.
    pub resume_time: Option<Timestamp>,
    /// The slot that starts when no run is open any more.
    pub waiting: Option<Waiting>,
    /// As many have started at once as may: what was late by then, and backfills, go on from here. It lies at most
    /// [`PACE`] ahead; beyond that the clock was put back, and it means nothing.
    pub paced_until: Option<Timestamp>,
    /// Backfills that are not done, in the order in which they were asked for; at most [`BACKFILLS_MAX`].
    pub backfills: Vec<Backfill>,
}

/// A pause. Triggers and backfills do not heed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub reason: PauseReason,
}

/// Why a schedule is paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PauseReason {
    /// Somebody asked for it, and may have said why.
    Asked {
        /// What they said.
        note: Arc<str>,
    },
    /// A run failed or timed out, or could not be started, and the schedule pauses on failure.
    Failure {
        /// What failed, for people.
        note: Arc<str>,
    },
}

/// A slot that waits for the end of open runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The slot.
    pub slot: Slot,
    /// What is asked of the open runs until they have ended; none: to go on.
    pub ending: Option<Ending>,
}

/// How open runs are asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// As `CancelExecution`.
    Cancel,
    /// As `TerminateExecution`.
    Terminate,
}

/// A call for a run now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Names the call among those of the schedule: a repeated call has the same, and its run the same id.
    pub request: Arc<str>,
    /// What to do while a run is open; none: what the schedule does.
    pub overlap: Option<Overlap>,
}

/// A call for the slots of a span, which start one after another, whether they have started before or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backfill {
    /// Names the call among those of the schedule.
    pub request: Arc<str>,
    /// Slots up to here, itself included, have started; at first just before the span.
    pub cursor: Timestamp,
    /// The last instant that belongs to the span.
    pub last: Timestamp,
    /// How many runs of the schedule may be open for another to start: 1 to [`BACKFILL_CONCURRENCY_MAX`].
    pub concurrency: u32,
}

impl State {
    /// The state of a schedule that is made at this instant. Slots up to here never start by themselves.
    #[must_use]
    pub const fn new(now: Timestamp) -> Self {
        Self {
            cursor: now,
            actions: 0,
            pause: None,
            resume_time: None,
            waiting: None,
            paced_until: None,
            backfills: Vec::new(),
        }
    }

    /// Until when nothing late and no backfill starts, if that lies ahead.
    #[must_use]
    pub fn pace(&self, now: Timestamp) -> Option<Timestamp> {
        self.paced_until.filter(|until| *until > now && *until <= now + PACE)
    }

    /// Pauses: no regular slot starts any more, also not one that waits. A pause that lasts stays as it is, but a call
    /// replaces the reason.
    pub fn pause(&mut self, reason: PauseReason, now: Timestamp) {
        let since = self.pause.as_ref().map_or(now, |pause| pause.since);
        self.pause = Some(Pause { since, reason });
    }

    /// Ends a pause. What it has passed over does not start; a slot that waited for the end of a run does.
    pub fn resume(&mut self, now: Timestamp) {
        if self.pause.take().is_some() {
            self.resume_time = Some(self.resume_time.map_or(now, |time| time.max(now)));
        }
    }
}
