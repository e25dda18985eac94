//! Requests of workers as values of the engine.

use crate::api::wait_duration;
use crate::domain::{Failure, Payload, SessionId, TaskToken};
use crate::engine::{HeldToken, Registration, Report};
use crate::proto::{worker as proto, workflow};
use crate::wire::{Invalid, Violations, field, payload, time, token};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Longest wait of a poll.
const WAIT_MAX: Duration = Duration::from_secs(50);

/// Most queues of a session.
const QUEUES_MAX: usize = 100;

/// Most contracts of a session.
const CONTRACTS_MAX: usize = 1_000;

/// Most tasks of one poll.
const TASKS_MAX: i32 = 1_000;

/// Most slots of a worker, credits of a stream and tokens of a heartbeat.
pub(super) const SLOTS_MAX: u32 = 10_000;

/// Largest progress, in bytes of JSON text.
const PROGRESS_BYTES_MAX: usize = 64 * 1024;

const MESSAGE_BYTES_DEFAULT: u64 = 4 * 1024 * 1024;
const MESSAGE_BYTES: std::ops::RangeInclusive<u64> = 64 * 1024..=64 * 1024 * 1024;

/// A session that must be there.
pub(super) fn session(text: &str) -> Result<SessionId, Invalid> {
    field::session(text).map_err(|description| Invalid::field("session_id", description))
}

/// `RegisterWorker`.
pub(super) fn registration(request: proto::RegisterWorkerRequest) -> Result<Registration, Invalid> {
    let mut violations = Violations::new();
    let v = &mut violations;
    let worker_id = match request.worker_id.as_str() {
        "" => v.take("worker_id", Err("is required")),
        text => v.take("worker_id", field::line(text, 128)),
    };
    let language = v.take("language", field::language(&request.language));
    let sdk = v.take("sdk", field::line(&request.sdk, 128));
    let build = v.take("build", field::line(&request.build, 128));
    let queues = if request.queues.is_empty() { vec!["default".to_owned()] } else { request.queues };
    let queues = distinct(v, "queues", &queues, QUEUES_MAX, field::name);
    if request.contracts.is_empty() {
        v.add("contracts", "is required: name@version of each task that the worker can do");
    }
    let contracts = distinct(v, "contracts", &request.contracts, CONTRACTS_MAX, |text| {
        field::contract(text).map_err(str::to_owned)
    });
    let slots = match u32::try_from(request.slots) {
        Ok(0) => Some(1),
        Ok(slots @ 1..=SLOTS_MAX) => Some(slots),
        _ => v.take("slots", Err(format!("must be 1 to {SLOTS_MAX}; 0 is 1"))),
    };
    let message_bytes_max = match u64::try_from(request.message_bytes_max) {
        Ok(0) => Some(MESSAGE_BYTES_DEFAULT),
        Ok(bytes) if MESSAGE_BYTES.contains(&bytes) => Some(bytes),
        _ => v.take("message_bytes_max", Err("must be 64 KiB to 64 MiB; 0 is 4 MiB")),
    };
    let previous_session = v.take("previous_session_id", field::optional_session(&request.previous_session_id));
    let registration = (|| {
        Some(Registration {
            worker_id: worker_id?,
            language: language?,
            sdk: sdk?,
            build: build?,
            queues,
            contracts,
            slots: slots?,
            message_bytes_max: message_bytes_max?,
            previous_session: previous_session?,
        })
    })();
    violations.finish(registration)
}

/// The entries of a list, each once, in order.
fn distinct(
    violations: &mut Violations,
    name: &str,
    texts: &[String],
    most: usize,
    parse: impl Fn(&str) -> Result<Arc<str>, String>,
) -> Vec<Arc<str>> {
    if texts.len() > most {
        violations.add(name, format!("has more than {most} entries"));
        return Vec::new();
    }
    let entries = texts.iter().enumerate();
    let entries = entries.filter_map(|(index, text)| violations.take(&format!("{name}[{index}]"), parse(text)));
    entries.collect::<BTreeSet<_>>().into_iter().collect()
}

