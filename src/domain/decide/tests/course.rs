//! Pause and resume, and a delayed start.

use super::*;

const TASK: &str = "tasks: {t@1: {}}
steps:
  - {id: a, task: t@1, queue_timeout: 10s, timeout: 30s, retry: {max_attempts: 2, initial_interval: 5s, jitter: 0}}
  - {id: b, needs: [a], sleep: {for: 8s}}
";

fn pause() -> Command {
    Command::Pause { reason: arc("look"), request: None }
}

fn resume() -> Command {
    Command::Resume { request: None }
}

#[test]
fn a_paused_execution_offers_nothing_to_workers() {
    let mut run = Run::start(TASK, "{}");
    assert_eq!(run.state.waiting().count(), 1);
    assert_eq!(run.at(1.0, pause()), ["PAUSED"]);
    assert!(run.state.is_paused() && run.state.phase() == Phase::Running);
    assert_eq!(run.state.waiting().count(), 0);
    let refused = run.decide_at(2.0, dispatch("a"));
    assert_eq!(refused, Err(Rejection::NotWaiting { unit: arc("a") }));
    assert_eq!(run.at(3.0, resume()), ["RESUMED"]);
    assert_eq!(run.state.waiting().count(), 1);
}

#[test]
fn a_task_that_a_worker_has_goes_on_and_what_follows_waits() {
    check(
        TASK,
        vec![(1.0, dispatch("a")), (2.0, pause())],
        when(3.0, complete("a", 1, "1")),
        then(ACCEPTED, &["a succeeded 1 by 1"]),
    );
    check(
        TASK,
        vec![(1.0, dispatch("a")), (2.0, pause()), (3.0, complete("a", 1, "1"))],
        when(4.0, resume()),
        then(Outcome::Recorded(6), &["RESUMED", "b sleeps until 12"]),
    );
}

#[test]
fn it_does_not_end_well_while_it_is_paused() {
    let lines = "tasks: {t@1: {}}\nsteps: [{id: a, task: t@1}]\n";
    let mut run = Run::start(lines, "{}");
    run.at(1.0, dispatch("a"));
    run.at(1.0, pause());
    assert_eq!(run.at(2.0, complete("a", 1, "1")), ["a succeeded 1 by 1"]);
    assert_eq!(run.state.deadline(), None);
    assert_eq!(run.at(3.0, resume()), ["RESUMED", "SUCCEEDED null"]);
}

#[test]
fn a_queue_timeout_counts_anew_after_a_pause() {
    let mut run = Run::start(TASK, "{}");
    run.at(8.0, pause());
    assert_eq!(run.state.deadline(), None, "a held queue timeout is not due");
    assert_eq!(run.at(60.0, wake()), ["woke"]);
    run.at(100.0, resume());
    assert_eq!(run.state.deadline(), Some(at(110.0)));
    assert_eq!(run.at(110.0, wake())[0], "a failed QUEUE_TIMEOUT");
}

#[test]
fn retries_and_sleeps_that_became_due_in_a_pause_follow_at_once_after_it() {
    let mut run = Run::start(TASK, "{}");
    run.at(1.0, dispatch("a"));
    assert_eq!(run.at(2.0, fail("a", 1, "X")), ["a attempt 1/1 failed X, retry 7"]);
    run.at(3.0, pause());
    assert_eq!(run.at(20.0, wake()), ["woke"]);
    assert_eq!(run.at(30.0, resume()), ["RESUMED"]);
    assert_eq!(run.at(30.0, wake()), ["a scheduled 2"]);
    run.at(31.0, dispatch("a"));
    run.at(32.0, complete("a", 2, "1"));
    run.at(33.0, pause());
    run.at(50.0, resume());
    assert_eq!(run.at(50.0, wake()), ["b succeeded null", "SUCCEEDED null"]);
}

#[test]
fn a_retry_without_a_pause_of_its_own_waits_for_the_resume() {
    let lines = "tasks: {t@1: {}}\nsteps: [{id: a, task: t@1, retry: {max_attempts: 2, initial_interval: 0s}}]\n";
    let mut run = Run::start(lines, "{}");
    run.at(1.0, dispatch("a"));
    run.at(1.0, pause());
    assert_eq!(run.at(2.0, fail("a", 1, "X")), ["a attempt 1/1 failed X, retry 2"]);
    run.at(3.0, resume());
    assert_eq!(run.at(3.0, wake()), ["a scheduled 2"]);
}

#[test]
fn timeouts_of_deliveries_and_of_the_execution_run_on_in_a_pause() {
    let mut run = Run::start(TASK, "{}");
    run.at(1.0, dispatch("a"));
    run.at(2.0, hold("a", 1));
    run.at(3.0, pause());
    assert_eq!(run.at(31.0, wake()), ["a attempt 1/1 failed TIMEOUT, retry 36"]);

    let mut run = Run::start(&format!("timeout: 60s\n{TASK}"), "{}");
    run.at(3.0, pause());
    assert_eq!(run.at(60.0, wake()), ["winding down for timeout until 90", "TIMED_OUT"]);
    assert!(!run.state.is_paused());
}

