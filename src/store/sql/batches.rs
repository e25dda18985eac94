//! Batches: made, worked off portion by portion, cancelled, listed, deleted long after their end.

use super::executions::limit;
use super::row::{bytes, damaged, text, time, time_if_any, unsigned, uuid};
use super::{Connection, Row, Transaction, Values};
use crate::domain::Timestamp;
use crate::store::{
    BatchAction, BatchCursor, BatchProgress, BatchRow, BatchState, Change, ExecutionKey, ListCursor, NAMESPACE,
};
use uuid::Uuid;

macro_rules! columns {
    () => {
        "id, request_content, action, reason, filter, executions_max, expected, is_counted, create_time, portion, state, \
         end_time, cursor_time, cursor_key, done, skipped, failed, failures"
    };
}

const INSERT: &str = concat!(
    "INSERT INTO batches (namespace, ",
    columns!(),
    ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19) \
     ON CONFLICT (id) DO NOTHING"
);
const BATCH: &str = concat!("SELECT ", columns!(), " FROM batches WHERE id = $1");
/// Before ($2, $3). Index `batches_create`.
pub(crate) const BATCHES: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM batches WHERE namespace = $1 AND (create_time, id) < ($2, $3) ORDER BY create_time DESC, id DESC LIMIT $4"
);
/// All. Index `batches_create`.
pub(crate) const BATCHES_FIRST: &str =
    concat!("SELECT ", columns!(), " FROM batches WHERE namespace = $1 ORDER BY create_time DESC, id DESC LIMIT $2");
/// Index `batches_running`.
pub(crate) const RUNNING: &str =
    concat!("SELECT ", columns!(), " FROM batches WHERE state = 1 ORDER BY create_time, id LIMIT $1");
/// One that was cancelled meanwhile stays so, and yet tells what was done.
const ADVANCE: &str = "UPDATE batches SET portion = portion + 1, \
     state = CASE WHEN state = 1 THEN $3 ELSE state END, \
     end_time = CASE WHEN state = 1 THEN $4 ELSE end_time END, \
     cursor_time = $5, cursor_key = $6, done = $7, skipped = $8, failed = $9, failures = $10 \
     WHERE id = $1 AND portion = $2";
const CANCEL: &str = "UPDATE batches SET state = 3, end_time = $2 WHERE id = $1 AND state = 1";
/// Index `batches_end`.
pub(crate) const DELETE: &str = "DELETE FROM batches WHERE id IN \
     (SELECT b.id FROM batches AS b WHERE b.end_time < $1 ORDER BY b.end_time, b.id LIMIT $2)";

pub(crate) async fn put<T: Transaction>(transaction: &mut T, row: &BatchRow) -> sqlx::Result<BatchRow> {
    let progress = &row.progress;
    let cursor = cursor_values(progress);
    let values = Values::default()
        .with(NAMESPACE)
        .with(row.id.as_bytes())
        .with(row.request_content.as_ref().map(<[u8; 16]>::as_slice))
        .with(i64::from(row.action as i16))
        .with(&row.reason)
        .with(&row.filter)
        .with(signed(row.executions_max))
        .with(signed(row.expected))
        .with(row.is_counted)
        .with(row.create_time.as_micros())
        .with(signed(progress.portion))
        .with(i64::from(progress.state as i16))
        .with(progress.end_time.map(Timestamp::as_micros))
        .with(cursor.0)
        .with(cursor.1)
        .with(signed(progress.done))
        .with(signed(progress.skipped))
        .with(signed(progress.failed))
        .with(&progress.failures);
    transaction.run(Change::BatchWritten, INSERT, values).await?;
    batch(transaction, row.id).await?.ok_or(sqlx::Error::RowNotFound)
}

pub(crate) async fn batch<C: Connection>(connection: &mut C, id: Uuid) -> sqlx::Result<Option<BatchRow>> {
    connection.row(BATCH, [id.as_bytes().into()].into()).await?.as_ref().map(batch_row).transpose()
}

