//! Events to messages.

use super::run;
use crate::domain::{Cause, EndReason, Event, EventKind, Failure, Parent, Payload, RequestKey, SkipReason};
use crate::proto::workflow::{self as proto, delivery_ended, event::Kind, step_skipped};
use crate::wire::time;

/// How a payload is written: in its place, or as a reference.
pub(super) type Write<'a> = dyn FnMut(&Payload) -> proto::Payload + 'a;

pub(super) fn to_proto(event: &Event, write: &mut Write<'_>) -> proto::Event {
    proto::Event {
        number: i64::try_from(event.number).expect("an execution has fewer events than 2^63"),
        time: Some(time::render(event.time)),
        request: event.request.map(request_to_proto),
        kind: Some(kind_to_proto(&event.kind, write)),
    }
}

#[expect(clippy::too_many_lines, reason = "one arm for each kind of event, in the order of event.proto")]
fn kind_to_proto(kind: &EventKind, write: &mut Write<'_>) -> Kind {
    match kind {
        EventKind::ExecutionCreated(created) => Kind::ExecutionCreated(run::created(created, write)),
        EventKind::StepScheduled { unit, attempt, input } => Kind::StepScheduled(proto::StepScheduled {
            unit: unit.to_string(),
            attempt: signed(*attempt),
            input: input.as_ref().map(write),
        }),
        EventKind::StepDispatched { unit, attempt, delivery, session_id, worker_id, check_time, expire_time } => {
            Kind::StepDispatched(proto::StepDispatched {
                unit: unit.to_string(),
                attempt: signed(*attempt),
                delivery: signed(*delivery),
                session_id: session_id.to_string(),
                worker_id: worker_id.to_string(),
                check_time: Some(time::render(*check_time)),
                expire_time: expire_time.map(time::render),
            })
        }
        EventKind::TaskHeld { unit, delivery } => {
            Kind::TaskHeld(proto::TaskHeld { unit: unit.to_string(), delivery: signed(*delivery) })
        }
        EventKind::DeliveryEnded { unit, delivery, reason, progress } => Kind::DeliveryEnded(proto::DeliveryEnded {
            unit: unit.to_string(),
            delivery: signed(*delivery),
            reason: end_reason_to_proto(*reason).into(),
            progress: progress.as_ref().map(write),
        }),
        EventKind::AttemptFailed { unit, attempt, delivery, failure, retry_time, progress, report } => {
            Kind::AttemptFailed(proto::AttemptFailed {
                unit: unit.to_string(),
                attempt: signed(*attempt),
                delivery: signed(*delivery),
                failure: Some(failure_to_proto(failure, write)),
                retry_time: retry_time.map(time::render),
                progress: progress.as_ref().map(write),
                report: report.map(|hash| hash.to_vec()).unwrap_or_default(),
            })
        }
        EventKind::StepSucceeded { unit, output, delivery, signal_number, report } => {
            Kind::StepSucceeded(proto::StepSucceeded {
                unit: unit.to_string(),
                output: Some(write(output)),
                delivery: signed(*delivery),
                signal_number: signal_number.map_or(0, signed_number),
                report: report.map(|hash| hash.to_vec()).unwrap_or_default(),
            })
        }
        EventKind::StepFailed { unit, failure } => Kind::StepFailed(proto::StepFailed {
            unit: unit.to_string(),
            failure: Some(failure_to_proto(failure, write)),
        }),
        EventKind::StepSkipped { unit, reason } => {
            Kind::StepSkipped(proto::StepSkipped { unit: unit.to_string(), reason: skip_reason(*reason).into() })
        }
        EventKind::StepCancelled { unit } => Kind::StepCancelled(proto::StepCancelled { unit: unit.to_string() }),
        EventKind::SleepStarted { unit, wake_time } => Kind::SleepStarted(proto::SleepStarted {
            unit: unit.to_string(),
            wake_time: Some(time::render(*wake_time)),
        }),
        EventKind::AwaitStarted { unit, expire_time } => Kind::AwaitStarted(proto::AwaitStarted {
            unit: unit.to_string(),
            expire_time: expire_time.map(time::render),
        }),
        EventKind::SignalReceived { name, payload, expire_time, sender, handler } => {
            Kind::SignalReceived(proto::SignalReceived {
                name: name.to_string(),
                payload: Some(write(payload)),
                expire_time: expire_time.map(time::render),
                sender: sender.map(|key| key.to_vec()).unwrap_or_default(),
                handler: handler.as_ref().map(ToString::to_string).unwrap_or_default(),
            })
        }
        EventKind::SignalExpired { signal_number } => {
            Kind::SignalExpired(proto::SignalExpired { signal_number: signed_number(*signal_number) })
        }
        EventKind::LateSuccess { unit, delivery, output } => Kind::LateSuccess(proto::LateSuccess {
            unit: unit.to_string(),
            delivery: signed(*delivery),
            output: Some(write(output)),
        }),
        EventKind::WindDownStarted { cause, give_up_time } => {
            let (code, failure, reason) = match cause {
                Cause::Failure(failure) => {
                    (proto::Cause::Failure, Some(failure_to_proto(failure, write)), String::new())
                }
                Cause::Cancel(reason) => (proto::Cause::Cancel, None, reason.to_string()),
                Cause::Timeout => (proto::Cause::Timeout, None, String::new()),
            };
            Kind::WindDownStarted(proto::WindDownStarted {
                cause: code.into(),
                failure,
                reason,
                give_up_time: Some(time::render(*give_up_time)),
            })
        }
        EventKind::ExecutionSucceeded { output } => {
            Kind::ExecutionSucceeded(proto::ExecutionSucceeded { output: Some(write(output)) })
        }
        EventKind::ExecutionFailed { failure } => {
            Kind::ExecutionFailed(proto::ExecutionFailed { failure: Some(failure_to_proto(failure, write)) })
        }
        EventKind::ExecutionCancelled => Kind::ExecutionCancelled(proto::ExecutionCancelled {}),
        EventKind::ExecutionTimedOut => Kind::ExecutionTimedOut(proto::ExecutionTimedOut {}),
        EventKind::ExecutionTerminated { reason } => {
            Kind::ExecutionTerminated(proto::ExecutionTerminated { reason: reason.to_string() })
        }
        EventKind::Woke => Kind::Woke(proto::Woke {}),
        EventKind::FanOutStarted { unit, items } => {
            Kind::FanOutStarted(proto::FanOutStarted { unit: unit.to_string(), items: Some(write(items)) })
        }
        EventKind::FanOutEnded { unit } => Kind::FanOutEnded(proto::FanOutEnded { unit: unit.to_string() }),
        EventKind::ChildRequested { unit, attempt, input, child_id, expire_time } => {
            Kind::ChildRequested(proto::ChildRequested {
                unit: unit.to_string(),
                attempt: signed(*attempt),
                input: input.as_ref().map(write),
                child_id: child_id.to_string(),
                expire_time: expire_time.map(time::render),
            })
        }
        EventKind::ChildStarted { unit, attempt, child_uid } => Kind::ChildStarted(proto::ChildStarted {
            unit: unit.to_string(),
            attempt: signed(*attempt),
            child_uid: child_uid.to_string(),
        }),
        EventKind::ChildCancelSent { unit, attempt, child_id } => Kind::ChildCancelSent(proto::ChildCancelSent {
            unit: unit.to_string(),
            attempt: signed(*attempt),
            child_id: child_id.to_string(),
        }),
        EventKind::ParentTold => Kind::ParentTold(proto::ParentTold {}),
        EventKind::ExecutionPaused { reason } => {
            Kind::ExecutionPaused(proto::ExecutionPaused { reason: reason.to_string() })
        }
        EventKind::ExecutionResumed => Kind::ExecutionResumed(proto::ExecutionResumed {}),
        EventKind::ContinuedAsNew { unit, input } => {
            Kind::ContinuedAsNew(proto::ContinuedAsNew { unit: unit.to_string(), input: Some(write(input)) })
        }
        EventKind::RunStarted(start) => Kind::RunStarted(run::started(start, write)),
        EventKind::ExecutionReopened { steps, generation, expire_time } => {
            Kind::ExecutionReopened(proto::ExecutionReopened {
                steps: steps.iter().map(run::reopened).collect(),
                generation: signed(*generation),
                expire_time: expire_time.map(time::render),
            })
        }
        EventKind::EventTaken { unit, signal_number } => {
            Kind::EventTaken(proto::EventTaken { unit: unit.to_string(), signal_number: signed_number(*signal_number) })
        }
        EventKind::DeletionBegan => Kind::DeletionBegan(proto::DeletionBegan {}),
        EventKind::SignalRequested { unit, recipient, name, payload } => {
            Kind::SignalRequested(proto::SignalRequested {
                unit: unit.to_string(),
                execution_id: recipient.id.to_string(),
                execution_uid: recipient.uid.map(|uid| uid.to_string()).unwrap_or_default(),
                child_unit: recipient.child.as_ref().map(ToString::to_string).unwrap_or_default(),
                name: name.to_string(),
                payload: Some(write(payload)),
            })
        }
    }
}

