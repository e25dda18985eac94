//! The compiled definition: what the rules read.

use super::{
    duration,
    expression::{EvaluationError, Expression, Problem, Scope, Template},
    fault::{Place, shorten},
    range::VersionRange,
    schema::Schema,
};
use crate::domain::{Timestamp, json, retry::RetryPolicy};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

/// Most steps under `steps`.
pub const STEPS_MAX: usize = 10_000;

/// Queue of a task that names none.
pub const QUEUE_DEFAULT: &str = "default";

/// Contract of `http` steps. The server's own workers announce it; the `:` keeps it apart from all others.
pub const HTTP_CONTRACT: &str = "orbit:http@1";

/// Queue of `http` steps.
pub const HTTP_QUEUE: &str = "orbit:http";

/// Longest time of one request of an `http` step that says no `timeout`.
pub const HTTP_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// Name of the `for_each` variable where a step names none.
pub const VARIABLE_DEFAULT: &str = "item";

/// Most items of a `for_each`.
pub const ITEMS_MAX: usize = 100_000;

/// Priority of a task that names none; 1 is first, 5 last.
pub const PRIORITY_DEFAULT: u8 = 3;

/// One immutable version of a workflow, checked and compiled. Shared as `Arc<Definition>`.
#[derive(Debug, PartialEq)]
pub struct Definition {
    /// Name of the workflow.
    pub name: Arc<str>,
    /// Version; with the name it names this content for ever.
    pub version: semver::Version,
    /// What the workflow is for; not a part of the hash.
    pub description: Arc<str>,
    /// What the input must look like; `None` takes any.
    pub input: Option<Arc<Schema>>,
    /// What the output must look like; `None` takes any.
    pub output: Option<Arc<Schema>>,
    /// Longest life of an execution; `None` has no limit.
    pub timeout: Option<Duration>,
    /// Labels that every execution gets; not a part of the hash.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// Contracts by `name@version`.
    pub tasks: BTreeMap<Arc<str>, TaskContract>,
    /// Signals by name, with what their payload must look like.
    pub signals: BTreeMap<Arc<str>, Arc<Schema>>,
    /// Queries by name: templates over the committed state.
    pub queries: BTreeMap<Arc<str>, Template>,
    /// Every step that units can be made of, by role: first those under `steps` in the order of the text (at least one),
    /// then one for each `compensate`, then those of the handlers.
    pub steps: Vec<Step>,
    /// What runs while the execution winds down, and for signals while it runs.
    pub handlers: Handlers,
    /// Template of the output; `None` gives null.
    pub result: Option<Template>,
    /// SHA-256 of the meaning.
    pub hash: [u8; 32],
    /// The steps in the order of their ids, for [`Definition::find`].
    pub(super) by_id: Vec<StepIndex>,
}

impl Definition {
    /// The step at an index.
    ///
    /// # Panics
    ///
    /// If the index is another definition's.
    #[must_use]
    pub fn step(&self, index: StepIndex) -> &Step {
        &self.steps[index.position()]
    }

    /// The step of an id. Every event of a unit asks for this, so it is a binary search.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<StepIndex> {
        let found = self.by_id.binary_search_by(|index| self.step(*index).id.as_ref().cmp(id)).ok()?;
        Some(self.by_id[found])
    }

    /// The handlers' steps for why an execution winds down.
    #[must_use]
    pub fn handlers_of(&self, winding: Winding) -> &[StepIndex] {
        match winding {
            Winding::Failure => &self.handlers.failure,
            Winding::Cancel => &self.handlers.cancel,
            Winding::Timeout => &self.handlers.timeout,
        }
    }

    /// The steps under `steps`, whose indices are their positions.
    #[must_use]
    pub fn main(&self) -> &[Step] {
        &self.steps[..self.steps.partition_point(|step| step.role == Role::Main)]
    }

    /// All children that units can start, each with the index of its step.
    pub fn children(&self) -> impl Iterator<Item = (StepIndex, &ChildStep)> {
        self.indexed().filter_map(|(index, step)| step.action.as_child().map(|child| (index, child)))
    }

    /// The definition with its children pinned: `pin` says what each stands for, `None` leaves it as it is. The hash,
    /// of which pins are no part, stays.
    #[must_use]
    pub fn with_pins(mut self, mut pin: impl FnMut(&ChildStep) -> Option<Pin>) -> Self {
        for step in &mut self.steps {
            if let Action::Child(child) = &mut step.action
                && let Some(pin) = pin(child)
            {
                child.pin = Some(pin);
            }
        }
        self
    }

    /// The contracts for which it needs workers, each once: not that of `http` steps, which the server does itself.
    #[must_use]
    pub fn contracts(&self) -> BTreeSet<Arc<str>> {
        let tasks = self.steps.iter().filter_map(|step| step.action.as_task());
        tasks.filter(|task| *task.contract != *HTTP_CONTRACT).map(|task| task.contract.clone()).collect()
    }

    /// All steps with their indices, in the order of [`Definition::steps`].
    pub fn indexed(&self) -> impl Iterator<Item = (StepIndex, &Step)> {
        self.steps.iter().enumerate().map(|(position, step)| (StepIndex::new(position), step))
    }

    /// The hash in lower-case hexadecimal.
    #[must_use]
    pub fn hash_hex(&self) -> String {
        crate::domain::hex(&self.hash)
    }
}

