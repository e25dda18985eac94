//! Executions that are let go of: by a call, and since they have been closed for long.

use crate::harness::*;
use orbit::clock::{Entropy as _, SeededEntropy};
use orbit::domain::{Phase, RefusalReason, Rejection, ReportOutcome};
use orbit::engine::{Config, Error, ExecutionName};
use orbit::store::{
    Committed, DeletedRow, Faulty, Find, MemoryStore, StateChange, Store, Target, WakeChange,
    faulty::{Call, Fate},
};
use std::{sync::Arc, time::Duration};

const ONE_TASK: &str = "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1}\nresult: ${ steps.a.output }\n";
const EMPTY: &str = "steps:\n  - {id: a, compute: 1}\n";
const HOUR: f64 = 3_600.0;

/// An engine that keeps what is closed for an hour.
fn keeps_an_hour() -> Orbit {
    let memory = MemoryStore::new();
    let config = Config { retention: Duration::from_secs(3_600), ..Config::default() };
    orbit_on(memory.clone(), Arc::new(memory), config)
}

async fn marked(orbit: &Orbit) -> Vec<DeletedRow> {
    orbit.memory.deleted(None, 1_000).await.unwrap()
}

fn is_missing<T: std::fmt::Debug>(answer: &Result<T, Error>) -> bool {
    matches!(answer, Err(Error::ExecutionNotFound { .. }))
}

#[tokio::test(start_paused = true)]
async fn what_is_deleted_is_gone_at_once_and_its_rows_later() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    let first = orbit.start("one", "e").await;
    let task = orbit.task(session).await;
    let open = orbit.engine.delete(&name("e"), None).await;
    assert!(matches!(open, Err(Error::Rejected(Rejection::ExecutionOpen { state: "RUNNING" }))), "{open:?}");
    orbit.engine.terminate(&name("e"), arc("enough"), None).await.unwrap();
    orbit.engine.delete(&name("e"), None).await.unwrap();

    let by_uid = ExecutionName { uid: Some(first.uid), ..name("e") };
    for name in [&name("e"), &by_uid] {
        assert!(is_missing(&orbit.engine.execution(name).await));
        assert!(is_missing(&orbit.engine.wait(name, Duration::from_secs(1)).await.map(drop)));
        assert!(is_missing(&orbit.engine.events(name, 0, 10).await));
        assert!(is_missing(&orbit.engine.watch(name, 0).await.map(drop)));
        assert!(is_missing(&orbit.engine.cancel(name, arc(""), None).await));
        assert!(is_missing(&orbit.engine.delete(name, None).await));
    }
    let late = orbit.report(&task, complete("1")).await;
    assert_eq!(late, ReportOutcome::Refused(RefusalReason::ExecutionClosed));
    assert_eq!(orbit.memory.count().await.unwrap().len(), 0);

    // The id is free, and what has it then is another.
    let second = orbit.start("one", "e").await;
    assert!(second.created && second.uid != first.uid);
    pass(60.0).await;
    assert_eq!(marked(&orbit).await.len(), 1, "a statement that missed the mark may still run");
    pass(60.0).await;
    assert_eq!(marked(&orbit).await, []);
    assert_eq!(orbit.report(&task, complete("1")).await, ReportOutcome::Refused(RefusalReason::ExecutionClosed));
    assert_eq!(orbit.standing("e").await.row.uid, second.uid);
}

