//! `StartExecution`.

use super::Answer;
use crate::domain::{Payload, decide::StartSignal};
use crate::engine::{self, Engine, IdReuse, StartExecution};
use crate::proto::admin::{
    IdReusePolicy, StartExecutionRequest, StartExecutionResponse, StartSignal as StartSignalMessage,
};
use crate::wire::{Invalid, Violations, canonical, field, payload, request, time};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tonic::metadata::MetadataMap;

/// Starts an execution, or finds the one that the same call started.
pub(super) async fn start(
    engine: Engine,
    request: StartExecutionRequest,
    trace_parent: Arc<str>,
) -> Answer<StartExecutionResponse> {
    let started = engine.start_execution(parse(request, trace_parent)?).await?;
    Ok(StartExecutionResponse {
        id: started.id.to_string(),
        uid: started.uid.to_string(),
        version: started.version.to_string(),
        created: started.created,
        start_time: Some(time::render(started.start_time)),
        signal_event_number: started.signal_number.map_or(0, |number| i64::try_from(number).unwrap_or(i64::MAX)),
    })
}

/// The caller's `traceparent`; empty if it has none that is well formed.
pub(super) fn trace_parent(metadata: &MetadataMap) -> Arc<str> {
    let text = metadata.get("traceparent").and_then(|value| value.to_str().ok()).unwrap_or_default();
    Arc::from(if is_trace_parent(text) { text } else { "" })
}

