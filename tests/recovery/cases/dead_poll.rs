//! A poll whose worker is gone.

use super::{Hand, LONG, by, count, server, start};
use crate::{journal::Outcome, oracle::events, run::beside_others};
use orbit::proto::workflow::{delivery_ended, event::Kind};
use std::time::{Duration, Instant};

/// A hand-out to a dead poll that is not undone would take a session timeout.
const AT_ONCE: Duration = Duration::from_millis(900);

#[tokio::test(flavor = "multi_thread")]
async fn c001_a_task_never_waits_for_a_dead_poll() {
    let _beside_others = beside_others().await;
    let rounds = crate::chance::count("DEAD_POLLS", 100);
    let mut server = server().await;
    let mut admin = server.admin();
    let living = Hand::register(&server, "living").await;
    let _beating = living.keep_listing(&[]);
    let mut undone = 0;
    for round in 0..rounds {
        let dead = Hand::register(&server, "dead").await;
        let poll = tokio::spawn(async move { dead.poll_for(LONG).await });
        // It parks, then its connection is cut, as when its process is killed. The register call before it was answered on
        // the same connection, so the poll is the next thing that the server reads.
        tokio::time::sleep(Duration::from_millis(round as u64 % 5)).await;
        poll.abort();
        assert!(poll.await.unwrap_err().is_cancelled());

        let id = format!("round-{round}");
        let begin = Instant::now();
        let (task, ()) = tokio::join!(living.poll(), start(&mut admin, "one", &id));
        assert!(begin.elapsed() < AT_ONCE, "round {round} took {:?}", begin.elapsed());
        assert_eq!((task.execution_id.as_str(), task.attempt), (id.as_str(), 1));
        assert_eq!(living.complete(&task, &by("living")).await, Outcome::Accepted);
        let events = events(&mut admin, &id).await;
        let not_sent = count(
            &events,
            |kind| matches!(kind, Kind::DeliveryEnded(ended) if ended.reason() == delivery_ended::Reason::NotSent),
        );
        let dispatched = count(&events, |kind| matches!(kind, Kind::StepDispatched(_)));
        assert_eq!(dispatched, 1 + not_sent, "{events:?}");
        undone += not_sent;
    }
    eprintln!("{rounds} dead polls, {undone} hand-outs undone at once");
    server.stop().await;
}
