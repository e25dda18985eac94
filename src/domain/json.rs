//! Reads JSON text where it lies: exact digits, positions, and slices of a document without parsing the rest.
//!
//! A general parser turns numbers into doubles or 64-bit integers on the way in; here a number stays its text
//! until somebody asks what it is.

use std::borrow::Cow;

/// JSON text that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct JsonError {
    /// Byte offset of the fault in the text.
    pub(crate) at: usize,
    /// What is wrong.
    pub(crate) message: &'static str,
}

/// A cursor in JSON text. Each method skips white space first and leaves the cursor behind what it read.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Cursor<'t> {
    /// A cursor at the start of the text.
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    /// Byte offset of the cursor.
    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    /// The next byte that is not white space, without taking it.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    /// Takes `byte` if it comes next.
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// An error at the cursor.
    pub(crate) fn error(&self, message: &'static str) -> JsonError {
        JsonError { at: self.at, message }
    }

    /// Takes `byte` or fails.
    pub(crate) fn expect(&mut self, byte: u8, message: &'static str) -> Result<(), JsonError> {
        if self.take(byte) { Ok(()) } else { Err(self.error(message)) }
    }

    /// Takes one of `null`, `true` and `false`.
    pub(crate) fn word(&mut self) -> Result<&'static str, JsonError> {
        self.peek();
        let rest = &self.text[self.at..];
        for word in ["null", "true", "false"] {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok(word);
            }
        }
        Err(self.error("expected a JSON value"))
    }

    /// Takes a number and returns its text.
    pub(crate) fn number(&mut self) -> Result<&'t str, JsonError> {
        self.peek();
        let start = self.at;
        let bytes = self.text.as_bytes();
        let digits = |at: &mut usize| {
            let from = *at;
            while bytes.get(*at).is_some_and(u8::is_ascii_digit) {
                *at += 1;
            }
            *at - from
        };
        let mut at = start + usize::from(bytes.get(start) == Some(&b'-'));
        let leading_zero = bytes.get(at) == Some(&b'0');
        let count = digits(&mut at);
        if count == 0 || (leading_zero && count > 1) {
            return Err(self.error("expected a number without leading zeros"));
        }
        if bytes.get(at) == Some(&b'.') {
            at += 1;
            if digits(&mut at) == 0 {
                return Err(self.error("expected digits after the decimal point"));
            }
        }
        if matches!(bytes.get(at), Some(b'e' | b'E')) {
            at += 1;
            at += usize::from(matches!(bytes.get(at), Some(b'+' | b'-')));
            if digits(&mut at) == 0 {
                return Err(self.error("expected digits in the exponent"));
            }
        }
        self.at = at;
        Ok(&self.text[start..at])
    }

    /// Takes a string and decodes its escapes.
    pub(crate) fn string(&mut self) -> Result<Cow<'t, str>, JsonError> {
        self.expect(b'"', "expected a string in double quotes")?;
        let text = self.text;
        let bytes = text.as_bytes();
        let mut start = self.at;
        let mut decoded: Option<String> = None;
        loop {
            match bytes.get(self.at) {
                None => return Err(self.error("the string has no end")),
                Some(b'"') => {
                    let tail = &text[start..self.at];
                    self.at += 1;
                    return Ok(match decoded {
                        None => Cow::Borrowed(tail),
                        Some(head) => Cow::Owned(head + tail),
                    });
                }
                Some(b'\\') => {
                    let head = decoded.get_or_insert_default();
                    head.push_str(&text[start..self.at]);
                    self.at += 1;
                    let character = self.escape()?;
                    decoded.get_or_insert_default().push(character);
                    start = self.at;
                }
                Some(0..=0x1f) => return Err(self.error("a control character must be written as an escape")),
                Some(_) => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let escape = self.text.as_bytes().get(self.at).copied();
        self.at += usize::from(escape.is_some_and(|byte| byte.is_ascii()));
        Ok(match escape {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let first = self.hex()?;
                let code = if (0xd800..0xdc00).contains(&first) {
                    if !self.text[self.at..].starts_with("\\u") {
                        return Err(self.error("half of a surrogate pair"));
                    }
                    self.at += 2;
                    let second = self.hex()?;
                    if !(0xdc00..0xe000).contains(&second) {
                        return Err(self.error("half of a surrogate pair"));
                    }
                    0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)
                } else {
                    first
                };
                char::from_u32(code).ok_or_else(|| self.error("half of a surrogate pair"))?
            }
            _ => return Err(self.error("unknown escape")),
        })
    }

    fn hex(&mut self) -> Result<u32, JsonError> {
        let code = self
            .text
            .get(self.at..self.at + 4)
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .ok_or_else(|| self.error("expected four hexadecimal digits"))?;
        self.at += 4;
        Ok(code)
    }

    /// Takes the next value, whatever it is, and returns its text. Only strings and brackets are looked at, so the
    /// cost is one pass over the bytes and no memory.
    pub(crate) fn slice(&mut self) -> Result<&'t str, JsonError> {
        let first = self.peek();
        let start = self.at;
        match first {
            Some(b'"') => self.skip_string()?,
            Some(b'{' | b'[') => {
                let mut depth = 0_usize;
                loop {
                    match self.text.as_bytes().get(self.at) {
                        None => return Err(self.error("a bracket is not closed")),
                        Some(b'"') => self.skip_string()?,
                        Some(b'{' | b'[') => {
                            depth += 1;
                            self.at += 1;
                        }
                        Some(b'}' | b']') => {
                            depth -= 1;
                            self.at += 1;
                            if depth == 0 {
                                break;
                            }
                        }
                        Some(_) => self.at += 1,
                    }
                }
            }
            Some(b'-' | b'0'..=b'9') => {
                self.number()?;
            }
            Some(_) => {
                self.word()?;
            }
            None => return Err(self.error("expected a JSON value")),
        }
        Ok(&self.text[start..self.at])
    }

    fn skip_string(&mut self) -> Result<(), JsonError> {
        let bytes = self.text.as_bytes();
        self.at += 1;
        loop {
            match bytes.get(self.at) {
                None => return Err(self.error("the string has no end")),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.at = (self.at + 2).min(bytes.len()),
                Some(_) => self.at += 1,
            }
        }
    }
}

