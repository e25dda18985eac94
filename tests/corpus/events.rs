//! Histories as scripts write them: a line for each event.

use orbit::{domain::Event, proto::json, wire};
use serde_json::Value;

/// An event: its line, and what a script may ask of it.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Kind and unit: `StepSucceeded ship[1]`.
    pub(crate) text: String,
    /// Microseconds.
    pub(crate) time: i64,
    /// The message of the event's kind.
    pub(crate) body: Value,
}

impl Line {
    pub(crate) fn of(event: &Event) -> Self {
        let rendered = json::to_string(&wire::event::render(event)).expect("an event can be written");
        let Value::Object(members) = serde_json::from_str(&rendered).expect("it is JSON") else {
            unreachable!("a message is an object")
        };
        let name = wire::event::kind_name(&event.kind);
        let body = members.get(&camel(name, false)).cloned().unwrap_or(Value::Null);
        let kind = camel(name, true);
        let text = match body.get("unit").and_then(Value::as_str) {
            Some(unit) => format!("{kind} {unit}"),
            None => kind,
        };
        Self { text, time: event.time.as_micros(), body }
    }

    /// Whether this is what a script means.
    pub(crate) fn is(&self, pattern: &str) -> bool {
        self.text.strip_prefix(pattern).is_some_and(|rest| rest.is_empty() || rest.starts_with(['[', ':']))
    }

    /// The unit, where the event is one's.
    pub(crate) fn unit(&self) -> Option<&str> {
        self.body.get("unit").and_then(Value::as_str)
    }

    pub(crate) fn kind(&self) -> &str {
        self.text.split(' ').next().expect("a split has a first part")
    }
}

/// `step_succeeded` as `StepSucceeded` or `stepSucceeded`.
fn camel(name: &str, first: bool) -> String {
    let mut upper = first;
    let mut out = String::new();
    for c in name.chars() {
        match c {
            '_' => upper = true,
            c if upper => {
                out.extend(c.to_uppercase());
                upper = false;
            }
            c => out.push(c),
        }
    }
    out
}

/// The first of these patterns that is not found, each after the one before.
pub(crate) fn missing<'p>(lines: &[Line], order: &'p [String]) -> Option<&'p str> {
    let mut rest = lines.iter();
    order.iter().find(|pattern| !rest.any(|line| line.is(pattern))).map(String::as_str)
}

/// Most items of a step that ran at once.
pub(crate) fn at_once(lines: &[Line], step: &str) -> usize {
    let (mut running, mut most) = (std::collections::BTreeSet::new(), 0);
    let prefix = format!("{step}[");
    for line in lines {
        let Some(unit) = line.unit().filter(|unit| unit.starts_with(&prefix)) else { continue };
        match line.kind() {
            "StepSucceeded" | "StepFailed" | "StepCancelled" => running.remove(unit),
            _ => running.insert(unit),
        };
        most = most.max(running.len());
    }
    most
}
