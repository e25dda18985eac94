//! The database that a command works on by itself: opening it, waiting for it, and what goes wrong with it.

use super::{error::Error, exit::Exit};
use crate::{
    clock::{self, Clock as _, SystemClock},
    config::{Database, Tuning},
    store::{self, PostgresStore, Schema, SqliteStore, Store, postgres, sqlite},
};
use std::{path::PathBuf, sync::Arc, time::Duration};

/// Pause between two tries to reach a database.
const PAUSE: Duration = Duration::from_secs(1);

/// Opens the store that the database is for, and brings its schema up to date.
pub(super) async fn open(database: &Database, tuning: &Tuning) -> Result<Arc<dyn Store>, store::Error> {
    match database {
        Database::Sqlite(path) => {
            let options =
                sqlite::Options { unsafe_without_sync: tuning.unsafe_without_sync, ..sqlite::Options::default() };
            Ok(Arc::new(SqliteStore::open(path, options).await?))
        }
        Database::Postgres(url) => {
            let wanted = &tuning.postgres;
            let options = postgres::Options {
                pool_size: wanted.connections,
                committers: wanted.committers,
                operation_timeout: wanted.timeout,
                unsafe_without_sync: tuning.unsafe_without_sync,
                ..postgres::Options::new(url.driver_url())
            };
            Ok(Arc::new(PostgresStore::open(options).await?))
        }
    }
}

/// Tries until the database answers, at least once and for about `wait`; says on the log that it waits.
///
/// What the database refuses (a wrong password, a newer schema) ends it at once: waiting would not help.
pub(super) async fn patiently<T>(
    database: &Database,
    wait: Duration,
    attempt: impl AsyncFn() -> Result<T, store::Error>,
) -> Result<T, Error> {
    let clock = SystemClock::starting_at(None);
    let until = clock.monotonic() + wait;
    loop {
        let error = match attempt().await {
            Ok(opened) => return Ok(opened),
            Err(error) => error,
        };
        let left = until.saturating_sub(clock.monotonic());
        match &error {
            store::Error::Unavailable(_) if !left.is_zero() => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    %database,
                    left_seconds = left.as_secs(),
                    "the database does not answer; trying again"
                );
            }
            store::Error::Unavailable(_) | store::Error::Damaged { .. } | store::Error::Refused(_) => {
                return Err(failure(database, &error));
            }
        }
        clock::sleep(PAUSE.min(left)).await;
    }
}

/// The schema that a database has, without changing it.
pub(super) async fn schema(database: &Database) -> Result<Schema, Error> {
    let schema = match database {
        Database::Sqlite(path) => SqliteStore::schema(path).await,
        Database::Postgres(url) => PostgresStore::schema(&postgres::Options::new(url.driver_url())).await,
    };
    schema.map_err(|error| failure(database, &error))
}

/// How many executions a database has whose schema is this version's.
pub(super) async fn executions(database: &Database) -> Result<u64, Error> {
    let count = async {
        let store: Arc<dyn Store> = match database {
            Database::Sqlite(path) => Arc::new(SqliteStore::open(path, sqlite::Options::default()).await?),
            Database::Postgres(url) => Arc::new(PostgresStore::open(postgres::Options::new(url.driver_url())).await?),
        };
        let counts = store.count().await?;
        store.close().await?;
        Ok(counts.values().sum())
    };
    count.await.map_err(|error| failure(database, &error))
}

/// Brings the schema of a database up to date; answers with the schema as it was, and the copy that was made before.
pub(super) async fn migrate(database: &Database) -> Result<(Schema, Option<PathBuf>), Error> {
    let done = match database {
        Database::Sqlite(path) => SqliteStore::migrate(path).await,
        Database::Postgres(url) => {
            PostgresStore::migrate(&postgres::Options::new(url.driver_url())).await.map(|found| (found, None))
        }
    };
    done.map_err(|error| failure(database, &error))
}

/// What the user is told: a database that does not answer may answer later, anything else will not.
pub(super) fn failure(database: &Database, error: &store::Error) -> Error {
    let text = with_causes(error);
    match (error, database) {
        (store::Error::Refused(_) | store::Error::Damaged { .. }, _) => Error::failure(text),
        (store::Error::Unavailable(_), _) => Error::Local {
            exit: Exit::Unavailable,
            message: format!("cannot use the database {database}: {text}"),
            hint: match database {
                Database::Sqlite(_) => String::new(),
                Database::Postgres(_) => {
                    "is PostgreSQL running there, does its name resolve, is its port open to this machine?".to_owned()
                }
            },
        },
    }
}

/// The error with its causes, in one sentence. Some errors tell their cause themselves.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    fn unavailable() -> store::Error {
        store::Error::Unavailable(Arc::new(std::io::Error::other("connection refused")))
    }

    #[tokio::test(start_paused = true)]
    async fn a_database_that_comes_late_is_waited_for() {
        let database = "postgres://db/orbit".parse().unwrap();
        let tries = AtomicU32::new(0);
        let attempt = async || match tries.fetch_add(1, Ordering::Relaxed) {
            0..3 => Err(unavailable()),
            _ => Ok(7),
        };
        let opened = patiently(&database, Duration::from_secs(30), attempt).await;
        assert!(matches!(opened, Ok(7)), "{opened:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_database_that_does_not_come_is_unavailable_and_one_that_refuses_is_not_asked_again() {
        let database = "postgres://ada:secret@db/orbit".parse().unwrap();
        let waited = patiently(&database, Duration::ZERO, async || Err::<(), _>(unavailable())).await.unwrap_err();
        assert_eq!(waited.exit(), Exit::Unavailable);
        assert!(!format!("{waited:?}").contains("secret"), "{waited:?}");
        let tries = AtomicU32::new(0);
        let refused = patiently(&database, Duration::from_secs(30), async || {
            tries.fetch_add(1, Ordering::Relaxed);
            Err::<(), _>(store::Error::Refused("it is newer".to_owned()))
        });
        assert_eq!((refused.await.unwrap_err().exit(), tries.into_inner()), (Exit::Failure, 1));
    }
}
