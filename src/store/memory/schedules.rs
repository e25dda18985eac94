//! The model's schedules and their ledger.

use super::tables::{Execution, Tables};
use crate::domain::{RequestKey, Timestamp, Uid};
use crate::store::{
    Change, Committed, ExecutionState, FindSchedule, REQUEST_MEMORY, ScheduleFilter, ScheduleKey, ScheduleRequest,
    ScheduleRow, ScheduleRun, ScheduleState, ScheduleWrite, ScheduleWritten, SlotKind, SlotName, SlotOutcome, SlotRow,
    Statistics, Target,
};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// A schedule with everything that is keyed by it.
pub(super) struct Schedule {
    row: ScheduleRow,
    write_id: Uuid,
    slots: BTreeMap<SlotName, SlotRow>,
}

/// All schedules.
#[derive(Default)]
pub(super) struct Schedules {
    newest_key: i64,
    by_key: BTreeMap<ScheduleKey, Schedule>,
    /// Contents, schedules (none: the call had found none) and times of calls.
    requests: BTreeMap<[u8; 16], ([u8; 16], Option<ScheduleKey>, Timestamp)>,
}

impl Schedules {
    fn existing(&self) -> impl Iterator<Item = &ScheduleRow> {
        self.by_key.values().map(|schedule| &schedule.row).filter(|row| row.delete_time.is_none())
    }

    /// Whether a call may be written: none of its key is remembered.
    fn is_new(&self, request: RequestKey, time: Timestamp) -> bool {
        self.requests.get(&request.key).is_none_or(|(_, _, before)| *before < time - REQUEST_MEMORY)
    }

    fn of_id(&self, id: &str) -> Option<&ScheduleRow> {
        self.existing().find(|row| *row.id == *id)
    }
}

impl Tables {
    pub(super) fn write_schedule(&mut self, write: &ScheduleWrite, changes: &mut Statistics) -> ScheduleWritten {
        if let Err(rule) = write.check() {
            return ScheduleWritten::Failed { what: rule.to_owned() };
        }
        let schedules = &self.schedules;
        let row = &write.row;
        let wins = match write.decided_on {
            Some(version) => schedules
                .by_key
                .get(&row.key)
                .is_some_and(|there| there.row.version == version && there.row.delete_time.is_none()),
            None => schedules.of_id(&row.id).is_none() && !schedules.by_key.values().any(|it| it.row.uid == row.uid),
        };
        if !wins {
            return self.schedule_written_before(write);
        }
        if write.request.is_some_and(|(request, time)| !schedules.is_new(request, time)) {
            return ScheduleWritten::Conflict;
        }
        let key = match write.decided_on {
            Some(_) => row.key,
            None => ScheduleKey(schedules.newest_key + 1),
        };
        let is_decided = |slot: &SlotRow| {
            let there = schedules.by_key.get(&key).and_then(|schedule| schedule.slots.get(&slot.name));
            there.is_some_and(|there| there.outcome != SlotOutcome::Buffered)
        };
        if write.slots.iter().any(is_decided) {
            return ScheduleWritten::Failed { what: "slots_once: a slot was decided before".to_owned() };
        }
        let news = write.starts.iter().filter_map(|start| match &start.target {
            Target::New(new) => Some(new),
            Target::Existing(_) | Target::Replacing(_) => None,
        });
        if news.clone().any(|new| self.current.contains_key(&new.id) || self.uids.contains_key(&new.uid)) {
            return ScheduleWritten::Failed { what: "executions_uid: a slot's execution exists".to_owned() };
        }
        self.put_schedule(key, write, changes);
        let begin = |start| match self.commit(start, changes) {
            Committed::Written(key) => key,
            Committed::Conflict | Committed::Failed { .. } => unreachable!("it was looked at before"),
        };
        ScheduleWritten::Written(key, write.starts.iter().map(begin).collect())
    }

