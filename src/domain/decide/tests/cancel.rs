//! Cancel, terminate, winding down and the close.

use super::*;
use EndReason::SessionLost;
use RefusalReason::ExecutionClosed;

const ONE: &str = "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1}\n  - {id: b, task: t@1, needs: [a]}\n";
const TWO: &str =
    "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, retry: {max_attempts: 1}}\n  - {id: b, task: t@1}\n";

#[test]
fn a_cancel_with_nothing_out_closes_at_once() {
    check(
        ONE,
        vec![],
        when(1.0, cancel()),
        then(Outcome::Recorded(3), &["winding down for cancel until 31", "CANCELLED"]),
    );
}

#[test]
fn c035_a_cancel_during_a_pause_drops_the_retry() {
    let mut run = Run::start(ONE, "{}");
    run.at(1.0, dispatch("a"));
    run.at(2.0, fail("a", 1, "E"));
    assert_eq!(run.at(2.5, cancel()), ["winding down for cancel until 32.500", "CANCELLED"]);
    assert_eq!(run.state.deadline(), None);
    assert_eq!(run.at(60.0, wake()), [""; 0]);
    assert_eq!(run.decide_at(60.0, dispatch("a")), Err(Rejection::NotWaiting { unit: arc("a") }));
}

#[test]
fn a_cancel_drops_sleeps_and_waits() {
    let lines = "signals: {s: {}}\nsteps:\n  - {id: z, sleep: {for: 5s}}\n  - {id: w, await: {signal: s, timeout: 6s}}";
    let mut run = Run::start(lines, "{}");
    run.at(1.0, cancel());
    assert_eq!((run.state.phase(), run.state.deadline()), (Phase::Cancelled, None));
    assert!(run.state.steps().all(|step| step.state == StepState::Cancelled));
}

#[test]
fn while_winding_down_deliveries_may_still_report() {
    let mut run = Run::start(TWO, "{}");
    run.at(1.0, dispatch("a"));
    run.at(1.0, dispatch("b"));
    assert_eq!(run.at(2.0, cancel()), ["winding down for cancel until 32"]);
    assert_eq!(run.state.phase(), Phase::WindingDown);
    assert!(!run.state.delivery_wanted(&reference("a", 1)), "its worker is asked to stop");
    assert!(run.state.is_current(&reference("a", 1)));
    assert_eq!(run.at(3.0, complete("a", 1, "7")), ["a succeeded 7 by 1"]);
    assert_eq!(run.at(4.0, fail("b", 1, "E")), ["b attempt 1/1 failed E, no retry", "b cancelled", "CANCELLED"]);
    assert_eq!(run.decide_at(5.0, fail("b", 1, "E")), Ok(DUPLICATE));
    assert_eq!(run.decide_at(5.0, complete("b", 1, "8")), Ok(refused(ExecutionClosed)));
}

#[test]
fn a_success_while_winding_down_schedules_nothing() {
    let story = vec![(1.0, dispatch("a")), (2.0, cancel())];
    check(ONE, story, when(3.0, complete("a", 1, "7")), then(ACCEPTED, &["a succeeded 7 by 1", "CANCELLED"]));
}

#[test]
fn a_lost_delivery_is_given_up_at_once_while_winding_down() {
    let story = vec![(1.0, dispatch("a")), (2.0, cancel())];
    check(
        ONE,
        story.clone(),
        when(3.0, end("a", 1, SessionLost)),
        then(Outcome::Done, &["a ended 1 SessionLost", "a cancelled", "CANCELLED"]),
    );
    check(
        ONE,
        story,
        when(3.0, end("a", 1, EndReason::NotSent)),
        then(Outcome::Done, &["a ended 1 NotSent", "a cancelled", "CANCELLED"]),
    );
}

#[test]
fn silent_deliveries_are_given_up_after_the_grace() {
    let mut run = Run::start(TWO, "{}");
    run.at(1.0, dispatch("a"));
    run.at(1.0, dispatch("b"));
    run.at(5.0, hold("a", 1));
    run.at(5.0, hold("b", 1));
    run.at(10.0, cancel());
    assert_eq!(run.state.deadline(), Some(at(40.0)));
    assert_eq!(run.at(39.0, wake()), ["woke"]);
    assert_eq!(run.at(40.0, wake()), ["a cancelled", "b cancelled", "CANCELLED"]);
}

#[test]
fn first_checks_and_timeouts_go_on_while_winding_down() {
    let lines = "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, timeout: 5s}";
    let mut run = Run::start(lines, "{}");
    run.at(1.0, dispatch("a"));
    run.at(2.0, cancel());
    assert_eq!(run.at(6.0, wake()), ["a attempt 1/1 failed TIMEOUT, no retry", "a cancelled", "CANCELLED"]);
    let mut run = Run::start(ONE, "{}");
    run.at(1.0, dispatch("a"));
    run.at(10.0, cancel());
    assert_eq!(run.at(31.0, wake()), ["a ended 1 NotListed", "a cancelled", "CANCELLED"]);
}

