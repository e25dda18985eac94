//! Events in a line of text.

use super::{
    execution::{failure_text, json_text},
    output::Tone,
};
use crate::proto::workflow::{Cause, Event, Payload, delivery_ended, event::Kind, step_skipped};

/// Longest part of a payload that a line shows, in characters; `-o json` has all of it.
const PAYLOAD_CHARS_MAX: usize = 100;

/// Name, tone and detail of an event.
pub(super) fn describe(event: &Event) -> (&'static str, Tone, String) {
    let Some(kind) = &event.kind else {
        return ("(unknown)", Tone::Warning, "of a newer server".to_owned());
    };
    match kind {
        Kind::ExecutionCreated(it) => (
            "ExecutionCreated",
            Tone::Plain,
            format!("{}@{} input {}", it.workflow, it.version, short(it.input.as_ref())),
        ),
        Kind::StepScheduled(it) => {
            let input = it.input.as_ref().map(|input| format!(" input {}", short(Some(input)))).unwrap_or_default();
            ("StepScheduled", Tone::Plain, format!("{} attempt {}{input}", it.unit, it.attempt))
        }
        Kind::StepDispatched(it) => {
            let delivery = format!("attempt {} delivery {}", it.attempt, it.delivery);
            ("StepDispatched", Tone::Busy, format!("{} {delivery} to {}", it.unit, it.worker_id))
        }
        Kind::TaskHeld(it) => ("TaskHeld", Tone::Busy, format!("{} delivery {}", it.unit, it.delivery)),
        Kind::DeliveryEnded(it) => {
            let why = match it.reason() {
                delivery_ended::Reason::Unspecified => "for an unknown reason",
                delivery_ended::Reason::SessionLost => "its worker was lost",
                delivery_ended::Reason::NotListed => "its worker does not have it",
                delivery_ended::Reason::Unregistered => "its worker unregistered",
                delivery_ended::Reason::Released => "its worker gave it back",
                delivery_ended::Reason::NotSent => "it never left the server",
            };
            ("DeliveryEnded", Tone::Warning, format!("{} delivery {}: {why}", it.unit, it.delivery))
        }
        Kind::AttemptFailed(it) => {
            let retry = it.retry_time.map(|time| format!(", next attempt at {time}")).unwrap_or_default();
            let failure = it.failure.as_ref().map(failure_text).unwrap_or_default();
            ("AttemptFailed", Tone::Warning, format!("{} attempt {}: {failure}{retry}", it.unit, it.attempt))
        }
        Kind::StepSucceeded(it) => {
            ("StepSucceeded", Tone::Good, format!("{} output {}", it.unit, short(it.output.as_ref())))
        }
        Kind::StepFailed(it) => {
            let failure = it.failure.as_ref().map(failure_text).unwrap_or_default();
            ("StepFailed", Tone::Bad, format!("{}: {failure}", it.unit))
        }
        Kind::StepSkipped(it) => {
            let why = match it.reason() {
                step_skipped::Reason::Unspecified => "for an unknown reason",
                step_skipped::Reason::WhenFalse => "its `when` is false",
                step_skipped::Reason::NothingUpstream => "its `for_each` gave null",
            };
            ("StepSkipped", Tone::Faint, format!("{}: {why}", it.unit))
        }
        Kind::StepCancelled(it) => ("StepCancelled", Tone::Warning, it.unit.clone()),
        Kind::SleepStarted(it) => ("SleepStarted", Tone::Plain, format!("{}{}", it.unit, until(it.wake_time))),
        Kind::AwaitStarted(it) => ("AwaitStarted", Tone::Plain, format!("{}{}", it.unit, until(it.expire_time))),
        Kind::SignalReceived(it) => {
            ("SignalReceived", Tone::Plain, format!("{} {}", it.name, short(it.payload.as_ref())))
        }
        Kind::SignalExpired(it) => ("SignalExpired", Tone::Warning, format!("of event {}", it.signal_number)),
        Kind::LateSuccess(it) => {
            ("LateSuccess", Tone::Warning, format!("{} delivery {}: too late to count", it.unit, it.delivery))
        }
        Kind::WindDownStarted(it) => {
            let cause = match it.cause() {
                Cause::Unspecified => "for an unknown cause".to_owned(),
                Cause::Failure => it.failure.as_ref().map(failure_text).unwrap_or_default(),
                Cause::Cancel => format!("cancelled{}", because(&it.reason)),
                Cause::Timeout => "the execution's timeout passed".to_owned(),
            };
            ("WindDownStarted", Tone::Warning, cause)
        }
        Kind::ExecutionSucceeded(it) => {
            ("ExecutionSucceeded", Tone::Good, format!("output {}", short(it.output.as_ref())))
        }
        Kind::ExecutionFailed(it) => {
            ("ExecutionFailed", Tone::Bad, it.failure.as_ref().map(failure_text).unwrap_or_default())
        }
        Kind::ExecutionCancelled(_) => ("ExecutionCancelled", Tone::Warning, String::new()),
        Kind::ExecutionTimedOut(_) => ("ExecutionTimedOut", Tone::Bad, String::new()),
        Kind::ExecutionTerminated(it) => {
            ("ExecutionTerminated", Tone::Warning, because(&it.reason).trim_start_matches(": ").to_owned())
        }
        Kind::FanOutStarted(it) => ("FanOutStarted", Tone::Plain, format!("{} {}", it.unit, short(it.items.as_ref()))),
        Kind::FanOutEnded(it) => ("FanOutEnded", Tone::Good, it.unit.clone()),
        Kind::Woke(_) => ("Woke", Tone::Faint, String::new()),
        Kind::ChildRequested(it) => {
            let input = it.input.as_ref().map(|input| format!(" input {}", short(Some(input)))).unwrap_or_default();
            let child = format!("{} attempt {}: {}", it.unit, it.attempt, it.child_id);
            ("ChildRequested", Tone::Plain, format!("{child}{input}"))
        }
        Kind::ChildStarted(it) => {
            ("ChildStarted", Tone::Busy, format!("{} attempt {}: {}", it.unit, it.attempt, it.child_uid))
        }
        Kind::ChildCancelSent(it) => {
            ("ChildCancelSent", Tone::Warning, format!("{} attempt {}: {}", it.unit, it.attempt, it.child_id))
        }
        Kind::DeletionBegan(_) => ("DeletionBegan", Tone::Faint, String::new()),
        Kind::ParentTold(_) => ("ParentTold", Tone::Faint, String::new()),
        Kind::SignalRequested(it) => {
            let signal = format!("{} {}", it.name, short(it.payload.as_ref()));
            ("SignalRequested", Tone::Plain, format!("{} to {}: {signal}", it.unit, it.execution_id))
        }
        Kind::ExecutionPaused(it) => {
            ("ExecutionPaused", Tone::Warning, because(&it.reason).trim_start_matches(": ").to_owned())
        }
        Kind::ExecutionResumed(_) => ("ExecutionResumed", Tone::Plain, String::new()),
        Kind::ContinuedAsNew(it) => {
            ("ContinuedAsNew", Tone::Plain, format!("by {} with input {}", it.unit, short(it.input.as_ref())))
        }
        Kind::RunStarted(it) => {
            let run = it.execution.as_ref().map_or(0, |execution| execution.run);
            let signals = match it.signals.len() {
                0 => String::new(),
                count => format!(", {count} signals not taken yet"),
            };
            ("RunStarted", Tone::Plain, format!("run {run}{signals}"))
        }
        Kind::ExecutionReopened(it) => {
            let units: Vec<&str> = it.steps.iter().map(|step| &*step.unit).collect();
            ("ExecutionReopened", Tone::Plain, format!("generation {}: {}", it.generation, units.join(", ")))
        }
        Kind::EventTaken(it) => ("EventTaken", Tone::Plain, format!("{} takes event {}", it.unit, it.signal_number)),
    }
}

/// The beginning of a payload's text, on one line.
fn short(payload: Option<&Payload>) -> String {
    let text = json_text(payload).split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(PAYLOAD_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn until(time: Option<prost_types::Timestamp>) -> String {
    time.map(|time| format!(" until {time}")).unwrap_or_default()
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}
