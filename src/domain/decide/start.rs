//! Begins an execution.

use super::{Context, Decision, run::checked_input};
use crate::domain::definition::Definition;
use crate::domain::{Created, Event, EventKind, ExecutionId, Payload, Rejection, RequestKey, State, StepResult, Uid};
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
    /// W3C `traceparent` of the call; may be empty.
    pub trace_parent: Arc<str>,
    /// Pause before the first step; the execution's timeout counts from its end.
    pub delay: Option<Duration>,
    /// Signal that comes with it.
    pub signal: Option<StartSignal>,
    /// What steps have given in the execution that it repeats.
    pub results: Vec<StepResult>,
}

/// A signal that comes with a start.
#[derive(Clone, Debug)]
pub struct StartSignal {
    /// Name.
    pub name: Arc<str>,
    /// Payload.
    pub payload: Payload,
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
        parent: None,
        depth: 0,
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
        decision.signal(&signal.name, signal.payload, None, None)?;
    }
    decision.settle();
    let events = decision.events;
    Ok((state, events))
}
