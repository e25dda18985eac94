//! A worker that waits: a parked poll or a stream with credits.

use super::Dispatch;
use crate::domain::Claimant;
use crate::engine::call::Task;
use crate::store::Pool;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Number of a waiter, never reused.
pub(super) type WaiterId = u64;

/// What the dispatcher knows of a waiter.
pub(super) struct Waiter {
    pub(super) claimant: Claimant,
    pub(super) pools: Vec<Pool>,
    /// Tasks that it can still take.
    pub(super) credits: u32,
    /// Slots reserved for dispatches whose commit is under way.
    pub(super) reserved: u32,
    pub(super) tasks: mpsc::UnboundedSender<Task>,
}

/// A slot of a waiter, kept for one dispatch until its commit's outcome is known.
///
/// Dropped without [`Reservation::deliver`], it gives the credit back.
pub(in crate::engine) struct Reservation {
    pub(super) dispatch: Arc<Dispatch>,
    pub(super) waiter: WaiterId,
    pub(super) claimant: Claimant,
    pub(super) is_open: bool,
}

impl Reservation {
    /// Who waits.
    pub(in crate::engine) fn claimant(&self) -> &Claimant {
        &self.claimant
    }

    /// Hands over the task that was dispatched; back comes one whose waiter has gone.
    pub(in crate::engine) fn deliver(mut self, task: Task) -> Result<(), Box<Task>> {
        self.is_open = false;
        self.dispatch.deliver(self.waiter, task)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.is_open {
            self.dispatch.give_back(self.waiter);
        }
    }
}

/// The waiting side: where tasks come out. Dropping it ends the wait; what it had received and nobody took, is
/// returned to the owner through [`Parked::leave`], or lost to the first check.
pub(in crate::engine) struct Parked {
    pub(super) dispatch: Arc<Dispatch>,
    pub(super) id: WaiterId,
    pub(super) tasks: mpsc::UnboundedReceiver<Task>,
    pub(super) has_left: bool,
}

impl Parked {
    /// Can take `count` more tasks.
    pub(in crate::engine) fn grant(&self, count: u32) {
        self.dispatch.grant(self.id, count);
    }

    /// A handle that grants, for the other half of a stream.
    pub(in crate::engine) fn granter(&self) -> Granter {
        Granter { dispatch: self.dispatch.clone(), id: self.id }
    }

    /// The next task.
    pub(in crate::engine) async fn next(&mut self) -> Option<Task> {
        self.tasks.recv().await
    }

    /// A task that is already there.
    pub(in crate::engine) fn try_next(&mut self) -> Option<Task> {
        self.tasks.try_recv().ok()
    }

    /// Takes no further reservations; those under way still come out of `next`, which then ends.
    pub(in crate::engine) fn close(&mut self) {
        self.dispatch.close(self.id);
    }

    /// Ends the wait and returns what was received but not taken.
    pub(in crate::engine) fn leave(&mut self) -> Vec<Task> {
        self.has_left = true;
        self.dispatch.remove(self.id);
        self.tasks.close();
        let mut left = Vec::new();
        while let Ok(task) = self.tasks.try_recv() {
            left.push(task);
        }
        left
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        if !self.has_left {
            let left = self.leave();
            self.dispatch.return_unsent(left);
        }
    }
}

/// Grants credits to a stream from its reading half.
#[derive(Clone)]
pub struct Granter {
    dispatch: Arc<Dispatch>,
    id: WaiterId,
}

impl Granter {
    /// Can take `count` more tasks; at most 10,000 in all count.
    pub fn grant(&self, count: u32) {
        self.dispatch.grant(self.id, count);
    }
}
