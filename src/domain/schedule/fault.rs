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
    /// An input that does not fit the definition, or that comes to nothing.
    pub const INPUT_INVALID: &str = "INPUT_INVALID";
    pub use crate::domain::definition::code::{
        CHARACTER_REFUSED, DUPLICATE_KEY, ENUM_INVALID, FIELD_REQUIRED, LABEL_INVALID, NAME_INVALID, NUMBER_INVALID,
        OUT_OF_RANGE, SOURCE_NESTING, SOURCE_SYNTAX, TEMPLATE_INVALID, TEXT_TOO_LONG, TOO_MANY, VERSION_INVALID,
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
