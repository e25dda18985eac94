//! Group commit: a batch of appends in one transaction, with few statements.
//!
//! In order: new executions (an id that is taken does not come back) → history, each row only if its number is the next
//! one (a row that is not inserted is a conflict) → everything else, only for those that were. So a conflict costs its own
//! append alone. An error that lies in the data rolls back and halves the batch, until the guilty append
//! stands alone and the rest is written.
//!
//! An append with two fences is a part of its own ([`two_fences`]).
//!
//! # Design
//! One statement over many rows costs a fraction of as many statements, so each kind of row is written with VALUES lists
//! of a few fixed sizes ([`Rows`]).

pub(super) mod schedules;
mod two_fences;

use super::connection::{Unfinished, Writer};
use super::error;
use crate::domain::Timestamp;
use crate::store::{
    Append, Change, Committed, EVENT_FORMAT, Error, ExecutionKey, ExecutionState, LargePayload, NAMESPACE,
    NewExecution, ReadyUnit, Target,
    batch::Batch,
    sql::{List, Row as _, Rows, Transaction, Value, text as sql},
};
use std::collections::BTreeMap;

/// Commits a batch; see [`crate::store::Store::commit`].
pub(super) async fn commit(writer: &mut Writer, batch: &[Append]) -> Result<Vec<Committed>, Error> {
    let mut batch = Batch::new(batch);
    while let Some(part) = batch.next_part() {
        match attempt(writer, &part.appends).await {
            Ok(outcomes) => batch.is_written(part, outcomes),
            Err(Unfinished::RolledBack(cause)) if error::is_of_the_data(&cause) => batch.has_a_fault(part, &cause),
            Err(unfinished) => return Err(unfinished.into()),
        }
    }
    Ok(batch.outcomes())
}

/// Writes a part in one transaction. Where it is unclear whether a COMMIT worked, the part is written again: what stands
/// there already is recognised by its `batch_id`.
async fn attempt(writer: &mut Writer, appends: &[&Append]) -> Result<Vec<Committed>, Unfinished> {
    match attempt_once(writer, appends).await {
        Err(Unfinished::Unclear(cause)) => {
            tracing::warn!(error = %cause, "a COMMIT failed; the batch is written again");
            attempt_once(writer, appends).await
        }
        clear => clear,
    }
}

async fn attempt_once(writer: &mut Writer, appends: &[&Append]) -> Result<Vec<Committed>, Unfinished> {
    let mut transaction = writer.begin().await?;
    let written = write(&mut transaction, appends).await;
    writer.finish(transaction, written).await
}

/// Writes a part in an open transaction.
async fn write<T: Transaction>(transaction: &mut T, appends: &[&Append]) -> sqlx::Result<Vec<Committed>> {
    if let [append] = appends
        && append.has_two_fences()
    {
        return Ok(vec![two_fences::write(transaction, append).await?]);
    }
    let won = write_fenced(transaction, appends).await?;
    let mut answers = Vec::with_capacity(appends.len());
    for (append, key) in appends.iter().zip(won) {
        answers.push(match key {
            Some(key) => Committed::Written(key),
            None => written_before(transaction, append).await?,
        });
    }
    Ok(answers)
}

/// Writes appends that go with a schedule, each if it wins its fence; as [`write_fenced`], of none, too.
async fn attempt_fenced<T: Transaction>(
    transaction: &mut T,
    appends: &[&Append],
) -> sqlx::Result<Vec<Option<ExecutionKey>>> {
    if appends.is_empty() { Ok(Vec::new()) } else { write_fenced(transaction, appends).await }
}

/// An append whose fence was won, with its execution.
struct Won<'a> {
    key: ExecutionKey,
    append: &'a Append,
}

/// Writes appends, each if it wins its fence; answers with the executions of those that did.
async fn write_fenced<T: Transaction>(
    transaction: &mut T,
    appends: &[&Append],
) -> sqlx::Result<Vec<Option<ExecutionKey>>> {
    let keys = create_executions(transaction, appends).await?;
    let mut fenced: Vec<(ExecutionKey, usize)> =
        keys.iter().enumerate().filter_map(|(index, key)| Some(((*key)?, index))).collect();
    // In order of the table, so that neighbours share pages.
    fenced.sort_unstable();
    let won: Vec<Won<'_>> = fenced.iter().map(|(key, index)| Won { key: *key, append: appends[*index] }).collect();
    let inserted = insert_history(transaction, &won).await?;

    let mut outcomes = vec![None; appends.len()];
    for (won_fence, (key, index)) in inserted.iter().zip(&fenced) {
        if *won_fence {
            outcomes[*index] = Some(*key);
        }
    }
    let won: Vec<Won<'_>> =
        won.into_iter().zip(inserted).filter_map(|(won, inserted)| inserted.then_some(won)).collect();
    write_companions(transaction, &won).await?;
    Ok(outcomes)
}

