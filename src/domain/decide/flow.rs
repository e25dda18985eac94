//! Lets steps begin, and ends the execution when all of them have.
//!
//! An explicit list of work, kept by the state, takes the place of recursion: a chain of ten thousand computed steps
//! is ten thousand rounds of [`Decision::settle`].

use super::Decision;
use crate::domain::definition::{
    Action, Await, EvaluationError, Fail, Lifetime, OnError, Problem, Scope, Sleep, Step, StepIndex, TaskStep, Template,
};
use crate::domain::state::{Phase, UnitKey, Work};
use crate::domain::{Cause, EventKind, Failure, Payload, SkipReason, Unit, code};
use std::sync::Arc;

impl Decision<'_> {
    /// Does what is due at once, until nothing is or this decision is full.
    pub(super) fn settle(&mut self) {
        while self.has_room() {
            match self.state.next_work() {
                Some(Work::Begin(step)) => self.begin_step(step),
                Some(Work::BeginItem(step)) => self.begin_item(step),
                Some(Work::Join(step)) => self.join(step),
                Some(Work::Undo(key)) => self.undo(key),
                Some(Work::TakeEvent(handler)) => self.take_event(handler),
                Some(Work::BeginEvent(key)) => self.begin_event(key),
                // The next run begins by itself, as the first event of another decision.
                Some(Work::BeginRun) => return,
                Some(Work::Finish) => self.finish(),
                Some(Work::Close) => self.close(),
                None => return,
            }
        }
    }

    /// Ends a unit for good with a failure, and with it the execution unless the step may fail. What undoes or handles
    /// ends nothing but itself.
    pub(super) fn fail_unit(&mut self, key: UnitKey, failure: Failure) {
        let step = self.state.step(key.step);
        let is_of_run = step.role.lifetime() == Lifetime::Forward;
        let ends_all = is_of_run && step.on_error == OnError::Fail && self.state.phase() == Phase::Running;
        let cause = ends_all.then(|| Cause::Failure(failure.clone()));
        let unit = self.name(key);
        self.emit(EventKind::StepFailed { unit, failure });
        if let Some(cause) = cause {
            self.start_wind_down(cause, None);
        }
    }

    /// Ends a unit for good with one of the server's codes.
    pub(super) fn fail_unit_with(&mut self, key: UnitKey, code: &str, message: impl Into<Arc<str>>) {
        let failure = Failure::new(code, message, &self.name(key));
        self.fail_unit(key, failure);
    }

    pub(super) fn evaluation_failed(&mut self, key: UnitKey, error: &EvaluationError, too_large: &'static str) {
        self.fail_unit_with(key, code_of(error, too_large), error.to_string());
    }

    pub(super) fn name(&self, key: UnitKey) -> Unit {
        self.state.name(key)
    }

    /// Evaluates a template as a unit sees it.
    pub(super) fn evaluate(&self, key: UnitKey, template: &Template) -> Result<Payload, EvaluationError> {
        self.with_scope(key, None, |scope| template.evaluate(scope))
    }

    /// Begins a step whose turn has come.
    fn begin_step(&mut self, index: StepIndex) {
        let definition = self.state.definition().clone();
        let (step, key) = (definition.step(index), UnitKey::of(index));
        match self.is_wanted(step, key) {
            Ok(true) => {}
            Ok(false) => return self.skip(key, SkipReason::WhenFalse),
            Err(error) => return self.evaluation_failed(key, &error, code::RESULT_TOO_LARGE),
        }
        match &step.for_each {
            Some(for_each) => self.begin_fan_out(key, for_each),
            None => self.act(key, &step.action),
        }
    }

    /// Whether the step's `when` holds.
    pub(super) fn is_wanted(&self, step: &Step, key: UnitKey) -> Result<bool, EvaluationError> {
        match &step.when {
            Some(when) => self.with_scope(key, None, |scope| when.evaluate_bool(scope)),
            None => Ok(true),
        }
    }

    pub(super) fn skip(&mut self, key: UnitKey, reason: SkipReason) {
        let unit = self.name(key);
        self.emit(EventKind::StepSkipped { unit, reason });
    }

    /// Begins what a unit is there for.
    pub(super) fn act(&mut self, key: UnitKey, action: &Action) {
        match action {
            Action::Task(task) => self.begin_task(key, task),
            Action::Compute(template) => self.begin_compute(key, template),
            Action::Sleep(sleep) => self.begin_sleep(key, sleep),
            Action::Await(wait) => self.begin_await(key, wait),
            Action::Fail(fail) => self.begin_fail(key, fail),
            Action::ContinueAsNew(next) => self.begin_continue_as_new(key, next),
            Action::Child(child) => self.begin_child(key, child),
            Action::Signal(signal) => self.begin_signal(key, signal),
        }
    }

    fn begin_task(&mut self, key: UnitKey, task: &TaskStep) {
        let input = match &task.input {
            Some(template) => self.evaluate(key, template),
            None => Ok(Payload::null()),
        };
        let input = match input {
            Ok(input) => input,
            Err(error) => return self.evaluation_failed(key, &error, code::INPUT_TOO_LARGE),
        };
        if let Some(Err(violations)) = task.input_schema.as_ref().map(|schema| schema.validate(&input)) {
            let message = format!("input does not fit the contract {}: {violations}", task.contract);
            return self.fail_unit_with(key, code::INPUT_INVALID, message);
        }
        let unit = self.name(key);
        self.emit(EventKind::StepScheduled { unit, attempt: 1, input: Some(input) });
    }

    fn begin_compute(&mut self, key: UnitKey, template: &Template) {
        match self.evaluate(key, template) {
            Ok(output) => self.succeed(key, output, None),
            Err(error) => self.evaluation_failed(key, &error, code::RESULT_TOO_LARGE),
        }
    }

    fn begin_sleep(&mut self, key: UnitKey, sleep: &Sleep) {
        let wake_time = self.with_scope(key, None, |scope| sleep.wake_time(scope, self.now));
        let wake_time = match wake_time {
            Ok(wake_time) => wake_time,
            Err(error) => return self.evaluation_failed(key, &error, code::RESULT_TOO_LARGE),
        };
        let unit = self.name(key);
        self.emit(EventKind::SleepStarted { unit, wake_time });
        if wake_time <= self.now {
            self.succeed(key, Payload::null(), None);
        }
    }

    /// Begins to wait, or takes a signal that has come already.
    ///
    /// Expired signals are dropped first; should they fill the decision, the step begins in the next one.
    fn begin_await(&mut self, key: UnitKey, wait: &Await) {
        if !self.drop_expired_signals_of(&wait.signal) {
            return;
        }
        let expire_time = wait.timeout.map(|timeout| self.now + timeout);
        let unit = self.name(key);
        self.emit(EventKind::AwaitStarted { unit, expire_time });
        self.take_buffered_signal(key, wait);
    }

    fn begin_fail(&mut self, key: UnitKey, fail: &Fail) {
        match self.with_scope(key, None, |scope| fail.message.evaluate_text(scope)) {
            Ok(message) => self.fail_unit_with(key, &fail.code, message),
            Err(error) => self.evaluation_failed(key, &error, code::RESULT_TOO_LARGE),
        }
    }

    /// Ends a unit that is no task well.
    pub(super) fn succeed(&mut self, key: UnitKey, output: Payload, signal_number: Option<u64>) {
        let unit = self.name(key);
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
                .evaluate(&Scope { meter: Some(&self.work), ..self.state.scope() })
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
