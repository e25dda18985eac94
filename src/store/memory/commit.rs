//! How the model takes an append: the fence first, then everything that goes with it.

use super::tables::{Execution, Tables};
use crate::store::{
    Append, Change, Committed, EVENT_FORMAT, ExecutionKey, ExecutionRow, HistoryRow, Statistics, Target,
};

impl Tables {
    pub(super) fn commit(&mut self, append: &Append, changes: &mut Statistics) -> Committed {
        if let Err(rule) = append.check() {
            return Committed::Failed { what: rule.to_owned() };
        }
        let key = match &append.target {
            Target::New(new) => {
                if self.current.contains_key(&new.id) || self.uids.contains_key(&new.uid) {
                    return match self.uids.get(&new.uid) {
                        Some(key) => self.written_before(*key, append),
                        None => Committed::Conflict,
                    };
                }
                self.create(append, changes)
            }
            Target::Existing(key) => match self.executions.get(key) {
                Some(execution) if append.first_number == execution.newest_number() + 1 => *key,
                Some(_) => return self.written_before(*key, append),
                None => return Committed::Conflict,
            },
        };
        self.write(key, append, changes);
        Committed::Written(key)
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

    fn create(&mut self, append: &Append, changes: &mut Statistics) -> ExecutionKey {
        let Target::New(new) = &append.target else { unreachable!("only a new execution is created") };
        self.newest_key += 1;
        let key = ExecutionKey(self.newest_key);
        let row = ExecutionRow {
            key,
            uid: new.uid,
            id: new.id.clone(),
            current: true,
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
        };
        self.current.insert(new.id.clone(), key);
        self.uids.insert(new.uid, key);
        self.starts.insert((new.start_time, key));
        *self.counters.entry(new.state).or_default() += 1;
        self.executions.insert(key, Execution::new(row));
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
        if matches!(append.target, Target::New(_)) {
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
        changes.add(Change::ExecutionUpdated, u64::from(append.state.is_some() || append.wake_set().is_some()));
    }
}
