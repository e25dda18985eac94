//! How connections are made: whole or not at all. One that is there is durable, of a server that can be written to, and has
//! its limits set.

use super::{Options, error};
use crate::store::Error;
use sqlx::{
    Arguments as _, AssertSqlSafe, ConnectOptions as _, PgPool, Row as _, SqlSafeStr,
    postgres::{PgArguments, PgConnectOptions, PgConnection, PgPoolOptions, PgRow},
};
use std::time::Duration;
use tokio::time::timeout;

/// The oldest server that is known to work: the one of the clauses that are used (2021).
const SERVER_VERSION_MIN: u32 = 140_000;

/// How long the server keeps a transaction whose node says nothing. A node that was stopped or cut off in the middle of a
/// transaction keeps its rows from others for so long.
const IDLE_IN_TRANSACTION_MAX: Duration = Duration::from_secs(2);

/// How long a statement waits for a row that another transaction holds: the longest that one can be held.
const LOCK_WAIT_MAX: Duration = IDLE_IN_TRANSACTION_MAX;

/// Prepared statements that a connection keeps.
const STATEMENTS_MAX: usize = 256;

/// Values for the places of a statement.
#[derive(Default)]
pub(super) struct Values(PgArguments);

impl Values {
    /// Adds the next value.
    pub(super) fn push<'v, T: sqlx::Encode<'v, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>>(&mut self, value: T) {
        self.0.add(value).expect("integers, text, bytes and lists of them always encode");
    }

    /// Adds the next value.
    pub(super) fn with<'v, T: sqlx::Encode<'v, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>>(
        mut self,
        value: T,
    ) -> Self {
        self.push(value);
        self
    }

    /// Runs a statement in an open transaction that stays prepared nowhere.
    pub(super) async fn execute_once(self, connection: &mut PgConnection, sql: impl SqlSafeStr) -> sqlx::Result<()> {
        sqlx::query_with(sql, self.0).persistent(false).execute(connection).await.map(drop)
    }

    /// Runs a statement, which stays prepared; answers how many rows it changed.
    pub(super) async fn execute(self, connection: &mut PgConnection, sql: impl SqlSafeStr) -> sqlx::Result<u64> {
        Ok(sqlx::query_with(sql, self.0).execute(connection).await?.rows_affected())
    }
}

/// Reads all rows of a statement, which stays prepared.
pub(super) async fn rows(
    connection: &mut PgConnection,
    sql: impl SqlSafeStr,
    values: Values,
) -> sqlx::Result<Vec<PgRow>> {
    sqlx::query_with(sql, values.0).fetch_all(connection).await
}

/// Reads the only row of a statement, if there is one.
pub(super) async fn row(
    connection: &mut PgConnection,
    sql: impl SqlSafeStr,
    values: Values,
) -> sqlx::Result<Option<PgRow>> {
    sqlx::query_with(sql, values.0).fetch_optional(connection).await
}

/// Runs text that takes no values and answers with nothing.
pub(super) async fn run(connection: &mut PgConnection, sql: impl SqlSafeStr) -> sqlx::Result<()> {
    sqlx::raw_sql(sql).execute(connection).await.map(drop)
}

/// Reads all rows of text that takes no values and stays prepared nowhere, so that it works behind every kind of pooler.
pub(super) async fn rows_once(connection: &mut PgConnection, sql: impl SqlSafeStr) -> sqlx::Result<Vec<PgRow>> {
    sqlx::raw_sql(sql).fetch_all(connection).await
}

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// Reads and writes by the way; what it commits is durable.
    Work,
    /// Commits batches.
    Commit,
    /// News for other nodes, which may be lost: its commits wait for no disk.
    News,
    /// Brings the schema up to date, however long that takes; [set up](Connector::set_up) once it is in its transaction.
    Migration,
}

/// Makes connections.
#[derive(Clone)]
pub(super) struct Connector {
    options: PgConnectOptions,
    limit: Duration,
    may_lose: bool,
}

impl Connector {
    pub(super) fn new(options: &Options) -> Result<Self, Error> {
        let is_ours = ["postgres://", "postgresql://"].iter().any(|scheme| options.url.starts_with(scheme));
        let parsed = if is_ours { options.url.parse() } else { Err(error::refusal("another kind of address")) };
        let connect: PgConnectOptions = parsed.map_err(|cause| {
            Error::Refused(format!(
                "this is no address of a PostgreSQL database (postgres://user@host/database): {cause}"
            ))
        })?;
        // The first is not known to connection poolers, and nothing here is a floating-point number.
        let application = connect.get_application_name().unwrap_or("orbit").to_owned();
        let connect = connect
            .extra_float_digits(None)
            .application_name(&application)
            .statement_cache_capacity(STATEMENTS_MAX)
            .disable_statement_logging();
        Ok(Self { options: connect, limit: options.operation_timeout, may_lose: options.unsafe_without_sync })
    }

    /// The longest that anything may take.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Makes a connection, or fails in bounded time.
    pub(super) async fn connect(&self, purpose: Purpose) -> sqlx::Result<PgConnection> {
        timeout(self.limit, async {
            let mut connection = self.options.connect().await?;
            if purpose != Purpose::Migration {
                self.set_up(&mut connection, purpose).await?;
            }
            Ok(connection)
        })
        .await
        .unwrap_or_else(|_| Err(error::no_answer()))
    }

