//! What retention looks for and removes: closed executions, runs that ended, and what both leave behind.
//!
//! A transaction removes a bounded number of rows of each table; whoever calls comes again until nothing is left. History
//! goes from its beginning on, so the newest row stands as a fence until the end.

use super::executions::limit;
use super::row::{time, unsigned};
use super::{Connection, Row as _, Transaction, Value};
use crate::domain::Timestamp;
use crate::store::{Change, DeletedRow, ExecutionKey, RunRow};

/// After ($2, $3). Index `executions_close`.
pub(crate) const CLOSED: &str = "SELECT close_time, key FROM executions \
     WHERE close_time IS NOT NULL AND delete_time IS NULL AND quarantined IS NULL AND close_time < $1 \
     AND (close_time, key) > ($2, $3) ORDER BY close_time, key LIMIT $4";
/// After ($1, $2). Index `executions_delete`.
pub(crate) const DELETED: &str = "SELECT delete_time, key, CASE WHEN request_key IS NULL THEN CAST(0 AS BIGINT) ELSE 1 END \
     FROM executions WHERE delete_time IS NOT NULL AND (delete_time, key) > ($1, $2) ORDER BY delete_time, key LIMIT $3";
/// After ($2, $3, $4). Index `runs_start`.
pub(crate) const RUNS: &str = "SELECT start_time, execution_key, run, first_seq FROM runs \
     WHERE start_time < $1 AND (start_time, execution_key, run) > ($2, $3, $4) \
     ORDER BY start_time, execution_key, run LIMIT $5";

/// The floor stands just before the first event of a run, which has a history row of its own.
const RAISE_FLOOR: &str = "UPDATE executions SET floor_seq = $2 WHERE key = $1 AND floor_seq < $2 AND delete_time IS NULL \
     AND EXISTS (SELECT 1 FROM history AS h WHERE h.execution_key = $1 AND h.first_seq = $3 AND h.run > \
       coalesce((SELECT p.run FROM history AS p WHERE p.execution_key = $1 AND p.first_seq < $3 \
         ORDER BY p.first_seq DESC LIMIT 1), h.run))";
const FLOOR: &str = "SELECT floor_seq FROM executions WHERE key = $1";
/// Whether the deletion has begun.
const IS_DELETED: &str = "SELECT key FROM executions WHERE key = $1 AND delete_time IS NOT NULL";

/// The first $3 rows up to event $2.
pub(crate) const DELETE_HISTORY: &str = "DELETE FROM history WHERE execution_key = $1 AND first_seq <= \
     (SELECT max(d.first_seq) FROM (SELECT h.first_seq FROM history AS h WHERE h.execution_key = $1 AND h.first_seq <= $2 \
       ORDER BY h.first_seq LIMIT $3) AS d)";
/// $3 rows of runs before run $2.
pub(crate) const DELETE_PAYLOADS: &str = "DELETE FROM payloads WHERE execution_key = $1 AND (run, digest) IN \
     (SELECT p.run, p.digest FROM payloads AS p WHERE p.execution_key = $1 AND p.run < $2 ORDER BY p.run, p.digest LIMIT $3)";
/// $3 rows of runs before run $2.
pub(crate) const DELETE_RUNS: &str = "DELETE FROM runs WHERE execution_key = $1 AND run <= \
     (SELECT max(d.run) FROM (SELECT r.run FROM runs AS r WHERE r.execution_key = $1 AND r.run < $2 ORDER BY r.run LIMIT $3) AS d)";
pub(crate) const DELETE_HELD: &str = "DELETE FROM held WHERE execution_key = $1 AND (unit, delivery) IN \
     (SELECT h.unit, h.delivery FROM held AS h WHERE h.execution_key = $1 ORDER BY h.unit, h.delivery LIMIT $2)";
pub(crate) const DELETE_READY: &str = "DELETE FROM ready WHERE execution_key = $1 AND unit IN \
     (SELECT r.unit FROM ready AS r WHERE r.execution_key = $1 ORDER BY r.unit LIMIT $2)";
/// One of a state up to event $2.
const DELETE_SNAPSHOT: &str = "DELETE FROM snapshots WHERE execution_key = $1 AND seq <= $2";
const DELETE_EXECUTION: &str = "DELETE FROM executions WHERE key = $1 AND delete_time IS NOT NULL";
/// The run of the first event after $2.
const RUN_AFTER: &str =
    "SELECT h.run FROM history AS h WHERE h.execution_key = $1 AND h.first_seq > $2 ORDER BY h.first_seq LIMIT 1";

pub(crate) async fn closed_before<C: Connection>(
    connection: &mut C,
    before: Timestamp,
    after: Option<(Timestamp, ExecutionKey)>,
    most: usize,
) -> sqlx::Result<Vec<(Timestamp, ExecutionKey)>> {
    let (after_time, after_key) = place(after);
    let values = [before.as_micros().into(), after_time, after_key, limit(most).into()];
    let rows = connection.rows(CLOSED, values.into()).await?;
    rows.iter().map(|row| Ok((time(row, 0)?, ExecutionKey(row.integer(1)?)))).collect()
}

pub(crate) async fn deleted<C: Connection>(
    connection: &mut C,
    after: Option<(Timestamp, ExecutionKey)>,
    most: usize,
) -> sqlx::Result<Vec<DeletedRow>> {
    let (after_time, after_key) = place(after);
    let rows = connection.rows(DELETED, [after_time, after_key, limit(most).into()].into()).await?;
    let row = |row: &C::Row| {
        let (delete_time, key) = (time(row, 0)?, ExecutionKey(row.integer(1)?));
        Ok(DeletedRow { delete_time, key, has_request: row.integer(2)? == 1 })
    };
    rows.iter().map(row).collect()
}

