//! The rules, as pure functions: values in, values out. No async, no clock, no randomness, no store, no wire.

mod failure;
mod payload;
mod time;

pub use failure::{Failure, code};
pub use payload::{PAYLOAD_BYTES_MAX, Payload};
pub use time::{SPAN_MAX, Timestamp};
