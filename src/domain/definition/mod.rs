//! Definitions: from a person's text to the model that decisions are made on.
//!
//! - [`Definition::parse`] reads YAML or JSON and reports every fault at once, each with its place.
//! - [`Definition::parse_stored`] compiles what was deployed before, without judging it by checks that came later.
//! - [`Definition::to_json`] writes the definition's one JSON form; parsing it gives the same definition and hash.
//! - The hash is SHA-256 over the meaning: defaults filled in, without description, labels, order of keys.
//!
//! # Design
//!
//! Text becomes a tree with marks (`source`, `yaml`, `node`), the tree becomes the model in one pass (`parse`,
//! `step` and a file for each action), which compiles schemas and expressions as it goes and collects faults; what only
//! the whole graph shows (`graph`, `continue_as_new`, `signal`, `coverage`) is checked last. A field that equals its
//! default is not written, neither to JSON nor into the hash, so a new field with a default changes no hash of a
//! definition that does not use it.
//!
//! What may be mentioned where is one table, in `references`. Compensations and handlers are steps like others, behind
//! those under `steps` in one flat list, so units, tasks and timers need no second kind of step.

mod action;
mod child;
mod compensate;
mod continue_as_new;
mod coverage;
pub mod duration;
mod expression;
mod fail;
mod fan_out;
pub mod fault;
mod fields;
mod graph;
mod handlers;
mod http;
mod model;
mod node;
mod outline;
mod parse;
mod range;
mod references;
mod render;
mod retry;
#[cfg(test)]
pub(crate) mod sample;
mod schema;
mod signal;
mod sleep;
mod slot_input;
mod source;
mod step;
mod task;
#[cfg(test)]
mod tests;
mod yaml;

pub use expression::{
    EXPRESSION_BYTES_MAX, EvaluationError, ExecutionScope, Expression, ItemScope, Meter, Problem, ScheduleScope, Scope,
    StepLookup, StepView, Template, WORK_MAX,
};
pub(super) use fault::shorten;
pub use fault::{Fault, Place, code};
pub(super) use fields::nearest;
pub use http::HTTP_HEADERS_RESERVED;
pub use model::{
    Action, Await, ChildStep, ContinueAsNew, Definition, Fail, ForEach, HTTP_CONTRACT, HTTP_QUEUE,
    HTTP_TIMEOUT_DEFAULT, Handlers, ITEMS_MAX, Lifetime, OnError, PRIORITY_DEFAULT, Pin, QUEUE_DEFAULT, Role,
    STEPS_MAX, SignalStep, SignalTarget, Sleep, Step, StepIndex, TaskContract, TaskStep, Unknown, VARIABLE_DEFAULT,
    Winding,
};
pub use parse::LABEL_PREFIX_RESERVED;
pub use range::{RangeError, VersionRange};
pub use schema::{Schema, SchemaError};
pub use slot_input::SlotInput;
pub use source::SOURCE_BYTES_MAX;