pub(crate) async fn runs_begun_before<C: Connection>(
    connection: &mut C,
    before: Timestamp,
    after: Option<RunRow>,
    most: usize,
) -> sqlx::Result<Vec<RunRow>> {
    let (after_time, after_key) = place(after.map(|row| (row.start_time, row.execution)));
    let after_run = after.map_or(0, |row| i64::from(row.run));
    let values = [before.as_micros().into(), after_time, after_key, after_run.into(), limit(most).into()];
    let rows = connection.rows(RUNS, values.into()).await?;
    let row = |row: &C::Row| {
        let (start_time, execution) = (time(row, 0)?, ExecutionKey(row.integer(1)?));
        Ok(RunRow { start_time, execution, run: unsigned(row, 2)?, first_number: unsigned(row, 3)? })
    };
    rows.iter().map(row).collect()
}

/// Where a page begins; no entry stands before the first.
fn place(after: Option<(Timestamp, ExecutionKey)>) -> (Value, Value) {
    after.map_or((i64::MIN.into(), i64::MIN.into()), |(time, key)| (time.as_micros().into(), key.0.into()))
}

pub(crate) async fn raise_floor<T: Transaction>(
    transaction: &mut T,
    key: ExecutionKey,
    number: u64,
) -> sqlx::Result<bool> {
    let Ok(floor) = i64::try_from(number) else { return Ok(false) };
    let values = [key.0.into(), floor.into(), floor.saturating_add(1).into()];
    transaction.run(Change::ExecutionUpdated, RAISE_FLOOR, values.into()).await?;
    is_floor(transaction, key, floor).await
}

async fn is_floor<T: Transaction>(transaction: &mut T, key: ExecutionKey, floor: i64) -> sqlx::Result<bool> {
    let row = transaction.row(FLOOR, [key.0.into()].into()).await?;
    Ok(row.map(|row| row.integer(0)).transpose()?.is_some_and(|stored| stored >= floor))
}

pub(crate) async fn delete_trimmed<T: Transaction>(
    transaction: &mut T,
    key: ExecutionKey,
    number: u64,
    most: usize,
) -> sqlx::Result<bool> {
    let Ok(floor) = i64::try_from(number) else { return Ok(true) };
    if !is_floor(transaction, key, floor).await? {
        return Ok(true);
    }
    let run = transaction.row(RUN_AFTER, [key.0.into(), floor.into()].into()).await?;
    let Some(run) = run.map(|row| row.integer(0)).transpose()? else { return Ok(true) };
    transaction.run(Change::SnapshotDeleted, DELETE_SNAPSHOT, [key.0.into(), floor.into()].into()).await?;
    if !delete_history(transaction, key, floor, run, most).await? {
        return Ok(false);
    }
    // The beginning of the run that comes first now: what tells that something is left, so it goes last.
    delete(transaction, Change::RunDeleted, DELETE_RUNS, vec![key.0.into(), (run + 1).into()], most).await
}

pub(crate) async fn delete_rows<T: Transaction>(
    transaction: &mut T,
    executions: &[(ExecutionKey, bool)],
    most: usize,
) -> sqlx::Result<Vec<bool>> {
    let mut empty = Vec::with_capacity(executions.len());
    for (key, with_row) in executions {
        empty.push(delete_rows_of(transaction, *key, most, *with_row).await?);
    }
    Ok(empty)
}

async fn delete_rows_of<T: Transaction>(
    transaction: &mut T,
    key: ExecutionKey,
    most: usize,
    with_row: bool,
) -> sqlx::Result<bool> {
    if transaction.row(IS_DELETED, [key.0.into()].into()).await?.is_none() {
        return Ok(true);
    }
    let (change, snapshot) = (Change::SnapshotDeleted, [key.0.into(), i64::MAX.into()]);
    transaction.run(change, DELETE_SNAPSHOT, snapshot.into()).await?;
    let is_empty = delete(transaction, Change::ReadyDeleted, DELETE_READY, vec![key.0.into()], most).await?
        && delete(transaction, Change::HeldDeleted, DELETE_HELD, vec![key.0.into()], most).await?
        && delete_history(transaction, key, i64::MAX, i64::MAX, most).await?
        && delete(transaction, Change::RunDeleted, DELETE_RUNS, vec![key.0.into(), i64::MAX.into()], most).await?;
    if is_empty && with_row {
        transaction.run(Change::ExecutionDeleted, DELETE_EXECUTION, [key.0.into()].into()).await?;
    }
    Ok(is_empty)
}

/// Events up to a number, and the payloads of runs before one.
async fn delete_history<T: Transaction>(
    transaction: &mut T,
    key: ExecutionKey,
    until: i64,
    before_run: i64,
    most: usize,
) -> sqlx::Result<bool> {
    let payloads = vec![key.0.into(), before_run.into()];
    let history = vec![key.0.into(), until.into()];
    Ok(delete(transaction, Change::PayloadDeleted, DELETE_PAYLOADS, payloads, most).await?
        && delete(transaction, Change::HistoryDeleted, DELETE_HISTORY, history, most).await?)
}

/// Deletes some rows; says whether those were the last.
async fn delete<T: Transaction>(
    transaction: &mut T,
    change: Change,
    sql: &'static str,
    mut values: Vec<Value>,
    most: usize,
) -> sqlx::Result<bool> {
    values.push(limit(most).into());
    Ok(transaction.run(change, sql, values.into()).await? < most as u64)
}
