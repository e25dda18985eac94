//! The interfaces, from outside: a real server on a free port, a real gRPC client, raw HTTP.
//!
//! One happy path and each error of each rpc; not the rules again. Names begin with the field case they answer, if any.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests measure real time where a promise is about it, and fail where something is not there"
)]

mod batches;
mod definitions;
mod executions;
mod explain;
mod harness;
mod health;
mod history;
mod http;
mod limits;
mod lists;
mod repair;
mod schedules;
mod shutdown;
mod stream;
mod workers;
