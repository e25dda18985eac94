//! What every store promises, on each of them; and what SQLite and PostgreSQL each promise alone.
//!
//! A case is a function over any store; [`on_every_store`] makes a test of it for each. `differential` runs one random
//! history over all of them and compares every answer (`SEED=… cargo test --test store` replays one).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod appends;
mod batches;
mod commits;
mod definitions;
mod differential;
mod faults;
mod line;
mod make;
mod old_reader;
mod pooler;
mod postgres;
mod postgres_faults;
#[path = "../support/postgres.rs"]
mod postgres_server;
mod postgres_start;
mod reads;
mod replace;
mod retention;
mod schedules;
mod sessions;
mod sqlite;

use orbit::store::{PostgresStore, SqliteStore, Store, postgres::Options as PostgresOptions, sqlite::Options};

/// A SQLite store in a directory of its own, which goes with it.
struct Temporary {
    store: SqliteStore,
    directory: tempfile::TempDir,
}

async fn temporary() -> Temporary {
    temporary_with(Options::default()).await
}

async fn temporary_with(options: Options) -> Temporary {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&directory.path().join("orbit.db"), options).await.unwrap();
    Temporary { store, directory }
}

impl Temporary {
    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("orbit.db")
    }
}

/// A PostgreSQL store in a database of its own, which goes with it.
struct OnPostgres {
    store: PostgresStore,
    database: postgres_server::Database,
}

impl OnPostgres {
    async fn new() -> Self {
        let database = postgres_server::fresh_database().await;
        let store = PostgresStore::open(PostgresOptions::new(database.url())).await.unwrap();
        Self { store, database }
    }

    /// A connection of another program, which knows nothing of ours.
    async fn foreign(&self) -> sqlx::PgConnection {
        <sqlx::PgConnection as sqlx::Connection>::connect(&self.database.url()).await.unwrap()
    }

    /// Another node on the same database.
    async fn another_node(&self) -> PostgresStore {
        PostgresStore::open(PostgresOptions::new(self.database.url())).await.unwrap()
    }
}

/// Makes a test on each store of each case: `async fn(&dyn Store)`.
macro_rules! on_every_store {
    ($($case:ident),+ $(,)?) => {
        mod on_memory {
            $(#[tokio::test]
            async fn $case() {
                super::$case(&orbit::store::MemoryStore::new()).await;
            })+
        }
        mod on_sqlite {
            $(#[tokio::test]
            async fn $case() {
                let temporary = crate::temporary().await;
                super::$case(&temporary.store).await;
                orbit::store::Store::close(&temporary.store).await.unwrap();
            })+
        }
        mod on_postgres {
            $(#[tokio::test]
            async fn $case() {
                let on_postgres = crate::OnPostgres::new().await;
                super::$case(&on_postgres.store).await;
                orbit::store::Store::close(&on_postgres.store).await.unwrap();
            })+
        }
    };
}
pub(crate) use on_every_store;

/// Commits one append and expects it to be written.
async fn written(store: &dyn Store, append: orbit::store::Append) -> orbit::store::ExecutionKey {
    match &store.commit(vec![append]).await.unwrap()[..] {
        [orbit::store::Committed::Written(key)] => *key,
        other => panic!("not written: {other:?}"),
    }
}
