//! Brings waiting units and waiting workers together.
//!
//! - Priority, then oldest: exact on one node, over all pools that a worker serves.
//! - A hand-off (a unit goes to a worker in the commit that made it ready) never passes an older or more urgent unit
//!   that this node knows of, and happens only where the node knows the whole pool.
//! - Rows are reserved in memory only; the fence of the execution's history decides whether a dispatch counts.
//! - Where several nodes share the store, each takes first the units of its own executions: those of others count as
//!   a second younger, so that nodes seldom reach for the same one and none waits for long.
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

use super::membership::Live;
use crate::domain::Timestamp;
use crate::store::{ExecutionKey, ReadyUnit};
use std::{sync::Arc, time::Duration};

/// How much younger a unit counts whose execution another node looks at first: longer than a node with free workers
/// leaves its own units waiting, short enough that nobody notices where that node has none.
const OTHERS_YOUNGER: Duration = Duration::from_secs(1);

/// Where a waiting unit stands in its pool.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    priority: u8,
    since: Timestamp,
    execution: ExecutionKey,
    unit: Arc<str>,
}

impl Place {
    fn of(execution: ExecutionKey, unit: &ReadyUnit, live: &Live) -> Self {
        let younger = if live.is_mine(execution) { Duration::ZERO } else { OTHERS_YOUNGER };
        Self { priority: unit.priority, since: unit.ready_time + younger, execution, unit: unit.unit.clone() }
    }
}
