//! JSON Schema 2020-12: what payloads must look like, and the defaults that fill them in.
//!
//! Remote references are refused: what a definition means may not depend on a document somewhere else.

mod extent;

use super::{
    fault::shorten,
    node::{Entry, Node, Value as NodeValue},
};
use crate::domain::{PAYLOAD_BYTES_MAX, Payload, json};
use jsonschema::{Draft, PatternOptions, Retrieve, Uri, Validator};
use serde_json::Value;
use std::{
    collections::{HashMap, HashSet},
    error::Error,
    fmt,
};

/// Violations that a message names; a payload may have thousands.
const VIOLATIONS_MAX: usize = 5;

/// Most bytes of a `pattern`.
const PATTERN_BYTES_MAX: usize = 1_024;

/// Most bytes that one compiled `pattern` may take: counted repetitions grow it far beyond its text.
const PATTERN_COMPILED_BYTES_MAX: usize = 1024 * 1024;

/// A compiled schema.
pub struct Schema {
    source: Node,
    validator: Validator,
    has_defaults: bool,
    /// A schema that refers to itself is judged, but its violations are not named: the validator remembers what it has
    /// judged, while naming goes down every path, of which there may be as many as 2 to the power of the depth.
    is_recursive: bool,
}

/// Why a schema does not compile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SchemaError {
    /// What is wrong.
    pub message: String,
    /// Where in the schema: a JSON pointer, empty for the whole.
    pub pointer: String,
}

/// Refuses every reference out of the document.
struct NoRemote;

impl Retrieve for NoRemote {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn Error + Send + Sync>> {
        Err(format!("`{uri}` is another document; put what is shared under `$defs`").into())
    }
}

impl Schema {
    /// Compiles a schema from JSON text.
    ///
    /// # Errors
    ///
    /// [`SchemaError`], if it is no JSON Schema 2020-12 or refers to another document.
    pub fn compile(text: &str) -> Result<Self, SchemaError> {
        let node = super::source::read_json(text).map_err(|faults| SchemaError {
            message: faults.into_iter().next().map_or_else(String::new, |fault| fault.message),
            pointer: String::new(),
        })?;
        Self::from_node(&node)
    }

    /// Compiles a schema from a part of a definition.
    pub(super) fn from_node(node: &Node) -> Result<Self, SchemaError> {
        let fail = |message: String| SchemaError { message, pointer: String::new() };
        match node.value {
            NodeValue::Object(_) | NodeValue::Bool(_) => {}
            NodeValue::Null | NodeValue::Number(_) | NodeValue::Text(_) | NodeValue::List(_) => {
                return Err(fail(format!("a schema is an object or a boolean, not {}", node.kind())));
            }
        }
        let text = node.to_json();
        let document: Value =
            serde_json::from_str(&text).map_err(|error| fail(format!("the schema cannot be read: {error}")))?;
        let mut pointer = String::new();
        check_patterns(&document, &mut pointer)?;
        let extent = extent::measure(&document)?;
        let validator = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .with_retriever(NoRemote)
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_COMPILED_BYTES_MAX))
            .build(&document)
            .map_err(|error| SchemaError { message: error.to_string(), pointer: error.instance_path().to_string() })?;
        let has_defaults = text.contains("\"default\"");
        Ok(Self { source: node.clone(), validator, has_defaults, is_recursive: extent.is_recursive })
    }

    /// The schema's document.
    pub(super) fn source(&self) -> &Node {
        &self.source
    }

    /// The schema's document as JSON text, its members in the order in which they were written.
    #[must_use]
    pub fn to_json(&self) -> String {
        self.source.to_json()
    }

    /// Checks a payload.
    ///
    /// # Errors
    ///
    /// The first few violations, each with its place in the payload. Values of the payload are not quoted at length.
    /// Of a schema that refers to itself they are not named.
    pub fn validate(&self, payload: &Payload) -> Result<(), String> {
        let instance: Value =
            serde_json::from_str(payload.as_str()).map_err(|error| format!("the value cannot be read: {error}"))?;
        if self.validator.is_valid(&instance) {
            return Ok(());
        }
        if self.is_recursive {
            return Err("the value does not fit; where is not told of a schema that refers to itself".to_owned());
        }
        let mut errors = self.validator.iter_errors(&instance);
        let mut violations: Vec<String> = errors.by_ref().take(VIOLATIONS_MAX).map(|error| violation(&error)).collect();
        if errors.next().is_some() {
            violations.push("…".to_owned());
        }
        Err(violations.join("; "))
    }

    /// The payload with the `default`s of absent members filled in, through `properties` and `items`. A payload that
    /// lacks nothing comes back as it is; otherwise what was there keeps its text. References are not followed.
    #[must_use]
    pub fn with_defaults(&self, payload: &Payload) -> Payload {
        if !self.has_defaults {
            return payload.clone();
        }
        match filled(&self.source, payload.as_str()) {
            Some(text) if text.len() <= PAYLOAD_BYTES_MAX => Payload::from_json(text),
            Some(_) | None => payload.clone(),
        }
    }
}

