//! Reads of single executions and of what the loops look for.

use super::connection::{Values, begin_read, end_read, row, rows};
use super::error::damaged;
use crate::domain::{RequestKey, Timestamp, Uid};
use crate::store::{
    ExecutionKey, ExecutionRow, ExecutionState, Find, HistoryRow, LargePayload, Loaded, NAMESPACE, Pool, ReadyRow,
    ReadyUnit, Snapshot, sql,
};
use futures_util::TryStreamExt as _;
use sqlx::{
    Row as _,
    sqlite::{SqliteConnection, SqliteRow},
};
use std::{collections::BTreeMap, sync::Arc};
use uuid::Uuid;

pub(super) async fn execution(connection: &mut SqliteConnection, find: &Find) -> sqlx::Result<Option<ExecutionRow>> {
    let found = match find {
        Find::Key(key) => row(connection, sql::EXECUTION_BY_KEY, Values::default().with(key.0)).await?,
        Find::Id(id) => {
            row(connection, sql::EXECUTION_BY_ID, Values::default().with(NAMESPACE).with(id.clone())).await?
        }
        Find::Uid(uid) => {
            row(connection, sql::EXECUTION_BY_UID, Values::default().with(uid.0.as_bytes().to_vec())).await?
        }
    };
    found.as_ref().map(execution_row).transpose()
}

pub(super) async fn execution_by_request(
    connection: &mut SqliteConnection,
    id: &str,
    key: [u8; 16],
) -> sqlx::Result<Option<ExecutionRow>> {
    let values = Values::default().with(NAMESPACE).with(id).with(key.to_vec());
    row(connection, sql::EXECUTION_BY_REQUEST, values).await?.as_ref().map(execution_row).transpose()
}

pub(super) async fn load(connection: &mut SqliteConnection, key: ExecutionKey) -> sqlx::Result<Option<Loaded>> {
    begin_read(connection).await?;
    let loaded = match execution(connection, &Find::Key(key)).await? {
        None => None,
        Some(row) => {
            let snapshot = snapshot(connection, key).await?;
            let after = snapshot.as_ref().map_or(0, |snapshot| snapshot.number);
            let history = history(connection, key, after, usize::MAX, usize::MAX).await?;
            let payloads = all_payloads(connection, key).await?;
            Some(Loaded { row, snapshot, history, payloads })
        }
    };
    end_read(connection).await?;
    Ok(loaded)
}

pub(super) async fn load_tail(
    connection: &mut SqliteConnection,
    key: ExecutionKey,
    after_number: u64,
) -> sqlx::Result<Option<Loaded>> {
    begin_read(connection).await?;
    let loaded = match execution(connection, &Find::Key(key)).await? {
        None => None,
        Some(row) => {
            let history = history(connection, key, after_number, usize::MAX, usize::MAX).await?;
            let payloads = if history.is_empty() { Vec::new() } else { all_payloads(connection, key).await? };
            Some(Loaded { row, snapshot: None, history, payloads })
        }
    };
    end_read(connection).await?;
    Ok(loaded)
}

pub(super) async fn newest_numbers(
    connection: &mut SqliteConnection,
    keys: &[ExecutionKey],
) -> sqlx::Result<Vec<Option<u64>>> {
    let mut numbers = Vec::with_capacity(keys.len());
    for key in keys {
        let row = row(connection, sql::NEWEST_NUMBER, Values::default().with(key.0)).await?;
        numbers.push(row.map(|row| unsigned(&row, 0)).transpose()?);
    }
    Ok(numbers)
}

async fn snapshot(connection: &mut SqliteConnection, key: ExecutionKey) -> sqlx::Result<Option<Snapshot>> {
    let Some(row) = row(connection, sql::SNAPSHOT, Values::default().with(key.0)).await? else { return Ok(None) };
    Ok(Some(Snapshot {
        number: unsigned(&row, 0)?,
        format: unsigned(&row, 1)?,
        definition_hash: bytes(&row, 2)?,
        bytes: row.try_get::<Vec<u8>, _>(3)?.into(),
    }))
}

