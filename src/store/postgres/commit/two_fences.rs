//! The rare append with two fences, in a transaction of its own.
//!
//! - The first fence is the history row of an execution that is there, the second is its row, which says whether it is the
//!   current one of its id: whoever waits for the row sees what the other one has made of it. A batch takes them in the same
//!   order, so nobody waits in a circle.
//! - What loses either fence is rolled back whole.

use super::{Counted, write_fenced};
use crate::store::postgres::{
    append::Ordered,
    connection::{Values, rows, run},
};
use crate::store::{Append, Change, ExecutionKey, Replacement, Target};
use sqlx::postgres::PgConnection;

/// Takes the id $2 from execution $1, which must be closed by now.
const RELEASE: &str = "UPDATE executions SET current = 0 \
     WHERE key = $1 AND id = $2 AND current = 1 AND close_time IS NOT NULL RETURNING key";
/// Holds the row until the end of the transaction.
const HOLD: &str = "SELECT key FROM executions WHERE key = $1 AND current = 1 FOR UPDATE";

/// Writes an append that replaces an execution or takes one up again; nothing if it loses a fence.
pub(super) async fn write(
    connection: &mut PgConnection,
    counted: &mut Counted<'_>,
    append: &Append,
) -> sqlx::Result<Option<ExecutionKey>> {
    run(connection, "BEGIN").await?;
    let won = match &append.target {
        Target::Replacing(replacement) => replace(connection, counted, append, replacement).await,
        Target::Existing(key) => reopen(connection, counted, append, *key).await,
        Target::New(_) => Ok(None),
    };
    match won {
        Ok(Some(key)) => {
            run(connection, "COMMIT").await?;
            Ok(Some(key))
        }
        Ok(None) => {
            *counted.changes = crate::store::Statistics::default();
            run(connection, "ROLLBACK").await?;
            Ok(None)
        }
        Err(cause) => {
            // Where even that fails, the connection is closed for the first cause.
            let _ = run(connection, "ROLLBACK").await;
            Err(cause)
        }
    }
}

async fn replace(
    connection: &mut PgConnection,
    counted: &mut Counted<'_>,
    append: &Append,
    replacement: &Replacement,
) -> sqlx::Result<Option<ExecutionKey>> {
    let Replacement { new, old, end } = replacement;
    if let Some(end) = end
        && write_fenced(connection, counted, &Ordered::of(&[end])).await?.is_empty()
    {
        return Ok(None);
    }
    let released = rows(connection, RELEASE, Values::default().with(old.0).with(&*new.id)).await?;
    if released.is_empty() {
        return Ok(None);
    }
    counted.changes.add(Change::ExecutionUpdated, 1);
    Ok(write_fenced(connection, counted, &Ordered::of(&[append])).await?.into_values().next())
}

async fn reopen(
    connection: &mut PgConnection,
    counted: &mut Counted<'_>,
    append: &Append,
    key: ExecutionKey,
) -> sqlx::Result<Option<ExecutionKey>> {
    if write_fenced(connection, counted, &Ordered::of(&[append])).await?.is_empty() {
        return Ok(None);
    }
    let held = rows(connection, HOLD, Values::default().with(key.0)).await?;
    Ok((!held.is_empty()).then_some(key))
}