#[test]
fn a_wait_takes_its_signal_in_a_pause() {
    let lines = "signals: {s: {}}\nsteps: [{id: a, await: {signal: s}}, {id: b, needs: [a], compute: 1}]\n";
    let mut run = Run::start(lines, "{}");
    run.at(1.0, pause());
    assert_eq!(run.at(2.0, signal("s", "7")), ["signal s 7", "a succeeded 7 from 4"]);
    assert_eq!(run.at(3.0, resume()), ["RESUMED", "b succeeded 1", "SUCCEEDED null"]);
}

#[test]
fn a_cancel_a_terminate_and_a_failure_lift_a_pause() {
    check(TASK, vec![(1.0, pause())], when(2.0, cancel()), {
        then(Outcome::Recorded(4), &["winding down for cancel until 32", "CANCELLED"])
    });
    check(TASK, vec![(1.0, pause())], when(2.0, terminate()), then(Outcome::Recorded(4), &["TERMINATED"]));
    let mut run = Run::start(TASK, "{}");
    run.at(1.0, dispatch("a"));
    run.at(2.0, pause());
    assert_eq!(run.at(3.0, fail_for_good("a", 1, "X")).last().unwrap(), "FAILED X");
}

#[test]
fn pausing_again_and_resuming_what_is_not_paused_change_nothing() {
    check(TASK, vec![(1.0, pause())], when(2.0, pause()), then(Outcome::Recorded(3), &[]));
    check(TASK, vec![], when(2.0, resume()), then(Outcome::Recorded(0), &[]));
}

#[test]
fn what_winds_down_or_is_closed_is_not_paused() {
    let given = vec![(1.0, dispatch("a")), (2.0, cancel())];
    check(TASK, given, when(3.0, pause()), then_rejected(Rejection::WindingDown { cause: "CANCEL" }));
    let closed = Rejection::ExecutionClosed { state: "TERMINATED" };
    check(TASK, vec![(1.0, terminate())], when(2.0, pause()), then_rejected(closed.clone()));
    check(TASK, vec![(1.0, terminate())], when(2.0, resume()), then_rejected(closed));
}

#[test]
fn a_repeated_pause_is_answered_from_its_event_also_after_the_resume() {
    let mut run = Run::start(TASK, "{}");
    let pause = Command::Pause { reason: arc(""), request: Some(request(1, 1)) };
    assert_eq!(run.decide_at(1.0, pause.clone()), Ok(Outcome::Recorded(3)));
    run.at(2.0, resume());
    assert_eq!(run.decide_at(3.0, pause), Ok(Outcome::Recorded(3)));
    assert!(!run.state.is_paused());
}

fn delayed(lines: &str, seconds: f64) -> Run {
    Run::start_with(lines, Start { delay: Some(span(seconds)), ..a_start("{}") })
}

#[test]
fn the_first_step_of_a_delayed_start_begins_at_its_time() {
    let mut run = delayed(&format!("timeout: 60s\n{TASK}"), 30.0);
    assert_eq!(run.lines(), ["created {}"]);
    assert_eq!((run.state.begin_time(), run.state.expire_time()), (Some(at(30.0)), Some(at(90.0))));
    assert_eq!(run.state.deadline(), Some(at(30.0)));
    assert_eq!(run.at(29.0, wake()), ["woke"]);
    assert_eq!(run.at(30.0, wake()), ["woke", "a scheduled 1 null"]);
    assert_eq!(run.state.deadline(), Some(at(40.0)));
}

#[test]
fn signals_are_kept_and_calls_are_taken_before_a_delayed_start_begins() {
    let lines = "signals: {s: {}}\nsteps: [{id: a, await: {signal: s}}]\nresult: '${ steps.a.output }'\n";
    let mut run = delayed(lines, 30.0);
    assert_eq!(run.at(1.0, signal("s", "1")), ["signal s 1"]);
    run.at(2.0, pause());
    assert_eq!(run.at(30.0, wake()), ["woke"]);
    assert_eq!(run.at(31.0, resume()), ["RESUMED", "a awaits", "a succeeded 1 from 2", "SUCCEEDED 1"]);
    let mut run = delayed(lines, 30.0);
    assert_eq!(run.at(1.0, cancel()), ["winding down for cancel until 31", "CANCELLED"]);
}

#[test]
fn any_event_after_its_time_lets_a_delayed_start_begin() {
    let mut run = delayed("signals: {s: {}}\nsteps: [{id: a, compute: 1}]\n", 30.0);
    assert_eq!(run.at(40.0, signal("s", "1")), ["signal s 1", "a succeeded 1", "SUCCEEDED null"]);
}

#[test]
fn a_signal_that_comes_with_a_start_is_its_second_event() {
    let lines = "signals: {s: {type: integer}}\nsteps: [{id: a, await: {signal: s}}]\n";
    let with =
        |payload: &str| Start { signal: Some(StartSignal { name: arc("s"), payload: json(payload) }), ..a_start("{}") };
    let run = Run::start_with(lines, with("3"));
    assert_eq!(run.lines(), ["created {}", "signal s 3", "a awaits", "a succeeded 3 from 2", "SUCCEEDED null"]);
    let refused = start(definition(lines), with("\"x\""), &context(0.0, Settings::default()));
    assert!(matches!(refused, Err(Rejection::SignalInvalid { .. })));
}
