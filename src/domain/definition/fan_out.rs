//! `for_each`: a step that runs once for each item of a list.

use super::{
    expression::is_variable,
    fault::code,
    fields::{Checker, Fields, Path},
    model::{ForEach, ITEMS_MAX, VARIABLE_DEFAULT},
    node::Value,
    references::References,
};
use std::sync::Arc;

/// Reads the fan-out among a step's fields, and brings its variable into scope. What is read before does not see it.
///
/// `Err` if there is one with faults, which have been said.
pub(super) fn read<'a>(
    checker: &mut Checker<'_>,
    fields: &Fields<'a>,
    path: &Path<'_>,
    references: &mut References<'a>,
) -> Result<Option<ForEach>, ()> {
    let Some(node) = fields.get("for_each") else {
        for field in ["as", "max_parallel"].into_iter().filter(|field| fields.get(field).is_some()) {
            let message = format!("`{field}` belongs to `for_each`");
            checker.judge(
                code::FIELD_NOT_APPLICABLE,
                fields.mark(field),
                &path.field(field),
                message,
                "remove it, or add `for_each`",
            );
        }
        return Ok(None);
    };
    let list_path = path.field("for_each");
    let items = checker.template(node, &list_path, references);
    match (&node.value, items.as_ref().and_then(|items| items.kind())) {
        (Value::List(list), _) if list.len() > ITEMS_MAX => {
            let message = format!("{} items; a step may run for {ITEMS_MAX}", list.len());
            checker.judge(code::TOO_MANY, node.start, &list_path, message, "split the list");
        }
        (_, Some(kind)) if kind != "a list" => {
            let hint = "write a list, or an expression that gives one: `${ input.items }`";
            checker.judge(code::TYPE_MISMATCH, node.start, &list_path, format!("expected a list, found {kind}"), hint);
        }
        (_, Some(_) | None) => {}
    }
    let variable = variable(checker, fields, path);
    let parallel_max = parallel_max(checker, fields, path);
    references.variable = Some(variable);
    let items = items.ok_or(())?;
    Ok(Some(ForEach { items, variable: Arc::from(variable), parallel_max }))
}

fn variable<'a>(checker: &mut Checker<'_>, fields: &Fields<'a>, path: &Path<'_>) -> &'a str {
    let path = path.field("as");
    let Some(node) = fields.get("as") else { return VARIABLE_DEFAULT };
    let Some(text) = checker.text(node, &path) else { return VARIABLE_DEFAULT };
    if !is_variable(text) {
        let hint = "1 to 63 characters of A-Z a-z 0-9 _, the first no digit, and no word that expressions know";
        checker.judge(code::NAME_INVALID, node.start, &path, format!("`{text}` cannot name a variable"), hint);
    }
    text
}

fn parallel_max(checker: &mut Checker<'_>, fields: &Fields<'_>, path: &Path<'_>) -> Option<u32> {
    let path = path.field("max_parallel");
    let node = fields.get("max_parallel")?;
    let number = checker.integer(node, &path)?;
    match u32::try_from(number) {
        Ok(0) => None,
        Ok(count) if usize::try_from(count).is_ok_and(|count| count <= ITEMS_MAX) => Some(count),
        Ok(_) | Err(_) => {
            let message = format!("{number} items at once; it is 1 to {ITEMS_MAX}");
            checker.judge(code::OUT_OF_RANGE, node.start, &path, message, "leave it out for no limit");
            None
        }
    }
}
