//! Cancels, terminates, winds down and closes.
//!
//! - The first cause wins: a failure, a cancel or the execution's timeout starts the wind-down, later ones do not count.
//! - Winding down drops all that waits. Deliveries that are out may report until `give_up_time`; when none is out any
//!   more what succeeded is undone (`compensation`), the handlers of the cause run, and the execution closes by its cause;
//!   FAILED, if something could not be undone.
//! - A terminate closes at once, also while it winds down.

use super::Decision;
use crate::domain::state::Phase;
use crate::domain::{Cause, EventKind, Rejection, RequestKey};
use std::sync::Arc;

impl Decision<'_> {
    /// Cancels. Cancelling again is answered from the first cancel; after another cause it is refused, since the
    /// execution will not end CANCELLED.
    pub(super) fn cancel(&mut self, reason: Arc<str>, request: Option<RequestKey>) -> Result<u64, Rejection> {
        self.expect_open()?;
        match self.state.wind_down() {
            None => Ok(self.start_wind_down(Cause::Cancel(reason), request)),
            Some((number, Cause::Cancel(_))) => Ok(number),
            Some((_, cause @ (Cause::Failure(_) | Cause::Timeout))) => {
                Err(Rejection::WindingDown { cause: cause.as_str() })
            }
        }
    }

    /// Ends the execution at once.
    pub(super) fn terminate(&mut self, reason: Arc<str>, request: Option<RequestKey>) -> Result<u64, Rejection> {
        self.expect_open()?;
        Ok(self.emit_for(request, EventKind::ExecutionTerminated { reason }))
    }

    pub(super) fn expect_open(&self) -> Result<(), Rejection> {
        let phase = self.state.phase();
        if phase.is_closed() { Err(Rejection::ExecutionClosed { state: phase.as_str() }) } else { Ok(()) }
    }

    /// Winds down; the caller knows that the execution runs.
    pub(super) fn start_wind_down(&mut self, cause: Cause, request: Option<RequestKey>) -> u64 {
        debug_assert_eq!(self.state.phase(), Phase::Running, "the first cause wins");
        let give_up_time = self.now + self.settings.cancel_grace;
        self.emit_for(request, EventKind::WindDownStarted { cause, give_up_time })
    }

    /// Closes an execution that has wound down.
    pub(super) fn close(&mut self) {
        let kind = match (self.state.cause(), self.compensation_failure()) {
            (Some(Cause::Failure(failure)), _) => EventKind::ExecutionFailed { failure: failure.clone() },
            (Some(Cause::Cancel(_) | Cause::Timeout), Some(failure)) => EventKind::ExecutionFailed { failure },
            (Some(Cause::Cancel(_)), None) => EventKind::ExecutionCancelled,
            (Some(Cause::Timeout), None) => EventKind::ExecutionTimedOut,
            (None, _) => return,
        };
        self.emit(kind);
    }
}
