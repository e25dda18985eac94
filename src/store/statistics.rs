//! Counts what a store has written, so that the cost of each action can be held to a table.
//!
//! Counted when a transaction commits: what is rolled back was never written. Always on: one addition a kind of change
//! a transaction.

use std::sync::atomic::{AtomicU64, Ordering};

/// A kind of change to a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "each is a table and what happens to its row")]
#[repr(usize)]
pub enum Change {
    ExecutionInserted,
    ExecutionUpdated,
    HistoryInserted,
    SnapshotWritten,
    PayloadInserted,
    ReadyInserted,
    ReadyDeleted,
    LabelInserted,
    CounterChanged,
    DefinitionInserted,
    ContractInserted,
    SessionWritten,
    SessionDeleted,
    HeldWritten,
    HeldDeleted,
    NodeWritten,
    RunInserted,
    LabelDeleted,
    ExecutionDeleted,
    HistoryDeleted,
    SnapshotDeleted,
    PayloadDeleted,
    RunDeleted,
    BatchWritten,
    BatchDeleted,
    ScheduleWritten,
    ScheduleDeleted,
    SlotWritten,
    SlotDeleted,
    RequestWritten,
    RequestDeleted,
}

impl Change {
    /// All kinds.
    pub const ALL: [Self; 31] = [
        Self::ExecutionInserted,
        Self::ExecutionUpdated,
        Self::HistoryInserted,
        Self::SnapshotWritten,
        Self::PayloadInserted,
        Self::ReadyInserted,
        Self::ReadyDeleted,
        Self::LabelInserted,
        Self::CounterChanged,
        Self::DefinitionInserted,
        Self::ContractInserted,
        Self::SessionWritten,
        Self::SessionDeleted,
        Self::HeldWritten,
        Self::HeldDeleted,
        Self::NodeWritten,
        Self::RunInserted,
        Self::LabelDeleted,
        Self::ExecutionDeleted,
        Self::HistoryDeleted,
        Self::SnapshotDeleted,
        Self::PayloadDeleted,
        Self::RunDeleted,
        Self::BatchWritten,
        Self::BatchDeleted,
        Self::ScheduleWritten,
        Self::ScheduleDeleted,
        Self::SlotWritten,
        Self::SlotDeleted,
        Self::RequestWritten,
        Self::RequestDeleted,
    ];
}

/// What a store has written since it was opened: subtract two to know what lies between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Transactions that wrote and committed.
    pub transactions: u64,
    rows: [u64; Change::ALL.len()],
}

impl Statistics {
    /// Rows changed so.
    #[must_use]
    pub fn rows(&self, change: Change) -> u64 {
        self.rows[change as usize]
    }

    /// Rows changed in all.
    #[must_use]
    pub fn rows_all(&self) -> u64 {
        self.rows.iter().sum()
    }

    /// What was written after `earlier` was taken of the same store.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let rows = std::array::from_fn(|change| self.rows[change].saturating_sub(earlier.rows[change]));
        Self { transactions: self.transactions.saturating_sub(earlier.transactions), rows }
    }

    /// Notes rows that an open transaction has changed.
    pub(super) fn add(&mut self, change: Change, rows: u64) {
        self.rows[change as usize] += rows;
    }
}

/// The running totals of a store.
#[derive(Debug, Default)]
pub(super) struct Totals {
    transactions: AtomicU64,
    rows: [AtomicU64; Change::ALL.len()],
}

impl Totals {
    /// Adds a transaction that has committed.
    pub(super) fn committed(&self, changes: &Statistics) {
        self.transactions.fetch_add(1, Ordering::Relaxed);
        for (total, rows) in self.rows.iter().zip(changes.rows).filter(|(_, rows)| *rows > 0) {
            total.fetch_add(rows, Ordering::Relaxed);
        }
    }

    /// The totals now.
    pub(super) fn read(&self) -> Statistics {
        Statistics {
            transactions: self.transactions.load(Ordering::Relaxed),
            rows: std::array::from_fn(|change| self.rows[change].load(Ordering::Relaxed)),
        }
    }
}
