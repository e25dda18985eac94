//! The filter of `ListExecutions`: comparisons joined by `AND`, a small part of AIP-160.
//!
//! ```text
//! state = RUNNING AND workflow = "order" AND start_time > "2026-01-01T00:00:00Z" AND labels.tenant = "a"
//! ```

use super::{field, time};
use crate::domain::Timestamp;
use crate::proto::workflow::execution::State;
use std::collections::BTreeSet;

/// Most characters of a filter.
pub const LENGTH_MAX: usize = 2_048;

/// What may stand on the left of a comparison, for the texts of errors.
const FIELDS: &str = "state, workflow, start_time, labels.KEY";

/// Which executions are asked for; all conditions hold together.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Filter {
    /// In one of these states; none for any.
    pub states: Option<BTreeSet<i32>>,
    /// Of this workflow.
    pub workflow: Option<String>,
    /// With all these labels.
    pub labels: Vec<(String, String)>,
    /// Started at or after.
    pub start_from: Option<Timestamp>,
    /// Started before.
    pub start_until: Option<Timestamp>,
    /// Whether two conditions exclude each other in a way that the fields above cannot say.
    pub contradiction: bool,
}

impl Filter {
    /// Reads a filter; an empty one takes everything.
    ///
    /// # Errors
    /// What is wrong with it, with the column, counted in characters from 1.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.chars().count() > LENGTH_MAX {
            return Err(format!("is longer than {LENGTH_MAX} characters"));
        }
        let mut reader = Reader { text, position: 0 };
        let mut filter = Self::default();
        if reader.at_end() {
            return Ok(filter);
        }
        loop {
            let comparison = reader.comparison()?;
            filter.add(&reader, comparison)?;
            if reader.at_end() {
                return Ok(filter);
            }
            let start = reader.position;
            if reader.word() != "AND" {
                return Err(
                    reader.error(start, "expected AND between two comparisons; OR, NOT and brackets are not supported")
                );
            }
        }
    }

    /// Whether nothing can fit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let no_state = self.states.as_ref().is_some_and(BTreeSet::is_empty);
        let no_time = matches!((self.start_from, self.start_until), (Some(from), Some(until)) if from >= until);
        self.contradiction || no_state || no_time
    }

    fn add(&mut self, reader: &Reader<'_>, comparison: Comparison<'_>) -> Result<(), String> {
        let Comparison { field, operator, value, field_at, operator_at, value_at } = comparison;
        let only = |allowed: &[Operator]| {
            if allowed.contains(&operator) {
                return Ok(());
            }
            let names: Vec<_> = allowed.iter().map(|operator| operator.text()).collect();
            Err(reader.error(operator_at, &format!("{field} takes {} only", names.join(" or "))))
        };
        match field {
            "state" => {
                only(&[Operator::Equal, Operator::NotEqual])?;
                let state = parse_state(&value).ok_or_else(|| {
                    reader.error(value_at, &format!("unknown state; there are {}", state_names().join(", ")))
                })?;
                let states = self.states.get_or_insert_with(|| STATES.iter().map(|state| *state as i32).collect());
                states.retain(|other| (*other == state as i32) == (operator == Operator::Equal));
            }
            "workflow" => {
                only(&[Operator::Equal])?;
                self.contradiction |= self.workflow.as_ref().is_some_and(|other| *other != value);
                self.workflow = Some(value);
            }
            "start_time" => {
                let allowed =
                    [Operator::Equal, Operator::Less, Operator::LessEqual, Operator::Greater, Operator::GreaterEqual];
                only(&allowed)?;
                let (start, exact) = parse_time(&value)
                    .ok_or_else(|| reader.error(value_at, "expected a time such as \"2026-01-01T00:00:00Z\""))?;
                self.add_start_time(operator, start, exact);
            }
            _ => {
                let key = field
                    .strip_prefix("labels.")
                    .filter(|key| field::label(key, "").is_ok())
                    .ok_or_else(|| reader.error(field_at, &format!("unknown field {field:?}; there are {FIELDS}")))?;
                only(&[Operator::Equal])?;
                self.labels.push((key.to_owned(), value));
            }
        }
        Ok(())
    }

    /// `exact` says that the caller's time has no digits below the microsecond; otherwise `time` is just before it.
    fn add_start_time(&mut self, operator: Operator, time: Timestamp, exact: bool) {
        let next = Timestamp::from_micros(time.as_micros().saturating_add(1));
        let at_or_after = if exact { time } else { next };
        let (from, until) = match operator {
            Operator::Equal | Operator::NotEqual => {
                self.contradiction |= !exact;
                (Some(time), Some(next))
            }
            Operator::Less => (None, Some(at_or_after)),
            Operator::LessEqual => (None, Some(next)),
            Operator::Greater => (Some(next), None),
            Operator::GreaterEqual => (Some(at_or_after), None),
        };
        self.start_from = self.start_from.max(from);
        self.start_until = match (self.start_until, until) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

const STATES: [State; 8] = [
    State::Running,
    State::WindingDown,
    State::Succeeded,
    State::Failed,
    State::Cancelled,
    State::TimedOut,
    State::Terminated,
    State::Paused,
];

fn state_names() -> Vec<&'static str> {
    STATES.iter().map(|state| short_name(*state)).collect()
}

