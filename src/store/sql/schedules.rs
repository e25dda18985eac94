//! Schedules and their ledger: written under the fence of a schedule's version, found when due, listed, deleted long after.

use super::executions::limit;
use super::row::{bytes, damaged, text, time, time_if_any, unsigned, uuid};
use super::{Connection, List, Row, Rows, Transaction, Value, Values};
use crate::domain::{RequestKey, Timestamp, Uid};
use crate::store::{
    Change, ExecutionState, FindSchedule, NAMESPACE, REQUEST_MEMORY, ScheduleFilter, ScheduleKey, ScheduleRequest,
    ScheduleRow, ScheduleRun, ScheduleState, ScheduleWrite, ScheduleWritten, SlotCounts, SlotKind, SlotName,
    SlotOutcome, SlotRow,
};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

macro_rules! schedule_columns {
    () => {
        "s.key, s.uid, s.id, s.version, s.revision, s.workflow, s.settings, s.state, s.note, s.invalid, s.cursor_time, \
         s.next_time, s.progress, s.started, s.skipped, s.missed, s.failed, s.create_time, s.update_time, s.delete_time"
    };
}
macro_rules! slot_columns {
    () => {
        "nominal_time, kind, request, planned_time, actual_time, outcome, last_time, slot_count, execution_id, \
         execution_uid, detail"
    };
}

static CREATE: Rows = Rows::new(
    "INSERT INTO schedules (uid, namespace, id, version, revision, write_id, workflow, settings, state, note, invalid, cursor_time, \
     next_time, progress, started, skipped, missed, failed, create_time, update_time) \
     SELECT column1, column2, column3, column4, column5, column6, column7, column8, column9, column10, column11, column12, column13, \
     column14, column15, column16, column17, column18, column19, column20 FROM ",
    20,
    " AS v WHERE column1 IS NOT NULL ON CONFLICT DO NOTHING RETURNING uid, key",
);

/// Primary key of `schedules`. The version is the fence: whoever waited for the row finds it raised.
static DECIDE: Rows = Rows::new(
    "UPDATE schedules SET version = v.column2 + 1, write_id = v.column3, state = v.column4, note = v.column5, \
     invalid = v.column6, cursor_time = v.column7, next_time = v.column8, progress = v.column9, started = v.column10, \
     skipped = v.column11, missed = v.column12, failed = v.column13 FROM ",
    13,
    " AS v WHERE schedules.key = v.column1 AND schedules.version = v.column2 AND schedules.delete_time IS NULL RETURNING key",
);

/// Primary key of `schedules`. What callers set: apart, since an update rewrites the indexes of the columns that it names.
static SETTINGS: Rows = Rows::new(
    "UPDATE schedules SET revision = v.column2, workflow = v.column3, settings = v.column4, update_time = v.column5, \
     delete_time = v.column6 FROM ",
    6,
    " AS v WHERE schedules.key = v.column1",
);

/// Primary key of `slots`. Only a slot that waits is decided again.
static SLOTS: Rows = Rows::new(
    "INSERT INTO slots (schedule_key, nominal_time, kind, request, planned_time, actual_time, outcome, last_time, slot_count, \
     execution_id, execution_uid, detail) \
     SELECT column1, column2, column3, column4, column5, column6, column7, column8, column9, column10, column11, column12 FROM ",
    12,
    " AS v WHERE column1 IS NOT NULL ON CONFLICT (schedule_key, nominal_time, kind, request) DO UPDATE SET \
     actual_time = excluded.actual_time, outcome = excluded.outcome, last_time = excluded.last_time, \
     slot_count = excluded.slot_count, execution_id = excluded.execution_id, \
     execution_uid = excluded.execution_uid, detail = excluded.detail WHERE slots.outcome = 2 RETURNING schedule_key",
);

