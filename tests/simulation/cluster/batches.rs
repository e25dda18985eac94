//! Batches: whoever works on one, each execution is acted on once, and no node's death ends it.

use super::*;
use orbit::domain::{Phase, Rejection};
use orbit::engine::{Error, NewBatch};
use orbit::store::{BatchAction, BatchRow, BatchState};

/// Executions of one batch: several portions.
const COUNT: usize = 100;

const SLEEPER: &str = "steps:\n  - {id: a, sleep: {for: 30d}}\n";

fn terminate(filter: &str) -> NewBatch {
    NewBatch {
        action: BatchAction::Terminate,
        reason: arc("enough"),
        filter: arc(filter),
        executions_max: 0,
        request: None,
    }
}

impl Cluster {
    /// Two nodes and as many executions as a batch has several portions for.
    async fn with_sleepers() -> Self {
        let cluster = Self::new(2).await;
        cluster.nodes[0].deploy("sleeper", SLEEPER).await;
        for number in 0..COUNT {
            cluster.nodes[number % 2].start("sleeper", &format!("e{number}")).await;
        }
        pass(1.0).await;
        cluster
    }

    async fn batch(&self, batch: &BatchRow) -> BatchRow {
        self.memory.batch(batch.id).await.unwrap().unwrap()
    }

    /// Every execution was terminated, with one event.
    async fn all_terminated_once(&self, node: usize) {
        for number in 0..COUNT {
            let ends = |kind: &EventKind| matches!(kind, EventKind::ExecutionTerminated { .. });
            assert_eq!(self.nodes[node].count(&format!("e{number}"), ends).await, 1, "e{number}");
        }
    }
}

fn counts(batch: &BatchRow) -> (u64, u64, u64) {
    (batch.progress.done, batch.progress.skipped, batch.progress.failed)
}

#[tokio::test(start_paused = true)]
async fn a_batch_reaches_what_matches_and_nothing_else() {
    let cluster = Cluster::with_sleepers().await;
    cluster.nodes[0].deploy("other", SLEEPER).await;
    cluster.nodes[0].start("other", "o").await;
    let engine = &cluster.nodes[0].engine;
    let counted = engine.create_batch(terminate("workflow = sleeper AND state = RUNNING"), true).await.unwrap();
    assert_eq!((counted.expected, counted.is_counted), (COUNT as u64, true));
    assert!(cluster.memory.batches(None, 10).await.unwrap().is_empty(), "nothing is stored");

    let batch = engine.create_batch(terminate("workflow = sleeper AND state = RUNNING"), false).await.unwrap();
    assert_eq!((batch.expected, batch.progress.state), (COUNT as u64, BatchState::Running));
    cluster.nodes[1].start("sleeper", "late").await;
    pass(30.0).await;
    let ended = cluster.batch(&batch).await;
    assert_eq!((ended.progress.state, counts(&ended)), (BatchState::Succeeded, (COUNT as u64, 0, 0)));
    assert!(ended.progress.end_time.is_some());
    cluster.all_terminated_once(1).await;
    assert_eq!(cluster.nodes[1].phase("o").await, Phase::Running);
    assert_eq!(cluster.nodes[0].phase("late").await, Phase::Running, "it was started after the batch was made");
}

