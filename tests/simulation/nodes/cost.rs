//! What a node asks of a shared store: in the steady state one commit for each step, and no read.

use super::{Node, nodes};
use crate::harness::*;
use orbit::domain::Phase;

const CHAIN: &str = "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1}\n  - {id: b, task: a@1, needs: [a]}\n  - {id: c, task: a@1, needs: [b]}\n";

/// Reads that belong to executions, beside what runs each second.
const READS: [&str; 7] =
    ["execution", "execution_by_request", "load", "load_tail", "newest_numbers", "history", "definition"];

fn cost(node: &Node) -> (usize, Vec<&'static str>) {
    let reads = READS.iter().copied().filter(|read| node.calls_of(read) > 0).collect();
    (node.calls_of("commit"), reads)
}

#[tokio::test(start_paused = true)]
async fn starts_reports_and_hand_offs_are_one_commit_each_and_no_read() {
    let [a, b] = nodes();
    a.deploy("chain", CHAIN).await;
    let mut stream = a.engine.open_stream(a.worker(&["a@1"]).await).await.unwrap();
    stream.granter().grant(10);
    // The pool and the definition are known from then on.
    pass(0.1).await;
    a.start("chain", "warm").await;
    let warm = stream.next().await.unwrap().remove(0);
    b.standing("warm").await;
    a.calls.lock().unwrap().clear();
    for id in ["e", "f", "g"] {
        a.start("chain", id).await;
        for _ in 0..3 {
            let task = stream.next().await.unwrap().remove(0);
            a.report(&task, complete("1")).await;
            stream.granter().grant(1);
        }
    }
    assert_eq!(cost(&a), (12, vec![]));
    // What another node has in memory is as cheap as ever where this one goes on with it.
    a.report(&warm, complete("1")).await;
    assert_eq!(cost(&a), (13, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_read_is_one_look_and_a_wait_one_more_each_second() {
    let [a, _b] = nodes();
    a.deploy("chain", CHAIN).await;
    a.start("chain", "e").await;
    a.calls.lock().unwrap().clear();
    a.phase("e").await;
    assert_eq!((a.calls_of("newest_numbers"), a.calls_of("load"), a.calls_of("load_tail")), (1, 0, 0));
    let before = a.calls_of("newest_numbers");
    assert_eq!(a.wait("e", 10.5).await, Phase::Running);
    let looks = a.calls_of("newest_numbers") - before;
    assert!((11..=13).contains(&looks), "one at the start and at the end, ten between: {looks}");
    assert_eq!(cost(&a), (0, vec!["newest_numbers"]));
}
