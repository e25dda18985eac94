//! Orbit: a durable workflow service.

pub mod api;
pub mod cli;
pub mod clock;
pub mod config;
pub mod domain;
pub mod engine;
pub mod gateway;
pub mod proto;
pub mod store;
pub mod telemetry;
pub mod wire;
