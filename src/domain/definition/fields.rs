//! Reads objects field by field and collects what is wrong with them.

use super::{
    duration,
    expression::{CompileError, CompileErrorKind, Expression, Template, compile, whole},
    fault::{Fault, Place, code},
    node::{Mark, Node, Value},
    references::{References, Refused},
    schema::Schema,
    source::locate,
};
use crate::domain::SPAN_MAX;
use std::{fmt, sync::Arc, time::Duration};

/// Faults that are collected before the rest is dropped.
const FAULTS_MAX: usize = 1_000;

/// Collects faults. A stored definition is only compiled: what was allowed when it was deployed stays allowed.
pub(super) struct Checker<'t> {
    source: &'t str,
    judges: bool,
    pub(super) faults: Vec<Fault>,
    pub(super) warnings: Vec<Fault>,
}

/// Where a value stands, as people write it.
#[derive(Clone, Copy)]
pub(super) struct Path<'p> {
    parent: Option<&'p Path<'p>>,
    segment: Segment<'p>,
}

#[derive(Clone, Copy)]
enum Segment<'p> {
    Root,
    Field(&'p str),
    Key(&'p str),
    Index(usize),
    Suffix(&'p str),
}

impl<'p> Path<'p> {
    pub(super) const ROOT: Path<'static> = Path { parent: None, segment: Segment::Root };

    /// A field of the message.
    pub(super) fn field(&'p self, name: &'p str) -> Path<'p> {
        Path { parent: Some(self), segment: Segment::Field(name) }
    }

    /// An entry of a map, whose name is the user's.
    pub(super) fn key(&'p self, name: &'p str) -> Path<'p> {
        Path { parent: Some(self), segment: Segment::Key(name) }
    }

    /// A place within a document that is a value to the message, such as `.items[2]`.
    fn suffix(&'p self, text: &'p str) -> Path<'p> {
        Path { parent: Some(self), segment: Segment::Suffix(text) }
    }

    /// An element of a list.
    pub(super) fn index(&'p self, index: usize) -> Path<'p> {
        Path { parent: Some(self), segment: Segment::Index(index) }
    }
}

impl Path<'_> {
    /// The place of what stands here.
    pub(super) fn at(&self, mark: Mark) -> Place {
        Place { path: Arc::from(self.to_string()), line: mark.line, column: mark.column }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        let is_first = self.parent.is_none_or(|parent| matches!(parent.segment, Segment::Root));
        match self.segment {
            Segment::Root => Ok(()),
            Segment::Field(name) if is_first => f.write_str(name),
            Segment::Field(name) => write!(f, ".{name}"),
            Segment::Key(name) => write!(f, "[{name:?}]"),
            Segment::Index(index) => write!(f, "[{index}]"),
            Segment::Suffix(text) => f.write_str(text),
        }
    }
}

/// The words of an enum in files, its default first, with what each stands for; the message's values count from 1.
pub(super) struct Words<T> {
    /// What begins the message's names, in lower case.
    pub(super) prefix: &'static str,
    pub(super) values: [(&'static str, T); 2],
}

/// The fields of one object, under their names in snake case.
pub(super) struct Fields<'n> {
    /// Where the object stands.
    pub(super) node: &'n Node,
    entries: Vec<(&'static str, Mark, &'n Node)>,
}

impl<'n> Fields<'n> {
    /// A field that is present and not null: in a message, null is the same as absent.
    pub(super) fn get(&self, name: &str) -> Option<&'n Node> {
        self.get_payload(name).filter(|node| !matches!(node.value, Value::Null))
    }

    /// A field that is present; for payloads, of which null is one.
    pub(super) fn get_payload(&self, name: &str) -> Option<&'n Node> {
        self.entries.iter().find(|(known, _, _)| *known == name).map(|(_, _, node)| *node)
    }

    /// Where the name of a field stands.
    pub(super) fn mark(&self, name: &str) -> Mark {
        self.entries.iter().find(|(known, _, _)| *known == name).map_or(self.node.start, |(_, mark, _)| *mark)
    }
}

impl<'t> Checker<'t> {
    pub(super) fn new(source: &'t str, judges: bool) -> Self {
        Self { source, judges, faults: Vec::new(), warnings: Vec::new() }
    }

    /// Whether the text is a stored definition's: then what deploy has added is read, too.
    pub(super) fn is_stored(&self) -> bool {
        !self.judges
    }

