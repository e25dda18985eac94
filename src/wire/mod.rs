//! Converts between domain and proto, both ways, and validates requests.
//!
//! - Everything that comes from outside is judged here once; past this module values are well formed.
//! - All bad fields of a call are collected ([`Violations`]) and reported together.
//! - The stored event and the event of the API are one message, mapped in [`event`] and nowhere else.

pub mod canonical;
pub mod event;
pub mod execution;
pub mod explanation;
pub mod field;
pub mod filter;
pub mod page;
pub mod payload;
pub mod request;
pub mod schedule;
pub mod time;
pub mod token;
mod violation;

pub use violation::{Invalid, Violation, Violations, field_path};
