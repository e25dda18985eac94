//! How each kind of effect is done: what is asked of the other execution, and what its answer means.
//!
//! An answer that may become another one later is an error here, and the effect is tried again.

use super::Job;
use crate::domain::{
    ChildEnd, ChildRequest, Command, Effect, Outcome, Parent, Rejection, Settled, SignalRequest, Uid, code,
    decide::{Birth, Start},
};
use crate::engine::{Core, call::Error};
use crate::store::{ExecutionRow, Find};
use std::{collections::BTreeMap, sync::Arc};

impl Core {
    /// Does an effect; says what came of it.
    pub(super) async fn perform(self: &Arc<Self>, job: &Job) -> Result<Settled, Error> {
        match &job.effect {
            Effect::StartChild(child) => self.start_child(job, child).await,
            Effect::CancelChild { child, has_started, reason } => {
                self.cancel_child(job, child, *has_started, reason).await
            }
            Effect::TellParent { parent, end } => self.tell_parent(parent, end).await,
            Effect::Signal(signal) => self.send_signal(signal).await,
        }
    }

    /// Starts a child, or finds it started.
    async fn start_child(self: &Arc<Self>, job: &Job, child: &ChildRequest) -> Result<Settled, Error> {
        let (unit, child_id) = (child.unit.clone(), child.id.clone());
        match self.make_child(job, child, None).await? {
            Ok(child_uid) => Ok(Settled::ChildStarted { unit, child_id, child_uid }),
            Err(Unborn { code, message }) => Ok(Settled::ChildRefused { unit, child_id, code, message }),
        }
    }

    /// Cancels a child, or makes it cancelled.
    async fn cancel_child(
        self: &Arc<Self>,
        job: &Job,
        child: &ChildRequest,
        has_started: bool,
        reason: &Arc<str>,
    ) -> Result<Settled, Error> {
        let cancelled =
            |is_gone| Settled::ChildCancelled { unit: child.unit.clone(), child_id: child.id.clone(), is_gone };
        let row = match self.row_of_child(child).await? {
            Some(row) => row,
            None if has_started => return Ok(cancelled(true)),
            None => {
                let made = self.make_child(job, child, Some(reason.clone())).await?;
                return Ok(cancelled(made.is_err()));
            }
        };
        if row.state.is_closed() {
            return Ok(cancelled(false));
        }
        let cancel = Command::Cancel { reason: reason.clone(), request: None };
        match self.execute_for(row.key, Some(row.uid), cancel).await {
            Err(Error::Rejected(Rejection::Deleted)) => Ok(cancelled(true)),
            // It winds down for another cause: it ends all the same.
            Ok(_) | Err(Error::Rejected(Rejection::ExecutionClosed { .. } | Rejection::WindingDown { .. })) => {
                Ok(cancelled(false))
            }
            Err(Error::ExecutionNotFound { .. }) => Ok(cancelled(true)),
            Err(error) => Err(error),
        }
    }

    /// Makes a child, or finds it made; cancelled from the beginning, if there is a reason. What can never be made is
    /// an answer, too.
    async fn make_child(
        self: &Arc<Self>,
        job: &Job,
        child: &ChildRequest,
        cancelled: Option<Arc<str>>,
    ) -> Result<Result<Uid, Unborn>, Error> {
        let Some(definition) = self.find_definition(child.definition_hash).await? else {
            let message = "its definition is not here any more".into();
            return Ok(Err(Unborn { code: code::CHILD_NOT_STARTED, message }));
        };
        let start = Start {
            id: child.id.clone(),
            uid: Uid(self.entropy.uuid()),
            input: child.input.clone(),
            labels: BTreeMap::new(),
            request: None,
            trace_parent: child.trace_parent.clone(),
            delay: None,
            signal: None,
            results: Vec::new(),
            birth: Some(Birth { parent: parent(job, child), depth: child.depth, cancelled }),
        };
        match self.create_child(definition, start).await {
            Ok(Some(started)) => Ok(Ok(started.uid)),
            // Somebody was first, for this same attempt.
            Ok(None) => self.row_of_child(child).await?.map(|row| Ok(row.uid)).ok_or(Error::WriteConflict),
            Err(Error::Rejected(rejection @ Rejection::InputInvalid { .. })) => {
                Ok(Err(Unborn { code: code::INPUT_INVALID, message: rejection.to_string().into() }))
            }
            Err(error) => Err(error),
        }
    }

