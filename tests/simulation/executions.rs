//! What a caller sees: starts, ends, signals, cancels, waits.

use crate::harness::*;
use orbit::domain::{Phase, Rejection, ReportOutcome, StepState, Uid};
use orbit::engine::{Config, Error, ExecutionName};
use orbit::store::{
    ExecutionState, Faulty, MemoryStore, Store,
    faulty::{Call, Fate},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

const ONE_TASK: &str = "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1}\nresult: ${ steps.a.output }\n";

#[tokio::test(start_paused = true)]
async fn a_task_is_done_and_its_execution_succeeds() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    assert!(orbit.start("one", "e").await.created);
    let task = orbit.task(session).await;
    assert_eq!((task.delivery.attempt, task.delivery.redelivery), (1, false));
    assert_eq!(orbit.report(&task, complete("{\"x\":1}")).await, ReportOutcome::Accepted);
    assert_eq!(orbit.wait("e", 1.0).await, Phase::Succeeded);
    assert_eq!(orbit.output("e").await, "{\"x\":1}");
    assert_eq!(orbit.memory.count().await.unwrap()[&ExecutionState::Succeeded], 1);
}

#[tokio::test(start_paused = true)]
async fn steps_follow_their_needs_and_join() {
    let orbit = orbit();
    let lines = "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1}\n  - {id: b, task: a@1}\n  - {id: c, compute: '${ steps.a.output + steps.b.output }'}\n  - {id: d, task: a@1, input: '${ steps.c.output }'}\nresult: ${ steps.d.output }\n";
    orbit.deploy("join", lines).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("join", "e").await;
    let tasks = orbit.poll(session).await;
    assert_eq!(tasks.len(), 2);
    for task in &tasks {
        orbit.report(task, complete("2")).await;
    }
    let last = orbit.task(session).await;
    assert_eq!(last.delivery.input.as_str(), "4");
    orbit.report(&last, complete("5")).await;
    assert_eq!(orbit.wait("e", 1.0).await, Phase::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_parked_hears_of_the_end() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("one", "e").await;
    let engine = orbit.engine.clone();
    let waiting = tokio::spawn(async move { engine.wait(&name("e"), Duration::from_secs(60)).await.unwrap() });
    let task = orbit.task(session).await;
    pass(5.0).await;
    orbit.report(&task, complete("1")).await;
    let before = orbit.now();
    let standing = waiting.await.unwrap();
    assert_eq!(standing.state.phase(), Phase::Succeeded);
    assert_eq!(orbit.now(), before, "it hears at once");
    assert_eq!(standing.row.state, ExecutionState::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_what_memory_has_costs_the_store_no_read() {
    let (memory, reads) = (MemoryStore::new(), Arc::new(Mutex::new(Vec::new())));
    let seen = reads.clone();
    let store = Faulty::new(Arc::new(memory.clone()), move |call| match call {
        Call::Commit(_) => Fate::Takes(Duration::from_millis(100)),
        Call::Read(what @ ("execution" | "load" | "load_tail")) => {
            seen.lock().unwrap().push(what);
            Fate::Works
        }
        Call::Read(_) | Call::Write(_) => Fate::Works,
    });
    let orbit = orbit_on(memory, Arc::new(store), Config::default());
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    let started = orbit.start("one", "e").await;
    let other = ExecutionName { uid: Some(Uid(uuid::Uuid::from_u128(1))), ..name("e") };
    let error = orbit.engine.wait(&other, Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, Error::ExecutionNotFound { .. }), "{error:?}");
    reads.lock().unwrap().clear();

    let task = orbit.task(session).await;
    let waits = [None, Some(started.uid)].map(|uid| {
        let (engine, name) = (orbit.engine.clone(), ExecutionName { uid, ..name("e") });
        tokio::spawn(async move { engine.wait(&name, Duration::from_secs(60)).await.unwrap() })
    });
    pass(1.0).await;
    // Who comes while the end is being committed is answered after it.
    let late = async {
        pass(0.05).await;
        orbit.engine.execution(&name("e")).await.unwrap()
    };
    let (report, late) = tokio::join!(orbit.report(&task, complete("1")), late);
    assert_eq!((report, late.state.phase()), (ReportOutcome::Accepted, Phase::Succeeded));
    for wait in waits {
        assert_eq!(wait.await.unwrap().state.phase(), Phase::Succeeded);
    }
    assert_eq!(*reads.lock().unwrap(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_its_time_or_with_the_drain() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    orbit.start("one", "e").await;
    assert_eq!(orbit.wait("e", 3.0).await, Phase::Running);
    assert_eq!(orbit.now().since(START), Duration::from_secs(3));
    let engine = orbit.engine.clone();
    let waiting = tokio::spawn(async move { engine.wait(&name("e"), Duration::from_secs(60)).await.unwrap() });
    pass(1.0).await;
    orbit.engine.drain();
    assert_eq!(waiting.await.unwrap().state.phase(), Phase::Running);
    assert!(matches!(orbit.engine.wait(&name("nobody"), Duration::ZERO).await, Err(Error::ExecutionNotFound { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_watch_gives_every_event_once_and_ends_with_the_close() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("one", "e").await;
    let mut watch = orbit.engine.watch(&name("e"), 0).await.unwrap();
    let task = orbit.task(session).await;
    orbit.report(&task, complete("1")).await;
    let mut numbers = Vec::new();
    while let Some(event) = watch.recv().await {
        numbers.push(event.unwrap().number);
    }
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    let mut rest = orbit.engine.watch(&name("e"), 3).await.unwrap();
    assert_eq!(rest.recv().await.unwrap().unwrap().number, 4);
    let mut none = orbit.engine.watch(&name("e"), 5).await.unwrap();
    assert!(none.recv().await.is_none(), "nothing comes after the close");
}

#[tokio::test(start_paused = true)]
async fn pages_of_history_are_the_same_events_whatever_their_size() {
    let orbit = orbit();
    // One decision, whose events are commits of a thousand; then small commits, and a large event.
    let items = (0..1_500).map(|item| item.to_string()).collect::<Vec<_>>().join(", ");
    let lines = format!(
        "tasks: {{a@1: {{}}}}\nsteps:\n  - {{id: each, for_each: [{items}], compute: '${{ item.value }}'}}\n  \
         - {{id: a, task: a@1, needs: [each]}}\n  - {{id: b, task: a@1, needs: [a]}}\n"
    );
    orbit.deploy("pages", &lines).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("pages", "e").await;
    let large = format!("\"{}\"", "x".repeat(60_000));
    for output in ["1", &large] {
        let task = orbit.task(session).await;
        orbit.report(&task, complete(output)).await;
    }
    assert_eq!(orbit.wait("e", 1.0).await, Phase::Succeeded);
    let whole: Vec<u64> = orbit.events("e").await.iter().map(|event| event.number).collect();
    assert!(whole.len() > 1_500, "{}", whole.len());
    assert!(whole.iter().zip(1..).all(|(number, expected)| *number == expected));
    for limit in [1, 7, 100, 999, 5_000] {
        let (mut after, mut paged) = (if limit == 1 { whole.len() as u64 - 9 } else { 0 }, Vec::new());
        let first = after;
        loop {
            let page = orbit.engine.events(&name("e"), after, limit).await.unwrap();
            let Some(last) = page.last() else { break };
            assert!(page.len() <= limit);
            after = last.number;
            paged.extend(page.into_iter().map(|event| event.number));
        }
        assert_eq!(paged, whole[usize::try_from(first).unwrap()..], "pages of {limit}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_an_open_execution_ends_with_the_drain() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    orbit.start("one", "e").await;
    let mut watch = orbit.engine.watch(&name("e"), 2).await.unwrap();
    pass(1.0).await;
    orbit.engine.drain();
    assert!(matches!(watch.recv().await, Some(Err(Error::Draining))));
    assert!(watch.recv().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn what_nobody_waits_for_leaves_no_mailbox() {
    let orbit = orbit();
    orbit.deploy("done", "steps:\n  - {id: a, compute: 1}\n").await;
    for id in ["a", "b", "c"] {
        orbit.start("done", id).await;
        assert_eq!(orbit.wait(id, 1.0).await, Phase::Succeeded);
        let mut watch = orbit.engine.watch(&name(id), 0).await.unwrap();
        while watch.recv().await.is_some() {}
        drop(watch);
        assert_eq!(orbit.wait(id, 1.0).await, Phase::Succeeded);
    }
    pass(1.0).await;
    let sizes = orbit.engine.sizes();
    assert_eq!((sizes.mailboxes, sizes.cache_bytes), (0, 0), "closed executions need no memory");
}

#[tokio::test(start_paused = true)]
async fn a_sleep_ends_at_its_time() {
    let orbit = orbit();
    orbit.deploy("nap", "steps:\n  - {id: a, sleep: {for: 1h}}\n").await;
    orbit.start("nap", "e").await;
    pass(3599.0).await;
    assert_eq!(orbit.step("e", "a").await, StepState::Sleeping);
    pass(1.1).await;
    assert_eq!(orbit.phase("e").await, Phase::Succeeded);
    let last = orbit.events("e").await.pop().unwrap();
    assert!(last.time.since(START) < Duration::from_millis(3_600_100), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn short_sleeps_end_at_their_time_too() {
    let orbit = orbit();
    orbit.deploy("nap", "steps:\n  - {id: a, sleep: {for: 2s}}\n  - {id: b, needs: [a], sleep: {for: 300ms}}\n").await;
    orbit.start("nap", "e").await;
    assert_eq!(orbit.wait("e", 60.0).await, Phase::Succeeded);
    let span = orbit.now().since(START);
    assert!(span >= Duration::from_millis(2_300) && span < Duration::from_millis(2_320), "{span:?}");
}

#[tokio::test(start_paused = true)]
async fn a_signal_ends_an_await_also_if_it_came_before() {
    let orbit = orbit();
    let lines = "signals: {go: {}}\nsteps:\n  - {id: a, sleep: {for: 10s}}\n  - {id: b, needs: [a], await: {signal: go, timeout: 1m}}\n  - {id: c, needs: [b], await: {signal: go, timeout: 1m}}\nresult: [ '${ steps.b.output }', '${ steps.c.output }' ]\n";
    orbit.deploy("wait", lines).await;
    orbit.start("wait", "e").await;
    assert_eq!(orbit.signal("e", "go", "1").await.unwrap(), 3);
    pass(11.0).await;
    assert_eq!(orbit.step("e", "c").await, StepState::Awaiting);
    orbit.signal("e", "go", "2").await.unwrap();
    assert_eq!(orbit.output("e").await, "[1,2]");
    assert!(matches!(orbit.signal("e", "go", "3").await, Err(Error::Rejected(Rejection::ExecutionClosed { .. }))));
}

#[tokio::test(start_paused = true)]
async fn an_await_times_out() {
    let orbit = orbit();
    let lines = "signals: {go: {}}\nsteps:\n  - {id: a, await: {signal: go, timeout: 1m}}\n";
    orbit.deploy("wait", lines).await;
    orbit.start("wait", "e").await;
    assert_eq!(orbit.wait("e", 120.0).await, Phase::Failed);
    assert!(orbit.now().since(START) < Duration::from_millis(60_100));
    assert_eq!(&*orbit.standing("e").await.state.failure().unwrap().code, "AWAIT_TIMEOUT");
}

#[tokio::test(start_paused = true)]
async fn an_execution_times_out() {
    let orbit = orbit();
    orbit.deploy("one", &format!("timeout: 2m\n{ONE_TASK}")).await;
    orbit.start("one", "e").await;
    assert_eq!(orbit.wait("e", 300.0).await, Phase::TimedOut);
    assert!(orbit.now().since(START) < Duration::from_millis(120_100));
    assert!(orbit.ready("a@1").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_waits_for_held_tasks_until_the_grace_is_over() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("one", "e").await;
    let task = orbit.task(session).await;
    assert!(orbit.heartbeat(session, vec![listed(&task)]).await.stop.is_empty());
    orbit.engine.cancel(&name("e"), arc("enough"), None).await.unwrap();
    assert_eq!(orbit.phase("e").await, Phase::WindingDown);
    assert_eq!(orbit.heartbeat(session, vec![listed(&task)]).await.stop, std::slice::from_ref(&task.token));
    pass(20.0).await;
    assert_eq!(orbit.heartbeat(session, vec![listed(&task)]).await.stop, std::slice::from_ref(&task.token));
    assert_eq!(orbit.phase("e").await, Phase::WindingDown);
    pass(10.1).await;
    assert_eq!(orbit.phase("e").await, Phase::Cancelled);
    let late = orbit.report(&task, complete("1")).await;
    assert_eq!(late, ReportOutcome::Refused(orbit::domain::RefusalReason::ExecutionClosed));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_execution_closes_once_its_last_task_reports() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("one", "e").await;
    let task = orbit.task(session).await;
    let first = orbit.engine.cancel(&name("e"), arc(""), None).await.unwrap();
    assert_eq!(orbit.engine.cancel(&name("e"), arc("again"), None).await.unwrap(), first);
    orbit.report(&task, complete("1")).await;
    assert_eq!(orbit.phase("e").await, Phase::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_terminate_closes_at_once_and_takes_the_waiting_units_away() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    orbit.start("one", "e").await;
    assert_eq!(orbit.ready("a@1").await.len(), 1);
    orbit.engine.terminate(&name("e"), arc("now"), Some(request("t", "now"))).await.unwrap();
    assert_eq!(orbit.phase("e").await, Phase::Terminated);
    assert!(orbit.ready("a@1").await.is_empty());
    let row = orbit.standing("e").await.row;
    assert_eq!((row.state, row.wake_time), (ExecutionState::Terminated, None));
    let again = orbit.engine.terminate(&name("e"), arc("now"), Some(request("t", "now"))).await.unwrap();
    assert_eq!(again, 3, "the same request has the same answer, also after the close");
}

#[tokio::test(start_paused = true)]
async fn the_same_start_is_the_same_execution() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let mut call = start_of("one", "e", "{}");
    call.request = Some(request("r", "1"));
    let first = orbit.engine.start_execution(call.clone()).await.unwrap();
    assert_eq!(orbit.engine.start_execution(call.clone()).await.unwrap(), first, "same request, same answer");
    let other = orbit.engine.start_execution(start_of("one", "e", "{}")).await.unwrap();
    assert_eq!((other.uid, other.created), (first.uid, false));
    let taken = orbit.engine.start_execution(start_of("one", "e", "[1]")).await;
    assert!(matches!(taken, Err(Error::ExecutionAlreadyExists { uid, .. }) if uid == first.uid));
    call.request = Some(request("r", "2"));
    let reused = orbit.engine.start_execution(call).await;
    assert!(matches!(reused, Err(Error::Rejected(Rejection::RequestIdReused))));
    let missing = orbit.engine.start_execution(start_of("nothing", "f", "{}")).await;
    assert!(matches!(missing, Err(Error::DefinitionNotFound { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_start_without_an_id_derives_it_from_its_request() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let call = |id: &str| {
        let mut call = start_of("one", "x", "{}");
        (call.id, call.request) = (None, Some(request(id, "1")));
        call
    };
    let first = orbit.engine.start_execution(call("r")).await.unwrap();
    assert_eq!(orbit.engine.start_execution(call("r")).await.unwrap(), first);
    assert_ne!(orbit.engine.start_execution(call("s")).await.unwrap().uid, first.uid);
}

#[tokio::test(start_paused = true)]
async fn many_starts_of_one_id_at_once_make_one_execution() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let starts = (0..20).map(|_| {
        let engine = orbit.engine.clone();
        tokio::spawn(async move { engine.start_execution(start_of("one", "e", "{}")).await.unwrap() })
    });
    let mut created = 0;
    let mut uids = std::collections::BTreeSet::new();
    for start in starts.collect::<Vec<_>>() {
        let started = start.await.unwrap();
        created += usize::from(started.created);
        uids.insert(started.uid);
    }
    assert_eq!((created, uids.len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_repeated_signal_is_taken_once() {
    let orbit = orbit();
    orbit
        .deploy(
            "wait",
            "signals: {go: {}}\nsteps:\n  - {id: a, await: {signal: go, timeout: 1h, match: '${ signal == 9 }'}}\n",
        )
        .await;
    orbit.start("wait", "e").await;
    let send = |content: &'static str| {
        let engine = orbit.engine.clone();
        let key = Some(request("s", content));
        async move { engine.signal(&name("e"), arc("go"), json("1"), None, key).await }
    };
    let number = send("1").await.unwrap();
    assert_eq!(send("1").await.unwrap(), number);
    assert!(matches!(send("2").await, Err(Error::Rejected(Rejection::RequestIdReused))));
    assert_eq!(orbit.standing("e").await.state.buffered_signals(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cache_without_room_changes_nothing_but_reads() {
    let memory = MemoryStore::new();
    let config = Config { cache_bytes_max: 1, ..Config::default() };
    let orbit = orbit_on(memory.clone(), Arc::new(memory), config);
    orbit.deploy("mixed", "tasks: {a@1: {}}\nsignals: {go: {}}\nsteps:\n  - {id: a, task: a@1}\n  - {id: n, needs: [a], sleep: {for: 5s}}\n  - {id: b, needs: [n], await: {signal: go, timeout: 1h}}\n  - {id: c, needs: [b], task: a@1}\n").await;
    let session = orbit.worker(&["a@1"]).await;
    for id in 0..20 {
        orbit.start("mixed", &format!("e{id}")).await;
    }
    let mut done = 0;
    for _ in 0..40 {
        for task in orbit.poll(session).await {
            orbit.report(&task, complete("1")).await;
            done += 1;
        }
        if done == 20 {
            break;
        }
    }
    pass(6.0).await;
    for id in 0..20 {
        orbit.signal(&format!("e{id}"), "go", "1").await.unwrap();
    }
    while done < 40 {
        for task in orbit.poll(session).await {
            orbit.report(&task, complete("1")).await;
            done += 1;
        }
    }
    for id in 0..20 {
        assert_eq!(orbit.phase(&format!("e{id}")).await, Phase::Succeeded);
    }
    assert!(orbit.engine.sizes().mailboxes <= 1, "{:?}", orbit.engine.sizes());
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_execution_that_was_evicted_takes_no_memory_and_wakes() {
    let memory = MemoryStore::new();
    let config = Config { cache_bytes_max: 1, ..Config::default() };
    let orbit = orbit_on(memory.clone(), Arc::new(memory), config);
    orbit.deploy("nap", "steps:\n  - {id: a, sleep: {for: 1h}}\n").await;
    for id in 0..100 {
        orbit.start("nap", &format!("e{id}")).await;
    }
    let sizes = orbit.engine.sizes();
    assert!(sizes.mailboxes <= 1 && sizes.timers == 0, "{sizes:?}");
    pass(3601.0).await;
    assert_eq!(orbit.memory.count().await.unwrap()[&ExecutionState::Succeeded], 100);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_and_another_engine_goes_on() {
    let first = orbit();
    first.deploy("nap", "steps:\n  - {id: a, sleep: {for: 1h}}\n").await;
    first.start("nap", "e").await;
    first.engine.clone().shutdown().await;
    let second = orbit_on(first.memory.clone(), Arc::new(first.memory.clone()), Config::default());
    assert_eq!(second.engine.sizes().mailboxes, 0, "nothing is loaded");
    assert_eq!(second.wait("e", 4000.0).await, Phase::Succeeded);
}
