//! What an execution asks of others: start a child, cancel it, tell the parent, give a signal.
//!
//! - An effect follows from the state alone ([`State::pending`](super::State::pending)) until an event settles it, also
//!   after the close. Whoever does it may do it again, on any node, at any time: its target knows it by name.
//! - A child's id derives from the unit's attempt that asks for it, so it starts once; a signal's sender likewise.
//! - A target that is closed or gone settles the effect.

use super::{ExecutionId, ExecutionKey, Failure, Payload, Timestamp, Uid, Unit};
use std::sync::Arc;

/// How many parents may stand above an execution. A loop of workflows that start each other ends here.
pub const NESTING_MAX: u32 = 20;

/// The unit of another execution that asked for this one and waits for its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// Row of the parent.
    pub key: ExecutionKey,
    /// Uid of the parent.
    pub uid: Uid,
    /// Id of the parent.
    pub id: ExecutionId,
    /// Run of the parent.
    pub run: u32,
    /// Unit that asked.
    pub unit: Unit,
    /// Generation of the unit.
    pub generation: u32,
    /// Attempt of the unit.
    pub attempt: u32,
}

/// Who gets a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipient {
    /// Its id.
    pub id: ExecutionId,
    /// Its uid; none if the current execution of the id is meant.
    pub uid: Option<Uid>,
    /// The unit whose child it is, if it is one of the sender's.
    pub child: Option<Unit>,
}

/// Something that another execution must be told, or made to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// A child is to start.
    StartChild(Box<ChildRequest>),
    /// A child is to end, since nobody waits for it. One that does not exist yet is made and cancelled at once, so that a
    /// start which is still under way finds it.
    CancelChild {
        /// The child, and what it is made of should it not exist.
        child: Box<ChildRequest>,
        /// Whether it is known to have started: then it need not be made.
        has_started: bool,
        /// Why, for people.
        reason: Arc<str>,
    },
    /// The parent is to have this execution's end.
    TellParent {
        /// The parent.
        parent: Parent,
        /// The end.
        end: Box<ChildEnd>,
    },
    /// A signal is to be given.
    Signal(Box<SignalRequest>),
}

/// Names an effect among those of one execution.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EffectId {
    /// [`Effect::StartChild`] of this child.
    StartChild(ExecutionId),
    /// [`Effect::CancelChild`] of this child.
    CancelChild(ExecutionId),
    /// [`Effect::TellParent`].
    TellParent,
    /// [`Effect::Signal`] of the event of this number.
    Signal(u64),
}

impl Effect {
    /// Its name.
    #[must_use]
    pub fn id(&self) -> EffectId {
        match self {
            Self::StartChild(child) => EffectId::StartChild(child.id.clone()),
            Self::CancelChild { child, .. } => EffectId::CancelChild(child.id.clone()),
            Self::TellParent { .. } => EffectId::TellParent,
            Self::Signal(signal) => EffectId::Signal(signal.number),
        }
    }
}

/// A child as its parent asks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildRequest {
    /// Id of the child.
    pub id: ExecutionId,
    /// Hash of its definition.
    pub definition_hash: [u8; 32],
    /// Input, before defaults.
    pub input: Payload,
    /// Run of the parent.
    pub run: u32,
    /// Unit that asks.
    pub unit: Unit,
    /// Generation of the unit.
    pub generation: u32,
    /// Attempt of the unit.
    pub attempt: u32,
    /// How many parents stand above the child.
    pub depth: u32,
    /// W3C `traceparent` of the parent; may be empty.
    pub trace_parent: Arc<str>,
}

/// A child that no unit waits for, and that does not know it yet.
#[derive(Clone, Debug, PartialEq)]
pub struct AbandonedChild {
    /// The child, and what it is made of should it not exist.
    pub child: ChildRequest,
    /// Whether it is known to have started.
    pub has_started: bool,
    /// Since when no unit waits for it; nothing where a server before this one wrote it down.
    pub since: Option<Timestamp>,
}

/// A signal as a step gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct SignalRequest {
    /// Unit that gives it.
    pub unit: Unit,
    /// Number of the event that asked for it.
    pub number: u64,
    /// Who gets it.
    pub recipient: Recipient,
    /// Name of the signal.
    pub name: Arc<str>,
    /// Payload.
    pub payload: Payload,
    /// Names the sender ([`sender_key`](super::sender_key)): the recipient takes it once.
    pub sender: [u8; 16],
    /// Whether the recipient is a child that may not have started yet.
    pub may_come: bool,
}

/// A child's end, as its parent hears of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildEnd {
    /// Unit of the parent that asked for the child.
    pub unit: Unit,
    /// Id of the child.
    pub child_id: ExecutionId,
    /// Uid of the child.
    pub child_uid: Uid,
    /// How it ended.
    pub outcome: ChildOutcome,
}

/// How a child ended.
#[derive(Clone, Debug, PartialEq)]
pub enum ChildOutcome {
    /// Well, with this output.
    Succeeded(Payload),
    /// With this failure.
    Failed(Failure),
    /// By a cancel, with its reason, which may be empty.
    Cancelled(Arc<str>),
    /// By its own timeout.
    TimedOut,
    /// By a terminate, with its reason, which may be empty.
    Terminated(Arc<str>),
}

/// What came of an effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// The child exists.
    ChildStarted {
        /// Unit that asked.
        unit: Unit,
        /// Id of the child.
        child_id: ExecutionId,
        /// Uid of the child.
        child_uid: Uid,
    },
    /// The child cannot be started, now or ever.
    ChildRefused {
        /// Unit that asked.
        unit: Unit,
        /// Id of the child.
        child_id: ExecutionId,
        /// [`INPUT_INVALID`](super::code::INPUT_INVALID) or [`CHILD_NOT_STARTED`](super::code::CHILD_NOT_STARTED).
        code: &'static str,
        /// Why, for people.
        message: Arc<str>,
    },
    /// The child has the cancel, or is closed, or is gone.
    ChildCancelled {
        /// Unit that asked.
        unit: Unit,
        /// Id of the child.
        child_id: ExecutionId,
        /// Whether there is none that could tell its end.
        is_gone: bool,
    },
    /// The parent has the end, or is gone.
    ParentTold,
    /// The recipient has the signal.
    SignalTaken {
        /// Unit that gave it.
        unit: Unit,
        /// Number of the event that asked for it.
        number: u64,
    },
    /// The recipient does not take the signal, now or ever.
    SignalRefused {
        /// Unit that gave it.
        unit: Unit,
        /// Number of the event that asked for it.
        number: u64,
        /// Why, for programs: `EXECUTION_NOT_FOUND`, `EXECUTION_CLOSED`, `SIGNAL_UNKNOWN`, `PAYLOAD_INVALID`,
        /// `SIGNAL_BUFFER_FULL` of one that winds down.
        reason: &'static str,
        /// Why, for people.
        message: Arc<str>,
    },
}
