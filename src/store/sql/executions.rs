//! Reads of single executions and of what the loops look for.

use super::row::{execution_row, history_row, payload_row, snapshot_row, state, text, time, unsigned};
use super::{Connection, List, Row as _, Transaction, Values, damaged, text as sql};
use crate::domain::Timestamp;
use crate::store::{
    Change, ExecutionKey, ExecutionRow, ExecutionState, Find, HistoryRow, LargePayload, Loaded, NAMESPACE, Pool,
    ReadyRow, ReadyUnit,
};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) async fn execution<C: Connection>(connection: &mut C, find: &Find) -> sqlx::Result<Option<ExecutionRow>> {
    let found = match find {
        Find::Key(key) => connection.row(sql::EXECUTION_BY_KEY, [key.0.into()].into()).await?,
        Find::Id(id) => connection.row(sql::EXECUTION_BY_ID, [NAMESPACE.into(), id.into()].into()).await?,
        Find::Uid(uid) => connection.row(sql::EXECUTION_BY_UID, [uid.0.as_bytes().into()].into()).await?,
    };
    found.as_ref().map(execution_row).transpose()
}

pub(crate) async fn execution_by_request<C: Connection>(
    connection: &mut C,
    id: &str,
    key: [u8; 16],
) -> sqlx::Result<Option<ExecutionRow>> {
    let values = [NAMESPACE.into(), id.into(), (&key).into()].into();
    connection.row(sql::EXECUTION_BY_REQUEST, values).await?.as_ref().map(execution_row).transpose()
}

pub(crate) async fn load<C: Connection>(connection: &mut C, key: ExecutionKey) -> sqlx::Result<Option<Loaded>> {
    loaded(&connection.rows(sql::LOAD, [key.0.into()].into()).await?)
}

pub(crate) async fn load_tail<C: Connection>(
    connection: &mut C,
    key: ExecutionKey,
    after_number: u64,
) -> sqlx::Result<Option<Loaded>> {
    loaded(&connection.rows(sql::LOAD_TAIL, [key.0.into(), following(after_number).into()].into()).await?)
}

/// Puts together the rows of several kinds that [`sql::LOAD`] answers.
fn loaded<R: super::Row>(rows: &[R]) -> sqlx::Result<Option<Loaded>> {
    let (mut execution, mut snapshot, mut history, mut payloads) = (None, None, Vec::new(), Vec::new());
    for row in rows {
        match row.integer(sql::LOADED_KIND)? {
            sql::LOADED_EXECUTION => execution = Some(execution_row(row)?),
            sql::LOADED_SNAPSHOT => snapshot = Some(snapshot_row(row, sql::LOADED_HISTORY_FROM)?),
            sql::LOADED_HISTORY => history.push(history_row(row, sql::LOADED_HISTORY_FROM)?),
            sql::LOADED_PAYLOAD => payloads.push(payload_row(row, sql::LOADED_DIGEST, sql::LOADED_JSON)?),
            other => return Err(damaged(format!("a row of the kind {other}"))),
        }
    }
    history.sort_unstable_by_key(|row: &HistoryRow| row.first_number);
    payloads.sort_unstable_by_key(|payload: &LargePayload| payload.sha256);
    Ok(execution.map(|row| Loaded { row, snapshot, history, payloads }))
}

/// The number after one, as a database holds it.
fn following(number: u64) -> i64 {
    i64::try_from(number.saturating_add(1)).unwrap_or(i64::MAX)
}

pub(crate) async fn newest_numbers<C: Connection>(
    connection: &mut C,
    keys: &[ExecutionKey],
) -> sqlx::Result<Vec<Option<u64>>> {
    let list = List::of(keys.iter().map(|key| [key.0.into()]));
    let mut numbers: BTreeMap<ExecutionKey, u64> = BTreeMap::new();
    for row in connection.rows_of_many(&sql::NEWEST_NUMBERS, list).await? {
        numbers.insert(ExecutionKey(row.integer(0)?), unsigned(&row, 1)?);
    }
    Ok(keys.iter().map(|key| numbers.get(key).copied()).collect())
}

