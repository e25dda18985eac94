//! Stored data that contradicts itself, or that a newer version wrote: one execution suffers, no other does.

use crate::harness::*;
use bytes::Bytes;
use orbit::domain::{Phase, Timestamp};
use orbit::engine::{Config, Error};
use orbit::store::{Append, Committed, Find, MemoryStore, Store, Target, WakeChange};
use std::sync::Arc;
use uuid::Uuid;

const SLEEPER: &str = "steps:\n  - id: nap\n    sleep: {for: 60s}\n";

/// Appends bytes to an execution's history behind the engine's back, and has it woken at a time.
async fn append(memory: &MemoryStore, id: &str, bytes: &[u8], wake_time: Timestamp) {
    let row = memory.execution(&Find::Id(arc(id))).await.unwrap().expect("it was started");
    let last = memory.history(row.key, 0, 100, usize::MAX).await.unwrap().last().expect("it has events").last_number;
    let append = Append {
        target: Target::Existing(row.key),
        run: 1,
        first_number: last + 1,
        last_number: last + 1,
        batch_id: Uuid::from_u128(u128::from(last)),
        events: Bytes::copy_from_slice(bytes),
        payloads: Vec::new(),
        ready_added: Vec::new(),
        ready_removed: Vec::new(),
        state: None,
        wake: WakeChange::Set(Some(wake_time)),
        snapshot: None,
        begins_run: None,
        deletion: None,
    };
    assert_eq!(memory.commit(vec![append]).await.unwrap(), [Committed::Written(row.key)]);
}

/// Two sleepers that one life of the engine leaves behind, "bad" and "good".
async fn left_behind() -> MemoryStore {
    let orbit = orbit();
    orbit.deploy("sleeper", SLEEPER).await;
    orbit.start("sleeper", "bad").await;
    orbit.start("sleeper", "good").await;
    let memory = orbit.memory.clone();
    orbit.engine.shutdown().await;
    memory
}

#[tokio::test(start_paused = true)]
async fn c141_an_execution_with_damaged_history_is_set_aside_and_the_timers_go_on() {
    let memory = left_behind().await;
    append(&memory, "bad", b"no events at all", START).await;
    let orbit = orbit_on(memory.clone(), Arc::new(memory), Config::default());
    assert_eq!(orbit.wait("good", 90.0).await, Phase::Succeeded);
    let refused = orbit.engine.execution(&name("bad")).await;
    assert!(matches!(refused, Err(Error::Quarantined { .. })), "{refused:?}");
    let row = orbit.memory.execution(&Find::Id(arc("bad"))).await.unwrap().unwrap();
    assert!(row.quarantined.is_some());
    assert!(orbit.memory.due(orbit.now(), 10).await.unwrap().is_empty(), "it is not woken again");
}

#[tokio::test(start_paused = true)]
async fn c141_events_that_do_not_follow_are_no_reason_to_panic() {
    let memory = left_behind().await;
    // The first event once more: an event that is out of order.
    let row = memory.execution(&Find::Id(arc("bad"))).await.unwrap().unwrap();
    let first = memory.history(row.key, 0, 1, usize::MAX).await.unwrap().remove(0);
    append(&memory, "bad", &[&first.events[..], &first.events[..]].concat(), START).await;
    let orbit = orbit_on(memory.clone(), Arc::new(memory), Config::default());
    assert_eq!(orbit.wait("good", 90.0).await, Phase::Succeeded);
    assert!(matches!(orbit.engine.execution(&name("bad")).await, Err(Error::Quarantined { .. })));
}

#[tokio::test(start_paused = true)]
async fn an_event_of_a_newer_version_stops_its_execution_and_is_not_skipped() {
    let memory = left_behind().await;
    // Field 1 of a batch: an event with number 3, a time, and a kind of field 900.
    let event = [&[0x08, 3, 0x12, 0][..], &[0xA2, 0x38, 0]].concat();
    let bytes = [&[0x0A, u8::try_from(event.len()).unwrap()][..], &event].concat();
    append(&memory, "bad", &bytes, START).await;
    let orbit = orbit_on(memory.clone(), Arc::new(memory), Config::default());
    assert_eq!(orbit.wait("good", 90.0).await, Phase::Succeeded);
    let refused = orbit.engine.execution(&name("bad")).await;
    assert!(matches!(refused, Err(Error::EventUnknown)), "{refused:?}");
    let row = orbit.memory.execution(&Find::Id(arc("bad"))).await.unwrap().unwrap();
    assert!(row.quarantined.is_none(), "a newer version can still serve it");
}
