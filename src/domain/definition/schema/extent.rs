//! How far a schema reaches once its references are followed.
//!
//! A validator follows each reference anew wherever it stands, so a short schema, forty definitions that each refer to
//! the next one twice, may take for ever. What comes to too much is refused before it is compiled.

use super::SchemaError;
use percent_encoding::percent_decode_str;
use serde_json::Value;
use std::collections::BTreeMap;

/// Most schemas that one may come to with each reference written out.
const SCHEMAS_MAX: usize = 10_000;

/// What a schema comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// Whether a part of it refers to itself, so that it has no end.
    pub(super) is_recursive: bool,
}

/// Measures a schema.
///
/// # Errors
///
/// [`SchemaError`], if it comes to more than 10,000 schemas or a reference cannot be followed within the document.
pub(super) fn measure(document: &Value) -> Result<Extent, SchemaError> {
    let mut walk = Walk { document, anchors: BTreeMap::new(), open: Vec::new(), schemas: 0, is_recursive: false };
    find_anchors(document, &mut walk.anchors);
    walk.schema(document, "")?;
    Ok(Extent { is_recursive: walk.is_recursive })
}

struct Walk<'a> {
    document: &'a Value,
    anchors: BTreeMap<&'a str, &'a Value>,
    /// The references that are being followed.
    open: Vec<&'a str>,
    schemas: usize,
    is_recursive: bool,
}

impl<'a> Walk<'a> {
    fn schema(&mut self, schema: &'a Value, pointer: &str) -> Result<(), SchemaError> {
        self.schemas += 1;
        if self.schemas > SCHEMAS_MAX {
            let message = format!("its references, written out, come to more than {SCHEMAS_MAX} schemas");
            return Err(SchemaError { message, pointer: String::new() });
        }
        let Value::Object(keywords) = schema else { return Ok(()) };
        for (keyword, value) in keywords {
            let pointer = format!("{pointer}/{keyword}");
            match keyword.as_str() {
                "$ref" | "$dynamicRef" => self.reference(value, &pointer)?,
                // An id makes another base for references; only the whole document has one.
                "$id" if self.schemas > 1 => return Err(refused(value, pointer)),
                // These hold values, or schemas that apply only where something refers to them.
                "$defs" | "definitions" | "const" | "enum" | "default" | "examples" => {}
                "properties" | "patternProperties" | "dependentSchemas" => {
                    for (name, member) in value.as_object().into_iter().flatten() {
                        self.schema(member, &format!("{pointer}/{name}"))?;
                    }
                }
                _ => match value {
                    Value::Object(_) => self.schema(value, &pointer)?,
                    Value::Array(schemas) => {
                        for (index, schema) in schemas.iter().enumerate().filter(|(_, schema)| schema.is_object()) {
                            self.schema(schema, &format!("{pointer}/{index}"))?;
                        }
                    }
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
                },
            }
        }
        Ok(())
    }

    fn reference(&mut self, reference: &'a Value, pointer: &str) -> Result<(), SchemaError> {
        let Some(name) = reference.as_str() else { return Ok(()) };
        if self.open.contains(&name) {
            self.is_recursive = true;
            return Ok(());
        }
        let target = self.find(name).ok_or_else(|| refused(reference, pointer.to_owned()))?;
        self.open.push(name);
        let walked = self.schema(target, pointer);
        self.open.pop();
        walked
    }

    fn find(&self, reference: &str) -> Option<&'a Value> {
        let fragment = percent_decode_str(reference.strip_prefix('#')?).decode_utf8().ok()?;
        if fragment.is_empty() || fragment.starts_with('/') {
            self.document.pointer(&fragment)
        } else {
            self.anchors.get(&*fragment).copied()
        }
    }
}

fn refused(reference: &Value, pointer: String) -> SchemaError {
    let message =
        format!("{reference} leads nowhere in this schema; refer by `#/$defs/…` to what stands under `$defs`");
    SchemaError { message, pointer }
}

fn find_anchors<'a>(value: &'a Value, anchors: &mut BTreeMap<&'a str, &'a Value>) {
    match value {
        Value::Object(members) => {
            for keyword in ["$anchor", "$dynamicAnchor"] {
                if let Some(name) = members.get(keyword).and_then(Value::as_str) {
                    anchors.insert(name, value);
                }
            }
            members.values().for_each(|member| find_anchors(member, anchors));
        }
        Value::Array(items) => items.iter().for_each(|item| find_anchors(item, anchors)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(text: &str) -> Result<bool, SchemaError> {
        measure(&serde_json::from_str(text).unwrap()).map(|extent| extent.is_recursive)
    }

    /// Definitions that each refer to the next one twice.
    fn doubling(keyword: &str, levels: usize) -> String {
        let level = |index: usize| {
            let next = format!(r##"{{"$ref": "#/$defs/d{}"}}"##, index + 1);
            match keyword {
                "properties" => format!(r#""d{index}": {{"properties": {{"default": {next}, "enum": {next}}}}}"#),
                "if" => format!(r#""d{index}": {{"if": {next}, "then": {next}, "else": {next}}}"#),
                list => format!(r#""d{index}": {{"{list}": [{next}, {next}]}}"#),
            }
        };
        let levels_text: Vec<_> = (0..levels).map(level).collect();
        format!(r##"{{"$ref": "#/$defs/d0", "$defs": {{{}, "d{levels}": {{}}}}}}"##, levels_text.join(", "))
    }

    #[test]
    fn references_that_double_at_each_level_are_refused_once_they_come_to_too_much() {
        for keyword in ["anyOf", "oneOf", "allOf", "prefixItems", "if", "properties"] {
            assert_eq!(measured(&doubling(keyword, 5)), Ok(false), "{keyword}");
            let refused = measured(&doubling(keyword, 40)).unwrap_err();
            assert!(refused.message.contains("10000"), "{keyword}: {refused}");
        }
    }

    #[test]
    fn a_reference_to_itself_is_followed_once() {
        for text in [
            r##"{"properties": {"next": {"$ref": "#"}}}"##,
            r##"{"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/b"}}, "b": {"not": {"$ref": "#/$defs/a"}}}}"##,
            r##"{"$dynamicAnchor": "node", "properties": {"a b": {"$dynamicRef": "#node"}}}"##,
        ] {
            assert_eq!(measured(text), Ok(true), "{text}");
        }
    }

    #[test]
    fn what_only_looks_like_a_reference_is_none() {
        for text in [
            r##"{"const": {"$ref": "#/nowhere"}, "default": {"$ref": "x"}, "enum": [{"$ref": "x"}]}"##,
            r##"{"properties": {"$ref": {"type": "string"}}, "$defs": {"unused": {"$ref": "#/$defs/unused"}}}"##,
            r##"{"$id": "https://example.com/a", "$ref": "#/$defs/a%20b", "$defs": {"a b": true}}"##,
        ] {
            assert_eq!(measured(text), Ok(false), "{text}");
        }
    }

    #[test]
    fn references_out_of_the_document_and_new_bases_are_refused() {
        for text in [
            r#"{"$ref": "https://example.com/a"}"#,
            r##"{"$ref": "#missing"}"##,
            r#"{"items": {"$id": "https://example.com/a", "$ref": "b"}}"#,
        ] {
            assert!(measured(text).is_err(), "{text}");
        }
    }
}
