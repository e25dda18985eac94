//! JSON documents with `${ … }` in their texts.
//!
//! A text that is one whole `${ … }` gives the expression's value with its type; any other text is put together from
//! its parts. `$${` is the two characters `${`. Members keep the order of the template; constant parts keep every
//! digit.

use super::{
    Budget, EvaluationError, Expression, Form, Problem, Scope, append_raw,
    compile::{CompileError, compile},
    nesting::string_end,
};
use crate::domain::{
    PAYLOAD_BYTES_MAX, Payload,
    definition::{
        fault::shorten,
        node::{Node, Value},
        references::References,
    },
    json,
};
use std::{fmt, sync::Arc};

/// Characters of a template that an error shows.
const SHOWN_MAX: usize = 100;

/// A compiled template.
#[derive(Clone)]
pub struct Template {
    source: Arc<Node>,
    root: Part,
}

#[derive(Clone)]
enum Part {
    /// JSON text without expressions.
    Constant(Payload),
    Whole(Expression),
    Text(Vec<Piece>),
    List(Vec<Part>),
    Object(Vec<(Box<str>, Part)>),
}

#[derive(Clone)]
enum Piece {
    Literal(Box<str>),
    Expression(Expression),
}

/// What is wrong with a template, and where.
pub(in crate::domain::definition) struct TemplateFault<'n> {
    /// The text that it is in.
    pub(in crate::domain::definition) node: &'n Node,
    /// Path of that text within the template, such as `.items[2]`.
    pub(in crate::domain::definition) path: String,
    /// The part of the text that the offset counts in.
    pub(in crate::domain::definition) part: String,
    pub(in crate::domain::definition) error: CompileError,
}

impl Template {
    /// Compiles a template; all faults at once.
    pub(in crate::domain::definition) fn compile<'n>(
        node: &'n Node,
        references: &mut References<'_>,
    ) -> Result<Self, Vec<TemplateFault<'n>>> {
        let mut compiler = TemplateCompiler { references, faults: Vec::new() };
        let root = compiler.part(node, "");
        if compiler.faults.is_empty() {
            Ok(Self { source: Arc::new(node.clone()), root })
        } else {
            Err(compiler.faults)
        }
    }

    /// The document that was compiled.
    pub(in crate::domain::definition) fn source(&self) -> &Node {
        &self.source
    }

    /// The template's value if it holds no expressions.
    #[must_use]
    pub fn as_constant(&self) -> Option<&Payload> {
        match &self.root {
            Part::Constant(payload) => Some(payload),
            Part::Whole(_) | Part::Text(_) | Part::List(_) | Part::Object(_) => None,
        }
    }

    /// The text of a member of an object, if it stands there as it is.
    pub(in crate::domain::definition) fn member(&self, key: &str) -> Option<&str> {
        match &self.source.get(key)?.value {
            Value::Text(text) => Some(text),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Object(_) => None,
        }
    }

    /// What kind of value it gives, as people say it; `None` if only the evaluation can tell.
    pub(in crate::domain::definition) fn kind(&self) -> Option<&'static str> {
        match &self.root {
            Part::Whole(_) => None,
            Part::Constant(_) | Part::Text(_) | Part::List(_) | Part::Object(_) => Some(self.source.kind()),
        }
    }

    /// Evaluates to JSON. One budget of work holds for the whole template.
    ///
    /// # Errors
    ///
    /// [`EvaluationError`] of the first expression that fails.
    pub fn evaluate(&self, scope: &Scope<'_>) -> Result<Payload, EvaluationError> {
        match &self.root {
            Part::Constant(payload) => Ok(payload.clone()),
            Part::Whole(expression) => expression.evaluate(scope),
            Part::Text(_) | Part::List(_) | Part::Object(_) => {
                let mut out = String::new();
                let mut budget = Budget::new();
                let written = write(&self.root, scope, &mut budget, &mut out);
                scope.count(budget.spent());
                written?;
                Ok(Payload::from_json(out))
            }
        }
    }

    /// Evaluates to a text: a text without its quotes, everything else as JSON.
    ///
    /// # Errors
    ///
    /// As [`Template::evaluate`].
    pub fn evaluate_text(&self, scope: &Scope<'_>) -> Result<String, EvaluationError> {
        let payload = self.evaluate(scope)?;
        let mut out = String::new();
        append_raw(&mut out, payload.as_str(), Form::Text).map_err(|problem| self.error(problem))?;
        Ok(out)
    }

    /// A problem with the template's value as a whole.
    pub(in crate::domain::definition) fn error(&self, problem: Problem) -> EvaluationError {
        let expression = match &self.root {
            Part::Whole(expression) => Arc::from(expression.source()),
            Part::Constant(_) | Part::Text(_) | Part::List(_) | Part::Object(_) => {
                Arc::from(shorten(&self.source.to_json(), SHOWN_MAX))
            }
        };
        EvaluationError { expression, problem }
    }
}

