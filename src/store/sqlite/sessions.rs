//! Sessions of workers, the deliveries that they hold, and the second of presence that writes both.

use super::connection::{Transaction, Values, begin_read, end_read, made, row, rows};
use super::error::damaged;
use super::executions::{bytes, limit, text, time, time_if_any, unsigned};
use crate::domain::{SessionId, Timestamp};
use crate::store::{
    Change, ExecutionKey, HeldRow, NodeRow, Presence, SessionRow,
    sql::{self, ROWS_MAX, Rows},
};
use sqlx::{
    Row as _,
    sqlite::{SqliteConnection, SqliteRow},
};
use std::{collections::BTreeMap, sync::Arc};
use uuid::Uuid;

pub(super) async fn put(transaction: &mut Transaction, session: &SessionRow) -> sqlx::Result<()> {
    let values = announced(session)
        .with(session.register_time.as_micros())
        .with(session.contact_time.as_micros())
        .with(i64::from(session.connection));
    transaction.run(Change::SessionWritten, sql::SESSION_INSERT, values).await.map(drop)
}

pub(super) async fn resume(transaction: &mut Transaction, session: &SessionRow) -> sqlx::Result<Option<SessionRow>> {
    let values = announced(session).with(session.contact_time.as_micros());
    let rows = transaction.returning(Change::SessionWritten, sql::SESSION_RESUME, values).await?;
    rows.first().map(session_row).transpose()
}

/// Places 1 to 9: the id and what a worker says of itself.
fn announced(session: &SessionRow) -> Values {
    let list = |texts: &[Arc<str>]| {
        let texts: Vec<&str> = texts.iter().map(|text| &**text).collect();
        serde_json::to_string(&texts).expect("a list of texts is JSON")
    };
    Values::default()
        .with(session.id.0.as_bytes().to_vec())
        .with(session.worker_id.clone())
        .with(session.language.clone())
        .with(session.sdk.clone())
        .with(session.build.clone())
        .with(list(&session.queues))
        .with(list(&session.contracts))
        .with(i64::from(session.slots))
        .with(i64::try_from(session.message_bytes_max).unwrap_or(i64::MAX))
}

pub(super) async fn session(connection: &mut SqliteConnection, id: SessionId) -> sqlx::Result<Option<SessionRow>> {
    let row = row(connection, sql::SESSION, Values::default().with(id.0.as_bytes().to_vec())).await?;
    row.as_ref().map(session_row).transpose()
}

pub(super) async fn sessions(
    connection: &mut SqliteConnection,
    after: Option<SessionId>,
    most: usize,
) -> sqlx::Result<Vec<SessionRow>> {
    let values = Values::default().with(after.map(|id| id.0.as_bytes().to_vec())).with(limit(most));
    rows(connection, sql::SESSIONS, values).await?.iter().map(session_row).collect()
}

pub(super) async fn end(
    transaction: &mut Transaction,
    id: SessionId,
    contact_time: Option<Timestamp>,
) -> sqlx::Result<bool> {
    let values = Values::default().with(id.0.as_bytes().to_vec()).with(contact_time.map(Timestamp::as_micros));
    Ok(transaction.run(Change::SessionDeleted, sql::SESSION_END, values).await? > 0)
}

fn session_row(row: &SqliteRow) -> sqlx::Result<SessionRow> {
    let list = |column| -> sqlx::Result<Vec<Arc<str>>> {
        let texts: Vec<String> = serde_json::from_str(row.try_get(column)?)
            .map_err(|cause| damaged(format!("a session's list: {cause}")))?;
        Ok(texts.into_iter().map(Arc::from).collect())
    };
    Ok(SessionRow {
        id: SessionId(Uuid::from_bytes(bytes(row, 0)?)),
        worker_id: text(row, 1)?,
        language: text(row, 2)?,
        sdk: text(row, 3)?,
        build: text(row, 4)?,
        queues: list(5)?,
        contracts: list(6)?,
        slots: unsigned(row, 7)?,
        message_bytes_max: unsigned(row, 8)?,
        register_time: time(row, 9)?,
        contact_time: time(row, 10)?,
        connection: unsigned(row, 11)?,
    })
}

static CONTACTS: Rows = Rows::new(
    "UPDATE sessions SET contact_time = v.column2 FROM ",
    2,
    " AS v WHERE sessions.id = v.column1 AND sessions.contact_time < v.column2",
);

static HELD: Rows = Rows::new(
    "INSERT INTO held (execution_key, unit, delivery, session, missing_since, beat_time, heartbeat_timeout, progress) \
     SELECT column1, column2, column3, column4, column5, column6, column7, column8 FROM ",
    8,
    " AS v WHERE column1 IS NOT NULL ON CONFLICT (execution_key, unit, delivery) DO UPDATE SET session = excluded.session, \
     missing_since = excluded.missing_since, beat_time = excluded.beat_time, heartbeat_timeout = excluded.heartbeat_timeout, \
     progress = excluded.progress",
);

static HELD_DELETED: Rows = Rows::new("DELETE FROM held WHERE (execution_key, unit, delivery) IN ", 3, "");

