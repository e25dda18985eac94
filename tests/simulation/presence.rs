//! Who lives and who holds what: heartbeats, lost sessions, long tasks.

use crate::harness::*;
use orbit::clock::{SeededEntropy, TokioClock};
use orbit::domain::{EndReason, EventKind, Phase, ReportOutcome, StepState};
use orbit::engine::{Config, Engine, Error, HeldToken};
use orbit::store::{MemoryStore, Store};
use std::{sync::Arc, time::Duration};

const ONE_TASK: &str = "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1}\n";

fn ended(why: EndReason) -> impl Fn(&EventKind) -> bool {
    move |kind| matches!(kind, EventKind::DeliveryEnded { reason, .. } if *reason == why)
}

#[tokio::test(start_paused = true)]
async fn a_task_that_no_heartbeat_lists_is_handed_out_again() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("one", "e").await;
    let lost = orbit.task(session).await;
    orbit.hold(session, &[], 40).await;
    assert_eq!(orbit.count("e", ended(EndReason::NotListed)).await, 1);
    let again = orbit.task(session).await;
    assert_eq!((again.delivery.attempt, again.delivery.redelivery), (1, true));
    assert_eq!(orbit.report(&lost, complete("1")).await, ReportOutcome::Accepted, "a success counts from any token");
    assert_eq!(orbit.phase("e").await, Phase::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_listed_is_kept_for_as_long_as_it_takes() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("one", "e").await;
    let task = orbit.task(session).await;
    orbit.hold(session, &[&task], 600).await;
    assert_eq!(orbit.count("e", |kind| matches!(kind, EventKind::TaskHeld { .. })).await, 1);
    assert_eq!(orbit.count("e", |kind| matches!(kind, EventKind::DeliveryEnded { .. })).await, 0);
    assert_eq!(orbit.memory.held_by_session(session, 10).await.unwrap().len(), 1);
    assert_eq!(orbit.kinds("e").await.len(), 4, "nothing else is written: {:?}", orbit.kinds("e").await);
    orbit.report(&task, complete("1")).await;
    assert_eq!(orbit.phase("e").await, Phase::Succeeded);
    pass(2.0).await;
    assert!(orbit.memory.held_by_session(session, 10).await.unwrap().is_empty(), "its row goes");
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_that_was_lost_costs_no_task() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("one", "e").await;
    let task = orbit.task(session).await;
    // The first heartbeats after the dispatch did not arrive; this one lists the task for the first time.
    pass(25.0).await;
    orbit.hold(session, &[&task], 60).await;
    assert_eq!(orbit.count("e", |kind| matches!(kind, EventKind::DeliveryEnded { .. })).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_held_task_that_is_listed_no_more_is_handed_out_again() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("one", "e").await;
    let task = orbit.task(session).await;
    orbit.hold(session, &[&task], 60).await;
    orbit.hold(session, &[], 20).await;
    assert_eq!(orbit.step("e", "a").await, StepState::Running, "for less than a session timeout it may come back");
    orbit.hold(session, &[&task], 20).await;
    orbit.hold(session, &[], 20).await;
    assert_eq!(orbit.step("e", "a").await, StepState::Running);
    orbit.hold(session, &[], 20).await;
    assert_eq!(orbit.count("e", ended(EndReason::NotListed)).await, 1);
    assert!(orbit.memory.held_by_session(session, 10).await.unwrap().is_empty());
    assert!(orbit.task(session).await.delivery.redelivery);
}

#[tokio::test(start_paused = true)]
async fn a_silent_session_is_lost_with_its_tasks() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("one", "e").await;
    let task = orbit.task(session).await;
    orbit.hold(session, &[&task], 60).await;
    pass(15.0).await;
    assert_eq!(orbit.step("e", "a").await, StepState::Running);
    pass(10.0).await;
    assert_eq!(orbit.count("e", ended(EndReason::SessionLost)).await, 1);
    let lost = orbit.engine.heartbeat(session, vec![listed(&task)]).await;
    assert!(matches!(lost, Err(Error::SessionNotFound)));
    let lost = orbit.engine.poll(session, 1, Duration::ZERO).await;
    assert!(matches!(lost, Err(Error::SessionNotFound)));
    let other = orbit.worker(&["a@1"]).await;
    assert!(orbit.task(other).await.delivery.redelivery);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_lost_ends_its_poll_and_its_stream() {
    let orbit = orbit();
    let session = orbit.worker(&["a@1"]).await;
    let mut stream = orbit.engine.open_stream(session).await.unwrap();
    stream.granter().grant(1);
    let polled = orbit.poll_for(session, 1, 50.0).await;
    assert!(polled.tasks.is_empty() && orbit.now().since(START) < Duration::from_secs(35));
    assert!(stream.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_unregistered_session_gives_its_tasks_back_at_once() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    for id in ["held", "listed", "fresh"] {
        orbit.start("one", id).await;
    }
    let tasks = orbit.poll(session).await;
    assert_eq!(tasks.len(), 3);
    orbit.hold(session, &[&tasks[0]], 20).await;
    orbit.heartbeat(session, vec![listed(&tasks[0]), listed(&tasks[1])]).await;
    orbit.engine.unregister(session).await.unwrap();
    orbit.engine.unregister(session).await.unwrap();
    for id in ["held", "listed"] {
        assert_eq!(orbit.count(id, ended(EndReason::Unregistered)).await, 1, "{id}");
    }
    assert!(orbit.memory.session(session).await.unwrap().is_none());
    assert!(orbit.memory.held_by_session(session, 10).await.unwrap().is_empty());
    let other = orbit.worker(&["a@1"]).await;
    assert_eq!(orbit.poll(other).await.len(), 2);
    orbit.hold(other, &[], 20).await;
    assert_eq!(orbit.poll(other).await.len(), 1, "the one that was never listed comes with its first check");
}

#[tokio::test(start_paused = true)]
async fn a_session_is_taken_back_with_what_it_holds() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("one", "e").await;
    let task = orbit.task(session).await;
    orbit.hold(session, &[&task], 40).await;
    let mut stream = orbit.engine.open_stream(session).await.unwrap();
    let mut again = registration(&["a@1"]);
    again.previous_session = Some(session);
    let registered = orbit.engine.register(again).await.unwrap();
    assert_eq!((registered.session, registered.resumed), (session, true));
    assert!(stream.next().await.is_none(), "the older connection's stream ends");
    orbit.hold(session, &[&task], 60).await;
    assert_eq!(orbit.report(&task, complete("1")).await, ReportOutcome::Accepted);
    let mut gone = registration(&["a@1"]);
    gone.previous_session = Some(orbit::domain::SessionId(uuid::Uuid::from_u128(5)));
    let registered = orbit.engine.register(gone).await.unwrap();
    assert!(!registered.resumed && registered.session != session);
}

#[tokio::test(start_paused = true)]
async fn beats_keep_a_task_and_listing_alone_does_not() {
    let orbit = orbit();
    orbit.deploy("beat", "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1, heartbeat_timeout: 12s, retry: {max_attempts: 2, initial_interval: 0s}}\n").await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("beat", "e").await;
    let task = orbit.task(session).await;
    for _ in 0..10 {
        let beat = HeldToken { token: task.token.clone(), progress: Some(json("7")), beat: false };
        orbit.heartbeat(session, vec![beat]).await;
        pass(5.0).await;
        let beat = HeldToken { token: task.token.clone(), progress: None, beat: true };
        orbit.heartbeat(session, vec![beat]).await;
        pass(5.0).await;
    }
    assert_eq!(orbit.step("e", "a").await, StepState::Running);
    orbit.hold(session, &[&task], 10).await;
    let again = orbit.task(session).await;
    assert_eq!((again.delivery.attempt, again.delivery.progress.as_ref().unwrap().as_str()), (2, "7"));
    let failed = orbit
        .count(
            "e",
            |kind| matches!(kind, EventKind::AttemptFailed { failure, .. } if &*failure.code == "HEARTBEAT_TIMEOUT"),
        )
        .await;
    assert_eq!(failed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_task_without_any_beat_fails_after_its_heartbeat_timeout() {
    let orbit = orbit();
    orbit
        .deploy(
            "beat",
            "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1, heartbeat_timeout: 12s, retry: {max_attempts: 1}}\n",
        )
        .await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("beat", "e").await;
    orbit.task(session).await;
    assert_eq!(orbit.wait("e", 60.0).await, Phase::Failed);
    assert!(orbit.now().since(START) < Duration::from_millis(12_200));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_loses_its_worker_every_time_fails_in_the_end() {
    let orbit = orbit();
    orbit.deploy("one", ONE_TASK).await;
    orbit.start("one", "e").await;
    let session = orbit.worker(&["a@1"]).await;
    for _ in 0..10 {
        orbit.task(session).await;
        orbit.hold(session, &[], 40).await;
    }
    assert_eq!(orbit.phase("e").await, Phase::Failed);
    assert_eq!(&*orbit.standing("e").await.state.failure().unwrap().code, "DELIVERIES_EXHAUSTED");
}

#[tokio::test(start_paused = true)]
async fn the_next_engine_watches_what_the_last_one_watched() {
    let first = orbit();
    first.deploy("one", ONE_TASK).await;
    let session = first.worker(&["a@1"]).await;
    for id in ["kept", "dropped"] {
        first.start("one", id).await;
    }
    let tasks = first.poll(session).await;
    first.hold(session, &[&tasks[0], &tasks[1]], 60).await;
    let memory = first.memory.clone();
    first.engine.shutdown().await;
    let second = orbit_on(memory.clone(), Arc::new(memory), Config::default());
    // The worker lives on, and has forgotten one of its tasks.
    second.hold(session, &[&tasks[0]], 100).await;
    assert_eq!(second.step("kept", "a").await, StepState::Running);
    assert_eq!(second.count("dropped", ended(EndReason::NotListed)).await, 1);
    second.report(&tasks[0], complete("1")).await;
    pass(2.0).await;
    assert!(second.memory.held_by_session(session, 10).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_report_to_the_next_engine_takes_its_held_row_away() {
    let first = orbit();
    first.deploy("one", ONE_TASK).await;
    let session = first.worker(&["a@1"]).await;
    first.start("one", "e").await;
    let task = first.task(session).await;
    first.hold(session, &[&task], 60).await;
    let memory = first.memory.clone();
    first.engine.shutdown().await;
    let second = orbit_on(memory.clone(), Arc::new(memory), Config::default());
    second.report(&task, complete("1")).await;
    second.hold(session, &[], 20).await;
    assert!(second.memory.held_by_session(session, 10).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_session_of_a_life_before_is_lost_if_its_worker_is_gone() {
    let first = orbit();
    first.deploy("one", ONE_TASK).await;
    let session = first.worker(&["a@1"]).await;
    first.start("one", "e").await;
    let task = first.task(session).await;
    first.hold(session, &[&task], 60).await;
    let memory = first.memory.clone();
    first.engine.shutdown().await;
    let second = orbit_on(memory.clone(), Arc::new(memory), Config::default());
    pass(25.0).await;
    assert_eq!(second.step("e", "a").await, StepState::Running, "the new node listens for a session timeout first");
    pass(15.0).await;
    assert_eq!(second.count("e", ended(EndReason::SessionLost)).await, 1);
    assert!(second.memory.session(session).await.unwrap().is_none());
}

/// The next life of a node whose store only it writes: it has an id of its own, and time goes on where it was.
fn life(memory: &MemoryStore, seed: u64) -> Orbit {
    let clock = Arc::new(TokioClock::starting_at(memory.opened().newest_now.unwrap_or(START)));
    let entropy = Arc::new(SeededEntropy::new(seed));
    let engine = Engine::start(Arc::new(memory.clone()), clock.clone(), entropy, Config::default());
    Orbit { engine, memory: memory.clone(), clock }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_starts_again_at_once_leaves_no_timer_to_its_life_before() {
    let memory = MemoryStore::new();
    let first = life(&memory, 1);
    first.deploy("nap", "steps:\n  - {id: a, sleep: {for: 1m}}\n").await;
    let session = first.worker(&["a@1"]).await;
    first.hold(session, &[], 10).await;
    first.engine.shutdown().await;
    let second = life(&memory, 2);
    // The only worker is heard of too seldom for silence to be told from its absence.
    second.hold(session, &[], 20).await;
    for number in 0..20 {
        second.start("nap", &format!("e{number}")).await;
    }
    second.hold(session, &[], 70).await;
    for number in 0..20 {
        assert_eq!(second.phase(&format!("e{number}")).await, Phase::Succeeded, "e{number}");
    }
    assert_eq!(second.engine.nodes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_next_life_begins_after_what_was_committed_also_where_no_worker_was_heard() {
    let orbit = orbit();
    orbit.deploy("nap", "steps:\n  - {id: a, sleep: {for: 30d}}\n").await;
    pass(10.0).await;
    assert_eq!(orbit.memory.opened().newest_now, None, "nothing happens, and nothing is written");
    orbit.start("nap", "e").await;
    let committed = orbit.now();
    pass(2.0).await;
    let written = orbit.memory.opened().newest_now;
    assert!(written.is_some_and(|time| time >= committed), "{written:?}");
    pass(60.0).await;
    assert_eq!(orbit.memory.opened().newest_now, written, "once is enough");
}
