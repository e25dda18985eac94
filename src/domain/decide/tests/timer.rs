//! What time makes due.

use super::*;

const ONE: &str = "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1}\n";

#[test]
fn a_wake_up_that_finds_nothing_due_says_so_once() {
    check(ONE, vec![], when(1.0, wake()), then(Outcome::Done, &["woke"]));
}

#[test]
fn a_sleep_ends_when_it_is_due_and_not_before() {
    let lines = "steps:\n  - {id: a, sleep: {for: 10s}}\n  - {id: b, compute: 1, needs: [a]}";
    check(lines, vec![], when(9.9, wake()), then(Outcome::Done, &["woke"]));
    check(
        lines,
        vec![],
        when(10.0, wake()),
        then(Outcome::Done, &["a succeeded null", "b succeeded 1", "SUCCEEDED null"]),
    );
    assert_eq!(Run::start(lines, "{}").state.deadline(), Some(at(10.0)));
}

#[test]
fn a_sleep_into_the_past_ends_at_once() {
    let run = Run::start(
        "steps:\n  - {id: a, sleep: {until: \"2001-01-01T00:00:00Z\"}}\n  - {id: b, sleep: {for: 0s}}",
        "{}",
    );
    assert_eq!(run.state.phase(), Phase::Succeeded);
}

#[test]
fn c049_absurd_durations_fail_the_step_and_long_ones_wait() {
    let sleep = "steps:\n  - {id: a, sleep: {for: \"${ input }\"}}";
    for absurd in ["\"1e30s\"", "1e300", "-1", "\"P1000000D\"", "\"18446744073709551615s\"", "{}", "null"] {
        let run = Run::start(sleep, absurd);
        assert_eq!(run.lines()[1], "a failed EXPRESSION_FAILED", "{absurd}");
    }
    let mut run = Run::start(sleep, "\"36500d\"");
    assert_eq!(run.at(3600.0 * 24.0 * 36_499.0, wake()), ["woke"]);
    assert_eq!(run.at(3600.0 * 24.0 * 36_500.0, wake()), ["a succeeded null", "SUCCEEDED null"]);
}

#[test]
fn c029_timeouts_of_two_tasks_are_independent() {
    let lines = "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, timeout: 10s}\n  - {id: b, task: t@1, timeout: 10s, retry: {jitter: 0}}";
    let mut run = Run::start(lines, "{}");
    run.at(0.0, dispatch("a"));
    run.at(0.0, dispatch("b"));
    run.at(9.99, complete("a", 1, "1"));
    assert_eq!(run.state.deadline(), Some(at(10.0)));
    assert_eq!(run.at(10.0, wake()), ["b attempt 1/1 failed TIMEOUT, retry 11"]);
}

#[test]
fn c033_every_attempt_times_out_and_the_last_one_fails_the_step() {
    let lines = "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, timeout: 2s, retry: {max_attempts: 2, jitter: 0}}";
    let mut run = Run::start(lines, "{}");
    run.at(0.0, dispatch("a"));
    assert_eq!(run.at(2.0, wake()), ["a attempt 1/1 failed TIMEOUT, retry 3"]);
    assert_eq!(run.at(3.0, wake()), ["a scheduled 2"]);
    assert_eq!(run.at(3.0, dispatch("a")), ["a dispatched 2/2 until 5"]);
    assert_eq!(
        run.at(5.0, wake()),
        [
            "a attempt 2/2 failed TIMEOUT, no retry",
            "a failed TIMEOUT",
            "winding down for failure TIMEOUT until 35",
            "FAILED TIMEOUT"
        ]
    );
}

#[test]
fn a_timeout_starts_anew_with_each_delivery() {
    let mut run = Run::start("tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, timeout: 10s}", "{}");
    run.at(0.0, dispatch("a"));
    run.at(8.0, end("a", 1, EndReason::SessionLost));
    assert_eq!(run.at(9.0, dispatch("a")), ["a dispatched 1/2 until 19"]);
    assert_eq!(run.at(10.0, wake()), ["woke"]);
}

#[test]
fn a_success_after_its_attempt_timed_out_still_counts() {
    let mut run = Run::start("tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, timeout: 2s}", "{}");
    run.at(0.0, dispatch("a"));
    run.at(2.0, wake());
    assert_eq!(run.at(2.1, complete("a", 1, "1")), ["a succeeded 1 by 1", "SUCCEEDED null"]);
}

#[test]
fn a_task_that_no_worker_takes_in_time_fails() {
    let lines = "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, queue_timeout: 5s}";
    check(
        lines,
        vec![],
        when(5.0, wake()),
        then(
            Outcome::Done,
            &["a failed QUEUE_TIMEOUT", "winding down for failure QUEUE_TIMEOUT until 35", "FAILED QUEUE_TIMEOUT"],
        ),
    );
    check(lines, vec![(4.0, dispatch("a"))], when(5.0, wake()), then(Outcome::Done, &["woke"]));
}

#[test]
fn a_task_that_waits_again_has_its_whole_queue_timeout() {
    let mut run = Run::start("tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, queue_timeout: 5s}", "{}");
    run.at(4.0, dispatch("a"));
    run.at(20.0, end("a", 1, EndReason::SessionLost));
    assert_eq!(run.state.deadline(), Some(at(25.0)));
}

