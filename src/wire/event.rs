//! Events on the wire and in the store: one message for both, mapped here and nowhere else.
//!
//! - [`encode_batch`] makes the bytes of a history row; payloads of more than 64 KiB leave it and stay as references.
//! - [`decode_batch`] takes a row apart. A kind or a value that this version does not know is
//!   [`DecodeError::Unknown`]: the reader stops, it never skips.
//! - [`render`] makes the event of the API, with every payload in its place.

mod run;

use super::{payload, time};
use crate::domain::{
    Cause, EndReason, Event, EventKind, ExecutionId, ExecutionKey, Failure, Parent, Payload, Recipient, RequestKey,
    SessionId, SkipReason, Timestamp, Uid,
};
use crate::proto::workflow::{self as proto, delivery_ended, event::Kind, payload::Content, step_skipped};
use bytes::Bytes;
use prost::Message;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Format number of the bytes that [`encode_batch`] makes.
pub const FORMAT: u16 = 1;

/// Longest payload, in bytes, that stays inside its event.
pub const INLINE_BYTES_MAX: usize = 64 * 1024;

/// The events of one commit as bytes, and what is stored beside them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// `EventBatch`, encoded.
    pub bytes: Bytes,
    /// The payloads that the bytes mention by digest, each once.
    pub payloads: Vec<LargePayload>,
}

/// A payload that is stored apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargePayload {
    /// SHA-256 of the text.
    pub sha256: [u8; 32],
    /// JSON text.
    pub json: Arc<str>,
}

/// Why stored events cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A newer version wrote them.
    #[error("event {number} has a {what} that this version does not know")]
    Unknown {
        /// Number of the event; 0 for the whole batch.
        number: i64,
        /// What is unknown.
        what: &'static str,
    },
    /// They contradict themselves.
    #[error("event {number} is damaged: {what}")]
    Damaged {
        /// Number of the event; 0 for the whole batch.
        number: i64,
        /// What is wrong.
        what: String,
    },
}

/// Encodes the events of one commit.
#[must_use]
pub fn encode_batch(events: &[Event]) -> Encoded {
    let mut payloads: Vec<LargePayload> = Vec::new();
    let mut store = |payload: &Payload| {
        if payload.len() <= INLINE_BYTES_MAX {
            return payload::render(payload);
        }
        let sha256: [u8; 32] = Sha256::digest(payload.as_str()).into();
        if payloads.iter().all(|stored| stored.sha256 != sha256) {
            payloads.push(LargePayload { sha256, json: Arc::from(payload.as_str()) });
        }
        let size_bytes = i64::try_from(payload.len()).expect("a payload is at most 2 MiB");
        let reference = proto::PayloadReference { sha256: sha256.to_vec(), size_bytes };
        proto::Payload { content: Some(Content::Reference(reference)) }
    };
    let batch = proto::EventBatch { events: events.iter().map(|event| to_proto(event, &mut store)).collect() };
    Encoded { bytes: Bytes::from(batch.encode_to_vec()), payloads }
}

/// Decodes the events of one commit; `resolve` finds the payloads that are stored apart.
///
/// # Errors
/// What stops the reader; nothing was skipped.
pub fn decode_batch(
    bytes: &[u8],
    format: u16,
    resolve: &dyn Fn(&[u8; 32]) -> Option<Arc<str>>,
) -> Result<Vec<Event>, DecodeError> {
    if format != FORMAT {
        return Err(DecodeError::Unknown { number: 0, what: "format" });
    }
    let batch = proto::EventBatch::decode(bytes)
        .map_err(|error| DecodeError::Damaged { number: 0, what: error.to_string() })?;
    batch.events.into_iter().map(|event| Decoder { number: event.number, resolve }.event(event)).collect()
}

/// An event for the API.
#[must_use]
pub fn render(event: &Event) -> proto::Event {
    to_proto(event, &mut payload::render)
}

