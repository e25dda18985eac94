//! Events on the wire and in the store: one message for both, mapped here and nowhere else.
//!
//! - [`encode_batch`] makes the bytes of a history row; payloads of more than 64 KiB leave it and stay as references.
//! - [`decode_batch`] takes a row apart. A kind or a value that this version does not know is
//!   [`DecodeError::Unknown`]: the reader stops, it never skips.
//! - [`render`] makes the event of the API, with every payload in its place.

mod decode;
mod encode;
mod run;

pub(crate) use crate::domain::hex;
pub use encode::render_parent;

use super::payload;
use crate::domain::{Event, EventKind, Failure, Payload};
use crate::proto::workflow::{self as proto, payload::Content};
use bytes::Bytes;
use decode::Decoder;
use encode::{failure_to_proto, to_proto};
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

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
