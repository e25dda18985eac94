//! One step from its tree.

use super::{
    duration::{DurationError, parse as parse_duration, parse_time},
    expression::{References, Template},
    fault::code,
    fields::{Checker, Fields, POSITIVE, Path, list, nearest},
    model::{Action, Await, Fail, OnError, Role, Sleep, Step, StepIndex, TaskContract},
    node::{Mark, Node, Value},
    parse::{duration, required},
    schema::Schema,
    task,
};
use crate::domain::json;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

const STEP_FIELDS: [&str; 18] = [
    "id",
    "needs",
    "when",
    "task",
    "compute",
    "sleep",
    "await",
    "fail",
    "input",
    "language",
    "queue",
    "retry",
    "timeout",
    "queue_timeout",
    "total_timeout",
    "heartbeat_timeout",
    "on_error",
    "priority",
];

const ACTIONS: [&str; 5] = ["task", "compute", "sleep", "await", "fail"];

/// Fields that only a task has.
const TASK_FIELDS: [&str; 9] = [
    "input",
    "language",
    "queue",
    "retry",
    "timeout",
    "queue_timeout",
    "total_timeout",
    "heartbeat_timeout",
    "priority",
];

/// Most characters of a step's id and of an error code.
const ID_MAX: usize = 63;

/// What a step may refer to.
pub(super) struct Context<'c> {
    pub(super) ids: &'c HashMap<&'c str, StepIndex>,
    pub(super) tasks: &'c BTreeMap<Arc<str>, TaskContract>,
    pub(super) signals: &'c BTreeMap<Arc<str>, Arc<Schema>>,
}

/// Where a step stands, for faults that are found later.
pub(super) struct Place {
    pub(super) mark: Mark,
}

/// Reads one step. Its dependents are found when all steps are read.
pub(super) fn read(
    checker: &mut Checker<'_>,
    node: &Node,
    path: &Path<'_>,
    own: StepIndex,
    context: &Context<'_>,
) -> Option<(Step, Place)> {
    let fields = checker.fields(node, path, &STEP_FIELDS)?;
    let id = required(checker, &fields, path, "id").and_then(|node| id(checker, node, &path.field("id")));
    let mut references = References { steps: context.ids, own: Some(own), signal: false, mentioned: Vec::new() };
    needs(checker, &fields, path, own, context, &mut references.mentioned);
    let when = fields.get("when").and_then(|node| checker.expression(node, &path.field("when"), &mut references));
    let action = action(checker, &fields, path, context, &mut references);
    let on_error =
        fields.get("on_error").map_or(OnError::Fail, |node| on_error(checker, node, &path.field("on_error")));
    let mut needs = references.mentioned;
    needs.sort_unstable();
    needs.dedup();
    let step = Step {
        id: Arc::from(id?),
        role: Role::Main,
        needs,
        dependents: Vec::new(),
        when,
        for_each: None,
        action: action?,
        on_error,
        compensation: None,
        irreversible: false,
    };
    Some((step, Place { mark: fields.mark("id") }))
}

fn id<'n>(checker: &mut Checker<'_>, node: &'n Node, path: &Path<'_>) -> Option<&'n str> {
    let text = checker.text(node, path)?;
    let is_id = text.len() <= ID_MAX
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_id {
        let hint = format!("1 to {ID_MAX} characters of A-Z a-z 0-9 _, the first a letter");
        checker.judge(code::NAME_INVALID, node.start, path, format!("`{text}` is not a step's id"), hint);
    }
    Some(text)
}

fn needs(
    checker: &mut Checker<'_>,
    fields: &Fields<'_>,
    path: &Path<'_>,
    own: StepIndex,
    context: &Context<'_>,
    found: &mut Vec<StepIndex>,
) {
    let path = path.field("needs");
    for (position, node) in checker.list(fields.get("needs"), &path).iter().enumerate() {
        let path = path.index(position);
        let Some(id) = checker.text(node, &path) else { continue };
        match context.ids.get(id).copied() {
            Some(step) if step == own => {
                checker.refuse(
                    code::STEP_SELF_REFERENCE,
                    node.start,
                    &path,
                    format!("the step `{id}` needs itself"),
                    "remove it from `needs`",
                );
            }
            Some(step) => found.push(step),
            None => {
                let hint = match nearest(id, context.ids.keys().copied().take(1_000)) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "name a step of this definition".to_owned(),
                };
                checker.refuse(code::STEP_UNKNOWN, node.start, &path, format!("there is no step `{id}`"), hint);
            }
        }
    }
}

