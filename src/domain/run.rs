//! What goes from run to run, and what runs again.
//!
//! A run's first event carries all that the runs before leave to it, so that nothing older is ever needed to know what an
//! execution is.

use super::{AbandonedChild, Created, Payload, RequestKey, Timestamp, Unit};
use std::sync::Arc;

/// How a run began.
#[derive(Clone, Debug, PartialEq)]
pub struct RunStart {
    /// The execution as it was created, with the number and the input of this run.
    pub created: Created,
    /// When the execution was started.
    pub start_time: Timestamp,
    /// Signals that no step of the runs before took, by number.
    pub signals: Vec<UntakenSignal>,
    /// Calls that are answered from their events if they come again, oldest first.
    pub calls: Vec<RememberedCall>,
    /// Newest delivery of any unit of the runs before; this run's are numbered on from there.
    pub deliveries: u32,
    /// The newest reports of the runs before that were accepted, oldest first.
    pub reports: Vec<AcceptedReport>,
    /// Signals of other executions' steps that are not taken again if they come again, oldest first; without content.
    pub senders: Vec<RememberedCall>,
    /// Children of the runs before that are still to be cancelled.
    pub abandoned: Vec<AbandonedChild>,
}

/// A signal that waits to be taken.
#[derive(Clone, Debug, PartialEq)]
pub struct UntakenSignal {
    /// Number of its event.
    pub number: u64,
    /// Name.
    pub name: Arc<str>,
    /// Payload.
    pub payload: Payload,
    /// When it expires.
    pub expire_time: Option<Timestamp>,
    /// Unit of the `on_event` step that takes it, unless an await does before.
    pub handler: Option<Unit>,
}

/// A call that is answered from its event if it comes again.
#[derive(Clone, Debug, PartialEq)]
pub struct RememberedCall {
    /// The call.
    pub request: RequestKey,
    /// Number of the event that records it.
    pub number: u64,
    /// Time of that event.
    pub time: Timestamp,
}

/// A worker's report that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedReport {
    /// Unit.
    pub unit: Unit,
    /// Delivery that reported.
    pub delivery: u32,
    /// Hash of kind and content.
    pub hash: [u8; 16],
}

/// A step of a closed execution that runs again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReopenedStep {
    /// Its own unit.
    pub unit: Unit,
    /// Which of its items, if only some of them do.
    pub items: Vec<u32>,
}
