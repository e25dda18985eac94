//! PostgreSQL: one database, any number of equal nodes.
//!
//! - What is answered as written is on the disk: `synchronous_commit` on each connection, `fsync` looked at.
//! - A batch of appends is one statement ([`commit`]); one committer writes them, or a few at once ([`Options::committers`]).
//! - Everything has a time limit; a connection that failed is closed, and work is never broken off in the middle.
//! - A newer schema, another program's database and a server that cannot keep its word are refused in plain words.

mod append;
mod commit;
mod connection;
mod error;
mod hints;
mod migrate;
mod nodes;
mod open;
mod pool;
mod schedules;
mod statements;
mod store;
#[cfg(test)]
mod tests;
mod tries;

use super::{Error, Opened, Schema, Statistics, statistics::Totals};
use commit::Committers;
use hints::News;
use pool::Connections;
use std::{
    sync::{Arc, atomic::AtomicI64},
    time::Duration,
};

/// How the database is opened. [`Options::new`] is right for a server.
#[derive(Clone)]
pub struct Options {
    /// Address: `postgres://user:password@host:port/database?sslmode=verify-full`.
    pub url: String,
    /// Connections that read and write by the way, at least 1. Default 10; who comes beyond them waits for one. Besides them
    /// a node has one for each committer, one for news and one that listens.
    pub pool_size: u32,
    /// Commits that run at once, at least 1; each has a connection of its own. Default 1, which makes the largest batches;
    /// more help where the disk or a synchronous standby is far away.
    pub committers: u32,
    /// Longest that one statement or transaction, or making a connection, may take. Default 5 s; what takes longer fails with
    /// [`Error::Unavailable`]. The server gives up a statement after four fifths of it.
    pub operation_timeout: Duration,
    /// Does not look whether the server syncs its commits. Only for tests. Default false.
    pub unsafe_without_sync: bool,
}

impl Options {
    /// For a server at this address.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            pool_size: 10,
            committers: 1,
            operation_timeout: Duration::from_secs(5),
            unsafe_without_sync: false,
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the address, which has a password.
        f.debug_struct("Options")
            .field("pool_size", &self.pool_size)
            .field("committers", &self.committers)
            .field("operation_timeout", &self.operation_timeout)
            .field("unsafe_without_sync", &self.unsafe_without_sync)
            .finish_non_exhaustive()
    }
}

/// A store in a PostgreSQL database.
pub struct PostgresStore {
    connections: Arc<Connections>,
    committers: Arc<Committers>,
    news: News,
    /// Of the counters: this node's, once it has one.
    slot: Arc<AtomicI64>,
    totals: Arc<Totals>,
    opened: Opened,
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PostgresStore")
    }
}

impl PostgresStore {
    /// Opens the database, which must exist, and brings its schema up to date.
    ///
    /// [`Error::Refused`] says in plain words what to do something about: no such database or user, a newer version or another
    /// program wrote it, the server does not sync its commits, is too old, or stands behind a pooler that mixes up sessions.
    /// [`Error::Unavailable`]: the server cannot be reached now.
    pub async fn open(options: Options) -> Result<Self, Error> {
        open::open(&options).await
    }

    /// The schema of the database, which may be in use; changes nothing.
    ///
    /// [`Error::Refused`] as for [`PostgresStore::open`], but a newer schema is told as it is.
    pub async fn schema(options: &Options) -> Result<Schema, Error> {
        migrate::schema(options).await
    }

    /// Brings the schema up to date and no more, in one transaction. Answers with the schema as it was.
    ///
    /// [`Error::Refused`] as for [`PostgresStore::open`].
    pub async fn migrate(options: &Options) -> Result<Schema, Error> {
        migrate::alone(options).await
    }

    /// What has been written since the store was opened.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.totals.read()
    }
}
