//! Kill, stop and power loss: the real program, on SQLite, over TCP, judged by what its callers and workers were told.
//!
//! - [`kills`]: SIGKILL of the server under load, again and again; one drain at the end.
//! - [`worker_faults`]: SIGKILL and SIGSTOP of workers that are processes of their own.
//! - [`power`]: the same kills on a file layer that forgets what was not synced, and that this is noticed.
//! - [`restart`]: what a start finds and serves, and how soon. [`shutdown`]: SIGTERM.
//! - [`cases`]: single faults, step by step.
//!
//! The oracle is the [`journal`] of acknowledged answers, never the database. Each run prints its seed; `SEED=…` makes the
//! same choices again. `KILLS`, `WORKER_FAULTS` and `POWER_LOSSES` set how many faults there are: see `docs/testing.md`.
#![allow(clippy::disallowed_methods, reason = "these tests watch other processes, whose time nobody can move")]
#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

mod caller;
mod cases;
mod chance;
mod cluster;
mod connect;
mod disk;
mod fires;
mod journal;
mod kills;
mod oracle;
mod power;
mod restart;
mod run;
mod server;
mod shutdown;
mod timetable;
mod worker;
mod worker_faults;
mod workflow;

#[path = "../support/postgres.rs"]
mod postgres;
