//! The engine on the memory store, on one thread, in time that only a test moves.
//!
//! - [`executions`], [`workers`], [`presence`], [`faults`] and [`poison`] tell one story each: what a caller or a worker sees.
#![allow(clippy::disallowed_methods, reason = "tokio's time is paused here, so a sleep moves it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod executions;
mod faults;
mod harness;
mod poison;
mod presence;
mod workers;
