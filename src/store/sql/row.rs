//! Rows of answers: columns by place, and what the columns of each kind of row say.

use crate::domain::{RequestKey, SessionId, Timestamp, Uid};
use crate::store::{
    DefinitionRow, ExecutionKey, ExecutionRow, ExecutionState, HeldRow, HistoryRow, LargePayload, NodeRow, SessionRow,
    Snapshot,
};
use sqlx::{ColumnIndex, Decode, Type};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

/// A row of an answer, whose columns are integers, text and bytes.
pub(crate) trait Row: Send + Sync {
    /// An integer.
    fn integer(&self, column: usize) -> sqlx::Result<i64>;
    /// An integer, or null.
    fn integer_if_any(&self, column: usize) -> sqlx::Result<Option<i64>>;
    /// Text.
    fn text(&self, column: usize) -> sqlx::Result<&str>;
    /// Text, or null.
    fn text_if_any(&self, column: usize) -> sqlx::Result<Option<&str>>;
    /// Bytes.
    fn bytes(&self, column: usize) -> sqlx::Result<&[u8]>;
    /// Bytes, or null.
    fn bytes_if_any(&self, column: usize) -> sqlx::Result<Option<&[u8]>>;
}

impl<R> Row for R
where
    R: sqlx::Row,
    usize: ColumnIndex<R>,
    for<'r> i64: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> &'r str: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> &'r [u8]: Decode<'r, R::Database> + Type<R::Database>,
{
    fn integer(&self, column: usize) -> sqlx::Result<i64> {
        self.try_get(column)
    }

    fn integer_if_any(&self, column: usize) -> sqlx::Result<Option<i64>> {
        self.try_get(column)
    }

    fn text(&self, column: usize) -> sqlx::Result<&str> {
        self.try_get(column)
    }

    fn text_if_any(&self, column: usize) -> sqlx::Result<Option<&str>> {
        self.try_get(column)
    }

    fn bytes(&self, column: usize) -> sqlx::Result<&[u8]> {
        self.try_get(column)
    }

    fn bytes_if_any(&self, column: usize) -> sqlx::Result<Option<&[u8]>> {
        self.try_get(column)
    }
}

/// A stored value that cannot be what was written.
pub(crate) fn damaged(what: impl Into<String>) -> sqlx::Error {
    sqlx::Error::Decode(what.into().into())
}

/// Reads the columns of an execution.
pub(super) fn execution_row(row: &impl Row) -> sqlx::Result<ExecutionRow> {
    let request = match (row.bytes_if_any(8)?, row.bytes_if_any(9)?) {
        (Some(_), Some(_)) => Some(RequestKey { key: bytes(row, 8)?, content: bytes(row, 9)? }),
        _ => None,
    };
    let labels =
        serde_json::from_str(row.text(11)?).map_err(|cause| damaged(format!("labels of an execution: {cause}")))?;
    Ok(ExecutionRow {
        key: ExecutionKey(row.integer(0)?),
        uid: Uid(uuid(row, 1)?),
        id: text(row, 2)?,
        current: row.integer(3)? == 1,
        run: unsigned(row, 16)?,
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
        quarantined: row.text_if_any(15)?.map(Arc::from),
        delete_time: time_if_any(row, 17)?,
    })
}

/// Reads the columns of history, which begin at a column.
pub(super) fn history_row(row: &impl Row, from: usize) -> sqlx::Result<HistoryRow> {
    Ok(HistoryRow {
        first_number: unsigned(row, from)?,
        last_number: unsigned(row, from + 1)?,
        run: unsigned(row, from + 2)?,
        format: unsigned(row, from + 3)?,
        batch_id: uuid(row, from + 4)?,
        events: row.bytes(from + 5)?.to_vec().into(),
    })
}

/// Reads a snapshot: its columns lie as those of history, see [`super::text::LOAD`].
pub(super) fn snapshot_row(row: &impl Row, from: usize) -> sqlx::Result<Snapshot> {
    Ok(Snapshot {
        number: unsigned(row, from)?,
        format: unsigned(row, from + 3)?,
        definition_hash: bytes(row, from + 4)?,
        bytes: row.bytes(from + 5)?.to_vec().into(),
    })
}

