//! Orbit: a durable workflow service.

pub mod cli;
pub mod clock;
pub mod config;
pub mod domain;
pub mod gateway;
pub mod proto;
pub mod store;
pub mod wire;