/// A failure for the API.
#[must_use]
pub fn render_failure(failure: &Failure) -> proto::Failure {
    failure_to_proto(failure, &mut payload::render)
}

/// What an event is called, as `step_scheduled`: the name of its field in the message.
#[must_use]
pub fn kind_name(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::ExecutionCreated(_) => "execution_created",
        EventKind::StepScheduled { .. } => "step_scheduled",
        EventKind::StepDispatched { .. } => "step_dispatched",
        EventKind::TaskHeld { .. } => "task_held",
        EventKind::DeliveryEnded { .. } => "delivery_ended",
        EventKind::AttemptFailed { .. } => "attempt_failed",
        EventKind::StepSucceeded { .. } => "step_succeeded",
        EventKind::StepFailed { .. } => "step_failed",
        EventKind::StepSkipped { .. } => "step_skipped",
        EventKind::StepCancelled { .. } => "step_cancelled",
        EventKind::SleepStarted { .. } => "sleep_started",
        EventKind::AwaitStarted { .. } => "await_started",
        EventKind::SignalReceived { .. } => "signal_received",
        EventKind::SignalExpired { .. } => "signal_expired",
        EventKind::LateSuccess { .. } => "late_success",
        EventKind::WindDownStarted { .. } => "wind_down_started",
        EventKind::ExecutionSucceeded { .. } => "execution_succeeded",
        EventKind::ExecutionFailed { .. } => "execution_failed",
        EventKind::ExecutionCancelled => "execution_cancelled",
        EventKind::ExecutionTimedOut => "execution_timed_out",
        EventKind::ExecutionTerminated { .. } => "execution_terminated",
        EventKind::Woke => "woke",
        EventKind::ChildRequested { .. } => "child_requested",
        EventKind::ChildStarted { .. } => "child_started",
        EventKind::ChildCancelSent { .. } => "child_cancel_sent",
        EventKind::ParentTold => "parent_told",
        EventKind::DeletionBegan => "deletion_began",
        EventKind::SignalRequested { .. } => "signal_requested",
        EventKind::FanOutStarted { .. } => "fan_out_started",
        EventKind::FanOutEnded { .. } => "fan_out_ended",
        EventKind::ExecutionPaused { .. } => "execution_paused",
        EventKind::ExecutionResumed => "execution_resumed",
        EventKind::ContinuedAsNew { .. } => "continued_as_new",
        EventKind::RunStarted(_) => "run_started",
        EventKind::ExecutionReopened { .. } => "execution_reopened",
        EventKind::EventTaken { .. } => "event_taken",
    }
}

/// How a payload is written: in its place, or as a reference.
type Write<'a> = dyn FnMut(&Payload) -> proto::Payload + 'a;