/// Primary key of `schedule_requests`: the fence of calls. One that is forgotten is in nobody's way, though it may still be there.
static REQUESTS: Rows = Rows::new(
    "INSERT INTO schedule_requests (request_key, request_content, schedule_key, time) \
     SELECT column1, column2, column3, column4 FROM ",
    4,
    " AS v WHERE column1 IS NOT NULL ON CONFLICT (request_key) DO UPDATE SET request_content = excluded.request_content, \
     schedule_key = excluded.schedule_key, time = excluded.time \
     WHERE schedule_requests.time < excluded.time - 86400000000 RETURNING request_key",
);
const _: () = assert!(REQUEST_MEMORY.as_micros() == 86_400_000_000, "the statement above says it, too");

/// The schedule of a call that had found none: no schedule has this key.
const NO_SCHEDULE: i64 = 0;

const WRITTEN_BEFORE: &str = "SELECT key FROM schedules WHERE uid = $1 AND write_id = $2";
const BY_ID: &str = concat!(
    "SELECT ",
    schedule_columns!(),
    " FROM schedules AS s WHERE s.namespace = $1 AND s.id = $2 AND s.delete_time IS NULL"
);
const BY_UID: &str = concat!("SELECT ", schedule_columns!(), " FROM schedules AS s WHERE s.uid = $1");
static BY_KEYS: Rows = Rows::new(
    concat!("SELECT ", schedule_columns!(), " FROM "),
    1,
    " AS v CROSS JOIN schedules AS s WHERE s.key = v.column1 AND s.delete_time IS NULL",
);
const BY_REQUEST: &str = concat!(
    "SELECT ",
    schedule_columns!(),
    ", r.request_content, r.time FROM schedule_requests AS r LEFT JOIN schedules AS s ON s.key = r.schedule_key \
     WHERE r.request_key = $1"
);
/// Index `schedules_id`.
pub(crate) const ALL: &str = concat!(
    "SELECT ",
    schedule_columns!(),
    " FROM schedules AS s WHERE s.namespace = $1 AND s.id > $2 AND s.delete_time IS NULL ORDER BY s.id LIMIT $3"
);
/// Index `schedules_state`.
pub(crate) const OF_STATE: &str = concat!(
    "SELECT ",
    schedule_columns!(),
    " FROM schedules AS s WHERE s.namespace = $1 AND s.id > $2 AND s.delete_time IS NULL AND s.state = $4 \
     ORDER BY s.id LIMIT $3"
);
/// Index `schedules_workflow`, with a state as a condition on its rows.
pub(crate) const OF_WORKFLOW: &str = concat!(
    "SELECT ",
    schedule_columns!(),
    " FROM schedules AS s WHERE s.namespace = $1 AND s.id > $2 AND s.delete_time IS NULL AND s.workflow = $4 \
     AND ($5 = 0 OR +s.state = $5) ORDER BY s.id LIMIT $3"
);
/// Index `schedules_state`.
const COUNT: &str =
    "SELECT state, count(*) FROM schedules WHERE namespace = $1 AND delete_time IS NULL GROUP BY state ORDER BY state";
/// Index `schedules_next`.
pub(crate) const DUE: &str = "SELECT key, next_time FROM schedules WHERE next_time IS NOT NULL AND next_time <= $1 \
     ORDER BY next_time, key LIMIT $2";
/// Index `schedules_next`.
pub(crate) const DUE_AFTER: &str = "SELECT key, next_time FROM schedules WHERE next_time IS NOT NULL AND next_time <= $1 \
     AND (next_time, key) > ($3, $4) ORDER BY next_time, key LIMIT $2";