/// Position of a step in [`Definition::steps`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepIndex(pub u32);

impl StepIndex {
    /// The steps in the order of their ids.
    pub(super) fn sorted_by_id(steps: &[Step]) -> Vec<Self> {
        let mut sorted: Vec<Self> = (0..steps.len()).map(Self::new).collect();
        sorted.sort_by(|left, right| steps[left.position()].id.cmp(&steps[right.position()].id));
        sorted
    }

    /// The index of a position.
    pub(super) fn new(position: usize) -> Self {
        Self(
            u32::try_from(position)
                .expect("a definition has at most 10,000 steps, as many compensations, and 400 handlers"),
        )
    }

    /// The position.
    #[must_use]
    pub fn position(self) -> usize {
        usize::try_from(self.0).expect("32 bits fit a pointer")
    }
}

impl fmt::Debug for StepIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// What a task takes and gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskContract {
    /// What the input must look like; `None` takes any.
    pub input: Option<Arc<Schema>>,
    /// What the output must look like; `None` takes any.
    pub output: Option<Arc<Schema>>,
}

/// Steps by what they are run for, as indices of [`Definition::steps`], each list in the order of the text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Handlers {
    /// When the execution winds down for a failure.
    pub failure: Vec<StepIndex>,
    /// When it was cancelled.
    pub cancel: Vec<StepIndex>,
    /// When its timeout passed.
    pub timeout: Vec<StepIndex>,
    /// For each signal that one of them takes, while the execution runs.
    pub on_event: Vec<StepIndex>,
}

/// What a step is run for.
#[derive(Clone, Debug, PartialEq)]
pub enum Role {
    /// It stands under `steps`.
    Main,
    /// It undoes this step.
    Compensation {
        /// The step that it undoes.
        of: StepIndex,
        /// What becomes of a unit of unknown outcome.
        unknown: Unknown,
    },
    /// It runs when the execution winds down for this.
    Handler(Winding),
    /// It runs once for each such signal, one after another in the order in which they came. Its units are numbered from 0.
    OnEvent {
        /// Name of the signal; the definition declares it.
        signal: Arc<str>,
        /// Only a signal for which this is true is taken; `None` takes any. It sees the payload as `event`.
        predicate: Option<Expression>,
    },
}

/// When the units of a step may live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lifetime {
    /// While the execution runs.
    Forward,
    /// While it winds down: they undo.
    Undo,
    /// While it winds down, after everything is undone.
    Handler,
}

impl Role {
    /// When units of this role may live.
    #[must_use]
    pub const fn lifetime(&self) -> Lifetime {
        match self {
            Self::Main | Self::OnEvent { .. } => Lifetime::Forward,
            Self::Compensation { .. } => Lifetime::Undo,
            Self::Handler(_) => Lifetime::Handler,
        }
    }
}

/// Why an execution winds down, without what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Winding {
    /// A failure.
    Failure,
    /// A cancel.
    Cancel,
    /// The execution's timeout.
    Timeout,
}

/// What becomes of a unit of unknown outcome: it did not succeed, and some delivery ended without its worker's report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unknown {
    /// It is undone; its output is null in the template.
    #[default]
    Compensate,
    /// It is left as it is.
    Skip,
}

/// Runs a step once for each item of a list.
#[derive(Debug, PartialEq)]
pub struct ForEach {
    /// Template of the list. Null skips the step.
    pub items: Template,
    /// Name of the variable with `value` and `index`.
    pub variable: Arc<str>,
    /// Most items that run at once; `None` has no limit.
    pub parallel_max: Option<u32>,
}

