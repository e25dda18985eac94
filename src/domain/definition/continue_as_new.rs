//! `continue_as_new`: the end of a run, at which nothing else may be under way.
//!
//! No step may run beside it, which is checked here; that no handler of an event still works on a signal is seen to when the run
//! is about to end (`state::work`).

use super::{
    action::optional_template,
    fault::{Place, code},
    fields::{Checker, Path, list},
    graph::Ancestors,
    model::{Action, ContinueAsNew, Step, StepIndex},
    node::Node,
    references::References,
};

/// Steps with `continue_as_new` that are looked at; a definition that is right has one.
const CHECKED_MAX: usize = 10;

/// Steps that a message names.
const NAMES_MAX: usize = 5;

/// Reads the end of a run.
pub(super) fn read(
    checker: &mut Checker<'_>,
    node: &Node,
    path: &Path<'_>,
    references: &mut References<'_>,
) -> Option<ContinueAsNew> {
    let fields = checker.fields(node, path, &["input"])?;
    let input = optional_template(checker, &fields, path, "input", references);
    Some(ContinueAsNew { input: input.ok()? })
}

/// Checks that every other step has ended when the run does, among the steps under `steps`.
pub(super) fn check(checker: &mut Checker<'_>, steps: &[Step], places: &[Place], ancestors: &Ancestors) {
    let ends = steps.iter().enumerate().filter(|(_, step)| matches!(step.action, Action::ContinueAsNew(_)));
    for (position, _) in ends.take(CHECKED_MAX) {
        let index = StepIndex::new(position);
        if ancestors.count(index) + 1 == steps.len() {
            continue;
        }
        let others = (0..steps.len()).filter(|other| *other != position).map(StepIndex::new);
        let (after, beside): (Vec<StepIndex>, Vec<StepIndex>) = others
            .filter(|other| !ancestors.contains(index, *other))
            .partition(|other| ancestors.contains(*other, index));
        for (these, what, hint) in [
            (after, "run after it, when the run has ended", "a step that ends the run is needed by none"),
            (beside, "can run beside it", "add them to its `needs`"),
        ] {
            if !these.is_empty() {
                let message = format!("{} {what}", names(steps, &these));
                checker.judge_at(code::CONTINUE_AS_NEW_NOT_LAST, &places[position], message, hint);
            }
        }
    }
}

/// The steps' ids in prose.
fn names(steps: &[Step], which: &[StepIndex]) -> String {
    let shown: Vec<&str> = which.iter().take(NAMES_MAX).map(|index| steps[index.position()].short_id()).collect();
    match which.len() - shown.len() {
        0 => list(&shown),
        more => format!("{} and {more} more", list(&shown)),
    }
}