/// Index `schedules_next`.
pub(crate) const NEXT: &str = "SELECT next_time FROM schedules WHERE next_time IS NOT NULL ORDER BY next_time LIMIT 1";
/// Primary key of `slots`, backwards.
pub(crate) const LEDGER: &str = concat!(
    "SELECT ",
    slot_columns!(),
    " FROM slots WHERE schedule_key = $1 AND ($3 = 0 OR outcome = $3) \
     ORDER BY nominal_time DESC, kind DESC, request DESC LIMIT $2"
);
/// Primary key of `slots`, backwards.
pub(crate) const LEDGER_AFTER: &str = concat!(
    "SELECT ",
    slot_columns!(),
    " FROM slots WHERE schedule_key = $1 AND ($3 = 0 OR outcome = $3) AND (nominal_time, kind, request) < ($4, $5, $6) \
     ORDER BY nominal_time DESC, kind DESC, request DESC LIMIT $2"
);
const SLOT: &str = concat!(
    "SELECT ",
    slot_columns!(),
    " FROM slots WHERE schedule_key = $1 AND nominal_time = $2 AND kind = $3 AND request = $4"
);
macro_rules! open_of_schedule {
    ($schedule:literal, $limit:literal) => {
        concat!(
            "SELECT e.key, e.uid, e.id FROM executions AS e WHERE e.schedule_uid = ",
            $schedule,
            " AND e.close_time IS NULL ORDER BY e.key LIMIT ",
            $limit
        )
    };
}
/// Index `executions_schedule`.
pub(crate) const OPEN: &str = open_of_schedule!("$1", "$2");
/// Index `executions_schedule`, which is looked into for each schedule. Only where there is LATERAL.
pub(crate) static OPEN_OF_MANY: Rows = Rows::new(
    "SELECT v.column1, e.uid, e.id FROM ",
    2,
    concat!(" AS v CROSS JOIN LATERAL (", open_of_schedule!("v.column1", "v.column2"), ") AS e ORDER BY e.key"),
);

/// Index `executions_uid`.
pub(crate) static STATES: Rows = Rows::new(
    "SELECT e.uid, e.state FROM ",
    1,
    " AS v CROSS JOIN executions AS e WHERE e.uid = v.column1 AND e.delete_time IS NULL",
);
/// Index `slots_actual`. A trigger's slot (kind 2) is the answer to a call that may come again.
pub(crate) const DELETE_SLOTS: &str = "DELETE FROM slots WHERE (schedule_key, nominal_time, kind, request) IN \
     (SELECT l.schedule_key, l.nominal_time, l.kind, l.request FROM slots AS l WHERE l.actual_time < $1 AND l.outcome <> 2 \
      AND (l.kind <> 2 OR l.actual_time < $3) ORDER BY l.actual_time LIMIT $2)";
/// Index `schedules_delete`; of each a look into `slots`.
pub(crate) const DELETE_SCHEDULES: &str = "DELETE FROM schedules WHERE key IN \
     (SELECT s.key FROM schedules AS s WHERE s.delete_time < $1 \
      AND NOT EXISTS (SELECT 1 FROM slots AS l WHERE l.schedule_key = s.key) ORDER BY s.delete_time LIMIT $2)";
/// Index `schedule_requests_time`.
pub(crate) const DELETE_REQUESTS: &str = "DELETE FROM schedule_requests WHERE request_key IN \
     (SELECT r.request_key FROM schedule_requests AS r WHERE r.time < $1 ORDER BY r.time LIMIT $2)";

/// Writes schedules, each if it wins its fence, with their slots and the calls; not what they start. Answers with the keys of
/// those that did. A slot that was decided before is an error of the data.
pub(crate) async fn write<T: Transaction>(
    transaction: &mut T,
    writes: &[&ScheduleWrite],
) -> sqlx::Result<Vec<Option<ScheduleKey>>> {
    let mut won: Vec<Option<ScheduleKey>> = create(transaction, writes).await?;
    let decided = writes.iter().filter_map(|write| Some((write, write.decided_on?)));
    let mut rows: Vec<(ScheduleKey, [Value; 13])> = decided
        .map(|(write, version)| {
            let row = &write.row;
            let values = [
                row.key.0.into(),
                signed(version).into(),
                write.write_id.as_bytes().into(),
                i64::from(row.state as i16).into(),
                (&row.note).into(),
                row.invalid.as_deref().into(),
                row.cursor_time.as_micros().into(),
                row.next_time.map(Timestamp::as_micros).into(),
                (&row.progress).into(),
                signed(row.counts.started).into(),
                signed(row.counts.skipped).into(),
                signed(row.counts.missed).into(),
                signed(row.counts.failed).into(),
            ];
            (row.key, values)
        })
        .collect();
    // In one order, so that nodes which write the same schedules wait for each other but rarely in a circle.
    rows.sort_unstable_by_key(|(key, _)| *key);
    let list = List::of(rows.into_iter().map(|(_, values)| values));
    let mut raised = BTreeSet::new();
    for row in transaction.returning_of_many(Change::ScheduleWritten, &DECIDE, list).await? {
        raised.insert(ScheduleKey(row.integer(0)?));
    }
    for (key, write) in won.iter_mut().zip(writes) {
        if write.decided_on.is_some() && raised.contains(&write.row.key) {
            *key = Some(write.row.key);
        }
    }
    write_companions(transaction, writes, &won).await?;
    Ok(won)
}