    /// A pool of one such connection, for what sqlx does with a pool only.
    pub(super) fn pool_of_one(&self, purpose: Purpose) -> PgPool {
        let connector = self.clone();
        PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(self.limit)
            .max_lifetime(None)
            .idle_timeout(None)
            .after_connect(move |connection, _| {
                let connector = connector.clone();
                Box::pin(async move { connector.set_up(connection, purpose).await })
            })
            .connect_lazy_with(self.options.clone())
    }

    /// Sets the limits of a session and looks whether the server keeps what it acknowledges, in one statement. At each new
    /// connection, since the server may have been restarted with other settings, or be another one.
    pub(super) async fn set_up(&self, connection: &mut PgConnection, purpose: Purpose) -> sqlx::Result<()> {
        let (statement, lock) = match purpose {
            Purpose::Migration => (Duration::ZERO, self.limit),
            // The server has given up a statement before its node does: what was given up does not run on.
            Purpose::Work | Purpose::Commit | Purpose::News => {
                (self.limit * 4 / 5, LOCK_WAIT_MAX.min(self.limit * 2 / 5))
            }
        };
        let durability = match purpose {
            Purpose::News => "'off'",
            // Weaker than `on` is a commit that one server's death loses.
            Purpose::Work | Purpose::Commit | Purpose::Migration => {
                "CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END"
            }
        };
        // Whatever a statement looks for, it finds by a key, or walks an index in the order in which it answers. So its plan does
        // not depend on values: it is made once, which for a batch takes longer than to run it. Nor should it depend on how large
        // a table is that day: to read all of something is right only while that is nearly nothing, and the plan lives on.
        let plans = match purpose {
            Purpose::Commit | Purpose::Work => {
                "set_config('plan_cache_mode', 'force_generic_plan', false), set_config('enable_seqscan', 'off', false), \
                 set_config('enable_bitmapscan', 'off', false), set_config('random_page_cost', '1.1', false), \
                 set_config('max_parallel_workers_per_gather', '0', false),"
            }
            Purpose::News | Purpose::Migration => "",
        };
        let joins = match purpose {
            // Reads go from each row to the next table's by its key. A batch puts its lists together, which have none.
            Purpose::Work => {
                "set_config('enable_hashjoin', 'off', false), set_config('enable_mergejoin', 'off', false),"
            }
            Purpose::Commit | Purpose::News | Purpose::Migration => "",
        };
        // Behind a pooler the session of a migration may be another client's afterwards.
        let local = purpose == Purpose::Migration;
        // The keepalives free what a node that was cut off holds, once its machine no longer answers.
        let sql = format!(
            "SELECT set_config('statement_timeout', '{}', {local}), set_config('lock_timeout', '{}', {local}), \
             set_config('idle_in_transaction_session_timeout', '{}', {local}), set_config('synchronous_commit', {durability}, {local}), \
             set_config('default_transaction_isolation', 'read committed', {local}), {plans} {joins} \
             set_config('jit', 'off', {local}), set_config('tcp_keepalives_idle', '5', {local}), \
             set_config('tcp_keepalives_interval', '2', {local}), set_config('tcp_keepalives_count', '3', {local}), \
             current_setting('server_version_num') AS version, current_setting('fsync') AS fsync, \
             current_setting('full_page_writes') AS whole_pages, current_setting('server_encoding') AS encoding, \
             current_setting('transaction_read_only') AS read_only",
            statement.as_millis(),
            lock.as_millis(),
            IDLE_IN_TRANSACTION_MAX.as_millis(),
        );
        let server = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(connection).await?;
        self.demand(&server)
    }

    /// Refuses a server that cannot keep what it acknowledges.
    fn demand(&self, server: &PgRow) -> sqlx::Result<()> {
        let version = server.try_get::<&str, _>("version")?;
        if version.parse().is_ok_and(|version: u32| version < SERVER_VERSION_MIN) {
            let major = version.get(..version.len().saturating_sub(4)).unwrap_or(version);
            return Err(error::refusal(format!("the server is PostgreSQL {major}; version 14 or newer is needed")));
        }
        let encoding = server.try_get::<&str, _>("encoding")?;
        if encoding != "UTF8" {
            return Err(error::refusal(format!(
                "the database's encoding is {encoding}; create it with the encoding UTF8"
            )));
        }
        for setting in ["fsync", "whole_pages"] {
            if server.try_get::<&str, _>(setting)? != "on" && !self.may_lose {
                let name = if setting == "fsync" { setting } else { "full_page_writes" };
                return Err(error::refusal(format!(
                    "the server runs with {name}=off, so a power loss would lose acknowledged work or the whole database"
                )));
            }
        }
        // The next connection may lead to the one that has taken over, so this is no refusal.
        if server.try_get::<&str, _>("read_only")? == "on" {
            return Err(sqlx::Error::Io(std::io::Error::other(
                "the server is a standby or read-only: it takes no writes",
            )));
        }
        Ok(())
    }
}