pub(super) async fn presence(transaction: &mut Transaction, presence: &Presence) -> sqlx::Result<Vec<NodeRow>> {
    // An UPDATE takes any one of several values for a row, so each session comes once, with its newest time.
    let mut newest: BTreeMap<SessionId, Timestamp> = BTreeMap::new();
    for (id, contact_time) in &presence.contacts {
        newest.entry(*id).and_modify(|time| *time = (*time).max(*contact_time)).or_insert(*contact_time);
    }
    let contacts: Vec<_> = newest.into_iter().collect();
    for chunk in contacts.chunks(ROWS_MAX) {
        let mut values = Values::default();
        for (id, contact_time) in chunk {
            values.push(id.0.as_bytes().to_vec());
            values.push(contact_time.as_micros());
        }
        transaction.run(Change::SessionWritten, made(CONTACTS.text(chunk.len()).0), values).await?;
    }
    for chunk in presence.held.chunks(ROWS_MAX) {
        let mut values = Values::default();
        for held in chunk {
            values.push(held.execution.0);
            values.push(held.unit.clone());
            values.push(i64::from(held.delivery));
            values.push(held.session.0.as_bytes().to_vec());
            values.push(held.missing_since.map(Timestamp::as_micros));
            values.push(held.beat_time.as_micros());
            values.push(held.heartbeat_timeout_micros);
            values.push(held.progress.as_ref().map(|progress| progress.to_string()));
        }
        transaction.run(Change::HeldWritten, made(HELD.text(chunk.len()).0), values).await?;
    }
    if let Some(node) = presence.node {
        let values = Values::default()
            .with(node.id.as_bytes().to_vec())
            .with(0_i64)
            .with(node.now.as_micros())
            .with(i64::from(node.level));
        transaction.run(Change::NodeWritten, sql::NODE_WRITE, values).await?;
    }
    transaction.rows(sql::NODES, Values::default()).await?.iter().map(node_row).collect()
}

fn node_row(row: &SqliteRow) -> sqlx::Result<NodeRow> {
    Ok(NodeRow { id: Uuid::from_bytes(bytes(row, 0)?), now: time(row, 1)?, level: unsigned(row, 2)? })
}

pub(super) async fn held_by_session(
    connection: &mut SqliteConnection,
    id: SessionId,
    most: usize,
) -> sqlx::Result<Vec<HeldRow>> {
    let values = Values::default().with(id.0.as_bytes().to_vec()).with(limit(most));
    held(connection, sql::HELD_BY_SESSION, values).await
}

pub(super) async fn held_by_execution(
    connection: &mut SqliteConnection,
    key: ExecutionKey,
) -> sqlx::Result<Vec<HeldRow>> {
    held(connection, sql::HELD_BY_EXECUTION, Values::default().with(key.0)).await
}

pub(super) async fn held_without_session(connection: &mut SqliteConnection, most: usize) -> sqlx::Result<Vec<HeldRow>> {
    held(connection, sql::HELD_WITHOUT_SESSION, Values::default().with(limit(most))).await
}

pub(super) async fn held_overdue(
    connection: &mut SqliteConnection,
    missing_before: Timestamp,
    now: Timestamp,
    most: usize,
) -> sqlx::Result<Vec<HeldRow>> {
    begin_read(connection).await?;
    let missing = Values::default().with(missing_before.as_micros()).with(limit(most));
    let mut rows = held(connection, sql::HELD_MISSING, missing).await?;
    let overdue = Values::default().with(now.as_micros()).with(limit(most));
    rows.extend(held(connection, sql::HELD_OVERDUE, overdue).await?);
    end_read(connection).await?;
    let key = |row: &HeldRow| (row.execution, row.unit.clone(), row.delivery);
    rows.sort_by_key(key);
    rows.dedup_by_key(|row| key(row));
    rows.truncate(most);
    Ok(rows)
}

pub(super) async fn delete_held(
    transaction: &mut Transaction,
    held: &[(ExecutionKey, Arc<str>, u32)],
) -> sqlx::Result<()> {
    for chunk in held.chunks(ROWS_MAX) {
        let mut values = Values::default();
        for (execution, unit, delivery) in chunk {
            values.push(execution.0);
            values.push(unit.clone());
            values.push(i64::from(*delivery));
        }
        transaction.run(Change::HeldDeleted, made(HELD_DELETED.text(chunk.len()).0), values).await?;
    }
    Ok(())
}

async fn held(connection: &mut SqliteConnection, text: &'static str, values: Values) -> sqlx::Result<Vec<HeldRow>> {
    rows(connection, text, values).await?.iter().map(held_row).collect()
}

fn held_row(row: &SqliteRow) -> sqlx::Result<HeldRow> {
    Ok(HeldRow {
        session: SessionId(Uuid::from_bytes(bytes(row, 0)?)),
        execution: ExecutionKey(row.try_get(1)?),
        unit: text(row, 2)?,
        delivery: unsigned(row, 3)?,
        missing_since: time_if_any(row, 4)?,
        beat_time: time(row, 5)?,
        heartbeat_timeout_micros: row.try_get(6)?,
        progress: row.try_get::<Option<&str>, _>(7)?.map(Arc::from),
    })
}

/// All statements over many rows, for a look at their plans.
#[cfg(test)]
pub(super) fn statements() -> [&'static Rows; 3] {
    [&CONTACTS, &HELD, &HELD_DELETED]
}
