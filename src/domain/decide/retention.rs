//! Begins the deletion of a closed execution.
//!
//! - It is refused while the execution is open: whoever wants to be rid of it cancels or terminates it first; and while its
//!   parent must hear of its end, or a child of its cancel.
//! - From then on nothing else is decided about it: reports come too late, as after any close, and calls find nothing; what
//!   was taken before is answered as before.

use super::Decision;
use crate::domain::{Command, EndReason, EventKind, Outcome, RefusalReason, Rejection, ReportOutcome, RequestKey};

impl Decision<'_> {
    /// Begins the deletion.
    pub(super) fn begin_deletion(&mut self, request: Option<RequestKey>) -> Result<u64, Rejection> {
        if !self.state.is_closed() {
            return Err(Rejection::ExecutionOpen { state: self.state.phase().as_str() });
        }
        if self.state.has_pending() {
            return Err(Rejection::EffectsOpen);
        }
        Ok(self.emit_for(request, EventKind::DeletionBegan))
    }

    /// Answers what comes after the deletion has begun.
    pub(super) fn after_deletion(&mut self, command: Command) -> Result<Outcome, Rejection> {
        match command {
            Command::Complete { .. }
            | Command::Fail { .. }
            | Command::EndDelivery { reason: EndReason::Released, .. } => {
                Ok(Outcome::Report(ReportOutcome::Refused(RefusalReason::ExecutionClosed)))
            }
            Command::Hold { .. }
            | Command::EndDelivery { .. }
            | Command::MissBeat { .. }
            | Command::EndChild(_)
            | Command::Settle(_)
            | Command::Wake { .. } => Ok(Outcome::Done),
            // Its sender may not have heard yet that it came.
            Command::SignalFrom { sender, .. } => {
                self.state.find_sender(sender).map(Outcome::Recorded).ok_or(Rejection::Deleted)
            }
            Command::Dispatch { unit, .. } => Err(Rejection::NotWaiting { unit }),
            Command::Signal { request, .. }
            | Command::Cancel { request, .. }
            | Command::Terminate { request, .. }
            | Command::Pause { request, .. }
            | Command::Resume { request }
            | Command::Retry { request, .. }
            | Command::BeginDeletion { request } => self.once(request, |_| Err(Rejection::Deleted)),
        }
    }
}
