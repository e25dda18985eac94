//! An execution with its steps, as callers see it.
//!
//! An answer fits the 4 MiB that gRPC clients take unless told otherwise, whatever the steps have made: payloads without
//! room are left out, and the answer says so. The events have them all.

use super::{event, payload, time};
use crate::domain::{Cause, Failure, Payload, Phase, State, StepState, StepStatus};
use crate::proto::workflow::{self as proto, execution, step_status};

/// Most bytes of an answer: what clients take, less some for ids, labels and framing.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024 - 128 * 1024;

/// What a step or a payload takes beside its texts: times, numbers, tags.
const OVERHEAD_BYTES: usize = 96;

/// An execution with everything but its steps.
#[must_use]
pub fn render(state: &State) -> proto::Execution {
    render_within(state, &mut Room { bytes: ANSWER_BYTES_MAX, omitted: false })
}

/// An execution with its steps.
#[must_use]
pub fn render_whole(state: &State) -> proto::Execution {
    let steps = state.steps().map(|status| step_bytes(&status)).sum();
    let mut room = Room { bytes: ANSWER_BYTES_MAX.saturating_sub(steps), omitted: false };
    let mut whole = render_within(state, &mut room);
    whole.steps = state.steps().map(|status| step(&status, &mut room)).collect();
    whole.payloads_omitted = room.omitted;
    whole
}

/// What an answer still has room for.
struct Room {
    bytes: usize,
    /// Whether something had no room.
    omitted: bool,
}

impl Room {
    fn payload(&mut self, payload: &Payload) -> Option<proto::Payload> {
        let left = self.bytes.checked_sub(payload.len() + OVERHEAD_BYTES);
        self.omitted |= left.is_none();
        self.bytes = left?;
        Some(payload::render(payload))
    }

    fn failure(&mut self, failure: &Failure) -> proto::Failure {
        let details = failure.details.as_ref().and_then(|details| self.payload(details));
        proto::Failure { details, ..event::render_failure(&Failure { details: None, ..failure.clone() }) }
    }
}

/// Bytes of a step without its payloads.
fn step_bytes(status: &StepStatus<'_>) -> usize {
    let texts = [Some(status.step), status.worker_id, status.contract, status.queue];
    let failure = status.failure.map_or(0, |failure| failure.code.len() + failure.message.len());
    OVERHEAD_BYTES + failure + texts.into_iter().flatten().map(|text| text.len()).sum::<usize>()
}

/// The result first, since that is what most callers are after; then the input.
fn render_within(state: &State, room: &mut Room) -> proto::Execution {
    let output = state.output().and_then(|output| room.payload(output));
    let failure = state.failure().map(|failure| room.failure(failure));
    let input = room.payload(state.input());
    proto::Execution {
        id: state.id().to_string(),
        uid: state.uid().to_string(),
        run: i32::try_from(state.run()).unwrap_or(i32::MAX),
        workflow: state.definition().name.to_string(),
        version: state.definition().version.to_string(),
        definition_hash: event::hex(&state.definition().hash),
        state: (if state.is_paused() { execution::State::Paused } else { phase(state.phase()) }).into(),
        cause: state.cause().map_or(proto::Cause::Unspecified, cause).into(),
        labels: state.labels().iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        input,
        output,
        failure,
        reason: state.reason().map(ToString::to_string).unwrap_or_default(),
        start_time: Some(time::render(state.start_time())),
        close_time: state.close_time().map(time::render),
        expire_time: state.expire_time().map(time::render),
        last_event_number: i64::try_from(state.last_number()).unwrap_or(i64::MAX),
        steps: Vec::new(),
        buffered_signals: i32::try_from(state.buffered_signals()).unwrap_or(i32::MAX),
        payloads_omitted: room.omitted,
        parent: state.parent().map(event::render_parent),
        begin_time: state.begin_time().map(time::render),
    }
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

fn count(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn step(status: &StepStatus<'_>, room: &mut Room) -> proto::StepStatus {
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
        attempt: count(status.attempt),
        delivery: count(status.delivery),
        worker_id: status.worker_id.map(ToString::to_string).unwrap_or_default(),
        output: status.output.and_then(|output| room.payload(output)),
        failure: status.failure.map(|failure| room.failure(failure)),
        wake_time: status.wake_time.map(time::render),
        task: status.contract.map(ToString::to_string).unwrap_or_default(),
        queue: status.queue.map(ToString::to_string).unwrap_or_default(),
        progress: status.progress.and_then(|progress| room.payload(progress)),
        schedule_time: status.schedule_time.map(time::render),
        child: status.child.map(|(id, uid)| proto::Child {
            id: id.to_string(),
            uid: uid.map(|uid| uid.to_string()).unwrap_or_default(),
        }),
        fan_out: status.fan_out.map(|fan_out| proto::FanOutStatus {
            items: count(fan_out.items),
            begun: count(fan_out.begun),
            open: count(fan_out.open),
            failed: count(fan_out.failed),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::decide::{self, Context, Start};
    use crate::domain::{ExecutionId, Settings, Timestamp, Uid, definition::Definition};
    use prost::Message as _;
    use std::{collections::BTreeMap, sync::Arc};
    use uuid::Uuid;

    /// An execution of so many steps that each give its input on.
    fn passing_on(steps: usize, input_bytes: usize) -> State {
        let steps: String =
            (0..steps).map(|index| format!("  - {{id: s{index}, compute: \"${{ input }}\"}}\n")).collect();
        let text = format!("name: test\nversion: 1.0.0\nsteps:\n{steps}result: done\n");
        let (definition, _) = Definition::parse("test.yaml", &text).unwrap();
        let start = Start {
            id: ExecutionId::parse("e").unwrap(),
            uid: Uid(Uuid::from_u128(7)),
            input: Payload::from_json(format!("\"{}\"", "x".repeat(input_bytes - 2))),
            labels: BTreeMap::new(),
            request: None,
            trace_parent: Arc::from(""),
            delay: None,
            signal: None,
            results: Vec::new(),
            birth: None,
        };
        let context = Context { now: Timestamp::from_micros(0), settings: Settings::default() };
        decide::start(Arc::new(definition), start, &context).unwrap().0
    }

    #[test]
    fn small_payloads_are_all_there() {
        let whole = render_whole(&passing_on(100, 1_000));
        assert!(whole.input.is_some() && whole.output.is_some() && !whole.payloads_omitted);
        assert!(whole.steps.iter().all(|step| step.output.is_some()));
    }

    #[test]
    fn large_payloads_are_left_out_where_the_answer_would_not_fit_a_client_and_the_answer_says_so() {
        let whole = render_whole(&passing_on(100, 1024 * 1024));
        assert!(whole.output.is_some(), "the result comes first");
        assert!(whole.input.is_some() && whole.payloads_omitted);
        let outputs = whole.steps.iter().filter(|step| step.output.is_some()).count();
        assert_eq!((whole.steps.len(), outputs), (100, 2));
        assert!(whole.encoded_len() <= 4 * 1024 * 1024);
    }
}
