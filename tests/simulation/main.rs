//! The engine on the memory store, on one thread, in time that only a test moves.
//!
//! - [`executions`], [`repair`], [`workers`], [`presence`], [`retention`], [`faults`] and [`poison`] tell one story each:
//!   what a caller or a worker sees.
//! - [`cluster`] and [`nodes`] do so of several nodes on one store: the one of what nodes do for each other, the other
//!   of what each of them answers (once on PostgreSQL, in real time).
//! - [`schedules`] tells stories of schedules, and runs random ones.
//! - [`runs`] are random: a [`world`] outlives its servers, [`commands`] are sent into [`definitions`] made up for the
//!   run, faults strike the store, and the [`journal`] of what was answered and the [`invariants`] of what is stored
//!   [`families`] and [`batches`] of what executions have to do with
//!   each other must hold at every step. [`coverage`] counts what was met. A failure prints its seed; `SEED=` replays it.
#![allow(clippy::disallowed_methods, reason = "tokio's time is paused here, so a sleep moves it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod batches;
mod cases;
mod cluster;
mod commands;
mod coverage;
mod deeds;
mod definitions;
mod desk;
mod executions;
mod families;
mod faults;
mod harness;
mod invariants;
mod journal;
mod limits;
mod node;
mod nodes;
mod poison;
#[path = "../support/postgres.rs"]
mod postgres;
mod presence;
mod random;
mod repair;
mod retention;
mod runs;
mod schedules;
mod steady;
mod workers;
mod world;