/// A poll.
pub(super) struct Poll {
    pub(super) session: SessionId,
    pub(super) max_tasks: u32,
    pub(super) wait: Duration,
}

/// `PollTasks`.
pub(super) fn poll(request: &proto::PollTasksRequest) -> Result<Poll, Invalid> {
    let mut violations = Violations::new();
    let session = violations.take("session_id", field::session(&request.session_id));
    let max_tasks = match request.max_tasks {
        0 => Some(1),
        tasks @ 1..=TASKS_MAX => u32::try_from(tasks).ok(),
        _ => violations.take("max_tasks", Err(format!("must be 1 to {TASKS_MAX}; 0 is 1"))),
    };
    let wait = wait_duration(&mut violations, request.wait_duration.as_ref(), WAIT_MAX);
    violations.finish((|| Some(Poll { session: session?, max_tasks: max_tasks?, wait }))())
}

/// `Heartbeat`, as a call of its own.
pub(super) fn heartbeat(request: proto::HeartbeatRequest) -> Result<(SessionId, Vec<HeldToken>), Invalid> {
    let mut violations = Violations::new();
    let session = violations.take("session_id", field::session(&request.session_id));
    let held = held(&mut violations, request.held);
    violations.finish(session.map(|session| (session, held)))
}

/// The tokens of a heartbeat on a stream.
pub(super) fn stream_heartbeat(request: proto::HeartbeatRequest) -> Result<Vec<HeldToken>, Invalid> {
    let mut violations = Violations::new();
    let held = violations.within("heartbeat", |violations| held(violations, request.held));
    violations.finish(Some(held))
}

fn held(violations: &mut Violations, tasks: Vec<proto::HeldTask>) -> Vec<HeldToken> {
    if tasks.len() > SLOTS_MAX as usize {
        violations.add("held", format!("has more than {SLOTS_MAX} entries"));
        return Vec::new();
    }
    let tasks = tasks.into_iter().enumerate();
    tasks
        .filter_map(|(index, task)| {
            violations.within_entry("held", index, |v| {
                let token = v.take("task_token", token::parse(&task.task_token));
                let progress =
                    v.take_payload("progress", payload::parse_optional_within(task.progress, PROGRESS_BYTES_MAX));
                Some(HeldToken { token: token?, progress: progress?, beat: task.beat })
            })
        })
        .collect()
}

/// `CompleteTask`.
pub(super) fn complete(request: proto::CompleteTaskRequest) -> Result<(TaskToken, Report), Invalid> {
    let mut violations = Violations::new();
    let token = violations.take("task_token", token::parse(&request.task_token));
    let report = complete_report(&mut violations, request.output);
    violations.finish(token.zip(report))
}

/// `FailTask`.
pub(super) fn fail(request: proto::FailTaskRequest) -> Result<(TaskToken, Report), Invalid> {
    let mut violations = Violations::new();
    let token = violations.take("task_token", token::parse(&request.task_token));
    let proto::FailTaskRequest { failure, retryable, retry_after, .. } = request;
    let report = fail_report(&mut violations, proto::Fail { failure, retryable, retry_after });
    violations.finish(token.zip(report))
}

/// `ReleaseTask`.
pub(super) fn release(request: &proto::ReleaseTaskRequest) -> Result<(TaskToken, Report), Invalid> {
    let mut violations = Violations::new();
    let token = violations.take("task_token", token::parse(&request.task_token));
    violations.finish(token.map(|token| (token, Report::Release)))
}

/// A report on a stream.
pub(super) fn report(token_text: &str, kind: Option<proto::report::Kind>) -> Result<(TaskToken, Report), Invalid> {
    use proto::report::Kind;
    let mut violations = Violations::new();
    let v = &mut violations;
    let token = v.take("task_token", token::parse(token_text));
    let report = match kind {
        Some(Kind::Complete(complete)) => v.within("complete", |v| complete_report(v, complete.output)),
        Some(Kind::Fail(fail)) => v.within("fail", |v| fail_report(v, fail)),
        Some(Kind::Release(_)) => Some(Report::Release),
        None => v.take("kind", Err("is required: complete, fail or release")),
    };
    violations.finish(token.zip(report))
}

