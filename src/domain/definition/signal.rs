//! Waits for a signal, and gives one to another execution.

use super::{
    action::{Context, optional_template, text_template},
    fault::{Place, code},
    fields::{Checker, Fields, POSITIVE, Path, list, nearest},
    graph::Ancestors,
    model::{Action, Await, SignalStep, SignalTarget, Step, StepIndex},
    node::Node,
    parse::{duration, name, required},
    references::{List, References},
};
use std::sync::Arc;

/// To whom a signal goes: one of these.
const TARGETS: [&str; 3] = ["execution", "parent", "child"];

/// Reads a wait.
pub(super) fn read_await(
    checker: &mut Checker<'_>,
    node: &Node,
    path: &Path<'_>,
    list: List,
    context: &Context<'_>,
    references: &mut References<'_>,
) -> Option<Await> {
    let fields = checker.fields(node, path, &["signal", "match", "timeout"])?;
    let signal = declared(checker, &fields, path, context);
    references.signal = true;
    let predicate = fields.get("match").and_then(|node| checker.expression(node, &path.field("match"), references));
    references.signal = false;
    let timeout = duration(checker, &fields, path, "timeout", POSITIVE);
    if list != List::Main && fields.get("timeout").is_none() {
        let message = "in a handler a wait without `timeout` could hold the execution open for ever";
        checker.judge(code::FIELD_REQUIRED, node.start, &path.field("timeout"), message, "add `timeout`");
    }
    Some(Await { signal: signal?, predicate, timeout })
}

/// The signal among the fields, which the definition must declare.
pub(super) fn declared(
    checker: &mut Checker<'_>,
    fields: &Fields<'_>,
    path: &Path<'_>,
    context: &Context<'_>,
) -> Option<Arc<str>> {
    let node = required(checker, fields, path, "signal")?;
    let path = path.field("signal");
    let signal = checker.text(node, &path)?;
    if !context.signals.contains_key(signal) {
        let hint = match nearest(signal, context.signals.keys().map(|known| &**known)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("add it to `signals`, for example `{signal}: {{}}`"),
        };
        let message = format!("the signal `{signal}` is not declared");
        checker.refuse(code::SIGNAL_UNDECLARED, node.start, &path, message, hint);
    }
    Some(Arc::from(signal))
}

/// Reads a signal to another execution.
pub(super) fn read(
    checker: &mut Checker<'_>,
    node: &Node,
    path: &Path<'_>,
    references: &mut References<'_>,
) -> Option<SignalStep> {
    let fields = checker.fields(node, path, &["execution", "parent", "child", "name", "payload"])?;
    let to = target(checker, &fields, path, references);
    let signal = required(checker, &fields, path, "name").and_then(|node| {
        let path = path.field("name");
        let text = checker.text(node, &path)?;
        name(checker, node, &path, text);
        Some(text)
    });
    let payload = optional_template(checker, &fields, path, "payload", references);
    Some(SignalStep { to: to?, name: Arc::from(signal?), payload: payload.ok()? })
}

fn target(
    checker: &mut Checker<'_>,
    fields: &Fields<'_>,
    path: &Path<'_>,
    references: &mut References<'_>,
) -> Option<SignalTarget> {
    let execution = fields.get("execution").map(|node| {
        let path = path.field("execution");
        text_template(checker, node, &path, references).map(SignalTarget::Execution)
    });
    // `parent: false` is the same as absent.
    let parent = fields.get("parent").and_then(|node| match checker.flag(node, &path.field("parent")) {
        Some(true) => Some(Some(SignalTarget::Parent)),
        Some(false) => None,
        None => Some(None),
    });
    let child = fields.get("child").map(|node| child(checker, node, &path.field("child"), references));
    let given: Vec<Option<SignalTarget>> = [execution, parent, child].into_iter().flatten().collect();
    let mark = fields.node.start;
    match <[Option<SignalTarget>; 1]>::try_from(given) {
        Ok([one]) => one,
        Err(none) if none.is_empty() => {
            let hint = format!("add one of {}", list(&TARGETS));
            checker.refuse(code::FIELD_REQUIRED, mark, path, "the signal goes to nobody", hint);
            None
        }
        Err(_) => {
            checker.refuse(
                code::ACTION_AMBIGUOUS,
                mark,
                path,
                "the signal goes to several executions",
                "make a step of each",
            );
            None
        }
    }
}

fn child(checker: &mut Checker<'_>, node: &Node, path: &Path<'_>, references: &References<'_>) -> Option<SignalTarget> {
    let id = checker.text(node, path)?;
    match references.child(id) {
        Ok(known) => {
            if !known.is_child {
                let message = format!("the step `{id}` starts no child, or many");
                let hint = "name a step with `workflow` and without `for_each`";
                checker.judge(code::SIGNAL_TARGET_INVALID, node.start, path, message, hint);
            }
            Some(SignalTarget::Child(known.index))
        }
        Err(refused) => {
            checker.refused(node, path, id, refused);
            None
        }
    }
}

/// Checks that the children that steps send to can still be running, among the steps under `steps`.
pub(super) fn check(checker: &mut Checker<'_>, steps: &[Step], places: &[Place], ancestors: &Ancestors) {
    for (position, step) in steps.iter().enumerate() {
        let Action::Signal(SignalStep { to: SignalTarget::Child(child), .. }) = &step.action else { continue };
        if ancestors.contains(StepIndex::new(position), *child) {
            let message = format!("the child of `{}` has ended when this step runs", steps[child.position()].id);
            let place = places[position].field("signal.child");
            let hint = "do not need it, so that both run at the same time";
            checker.judge_at(code::SIGNAL_TARGET_INVALID, &place, message, hint);
        }
    }
}
