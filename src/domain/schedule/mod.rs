//! When a schedule starts executions, as functions of values.
//!
//! A [`Draft`] is what the owner wrote; [`Spec::check`] finds every fault of it at once or makes a [`Spec`], which tells
//! the slot after any instant. A [`Schedule`] is a spec with its [`Policies`]; it decides from its [`State`] and the time
//! which slots start, wait, are skipped or missed, a bounded number at a time.
//!
//! - A slot is named by the schedule's uid and its nominal time; the id of its execution follows from that.
//! - The slot after an instant is later than the instant, always: no change of the clocks makes a loop or a second start.
//! - Nothing is ever read as UTC because its zone is unknown.

mod check;
mod civil;
mod cron;
mod decide;
mod decision;
mod draft;
mod fault;
mod pattern;
mod policy;
mod preview;
#[expect(clippy::module_inception, reason = "a schedule is the folder's central item, and has rules of its own")]
mod schedule;
mod slot;
mod spec;
mod state;
#[cfg(test)]
mod tests;
mod zone;

pub use check::JITTER_MAX;
pub use decide::{ENTRIES_MAX, PACE, SLOTS_MAX, STARTS_MAX};
pub use decision::{Decision, Entry, Outcome, Situation, SkipReason};
pub use draft::{Calendar, DateRange, Draft, Exclusions, Interval, Missing, Range, Repeated};
pub use fault::code;
pub use policy::{CATCHUP_WINDOW_DEFAULT, CATCHUP_WINDOW_MIN, Overlap, Policies};
pub use preview::{LeftOut, Outlook, PREVIEW_MAX, Preview};
pub use schedule::{BackfillError, Schedule};
pub use slot::{ScheduleUid, Slot, SlotKind};
pub use spec::{Spec, Upcoming};
pub use state::{
    BACKFILL_CONCURRENCY_MAX, BACKFILL_SLOTS_MAX, BACKFILLS_MAX, Backfill, Ending, Pause, PauseReason, State, Trigger,
    Waiting,
};

pub use crate::domain::definition::{Fault, ScheduleScope, SlotInput};
use fault::fault;

/// Most crons, intervals or calendars of a schedule, each; also of those that it excludes, and of excluded dates.
pub const SOURCES_MAX: usize = 100;