fn complete_report(violations: &mut Violations, output: Option<workflow::Payload>) -> Option<Report> {
    let output: Option<Payload> = violations.take_payload("output", payload::parse_required(output));
    output.map(|output| Report::Complete { output })
}

fn fail_report(violations: &mut Violations, fail: proto::Fail) -> Option<Report> {
    let Some(failure) = fail.failure else {
        violations.add("failure", "is required");
        return None;
    };
    let retry_after = match &fail.retry_after {
        None => Some(None),
        Some(span) => violations.take("retry_after", time::parse_span(span)).map(Some),
    };
    let failure = violations.within("failure", |v| {
        let code = v.take("code", field::failure_code(&failure.code));
        let details = v.take_payload("details", payload::parse_optional(failure.details));
        let message = field::clean_text(&failure.message);
        Some(Failure { code: code?, message, details: details?, unit: Arc::from("") })
    });
    Some(Report::Fail { failure: failure?, retryable: fail.retryable.unwrap_or(true), retry_after: retry_after? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(invalid: &Invalid) -> Vec<&str> {
        invalid.violations.iter().map(|violation| violation.field.as_str()).collect()
    }

    fn worker() -> proto::RegisterWorkerRequest {
        proto::RegisterWorkerRequest {
            worker_id: "host-1".to_owned(),
            contracts: vec!["a@1".to_owned(), "a@1".to_owned()],
            ..proto::RegisterWorkerRequest::default()
        }
    }

    #[test]
    fn a_worker_gets_the_defaults_and_each_name_once() {
        let registration = registration(worker()).unwrap();
        assert_eq!(registration.queues, [Arc::from("default")]);
        assert_eq!(registration.contracts, [Arc::from("a@1")]);
        assert_eq!((registration.slots, registration.message_bytes_max), (1, MESSAGE_BYTES_DEFAULT));
    }

    #[test]
    fn all_bad_fields_of_a_worker_are_told_at_once() {
        let bad = proto::RegisterWorkerRequest {
            worker_id: "a\nb".to_owned(),
            language: "Go".to_owned(),
            queues: vec!["ok".to_owned(), "not ok".to_owned()],
            contracts: vec!["a".to_owned()],
            slots: -1,
            message_bytes_max: 1,
            previous_session_id: "x".to_owned(),
            ..worker()
        };
        let invalid = registration(bad).unwrap_err();
        let expected =
            ["worker_id", "language", "queues[1]", "contracts[0]", "slots", "message_bytes_max", "previous_session_id"];
        assert_eq!(fields(&invalid), expected);
    }

    #[test]
    fn c075_a_failures_text_never_loses_the_report() {
        let token = token::render(&TaskToken {
            execution: crate::domain::ExecutionKey(1),
            uid: crate::domain::Uid(uuid::Uuid::from_u128(1)),
            delivery: crate::domain::DeliveryRef { unit: Arc::from("a"), delivery: 1 },
        });
        let failure =
            workflow::Failure { code: "BOOM".to_owned(), message: "x\0y".to_owned(), ..workflow::Failure::default() };
        let (_, report) = fail(proto::FailTaskRequest {
            task_token: token,
            failure: Some(failure),
            ..proto::FailTaskRequest::default()
        })
        .unwrap();
        let Report::Fail { failure, retryable, .. } = report else { panic!("it is a failure") };
        assert_eq!((&*failure.message, retryable), ("x\u{FFFD}y", true));
    }

    #[test]
    fn progress_and_tokens_of_a_heartbeat_are_judged_with_their_places() {
        let large = workflow::payload::Content::Json(format!("\"{}\"", "a".repeat(PROGRESS_BYTES_MAX)));
        let task = proto::HeldTask {
            task_token: "x".to_owned(),
            progress: Some(workflow::Payload { content: Some(large) }),
            beat: false,
        };
        let invalid = stream_heartbeat(proto::HeartbeatRequest { held: vec![task], ..Default::default() }).unwrap_err();
        assert_eq!(fields(&invalid), ["heartbeat.held[0].task_token", "heartbeat.held[0].progress"]);
        assert!(invalid.too_large.is_some());
    }
}