/// One node of the graph.
#[derive(Debug, PartialEq)]
pub struct Step {
    /// Name of its unit, unique among the definition's steps: the id for a step under `steps`, `compensate:` and the id of
    /// what it undoes, or `failure:`, `cancel:`, `timeout:`, `on_event:` and the id.
    pub id: Arc<str>,
    /// What it is run for.
    pub role: Role,
    /// Steps that must end before this one: those named under `needs` and those that its expressions mention. Sorted,
    /// each once.
    pub needs: Vec<StepIndex>,
    /// Steps that need this one. Sorted, each once.
    pub dependents: Vec<StepIndex>,
    /// Condition; if it is false the step is skipped.
    pub when: Option<Expression>,
    /// Runs it once for each item of a list.
    pub for_each: Option<ForEach>,
    /// What the step does.
    pub action: Action,
    /// What a failure of the step does to the execution. Of a handler's step: to those that need it.
    pub on_error: OnError,
    /// The step that undoes it.
    pub compensation: Option<StepIndex>,
    /// Whether nothing is undone any more once it may have happened.
    pub irreversible: bool,
}

impl Step {
    /// The id that a person gave it: its unit's name without the role.
    #[must_use]
    pub fn short_id(&self) -> &str {
        match self.role {
            Role::Main => &self.id,
            Role::Compensation { .. } | Role::Handler(_) | Role::OnEvent { .. } => {
                self.id.split_once(':').map_or(&*self.id, |(_, id)| id)
            }
        }
    }
}

/// What a step does.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Work for a worker.
    Task(TaskStep),
    /// A value that the server computes.
    Compute(Template),
    /// Waits for a time.
    Sleep(Sleep),
    /// Waits for a signal.
    Await(Await),
    /// Fails on purpose.
    Fail(Fail),
    /// Starts another workflow and waits for its end.
    Child(ChildStep),
    /// Gives a signal to another execution.
    Signal(SignalStep),
    /// Ends this run and begins the next one.
    ContinueAsNew(ContinueAsNew),
}

impl Action {
    /// The task, if it is one; an `http` step is.
    #[must_use]
    pub fn as_task(&self) -> Option<&TaskStep> {
        match self {
            Self::Task(task) => Some(task),
            Self::Compute(_)
            | Self::Sleep(_)
            | Self::Await(_)
            | Self::Fail(_)
            | Self::Child(_)
            | Self::Signal(_)
            | Self::ContinueAsNew(_) => None,
        }
    }

    /// The child, if it starts one.
    #[must_use]
    pub fn as_child(&self) -> Option<&ChildStep> {
        match self {
            Self::Child(child) => Some(child),
            Self::Task(_)
            | Self::Compute(_)
            | Self::Sleep(_)
            | Self::Await(_)
            | Self::Fail(_)
            | Self::Signal(_)
            | Self::ContinueAsNew(_) => None,
        }
    }
}

/// Starts another workflow and waits for its end; the child's output is the step's.
#[derive(Debug, PartialEq)]
pub struct ChildStep {
    /// Name of the workflow.
    pub workflow: Arc<str>,
    /// Which versions will do.
    pub range: VersionRange,
    /// The version that the range stood for when the definition was deployed; `None` before the deploy. Not a part of
    /// the hash.
    pub pin: Option<Pin>,
    /// Where `name@range` stands in the text.
    pub place: Place,
    /// Template of the input; `None` gives null.
    pub input: Option<Template>,
    /// What happens after a failed attempt: each is a child of its own.
    pub retry: RetryPolicy,
    /// Longest time of one attempt.
    pub timeout: Option<Duration>,
    /// Longest time of all attempts together.
    pub total_timeout: Option<Duration>,
}

/// A version of a child's definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Version.
    pub version: semver::Version,
    /// Hash.
    pub hash: [u8; 32],
}

impl Pin {
    /// The hash in lower-case hexadecimal.
    #[must_use]
    pub fn hash_hex(&self) -> String {
        crate::domain::hex(&self.hash)
    }
}

/// Gives a signal to another execution. It succeeds, with output null, once the signal is durable there.
#[derive(Debug, PartialEq)]
pub struct SignalStep {
    /// To whom.
    pub to: SignalTarget,
    /// Name of the signal.
    pub name: Arc<str>,
    /// Template of the payload; `None` gives null.
    pub payload: Option<Template>,
}

