//! The rules, as pure functions: values in, values out. No async, no clock, no randomness, no store, no wire.

// An `_` arm would hide the next event, command or state from the places that must judge it.
#![warn(clippy::wildcard_enum_match_arm)]

mod command;
pub mod decide;
pub mod definition;
mod effect;
mod event;
pub mod explain;
mod failure;
mod ids;
pub(crate) mod json;
mod payload;
pub mod query;
pub mod retry;
mod run;
pub mod schedule;
mod state;
mod time;
pub mod version;

pub use command::{Claimant, Command, Delivery, Obstacle, Outcome, RefusalReason, Rejection, ReportOutcome, Settings};
pub use effect::{
    AbandonedChild, ChildEnd, ChildOutcome, ChildRequest, Effect, EffectId, NESTING_MAX, Parent, Recipient, Settled,
    SignalRequest,
};
pub use event::{Cause, Created, EndReason, Event, EventKind, SkipReason, StepEnd, StepResult};
pub use failure::{Failure, code};
pub(crate) use ids::hex;
pub use ids::{
    DeliveryRef, EXECUTION_ID_LENGTH_MAX, ExecutionId, ExecutionKey, RequestKey, SessionId, TaskToken, Uid, Unit,
    digest16, idempotency_key, sender_key,
};
pub use payload::{PAYLOAD_BYTES_MAX, Payload};
pub use run::{AcceptedReport, RememberedCall, ReopenedStep, RunStart, UntakenSignal};
pub use state::{FanOutStatus, Phase, State, StepState, StepStatus, WaitingUnit};
pub use time::{SPAN_MAX, Timestamp};
