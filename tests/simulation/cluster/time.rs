//! Clocks that are minutes apart, and nodes that were away: neither kills what lives.

use super::*;
use orbit::domain::StepState;

const MINUTES: Duration = Duration::from_secs(300);

/// Two nodes, with a worker whose task one of them watches; then a third joins whose clock is minutes off.
async fn joined_by(now: impl Fn(Timestamp) -> Timestamp) {
    let mut cluster = Cluster::new(2).await;
    let node = &cluster.nodes[0];
    node.deploy("plain", ONE_TASK).await;
    node.deploy(
        "beats",
        "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1, heartbeat_timeout: 3m, retry: {max_attempts: 1}}\n",
    )
    .await;
    let session = node.worker(&["a@1"]).await;
    for (workflow, id) in [("plain", "held"), ("beats", "beating")] {
        node.start(workflow, id).await;
    }
    let old = node.poll(session).await;
    assert_eq!(old.len(), 2);
    for round in 0..4 {
        cluster.nodes[round % 2].heartbeat(session, old.iter().map(listed).collect()).await;
        pass(10.0).await;
    }
    cluster.nodes[0].start("plain", "fresh").await;
    let fresh = cluster.nodes[0].task(session).await;
    let all: Vec<&Task> = old.iter().chain([&fresh]).collect();
    cluster.nodes[1].heartbeat(session, all.iter().map(|task| beat(task)).collect()).await;
    let other = cluster.nodes[1].worker(&["b@1"]).await;

    let third = cluster.join(now(cluster.nodes[0].now()));
    pass(3.0).await;
    let times: Vec<Timestamp> = cluster.nodes.iter().map(|node| node.now()).collect();
    let spread = times.iter().max().unwrap().since(*times.iter().min().unwrap());
    assert!(spread <= Duration::from_secs(1), "they go by one time soon: {times:?}");
    // For two minutes and a half the worker lists its tasks and beats for none: no heartbeat timeout has passed.
    for round in 0..15 {
        pass(10.0).await;
        let node = &cluster.nodes[round % 3];
        node.heartbeat(session, all.iter().map(|task| listed(task)).collect()).await;
        node.heartbeat(other, Vec::new()).await;
    }
    for id in ["held", "beating", "fresh"] {
        let node = &cluster.nodes[third];
        assert_eq!(node.step(id, "a").await, StepState::Running, "{id}");
        assert_eq!(node.count(id, |kind| matches!(kind, EventKind::DeliveryEnded { .. })).await, 0, "{id}");
    }
    for id in [session, other] {
        assert!(cluster.memory.session(id).await.unwrap().is_some());
    }
    // And what is really missed is noticed.
    for round in 0..5 {
        cluster.nodes[round % 3].heartbeat(session, vec![listed(&fresh)]).await;
        pass(10.0).await;
    }
    assert_eq!(cluster.nodes[0].count("held", ended(EndReason::NotListed)).await, 1);
    assert!(cluster.memory.session(other).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn c121_a_node_whose_clock_is_minutes_ahead_takes_nobody_for_dead() {
    joined_by(|now| now + MINUTES).await;
}

#[tokio::test(start_paused = true)]
async fn c121_a_node_whose_clock_is_minutes_behind_takes_nobody_for_dead() {
    joined_by(|now| now - MINUTES).await;
}

#[tokio::test(start_paused = true)]
async fn c121_contacts_that_a_node_with_a_clock_ahead_wrote_do_not_hide_later_ones() {
    let mut cluster = Cluster::new(1).await;
    let session = cluster.nodes[0].worker(&["a@1"]).await;
    let ahead = cluster.join(cluster.nodes[0].now() + MINUTES);
    // It writes the contact by its own time, before the first one knows of that.
    cluster.nodes[ahead].heartbeat(session, Vec::new()).await;
    pass(1.2).await;
    cluster.nodes[ahead].kill();
    for _ in 0..12 {
        cluster.nodes[0].heartbeat(session, Vec::new()).await;
        pass(10.0).await;
    }
    assert!(cluster.memory.session(session).await.unwrap().is_some());
}

/// A node in a runtime of its own, which is stopped while it is not run.
struct Stoppable {
    runtime: tokio::runtime::Runtime,
    node: Node,
}

impl Stoppable {
    fn start(memory: &MemoryStore, number: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let node = runtime.block_on(async { Node::start(memory, number, START) });
        Self { runtime, node }
    }

    fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// It was stopped for so long: everything that it slept for is over at once.
    fn thaws_after(&self, seconds: u64) {
        self.runtime.block_on(tokio::time::advance(Duration::from_secs(seconds)));
    }
}

/// Both nodes live on for so long, a fifth of a second each in turn.
fn together(nodes: &[&Stoppable], seconds: f64) {
    let steps = (seconds * 5.0) as u32;
    for _ in 0..steps {
        for node in nodes {
            node.run(pass(0.2));
        }
    }
}

#[test]
fn a_node_that_was_stopped_for_minutes_kills_nobody_when_it_goes_on() {
    let memory = MemoryStore::shared();
    let (first, second) = (Stoppable::start(&memory, 0), Stoppable::start(&memory, 1));
    together(&[&first, &second], 15.0);
    first.run(first.node.deploy("one", ONE_TASK));
    let session = first.run(first.node.worker(&["a@1"]));
    // Its only heartbeats go to the node that is stopped with it.
    let local = second.run(second.node.worker(&["b@1"]));
    for id in ["held", "local"] {
        first.run(first.node.start("one", id));
    }
    let tasks = first.run(first.node.poll(session));
    for _ in 0..4 {
        first.run(first.node.heartbeat(session, tasks.iter().map(listed).collect()));
        second.run(second.node.heartbeat(local, Vec::new()));
        together(&[&first, &second], 10.0);
    }
    // The second is stopped for two minutes; the first goes on, and so does its worker.
    for _ in 0..12 {
        first.run(first.node.heartbeat(session, tasks.iter().map(listed).collect()));
        first.run(first.node.heartbeat(local, Vec::new()));
        together(&[&first], 10.0);
    }
    second.thaws_after(120);
    together(&[&first, &second], 5.0);
    for _ in 0..6 {
        second.run(second.node.heartbeat(session, tasks.iter().map(listed).collect()));
        second.run(second.node.heartbeat(local, Vec::new()));
        together(&[&first, &second], 10.0);
    }
    for id in ["held", "local"] {
        let ends = first.run(first.node.count(id, |kind| matches!(kind, EventKind::DeliveryEnded { .. })));
        assert_eq!(ends, 0, "{id}");
    }
    for session in [session, local] {
        assert!(first.run(memory.session(session)).unwrap().is_some());
    }
}

#[test]
fn a_cluster_that_was_stopped_as_a_whole_kills_nobody_when_it_goes_on() {
    let memory = MemoryStore::shared();
    let (first, second) = (Stoppable::start(&memory, 0), Stoppable::start(&memory, 1));
    together(&[&first, &second], 40.0);
    first.run(first.node.deploy("one", ONE_TASK));
    let session = first.run(first.node.worker(&["a@1"]));
    first.run(first.node.start("one", "e"));
    let task = first.run(first.node.task(session));
    first.run(first.node.heartbeat(session, vec![listed(&task)]));
    together(&[&first, &second], 2.0);
    first.thaws_after(600);
    second.thaws_after(600);
    together(&[&first, &second], 8.0);
    for round in 0..6 {
        let node = [&first, &second][round % 2];
        node.run(node.node.heartbeat(session, vec![listed(&task)]));
        together(&[&first, &second], 10.0);
    }
    let ends = first.run(first.node.count("e", |kind| matches!(kind, EventKind::DeliveryEnded { .. })));
    assert_eq!(ends, 0);
}
