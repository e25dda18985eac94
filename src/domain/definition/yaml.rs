//! Reads YAML 1.2 by its core schema.

use super::{
    fault::{Fault, code},
    node::{DEPTH_MAX, Entry, Mark, Node, Value},
    source::{character_refused, duplicate_key, fault, nesting},
};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput};
use std::{borrow::Cow, collections::HashSet};

/// Faults of the text that are collected before reading gives up: an endless list helps nobody.
const FAULTS_MAX: usize = 100;

/// Reads one YAML document.
pub(super) fn read(text: &str) -> Result<Node, Vec<Fault>> {
    let mut builder = Builder::default();
    // The parser keeps a stack of its own, so depth costs no recursion here.
    for event in Parser::new(StrInput::new(text)) {
        match event {
            Ok((event, span)) => {
                if !builder.take(event, span) || builder.faults.len() >= FAULTS_MAX {
                    break;
                }
            }
            Err(error) => {
                let message = format!("the text is not YAML: {}", error.info());
                builder.faults.push(fault(
                    code::SOURCE_SYNTAX,
                    mark(error.marker()),
                    &message,
                    "check indentation, quotes and brackets",
                ));
                break;
            }
        }
    }
    let Builder { root, faults, .. } = builder;
    match root {
        Some(root) if faults.is_empty() => Ok(root),
        None if faults.is_empty() => Err(vec![fault(
            code::SOURCE_EMPTY,
            Mark { line: 1, column: 1 },
            "the text holds no document",
            "write a definition",
        )]),
        Some(_) | None => Err(faults),
    }
}

fn mark(marker: &Marker) -> Mark {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Mark { line: count(marker.line()), column: count(marker.col().saturating_add(1)) }
}

/// A list or object whose end has not come yet.
enum Open {
    List { items: Vec<Node>, start: Mark },
    Object { entries: Vec<Entry>, keys: HashSet<Box<str>>, key: Option<(Box<str>, Mark)>, start: Mark },
}

#[derive(Default)]
struct Builder {
    stack: Vec<Open>,
    root: Option<Node>,
    documents: usize,
    faults: Vec<Fault>,
}

impl Builder {
    /// Takes the next event; false ends the reading.
    fn take(&mut self, event: Event<'_>, span: Span) -> bool {
        let start = mark(&span.start);
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    self.faults.push(fault(
                        code::MULTIPLE_DOCUMENTS,
                        start,
                        "the text holds more than one document",
                        "put each definition into a file of its own",
                    ));
                    return false;
                }
            }
            Event::Alias(_) => {
                self.refuse_anchor(start);
                self.place(Node { value: Value::Null, start, end: mark(&span.end) });
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_extras(anchor, tag.is_some(), start);
                if text.contains('\0') {
                    self.faults.push(character_refused(start));
                }
                let node = self.scalar(text, style, span);
                self.place(node);
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_extras(anchor, tag.is_some(), start);
                return self.open(Open::List { items: Vec::new(), start }, start);
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_extras(anchor, tag.is_some(), start);
                return self.open(Open::Object { entries: Vec::new(), keys: HashSet::new(), key: None, start }, start);
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let end = mark(&span.end);
                match self.stack.pop() {
                    Some(Open::List { items, start }) => self.place(Node { value: Value::List(items), start, end }),
                    Some(Open::Object { entries, start, .. }) => {
                        self.place(Node { value: Value::Object(entries), start, end })
                    }
                    None => {}
                }
            }
        }
        true
    }

    fn open(&mut self, open: Open, start: Mark) -> bool {
        if let Some(Open::Object { key: None, .. }) = self.stack.last() {
            self.faults.push(fault(
                code::KEY_NOT_TEXT,
                start,
                "a key must be a text, not a list or an object",
                "write the key as a text",
            ));
            return false;
        }
        if self.stack.len() == DEPTH_MAX {
            self.faults.push(nesting(start));
            return false;
        }
        self.stack.push(open);
        true
    }

    fn refuse_extras(&mut self, anchor: usize, tagged: bool, start: Mark) {
        if anchor > 0 {
            self.refuse_anchor(start);
        }
        if tagged {
            self.faults.push(fault(
                code::TAG_REFUSED,
                start,
                "YAML tags are not taken",
                "remove the tag; quote a value that must be a text",
            ));
        }
    }

    fn refuse_anchor(&mut self, start: Mark) {
        self.faults.push(fault(
            code::ANCHOR_REFUSED,
            start,
            "YAML anchors and aliases are not taken",
            "write the value out at each place",
        ));
    }

    /// Puts a finished node where it belongs: as a key, a member, an item or the root.
    fn place(&mut self, node: Node) {
        match self.stack.last_mut() {
            None => self.root = Some(node),
            Some(Open::List { items, .. }) => items.push(node),
            Some(Open::Object { key: slot @ None, .. }) => {
                let key = match node.value {
                    Value::Text(text) => text,
                    // `1:`, `true:` and `null:` name a member too, as their text.
                    Value::Number(text) => text,
                    Value::Bool(flag) => flag.to_string().into(),
                    Value::Null => {
                        self.faults.push(fault(
                            code::KEY_NOT_TEXT,
                            node.start,
                            "a key must be a text",
                            "write the key as a text",
                        ));
                        "".into()
                    }
                    Value::List(_) | Value::Object(_) => unreachable!("`open` refuses lists and objects as keys"),
                };
                *slot = Some((key, node.start));
            }
            Some(Open::Object { entries, keys, key: slot, .. }) => {
                let (key, mark) = slot.take().expect("the arm above takes objects without a key");
                if keys.insert(key.clone()) {
                    entries.push(Entry { key, mark, node });
                } else {
                    self.faults.push(duplicate_key(mark, &key));
                }
            }
        }
    }

    fn scalar(&mut self, text: Cow<'_, str>, style: ScalarStyle, span: Span) -> Node {
        let (start, end) = (mark(&span.start), mark(&span.end));
        let value = match style {
            ScalarStyle::Plain => match plain(&text) {
                Some(value) => value,
                None => {
                    let message = format!("`{text}` is a number that JSON cannot write");
                    self.faults.push(fault(code::NUMBER_INVALID, start, &message, "quote it to make it a text"));
                    Value::Null
                }
            },
            ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted | ScalarStyle::Literal | ScalarStyle::Folded => {
                Value::Text(text.into())
            }
        };
        Node { value, start, end }
    }
}

