//! Reads the text of a definition, YAML 1.2 or JSON, into one tree.
//!
//! Only what JSON can say is taken: no anchors, aliases, tags or second documents, no duplicate keys. Numbers keep
//! every digit. The text is bounded in size and depth before anything walks it.

use super::{
    fault::{Fault, code},
    node::{DEPTH_MAX, Entry, Mark, Node, Value},
    yaml,
};
use crate::domain::json::{Cursor, JsonError};
use std::collections::HashSet;

/// Most bytes of a definition's text: 1 MiB.
pub const SOURCE_BYTES_MAX: usize = 1024 * 1024;

/// Reads `text`. A text that begins with a brace is tried as JSON first, since YAML reads a few escapes differently.
pub(super) fn read(file_name: &str, text: &str) -> Result<Node, Vec<Fault>> {
    if text.len() > SOURCE_BYTES_MAX {
        return Err(vec![Fault {
            code: code::SOURCE_TOO_LARGE,
            message: format!("the text has {} bytes; a definition may have {SOURCE_BYTES_MAX}", text.len()),
            hint: "split the workflow".to_owned(),
            path: String::new(),
            line: 0,
            column: 0,
        }]);
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let looks_like_json = text.trim_start().starts_with('{');
    let is_json = file_name.to_ascii_lowercase().ends_with(".json");
    if looks_like_json || is_json {
        match read_json(text) {
            Ok(node) => return Ok(node),
            // A flow mapping of YAML begins like JSON; other faults than of syntax are what they are.
            Err(faults) if is_json || faults.iter().any(|fault| fault.code != code::SOURCE_SYNTAX) => {
                return Err(faults);
            }
            Err(_) => {}
        }
    }
    yaml::read(text)
}

/// Reads JSON text.
pub(super) fn read_json(text: &str) -> Result<Node, Vec<Fault>> {
    let mut reader = JsonReader { cursor: Cursor::new(text), tracker: Tracker::new(text), faults: Vec::new() };
    let node = reader.document();
    let JsonReader { mut faults, .. } = reader;
    match node {
        Ok(node) if faults.is_empty() => Ok(node),
        Ok(_) => Err(faults),
        Err(Stop::Syntax(error)) => {
            let mark = Tracker::new(text).mark(error.at);
            faults.push(fault(code::SOURCE_SYNTAX, mark, error.message, "the text must be one JSON document"));
            Err(faults)
        }
        Err(Stop::Depth(mark)) => {
            faults.push(nesting(mark));
            Err(faults)
        }
    }
}

/// A fault of the text as such, which is of no field.
pub(super) fn fault(code: &'static str, mark: Mark, message: &str, hint: &str) -> Fault {
    Fault {
        code,
        message: message.to_owned(),
        hint: hint.to_owned(),
        path: String::new(),
        line: mark.line,
        column: mark.column,
    }
}

/// The fault of a list or object that is nested too deep.
pub(super) fn nesting(mark: Mark) -> Fault {
    fault(
        code::SOURCE_NESTING,
        mark,
        &format!("lists and objects are nested more than {DEPTH_MAX} deep"),
        "flatten the document",
    )
}

/// The fault of a key that stands twice.
pub(super) fn duplicate_key(mark: Mark, key: &str) -> Fault {
    fault(code::DUPLICATE_KEY, mark, &format!("the key `{key}` stands twice in this object"), "keep one of them")
}

/// The fault of a text with a character that no store keeps.
pub(super) fn character_refused(mark: Mark) -> Fault {
    fault(code::CHARACTER_REFUSED, mark, "the text holds the character U+0000", "remove it")
}

enum Stop {
    Syntax(JsonError),
    Depth(Mark),
}

impl From<JsonError> for Stop {
    fn from(error: JsonError) -> Self {
        Self::Syntax(error)
    }
}

struct JsonReader<'t> {
    cursor: Cursor<'t>,
    tracker: Tracker<'t>,
    faults: Vec<Fault>,
}

