//! Names that a definition may give to a variable of expressions.

use super::compile::TYPES;

/// Most characters of a variable's name.
const CHARACTERS_MAX: usize = 63;

/// Names of the scope itself.
const SCOPE: [&str; 6] = ["input", "steps", "signal", "event", "failure", "execution"];

/// Words that CEL has a meaning for, or keeps for later, and the first names of its functions.
const RESERVED: [&str; 24] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
    "lists",
    "math",
    "strings",
];

/// Whether the text can be a variable's name: an identifier of CEL that means nothing else.
pub(in crate::domain::definition) fn is_variable(text: &str) -> bool {
    text.len() <= CHARACTERS_MAX
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !SCOPE.contains(&text)
        && !RESERVED.contains(&text)
        && !TYPES.contains(&text)
}
