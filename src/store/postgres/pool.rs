//! The connections that read and write by the way. Commits have their own ([`super::commit`]).
//!
//! - Everything has a time limit, so a network that swallows packets turns into [`Error::Unavailable`] in bounded time.
//! - A connection is taken out while it is used and put back only when its work ended cleanly; whatever else happens, it is
//!   closed. So nothing leaves a transaction open behind it.
//! - No work is broken off when its caller stops waiting: it runs in a task of its own. A statement that is dropped in the
//!   middle would leave its answer, or its transaction, to whoever uses the connection next.

use super::{
    connection::{Connector, Purpose, run},
    error, statements,
    tries::Tries,
};
use crate::store::{
    Change, Error, Statistics,
    sql::{self, Dialect, List, Rows, Values},
    statistics::Totals,
    unbroken::unbroken,
};
use crate::telemetry::{self, Present};
use futures_util::future::BoxFuture;
use sqlx::{
    Connection as _, SqlSafeStr,
    postgres::{PgConnection, PgRow},
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, timeout},
};

/// A connection that was not used for so long is asked whether it still lives: a server that was restarted meanwhile should
/// not cost a caller his answer.
const FRESH: Duration = Duration::from_secs(1);

/// A write transaction.
pub(super) struct Transaction {
    connection: PgConnection,
    changes: Statistics,
}

impl Transaction {
    /// The connection, for statements of this database alone.
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}

impl sql::Connection for Transaction {
    type Row = PgRow;

    const DIALECT: Dialect = Dialect::Postgres;

    fn rows(&mut self, sql: impl SqlSafeStr, values: Values) -> BoxFuture<'_, sqlx::Result<Vec<PgRow>>> {
        self.connection.rows(sql, values)
    }

    fn rows_of_many(&mut self, statement: &'static Rows, list: List) -> BoxFuture<'_, sqlx::Result<Vec<PgRow>>> {
        self.connection.rows_of_many(statement, list)
    }
}

impl sql::Transaction for Transaction {
    fn run(&mut self, change: Change, sql: impl SqlSafeStr, values: Values) -> BoxFuture<'_, sqlx::Result<u64>> {
        let sql = sql.into_sql_str();
        Box::pin(async move {
            let changed = statements::run(&mut self.connection, sql, &values).await?;
            self.changed(change, changed);
            Ok(changed)
        })
    }

    fn run_many(&mut self, change: Change, statement: &'static Rows, list: List) -> BoxFuture<'_, sqlx::Result<u64>> {
        Box::pin(async move {
            let changed = statements::run_many(&mut self.connection, statement, &list).await?;
            self.changed(change, changed);
            Ok(changed)
        })
    }

    fn changed(&mut self, change: Change, rows: u64) {
        self.changes.add(change, rows);
    }
}

/// A connection that nobody uses, and since when.
struct Idle {
    connection: PgConnection,
    since: Instant,
}

/// The right to use one of the connections, counted while it lasts.
struct Turn<'a> {
    _permit: SemaphorePermit<'a>,
    _counted: Present,
}

/// The pool: at most so many connections at once.
pub(super) struct Connections {
    connector: Connector,
    idle: Mutex<Vec<Idle>>,
    permits: Semaphore,
    size: u32,
    totals: Arc<Totals>,
}

impl Connections {
    pub(super) fn new(connector: Connector, size: u32, totals: Arc<Totals>) -> Self {
        let size = size.max(1);
        Self { connector, idle: Mutex::default(), permits: Semaphore::new(size as usize), size, totals }
    }

    /// Reads; each statement sees one state of the database.
    pub(super) async fn read<T, W>(self: &Arc<Self>, work: W) -> Result<T, Error>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, sqlx::Result<T>> + Send + 'static,
    {
        let connections = self.clone();
        let read = unbroken(async move {
            let read = async {
                let (turn, mut connection) = connections.take().await?;
                let answer = work(&mut connection).await?;
                connections.put_back(turn, connection);
                Ok(answer)
            };
            connections.within(connections.connector.limit(), read).await
        });
        read.await.map_err(error::from_sqlx)
    }

