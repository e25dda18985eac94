//! Random runs: clients, workers, a store that fails, a server that dies, a clock that jumps; everything from one seed.
//!
//! `SEED=n` runs one case again, `RUNS=n` that many. `RECORD=1` runs until every combination of the coverage table was
//! reached [`RECORD_LEAST`] times, and writes the table.

use crate::{
    commands::work_diligently,
    coverage::{self, Command, Coverage, Fault},
    harness::{json, name, registration},
    random::Seed,
    world::{Server, World},
};
use orbit::domain::StepState;
use orbit::store::{ListFilter, Store};
use std::{
    cell::Cell,
    sync::{Arc, Once},
    time::Duration,
};

/// Runs of the usual test.
const RUNS: u64 = 100;
/// How often the run for the record reaches each combination.
const RECORD_LEAST: u64 = 100;
/// Steps of one life of a server.
const STEPS: usize = 40;
/// Lives of the server in one run, before the last one in which everything ends.
const LIVES: usize = 4;
/// Rounds of the last life, of about a second each: more than any timeout of the definitions, all after each other.
const LAST_ROUNDS: usize = 3_000;

struct Done {
    coverage: Coverage,
    digest: [u8; 16],
    events: usize,
}

thread_local! {
    /// Panics on this thread, also those that a task of the engine took with it.
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

/// Counts panics, since one in a task of the engine's may go unnoticed otherwise.
fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.set(PANICS.get() + 1);
            before(panic);
        }));
    });
    PANICS.set(0);
}

fn run(seed: u64) -> Done {
    let _seed = Seed(seed);
    count_panics();
    let mut world = World::new(seed);
    for _ in 0..LIVES {
        world.live(async |world, server| storm(world, server).await);
        // The server is down for a while, and the machine's clock may be another when it comes back.
        world.now = world.now + Duration::from_millis(world.random.next() % 20_000);
        if world.random.one_in(3) {
            world.wall_off = *world.random.pick(&[-3_600_000_000, 0, 3_600_000_000]);
        }
    }
    world.live(async |world, server| end_everything(world, server).await);
    assert_eq!(PANICS.get(), 0, "something panicked");
    let histories = world.histories();
    let (digest, events) = (histories.digest(), histories.all().map(|history| history.events.len()).sum());
    let coverage = world.shared().coverage.clone();
    Done { coverage, digest, events }
}

async fn deploy(world: &World, server: &Server) {
    for workflow in &world.workflows {
        let (definition, _) = orbit::domain::definition::Definition::parse("test.yaml", &workflow.text).unwrap();
        server.engine.deploy(definition, workflow.text.clone()).await.unwrap();
    }
}

/// One life: calm and gusts, until the server dies in the middle of it.
async fn storm(world: &mut World, server: &Server) {
    deploy(world, server).await;
    let slowness = Duration::from_millis(*world.random.pick(&[0, 3, 20]));
    server.weather(Fault::None, slowness);
    for _ in 0..STEPS {
        if world.random.one_in(3) {
            gust(world, server, slowness).await;
        } else {
            world.act(server).await;
        }
        let pause = *world.random.pick(&[0, 0, 1, 15, 200, 900, 2_500]);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if world.random.one_in(10) {
            world.check().await;
        }
    }
    // What is under way when it dies.
    server.weather(Fault::None, Duration::from_millis(30));
    world.focus(server).await;
    tokio::time::sleep(Duration::from_millis(40)).await;
    for _ in 0..10 {
        world.act_any(server).await;
    }
    world.focus = None;
    tokio::time::sleep(Duration::from_millis(world.random.next() % 20)).await;
    world.check().await;
}

/// Some commands at once, under one fault or none.
async fn gust(world: &mut World, server: &Server, slowness: Duration) {
    let fault = *world.random.pick(&[
        Fault::None,
        Fault::CommitFails,
        Fault::CommitLost,
        Fault::ReadFails,
        Fault::WriteFails,
        Fault::ClockJump,
    ]);
    if !world.random.one_in(3) {
        world.focus(server).await;
        tokio::time::sleep(2 * slowness).await;
    }
    server.weather(fault, slowness + Duration::from_millis(5));
    for _ in 0..6 {
        world.act_any(server).await;
    }
    // What meets the fault for sure, while the others are under way.
    match fault {
        Fault::CommitFails | Fault::CommitLost => world.perform(server, Command::Start).await,
        Fault::WriteFails | Fault::ReadFails => world.perform(server, Command::Register).await,
        Fault::None | Fault::Crash | Fault::ClockJump => {}
    }
    world.focus = None;
    tokio::time::sleep(Duration::from_millis(1)).await;
    if fault == Fault::ClockJump {
        let jump = *world.random.pick(&[-3_600_000_000, 3_600_000_000]);
        server.clock.jump_wall(jump);
        world.shared().happens(Fault::ClockJump);
    }
    let lasts = *world.random.pick(&[5, 50, 1_500]);
    tokio::time::sleep(Duration::from_millis(lasts)).await;
    server.weather(Fault::None, slowness);
}

