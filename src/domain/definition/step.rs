//! One step from its tree: in `steps` or in a list of handlers.

use super::{
    action::{self, ACTIONS, Context},
    compensate, fan_out,
    fault::{Place, code},
    fields::{Checker, Fields, Path, Words},
    model::{Action, OnError, Role, Step, StepIndex},
    node::Node,
    parse::required,
    references::{List, References},
};
use std::sync::Arc;

const STEP_FIELDS: [&str; 28] = [
    "id",
    "needs",
    "when",
    "for_each",
    "as",
    "max_parallel",
    "task",
    "workflow",
    "http",
    "compute",
    "sleep",
    "await",
    "signal",
    "fail",
    "continue_as_new",
    "input",
    "language",
    "queue",
    "retry",
    "timeout",
    "queue_timeout",
    "total_timeout",
    "heartbeat_timeout",
    "priority",
    "on_error",
    "compensate",
    "irreversible",
    "pin",
];

/// Most characters of a step's id.
const ID_MAX: usize = 63;

/// The words of `on_error`.
const ON_ERROR: Words<OnError> =
    Words { prefix: "on_error", values: [("fail", OnError::Fail), ("continue", OnError::Continue)] };

/// A step as it was read. Its dependents are found when all steps are read.
pub(super) struct Read {
    pub(super) step: Step,
    pub(super) place: Place,
    /// What undoes it.
    pub(super) compensation: Option<(Step, Place)>,
    /// Whether the text says whether it is `irreversible`, be it that it is not.
    pub(super) says_irreversible: bool,
}

/// Reads one step of a list.
pub(super) fn read(
    checker: &mut Checker<'_>,
    node: &Node,
    path: &Path<'_>,
    own: StepIndex,
    list: List,
    role: Role,
    context: &Context<'_>,
) -> Option<Read> {
    let fields = checker.fields(node, path, &STEP_FIELDS)?;
    let id = required(checker, &fields, path, "id").and_then(|node| id(checker, node, &path.field("id")));
    let mut references = References::of_step(context.ids, list, own);
    if list == List::OnEvent {
        refuse_in_on_event(checker, &fields, path);
    } else {
        needs(checker, &fields, path, &mut references);
    }
    // Both are judged once for the whole step, so they see no item.
    let when = fields.get("when").map(|node| checker.expression(node, &path.field("when"), &mut references));
    let for_each = fan_out::read(checker, &fields, path, &mut references);
    let action = action::read(checker, &fields, path, list, &ACTIONS, context, &mut references);
    let on_error = fields.get("on_error").and_then(|node| checker.word(node, &path.field("on_error"), &ON_ERROR));
    let irreversible = fields.get("irreversible").map(|node| checker.flag(node, &path.field("irreversible")));
    let compensation = fields.get("compensate").map(|node| {
        let path = path.field("compensate");
        compensate::read(checker, node, &path, (own, id.unwrap_or_default()), references.variable, context)
    });
    if let Some(action) = &action {
        refuse_what_does_not_fit(checker, &fields, path, list, action);
    }
    let mut needs = references.needs;
    needs.sort_unstable();
    needs.dedup();
    let step = Step {
        id: Arc::from(list.unit(id?)),
        role,
        needs,
        dependents: Vec::new(),
        when: said(when)?,
        for_each: for_each.ok()?,
        action: action?,
        on_error: on_error.unwrap_or_default(),
        // Its index is known when all steps are read.
        compensation: None,
        irreversible: said(irreversible)?.unwrap_or(false),
    };
    let says_irreversible = irreversible.is_some();
    Some(Read { step, place: path.at(fields.mark("id")), compensation: said(compensation)?, says_irreversible })
}

/// `None` for what is there and has faults, which have been said.
#[expect(clippy::option_option, reason = "absent and faulty are two things")]
fn said<T>(field: Option<Option<T>>) -> Option<Option<T>> {
    match field {
        None => Some(None),
        Some(None) => None,
        Some(Some(value)) => Some(Some(value)),
    }
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

fn needs(checker: &mut Checker<'_>, fields: &Fields<'_>, path: &Path<'_>, references: &mut References<'_>) {
    let path = path.field("needs");
    for (position, node) in checker.list(fields.get("needs"), &path).iter().enumerate() {
        let path = path.index(position);
        let Some(id) = checker.text(node, &path) else { continue };
        if let Err(refused) = references.need(id) {
            checker.refused(node, &path, id, refused);
        }
    }
}

/// Each signal makes a run of its own of an `on_event` step, at once: there is nothing that it could wait for.
fn refuse_in_on_event(checker: &mut Checker<'_>, fields: &Fields<'_>, path: &Path<'_>) {
    for field in ["needs", "for_each"].into_iter().filter(|field| fields.get(field).is_some()) {
        let message = format!("`{field}` does not belong to a step of `on_event`, which runs for each signal");
        let hint = "remove it, or start a workflow for the signal";
        checker.refuse(code::FIELD_NOT_APPLICABLE, fields.mark(field), &path.field(field), message, hint);
    }
}

fn refuse_what_does_not_fit(
    checker: &mut Checker<'_>,
    fields: &Fields<'_>,
    path: &Path<'_>,
    list: List,
    action: &Action,
) {
    let ends_the_run = matches!(action, Action::ContinueAsNew(_));
    if list != List::Main {
        compensate::refuse(checker, fields, path, "a handler's step");
        if ends_the_run {
            let message = "a handler cannot end the run";
            let field = "continue_as_new";
            checker.judge(code::FIELD_NOT_APPLICABLE, fields.mark(field), &path.field(field), message, "remove it");
        }
    } else if let Some(why) = compensate::never_done(action) {
        compensate::refuse(checker, fields, path, why);
    }
    if ends_the_run && fields.get("for_each").is_some() {
        let message = "a run ends once, not for each item";
        checker.judge(
            code::FIELD_NOT_APPLICABLE,
            fields.mark("for_each"),
            &path.field("for_each"),
            message,
            "remove it",
        );
    }
}
