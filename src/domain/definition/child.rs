//! The child workflow of a step or of a compensation.

use super::{
    action::optional_template,
    expression::Template,
    fault::code,
    fields::{Checker, Fields, POSITIVE, Path},
    model::{ChildStep, Pin},
    node::Node,
    parse::{duration, is_name, required},
    range::VersionRange,
    references::References,
    retry,
};
use std::sync::Arc;

/// Reads a child from its step's fields; `node` is `name@range`.
pub(super) fn read(
    checker: &mut Checker<'_>,
    fields: &Fields<'_>,
    node: &Node,
    path: &Path<'_>,
    references: &mut References<'_>,
) -> Option<ChildStep> {
    let workflow_path = path.field("workflow");
    let workflow = checker.text(node, &workflow_path).and_then(|text| workflow(checker, node, &workflow_path, text));
    let input: Result<Option<Template>, ()> = optional_template(checker, fields, path, "input", references);
    let retry = retry::read(checker, fields, path);
    let timeout = duration(checker, fields, path, "timeout", POSITIVE);
    let total_timeout = duration(checker, fields, path, "total_timeout", POSITIVE);
    let pin = fields.get("pin").and_then(|node| pin(checker, node, &path.field("pin")));
    let (workflow, range) = workflow?;
    Some(ChildStep {
        workflow,
        range,
        pin,
        place: workflow_path.at(node.start),
        input: input.ok()?,
        retry,
        timeout,
        total_timeout,
    })
}

fn workflow(checker: &mut Checker<'_>, node: &Node, path: &Path<'_>, text: &str) -> Option<(Arc<str>, VersionRange)> {
    const HINT: &str = "write it like `invoice@^1`, `invoice@1.2.3` for exactly this version, or `invoice@*`";
    let Some((name, range)) = text.split_once('@').filter(|(name, _)| is_name(name)) else {
        checker.refuse(code::CHILD_INVALID, node.start, path, format!("`{text}` is not `name@range`"), HINT);
        return None;
    };
    match VersionRange::parse(range) {
        Ok(range) => Some((Arc::from(name), range)),
        Err(error) => {
            let message = format!("`{range}` is not a range of versions: {error}");
            checker.refuse(code::CHILD_INVALID, node.start, path, message, HINT);
            None
        }
    }
}

/// What deploy has added.
fn pin(checker: &mut Checker<'_>, node: &Node, path: &Path<'_>) -> Option<Pin> {
    if !checker.is_stored() {
        let message = "`pin` is chosen when the definition is deployed";
        checker.refuse(code::FIELD_NOT_APPLICABLE, node.start, path, message, "remove it");
        return None;
    }
    let fields = checker.fields(node, path, &["version", "hash"])?;
    let mut text = |field: &'static str| {
        let node = required(checker, &fields, path, field)?;
        checker.text(node, &path.field(field))
    };
    let (version, hash) = (text("version"), text("hash"));
    let pin = Pin { version: semver::Version::parse(version?).ok()?, hash: digest(hash?)? };
    Some(pin)
}

/// 32 bytes from 64 hexadecimal digits.
fn digest(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 2 * bytes.len() || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}