    /// Records the fault of naming a step that is none, or not to be seen.
    pub(super) fn refused(&mut self, node: &Node, path: &Path<'_>, id: &str, refused: Refused) {
        let (code, message, hint) = match refused {
            Refused::Own => {
                (code::STEP_SELF_REFERENCE, format!("the step `{id}` names itself"), "name another step".to_owned())
            }
            Refused::Unknown { hint } => (code::STEP_UNKNOWN, format!("there is no step `{id}`"), hint),
            Refused::OutOfScope { message, hint } => (code::STEP_OUT_OF_SCOPE, message, hint.to_owned()),
        };
        self.refuse(code, node.start, path, message, hint);
    }

    fn fault(code: &'static str, mark: Mark, path: &Path<'_>, message: String, hint: String) -> Fault {
        Fault { code, message, hint, path: path.to_string(), line: mark.line, column: mark.column }
    }

    /// Records a fault that leaves nothing to compile.
    pub(super) fn refuse(
        &mut self,
        code: &'static str,
        mark: Mark,
        path: &Path<'_>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(Self::fault(code, mark, path, message.into(), hint.into()));
        }
    }

    /// Records a fault of a new definition; a stored one is not judged.
    pub(super) fn judge(
        &mut self,
        code: &'static str,
        mark: Mark,
        path: &Path<'_>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        if self.judges {
            self.refuse(code, mark, path, message, hint);
        }
    }

    /// Records a warning.
    pub(super) fn warn(
        &mut self,
        code: &'static str,
        mark: Mark,
        path: &Path<'_>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        if self.judges && self.warnings.len() < FAULTS_MAX {
            self.warnings.push(Self::fault(code, mark, path, message.into(), hint.into()));
        }
    }

    /// As [`Self::refuse`], of something that was read before.
    pub(super) fn refuse_at(
        &mut self,
        code: &'static str,
        place: &Place,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(place.fault(code, message, hint));
        }
    }

    /// As [`Self::judge`], of something that was read before.
    pub(super) fn judge_at(
        &mut self,
        code: &'static str,
        place: &Place,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        if self.judges {
            self.refuse_at(code, place, message, hint);
        }
    }

    /// As [`Self::warn`], of something that was read before.
    pub(super) fn warn_at(
        &mut self,
        code: &'static str,
        place: &Place,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        if self.judges && self.warnings.len() < FAULTS_MAX {
            self.warnings.push(place.fault(code, message, hint));
        }
    }

    fn mismatch(&mut self, node: &Node, path: &Path<'_>, expected: &str) {
        let hint = match (&node.value, expected) {
            (Value::Number(digits), "a text") => format!("quote it: \"{digits}\""),
            (Value::Bool(flag), "a text") => format!("quote it: \"{flag}\""),
            _ => String::new(),
        };
        self.refuse(code::TYPE_MISMATCH, node.start, path, format!("expected {expected}, found {}", node.kind()), hint);
    }

    /// The fields of an object, whose names may be snake case or lower camel case.
    pub(super) fn fields<'n>(&mut self, node: &'n Node, path: &Path<'_>, known: &[&'static str]) -> Option<Fields<'n>> {
        let Value::Object(entries) = &node.value else {
            self.mismatch(node, path, "an object");
            return None;
        };
        let mut fields = Fields { node, entries: Vec::with_capacity(entries.len()) };
        for entry in entries {
            let field_path = path.field(&entry.key);
            let Some(name) = known.iter().find(|name| ***name == *entry.key || is_camel_case_of(&entry.key, name))
            else {
                let hint = match nearest(&entry.key, known.iter().copied()) {
                    Some(name) => format!("did you mean `{name}`?"),
                    None => format!("the fields here are {}", list(known)),
                };
                self.refuse(
                    code::UNKNOWN_FIELD,
                    entry.mark,
                    &field_path,
                    format!("there is no field `{}` here", entry.key),
                    hint,
                );
                continue;
            };
            if fields.get_payload(name).is_some() {
                self.refuse(
                    code::DUPLICATE_KEY,
                    entry.mark,
                    &field_path,
                    format!("the field `{name}` stands twice, in two spellings"),
                    "keep one of them",
                );
                continue;
            }
            fields.entries.push((name, entry.mark, &entry.node));
        }
        Some(fields)
    }

    /// The entries of a map.
    pub(super) fn entries<'n>(&mut self, node: Option<&'n Node>, path: &Path<'_>) -> &'n [super::node::Entry] {
        match node.map(|node| (&node.value, node)) {
            None => &[],
            Some((Value::Object(entries), _)) => entries,
            Some((_, node)) => {
                self.mismatch(node, path, "an object");
                &[]
            }
        }
    }

    /// The elements of a list.
    pub(super) fn list<'n>(&mut self, node: Option<&'n Node>, path: &Path<'_>) -> &'n [Node] {
        match node.map(|node| (&node.value, node)) {
            None => &[],
            Some((Value::List(items), _)) => items,
            Some((_, node)) => {
                self.mismatch(node, path, "a list");
                &[]
            }
        }
    }

    /// A text.
    pub(super) fn text<'n>(&mut self, node: &'n Node, path: &Path<'_>) -> Option<&'n str> {
        match &node.value {
            Value::Text(text) => Some(text),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Object(_) => {
                self.mismatch(node, path, "a text");
                None
            }
        }
    }

    /// An integer; ProtoJSON also writes it as a text.
    pub(super) fn integer(&mut self, node: &Node, path: &Path<'_>) -> Option<i64> {
        let digits = match &node.value {
            Value::Number(digits) | Value::Text(digits) => digits,
            Value::Null | Value::Bool(_) | Value::List(_) | Value::Object(_) => {
                self.mismatch(node, path, "an integer");
                return None;
            }
        };
        // `5.0` is the integer 5 to ProtoJSON too.
        let digits = digits.strip_suffix(".0").unwrap_or(digits);
        match digits.parse::<i64>() {
            Ok(number) => Some(number),
            Err(error) if matches!(error.kind(), std::num::IntErrorKind::PosOverflow) => Some(i64::MAX),
            Err(error) if matches!(error.kind(), std::num::IntErrorKind::NegOverflow) => Some(i64::MIN),
            Err(_) => {
                self.refuse(
                    code::TYPE_MISMATCH,
                    node.start,
                    path,
                    format!("expected an integer, found `{digits}`"),
                    "",
                );
                None
            }
        }
    }

    /// A boolean.
    pub(super) fn flag(&mut self, node: &Node, path: &Path<'_>) -> Option<bool> {
        match &node.value {
            Value::Bool(flag) => Some(*flag),
            Value::Null | Value::Number(_) | Value::Text(_) | Value::List(_) | Value::Object(_) => {
                self.mismatch(node, path, "a boolean");
                None
            }
        }
    }

    /// The word of an enum, or its number: the value beside it.
    pub(super) fn word<T: Copy>(&mut self, node: &Node, path: &Path<'_>, words: &Words<T>) -> Option<T> {
        // ProtoJSON takes an enum's number as well.
        let text = match &node.value {
            Value::Text(text) | Value::Number(text) => text,
            Value::Null | Value::Bool(_) | Value::List(_) | Value::Object(_) => {
                self.mismatch(node, path, "a text");
                return None;
            }
        };
        let lower = text.to_ascii_lowercase();
        let short = lower.strip_prefix(words.prefix).and_then(|rest| rest.strip_prefix('_')).unwrap_or(&lower);
        if short == "unspecified" || short == "0" {
            return Some(words.values[0].1);
        }
        let found =
            words.values.iter().zip(1..).find(|((word, _), number)| *word == short || number.to_string() == short);
        if let Some(((_, value), _)) = found {
            return Some(*value);
        }
        let known = words.values.map(|(word, _)| word);
        let hint = match nearest(short, known.into_iter()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("use one of {}", list(&known)),
        };
        self.refuse(code::ENUM_INVALID, node.start, path, format!("`{text}` is none of {}", list(&known)), hint);
        None
    }

    /// A number, also of the texts `NaN` and `Infinity`, which are then out of every range.
    pub(super) fn number(&mut self, node: &Node, path: &Path<'_>) -> Option<f64> {
        let parsed = match &node.value {
            Value::Number(digits) | Value::Text(digits) => digits.parse::<f64>().ok(),
            Value::Null | Value::Bool(_) | Value::List(_) | Value::Object(_) => None,
        };
        if parsed.is_none() {
            self.mismatch(node, path, "a number");
        }
        parsed
    }

    /// A duration within `least` to 36,500 days.
    pub(super) fn duration(&mut self, node: &Node, path: &Path<'_>, least: Duration) -> Option<Duration> {
        const HINT: &str = "write it like `90s`, `1h30m`, `7d`, `250ms`";
        let text = match &node.value {
            Value::Text(text) => text,
            Value::Number(digits) => {
                self.refuse(
                    code::DURATION_INVALID,
                    node.start,
                    path,
                    format!("`{digits}` has no unit"),
                    format!("seconds are written `{digits}s`"),
                );
                return None;
            }
            Value::Null | Value::Bool(_) | Value::List(_) | Value::Object(_) => {
                self.mismatch(node, path, "a duration");
                return None;
            }
        };
        match duration::parse(text) {
            Ok(span) if span >= least => Some(span),
            Ok(span) => {
                let message = if least == POSITIVE {
                    format!("`{text}` is not above 0")
                } else {
                    format!("`{text}` is below {}", duration::format(least))
                };
                let hint = if least == POSITIVE { "leave the field out for no limit" } else { HINT };
                self.judge(code::DURATION_OUT_OF_RANGE, node.start, path, message, hint);
                Some(span)
            }
            Err(duration::DurationError::Syntax) => {
                self.refuse(code::DURATION_INVALID, node.start, path, format!("`{text}` is not a duration"), HINT);
                None
            }
            Err(error @ (duration::DurationError::Negative | duration::DurationError::TooLong)) => {
                self.judge(code::DURATION_OUT_OF_RANGE, node.start, path, format!("`{text}` {error}"), HINT);
                Some(if error == duration::DurationError::TooLong { SPAN_MAX } else { Duration::ZERO })
            }
        }
    }

    /// A schema.
    pub(super) fn schema(&mut self, node: &Node, path: &Path<'_>) -> Option<Arc<Schema>> {
        match Schema::from_node(node) {
            Ok(schema) => Some(Arc::new(schema)),
            Err(error) => {
                let place = if error.pointer.is_empty() { String::new() } else { format!(" at `{}`", error.pointer) };
                let mark = node.at_pointer(&error.pointer).start;
                let message = format!("not a JSON Schema{place}: {error}");
                self.refuse(code::SCHEMA_INVALID, mark, path, message, "see JSON Schema 2020-12");
                None
            }
        }
    }

    /// A template.
    pub(super) fn template(
        &mut self,
        node: &Node,
        path: &Path<'_>,
        references: &mut References<'_>,
    ) -> Option<Template> {
        match Template::compile(node, references) {
            Ok(template) => Some(template),
            Err(faults) => {
                for fault in faults {
                    self.compile_fault(fault.node, &path.suffix(&fault.path), &fault.part, &fault.error);
                }
                None
            }
        }
    }

    /// An expression, written `${ … }` or bare.
    pub(super) fn expression(
        &mut self,
        node: &Node,
        path: &Path<'_>,
        references: &mut References<'_>,
    ) -> Option<Expression> {
        let text = match &node.value {
            Value::Text(text) => &**text,
            Value::Bool(true) => "true",
            Value::Bool(false) => "false",
            Value::Null | Value::Number(_) | Value::List(_) | Value::Object(_) => {
                self.mismatch(node, path, "an expression");
                return None;
            }
        };
        let text = text.trim();
        let source = whole(text).unwrap_or(text);
        match compile(source, references) {
            Ok(expression) => Some(expression),
            Err(errors) => {
                for error in errors {
                    self.compile_fault(node, path, source, &error);
                }
                None
            }
        }
    }

    fn compile_fault(&mut self, node: &Node, path: &Path<'_>, part: &str, error: &CompileError) {
        let code = match error.kind {
            CompileErrorKind::Expression => code::EXPRESSION_INVALID,
            CompileErrorKind::Template => code::TEMPLATE_INVALID,
            CompileErrorKind::UnknownStep => code::STEP_UNKNOWN,
            CompileErrorKind::OwnStep => code::STEP_SELF_REFERENCE,
            CompileErrorKind::OutOfScope => code::STEP_OUT_OF_SCOPE,
        };
        let mark = locate(self.source, node.start, node.end, part, error.offset);
        self.refuse(code, mark, path, error.message.clone(), error.hint.clone());
    }
}

