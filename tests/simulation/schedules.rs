//! Schedules on several nodes, under crashes, downtimes, slow and failing stores and clocks that jump: each slot starts at most
//! once, exactly once where its policy says so, and the ledger agrees with what happened.
//!
//! `SEED=… cargo test --test simulation schedules` replays one run.

mod calls;
mod damage;
mod open;

use crate::harness::*;
use crate::random::Random;
use orbit::clock::{Clock as _, SeededEntropy, TokioClock};
use orbit::domain::{Phase, Timestamp, schedule::Spec};
use orbit::engine::{BackfillSpan, Config, Engine, Error, NewSchedule, Patch, Viewed};
use orbit::proto::{json, schedule as proto};
use orbit::store::{
    Faulty, ListFilter, MemoryStore, ScheduleFilter, ScheduleState, SlotKind, SlotOutcome, SlotRow, Store,
    faulty::{Call, Fate},
};
use orbit::wire::{
    Violations,
    schedule::{Settings, Update, stored},
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

const QUICK: &str = "steps: [{id: a, compute: \"${ input }\"}]\n";
const SLOW: &str = "steps: [{id: a, sleep: {for: 45s}}]\n";
const FRAIL: &str = "steps: [{id: a, fail: {code: NO, message: no}}]\n";

/// A schedule from the JSON of what callers set.
fn schedule(id: &str, settings: &str) -> NewSchedule {
    let message: proto::Schedule = json::from_slice(settings.as_bytes()).unwrap();
    let mut violations = Violations::new();
    let settings = Settings::judge(&mut violations, &message);
    NewSchedule { id: arc(id), settings: violations.finish(settings).unwrap(), paused: None, request: None }
}

/// Every so many seconds.
fn every(seconds: u64, workflow: &str, policies: &str) -> String {
    format!(
        r#"{{"spec":{{"intervals":[{{"every":"{seconds}s"}}]}},"start":{{"workflow":"{workflow}"}},"policies":{policies}}}"#
    )
}

/// What an update sets.
fn patch(settings: &str) -> Patch {
    let after: proto::Schedule = json::from_slice(settings.as_bytes()).unwrap();
    Arc::new(move |before| {
        let mut violations = Violations::new();
        let update = Update::judge(&mut violations, stored(before).ok().as_ref(), &after);
        violations.finish(update)
    })
}

async fn ledger(memory: &MemoryStore, viewed: &Viewed) -> Vec<SlotRow> {
    memory.slots(viewed.row.key, None, None, 1_000_000).await.unwrap()
}

fn started(slots: &[SlotRow], kind: SlotKind) -> Vec<Timestamp> {
    let started = slots.iter().filter(|slot| slot.outcome == SlotOutcome::Started && slot.name.kind == kind);
    let mut times: Vec<Timestamp> = started.map(|slot| slot.name.nominal_time).collect();
    times.sort_unstable();
    times
}

/// All slots of a spec after one instant and up to another.
fn slots_between(settings: &str, after: Timestamp, until: Timestamp) -> Vec<Timestamp> {
    let spec: Spec = Settings::restore(settings).unwrap().spec;
    let mut times = Vec::new();
    let mut at = after;
    while let Some(next) = spec.next(at).filter(|next| *next <= until) {
        times.push(next);
        at = next;
    }
    times
}

impl Orbit {
    async fn schedule(&self, id: &str, settings: &str) -> Viewed {
        self.engine.create_schedule(schedule(id, settings)).await.unwrap()
    }

    async fn viewed(&self, id: &str) -> Viewed {
        self.engine.schedule(id, None).await.unwrap()
    }

    async fn outcomes(&self, id: &str) -> Vec<(i64, SlotOutcome)> {
        let viewed = self.viewed(id).await;
        let mut slots = ledger(&self.memory, &viewed).await;
        slots.reverse();
        let since = viewed.row.create_time;
        slots.iter().map(|slot| (slot.name.nominal_time.since(since).as_secs() as i64, slot.outcome)).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn slots_start_when_they_are_due_and_an_idle_schedule_costs_nothing() {
    let orbit = orbit();
    orbit.deploy("quick", QUICK).await;
    let made = orbit.schedule("tick", &every(10, "quick", "{}")).await;
    pass(35.0).await;
    use SlotOutcome::Started;
    assert_eq!(orbit.outcomes("tick").await, [(10, Started), (20, Started), (30, Started)]);
    for slot in ledger(&orbit.memory, &made).await {
        let (id, uid) = slot.execution.clone().unwrap();
        let standing = orbit.standing(&id).await;
        assert_eq!((standing.row.uid, standing.state.phase()), (uid, Phase::Succeeded));
        assert_eq!(standing.row.labels["orbit.schedule"], "tick");
        assert!(slot.actual_time.since(slot.planned_time) < Duration::from_millis(10), "{slot:?}");
    }
    orbit.engine.pause_schedule(arc("tick"), None, arc(""), None).await.unwrap();
    let before = orbit.memory.statistics();
    pass(10_000.0).await;
    let written = orbit.memory.statistics().since(&before);
    assert_eq!(written.rows(orbit::store::Change::ScheduleWritten), 0);
}

#[tokio::test(start_paused = true)]
async fn the_next_life_begins_after_what_a_schedule_has_started() {
    let orbit = orbit();
    orbit.deploy("slow", SLOW).await;
    orbit.schedule("s", &every(600, "slow", "{}")).await;
    // The first slot is 200 s away; what it starts sleeps on.
    pass(205.0).await;
    let newest = orbit.memory.list(&ListFilter::default(), None, 1).await.unwrap().rows.pop().expect("it has fired");
    let written = orbit.memory.opened().newest_now;
    assert!(written.is_some_and(|time| time >= newest.start_time), "{written:?} {:?}", newest.start_time);
}

#[tokio::test(start_paused = true)]
async fn overlaps_are_decided_by_policy() {
    use SlotOutcome::{Buffered, Overlapped, Started, Superseded};
    let orbit = orbit();
    orbit.deploy("slow", SLOW).await;
    for (id, policy) in [
        ("skip", "OVERLAP_SKIP"),
        ("allow", "OVERLAP_ALLOW"),
        ("buffer", "OVERLAP_BUFFER_ONE"),
        ("cancel", "OVERLAP_CANCEL_PREVIOUS"),
        ("terminate", "OVERLAP_TERMINATE_PREVIOUS"),
    ] {
        orbit.schedule(id, &every(20, "slow", &format!(r#"{{"overlap":"{policy}"}}"#))).await;
    }
    pass(64.0).await;
    assert_eq!(orbit.outcomes("skip").await, [(20, Started), (40, Overlapped), (60, Overlapped)]);
    assert_eq!(orbit.outcomes("allow").await, [(20, Started), (40, Started), (60, Started)]);
    assert_eq!(orbit.outcomes("buffer").await, [(20, Started), (40, Buffered), (60, Overlapped)]);
    pass(2.0).await;
    assert_eq!(orbit.outcomes("buffer").await[1], (40, Started), "it starts when the open one has ended");
    for (id, phase) in [("cancel", Phase::Cancelled), ("terminate", Phase::Terminated)] {
        assert_eq!(orbit.outcomes(id).await, [(20, Started), (40, Started), (60, Started)], "{id}");
        let viewed = orbit.viewed(id).await;
        let slots = ledger(&orbit.memory, &viewed).await;
        let ended = &slots[2].execution.as_ref().unwrap().0;
        assert_eq!(orbit.phase(ended).await, phase, "{id}");
        assert_eq!(viewed.open().len(), 1);
    }
    assert!(!orbit.outcomes("cancel").await.iter().any(|slot| slot.1 == Superseded));
}

#[tokio::test(start_paused = true)]
async fn after_a_downtime_the_catch_up_window_decides_and_there_is_no_storm() {
    let memory = MemoryStore::new();
    let orbit = orbit_on(memory.clone(), Arc::new(memory.clone()), Config::default());
    orbit.deploy("quick", QUICK).await;
    let allow =
        |window: &str| every(1, "quick", &format!(r#"{{"overlap":"OVERLAP_ALLOW","catchupWindow":"{window}"}}"#));
    orbit.schedule("short", &allow("60s")).await;
    orbit.schedule("long", &allow("86400s")).await;
    pass(2.5).await;
    let Orbit { engine, clock, .. } = orbit;
    engine.shutdown().await;
    let down = clock.now() + Duration::from_secs(600);
    tokio::time::sleep(Duration::from_secs(600)).await;

    let clock = Arc::new(TokioClock::starting_at(down));
    let entropy = Arc::new(SeededEntropy::new(9));
    let engine = Engine::start(Arc::new(memory.clone()), clock.clone(), entropy, Config::default());
    let orbit = Orbit { engine, memory: memory.clone(), clock };
    pass(1.0).await;
    let slots = ledger(&memory, &orbit.viewed("long").await).await;
    let late = started(&slots, SlotKind::Regular).len();
    assert!((2..=30).contains(&late), "{late} have started within a second: ten a second");
    pass(120.0).await;
    let (short, long) = (orbit.viewed("short").await, orbit.viewed("long").await);
    let slots = ledger(&memory, &short).await;
    let missed: Vec<&SlotRow> = slots.iter().filter(|slot| slot.outcome == SlotOutcome::Missed).collect();
    let count: u64 = missed.iter().map(|slot| slot.slot_count).sum();
    assert!((530..=545).contains(&count) && missed.len() < 5, "{count} in {} rows", missed.len());
    assert_eq!(short.row.counts.missed, count);
    let all = slots_between(&long.row.settings, long.row.create_time, long.row.cursor_time);
    assert_eq!(started(&ledger(&memory, &long).await, SlotKind::Regular), all, "in order, each once, none left out");
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_jumps_starts_nothing_twice_and_loses_nothing() {
    let orbit = orbit();
    orbit.deploy("quick", QUICK).await;
    orbit.schedule("tick", &every(5, "quick", r#"{"overlap":"OVERLAP_ALLOW"}"#)).await;
    for jump in [0, -30_000_000, 3_000_000, -1, 60_000_000, -90_000_000] {
        orbit.clock.jump_wall(jump);
        pass(21.0).await;
    }
    pass(120.0).await;
    let viewed = orbit.viewed("tick").await;
    let all = slots_between(&viewed.row.settings, viewed.row.create_time, viewed.row.cursor_time);
    assert_eq!(started(&ledger(&orbit.memory, &viewed).await, SlotKind::Regular), all);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_whose_starts_fail_is_invalid_until_one_succeeds() {
    let orbit = orbit();
    orbit.deploy("strict", "input: {type: object}\nsteps: [{id: a, compute: 1}]\n").await;
    let settings = |input: &str| {
        format!(
            r#"{{"spec":{{"intervals":[{{"every":"10s"}}]}},"start":{{"workflow":"strict","input":{input}}},"policies":{{}}}}"#
        )
    };
    orbit.schedule("a", &settings("{}")).await;
    orbit.schedule("b", &settings("{}")).await;
    pass(11.0).await;
    // A newer version takes another input; `b` has it pinned to what it can take.
    let text = "name: strict\nversion: 1.1.0\ninput: {type: object, required: [n]}\nsteps: [{id: a, compute: 1}]\n";
    let (newer, _) = orbit::domain::definition::Definition::parse("t.yaml", text).unwrap();
    orbit.engine.deploy(newer, text.to_owned()).await.unwrap();
    let pinned = settings("{}").replace("\"strict\"", "\"strict\",\"version\":\"1.0.0\"");
    orbit.engine.update_schedule(arc("b"), None, patch(&pinned), None).await.unwrap();
    pass(10.0).await;
    let (a, b) = (orbit.viewed("a").await, orbit.viewed("b").await);
    assert_eq!((a.row.state, b.row.state), (ScheduleState::Invalid, ScheduleState::Active));
    assert!(a.row.invalid.as_ref().unwrap().contains('n'), "{:?}", a.row.invalid);
    assert_eq!(orbit.outcomes("a").await[1].1, SlotOutcome::Failed);
    let text = "name: strict\nversion: 1.2.0\nsteps: [{id: a, compute: 1}]\n";
    let (newest, _) = orbit::domain::definition::Definition::parse("t.yaml", text).unwrap();
    orbit.engine.deploy(newest, text.to_owned()).await.unwrap();
    pass(10.0).await;
    let a = orbit.viewed("a").await;
    assert_eq!((a.row.state, a.row.counts.started, a.row.counts.failed), (ScheduleState::Active, 2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_backfill_goes_on_beside_a_schedule_that_is_always_about_to_fire() {
    let orbit = orbit();
    orbit.deploy("quick", QUICK).await;
    let made = orbit.schedule("tick", &every(1, "quick", "{}")).await;
    pass(2.5).await;
    let last = made.row.create_time - Duration::from_secs(60);
    let span = BackfillSpan { first: last - Duration::from_secs(49), last, concurrency: 1 };
    orbit.engine.backfill_schedule(arc("tick"), span, None).await.unwrap();
    pass(10.0).await;
    let viewed = orbit.viewed("tick").await;
    let slots = ledger(&orbit.memory, &viewed).await;
    assert_eq!(started(&slots, SlotKind::Backfill).len(), 50);
    let all = slots_between(&viewed.row.settings, viewed.row.create_time, viewed.row.cursor_time);
    assert_eq!(started(&slots, SlotKind::Regular), all, "the schedule's own slots have not met it");
}

#[tokio::test(start_paused = true)]
async fn the_last_slot_that_may_start_and_fails_to_leaves_its_place_to_the_next() {
    let orbit = orbit();
    let strict = async |version: &str, lines: &str| {
        let text = format!("name: strict\nversion: {version}\n{lines}steps: [{{id: a, compute: 1}}]\n");
        let (definition, _) = orbit::domain::definition::Definition::parse("t.yaml", &text).unwrap();
        orbit.engine.deploy(definition, text).await.unwrap();
    };
    strict("1.0.0", "").await;
    for overlap in ["SKIP", "ALLOW", "BUFFER_ONE", "CANCEL_PREVIOUS"] {
        let policies = format!(r#"{{"overlap":"OVERLAP_{overlap}","maxActions":"1"}}"#);
        orbit.schedule(overlap, &every(10, "strict", &policies)).await;
    }
    strict("1.1.0", "input: {type: object, required: [n]}\n").await;
    pass(25.0).await;
    strict("1.2.0", "").await;
    pass(30.0).await;
    for overlap in ["SKIP", "ALLOW", "BUFFER_ONE", "CANCEL_PREVIOUS"] {
        let outcomes = orbit.outcomes(overlap).await;
        assert_eq!(
            outcomes,
            [(10, SlotOutcome::Failed), (20, SlotOutcome::Failed), (30, SlotOutcome::Started)],
            "{overlap}"
        );
        assert_eq!(orbit.viewed(overlap).await.row.state, ScheduleState::Completed, "{overlap}");
    }
}

/// Nodes that share a store, some of which die.
struct Fleet {
    memory: MemoryStore,
    nodes: Vec<(Orbit, Arc<AtomicBool>)>,
    made: usize,
}

impl Fleet {
    fn join(&mut self, seed: u64) {
        let number = self.made;
        self.made += 1;
        let dead = Arc::new(AtomicBool::new(false));
        let (is_dead, random) = (dead.clone(), Mutex::new(Random::new(seed ^ (number as u64) << 32)));
        let plan = move |call: Call<'_>| {
            if is_dead.load(Ordering::Relaxed) {
                return Fate::Takes(Duration::from_secs(1_000_000_000));
            }
            let mut random = random.lock().unwrap();
            match call {
                Call::Write("write_schedules") => match random.below(20) {
                    0 => Fate::FailsBefore,
                    1 | 2 => Fate::FailsAfter,
                    3 => {
                        // It dies with the write, which is made or not.
                        if random.below(4) == 0 {
                            is_dead.store(true, Ordering::Relaxed);
                            return if random.below(2) == 0 { Fate::Hangs } else { Fate::FailsBefore };
                        }
                        Fate::Takes(Duration::from_millis(random.below(5_000) as u64))
                    }
                    _ => Fate::Works,
                },
                Call::Read("schedules_due" | "schedules_of" | "states_of") if random.below(15) == 0 => {
                    Fate::Takes(Duration::from_millis(random.below(3_000) as u64))
                }
                Call::Commit(_) if random.below(40) == 0 => Fate::FailsAfter,
                Call::Commit(_) | Call::Read(_) | Call::Write(_) => Fate::Works,
            }
        };
        let store = Faulty::new(Arc::new(self.memory.another_node(number)), plan);
        let newest = self.memory.opened().newest_now.unwrap_or(START);
        let clock = Arc::new(TokioClock::starting_at(newest));
        let entropy = Arc::new(SeededEntropy::new(seed + 1_000 + number as u64));
        let engine = Engine::start(Arc::new(store), clock.clone(), entropy, Config::default());
        self.nodes.push((Orbit { engine, memory: self.memory.clone(), clock }, dead));
    }

    fn alive(&self, random: &mut Random) -> Option<&Orbit> {
        let alive: Vec<&Orbit> =
            self.nodes.iter().filter(|(_, dead)| !dead.load(Ordering::Relaxed)).map(|(orbit, _)| orbit).collect();
        (!alive.is_empty()).then(|| alive[random.below(alive.len())])
    }
}

/// A change of a schedule that was answered: from then on nothing starts that was decided before it.
struct Answered {
    schedule: String,
    version: u64,
    /// Rows of the ledger that had started when it was answered.
    started: usize,
    what: &'static str,
}

#[tokio::test(start_paused = true)]
async fn random_schedules_start_each_slot_at_most_once_and_the_ledger_agrees() {
    let seeds: Vec<u64> = match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (1..=12).collect(),
    };
    for seed in seeds {
        println!("SEED={seed}");
        run(seed).await;
    }
}

async fn run(seed: u64) {
    let mut random = Random::new(seed);
    let mut fleet = Fleet { memory: MemoryStore::shared(), nodes: Vec::new(), made: 0 };
    let count = 1 + random.below(3);
    for _ in 0..count {
        fleet.join(seed);
    }
    let first = &fleet.nodes[0].0;
    for (workflow, lines) in [("quick", QUICK), ("slow", SLOW), ("frail", FRAIL)] {
        // The definitions are there whatever becomes of the nodes.
        loop {
            let (definition, text) = definition(workflow, lines);
            if first.engine.deploy(definition, text).await.is_ok() {
                break;
            }
            pass(0.1).await;
        }
    }
    let mut settings: BTreeMap<String, String> = BTreeMap::new();
    let mut steady = Vec::new();
    for number in 0..8 {
        let seconds = 1 + random.below(40) as u64;
        let workflow = ["quick", "slow", "frail"][random.below(3)];
        let overlap = ["SKIP", "ALLOW", "BUFFER_ONE", "CANCEL_PREVIOUS", "TERMINATE_PREVIOUS"][random.below(5)];
        let fragile = random.below(4) == 0;
        let policies = format!(r#"{{"overlap":"OVERLAP_{overlap}","pauseOnFailure":{fragile}}}"#);
        let id = format!("s{number}");
        let text = every(seconds, workflow, &policies);
        if overlap == "ALLOW" && !fragile {
            steady.push(id.clone());
        }
        settings.insert(id, text);
    }
    // One of them is never touched and starts every slot.
    settings.insert("steady".to_owned(), every(3, "quick", r#"{"overlap":"OVERLAP_ALLOW"}"#));
    steady.push("steady".to_owned());
    for (id, text) in &settings {
        loop {
            let Some(node) = fleet.alive(&mut random) else {
                fleet.join(seed);
                continue;
            };
            let made =
                tokio::time::timeout(Duration::from_secs(20), node.engine.create_schedule(schedule(id, text))).await;
            // It may have been made though the answer was lost.
            if matches!(made, Ok(Ok(_) | Err(Error::ScheduleAlreadyExists { .. }))) {
                break;
            }
        }
    }
    let mut answered: Vec<Answered> = Vec::new();
    let changed = AtomicUsize::new(0);
    for _ in 0..40 {
        pass(random.below(8_000) as f64 / 1_000.0).await;
        let Some(node) = fleet.alive(&mut random) else {
            // Nobody is there for a while.
            pass(random.below(120) as f64).await;
            fleet.join(seed);
            continue;
        };
        let id = format!("s{}", random.below(8));
        let engine = node.engine.clone();
        let limit = Duration::from_secs(30);
        match random.below(12) {
            0 => node.clock.jump_wall([-20_000_000, 20_000_000, 60_000_000][random.below(3)]),
            1 => fleet.join(seed),
            2 | 3 => {
                let trigger = engine.trigger_schedule(arc(&id), None, None);
                drop(tokio::time::timeout(limit, trigger).await);
            }
            4 => {
                let last = node.clock.wall() - Duration::from_secs(10);
                let span = BackfillSpan { first: last - Duration::from_secs(100), last, concurrency: 3 };
                drop(tokio::time::timeout(limit, engine.backfill_schedule(arc(&id), span, None)).await);
            }
            5 => {
                steady.retain(|it| *it != id);
                let resumed = tokio::time::timeout(limit, engine.resume_schedule(arc(&id), None, None)).await;
                drop(resumed);
            }
            6 => {
                steady.retain(|it| *it != id);
                let text = every(1 + random.below(40) as u64, "quick", "{}");
                let updated =
                    tokio::time::timeout(limit, engine.update_schedule(arc(&id), None, patch(&text), None)).await;
                changed.fetch_add(usize::from(matches!(updated, Ok(Ok(_)))), Ordering::Relaxed);
            }
            7 | 8 => {
                steady.retain(|it| *it != id);
                let paused = tokio::time::timeout(limit, engine.pause_schedule(arc(&id), None, arc("x"), None)).await;
                if let Ok(Ok(viewed)) = paused {
                    let slots = ledger(&fleet.memory, &viewed).await;
                    let started = started(&slots, SlotKind::Regular).len();
                    answered.push(Answered { schedule: id, version: viewed.row.revision, started, what: "paused" });
                }
            }
            _ => {}
        }
        // Nothing regular has started of a schedule whose pause was answered, until somebody changed it again.
        for Answered { schedule, version, started: before, what } in &answered {
            let find = orbit::store::FindSchedule::Id(arc(schedule));
            let row = fleet.memory.schedule(&find).await.unwrap().unwrap();
            if row.revision == *version {
                let slots = fleet.memory.slots(row.key, None, None, 1_000_000).await.unwrap();
                assert_eq!(started(&slots, SlotKind::Regular).len(), *before, "{schedule} was {what}, seed {seed}");
            }
        }
    }
    // Whoever lives on has peace, so that everything ends that can.
    fleet.join(seed);
    pass(200.0).await;
    check(&fleet.memory, &steady, seed).await;
    for (orbit, dead) in fleet.nodes {
        dead.store(true, Ordering::Relaxed);
        drop(orbit);
    }
}

/// The ledger agrees with the executions, and with the specs where policies leave nothing out.
async fn check(memory: &MemoryStore, steady: &[String], seed: u64) {
    let rows = memory.schedules(&ScheduleFilter::default(), None, 1_000).await.unwrap();
    let executions = memory.list(&ListFilter::default(), None, 1_000_000).await.unwrap().rows;
    let mut by_uid: BTreeMap<_, _> = executions.iter().map(|row| (row.uid, row)).collect();
    assert_eq!(by_uid.len(), executions.len());
    for row in rows {
        let slots = memory.slots(row.key, None, None, 1_000_000).await.unwrap();
        for slot in slots.iter().filter(|slot| slot.outcome == SlotOutcome::Started) {
            let (id, uid) = slot.execution.clone().expect("it has started one");
            let execution = by_uid.remove(&uid).unwrap_or_else(|| panic!("{slot:?} has no execution, seed {seed}"));
            assert_eq!((&execution.id, &*execution.labels["orbit.schedule"]), (&id, &*row.id));
        }
        let counted = slots.iter().filter(|slot| slot.outcome == SlotOutcome::Started).count() as u64;
        assert_eq!(row.counts.started, counted, "{} of seed {seed}", row.id);
        let regular = started(&slots, SlotKind::Regular);
        let all = slots_between(&row.settings, row.create_time, row.cursor_time);
        if steady.iter().any(|it| **it == *row.id) {
            assert_eq!(regular, all, "{} of seed {seed}: each slot once", row.id);
            assert!(row.state == ScheduleState::Active && regular.len() > 5, "{row:?}");
        }
    }
    assert_eq!(by_uid.len(), 0, "executions that no ledger knows, seed {seed}");
}