static EXECUTIONS: Rows = Rows::new(
    "INSERT INTO executions (uid, namespace, id, current, workflow, version, definition_hash, input_digest, request_key, \
     request_content, state, labels, start_time, close_time, wake_time, schedule_uid) \
     SELECT column1, column2, column3, 1, column4, column5, column6, column7, column8, column9, column10, column11, column12, \
     column13, column14, column15 FROM ",
    15,
    " AS v WHERE column1 IS NOT NULL ON CONFLICT DO NOTHING RETURNING uid, key",
);

/// Inserts the rows of new executions. Answers with the key of each append's execution; none where the id is taken.
async fn create_executions<T: Transaction>(
    transaction: &mut T,
    appends: &[&Append],
) -> sqlx::Result<Vec<Option<ExecutionKey>>> {
    let mut keys = Vec::with_capacity(appends.len());
    let mut new: Vec<(&NewExecution, Option<Timestamp>)> = Vec::new();
    for append in appends {
        match &append.target {
            Target::Existing(key) => keys.push(Some(*key)),
            Target::New(_) | Target::Replacing(_) => keys.push(None),
        }
        new.extend(append.new_execution().map(|execution| (execution, append.wake_set().flatten())));
    }
    let rows = new.into_iter().map(|(execution, wake_time)| {
        [
            execution.uid.0.as_bytes().into(),
            NAMESPACE.into(),
            (&execution.id).into(),
            (&execution.workflow).into(),
            (&execution.version).into(),
            (&execution.definition_hash).into(),
            (&execution.input_digest).into(),
            execution.request.as_ref().map(|request| request.key.as_slice()).into(),
            execution.request.as_ref().map(|request| request.content.as_slice()).into(),
            (execution.state as i64).into(),
            serde_json::to_string(&execution.labels).expect("a map of texts is JSON").into(),
            execution.start_time.as_micros().into(),
            execution.close_time.map(Timestamp::as_micros).into(),
            wake_time.map(Timestamp::as_micros).into(),
            execution.schedule.as_ref().map(|uid| uid.as_bytes().as_slice()).into(),
        ]
    });
    let mut created = BTreeMap::new();
    for row in transaction.returning_of_many(Change::ExecutionInserted, &EXECUTIONS, List::of(rows)).await? {
        created.insert(row.bytes(0)?.to_vec(), ExecutionKey(row.integer(1)?));
    }
    for (key, append) in keys.iter_mut().zip(appends) {
        if let Some(execution) = append.new_execution() {
            *key = created.get(&execution.uid.0.as_bytes()[..]).copied();
        }
    }
    Ok(keys)
}

// The number must follow the newest one that is there (or the floor, where all were trimmed). The unique key stays the
// fence; on this single writer the condition alone already holds.
static HISTORY: Rows = Rows::new(
    "INSERT INTO history (execution_key, first_seq, last_seq, run, batch_id, format, events) \
     SELECT column1, column2, column3, column4, column5, column6, column7 FROM ",
    7,
    " AS v CROSS JOIN executions AS e WHERE e.key = v.column1 AND e.delete_time IS NULL AND e.floor_seq < v.column2 AND v.column2 = 1 + coalesce(\
     (SELECT h.last_seq FROM history AS h WHERE h.execution_key = v.column1 ORDER BY h.first_seq DESC LIMIT 1), e.floor_seq) \
     ON CONFLICT DO NOTHING",
);

/// The executions of the newest $1 rows of history.
pub(super) const NEWEST_HISTORY: &str = "SELECT execution_key FROM history ORDER BY rowid DESC LIMIT $1";

