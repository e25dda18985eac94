//! SIGKILL and SIGSTOP of workers in the middle of their tasks, while the server lives.

use crate::{
    caller::Load,
    chance,
    run::{Run, alone},
    server::{Options, SESSION_TIMEOUT},
    worker::process::Process,
    workflow::Plan,
};

/// Worker processes; some always work.
const WORKERS: u64 = 6;

/// Tasks that each has at the same time.
const SLOTS: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_repeated_when_workers_are_killed_and_stopped_in_their_tasks() {
    let _alone = alone().await;
    let faults = chance::count("WORKER_FAULTS", 6);
    let mut run = Run::begin("worker faults", Options::default()).await;
    run.add_processes(WORKERS, SLOTS);
    run.call(Load { clients: 2, lives: 24, plan: Plan::holding });

    let mut thaws = tokio::task::JoinSet::<Process>::new();
    let (mut kills, mut stops) = (0, 0);
    for fault in 0..faults {
        let pause = run.chance.millis(100, 1_000);
        tokio::time::sleep(pause).await;
        let count = u64::try_from(run.processes.len()).unwrap();
        let victim = run.processes.swap_remove(usize::try_from(run.chance.below(count)).unwrap());
        // Both happen, however few faults there are.
        let kills_it = match fault {
            0 => false,
            1 => true,
            _ => run.chance.percent(50) || run.processes.len() < 3,
        };
        if kills_it {
            victim.kill().await;
            kills += 1;
            let number = WORKERS + u64::try_from(fault).unwrap();
            let setup = run.setup(format!("process-{number}"), number, SLOTS);
            run.processes.push(Process::start(&setup, &run.journal));
        } else {
            // Beyond its session: when it goes on, its tasks have been handed out again.
            victim.signal(libc::SIGSTOP);
            stops += 1;
            let asleep = SESSION_TIMEOUT + run.chance.millis(500, 2_000);
            thaws.spawn(async move {
                tokio::time::sleep(asleep).await;
                victim.signal(libc::SIGCONT);
                victim
            });
        }
        while let Some(thawed) = thaws.try_join_next() {
            run.processes.push(thawed.unwrap());
        }
    }
    while let Some(thawed) = thaws.join_next().await {
        run.processes.push(thawed.unwrap());
    }
    let verdict = run.end().await;
    eprintln!("{kills} kills and {stops} stops of workers: {verdict:?}");
    assert!(verdict.redeliveries > 0, "no task was lost with its worker: {verdict:?}");
    assert!(verdict.old_tokens_refused + verdict.old_tokens_accepted > 0, "no report came late: {verdict:?}");
}
