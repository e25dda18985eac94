//! Changes that callers make to an execution: signal, cancel, terminate, pause, resume, retry, delete.

use super::{Answer, name};
use crate::domain::{Payload, RequestKey, Timestamp};
use crate::engine::{Engine, ExecutionName};
use crate::proto::admin as proto;
use crate::wire::{Invalid, Violations, canonical, field, payload, request, time};
use std::sync::Arc;

/// `SignalExecution`.
pub(super) async fn signal(
    engine: Engine,
    request: proto::SignalExecutionRequest,
) -> Answer<proto::SignalExecutionResponse> {
    let signal = parse_signal(request)?;
    let number =
        engine.signal(&signal.execution, signal.name, signal.payload, signal.expire_time, signal.request).await?;
    Ok(proto::SignalExecutionResponse { event_number: event_number(number) })
}

/// `CancelExecution`.
pub(super) async fn cancel(
    engine: Engine,
    request: proto::CancelExecutionRequest,
) -> Answer<proto::CancelExecutionResponse> {
    let end = parse_end("CancelExecution", &request.id, &request.uid, &request.reason, &request.request_id)?;
    let number = engine.cancel(&end.execution, end.reason, end.request).await?;
    Ok(proto::CancelExecutionResponse { event_number: event_number(number) })
}

/// `TerminateExecution`.
pub(super) async fn terminate(
    engine: Engine,
    request: proto::TerminateExecutionRequest,
) -> Answer<proto::TerminateExecutionResponse> {
    let end = parse_end("TerminateExecution", &request.id, &request.uid, &request.reason, &request.request_id)?;
    let number = engine.terminate(&end.execution, end.reason, end.request).await?;
    Ok(proto::TerminateExecutionResponse { event_number: event_number(number) })
}

/// `PauseExecution`.
pub(super) async fn pause(
    engine: Engine,
    request: proto::PauseExecutionRequest,
) -> Answer<proto::PauseExecutionResponse> {
    let pause = parse_end("PauseExecution", &request.id, &request.uid, &request.reason, &request.request_id)?;
    let number = engine.pause(&pause.execution, pause.reason, pause.request).await?;
    Ok(proto::PauseExecutionResponse { event_number: event_number(number) })
}

/// `ResumeExecution`.
pub(super) async fn resume(
    engine: Engine,
    request: proto::ResumeExecutionRequest,
) -> Answer<proto::ResumeExecutionResponse> {
    let resume = parse_end("ResumeExecution", &request.id, &request.uid, "", &request.request_id)?;
    let number = engine.resume(&resume.execution, resume.request).await?;
    Ok(proto::ResumeExecutionResponse { event_number: event_number(number) })
}

/// `RetryExecution`.
pub(super) async fn retry(
    engine: Engine,
    request: proto::RetryExecutionRequest,
) -> Answer<proto::RetryExecutionResponse> {
    let retry = parse_end("RetryExecution", &request.id, &request.uid, "", &request.request_id)?;
    let number = engine.retry(&retry.execution, retry.request).await?;
    Ok(proto::RetryExecutionResponse { event_number: event_number(number) })
}

/// `DeleteExecution`.
pub(super) async fn delete(
    engine: Engine,
    request: proto::DeleteExecutionRequest,
) -> Answer<proto::DeleteExecutionResponse> {
    let end = parse_end("DeleteExecution", &request.id, &request.uid, "", &request.request_id)?;
    engine.delete(&end.execution, end.request).await?;
    Ok(proto::DeleteExecutionResponse {})
}

fn event_number(number: u64) -> i64 {
    i64::try_from(number).expect("an execution has fewer events than 2^63")
}

struct Signal {
    execution: ExecutionName,
    name: Arc<str>,
    payload: Payload,
    expire_time: Option<Timestamp>,
    request: Option<RequestKey>,
}

fn parse_signal(request: proto::SignalExecutionRequest) -> Result<Signal, Invalid> {
    let mut violations = Violations::new();
    let v = &mut violations;
    let execution = name(v, &request.id, &request.uid);
    let signal = v.take("name", field::name(&request.name));
    let payload = v.take_payload("payload", payload::parse_optional(request.payload));
    let payload = payload.map(|payload| payload.unwrap_or_else(Payload::null));
    let expire_time = request.expire_time.as_ref().and_then(|time| v.take("expire_time", time::parse(time)));

    let canonical = payload.as_ref().map(canonical::text).unwrap_or_default();
    let expiry = expire_time.map_or(i64::MIN, Timestamp::as_micros).to_be_bytes();
    let content = [request.uid.as_bytes(), request.name.as_bytes(), canonical.as_bytes(), &expiry];
    let key = v.take("request_id", request::key("SignalExecution", &request.id, &request.request_id, &content));
    let signal =
        (|| Some(Signal { execution: execution?, name: signal?, payload: payload?, expire_time, request: key? }))();
    violations.finish(signal)
}

/// A change with nothing but a reason.
struct End {
    execution: ExecutionName,
    reason: Arc<str>,
    request: Option<RequestKey>,
}

fn parse_end(rpc: &str, id: &str, uid: &str, reason: &str, request_id: &str) -> Result<End, Invalid> {
    let mut violations = Violations::new();
    let v = &mut violations;
    let execution = name(v, id, uid);
    let key = v.take("request_id", request::key(rpc, id, request_id, &[uid.as_bytes(), reason.as_bytes()]));
    let reason = v.take("reason", field::reason(reason));
    let end = (|| Some(End { execution: execution?, reason: reason?, request: key? }))();
    violations.finish(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bad_fields_of_a_signal_are_told_at_once() {
        let request = proto::SignalExecutionRequest {
            uid: "x".to_owned(),
            expire_time: Some(prost_types::Timestamp { seconds: i64::MAX, nanos: 0 }),
            ..proto::SignalExecutionRequest::default()
        };
        let Err(invalid) = parse_signal(request) else { panic!("it has bad fields") };
        let fields: Vec<_> = invalid.violations.iter().map(|v| v.field.as_str()).collect();
        assert_eq!(fields, ["id", "uid", "name", "expire_time"]);
    }

    #[test]
    fn cancel_and_terminate_with_one_request_id_are_two_calls() {
        let key = |rpc, reason| parse_end(rpc, "a", "", reason, "r").ok().unwrap().request.unwrap();
        assert_eq!(key("CancelExecution", ""), key("CancelExecution", ""));
        assert_ne!(key("CancelExecution", "").key, key("TerminateExecution", "").key);
        assert_ne!(key("CancelExecution", "a").content, key("CancelExecution", "b").content);
    }
}
