//! Random runs: clients, workers, a store that fails, servers that die, freeze or are cut off, clocks that differ;
//! everything from one seed. Every other run has several nodes on one store.
//!
//! `SEED=n` runs one case again, with `LOG=1` so that nodes and world tell what they do; `RUNS=n` runs that many, from
//! `SEED` on if both are said. `RECORD=1` runs until every combination of the coverage tables was reached often enough,
//! and writes them.

use crate::{
    commands::work_diligently,
    coverage::{self, Command, Coverage, Fault},
    families,
    harness::{json, name, registration},
    invariants::History,
    random::Seed,
    world::{SIGNALS_MAX, World, ready},
};
use orbit::domain::{SessionId, StepState, explain::Reason};
use orbit::engine::{Error, ExecutionName};
use orbit::store::{ListFilter, Store};
use std::{
    cell::Cell,
    sync::{Arc, Once},
    time::Duration,
};

/// Runs of the usual test: with families a run takes most of a second.
const RUNS: u64 = 60;
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
        world.start_nodes();
        storm(&mut world);
        outage(&mut world);
    }
    world.start_nodes();
    end_everything(&mut world);
    assert_eq!(PANICS.get(), 0, "something panicked");
    let histories = world.histories();
    let (digest, events) = (histories.digest(), histories.all().map(|history| history.events.len()).sum());
    let coverage = world.shared().coverage.clone();
    Done { coverage, digest, events }
}

fn deploy(world: &mut World) {
    for number in 0..world.workflows.len() {
        let (server, text) = (world.some_server(), world.workflows[number].text.clone());
        let (definition, _) = orbit::domain::definition::Definition::parse("test.yaml", &text).unwrap();
        let engine = server.engine.clone();
        world.ask(&server, async move { engine.deploy(definition, text).await.unwrap() });
    }
    world.learn_definitions();
}

/// Calm and gusts, until the servers die in the middle of it.
fn storm(world: &mut World) {
    world.settle_nodes();
    deploy(world);
    let slowness = Duration::from_millis(*world.random.pick(&[0, 3, 20]));
    for server in world.servers() {
        world.weather(&server, Fault::None, slowness);
        server.unreliable_news(*world.random.pick(&[0, 0, 1, 4]));
    }
    world.begin_steady_work();
    for _ in 0..STEPS {
        if world.random.one_in(3) {
            gust(world, slowness);
        } else {
            world.act();
        }
        if world.node_count() > 1 && world.random.one_in(5) {
            world.trouble_some_node();
        }
        let pause = *world.random.pick(&[0, 0, 1, 15, 200, 900, 2_500]);
        world.pass(Duration::from_millis(pause));
        if world.random.one_in(10) {
            world.check();
        }
    }
    // What is under way when they die.
    let server = world.some_server();
    world.weather(&server, Fault::None, Duration::from_millis(30));
    world.focus(&server);
    world.pass(Duration::from_millis(40));
    for _ in 0..10 {
        let server = world.some_server();
        world.act_any(&server);
    }
    world.focus = None;
    let last = Duration::from_millis(world.random.next() % 20);
    world.pass(last);
    world.check();
}

/// All servers die, or of several only some; later they start again.
fn outage(world: &mut World) {
    let spares_one = world.node_count() > 1 && world.random.one_in(2);
    if spares_one {
        world.settle_nodes();
    } else {
        world.end_steady_work();
    }
    for server in world.servers().iter().skip(usize::from(spares_one)) {
        world.kill(server.number);
    }
    let lasts = Duration::from_millis(world.random.next() % 20_000);
    world.pass(lasts);
    // The machine's clock may be another when it comes back.
    if world.random.one_in(3) {
        world.wall_off = *world.random.pick(&[-3_600_000_000, 0, 3_600_000_000]);
    }
}