#[tokio::test(start_paused = true)]
async fn a_batch_goes_on_at_another_node_when_its_own_dies_in_the_middle() {
    let cluster = Cluster::with_sleepers().await;
    // Whoever works on it dies after it has acted on the second portion, and before that is written.
    let died = Arc::new(Mutex::new(None));
    let portions = Arc::new(AtomicUsize::new(0));
    for (number, node) in cluster.nodes.iter().enumerate() {
        let (died, portions) = (died.clone(), portions.clone());
        node.weather(move |call| {
            let mut died = died.lock().unwrap();
            if *died == Some(number) {
                return Fate::Takes(Duration::from_secs(1_000_000_000));
            }
            if died.is_none() && method(&call) == "advance_batch" && portions.fetch_add(1, Ordering::Relaxed) == 1 {
                *died = Some(number);
                return Fate::Takes(Duration::from_secs(1_000_000_000));
            }
            Fate::Works
        });
    }
    let batch = cluster.nodes[0].engine.create_batch(terminate("workflow = sleeper"), false).await.unwrap();
    pass(60.0).await;
    let dead = died.lock().unwrap().expect("one worked on it");
    let ended = cluster.batch(&batch).await;
    // What the dead one had done is answered from what it did.
    assert_eq!((ended.progress.state, counts(&ended)), (BatchState::Succeeded, (COUNT as u64, 0, 0)));
    cluster.all_terminated_once(1 - dead).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_portion_did_before_it_failed_counts_though_it_does_not_match_any_more() {
    let cluster = Cluster::with_sleepers().await;
    // Of the first portion some executions cannot be read, and of the second what was done cannot be written.
    let (reads, writes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for node in &cluster.nodes {
        let (reads, writes) = (reads.clone(), writes.clone());
        node.weather(move |call| match method(&call) {
            "execution" if (10..15).contains(&reads.fetch_add(1, Ordering::Relaxed)) => Fate::FailsBefore,
            "advance_batch" if writes.fetch_add(1, Ordering::Relaxed) == 1 => Fate::FailsBefore,
            _ => Fate::Works,
        });
    }
    let filter = "workflow = sleeper AND state = RUNNING";
    let batch = cluster.nodes[0].engine.create_batch(terminate(filter), false).await.unwrap();
    pass(60.0).await;
    let ended = cluster.batch(&batch).await;
    assert_eq!((ended.progress.state, counts(&ended)), (BatchState::Succeeded, (COUNT as u64, 0, 0)));
    cluster.all_terminated_once(0).await;

    // With a limit, too.
    for number in 0..COUNT {
        cluster.nodes[0].start("sleeper", &format!("again{number}")).await;
    }
    reads.store(0, Ordering::Relaxed);
    let limited = NewBatch { executions_max: 40, ..terminate(filter) };
    let batch = cluster.nodes[0].engine.create_batch(limited, false).await.unwrap();
    pass(60.0).await;
    assert_eq!(counts(&cluster.batch(&batch).await), (40, 0, 0));
    let count = cluster.memory.count().await.unwrap();
    assert_eq!(count.get(&orbit::store::ExecutionState::Running), Some(&(COUNT as u64 - 40)));
}

#[tokio::test(start_paused = true)]
async fn of_two_nodes_that_work_on_one_batch_each_portion_counts_once() {
    let cluster = Cluster::with_sleepers().await;
    // Each write of a portion takes longer than the other node waits.
    for node in &cluster.nodes {
        node.weather(|call| match method(&call) {
            "advance_batch" => Fate::Takes(Duration::from_secs(25)),
            _ => Fate::Works,
        });
    }
    let batch = cluster.nodes[0].engine.create_batch(terminate("workflow = sleeper"), false).await.unwrap();
    pass(600.0).await;
    let ended = cluster.batch(&batch).await;
    assert_eq!((ended.progress.state, counts(&ended)), (BatchState::Succeeded, (COUNT as u64, 0, 0)));
    cluster.all_terminated_once(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_batch_stops_and_tells_what_it_had_done() {
    let cluster = Cluster::with_sleepers().await;
    for node in &cluster.nodes {
        node.weather(|call| match method(&call) {
            "advance_batch" => Fate::Takes(Duration::from_secs(4)),
            _ => Fate::Works,
        });
    }
    let engine = &cluster.nodes[0].engine;
    let batch = engine.create_batch(terminate("workflow = sleeper"), false).await.unwrap();
    pass(3.0).await;
    let cancelled = cluster.nodes[1].engine.cancel_batch(batch.id).await.unwrap();
    assert_eq!(cancelled.progress.state, BatchState::Cancelled);
    pass(60.0).await;
    let ended = cluster.batch(&batch).await;
    assert_eq!((ended.progress.state, counts(&ended)), (BatchState::Cancelled, (32, 0, 0)));
    assert_eq!(ended.progress.end_time, cancelled.progress.end_time);
    let again = engine.cancel_batch(batch.id).await.unwrap();
    assert_eq!(again, ended, "cancelling it again changes nothing");
}

#[tokio::test(start_paused = true)]
async fn what_went_another_way_is_skipped_and_a_limit_is_kept() {
    let cluster = Cluster::with_sleepers().await;
    let engine = &cluster.nodes[0].engine;
    let retry = NewBatch { action: BatchAction::Retry, ..terminate("workflow = sleeper") };
    let batch = engine.create_batch(NewBatch { executions_max: 40, ..retry }, false).await.unwrap();
    pass(30.0).await;
    let ended = cluster.batch(&batch).await;
    assert_eq!((ended.progress.state, counts(&ended)), (BatchState::Succeeded, (0, 40, 0)), "none has failed");

    let cancel = NewBatch { action: BatchAction::Cancel, ..terminate("workflow = sleeper") };
    let batch = engine.create_batch(cancel, false).await.unwrap();
    pass(30.0).await;
    assert_eq!(counts(&cluster.batch(&batch).await), (COUNT as u64, 0, 0));
    assert_eq!(cluster.nodes[1].phase("e0").await, Phase::Cancelled);

    let delete = NewBatch { action: BatchAction::Delete, ..terminate("state = CANCELLED") };
    let batch = engine.create_batch(delete, false).await.unwrap();
    pass(30.0).await;
    assert_eq!(counts(&cluster.batch(&batch).await), (COUNT as u64, 0, 0));
    assert!(matches!(engine.execution(&name("e0")).await, Err(Error::ExecutionNotFound { .. })));
}

#[tokio::test(start_paused = true)]
async fn the_same_request_makes_one_batch() {
    let cluster = Cluster::new(2).await;
    let of = |content: &str| NewBatch { request: Some(request("r", content)), ..terminate("state = RUNNING") };
    let first = cluster.nodes[0].engine.create_batch(of("a"), false).await.unwrap();
    pass(10.0).await;
    let again = cluster.nodes[1].engine.create_batch(of("a"), false).await.unwrap();
    assert_eq!((again.id, again.progress.state), (first.id, BatchState::Succeeded), "it is told as it is now");
    let other = cluster.nodes[1].engine.create_batch(of("b"), false).await;
    assert!(matches!(other, Err(Error::Rejected(Rejection::RequestIdReused))));
    assert_eq!(cluster.memory.batches(None, 10).await.unwrap().len(), 1);
}
