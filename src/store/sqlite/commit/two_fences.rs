//! The rare append with two fences, alone in its transaction.
//!
//! Nobody else writes while the transaction is open, so what is looked at first still holds when it is written.

use super::{write_fenced, written_before};
use crate::store::{
    Append, Change, Committed, ExecutionKey, Replacement, Target,
    sql::{Row as _, Transaction, Value},
};

/// Whether execution $1 is the current one of its id; and which id, and whether it is closed.
const HOLDER: &str =
    "SELECT id, CASE WHEN close_time IS NULL THEN 0 ELSE 1 END FROM executions WHERE key = $1 AND current = 1";
const RELEASE: &str = "UPDATE executions SET current = 0 WHERE key = $1";

/// Writes an append that replaces an execution or takes one up again.
pub(super) async fn write<T: Transaction>(transaction: &mut T, append: &Append) -> sqlx::Result<Committed> {
    let won = match &append.target {
        Target::Replacing(replacement) => replace(transaction, append, replacement).await?,
        Target::Existing(key) if holder(transaction, *key).await?.is_some() => {
            write_fenced(transaction, &[append]).await?[0]
        }
        Target::Existing(_) | Target::New(_) => None,
    };
    match won {
        Some(key) => Ok(Committed::Written(key)),
        None => written_before(transaction, append).await,
    }
}

async fn replace<T: Transaction>(
    transaction: &mut T,
    append: &Append,
    replacement: &Replacement,
) -> sqlx::Result<Option<ExecutionKey>> {
    let Replacement { new, old, end } = replacement;
    let Some((id, is_closed)) = holder(transaction, *old).await? else { return Ok(None) };
    if id != *new.id || !(is_closed || end.is_some()) {
        return Ok(None);
    }
    if let Some(end) = end
        && write_fenced(transaction, &[end]).await?[0].is_none()
    {
        return Ok(None);
    }
    transaction.run(Change::ExecutionUpdated, RELEASE, [Value::from(old.0)].into()).await?;
    let won = write_fenced(transaction, &[append]).await?[0];
    // The id is free, so only its own uid can stand in its way, which somebody else would have to have.
    won.map(Some).ok_or_else(|| sqlx::Error::Protocol("a new execution has the uid of another".into()))
}

/// The id that an execution has, and whether it is closed; nothing if it has none any more.
async fn holder<T: Transaction>(transaction: &mut T, key: ExecutionKey) -> sqlx::Result<Option<(String, bool)>> {
    let row = transaction.row(HOLDER, [Value::from(key.0)].into()).await?;
    row.map(|row| Ok((row.text(0)?.to_owned(), row.integer(1)? == 1))).transpose()
}
