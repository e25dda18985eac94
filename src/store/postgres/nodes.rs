//! Nodes: who lives, which slot of the counters each has, and what time it is among them.
//!
//! A node that writes its row for the first time takes the smallest free slot, under a lock; a dead node's is free. One that
//! was taken for dead and comes back takes another. A slot is a matter of contention only: counters are added to, whoever
//! does it.

use super::connection::{Values, row, run};
use crate::domain::Timestamp;
use crate::store::NodeRow;
use sqlx::{Row as _, postgres::PgConnection};

/// Slot of a node that has not written its row yet. Nodes that have begin at 1.
pub(super) const SLOT_NONE: i64 = 0;

macro_rules! clock {
    () => {
        "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"
    };
}
/// Longest silence of a live node, in microseconds of the database's clock: ten times the pause between two writes.
macro_rules! silence {
    () => {
        "10000000"
    };
}

const SEEN: &str = concat!(
    "UPDATE nodes SET now = greatest(now, $2), level = $3, seen = ",
    clock!(),
    " WHERE id = $1 AND slot IS NOT NULL RETURNING slot"
);

// A name of this lock among all of the database: "orbt", nodes.
const LOCK: &str = "SELECT pg_advisory_xact_lock(1869767284, 2)";

const FREE_SLOTS: &str =
    concat!("UPDATE nodes SET slot = NULL WHERE slot IS NOT NULL AND seen < ", clock!(), " - ", silence!());

/// Keeps the newest time, as long as it is the newest.
const FORGET: &str =
    concat!("DELETE FROM nodes WHERE seen < ", clock!(), " - 3600000000 AND now < (SELECT max(now) FROM nodes)");

const CLAIM: &str = concat!(
    "INSERT INTO nodes (id, slot, now, level, seen) SELECT $1, min(candidate), $2, $3, ",
    clock!(),
    " FROM generate_series(1, (SELECT count(*) + 1 FROM nodes)) AS candidate \
     WHERE NOT EXISTS (SELECT 1 FROM nodes AS taken WHERE taken.slot = candidate) \
     ON CONFLICT (id) DO UPDATE SET slot = excluded.slot, now = greatest(nodes.now, excluded.now), level = excluded.level, \
     seen = excluded.seen RETURNING slot"
);

/// What a live node wrote is as old as its row: without that, each node would begin up to a second behind the others.
const NEWEST_NOW: &str = concat!(
    "SELECT coalesce((SELECT max(now + ",
    clock!(),
    " - seen) FROM nodes WHERE seen >= ",
    clock!(),
    " - ",
    silence!(),
    "), greatest((SELECT max(now) FROM nodes), ",
    clock!(),
    "))"
);

/// Writes a node's row, in a transaction; answers with its slot.
pub(super) async fn write(connection: &mut PgConnection, node: &NodeRow) -> sqlx::Result<i64> {
    let values =
        || Values::default().with(node.id.as_bytes().to_vec()).with(node.now.as_micros()).with(i64::from(node.level));
    if let Some(row) = row(connection, SEEN, values()).await? {
        return row.try_get(0);
    }
    run(connection, LOCK).await?;
    run(connection, FREE_SLOTS).await?;
    run(connection, FORGET).await?;
    let claimed = row(connection, CLAIM, values()).await?;
    claimed.ok_or(sqlx::Error::RowNotFound)?.try_get(0)
}

/// What time it is among the nodes: see [`crate::store::Opened::newest_now`].
pub(super) async fn newest_now(connection: &mut PgConnection) -> sqlx::Result<Timestamp> {
    let newest: Option<_> = row(connection, NEWEST_NOW, Values::default()).await?;
    Ok(Timestamp::from_micros(newest.ok_or(sqlx::Error::RowNotFound)?.try_get(0)?))
}
