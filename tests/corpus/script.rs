//! What happens in an execution, and what must come of it.
//!
//! ```yaml
//! input: {order_id: o-1}              # default {}
//! tasks:                              # by unit (`ship[1]`), by step (`ship`) or by contract; what is not named gives null
//!   charge: [{fail: BANK_DOWN}, {give: {receipt: r-1}}]     # one delivery after the other; the last goes on for ever
//! calls:                              # once this event is in the history (for the third time), and so long after it
//!   - {after: AwaitStarted approval, times: 3, later: 2h, signal: approved, payload: {by: anna}}
//! ends: SUCCEEDED                     # the default
//! output: {tracking: t-1}             # not looked at where it is absent
//! order: [StepSucceeded charge, ExecutionSucceeded]         # events that are in the history in this order
//! ```
//!
//! An event is written as its kind and unit. `AwaitStarted sign` stands for that of each item `sign[0]`, `sign[1]`, too;
//! `StepScheduled compensate` for that of each unit of that role.

use orbit::domain::definition::duration;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};

/// A script and the workflow that it is about.
pub(crate) struct Story {
    pub(crate) name: String,
    pub(crate) workflow: String,
    pub(crate) script: Script,
}

impl Story {
    /// Reads the script of a name such as `order` or `order.declined`.
    pub(crate) fn read(name: &str, text: &str) -> Self {
        let value = crate::yaml::read(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let value = if value.is_null() { json!({}) } else { value };
        let script = serde_json::from_value(value).unwrap_or_else(|error| panic!("{name}: {error}"));
        let workflow = name.split('.').next().expect("a split has a first part").to_owned();
        Self { name: name.to_owned(), workflow, script }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Script {
    /// Id of the execution; the story's name where it is absent.
    pub(crate) id: Option<String>,
    #[serde(default = "empty")]
    pub(crate) input: Value,
    /// Pause before it begins.
    #[serde(default, deserialize_with = "some_span")]
    pub(crate) delay: Option<Duration>,
    #[serde(default)]
    pub(crate) tasks: BTreeMap<String, Behaviours>,
    #[serde(default)]
    pub(crate) calls: Vec<Call>,
    #[serde(default = "succeeded")]
    pub(crate) ends: String,
    /// Code of the failure that it ends with.
    pub(crate) failure: Option<String>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) output: Option<Value>,
    /// Events that are in the history in this order.
    #[serde(default)]
    pub(crate) order: Vec<String>,
    /// Events that are not in the history.
    #[serde(default)]
    pub(crate) never: Vec<String>,
    /// Inputs that units got, the newest where a unit ran again.
    #[serde(default)]
    pub(crate) inputs: BTreeMap<String, Value>,
    /// Answers to queries at the end.
    #[serde(default)]
    pub(crate) queries: BTreeMap<String, Value>,
    /// Runs in all.
    pub(crate) runs: Option<usize>,
    /// Most items of a step that ran at once.
    #[serde(default)]
    pub(crate) at_once: BTreeMap<String, usize>,
    /// Executions of each workflow that were started as children, of children too.
    #[serde(default)]
    pub(crate) children: BTreeMap<String, usize>,
    /// State that all children of a workflow end in.
    #[serde(default)]
    pub(crate) children_end: BTreeMap<String, String>,
    /// Time from start to close.
    pub(crate) lasts: Option<Lasts>,
    /// When it ends, to the hour.
    pub(crate) ends_at: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lasts {
    #[serde(deserialize_with = "span")]
    pub(crate) least: Duration,
    #[serde(deserialize_with = "span")]
    pub(crate) most: Duration,
}

/// What a worker does with the deliveries of a unit.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Behaviours {
    One(Box<Behaviour>),
    Several(Vec<Behaviour>),
}

impl Behaviours {
    /// What becomes of the delivery of this number, from 0.
    pub(crate) fn of(&self, delivery: usize) -> &Behaviour {
        match self {
            Self::One(one) => one,
            Self::Several(several) => several.get(delivery).or(several.last()).expect("a list has an entry"),
        }
    }
}

/// What a worker does with a delivery.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Behaviour {
    /// Success with this output; a text `$a.b` in it is that field of the task's input.
    #[serde(default)]
    pub(crate) give: Value,
    /// Failure with this code.
    pub(crate) fail: Option<String>,
    #[serde(default = "yes")]
    pub(crate) retryable: bool,
    #[serde(default, deserialize_with = "some_span")]
    pub(crate) retry_after: Option<Duration>,
    /// It is given back.
    #[serde(default)]
    pub(crate) release: bool,
    /// The worker never speaks of it again, as if it had died.
    #[serde(default)]
    pub(crate) silent: bool,
    /// The worker holds it and never reports.
    #[serde(default)]
    pub(crate) hold: bool,
    /// Its report comes so much later.
    #[serde(default, deserialize_with = "some_span")]
    pub(crate) takes: Option<Duration>,
    /// Progress that each heartbeat tells.
    pub(crate) progress: Option<Value>,
    /// Whether each heartbeat is a beat of its own.
    #[serde(default)]
    pub(crate) beats: bool,
}

/// Somebody calls.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Call {
    /// The execution is a child of this workflow; else the story's own.
    pub(crate) of: Option<String>,
    /// Every child of that workflow is called, not only the first.
    #[serde(default)]
    pub(crate) each: bool,
    /// But those whose input has these members.
    #[serde(default)]
    pub(crate) except: BTreeMap<String, Value>,
    /// The event after which the call is made; at once where it is absent.
    pub(crate) after: Option<String>,
    #[serde(default = "once")]
    pub(crate) times: usize,
    #[serde(default, deserialize_with = "some_span")]
    pub(crate) later: Option<Duration>,
    pub(crate) signal: Option<String>,
    #[serde(default)]
    pub(crate) payload: Value,
    pub(crate) cancel: Option<String>,
    /// Cancels the story's execution, whoever's event it was.
    pub(crate) cancel_parent: Option<String>,
    pub(crate) terminate: Option<String>,
    pub(crate) pause: Option<String>,
    #[serde(default)]
    pub(crate) resume: bool,
    /// What failed runs again.
    #[serde(default)]
    pub(crate) retry: bool,
}

fn empty() -> Value {
    json!({})
}

fn succeeded() -> String {
    "SUCCEEDED".to_owned()
}

fn yes() -> bool {
    true
}

fn once() -> usize {
    1
}

/// A value that is there may be null.
fn present<'d, D: Deserializer<'d>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

fn span<'d, D: Deserializer<'d>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    duration::parse(&text).map_err(|_| serde::de::Error::custom(format!("{text:?} is not a duration")))
}

fn some_span<'d, D: Deserializer<'d>>(from: D) -> Result<Option<Duration>, D::Error> {
    span(from).map(Some)
}
