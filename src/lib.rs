//! Orbit: a durable workflow service. This page is its architecture.
//!
//! ```text
//!  gRPC ─┐                                   ┌─ domain (pure): decide · evolve
//!  HTTP ─┼▶ api ─▶ wire ─▶ engine (mailbox) ─┤
//!  timers┘   ▲      parse      commands      └─ store: group commit ─▶ SQLite | PostgreSQL
//!            └── gateway (derived from descriptors)
//! ```
//!
//! Read in this order: [`domain`] has the rules, as functions of values; [`store`] keeps what was decided and finds it
//! again; [`wire`] turns messages into values and back, and judges requests; [`engine`] is where the three meet a clock;
//! `egress` makes the requests of `http` steps; [`api`] answers calls with it; [`gateway`] gives the same calls to HTTP; [`cli`] is the program around them.
//! Dependencies point one way: `domain ← {wire, store} ← engine ← api ← cli`, `proto ← wire`, `gateway → {proto, api}`.
//!
//! # A task, from its worker's report to the next task
//!
//! 1. `api::worker` reads a frame of reports; `wire` checks each and makes a [`domain::Command`].
//! 2. The command waits in the mailbox of its execution. If no turn of it runs, one begins, in a task of its own.
//! 3. The turn loads the state, if memory does not have it, and decides everything that waits. `decide` applies each
//!    event to the state as it goes, so the end of one step schedules the next in the same decision.
//! 4. For a unit that became ready a waiting worker is reserved, and its dispatch is decided in the same batch.
//! 5. All events of the turn are one append, one row of `history`. The committer writes it together with the appends of
//!    other executions: one transaction, one sync.
//! 6. Only now do the answer and the next task leave, in one frame.
//!
//! What follows within an execution is found in `domain::state::work`: the next step or item to begin, the fan-out to join,
//! the run to begin, or, while it winds down, the unit to undo and the handler to run. One decision does as much of it as an
//! append takes; the rest stays due in the state.
//!
//! Another node may have been first: then the append's number is taken, nothing of it is written, and the turn begins
//! again with what the other wrote. Where nothing is to be written, a look at the newest number says whether the state
//! in memory is still good enough for the answer.
//!
//! # Several nodes
//!
//! On PostgreSQL any number of servers, the nodes, share one database. The database is the state, memory is a cache, and no
//! node owns anything: any of them decides on any execution, and the unique key of `history` tells who was first. Where a
//! call is answered without an append, a look at the newest number comes before ([`engine`], `probe`). Nodes do not call each
//! other; each tells what it has committed (`news`), and hashing over those that live (`membership`) says who looks first at a
//! timer, a session or a waiting unit. All of that saves work and waiting, and none of it must be right.
//!
//! # A schedule, from its due time to an execution
//!
//! 1. `engine::schedules` finds by an index what is due, and reads those rows and the states of the executions that they started.
//! 2. [`domain::schedule`] decides from a row and the time which slots start, wait, or are skipped or missed.
//! 3. The row with its next version, the rows of the ledger and the first rows of each execution that starts are one
//!    transaction, many schedules at once. The version that it was decided on is the fence: whoever was second writes nothing.
//! 4. Callers' changes go the same way. There is no claim and no lease, so a crash at any point leaves nothing to clean up.
//!
//! # What always holds
//!
//! | | invariant | fails if it is broken |
//! | --- | --- | --- |
//! | I1 | There is one write path: RPC, timer, lost worker and recovery all put commands into a mailbox. | `tests/tidy.rs` |
//! | I2 | `domain` is pure: no async, clock, randomness, store or wire. | `tests/tidy.rs` |
//! | I3 | Facts keep their meaning: an unknown event stops the fold; it is never skipped. | `wire::event` tests |
//! | I4 | What belongs together is committed together: events, ready rows, wake-up time, state, counters. | `tests/simulation` |
//! | I5 | Events are numbered 1, 2, 3 … without gaps; the unique key of `history` is the only lock. | `tests/store` |
//! | I6 | Every effect follows from stored state, not from a message that could be lost: whatever was handed out is found again. | `tests/recovery` |
//! | I7 | Hints (wake-ups, caches, presence) may be lost, repeated or late without harm. | `tests/simulation` |
//! | I8 | A token names one delivery; a failure counts from the current one only, a success from any of an unresolved unit, and a repeat changes nothing. | `domain::decide` tests |
//! | I9 | The same request gets the same answer, for 24 hours. | `tests/api` |
//! | I10 | HTTP has no behaviour of its own: routes, JSON and streams derive from the descriptors. | `gateway` tests |
//! | I11 | Every loop, queue, page, payload and wait is bounded. | `tests/api`, `engine` tests |
//! | I12 | Where several nodes share a store, each tells what any of them has acknowledged: an answer without an append is of the newest state. | `tests/simulation` |
//! | I13 | A slot starts at most one execution, ever, and nothing starts of a schedule as it was before an answered change: both are fenced by the version of its row. | `tests/store`, `tests/simulation` |
//!
//! All of it holds for one node and for several: `tests/simulation` runs both, `tests/store` runs on each store, and
//! `tests/recovery` kills, stops and cuts off nodes and their database.
//!
//! An acknowledged write is durable: [`store`] syncs before it answers (`tests/recovery` cuts the power).

pub mod api;
pub mod cli;
pub mod clock;
pub mod config;
pub mod domain;
mod egress;
pub mod engine;
pub mod gateway;
pub mod proto;
pub mod store;
pub mod telemetry;
pub mod wire;
