//! What the model lets go of.

use super::tables::Tables;
use crate::domain::Timestamp;
use crate::store::{Change, DeletedRow, ExecutionKey, RunRow, Statistics};
use std::collections::{BTreeMap, BTreeSet};

impl Tables {
    pub(super) fn closed_before(
        &self,
        before: Timestamp,
        after: Option<(Timestamp, ExecutionKey)>,
        limit: usize,
    ) -> Vec<(Timestamp, ExecutionKey)> {
        let rows = self.executions.values().map(|execution| &execution.row);
        let rows = rows.filter(|row| row.delete_time.is_none() && row.quarantined.is_none());
        let closed: BTreeSet<_> = rows.filter_map(|row| Some((row.close_time?, row.key))).collect();
        let closed = closed.into_iter().filter(|place| place.0 < before && after.is_none_or(|after| *place > after));
        closed.take(limit).collect()
    }

    pub(super) fn deleted(&self, after: Option<(Timestamp, ExecutionKey)>, limit: usize) -> Vec<DeletedRow> {
        let rows = self.executions.values().map(|execution| &execution.row);
        let rows = rows.filter_map(|row| Some(((row.delete_time?, row.key), row.request.is_some())));
        let deleted: BTreeSet<_> = rows.filter(|(place, _)| after.is_none_or(|after| *place > after)).collect();
        let row = |((delete_time, key), has_request)| DeletedRow { delete_time, key, has_request };
        deleted.into_iter().take(limit).map(row).collect()
    }

    pub(super) fn runs_begun_before(&self, before: Timestamp, after: Option<RunRow>, limit: usize) -> Vec<RunRow> {
        let runs = self.executions.iter().flat_map(|(key, execution)| {
            let row = |(run, (first_number, start_time)): (&u32, &(u64, Timestamp))| RunRow {
                start_time: *start_time,
                execution: *key,
                run: *run,
                first_number: *first_number,
            };
            execution.runs.iter().map(row)
        });
        let runs: BTreeSet<_> = runs.filter(|run| run.start_time < before).collect();
        runs.into_iter().filter(|run| after.is_none_or(|after| *run > after)).take(limit).collect()
    }

    pub(super) fn raise_floor(&mut self, key: ExecutionKey, number: u64, changes: &mut Statistics) -> bool {
        let Some(execution) = self.executions.get_mut(&key) else { return false };
        let run_before = execution.history.range(..=number).next_back().map(|(_, row)| row.run);
        let run_after = number.checked_add(1).and_then(|first| execution.history.get(&first)).map(|row| row.run);
        let is_run_s_begin = run_after.zip(run_before).is_some_and(|(after, before)| after > before);
        if is_run_s_begin && execution.floor < number && execution.row.delete_time.is_none() {
            execution.floor = number;
            changes.add(Change::ExecutionUpdated, 1);
        }
        execution.floor >= number
    }

    pub(super) fn delete_trimmed(
        &mut self,
        key: ExecutionKey,
        number: u64,
        limit: usize,
        changes: &mut Statistics,
    ) -> bool {
        let Some(execution) = self.executions.get_mut(&key).filter(|execution| execution.floor >= number) else {
            return true;
        };
        let Some(run) = execution.history.range(number + 1..).next().map(|(_, row)| row.run) else { return true };
        if execution.snapshot.as_ref().is_some_and(|snapshot| snapshot.number <= number) {
            execution.snapshot = None;
            changes.add(Change::SnapshotDeleted, 1);
        }
        let mut budget = Removal { limit, changes };
        budget.of(&mut execution.payloads, Change::PayloadDeleted, |(of_run, _)| *of_run < run)
            && budget.of(&mut execution.history, Change::HistoryDeleted, |first_number| *first_number <= number)
            && budget.of(&mut execution.runs, Change::RunDeleted, |of_run| *of_run <= run)
    }

    pub(super) fn delete_rows(
        &mut self,
        executions: &[(ExecutionKey, bool)],
        limit: usize,
        changes: &mut Statistics,
    ) -> Vec<bool> {
        executions.iter().map(|(key, with_row)| self.delete_rows_of(*key, limit, *with_row, changes)).collect()
    }

    fn delete_rows_of(&mut self, key: ExecutionKey, limit: usize, with_row: bool, changes: &mut Statistics) -> bool {
        let Some(execution) = self.executions.get_mut(&key).filter(|execution| execution.row.delete_time.is_some())
        else {
            return true;
        };
        changes.add(Change::SnapshotDeleted, u64::from(execution.snapshot.take().is_some()));
        let mut removal = Removal { limit, changes };
        let is_empty = removal.of(&mut execution.ready, Change::ReadyDeleted, |_| true)
            && removal.of(&mut self.held, Change::HeldDeleted, |(of, ..)| *of == key)
            && removal.of(&mut execution.payloads, Change::PayloadDeleted, |_| true)
            && removal.of(&mut execution.history, Change::HistoryDeleted, |_| true)
            && removal.of(&mut execution.runs, Change::RunDeleted, |_| true);
        if is_empty && with_row {
            let (uid, start) = (execution.row.uid, (execution.row.start_time, key));
            self.executions.remove(&key);
            self.uids.remove(&uid);
            self.starts.remove(&start);
            changes.add(Change::ExecutionDeleted, 1);
        }
        is_empty
    }
}

/// Removes a bounded number of rows of each table.
struct Removal<'a> {
    limit: usize,
    changes: &'a mut Statistics,
}

impl Removal<'_> {
    /// Removes the first rows that go; says whether those were the last.
    fn of<K: Ord + Clone, V>(&mut self, rows: &mut BTreeMap<K, V>, change: Change, goes: impl Fn(&K) -> bool) -> bool {
        let keys: Vec<K> = rows.keys().filter(|key| goes(key)).take(self.limit).cloned().collect();
        for key in &keys {
            rows.remove(key);
        }
        self.changes.add(change, keys.len() as u64);
        keys.len() < self.limit
    }
}