/// The value of a plain scalar by YAML's core schema; `None` for a number that JSON has no form for.
fn plain(text: &str) -> Option<Value> {
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return None,
        _ => {
            let (sign, digits) = match text.strip_prefix('-') {
                Some(rest) => ("-", rest),
                None => ("", text.strip_prefix('+').unwrap_or(text)),
            };
            match digits {
                ".inf" | ".Inf" | ".INF" => return None,
                _ => match number(sign, text, digits)? {
                    Some(number) => Value::Number(number.into()),
                    None => Value::Text(text.into()),
                },
            }
        }
    })
}

/// The JSON text of a number: `Some(None)` if it is none, `None` if JSON cannot write it.
fn number(sign: &str, text: &str, digits: &str) -> Option<Option<String>> {
    // Octal and hexadecimal take no sign in the core schema.
    for (prefix, radix) in [("0o", 8), ("0x", 16)] {
        if let Some(rest) = text.strip_prefix(prefix) {
            if rest.is_empty() || !rest.chars().all(|digit| digit.is_digit(radix)) {
                return Some(None);
            }
            return u128::from_str_radix(rest, radix).ok().map(|number| Some(number.to_string()));
        }
    }
    let (mantissa, exponent) = match digits.find(['e', 'E']) {
        Some(at) => (&digits[..at], Some(&digits[at + 1..])),
        None => (digits, None),
    };
    let (whole, fraction) = match mantissa.find('.') {
        Some(at) => (&mantissa[..at], Some(&mantissa[at + 1..])),
        None => (mantissa, None),
    };
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let exponent_digits = exponent.map(|part| part.strip_prefix(['+', '-']).unwrap_or(part));
    let well_formed = all_digits(whole)
        && fraction.is_none_or(all_digits)
        && !(whole.is_empty() && fraction.is_none_or(str::is_empty))
        && exponent_digits.is_none_or(|part| !part.is_empty() && all_digits(part));
    if !well_formed {
        return Some(None);
    }
    let significant = whole.trim_start_matches('0');
    let mut out = String::from(sign);
    out.push_str(if significant.is_empty() { "0" } else { significant });
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(if fraction.is_empty() { "0" } else { fraction });
    }
    if let Some(exponent) = exponent {
        out.push('e');
        out.push_str(exponent);
    }
    Some(Some(out))
}
