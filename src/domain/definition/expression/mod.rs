//! Expressions (CEL) and templates: how values of one step become the input of another.
//!
//! - Pure and bounded: source, nesting, work and results have limits, so no definition can hold the server up.
//! - Exact: integers stay 64-bit integers, and what is only passed on keeps every byte of its JSON text.
//! - A missing path is an error that names it; `null`, `{}`, `[]`, `0`, `""` and `false` are values.
//!
//! # Design
//!
//! `cel-core` parses and type-checks, and its functions and operators are used as they are. Walking the tree is done
//! here, because that is where cost arises: the library's evaluator has no budget, appends to a list by copying it,
//! and needs every variable as a value. Here a path such as `input.items` is sliced out of the payload's text, once
//! per evaluation, and only that slice is parsed.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the enums matched here are the library's, and a new kind of theirs is refused like any other"
)]

mod check;
mod compile;
mod evaluate;
mod function;
mod name;
mod nesting;
mod path;
mod template;
#[cfg(test)]
mod tests;
mod value;

pub(super) use compile::{CompileError, CompileErrorKind, compile};
pub(super) use name::is_variable;
pub use template::Template;
pub(super) use template::{TemplateFault, canonical_text, whole};

use super::StepIndex;
use crate::domain::{Failure, PAYLOAD_BYTES_MAX, Payload, Timestamp};
use std::{borrow::Cow, cell::Cell, fmt, sync::Arc};

/// Most bytes of one expression's source: 4 KiB.
pub const EXPRESSION_BYTES_MAX: usize = 4 * 1024;

/// Most units of work in one evaluation: a unit is a node evaluated, an element visited or 32 bytes copied.
pub const WORK_MAX: usize = 1_000_000;

/// Counts the work of many evaluations, in the units of [`WORK_MAX`], and what is read to find paths.
///
/// It refuses nothing: whoever asks for many evaluations looks at it and leaves the others for later.
#[derive(Debug, Default)]
pub struct Meter(Cell<usize>);

impl Meter {
    /// The work so far.
    #[must_use]
    pub fn units(&self) -> usize {
        self.0.get()
    }

    fn add(&self, units: usize) {
        self.0.set(self.0.get().saturating_add(units));
    }
}

/// What expressions can see.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// The execution's input.
    pub input: &'a Payload,
    /// The steps.
    pub steps: &'a dyn StepLookup,
    /// The signal, in the `match` of an `await`.
    pub signal: Option<&'a Payload>,
    /// The signal, in an `on_event` handler.
    pub event: Option<&'a Payload>,
    /// Why the execution winds down, in handlers.
    pub failure: Option<&'a Failure>,
    /// The item, in a step with `for_each`.
    pub item: Option<ItemScope<'a>>,
    /// The execution itself.
    pub execution: ExecutionScope<'a>,
    /// The schedule, in its input, which sees nothing else.
    pub schedule: Option<ScheduleScope<'a>>,
    /// Counts the work, for whoever evaluates a lot.
    pub meter: Option<&'a Meter>,
}

impl Scope<'_> {
    /// Tells the meter of work.
    fn count(&self, units: usize) {
        if let Some(meter) = self.meter {
            meter.add(units);
        }
    }
}

/// The `for_each` variable in expressions, whatever its name.
#[derive(Clone, Copy, Debug)]
pub struct ItemScope<'a> {
    /// JSON text of the item: `item.value`.
    pub value: &'a str,
    /// Its position in the list, from 0: `item.index`.
    pub index: u32,
}

/// `execution` in expressions.
#[derive(Clone, Copy, Debug)]
pub struct ExecutionScope<'a> {
    /// Id of the execution.
    pub id: &'a str,
    /// Number of the run, from 1.
    pub run: u32,
    /// When the execution started.
    pub start_time: Timestamp,
}

/// `schedule` in expressions.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleScope<'a> {
    /// Id of the schedule.
    pub id: &'a str,
    /// When the run was planned.
    pub nominal_time: Timestamp,
    /// When it starts.
    pub start_time: Timestamp,
}

/// Finds what has become of a step.
pub trait StepLookup {
    /// The step's view; the index is one of the definition's.
    fn step(&self, index: StepIndex) -> StepView<'_>;
}

/// `steps.ID` in expressions.
#[derive(Clone, Copy, Debug)]
pub struct StepView<'a> {
    /// The output; `None` is seen as null.
    pub output: Option<&'a Payload>,
    /// The failure, of a step with `on_error: continue`; `None` is seen as null.
    pub error: Option<&'a Failure>,
    /// The state, as the API writes it.
    pub state: &'static str,
}

/// An expression that could not be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{expression}`: {problem}")]
pub struct EvaluationError {
    /// Source of the expression.
    pub expression: Arc<str>,
    /// What went wrong.
    pub problem: Problem,
}

