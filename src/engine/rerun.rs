//! Repeats an execution from a step on, as a new one.

use super::{
    Engine,
    call::{Error, IdReuse, RerunExecution, StartExecution, Started},
    start::Repeated,
};
use crate::domain::{State, decide, definition::LABEL_PREFIX_RESERVED, digest16};

impl Engine {
    /// Starts an execution that repeats another one from a step on, or finds the one that the same call started.
    ///
    /// # Errors
    /// `ExecutionNotFound`, `StepNotFound`, `ExecutionAlreadyExists`, `Rejected` (input that does not fit, request id
    /// reused), `Store`.
    pub async fn rerun(&self, request: RerunExecution) -> Result<Started, Error> {
        let source = self.execution(&request.source).await?.state;
        let (start, repeated) = start_of(&source, request)?;
        let core = self.core.clone();
        self.detached(async move { core.start(start, Some(repeated)).await }).await
    }
}

/// The start of an execution that repeats another one.
fn start_of(source: &State, request: RerunExecution) -> Result<(StartExecution, Repeated), Error> {
    let definition = source.definition().clone();
    let results = decide::results(source, &request.from_step).ok_or_else(|| Error::StepNotFound {
        workflow: format!("{}@{}", definition.name, definition.version),
        step: request.from_step.clone(),
    })?;
    let input = request.input.unwrap_or_else(|| source.input().clone());
    let mut labels = source.labels().clone();
    // Those of the server say of the other one what is not so of this one, such as that a schedule has started it.
    labels.retain(|key, _| !key.starts_with(LABEL_PREFIX_RESERVED));
    labels.extend(request.labels);
    let start = StartExecution {
        id: request.id,
        workflow: definition.name.clone(),
        version: Some(definition.version.to_string().into()),
        input_digest: digest_of(source, &request.from_step, input.as_str()),
        input,
        labels,
        request: request.request,
        trace_parent: request.trace_parent,
        id_reuse: IdReuse::Reject,
        delay: None,
        signal: None,
    };
    Ok((start, Repeated { definition, results }))
}

/// Digest by which the same rerun is known: of which execution, from which step, with which input.
fn digest_of(source: &State, from_step: &str, input: &str) -> [u8; 16] {
    digest16(&[b"rerun", source.uid().0.as_bytes(), from_step.as_bytes(), input.as_bytes()])
}
