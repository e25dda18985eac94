//! The model's tables and what is read from them, in the order that the trait names.

use crate::domain::{SessionId, Timestamp, Uid};
use crate::store::{
    BatchRow, Change, DefinitionRow, DefinitionStored, ExecutionKey, ExecutionRow, ExecutionState, Find,
    FindDefinition, HeldRow, HistoryRow, LargePayload, ListCursor, ListFilter, ListPage, Loaded, NodeRow, Pool,
    Presence, ReadyRow, ReadyUnit, SessionRow, Snapshot, Statistics,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use uuid::Uuid;

/// An execution with everything that is keyed by it.
pub(super) struct Execution {
    pub(super) row: ExecutionRow,
    /// Uid of the schedule that has started it.
    pub(super) schedule: Option<Uuid>,
    pub(super) floor: u64,
    pub(super) history: BTreeMap<u64, HistoryRow>,
    pub(super) snapshot: Option<Snapshot>,
    pub(super) payloads: BTreeMap<(u32, [u8; 32]), Arc<str>>,
    pub(super) ready: BTreeMap<Arc<str>, ReadyUnit>,
    /// By run: the number of its first event, and when it began.
    pub(super) runs: BTreeMap<u32, (u64, Timestamp)>,
}

impl Execution {
    pub(super) fn new(row: ExecutionRow, schedule: Option<Uuid>) -> Self {
        Self {
            row,
            schedule,
            floor: 0,
            history: BTreeMap::new(),
            snapshot: None,
            payloads: BTreeMap::new(),
            ready: BTreeMap::new(),
            runs: BTreeMap::new(),
        }
    }

    pub(super) fn newest_number(&self) -> u64 {
        self.history.values().next_back().map_or(self.floor, |row| row.last_number)
    }

    /// Number of the last event before the newest run.
    fn run_floor(&self) -> u64 {
        self.runs.values().next_back().map_or(self.floor, |(first_number, _)| first_number - 1)
    }

    pub(super) fn load(&self) -> Loaded {
        let floor = self.run_floor();
        let snapshot = self.snapshot.clone().filter(|snapshot| snapshot.number > floor);
        let after = snapshot.as_ref().map_or(floor, |snapshot| snapshot.number);
        let history = self.history(after, usize::MAX, usize::MAX);
        Loaded { row: self.row.clone(), snapshot, history, payloads: self.payloads(self.row.run) }
    }

    pub(super) fn load_tail(&self, after_number: u64) -> Loaded {
        let history = self.history(after_number.max(self.run_floor()), usize::MAX, usize::MAX);
        let payloads = if history.is_empty() { Vec::new() } else { self.payloads(self.row.run) };
        Loaded { row: self.row.clone(), snapshot: None, history, payloads }
    }

    pub(super) fn history(&self, after_number: u64, rows_max: usize, bytes_max: usize) -> Vec<HistoryRow> {
        let mut bytes = 0;
        let mut rows = Vec::new();
        for row in self.history.values().filter(|row| row.last_number > after_number).take(rows_max) {
            bytes += row.events.len();
            rows.push(row.clone());
            if bytes >= bytes_max {
                break;
            }
        }
        rows
    }

    /// Those of a run and later ones.
    pub(super) fn payloads(&self, run: u32) -> Vec<LargePayload> {
        let of_runs = self.payloads.range((run, [0; 32])..);
        let by_digest: BTreeMap<_, _> = of_runs.map(|((_, digest), json)| (*digest, json.clone())).collect();
        by_digest.into_iter().map(|(sha256, json)| LargePayload { sha256, json }).collect()
    }
}

pub(super) type HeldKey = (ExecutionKey, Arc<str>, u32);

#[derive(Default)]
pub(super) struct Tables {
    pub(super) newest_key: i64,
    pub(super) executions: BTreeMap<ExecutionKey, Execution>,
    pub(super) current: BTreeMap<Arc<str>, ExecutionKey>,
    pub(super) uids: BTreeMap<Uid, ExecutionKey>,
    pub(super) starts: BTreeSet<(Timestamp, ExecutionKey)>,
    pub(super) counters: BTreeMap<ExecutionState, u64>,
    pub(super) definitions: BTreeMap<(Arc<str>, Arc<str>), DefinitionRow>,
    pub(super) sessions: BTreeMap<SessionId, SessionRow>,
    pub(super) held: BTreeMap<HeldKey, HeldRow>,
    pub(super) nodes: BTreeMap<Uuid, NodeRow>,
    pub(super) batches: BTreeMap<Uuid, BatchRow>,
    pub(super) schedules: super::schedules::Schedules,
}

impl Tables {
    pub(super) fn find(&self, find: &Find) -> Option<&Execution> {
        let key = match find {
            Find::Key(key) => key,
            Find::Id(id) => self.current.get(id)?,
            Find::Uid(uid) => self.uids.get(uid)?,
        };
        self.existing(*key)
    }

    /// An execution that is not being deleted.
    pub(super) fn existing(&self, key: ExecutionKey) -> Option<&Execution> {
        self.executions.get(&key).filter(|execution| execution.row.delete_time.is_none())
    }

    pub(super) fn list(&self, filter: &ListFilter, after: Option<ListCursor>, limit: usize) -> ListPage {
        if limit == 0 {
            return ListPage::default();
        }
        let newest_first =
            self.starts.iter().rev().filter(|start| after.is_none_or(|c| **start < (c.start_time, c.key)));
        let rows = newest_first.filter_map(|(_, key)| self.existing(*key)).map(|execution| &execution.row);
        let rows = rows.filter(|row| matches(filter, row)).take(limit.saturating_add(1));
        ListPage::cut(rows.cloned().collect(), limit, None)
    }

    pub(super) fn due(&self, until: Timestamp, limit: usize) -> Vec<(ExecutionKey, Timestamp)> {
        let rows = self.executions.values().map(|execution| &execution.row).filter(|row| row.quarantined.is_none());
        let due: BTreeSet<_> = rows.filter_map(|row| row.wake_time.map(|wake| (wake, row.key))).collect();
        due.into_iter().take_while(|(wake, _)| *wake <= until).take(limit).map(|(wake, key)| (key, wake)).collect()
    }

    pub(super) fn ready(&self, pool: &Pool, limit: usize) -> Vec<ReadyRow> {
        let rows =
            self.executions.iter().flat_map(|(key, execution)| execution.ready.values().map(|unit| (*key, unit)));
        let mut rows: Vec<_> = rows
            .filter(|(_, unit)| {
                unit.queue == pool.queue && unit.contract == pool.contract && unit.language == pool.language
            })
            .collect();
        rows.sort_by(|(a, x), (b, y)| {
            (x.priority, x.ready_time, a, &x.unit).cmp(&(y.priority, y.ready_time, b, &y.unit))
        });
        rows.into_iter().take(limit).map(|(execution, unit)| ReadyRow { execution, unit: unit.clone() }).collect()
    }

    pub(super) fn quarantine(&mut self, key: ExecutionKey, why: &str, changes: &mut Statistics) {
        if let Some(execution) = self.executions.get_mut(&key) {
            execution.row.quarantined = Some(why.into());
            changes.add(Change::ExecutionUpdated, 1);
            changes.add(Change::ReadyDeleted, std::mem::take(&mut execution.ready).len() as u64);
        }
    }

    pub(super) fn put_definitions(
        &mut self,
        rows: &[DefinitionRow],
        changes: &mut Statistics,
    ) -> Vec<DefinitionStored> {
        let key = |row: &DefinitionRow| (row.name.clone(), row.version.clone());
        let stored: Vec<_> = rows
            .iter()
            .map(|row| match self.definitions.get(&key(row)) {
                Some(stored) if stored.hash == row.hash => DefinitionStored::Same,
                Some(_) => DefinitionStored::Different,
                None => DefinitionStored::Created,
            })
            .collect();
        if stored.contains(&DefinitionStored::Different) {
            return stored;
        }
        for (row, _) in rows.iter().zip(&stored).filter(|(_, stored)| **stored == DefinitionStored::Created) {
            let contracts: BTreeSet<_> = row.contracts.iter().map(|contract| split(contract)).collect();
            let contracts: Vec<Arc<str>> =
                contracts.iter().map(|(name, version)| format!("{name}@{version}").into()).collect();
            changes.add(Change::DefinitionInserted, 1);
            changes.add(Change::ContractInserted, contracts.len() as u64);
            self.definitions.insert(key(row), DefinitionRow { contracts, ..row.clone() });
        }
        stored
    }

    pub(super) fn definition(&self, find: &FindDefinition) -> Option<DefinitionRow> {
        let mut rows = self.definitions.values();
        let found = match find {
            FindDefinition::Hash(hash) => rows.find(|row| row.hash == *hash),
            FindDefinition::Version(name, version) => self.definitions.get(&(name.clone(), version.clone())),
            FindDefinition::Latest { name, prerelease } => rows
                .filter(|row| row.name == *name && (*prerelease || !row.prerelease))
                .max_by_key(|row| (!row.prerelease, &row.version_order)),
        };
        found.cloned()
    }

    pub(super) fn definitions(
        &self,
        name: Option<&str>,
        after: Option<(&str, &[u8])>,
        limit: usize,
    ) -> Vec<DefinitionRow> {
        let mut rows: Vec<_> =
            self.definitions.values().filter(|row| name.is_none_or(|name| *row.name == *name)).collect();
        rows.sort_by(|a, b| a.name.cmp(&b.name).then_with(|| b.version_order.cmp(&a.version_order)));
        let later = |row: &DefinitionRow| {
            after.is_none_or(|(name, order)| *row.name > *name || (*row.name == *name && *row.version_order < *order))
        };
        rows.into_iter().filter(|row| later(row)).take(limit).cloned().collect()
    }

    pub(super) fn contract_versions(&self, task_name: &str) -> Vec<String> {
        let contracts = self.definitions.values().flat_map(|row| &row.contracts).map(|contract| split(contract));
        let versions: BTreeSet<_> =
            contracts.filter(|(name, _)| *name == task_name).map(|(_, version)| version).collect();
        versions.into_iter().map(str::to_owned).collect()
    }

    pub(super) fn put_session(&mut self, row: &SessionRow, changes: &mut Statistics) {
        self.sessions.insert(row.id, row.clone());
        changes.add(Change::SessionWritten, 1);
    }

    pub(super) fn resume_session(&mut self, row: &SessionRow, changes: &mut Statistics) -> Option<SessionRow> {
        let stored = self.sessions.get_mut(&row.id)?;
        *stored = SessionRow {
            connection: stored.connection + 1,
            contact_time: row.contact_time.max(stored.contact_time + Duration::from_micros(1)),
            register_time: stored.register_time,
            ..row.clone()
        };
        changes.add(Change::SessionWritten, 1);
        Some(stored.clone())
    }

    pub(super) fn end_session(
        &mut self,
        id: SessionId,
        contact_time: Option<Timestamp>,
        changes: &mut Statistics,
    ) -> bool {
        let ends = self.sessions.get(&id).is_some_and(|row| contact_time.is_none_or(|time| row.contact_time == time));
        if ends {
            self.sessions.remove(&id);
            changes.add(Change::SessionDeleted, 1);
        }
        ends
    }

    pub(super) fn presence(&mut self, presence: &Presence, changes: &mut Statistics) -> Vec<NodeRow> {
        for (id, time) in &presence.contacts {
            if let Some(row) = self.sessions.get_mut(id).filter(|row| row.contact_time < *time) {
                row.contact_time = *time;
                changes.add(Change::SessionWritten, 1);
            }
        }
        for row in &presence.held {
            let key = (row.execution, row.unit.clone(), row.delivery);
            let mut row = row.clone();
            if let Some(stored) = self.held.get(&key) {
                let (newer, older) = if row.beat_time < stored.beat_time { (stored, &row) } else { (&row, stored) };
                (row.beat_time, row.progress) =
                    (newer.beat_time, newer.progress.clone().or_else(|| older.progress.clone()));
            }
            self.held.insert(key, row);
            changes.add(Change::HeldWritten, 1);
        }
        if let Some(node) = presence.node {
            let now = self.nodes.get(&node.id).map_or(node.now, |stored| stored.now.max(node.now));
            self.nodes.insert(node.id, NodeRow { now, ..node });
            changes.add(Change::NodeWritten, 1);
        }
        self.nodes.values().copied().collect()
    }

    pub(super) fn newest_now(&self) -> Option<Timestamp> {
        self.nodes.values().map(|node| node.now).max()
    }

    pub(super) fn held_without_session(&self, limit: usize) -> Vec<HeldRow> {
        let mut rows: Vec<_> = self.held.iter().filter(|(_, row)| !self.sessions.contains_key(&row.session)).collect();
        rows.sort_by_key(|(key, row)| (row.session, *key));
        rows.into_iter().take(limit).map(|(_, row)| row.clone()).collect()
    }

    pub(super) fn held_overdue(&self, now: Timestamp, timeout: Duration, limit: usize) -> Vec<HeldRow> {
        let timeout = |row: &HeldRow| self.sessions.get(&row.session).and_then(|row| row.timeout).unwrap_or(timeout);
        let missing = self.held.iter().filter_map(|(key, row)| Some((row.missing_since?, key, timeout(row))));
        let missing = missing.filter(|(since, _, timeout)| *since < now - *timeout);
        let missing: BTreeSet<_> = missing.map(|(since, key, _)| (since, key)).collect();
        let overdue = self.held.iter().filter_map(|(key, row)| beat_deadline(row).map(|deadline| (deadline, key)));
        let overdue: BTreeSet<_> = overdue.filter(|(deadline, _)| *deadline <= now).collect();
        let first = missing.into_iter().take(limit).chain(overdue.into_iter().take(limit));
        let first: BTreeSet<_> = first.map(|(_, key)| key).collect();
        first.into_iter().take(limit).map(|key| self.held[key].clone()).collect()
    }

    pub(super) fn delete_held(&mut self, rows: &[HeldKey], changes: &mut Statistics) {
        for row in rows {
            changes.add(Change::HeldDeleted, u64::from(self.held.remove(row).is_some()));
        }
    }
}

fn beat_deadline(row: &HeldRow) -> Option<Timestamp> {
    let timeout = u64::try_from(row.heartbeat_timeout_micros?).unwrap_or(0);
    Some(row.beat_time + Duration::from_micros(timeout))
}

fn matches(filter: &ListFilter, row: &ExecutionRow) -> bool {
    (filter.states.is_empty() || filter.states.contains(&row.state))
        && filter.workflow.as_ref().is_none_or(|workflow| row.workflow == *workflow)
        && filter.labels.iter().all(|(key, value)| row.labels.get(key) == Some(value))
        && filter.start_from.is_none_or(|from| row.start_time >= from)
        && filter.start_until.is_none_or(|until| row.start_time < until)
}

// A contract is `name@version`; the version has no `@`.
fn split(contract: &str) -> (&str, &str) {
    contract.rsplit_once('@').unwrap_or((contract, ""))
}
