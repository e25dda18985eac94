//! A step that fails on purpose.

use super::{
    action::text_template,
    fault::code,
    fields::{Checker, Path},
    model::Fail,
    node::Node,
    parse::required,
    references::References,
};
use std::sync::Arc;

/// Most characters of an error code.
const CODE_MAX: usize = 63;

/// Reads a step that fails.
pub(super) fn read(
    checker: &mut Checker<'_>,
    node: &Node,
    path: &Path<'_>,
    references: &mut References<'_>,
) -> Option<Fail> {
    let fields = checker.fields(node, path, &["code", "message"])?;
    let code_text = required(checker, &fields, path, "code").and_then(|node| {
        let path = path.field("code");
        let text = checker.text(node, &path)?;
        let is_code = text.len() <= CODE_MAX
            && text.starts_with(|c: char| c.is_ascii_uppercase())
            && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
        if !is_code {
            let hint = format!("1 to {CODE_MAX} characters of A-Z 0-9 _, the first a letter");
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
