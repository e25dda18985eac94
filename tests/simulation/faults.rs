//! What a store that fails costs: an answer, never a fact.

use crate::harness::*;
use orbit::clock::{Entropy, SeededEntropy, TokioClock};
use orbit::domain::{Phase, ReportOutcome, StepState};
use orbit::engine::{Config, Engine, Error};
use orbit::store::{
    Faulty, MemoryStore,
    faulty::{Call, Fate},
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

const ONE_TASK: &str = "tasks: {a@1: {}}\nsteps:\n  - {id: a, task: a@1}\n";

/// What happens to the calls of a store from now on.
#[derive(Clone, Copy, PartialEq)]
enum Weather {
    Fine,
    CommitsFail,
    CommitsAreLost,
    ReadsFail,
    AllFails,
}

fn stormy(config: Config) -> (Orbit, Arc<Mutex<Weather>>) {
    let memory = MemoryStore::new();
    let weather = Arc::new(Mutex::new(Weather::Fine));
    let now = weather.clone();
    let plan = move |call: Call<'_>| match (*now.lock().unwrap(), call) {
        (Weather::CommitsFail, Call::Commit(_)) | (Weather::ReadsFail, Call::Read(_)) | (Weather::AllFails, _) => {
            Fate::FailsBefore
        }
        (Weather::CommitsAreLost, Call::Commit(_)) => Fate::FailsAfter,
        _ => Fate::Works,
    };
    let store = Arc::new(Faulty::new(Arc::new(memory.clone()), plan));
    (orbit_on(memory, store, config), weather)
}