fn action(
    checker: &mut Checker<'_>,
    fields: &Fields<'_>,
    path: &Path<'_>,
    context: &Context<'_>,
    references: &mut References<'_>,
) -> Option<Action> {
    // Null is a value to `compute` and the same as absent to all others.
    let present: Vec<&str> =
        ACTIONS
            .into_iter()
            .filter(|action| {
                if *action == "compute" { fields.get_payload(action).is_some() } else { fields.get(action).is_some() }
            })
            .collect();
    let action = match present.as_slice() {
        [] => {
            let hint = format!("add one of {}", list(&ACTIONS));
            checker.refuse(code::ACTION_REQUIRED, fields.node.start, path, "the step does nothing", hint);
            return None;
        }
        [action] => *action,
        several => {
            let message = format!("the step does several things: {}", list(several));
            checker.refuse(code::ACTION_AMBIGUOUS, fields.node.start, path, message, "make a step of each");
            several[0]
        }
    };
    if !present.contains(&"task") {
        for field in TASK_FIELDS.into_iter().filter(|field| fields.get(field).is_some()) {
            let hint = match (action, field) {
                ("await", "timeout") => "write it inside `await`",
                _ => "remove it, or make the step a `task`",
            };
            let message = format!("`{field}` belongs to `task`, not to `{action}`");
            checker.judge(code::FIELD_NOT_APPLICABLE, fields.mark(field), &path.field(field), message, hint);
        }
    }
    let node = fields.get_payload(action)?;
    let action_path = path.field(action);
    match action {
        "task" => task::read(checker, fields, node, path, context, references).map(Action::Task),
        "compute" => checker.template(node, &action_path, references).map(Action::Compute),
        "sleep" => sleep(checker, node, &action_path, references).map(Action::Sleep),
        "await" => await_signal(checker, node, &action_path, context, references).map(Action::Await),
        _ => fail(checker, node, &action_path, references).map(Action::Fail),
    }
}

fn sleep(checker: &mut Checker<'_>, node: &Node, path: &Path<'_>, references: &mut References<'_>) -> Option<Sleep> {
    let fields = checker.fields(node, path, &["for", "until"])?;
    match (fields.get("for"), fields.get("until")) {
        (Some(node), None) => {
            let path = path.field("for");
            let template = text_template(checker, node, &path, references)?;
            match constant_text(&template).map(|text| (parse_duration(&text), text)) {
                Some((Err(DurationError::Syntax), text)) => {
                    let hint = "write it like `90s`, `1h30m`, `7d`, or as a template `${ … }`";
                    checker.refuse(
                        code::DURATION_INVALID,
                        node.start,
                        &path,
                        format!("`{text}` is not a duration"),
                        hint,
                    );
                }
                Some((Err(error), text)) => {
                    checker.judge(
                        code::DURATION_OUT_OF_RANGE,
                        node.start,
                        &path,
                        format!("`{text}` {error}"),
                        "a sleep is 0 to 36,500 days",
                    );
                }
                Some((Ok(_), _)) | None => {}
            }
            Some(Sleep::For(template))
        }
        (None, Some(node)) => {
            let path = path.field("until");
            let template = text_template(checker, node, &path, references)?;
            if let Some(text) = constant_text(&template).filter(|text| parse_time(text).is_none()) {
                let hint = "write it like `2026-01-31T09:00:00Z`, or as a template `${ … }`";
                checker.refuse(
                    code::TIME_INVALID,
                    node.start,
                    &path,
                    format!("`{text}` is not an RFC 3339 time"),
                    hint,
                );
            }
            Some(Sleep::Until(template))
        }
        (None, None) => {
            checker.refuse(code::FIELD_REQUIRED, node.start, path, "a sleep needs `for` or `until`", "add one of them");
            None
        }
        (Some(_), Some(_)) => {
            checker.refuse(
                code::ACTION_AMBIGUOUS,
                node.start,
                path,
                "a sleep has `for` or `until`, not both",
                "remove one of them",
            );
            None
        }
    }
}

