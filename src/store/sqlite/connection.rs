//! The connections: one that writes, a few that read.
//!
//! A connection is taken out while it is used and put back only when its work ended cleanly. Whatever else happens (an
//! error in a rollback, a panic, a dropped future), it is closed and the next user opens another one, so nothing can
//! leave a transaction open behind it.

use super::{Options, error};
use crate::store::{
    Change, Error, Statistics,
    sql::{self, Dialect, List, Rows, Value, Values},
    statistics::Totals,
};
use futures_util::future::BoxFuture;
use sqlx::{
    Arguments as _, ConnectOptions as _, Connection as _, SqlSafeStr,
    sqlite::{SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteRow},
};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Notify, Semaphore};

impl sql::Connection for SqliteConnection {
    type Row = SqliteRow;

    const DIALECT: Dialect = Dialect::Sqlite;

    fn rows(&mut self, sql: impl SqlSafeStr, values: Values) -> BoxFuture<'_, sqlx::Result<Vec<SqliteRow>>> {
        Box::pin(sqlx::query_with(sql, arguments(values.0)).fetch_all(self))
    }

    fn rows_of_many(&mut self, statement: &'static Rows, list: List) -> BoxFuture<'_, sqlx::Result<Vec<SqliteRow>>> {
        Box::pin(async move {
            let mut all = Vec::new();
            for (rows, values) in list.pieces() {
                let query = sqlx::query_with(statement.with_values(rows), arguments(values));
                all.extend(query.fetch_all(&mut *self).await?);
            }
            Ok(all)
        })
    }
}

/// Values as SQLite takes them. Places without a value are null, so a list need not be filled up.
fn arguments(values: Vec<Value>) -> SqliteArguments {
    let mut arguments = SqliteArguments::default();
    arguments.reserve(values.len(), 0);
    for value in values {
        let added = match value {
            Value::Integer(value) => arguments.add(value),
            Value::Text(value) => arguments.add(value),
            Value::Bytes(value) => arguments.add(value),
        };
        added.expect("integers, text and bytes always encode");
    }
    arguments
}

/// An open write transaction. Dropped without [`Writer::finish`], it takes its connection with it.
pub(super) struct Transaction {
    connection: SqliteConnection,
    changes: Statistics,
}

impl sql::Connection for Transaction {
    type Row = SqliteRow;

    const DIALECT: Dialect = Dialect::Sqlite;

    fn rows(&mut self, sql: impl SqlSafeStr, values: Values) -> BoxFuture<'_, sqlx::Result<Vec<SqliteRow>>> {
        self.connection.rows(sql, values)
    }

    fn rows_of_many(&mut self, statement: &'static Rows, list: List) -> BoxFuture<'_, sqlx::Result<Vec<SqliteRow>>> {
        self.connection.rows_of_many(statement, list)
    }
}

impl sql::Transaction for Transaction {
    fn run(&mut self, change: Change, sql: impl SqlSafeStr, values: Values) -> BoxFuture<'_, sqlx::Result<u64>> {
        let query = sqlx::query_with(sql, arguments(values.0));
        Box::pin(async move {
            let changed = query.execute(&mut self.connection).await?.rows_affected();
            self.changed(change, changed);
            Ok(changed)
        })
    }

    fn run_many(&mut self, change: Change, statement: &'static Rows, list: List) -> BoxFuture<'_, sqlx::Result<u64>> {
        Box::pin(async move {
            let mut changed = 0;
            for (rows, values) in list.pieces() {
                let query = sqlx::query_with(statement.with_values(rows), arguments(values));
                changed += query.execute(&mut self.connection).await?.rows_affected();
            }
            self.changed(change, changed);
            Ok(changed)
        })
    }

    fn changed(&mut self, change: Change, rows: u64) {
        self.changes.add(change, rows);
    }
}

/// How a transaction failed.
pub(super) enum Unfinished {
    /// Nothing of it was written.
    RolledBack(sqlx::Error),
    /// COMMIT failed: it may be written or not.
    Unclear(sqlx::Error),
}

impl From<Unfinished> for Error {
    fn from(unfinished: Unfinished) -> Self {
        match unfinished {
            Unfinished::RolledBack(cause) | Unfinished::Unclear(cause) => error::from_sqlx(cause),
        }
    }
}

/// The connection that writes.
pub(super) struct Writer {
    options: SqliteConnectOptions,
    connection: Option<SqliteConnection>,
    totals: Arc<Totals>,
    log_grew: Arc<Notify>,
    closed: bool,
}

impl Writer {
    pub(super) fn new(
        options: SqliteConnectOptions,
        connection: SqliteConnection,
        totals: Arc<Totals>,
        log_grew: Arc<Notify>,
    ) -> Self {
        Self { options, connection: Some(connection), totals, log_grew, closed: false }
    }

