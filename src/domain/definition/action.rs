//! What a step does: exactly one action, and only the fields that go with it.

use super::{
    child, continue_as_new,
    expression::Template,
    fail,
    fault::code,
    fields::{Checker, Fields, Path, list},
    http,
    model::{Action, TaskContract},
    node::{Node, Value},
    references::{Ids, List, References},
    schema::Schema,
    signal, sleep, task,
};
use std::{collections::BTreeMap, sync::Arc};

/// The actions of a step.
pub(super) const ACTIONS: [&str; 9] =
    ["task", "workflow", "http", "compute", "sleep", "await", "signal", "fail", "continue_as_new"];

/// The fields beside an action, each with the actions that have it.
const FIELDS: [(&str, &[&str]); 10] = [
    ("input", &["task", "workflow"]),
    ("language", &["task"]),
    ("queue", &["task"]),
    ("retry", &["task", "workflow", "http"]),
    ("timeout", &["task", "workflow", "http"]),
    ("queue_timeout", &["task"]),
    ("total_timeout", &["task", "workflow", "http"]),
    ("heartbeat_timeout", &["task"]),
    ("priority", &["task", "http"]),
    ("pin", &["workflow"]),
];

/// What a step may refer to.
pub(super) struct Context<'c> {
    pub(super) ids: &'c Ids<'c>,
    pub(super) tasks: &'c BTreeMap<Arc<str>, TaskContract>,
    pub(super) signals: &'c BTreeMap<Arc<str>, Arc<Schema>>,
}

/// Reads the action among `actions` that the object has.
pub(super) fn read(
    checker: &mut Checker<'_>,
    fields: &Fields<'_>,
    path: &Path<'_>,
    list: List,
    actions: &[&'static str],
    context: &Context<'_>,
    references: &mut References<'_>,
) -> Option<Action> {
    let action = choose(checker, fields, path, actions)?;
    let node = fields.get_payload(action)?;
    let inner = path.field(action);
    match action {
        "task" => task::read(checker, fields, node, path, context, references).map(Action::Task),
        "workflow" => child::read(checker, fields, node, path, references).map(Action::Child),
        "http" => http::read(checker, fields, node, path, references).map(Action::Task),
        "compute" => checker.template(node, &inner, references).map(Action::Compute),
        "sleep" => sleep::read(checker, node, &inner, references).map(Action::Sleep),
        "await" => signal::read_await(checker, node, &inner, list, context, references).map(Action::Await),
        "signal" => signal::read(checker, node, &inner, references).map(Action::Signal),
        "fail" => fail::read(checker, node, &inner, references).map(Action::Fail),
        _ => continue_as_new::read(checker, node, &inner, references).map(Action::ContinueAsNew),
    }
}

/// The one action of an object; if there are several, the first, for further faults.
fn choose(
    checker: &mut Checker<'_>,
    fields: &Fields<'_>,
    path: &Path<'_>,
    actions: &[&'static str],
) -> Option<&'static str> {
    // Null is a value to `compute` and the same as absent to all others.
    let is_present = |action: &&'static str| {
        if *action == "compute" { fields.get_payload(action).is_some() } else { fields.get(action).is_some() }
    };
    let present: Vec<&'static str> = actions.iter().copied().filter(is_present).collect();
    let action = match present.as_slice() {
        [] => {
            let hint = format!("add one of {}", list(actions));
            checker.refuse(code::ACTION_REQUIRED, fields.node.start, path, "there is nothing to do", hint);
            return None;
        }
        [action] => *action,
        several => {
            let message = format!("there are several things to do: {}", list(several));
            checker.refuse(code::ACTION_AMBIGUOUS, fields.node.start, path, message, "make a step of each");
            several[0]
        }
    };
    for (field, owners) in FIELDS.into_iter().filter(|(field, _)| fields.get(field).is_some()) {
        if owners.iter().any(|owner| present.contains(owner)) {
            continue;
        }
        let hint = match (action, field) {
            ("await", "timeout") => "write it inside `await`",
            ("continue_as_new", "input") => "write it inside `continue_as_new`",
            ("http", "input") => "write it inside `http`, as its `body`",
            ("signal", "input") => "write it inside `signal`, as its `payload`",
            _ => "remove it, or make the step a `task`",
        };
        let message = format!("`{field}` belongs to {}, not to `{action}`", list(owners));
        checker.judge(code::FIELD_NOT_APPLICABLE, fields.mark(field), &path.field(field), message, hint);
    }
    Some(action)
}

/// A template that is one text in the message.
pub(super) fn text_template(
    checker: &mut Checker<'_>,
    node: &Node,
    path: &Path<'_>,
    references: &mut References<'_>,
) -> Option<Template> {
    checker.text(node, path)?;
    checker.template(node, path, references)
}

/// An optional template; `Err` if it has faults, which have been said.
pub(super) fn optional_template(
    checker: &mut Checker<'_>,
    fields: &Fields<'_>,
    path: &Path<'_>,
    field: &str,
    references: &mut References<'_>,
) -> Result<Option<Template>, ()> {
    match fields.get(field) {
        Some(node) => checker.template(node, &path.field(field), references).map(Some).ok_or(()),
        None => Ok(None),
    }
}

/// Whether a node is there and not null.
pub(super) fn is_given(node: Option<&Node>) -> bool {
    node.is_some_and(|node| !matches!(node.value, Value::Null))
}
