//! An execution with its steps, as callers see it.

use super::{event, payload, time};
use crate::domain::{Cause, Phase, State, StepState, StepStatus};
use crate::proto::workflow::{self as proto, execution, step_status};

/// An execution with everything but its steps.
#[must_use]
pub fn render(state: &State) -> proto::Execution {
    proto::Execution {
        id: state.id().to_string(),
        uid: state.uid().to_string(),
        run: i32::try_from(state.run()).unwrap_or(i32::MAX),
        workflow: state.definition().name.to_string(),
        version: state.definition().version.to_string(),
        definition_hash: event::hex(&state.definition().hash),
        state: phase(state.phase()).into(),
        cause: state.cause().map_or(proto::Cause::Unspecified, cause).into(),
        labels: state.labels().iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        input: Some(payload::render(state.input())),
        output: state.output().map(payload::render),
        failure: state.failure().map(event::render_failure),
        reason: state.reason().map(ToString::to_string).unwrap_or_default(),
        start_time: Some(time::render(state.start_time())),
        close_time: state.close_time().map(time::render),
        expire_time: state.expire_time().map(time::render),
        last_event_number: i64::try_from(state.last_number()).unwrap_or(i64::MAX),
        steps: Vec::new(),
        buffered_signals: i32::try_from(state.buffered_signals()).unwrap_or(i32::MAX),
    }
}

/// An execution with its steps.
#[must_use]
pub fn render_whole(state: &State) -> proto::Execution {
    proto::Execution { steps: state.steps().map(|status| step(&status)).collect(), ..render(state) }
}

fn phase(phase: Phase) -> execution::State {
    match phase {
        Phase::Running => execution::State::Running,
        Phase::WindingDown => execution::State::WindingDown,
        Phase::Succeeded => execution::State::Succeeded,
        Phase::Failed => execution::State::Failed,
        Phase::Cancelled => execution::State::Cancelled,
        Phase::TimedOut => execution::State::TimedOut,
        Phase::Terminated => execution::State::Terminated,
    }
}

fn cause(cause: &Cause) -> proto::Cause {
    match cause {
        Cause::Failure(_) => proto::Cause::Failure,
        Cause::Cancel(_) => proto::Cause::Cancel,
        Cause::Timeout => proto::Cause::Timeout,
    }
}

fn step(status: &StepStatus<'_>) -> proto::StepStatus {
    let state = match status.state {
        StepState::Pending => step_status::State::Pending,
        StepState::Scheduled => step_status::State::Scheduled,
        StepState::Running => step_status::State::Running,
        StepState::BackingOff => step_status::State::BackingOff,
        StepState::Sleeping => step_status::State::Sleeping,
        StepState::Awaiting => step_status::State::Awaiting,
        StepState::Succeeded => step_status::State::Succeeded,
        StepState::Failed => step_status::State::Failed,
        StepState::Skipped => step_status::State::Skipped,
        StepState::Cancelled => step_status::State::Cancelled,
    };
    proto::StepStatus {
        step: status.step.to_string(),
        state: state.into(),
        attempt: i32::try_from(status.attempt).unwrap_or(i32::MAX),
        delivery: i32::try_from(status.delivery).unwrap_or(i32::MAX),
        worker_id: status.worker_id.map(ToString::to_string).unwrap_or_default(),
        output: status.output.map(payload::render),
        failure: status.failure.map(event::render_failure),
        wake_time: status.wake_time.map(time::render),
        task: status.contract.map(ToString::to_string).unwrap_or_default(),
        queue: status.queue.map(ToString::to_string).unwrap_or_default(),
        progress: status.progress.map(payload::render),
        schedule_time: status.schedule_time.map(time::render),
    }
}