    /// Opens a transaction that is the only one to write.
    pub(super) async fn begin(&mut self) -> Result<Transaction, Unfinished> {
        if self.closed {
            return Err(Unfinished::RolledBack(sqlx::Error::PoolClosed));
        }
        let begun = async {
            let mut connection = match self.connection.take() {
                Some(connection) => connection,
                None => self.options.connect().await?,
            };
            sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await?;
            Ok(Transaction { connection, changes: Statistics::default() })
        };
        begun.await.map_err(Unfinished::RolledBack)
    }

    /// Commits what went well, rolls back what did not.
    pub(super) async fn finish<T>(
        &mut self,
        mut transaction: Transaction,
        work: sqlx::Result<T>,
    ) -> Result<T, Unfinished> {
        match work {
            Ok(answer) => match sqlx::query("COMMIT").execute(&mut transaction.connection).await {
                Ok(_) => {
                    self.connection = Some(transaction.connection);
                    self.totals.committed(&transaction.changes);
                    self.log_grew.notify_one();
                    Ok(answer)
                }
                Err(cause) => {
                    // Closing rolls back what COMMIT left open, and has done so when it returns.
                    let _ = transaction.connection.close().await;
                    Err(Unfinished::Unclear(cause))
                }
            },
            Err(cause) => {
                // SQLite rolls back by itself after some errors; then there is nothing left to roll back.
                match sqlx::query("ROLLBACK").execute(&mut transaction.connection).await {
                    Ok(_) => self.connection = Some(transaction.connection),
                    Err(_) => drop(transaction.connection.close().await),
                }
                Err(Unfinished::RolledBack(cause))
            }
        }
    }

    /// Moves the log into the database, shortens it to nothing and closes.
    pub(super) async fn close(&mut self) -> sqlx::Result<()> {
        self.closed = true;
        if let Some(mut connection) = self.connection.take() {
            let truncated = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await;
            connection.close().await?;
            truncated?;
        }
        Ok(())
    }
}

/// A connection that reads. Dropped in the middle of its work, it stops the statement that runs.
pub(super) struct Reader {
    connection: SqliteConnection,
    stop: Stop,
}

/// Ends the statement of a connection when it goes; see [`Readers::open`].
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// After how many steps of SQLite's machine a statement looks whether it should stop: some 0.1 ms.
const STEPS_UNTIL_LOOK: i32 = 10_000;

/// The connections that read, at most so many at once; each statement or transaction has an age limit, since the
/// write-ahead log cannot be shortened past the oldest of them.
pub(super) struct Readers {
    options: SqliteConnectOptions,
    idle: Mutex<Vec<Reader>>,
    permits: Semaphore,
    count: u32,
    age_max: Duration,
}

impl Readers {
    pub(super) fn new(connect: SqliteConnectOptions, options: &Options) -> Self {
        Self {
            options: connect,
            idle: Mutex::new(Vec::new()),
            permits: Semaphore::new(options.readers.max(1) as usize),
            count: options.readers.max(1),
            age_max: options.read_age_max,
        }
    }

    async fn open(&self) -> sqlx::Result<Reader> {
        let mut connection = self.options.connect().await?;
        let stopped = Arc::new(AtomicBool::new(false));
        let seen = stopped.clone();
        connection.lock_handle().await?.set_progress_handler(STEPS_UNTIL_LOOK, move || !seen.load(Ordering::Relaxed));
        Ok(Reader { connection, stop: Stop(stopped) })
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Reader>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads with a connection of its own; one statement sees one state of the database.
    pub(super) async fn read<T>(
        &self,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> sqlx::Result<T>,
    ) -> Result<T, Error> {
        let read = async {
            let _permit = self.permits.acquire().await.map_err(|_| sqlx::Error::PoolClosed)?;
            let idle = self.idle().pop();
            let mut reader = match idle {
                Some(reader) => reader,
                None => self.open().await?,
            };
            let answer = work(&mut reader.connection).await?;
            self.idle().push(reader);
            Ok(answer)
        };
        match tokio::time::timeout(self.age_max, read).await {
            Ok(answer) => answer.map_err(error::from_sqlx),
            Err(_) => Err(error::from_sqlx(sqlx::Error::PoolTimedOut)),
        }
    }

    /// Waits for all readers and closes them.
    pub(super) async fn close(&self) {
        if let Ok(all) = self.permits.acquire_many(self.count).await {
            self.permits.close();
            drop(all);
        }
        let idle = std::mem::take(&mut *self.idle());
        for reader in idle {
            let _ = reader.connection.close().await;
            drop(reader.stop);
        }
    }
}
