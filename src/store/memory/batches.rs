//! The model's batches.

use super::tables::Tables;
use crate::domain::Timestamp;
use crate::store::{BatchCursor, BatchProgress, BatchRow, BatchState, Change, Statistics};
use std::collections::{BTreeMap, btree_map::Entry};
use uuid::Uuid;

impl Tables {
    pub(super) fn put_batch(&mut self, row: &BatchRow, changes: &mut Statistics) -> BatchRow {
        match self.batches.entry(row.id) {
            Entry::Occupied(there) => there.get().clone(),
            Entry::Vacant(place) => {
                changes.add(Change::BatchWritten, 1);
                place.insert(row.clone()).clone()
            }
        }
    }

    pub(super) fn batches_after(&self, after: Option<BatchCursor>, limit: usize) -> Vec<BatchRow> {
        let by_time: BTreeMap<_, _> = self.batches.values().map(|row| ((row.create_time, row.id), row)).collect();
        let newest_first = by_time.into_iter().rev().filter(|(place, _)| after.is_none_or(|after| *place < after));
        newest_first.take(limit).map(|(_, row)| row.clone()).collect()
    }

    pub(super) fn running_batches(&self, limit: usize) -> Vec<BatchRow> {
        let running = self.batches.values().filter(|row| row.progress.state == BatchState::Running);
        let by_time: BTreeMap<_, _> = running.map(|row| ((row.create_time, row.id), row)).collect();
        by_time.into_values().take(limit).cloned().collect()
    }

    pub(super) fn advance_batch(&mut self, id: Uuid, progress: &BatchProgress, changes: &mut Statistics) -> bool {
        let Some(row) = self.batches.get_mut(&id).filter(|row| row.progress.portion + 1 == progress.portion) else {
            return false;
        };
        let (state, end_time) = (row.progress.state, row.progress.end_time);
        row.progress = progress.clone();
        if state != BatchState::Running {
            (row.progress.state, row.progress.end_time) = (state, end_time);
        }
        changes.add(Change::BatchWritten, 1);
        true
    }

    pub(super) fn cancel_batch(&mut self, id: Uuid, end_time: Timestamp, changes: &mut Statistics) -> Option<BatchRow> {
        let row = self.batches.get_mut(&id)?;
        if row.progress.state == BatchState::Running {
            (row.progress.state, row.progress.end_time) = (BatchState::Cancelled, Some(end_time));
            changes.add(Change::BatchWritten, 1);
        }
        Some(row.clone())
    }

    pub(super) fn delete_batches(&mut self, ended_before: Timestamp, limit: usize, changes: &mut Statistics) -> u64 {
        let ended = self.batches.values().filter_map(|row| Some((row.progress.end_time?, row.id)));
        let mut old: Vec<_> = ended.filter(|(end_time, _)| *end_time < ended_before).collect();
        old.sort_unstable();
        old.truncate(limit);
        for (_, id) in &old {
            self.batches.remove(id);
        }
        changes.add(Change::BatchDeleted, old.len() as u64);
        old.len() as u64
    }
}