/// `text` with defaults, or `None` if it lacks nothing. Payloads are well formed, so a text that cannot be read lacks
/// nothing as well. Recursion follows the schema, which is 64 deep at most.
fn filled(schema: &Node, text: &str) -> Option<String> {
    let mut cursor = json::Cursor::new(text);
    match cursor.peek()? {
        b'{' => filled_object(members(schema.get("properties")?), text),
        b'[' => filled_list(schema.get("prefixItems"), schema.get("items"), text),
        _ => None,
    }
}

/// The members of an object; of anything else none.
fn members(node: &Node) -> &[Entry] {
    match &node.value {
        NodeValue::Object(entries) => entries,
        NodeValue::Null | NodeValue::Bool(_) | NodeValue::Number(_) | NodeValue::Text(_) | NodeValue::List(_) => &[],
    }
}

fn filled_object(properties: &[Entry], text: &str) -> Option<String> {
    let mut cursor = json::Cursor::new(text);
    let mut members: Vec<(String, &str)> = Vec::new();
    cursor.expect(b'{', "expected an object").ok()?;
    if !cursor.take(b'}') {
        loop {
            let name = cursor.string().ok()?.into_owned();
            cursor.expect(b':', "expected a colon").ok()?;
            members.push((name, cursor.slice().ok()?));
            if cursor.take(b'}') {
                break;
            }
            cursor.expect(b',', "expected a comma").ok()?;
        }
    }
    // Both sides may be long, so neither is searched once for each entry of the other.
    let schemas: HashMap<&str, &Node> = properties.iter().map(|entry| (&*entry.key, &entry.node)).collect();
    let present: HashSet<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
    let mut changed = false;
    let mut out = String::from("{");
    let separate = |out: &mut String| {
        if out.len() > 1 {
            out.push(',');
        }
    };
    for (name, value) in &members {
        separate(&mut out);
        json::write_string(&mut out, name);
        out.push(':');
        match schemas.get(name.as_str()).and_then(|schema| filled(schema, value)) {
            Some(value) => {
                changed = true;
                out.push_str(&value);
            }
            None => out.push_str(value),
        }
    }
    for Entry { key, node: schema, .. } in properties {
        let Some(default) = schema.get("default") else { continue };
        if present.contains(&**key) {
            continue;
        }
        changed = true;
        separate(&mut out);
        json::write_string(&mut out, key);
        out.push(':');
        let default = default.to_json();
        // A default that is an object may itself lack members that have defaults.
        out.push_str(&filled(schema, &default).unwrap_or(default));
    }
    out.push('}');
    changed.then_some(out)
}

fn filled_list(prefix: Option<&Node>, rest: Option<&Node>, text: &str) -> Option<String> {
    let mut cursor = json::Cursor::new(text);
    cursor.expect(b'[', "expected an array").ok()?;
    if cursor.take(b']') {
        return None;
    }
    let prefix = match prefix.map(|prefix| &prefix.value) {
        Some(NodeValue::List(schemas)) => schemas.as_slice(),
        Some(_) | None => &[],
    };
    let mut changed = false;
    let mut out = String::from("[");
    for index in 0.. {
        if index > 0 {
            out.push(',');
        }
        let value = cursor.slice().ok()?;
        let schema = prefix.get(index).or(rest);
        match schema.and_then(|schema| filled(schema, value)) {
            Some(value) => {
                changed = true;
                out.push_str(&value);
            }
            None => out.push_str(value),
        }
        if cursor.take(b']') {
            break;
        }
        cursor.expect(b',', "expected a comma").ok()?;
    }
    out.push(']');
    changed.then_some(out)
}

