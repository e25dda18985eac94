//! Orbit: a durable workflow service.

pub mod clock;
pub mod domain;
pub mod proto;
pub mod store;
