//! The connections: one that writes, a few that read.
//!
//! A connection is taken out while it is used and put back only when its work ended cleanly. Whatever else happens (an
//! error in a rollback, a panic, a dropped future), it is closed and the next user opens another one, so nothing can
//! leave a transaction open behind it.

use super::{Options, error};
use crate::store::{Change, Error, Statistics, statistics::Totals};
use futures_util::stream::BoxStream;
use sqlx::{
    Arguments as _, AssertSqlSafe, ConnectOptions as _, Connection as _, SqlSafeStr, SqlStr,
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

/// Values for the places of a statement.
#[derive(Default)]
pub(super) struct Values(SqliteArguments);

impl Values {
    /// Adds the next value.
    pub(super) fn push<T: for<'q> sqlx::Encode<'q, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>>(&mut self, value: T) {
        self.0.add(value).expect("integers, text and bytes always encode");
    }

    /// Adds the next value.
    pub(super) fn with<T: for<'q> sqlx::Encode<'q, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>>(
        mut self,
        value: T,
    ) -> Self {
        self.push(value);
        self
    }

    /// Reads the rows of a statement one by one.
    pub(super) fn stream<'c>(
        self,
        connection: &'c mut SqliteConnection,
        sql: &'static str,
    ) -> BoxStream<'c, sqlx::Result<SqliteRow>> {
        sqlx::query_with(sql, self.0).fetch(connection)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Reads all rows of a statement, which stays prepared.
pub(super) async fn rows(
    connection: &mut SqliteConnection,
    sql: impl SqlSafeStr,
    values: Values,
) -> sqlx::Result<Vec<SqliteRow>> {
    sqlx::query_with(sql, values.0).fetch_all(connection).await
}

/// Reads the only row of a statement, if there is one.
pub(super) async fn row(
    connection: &mut SqliteConnection,
    sql: impl SqlSafeStr,
    values: Values,
) -> sqlx::Result<Option<SqliteRow>> {
    sqlx::query_with(sql, values.0).fetch_optional(connection).await
}

/// An open write transaction. Dropped without [`Writer::finish`], it takes its connection with it.
pub(super) struct Transaction {
    connection: SqliteConnection,
    changes: Statistics,
}

impl Transaction {
    /// Runs a statement and counts the rows that it changed.
    pub(super) async fn run(&mut self, change: Change, sql: impl SqlSafeStr, values: Values) -> sqlx::Result<u64> {
        let done = sqlx::query_with(sql, values.0).execute(&mut self.connection).await?;
        self.changes.add(change, done.rows_affected());
        Ok(done.rows_affected())
    }

    /// Runs a statement whose RETURNING gives a row for each row that it changed.
    pub(super) async fn returning(
        &mut self,
        change: Change,
        sql: impl SqlSafeStr,
        values: Values,
    ) -> sqlx::Result<Vec<SqliteRow>> {
        let rows = rows(&mut self.connection, sql, values).await?;
        self.changes.add(change, rows.len() as u64);
        Ok(rows)
    }

    /// Reads all rows of a statement as this transaction sees them.
    pub(super) async fn rows(&mut self, sql: impl SqlSafeStr, values: Values) -> sqlx::Result<Vec<SqliteRow>> {
        rows(&mut self.connection, sql, values).await
    }

    /// Reads the only row of a statement as this transaction sees it.
    pub(super) async fn row(&mut self, sql: impl SqlSafeStr, values: Values) -> sqlx::Result<Option<SqliteRow>> {
        row(&mut self.connection, sql, values).await
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

/// Begins a transaction that reads, so that several statements see one state of the database.
pub(super) async fn begin_read(connection: &mut SqliteConnection) -> sqlx::Result<()> {
    sqlx::query("BEGIN").execute(connection).await.map(drop)
}

/// Ends it. After an error nothing ends it: the connection is then closed.
pub(super) async fn end_read(connection: &mut SqliteConnection) -> sqlx::Result<()> {
    sqlx::query("COMMIT").execute(connection).await.map(drop)
}

/// SQL that was put together from constant parts.
pub(super) fn made(text: Arc<str>) -> SqlStr {
    AssertSqlSafe(text).into_sql_str()
}