    async fn row_of_child(&self, child: &ChildRequest) -> Result<Option<ExecutionRow>, Error> {
        self.store.execution(&Find::Id(child.id.as_str().into())).await.map_err(Error::Store)
    }

    /// Gives the parent this execution's end. Whether it still waits for it is its own affair.
    async fn tell_parent(self: &Arc<Self>, parent: &Parent, end: &ChildEnd) -> Result<Settled, Error> {
        match self.execute_for(parent.key, Some(parent.uid), Command::EndChild(Box::new(end.clone()))).await {
            Ok(_) | Err(Error::ExecutionNotFound { .. }) => Ok(Settled::ParentTold),
            Err(error) => Err(error),
        }
    }

    /// Gives a signal.
    async fn send_signal(self: &Arc<Self>, signal: &SignalRequest) -> Result<Settled, Error> {
        let SignalRequest { unit, number, recipient, name, payload, sender, may_come } = signal;
        let refused = |reason, message: String| Settled::SignalRefused {
            unit: unit.clone(),
            number: *number,
            reason,
            message: message.into(),
        };
        let find = match recipient.uid {
            Some(uid) => Find::Uid(uid),
            None => Find::Id(recipient.id.as_str().into()),
        };
        let missing = || Error::ExecutionNotFound { id: recipient.id.to_string() };
        let not_found =
            || if *may_come { Err(missing()) } else { Ok(refused("EXECUTION_NOT_FOUND", missing().to_string())) };
        let Some(row) = self.store.execution(&find).await.map_err(Error::Store)? else { return not_found() };
        let command = Command::SignalFrom { sender: *sender, name: name.clone(), payload: payload.clone() };
        let rejection = match self.execute_for(row.key, Some(row.uid), command).await {
            Ok(Outcome::Recorded(_)) => return Ok(Settled::SignalTaken { unit: unit.clone(), number: *number }),
            Ok(Outcome::Report(_) | Outcome::Dispatched(_) | Outcome::Done) => return Err(Error::Internal),
            Err(Error::ExecutionNotFound { .. }) => return not_found(),
            Err(Error::Rejected(rejection)) => rejection,
            Err(error) => return Err(error),
        };
        let reason = match &rejection {
            Rejection::ExecutionClosed { .. } => "EXECUTION_CLOSED",
            Rejection::Deleted => return not_found(),
            Rejection::SignalUnknown { .. } => "SIGNAL_UNKNOWN",
            Rejection::SignalInvalid { .. } => "PAYLOAD_INVALID",
            // There will be room.
            Rejection::SignalBufferFull { .. } => return Err(Error::Rejected(rejection)),
            // There may never be.
            Rejection::WindingDown { .. } => "SIGNAL_BUFFER_FULL",
            Rejection::RequestIdReused
            | Rejection::InputInvalid { .. }
            | Rejection::NotRetryable { .. }
            | Rejection::ExecutionOpen { .. }
            | Rejection::EffectsOpen
            | Rejection::NotWaiting { .. } => return Err(Error::Internal),
        };
        Ok(refused(reason, rejection.to_string()))
    }
}

/// Why a child can never be made.
struct Unborn {
    code: &'static str,
    message: Arc<str>,
}

/// Who asks for a child.
fn parent(job: &Job, child: &ChildRequest) -> Parent {
    Parent {
        key: job.key,
        uid: job.uid,
        id: job.id.clone(),
        run: child.run,
        unit: child.unit.clone(),
        generation: child.generation,
        attempt: child.attempt,
    }
}
