//! Pauses between attempts, whichever node counts them.

use super::*;
use orbit::domain::{Phase, ReportOutcome};

on_one_and_two_nodes!(
    c021_pauses_grow_from_the_first_interval_to_the_longest,
    c023_many_attempts_stay_at_the_longest_pause,
    c025_seventy_attempts_with_jitter_neither_wrap_nor_panic,
    c027_a_herd_that_failed_together_is_spread_also_at_the_longest_pause,
);

async fn deploy(nodes: &Nodes, retry: &str) {
    let lines = format!("tasks: {{a@1: {{}}}}\nsteps:\n  - {{id: a, task: a@1, retry: {{{retry}}}}}\n");
    nodes.next().deploy("retries", &lines).await;
}

/// Fails every attempt; back come the pauses from each failure to the next hand-out.
async fn pauses(nodes: &Nodes, attempts: u32) -> Vec<Duration> {
    let session = nodes.next().worker(&["a@1"]).await;
    let mut task = nodes.task(session).await;
    let mut pauses = Vec::new();
    for attempt in 1..attempts {
        assert_eq!(task.delivery.attempt, attempt);
        assert_eq!(nodes.next().report(&task, fail("NO")).await, ReportOutcome::Accepted);
        let failed = nodes.now();
        task = nodes.task_within(session, Duration::from_secs(120)).await;
        pauses.push(task.delivery.dispatch_time.since(failed));
    }
    assert_eq!(nodes.next().report(&task, fail("NO")).await, ReportOutcome::Accepted);
    assert_eq!(nodes.next().phase("e").await, Phase::Failed);
    pauses
}

fn assert_about(pause: Duration, expected: Duration) {
    assert!(pause >= expected && pause <= expected + HEARD, "{pause:?} instead of {expected:?}");
}

async fn c021_pauses_grow_from_the_first_interval_to_the_longest(nodes: Nodes) {
    deploy(&nodes, "max_attempts: 11, initial_interval: 200ms, backoff_coefficient: 2, max_interval: 1m, jitter: 0")
        .await;
    nodes.next().start("retries", "e").await;
    let mut expected = Duration::from_millis(200);
    for pause in pauses(&nodes, 11).await {
        assert_about(pause, expected.min(Duration::from_secs(60)));
        expected *= 2;
    }
}

async fn c023_many_attempts_stay_at_the_longest_pause(nodes: Nodes) {
    deploy(&nodes, "max_attempts: 80, initial_interval: 1s, backoff_coefficient: 10, max_interval: 20s, jitter: 0")
        .await;
    nodes.next().start("retries", "e").await;
    for pause in &pauses(&nodes, 80).await[2..] {
        assert_about(*pause, Duration::from_secs(20));
    }
}

async fn c025_seventy_attempts_with_jitter_neither_wrap_nor_panic(nodes: Nodes) {
    deploy(&nodes, "max_attempts: 70, initial_interval: 100ms, backoff_coefficient: 2, max_interval: 5s, jitter: 0.5")
        .await;
    nodes.next().start("retries", "e").await;
    for pause in pauses(&nodes, 70).await {
        assert!(pause <= Duration::from_secs(5) + HEARD, "{pause:?}");
    }
}

async fn c027_a_herd_that_failed_together_is_spread_also_at_the_longest_pause(nodes: Nodes) {
    const HERD: usize = 200;
    deploy(&nodes, "max_attempts: 3, initial_interval: 60s, max_interval: 60s, jitter: 0.2").await;
    let session = nodes.next().worker(&["a@1"]).await;
    for number in 0..HERD {
        nodes.next().start("retries", &format!("e{number}")).await;
    }
    let mut tasks = Vec::new();
    while tasks.len() < HERD {
        tasks.extend(nodes.next().poll_for(session, 100, 2.0).await.tasks);
    }
    let mut retry_times = Vec::new();
    for task in &tasks {
        assert_eq!(nodes.next().report(task, fail("DOWN")).await, ReportOutcome::Accepted);
        let events = nodes.next().events(task.execution_id.as_str()).await;
        let Some(EventKind::AttemptFailed { retry_time: Some(time), .. }) = events.last().map(|event| &event.kind)
        else {
            panic!("it is tried again: {events:?}")
        };
        retry_times.push(*time);
    }
    let failed = nodes.now();
    retry_times.sort_unstable();
    let (first, last) = (retry_times[0], retry_times[HERD - 1]);
    assert!(last <= failed + Duration::from_secs(60), "never above the longest");
    assert!(last.since(first) > Duration::from_secs(8), "{:?}", last.since(first));
    let crowd = retry_times.chunk_by(|a, b| b.since(*a) < Duration::from_millis(1)).map(<[_]>::len).max();
    assert!(crowd.unwrap() < 10, "{crowd:?} at once");
}
