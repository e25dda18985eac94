//! A document as a tree, whatever syntax it was written in, with the place of every node.

use crate::domain::json;
use std::fmt::Write as _;

/// Deepest nesting of lists and objects. Everything that walks a tree may recurse: this bounds its stack.
pub(super) const DEPTH_MAX: usize = 64;

/// A place in a text, both counted from 1, columns in characters. Line 0: no place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark {
    pub(super) line: u32,
    pub(super) column: u32,
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) start: Mark,
    pub(super) end: Mark,
}

/// A JSON value; numbers are kept as JSON text, digit for digit.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(Box<str>),
    Text(Box<str>),
    List(Vec<Node>),
    Object(Vec<Entry>),
}

/// One member of an object; keys are unique.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: Box<str>,
    pub(super) mark: Mark,
    pub(super) node: Node,
}

impl Node {
    /// A node that stands nowhere.
    pub(super) fn made(value: Value) -> Self {
        Self { value, start: Mark::default(), end: Mark::default() }
    }

    /// A text that stands nowhere.
    pub(super) fn text(text: &str) -> Self {
        Self::made(Value::Text(text.into()))
    }

    /// An object that stands nowhere.
    pub(super) fn object(entries: impl IntoIterator<Item = (Box<str>, Node)>) -> Self {
        let entries = entries.into_iter().map(|(key, node)| Entry { key, mark: Mark::default(), node }).collect();
        Self::made(Value::Object(entries))
    }

    /// What kind of value this is, as people say it.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Object(_) => "an object",
        }
    }

    /// The member `key` of an object.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Object(entries) => entries.iter().find(|entry| *entry.key == *key).map(|entry| &entry.node),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) => None,
        }
    }

    /// The node at a JSON pointer, or the nearest one above it.
    pub(super) fn at_pointer(&self, pointer: &str) -> &Node {
        let mut node = self;
        for part in pointer.split('/').skip(1) {
            let part = part.replace("~1", "/").replace("~0", "~");
            let below = match &node.value {
                Value::List(items) => part.parse::<usize>().ok().and_then(|index| items.get(index)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::Object(_) => node.get(&part),
            };
            match below {
                Some(below) => node = below,
                None => break,
            }
        }
        node
    }

    /// JSON text without white space, members in their order.
    pub(super) fn to_json(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, false);
        out
    }

    /// JSON text without white space, members sorted by key: equal for documents of equal meaning.
    pub(super) fn to_canonical_json(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, true);
        out
    }

    fn write(&self, out: &mut String, sorted: bool) {
        match &self.value {
            Value::Null => out.push_str("null"),
            Value::Bool(flag) => write!(out, "{flag}").expect("a string takes everything"),
            Value::Number(digits) => out.push_str(digits),
            Value::Text(text) => json::write_string(out, text),
            Value::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write(out, sorted);
                }
                out.push(']');
            }
            Value::Object(entries) => {
                let mut order: Vec<&Entry> = entries.iter().collect();
                if sorted {
                    order.sort_by(|left, right| left.key.cmp(&right.key));
                }
                out.push('{');
                for (index, entry) in order.into_iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    json::write_string(out, &entry.key);
                    out.push(':');
                    entry.node.write(out, sorted);
                }
                out.push('}');
            }
        }
    }
}