/// Inserts the history rows; says of each whether it was inserted. Their number tells it when all were, which is nearly
/// always, and rows that come back cost; else those of this transaction are the last ones in the table.
async fn insert_history<T: Transaction>(transaction: &mut T, fenced: &[Won<'_>]) -> sqlx::Result<Vec<bool>> {
    let rows = fenced.iter().map(|Won { key, append }| {
        [
            key.0.into(),
            number(append.first_number).into(),
            number(append.last_number).into(),
            append.run.into(),
            append.batch_id.as_bytes().into(),
            i64::from(EVENT_FORMAT).into(),
            append.events[..].into(),
        ]
    });
    let inserted = transaction.run_many(Change::HistoryInserted, &HISTORY, List::of(rows)).await?;
    if inserted == fenced.len() as u64 {
        return Ok(vec![true; fenced.len()]);
    }
    let newest = transaction.rows(NEWEST_HISTORY, [number(inserted).into()].into()).await?;
    let mut won = newest.iter().map(|row| row.integer(0)).collect::<sqlx::Result<Vec<i64>>>()?;
    won.sort_unstable();
    Ok(fenced.iter().map(|Won { key, .. }| won.binary_search(&key.0).is_ok()).collect())
}

/// The answer to an append that lost its fence: written, if the row at its number is its own (its COMMIT worked though the
/// answer was lost), else a conflict.
async fn written_before<T: Transaction>(transaction: &mut T, append: &Append) -> sqlx::Result<Committed> {
    let key = match (&append.target, append.new_execution()) {
        (Target::Existing(key), _) => Some(*key),
        (Target::New(_) | Target::Replacing(_), execution) => {
            let uid = execution.map(|execution| execution.uid.0.as_bytes().as_slice());
            let row = transaction.row(sql::KEY_OF_UID, [uid.into()].into()).await?;
            row.map(|row| row.integer(0)).transpose()?.map(ExecutionKey)
        }
    };
    let Some(key) = key else { return Ok(Committed::Conflict) };
    let values = [key.0.into(), number(append.first_number).into()];
    let there = transaction.row(sql::HISTORY_BATCH, values.into()).await?;
    let own = there.is_some_and(|row| row.bytes(0).is_ok_and(|batch_id| batch_id == append.batch_id.as_bytes()));
    Ok(if own { Committed::Written(key) } else { Committed::Conflict })
}

static LABELS: Rows = Rows::new(
    "INSERT INTO labels (execution_key, namespace, key, value, start_time) SELECT column1, column2, column3, column4, column5 FROM ",
    5,
    " AS v WHERE column1 IS NOT NULL ON CONFLICT DO NOTHING",
);

static READY_REMOVED: Rows = Rows::new("DELETE FROM ready WHERE (execution_key, unit) IN ", 2, "");

static READY_ADDED: Rows = Rows::new(
    "INSERT INTO ready (execution_key, unit, queue, contract, language, priority, ready_time) \
     SELECT column1, column2, column3, column4, column5, column6, column7 FROM ",
    7,
    " AS v WHERE column1 IS NOT NULL ON CONFLICT (execution_key, unit) DO UPDATE SET queue = excluded.queue, \
     contract = excluded.contract, language = excluded.language, priority = excluded.priority, ready_time = excluded.ready_time",
);

// Apart from each other, since an update rewrites the indexes of the columns that it names.
static WAKES: Rows =
    Rows::new("UPDATE executions SET wake_time = v.column2 FROM ", 2, " AS v WHERE executions.key = v.column1");

static STATES: Rows = Rows::new(
    "UPDATE executions SET state = v.column2, close_time = v.column3, \
     wake_time = CASE v.column4 WHEN 1 THEN v.column5 ELSE wake_time END FROM ",
    5,
    " AS v WHERE executions.key = v.column1",
);

static COUNTERS: Rows = Rows::new(
    "INSERT INTO counters (slot, committer, state, count) SELECT 0, 0, column1, column2 FROM ",
    2,
    " AS v WHERE column1 IS NOT NULL ON CONFLICT (slot, committer, state) DO UPDATE SET count = counters.count + excluded.count",
);

static SNAPSHOTS: Rows = Rows::new(
    "INSERT INTO snapshots (execution_key, seq, format, definition_hash, bytes) \
     SELECT column1, column2, column3, column4, column5 FROM ",
    5,
    " AS v WHERE column1 IS NOT NULL ON CONFLICT (execution_key) DO UPDATE SET seq = excluded.seq, format = excluded.format, \
     definition_hash = excluded.definition_hash, bytes = excluded.bytes WHERE excluded.seq > snapshots.seq",
);

static PAYLOADS: Rows = Rows::new(
    "INSERT INTO payloads (execution_key, run, digest, json) SELECT column1, column2, column3, column4 FROM ",
    4,
    " AS v WHERE column1 IS NOT NULL ON CONFLICT DO NOTHING",
);

async fn write_companions<T: Transaction>(transaction: &mut T, won: &[Won<'_>]) -> sqlx::Result<()> {
    write_labels(transaction, won).await?;
    write_ready(transaction, won).await?;
    write_rows(transaction, won).await?;
    write_runs(transaction, won).await?;
    write_deletions(transaction, won).await?;
    write_counters(transaction, won).await?;

    let snapshots = won.iter().filter_map(|Won { key, append }| {
        let snapshot = append.snapshot.as_ref()?;
        Some([
            key.0.into(),
            number(snapshot.number).into(),
            i64::from(snapshot.format).into(),
            (&snapshot.definition_hash).into(),
            snapshot.bytes[..].into(),
        ])
    });
    transaction.run_many(Change::SnapshotWritten, &SNAPSHOTS, List::of(snapshots)).await?;
    let payloads = won.iter().flat_map(|Won { key, append }| {
        let row = |payload: &LargePayload| {
            [key.0.into(), append.run.into(), (&payload.sha256).into(), (&payload.json).into()]
        };
        append.payloads.iter().map(row)
    });
    transaction.run_many(Change::PayloadInserted, &PAYLOADS, List::of(payloads)).await.map(drop)
}

async fn write_labels<T: Transaction>(transaction: &mut T, won: &[Won<'_>]) -> sqlx::Result<()> {
    let mut labels: Vec<[Value; 5]> = Vec::new();
    for Won { key, append } in won {
        let Some(execution) = append.new_execution() else { continue };
        let start_time = execution.start_time.as_micros();
        labels.extend(execution.labels.iter().map(|(label, value)| {
            [key.0.into(), NAMESPACE.into(), label.as_str().into(), value.as_str().into(), start_time.into()]
        }));
    }
    transaction.run_many(Change::LabelInserted, &LABELS, List::of(labels)).await.map(drop)
}

async fn write_ready<T: Transaction>(transaction: &mut T, won: &[Won<'_>]) -> sqlx::Result<()> {
    let removed =
        won.iter().flat_map(|Won { key, append }| append.ready_removed.iter().map(|unit| [key.0.into(), unit.into()]));
    transaction.run_many(Change::ReadyDeleted, &READY_REMOVED, List::of(removed)).await?;
    let added = won.iter().flat_map(|Won { key, append }| {
        let row = |unit: &ReadyUnit| {
            [
                key.0.into(),
                (&unit.unit).into(),
                (&unit.queue).into(),
                (&unit.contract).into(),
                (&unit.language).into(),
                i64::from(unit.priority).into(),
                unit.ready_time.as_micros().into(),
            ]
        };
        append.ready_added.iter().map(row)
    });
    transaction.run_many(Change::ReadyInserted, &READY_ADDED, List::of(added)).await.map(drop)
}

/// Writes states and wake-up times to the rows of executions that were there before.
async fn write_rows<T: Transaction>(transaction: &mut T, won: &[Won<'_>]) -> sqlx::Result<()> {
    let (mut wakes, mut states): (Vec<[Value; 2]>, Vec<[Value; 5]>) = (Vec::new(), Vec::new());
    for Won { key, append } in won {
        // A deletion writes the row itself.
        if append.new_execution().is_some() || append.deletion.is_some() {
            continue;
        }
        let wake = append.wake_set();
        if let Some(change) = append.state {
            states.push([
                key.0.into(),
                (change.to as i64).into(),
                change.close_time.map(Timestamp::as_micros).into(),
                wake.is_some().into(),
                wake.flatten().map(Timestamp::as_micros).into(),
            ]);
        } else if let Some(wake_time) = wake {
            wakes.push([key.0.into(), wake_time.map(Timestamp::as_micros).into()]);
        }
    }
    transaction.run_many(Change::ExecutionUpdated, &WAKES, List::of(wakes)).await?;
    transaction.run_many(Change::ExecutionUpdated, &STATES, List::of(states)).await.map(drop)
}

static RUNS: Rows = Rows::new(
    "INSERT INTO runs (execution_key, run, first_seq, start_time) SELECT column1, column2, column3, column4 FROM ",
    4,
    " AS v WHERE column1 IS NOT NULL ON CONFLICT DO NOTHING",
);

static NEWEST_RUN: Rows =
    Rows::new("UPDATE executions SET run = v.column2 FROM ", 2, " AS v WHERE executions.key = v.column1");

async fn write_runs<T: Transaction>(transaction: &mut T, won: &[Won<'_>]) -> sqlx::Result<()> {
    let begun = won.iter().filter_map(|Won { key, append }| Some((key.0, *append, append.begins_run?)));
    let rows = begun.clone().map(|(key, append, start_time)| {
        [key.into(), append.run.into(), number(append.first_number).into(), start_time.as_micros().into()]
    });
    transaction.run_many(Change::RunInserted, &RUNS, List::of(rows)).await?;
    let newest = begun.map(|(key, append, _)| [key.into(), append.run.into()]);
    transaction.run_many(Change::ExecutionUpdated, &NEWEST_RUN, List::of(newest)).await.map(drop)
}

static DELETIONS: Rows = Rows::new(
    "UPDATE executions SET current = 0, wake_time = NULL, delete_time = v.column2, request_key = v.column3, \
     request_content = v.column4 FROM ",
    4,
    " AS v WHERE executions.key = v.column1",
);

static UNLABELLED: Rows =
    Rows::new("DELETE FROM labels WHERE (namespace, key, value, start_time, execution_key) IN ", 5, "");

async fn write_deletions<T: Transaction>(transaction: &mut T, won: &[Won<'_>]) -> sqlx::Result<()> {
    let begun = won.iter().filter_map(|Won { key, append }| Some((key.0, append.deletion.as_ref()?)));
    let rows = begun.clone().map(|(key, deletion)| {
        let request = deletion.request.as_ref();
        let (request_key, content) =
            (request.map(|request| &request.key[..]), request.map(|request| &request.content[..]));
        [key.into(), deletion.time.as_micros().into(), request_key.into(), content.into()]
    });
    transaction.run_many(Change::ExecutionUpdated, &DELETIONS, List::of(rows)).await?;
    let labels = begun.flat_map(|(key, deletion)| {
        let start_time = deletion.start_time.as_micros();
        deletion.labels.iter().map(move |(label, value)| {
            [NAMESPACE.into(), label.as_str().into(), value.as_str().into(), start_time.into(), key.into()]
        })
    });
    transaction.run_many(Change::LabelDeleted, &UNLABELLED, List::of(labels)).await.map(drop)
}

async fn write_counters<T: Transaction>(transaction: &mut T, won: &[Won<'_>]) -> sqlx::Result<()> {
    let mut deltas: BTreeMap<ExecutionState, i64> = BTreeMap::new();
    for Won { append, .. } in won {
        if let Some(deletion) = &append.deletion {
            *deltas.entry(deletion.state).or_default() -= 1;
        }
        if let Some(execution) = append.new_execution() {
            *deltas.entry(execution.state).or_default() += 1;
        } else if let Some(change) = append.state {
            *deltas.entry(change.from).or_default() -= 1;
            *deltas.entry(change.to).or_default() += 1;
        }
    }
    let counters = deltas.into_iter().filter(|(_, delta)| *delta != 0);
    let counters = counters.map(|(state, delta)| [(state as i64).into(), delta.into()]);
    transaction.run_many(Change::CounterChanged, &COUNTERS, List::of(counters)).await.map(drop)
}

fn number(number: u64) -> i64 {
    i64::try_from(number).expect("an append's numbers were checked")
}

/// All statements over many rows, for a look at their plans.
#[cfg(test)]
pub(super) fn statements() -> [&'static Rows; 14] {
    [
        &EXECUTIONS,
        &HISTORY,
        &LABELS,
        &READY_REMOVED,
        &READY_ADDED,
        &WAKES,
        &STATES,
        &RUNS,
        &NEWEST_RUN,
        &DELETIONS,
        &UNLABELLED,
        &COUNTERS,
        &SNAPSHOTS,
        &PAYLOADS,
    ]
}
