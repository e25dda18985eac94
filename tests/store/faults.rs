//! The test support itself: calls meet the fate that the plan gives them.

use crate::{make::*, written};
use orbit::store::{
    Committed, Error, Faulty, Find, MemoryStore, Store,
    faulty::{Call, Fate},
};
use std::{sync::Arc, time::Duration};

fn on_commits(store: &MemoryStore, fate: Fate) -> Faulty {
    Faulty::new(Arc::new(store.clone()), move |call| match call {
        Call::Commit(batch) if !batch.is_empty() => fate,
        Call::Commit(_) | Call::Write(_) | Call::Read(_) => Fate::Works,
    })
}

#[tokio::test]
async fn a_commit_that_fails_before_its_work_changes_nothing() {
    let store = MemoryStore::new();
    let failed = on_commits(&store, Fate::FailsBefore).commit(vec![start("a", 1)]).await;
    assert!(matches!(failed, Err(Error::Unavailable(_))));
    assert_eq!(store.execution(&Find::Id("a".into())).await.unwrap(), None);
}

#[tokio::test]
async fn a_lost_commit_is_found_when_the_same_batch_comes_again() {
    let store = MemoryStore::new();
    let begin = start("a", 1);
    assert!(on_commits(&store, Fate::FailsAfter).commit(vec![begin.clone()]).await.is_err());
    let key = store.execution(&Find::Id("a".into())).await.unwrap().unwrap().key;
    assert_eq!(on_commits(&store, Fate::Works).commit(vec![begin]).await.unwrap(), [Committed::Written(key)]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_commit_takes_its_time_on_the_paused_clock() {
    let store = MemoryStore::new();
    let begun = tokio::time::Instant::now();
    written(&on_commits(&store, Fate::Takes(Duration::from_secs(6))), start("a", 1)).await;
    assert_eq!(begun.elapsed().as_secs(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_hangs_has_done_its_work() {
    let store = MemoryStore::new();
    let hanging = on_commits(&store, Fate::Hangs);
    let answer = tokio::time::timeout(Duration::from_secs(3600), hanging.commit(vec![start("a", 1)])).await;
    assert!(answer.is_err());
    assert!(store.execution(&Find::Id("a".into())).await.unwrap().is_some());
}

#[tokio::test]
async fn a_read_fails_by_its_name() {
    let faulty = Faulty::new(Arc::new(MemoryStore::new()), |call| match call {
        Call::Read("due") => Fate::FailsBefore,
        Call::Commit(_) | Call::Write(_) | Call::Read(_) => Fate::Works,
    });
    assert!(faulty.due(time(1), 1).await.is_err());
    assert!(faulty.count().await.is_ok());
}