fn to_proto(event: &Event, write: &mut Write<'_>) -> proto::Event {
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

fn request_to_proto(request: RequestKey) -> proto::RequestKey {
    proto::RequestKey { key: request.key.to_vec(), content: request.content.to_vec() }
}

fn failure_to_proto(failure: &Failure, write: &mut Write<'_>) -> proto::Failure {
    proto::Failure {
        code: failure.code.to_string(),
        message: failure.message.to_string(),
        details: failure.details.as_ref().map(write),
        unit: failure.unit.to_string(),
    }
}

fn skip_reason(reason: SkipReason) -> step_skipped::Reason {
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
fn signed(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn signed_number(number: u64) -> i64 {
    i64::try_from(number).expect("an execution has fewer events than 2^63")
}

/// Bytes as lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    (digits.len() == 64).then(|| bytes.try_into().expect("half of 64 digits"))
}

/// Reads one event.
struct Decoder<'a> {
    number: i64,
    resolve: &'a dyn Fn(&[u8; 32]) -> Option<Arc<str>>,
}

impl Decoder<'_> {
    fn unknown(&self, what: &'static str) -> DecodeError {
        DecodeError::Unknown { number: self.number, what }
    }

    fn damaged(&self, what: &str) -> DecodeError {
        DecodeError::Damaged { number: self.number, what: what.to_owned() }
    }

    fn event(&self, event: proto::Event) -> Result<Event, DecodeError> {
        let request = event.request.map(|request| self.request(request));
        Ok(Event {
            number: self.event_number(event.number)?,
            time: self.time(event.time, "time")?,
            request: request.transpose()?,
            kind: self.kind(event.kind.ok_or_else(|| self.unknown("kind"))?)?,
        })
    }

    fn request(&self, request: proto::RequestKey) -> Result<RequestKey, DecodeError> {
        Ok(RequestKey {
            key: self.bytes(request.key, "request key")?,
            content: self.bytes(request.content, "request content")?,
        })
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each kind of event, in the order of event.proto")]
    fn kind(&self, kind: Kind) -> Result<EventKind, DecodeError> {
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

    fn parent(&self, parent: proto::Parent) -> Result<Parent, DecodeError> {
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

    fn execution_id(&self, text: &str, field: &str) -> Result<ExecutionId, DecodeError> {
        ExecutionId::parse(text).ok_or_else(|| self.damaged(field))
    }

    fn uid(&self, text: &str, field: &str) -> Result<Uid, DecodeError> {
        text.parse().map(Uid).map_err(|_| self.damaged(field))
    }

    fn skip_reason(&self, reason: i32) -> Result<SkipReason, DecodeError> {
        match step_skipped::Reason::try_from(reason) {
            Ok(step_skipped::Reason::WhenFalse) => Ok(SkipReason::WhenFalse),
            Ok(step_skipped::Reason::NothingUpstream) => Ok(SkipReason::NothingUpstream),
            Ok(step_skipped::Reason::Unspecified) => Err(self.damaged("reason")),
            Err(_) => Err(self.unknown("reason")),
        }
    }

    fn failure(&self, failure: Option<proto::Failure>) -> Result<Failure, DecodeError> {
        let failure = failure.ok_or_else(|| self.damaged("failure"))?;
        Ok(Failure {
            code: failure.code.into(),
            message: failure.message.into(),
            details: self.optional_payload(failure.details, "details")?,
            unit: failure.unit.into(),
        })
    }

    fn end_reason(&self, reason: i32) -> Result<EndReason, DecodeError> {
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

    fn payload(&self, payload: Option<proto::Payload>, field: &str) -> Result<Payload, DecodeError> {
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

    fn optional_payload(&self, payload: Option<proto::Payload>, field: &str) -> Result<Option<Payload>, DecodeError> {
        payload.map(|payload| self.payload(Some(payload), field)).transpose()
    }

    fn time(&self, time: Option<prost_types::Timestamp>, field: &str) -> Result<Timestamp, DecodeError> {
        time.and_then(|time| time::parse(&time).ok()).ok_or_else(|| self.damaged(field))
    }

    fn optional_time(
        &self,
        time: Option<prost_types::Timestamp>,
        field: &str,
    ) -> Result<Option<Timestamp>, DecodeError> {
        time.map(|time| self.time(Some(time), field)).transpose()
    }

    fn event_number(&self, number: i64) -> Result<u64, DecodeError> {
        u64::try_from(number).ok().filter(|number| *number > 0).ok_or_else(|| self.damaged("number"))
    }

    fn count(&self, count: i32, field: &str) -> Result<u32, DecodeError> {
        u32::try_from(count).map_err(|_| self.damaged(field))
    }

    fn hash(&self, bytes: Vec<u8>, field: &str) -> Result<Option<[u8; 16]>, DecodeError> {
        if bytes.is_empty() { Ok(None) } else { self.bytes(bytes, field).map(Some) }
    }

    fn bytes<const N: usize>(&self, bytes: Vec<u8>, field: &str) -> Result<[u8; N], DecodeError> {
        bytes.try_into().map_err(|_| self.damaged(field))
    }
}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