pub(crate) async fn batches<C: Connection>(
    connection: &mut C,
    after: Option<BatchCursor>,
    most: usize,
) -> sqlx::Result<Vec<BatchRow>> {
    let rows = match after {
        Some((time, id)) => {
            let values = [NAMESPACE.into(), time.as_micros().into(), id.as_bytes().into(), limit(most).into()];
            connection.rows(BATCHES, values.into()).await?
        }
        None => connection.rows(BATCHES_FIRST, [NAMESPACE.into(), limit(most).into()].into()).await?,
    };
    rows.iter().map(batch_row).collect()
}

pub(crate) async fn running<C: Connection>(connection: &mut C, most: usize) -> sqlx::Result<Vec<BatchRow>> {
    connection.rows(RUNNING, [limit(most).into()].into()).await?.iter().map(batch_row).collect()
}

pub(crate) async fn advance<T: Transaction>(
    transaction: &mut T,
    id: Uuid,
    progress: &BatchProgress,
) -> sqlx::Result<bool> {
    let cursor = cursor_values(progress);
    let values = Values::default()
        .with(id.as_bytes())
        .with(signed(progress.portion.saturating_sub(1)))
        .with(i64::from(progress.state as i16))
        .with(progress.end_time.map(Timestamp::as_micros))
        .with(cursor.0)
        .with(cursor.1)
        .with(signed(progress.done))
        .with(signed(progress.skipped))
        .with(signed(progress.failed))
        .with(&progress.failures);
    Ok(transaction.run(Change::BatchWritten, ADVANCE, values).await? > 0)
}

pub(crate) async fn cancel<T: Transaction>(
    transaction: &mut T,
    id: Uuid,
    end_time: Timestamp,
) -> sqlx::Result<Option<BatchRow>> {
    let values = [id.as_bytes().into(), end_time.as_micros().into()];
    transaction.run(Change::BatchWritten, CANCEL, values.into()).await?;
    batch(transaction, id).await
}

pub(crate) async fn delete<T: Transaction>(
    transaction: &mut T,
    ended_before: Timestamp,
    most: usize,
) -> sqlx::Result<u64> {
    let values = [ended_before.as_micros().into(), limit(most).into()];
    transaction.run(Change::BatchDeleted, DELETE, values.into()).await
}

fn cursor_values(progress: &BatchProgress) -> (Option<i64>, Option<i64>) {
    (progress.cursor.map(|cursor| cursor.start_time.as_micros()), progress.cursor.map(|cursor| cursor.key.0))
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn batch_row(row: &impl Row) -> sqlx::Result<BatchRow> {
    let (action, state) = (row.integer(2)?, row.integer(10)?);
    let action = BatchAction::ALL.into_iter().find(|known| i64::from(*known as i16) == action);
    let state = BatchState::ALL.into_iter().find(|known| i64::from(*known as i16) == state);
    let (Some(action), Some(state)) = (action, state) else { return Err(damaged("action or state of a batch")) };
    let cursor = match (row.integer_if_any(12)?, row.integer_if_any(13)?) {
        (Some(time), Some(key)) => {
            Some(ListCursor { start_time: Timestamp::from_micros(time), key: ExecutionKey(key) })
        }
        _ => None,
    };
    Ok(BatchRow {
        id: uuid(row, 0)?,
        request_content: row.bytes_if_any(1)?.map(|_| bytes(row, 1)).transpose()?,
        action,
        reason: text(row, 3)?,
        filter: text(row, 4)?,
        executions_max: unsigned(row, 5)?,
        expected: unsigned(row, 6)?,
        is_counted: row.integer(7)? == 1,
        create_time: time(row, 8)?,
        progress: BatchProgress {
            portion: unsigned(row, 9)?,
            state,
            end_time: time_if_any(row, 11)?,
            cursor,
            done: unsigned(row, 14)?,
            skipped: unsigned(row, 15)?,
            failed: unsigned(row, 16)?,
            failures: text(row, 17)?,
        },
    })
}