#[test]
fn a_failure_lets_other_deliveries_report_and_ends_failed() {
    let mut run = Run::start(TWO, "{}");
    run.at(1.0, dispatch("a"));
    run.at(1.0, dispatch("b"));
    assert_eq!(run.at(2.0, fail("a", 1, "E"))[1..], ["a failed E", "winding down for failure E until 32"]);
    assert_eq!(run.state.failure(), Some(&failure("a", "E")));
    assert_eq!(run.at(3.0, complete("b", 1, "1")), ["b succeeded 1 by 1", "FAILED E"]);
}

#[test]
fn a_success_of_a_unit_that_was_dropped_is_late() {
    let mut run = Run::start(TWO, "{}");
    run.at(1.0, dispatch("a"));
    run.at(1.0, dispatch("b"));
    run.at(2.0, end("a", 1, SessionLost));
    run.at(3.0, cancel());
    assert_eq!(run.at(4.0, complete("a", 1, "1")), ["a late 1 1"]);
    assert_eq!(run.at(5.0, complete("b", 1, "1")), ["b succeeded 1 by 1", "CANCELLED"]);
}

#[test]
fn c039_a_cancel_tells_what_happened() {
    let closed = |state| then_rejected(Rejection::ExecutionClosed { state });
    let done =
        vec![(1.0, dispatch("a")), (2.0, complete("a", 1, "1")), (2.0, dispatch("b")), (3.0, complete("b", 1, "1"))];
    check(ONE, done, when(4.0, cancel()), closed("SUCCEEDED"));
    check(ONE, vec![(1.0, cancel())], when(2.0, cancel()), closed("CANCELLED"));
    check(ONE, vec![(1.0, terminate())], when(2.0, cancel()), closed("TERMINATED"));
    let failing = vec![(1.0, dispatch("a")), (1.0, dispatch("b")), (2.0, fail("a", 1, "E"))];
    check(TWO, failing, when(3.0, cancel()), then_rejected(Rejection::WindingDown { cause: "FAILURE" }));
}

#[test]
fn cancelling_again_is_answered_from_the_first_cancel() {
    check(ONE, vec![(1.0, dispatch("a")), (2.0, cancel())], when(3.0, cancel()), then(Outcome::Recorded(4), &[]));
}

#[test]
fn c039_whichever_comes_first_decides_between_the_last_success_and_a_cancel() {
    let lines = "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1}";
    let mut run = Run::start(lines, "{}");
    run.at(1.0, dispatch("a"));
    run.at(2.0, cancel());
    assert_eq!(run.at(2.0, complete("a", 1, "1")), ["a succeeded 1 by 1", "CANCELLED"]);
}

#[test]
fn the_execution_timeout_winds_down_and_ends_timed_out() {
    let lines = "timeout: 10s\ntasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1}";
    let mut run = Run::start(lines, "{}");
    run.at(1.0, dispatch("a"));
    assert_eq!(run.at(10.0, wake()), ["winding down for timeout until 40"]);
    assert_eq!(run.decide_at(11.0, cancel()), Err(Rejection::WindingDown { cause: "TIMEOUT" }));
    assert_eq!(run.at(12.0, complete("a", 1, "1")), ["a succeeded 1 by 1", "TIMED_OUT"]);
}

#[test]
fn the_execution_timeout_does_not_count_once_it_winds_down() {
    let lines = "timeout: 10s\ntasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1}";
    let mut run = Run::start(lines, "{}");
    run.at(1.0, dispatch("a"));
    run.at(9.0, cancel());
    assert_eq!(run.at(10.0, wake()), ["woke"]);
    assert_eq!(run.state.cause(), Some(&Cause::Cancel(arc("enough"))));
}

#[test]
fn a_terminate_closes_at_once_and_reports_count_no_more() {
    let mut run = Run::start(ONE, "{}");
    run.at(1.0, dispatch("a"));
    assert_eq!(run.at(2.0, terminate()), ["TERMINATED"]);
    assert_eq!(run.state.reason(), Some(&arc("stop")));
    assert_eq!(run.decide_at(3.0, complete("a", 1, "1")), Ok(refused(ExecutionClosed)));
    assert_eq!(run.decide_at(3.0, terminate()), Err(Rejection::ExecutionClosed { state: "TERMINATED" }));
    assert_eq!(run.at(4.0, wake()), [""; 0]);
}

#[test]
fn a_terminate_closes_what_winds_down() {
    let story = vec![(1.0, dispatch("a")), (2.0, cancel())];
    check(ONE, story, when(3.0, terminate()), then(Outcome::Recorded(5), &["TERMINATED"]));
}
