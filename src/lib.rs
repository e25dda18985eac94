//! Orbit: a durable workflow service.

pub mod domain;
pub mod proto;
pub mod store;