/// Once faults stop and workers answer, everything ends, and nothing is left behind.
async fn end_everything(world: &mut World, server: &Server) {
    deploy(world, server).await;
    let mut diligent = registration(&crate::definitions::CONTRACTS);
    diligent.queues = crate::definitions::QUEUES.iter().map(|queue| Arc::from(*queue)).collect();
    let session = server.engine.register(diligent).await.unwrap().session;
    let mut open = Vec::new();
    for _ in 0..LAST_ROUNDS {
        while work_diligently(server, session).await > 0 {}
        server.engine.heartbeat(session, Vec::new()).await.unwrap();
        open.clear();
        for row in world.memory.list(&ListFilter::default(), None, 1_000).await.unwrap() {
            if row.state.is_closed() {
                continue;
            }
            let standing = server.engine.execution(&name(&row.id)).await.unwrap();
            if standing.state.steps().any(|step| step.state == StepState::Awaiting) {
                let _ = server.engine.signal(&name(&row.id), Arc::from("s"), json("2"), None, None).await;
            }
            open.push(standing);
        }
        if open.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(900)).await;
    }
    assert!(open.is_empty(), "these do not end: {open:#?}");
    // Lost sessions are noticed, and their rows go.
    for _ in 0..20 {
        server.engine.heartbeat(session, Vec::new()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let sessions = world.memory.sessions(None, 100).await.unwrap();
    assert_eq!(sessions.len(), 1, "only the diligent worker lives: {sessions:?}");
    for (id, what) in [(session, "of it"), (orbit::domain::SessionId(uuid::Uuid::nil()), "of nobody")] {
        assert_eq!(world.memory.held_by_session(id, 100).await.unwrap(), [], "held rows {what} are left");
    }
    assert_eq!(world.memory.held_without_session(100).await.unwrap(), [], "held rows of lost sessions are left");
    let sizes = server.engine.sizes();
    assert_eq!((sizes.mailboxes, sizes.waiters, sizes.cache_bytes), (0, 0, 0), "{sizes:?}");
    world.check().await;
    let stopped = tokio::time::timeout(Duration::from_secs(5), server.engine.clone().shutdown()).await;
    assert!(stopped.is_ok(), "a shutdown ends");
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn everything_ends_and_nothing_is_lost_whatever_fails() {
    if let Some(seed) = number("SEED") {
        let done = run(seed);
        println!("{} events, {:02x?}", done.events, done.digest);
        return;
    }
    let is_for_the_record = number("RECORD").is_some();
    let runs = number("RUNS").unwrap_or(if is_for_the_record { 100_000 } else { RUNS });
    let (mut reached, mut events, mut count) = (Coverage::default(), 0, 0);
    for seed in 0..runs {
        let done = run(seed);
        reached.add(&done.coverage);
        events += done.events;
        count += 1;
        if is_for_the_record && seed % 100 == 99 {
            let (_, least) = reached.summary();
            eprintln!("{count} runs, {events} events, rarest combination {least} times");
            if least >= RECORD_LEAST {
                break;
            }
        }
    }
    let (combinations, least) = reached.summary();
    println!("{count} runs, {events} events, {combinations} combinations, the rarest of the table {least} times");
    assert_eq!(reached.unknown(), Vec::<String>::new(), "combinations that the table does not have");
    if is_for_the_record {
        let title =
            format!("{count} runs from SEED=0, {events} events. How often each command met each fault, by state.");
        std::fs::write(coverage::path(), reached.render(&title)).unwrap();
        assert_eq!(reached.rare(RECORD_LEAST), Vec::<String>::new(), "reached too rarely");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in [1, 2, 3] {
        let (first, second) = (run(seed), run(seed));
        assert_eq!(first.digest, second.digest, "SEED={seed}");
        assert_eq!(first.coverage, second.coverage, "SEED={seed}");
    }
}
