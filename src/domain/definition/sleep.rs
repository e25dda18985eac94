//! A sleep.

use super::{
    action::text_template,
    duration::{DurationError, parse as parse_duration, parse_time},
    expression::Template,
    fault::code,
    fields::{Checker, Path},
    model::Sleep,
    node::Node,
    references::References,
};
use crate::domain::json;

/// Reads a sleep.
pub(super) fn read(
    checker: &mut Checker<'_>,
    node: &Node,
    path: &Path<'_>,
    references: &mut References<'_>,
) -> Option<Sleep> {
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

/// The text of a template without expressions.
fn constant_text(template: &Template) -> Option<String> {
    let payload = template.as_constant()?;
    json::Cursor::new(payload.as_str()).string().ok().map(std::borrow::Cow::into_owned)
}