    /// Writes in a transaction of its own. What failed because another transaction stood in its way is done again.
    pub(super) async fn write<T, W>(self: &Arc<Self>, work: W) -> Result<T, Error>
    where
        T: Send + 'static,
        W: for<'t> Fn(&'t mut Transaction) -> BoxFuture<'t, sqlx::Result<T>> + Send + Sync + 'static,
    {
        let connections = self.clone();
        let written = unbroken(async move {
            let mut tries = Tries::within(connections.connector.limit());
            loop {
                match connections.within(tries.left(), connections.write_once(&work)).await {
                    Err(cause) if error::is_of_the_moment(&cause) && tries.wait().await => {}
                    answer => return answer,
                }
            }
        });
        written.await.map_err(error::from_sqlx)
    }

    /// As [`write`](Self::write), but tells a fault of what is written from one of the world; nothing was written then.
    pub(super) async fn write_or_fault<T, W>(self: &Arc<Self>, work: W) -> Result<Result<T, sqlx::Error>, Error>
    where
        T: Send + 'static,
        W: for<'t> Fn(&'t mut Transaction) -> BoxFuture<'t, sqlx::Result<T>> + Send + Sync + 'static,
    {
        let connections = self.clone();
        let written = unbroken(async move {
            let mut tries = Tries::within(connections.connector.limit());
            loop {
                match connections.within(tries.left(), connections.write_once(&work)).await {
                    Err(cause) if error::is_of_the_data(&cause) => return Ok(Err(cause)),
                    Err(cause) if error::is_of_the_moment(&cause) && tries.wait().await => {}
                    answer => return answer.map(Ok),
                }
            }
        });
        written.await.map_err(error::from_sqlx)
    }

    async fn write_once<T, W>(&self, work: &W) -> sqlx::Result<T>
    where
        W: for<'t> Fn(&'t mut Transaction) -> BoxFuture<'t, sqlx::Result<T>>,
    {
        let (turn, mut connection) = self.take().await?;
        run(&mut connection, "BEGIN").await?;
        let mut transaction = Transaction { connection, changes: Statistics::default() };
        let answer = work(&mut transaction).await?;
        run(&mut transaction.connection, "COMMIT").await?;
        self.totals.committed(&transaction.changes);
        self.put_back(turn, transaction.connection);
        Ok(answer)
    }

    async fn within<T>(&self, limit: Duration, work: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
        let answer = timeout(limit, work).await.unwrap_or_else(|_| Err(error::no_answer()));
        // Each of the others would be found dead by another caller.
        if answer.as_ref().is_err_and(error::is_of_the_server) {
            self.idle().clear();
        }
        answer
    }

    async fn take(&self) -> sqlx::Result<(Turn<'_>, PgConnection)> {
        let waiting = Present::new(telemetry::DATABASE_WAITING);
        let permit = self.permits.acquire().await.map_err(|_| sqlx::Error::PoolClosed)?;
        drop(waiting);
        let turn = Turn { _permit: permit, _counted: Present::new(telemetry::DATABASE_CONNECTIONS) };
        let idle = self.idle().pop();
        if let Some(Idle { mut connection, since }) = idle {
            if since.elapsed() < FRESH || connection.ping().await.is_ok() {
                return Ok((turn, connection));
            }
            self.idle().clear();
        }
        Ok((turn, self.connector.connect(Purpose::Work).await?))
    }

    fn put_back(&self, turn: Turn<'_>, connection: PgConnection) {
        self.idle().push(Idle { connection, since: Instant::now() });
        drop(turn);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for all that runs and closes the connections.
    pub(super) async fn close(&self) {
        if let Ok(all) = self.permits.acquire_many(self.size).await {
            self.permits.close();
            drop(all);
        }
        let idle = std::mem::take(&mut *self.idle());
        for Idle { connection, .. } in idle {
            let _ = timeout(self.connector.limit(), connection.close()).await;
        }
    }
}
