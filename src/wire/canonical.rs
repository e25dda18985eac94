//! A payload as it means: the same text for documents that differ in white space, order of names and escapes only.
//!
//! Integers keep every digit; other numbers are what they are as doubles (`1.50`, `1.5` and `15e-1` are one). A name
//! that stands twice counts once, with its last value, as readers take it.

use crate::domain::Payload;
use std::collections::BTreeMap;

/// The canonical text of a payload.
#[must_use]
pub fn text(payload: &Payload) -> String {
    let mut out = String::with_capacity(payload.len());
    let mut reader = Reader { text: payload.as_str(), position: 0 };
    reader.value(&mut out);
    out
}

/// Reads a document that is known to be well formed, and nested no deeper than the edge allows.
struct Reader<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, out: &mut String) {
        match self.peek() {
            b'{' => self.object(out),
            b'[' => self.array(out),
            b'"' => self.string(out),
            b'-' | b'0'..=b'9' => number(self.word(), out),
            _ => out.push_str(self.word()),
        }
    }

    fn object(&mut self, out: &mut String) {
        let mut entries = BTreeMap::new();
        self.position += 1;
        while self.peek() != b'}' {
            let (mut name, mut value) = (String::new(), String::new());
            self.string(&mut name);
            self.take(b':');
            self.value(&mut value);
            entries.insert(name, value);
            self.take(b',');
        }
        self.position += 1;
        out.push('{');
        for (index, (name, value)) in entries.into_iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            out.extend([name.as_str(), ":", value.as_str()]);
        }
        out.push('}');
    }

    fn array(&mut self, out: &mut String) {
        self.position += 1;
        out.push('[');
        let mut first = true;
        while self.peek() != b']' {
            if !std::mem::take(&mut first) {
                out.push(',');
            }
            self.value(out);
            self.take(b',');
        }
        self.position += 1;
        out.push(']');
    }

    fn string(&mut self, out: &mut String) {
        let start = self.position;
        let bytes = self.text.as_bytes();
        let mut end = start + 1;
        let mut has_escapes = false;
        while bytes[end] != b'"' {
            let escape = bytes[end] == b'\\';
            has_escapes |= escape;
            end += if escape { 2 } else { 1 };
        }
        self.position = end + 1;
        let raw = &self.text[start..self.position];
        if has_escapes {
            let plain: String = serde_json::from_str(raw).expect("the text was judged at the edge");
            out.push_str(&serde_json::to_string(&plain).expect("a string is always JSON"));
        } else {
            out.push_str(raw);
        }
    }

    /// A number, or `null`, `true` or `false`.
    fn word(&mut self) -> &'a str {
        let rest = &self.text[self.position..];
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))).unwrap_or(rest.len());
        self.position += end;
        &rest[..end]
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> u8 {
        let bytes = self.text.as_bytes();
        while matches!(bytes[self.position], b' ' | b'\t' | b'\n' | b'\r') {
            self.position += 1;
        }
        bytes[self.position]
    }

    /// Goes past a byte, if it comes next, and to what follows it.
    fn take(&mut self, byte: u8) {
        if self.peek() == byte {
            self.position += 1;
            self.peek();
        }
    }
}

fn number(text: &str, out: &mut String) {
    if text.contains(['.', 'e', 'E']) {
        let double: f64 = text.parse().expect("the text was judged at the edge");
        out.push_str(&serde_json::to_string(&double).expect("a number is always JSON"));
    } else {
        out.push_str(if text == "-0" { "0" } else { text });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(json: &str) -> String {
        text(&Payload::from_json(json))
    }

    #[test]
    fn what_means_the_same_has_one_text() {
        for (json, expected) in [
            (" { \"b\" : [ 1 , 2.50 ] , \"a\" : null } ", r#"{"a":null,"b":[1,2.5]}"#),
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
            (r#""\u00e9\/\n""#, r#""é/\n""#),
            (r#"{"\u0061":[],"é":{}}"#, r#"{"a":[],"é":{}}"#),
            ("9007199254740993", "9007199254740993"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
            ("15e-1", "1.5"),
            ("-0", "0"),
            ("[true , false]", "[true,false]"),
            ("\"\\\\\"", "\"\\\\\""),
            ("null", "null"),
        ] {
            assert_eq!(canonical(json), expected, "{json}");
        }
    }

    #[test]
    fn c081_empty_values_stay_apart() {
        let texts = ["null", "{}", "[]", "0", "\"\"", "false", "0.0"].map(canonical);
        let distinct: std::collections::BTreeSet<_> = texts.iter().collect();
        assert_eq!(distinct.len(), texts.len());
    }
}
