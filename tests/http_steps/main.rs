//! `http` steps from end to end: an engine with its own worker, and servers on this machine that it calls.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests measure real time where a promise is about it, and fail where something is not there"
)]

mod cancelled;
mod databases;
mod harness;
mod killed;
#[path = "../support/postgres.rs"]
mod postgres;
mod results;
mod served;
