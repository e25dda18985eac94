//! What is wrong with a definition, and where.

use std::{borrow::Cow, fmt, sync::Arc};

/// A fault of a definition, or a warning: something that is allowed but looks like a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong, for programs: one of [`code`], explained in `docs/definition-faults.md`.
    pub code: &'static str,
    /// What is wrong, for people.
    pub message: String,
    /// What to do about it; may be empty.
    pub hint: String,
    /// Field path such as `steps[2].retry.jitter`; empty for the document as a whole.
    pub path: String,
    /// Line in the source from 1; 0 if there is none.
    pub line: u32,
    /// Column in the source from 1, in characters; 0 if there is none.
    pub column: u32,
}

/// A fault on one line: place, code, what is wrong, what to do.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (0, 0) => {}
            (0, column) => write!(f, "column {column}: ")?,
            (line, column) => write!(f, "line {line}, column {column}: ")?,
        }
        write!(f, "{}: {}", self.code, self.message)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, " ({})", self.hint) }
    }
}

/// Where something stands in the text that it was read from, for faults that are found later. It is no part of what it
/// stands beside, so any two are equal.
#[derive(Clone, Debug)]
pub struct Place {
    /// Field path, as [`Fault::path`].
    pub path: Arc<str>,
    /// Line from 1; 0 if there is none.
    pub line: u32,
    /// Column from 1, in characters; 0 if there is none.
    pub column: u32,
}