/// Reads a large payload: its digest and its text.
pub(super) fn payload_row(row: &impl Row, digest: usize, json: usize) -> sqlx::Result<LargePayload> {
    Ok(LargePayload { sha256: bytes(row, digest)?, json: text(row, json)? })
}

/// Reads the columns of a definition, whose contracts have rows of their own.
pub(super) fn definition_row(row: &impl Row, contracts: Vec<Arc<str>>) -> sqlx::Result<DefinitionRow> {
    Ok(DefinitionRow {
        name: text(row, 1)?,
        version: text(row, 2)?,
        version_order: row.bytes(3)?.to_vec(),
        prerelease: row.integer(4)? == 1,
        hash: bytes(row, 5)?,
        description: row.text(6)?.to_owned(),
        json: row.text(7)?.to_owned(),
        source: row.text(8)?.to_owned(),
        contracts,
        create_time: time(row, 9)?,
    })
}

/// Reads the columns of a session.
pub(super) fn session_row(row: &impl Row) -> sqlx::Result<SessionRow> {
    let list = |column| -> sqlx::Result<Vec<Arc<str>>> {
        let texts: Vec<String> =
            serde_json::from_str(row.text(column)?).map_err(|cause| damaged(format!("a session's list: {cause}")))?;
        Ok(texts.into_iter().map(Arc::from).collect())
    };
    Ok(SessionRow {
        id: SessionId(uuid(row, 0)?),
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
        timeout: row.integer_if_any(12)?.map(|micros| Duration::from_micros(micros.unsigned_abs())),
    })
}

/// Reads the columns of a held delivery.
pub(super) fn held_row(row: &impl Row) -> sqlx::Result<HeldRow> {
    Ok(HeldRow {
        session: SessionId(uuid(row, 0)?),
        execution: ExecutionKey(row.integer(1)?),
        unit: text(row, 2)?,
        delivery: unsigned(row, 3)?,
        missing_since: time_if_any(row, 4)?,
        beat_time: time(row, 5)?,
        heartbeat_timeout_micros: row.integer_if_any(6)?,
        progress: row.text_if_any(7)?.map(Arc::from),
    })
}

/// Reads the columns of a node.
pub(super) fn node_row(row: &impl Row) -> sqlx::Result<NodeRow> {
    Ok(NodeRow { id: uuid(row, 0)?, now: time(row, 1)?, level: unsigned(row, 2)? })
}

/// The state of an execution.
pub(super) fn state(row: &impl Row, column: usize) -> sqlx::Result<ExecutionState> {
    let number = row.integer(column)?;
    let known = ExecutionState::ALL.into_iter().find(|state| *state as i64 == number);
    known.ok_or_else(|| damaged(format!("state {number} of an execution is unknown")))
}

/// An integer that is never negative.
pub(super) fn unsigned<T: TryFrom<i64>>(row: &impl Row, column: usize) -> sqlx::Result<T> {
    let number = row.integer(column)?;
    T::try_from(number).map_err(|_| damaged(format!("{number} is out of range")))
}

/// Bytes whose number is fixed.
pub(super) fn bytes<const N: usize>(row: &impl Row, column: usize) -> sqlx::Result<[u8; N]> {
    let bytes = row.bytes(column)?;
    bytes.try_into().map_err(|_| damaged(format!("{} bytes where {N} are expected", bytes.len())))
}

/// Text, to be shared.
pub(super) fn text(row: &impl Row, column: usize) -> sqlx::Result<Arc<str>> {
    Ok(Arc::from(row.text(column)?))
}

/// A time.
pub(super) fn time(row: &impl Row, column: usize) -> sqlx::Result<Timestamp> {
    Ok(Timestamp::from_micros(row.integer(column)?))
}

/// A time, or null.
pub(super) fn time_if_any(row: &impl Row, column: usize) -> sqlx::Result<Option<Timestamp>> {
    Ok(row.integer_if_any(column)?.map(Timestamp::from_micros))
}

pub(super) fn uuid(row: &impl Row, column: usize) -> sqlx::Result<Uuid> {
    Ok(Uuid::from_bytes(bytes(row, column)?))
}
