//! Group commit: a batch of appends is one statement without a transaction around it, so one round trip and one sync.
//!
//! - One execution's conflict fails that append alone: its history row does not come back, and nothing of it is written.
//! - Where it is not known whether a batch was written (a lost connection, a limit that passed), it is written again, on a new
//!   connection: what stands there already is recognised by its `batch_id`. So is what failed because another transaction stood
//!   in its way. Within the limit of an operation it is given up as [`Error::Unavailable`], and the same batch may be committed again.
//! - A statement that is under way when its node dies, stops or is cut off ends by itself: there is no transaction that could
//!   stay open.
//! - An append with two fences has a transaction of its own ([`two_fences`]).
//!
//! # Design
//! Each committer has a connection of its own. One makes the largest batches, which is the fastest where the disk is near;
//! several work while one of them waits for a disk or a standby that is far away, and PostgreSQL syncs their commits together.

mod two_fences;

use super::{
    append::{Ordered, WRITTEN, before},
    connection::{Connector, Purpose, Values, rows},
    error,
    tries::Tries,
};
use crate::store::{
    Append, Change, Committed, Error, ExecutionKey, Statistics, Target, batch::Batch, statistics::Totals,
    unbroken::unbroken,
};
use sqlx::{Connection as _, Row as _, postgres::PgConnection};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};
use tokio::{sync::Semaphore, time::timeout};

/// The committers of a store.
pub(super) struct Committers {
    connector: Connector,
    free: Mutex<Vec<Committer>>,
    permits: Semaphore,
    count: u32,
    /// The slot of this node; see [`super::nodes`].
    slot: Arc<AtomicI64>,
    totals: Arc<Totals>,
}

/// One committer: its number, and its connection if it has one.
struct Committer {
    number: i64,
    connection: Option<PgConnection>,
}

/// A committer that is at work; free again when this goes, however.
struct AtWork<'a> {
    committers: &'a Committers,
    committer: Committer,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let Committer { number, connection } = &mut self.committer;
        let free = Committer { number: *number, connection: connection.take() };
        self.committers.free().push(free);
    }
}

impl Committers {
    pub(super) fn new(connector: Connector, count: u32, slot: Arc<AtomicI64>, totals: Arc<Totals>) -> Self {
        let count = count.max(1);
        // The first is the last in the list, so it is taken first, and a store that commits little has one connection.
        let free = (0..i64::from(count)).rev().map(|number| Committer { number, connection: None }).collect();
        Self { connector, free: Mutex::new(free), permits: Semaphore::new(count as usize), count, slot, totals }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count as usize
    }

    /// Commits a batch; see [`crate::store::Store::commit`].
    pub(super) async fn commit(self: &Arc<Self>, batch: Vec<Append>) -> Result<Vec<Committed>, Error> {
        let committers = self.clone();
        unbroken(async move {
            let Ok(_permit) = committers.permits.acquire().await else {
                return Err(error::from_sqlx(sqlx::Error::PoolClosed));
            };
            let committer = committers.free().pop().expect("there is one for each permit");
            let mut at_work = AtWork { committers: &committers, committer };
            at_work.commit(&batch).await.map_err(error::from_sqlx)
        })
        .await
    }

    fn free(&self) -> MutexGuard<'_, Vec<Committer>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for all that is under way and closes the connections.
    pub(super) async fn close(&self) {
        if let Ok(all) = self.permits.acquire_many(self.count).await {
            self.permits.close();
            drop(all);
        }
        let free = std::mem::take(&mut *self.free());
        for connection in free.into_iter().filter_map(|committer| committer.connection) {
            let _ = timeout(self.connector.limit(), connection.close()).await;
        }
    }
}

