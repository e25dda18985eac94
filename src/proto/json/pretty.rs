//! Indents JSON text without reading its values, so that every digit stays.

/// The same document, indented by two spaces. The text must be well formed.
#[must_use]
pub fn pretty(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let mut depth = 0;
    let mut in_string = false;
    let mut escaped = false;
    let mut tokens = json.chars().peekable();
    while let Some(c) = tokens.next() {
        if in_string {
            out.push(c);
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            ' ' | '\t' | '\n' | '\r' => {}
            '{' | '[' => {
                out.push(c);
                while tokens.next_if(|next| next.is_ascii_whitespace()).is_some() {}
                if let Some(close) = tokens.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(close);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth -= 1;
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            _ => {
                in_string = c == '"';
                out.push(c);
            }
        }
    }
    out
}

fn line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use super::pretty;

    #[test]
    fn indents_and_leaves_strings_and_digits_alone() {
        let text = r#"{"a":[1.00000000000000000001, {"b" : "x\"{,:[\\"}],"c":{ },"d":[]}"#;
        let want = "{\n  \"a\": [\n    1.00000000000000000001,\n    {\n      \"b\": \"x\\\"{,:[\\\\\"\n    }\n  ],\n  \"c\": {},\n  \"d\": []\n}";
        assert_eq!(pretty(text), want);
        assert_eq!(pretty(want), want);
    }
}
