//! Calls with a `request_id`: made at once by several, made again later, and made after they were forgotten.

use super::{QUICK, every, ledger, patch, schedule};
use crate::harness::*;
use crate::random::Random;
use orbit::clock::Clock as _;
use orbit::domain::Rejection;
use orbit::engine::{BackfillSpan, Config, Engine, Error, NewSchedule};
use orbit::store::{Faulty, ListFilter, MemoryStore, SlotKind, SlotOutcome, SlotRow, Store as _, faulty::Fate};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

/// The same call by several at once.
async fn at_once<F, T>(engine: &Engine, call: impl Fn(Engine) -> F) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let calls: Vec<_> = (0..6).map(|_| tokio::spawn(call(engine.clone()))).collect();
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.unwrap());
    }
    answers
}

/// An engine whose calls to the store take so long that other calls come in between.
fn slow_orbit(seed: u64) -> Orbit {
    let memory = MemoryStore::new();
    let random = Mutex::new(Random::new(seed));
    let store = Faulty::new(Arc::new(memory.clone()), move |_| {
        Fate::Takes(Duration::from_millis(random.lock().unwrap().below(20) as u64))
    });
    orbit_on(memory, Arc::new(store), Config::default())
}

fn made_by_call() -> NewSchedule {
    NewSchedule { request: Some(request("create", "")), ..schedule("a", &every(3_600, "quick", "{}")) }
}

