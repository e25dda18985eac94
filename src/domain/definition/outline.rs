//! The steps of a text by their ids, before any is read: an expression may mention a step that stands further down.

use super::{
    action::is_given,
    fault::{Place, code},
    fields::{Checker, Path},
    handlers::Lists,
    model::StepIndex,
    node::{Mark, Node, Value},
    references::{Ids, Known, List},
};
use std::collections::hash_map;

/// Gives each step of the text the index that it will have, and reports ids that stand twice.
pub(super) fn ids<'n>(checker: &mut Checker<'_>, main: &'n [Node], lists: &Lists<'n>) -> Ids<'n> {
    let mut ids = Ids::with_capacity(main.len());
    let steps = Path::ROOT.field(List::Main.field());
    for (position, node) in main.iter().enumerate() {
        add(checker, &mut ids, node, &steps.index(position), position, List::Main);
    }
    // Between the steps under `steps` and the handlers are the compensations, which nobody mentions.
    let mut next = main.len() + main.iter().filter(|node| is_given(node.get("compensate"))).count();
    let handlers = Path::ROOT.field("handlers");
    for (winding, nodes) in lists.winding {
        let list = List::Handler(winding);
        let path = handlers.field(list.field());
        for (position, node) in nodes.iter().enumerate() {
            add(checker, &mut ids, node, &path.index(position), next, list);
            next += 1;
        }
    }
    let path = handlers.field(List::OnEvent.field());
    for handler in &lists.on_event {
        let path = path.index(handler.position);
        add(checker, &mut ids, handler.step, &path.field("step"), next, List::OnEvent);
        next += 1;
    }
    ids
}

fn add<'n>(checker: &mut Checker<'_>, ids: &mut Ids<'n>, node: &'n Node, path: &Path<'_>, position: usize, list: List) {
    let Some(Node { value: Value::Text(id), start, .. }) = node.get("id") else { return };
    let fans_out = is_given(node.get("for_each")) || is_given(node.get("forEach"));
    let is_child = is_given(node.get("workflow")) && !fans_out;
    match ids.entry(id) {
        hash_map::Entry::Vacant(entry) => {
            entry.insert(Known { index: StepIndex::new(position), list, is_child, place: path.at(Mark::default()) });
        }
        hash_map::Entry::Occupied(entry) => {
            let Place { path: first, .. } = &entry.get().place;
            let message = format!("the id `{id}` is taken by `{first}`");
            checker.refuse(code::STEP_DUPLICATE, *start, &path.field("id"), message, "give each step an id of its own");
        }
    }
}
