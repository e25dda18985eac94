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

#[cfg(test)]
mod tests {
    use super::*;

    fn json_of(text: &str) -> String {
        read("x.yaml", text).unwrap_or_else(|faults| panic!("{text}: {faults:?}")).to_json()
    }

    #[test]
    fn yaml_reads_by_its_core_schema() {
        for (text, expected) in [
            ("a: 1", r#"{"a":1}"#),
            (
                "a: [1, -2, +3, 007, 0x1F, 0o17, 12345678901234567890123]",
                r#"{"a":[1,-2,3,7,31,15,12345678901234567890123]}"#,
            ),
            ("a: [1.50, .5, 5., 1e3, -1.5E-7, 0.0]", r#"{"a":[1.50,0.5,5.0,1e3,-1.5e-7,0.0]}"#),
            ("a: [null, ~, Null, NULL, ]", r#"{"a":[null,null,null,null]}"#),
            ("a:\nb: ''", r#"{"a":null,"b":""}"#),
            ("a: [true, True, FALSE]", r#"{"a":[true,true,false]}"#),
            // YAML 1.1 would read these otherwise.
            (
                "a: [yes, no, on, off, 1_000, 0777x, 1:30, 2026-01-01, 0b1, =, <<]",
                r#"{"a":["yes","no","on","off","1_000","0777x","1:30","2026-01-01","0b1","=","<<"]}"#,
            ),
            ("a: ['1', \"true\", 'it''s', \"\\u00e9\\t\"]", r#"{"a":["1","true","it's","é\t"]}"#),
            ("a: |\n  x\n  y\nb: >-\n  x\n  y\n", r#"{"a":"x\ny\n","b":"x y"}"#),
            ("1: a\ntrue: b\n", r#"{"1":"a","true":"b"}"#),
            ("- a\n- - b\n- c: d\n", r#"["a",["b"],{"c":"d"}]"#),
            ("{a: b, 'c': [d]}", r#"{"a":"b","c":["d"]}"#),
            ("---\na: 1\n...\n", r#"{"a":1}"#),
            ("\u{feff}a: 1", r#"{"a":1}"#),
            ("a: 1 # note\r\nb: 2\r\n", r#"{"a":1,"b":2}"#),
            ("a: ${ input.x }\nb: {c: \"${ {'d': 1} }\"}", r#"{"a":"${ input.x }","b":{"c":"${ {'d': 1} }"}}"#),
        ] {
            assert_eq!(json_of(text), expected, "{text}");
        }
    }

    #[test]
    fn json_is_read_exactly() {
        for (text, expected) in [
            (
                r#" {"a" : [ 1.50, 1E5, -0, 12345678901234567890123 ] } "#,
                r#"{"a":[1.50,1E5,-0,12345678901234567890123]}"#,
            ),
            (r#"{"a":"\ud83d\ude00\u0041\/"}"#, r#"{"a":"😀A/"}"#),
            ("\t{\n\t\"a\":\t1\n}", r#"{"a":1}"#),
            ("{}", "{}"),
        ] {
            assert_eq!(json_of(text), expected, "{text}");
        }
    }

    #[test]
    fn texts_that_json_cannot_say_are_refused_at_their_place() {
        let deep = format!("{}{}", "[".repeat(65), "]".repeat(65));
        for (name, text, expected, line, column) in [
            ("x.yaml", "", code::SOURCE_EMPTY, 1, 1),
            ("x.yaml", "# nothing\n", code::SOURCE_EMPTY, 1, 1),
            ("x.yaml", "a: 1\n---\nb: 2\n", code::MULTIPLE_DOCUMENTS, 2, 1),
            ("x.yaml", "a: &x 1\n", code::ANCHOR_REFUSED, 1, 4),
            ("x.yaml", "a: !!str 5\n", code::TAG_REFUSED, 1, 4),
            ("x.yaml", "a: 1\nb: 2\na: 3\n", code::DUPLICATE_KEY, 3, 1),
            ("x.yaml", "a: {b: 1, b: 2}\n", code::DUPLICATE_KEY, 1, 11),
            ("x.yaml", "? [a]\n: 1\n", code::KEY_NOT_TEXT, 1, 3),
            ("x.yaml", "~: 1\n", code::KEY_NOT_TEXT, 1, 1),
            ("x.yaml", "a: .inf\n", code::NUMBER_INVALID, 1, 4),
            ("x.yaml", "a: .NaN\n", code::NUMBER_INVALID, 1, 4),
            ("x.yaml", "a: \"\\0\"\n", code::CHARACTER_REFUSED, 1, 4),
            ("x.yaml", "a: [1\n", code::SOURCE_SYNTAX, 2, 1),
            ("x.yaml", "{\"a\": 1,, \"b\": 2}", code::SOURCE_SYNTAX, 1, 9),
            ("x.yaml", &deep, code::SOURCE_NESTING, 1, 65),
            ("x.json", &deep, code::SOURCE_NESTING, 1, 65),
            ("x.json", "{\"a\": 1, \"a\": 2}", code::DUPLICATE_KEY, 1, 10),
            ("x.json", "{\"a\": 01}", code::SOURCE_SYNTAX, 1, 7),
            ("x.json", "{a: 1}", code::SOURCE_SYNTAX, 1, 2),
            ("x.json", "{\"é\": 1} x", code::SOURCE_SYNTAX, 1, 10),
            ("x.json", "{\"a\": \"\\u0000\"}", code::CHARACTER_REFUSED, 1, 7),
            ("x.JSON", "", code::SOURCE_SYNTAX, 1, 1),
        ] {
            let faults = read(name, text).map(|node| node.to_json()).expect_err(text);
            let fault = &faults[0];
            assert_eq!((fault.code, fault.line, fault.column), (expected, line, column), "{text}: {}", fault.message);
        }
    }

    #[test]
    fn aliases_cannot_blow_up_a_document() {
        let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n";
        let faults = read("x.yaml", bomb).map(|node| node.to_json()).expect_err(bomb);
        assert!(faults.iter().all(|fault| fault.code == code::ANCHOR_REFUSED) && faults.len() == 7);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "measures the time that passes for a user")]
    fn large_texts_are_bounded_and_read_fast() {
        let large = format!("a: {}", "x".repeat(SOURCE_BYTES_MAX));
        assert_eq!(read("x.yaml", &large).map(|node| node.to_json()).unwrap_err()[0].code, code::SOURCE_TOO_LARGE);
        for (name, text) in [
            ("x.json", format!("[{}1]", "1,".repeat(SOURCE_BYTES_MAX / 2 - 10))),
            ("x.yaml", "- a\n".repeat(SOURCE_BYTES_MAX / 4)),
            ("x.yaml", "[".repeat(SOURCE_BYTES_MAX)),
            ("x.json", "[".repeat(SOURCE_BYTES_MAX)),
            ("x.yaml", "a: *a\n".repeat(100_000)),
        ] {
            let started = std::time::Instant::now();
            let _ = read(name, &text);
            assert!(started.elapsed() < std::time::Duration::from_secs(10), "{name} {:?}", &text[..4]);
        }
    }

    #[test]
    fn a_part_of_a_text_is_found_where_it_is_written() {
        let text = "a: 'é ${ x }'\n";
        let node = read("x.yaml", text).unwrap();
        let node = node.get("a").unwrap();
        assert_eq!(locate(text, node.start, node.end, "x", 0), Mark { line: 1, column: 10 });
        assert_eq!(locate(text, node.start, node.end, "absent", 3), node.start);
    }
}