async fn create<T: Transaction>(
    transaction: &mut T,
    writes: &[&ScheduleWrite],
) -> sqlx::Result<Vec<Option<ScheduleKey>>> {
    let new = writes.iter().filter(|write| write.decided_on.is_none());
    let rows = new.map(|write| {
        let row = &write.row;
        [
            row.uid.as_bytes().into(),
            NAMESPACE.into(),
            (&row.id).into(),
            signed(row.version).into(),
            signed(row.revision).into(),
            write.write_id.as_bytes().into(),
            (&row.workflow).into(),
            (&row.settings).into(),
            i64::from(row.state as i16).into(),
            (&row.note).into(),
            row.invalid.as_deref().into(),
            row.cursor_time.as_micros().into(),
            row.next_time.map(Timestamp::as_micros).into(),
            (&row.progress).into(),
            signed(row.counts.started).into(),
            signed(row.counts.skipped).into(),
            signed(row.counts.missed).into(),
            signed(row.counts.failed).into(),
            row.create_time.as_micros().into(),
            row.update_time.as_micros().into(),
        ]
    });
    let mut created = BTreeMap::new();
    for row in transaction.returning_of_many(Change::ScheduleWritten, &CREATE, List::of(rows)).await? {
        created.insert(uuid(&row, 0)?, ScheduleKey(row.integer(1)?));
    }
    let key =
        |write: &&ScheduleWrite| write.decided_on.is_none().then(|| created.get(&write.row.uid).copied()).flatten();
    Ok(writes.iter().map(key).collect())
}

async fn write_companions<T: Transaction>(
    transaction: &mut T,
    writes: &[&ScheduleWrite],
    won: &[Option<ScheduleKey>],
) -> sqlx::Result<()> {
    let won: Vec<(ScheduleKey, &ScheduleWrite)> =
        won.iter().zip(writes).filter_map(|(key, write)| Some(((*key)?, *write))).collect();
    let requests: Vec<[Value; 4]> = won
        .iter()
        .filter_map(|(key, write)| write.request.map(|(request, time)| request_values(request, key.0, time)))
        .collect();
    let count = requests.len();
    let written = transaction.returning_of_many(Change::RequestWritten, &REQUESTS, List::of(requests)).await?;
    if written.len() != count {
        return Err(sqlx::Error::Encode(Box::new(CallIsRemembered)));
    }
    let settings = won.iter().filter(|(_, write)| write.is_change && write.decided_on.is_some()).map(|(key, write)| {
        let row = &write.row;
        [
            key.0.into(),
            signed(row.revision).into(),
            (&row.workflow).into(),
            (&row.settings).into(),
            row.update_time.as_micros().into(),
            row.delete_time.map(Timestamp::as_micros).into(),
        ]
    });
    transaction.run_many(Change::ScheduleWritten, &SETTINGS, List::of(settings)).await?;
    let slots: Vec<[Value; 12]> =
        won.iter().flat_map(|(key, write)| write.slots.iter().map(|slot| slot_values(*key, slot))).collect();
    let count = slots.len();
    let written = transaction.returning_of_many(Change::SlotWritten, &SLOTS, List::of(slots)).await?;
    if written.len() != count {
        return Err(sqlx::Error::Encode("slots_once: a slot was decided before".into()));
    }
    Ok(())
}

/// A write rolls back because its call was answered before.
#[derive(Debug, thiserror::Error)]
#[error("the call is remembered")]
struct CallIsRemembered;

