//! Values of engine and store as the messages of the API.

use crate::domain::{RefusalReason, ReportOutcome};
use crate::engine;
use crate::proto::{admin, worker, workflow as proto};
use crate::store::{ExecutionRow, ExecutionState, SessionRow};
use crate::wire::{self, payload, time};

/// A state as callers know it, without the prefix of the enum: `TIMED_OUT`.
pub(super) fn state_name(state: ExecutionState) -> &'static str {
    wire::filter::short_name(self::state(state))
}

/// The state of a row.
pub(super) fn state(state: ExecutionState) -> proto::execution::State {
    match state {
        ExecutionState::Running => proto::execution::State::Running,
        ExecutionState::WindingDown => proto::execution::State::WindingDown,
        ExecutionState::Succeeded => proto::execution::State::Succeeded,
        ExecutionState::Failed => proto::execution::State::Failed,
        ExecutionState::Cancelled => proto::execution::State::Cancelled,
        ExecutionState::TimedOut => proto::execution::State::TimedOut,
        ExecutionState::Terminated => proto::execution::State::Terminated,
        ExecutionState::Paused => proto::execution::State::Paused,
    }
}

/// An execution as lists show it: what its row has.
pub(super) fn execution_row(row: &ExecutionRow) -> proto::Execution {
    proto::Execution {
        id: row.id.to_string(),
        uid: row.uid.to_string(),
        run: count(row.run),
        workflow: row.workflow.to_string(),
        version: row.version.to_string(),
        definition_hash: wire::event::hex(&row.definition_hash),
        state: state(row.state).into(),
        labels: row.labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        start_time: Some(time::render(row.start_time)),
        close_time: row.close_time.map(time::render),
        ..proto::Execution::default()
    }
}

/// A task for its worker.
pub(super) fn task(task: &engine::Task) -> proto::Task {
    let delivery = &task.delivery;
    proto::Task {
        task_token: wire::token::render(&task.token),
        contract: delivery.contract.to_string(),
        input: Some(payload::render(&delivery.input)),
        execution_id: task.execution_id.to_string(),
        execution_uid: task.token.uid.to_string(),
        run: count(task.run),
        workflow: task.workflow.to_string(),
        version: task.version.to_string(),
        step: delivery.reference.unit.to_string(),
        unit: delivery.reference.unit.to_string(),
        attempt: count(delivery.attempt),
        delivery: count(delivery.reference.delivery),
        redelivery: delivery.redelivery,
        idempotency_key: delivery.idempotency_key.clone(),
        queue: delivery.queue.to_string(),
        schedule_time: Some(time::render(delivery.schedule_time)),
        dispatch_time: Some(time::render(delivery.dispatch_time)),
        expire_time: delivery.expire_time.map(time::render),
        heartbeat_timeout: delivery.heartbeat_timeout.map(time::render_span),
        progress: delivery.progress.as_ref().map(payload::render),
        trace_parent: task.trace_parent.to_string(),
    }
}

/// What became of a report.
pub(super) fn outcome(outcome: ReportOutcome) -> worker::ReportOutcome {
    use worker::report_outcome::Reason;
    let (accepted, duplicate, reason) = match outcome {
        ReportOutcome::Accepted => (true, false, Reason::Unspecified),
        ReportOutcome::Duplicate => (true, true, Reason::Unspecified),
        ReportOutcome::Refused(RefusalReason::UnitResolved) => (false, false, Reason::UnitResolved),
        ReportOutcome::Refused(RefusalReason::ExecutionClosed) => (false, false, Reason::ExecutionClosed),
        ReportOutcome::Refused(RefusalReason::StaleToken) => (false, false, Reason::StaleToken),
    };
    worker::ReportOutcome { accepted, duplicate, reason: reason.into() }
}

/// The answer to a heartbeat.
pub(super) fn heartbeat(answer: &engine::HeartbeatAnswer) -> worker::HeartbeatResponse {
    worker::HeartbeatResponse { stop: answer.stop.iter().map(wire::token::render).collect(), draining: answer.draining }
}

/// A worker's session.
pub(super) fn session(row: &SessionRow) -> admin::Worker {
    let texts = |texts: &[std::sync::Arc<str>]| texts.iter().map(|text| text.to_string()).collect();
    admin::Worker {
        session_id: row.id.to_string(),
        worker_id: row.worker_id.to_string(),
        language: row.language.to_string(),
        sdk: row.sdk.to_string(),
        build: row.build.to_string(),
        queues: texts(&row.queues),
        contracts: texts(&row.contracts),
        slots: count(row.slots),
        register_time: Some(time::render(row.register_time)),
        contact_time: Some(time::render(row.contact_time)),
    }
}

fn count(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
