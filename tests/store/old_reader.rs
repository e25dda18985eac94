//! A transaction that somebody left open: dead rows of the queue cannot be removed while it is.

#![allow(clippy::disallowed_methods, reason = "a database is watched in real time")]

use crate::{OnPostgres, make::*, written};
use orbit::store::{Append, ExecutionKey, PostgresStore, Store};
use sqlx::Executor as _;
use std::time::{Duration, Instant};

/// Units that wait and are taken while the transaction is open: 25 s of 800 a second.
const UNITS: u64 = 20_000;
/// Units of one commit.
const BATCH: u64 = 500;
/// Units that wait all the time.
const BACKLOG: u64 = 300;
/// Longest median of a claim's read while the transaction is open. Each read passes all that died since, at about a
/// microsecond each; a machine that does other things at once gets some more.
const CLAIM_MAX: Duration = Duration::from_millis(100);

/// Units wait and are taken, oldest first; `BACKLOG` of them always wait.
async fn churn(store: &PostgresStore, key: ExecutionKey, number: &mut u64, units: u64) {
    for _ in 0..units / BATCH {
        let first = *number - 2;
        let added = (first..first + BATCH).map(|n| unit(&format!("u{n}"), 3, n.try_into().unwrap())).collect();
        let removed = (first..first + BATCH)
            .filter_map(|n| n.checked_sub(BACKLOG).filter(|n| *n > 0).map(|n| format!("u{n}").into()))
            .collect();
        let change = Append { ready_added: added, ready_removed: removed, ..append(key, *number, *number + BATCH - 1) };
        written(store, change).await;
        *number += BATCH;
    }
}

/// Median time of the read that a claim begins with.
async fn claim(store: &PostgresStore) -> Duration {
    let mut times = Vec::new();
    for _ in 0..21 {
        let begin = Instant::now();
        let rows = store.ready(&pool(), 256).await.unwrap();
        times.push(begin.elapsed());
        assert_eq!(rows.len(), 256, "a backlog waits");
    }
    times.sort();
    times[times.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
async fn c103_an_old_transaction_slows_claims_within_bounds_and_they_recover_when_it_ends() {
    let database = OnPostgres::new().await;
    let store = &database.store;
    let key = written(store, start("a", 1)).await;
    let mut number = 3;
    churn(store, key, &mut number, 2 * BATCH).await;
    let before = claim(store).await;

    let mut reader = database.foreign().await;
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    reader.execute("SELECT count(*) FROM ready").await.unwrap();
    let mut worst = Duration::ZERO;
    for _ in 0..10 {
        churn(store, key, &mut number, UNITS / 10).await;
        worst = worst.max(claim(store).await);
    }
    reader.execute("COMMIT").await.unwrap();

    // Nobody restarts or vacuums anything by hand: the next reads mark what is dead, and go past it no more.
    let begin = Instant::now();
    let after = loop {
        churn(store, key, &mut number, BATCH).await;
        let after = claim(store).await;
        if after <= 2 * before + Duration::from_millis(1) {
            break after;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "claims take {after:?}, before it were {before:?}");
    };
    println!(
        "a claim's read took {before:?} before, at most {worst:?} with {UNITS} dead units, and {after:?} again after {:?}",
        begin.elapsed()
    );
    assert!(worst <= CLAIM_MAX, "{worst:?}");
}