pub(crate) async fn history<C: Connection>(
    connection: &mut C,
    key: ExecutionKey,
    after_number: u64,
    rows_max: usize,
    bytes_max: usize,
) -> sqlx::Result<Vec<HistoryRow>> {
    let values = [key.0.into(), following(after_number).into(), limit(rows_max).into(), limit(bytes_max.max(1)).into()];
    connection.rows(sql::HISTORY, values.into()).await?.iter().map(|row| history_row(row, 0)).collect()
}

pub(crate) async fn payloads<C: Connection>(
    connection: &mut C,
    key: ExecutionKey,
    digests: &[[u8; 32]],
) -> sqlx::Result<Vec<LargePayload>> {
    let digests: BTreeSet<&[u8; 32]> = digests.iter().collect();
    let list = List::of(digests.into_iter().map(|digest| [key.0.into(), digest.into()]));
    let mut found = Vec::new();
    for row in connection.rows_of_many(&sql::PAYLOADS, list).await? {
        if row.text_if_any(1)?.is_some() {
            found.push(payload_row(&row, 0, 1)?);
        }
    }
    found.sort_unstable_by_key(|payload| payload.sha256);
    Ok(found)
}

pub(crate) async fn count<C: Connection>(connection: &mut C) -> sqlx::Result<BTreeMap<ExecutionState, u64>> {
    let rows = connection.rows(sql::COUNT, Values::default()).await?;
    rows.iter().map(|row| Ok((state(row, 0)?, unsigned(row, 1)?))).collect()
}

pub(crate) async fn due<C: Connection>(
    connection: &mut C,
    until: Timestamp,
    most: usize,
) -> sqlx::Result<Vec<(ExecutionKey, Timestamp)>> {
    let rows = connection.rows(sql::DUE, [until.as_micros().into(), limit(most).into()].into()).await?;
    rows.iter().map(|row| Ok((ExecutionKey(row.integer(0)?), time(row, 1)?))).collect()
}

pub(crate) async fn still_due<C: Connection>(
    connection: &mut C,
    keys: &[ExecutionKey],
    now: Timestamp,
) -> sqlx::Result<Vec<ExecutionKey>> {
    let list = List::of(keys.iter().map(|key| [key.0.into(), now.as_micros().into()]));
    let mut due = BTreeSet::new();
    for row in connection.rows_of_many(&sql::STILL_DUE, list).await? {
        due.insert(ExecutionKey(row.integer(0)?));
    }
    Ok(keys.iter().filter(|key| due.contains(key)).copied().collect())
}

pub(crate) async fn waiting_pools<C: Connection>(connection: &mut C, pools: &[Pool]) -> sqlx::Result<Vec<Pool>> {
    let list =
        List::of(pools.iter().map(|pool| [(&pool.queue).into(), (&pool.contract).into(), (&pool.language).into()]));
    let mut waiting = BTreeSet::new();
    for row in connection.rows_of_many(&sql::WAITING_POOLS, list).await? {
        waiting.insert(Pool { queue: text(&row, 0)?, contract: text(&row, 1)?, language: text(&row, 2)? });
    }
    Ok(pools.iter().filter(|pool| waiting.contains(pool)).cloned().collect())
}

pub(crate) async fn ready<C: Connection>(connection: &mut C, pool: &Pool, most: usize) -> sqlx::Result<Vec<ReadyRow>> {
    let values = [(&pool.queue).into(), (&pool.contract).into(), (&pool.language).into(), limit(most).into()];
    let rows = connection.rows(sql::READY, values.into()).await?;
    let ready = |row: &C::Row| {
        let unit = ReadyUnit {
            unit: text(row, 1)?,
            queue: pool.queue.clone(),
            contract: pool.contract.clone(),
            language: pool.language.clone(),
            priority: unsigned(row, 2)?,
            ready_time: time(row, 3)?,
        };
        Ok(ReadyRow { execution: ExecutionKey(row.integer(0)?), unit })
    };
    rows.iter().map(ready).collect()
}

pub(crate) async fn quarantine<T: Transaction>(transaction: &mut T, key: ExecutionKey, why: &str) -> sqlx::Result<()> {
    // It may tell of data that is damaged, in its words.
    let why = why.replace('\0', "\u{fffd}");
    transaction.run(Change::ExecutionUpdated, sql::QUARANTINE, [key.0.into(), why.into()].into()).await?;
    transaction.run(Change::ReadyDeleted, sql::QUARANTINE_READY, [key.0.into()].into()).await?;
    Ok(())
}

/// A LIMIT.
pub(super) fn limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}
