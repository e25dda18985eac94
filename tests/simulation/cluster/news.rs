//! Hints between nodes: what they save, and that nothing depends on them.

use super::*;
use orbit::store::Hints;

/// How long it takes until a poll at one node gets a task of an execution that is started at another.
async fn time_to_task(cluster: &Cluster, id: &str) -> Duration {
    let session = cluster.nodes[1].worker(&["a@1"]).await;
    let engine = cluster.nodes[1].engine.clone();
    let poll = tokio::spawn(async move { engine.poll(session, 1, Duration::from_secs(30)).await.unwrap() });
    pass(0.5).await;
    let began = tokio::time::Instant::now();
    cluster.nodes[0].start("one", id).await;
    assert_eq!(poll.await.unwrap().tasks.len(), 1);
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_worker_at_one_node_gets_what_another_node_made_ready_at_once() {
    let cluster = Cluster::new(2).await;
    cluster.nodes[0].deploy("one", ONE_TASK).await;
    for number in 0..20 {
        let took = time_to_task(&cluster, &format!("e{number}")).await;
        assert!(took < Duration::from_millis(50), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn news_that_is_lost_costs_a_second() {
    let cluster = Cluster::new(2).await;
    cluster.nodes[0].deploy("one", ONE_TASK).await;
    cluster.nodes[0].fails(&["publish"]);
    for number in 0..20 {
        let took = time_to_task(&cluster, &format!("e{number}")).await;
        assert!(took <= Duration::from_millis(1_050), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn news_that_is_old_or_wrong_or_comes_twice_does_no_harm() {
    let cluster = Cluster::new(2).await;
    cluster.nodes[0].deploy("one", ONE_TASK).await;
    let session = cluster.nodes[1].worker(&["a@1"]).await;
    cluster.nodes[0].start("one", "e").await;
    let key = cluster.memory.execution(&orbit::store::Find::Id(arc("e"))).await.unwrap().unwrap().key;
    let stranger = cluster.memory.another_node(99);
    for number in [0, 1, 999] {
        let hints = Hints {
            queues: [arc("default"), arc("no such queue")].into(),
            executions: [(key, number), (orbit::store::ExecutionKey(777), 5)].into(),
        };
        stranger.publish(&hints).await.unwrap();
        stranger.publish(&hints).await.unwrap();
    }
    pass(0.1).await;
    let task = cluster.nodes[1].task(session).await;
    assert_eq!(cluster.nodes[1].report(&task, complete("1")).await, orbit::domain::ReportOutcome::Accepted);
    assert_eq!(cluster.nodes[0].phase("e").await, orbit::domain::Phase::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_told_while_a_node_is_alone_and_at_most_a_hundred_times_a_second_otherwise() {
    let mut cluster = Cluster::new(1).await;
    cluster.nodes[0].deploy("one", ONE_TASK).await;
    let published = cluster.nodes[0].count_calls(&["publish"]);
    for number in 0..50 {
        cluster.nodes[0].start("one", &format!("alone-{number}")).await;
    }
    pass(1.0).await;
    assert_eq!(published.load(Ordering::Relaxed), 0);
    cluster.join(cluster.nodes[0].now());
    pass(2.5).await;
    for number in 0..1_000 {
        cluster.nodes[0].start("one", &format!("both-{number}")).await;
        pass(0.001).await;
    }
    let published = published.load(Ordering::Relaxed);
    assert!((10..=120).contains(&published), "{published} in about a second");
}
