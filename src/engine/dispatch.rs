//! Brings waiting units and waiting workers together.
//!
//! - Priority, then oldest: exact on one node, over all pools that a worker serves.
//! - A hand-off (a unit goes to a worker in the commit that made it ready) never passes an older or more urgent unit
//!   that this node knows of, and happens only where the node knows the whole pool.
//! - Rows are reserved in memory only; the fence of the execution's history decides whether a dispatch counts.
//! - A poll parks, then looks, so no unit can slip between.
//!
//! What is kept here are hints: a lost or stale one delays a unit until the next scan, and never loses or doubles it.

mod pools;
#[cfg(test)]
mod tests;
mod waiter;

pub(super) use pools::{Dispatch, Step};
pub use waiter::Granter;
pub(super) use waiter::{Parked, Reservation};

use crate::domain::Timestamp;
use crate::store::{ExecutionKey, ReadyRow};
use std::sync::Arc;

/// Where a waiting unit stands in its pool.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    priority: u8,
    since: Timestamp,
    execution: ExecutionKey,
    unit: Arc<str>,
}

impl Place {
    fn of(row: &ReadyRow) -> Self {
        Self {
            priority: row.unit.priority,
            since: row.unit.ready_time,
            execution: row.execution,
            unit: row.unit.unit.clone(),
        }
    }
}
