//! A server that is killed between two steps, or while a worker works.

use super::{Hand, SESSION_TIMEOUT, by, count, server, start};
use crate::{
    chance::Chance,
    journal::Outcome,
    oracle::{events, wait},
    run::beside_others,
};
use orbit::proto::{
    worker::CompleteTaskRequest,
    workflow::{event::Kind, execution::State},
};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn c015_a_heartbeat_timeout_outlives_a_restart_of_the_server() {
    let _beside_others = beside_others().await;
    let mut server = server().await;
    let mut admin = server.admin();
    start(&mut admin, "beats", "beats").await;
    let silent = Hand::register(&server, "silent").await;
    let task = silent.poll().await;
    silent.beat(&[&task], true).await.expect("it lives");
    let begin = Instant::now();
    // From here on it only lists its task: it lives, but makes no progress.
    let listing = silent.keep_listing(&[&task]);
    tokio::time::sleep(SESSION_TIMEOUT * 3 / 2).await;
    server.kill(&mut Chance::named("c015"));
    server.start_again().await;

    let timed_out = loop {
        let events = events(&mut admin, "beats").await;
        let failed = events.into_iter().find_map(|event| match event.kind {
            Some(Kind::AttemptFailed(failed)) => Some(failed),
            _ => None,
        });
        if let Some(failed) = failed {
            break failed;
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "the timeout of 3 s was forgotten");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(timed_out.failure.unwrap().code, "HEARTBEAT_TIMEOUT");
    assert!(begin.elapsed() > Duration::from_millis(2_500), "it came early: {:?}", begin.elapsed());
    drop(listing);
    let second = Hand::register(&server, "second").await;
    let again = second.poll().await;
    assert_eq!((again.attempt, again.redelivery), (2, false), "a new attempt");
    assert_eq!(again.idempotency_key, task.idempotency_key);
    assert_eq!(second.complete(&again, &by("second")).await, Outcome::Accepted);
    assert_eq!(wait(&mut admin, "beats").await.state(), State::Succeeded);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c143_an_execution_goes_on_after_a_kill_between_two_steps() {
    let _beside_others = beside_others().await;
    let mut chance = Chance::named("c143");
    let mut server = server().await;
    let mut between = 0;
    for round in 0..12 {
        let id = format!("round-{round}");
        let mut admin = server.admin();
        start(&mut admin, "two", &id).await;
        let worker = Hand::register(&server, "worker").await;
        let task = worker.poll().await;
        let request = CompleteTaskRequest {
            task_token: task.task_token.clone(),
            output: Some(crate::caller::payload(&by("worker"))),
        };
        // The server dies around the moment in which it commits the end of the first step.
        let mut tasks = worker.tasks.clone();
        let report = tokio::spawn(async move { tasks.complete_task(request).await.is_ok() });
        // Not the runtime's sleep, which counts in whole milliseconds.
        std::thread::sleep(Duration::from_micros(chance.below(1_500)));
        server.kill(&mut chance);
        let was_told = report.await.unwrap();
        server.start_again().await;

        let found = events(&mut admin, &id).await;
        let ended = count(&found, |kind| matches!(kind, Kind::StepSucceeded(_)));
        let scheduled = count(&found, |kind| matches!(kind, Kind::StepScheduled(_)));
        assert_eq!(scheduled, 1 + ended, "the end of one step and the beginning of the next are one: {found:?}");
        assert!(!was_told || ended == 1, "the worker was told that it counts: {found:?}");
        between += ended;
        // Nobody does anything but work: the report again, and the next task.
        let again = Hand { tasks: server.tasks(), session_id: worker.session_id };
        let outcome = again.complete(&task, &by("worker")).await;
        assert_eq!(outcome, if ended == 1 { Outcome::Duplicate } else { Outcome::Accepted });
        let last = Hand::register_for(server.tasks(), "last", "case.later@1").await;
        let begin = Instant::now();
        assert_eq!(last.complete(&last.poll().await, &by("last")).await, Outcome::Accepted);
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        assert_eq!(wait(&mut admin, &id).await.state(), State::Succeeded);
    }
    eprintln!("{between} of 12 kills came after the commit");
    server.stop().await;
}
