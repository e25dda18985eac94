//! What a schedule does about slots that meet a run that is still open, that come too late, or that are one too many.

use super::{Fault, code, fault};
use crate::domain::SPAN_MAX;
use std::time::Duration;

/// Shortest catch-up window: what a short hitch of the server takes must not make a slot count as missed.
pub const CATCHUP_WINDOW_MIN: Duration = Duration::from_secs(10);

/// Catch-up window of a schedule that names none: 365 days, so that nothing is missed unless its owner says so.
pub const CATCHUP_WINDOW_DEFAULT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How a schedule treats its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policies {
    /// What a slot does while a run of the schedule is open. Default: skip.
    pub overlap: Overlap,
    /// How late a slot may start; later it is missed. 10 s to 36,500 days, default 365 days.
    pub catchup_window: Duration,
    /// How many regular slots start in all, at least 1; none: no limit. Triggers and backfills do not count.
    pub max_actions: Option<u64>,
    /// Whether the schedule pauses when one of its runs fails or times out. Default: no.
    pub pause_on_failure: bool,
}

impl Default for Policies {
    fn default() -> Self {
        Self {
            overlap: Overlap::Skip,
            catchup_window: CATCHUP_WINDOW_DEFAULT,
            max_actions: None,
            pause_on_failure: false,
        }
    }
}

impl Policies {
    /// All faults at once; none if the policies may be used. Paths are `catchup_window` and `max_actions`.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if !(CATCHUP_WINDOW_MIN..=SPAN_MAX).contains(&self.catchup_window) {
            faults.push(fault(
                "catchup_window",
                code::OUT_OF_RANGE,
                format!(
                    "{} is outside 10s to 876000h",
                    crate::domain::definition::duration::format(self.catchup_window)
                ),
                "a slot that starts later than this counts as missed",
            ));
        }
        if self.max_actions == Some(0) {
            faults.push(fault(
                "max_actions",
                code::OUT_OF_RANGE,
                "0 is outside 1 to 2^63 - 1",
                "leave it out for no limit; pause the schedule to start nothing",
            ));
        }
        faults
    }
}

/// What a slot does while a run of the schedule is open, whether a slot, a trigger or a backfill has started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// It is skipped.
    Skip,
    /// It starts beside it.
    Allow,
    /// It waits until no run is open. One can wait; while it does, others are skipped.
    BufferOne,
    /// The open run is asked to cancel, and the slot starts when it has ended. While it waits, a newer slot takes its
    /// place.
    CancelPrevious,
    /// As before, but the open run is terminated: no handler and no compensation of it runs.
    TerminatePrevious,
}
