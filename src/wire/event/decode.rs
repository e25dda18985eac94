//! Messages to events. What this version does not know stops the reader; it is never skipped.

use super::DecodeError;
use crate::domain::{
    Cause, EndReason, Event, EventKind, ExecutionId, ExecutionKey, Failure, Parent, Payload, Recipient, RequestKey,
    SessionId, SkipReason, Timestamp, Uid,
};
use crate::proto::workflow::{self as proto, delivery_ended, event::Kind, payload::Content, step_skipped};
use crate::wire::time;
use std::sync::Arc;

/// Reads one event.
pub(super) struct Decoder<'a> {
    pub(super) number: i64,
    pub(super) resolve: &'a dyn Fn(&[u8; 32]) -> Option<Arc<str>>,
}

impl Decoder<'_> {
    pub(super) fn unknown(&self, what: &'static str) -> DecodeError {
        DecodeError::Unknown { number: self.number, what }
    }

    pub(super) fn damaged(&self, what: &str) -> DecodeError {
        DecodeError::Damaged { number: self.number, what: what.to_owned() }
    }

    pub(super) fn event(&self, event: proto::Event) -> Result<Event, DecodeError> {
        let request = event.request.map(|request| self.request(request));
        Ok(Event {
            number: self.event_number(event.number)?,
            time: self.time(event.time, "time")?,
            request: request.transpose()?,
            kind: self.kind(event.kind.ok_or_else(|| self.unknown("kind"))?)?,
        })
    }

    pub(super) fn request(&self, request: proto::RequestKey) -> Result<RequestKey, DecodeError> {
        Ok(RequestKey {
            key: self.bytes(request.key, "request key")?,
            content: self.bytes(request.content, "request content")?,
        })
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each kind of event, in the order of event.proto")]
    pub(super) fn kind(&self, kind: Kind) -> Result<EventKind, DecodeError> {
        Ok(match kind {
            Kind::ExecutionCreated(it) => EventKind::ExecutionCreated(Box::new(self.created(it)?)),
            Kind::StepScheduled(it) => EventKind::StepScheduled {
                unit: it.unit.into(),
                attempt: self.count(it.attempt, "attempt")?,
                input: self.optional_payload(it.input, "input")?,
            },
            Kind::StepDispatched(it) => EventKind::StepDispatched {
                unit: it.unit.into(),
                attempt: self.count(it.attempt, "attempt")?,
                delivery: self.count(it.delivery, "delivery")?,
                session_id: SessionId(it.session_id.parse().map_err(|_| self.damaged("session_id"))?),
                worker_id: it.worker_id.into(),
                check_time: self.time(it.check_time, "check_time")?,
                expire_time: self.optional_time(it.expire_time, "expire_time")?,
            },
            Kind::TaskHeld(it) => {
                EventKind::TaskHeld { unit: it.unit.into(), delivery: self.count(it.delivery, "delivery")? }
            }
            Kind::DeliveryEnded(it) => EventKind::DeliveryEnded {
                delivery: self.count(it.delivery, "delivery")?,
                reason: self.end_reason(it.reason)?,
                progress: self.optional_payload(it.progress, "progress")?,
                unit: it.unit.into(),
            },
            Kind::AttemptFailed(it) => EventKind::AttemptFailed {
                unit: it.unit.into(),
                attempt: self.count(it.attempt, "attempt")?,
                delivery: self.count(it.delivery, "delivery")?,
                failure: self.failure(it.failure)?,
                retry_time: self.optional_time(it.retry_time, "retry_time")?,
                progress: self.optional_payload(it.progress, "progress")?,
                report: self.hash(it.report, "report")?,
            },
            Kind::StepSucceeded(it) => EventKind::StepSucceeded {
                unit: it.unit.into(),
                output: self.payload(it.output, "output")?,
                delivery: self.count(it.delivery, "delivery")?,
                signal_number: match it.signal_number {
                    0 => None,
                    number => Some(self.event_number(number)?),
                },
                report: self.hash(it.report, "report")?,
            },
            Kind::StepFailed(it) => EventKind::StepFailed { unit: it.unit.into(), failure: self.failure(it.failure)? },
            Kind::StepSkipped(it) => {
                EventKind::StepSkipped { reason: self.skip_reason(it.reason)?, unit: it.unit.into() }
            }
            Kind::StepCancelled(it) => EventKind::StepCancelled { unit: it.unit.into() },
            Kind::SleepStarted(it) => {
                EventKind::SleepStarted { unit: it.unit.into(), wake_time: self.time(it.wake_time, "wake_time")? }
            }
            Kind::AwaitStarted(it) => EventKind::AwaitStarted {
                unit: it.unit.into(),
                expire_time: self.optional_time(it.expire_time, "expire_time")?,
            },
            Kind::SignalReceived(it) => EventKind::SignalReceived {
                name: it.name.into(),
                payload: self.payload(it.payload, "payload")?,
                expire_time: self.optional_time(it.expire_time, "expire_time")?,
                sender: self.hash(it.sender, "sender")?,
                handler: (!it.handler.is_empty()).then(|| it.handler.into()),
            },
            Kind::SignalExpired(it) => EventKind::SignalExpired { signal_number: self.event_number(it.signal_number)? },
            Kind::LateSuccess(it) => EventKind::LateSuccess {
                unit: it.unit.into(),
                delivery: self.count(it.delivery, "delivery")?,
                output: self.payload(it.output, "output")?,
            },
            Kind::WindDownStarted(it) => EventKind::WindDownStarted {
                cause: match proto::Cause::try_from(it.cause) {
                    Ok(proto::Cause::Failure) => Cause::Failure(self.failure(it.failure)?),
                    Ok(proto::Cause::Cancel) => Cause::Cancel(it.reason.into()),
                    Ok(proto::Cause::Timeout) => Cause::Timeout,
                    Ok(proto::Cause::Unspecified) => return Err(self.damaged("cause")),
                    Err(_) => return Err(self.unknown("cause")),
                },
                give_up_time: self.time(it.give_up_time, "give_up_time")?,
            },
            Kind::ExecutionSucceeded(it) => {
                EventKind::ExecutionSucceeded { output: self.payload(it.output, "output")? }
            }
            Kind::ExecutionFailed(it) => EventKind::ExecutionFailed { failure: self.failure(it.failure)? },
            Kind::ExecutionCancelled(_) => EventKind::ExecutionCancelled,
            Kind::ExecutionTimedOut(_) => EventKind::ExecutionTimedOut,
            Kind::ExecutionTerminated(it) => EventKind::ExecutionTerminated { reason: it.reason.into() },
            Kind::Woke(_) => EventKind::Woke,
            Kind::ChildRequested(it) => EventKind::ChildRequested {
                unit: it.unit.into(),
                attempt: self.count(it.attempt, "attempt")?,
                input: self.optional_payload(it.input, "input")?,
                child_id: self.execution_id(&it.child_id, "child_id")?,
                expire_time: self.optional_time(it.expire_time, "expire_time")?,
            },
            Kind::ChildStarted(it) => EventKind::ChildStarted {
                unit: it.unit.into(),
                attempt: self.count(it.attempt, "attempt")?,
                child_uid: self.uid(&it.child_uid, "child_uid")?,
            },
            Kind::ChildCancelSent(it) => EventKind::ChildCancelSent {
                unit: it.unit.into(),
                attempt: self.count(it.attempt, "attempt")?,
                child_id: self.execution_id(&it.child_id, "child_id")?,
            },
            Kind::ParentTold(_) => EventKind::ParentTold,
            Kind::DeletionBegan(_) => EventKind::DeletionBegan,
            Kind::SignalRequested(it) => EventKind::SignalRequested {
                unit: it.unit.into(),
                recipient: Recipient {
                    id: self.execution_id(&it.execution_id, "execution_id")?,
                    uid: match it.execution_uid.as_str() {
                        "" => None,
                        uid => Some(self.uid(uid, "execution_uid")?),
                    },
                    child: (!it.child_unit.is_empty()).then(|| it.child_unit.into()),
                },
                name: it.name.into(),
                payload: self.payload(it.payload, "payload")?,
            },
            Kind::FanOutStarted(it) => {
                EventKind::FanOutStarted { unit: it.unit.into(), items: self.payload(it.items, "items")? }
            }
            Kind::FanOutEnded(it) => EventKind::FanOutEnded { unit: it.unit.into() },
            Kind::ExecutionPaused(it) => EventKind::ExecutionPaused { reason: it.reason.into() },
            Kind::ExecutionResumed(_) => EventKind::ExecutionResumed,
            Kind::ContinuedAsNew(it) => {
                EventKind::ContinuedAsNew { unit: it.unit.into(), input: self.payload(it.input, "input")? }
            }
            Kind::RunStarted(it) => EventKind::RunStarted(Box::new(self.run_started(it)?)),
            Kind::ExecutionReopened(it) => EventKind::ExecutionReopened {
                steps: it.steps.into_iter().map(|step| self.reopened(step)).collect::<Result<_, _>>()?,
                generation: self.count(it.generation, "generation")?,
                expire_time: self.optional_time(it.expire_time, "expire_time")?,
            },
            Kind::EventTaken(it) => {
                EventKind::EventTaken { unit: it.unit.into(), signal_number: self.event_number(it.signal_number)? }
            }
        })
    }

    pub(super) fn parent(&self, parent: proto::Parent) -> Result<Parent, DecodeError> {
        Ok(Parent {
            key: ExecutionKey(parent.key),
            uid: self.uid(&parent.uid, "parent's uid")?,
            id: self.execution_id(&parent.id, "parent's id")?,
            run: self.count(parent.run, "parent's run")?,
            unit: parent.unit.into(),
            generation: self.count(parent.generation, "parent's generation")?,
            attempt: self.count(parent.attempt, "parent's attempt")?,
        })
    }

    pub(super) fn execution_id(&self, text: &str, field: &str) -> Result<ExecutionId, DecodeError> {
        ExecutionId::parse(text).ok_or_else(|| self.damaged(field))
    }

    pub(super) fn uid(&self, text: &str, field: &str) -> Result<Uid, DecodeError> {
        text.parse().map(Uid).map_err(|_| self.damaged(field))
    }

    pub(super) fn skip_reason(&self, reason: i32) -> Result<SkipReason, DecodeError> {
        match step_skipped::Reason::try_from(reason) {
            Ok(step_skipped::Reason::WhenFalse) => Ok(SkipReason::WhenFalse),
            Ok(step_skipped::Reason::NothingUpstream) => Ok(SkipReason::NothingUpstream),
            Ok(step_skipped::Reason::Unspecified) => Err(self.damaged("reason")),
            Err(_) => Err(self.unknown("reason")),
        }
    }

    pub(super) fn failure(&self, failure: Option<proto::Failure>) -> Result<Failure, DecodeError> {
        let failure = failure.ok_or_else(|| self.damaged("failure"))?;
        Ok(Failure {
            code: failure.code.into(),
            message: failure.message.into(),
            details: self.optional_payload(failure.details, "details")?,
            unit: failure.unit.into(),
        })
    }

    pub(super) fn end_reason(&self, reason: i32) -> Result<EndReason, DecodeError> {
        Ok(match delivery_ended::Reason::try_from(reason) {
            Ok(delivery_ended::Reason::SessionLost) => EndReason::SessionLost,
            Ok(delivery_ended::Reason::NotListed) => EndReason::NotListed,
            Ok(delivery_ended::Reason::Unregistered) => EndReason::Unregistered,
            Ok(delivery_ended::Reason::Released) => EndReason::Released,
            Ok(delivery_ended::Reason::NotSent) => EndReason::NotSent,
            Ok(delivery_ended::Reason::Unspecified) => return Err(self.damaged("reason")),
            Err(_) => return Err(self.unknown("reason")),
        })
    }

    pub(super) fn payload(&self, payload: Option<proto::Payload>, field: &str) -> Result<Payload, DecodeError> {
        match payload.and_then(|payload| payload.content) {
            Some(Content::Json(text)) => Ok(Payload::from_json(text)),
            Some(Content::Reference(reference)) => {
                let digest = self.bytes(reference.sha256, field)?;
                let text = (self.resolve)(&digest).ok_or_else(|| self.damaged("a large payload is missing"))?;
                Ok(Payload::from_json(text))
            }
            Some(Content::Value(_)) => Err(self.damaged(field)),
            // An arm of a newer version reads as none.
            None => Err(self.unknown("payload")),
        }
    }

    pub(super) fn optional_payload(
        &self,
        payload: Option<proto::Payload>,
        field: &str,
    ) -> Result<Option<Payload>, DecodeError> {
        payload.map(|payload| self.payload(Some(payload), field)).transpose()
    }

    pub(super) fn time(&self, time: Option<prost_types::Timestamp>, field: &str) -> Result<Timestamp, DecodeError> {
        time.and_then(|time| time::parse(&time).ok()).ok_or_else(|| self.damaged(field))
    }

    pub(super) fn optional_time(
        &self,
        time: Option<prost_types::Timestamp>,
        field: &str,
    ) -> Result<Option<Timestamp>, DecodeError> {
        time.map(|time| self.time(Some(time), field)).transpose()
    }

    pub(super) fn event_number(&self, number: i64) -> Result<u64, DecodeError> {
        u64::try_from(number).ok().filter(|number| *number > 0).ok_or_else(|| self.damaged("number"))
    }

    pub(super) fn count(&self, count: i32, field: &str) -> Result<u32, DecodeError> {
        u32::try_from(count).map_err(|_| self.damaged(field))
    }

    pub(super) fn hash(&self, bytes: Vec<u8>, field: &str) -> Result<Option<[u8; 16]>, DecodeError> {
        if bytes.is_empty() { Ok(None) } else { self.bytes(bytes, field).map(Some) }
    }

    pub(super) fn bytes<const N: usize>(&self, bytes: Vec<u8>, field: &str) -> Result<[u8; N], DecodeError> {
        bytes.try_into().map_err(|_| self.damaged(field))
    }
}

pub(super) fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    (digits.len() == 64).then(|| bytes.try_into().expect("half of 64 digits"))
}
