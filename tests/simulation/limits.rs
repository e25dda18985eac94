//! Limits of a server: open executions, and the length of a history.

use crate::harness::*;
use orbit::domain::{Phase, Settings};
use orbit::engine::{Config, Error, IdReuse, StartExecution};
use orbit::store::MemoryStore;
use std::sync::Arc;

const WAITER: &str = "signals: {go: {}, other: {}}\nsteps:\n  - {id: a, await: {signal: go}}\n";

fn limited(config: Config) -> Orbit {
    let memory = MemoryStore::new();
    orbit_on(memory.clone(), Arc::new(memory), config)
}

#[tokio::test(start_paused = true)]
async fn no_more_executions_are_open_than_may_be() {
    let orbit = limited(Config { active_executions_max: Some(2), ..Config::default() });
    orbit.deploy("waiter", WAITER).await;
    orbit.start("waiter", "a").await;
    orbit.start("waiter", "b").await;
    let start = |id: &str| orbit.engine.start_execution(start_of("waiter", id, "{}"));
    assert!(matches!(start("c").await, Err(Error::TooManyExecutions { limit: 2 })));
    assert!(!start("a").await.unwrap().created, "it is there");
    let replacing = StartExecution { id_reuse: IdReuse::TerminateRunning, ..start_of("waiter", "b", "{}") };
    assert!(orbit.engine.start_execution(replacing).await.unwrap().created, "one goes and one comes");
    orbit.signal("a", "go", "1").await.unwrap();
    assert_eq!(orbit.wait("a", 1.0).await, Phase::Succeeded);
    pass(1.0).await;
    assert!(start("c").await.unwrap().created);
    assert!(matches!(start("d").await, Err(Error::TooManyExecutions { .. })));
}

#[tokio::test(start_paused = true)]
async fn c087_a_loop_without_an_end_fails_once_its_history_is_too_long() {
    let settings = Settings { history_events_max: 100, ..Settings::default() };
    let orbit = limited(Config { settings, ..Config::default() });
    orbit.deploy("waiter", WAITER).await;
    orbit.start("waiter", "e").await;
    let mut signals = 0;
    while orbit.signal("e", "other", "1").await.is_ok() {
        signals += 1;
        assert!(signals < 200, "it ends");
    }
    let standing = orbit.standing("e").await;
    assert_eq!(standing.state.phase(), Phase::Failed);
    assert_eq!(&*standing.state.failure().unwrap().code, "HISTORY_TOO_LONG");
    assert!((100..110).contains(&standing.state.last_number()), "{}", standing.state.last_number());
}