/// Some commands at once, under one fault of one node or none.
fn gust(world: &mut World, slowness: Duration) {
    let of_one =
        [Fault::None, Fault::CommitFails, Fault::CommitLost, Fault::ReadFails, Fault::WriteFails, Fault::ClockJump];
    let of_several =
        [Fault::Conflict, Fault::Conflict, Fault::CutOff, Fault::Freeze, Fault::NewsLost, Fault::OtherDies];
    let fault = if world.node_count() > 1 && world.random.one_in(2) {
        *world.random.pick(&of_several)
    } else {
        *world.random.pick(&of_one)
    };
    let server = world.some_server();
    if !world.random.one_in(3) {
        world.focus(&server);
        world.pass(2 * slowness);
    }
    let weather = if of_several.contains(&fault) { Fault::None } else { fault };
    world.weather(&server, weather, slowness + Duration::from_millis(5));
    for _ in 0..6 {
        world.act_any(&server);
    }
    // What meets the fault for sure, while the others are under way.
    match fault {
        Fault::CommitFails | Fault::CommitLost => world.perform(&server, Command::Start),
        Fault::WriteFails | Fault::ReadFails => world.perform(&server, Command::Register),
        Fault::CutOff | Fault::Freeze => world.trouble(server.number, fault, Duration::from_millis(20)),
        // The node itself is well; it is another one that has news, or dies.
        Fault::NewsLost => {
            server.unreliable_news(1);
            for other in world.servers() {
                world.perform(&other, Command::Start);
            }
        }
        Fault::OtherDies => {
            let count = world.node_count();
            world.trouble((server.number + 1) % count, fault, Duration::from_millis(500));
        }
        // Commits take long enough to meet, and the losers' pauses to meet again.
        Fault::Conflict => {
            for other in world.servers() {
                world.weather(&other, Fault::None, Duration::from_millis(20));
            }
            for _ in 0..3 {
                world.collide();
                world.pass(Duration::from_millis(3));
            }
        }
        Fault::None | Fault::Crash | Fault::ClockJump => {}
    }
    world.focus = None;
    world.pass(Duration::from_millis(1));
    if fault == Fault::ClockJump {
        server.jump_wall(*world.random.pick(&[-3_600_000_000, 3_600_000_000]));
        world.shared().happens(server.number, Fault::ClockJump);
    }
    let lasts = *world.random.pick(&[5, 50, 1_500]);
    world.pass(Duration::from_millis(lasts));
    for server in world.servers() {
        world.weather(&server, Fault::None, slowness);
    }
}

/// Once faults stop and workers answer, everything ends, and nothing is left behind.
fn end_everything(world: &mut World) {
    world.slices = &[5, 20, 50];
    world.settle_nodes();
    world.end_steady_work();
    // News need not come for this.
    let odds = *world.random.pick(&[0, 0, 1]);
    for server in world.servers() {
        world.weather(&server, Fault::None, Duration::ZERO);
        server.unreliable_news(odds);
    }
    deploy(world);
    let session = register_diligently(world);
    let mut open = Vec::new();
    for _ in 0..LAST_ROUNDS {
        loop {
            let server = world.some_server();
            if world.ask(&server, work_diligently(server.clone(), session)) == 0 {
                break;
            }
        }
        beat(world, session);
        open.clear();
        for row in ready(world.memory.list(&ListFilter::default(), None, 10_000)).unwrap().rows {
            // What is closed may have to tell others.
            if !row.state.is_closed() {
                open.extend(look_and_help(world, &row.id));
            } else if row.wake_time.is_some() {
                open.push(format!("{row:?}"));
            }
        }
        open.extend(ready(world.memory.running_batches(100)).unwrap().into_iter().map(|batch| format!("{batch:?}")));
        if open.is_empty() {
            break;
        }
        world.pass(Duration::from_millis(900));
    }
    if !open.is_empty() {
        world.check();
        let stories: Vec<String> = world.histories().all().map(History::story).collect();
        panic!("these do not end: {}\n{}", open.join("\n"), stories.join("\n"));
    }
    // Lost sessions are noticed, and their rows go.
    for _ in 0..20 {
        beat(world, session);
        world.pass(Duration::from_secs(1));
    }
    let sessions = ready(world.memory.sessions(None, 100)).unwrap();
    assert_eq!(sessions.len(), 1, "only the diligent worker lives: {sessions:?}");
    for (id, what) in [(session, "of it"), (orbit::domain::SessionId(uuid::Uuid::nil()), "of nobody")] {
        assert_eq!(ready(world.memory.held_by_session(id, 100)).unwrap(), [], "held rows {what} are left");
    }
    assert_eq!(ready(world.memory.held_without_session(100)).unwrap(), [], "held rows of lost sessions are left");
    world.check();
    families::check_end(world.histories(), world.deletable.is_some());
    for server in world.servers() {
        let sizes = server.engine.sizes();
        assert_eq!(sizes.waiters, 0, "{sizes:?}");
        // What others have closed, a node may have in its cache until there is no more room.
        assert!(world.node_count() > 1 || (sizes.mailboxes, sizes.cache_bytes) == (0, 0), "{sizes:?}");
        let engine = server.engine.clone();
        let stopped = world
            .ask(&server, async move { tokio::time::timeout(Duration::from_secs(5), engine.shutdown()).await.is_ok() });
        assert!(stopped, "a shutdown ends");
    }
}