impl JsonReader<'_> {
    fn document(&mut self) -> Result<Node, Stop> {
        if self.cursor.peek().is_none() {
            return Err(self.cursor.error("the text is empty").into());
        }
        let node = self.value(0)?;
        match self.cursor.peek() {
            None => Ok(node),
            Some(_) => Err(self.cursor.error("text after the end of the document").into()),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, Stop> {
        let first = self.cursor.peek();
        let start = self.tracker.mark(self.cursor.offset());
        if depth == DEPTH_MAX && matches!(first, Some(b'{' | b'[')) {
            return Err(Stop::Depth(start));
        }
        let value = match first {
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.list(depth)?,
            Some(b'"') => Value::Text(self.string(start)?),
            Some(b'-' | b'0'..=b'9') => Value::Number(self.cursor.number()?.into()),
            Some(_) | None => match self.cursor.word()? {
                "null" => Value::Null,
                word => Value::Bool(word == "true"),
            },
        };
        Ok(Node { value, start, end: self.tracker.mark(self.cursor.offset()) })
    }

    fn object(&mut self, depth: usize) -> Result<Value, Stop> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut keys = HashSet::new();
        self.cursor.expect(b'{', "expected an object")?;
        if self.cursor.take(b'}') {
            return Ok(Value::Object(entries));
        }
        loop {
            self.cursor.peek();
            let mark = self.tracker.mark(self.cursor.offset());
            let key = self.string(mark)?;
            self.cursor.expect(b':', "expected a colon after the key")?;
            let node = self.value(depth + 1)?;
            if keys.insert(key.clone()) {
                entries.push(Entry { key, mark, node });
            } else {
                self.faults.push(duplicate_key(mark, &key));
            }
            if self.cursor.take(b'}') {
                return Ok(Value::Object(entries));
            }
            self.cursor.expect(b',', "expected a comma or a closing brace")?;
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, Stop> {
        let mut items = Vec::new();
        self.cursor.expect(b'[', "expected an array")?;
        if self.cursor.take(b']') {
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.cursor.take(b']') {
                return Ok(Value::List(items));
            }
            self.cursor.expect(b',', "expected a comma or a closing bracket")?;
        }
    }

    fn string(&mut self, mark: Mark) -> Result<Box<str>, Stop> {
        let text = self.cursor.string()?;
        if text.contains('\0') {
            self.faults.push(character_refused(mark));
        }
        Ok(text.into())
    }
}

/// Turns ascending byte offsets into lines and columns in one pass over the text.
struct Tracker<'t> {
    text: &'t str,
    at: usize,
    mark: Mark,
}

impl<'t> Tracker<'t> {
    fn new(text: &'t str) -> Self {
        Self { text, at: 0, mark: Mark { line: 1, column: 1 } }
    }

    fn mark(&mut self, at: usize) -> Mark {
        let at = at.min(self.text.len());
        for byte in &self.text.as_bytes()[self.at.min(at)..at] {
            if *byte == b'\n' {
                self.mark.line += 1;
                self.mark.column = 1;
            } else if byte & 0xc0 != 0x80 {
                // Every character has one byte that does not continue another.
                self.mark.column += 1;
            }
        }
        self.at = at;
        self.mark
    }
}

/// Where `offset` bytes into `part` stands in `text`, if `part` is written literally between the two marks; else where
/// the node begins. An escape or a folded line between them makes the place approximate, never wrong about the node.
pub(super) fn locate(text: &str, start: Mark, end: Mark, part: &str, offset: usize) -> Mark {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (Some(from), Some(to)) = (byte_offset(text, start), byte_offset(text, end)) else { return start };
    let Some(raw) = text.get(from..to.max(from)) else { return start };
    let Some(found) = raw.find(part) else { return start };
    let mut offset = offset.min(part.len());
    while !part.is_char_boundary(offset) {
        offset -= 1;
    }
    Tracker::new(text).mark(from + found + offset)
}

fn byte_offset(text: &str, mark: Mark) -> Option<usize> {
    let mut start = 0;
    for _ in 1..mark.line {
        start += text[start..].find('\n')? + 1;
    }
    let line = &text[start..];
    let column = usize::try_from(mark.column).ok()?.checked_sub(1)?;
    line.char_indices().map(|(at, _)| at).chain([line.len()]).nth(column).map(|at| start + at)
}