impl AtWork<'_> {
    async fn commit(&mut self, appends: &[Append]) -> sqlx::Result<Vec<Committed>> {
        let mut batch = Batch::new(appends);
        while let Some(part) = batch.next_part() {
            match self.write(&part.appends).await {
                Ok(outcomes) => batch.is_written(part, outcomes),
                Err(cause) if error::is_of_the_data(&cause) => batch.has_a_fault(part, &cause),
                Err(cause) => return Err(cause),
            }
        }
        Ok(batch.outcomes())
    }

    /// Writes a part, as often as it takes and makes sense.
    async fn write(&mut self, appends: &[&Append]) -> sqlx::Result<Vec<Committed>> {
        let mut tries = Tries::within(self.committers.connector.limit());
        loop {
            let written =
                timeout(tries.left(), self.write_once(appends)).await.unwrap_or_else(|_| Err(error::no_answer()));
            let cause = match written {
                Ok(outcomes) => return Ok(outcomes),
                Err(cause) => cause,
            };
            if error::is_of_the_data(&cause) {
                return Err(cause);
            }
            if !error::is_of_the_moment(&cause) {
                self.committer.connection = None;
            }
            tracing::warn!(error = %cause, committer = self.committer.number, "a commit failed; the batch is written again");
            if error::is_damage(&cause) || !tries.wait().await {
                return Err(cause);
            }
        }
    }

    async fn write_once(&mut self, appends: &[&Append]) -> sqlx::Result<Vec<Committed>> {
        let mut changes = Statistics::default();
        let mut counted = Counted { committer: self.committer.number, slot: self.slot(), changes: &mut changes };
        let connection = self.connection().await?;
        if let [append] = appends
            && append.has_two_fences()
        {
            let won = two_fences::write(connection, &mut counted, append).await?;
            let won = match won {
                Some(key) => Some(key),
                None => written_before(connection, &[(-1, append)]).await?.pop().map(|(_, key)| key),
            };
            self.committers.totals.committed(&changes);
            return Ok(vec![won.map_or(Committed::Conflict, Committed::Written)]);
        }
        let ordered = Ordered::of(appends);
        let mut won = write_fenced(connection, &mut counted, &ordered).await?;
        let names = ordered.names();
        let lost: Vec<(i64, &Append)> =
            names.iter().copied().zip(appends.iter().copied()).filter(|(name, _)| !won.contains_key(name)).collect();
        if !lost.is_empty() {
            won.extend(written_before(connection, &lost).await?);
        }
        self.committers.totals.committed(&changes);
        let outcome = |name| won.get(name).map_or(Committed::Conflict, |key| Committed::Written(*key));
        Ok(names.iter().map(outcome).collect())
    }

    fn slot(&self) -> i64 {
        self.committers.slot.load(Ordering::Relaxed)
    }

    async fn connection(&mut self) -> sqlx::Result<&mut PgConnection> {
        let connection = match self.committer.connection.take() {
            Some(connection) => connection,
            None => self.committers.connector.connect(Purpose::Commit).await?,
        };
        Ok(self.committer.connection.insert(connection))
    }
}

/// Whose counters a committer changes, and what it has changed.
pub(super) struct Counted<'a> {
    pub(super) slot: i64,
    pub(super) committer: i64,
    pub(super) changes: &'a mut Statistics,
}

/// Writes appends in one statement, each if it wins its fence; answers with the executions of those that did, by their names.
pub(super) async fn write_fenced(
    connection: &mut PgConnection,
    counted: &mut Counted<'_>,
    ordered: &Ordered<'_>,
) -> sqlx::Result<BTreeMap<i64, ExecutionKey>> {
    let (statement, values) = ordered.statement(counted.slot, counted.committer);
    let mut won = BTreeMap::new();
    for row in rows(connection, statement, values).await? {
        let (kind, first, second): (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        if kind == WRITTEN {
            won.insert(first, ExecutionKey(second));
        } else {
            let change = usize::try_from(kind).ok().and_then(|change| Change::ALL.get(change));
            let change = change.ok_or_else(|| error::damaged(format!("{kind} is no kind of change")))?;
            counted.changes.add(*change, first.unsigned_abs());
        }
    }
    Ok(won)
}

/// Which of the appends that lost their fence lost it to themselves.
pub(super) async fn written_before(
    connection: &mut PgConnection,
    lost: &[(i64, &Append)],
) -> sqlx::Result<Vec<(i64, ExecutionKey)>> {
    let mut existing = (Vec::new(), Vec::new(), Vec::new());
    let mut new = (Vec::new(), Vec::new(), Vec::new());
    for (name, append) in lost {
        let batch_id = append.batch_id.as_bytes().as_slice();
        match &append.target {
            Target::Existing(key) => {
                existing.0.push(key.0);
                existing.1.push(i64::try_from(append.first_number).expect("an append's numbers were checked"));
                existing.2.push(batch_id);
            }
            Target::New(_) | Target::Replacing(_) => {
                let uid = append.new_execution().map(|execution| execution.uid.0.as_bytes().as_slice());
                new.0.push(*name);
                new.1.push(uid);
                new.2.push(batch_id);
            }
        }
    }
    let mut found = Vec::new();
    if !existing.0.is_empty() {
        let values = Values::default().with(existing.0).with(existing.1).with(existing.2);
        found.extend(rows(connection, before::EXISTING, values).await?);
    }
    if !new.0.is_empty() {
        let values = Values::default().with(new.0).with(new.1).with(new.2);
        found.extend(rows(connection, before::NEW, values).await?);
    }
    found.iter().map(|row| Ok((row.try_get(0)?, ExecutionKey(row.try_get(1)?)))).collect()
}
