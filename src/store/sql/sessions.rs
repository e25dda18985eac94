//! Sessions of workers, the deliveries that they hold, and the second of presence that writes both.

use super::executions::limit;
use super::row::{held_row, node_row, session_row};
use super::{Connection, List, Transaction, Value, Values, text as sql};
use crate::domain::{SessionId, Timestamp};
use crate::store::{Change, ExecutionKey, HeldRow, NodeRow, Presence, SessionRow};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

pub(crate) async fn put<T: Transaction>(transaction: &mut T, session: &SessionRow) -> sqlx::Result<()> {
    let values = announced(session)
        .with(session.register_time.as_micros())
        .with(session.contact_time.as_micros())
        .with(session.connection)
        .with(timeout(session));
    transaction.run(Change::SessionWritten, sql::SESSION_INSERT, values).await.map(drop)
}

pub(crate) async fn resume<T: Transaction>(
    transaction: &mut T,
    session: &SessionRow,
) -> sqlx::Result<Option<SessionRow>> {
    let values = announced(session).with(session.contact_time.as_micros()).with(timeout(session));
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
        .with(session.id.0.as_bytes())
        .with(&session.worker_id)
        .with(&session.language)
        .with(&session.sdk)
        .with(&session.build)
        .with(list(&session.queues))
        .with(list(&session.contracts))
        .with(session.slots)
        .with(i64::try_from(session.message_bytes_max).unwrap_or(i64::MAX))
}

fn timeout(session: &SessionRow) -> Option<i64> {
    session.timeout.map(micros)
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

pub(crate) async fn session<C: Connection>(connection: &mut C, id: SessionId) -> sqlx::Result<Option<SessionRow>> {
    let row = connection.row(sql::SESSION, [id.0.as_bytes().into()].into()).await?;
    row.as_ref().map(session_row).transpose()
}

pub(crate) async fn sessions<C: Connection>(
    connection: &mut C,
    after: Option<SessionId>,
    most: usize,
) -> sqlx::Result<Vec<SessionRow>> {
    let after = after.as_ref().map_or(&[][..], |id| id.0.as_bytes());
    connection.rows(sql::SESSIONS, [after.into(), limit(most).into()].into()).await?.iter().map(session_row).collect()
}

pub(crate) async fn end<T: Transaction>(
    transaction: &mut T,
    id: SessionId,
    contact_time: Option<Timestamp>,
) -> sqlx::Result<bool> {
    let values = [id.0.as_bytes().into(), contact_time.map(Timestamp::as_micros).into()];
    Ok(transaction.run(Change::SessionDeleted, sql::SESSION_END, values.into()).await? > 0)
}

/// Writes contacts and held rows, in the order of their keys, so that two nodes wait for each other and do not block each
/// other.
pub(crate) async fn write<T: Transaction>(transaction: &mut T, presence: &Presence) -> sqlx::Result<()> {
    // A statement takes each row once: a session with its newest time, a delivery as it was told last.
    let mut contacts: BTreeMap<SessionId, Timestamp> = BTreeMap::new();
    for (id, contact_time) in &presence.contacts {
        contacts.entry(*id).and_modify(|time| *time = (*time).max(*contact_time)).or_insert(*contact_time);
    }
    let held: BTreeMap<_, _> =
        presence.held.iter().map(|held| ((held.execution, &held.unit, held.delivery), held)).collect();

    let contacts = contacts.iter().map(|(id, contact_time)| [id.0.as_bytes().into(), contact_time.as_micros().into()]);
    transaction.run_many(Change::SessionWritten, &sql::CONTACTS, List::of(contacts)).await?;
    let held = held.values().map(|held| {
        [
            held.execution.0.into(),
            (&held.unit).into(),
            held.delivery.into(),
            held.session.0.as_bytes().into(),
            held.missing_since.map(Timestamp::as_micros).into(),
            held.beat_time.as_micros().into(),
            held.heartbeat_timeout_micros.into(),
            Value::Text(held.progress.clone()),
        ]
    });
    transaction.run_many(Change::HeldWritten, &sql::HELD_WRITE, List::of(held)).await.map(drop)
}

/// The rows of all nodes, by id.
pub(crate) async fn nodes<C: Connection>(connection: &mut C) -> sqlx::Result<Vec<NodeRow>> {
    connection.rows(sql::NODES, Values::default()).await?.iter().map(node_row).collect()
}

pub(crate) async fn held_by_session<C: Connection>(
    connection: &mut C,
    id: SessionId,
    most: usize,
) -> sqlx::Result<Vec<HeldRow>> {
    held(connection, sql::HELD_BY_SESSION, [id.0.as_bytes().into(), limit(most).into()].into()).await
}

pub(crate) async fn held_by_execution<C: Connection>(
    connection: &mut C,
    key: ExecutionKey,
) -> sqlx::Result<Vec<HeldRow>> {
    held(connection, sql::HELD_BY_EXECUTION, [key.0.into()].into()).await
}

pub(crate) async fn held_without_session<C: Connection>(connection: &mut C, most: usize) -> sqlx::Result<Vec<HeldRow>> {
    held(connection, sql::HELD_WITHOUT_SESSION, [limit(most).into()].into()).await
}

pub(crate) async fn held_overdue<C: Connection>(
    connection: &mut C,
    now: Timestamp,
    timeout: Duration,
    most: usize,
) -> sqlx::Result<Vec<HeldRow>> {
    let missing = [now.as_micros().into(), micros(timeout).into(), limit(most).into()];
    let mut rows = held(connection, sql::HELD_MISSING, missing.into()).await?;
    let overdue = [now.as_micros().into(), limit(most).into()];
    rows.extend(held(connection, sql::HELD_OVERDUE, overdue.into()).await?);
    let key = |row: &HeldRow| (row.execution, row.unit.clone(), row.delivery);
    rows.sort_by_key(key);
    rows.dedup_by_key(|row| key(row));
    rows.truncate(most);
    Ok(rows)
}

pub(crate) async fn delete_held<T: Transaction>(
    transaction: &mut T,
    held: &[(ExecutionKey, Arc<str>, u32)],
) -> sqlx::Result<()> {
    let held: BTreeSet<_> = held.iter().collect();
    let list = List::of(
        held.into_iter().map(|(execution, unit, delivery)| [execution.0.into(), unit.into(), (*delivery).into()]),
    );
    transaction.run_many(Change::HeldDeleted, &sql::HELD_DELETE, list).await.map(drop)
}

async fn held<C: Connection>(connection: &mut C, text: &'static str, values: Values) -> sqlx::Result<Vec<HeldRow>> {
    connection.rows(text, values).await?.iter().map(held_row).collect()
}
