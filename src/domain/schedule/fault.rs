//! What is wrong with a schedule.

use super::Fault;

/// The codes of faults of a schedule, explained in `docs/schedules.md`. A released code never changes its meaning.
pub mod code {
    /// A cron that is none.
    pub const CRON_INVALID: &str = "CRON_INVALID";
    /// A time zone that does not exist.
    pub const TIMEZONE_INVALID: &str = "TIMEZONE_INVALID";
    /// A date that does not exist.
    pub const DATE_INVALID: &str = "DATE_INVALID";
    /// A schedule, or a part of it, that never fires.
    pub const NEVER_FIRES: &str = "NEVER_FIRES";
    pub use crate::domain::definition::code::{
        FIELD_REQUIRED, OUT_OF_RANGE, TEMPLATE_INVALID, TEXT_TOO_LONG, TOO_MANY,
    };
}

/// A fault of a field, without a position in a text.
pub(super) fn fault(
    path: impl Into<String>,
    code: &'static str,
    message: impl Into<String>,
    hint: impl Into<String>,
) -> Fault {
    Fault { code, message: message.into(), hint: hint.into(), path: path.into(), line: 0, column: 0 }
}
