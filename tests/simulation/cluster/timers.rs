//! Timers: each is served once, by whoever is there.

use super::*;
use orbit::domain::Phase;

/// How many seconds after it was due each of these executions, which sleep for `seconds`, has ended.
async fn lags(node: &Node, ids: &[String], seconds: i64) -> Vec<f64> {
    let mut lags = Vec::new();
    for id in ids {
        let events = node.events(id).await;
        let ends = events.iter().filter(|event| matches!(event.kind, EventKind::ExecutionSucceeded { .. }));
        let ends: Vec<_> = ends.collect();
        assert_eq!(ends.len(), 1, "{id} has ended once");
        let due = events[0].time + Duration::from_secs(seconds.unsigned_abs());
        assert!(ends[0].time >= due, "{id} is early");
        lags.push(ends[0].time.since(due).as_secs_f64());
    }
    lags
}

async fn start_all(node: &Node, count: usize, seconds: i64) -> Vec<String> {
    node.deploy("nap", &format!("steps:\n  - {{id: a, sleep: {{for: {seconds}s}}}}\n")).await;
    let ids: Vec<String> = (0..count).map(|number| format!("e{number}")).collect();
    for id in &ids {
        node.start("nap", id).await;
    }
    ids
}

fn longest(lags: &[f64]) -> f64 {
    lags.iter().copied().fold(0.0, f64::max)
}

#[tokio::test(start_paused = true)]
async fn the_node_that_commits_a_near_timer_serves_it_and_the_others_load_nothing() {
    let cluster = Cluster::new(3).await;
    let loads: Vec<_> = cluster.nodes.iter().map(|node| node.count_calls(&["load", "load_tail"])).collect();
    let ids = start_all(&cluster.nodes[0], 100, 4).await;
    pass(8.0).await;
    let loads: Vec<usize> = loads.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    assert_eq!(loads, [0, 0, 0]);
    let lags = lags(&cluster.nodes[0], &ids, 4).await;
    assert!(longest(&lags) < 0.05, "{lags:?}");
}

#[tokio::test(start_paused = true)]
async fn timers_of_later_are_spread_over_the_nodes_and_each_is_loaded_once() {
    let cluster = Cluster::new(3).await;
    let ids = start_all(&cluster.nodes[0], 100, 60).await;
    let loads: Vec<_> = cluster.nodes.iter().map(|node| node.count_calls(&["load", "load_tail"])).collect();
    pass(70.0).await;
    let loads: Vec<usize> = loads.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    assert!(loads[1] > 15 && loads[2] > 15, "they share the work: {loads:?}");
    assert!(loads.iter().sum::<usize>() <= 100, "none is loaded twice: {loads:?}");
    let lags = lags(&cluster.nodes[0], &ids, 60).await;
    assert!(longest(&lags) < 0.2, "{lags:?}");
}

#[tokio::test(start_paused = true)]
async fn timers_of_a_node_that_dies_are_two_seconds_late_at_most() {
    for moment in [0.5, 1.5, 3.9] {
        let cluster = Cluster::new(3).await;
        let ids = start_all(&cluster.nodes[0], 50, 4).await;
        pass(moment).await;
        cluster.nodes[0].kill();
        pass(8.0 - moment).await;
        let lags = lags(&cluster.nodes[1], &ids, 4).await;
        assert!(longest(&lags) <= 2.2, "killed after {moment} s: {lags:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn timers_of_later_are_served_by_those_who_are_left() {
    let cluster = Cluster::new(3).await;
    let ids = start_all(&cluster.nodes[0], 100, 60).await;
    pass(58.0).await;
    cluster.nodes[1].kill();
    cluster.nodes[2].kill();
    pass(8.0).await;
    let lags = lags(&cluster.nodes[0], &ids, 60).await;
    assert!(longest(&lags) <= 3.2, "{lags:?}");
}

#[tokio::test(start_paused = true)]
async fn more_than_a_page_of_another_node_s_timers_does_not_hide_a_node_s_own() {
    let cluster = Cluster::new(2).await;
    let ids = start_all(&cluster.nodes[0], 4_000, 60).await;
    pass(59.0).await;
    // It still counts as live: its rows stand before the other's, and nobody serves them for a while.
    cluster.nodes[1].kill();
    pass(11.0).await;
    let mut lags = lags(&cluster.nodes[0], &ids, 60).await;
    lags.sort_by(f64::total_cmp);
    assert!(lags[1_500] < 0.7, "its own come in time: {}", lags[1_500]);
    assert!(longest(&lags) < 5.0, "and the others soon: {}", longest(&lags));
}

#[tokio::test(start_paused = true)]
async fn a_timer_that_cannot_be_confirmed_is_tried_again() {
    let cluster = Cluster::new(2).await;
    let ids = start_all(&cluster.nodes[0], 40, 20).await;
    let mut failures = 3;
    for node in &cluster.nodes {
        node.weather(move |call| {
            let fails = method(&call) == "still_due" && failures > 0;
            failures -= i32::from(fails);
            if fails { Fate::FailsBefore } else { Fate::Works }
        });
    }
    pass(30.0).await;
    let lags = lags(&cluster.nodes[0], &ids, 20).await;
    assert!(longest(&lags) < 5.0, "{lags:?}");
}

#[tokio::test(start_paused = true)]
async fn an_outage_costs_a_look_a_second_however_many_timers_come_due_in_it() {
    let cluster = Cluster::new(2).await;
    cluster.nodes[0].deploy("nap", "steps:\n  - {id: a, sleep: {for: 20s}}\n").await;
    let ids: Vec<String> = (0..60).map(|number| format!("e{number}")).collect();
    for id in &ids {
        cluster.nodes[0].start("nap", id).await;
        pass(0.05).await;
    }
    pass(14.0).await;
    let mut failures = Vec::new();
    for node in &cluster.nodes {
        let count = Arc::new(AtomicUsize::new(0));
        failures.push(count.clone());
        node.weather(move |call| {
            let fails = method(&call) == "still_due";
            count.fetch_add(usize::from(fails), Ordering::Relaxed);
            if fails { Fate::FailsBefore } else { Fate::Works }
        });
    }
    pass(10.0).await;
    for node in &cluster.nodes {
        node.weather(|_| Fate::Works);
    }
    pass(3.0).await;
    let failures: Vec<usize> = failures.iter().map(|failures| failures.load(Ordering::Relaxed)).collect();
    assert!(failures.iter().all(|failures| (3..=12).contains(failures)), "{failures:?}");
    lags(&cluster.nodes[0], &ids, 20).await;
}

#[tokio::test(start_paused = true)]
async fn a_timer_that_another_node_moved_fires_when_it_is_due_now() {
    let cluster = Cluster::new(2).await;
    cluster.nodes[0]
        .deploy(
            "wait",
            "signals: {go: {}}\nsteps:\n  - {id: a, await: {signal: go, timeout: 5s}}\n  - {id: b, needs: [a], sleep: {for: 8s}}\n",
        )
        .await;
    cluster.nodes[0].start("wait", "e").await;
    pass(2.0).await;
    cluster.nodes[1].signal("e", "go", "1").await.unwrap();
    let loads = cluster.nodes[0].count_calls(&["load", "load_tail"]);
    pass(7.5).await;
    assert_eq!(loads.load(Ordering::Relaxed), 0, "the await's timeout is nothing any more");
    assert_eq!(cluster.nodes[1].phase("e").await, Phase::Running);
    pass(1.0).await;
    assert_eq!(cluster.nodes[1].phase("e").await, Phase::Succeeded);
}
