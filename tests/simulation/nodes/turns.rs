//! What a node answers of an execution that another node has changed since.

use super::{Node, ONE_TASK, OPEN, nodes};
use crate::harness::*;
use orbit::domain::{Phase, Rejection, ReportOutcome};
use orbit::engine::{Error, IdReuse, StartExecution};
use orbit::store::{
    Store,
    faulty::{Call, Fate},
};
use std::time::Duration;

/// Hints never arrive: nothing may depend on them.
fn deaf<const N: usize>() -> [Node; N] {
    let nodes = nodes();
    for node in &nodes {
        node.meets(without_hints);
    }
    nodes
}

fn without_hints(call: Call<'_>) -> Fate {
    if matches!(call, Call::Write("publish")) { Fate::FailsBefore } else { Fate::Works }
}

#[tokio::test(start_paused = true)]
async fn a_read_tells_what_another_node_has_acknowledged() {
    let [a, b] = deaf();
    a.deploy("open", OPEN).await;
    a.start("open", "e").await;
    assert_eq!(b.standing("e").await.state.buffered_signals(), 0);
    for number in 1..4 {
        a.signal("e", "s", "1").await.unwrap();
        assert_eq!(b.standing("e").await.state.buffered_signals(), number, "it is hot on both");
    }
    assert_eq!(b.calls_of("load"), 1, "it was read whole once");
    assert_eq!(b.calls_of("load_tail"), 3, "and then gone on with");
    b.standing("e").await;
    assert_eq!(b.calls_of("load_tail"), 3, "what is new to nobody is not read");
}

#[tokio::test(start_paused = true)]
async fn signals_through_two_nodes_are_taken_once_each_and_in_order() {
    let [a, b] = deaf();
    a.deploy("open", OPEN).await;
    a.start("open", "e").await;
    let mut numbers = Vec::new();
    for payload in 0..6 {
        let node = if payload % 2 == 0 { &a } else { &b };
        numbers.push(node.signal("e", "s", &payload.to_string()).await.unwrap());
    }
    assert_eq!(numbers, [3, 4, 5, 6, 7, 8]);
    assert_eq!(a.events("e").await, b.events("e").await);
}

