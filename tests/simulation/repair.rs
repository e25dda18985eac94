//! What an operator sees: queries, pauses, runs, retries and reruns, starts that are delayed or bring a signal.

use crate::harness::*;
use orbit::domain::{Obstacle, Phase, Rejection, ReportOutcome, decide::StartSignal, query::QueryError};
use orbit::engine::{Error, IdReuse, RerunExecution, StartExecution};
use orbit::store::{ExecutionState, Find, Store};
use std::{collections::BTreeMap, time::Duration};

const TWO: &str = "tasks: {a@1: {}}
signals: {s: {}}
queries: {progress: '${ steps.a.state }', broken: '${ input.nothing }'}
steps:
  - {id: a, task: a@1, retry: {max_attempts: 1}}
  - {id: b, needs: [a], task: a@1, retry: {max_attempts: 1}}
result: '${ steps.b.output }'
";

fn rerun(source: &str, from_step: &str, id: &str) -> RerunExecution {
    RerunExecution {
        source: name(source),
        from_step: arc(from_step),
        input: None,
        id: Some(name(id).id),
        labels: BTreeMap::new(),
        request: None,
        trace_parent: arc(""),
    }
}

async fn row_state(orbit: &Orbit, id: &str) -> ExecutionState {
    orbit.memory.execution(&Find::Id(id.into())).await.unwrap().unwrap().state
}

#[tokio::test(start_paused = true)]
async fn a_query_tells_what_is_committed_also_of_a_closed_execution() {
    let orbit = orbit();
    orbit.deploy("two", TWO).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("two", "e").await;
    let ask = async |query: &str| orbit.engine.query(&name("e"), query).await;
    assert_eq!(ask("progress").await.unwrap().0.as_str(), "\"SCHEDULED\"");
    let task = orbit.task(session).await;
    orbit.report(&task, fail("X")).await;
    assert_eq!(orbit.phase("e").await, Phase::Failed);
    assert_eq!(ask("progress").await.unwrap().0.as_str(), "\"FAILED\"");
    let Err(Error::Query(QueryError::NotFound { declared, .. })) = ask("other").await else { panic!("it is unknown") };
    assert_eq!(declared, "broken, progress");
    assert!(matches!(ask("broken").await, Err(Error::Query(QueryError::Failed { .. }))));
}

