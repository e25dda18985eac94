//! `handlers`: steps that run while the execution winds down, and for signals while it runs.

use super::{
    action::Context,
    fault::{Place, code},
    fields::{Checker, Fields, Path},
    model::{Handlers, Role, Step, StepIndex, Winding},
    node::Node,
    parse::required,
    references::{List, References},
    signal, step,
};
use std::collections::HashSet;

/// Most steps of one list of handlers.
pub(super) const HANDLERS_MAX: usize = 100;

/// The lists of the text.
pub(super) struct Lists<'n> {
    pub(super) winding: [(Winding, &'n [Node]); 3],
    pub(super) on_event: Vec<EventHandler<'n>>,
}

/// An entry of `on_event`, and its position.
pub(super) struct EventHandler<'n> {
    pub(super) position: usize,
    fields: Fields<'n>,
    pub(super) step: &'n Node,
}

/// Finds the handlers among the definition's fields.
pub(super) fn find<'n>(checker: &mut Checker<'_>, fields: &Fields<'n>, path: &Path<'_>) -> Lists<'n> {
    let path = path.field("handlers");
    let windings = [Winding::Failure, Winding::Cancel, Winding::Timeout];
    let mut lists = Lists { winding: windings.map(|winding| (winding, &[] as &[Node])), on_event: Vec::new() };
    let Some(node) = fields.get("handlers") else { return lists };
    let Some(fields) = checker.fields(node, &path, &["failure", "cancel", "timeout", "on_event"]) else { return lists };
    for (winding, nodes) in &mut lists.winding {
        *nodes = limited(checker, &fields, &path, List::Handler(*winding).field());
    }
    for (position, node) in limited(checker, &fields, &path, List::OnEvent.field()).iter().enumerate() {
        let path = path.field(List::OnEvent.field());
        let path = path.index(position);
        let Some(fields) = checker.fields(node, &path, &["signal", "match", "step"]) else { continue };
        let Some(step) = required(checker, &fields, &path, "step") else { continue };
        lists.on_event.push(EventHandler { position, fields, step });
    }
    lists
}

fn limited<'n>(checker: &mut Checker<'_>, fields: &Fields<'n>, path: &Path<'_>, field: &str) -> &'n [Node] {
    let path = path.field(field);
    let nodes = checker.list(fields.get(field), &path);
    if nodes.len() > HANDLERS_MAX {
        let message = format!("{} steps; a list of handlers may have {HANDLERS_MAX}", nodes.len());
        checker.refuse(code::TOO_MANY, fields.mark(field), &path, message, "make a workflow of them, and start that");
        return &nodes[..HANDLERS_MAX];
    }
    nodes
}

/// Reads the handlers' steps behind those that are there; `None` if one could not be read.
pub(super) fn read(
    checker: &mut Checker<'_>,
    lists: &Lists<'_>,
    path: &Path<'_>,
    context: &Context<'_>,
    steps: &mut Vec<Step>,
    places: &mut Vec<Place>,
) -> Option<Handlers> {
    let path = path.field("handlers");
    let mut next = steps.len();
    let mut handlers = Handlers::default();
    let mut complete = true;
    let mut keep = |read: Option<step::Read>, indices: &mut Vec<StepIndex>| match read {
        Some(read) => {
            indices.push(StepIndex::new(steps.len()));
            steps.push(read.step);
            places.push(read.place);
        }
        None => complete = false,
    };
    for (winding, nodes) in lists.winding {
        let list = List::Handler(winding);
        let path = path.field(list.field());
        let indices = match winding {
            Winding::Failure => &mut handlers.failure,
            Winding::Cancel => &mut handlers.cancel,
            Winding::Timeout => &mut handlers.timeout,
        };
        for (position, node) in nodes.iter().enumerate() {
            let own = StepIndex::new(next);
            next += 1;
            let path = path.index(position);
            keep(step::read(checker, node, &path, own, list, Role::Handler(winding), context), indices);
        }
    }
    let path = path.field(List::OnEvent.field());
    let mut taken: HashSet<String> = HashSet::new();
    for handler in &lists.on_event {
        let own = StepIndex::new(next);
        next += 1;
        let path = path.index(handler.position);
        let role = role(checker, handler, &path, own, context, &mut taken);
        let step_path = path.field("step");
        // Read also without a role, for its faults.
        let read = step::read(
            checker,
            handler.step,
            &step_path,
            own,
            List::OnEvent,
            role.clone().unwrap_or(Role::Main),
            context,
        );
        keep(read.filter(|_| role.is_some()), &mut handlers.on_event);
    }
    complete.then_some(handlers)
}

/// What an entry of `on_event` takes. `taken` are the signals of which an earlier entry takes every one.
fn role(
    checker: &mut Checker<'_>,
    handler: &EventHandler<'_>,
    path: &Path<'_>,
    own: StepIndex,
    context: &Context<'_>,
    taken: &mut HashSet<String>,
) -> Option<Role> {
    let fields = &handler.fields;
    let signal = signal::declared(checker, fields, path, context);
    let mut references = References::of_step(context.ids, List::OnEvent, own);
    let predicate = match fields.get("match") {
        Some(node) => checker.expression(node, &path.field("match"), &mut references).map(Some),
        None => Some(None),
    };
    let signal = signal?;
    if taken.contains(&*signal) {
        let message = format!("an entry before takes every `{signal}`, so none is left for this one");
        checker.warn(
            code::HANDLER_UNREACHABLE,
            fields.mark("signal"),
            path,
            message,
            "put it before that entry, or give that entry a `match`",
        );
    }
    if fields.get("match").is_none() {
        taken.insert(signal.to_string());
    }
    Some(Role::OnEvent { signal, predicate: predicate? })
}