#[tokio::test(start_paused = true)]
async fn the_call_that_deleted_is_known_for_a_day() {
    let orbit = orbit();
    orbit.deploy("empty", EMPTY).await;
    orbit.start("empty", "e").await;
    let call = request("delete", "1");
    for seconds in [1.0, 300.0, 20.0 * HOUR] {
        orbit.engine.delete(&name("e"), Some(call)).await.unwrap();
        let other = orbit.engine.delete(&name("e"), Some(request("delete", "2"))).await;
        assert!(matches!(other, Err(Error::Rejected(Rejection::RequestIdReused))), "{other:?}");
        assert!(is_missing(&orbit.engine.delete(&name("e"), Some(request("other", "1"))).await));
        pass(seconds).await;
    }
    pass(5.0 * HOUR).await;
    assert_eq!(marked(&orbit).await, []);
    assert!(is_missing(&orbit.engine.delete(&name("e"), Some(call)).await));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_beside_the_close_waits_for_its_commit() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    for round in 0..20 {
        let id = format!("e{round}");
        orbit.start("one", &id).await;
        let named = name(&id);
        let end = orbit.engine.terminate(&named, arc(""), None);
        let (ended, deleted) = tokio::join!(biased; end, orbit.engine.delete(&named, None));
        ended.unwrap();
        deleted.unwrap();
        assert!(is_missing(&orbit.engine.execution(&named).await));
    }
    assert_eq!(marked(&orbit).await.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn what_was_closed_for_long_is_deleted_and_what_is_open_is_not() {
    let orbit = keeps_an_hour();
    orbit.deploy("one", ONE_TASK).await;
    orbit.deploy("empty", EMPTY).await;
    orbit.start("one", "open").await;
    for number in 0..600 {
        orbit.start("empty", &format!("e{number}")).await;
    }
    pass(0.9 * HOUR).await;
    orbit.start("empty", "young").await;
    assert_eq!(orbit.phase("e7").await, Phase::Succeeded);
    pass(0.2 * HOUR).await;
    assert_eq!(marked(&orbit).await, [], "all have been removed");
    for id in ["open", "young"] {
        orbit.standing(id).await;
    }
    assert!(is_missing(&orbit.engine.execution(&name("e7")).await));
    assert_eq!(orbit.memory.count().await.unwrap().values().sum::<u64>(), 2);
}

#[tokio::test(start_paused = true)]
async fn without_retention_all_is_kept() {
    let memory = MemoryStore::new();
    let config = Config { retention: Duration::ZERO, ..Config::default() };
    let orbit = orbit_on(memory.clone(), Arc::new(memory), config);
    orbit.deploy("empty", EMPTY).await;
    orbit.start("empty", "e").await;
    pass(3.0 * HOUR).await;
    assert_eq!(orbit.phase("e").await, Phase::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_meanwhile_loses_nothing_and_removes_all_in_the_end() {
    let memory = MemoryStore::new();
    let random = SeededEntropy::new(11);
    let store = Faulty::new(Arc::new(memory.clone()), move |call| {
        let is_ours = match call {
            Call::Commit(_) => false,
            Call::Write(method) => method == "delete_rows",
            Call::Read(method) => ["closed_before", "deleted"].contains(&method),
        };
        match random.number() % 3 {
            0 if is_ours => Fate::FailsBefore,
            1 if is_ours => Fate::FailsAfter,
            _ => Fate::Works,
        }
    });
    let config = Config { retention: Duration::from_secs(3_600), ..Config::default() };
    let orbit = orbit_on(memory, Arc::new(store), config);
    orbit.deploy("empty", EMPTY).await;
    for number in 0..50 {
        orbit.start("empty", &format!("e{number}")).await;
    }
    pass(1.5 * HOUR).await;
    assert_eq!(orbit.memory.count().await.unwrap().len(), 0);
    assert_eq!(marked(&orbit).await, []);
}

#[tokio::test(start_paused = true)]
async fn runs_that_ended_long_ago_are_trimmed_of_an_execution_that_goes_on() {
    let orbit = keeps_an_hour();
    orbit.deploy("one", ONE_TASK).await;
    orbit.start("one", "e").await;
    let key = orbit.standing("e").await.row.key;
    let rows = orbit.memory.history(key, 0, 10, usize::MAX).await.unwrap();
    let last = rows.last().unwrap();
    // Three runs, as the store sees them: each begins half an hour after the one before.
    for run in 2..=4_u32 {
        let first_number = last.last_number + u64::from(run) - 1;
        let start_time = orbit.now() + Duration::from_secs(1_800) * (run - 2);
        let append = orbit::store::Append {
            target: Target::Existing(key),
            run,
            first_number,
            last_number: first_number,
            batch_id: uuid::Uuid::from_u128(run.into()),
            events: last.events.clone(),
            payloads: Vec::new(),
            ready_added: Vec::new(),
            ready_removed: Vec::new(),
            state: None::<StateChange>,
            wake: WakeChange::Keep,
            snapshot: None,
            begins_run: Some(start_time),
            deletion: None,
        };
        assert_eq!(orbit.memory.commit(vec![append]).await.unwrap(), [Committed::Written(key)]);
    }
    let runs = async || {
        let rows = orbit.memory.history(key, 0, 10, usize::MAX).await.unwrap();
        rows.iter().map(|row| row.run).collect::<Vec<_>>()
    };
    pass(0.9 * HOUR).await;
    assert_eq!(runs().await.first(), Some(&1));
    pass(0.2 * HOUR).await;
    assert_eq!(runs().await, [2, 3, 4]);
    pass(1.1 * HOUR).await;
    assert_eq!(runs().await, [4], "the newest stays, however old");
    assert!(orbit.memory.execution(&Find::Key(key)).await.unwrap().is_some());
}
