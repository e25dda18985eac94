//! `compensate`: what undoes a step.

use super::{
    action::{self, Context},
    fault::{Place, code},
    fields::{Checker, Fields, Path, Words},
    model::{Action, OnError, Role, Step, StepIndex, Unknown},
    node::Node,
    references::{List, References},
};
use std::sync::Arc;

/// The actions of a compensation.
const ACTIONS: [&str; 3] = ["task", "workflow", "http"];

const FIELDS: [&str; 14] = [
    "task",
    "workflow",
    "http",
    "input",
    "language",
    "queue",
    "retry",
    "timeout",
    "queue_timeout",
    "total_timeout",
    "heartbeat_timeout",
    "priority",
    "unknown",
    "pin",
];

/// The words of `unknown`.
const UNKNOWN: Words<Unknown> =
    Words { prefix: "unknown", values: [("compensate", Unknown::Compensate), ("skip", Unknown::Skip)] };

/// Reads what undoes the step of this id; `variable` is its `for_each` variable.
pub(super) fn read(
    checker: &mut Checker<'_>,
    node: &Node,
    path: &Path<'_>,
    (of, id): (StepIndex, &str),
    variable: Option<&str>,
    context: &Context<'_>,
) -> Option<(Step, Place)> {
    let fields = checker.fields(node, path, &FIELDS)?;
    let mut references = References::of_compensation(context.ids);
    references.variable = variable;
    let action = action::read(checker, &fields, path, List::Main, &ACTIONS, context, &mut references);
    let unknown = fields.get("unknown").and_then(|node| checker.word(node, &path.field("unknown"), &UNKNOWN));
    let step = Step {
        id: Arc::from(format!("compensate:{id}")),
        role: Role::Compensation { of, unknown: unknown.unwrap_or_default() },
        needs: Vec::new(),
        dependents: Vec::new(),
        when: None,
        for_each: None,
        action: action?,
        on_error: OnError::Fail,
        compensation: None,
        irreversible: false,
    };
    Some((step, path.at(node.start)))
}

/// Says that a step cannot be undone, or be beyond undoing, if it has a field that says so.
pub(super) fn refuse(checker: &mut Checker<'_>, fields: &Fields<'_>, path: &Path<'_>, why: &str) {
    for field in ["compensate", "irreversible"].into_iter().filter(|field| fields.get(field).is_some()) {
        let message = format!("`{field}` does not belong to {why}");
        checker.judge(code::FIELD_NOT_APPLICABLE, fields.mark(field), &path.field(field), message, "remove it");
    }
}

/// Why a step of this action has nothing to undo, if so.
pub(super) fn never_done(action: &Action) -> Option<&'static str> {
    match action {
        Action::Fail(_) => Some("a step that fails on purpose"),
        Action::ContinueAsNew(_) => Some("`continue_as_new`, with which the run ends"),
        Action::Task(_)
        | Action::Compute(_)
        | Action::Sleep(_)
        | Action::Await(_)
        | Action::Child(_)
        | Action::Signal(_) => None,
    }
}