/// `00-`, then 32 hex digits of the trace, 16 of the span and 2 of flags; an id of zeros alone is none.
fn is_trace_parent(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [version, trace, span, flags] = parts[..] else { return false };
    let hex = |text: &str, length| {
        text.len() == length && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let some = |text: &str| text.bytes().any(|b| b != b'0');
    version == "00" && hex(trace, 32) && hex(span, 16) && hex(flags, 2) && some(trace) && some(span)
}

fn parse(request: StartExecutionRequest, trace_parent: Arc<str>) -> Result<StartExecution, Invalid> {
    let mut violations = Violations::new();
    let v = &mut violations;
    let id = match request.id.as_str() {
        "" => Some(None),
        text => v.take("id", field::new_execution_id(text)).map(Some),
    };
    let workflow = v.take("workflow", field::name(&request.workflow));
    let version = match request.version.as_str() {
        "" => Some(None),
        text => v.take("version", field::version(text)).map(Some),
    };
    let input = v.take_payload("input", payload::parse_optional(request.input));
    let input = input.map(|input| input.unwrap_or_else(Payload::null));
    let labels = labels(v, request.labels);
    let delay = start_delay(v, request.start_delay.as_ref());
    let signal = start_signal(v, request.signal);

    // The input as it means, so that a client that writes the same object in another order repeats its call.
    let canonical = input.as_ref().map(canonical::text).unwrap_or_default();
    let mut content = vec![request.workflow.as_bytes(), request.version.as_bytes(), canonical.as_bytes()];
    let id_reuse = v.take("id_reuse_policy", id_reuse(request.id_reuse_policy));
    // The default is not told, so that calls of before it could be told are the same.
    content.extend(id_reuse.filter(|reuse| *reuse != IdReuse::Reject).map(|reuse| match reuse {
        IdReuse::Reject => &b"reject"[..],
        IdReuse::AllowWhenClosed => b"allow when closed",
        IdReuse::TerminateRunning => b"terminate running",
    }));
    content.extend(labels.iter().flat_map(|(key, value)| [key.as_bytes(), value.as_bytes()]));
    // Only what is there, so that a call without them is the one that it was before there were any.
    let micros = delay.flatten().map(|delay| delay.as_micros().to_be_bytes());
    content.extend(micros.iter().flat_map(|micros| [&b"start_delay"[..], &micros[..]]));
    let signalled = signal.as_ref().and_then(Option::as_ref).map(|signal| (signal, canonical::text(&signal.payload)));
    content.extend(
        signalled.iter().flat_map(|(signal, payload)| [&b"signal"[..], signal.name.as_bytes(), payload.as_bytes()]),
    );
    let key = v.take("request_id", request::key("StartExecution", &request.id, &request.request_id, &content));
    let input_digest = engine::input_digest(&request.workflow, &canonical);

    let start = (|| {
        Some(StartExecution {
            id: id?,
            workflow: workflow?,
            version: version?,
            input: input?,
            input_digest,
            labels: labels.clone(),
            request: key?,
            id_reuse: id_reuse?,
            trace_parent,
            delay: delay?,
            signal: signal.clone()?,
        })
    })();
    violations.finish(start)
}

fn id_reuse(number: i32) -> Result<IdReuse, String> {
    match IdReusePolicy::try_from(number) {
        Ok(IdReusePolicy::Unspecified | IdReusePolicy::Reject) => Ok(IdReuse::Reject),
        Ok(IdReusePolicy::AllowWhenClosed) => Ok(IdReuse::AllowWhenClosed),
        Ok(IdReusePolicy::TerminateRunning) => Ok(IdReuse::TerminateRunning),
        Err(_) => Err(format!("{number} is no policy")),
    }
}

/// Nothing if it is wrong; a delay of no time is none.
fn start_delay(violations: &mut Violations, delay: Option<&prost_types::Duration>) -> Option<Option<Duration>> {
    let Some(delay) = delay else { return Some(None) };
    let delay = violations.take("start_delay", time::parse_span(delay))?;
    Some(Some(delay).filter(|delay| !delay.is_zero()))
}

/// Nothing if it is wrong.
fn start_signal(violations: &mut Violations, signal: Option<StartSignalMessage>) -> Option<Option<StartSignal>> {
    let Some(signal) = signal else { return Some(None) };
    let name = violations.take("signal.name", field::name(&signal.name));
    let payload = violations.take_payload("signal.payload", payload::parse_optional(signal.payload));
    Some(Some(StartSignal { name: name?, payload: payload?.unwrap_or_else(Payload::null) }))
}

pub(super) fn labels(
    violations: &mut Violations,
    labels: impl IntoIterator<Item = (String, String)>,
) -> BTreeMap<String, String> {
    let labels: BTreeMap<String, String> = labels.into_iter().collect();
    if labels.len() > field::LABELS_MAX {
        violations.add("labels", format!("has more than {} entries", field::LABELS_MAX));
    }
    for (key, value) in &labels {
        violations.take(&format!("labels[{key:?}]"), field::new_label(key, value));
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::workflow::{self as proto, payload::Content};

    fn json(text: &str) -> Option<proto::Payload> {
        Some(proto::Payload { content: Some(Content::Json(text.to_owned())) })
    }

    fn request(input: &str) -> StartExecutionRequest {
        StartExecutionRequest {
            workflow: "order".to_owned(),
            input: json(input),
            request_id: "r".to_owned(),
            ..StartExecutionRequest::default()
        }
    }

    fn parsed(request: StartExecutionRequest) -> StartExecution {
        parse(request, Arc::from("")).unwrap()
    }

    #[test]
    fn c095_the_same_input_written_otherwise_is_the_same_call() {
        let (a, b) = (parsed(request("{\"a\":1,\"b\":2}")), parsed(request("{ \"b\": 2, \"a\": 1 }")));
        assert_eq!((a.input_digest, a.request), (b.input_digest, b.request));
        let other = parsed(request("{\"a\":1,\"b\":3}"));
        assert_ne!(a.input_digest, other.input_digest);
        assert_eq!(a.request.unwrap().key, other.request.unwrap().key);
        assert_ne!(a.request.unwrap().content, other.request.unwrap().content);
    }

    #[test]
    fn labels_are_part_of_the_content_whatever_their_order() {
        let with = |labels: &[(&str, &str)]| {
            let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            parsed(StartExecutionRequest { labels, ..request("1") }).request
        };
        assert_eq!(with(&[("a", "1"), ("b", "2"), ("c", "3")]), with(&[("c", "3"), ("b", "2"), ("a", "1")]));
        assert_ne!(with(&[("a", "1")]), with(&[("a", "2")]));
    }

    #[test]
    fn all_bad_fields_are_told_at_once() {
        let bad = StartExecutionRequest {
            id: "a/b".to_owned(),
            version: "1 0".to_owned(),
            input: json("{"),
            labels: [("a b".to_owned(), String::new())].into(),
            request_id: "x".repeat(65),
            ..StartExecutionRequest::default()
        };
        let invalid = parse(bad, Arc::from("")).unwrap_err();
        let fields: Vec<_> = invalid.violations.iter().map(|v| v.field.as_str()).collect();
        assert_eq!(fields, ["id", "workflow", "version", "input", "labels[\"a b\"]", "request_id"]);
    }

    #[test]
    fn no_input_is_null() {
        let start = parsed(StartExecutionRequest { input: None, ..request("1") });
        assert_eq!(start.input, Payload::null());
    }

    #[test]
    fn a_malformed_trace_parent_is_dropped() {
        assert!(is_trace_parent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
        for bad in ["", "00", "00-x-y-01", "00-00000000000000000000000000000000-00f067aa0ba902b7-01"] {
            assert!(!is_trace_parent(bad), "{bad}");
        }
    }
}