/// Refuses patterns whose size alone is a burden.
fn check_patterns(document: &Value, pointer: &mut String) -> Result<(), SchemaError> {
    let length = pointer.len();
    match document {
        Value::Object(members) => {
            for (name, member) in members {
                pointer.push('/');
                pointer.push_str(name);
                let pattern = if name == "pattern" { member.as_str() } else { None };
                let names = if name == "patternProperties" { member.as_object() } else { None };
                let patterns = pattern.into_iter().chain(names.into_iter().flatten().map(|(name, _)| &**name));
                if let Some(long) = patterns.map(str::len).find(|length| *length > PATTERN_BYTES_MAX) {
                    let message = format!("a pattern has {long} bytes; one may have {PATTERN_BYTES_MAX}");
                    return Err(SchemaError { message, pointer: pointer.clone() });
                }
                check_patterns(member, pointer)?;
                pointer.truncate(length);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                pointer.push('/');
                pointer.push_str(&index.to_string());
                check_patterns(item, pointer)?;
                pointer.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(())
}

fn violation(error: &jsonschema::ValidationError<'_>) -> String {
    const MESSAGE_CHARACTERS_MAX: usize = 200;
    let path = error.instance_path().to_string();
    let message = error.to_string();
    let message = shorten(&message, MESSAGE_CHARACTERS_MAX);
    if path.is_empty() { message.into_owned() } else { format!("`{path}`: {message}") }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({})", self.source.to_json())
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.source.to_canonical_json() == other.source.to_canonical_json()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(text: &str) -> Schema {
        Schema::compile(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn payloads_are_checked_and_violations_have_a_place() {
        let order = schema(
            r#"{"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}, "items": {"type": "array", "items": {"type": "object", "properties": {"cents": {"type": "integer", "minimum": 0}}}}}}"#,
        );
        for (payload, expected) in [
            (r#"{"id": "a", "items": [{"cents": 1}]}"#, None),
            (r#"{"id": "a", "items": [{"cents": 12345678901234567890123}]}"#, None),
            (r#"{"id": "a", "items": [{"cents": 1.0}]}"#, None),
            ("{}", Some("\"id\" is a required property")),
            (r#"{"id": 5}"#, Some("`/id`: 5 is not of type \"string\"")),
            (r#"{"id": "a", "items": [{"cents": -1}]}"#, Some("`/items/0/cents`: -1 is less than the minimum of 0")),
            ("null", Some("null is not of type \"object\"")),
        ] {
            let found = order.validate(&Payload::from_json(payload));
            assert_eq!(found.err().as_deref(), expected, "{payload}");
        }
    }

    #[test]
    fn many_violations_are_not_all_named_and_long_values_are_cut() {
        let numbers = schema(r#"{"items": {"type": "integer"}}"#);
        let texts = format!("[{}]", vec![format!("\"{}\"", "x".repeat(1_000)); 20].join(","));
        let message = numbers.validate(&Payload::from_json(texts)).unwrap_err();
        assert!(message.matches("`/").count() == VIOLATIONS_MAX && message.ends_with("; …"), "{message}");
        assert!(message.len() < 2_000);
    }

    #[test]
    fn schemas_that_cannot_be_trusted_do_not_compile() {
        for text in [
            "",
            "5",
            "null",
            "[]",
            r#"{"type": "nonsense"}"#,
            r#"{"minimum": "1"}"#,
            r##"{"$ref": "#/$defs/missing"}"##,
            r#"{"$ref": "https://example.com/schema.json"}"#,
            r#"{"$ref": "file:///etc/passwd"}"#,
            r#"{"pattern": "("}"#,
            r#"{"pattern": "((a{1,1000}){1,1000}){1,1000}"}"#,
        ] {
            assert!(Schema::compile(text).is_err(), "{text}");
        }
        let long = format!(r#"{{"properties": {{"a": {{"pattern": "{}"}}}}}}"#, "a".repeat(PATTERN_BYTES_MAX + 1));
        assert_eq!(Schema::compile(&long).unwrap_err().pointer, "/properties/a/pattern");
        assert!(Schema::compile("true").is_ok() && Schema::compile("{}").is_ok());
    }

    #[test]
    fn references_within_the_schema_work() {
        let tree = schema(
            r##"{"$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}}, "$ref": "#/$defs/node"}"##,
        );
        assert_eq!(tree.validate(&Payload::from_json(r#"{"next": {"next": {}}}"#)), Ok(()));
        assert!(tree.validate(&Payload::from_json(r#"{"next": {"next": 5}}"#)).is_err());
    }

    #[test]
    fn a_schema_with_exponentially_many_paths_judges_fast_or_is_refused() {
        let branch = |name| {
            format!(r##"{{"allOf": [{{"properties": {{"a": {{"$ref": "#"}}}}}}, {{"required": ["{name}"]}}]}}"##)
        };
        let deep = format!("{}1{}", r#"{"a": "#.repeat(100), "}".repeat(100));
        for keyword in ["anyOf", "oneOf"] {
            let tree =
                schema(&format!(r#"{{"{keyword}": [{}, {}, {{"type": "integer"}}]}}"#, branch("b"), branch("c")));
            let refused = tree.validate(&Payload::from_json(deep.as_str())).unwrap_err();
            assert!(refused.contains("refers to itself"), "{refused}");
        }
        let levels: Vec<_> = (0..40)
            .map(|level| {
                format!(
                    r##""d{level}": {{"anyOf": [{{"$ref": "#/$defs/d{0}"}}, {{"$ref": "#/$defs/d{0}"}}]}}"##,
                    level + 1
                )
            })
            .collect();
        let doubling = format!(r##"{{"$ref": "#/$defs/d0", "$defs": {{{}, "d40": false}}}}"##, levels.join(", "));
        assert!(Schema::compile(&doubling).is_err());
    }

    #[test]
    fn defaults_fill_in_what_is_absent_and_nothing_else() {
        let order = schema(
            r#"{"properties": {
                "express": {"default": false}, "count": {"default": 12345678901234567890123},
                "items": {"items": {"properties": {"quantity": {"default": 1}}}},
                "pair": {"prefixItems": [{"properties": {"a": {"default": 1}}}], "items": {"properties": {"b": {"default": 2}}}},
                "address": {"default": {}, "properties": {"country": {"default": "de"}}}
            }}"#,
        );
        for (payload, expected) in [
            (
                r#"{"n":1.50}"#,
                r#"{"n":1.50,"express":false,"count":12345678901234567890123,"address":{"country":"de"}}"#,
            ),
            (
                r#"{"express": null, "count": 1e5, "address": {"country": "fr"}, "items": [{"quantity": 9007199254740993}, {}, 5]}"#,
                r#"{"express":null,"count":1e5,"address":{"country": "fr"},"items":[{"quantity": 9007199254740993},{"quantity":1},5]}"#,
            ),
            (
                r#"{"express":true,"count":1,"address":{"country":""},"pair":[{},{}]}"#,
                r#"{"express":true,"count":1,"address":{"country":""},"pair":[{"a":1},{"b":2}]}"#,
            ),
        ] {
            assert_eq!(order.with_defaults(&Payload::from_json(payload)).as_str(), expected, "{payload}");
        }
    }

    #[test]
    fn a_payload_that_lacks_nothing_stays_byte_for_byte() {
        let order = schema(
            r#"{"properties": {"a": {"default": 1}, "list": {"items": {"properties": {"b": {"default": 2}}}}}}"#,
        );
        for payload in [r#" {"a" : 1.0 , "list":[ {"b":3} ]} "#, "null", "[]", "5", "\"text\"", r#"{"a":null}"#] {
            assert_eq!(order.with_defaults(&Payload::from_json(payload)).as_str(), payload);
        }
        let plain = schema(r#"{"properties": {"a": {"type": "integer"}}}"#);
        assert_eq!(plain.with_defaults(&Payload::from_json("{}")).as_str(), "{}");
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        for text in [
            r##"{"$ref": "#"}"##,
            r##"{"allOf": [{"$ref": "#"}]}"##,
            r##"{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}"##,
            r##"{"$dynamicRef": "#x", "$dynamicAnchor": "x"}"##,
        ] {
            assert_eq!(schema(text).validate(&Payload::from_json("{}")), Ok(()), "{text}");
        }
    }
}
