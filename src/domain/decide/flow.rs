//! Lets steps begin, and ends the execution when all of them have.
//!
//! An explicit list of work, kept by the state, takes the place of recursion: a chain of ten thousand computed steps
//! is ten thousand rounds of [`Decision::settle`].

use super::Decision;
use crate::domain::definition::{
    Action, Await, EvaluationError, Fail, OnError, Problem, Sleep, Step, StepIndex, TaskStep, Template,
};
use crate::domain::state::{Phase, Work};
use crate::domain::{Cause, EventKind, Failure, Payload, SkipReason, Unit, code};
use std::sync::Arc;

impl Decision<'_> {
    /// Does what is due at once, until nothing is or this decision is full.
    pub(super) fn settle(&mut self) {
        while self.has_room() {
            match self.state.next_work() {
                Some(Work::Close) => self.close(),
                Some(Work::Begin(index)) => self.begin(index),
                Some(Work::Finish) => self.finish(),
                None => return,
            }
        }
    }

    /// Ends a step for good with a failure, and with it the execution unless the step may fail.
    pub(super) fn fail_step(&mut self, index: StepIndex, failure: Failure) {
        let unit = self.name(index);
        let ends_all = self.state.step(index).on_error == OnError::Fail && self.state.phase() == Phase::Running;
        let cause = ends_all.then(|| Cause::Failure(failure.clone()));
        self.emit(EventKind::StepFailed { unit, failure });
        if let Some(cause) = cause {
            self.start_wind_down(cause, None);
        }
    }

    /// Ends a step for good with one of the server's codes.
    pub(super) fn fail_step_with(&mut self, index: StepIndex, code: &str, message: impl Into<Arc<str>>) {
        let failure = Failure::new(code, message, &self.name(index));
        self.fail_step(index, failure);
    }

    fn evaluation_failed(&mut self, index: StepIndex, error: &EvaluationError, too_large: &'static str) {
        self.fail_step_with(index, code_of(error, too_large), error.to_string());
    }

    pub(super) fn name(&self, index: StepIndex) -> Unit {
        self.state.step(index).id.clone()
    }

    /// Begins a step whose turn has come.
    fn begin(&mut self, index: StepIndex) {
        let definition = self.state.definition().clone();
        let step = definition.step(index);
        match self.is_wanted(step) {
            Ok(true) => {}
            Ok(false) => {
                self.emit(EventKind::StepSkipped { unit: step.id.clone(), reason: SkipReason::WhenFalse });
                return;
            }
            Err(error) => return self.evaluation_failed(index, &error, code::RESULT_TOO_LARGE),
        }
        match &step.action {
            Action::Task(task) => self.begin_task(index, task),
            Action::Compute(template) => self.begin_compute(index, template),
            Action::Sleep(sleep) => self.begin_sleep(index, sleep),
            Action::Await(wait) => self.begin_await(index, wait),
            Action::Fail(fail) => self.begin_fail(index, fail),
            Action::Child(_) | Action::Signal(_) | Action::ContinueAsNew(_) => {
                unreachable!("no definition that is read has such a step")
            }
        }
    }

    /// Whether the step's `when` holds.
    fn is_wanted(&self, step: &Step) -> Result<bool, EvaluationError> {
        match &step.when {
            Some(when) => when.evaluate_bool(&self.state.scope(None)),
            None => Ok(true),
        }
    }

    fn begin_task(&mut self, index: StepIndex, task: &TaskStep) {
        let input = match &task.input {
            Some(template) => template.evaluate(&self.state.scope(None)),
            None => Ok(Payload::null()),
        };
        let input = match input {
            Ok(input) => input,
            Err(error) => return self.evaluation_failed(index, &error, code::INPUT_TOO_LARGE),
        };
        if let Some(Err(violations)) = task.input_schema.as_ref().map(|schema| schema.validate(&input)) {
            let message = format!("input does not fit the contract {}: {violations}", task.contract);
            return self.fail_step_with(index, code::INPUT_INVALID, message);
        }
        let unit = self.name(index);
        self.emit(EventKind::StepScheduled { unit, attempt: 1, input: Some(input) });
    }

    fn begin_compute(&mut self, index: StepIndex, template: &Template) {
        match template.evaluate(&self.state.scope(None)) {
            Ok(output) => self.succeed(index, output, None),
            Err(error) => self.evaluation_failed(index, &error, code::RESULT_TOO_LARGE),
        }
    }

    fn begin_sleep(&mut self, index: StepIndex, sleep: &Sleep) {
        let wake_time = match sleep.wake_time(&self.state.scope(None), self.now) {
            Ok(wake_time) => wake_time,
            Err(error) => return self.evaluation_failed(index, &error, code::RESULT_TOO_LARGE),
        };
        let unit = self.name(index);
        self.emit(EventKind::SleepStarted { unit, wake_time });
        if wake_time <= self.now {
            self.succeed(index, Payload::null(), None);
        }
    }

    /// Begins to wait, or takes a signal that has come already.
    ///
    /// Expired signals are dropped first; should they fill the decision, the step begins in the next one.
    fn begin_await(&mut self, index: StepIndex, wait: &Await) {
        if !self.drop_expired_signals_of(&wait.signal) {
            return;
        }
        let expire_time = wait.timeout.map(|timeout| self.now + timeout);
        let unit = self.name(index);
        self.emit(EventKind::AwaitStarted { unit, expire_time });
        self.take_buffered_signal(index, wait);
    }

    fn begin_fail(&mut self, index: StepIndex, fail: &Fail) {
        match fail.message.evaluate_text(&self.state.scope(None)) {
            Ok(message) => self.fail_step_with(index, &fail.code, message),
            Err(error) => self.evaluation_failed(index, &error, code::RESULT_TOO_LARGE),
        }
    }

    /// Ends a step that is not a task well.
    pub(super) fn succeed(&mut self, index: StepIndex, output: Payload, signal_number: Option<u64>) {
        let unit = self.name(index);
        self.emit(EventKind::StepSucceeded { unit, output, delivery: 0, signal_number, report: None });
    }

    /// All steps have ended: makes the output and ends well, or winds down because it cannot be made.
    fn finish(&mut self) {
        debug_assert_eq!(self.state.phase(), Phase::Running, "only a running execution ends well");
        match self.output() {
            Ok(output) => {
                self.emit(EventKind::ExecutionSucceeded { output });
            }
            Err(failure) => {
                self.start_wind_down(Cause::Failure(failure), None);
            }
        }
    }

    fn output(&self) -> Result<Payload, Failure> {
        let definition = self.state.definition();
        let of_no_unit = |code, message: String| Failure::new(code, message, &Arc::from(""));
        let output = match &definition.result {
            Some(template) => template
                .evaluate(&self.state.scope(None))
                .map_err(|error| of_no_unit(code_of(&error, code::RESULT_TOO_LARGE), format!("result: {error}")))?,
            None => Payload::null(),
        };
        if let Some(Err(violations)) = definition.output.as_ref().map(|schema| schema.validate(&output)) {
            let message = format!("output does not fit the definition's schema: {violations}");
            return Err(of_no_unit(code::OUTPUT_INVALID, message));
        }
        Ok(output)
    }
}

/// The code of an evaluation that failed; `too_large` is that of a value beyond a payload's limit.
fn code_of(error: &EvaluationError, too_large: &'static str) -> &'static str {
    if error.problem == Problem::TooLarge { too_large } else { code::EXPRESSION_FAILED }
}
