//! SIGKILL of the server under load, again and again.

use crate::{
    caller::Load,
    chance,
    run::{Run, alone, spread},
    server::Options,
    workflow::Plan,
};

/// Commands that are in flight at each kill, at least.
const IN_FLIGHT: usize = 100;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_accepted_is_lost_or_repeated_when_the_server_is_killed_again_and_again() {
    let _alone = alone().await;
    let kills = chance::count("KILLS", 10);
    let mut run = Run::begin("kills", Options::default()).await;
    run.add_workers(4, 64);
    run.add_processes(4, 64);
    run.schedule().await;
    run.call(Load { clients: 6, lives: 100, plan: Plan::any });

    let mut flights = Vec::new();
    let mut resumes = Vec::new();
    for kill in 1..=kills {
        let in_flight = run.moment(800, IN_FLIGHT).await;
        run.server.kill(&mut run.chance);
        let listens = run.server.start_again().await;
        let resumed = run.resumed(listens, 1).await;
        eprintln!("kill {kill}: {in_flight} commands in flight; workers went on after {} ms", resumed.as_millis());
        flights.push(in_flight);
        resumes.push(resumed);
    }
    // The last time all of them, not only the first.
    let all = run.resumed(std::time::Instant::now(), 8).await;

    let verdict = run.end().await;
    eprintln!(
        "{kills} kills with {} to {} commands in flight; workers went on after {}, all eight after the last kill within {} ms; {verdict:?}",
        flights.iter().min().unwrap(),
        flights.iter().max().unwrap(),
        spread(resumes),
        all.as_millis(),
    );
    assert!(verdict.executions > 100 * kills.min(20), "there was too little load: {verdict:?}");
}
