//! Begins an execution.

use super::{Context, Decision, run::checked_input, signal::Giver};
use crate::domain::definition::Definition;
use crate::domain::{
    Cause, Created, Event, EventKind, ExecutionId, Parent, Payload, Rejection, RequestKey, State, StepResult, Uid,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// What a start needs to know.
#[derive(Clone, Debug)]
pub struct Start {
    /// Public id.
    pub id: ExecutionId,
    /// Uid, made by the server.
    pub uid: Uid,
    /// Input as it was sent.
    pub input: Payload,
    /// Labels of the call; they win over the definition's.
    pub labels: BTreeMap<String, String>,
    /// The call's `request_id`.
    pub request: Option<RequestKey>,
    /// W3C `traceparent` of the call, or of the parent; may be empty.
    pub trace_parent: Arc<str>,
    /// Pause before the first step; the execution's timeout counts from its end.
    pub delay: Option<Duration>,
    /// Signal that comes with it.
    pub signal: Option<StartSignal>,
    /// What steps have given in the execution that it repeats.
    pub results: Vec<StepResult>,
    /// Where it comes from, if a step of another execution asks for it.
    pub birth: Option<Birth>,
}

/// A signal that comes with a start.
#[derive(Clone, Debug)]
pub struct StartSignal {
    /// Name.
    pub name: Arc<str>,
    /// Payload.
    pub payload: Payload,
}

/// Where a child comes from.
#[derive(Clone, Debug)]
pub struct Birth {
    /// The unit that asks for it.
    pub parent: Parent,
    /// How many parents stand above it.
    pub depth: u32,
    /// Why it is cancelled before any step of it begins, if nobody waits for it any more.
    pub cancelled: Option<Arc<str>>,
}

/// Begins an execution and runs it on as far as it goes without a worker, a signal or time.
///
/// # Errors
/// [`Rejection::InputInvalid`] if the input does not fit the definition's schema; [`Rejection::SignalUnknown`] and
/// [`Rejection::SignalInvalid`] if the signal does not fit the definition.
pub fn start(definition: Arc<Definition>, start: Start, context: &Context) -> Result<(State, Vec<Event>), Rejection> {
    let input = checked_input(&definition, start.input).map_err(|violations| Rejection::InputInvalid { violations })?;
    let of_definition = definition.labels.iter().map(|(key, value)| (key.to_string(), value.to_string()));
    let mut labels: BTreeMap<_, _> = of_definition.collect();
    labels.extend(start.labels);
    let begin_time = start.delay.map(|delay| context.now + delay);
    let (birth, cancelled) = (start.birth.clone(), start.birth.and_then(|birth| birth.cancelled));
    let created = Created {
        id: start.id,
        uid: start.uid,
        run: 1,
        workflow: definition.name.clone(),
        version: definition.version.to_string().into(),
        definition_hash: definition.hash,
        input,
        labels,
        expire_time: definition.timeout.map(|timeout| begin_time.unwrap_or(context.now) + timeout),
        trace_parent: start.trace_parent,
        depth: birth.as_ref().map_or(0, |birth| birth.depth),
        parent: birth.map(|birth| birth.parent),
        begin_time,
        results: start.results,
    };
    let first = Event {
        number: 1,
        time: context.now,
        request: start.request,
        kind: EventKind::ExecutionCreated(Box::new(created)),
    };
    let mut state = State::begin(definition, &first);
    let mut decision = Decision::new(&mut state, context);
    decision.bytes = super::event_bytes(&first.kind);
    decision.events.push(first);
    if let Some(signal) = start.signal {
        decision.signal(&signal.name, signal.payload, None, Giver::Caller(None))?;
    }
    if let Some(reason) = cancelled {
        decision.start_wind_down(Cause::Cancel(reason), None);
    }
    decision.settle();
    let events = decision.events;
    Ok((state, events))
}