/// A template that is one text in the message.
fn text_template(
    checker: &mut Checker<'_>,
    node: &Node,
    path: &Path<'_>,
    references: &mut References<'_>,
) -> Option<Template> {
    checker.text(node, path)?;
    checker.template(node, path, references)
}

/// The text of a template without expressions.
fn constant_text(template: &Template) -> Option<String> {
    let payload = template.as_constant()?;
    json::Cursor::new(payload.as_str()).string().ok().map(std::borrow::Cow::into_owned)
}

fn await_signal(
    checker: &mut Checker<'_>,
    node: &Node,
    path: &Path<'_>,
    context: &Context<'_>,
    references: &mut References<'_>,
) -> Option<Await> {
    let fields = checker.fields(node, path, &["signal", "match", "timeout"])?;
    let signal = required(checker, &fields, path, "signal").and_then(|node| {
        let path = path.field("signal");
        let signal = checker.text(node, &path)?;
        if !context.signals.contains_key(signal) {
            let hint = match nearest(signal, context.signals.keys().map(|known| &**known)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("add it to `signals`, for example `{signal}: {{}}`"),
            };
            checker.refuse(
                code::SIGNAL_UNDECLARED,
                node.start,
                &path,
                format!("the signal `{signal}` is not declared"),
                hint,
            );
        }
        Some(signal)
    });
    references.signal = true;
    let predicate = fields.get("match").and_then(|node| checker.expression(node, &path.field("match"), references));
    references.signal = false;
    let timeout = duration(checker, &fields, path, "timeout", POSITIVE);
    Some(Await { signal: Arc::from(signal?), predicate, timeout })
}

fn fail(checker: &mut Checker<'_>, node: &Node, path: &Path<'_>, references: &mut References<'_>) -> Option<Fail> {
    let fields = checker.fields(node, path, &["code", "message"])?;
    let code_text = required(checker, &fields, path, "code").and_then(|node| {
        let path = path.field("code");
        let text = checker.text(node, &path)?;
        let is_code = text.len() <= ID_MAX
            && text.starts_with(|c: char| c.is_ascii_uppercase())
            && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
        if !is_code {
            let hint = format!("1 to {ID_MAX} characters of A-Z 0-9 _, the first a letter");
            checker.judge(code::NAME_INVALID, node.start, &path, format!("`{text}` is not an error code"), hint);
        }
        Some(text)
    });
    let empty = Node::text("");
    let message = match fields.get("message") {
        Some(node) => text_template(checker, node, &path.field("message"), references),
        None => checker.template(&empty, path, references),
    };
    Some(Fail { code: Arc::from(code_text?), message: message? })
}

fn on_error(checker: &mut Checker<'_>, node: &Node, path: &Path<'_>) -> OnError {
    // ProtoJSON takes an enum's number as well.
    let word = match &node.value {
        Value::Text(text) | Value::Number(text) => text,
        Value::Null | Value::Bool(_) | Value::List(_) | Value::Object(_) => {
            checker.text(node, path);
            return OnError::Fail;
        }
    };
    match word.to_ascii_lowercase().as_str() {
        "fail" | "on_error_fail" | "on_error_unspecified" | "0" | "1" => OnError::Fail,
        "continue" | "on_error_continue" | "2" => OnError::Continue,
        lower => {
            let hint = match nearest(lower, ["fail", "continue"].into_iter()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "use `fail` or `continue`".to_owned(),
            };
            checker.refuse(code::ENUM_INVALID, node.start, path, format!("`{word}` is not `fail` or `continue`"), hint);
            OnError::Fail
        }
    }
}