/// The least duration above zero.
pub(super) const POSITIVE: Duration = Duration::from_nanos(1);

/// Whether `key` is the lower camel case form of `name`.
fn is_camel_case_of(key: &str, name: &str) -> bool {
    let mut key = key.chars();
    let mut upper = false;
    for character in name.chars() {
        if character == '_' {
            upper = true;
            continue;
        }
        let expected = if upper { character.to_ascii_uppercase() } else { character };
        upper = false;
        if key.next() != Some(expected) {
            return false;
        }
    }
    key.next().is_none()
}

/// The known name that is meant, if one is near enough.
pub(in crate::domain) fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    // A long name is not a slip of a short one, and the distance costs the product of the lengths.
    const CHARACTERS_MAX: usize = 64;
    if name.len() > CHARACTERS_MAX {
        return None;
    }
    let folded = |text: &str| {
        text.chars().filter(|c| *c != '_' && *c != '-').flat_map(char::to_lowercase).collect::<Vec<char>>()
    };
    let name = folded(name);
    known
        .filter(|known| known.len() <= CHARACTERS_MAX)
        .map(|known| (distance(&name, &folded(known)), known))
        .filter(|(distance, known)| *distance <= 2.min((known.len() + 1) / 3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// Number of characters to insert, remove or replace between two texts.
fn distance(left: &[char], right: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

/// Names as a list in prose.
pub(super) fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
