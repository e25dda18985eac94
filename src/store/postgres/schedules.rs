//! Writes to schedules, with the executions that their slots start: many in one transaction.
//!
//! Whoever waits for a schedule's row finds its version raised, so of two nodes that decide on the same one, one writes. A write
//! that cannot be whole (a slot that was decided before, an execution that is there) fails the transaction; then each is
//! written alone, and the guilty one fails alone.

use super::{
    PostgresStore,
    append::Ordered,
    commit::{Counted, write_fenced, written_before},
    pool::Transaction,
};
use crate::store::{
    Append, Error, ExecutionKey, ScheduleWrite, ScheduleWritten, Statistics,
    sql::{Transaction as _, schedules},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

/// Writes; see [`crate::store::Store::write_schedules`].
pub(super) async fn write(store: &PostgresStore, writes: Vec<ScheduleWrite>) -> Result<Vec<ScheduleWritten>, Error> {
    let writes: Vec<Arc<ScheduleWrite>> = writes.into_iter().map(Arc::new).collect();
    let rule =
        |write: &Arc<ScheduleWrite>| write.check().err().map(|rule| ScheduleWritten::Failed { what: rule.to_owned() });
    let mut outcomes: Vec<Option<ScheduleWritten>> = writes.iter().map(rule).collect();
    let sound: Vec<usize> = (0..writes.len()).filter(|place| outcomes[*place].is_none()).collect();
    let together: Arc<[Arc<ScheduleWrite>]> = sound.iter().map(|place| writes[*place].clone()).collect();
    match attempt(store, together).await? {
        Ok(written) => {
            for (place, outcome) in sound.into_iter().zip(written) {
                outcomes[place] = Some(outcome);
            }
        }
        Err(cause) if sound.len() == 1 => outcomes[sound[0]] = Some(schedules::not_whole(&cause)),
        Err(_) => {
            for place in sound {
                let alone = attempt(store, [writes[place].clone()].into()).await?;
                let outcome = alone.map(|mut written| written.pop().expect("there is an answer for each write"));
                outcomes[place] = Some(outcome.unwrap_or_else(|cause| schedules::not_whole(&cause)));
            }
        }
    }
    Ok(outcomes.into_iter().map(|outcome| outcome.expect("each was written, or failed")).collect())
}

/// Writes in one transaction. The inner error is a fault of what is written.
async fn attempt(
    store: &PostgresStore,
    writes: Arc<[Arc<ScheduleWrite>]>,
) -> Result<Result<Vec<ScheduleWritten>, sqlx::Error>, Error> {
    if writes.is_empty() {
        return Ok(Ok(Vec::new()));
    }
    // Their own rows of the counters: one committer's are changed by that one alone.
    let (slot, committer) = (store.slot.clone(), i64::try_from(store.committers.count()).unwrap_or(i64::MAX));
    let written = store.connections.write_or_fault(move |transaction| {
        let (writes, slot) = (writes.clone(), slot.load(Ordering::Relaxed));
        Box::pin(async move { write_whole(transaction, &writes, slot, committer).await })
    });
    written.await
}

async fn write_whole(
    transaction: &mut Transaction,
    writes: &[Arc<ScheduleWrite>],
    slot: i64,
    committer: i64,
) -> sqlx::Result<Vec<ScheduleWritten>> {
    let all: Vec<&ScheduleWrite> = writes.iter().map(|write| &**write).collect();
    let won = schedules::write(transaction, &all).await?;
    let starts: Vec<&Append> =
        won.iter().zip(&all).filter(|(key, _)| key.is_some()).flat_map(|(_, write)| &write.starts).collect();
    let mut begun = begin(transaction, &starts, slot, committer).await?.into_iter();
    let mut answers = Vec::with_capacity(all.len());
    for (key, write) in won.into_iter().zip(all) {
        answers.push(match key {
            Some(key) => {
                let keys = begun.by_ref().take(write.starts.len()).collect::<Option<_>>();
                let exists = || sqlx::Error::Encode("executions_uid: a slot's execution exists".into());
                ScheduleWritten::Written(key, keys.ok_or_else(exists)?)
            }
            None => written_already(transaction, write).await?,
        });
    }
    Ok(answers)
}

/// Begins executions; answers with the key of each that could be.
async fn begin(
    transaction: &mut Transaction,
    starts: &[&Append],
    slot: i64,
    committer: i64,
) -> sqlx::Result<Vec<Option<ExecutionKey>>> {
    if starts.is_empty() {
        return Ok(Vec::new());
    }
    let ordered = Ordered::of(starts);
    let mut changes = Statistics::default();
    let mut counted = Counted { slot, committer, changes: &mut changes };
    let won = write_fenced(transaction.connection(), &mut counted, &ordered).await?;
    for change in crate::store::Change::ALL {
        transaction.changed(change, changes.rows(change));
    }
    Ok(ordered.names().iter().map(|name| won.get(name).copied()).collect())
}

/// The answer to a write that lost its fence: written, if the row is its own still, or what it began is.
async fn written_already(transaction: &mut Transaction, write: &ScheduleWrite) -> sqlx::Result<ScheduleWritten> {
    let named: Vec<(i64, &Append)> = (1..).zip(&write.starts).collect();
    let found: BTreeMap<i64, ExecutionKey> = if named.is_empty() {
        BTreeMap::new()
    } else {
        written_before(transaction.connection(), &named).await?.into_iter().collect()
    };
    if found.len() < named.len() {
        return Ok(ScheduleWritten::Conflict);
    }
    let begun: Vec<ExecutionKey> = found.into_values().collect();
    let own = schedules::written_before(transaction, write).await?;
    Ok(match own {
        Some(key) => ScheduleWritten::Written(key, begun),
        None if begun.is_empty() => ScheduleWritten::Conflict,
        None => ScheduleWritten::Written(write.row.key, begun),
    })
}
