//! Paths into payloads, such as `input.items[0].sku`: found by slicing the JSON text, so what is only passed on is
//! never parsed and keeps every byte.

use super::{Problem, Scope};
use crate::domain::{
    Failure, Timestamp,
    definition::{StepIndex, duration},
    json,
};
use std::{borrow::Cow, fmt, sync::Arc};

/// Where a path begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    Input,
    Output(StepIndex),
    Error(StepIndex),
    State(StepIndex),
    Signal,
    Event,
    Failure,
    ItemValue,
    ItemIndex,
    ExecutionId,
    ExecutionRun,
    ExecutionStartTime,
    ScheduleId,
    ScheduleNominalTime,
    ScheduleStartTime,
}

/// One step of a path.
/// Bytes that are read past in about the time of a unit of work.
const READ_BYTES: usize = 128;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    Member(Arc<str>),
    Element(usize),
}

/// A path, and how its root is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) root: Root,
    pub(super) root_text: Arc<str>,
    pub(super) segments: Vec<Segment>,
}

impl Path {
    /// JSON text of what the path leads to.
    pub(super) fn find<'s>(&self, scope: &Scope<'s>) -> Result<Cow<'s, str>, Problem> {
        let mut text = self.root_value(scope);
        // Following a path reads past what stands before, of a large payload over and over.
        if !self.segments.is_empty() {
            scope.count(text.len() / READ_BYTES);
        }
        for (index, segment) in self.segments.iter().enumerate() {
            text = match text {
                Cow::Borrowed(text) => Cow::Borrowed(self.follow(text, index, segment)?),
                Cow::Owned(text) => Cow::Owned(self.follow(&text, index, segment)?.to_owned()),
            };
        }
        Ok(text)
    }

    fn root_value<'s>(&self, scope: &Scope<'s>) -> Cow<'s, str> {
        const NULL: Cow<'static, str> = Cow::Borrowed("null");
        match self.root {
            Root::Input => Cow::Borrowed(scope.input.as_str()),
            Root::Signal => scope.signal.map_or(NULL, |signal| Cow::Borrowed(signal.as_str())),
            Root::Event => scope.event.map_or(NULL, |event| Cow::Borrowed(event.as_str())),
            Root::Failure => scope.failure.map_or(NULL, |cause| Cow::Owned(failure(cause))),
            Root::ItemValue => scope.item.map_or(NULL, |item| Cow::Borrowed(item.value)),
            Root::ItemIndex => scope.item.map_or(NULL, |item| Cow::Owned(item.index.to_string())),
            Root::Output(step) => scope.steps.step(step).output.map_or(NULL, |output| Cow::Borrowed(output.as_str())),
            Root::Error(step) => scope.steps.step(step).error.map_or(NULL, |error| Cow::Owned(failure(error))),
            Root::State(step) => Cow::Owned(quoted(scope.steps.step(step).state)),
            Root::ExecutionId => Cow::Owned(quoted(scope.execution.id)),
            Root::ExecutionRun => Cow::Owned(scope.execution.run.to_string()),
            Root::ExecutionStartTime => time(scope.execution.start_time),
            Root::ScheduleId => scope.schedule.map_or(NULL, |schedule| Cow::Owned(quoted(schedule.id))),
            Root::ScheduleNominalTime => scope.schedule.map_or(NULL, |schedule| time(schedule.nominal_time)),
            Root::ScheduleStartTime => scope.schedule.map_or(NULL, |schedule| time(schedule.start_time)),
        }
    }

    fn follow<'t>(&self, text: &'t str, index: usize, segment: &Segment) -> Result<&'t str, Problem> {
        let malformed = |error: json::JsonError| Problem::Failed(format!("the payload is not JSON: {error}"));
        let missing = |reason: String| Problem::Missing {
            path: self.prefix(index + 1).to_string(),
            reason: format!("`{}` {reason}", self.prefix(index)),
        };
        let first = text.bytes().find(|byte| !byte.is_ascii_whitespace());
        match (segment, first) {
            (Segment::Member(name), Some(b'{')) => {
                json::member(text, name).map_err(malformed)?.ok_or_else(|| missing(format!("has no field `{name}`")))
            }
            (Segment::Element(element), Some(b'[')) => json::element(text, *element)
                .map_err(malformed)?
                .map_err(|length| missing(format!("has {length} elements"))),
            (Segment::Member(_) | Segment::Element(_), _) => Err(missing(format!("is {}", kind(first)))),
        }
    }

    fn prefix(&self, count: usize) -> Prefix<'_> {
        Prefix { path: self, count }
    }
}

struct Prefix<'p> {
    path: &'p Path,
    count: usize,
}

impl fmt::Display for Prefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path.root_text)?;
        for segment in &self.path.segments[..self.count] {
            match segment {
                Segment::Member(name) if is_identifier(name) => write!(f, ".{name}")?,
                Segment::Member(name) => write!(f, "[{name:?}]")?,
                Segment::Element(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// An instant as JSON.
fn time(instant: Timestamp) -> Cow<'static, str> {
    Cow::Owned(quoted(&duration::format_time(instant)))
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// What the value that begins with `first` is.
fn kind(first: Option<u8>) -> &'static str {
    match first {
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b'"') => "a text",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') | None => "null",
        Some(_) => "a number",
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    json::write_string(&mut out, text);
    out
}

/// What expressions see of a failure.
fn failure(failure: &Failure) -> String {
    let mut out = String::from("{\"code\":");
    json::write_string(&mut out, &failure.code);
    out.push_str(",\"message\":");
    json::write_string(&mut out, &failure.message);
    out.push_str(",\"details\":");
    out.push_str(failure.details.as_ref().map_or("null", |details| details.as_str()));
    out.push_str(",\"unit\":");
    json::write_string(&mut out, &failure.unit);
    out.push('}');
    out
}