/// What became of a write that could not be whole.
pub(crate) fn not_whole(cause: &sqlx::Error) -> ScheduleWritten {
    if matches!(cause, sqlx::Error::Encode(inner) if inner.is::<CallIsRemembered>()) {
        return ScheduleWritten::Conflict;
    }
    tracing::error!(error = %cause, "a schedule cannot be written");
    ScheduleWritten::Failed { what: cause.to_string() }
}

fn request_values(request: RequestKey, schedule: i64, time: Timestamp) -> [Value; 4] {
    [(&request.key).into(), (&request.content).into(), schedule.into(), time.as_micros().into()]
}

/// Remembers a call that had nothing to change; says whether it does, or another one was first.
pub(crate) async fn remember<T: Transaction>(
    transaction: &mut T,
    request: RequestKey,
    time: Timestamp,
) -> sqlx::Result<bool> {
    let list = List::of([request_values(request, NO_SCHEDULE, time)]);
    Ok(!transaction.returning_of_many(Change::RequestWritten, &REQUESTS, list).await?.is_empty())
}

fn slot_values(key: ScheduleKey, slot: &SlotRow) -> [Value; 12] {
    let SlotName { nominal_time, kind, request } = &slot.name;
    let execution = slot.execution.as_ref();
    [
        key.0.into(),
        nominal_time.as_micros().into(),
        i64::from(*kind as i16).into(),
        request.into(),
        slot.planned_time.as_micros().into(),
        slot.actual_time.as_micros().into(),
        i64::from(slot.outcome as i16).into(),
        slot.last_time.as_micros().into(),
        signed(slot.slot_count).into(),
        execution.map(|(id, _)| &**id).into(),
        execution.map(|(_, uid)| uid.0.as_bytes().as_slice()).into(),
        (&slot.detail).into(),
    ]
}

/// The key of a schedule if a write that lost its fence lost it to itself, because its COMMIT worked though the answer was lost.
pub(crate) async fn written_before<C: Connection>(
    connection: &mut C,
    write: &ScheduleWrite,
) -> sqlx::Result<Option<ScheduleKey>> {
    let values = [write.row.uid.as_bytes().into(), write.write_id.as_bytes().into()];
    let row = connection.row(WRITTEN_BEFORE, values.into()).await?;
    row.map(|row| row.integer(0).map(ScheduleKey)).transpose()
}

pub(crate) async fn schedule<C: Connection>(
    connection: &mut C,
    find: &FindSchedule,
) -> sqlx::Result<Option<ScheduleRow>> {
    let found = match find {
        FindSchedule::Id(id) => connection.row(BY_ID, [NAMESPACE.into(), id.into()].into()).await?,
        FindSchedule::Uid(uid) => connection.row(BY_UID, [uid.as_bytes().into()].into()).await?,
    };
    found.as_ref().map(schedule_row).transpose()
}

pub(crate) async fn schedules_of<C: Connection>(
    connection: &mut C,
    keys: &[ScheduleKey],
) -> sqlx::Result<Vec<ScheduleRow>> {
    let list = List::of(keys.iter().map(|key| [key.0.into()]));
    let rows = connection.rows_of_many(&BY_KEYS, list).await?;
    let mut rows: Vec<ScheduleRow> = rows.iter().map(schedule_row).collect::<sqlx::Result<_>>()?;
    rows.sort_unstable_by_key(|row| row.key);
    Ok(rows)
}

pub(crate) async fn schedules<C: Connection>(
    connection: &mut C,
    filter: &ScheduleFilter,
    after: Option<&str>,
    most: usize,
) -> sqlx::Result<Vec<ScheduleRow>> {
    let values = Values::default().with(NAMESPACE).with(after.unwrap_or_default()).with(limit(most));
    let state = filter.state.map_or(0, |state| i64::from(state as i16));
    let rows = match (&filter.workflow, filter.state) {
        (Some(workflow), _) => connection.rows(OF_WORKFLOW, values.with(workflow).with(state)).await?,
        (None, Some(_)) => connection.rows(OF_STATE, values.with(state)).await?,
        (None, None) => connection.rows(ALL, values).await?,
    };
    rows.iter().map(schedule_row).collect()
}