/// Text of the member `name` of the object in `text`, the last one if it stands there twice.
pub(crate) fn member<'t>(text: &'t str, name: &str) -> Result<Option<&'t str>, JsonError> {
    let mut cursor = Cursor::new(text);
    let mut found = None;
    cursor.expect(b'{', "expected an object")?;
    if cursor.take(b'}') {
        return Ok(None);
    }
    loop {
        let key = cursor.string()?;
        cursor.expect(b':', "expected a colon")?;
        let value = cursor.slice()?;
        if key == name {
            found = Some(value);
        }
        if cursor.take(b'}') {
            return Ok(found);
        }
        cursor.expect(b',', "expected a comma or a closing brace")?;
    }
}

/// Text of element `index` of the array in `text`; if there is none, `Err` of `Ok` holds the array's length.
pub(crate) fn element(text: &str, index: usize) -> Result<Result<&str, usize>, JsonError> {
    let mut cursor = Cursor::new(text);
    cursor.expect(b'[', "expected an array")?;
    if cursor.take(b']') {
        return Ok(Err(0));
    }
    let mut count = 0;
    loop {
        let value = cursor.slice()?;
        if count == index {
            return Ok(Ok(value));
        }
        count += 1;
        if cursor.take(b']') {
            return Ok(Err(count));
        }
        cursor.expect(b',', "expected a comma or a closing bracket")?;
    }
}

/// Writes a JSON string with its quotes.
pub(crate) fn write_string(out: &mut String, text: &str) {
    out.push('"');
    let mut start = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape: &str = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0..=0x1f => "",
            _ => continue,
        };
        out.push_str(&text[start..at]);
        if escape.is_empty() {
            out.push_str("\\u00");
            out.push(char::from(b'0' + (byte >> 4)));
            out.push(char::from_digit(u32::from(byte & 15), 16).expect("four bits are one hexadecimal digit"));
        } else {
            out.push_str(escape);
        }
        start = at + 1;
    }
    out.push_str(&text[start..]);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_decode_their_escapes() {
        for (text, expected) in [
            (r#""plain""#, "plain"),
            (r#" "a\"b\\c\/d" "#, "a\"b\\c/d"),
            (r#""\b\f\n\r\t""#, "\u{8}\u{c}\n\r\t"),
            (r#""\u00e9\u0041""#, "éA"),
            (r#""\ud83d\ude00""#, "😀"),
            (r#""é😀""#, "é😀"),
        ] {
            assert_eq!(Cursor::new(text).string().unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn broken_strings_are_refused() {
        for text in [
            r#""open"#,
            r#""\x""#,
            r#""\u12""#,
            r#""\ud83d""#,
            r#""\ude00""#,
            r#""\ud83d\u0041""#,
            "\"a\nb\"",
            r#""\"#,
            "\"\\é\"",
        ] {
            assert!(Cursor::new(text).string().is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_keep_their_text() {
        for text in ["0", "-0", "12345678901234567890123", "1.50", "1e5", "-1.25E-7"] {
            assert_eq!(Cursor::new(text).number().unwrap(), text);
        }
        for text in ["", "-", "01", "1.", "1e", "+1", ".5"] {
            assert!(Cursor::new(text).number().is_err(), "{text}");
        }
    }

    #[test]
    fn a_member_is_found_without_parsing_the_rest() {
        let text = r#" { "a" : [1,{"b":"}"}], "x\"y": 1e5, "dup": 1, "b": {"c": 9007199254740993}, "dup": 2 } "#;
        assert_eq!(member(text, "a").unwrap(), Some(r#"[1,{"b":"}"}]"#));
        assert_eq!(member(text, "x\"y").unwrap(), Some("1e5"));
        assert_eq!(member(text, "dup").unwrap(), Some("2"));
        assert_eq!(member(member(text, "b").unwrap().unwrap(), "c").unwrap(), Some("9007199254740993"));
        assert_eq!(member(text, "c").unwrap(), None);
        assert_eq!(member("{}", "c").unwrap(), None);
        assert_eq!(element("[1, [2], \"3\"]", 1).unwrap(), Ok("[2]"));
        assert_eq!(element("[1, [2], \"3\"]", 3).unwrap(), Err(3));
        assert_eq!(element("[]", 0).unwrap(), Err(0));
    }

    #[test]
    fn written_strings_read_back() {
        for text in ["", "plain", "a\"b\\c\nd\te\rf", "\u{1}\u{1f}", "é😀"] {
            let mut out = String::new();
            write_string(&mut out, text);
            assert_eq!(Cursor::new(&out).string().unwrap(), text);
            assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
        }
    }
}
