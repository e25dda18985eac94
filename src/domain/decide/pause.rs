//! Holds an execution and lets it go on.
//!
//! - While it is held nothing begins: no step, no item, no attempt, no hand-out, and it does not end well either. What
//!   workers have goes on and reports; waits for signals, the timeouts of deliveries and of the execution go on, too.
//! - Queue timeouts, retries and sleeps are held. Afterwards those that became due meanwhile follow at once, and a queue
//!   timeout counts anew.
//! - Whatever ends the running lifts the pause: a cancel, a terminate, a timeout, a failure (`State::enter` in
//!   `state::evolve` forgets it).

use super::Decision;
use crate::domain::{EventKind, Rejection, RequestKey};
use std::sync::Arc;

impl Decision<'_> {
    /// Pauses. Pausing again is answered from the first pause.
    pub(super) fn pause(&mut self, reason: Arc<str>, request: Option<RequestKey>) -> Result<u64, Rejection> {
        self.expect_running()?;
        match self.state.pause_number() {
            Some(number) => Ok(number),
            None => Ok(self.emit_for(request, EventKind::ExecutionPaused { reason })),
        }
    }

    /// Lets it go on; 0 if it is not paused.
    pub(super) fn resume(&mut self, request: Option<RequestKey>) -> Result<u64, Rejection> {
        self.expect_running()?;
        if !self.state.is_paused() {
            return Ok(0);
        }
        Ok(self.emit_for(request, EventKind::ExecutionResumed))
    }

    fn expect_running(&self) -> Result<(), Rejection> {
        self.expect_open()?;
        match self.state.wind_down() {
            None => Ok(()),
            Some((_, cause)) => Err(Rejection::WindingDown { cause: cause.as_str() }),
        }
    }
}