#[tokio::test(start_paused = true)]
async fn of_the_same_call_at_once_one_is_carried_out_and_all_have_its_answer() {
    for seed in 1..=10 {
        let orbit = slow_orbit(seed);
        orbit.deploy("quick", QUICK).await;
        let engine = &orbit.engine;
        let made = at_once(engine, |engine| async move { engine.create_schedule(made_by_call()).await }).await;
        let uids: BTreeSet<_> = made.into_iter().map(|made| made.unwrap().row.uid).collect();
        assert_eq!(uids.len(), 1, "seed {seed}");

        let call = Some(request("trigger", ""));
        let triggered =
            at_once(engine, |engine| async move { engine.trigger_schedule(arc("a"), None, call).await }).await;
        let slots: Vec<SlotRow> = triggered.into_iter().map(Result::unwrap).collect();
        assert!(slots.iter().all(|slot| *slot == slots[0]), "seed {seed}: {slots:?}");

        let last = orbit.clock.wall();
        let span = BackfillSpan { first: last - Duration::from_secs(8_000), last, concurrency: 5 };
        let call = Some(request("backfill", ""));
        let filled =
            at_once(engine, |engine| async move { engine.backfill_schedule(arc("a"), span, call).await }).await;
        let names: BTreeSet<_> = filled.into_iter().map(|filled| filled.unwrap().0).collect();
        assert_eq!(names.len(), 1, "seed {seed}");

        for _ in 0..2 {
            let call = Some(request("pause", ""));
            let paused =
                at_once(engine, |engine| async move { engine.pause_schedule(arc("a"), None, arc("x"), call).await })
                    .await;
            assert!(paused.into_iter().all(|paused| paused.unwrap().row.revision == 2), "seed {seed}");
        }
        let call = Some(request("resume", ""));
        let resumed = at_once(engine, |engine| async move { engine.resume_schedule(arc("a"), None, call).await }).await;
        assert!(resumed.into_iter().all(|resumed| resumed.unwrap().row.revision == 3), "seed {seed}");
        let call = Some(request("update", ""));
        let settings = || patch(&every(7_200, "quick", "{}"));
        let updated =
            at_once(engine, |engine| async move { engine.update_schedule(arc("a"), None, settings(), call).await })
                .await;
        assert!(updated.into_iter().all(|updated| updated.unwrap().row.revision == 4), "seed {seed}");
        let call = Some(request("delete", ""));
        for deleted in
            at_once(engine, |engine| async move { engine.delete_schedule(arc("a"), None, false, call).await }).await
        {
            deleted.unwrap();
        }
        // What was made before is not made again now that the id is free.
        assert_eq!(engine.create_schedule(made_by_call()).await.unwrap().row.uid, uids.into_iter().next().unwrap());
        assert!(engine.schedule("a", None).await.is_err());
        pass(60.0).await;
        let executions = orbit.memory.list(&ListFilter::default(), None, 100).await.unwrap().rows;
        assert_eq!(executions.len(), 1 + 2, "seed {seed}: one was triggered, two were backfilled");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_answered_as_before_for_a_day_and_is_a_new_one_then() {
    let memory = MemoryStore::new();
    let config = Config { slot_retention: Duration::from_secs(3_600), ..Config::default() };
    let orbit = orbit_on(memory.clone(), Arc::new(memory), config);
    orbit.deploy("quick", QUICK).await;
    let made = orbit.schedule("a", &every(600, "quick", "{}")).await;
    let (call, other) = (Some(request("t", "")), Some(request("t", "other")));
    let first = orbit.engine.trigger_schedule(arc("a"), None, call).await.unwrap();
    pass(5.0 * 3_600.0).await;
    let slots = ledger(&orbit.memory, &made).await;
    assert_eq!(slots.last(), Some(&first), "all other slots of then have gone");
    assert!(slots.len() < 10, "{}", slots.len());
    assert_eq!(orbit.engine.trigger_schedule(arc("a"), None, call).await.unwrap(), first);
    let reused = orbit.engine.trigger_schedule(arc("a"), None, other).await;
    assert!(matches!(reused, Err(Error::Rejected(Rejection::RequestIdReused))), "{reused:?}");

    // A deleted schedule tells until then what a call has made of it.
    let call_of_deletion = Some(request("d", ""));
    orbit.schedule("b", &every(600, "quick", "{}")).await;
    orbit.engine.pause_schedule(arc("b"), None, arc("x"), Some(request("p", ""))).await.unwrap();
    orbit.engine.delete_schedule(arc("b"), None, false, call_of_deletion).await.unwrap();
    pass(5.0 * 3_600.0).await;
    orbit.engine.delete_schedule(arc("b"), None, false, call_of_deletion).await.unwrap();
    let paused = orbit.engine.pause_schedule(arc("b"), None, arc("x"), Some(request("p", ""))).await.unwrap();
    assert!(paused.row.delete_time.is_some());

    pass(15.0 * 3_600.0).await;
    let second = orbit.engine.trigger_schedule(arc("a"), None, other).await.unwrap();
    assert_eq!((second.outcome, second.name.kind), (SlotOutcome::Started, SlotKind::Trigger));
    assert!(second.name != first.name && second.execution != first.execution);
    pass(25.0 * 3_600.0).await;
    let slots = ledger(&orbit.memory, &made).await;
    assert!(slots.iter().all(|slot| slot.name.kind == SlotKind::Regular), "nobody asks for them any more");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_found_nothing_leaves_alone_what_was_made_since() {
    let orbit = slow_orbit(1);
    orbit.deploy("quick", QUICK).await;
    let engine = &orbit.engine;
    let call = Some(request("d", ""));
    for deleted in
        at_once(engine, |engine| async move { engine.delete_schedule(arc("a"), None, true, call).await }).await
    {
        deleted.unwrap();
    }
    let made = orbit.schedule("a", &every(600, "quick", "{}")).await;
    engine.delete_schedule(arc("a"), None, true, call).await.unwrap();
    assert_eq!(orbit.viewed("a").await.row.uid, made.row.uid);
    let reused = engine.delete_schedule(arc("a"), None, true, Some(request("d", "other"))).await;
    assert!(matches!(reused, Err(Error::Rejected(Rejection::RequestIdReused))), "{reused:?}");
    engine.delete_schedule(arc("a"), None, true, None).await.unwrap();
    assert!(engine.schedule("a", None).await.is_err());
    assert!(engine.delete_schedule(arc("a"), None, false, None).await.is_err());
}