    fn put_schedule(&mut self, key: ScheduleKey, write: &ScheduleWrite, changes: &mut Statistics) {
        let schedules = &mut self.schedules;
        schedules.newest_key = schedules.newest_key.max(key.0);
        let mut row = ScheduleRow { key, ..write.row.clone() };
        changes.add(Change::ScheduleWritten, 1);
        if let Some(there) = schedules.by_key.get(&key) {
            let before = &there.row;
            row = ScheduleRow { uid: before.uid, id: before.id.clone(), create_time: before.create_time, ..row };
            if write.is_change {
                changes.add(Change::ScheduleWritten, 1);
            } else {
                row.revision = before.revision;
                row.workflow = before.workflow.clone();
                row.settings = before.settings.clone();
                row.update_time = before.update_time;
                row.delete_time = before.delete_time;
            }
        }
        if let Some((request, time)) = write.request {
            schedules.requests.insert(request.key, (request.content, Some(key), time));
            changes.add(Change::RequestWritten, 1);
        }
        let schedule = schedules.by_key.entry(key).or_insert_with(|| Schedule {
            row: row.clone(),
            write_id: write.write_id,
            slots: BTreeMap::new(),
        });
        (schedule.row, schedule.write_id) = (row, write.write_id);
        for slot in &write.slots {
            changes.add(Change::SlotWritten, 1);
            let there = schedule.slots.entry(slot.name.clone()).or_insert_with(|| slot.clone());
            // A slot that waited keeps what it was planned as.
            *there = SlotRow { planned_time: there.planned_time, ..slot.clone() };
        }
    }

    // The answer to this write may have been lost: then what stands there is its own.
    fn schedule_written_before(&self, write: &ScheduleWrite) -> ScheduleWritten {
        let mut begun = Vec::new();
        for start in &write.starts {
            let Target::New(new) = &start.target else { return ScheduleWritten::Conflict };
            let key = self.uids.get(&new.uid).copied();
            let there = key.and_then(|key| self.executions.get(&key)?.history.get(&1));
            match (key, there) {
                (Some(key), Some(row)) if row.batch_id == start.batch_id => begun.push(key),
                _ => return ScheduleWritten::Conflict,
            }
        }
        let own =
            self.schedules.by_key.values().find(|it| it.row.uid == write.row.uid && it.write_id == write.write_id);
        match own {
            Some(schedule) => ScheduleWritten::Written(schedule.row.key, begun),
            None if begun.is_empty() => ScheduleWritten::Conflict,
            None => ScheduleWritten::Written(write.row.key, begun),
        }
    }

    pub(super) fn schedule(&self, find: &FindSchedule) -> Option<ScheduleRow> {
        match find {
            FindSchedule::Id(id) => self.schedules.of_id(id).cloned(),
            FindSchedule::Uid(uid) => {
                self.schedules.by_key.values().map(|schedule| &schedule.row).find(|row| row.uid == *uid).cloned()
            }
        }
    }

    pub(super) fn schedules_of(&self, keys: &[ScheduleKey]) -> Vec<ScheduleRow> {
        self.schedules.existing().filter(|row| keys.contains(&row.key)).cloned().collect()
    }

    pub(super) fn schedules(&self, filter: &ScheduleFilter, after: Option<&str>, limit: usize) -> Vec<ScheduleRow> {
        let matching = self.schedules.existing().filter(|row| {
            filter.workflow.as_ref().is_none_or(|workflow| row.workflow == *workflow)
                && filter.state.is_none_or(|state| row.state == state)
                && after.is_none_or(|after| *row.id > *after)
        });
        let by_id: BTreeMap<_, _> = matching.map(|row| (&row.id, row)).collect();
        by_id.into_values().take(limit).cloned().collect()
    }

    pub(super) fn count_schedules(&self) -> BTreeMap<ScheduleState, u64> {
        let mut counts = BTreeMap::new();
        for row in self.schedules.existing() {
            *counts.entry(row.state).or_default() += 1;
        }
        counts
    }

    pub(super) fn schedules_due(
        &self,
        until: Timestamp,
        after: Option<(Timestamp, ScheduleKey)>,
        limit: usize,
    ) -> Vec<(ScheduleKey, Timestamp)> {
        let due = self.schedules.existing().filter_map(|row| Some((row.next_time?, row.key)));
        let due: BTreeSet<_> = due.filter(|it| it.0 <= until && after.is_none_or(|after| *it > after)).collect();
        due.into_iter().take(limit).map(|(time, key)| (key, time)).collect()
    }

    pub(super) fn next_schedule_time(&self) -> Option<Timestamp> {
        self.schedules.existing().filter_map(|row| row.next_time).min()
    }