#[test]
fn all_attempts_together_have_a_timeout_which_is_not_retried() {
    let lines = "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, total_timeout: 10s}";
    let failed = ["a failed TOTAL_TIMEOUT", "winding down for failure TOTAL_TIMEOUT until 40", "FAILED TOTAL_TIMEOUT"];
    check(lines, vec![], when(10.0, wake()), then(Outcome::Done, &failed));
    check(lines, vec![(1.0, dispatch("a"))], when(10.0, wake()), then(Outcome::Done, &failed));
    let backing_off = vec![(1.0, dispatch("a")), (2.0, fail("a", 1, "E")), (4.0, wake()), (9.0, dispatch("a"))];
    check(lines, backing_off, when(10.0, wake()), then(Outcome::Done, &failed));
}

#[test]
fn a_delivery_that_is_not_heard_of_at_its_first_check_is_lost() {
    let mut run = Run::start(ONE, "{}");
    run.at(1.0, dispatch("a"));
    assert_eq!(run.state.deadline(), Some(at(31.0)));
    assert_eq!(run.state.checks_due(at(30.9)), []);
    assert_eq!(run.state.checks_due(at(31.0)), [reference("a", 1)]);
    assert_eq!(run.at(31.0, wake()), ["a ended 1 NotListed"]);
    assert_eq!(run.state.deadline(), None);
}

#[test]
fn a_first_check_that_is_too_early_stays_due_and_holds_up_nothing_else() {
    let mut run =
        Run::start("tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1}\n  - {id: b, sleep: {for: 35s}}\n", "{}");
    run.at(1.0, dispatch("a"));
    let too_early = || Command::Wake { held: Vec::new(), early: vec![reference("a", 1)] };
    assert_eq!(run.at(31.0, too_early()), [""; 0]);
    assert_eq!(run.at(35.0, too_early()), ["b succeeded null"]);
    assert_eq!(run.state.deadline(), Some(at(31.0)));
    assert_eq!(run.at(40.0, wake()), ["a ended 1 NotListed"]);
}

#[test]
fn a_delivery_that_is_held_at_its_first_check_is_its_sessions_from_then_on() {
    let mut run = Run::start(ONE, "{}");
    run.at(1.0, dispatch("a"));
    assert_eq!(run.at(31.0, wake_holding(&[("a", 1)])), ["a held 1"]);
    assert_eq!(run.state.deadline(), None);
    assert!(run.state.deliveries_out());
}

#[test]
fn being_held_is_asked_of_the_delivery_that_is_out() {
    let mut run = Run::start(ONE, "{}");
    run.at(1.0, dispatch("a"));
    run.at(2.0, end("a", 1, EndReason::SessionLost));
    run.at(3.0, dispatch("a"));
    assert_eq!(run.at(33.0, wake_holding(&[("a", 1)])), ["a ended 2 NotListed"]);
}

#[test]
fn without_a_first_beat_the_attempt_fails() {
    let lines = "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, heartbeat_timeout: 5s, retry: {jitter: 0}}";
    check(
        lines,
        vec![(1.0, dispatch("a"))],
        when(6.0, wake()),
        then(Outcome::Done, &["a attempt 1/1 failed HEARTBEAT_TIMEOUT, retry 7"]),
    );
    check(lines, vec![(1.0, dispatch("a"))], when(6.0, wake_holding(&[("a", 1)])), then(Outcome::Done, &["a held 1"]));
    // A silence of the session is noticed first where beats may be far apart.
    let rare = "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, heartbeat_timeout: 60s}";
    check(rare, vec![(1.0, dispatch("a"))], when(31.0, wake()), then(Outcome::Done, &["a ended 1 NotListed"]));
}

#[test]
fn what_was_due_earlier_is_done_first_however_late_the_wake_up_is() {
    let lines = "timeout: 60s\ntasks: {t@1: {}}\nsteps:\n  - {id: a, sleep: {for: 20s}}\n  - {id: b, task: t@1, needs: [a]}\n  - {id: c, sleep: {for: 10s}}";
    let mut run = Run::start(lines, "{}");
    assert_eq!(
        run.at(3600.0, wake()),
        [
            "c succeeded null",
            "a succeeded null",
            "b scheduled 1 null",
            "winding down for timeout until 3630",
            "TIMED_OUT"
        ]
    );
}

#[test]
fn more_timers_than_one_decision_takes_are_left_for_the_next() {
    let mut lines = String::from("steps:\n");
    for number in 0..1_500 {
        lines += &format!("  - {{id: s{number}, sleep: {{for: 5s}}}}\n");
    }
    let mut run = Run::start(&lines, "{}");
    run.at(0.0, wake());
    while !run.state.is_closed() {
        assert!(run.state.deadline().unwrap() <= at(5.0));
        run.at(5.0, wake());
    }
    assert_eq!(run.state.phase(), Phase::Succeeded);
}

#[test]
fn time_that_goes_back_is_not_believed() {
    let mut run = Run::start(ONE, "{}");
    run.at(10.0, dispatch("a"));
    run.at(5.0, complete("a", 1, "1"));
    assert_eq!(run.state.last_time(), at(10.0));
}
