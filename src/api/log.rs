//! Text of callers in log lines: nobody can forge a line or flood the log with an id of their own choosing.

use std::fmt::{self, Write};

/// Most characters of a caller's text in a log line.
const LENGTH_MAX: usize = 512;

/// Shows text on one line: control characters escaped, cut where it is long.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, character) in self.0.chars().enumerate() {
            if index == LENGTH_MAX {
                return f.write_str("…");
            }
            if is_safe(character) {
                f.write_char(character)?;
            } else {
                write!(f, "{}", character.escape_unicode())?;
            }
        }
        Ok(())
    }
}

/// Neither a control character nor one that breaks a line or turns its direction.
fn is_safe(character: char) -> bool {
    !character.is_control()
        && !matches!(character, '\u{2028}' | '\u{2029}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c151_text_of_callers_cannot_forge_a_line() {
        let text = Escaped("a\n2026-01-01 INFO admin ok\u{1b}[31m\u{2028}\u{202E}ü").to_string();
        assert_eq!(text, "a\\u{a}2026-01-01 INFO admin ok\\u{1b}[31m\\u{2028}\\u{202e}ü");
        assert!(Escaped(&"x".repeat(1 << 20)).to_string().chars().count() <= LENGTH_MAX + 1);
    }
}
