//! Orbit.
pub mod proto;