pub(crate) async fn count<C: Connection>(connection: &mut C) -> sqlx::Result<BTreeMap<ScheduleState, u64>> {
    let rows = connection.rows(COUNT, [NAMESPACE.into()].into()).await?;
    rows.iter().map(|row| Ok((state(row, 0)?, unsigned(row, 1)?))).collect()
}

pub(crate) async fn due<C: Connection>(
    connection: &mut C,
    until: Timestamp,
    after: Option<(Timestamp, ScheduleKey)>,
    most: usize,
) -> sqlx::Result<Vec<(ScheduleKey, Timestamp)>> {
    let values = Values::default().with(until.as_micros()).with(limit(most));
    let rows = match after {
        Some((time, key)) => connection.rows(DUE_AFTER, values.with(time.as_micros()).with(key.0)).await?,
        None => connection.rows(DUE, values).await?,
    };
    rows.iter().map(|row| Ok((ScheduleKey(row.integer(0)?), time(row, 1)?))).collect()
}

pub(crate) async fn next_time<C: Connection>(connection: &mut C) -> sqlx::Result<Option<Timestamp>> {
    connection.row(NEXT, Values::default()).await?.map(|row| time(&row, 0)).transpose()
}

pub(crate) async fn request<C: Connection>(connection: &mut C, key: [u8; 16]) -> sqlx::Result<Option<ScheduleRequest>> {
    let row = connection.row(BY_REQUEST, [(&key).into()].into()).await?;
    let request = |row| {
        let schedule = match time_if_any(&row, 17)? {
            Some(_) => Some(schedule_row(&row)?),
            None => None,
        };
        Ok(ScheduleRequest { row: schedule, content: bytes(&row, 20)?, time: time(&row, 21)? })
    };
    row.map(request).transpose()
}

pub(crate) async fn slots<C: Connection>(
    connection: &mut C,
    schedule: ScheduleKey,
    outcome: Option<SlotOutcome>,
    after: Option<&SlotName>,
    most: usize,
) -> sqlx::Result<Vec<SlotRow>> {
    let outcome = outcome.map_or(0, |outcome| i64::from(outcome as i16));
    let values = Values::default().with(schedule.0).with(limit(most)).with(outcome);
    let rows = match after {
        Some(SlotName { nominal_time, kind, request }) => {
            let values = values.with(nominal_time.as_micros()).with(i64::from(*kind as i16)).with(request);
            connection.rows(LEDGER_AFTER, values).await?
        }
        None => connection.rows(LEDGER, values).await?,
    };
    rows.iter().map(slot_row).collect()
}

pub(crate) async fn slot<C: Connection>(
    connection: &mut C,
    schedule: ScheduleKey,
    name: &SlotName,
) -> sqlx::Result<Option<SlotRow>> {
    let values = [
        schedule.0.into(),
        name.nominal_time.as_micros().into(),
        i64::from(name.kind as i16).into(),
        (&name.request).into(),
    ];
    connection.row(SLOT, values.into()).await?.as_ref().map(slot_row).transpose()
}

/// Open executions of schedules, asked for all at once.
pub(crate) async fn open_of_many<C: Connection>(
    connection: &mut C,
    schedules: &[Uuid],
    most: usize,
) -> sqlx::Result<Vec<Vec<ScheduleRun>>> {
    let list = List::of(schedules.iter().map(|uid| [uid.as_bytes().into(), limit(most).into()]));
    let mut open: BTreeMap<Uuid, Vec<ScheduleRun>> = BTreeMap::new();
    for row in connection.rows_of_many(&OPEN_OF_MANY, list).await? {
        open.entry(uuid(&row, 0)?).or_default().push(run(&row)?);
    }
    Ok(schedules.iter().map(|uid| open.get(uid).cloned().unwrap_or_default()).collect())
}

/// Open executions of schedules, asked for one after another.
pub(crate) async fn open_of_each<C: Connection>(
    connection: &mut C,
    schedules: &[Uuid],
    most: usize,
) -> sqlx::Result<Vec<Vec<ScheduleRun>>> {
    let mut open = Vec::with_capacity(schedules.len());
    for uid in schedules {
        let values = Values::default().with(uid.as_bytes()).with(limit(most));
        let rows = connection.rows(OPEN, values).await?;
        open.push(rows.iter().map(run).collect::<sqlx::Result<_>>()?);
    }
    Ok(open)
}

