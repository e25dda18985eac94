//! What callers set of a schedule, on the wire and as it is stored.
//!
//! It is stored as it was asked for, the four fields of the message `Schedule` that callers set, as JSON. It is judged again
//! whenever it is read: what is stored may be of another version, or of somebody's hand.

mod read;

pub use read::{Setting, Start, overlap, read, spec};

use crate::proto::{json, schedule as proto};
use crate::wire::{Invalid, Violations};
use std::sync::Arc;

/// The label that executions of a schedule carry: the schedule's id.
pub const LABEL: &str = "orbit.schedule";

/// Fields of a schedule that callers set.
pub const SETTABLE: [&str; 4] = ["spec", "start", "policies", "description"];

/// What callers set: as it is stored, and what it means.
#[derive(Clone, Debug)]
pub struct Settings {
    /// JSON text.
    pub text: Arc<str>,
    /// What it means.
    pub setting: Setting,
}

impl Settings {
    /// Judges what a caller sets; notes everything that is wrong.
    pub fn judge(violations: &mut Violations, schedule: &proto::Schedule) -> Option<Self> {
        let setting = read(violations, schedule)?;
        let text = json::to_string_sparse(&settable(schedule));
        let text = violations.take("spec", text.map_err(|error| error.to_string()))?;
        Some(Self { text: text.into(), setting })
    }

    /// Settings that may be used, of what was stored.
    ///
    /// # Errors
    /// What is wrong with them, for people.
    pub fn restore(text: &str) -> Result<Setting, String> {
        let schedule = stored(text)?;
        let mut violations = Violations::new();
        let setting = read(&mut violations, &schedule);
        violations.finish(setting).map_err(|invalid: Invalid| invalid.to_string())
    }
}

/// The fields that callers set, and no others.
#[must_use]
pub fn settable(schedule: &proto::Schedule) -> proto::Schedule {
    proto::Schedule {
        spec: schedule.spec.clone(),
        start: schedule.start.clone(),
        policies: schedule.policies,
        description: schedule.description.clone(),
        ..proto::Schedule::default()
    }
}

/// The settings as they were stored, not judged.
///
/// # Errors
/// What is wrong with the text.
pub fn stored(text: &str) -> Result<proto::Schedule, String> {
    json::from_slice(text.as_bytes()).map_err(|faults| format!("its settings cannot be read: {faults}"))
}