#[tokio::test(start_paused = true)]
async fn a_paused_execution_has_no_ready_rows_and_goes_on_after_it() {
    let orbit = orbit();
    orbit.deploy("two", TWO).await;
    orbit.start("two", "e").await;
    assert_eq!(orbit.ready("a@1").await.len(), 1);
    let number = orbit.engine.pause(&name("e"), arc("look"), None).await.unwrap();
    assert_eq!(orbit.engine.pause(&name("e"), arc(""), None).await.unwrap(), number);
    assert_eq!(row_state(&orbit, "e").await, ExecutionState::Paused);
    assert_eq!(orbit.ready("a@1").await.len(), 0);
    assert_eq!(orbit.memory.count().await.unwrap()[&ExecutionState::Paused], 1);
    let session = orbit.worker(&["a@1"]).await;
    assert!(orbit.poll(session).await.is_empty());
    orbit.engine.resume(&name("e"), None).await.unwrap();
    assert_eq!(orbit.engine.resume(&name("e"), None).await.unwrap(), 0);
    assert_eq!(row_state(&orbit, "e").await, ExecutionState::Running);
    let task = orbit.task(session).await;
    orbit.engine.pause(&name("e"), arc(""), None).await.unwrap();
    assert_eq!(orbit.report(&task, complete("1")).await, ReportOutcome::Accepted);
    assert!(orbit.poll(session).await.is_empty(), "what follows waits");
    orbit.engine.resume(&name("e"), None).await.unwrap();
    let task = orbit.task(session).await;
    orbit.report(&task, complete("2")).await;
    assert_eq!(orbit.wait("e", 1.0).await, Phase::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_sleep_that_ends_in_a_pause_ends_at_the_resume() {
    let orbit = orbit();
    orbit.deploy("nap", "steps:\n  - {id: a, sleep: {for: 10s}}\n").await;
    orbit.start("nap", "e").await;
    orbit.engine.pause(&name("e"), arc(""), None).await.unwrap();
    pass(60.0).await;
    assert_eq!(orbit.phase("e").await, Phase::Running);
    orbit.engine.resume(&name("e"), None).await.unwrap();
    assert_eq!(orbit.wait("e", 1.0).await, Phase::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_loop_of_runs_stays_readable_and_takes_no_more_memory() {
    let orbit = orbit();
    let lines = "steps:
  - {id: a, compute: '${ input.n + 1 }'}
  - {id: again, needs: [a], when: '${ input.n < 2000 }', continue_as_new: {input: {n: '${ steps.a.output }'}}}
result: '${ input.n }'
";
    orbit.deploy("loop", lines).await;
    orbit.engine.start_execution(start_of("loop", "e", "{\"n\":0}")).await.unwrap();
    assert_eq!(orbit.wait("e", 600.0).await, Phase::Succeeded);
    let standing = orbit.standing("e").await;
    assert_eq!(
        (standing.state.run(), standing.row.run, standing.state.output().unwrap().as_str()),
        (2001, 2001, "2000")
    );
    assert!(standing.state.size_bytes() < 8_000, "{} bytes", standing.state.size_bytes());
    let events = orbit.events("e").await;
    assert!(events.windows(2).all(|pair| pair[0].number + 1 == pair[1].number));
    let rows = orbit.memory.history(standing.row.key, 0, 100_000, usize::MAX).await.unwrap();
    assert_eq!(rows.len(), 2001, "a run is a row of its own");
    let loaded = orbit.memory.load(standing.row.key).await.unwrap().unwrap();
    assert!(loaded.history.len() <= 2, "a load reads no old runs");
}

#[tokio::test(start_paused = true)]
async fn an_endless_loop_can_be_cancelled() {
    let orbit = orbit();
    orbit.deploy("loop", "steps:\n  - {id: a, compute: 1}\n  - {id: again, needs: [a], continue_as_new: {}}\n").await;
    orbit.start("loop", "e").await;
    // Time stands still while there is something to do.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    orbit.engine.cancel(&name("e"), arc("enough"), None).await.unwrap();
    assert_eq!(orbit.wait("e", 1.0).await, Phase::Cancelled);
    assert!(orbit.standing("e").await.state.run() > 2);
}

#[tokio::test(start_paused = true)]
async fn a_retry_goes_on_where_it_failed() {
    let orbit = orbit();
    orbit.deploy("two", TWO).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("two", "e").await;
    let first = orbit.task(session).await;
    orbit.report(&first, complete("1")).await;
    let failing = orbit.task(session).await;
    orbit.report(&failing, fail("X")).await;
    assert_eq!(orbit.wait("e", 1.0).await, Phase::Failed);
    orbit.engine.retry(&name("e"), Some(request("r", ""))).await.unwrap();
    assert_eq!(row_state(&orbit, "e").await, ExecutionState::Running);
    let again = orbit.task(session).await;
    assert_eq!((&*again.delivery.reference.unit, again.delivery.attempt), ("b", 1));
    assert_ne!(again.delivery.idempotency_key, failing.delivery.idempotency_key);
    assert!(matches!(orbit.report(&failing, complete("9")).await, ReportOutcome::Refused(_)));
    orbit.report(&again, complete("2")).await;
    assert_eq!(orbit.wait("e", 1.0).await, Phase::Succeeded);
    assert_eq!(orbit.output("e").await, "2");
    let row = orbit.memory.execution(&Find::Id("e".into())).await.unwrap().unwrap();
    assert!(row.close_time.is_some() && row.wake_time.is_none());
    let counts = orbit.memory.count().await.unwrap();
    assert_eq!(
        counts.into_iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>(),
        [(ExecutionState::Succeeded, 1)]
    );
    // The same call again has the same answer, another one is refused.
    assert!(orbit.engine.retry(&name("e"), Some(request("r", ""))).await.is_ok());
    let refused = orbit.engine.retry(&name("e"), None).await;
    assert!(matches!(refused, Err(Error::Rejected(Rejection::NotRetryable { obstacle: Obstacle::NotFailed, .. }))));
}

#[tokio::test(start_paused = true)]
async fn a_watch_and_a_wait_go_on_with_what_was_taken_up_again() {
    let orbit = orbit();
    orbit.deploy("two", TWO).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("two", "e").await;
    let task = orbit.task(session).await;
    orbit.report(&task, fail("X")).await;
    orbit.engine.retry(&name("e"), None).await.unwrap();
    let mut watch = orbit.engine.watch(&name("e"), 0).await.unwrap();
    assert_eq!(orbit.wait("e", 1.0).await, Phase::Running);
    orbit.engine.terminate(&name("e"), arc(""), None).await.unwrap();
    let mut kinds = Vec::new();
    while let Some(event) = watch.recv().await {
        kinds.push(orbit::wire::event::kind_name(&event.unwrap().kind));
    }
    assert_eq!(kinds.last(), Some(&"execution_terminated"));
    assert!(kinds.contains(&"execution_reopened"), "{kinds:?}");
}

#[tokio::test(start_paused = true)]
async fn an_execution_that_gave_its_id_away_is_not_retried() {
    let orbit = orbit();
    orbit.deploy("two", TWO).await;
    let session = orbit.worker(&["a@1"]).await;
    let old = orbit.start("two", "e").await;
    let task = orbit.task(session).await;
    orbit.report(&task, fail("X")).await;
    let again = StartExecution { id_reuse: IdReuse::AllowWhenClosed, ..start_of("two", "e", "{}") };
    assert!(orbit.engine.start_execution(again).await.unwrap().created);
    let mut of_old = name("e");
    of_old.uid = Some(old.uid);
    let refused = orbit.engine.retry(&of_old, None).await;
    assert!(matches!(refused, Err(Error::Rejected(Rejection::NotRetryable { obstacle: Obstacle::IdTaken, .. }))));
}

#[tokio::test(start_paused = true)]
async fn a_rerun_is_another_execution_with_the_earlier_results() {
    let orbit = orbit();
    orbit.deploy("two", TWO).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("two", "e").await;
    let first = orbit.task(session).await;
    orbit.report(&first, complete("1")).await;
    let failing = orbit.task(session).await;
    orbit.report(&failing, fail("X")).await;
    let made = orbit.engine.rerun(rerun("e", "b", "f")).await.unwrap();
    assert!(made.created);
    let again = orbit.engine.rerun(rerun("e", "b", "f")).await.unwrap();
    assert_eq!((again.uid, again.created), (made.uid, false));
    let task = orbit.task(session).await;
    assert_eq!((task.execution_id.as_str(), &*task.delivery.reference.unit), ("f", "b"));
    orbit.report(&task, complete("2")).await;
    assert_eq!(orbit.wait("f", 1.0).await, Phase::Succeeded);
    assert_eq!(orbit.phase("e").await, Phase::Failed, "the other one is as it was");
    assert!(matches!(orbit.engine.rerun(rerun("e", "nobody", "g")).await, Err(Error::StepNotFound { .. })));
    assert!(matches!(orbit.engine.rerun(rerun("e", "a", "f")).await, Err(Error::ExecutionAlreadyExists { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_delayed_start_begins_at_its_time() {
    let orbit = orbit();
    orbit.deploy("done", "steps:\n  - {id: a, compute: 1}\n").await;
    let delayed = StartExecution { delay: Some(Duration::from_secs(3_600)), ..start_of("done", "e", "{}") };
    orbit.engine.start_execution(delayed).await.unwrap();
    pass(3_599.0).await;
    assert_eq!(orbit.phase("e").await, Phase::Running);
    assert_eq!(orbit.wait("e", 2.0).await, Phase::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_start_with_a_signal_starts_or_signals_once() {
    let orbit = orbit();
    let lines = "signals: {s: {}}\nsteps:\n  - {id: a, await: {signal: s}}\n  - {id: b, needs: [a], await: {signal: s}}\nresult: '${ [steps.a.output, steps.b.output] }'\n";
    orbit.deploy("wait", lines).await;
    let call = |key: &str, input: &str, payload: &str| StartExecution {
        request: Some(request(key, payload)),
        signal: Some(StartSignal { name: arc("s"), payload: json(payload) }),
        ..start_of("wait", "e", input)
    };
    let start = async |call| orbit.engine.start_execution(call).await;
    let first = start(call("1", "1", "10")).await.unwrap();
    assert_eq!((first.created, first.signal_number), (true, Some(2)));
    assert_eq!(start(call("1", "1", "10")).await.unwrap(), first, "the same call has the same answer");
    // Another input is no hindrance: there is one that is open.
    let second = start(call("2", "2", "20")).await.unwrap();
    assert_eq!((second.created, second.uid), (false, first.uid));
    assert_eq!(start(call("2", "2", "20")).await.unwrap(), second);
    assert_eq!(orbit.wait("e", 1.0).await, Phase::Succeeded);
    assert_eq!(orbit.output("e").await, "[10,20]");
    assert_eq!(start(call("2", "2", "20")).await.unwrap(), second, "also after the close");
    let refused = start(call("3", "1", "30")).await;
    assert!(matches!(refused, Err(Error::Rejected(Rejection::ExecutionClosed { .. }))));
    let reuse = |call| StartExecution { id_reuse: IdReuse::AllowWhenClosed, ..call };
    assert_eq!(start(reuse(call("2", "2", "20"))).await.unwrap(), second, "also where a new one might be started");
    assert!(start(reuse(call("4", "1", "40"))).await.unwrap().created);
}