fn write(part: &Part, scope: &Scope<'_>, budget: &mut Budget, out: &mut String) -> Result<(), EvaluationError> {
    match part {
        Part::Constant(payload) => out.push_str(payload.as_str()),
        Part::Whole(expression) => {
            expression.append(scope, budget, out, Form::Json).map_err(|problem| expression.error(problem))?
        }
        Part::Text(pieces) => {
            let mut text = String::new();
            for piece in pieces {
                match piece {
                    Piece::Literal(literal) => text.push_str(literal),
                    Piece::Expression(expression) => expression
                        .append(scope, budget, &mut text, Form::Text)
                        .map_err(|problem| expression.error(problem))?,
                }
            }
            json::write_string(out, &text);
        }
        Part::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(item, scope, budget, out)?;
            }
            out.push(']');
        }
        Part::Object(members) => {
            out.push('{');
            for (index, (name, member)) in members.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                json::write_string(out, name);
                out.push(':');
                write(member, scope, budget, out)?;
            }
            out.push('}');
        }
    }
    if out.len() > PAYLOAD_BYTES_MAX {
        return Err(EvaluationError { expression: Arc::from("template"), problem: Problem::TooLarge });
    }
    Ok(())
}

struct TemplateCompiler<'r, 'a, 'n> {
    references: &'r mut References<'a>,
    faults: Vec<TemplateFault<'n>>,
}

impl<'n> TemplateCompiler<'_, '_, 'n> {
    fn part(&mut self, node: &'n Node, path: &str) -> Part {
        match &node.value {
            Value::Null | Value::Bool(_) | Value::Number(_) => Part::Constant(Payload::from_json(node.to_json())),
            Value::Text(text) => self.text(node, text, path),
            Value::List(items) => {
                let parts: Vec<Part> = items
                    .iter()
                    .enumerate()
                    .map(|(index, item)| self.part(item, &format!("{path}[{index}]")))
                    .collect();
                constant(&parts, |parts| format!("[{}]", parts.join(","))).unwrap_or(Part::List(parts))
            }
            Value::Object(entries) => {
                let mut names = Vec::with_capacity(entries.len());
                let mut parts = Vec::with_capacity(entries.len());
                for entry in entries {
                    names.push(self.name(node, &entry.key, path));
                    parts.push(self.part(&entry.node, &member(path, &entry.key)));
                }
                let whole = constant(&parts, |parts| {
                    let members = names.iter().zip(parts).map(|(name, part)| {
                        let mut member = String::new();
                        json::write_string(&mut member, name);
                        member + ":" + part
                    });
                    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
                });
                whole.unwrap_or_else(|| Part::Object(names.into_iter().zip(parts).collect()))
            }
        }
    }

    /// Names of members are literal: what a document looks like does not depend on values.
    fn name(&mut self, node: &'n Node, key: &str, path: &str) -> Box<str> {
        match split(key) {
            Ok(pieces) if pieces.iter().all(|piece| matches!(piece, Split::Literal(_))) => literal(&pieces).into(),
            Ok(_) | Err(_) => {
                let message = "an expression cannot stand in the name of a field; write `$${` for the characters `${`";
                self.fault(node, path, key, CompileError::template(0, message));
                key.into()
            }
        }
    }

    fn text(&mut self, node: &'n Node, text: &'n str, path: &str) -> Part {
        if let Some(source) = whole(text) {
            return match self.expression(node, source, path) {
                Some(expression) => Part::Whole(expression),
                None => Part::Constant(Payload::null()),
            };
        }
        let pieces = match split(text) {
            Ok(pieces) => pieces,
            Err(error) => {
                self.fault(node, path, text, error);
                return Part::Constant(Payload::null());
            }
        };
        if pieces.iter().all(|piece| matches!(piece, Split::Literal(_))) {
            let mut out = String::new();
            json::write_string(&mut out, &literal(&pieces));
            return Part::Constant(Payload::from_json(out));
        }
        let pieces = pieces.into_iter().filter_map(|piece| match piece {
            Split::Literal(text) => Some(Piece::Literal(text.into())),
            Split::Expression(source) => self.expression(node, source, path).map(Piece::Expression),
        });
        Part::Text(pieces.collect())
    }