fn run(row: &impl Row) -> sqlx::Result<ScheduleRun> {
    Ok(ScheduleRun { uid: Uid(uuid(row, 1)?), id: text(row, 2)? })
}

pub(crate) async fn states_of<C: Connection>(
    connection: &mut C,
    uids: &[Uid],
) -> sqlx::Result<Vec<Option<ExecutionState>>> {
    let list = List::of(uids.iter().map(|uid| [uid.0.as_bytes().into()]));
    let mut states: BTreeMap<Uuid, ExecutionState> = BTreeMap::new();
    for row in connection.rows_of_many(&STATES, list).await? {
        states.insert(uuid(&row, 0)?, super::row::state(&row, 1)?);
    }
    Ok(uids.iter().map(|uid| states.get(&uid.0).copied()).collect())
}

pub(crate) async fn delete<T: Transaction>(
    transaction: &mut T,
    decided_before: Timestamp,
    called_before: Timestamp,
    most: usize,
) -> sqlx::Result<u64> {
    let values = |before: Timestamp| Values::default().with(before.as_micros()).with(limit(most));
    let old = values(decided_before).with(called_before.as_micros());
    let slots = transaction.run(Change::SlotDeleted, DELETE_SLOTS, old).await?;
    let gone = values(decided_before.min(called_before));
    let schedules = transaction.run(Change::ScheduleDeleted, DELETE_SCHEDULES, gone).await?;
    let requests = transaction.run(Change::RequestDeleted, DELETE_REQUESTS, values(called_before)).await?;
    Ok(slots + schedules + requests)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn state(row: &impl Row, column: usize) -> sqlx::Result<ScheduleState> {
    let number = row.integer(column)?;
    let known = ScheduleState::ALL.into_iter().find(|known| i64::from(*known as i16) == number);
    known.ok_or_else(|| damaged(format!("state {number} of a schedule is unknown")))
}

fn schedule_row(row: &impl Row) -> sqlx::Result<ScheduleRow> {
    Ok(ScheduleRow {
        key: ScheduleKey(row.integer(0)?),
        uid: uuid(row, 1)?,
        id: text(row, 2)?,
        version: unsigned(row, 3)?,
        revision: unsigned(row, 4)?,
        workflow: text(row, 5)?,
        settings: text(row, 6)?,
        state: state(row, 7)?,
        note: text(row, 8)?,
        invalid: row.text_if_any(9)?.map(Into::into),
        cursor_time: time(row, 10)?,
        next_time: time_if_any(row, 11)?,
        progress: text(row, 12)?,
        counts: SlotCounts {
            started: unsigned(row, 13)?,
            skipped: unsigned(row, 14)?,
            missed: unsigned(row, 15)?,
            failed: unsigned(row, 16)?,
        },
        create_time: time(row, 17)?,
        update_time: time(row, 18)?,
        delete_time: time_if_any(row, 19)?,
    })
}

fn slot_row(row: &impl Row) -> sqlx::Result<SlotRow> {
    let (kind, outcome) = (row.integer(1)?, row.integer(5)?);
    let kind = SlotKind::ALL.into_iter().find(|known| i64::from(*known as i16) == kind);
    let outcome = SlotOutcome::ALL.into_iter().find(|known| i64::from(*known as i16) == outcome);
    let (Some(kind), Some(outcome)) = (kind, outcome) else { return Err(damaged("kind or outcome of a slot")) };
    let execution = match row.bytes_if_any(9)? {
        Some(_) => Some((text(row, 8)?, Uid(uuid(row, 9)?))),
        None => None,
    };
    Ok(SlotRow {
        name: SlotName { nominal_time: time(row, 0)?, kind, request: text(row, 2)? },
        planned_time: time(row, 3)?,
        actual_time: time(row, 4)?,
        outcome,
        last_time: time(row, 6)?,
        slot_count: unsigned(row, 7)?,
        execution,
        detail: text(row, 10)?,
    })
}
