//! Batches: one action on all executions that a filter names, as they are stored.

use super::rows::ListCursor;
use crate::domain::Timestamp;
use std::sync::Arc;
use uuid::Uuid;

/// What is done with each execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i16)]
#[allow(missing_docs, reason = "documented at CreateBatchRequest.action")]
pub enum BatchAction {
    Cancel = 1,
    Terminate = 2,
    Retry = 3,
    Delete = 4,
}

impl BatchAction {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Cancel, Self::Terminate, Self::Retry, Self::Delete];
}

/// Where a batch is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i16)]
#[allow(missing_docs, reason = "documented at Batch.State, whose numbers these are")]
pub enum BatchState {
    Running = 1,
    Succeeded = 2,
    Cancelled = 3,
}

impl BatchState {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Running, Self::Succeeded, Self::Cancelled];
}

/// A batch's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRow {
    /// Id; derived from the `request_id` of the call that made it, if there was one.
    pub id: Uuid,
    /// Hash of that call's content, if it had a `request_id`.
    pub request_content: Option<[u8; 16]>,
    /// What is done.
    pub action: BatchAction,
    /// Why, for people; may be empty.
    pub reason: Arc<str>,
    /// Which executions, in the language of lists.
    pub filter: Arc<str>,
    /// Most executions that are reached; 0 for no limit.
    pub executions_max: u64,
    /// How many matched when it was made, as far as they were counted.
    pub expected: u64,
    /// Whether that was all.
    pub is_counted: bool,
    /// When it was made. What was started later is not touched.
    pub create_time: Timestamp,
    /// How far it has come.
    pub progress: BatchProgress,
}

/// How far a batch has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchProgress {
    /// Portions that are done.
    pub portion: u64,
    /// Where it is in its life.
    pub state: BatchState,
    /// When it ended.
    pub end_time: Option<Timestamp>,
    /// The last execution that was reached; none before the first portion.
    pub cursor: Option<ListCursor>,
    /// Executions with which it was done.
    pub done: u64,
    /// Executions for which it was too late, or too early.
    pub skipped: u64,
    /// Executions with which it failed.
    pub failed: u64,
    /// The first failures, JSON text.
    pub failures: Arc<str>,
}

/// Where a page of a list of batches begins: after this one.
pub type BatchCursor = (Timestamp, Uuid);