/// Rows are read one after another and the statement is ended as soon as there are bytes enough.
pub(super) async fn history(
    connection: &mut SqliteConnection,
    key: ExecutionKey,
    after_number: u64,
    rows_max: usize,
    bytes_max: usize,
) -> sqlx::Result<Vec<HistoryRow>> {
    let first_wanted = i64::try_from(after_number.saturating_add(1)).unwrap_or(i64::MAX);
    let values = Values::default().with(key.0).with(first_wanted).with(limit(rows_max));
    let mut stream = values.stream(connection, sql::HISTORY);
    let (mut read, mut read_bytes) = (Vec::new(), 0);
    while let Some(row) = stream.try_next().await? {
        let row = HistoryRow {
            first_number: unsigned(&row, 0)?,
            last_number: unsigned(&row, 1)?,
            run: unsigned(&row, 2)?,
            batch_id: Uuid::from_bytes(bytes(&row, 3)?),
            format: unsigned(&row, 4)?,
            events: row.try_get::<Vec<u8>, _>(5)?.into(),
        };
        read_bytes += row.events.len();
        read.push(row);
        if read_bytes >= bytes_max {
            break;
        }
    }
    Ok(read)
}

async fn all_payloads(connection: &mut SqliteConnection, key: ExecutionKey) -> sqlx::Result<Vec<LargePayload>> {
    rows(connection, sql::PAYLOADS, Values::default().with(key.0)).await?.iter().map(payload).collect()
}

pub(super) async fn payloads(
    connection: &mut SqliteConnection,
    key: ExecutionKey,
    digests: &[[u8; 32]],
) -> sqlx::Result<Vec<LargePayload>> {
    let mut digests = digests.to_vec();
    digests.sort_unstable();
    digests.dedup();
    begin_read(connection).await?;
    let mut found = Vec::new();
    for digest in digests {
        let values = Values::default().with(key.0).with(digest.to_vec());
        if let Some(row) = row(connection, sql::PAYLOAD, values).await? {
            found.push(payload(&row)?);
        }
    }
    end_read(connection).await?;
    Ok(found)
}

fn payload(row: &SqliteRow) -> sqlx::Result<LargePayload> {
    Ok(LargePayload { sha256: bytes(row, 0)?, json: text(row, 1)? })
}

pub(super) async fn count(connection: &mut SqliteConnection) -> sqlx::Result<BTreeMap<ExecutionState, u64>> {
    let rows = rows(connection, sql::COUNT, Values::default()).await?;
    rows.iter().map(|row| Ok((state(row, 0)?, unsigned(row, 1)?))).collect()
}

pub(super) async fn due(
    connection: &mut SqliteConnection,
    until: Timestamp,
    most: usize,
) -> sqlx::Result<Vec<(ExecutionKey, Timestamp)>> {
    let values = Values::default().with(until.as_micros()).with(limit(most));
    let rows = rows(connection, sql::DUE, values).await?;
    rows.iter().map(|row| Ok((ExecutionKey(row.try_get(0)?), time(row, 1)?))).collect()
}

pub(super) async fn still_due(
    connection: &mut SqliteConnection,
    keys: &[ExecutionKey],
    now: Timestamp,
) -> sqlx::Result<Vec<ExecutionKey>> {
    let mut due = Vec::new();
    for key in keys {
        let values = Values::default().with(key.0).with(now.as_micros());
        due.extend(row(connection, sql::STILL_DUE, values).await?.map(|_| *key));
    }
    Ok(due)
}

pub(super) async fn waiting_pools(connection: &mut SqliteConnection, pools: &[Pool]) -> sqlx::Result<Vec<Pool>> {
    let mut waiting = Vec::new();
    for pool in pools {
        let values = Values::default().with(pool.queue.clone()).with(pool.contract.clone()).with(pool.language.clone());
        waiting.extend(row(connection, sql::IS_WAITING, values).await?.map(|_| pool.clone()));
    }
    Ok(waiting)
}