#[tokio::test(start_paused = true)]
async fn the_same_request_through_another_node_has_the_same_answer() {
    let [a, b] = deaf();
    a.deploy("open", OPEN).await;
    a.start("open", "e").await;
    b.standing("e").await;
    let signal = |node: &Node, content: &str| {
        let (engine, request) = (node.engine.clone(), request("r", content));
        async move { engine.signal(&name("e"), arc("s"), json("1"), None, Some(request)).await }
    };
    assert_eq!(signal(&a, "1").await.unwrap(), 3);
    assert_eq!(signal(&b, "1").await.unwrap(), 3);
    assert!(matches!(signal(&b, "2").await, Err(Error::Rejected(Rejection::RequestIdReused))));
    assert_eq!(a.kinds("e").await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_another_node_has_closed_is_closed() {
    let [a, b] = deaf();
    a.deploy("open", OPEN).await;
    a.start("open", "e").await;
    b.standing("e").await;
    a.signal("e", "end", "1").await.unwrap();
    // Found by an id that memory knows as an open execution's, it is looked up again, and is the same.
    let refused = b.signal("e", "s", "1").await;
    assert!(matches!(refused, Err(Error::Rejected(Rejection::ExecutionClosed { .. }))), "{refused:?}");
    assert_eq!(b.phase("e").await, Phase::Succeeded);
    assert_eq!(b.wait("e", 5.0).await, Phase::Succeeded);
    assert!(b.now().since(START) < Duration::from_millis(10), "it does not wait");
    assert!(matches!(b.signal("nobody", "s", "1").await, Err(Error::ExecutionNotFound { .. })));
}

#[tokio::test(start_paused = true)]
async fn an_id_that_has_passed_on_is_the_new_one_s_everywhere() {
    let [a, b] = deaf();
    a.deploy("open", OPEN).await;
    for call in 0..5 {
        let id = format!("e{call}");
        a.start("open", &id).await;
        // To B the id is the old execution's, which it has in memory as an open one.
        let old = b.standing(&id).await.row;
        a.signal(&id, "end", "1").await.unwrap();
        let again = StartExecution { id_reuse: IdReuse::AllowWhenClosed, ..start_of("open", &id, "{}") };
        let new = a.engine.start_execution(again).await.unwrap();
        match call {
            0 => assert_eq!(b.signal(&id, "s", "1").await.unwrap(), 3),
            1 => assert_eq!(b.standing(&id).await.row.uid, new.uid),
            2 => assert_eq!(b.wait(&id, 1.0).await, Phase::Running),
            3 => assert_eq!(b.events(&id).await.len(), 2),
            _ => assert_eq!(b.engine.cancel(&name(&id), arc(""), None).await.unwrap(), 3),
        }
        let by_uid = orbit::engine::ExecutionName { uid: Some(old.uid), ..name(&id) };
        assert_eq!(b.engine.execution(&by_uid).await.unwrap().state.phase(), Phase::Succeeded);
    }
}

#[tokio::test(start_paused = true)]
async fn reports_of_two_nodes_on_one_delivery_are_taken_once() {
    let [a, b] = deaf();
    a.deploy("one", ONE_TASK).await;
    a.start("one", "e").await;
    let session = a.worker(&["a@1"]).await;
    let task = a.task(session).await;
    b.standing("e").await;
    assert_eq!(a.report(&task, complete("1")).await, ReportOutcome::Accepted);
    assert_eq!(b.report(&task, complete("1")).await, ReportOutcome::Duplicate);
    assert!(matches!(b.report(&task, complete("2")).await, ReportOutcome::Refused(_)));
    assert_eq!(b.output("e").await, "1");
}

#[tokio::test(start_paused = true)]
async fn c119_the_last_reports_of_three_nodes_in_the_same_moment_close_each_execution_once_and_for_good() {
    const EXECUTIONS: usize = 300;
    let nodes: [Node; 3] = deaf();
    let lines = "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1}\n  - {id: b, task: a@1}\n  - {id: c, task: a@1}\n  - {id: d, compute: '${ steps.a.output + steps.b.output + steps.c.output }'}\nresult: ${ steps.d.output }\n";
    nodes[0].deploy("join", lines).await;
    for number in 0..EXECUTIONS {
        nodes[number % 3].start("join", &format!("e{number}")).await;
    }
    let session = nodes[0].worker(&["a@1"]).await;
    let mut tasks = Vec::new();
    while tasks.len() < 3 * EXECUTIONS {
        tasks.extend(nodes[0].poll_for(session, 100, 1.0).await.tasks);
    }
    for node in &nodes {
        for number in 0..EXECUTIONS {
            node.standing(&format!("e{number}")).await;
        }
        // A commit takes a while, so that those of one execution meet.
        node.meets(
            |call| if matches!(call, Call::Commit(_)) { Fate::Takes(Duration::from_millis(2)) } else { Fate::Works },
        );
    }
    let reports = tasks.into_iter().enumerate().map(|(number, task)| {
        let engine = nodes[number % 3].engine.clone();
        tokio::spawn(async move { engine.report(task.token, complete("1")).await })
    });
    for report in reports.collect::<Vec<_>>() {
        assert_eq!(report.await.unwrap().unwrap(), ReportOutcome::Accepted);
    }
    for number in 0..EXECUTIONS {
        let id = format!("e{number}");
        for node in &nodes {
            assert_eq!(node.output(&id).await, "3");
        }
        let is_close =
            |kind: &orbit::domain::EventKind| matches!(kind, orbit::domain::EventKind::ExecutionSucceeded { .. });
        assert_eq!(nodes[0].count(&id, is_close).await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn c005_a_wake_up_of_an_old_list_writes_nothing() {
    let [a, b] = deaf();
    a.deploy("nap", "steps:\n  - {id: a, sleep: {for: 8s}}\n  - {id: b, sleep: {for: 30s}, needs: [a]}\n").await;
    a.start("nap", "e").await;
    // Both have it in memory, and in their lists of what is due.
    b.standing("e").await;
    pass(6.0).await;
    pass(20.0).await;
    let kinds = a.kinds("e").await;
    assert_eq!(kinds.len(), 4, "one of them woke it: {kinds:?}");
    pass(30.0).await;
    assert_eq!((a.phase("e").await, b.phase("e").await), (Phase::Succeeded, Phase::Succeeded));
}

#[tokio::test(start_paused = true)]
async fn without_a_look_at_the_store_nothing_is_answered_from_memory() {
    let [a, b] = deaf();
    a.deploy("open", OPEN).await;
    a.start("open", "e").await;
    b.standing("e").await;
    b.meets(|call| if matches!(call, Call::Read(_)) { Fate::FailsBefore } else { Fate::Works });
    assert!(matches!(b.engine.execution(&name("e")).await, Err(Error::Store(_))));
    let unknown = b.signal("e", "unknown", "1").await;
    assert!(matches!(unknown, Err(Error::Store(_))), "a refusal, too: {unknown:?}");
    assert_eq!(b.signal("e", "s", "1").await.unwrap(), 3, "an append needs no look");
    b.meets(without_hints);
    assert!(matches!(b.signal("e", "unknown", "1").await, Err(Error::Rejected(Rejection::SignalUnknown { .. }))));
    assert_eq!(b.calls_of("load"), 1, "what memory had was kept");
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_look_shares_the_next_one() {
    let [a, b] = deaf();
    a.deploy("open", OPEN).await;
    for number in 0..50 {
        a.start("open", &format!("e{number}")).await;
        b.standing(&format!("e{number}")).await;
    }
    b.meets(|call| if matches!(call, Call::Read(_)) { Fate::Takes(Duration::from_millis(5)) } else { Fate::Works });
    let before = b.calls_of("newest_numbers");
    let reads = (0..50).map(|number| {
        let engine = b.engine.clone();
        tokio::spawn(async move { engine.execution(&name(&format!("e{number}"))).await.unwrap() })
    });
    for read in reads.collect::<Vec<_>>() {
        read.await.unwrap();
    }
    assert!(b.calls_of("newest_numbers") - before <= 3, "{}", b.calls_of("newest_numbers") - before);
}

#[tokio::test(start_paused = true)]
async fn a_loser_decides_again_and_gives_up_after_a_while() {
    let [a, b] = deaf();
    a.deploy("open", OPEN).await;
    a.start("open", "e").await;
    b.standing("e").await;
    // Whenever B is about to commit, another was first: B's number is taken by an append of the same length.
    let rival = a.memory.clone();
    let (sender, mut appends) = tokio::sync::mpsc::unbounded_channel();
    b.meets(move |call| match call {
        Call::Commit(batch) => {
            let mut append = batch[0].clone();
            append.batch_id = uuid::Uuid::new_v4();
            sender.send(append).unwrap();
            Fate::Takes(Duration::from_millis(2))
        }
        call => without_hints(call),
    });
    let rivalry = tokio::spawn(async move {
        let mut count = 0;
        while let Some(append) = appends.recv().await {
            rival.commit(vec![append]).await.unwrap();
            count += 1;
        }
        count
    });
    let before = b.now();
    let lost = b.signal("e", "s", "1").await;
    assert!(matches!(lost, Err(Error::WriteConflict)), "{lost:?}");
    let took = b.now().since(before);
    assert!(took > Duration::from_millis(200) && took < Duration::from_millis(700), "{took:?}");
    b.meets(without_hints);
    assert_eq!(rivalry.await.unwrap(), 9);
    assert_eq!(b.signal("e", "s", "2").await.unwrap(), 12);
}

#[tokio::test(start_paused = true)]
async fn what_was_set_aside_by_another_node_is_known_from_its_next_event_on() {
    let [a, b] = deaf();
    a.deploy("open", OPEN).await;
    a.start("open", "e").await;
    let key = b.standing("e").await.row.key;
    a.signal("e", "s", "1").await.unwrap();
    a.memory.quarantine(key, "a test").await.unwrap();
    let refused = b.engine.execution(&name("e")).await;
    assert!(matches!(refused, Err(Error::Quarantined { .. })), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_report_whose_commit_was_lost_is_a_duplicate_on_another_node() {
    let [a, b] = deaf();
    a.deploy("one", ONE_TASK).await;
    a.start("one", "e").await;
    let session = a.worker(&["a@1"]).await;
    let task = a.task(session).await;
    b.standing("e").await;
    a.meets(|call| if matches!(call, Call::Commit(_)) { Fate::FailsAfter } else { Fate::Works });
    assert!(matches!(a.engine.report(task.token.clone(), complete("1")).await, Err(Error::Store(_))));
    assert_eq!(b.report(&task, complete("1")).await, ReportOutcome::Duplicate);
    a.meets(without_hints);
    assert_eq!(a.report(&task, complete("1")).await, ReportOutcome::Duplicate);
    assert_eq!(a.phase("e").await, Phase::Succeeded);
}
