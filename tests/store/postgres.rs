//! What PostgreSQL alone promises: several nodes write to one database, and none loses, repeats or undoes what another did.

use crate::{OnPostgres, make::*, written};
use futures_util::future::join_all;
use orbit::store::{Append, Committed, ExecutionKey, ExecutionState, Find, ListFilter, PostgresStore, Store};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

async fn two_nodes() -> (OnPostgres, [Arc<PostgresStore>; 2]) {
    let database = OnPostgres::new().await;
    let nodes = [Arc::new(database.another_node().await), Arc::new(database.another_node().await)];
    (database, nodes)
}

/// Appends after what is newest, again and again until it is written; answers with the batch's id.
async fn append_after_the_newest(store: &PostgresStore, key: ExecutionKey) -> uuid::Uuid {
    loop {
        let newest = store.newest_numbers(&[key]).await.unwrap()[0].unwrap();
        let next = append(key, newest + 1, newest + 2);
        let batch_id = next.batch_id;
        match &store.commit(vec![next]).await.unwrap()[..] {
            [Committed::Written(_)] => return batch_id,
            [Committed::Conflict] => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_of_many_nodes_to_one_execution_follow_each_other_without_a_gap() {
    let (database, nodes) = two_nodes().await;
    let key = written(&database.store, start("a", 1)).await;
    let writers = (0..8).map(|writer| {
        let node = nodes[writer % 2].clone();
        tokio::spawn(async move {
            let mut written = Vec::new();
            for _ in 0..25 {
                written.push(append_after_the_newest(&node, key).await);
            }
            written
        })
    });
    let written: BTreeSet<_> = join_all(writers).await.into_iter().flat_map(Result::unwrap).collect();
    let history = database.store.history(key, 2, usize::MAX, usize::MAX).await.unwrap();
    assert_eq!(history.iter().map(|row| row.batch_id).collect::<BTreeSet<_>>(), written);
    assert_eq!((history.len(), written.len()), (200, 200));
    let mut next = 3;
    for row in history {
        assert_eq!((row.first_number, row.last_number), (next, next + 1));
        next += 2;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_starts_of_one_id_on_two_nodes_one_wins() {
    let (database, nodes) = two_nodes().await;
    // Each node's batch has all ids, in another order.
    let batch = |node: usize| {
        let ids = (0..100_usize).map(move |n| if node == 0 { n } else { 99 - n });
        ids.map(move |n| start(&format!("id-{n}"), (1000 * node + n + 1) as u128)).collect::<Vec<_>>()
    };
    let outcomes = join_all([0, 1].map(|node| nodes[node].commit(batch(node)))).await;
    let won = outcomes.into_iter().flat_map(Result::unwrap).filter(|outcome| matches!(outcome, Committed::Written(_)));
    assert_eq!(won.count(), 100);
    assert_eq!(database.store.count().await.unwrap(), [(ExecutionState::Running, 100)].into());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c119_an_execution_that_has_ended_stays_so_whoever_was_late() {
    const EXECUTIONS: usize = 300;
    let (database, nodes) = two_nodes().await;
    let begins = (0..EXECUTIONS).map(|n| start(&format!("e{n}"), n as u128 + 1)).collect();
    let keys: Vec<ExecutionKey> = database.store.commit(begins).await.unwrap().into_iter().map(key_of).collect();
    // One node decides its end, the other one step more, on the same state.
    let ends = keys.iter().map(|key| ending(*key, 3, ExecutionState::Succeeded, 9)).collect();
    let steps = keys.iter().rev().map(|key| {
        let waiting = vec![unit("late", 1, 1)];
        Append { ready_added: waiting, ..append(*key, 3, 3) }
    });
    let (ended, stepped) = tokio::join!(nodes[0].commit(ends), nodes[1].commit(steps.collect()));
    let (ended, mut stepped) = (ended.unwrap(), stepped.unwrap());
    stepped.reverse();
    for ((key, end), step) in keys.iter().zip(ended).zip(stepped) {
        assert_eq!([&end, &step].iter().filter(|outcome| ***outcome == Committed::Conflict).count(), 1);
        let row = database.store.execution(&Find::Key(*key)).await.unwrap().unwrap();
        assert_eq!(row.state.is_closed(), end != Committed::Conflict);
        assert_eq!(row.close_time, row.state.is_closed().then(|| time(9)));
    }
    let running = database.store.count().await.unwrap().get(&ExecutionState::Running).copied().unwrap_or(0);
    assert_eq!(database.store.ready(&pool(), 1000).await.unwrap().len() as u64, running);
}

fn key_of(outcome: Committed) -> ExecutionKey {
    match outcome {
        Committed::Written(key) => key,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_of_several_nodes_add_up() {
    let (database, nodes) = two_nodes().await;
    let writers = (0..8_usize).map(|writer| {
        let node = nodes[writer % 2].clone();
        tokio::spawn(async move {
            for round in 0..10_usize {
                let begins = (0..20).map(|n| {
                    let number = (writer * 1000 + round * 20 + n + 1) as u128;
                    start(&format!("e{number}"), number)
                });
                let keys = node.commit(begins.collect()).await.unwrap().into_iter().map(key_of);
                let to = if round % 2 == 0 { ExecutionState::Failed } else { ExecutionState::Succeeded };
                let ends = keys.take(writer + 1).map(|key| ending(key, 3, to, 9)).collect();
                node.commit(ends)
                    .await
                    .unwrap()
                    .into_iter()
                    .for_each(|outcome| assert!(matches!(outcome, Committed::Written(_))));
            }
        })
    });
    join_all(writers).await.into_iter().for_each(Result::unwrap);
    let mut counted: BTreeMap<ExecutionState, u64> = BTreeMap::new();
    for row in database.store.list(&ListFilter::default(), None, usize::MAX).await.unwrap().rows {
        *counted.entry(row.state).or_default() += 1;
    }
    assert_eq!(counted[&ExecutionState::Failed], 5 * 36);
    assert_eq!(nodes[1].count().await.unwrap(), counted);
}

#[tokio::test]
async fn reads_neither_block_commits_nor_wait_for_them() {
    let database = OnPostgres::new().await;
    let key = written(&database.store, start("a", 1)).await;
    let mut reader = database.foreign().await;
    let mut writer = database.foreign().await;
    sqlx::raw_sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM executions; SELECT * FROM history; SELECT * FROM counters")
        .execute(&mut reader)
        .await
        .unwrap();
    written(&database.store, ending(key, 3, ExecutionState::Succeeded, 9)).await;
    sqlx::raw_sql(
        "BEGIN; UPDATE executions SET wake_time = 1; DELETE FROM counters; LOCK history IN ROW EXCLUSIVE MODE",
    )
    .execute(&mut writer)
    .await
    .unwrap();
    assert_eq!(database.store.list(&ListFilter::default(), None, 10).await.unwrap().rows.len(), 1);
    assert_eq!(database.store.count().await.unwrap(), [(ExecutionState::Succeeded, 1)].into());
    assert_eq!(database.store.load(key).await.unwrap().unwrap().history.len(), 2);
}
