//! Begins an execution.

use super::{Context, Decision};
use crate::domain::definition::Definition;
use crate::domain::{Created, Event, EventKind, ExecutionId, Payload, Rejection, RequestKey, State, Uid};
use std::{collections::BTreeMap, sync::Arc};

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
}

/// Begins an execution and runs it on as far as it goes without a worker, a signal or time.
///
/// # Errors
/// [`Rejection::InputInvalid`] if the input does not fit the definition's schema.
pub fn start(definition: Arc<Definition>, start: Start, context: &Context) -> Result<(State, Vec<Event>), Rejection> {
    let input = match &definition.input {
        Some(schema) => {
            let input = schema.with_defaults(&start.input);
            schema.validate(&input).map_err(|violations| Rejection::InputInvalid { violations })?;
            input
        }
        None => start.input,
    };
    let of_definition = definition.labels.iter().map(|(key, value)| (key.to_string(), value.to_string()));
    let mut labels: BTreeMap<_, _> = of_definition.collect();
    labels.extend(start.labels);
    let created = Created {
        id: start.id,
        uid: start.uid,
        run: 1,
        workflow: definition.name.clone(),
        version: definition.version.to_string().into(),
        definition_hash: definition.hash,
        input,
        labels,
        expire_time: definition.timeout.map(|timeout| context.now + timeout),
        trace_parent: start.trace_parent,
        parent: None,
        depth: 0,
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
    decision.settle();
    let events = decision.events;
    Ok((state, events))
}
