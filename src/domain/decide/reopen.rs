//! Retries a closed execution: the only way out of FAILED and TIMED_OUT.
//!
//! - What runs again is told by [`State::to_reopen`](crate::domain::State); it does so as a new generation, with attempts
//!   from 1 and other idempotency keys. Reports of older generations never count.
//! - It is a decision of its own: what runs again begins with the next one.
//! - The execution's timeout counts anew. What others have made of its end stands in the way: see [`Obstacle`].

use super::Decision;
use crate::domain::state::Phase;
use crate::domain::{EventKind, Obstacle, Rejection, RequestKey};

impl Decision<'_> {
    /// Makes it run again.
    pub(super) fn retry(&mut self, obstacle: Option<Obstacle>, request: Option<RequestKey>) -> Result<u64, Rejection> {
        let phase = self.state.phase();
        let obstacle = match phase {
            // Its parent has the end, or it is on its way and cannot be called back: the unit is resolved, or its next
            // attempt has another child. Whoever wants the child again retries the parent.
            Phase::Failed | Phase::TimedOut if self.state.parent().is_some() => Some(Obstacle::ParentDone),
            Phase::Failed | Phase::TimedOut => obstacle,
            Phase::Running | Phase::WindingDown => Some(Obstacle::Open),
            Phase::Succeeded | Phase::Cancelled | Phase::Terminated => Some(Obstacle::NotFailed),
        };
        if let Some(obstacle) = obstacle {
            return Err(Rejection::NotRetryable { state: phase.as_str(), obstacle });
        }
        let steps = self.state.to_reopen();
        let generation = self.state.generation() + 1;
        let expire_time = self.state.definition().timeout.map(|timeout| self.now + timeout);
        Ok(self.emit_for(request, EventKind::ExecutionReopened { steps, generation, expire_time }))
    }
}