fn register_diligently(world: &mut World) -> SessionId {
    let mut diligent = registration(&crate::definitions::CONTRACTS);
    diligent.queues = crate::definitions::QUEUES.iter().map(|queue| Arc::from(*queue)).collect();
    let server = world.some_server();
    let engine = server.engine.clone();
    world.ask(&server, async move { engine.register(diligent).await.unwrap().session })
}

fn beat(world: &mut World, session: SessionId) {
    let server = world.some_server();
    let engine = server.engine.clone();
    world.ask(&server, async move { engine.heartbeat(session, Vec::new()).await.unwrap() });
}

/// Reads an execution, and gives it what it waits for; says how it stands, if it is there.
fn look_and_help(world: &mut World, id: &str) -> Option<String> {
    let server = world.some_server();
    let (engine, name) = (server.engine.clone(), name(id));
    world.shared().journal.signal_sent(id);
    world.ask(&server, async move {
        // Batches that are under way may delete it.
        let standing = match engine.execution(&name).await {
            Err(Error::ExecutionNotFound { .. }) => return None,
            standing => standing.unwrap(),
        };
        if standing.state.is_paused() {
            let _ = engine.resume(&name, None).await;
        }
        if standing.state.steps().any(|step| step.state == StepState::Awaiting) {
            let _ = engine.signal(&name, Arc::from("s"), json("2"), None, None).await;
        }
        for wait in standing.state.explain(standing.state.last_time()).waits {
            assert!(wait.since.is_some(), "{wait:?} does not say since when");
            // Two that give each other signals may wait for room for ever: a caller has to step in.
            if let Reason::Recipient { id, .. } = &wait.reason
                && let Ok(other) = engine.execution(&ExecutionName { id: id.clone(), uid: None }).await
                && other.state.buffered_signals() >= SIGNALS_MAX
            {
                let _ = engine.cancel(&name, Arc::from("no room"), None).await;
            }
        }
        let waits = standing.state.explain(standing.state.last_time()).waits;
        Some(format!("{} at event {} waits for {waits:?}", standing.row.id, standing.state.last_number()))
    })
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn everything_ends_and_nothing_is_lost_whatever_fails() {
    let first = number("SEED").unwrap_or(0);
    if let (Some(seed), None) = (number("SEED"), number("RUNS")) {
        if std::env::var_os("LOG").is_some() {
            tracing_subscriber::fmt().with_writer(std::io::stderr).without_time().init();
        }
        let done = run(seed);
        println!("{} events, {:02x?}", done.events, done.digest);
        return;
    }
    let is_for_the_record = number("RECORD").is_some();
    let runs = number("RUNS").unwrap_or(if is_for_the_record { 100_000 } else { RUNS });
    let (mut reached, mut events, mut count) = (Coverage::default(), 0, 0);
    for seed in first..first + runs {
        let done = run(seed);
        reached.add(&done.coverage);
        events += done.events;
        count += 1;
        if is_for_the_record && count % 100 == 0 {
            let rare = reached.rare();
            eprintln!("{count} runs, {events} events, {} combinations were reached too rarely", rare.len());
            if rare.is_empty() {
                break;
            }
        }
    }
    let (combinations, least) = reached.summary();
    println!("{count} runs, {events} events, {combinations} combinations, the rarest of the table {least} times");
    assert_eq!(reached.unknown(), Vec::<String>::new(), "combinations that the table does not have");
    if is_for_the_record {
        let title = format!(
            "{count} runs from SEED={first}, {events} events. How often each command met each fault, by state."
        );
        std::fs::write(coverage::path(), reached.render(&title)).unwrap();
        assert_eq!(reached.rare(), Vec::<String>::new(), "reached too rarely");
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