    fn expression(&mut self, node: &'n Node, source: &'n str, path: &str) -> Option<Expression> {
        match compile(source, self.references) {
            Ok(expression) => Some(expression),
            Err(errors) => {
                for error in errors {
                    self.fault(node, path, source, error);
                }
                None
            }
        }
    }

    fn fault(&mut self, node: &'n Node, path: &str, part: &str, error: CompileError) {
        self.faults.push(TemplateFault { node, path: path.to_owned(), part: part.to_owned(), error });
    }
}

/// Joins parts into one constant if all are.
fn constant(parts: &[Part], join: impl FnOnce(&[&str]) -> String) -> Option<Part> {
    let constants: Option<Vec<&str>> = parts
        .iter()
        .map(|part| match part {
            Part::Constant(payload) => Some(payload.as_str()),
            Part::Whole(_) | Part::Text(_) | Part::List(_) | Part::Object(_) => None,
        })
        .collect();
    constants.map(|constants| Part::Constant(Payload::from_json(join(&constants))))
}

/// A part of a text.
#[derive(Debug, PartialEq, Eq)]
enum Split<'t> {
    Literal(&'t str),
    /// Source without the white space around it.
    Expression(&'t str),
}

fn literal(pieces: &[Split<'_>]) -> String {
    pieces
        .iter()
        .map(|piece| match piece {
            Split::Literal(text) | Split::Expression(text) => *text,
        })
        .collect()
}

/// Source of the expression, if the text is one whole `${ … }`. A line end behind it, as block texts of YAML have, is
/// not a part of the text.
pub(in crate::domain::definition) fn whole(text: &str) -> Option<&str> {
    let text = text.trim_end_matches(['\n', '\r']);
    let source = text.strip_prefix("${")?;
    let end = expression_end(source)?;
    (end + 1 == source.len()).then(|| source[..end].trim())
}

/// The text with the white space inside each `${ … }` removed, so that texts of equal meaning are equal.
pub(in crate::domain::definition) fn canonical_text(text: &str) -> String {
    if let Some(source) = whole(text) {
        return format!("${{{source}}}");
    }
    let Ok(pieces) = split(text) else { return text.to_owned() };
    let mut out = String::new();
    for piece in pieces {
        match piece {
            Split::Literal(literal) => out.push_str(&literal.replace("${", "$${")),
            Split::Expression(source) => {
                out.push_str("${");
                out.push_str(source);
                out.push('}');
            }
        }
    }
    out
}

/// Splits a text into literals and expressions.
fn split(text: &str) -> Result<Vec<Split<'_>>, CompileError> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut at = 0;
    while let Some(found) = text[at..].find('$').map(|offset| at + offset) {
        let rest = &text[found..];
        if rest.starts_with("$${") {
            // Both characters after the first dollar are literal.
            if start < found {
                pieces.push(Split::Literal(&text[start..found]));
            }
            start = found + 1;
            at = found + 3;
        } else if let Some(source) = rest.strip_prefix("${") {
            let Some(end) = expression_end(source) else {
                return Err(CompileError::template(
                    found,
                    "`${` without a closing `}`; write `$${` for the characters `${`",
                ));
            };
            if start < found {
                pieces.push(Split::Literal(&text[start..found]));
            }
            pieces.push(Split::Expression(source[..end].trim()));
            at = found + 2 + end + 1;
            start = at;
        } else {
            at = found + 1;
        }
    }
    if start < text.len() {
        pieces.push(Split::Literal(&text[start..]));
    }
    Ok(pieces)
}

/// Where the `}` stands that closes an expression: not within its strings, comments or braces.
fn expression_end(source: &str) -> Option<usize> {
    let bytes = source.as_bytes();
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' | b'\'' => {
                at = string_end(bytes, at);
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at = bytes[at..].iter().position(|byte| *byte == b'\n').map(|end| at + end)?;
                continue;
            }
            b'{' => depth += 1,
            b'}' if depth == 0 => return Some(at),
            b'}' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    None
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Template({})", self.source.to_json())
    }
}

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        self.source.to_json() == other.source.to_json()
    }
}
/// The path of a member: `.name`, or `["a.b"]` where the name would read as something else.
fn member(path: &str, key: &str) -> String {
    let is_plain = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if is_plain { format!("{path}.{key}") } else { format!("{path}[{key:?}]") }
}