#[tokio::test(start_paused = true)]
async fn a_report_whose_commit_fails_is_taken_when_it_comes_again() {
    let (orbit, weather) = stormy(Config::default());
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("one", "e").await;
    let task = orbit.task(session).await;
    *weather.lock().unwrap() = Weather::CommitsFail;
    let failed = orbit.engine.report(task.token.clone(), complete("1")).await;
    assert!(matches!(failed, Err(Error::Store(_))), "{failed:?}");
    *weather.lock().unwrap() = Weather::Fine;
    assert_eq!(orbit.phase("e").await, Phase::Running);
    assert_eq!(orbit.report(&task, complete("1")).await, ReportOutcome::Accepted);
    assert_eq!(orbit.phase("e").await, Phase::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_report_whose_answer_is_lost_is_a_duplicate_when_it_comes_again() {
    let (orbit, weather) = stormy(Config::default());
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("one", "e").await;
    let task = orbit.task(session).await;
    *weather.lock().unwrap() = Weather::CommitsAreLost;
    assert!(orbit.engine.report(task.token.clone(), complete("1")).await.is_err());
    *weather.lock().unwrap() = Weather::Fine;
    assert_eq!(orbit.report(&task, complete("1")).await, ReportOutcome::Duplicate);
    assert_eq!(orbit.wait("e", 1.0).await, Phase::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_start_whose_answer_is_lost_is_found_when_it_comes_again() {
    let (orbit, weather) = stormy(Config::default());
    orbit.deploy("one", ONE_TASK).await;
    let mut call = start_of("one", "e", "{}");
    call.request = Some(request("r", "1"));
    *weather.lock().unwrap() = Weather::CommitsAreLost;
    assert!(matches!(orbit.engine.start_execution(call.clone()).await, Err(Error::Store(_))));
    *weather.lock().unwrap() = Weather::Fine;
    assert!(orbit.engine.start_execution(call).await.unwrap().created, "the same request has the same answer");
    assert!(!orbit.start("one", "e").await.created);
    let session = orbit.worker(&["a@1"]).await;
    orbit.task(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_poll_survives_a_store_that_fails_for_a_while() {
    let (orbit, weather) = stormy(Config::default());
    orbit.deploy("one", ONE_TASK).await;
    orbit.start("one", "e").await;
    let session = orbit.worker(&["a@1"]).await;
    *weather.lock().unwrap() = Weather::AllFails;
    let engine = orbit.engine.clone();
    let polling = tokio::spawn(async move { engine.poll(session, 1, Duration::from_secs(25)).await.unwrap() });
    pass(5.0).await;
    *weather.lock().unwrap() = Weather::Fine;
    assert_eq!(polling.await.unwrap().tasks.len(), 1);
    assert!(orbit.now().since(START) < Duration::from_secs(7), "{:?}", orbit.now().since(START));
}

#[tokio::test(start_paused = true)]
async fn timers_go_on_once_the_store_does() {
    let (orbit, weather) = stormy(Config::default());
    orbit.deploy("nap", "steps:\n  - {id: a, sleep: {for: 20s}}\n").await;
    orbit.start("nap", "e").await;
    for storm in [Weather::AllFails, Weather::CommitsFail, Weather::ReadsFail] {
        *weather.lock().unwrap() = storm;
        pass(10.0).await;
    }
    *weather.lock().unwrap() = Weather::Fine;
    assert_eq!(orbit.wait("e", 10.0).await, Phase::Succeeded);
    assert!(orbit.now().since(START) < Duration::from_millis(31_500), "{:?}", orbit.now().since(START));
}

#[tokio::test(start_paused = true)]
async fn a_timer_is_in_time_although_the_answer_to_its_commit_is_lost() {
    let (orbit, weather) = stormy(Config::default());
    let lines = "signals: {s: {}}\nsteps:\n  - {id: long, sleep: {for: 9s}}\n  - {id: go, await: {signal: s}}\n  \
                 - {id: short, sleep: {for: 1s}, needs: [go]}\n";
    orbit.deploy("naps", lines).await;
    orbit.start("naps", "e").await;
    *weather.lock().unwrap() = Weather::CommitsAreLost;
    assert!(orbit.signal("e", "s", "1").await.is_err());
    *weather.lock().unwrap() = Weather::Fine;
    pass(1.5).await;
    assert_eq!(orbit.step("e", "short").await, StepState::Succeeded);
    assert_eq!(orbit.step("e", "long").await, StepState::Sleeping);
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_no_mass_death() {
    let (orbit, weather) = stormy(Config::default());
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("one", "e").await;
    let task = orbit.task(session).await;
    orbit.hold(session, &[&task], 60).await;
    *weather.lock().unwrap() = Weather::AllFails;
    for _ in 0..6 {
        let _ = orbit.engine.heartbeat(session, vec![listed(&task)]).await;
        pass(10.0).await;
    }
    *weather.lock().unwrap() = Weather::Fine;
    pass(5.0).await;
    orbit.hold(session, &[&task], 60).await;
    assert_eq!(orbit.report(&task, complete("1")).await, ReportOutcome::Accepted);
    assert_eq!(orbit.kinds("e").await.len(), 6, "{:?}", orbit.kinds("e").await);
}

/// Random numbers, but for the one time when there are none.
struct Fainting {
    inner: SeededEntropy,
    faints: AtomicBool,
}

impl Entropy for Fainting {
    fn uuid(&self) -> uuid::Uuid {
        assert!(!self.faints.swap(false, Ordering::Relaxed), "no random numbers");
        self.inner.uuid()
    }

    fn number(&self) -> u64 {
        self.inner.number()
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_panics_answers_and_the_next_one_goes_on() {
    let entropy = Arc::new(Fainting { inner: SeededEntropy::new(7), faints: AtomicBool::new(false) });
    let memory = MemoryStore::new();
    let clock = Arc::new(TokioClock::starting_at(START));
    let engine = Engine::start(Arc::new(memory.clone()), clock.clone(), entropy.clone(), Config::default());
    let orbit = Orbit { engine, memory, clock };
    orbit.deploy("one", ONE_TASK).await;
    let session = orbit.worker(&["a@1"]).await;
    orbit.start("one", "e").await;
    let task = orbit.task(session).await;
    entropy.faints.store(true, Ordering::Relaxed);
    let failed = orbit.engine.report(task.token.clone(), complete("1")).await;
    assert!(matches!(failed, Err(Error::Internal)), "{failed:?}");
    assert_eq!(orbit.report(&task, complete("1")).await, ReportOutcome::Accepted);
    assert_eq!(orbit.phase("e").await, Phase::Succeeded);
    assert_eq!(orbit.engine.sizes().mailboxes, 0);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_although_the_store_fails() {
    let (orbit, weather) = stormy(Config::default());
    orbit.deploy("one", ONE_TASK).await;
    orbit.start("one", "e").await;
    let session = orbit.worker(&["a@1"]).await;
    *weather.lock().unwrap() = Weather::AllFails;
    let engine = orbit.engine.clone();
    let polling = tokio::spawn(async move { engine.poll(session, 1, Duration::from_secs(25)).await });
    pass(1.5).await;
    tokio::time::timeout(Duration::from_secs(10), orbit.engine.shutdown()).await.expect("it ends");
    assert!(polling.await.unwrap().unwrap().draining);
}