pub(super) async fn ready(connection: &mut SqliteConnection, pool: &Pool, most: usize) -> sqlx::Result<Vec<ReadyRow>> {
    let values = Values::default().with(pool.queue.clone()).with(pool.contract.clone()).with(pool.language.clone());
    let rows = rows(connection, sql::READY, values.with(limit(most))).await?;
    let ready = |row: &SqliteRow| {
        let unit = ReadyUnit {
            unit: text(row, 1)?,
            queue: pool.queue.clone(),
            contract: pool.contract.clone(),
            language: pool.language.clone(),
            priority: unsigned(row, 2)?,
            ready_time: time(row, 3)?,
        };
        Ok(ReadyRow { execution: ExecutionKey(row.try_get(0)?), unit })
    };
    rows.iter().map(ready).collect()
}

/// Reads the columns of [`sql::EXECUTION_COLUMNS`].
pub(super) fn execution_row(row: &SqliteRow) -> sqlx::Result<ExecutionRow> {
    let request = match (row.try_get::<Option<Vec<u8>>, _>(8)?, row.try_get::<Option<Vec<u8>>, _>(9)?) {
        (Some(_), Some(_)) => Some(RequestKey { key: bytes(row, 8)?, content: bytes(row, 9)? }),
        _ => None,
    };
    let labels =
        serde_json::from_str(row.try_get(11)?).map_err(|cause| damaged(format!("labels of an execution: {cause}")))?;
    Ok(ExecutionRow {
        key: ExecutionKey(row.try_get(0)?),
        uid: Uid(Uuid::from_bytes(bytes(row, 1)?)),
        id: text(row, 2)?,
        current: row.try_get::<i64, _>(3)? == 1,
        workflow: text(row, 4)?,
        version: text(row, 5)?,
        definition_hash: bytes(row, 6)?,
        input_digest: bytes(row, 7)?,
        request,
        state: state(row, 10)?,
        labels,
        start_time: time(row, 12)?,
        close_time: time_if_any(row, 13)?,
        wake_time: time_if_any(row, 14)?,
        quarantined: row.try_get::<Option<&str>, _>(15)?.map(Arc::from),
    })
}

fn state(row: &SqliteRow, column: usize) -> sqlx::Result<ExecutionState> {
    let number: i64 = row.try_get(column)?;
    let known = ExecutionState::ALL.into_iter().find(|state| *state as i64 == number);
    known.ok_or_else(|| damaged(format!("state {number} of an execution is unknown")))
}

/// An integer column that is never negative.
pub(super) fn unsigned<T: TryFrom<i64>>(row: &SqliteRow, column: usize) -> sqlx::Result<T> {
    let number: i64 = row.try_get(column)?;
    T::try_from(number).map_err(|_| damaged(format!("{number} is out of range")))
}

/// A column of bytes whose number is fixed.
pub(super) fn bytes<const N: usize>(row: &SqliteRow, column: usize) -> sqlx::Result<[u8; N]> {
    let bytes: &[u8] = row.try_get(column)?;
    bytes.try_into().map_err(|_| damaged(format!("{} bytes where {N} are expected", bytes.len())))
}

pub(super) fn text(row: &SqliteRow, column: usize) -> sqlx::Result<Arc<str>> {
    Ok(Arc::from(row.try_get::<&str, _>(column)?))
}

pub(super) fn time(row: &SqliteRow, column: usize) -> sqlx::Result<Timestamp> {
    Ok(Timestamp::from_micros(row.try_get(column)?))
}

pub(super) fn time_if_any(row: &SqliteRow, column: usize) -> sqlx::Result<Option<Timestamp>> {
    Ok(row.try_get::<Option<i64>, _>(column)?.map(Timestamp::from_micros))
}

/// A LIMIT.
pub(super) fn limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}