/// What went wrong in an evaluation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A path leads nowhere.
    #[error("`{path}` has no value: {reason}")]
    Missing {
        /// The path, up to the part that is not there.
        path: String,
        /// Why it is not there.
        reason: String,
    },
    /// An operator or function refused its arguments.
    #[error("{0}")]
    Failed(String),
    /// A condition gave something other than a boolean.
    #[error("the condition gives {0}, not a boolean")]
    NotBoolean(String),
    /// The value has no JSON form.
    #[error("the result is {0}, which JSON cannot write")]
    NotJson(String),
    /// The template of a sleep gave no usable time.
    #[error("{0}")]
    NotTime(String),
    /// The evaluation needed more work than is allowed.
    #[error("the evaluation takes more than {WORK_MAX} steps")]
    TooMuchWork,
    /// The result is larger than a payload may be.
    #[error("the result is larger than {PAYLOAD_BYTES_MAX} bytes")]
    TooLarge,
}

/// The work that one evaluation may still do.
#[derive(Debug)]
struct Budget {
    left: usize,
}

impl Budget {
    fn new() -> Self {
        Self { left: WORK_MAX }
    }

    fn spent(&self) -> usize {
        WORK_MAX - self.left
    }

    fn spend(&mut self, units: usize) -> Result<(), Problem> {
        match self.left.checked_sub(units) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(Problem::TooMuchWork)
            }
        }
    }

    fn spend_bytes(&mut self, bytes: usize) -> Result<(), Problem> {
        self.spend(bytes / 32 + 1)
    }
}

/// A compiled expression.
#[derive(Clone)]
pub struct Expression {
    source: Arc<str>,
    program: Arc<compile::Program>,
}

impl Expression {
    /// The source, without `${ }` and the white space around it.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Evaluates a condition.
    ///
    /// # Errors
    ///
    /// [`EvaluationError`], also if the value is no boolean.
    pub fn evaluate_bool(&self, scope: &Scope<'_>) -> Result<bool, EvaluationError> {
        let mut budget = Budget::new();
        let value = self.value(scope, &mut budget);
        scope.count(budget.spent());
        match value.map_err(|problem| self.error(problem))? {
            cel_core::Value::Bool(flag) => Ok(flag),
            other => Err(self.error(Problem::NotBoolean(value::kind(&other)))),
        }
    }

    /// Evaluates to JSON. A plain path is sliced out of its payload, byte for byte.
    ///
    /// # Errors
    ///
    /// [`EvaluationError`].
    pub fn evaluate(&self, scope: &Scope<'_>) -> Result<Payload, EvaluationError> {
        if let Some(path) = self.program.as_path() {
            // A whole payload is passed on as it is: no copy, whatever its size.
            let whole = match path.root {
                _ if !path.segments.is_empty() => None,
                path::Root::Input => Some(scope.input),
                path::Root::Output(step) => scope.steps.step(step).output,
                path::Root::Signal => scope.signal,
                path::Root::Event => scope.event,
                path::Root::Error(_)
                | path::Root::Failure
                | path::Root::ItemValue
                | path::Root::ItemIndex
                | path::Root::State(_)
                | path::Root::ExecutionId
                | path::Root::ExecutionRun
                | path::Root::ExecutionStartTime
                | path::Root::ScheduleId
                | path::Root::ScheduleNominalTime
                | path::Root::ScheduleStartTime => None,
            };
            if let Some(payload) = whole {
                return Ok(payload.clone());
            }
        }
        let mut out = String::new();
        let mut budget = Budget::new();
        let written = self.append(scope, &mut budget, &mut out, Form::Json);
        scope.count(budget.spent());
        written.map_err(|problem| self.error(problem))?;
        Ok(Payload::from_json(out))
    }

    fn value(&self, scope: &Scope<'_>, budget: &mut Budget) -> Result<cel_core::Value, Problem> {
        evaluate::evaluate(&self.program, scope, budget)
    }

    /// Appends the value to `out` in the given form.
    fn append(&self, scope: &Scope<'_>, budget: &mut Budget, out: &mut String, form: Form) -> Result<(), Problem> {
        if let Some(path) = self.program.as_path() {
            let raw = path.find(scope)?;
            return append_raw(out, &raw, form);
        }
        let value = self.value(scope, budget)?;
        match form {
            Form::Json => value::write(out, &value)?,
            Form::Text => value::write_text(out, &value)?,
        }
        if out.len() > PAYLOAD_BYTES_MAX { Err(Problem::TooLarge) } else { Ok(()) }
    }

    fn error(&self, problem: Problem) -> EvaluationError {
        EvaluationError { expression: self.source.clone(), problem }
    }
}

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// As JSON.
    Json,
    /// As a part of a text: texts without quotes, everything else as JSON.
    Text,
}

fn append_raw(out: &mut String, raw: &str, form: Form) -> Result<(), Problem> {
    if out.len() + raw.len() > PAYLOAD_BYTES_MAX + 2 {
        return Err(Problem::TooLarge);
    }
    let raw = raw.trim_ascii();
    if form == Form::Text && raw.starts_with('"') {
        let text = crate::domain::json::Cursor::new(raw).string();
        let text: Cow<'_, str> = text.map_err(|error| Problem::Failed(format!("the payload is not JSON: {error}")))?;
        out.push_str(&text);
    } else {
        out.push_str(raw);
    }
    Ok(())
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expression({})", self.source)
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}
