//! Cancels, terminates, winds down and closes.
//!
//! - The first cause wins: a failure, a cancel or the execution's timeout starts the wind-down, later ones do not count.
//! - Winding down drops all that waits. Deliveries that are out may report until `give_up_time`; when none is out any
//!   more what succeeded is undone (`compensation`), the handlers of the cause run, and the execution closes by its cause;
//!   FAILED, if something could not be undone.
//! - A terminate closes at once, also while it winds down. Each of them lifts a pause (`State::enter` in `state::evolve`).

use super::Decision;
use crate::domain::state::Phase;
use crate::domain::{Cause, EventKind, Failure, Rejection, RequestKey, code};
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

    /// Fails an execution whose run has as many events as one may have: most likely a loop without an end. What undoes and
    /// handles may add to them.
    pub(super) fn guard_history(&mut self) {
        let most = self.settings.history_events_max;
        let is_running = self.state.phase() == Phase::Running && !self.state.is_between_runs();
        if !is_running || self.state.history_events() < most || !self.has_room() {
            return;
        }
        let message =
            format!("the run has {most} events, and no more are allowed; `continue_as_new` begins another one");
        self.start_wind_down(Cause::Failure(Failure::new(code::HISTORY_TOO_LONG, message, &Arc::from(""))), None);
        self.settle();
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