/// The unit that asked for an execution, for callers: without the key, which only the server knows what to do with.
#[must_use]
pub fn render_parent(parent: &Parent) -> proto::Parent {
    proto::Parent {
        id: parent.id.to_string(),
        uid: parent.uid.to_string(),
        run: signed(parent.run),
        unit: parent.unit.to_string(),
        generation: signed(parent.generation),
        attempt: signed(parent.attempt),
        key: 0,
    }
}

pub(super) fn request_to_proto(request: RequestKey) -> proto::RequestKey {
    proto::RequestKey { key: request.key.to_vec(), content: request.content.to_vec() }
}

pub(super) fn failure_to_proto(failure: &Failure, write: &mut Write<'_>) -> proto::Failure {
    proto::Failure {
        code: failure.code.to_string(),
        message: failure.message.to_string(),
        details: failure.details.as_ref().map(write),
        unit: failure.unit.to_string(),
    }
}

pub(super) fn skip_reason(reason: SkipReason) -> step_skipped::Reason {
    match reason {
        SkipReason::WhenFalse => step_skipped::Reason::WhenFalse,
        SkipReason::NothingUpstream => step_skipped::Reason::NothingUpstream,
    }
}

fn end_reason_to_proto(reason: EndReason) -> delivery_ended::Reason {
    match reason {
        EndReason::SessionLost => delivery_ended::Reason::SessionLost,
        EndReason::NotListed => delivery_ended::Reason::NotListed,
        EndReason::Unregistered => delivery_ended::Reason::Unregistered,
        EndReason::Released => delivery_ended::Reason::Released,
        EndReason::NotSent => delivery_ended::Reason::NotSent,
    }
}

/// Attempts, deliveries and runs: each at most 2^31, since it costs an event.
pub(super) fn signed(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

pub(super) fn signed_number(number: u64) -> i64 {
    i64::try_from(number).expect("an execution has fewer events than 2^63")
}