impl Place {
    /// A fault of what stands here.
    #[must_use]
    pub fn fault(&self, code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Fault {
        let (message, hint) = (message.into(), hint.into());
        Fault { code, message, hint, path: self.path.to_string(), line: self.line, column: self.column }
    }

    /// A field of what stands here, with its place in the text.
    pub(super) fn field(&self, name: &str) -> Self {
        Self { path: Arc::from(format!("{}.{name}", self.path)), ..*self }
    }
}

impl PartialEq for Place {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// The beginning of a text for a message: a long value would drown the rest, and may hold what logs must not.
pub(in crate::domain) fn shorten(text: &str, characters_max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(characters_max) {
        Some((at, _)) => Cow::Owned(format!("{}…", &text[..at])),
        None => Cow::Borrowed(text),
    }
}

/// The codes of faults. A released code never changes its meaning.
pub mod code {
    /// The text is longer than 1 MiB.
    pub const SOURCE_TOO_LARGE: &str = "SOURCE_TOO_LARGE";
    /// The text is not well-formed YAML or JSON.
    pub const SOURCE_SYNTAX: &str = "SOURCE_SYNTAX";
    /// Lists and objects are nested more than 64 deep.
    pub const SOURCE_NESTING: &str = "SOURCE_NESTING";
    /// The text holds no document.
    pub const SOURCE_EMPTY: &str = "SOURCE_EMPTY";
    /// The text holds more than one YAML document.
    pub const MULTIPLE_DOCUMENTS: &str = "MULTIPLE_DOCUMENTS";
    /// A YAML anchor or alias.
    pub const ANCHOR_REFUSED: &str = "ANCHOR_REFUSED";
    /// A YAML tag.
    pub const TAG_REFUSED: &str = "TAG_REFUSED";
    /// A key stands twice in one object.
    pub const DUPLICATE_KEY: &str = "DUPLICATE_KEY";
    /// A key that is not a text.
    pub const KEY_NOT_TEXT: &str = "KEY_NOT_TEXT";
    /// A number that JSON cannot write.
    pub const NUMBER_INVALID: &str = "NUMBER_INVALID";
    /// A character that no store keeps.
    pub const CHARACTER_REFUSED: &str = "CHARACTER_REFUSED";
    /// A field that does not exist.
    pub const UNKNOWN_FIELD: &str = "UNKNOWN_FIELD";
    /// A required field is absent.
    pub const FIELD_REQUIRED: &str = "FIELD_REQUIRED";
    /// A value of another type than the field's.
    pub const TYPE_MISMATCH: &str = "TYPE_MISMATCH";
    /// A field that does not belong to the step's action.
    pub const FIELD_NOT_APPLICABLE: &str = "FIELD_NOT_APPLICABLE";
    /// More entries than a field takes.
    pub const TOO_MANY: &str = "TOO_MANY";
    /// A text longer than a field takes.
    pub const TEXT_TOO_LONG: &str = "TEXT_TOO_LONG";
    /// A number outside its range.
    pub const OUT_OF_RANGE: &str = "OUT_OF_RANGE";
    /// A name with characters that names do not have.
    pub const NAME_INVALID: &str = "NAME_INVALID";
    /// A version that is not semver.
    pub const VERSION_INVALID: &str = "VERSION_INVALID";
    /// A label with a bad key or value.
    pub const LABEL_INVALID: &str = "LABEL_INVALID";
    /// A contract that is not `name@version`.
    pub const CONTRACT_INVALID: &str = "CONTRACT_INVALID";
    /// Warning: a step's contract is not listed under `tasks`.
    pub const CONTRACT_UNDECLARED: &str = "CONTRACT_UNDECLARED";
    /// Warning: a contract under `tasks` that no step uses.
    pub const CONTRACT_UNUSED: &str = "CONTRACT_UNUSED";
    /// A step or handler takes a signal that the definition does not declare.
    pub const SIGNAL_UNDECLARED: &str = "SIGNAL_UNDECLARED";
    /// Two steps of one id.
    pub const STEP_DUPLICATE: &str = "STEP_DUPLICATE";
    /// A step that does not exist.
    pub const STEP_UNKNOWN: &str = "STEP_UNKNOWN";
    /// A step that needs itself.
    pub const STEP_SELF_REFERENCE: &str = "STEP_SELF_REFERENCE";
    /// A step that cannot be seen from where it is named.
    pub const STEP_OUT_OF_SCOPE: &str = "STEP_OUT_OF_SCOPE";
    /// Steps that need each other.
    pub const CYCLE: &str = "CYCLE";
    /// A `continue_as_new` that does not come last.
    pub const CONTINUE_AS_NEW_NOT_LAST: &str = "CONTINUE_AS_NEW_NOT_LAST";
    /// A `workflow` that is not `name@range`.
    pub const CHILD_INVALID: &str = "CHILD_INVALID";
    /// A `workflow` of which no deployed version is in the range.
    pub const CHILD_NOT_FOUND: &str = "CHILD_NOT_FOUND";
    /// A workflow that would start itself.
    pub const CHILD_CYCLE: &str = "CHILD_CYCLE";
    /// A name and version that is deployed twice at once.
    pub const DEFINITION_DUPLICATE: &str = "DEFINITION_DUPLICATE";
    /// A signal to a step that starts no child, or whose child has ended by then.
    pub const SIGNAL_TARGET_INVALID: &str = "SIGNAL_TARGET_INVALID";
    /// A text that can be no URL of a request.
    pub const HTTP_URL_INVALID: &str = "HTTP_URL_INVALID";
    /// A header that a request cannot have.
    pub const HTTP_HEADER_INVALID: &str = "HTTP_HEADER_INVALID";
    /// A step without an action.
    pub const ACTION_REQUIRED: &str = "ACTION_REQUIRED";
    /// A step with more than one action.
    pub const ACTION_AMBIGUOUS: &str = "ACTION_AMBIGUOUS";
    /// A text that is not a duration.
    pub const DURATION_INVALID: &str = "DURATION_INVALID";
    /// A duration outside its range.
    pub const DURATION_OUT_OF_RANGE: &str = "DURATION_OUT_OF_RANGE";
    /// A text that is not an RFC 3339 time.
    pub const TIME_INVALID: &str = "TIME_INVALID";
    /// A heartbeat timeout that cannot work.
    pub const HEARTBEAT_TIMEOUT_INVALID: &str = "HEARTBEAT_TIMEOUT_INVALID";
    /// A value that is none of a field's words.
    pub const ENUM_INVALID: &str = "ENUM_INVALID";
    /// An expression that does not compile.
    pub const EXPRESSION_INVALID: &str = "EXPRESSION_INVALID";
    /// A template that does not compile.
    pub const TEMPLATE_INVALID: &str = "TEMPLATE_INVALID";
    /// A JSON Schema that does not compile.
    pub const SCHEMA_INVALID: &str = "SCHEMA_INVALID";
    /// Warning: a task that nothing ends if its worker never reports.
    pub const TASK_WITHOUT_TIMEOUT: &str = "TASK_WITHOUT_TIMEOUT";
    /// Warning: a step whose work stays when the execution fails, in a definition that undoes that of others.
    pub const COMPENSATION_GAP: &str = "COMPENSATION_GAP";
    /// Warning: a compensation that never runs.
    pub const COMPENSATION_UNREACHABLE: &str = "COMPENSATION_UNREACHABLE";
    /// Warning: a handler that never runs.
    pub const HANDLER_UNREACHABLE: &str = "HANDLER_UNREACHABLE";
}