/// To whom a signal step sends.
#[derive(Debug, PartialEq)]
pub enum SignalTarget {
    /// The current execution of an id, which the template gives.
    Execution(Template),
    /// The parent.
    Parent,
    /// The child that a step of this definition has started. A step with `for_each` has none that is meant.
    Child(StepIndex),
}

/// Ends this run and begins the next one with a new input.
#[derive(Debug, PartialEq)]
pub struct ContinueAsNew {
    /// Template of the next run's input; `None` keeps the input.
    pub input: Option<Template>,
}

/// Work for a worker.
#[derive(Debug, PartialEq)]
pub struct TaskStep {
    /// Contract `name@version`; [`HTTP_CONTRACT`] of an `http` step.
    pub contract: Arc<str>,
    /// Template of the input; `None` gives null. Of an `http` step: the request.
    pub input: Option<Template>,
    /// The contract's input schema.
    pub input_schema: Option<Arc<Schema>>,
    /// The contract's output schema.
    pub output_schema: Option<Arc<Schema>>,
    /// Only workers of this language; `None` takes any.
    pub language: Option<Arc<str>>,
    /// Queue that the task waits in.
    pub queue: Arc<str>,
    /// What happens after a failed attempt.
    pub retry: RetryPolicy,
    /// Longest time of one delivery.
    pub timeout: Option<Duration>,
    /// Longest wait for a worker.
    pub queue_timeout: Option<Duration>,
    /// Longest time of all attempts together.
    pub total_timeout: Option<Duration>,
    /// Longest time without progress or an explicit beat.
    pub heartbeat_timeout: Option<Duration>,
    /// 1 is handed out first, 5 last.
    pub priority: u8,
}

/// Waits for a time.
#[derive(Debug, PartialEq)]
pub enum Sleep {
    /// For a duration: its template gives a text such as `90s`, or a number of seconds.
    For(Template),
    /// Until a time: its template gives an RFC 3339 text. A time in the past ends the sleep at once.
    Until(Template),
}

impl Sleep {
    /// When a sleep that begins now ends; never before `now`.
    ///
    /// # Errors
    ///
    /// [`EvaluationError`], if the template cannot be evaluated or gives no duration of 0 to 36,500 days, or no time.
    pub fn wake_time(&self, scope: &Scope<'_>, now: Timestamp) -> Result<Timestamp, EvaluationError> {
        let (Self::For(template) | Self::Until(template)) = self;
        let payload = template.evaluate(scope)?;
        let value = payload.as_str().trim_ascii();
        let text = if value.starts_with('"') { json::Cursor::new(value).string().ok() } else { None };
        let not_time = |message: String| template.error(Problem::NotTime(message));
        match (self, text) {
            (Self::For(_), text) => {
                let span = match &text {
                    Some(text) => duration::parse(text),
                    None => value
                        .parse::<f64>()
                        .map_err(|_| duration::DurationError::Syntax)
                        .and_then(duration::from_seconds),
                };
                let shown = text.as_deref().unwrap_or(value);
                span.map(|span| now + span)
                    .map_err(|error| not_time(format!("`{}` {error}", shorten(shown, SHOWN_MAX))))
            }
            (Self::Until(_), Some(text)) => match duration::parse_time(&text) {
                Some(time) => Ok(time.max(now)),
                None => Err(not_time(format!(
                    "`{}` is not an RFC 3339 time such as `2026-01-31T09:00:00Z`",
                    shorten(&text, SHOWN_MAX)
                ))),
            },
            (Self::Until(_), None) => {
                Err(not_time("the template of `until` does not give a text with an RFC 3339 time".to_owned()))
            }
        }
    }
}

/// Characters of a bad time that a message shows.
const SHOWN_MAX: usize = 50;

/// Waits for a signal; the signal's payload is the step's output.
#[derive(Debug, PartialEq)]
pub struct Await {
    /// Name of the signal; the definition declares it.
    pub signal: Arc<str>,
    /// Only a signal for which this is true is taken; `None` takes any.
    pub predicate: Option<Expression>,
    /// How long to wait; `None` waits for ever.
    pub timeout: Option<Duration>,
}

/// Fails a step on purpose.
#[derive(Debug, PartialEq)]
pub struct Fail {
    /// Error code.
    pub code: Arc<str>,
    /// Template of the message; see [`Template::evaluate_text`].
    pub message: Template,
}

/// What a failed step does to its execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The execution winds down and ends FAILED.
    #[default]
    Fail,
    /// The step's output is null, its `error` is set, and its dependents run.
    Continue,
}