/// A state as people write it: `RUNNING`.
#[must_use]
pub fn short_name(state: State) -> &'static str {
    let name = state.as_str_name();
    name.strip_prefix("STATE_").unwrap_or(name)
}

fn parse_state(text: &str) -> Option<State> {
    let short = text.strip_prefix("STATE_").unwrap_or(text);
    STATES.into_iter().find(|state| short_name(*state) == short)
}

fn parse_time(text: &str) -> Option<(Timestamp, bool)> {
    let parsed: prost_types::Timestamp = text.parse().ok()?;
    Some((time::parse(&parsed).ok()?, parsed.nanos % 1_000 == 0))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

impl Operator {
    const ALL: [Self; 6] =
        [Self::NotEqual, Self::LessEqual, Self::GreaterEqual, Self::Equal, Self::Less, Self::Greater];

    fn text(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Greater => ">",
            Self::GreaterEqual => ">=",
        }
    }
}

struct Comparison<'a> {
    field: &'a str,
    operator: Operator,
    value: String,
    field_at: usize,
    operator_at: usize,
    value_at: usize,
}

/// Reads a filter from left to right; positions are byte offsets.
struct Reader<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    fn skip_blanks(&mut self) {
        self.position += self.rest().len() - self.rest().trim_start().len();
    }

    fn at_end(&mut self) -> bool {
        self.skip_blanks();
        self.rest().is_empty()
    }

    fn error(&self, at: usize, what: &str) -> String {
        format!("column {}: {what}", self.text[..at].chars().count() + 1)
    }

    /// The longest run of characters that names, states and bare values are made of; may be empty.
    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "._-".contains(c))).unwrap_or(rest.len());
        self.position += end;
        &rest[..end]
    }

    fn comparison(&mut self) -> Result<Comparison<'a>, String> {
        self.skip_blanks();
        let field_at = self.position;
        let field = self.word();
        if field.is_empty() {
            return Err(self.error(field_at, &format!("expected a field: {FIELDS}")));
        }
        self.skip_blanks();
        let operator_at = self.position;
        let operator = Operator::ALL.into_iter().find(|operator| self.rest().starts_with(operator.text()));
        let operator = operator.ok_or_else(|| self.error(operator_at, "expected one of = != < <= > >="))?;
        self.position += operator.text().len();
        self.skip_blanks();
        let value_at = self.position;
        let value = if self.rest().starts_with('"') { self.quoted()? } else { self.word().to_owned() };
        if value.is_empty() && self.position == value_at {
            return Err(self.error(value_at, "expected a value: a word, or text in double quotes"));
        }
        Ok(Comparison { field, operator, value, field_at, operator_at, value_at })
    }

    fn quoted(&mut self) -> Result<String, String> {
        let start = self.position;
        let mut value = String::new();
        let mut characters = self.rest().char_indices().skip(1);
        while let Some((offset, character)) = characters.next() {
            match character {
                '"' => {
                    self.position += offset + 1;
                    return Ok(value);
                }
                '\\' => match characters.next() {
                    Some((_, escaped @ ('"' | '\\'))) => value.push(escaped),
                    _ => return Err(self.error(start + offset, "only \\\" and \\\\ are escapes")),
                },
                // No value that is stored has one, and PostgreSQL does not even take it to compare.
                _ if character.is_control() => {
                    return Err(self.error(start + offset, "a control character cannot be in a value"));
                }
                _ => value.push(character),
            }
        }
        Err(self.error(start, "the text in quotes does not end"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(states: &[State]) -> Option<BTreeSet<i32>> {
        Some(states.iter().map(|state| *state as i32).collect())
    }

    fn micros(text: &str) -> Option<Timestamp> {
        parse_time(text).map(|(time, _)| time)
    }

    #[test]
    fn comparisons_are_joined_by_and() {
        let filter = Filter::parse(
            "state = RUNNING AND workflow=\"order\" AND start_time >= \"2026-01-01T00:00:00Z\" \
             AND labels.tenant = \"a \\\"b\\\"\" AND labels.x-y=1",
        )
        .unwrap();
        assert_eq!(filter.states, states(&[State::Running]));
        assert_eq!(filter.workflow.as_deref(), Some("order"));
        assert_eq!(filter.start_from, micros("2026-01-01T00:00:00Z"));
        assert_eq!(filter.labels, [("tenant".into(), "a \"b\"".into()), ("x-y".into(), "1".into())]);
        assert!(!filter.is_empty());
        assert_eq!(Filter::parse("  "), Ok(Filter::default()));
    }

    #[test]
    fn states_are_intersected() {
        let parse = |text| Filter::parse(text).unwrap();
        assert_eq!(parse("state != RUNNING AND state != FAILED").states.unwrap().len(), 6);
        assert_eq!(parse("state = STATE_TIMED_OUT").states, states(&[State::TimedOut]));
        assert!(parse("state = RUNNING AND state = FAILED").is_empty());
        assert!(parse("state = RUNNING AND state != RUNNING").is_empty());
        assert!(parse("workflow = a AND workflow = b").is_empty());
        assert!(!parse("workflow = a AND workflow = a").is_empty());
    }

    #[test]
    fn times_are_half_open_spans_of_microseconds() {
        let span = |text: &str| {
            let filter = Filter::parse(text).unwrap();
            (
                filter.start_from.map(Timestamp::as_micros),
                filter.start_until.map(Timestamp::as_micros),
                filter.is_empty(),
            )
        };
        assert_eq!(span("start_time = \"1970-01-01T00:00:01Z\""), (Some(1_000_000), Some(1_000_001), false));
        assert_eq!(span("start_time > \"1970-01-01T00:00:01Z\""), (Some(1_000_001), None, false));
        assert_eq!(span("start_time >= \"1970-01-01T00:00:01.0000005Z\""), (Some(1_000_001), None, false));
        assert_eq!(span("start_time < \"1970-01-01T00:00:01.0000005Z\""), (None, Some(1_000_001), false));
        assert_eq!(span("start_time <= \"1970-01-01T00:00:01Z\""), (None, Some(1_000_001), false));
        let (_, _, empty) = span("start_time > \"1970-01-01T00:00:05Z\" AND start_time < \"1970-01-01T00:00:02Z\"");
        assert!(empty);
    }

    #[test]
    fn errors_tell_the_column_and_what_would_be_right() {
        for (text, column, hint) in [
            ("stat = RUNNING", 1, "state, workflow, start_time, labels.KEY"),
            ("state = BUSY", 9, "RUNNING, WINDING_DOWN"),
            ("state < RUNNING", 7, "= or !="),
            ("workflow = a OR workflow = b", 14, "AND"),
            ("workflow = a AND", 17, "expected a field"),
            ("workflow", 9, "expected one of"),
            ("workflow =", 11, "expected a value"),
            ("workflow = \"a", 12, "does not end"),
            ("workflow = \"a\0b\"", 14, "control character"),
            ("ü = 1", 1, "expected a field"),
            ("labels. = 1", 1, "unknown field"),
            ("start_time > yesterday", 14, "2026"),
        ] {
            let error = Filter::parse(text).unwrap_err();
            assert!(error.starts_with(&format!("column {column}: ")) && error.contains(hint), "{text}: {error}");
        }
        assert!(Filter::parse(&"a".repeat(3_000)).is_err());
    }
}
