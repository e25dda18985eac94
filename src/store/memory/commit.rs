//! How the model takes an append: the fence first, then everything that goes with it.

use super::tables::{Execution, Tables};
use crate::store::{
    Append, Change, Committed, EVENT_FORMAT, ExecutionKey, ExecutionRow, HistoryRow, NewExecution, Replacement,
    Statistics, Target,
};

impl Execution {
    /// Whether an append to it wins its fences.
    fn takes(&self, append: &Append) -> bool {
        append.first_number == self.newest_number() + 1
            && self.row.delete_time.is_none()
            && (self.row.current || !append.reopens())
    }
}

impl Tables {
    pub(super) fn commit(&mut self, append: &Append, changes: &mut Statistics) -> Committed {
        if let Err(rule) = append.check() {
            return Committed::Failed { what: rule.to_owned() };
        }
        let key = match &append.target {
            Target::New(new) => {
                if self.current.contains_key(&new.id) || self.uids.contains_key(&new.uid) {
                    return self.started_before(new, append);
                }
                self.create(new, append, changes)
            }
            Target::Existing(key) => match self.executions.get(key) {
                Some(execution) if execution.takes(append) => *key,
                Some(_) => return self.written_before(*key, append),
                None => return Committed::Conflict,
            },
            Target::Replacing(replacement) => {
                let Replacement { new, old, end } = &**replacement;
                let replaced = self.existing(*old).is_some_and(|execution| {
                    let ends = end.as_ref().map_or(execution.row.state.is_closed(), |end| execution.takes(end));
                    execution.row.current && execution.row.id == new.id && ends
                });
                if !replaced || self.uids.contains_key(&new.uid) {
                    return self.started_before(new, append);
                }
                if let Some(end) = end {
                    self.write(*old, end, changes);
                }
                self.release_id(*old);
                changes.add(Change::ExecutionUpdated, 1);
                self.create(new, append, changes)
            }
        };
        self.write(key, append, changes);
        Committed::Written(key)
    }

    fn started_before(&self, new: &NewExecution, append: &Append) -> Committed {
        match self.uids.get(&new.uid) {
            Some(key) => self.written_before(*key, append),
            None => Committed::Conflict,
        }
    }

    fn release_id(&mut self, key: ExecutionKey) {
        let execution = self.executions.get_mut(&key).expect("the fence found it");
        execution.row.current = false;
        if self.current.get(&execution.row.id) == Some(&key) {
            self.current.remove(&execution.row.id);
        }
    }

    // The answer to this append may have been lost: then its own row stands at the number.
    fn written_before(&self, key: ExecutionKey, append: &Append) -> Committed {
        let there = self.executions.get(&key).and_then(|execution| execution.history.get(&append.first_number));
        if there.is_some_and(|row| row.batch_id == append.batch_id) {
            Committed::Written(key)
        } else {
            Committed::Conflict
        }
    }

    fn create(&mut self, new: &NewExecution, append: &Append, changes: &mut Statistics) -> ExecutionKey {
        self.newest_key += 1;
        let key = ExecutionKey(self.newest_key);
        let row = ExecutionRow {
            key,
            uid: new.uid,
            id: new.id.clone(),
            current: true,
            run: 1,
            workflow: new.workflow.clone(),
            version: new.version.clone(),
            definition_hash: new.definition_hash,
            input_digest: new.input_digest,
            request: new.request,
            state: new.state,
            labels: new.labels.clone(),
            start_time: new.start_time,
            close_time: new.close_time,
            wake_time: append.wake_set().flatten(),
            quarantined: None,
            delete_time: None,
        };
        self.current.insert(new.id.clone(), key);
        self.uids.insert(new.uid, key);
        self.starts.insert((new.start_time, key));
        *self.counters.entry(new.state).or_default() += 1;
        self.executions.insert(key, Execution::new(row, new.schedule));
        changes.add(Change::ExecutionInserted, 1);
        changes.add(Change::LabelInserted, new.labels.len() as u64);
        changes.add(Change::CounterChanged, 1);
        key
    }

    fn write(&mut self, key: ExecutionKey, append: &Append, changes: &mut Statistics) {
        let execution = self.executions.get_mut(&key).expect("the fence found it");
        let row = HistoryRow {
            run: append.run,
            first_number: append.first_number,
            last_number: append.last_number,
            batch_id: append.batch_id,
            format: EVENT_FORMAT,
            events: append.events.clone(),
        };
        execution.history.insert(append.first_number, row);
        changes.add(Change::HistoryInserted, 1);
        for payload in &append.payloads {
            execution.payloads.entry((append.run, payload.sha256)).or_insert_with(|| payload.json.clone());
            changes.add(Change::PayloadInserted, 1);
        }
        for unit in &append.ready_removed {
            changes.add(Change::ReadyDeleted, u64::from(execution.ready.remove(unit).is_some()));
        }
        for unit in &append.ready_added {
            execution.ready.insert(unit.unit.clone(), unit.clone());
            changes.add(Change::ReadyInserted, 1);
        }
        if let Some(snapshot) = &append.snapshot
            && execution.snapshot.as_ref().is_none_or(|stored| stored.number < snapshot.number)
        {
            execution.snapshot = Some(snapshot.clone());
            changes.add(Change::SnapshotWritten, 1);
        }
        if append.new_execution().is_some() {
            return;
        }
        if let Some(wake_time) = append.wake_set() {
            execution.row.wake_time = wake_time;
        }
        if let Some(change) = append.state {
            execution.row.state = change.to;
            execution.row.close_time = change.close_time;
            if change.from != change.to {
                let before = self.counters.entry(change.from).or_default();
                *before = before.saturating_sub(1);
                *self.counters.entry(change.to).or_default() += 1;
                changes.add(Change::CounterChanged, 2);
            }
        }
        if let Some(start_time) = append.begins_run {
            execution.row.run = append.run;
            execution.runs.insert(append.run, (append.first_number, start_time));
            changes.add(Change::RunInserted, 1);
        }
        let is_row_changed = append.state.is_some() || append.wake_set().is_some() || append.begins_run.is_some();
        changes.add(Change::ExecutionUpdated, u64::from(is_row_changed && append.deletion.is_none()));
        if let Some(deletion) = &append.deletion {
            execution.row.delete_time = Some(deletion.time);
            execution.row.request = deletion.request;
            execution.row.wake_time = None;
            let count = self.counters.entry(deletion.state).or_default();
            *count = count.saturating_sub(1);
            self.release_id(key);
            changes.add(Change::ExecutionUpdated, 1);
            changes.add(Change::CounterChanged, 1);
            changes.add(Change::LabelDeleted, deletion.labels.len() as u64);
        }
    }
}