    pub(super) fn schedule_request(&self, key: [u8; 16]) -> Option<ScheduleRequest> {
        let (content, schedule, time) = *self.schedules.requests.get(&key)?;
        let row = schedule.and_then(|key| self.schedules.by_key.get(&key)).map(|schedule| schedule.row.clone());
        Some(ScheduleRequest { row, content, time })
    }

    pub(super) fn remember_schedule_request(
        &mut self,
        request: RequestKey,
        time: Timestamp,
        changes: &mut Statistics,
    ) -> bool {
        let is_new = self.schedules.is_new(request, time);
        if is_new {
            self.schedules.requests.insert(request.key, (request.content, None, time));
            changes.add(Change::RequestWritten, 1);
        }
        is_new
    }

    pub(super) fn slots(
        &self,
        schedule: ScheduleKey,
        outcome: Option<SlotOutcome>,
        after: Option<&SlotName>,
        limit: usize,
    ) -> Vec<SlotRow> {
        let Some(schedule) = self.schedules.by_key.get(&schedule) else { return Vec::new() };
        let newest_first = schedule.slots.values().rev();
        let matching = newest_first.filter(|slot| {
            outcome.is_none_or(|outcome| slot.outcome == outcome) && after.is_none_or(|after| slot.name < *after)
        });
        matching.take(limit).cloned().collect()
    }

    pub(super) fn slot(&self, schedule: ScheduleKey, name: &SlotName) -> Option<SlotRow> {
        self.schedules.by_key.get(&schedule)?.slots.get(name).cloned()
    }

    pub(super) fn open_runs(&self, schedules: &[Uuid], limit: usize) -> Vec<Vec<ScheduleRun>> {
        let runs = |schedule: &Uuid| {
            let open = self
                .executions
                .values()
                .filter(|execution| execution.schedule == Some(*schedule) && execution.row.close_time.is_none());
            let run = |execution: &Execution| ScheduleRun { id: execution.row.id.clone(), uid: execution.row.uid };
            open.map(run).take(limit).collect()
        };
        schedules.iter().map(runs).collect()
    }

    pub(super) fn states_of(&self, uids: &[Uid]) -> Vec<Option<ExecutionState>> {
        let state = |uid| self.existing(*self.uids.get(uid)?).map(|execution| execution.row.state);
        uids.iter().map(state).collect()
    }

    pub(super) fn delete_slots(
        &mut self,
        decided_before: Timestamp,
        called_before: Timestamp,
        limit: usize,
        changes: &mut Statistics,
    ) -> u64 {
        let mut old = BTreeSet::new();
        for (key, schedule) in &self.schedules.by_key {
            let is_old = |slot: &&SlotRow| {
                let is_answer = slot.name.kind == SlotKind::Trigger && slot.actual_time >= called_before;
                slot.actual_time < decided_before && slot.outcome != SlotOutcome::Buffered && !is_answer
            };
            old.extend(schedule.slots.values().filter(is_old).map(|slot| (slot.actual_time, *key, slot.name.clone())));
        }
        let mut deleted = 0;
        for (_, key, name) in old.into_iter().take(limit) {
            self.schedules.by_key.get_mut(&key).expect("it was found").slots.remove(&name);
            changes.add(Change::SlotDeleted, 1);
            deleted += 1;
        }
        let gone = self.schedules.by_key.iter().filter(|(_, schedule)| schedule.slots.is_empty());
        let gone = gone.filter_map(|(key, schedule)| Some((schedule.row.delete_time?, *key)));
        let gone: BTreeSet<_> = gone.filter(|(time, _)| *time < decided_before.min(called_before)).collect();
        for (_, key) in gone.into_iter().take(limit) {
            self.schedules.by_key.remove(&key);
            changes.add(Change::ScheduleDeleted, 1);
            deleted += 1;
        }
        let calls = self.schedules.requests.iter().map(|(key, (_, _, time))| (*time, *key));
        let calls: BTreeSet<_> = calls.filter(|(time, _)| *time < called_before).collect();
        for (_, key) in calls.into_iter().take(limit) {
            self.schedules.requests.remove(&key);
            changes.add(Change::RequestDeleted, 1);
            deleted += 1;
        }
        deleted
    }
}
