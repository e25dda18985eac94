//! A worker that was slow, not dead: what its token is still worth.

use super::{Hand, LONG, SESSION_TIMEOUT, by, count, refused, server, start};
use crate::{
    caller::document,
    journal::Outcome,
    oracle::{events, wait},
    run::beside_others,
};
use orbit::proto::{
    worker::UnregisterWorkerRequest,
    workflow::{Task, event::Kind, execution::State},
};
use serde_json::json;

/// Checks that a task is the same attempt once more.
fn assert_redelivered(first: &Task, second: &Task) {
    assert_eq!(second.idempotency_key, first.idempotency_key);
    assert_eq!((second.attempt, second.delivery), (first.attempt, first.delivery + 1));
    assert!(second.redelivery && !first.redelivery);
    assert_ne!(second.task_token, first.task_token);
}

#[tokio::test]
async fn c011_a_slow_worker_that_completes_after_the_end_changes_nothing() {
    let _beside_others = beside_others().await;
    let mut server = server().await;
    let mut admin = server.admin();
    start(&mut admin, "one", "slow").await;
    let slow = Hand::register(&server, "slow").await;
    let stalled = slow.poll().await;
    let quick = Hand::register(&server, "quick").await;
    let task = quick.poll().await;
    assert_redelivered(&stalled, &task);
    assert_eq!(quick.complete(&task, &by("quick")).await, Outcome::Accepted);
    let before = events(&mut admin, "slow").await;

    let late = slow.complete(&stalled, &by("slow")).await;
    assert!(matches!(late, Outcome::Refused(_)), "{late:?}");
    let execution = wait(&mut admin, "slow").await;
    assert_eq!(execution.state(), State::Succeeded);
    assert_eq!(document(execution.output.as_ref()), json!({"a": by("quick")}));
    assert_eq!(events(&mut admin, "slow").await, before);
    assert_eq!(quick.complete(&task, &by("quick")).await, Outcome::Duplicate, "a repeat is known after the close");
    server.stop().await;
}

#[tokio::test]
async fn c011_a_slow_worker_that_completes_while_the_execution_is_open_is_recorded_once() {
    let _beside_others = beside_others().await;
    let mut server = server().await;
    let mut admin = server.admin();
    start(&mut admin, "two", "slow").await;
    let slow = Hand::register(&server, "slow").await;
    let stalled = slow.poll().await;
    let quick = Hand::register(&server, "quick").await;
    let task = quick.poll().await;
    assert_redelivered(&stalled, &task);
    assert_eq!(quick.complete(&task, &by("quick")).await, Outcome::Accepted);

    for _ in 0..3 {
        assert_eq!(slow.complete(&stalled, &by("slow")).await, refused("REASON_UNIT_RESOLVED"));
    }
    let last = Hand::register_for(server.tasks(), "last", "case.later@1").await;
    assert_eq!(last.complete(&last.poll().await, &by("last")).await, Outcome::Accepted);
    let execution = wait(&mut admin, "slow").await;
    assert_eq!(document(execution.output.as_ref()), json!({"a": by("quick")}));
    let events = events(&mut admin, "slow").await;
    assert_eq!(count(&events, |kind| matches!(kind, Kind::LateSuccess(_))), 1, "{events:?}");
    assert_eq!(count(&events, |kind| matches!(kind, Kind::StepSucceeded(_))), 2, "{events:?}");
    server.stop().await;
}

#[tokio::test]
async fn c013_a_worker_that_lost_its_task_can_neither_fail_nor_release_nor_hold_it() {
    let _beside_others = beside_others().await;
    let mut server = server().await;
    let mut admin = server.admin();
    start(&mut admin, "one", "lost").await;
    let first = Hand::register(&server, "first").await;
    let lost = first.poll().await;
    let second = Hand::register(&server, "second").await;
    let task = second.poll().await;
    let _listing = second.keep_listing(&[&task]);
    assert_redelivered(&lost, &task);
    let before = events(&mut admin, "lost").await;

    assert_eq!(first.fail(&lost).await, refused("REASON_STALE_TOKEN"));
    assert_eq!(first.release(&lost).await, refused("REASON_STALE_TOKEN"));
    // Its session may be over by now, or not: the task is gone in any case.
    if let Some(stop) = first.beat(&[&lost], true).await {
        assert_eq!(stop, std::slice::from_ref(&lost.task_token));
    }
    let another = Hand::register(&server, "first").await;
    let stop = another.beat(&[&lost], true).await.expect("a new session beats");
    assert_eq!(stop, std::slice::from_ref(&lost.task_token), "it is told to stop what is not its own");
    assert_eq!(events(&mut admin, "lost").await, before, "nothing was written");

    assert_eq!(second.complete(&task, &by("second")).await, Outcome::Accepted);
    let execution = wait(&mut admin, "lost").await;
    assert_eq!(document(execution.output.as_ref()), json!({"a": by("second")}));
    server.stop().await;
}

#[tokio::test]
async fn c013_a_late_success_of_an_open_unit_is_taken_and_the_later_one_refused() {
    let _beside_others = beside_others().await;
    let mut server = server().await;
    let mut admin = server.admin();
    start(&mut admin, "one", "late").await;
    let first = Hand::register(&server, "first").await;
    let lost = first.poll().await;
    let second = Hand::register(&server, "second").await;
    let task = second.poll().await;
    assert_redelivered(&lost, &task);

    assert_eq!(first.complete(&lost, &by("first")).await, Outcome::Accepted, "the work was done");
    let stop = second.beat(&[&task], false).await.expect("its session lives");
    assert_eq!(stop, std::slice::from_ref(&task.task_token), "nobody waits for it any more");
    let later = second.complete(&task, &by("second")).await;
    assert!(matches!(later, Outcome::Refused(_)), "{later:?}");
    let execution = wait(&mut admin, "late").await;
    assert_eq!(document(execution.output.as_ref()), json!({"a": by("first")}));
    let events = events(&mut admin, "late").await;
    assert_eq!(count(&events, |kind| matches!(kind, Kind::StepSucceeded(_))), 1, "{events:?}");
    server.stop().await;
}

#[tokio::test]
async fn c017_two_workers_of_one_name_do_not_touch_each_other() {
    let _beside_others = beside_others().await;
    let mut server = server().await;
    let mut admin = server.admin();
    let one = Hand::register(&server, "host-1").await;
    let other = Hand::register(&server, "host-1").await;
    assert_ne!(one.session_id, other.session_id);
    start(&mut admin, "one", "ones").await;
    let task = one.poll().await;
    start(&mut admin, "one", "others").await;
    let others_task = other.poll().await;
    let listing = one.keep_listing(&[&task]);

    let request = UnregisterWorkerRequest { session_id: other.session_id.clone() };
    other.tasks.clone().unregister_worker(request).await.unwrap();
    // The other's task comes back at once, its own stays its own for longer than a session timeout.
    let again = one.poll_for(LONG).await.expect("the task comes back");
    assert_redelivered(&others_task, &again);
    drop(listing);
    let _listing_both = one.keep_listing(&[&task, &again]);
    assert_eq!(one.poll_for(SESSION_TIMEOUT * 2).await, None);
    assert_eq!(one.complete(&task, &by("one")).await, Outcome::Accepted);
    assert_eq!(one.complete(&again, &by("one")).await, Outcome::Accepted);
    let events = events(&mut admin, "ones").await;
    assert_eq!(count(&events, |kind| matches!(kind, Kind::DeliveryEnded(_))), 0, "{events:?}");
    server.stop().await;
}
