//! Writes to schedules, with the executions that their slots start: many in one transaction.
//!
//! Nobody else writes while the transaction is open, so whoever finds the version that it was decided on also writes on it. A
//! write that cannot be whole (a slot that was decided before, an execution that is there) rolls all of them back; then each is
//! written alone, and the guilty one fails alone.

use super::{attempt_fenced, error, written_before};
use crate::store::{
    Append, Committed, Error, ScheduleWrite, ScheduleWritten,
    sql::{Transaction, schedules},
    sqlite::connection::{Unfinished, Writer},
};

/// Writes; see [`crate::store::Store::write_schedules`].
pub(in crate::store::sqlite) async fn write(
    writer: &mut Writer,
    writes: &[ScheduleWrite],
) -> Result<Vec<ScheduleWritten>, Error> {
    let mut outcomes: Vec<Option<ScheduleWritten>> = writes.iter().map(broken_rule).collect();
    let sound: Vec<usize> = (0..writes.len()).filter(|place| outcomes[*place].is_none()).collect();
    let together: Vec<&ScheduleWrite> = sound.iter().map(|place| &writes[*place]).collect();
    match attempt(writer, &together).await {
        Ok(written) => {
            for (place, outcome) in sound.iter().zip(written) {
                outcomes[*place] = Some(outcome);
            }
        }
        Err(Unfinished::RolledBack(cause)) if is_of_the_data(&cause) && together.len() > 1 => {
            for place in sound {
                outcomes[place] = Some(write_alone(writer, &writes[place]).await?);
            }
        }
        Err(Unfinished::RolledBack(cause)) if is_of_the_data(&cause) => {
            for place in sound {
                outcomes[place] = Some(schedules::not_whole(&cause));
            }
        }
        Err(unfinished) => return Err(unfinished.into()),
    }
    Ok(outcomes.into_iter().map(|outcome| outcome.expect("each was written, or failed")).collect())
}

async fn write_alone(writer: &mut Writer, write: &ScheduleWrite) -> Result<ScheduleWritten, Error> {
    match attempt(writer, &[write]).await {
        Ok(mut written) => Ok(written.pop().expect("there is an answer for each write")),
        Err(Unfinished::RolledBack(cause)) if is_of_the_data(&cause) => Ok(schedules::not_whole(&cause)),
        Err(unfinished) => Err(unfinished.into()),
    }
}

fn is_of_the_data(cause: &sqlx::Error) -> bool {
    matches!(cause, sqlx::Error::Encode(_)) || error::is_of_the_data(cause)
}

fn broken_rule(write: &ScheduleWrite) -> Option<ScheduleWritten> {
    write.check().err().map(|rule| ScheduleWritten::Failed { what: rule.to_owned() })
}

/// Writes in one transaction. Where it is unclear whether a COMMIT worked, once more: what stands there already is recognised.
async fn attempt(writer: &mut Writer, writes: &[&ScheduleWrite]) -> Result<Vec<ScheduleWritten>, Unfinished> {
    match attempt_once(writer, writes).await {
        Err(Unfinished::Unclear(cause)) => {
            tracing::warn!(error = %cause, "a COMMIT failed; the schedules are written again");
            attempt_once(writer, writes).await
        }
        clear => clear,
    }
}

async fn attempt_once(writer: &mut Writer, writes: &[&ScheduleWrite]) -> Result<Vec<ScheduleWritten>, Unfinished> {
    let mut transaction = writer.begin().await?;
    let written = write_whole(&mut transaction, writes).await;
    writer.finish(transaction, written).await
}

async fn write_whole<T: Transaction>(
    transaction: &mut T,
    writes: &[&ScheduleWrite],
) -> sqlx::Result<Vec<ScheduleWritten>> {
    let won = schedules::write(transaction, writes).await?;
    let starts: Vec<&Append> =
        won.iter().zip(writes).filter(|(key, _)| key.is_some()).flat_map(|(_, write)| &write.starts).collect();
    let mut keys = attempt_fenced(transaction, &starts).await?.into_iter();
    let mut answers = Vec::with_capacity(writes.len());
    for (key, write) in won.into_iter().zip(writes) {
        answers.push(match key {
            Some(key) => {
                let begun = keys.by_ref().take(write.starts.len()).collect::<Option<_>>();
                let begun =
                    begun.ok_or_else(|| sqlx::Error::Encode("executions_uid: a slot's execution exists".into()))?;
                ScheduleWritten::Written(key, begun)
            }
            None => written_already(transaction, write).await?,
        });
    }
    Ok(answers)
}

/// The answer to a write that lost its fence: written, if the row is its own still, or what it began is.
async fn written_already<T: Transaction>(transaction: &mut T, write: &ScheduleWrite) -> sqlx::Result<ScheduleWritten> {
    let mut begun = Vec::with_capacity(write.starts.len());
    for start in &write.starts {
        match written_before(transaction, start).await? {
            Committed::Written(key) => begun.push(key),
            Committed::Conflict | Committed::Failed { .. } => return Ok(ScheduleWritten::Conflict),
        }
    }
    let own = schedules::written_before(transaction, write).await?;
    Ok(match own {
        Some(key) => ScheduleWritten::Written(key, begun),
        None if begun.is_empty() => ScheduleWritten::Conflict,
        None => ScheduleWritten::Written(write.row.key, begun),
    })
}
