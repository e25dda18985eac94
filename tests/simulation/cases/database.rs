//! Nodes on a real database, in time that leaps.
//!
//! Tokio's time is paused, so it goes on at once where nobody has anything to do. A database answers in real time: for as
//! long as a call of it is under way, time stands still. Its own connections and duties live in another runtime, whose
//! time is real.

use super::Nodes;
use crate::postgres;
use orbit::store::{PostgresStore, SqliteStore, Store, postgres::Options as PostgresOptions, sqlite};
use std::sync::Arc;
use tokio::runtime::{Builder, Handle, Runtime};

/// Nodes that a case on PostgreSQL may start, those that die included.
const HANDLES: usize = 5;

/// Runs a case on one node with SQLite.
pub(super) fn on_sqlite<F: Future<Output = ()>>(case: impl FnOnce(Nodes) -> F) {
    let (real, directory) = (real(), tempfile::tempdir().unwrap());
    let path = directory.path().join("orbit.db");
    let open = SqliteStore::open(&path, sqlite::Options::default());
    let store: Arc<dyn Store> = Arc::new(real.block_on(open).unwrap());
    // The next life of the node has the same store: it lets nobody else have its file.
    let again = store.clone();
    run(case, store.clone(), Box::new(move |_| again.clone()), 1);
    real.block_on(store.close()).unwrap();
}

/// Runs a case on two nodes with PostgreSQL.
pub(super) fn on_postgres<F: Future<Output = ()>>(case: impl FnOnce(Nodes) -> F) {
    let real = real();
    let (database, stores) = real.block_on(async {
        let database = postgres::fresh_database().await;
        let mut stores: Vec<Arc<dyn Store>> = Vec::new();
        for _ in 0..=HANDLES {
            stores.push(Arc::new(PostgresStore::open(PostgresOptions::new(database.url())).await.unwrap()));
        }
        (database, stores)
    });
    let handles = stores.clone();
    run(case, stores[HANDLES].clone(), Box::new(move |number| handles[number].clone()), 2);
    for store in stores {
        real.block_on(store.close()).unwrap();
    }
    drop(database);
}

fn real() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn run<F: Future<Output = ()>>(
    case: impl FnOnce(Nodes) -> F,
    store: Arc<dyn Store>,
    open: Box<dyn FnMut(usize) -> Arc<dyn Store>>,
    count: usize,
) {
    let paused = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    paused.block_on(async { case(Nodes::on(store, open, count, true).await).await });
}

/// Time stands still until what this gives is dropped: a blocking task is under way.
pub(super) fn stop_time(handle: &Handle) -> Box<dyn Send> {
    let (end, ended) = std::sync::mpsc::channel::<()>();
    handle.spawn_blocking(move || ended.recv());
    Box::new(end)
}
