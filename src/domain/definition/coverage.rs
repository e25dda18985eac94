//! Gaps in what a definition undoes: warnings, since only its author knows what leaves something behind.
//!
//! A definition with no `compensate` at all has chosen to undo nothing, and is left in peace.
//!
//! - **Gap**: a `task`, `workflow` or `http` step (but for requests that change nothing) with neither `compensate` nor a
//!   word on `irreversible`, while a step that can fail the execution may run after or beside it. What it did would stay
//!   while the work of others is undone. `irreversible: false` answers that there is nothing to undo.
//! - **Unreachable**: a `compensate` on a step that only runs once nothing can be undone any more.

use super::{
    fault::{Place, code},
    fields::Checker,
    graph::{Ancestors, Set},
    http::SAFE_METHODS,
    model::{Action, HTTP_CONTRACT, OnError, Step, StepIndex, TaskStep},
};

/// Checks the steps under `steps`; `answered` says of which the text says whether they are `irreversible`.
pub(super) fn check(
    checker: &mut Checker<'_>,
    steps: &[Step],
    places: &[Place],
    answered: &[bool],
    ancestors: &Ancestors,
) {
    if steps.iter().any(|step| step.compensation.is_some()) {
        warn_of_gaps(checker, steps, places, answered, ancestors);
        warn_of_unreachable(checker, steps, places, ancestors);
    }
}

fn warn_of_gaps(checker: &mut Checker<'_>, steps: &[Step], places: &[Place], answered: &[bool], ancestors: &Ancestors) {
    let failing = Set::of(steps, fails_the_execution);
    for (position, step) in steps.iter().enumerate() {
        let index = StepIndex::new(position);
        if step.compensation.is_some() || answered[position] || !leaves_something(&step.action) {
            continue;
        }
        if let Some(other) = ancestors.first_but(index, &failing) {
            let message = format!(
                "what `{}` did stays if `{}` fails, while the work of other steps is undone",
                step.id,
                steps[other.position()].id
            );
            let hint = "add `compensate`; `irreversible: true` if nothing may be undone from here on; `irreversible: \
                        false` if it leaves nothing to undo";
            checker.warn_at(code::COMPENSATION_GAP, &places[position], message, hint);
        }
    }
}

fn warn_of_unreachable(checker: &mut Checker<'_>, steps: &[Step], places: &[Place], ancestors: &Ancestors) {
    // A step that may be skipped, or fail and be passed over, may leave everything reversible.
    let always = |step: &Step| {
        step.irreversible && step.when.is_none() && step.for_each.is_none() && step.on_error == OnError::Fail
    };
    let points = Set::of(steps, always);
    for (position, step) in steps.iter().enumerate().filter(|(_, step)| step.compensation.is_some()) {
        let index = StepIndex::new(position);
        let before = ancestors.first_of(index, &points);
        let message = match before {
            _ if step.irreversible => format!("`{}` is irreversible, so it is never undone", step.id),
            Some(point) => {
                let point = &steps[point.position()].id;
                format!("`{}` runs after `{point}`, which is irreversible, so it is never undone", step.id)
            }
            None => continue,
        };
        let place = places[position].field("compensate");
        checker.warn_at(code::COMPENSATION_UNREACHABLE, &place, message, "remove `compensate`, or `irreversible`");
    }
}

/// Whether a success of this action may leave something behind that outlives the execution.
fn leaves_something(action: &Action) -> bool {
    match action {
        Action::Task(task) => !is_safe_request(task),
        Action::Child(_) => true,
        Action::Compute(_)
        | Action::Sleep(_)
        | Action::Await(_)
        | Action::Fail(_)
        | Action::Signal(_)
        | Action::ContinueAsNew(_) => false,
    }
}

fn is_safe_request(task: &TaskStep) -> bool {
    let method = task.input.as_ref().and_then(|input| input.member("method"));
    *task.contract == *HTTP_CONTRACT && method.is_some_and(|method| SAFE_METHODS.contains(&method))
}

/// Whether the step can wind the execution down, by more than an expression that cannot be evaluated.
fn fails_the_execution(step: &Step) -> bool {
    let can_fail = match &step.action {
        Action::Task(_) | Action::Child(_) | Action::Signal(_) | Action::Fail(_) => true,
        Action::Await(wait) => wait.timeout.is_some(),
        Action::Compute(_) | Action::Sleep(_) | Action::ContinueAsNew(_) => false,
    };
    can_fail && step.on_error == OnError::Fail
}
