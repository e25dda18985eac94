//! The interfaces: gRPC services that parse, call and render; and the server around them.
//!
//! - A handler judges its request through `wire`, asks the engine, and renders the answer; it decides nothing.
//! - [`status`] alone knows gRPC codes. Everything dynamic of an error is in its details.
//! - What changes state runs in a task of its own (`call`): a call that is gone leaves nothing half done.
//! - HTTP/JSON calls the same service objects, so what holds for every call is in them and not in a layer.
//!
//! How to add an rpc: the method with its comment, errors and annotation in `proto/`; a function in the file of its
//! family under `admin/`, `schedule/` or `worker/`; its line in the service's `impl`; new refusals in `domain::Rejection` with their
//! line in `status`; a happy path and each error in `tests/api.rs`.

mod admin;
mod call;
mod connection;
mod deadline;
mod health;
mod http;
mod log;
mod native;
mod readiness;
mod render;
mod repeats;
mod schedule;
mod server;
mod services;
pub mod shutdown;
mod status;
mod worker;

pub use admin::Admin;
pub use connection::Keepalive;
pub use schedule::Schedules;
pub use server::{Error, Options, Server, Services};
pub use worker::Worker;

use crate::wire::{Violations, time};
use std::time::Duration;

/// How long a call waits whose caller does not say: below the 60 s at which proxies give up.
const WAIT_DEFAULT: Duration = Duration::from_secs(25);

/// Judges `wait_duration`: absent is the default, longer than the most is the most.
fn wait_duration(violations: &mut Violations, wait: Option<&prost_types::Duration>, most: Duration) -> Duration {
    let Some(wait) = wait else { return WAIT_DEFAULT };
    violations.take("wait_duration", time::parse_span(wait)).unwrap_or(WAIT_DEFAULT).min(most)
}
