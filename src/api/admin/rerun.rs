//! `RerunExecution`.

use super::{Answer, name, start::labels};
use crate::engine::{Engine, RerunExecution};
use crate::proto::admin::{RerunExecutionRequest, RerunExecutionResponse};
use crate::wire::{Invalid, Violations, canonical, field, payload, request, time};
use std::sync::Arc;

/// Starts an execution that repeats another one from a step on, or finds the one that the same call started.
pub(super) async fn rerun(
    engine: Engine,
    request: RerunExecutionRequest,
    trace_parent: Arc<str>,
) -> Answer<RerunExecutionResponse> {
    let started = engine.rerun(parse(request, trace_parent)?).await?;
    Ok(RerunExecutionResponse {
        id: started.id.to_string(),
        uid: started.uid.to_string(),
        version: started.version.to_string(),
        created: started.created,
        start_time: Some(time::render(started.start_time)),
    })
}

fn parse(request: RerunExecutionRequest, trace_parent: Arc<str>) -> Result<RerunExecution, Invalid> {
    let mut violations = Violations::new();
    let v = &mut violations;
    let source = name(v, &request.id, &request.uid);
    let from_step = v.take("from_step", field::name(&request.from_step));
    let input = v.take_payload("input", payload::parse_optional(request.input));
    let id = match request.new_id.as_str() {
        "" => Some(None),
        text => v.take("new_id", field::execution_id(text)).map(Some),
    };
    let labels = labels(v, request.labels);

    let canonical = input.as_ref().and_then(Option::as_ref).map(canonical::text);
    let mut content = vec![request.uid.as_bytes(), request.from_step.as_bytes(), request.new_id.as_bytes()];
    content.push(canonical.as_deref().unwrap_or_default().as_bytes());
    content.extend(labels.iter().flat_map(|(key, value)| [key.as_bytes(), value.as_bytes()]));
    let key = v.take("request_id", request::key("RerunExecution", &request.id, &request.request_id, &content));
    let rerun = (|| {
        Some(RerunExecution {
            source: source?,
            from_step: from_step?,
            input: input?,
            id: id?,
            labels: labels.clone(),
            request: key?,
            trace_parent,
        })
    })();
    violations.finish(rerun)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bad_fields_of_a_rerun_are_told_at_once() {
        let request = RerunExecutionRequest { uid: "x".to_owned(), new_id: "!".to_owned(), ..Default::default() };
        let Err(invalid) = parse(request, Arc::from("")) else { panic!("it has bad fields") };
        let fields: Vec<_> = invalid.violations.iter().map(|violation| violation.field.as_str()).collect();
        assert_eq!(fields, ["id", "uid", "from_step", "new_id"]);
    }
}
