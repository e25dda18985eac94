//! Hand-outs, reports, lost deliveries and retries.

use super::*;
use EndReason::{NotListed, NotSent, Released, SessionLost, Unregistered};
use RefusalReason::{ExecutionClosed, StaleToken, UnitResolved};

const ONE: &str = "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1}\n";
const TWO: &str = "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1}\n  - {id: b, task: t@1}\n";
const CHECKED: &str = "tasks: {t@1: {output: {type: integer}}}\nsteps:\n  - {id: a, task: t@1}\n";

fn given<const N: usize>(commands: [(f64, Command); N]) -> Vec<(f64, Command)> {
    commands.into()
}

// Hand-out.

#[test]
fn a_dispatch_tells_the_worker_all_that_it_needs() {
    let mut run = Run::start(
        "timeout: 1h\ntasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, input: 5, queue: q, timeout: 10s, heartbeat_timeout: 4s}",
        "{}",
    );
    let delivery = run.dispatch_at(2.0, "a", WIDE);
    assert_eq!(
        delivery,
        Delivery {
            reference: reference("a", 1),
            contract: arc("t@1"),
            queue: arc("q"),
            input: json("5"),
            attempt: 1,
            redelivery: false,
            idempotency_key: idempotency_key(run.state.uid(), 1, "a", 1),
            schedule_time: at(0.0),
            dispatch_time: at(2.0),
            expire_time: Some(at(12.0)),
            heartbeat_timeout: Some(span(4.0)),
            progress: None,
        }
    );
    // The first check is for whichever silence is noticed first.
    assert_eq!(run.state.deadline(), Some(at(6.0)));
    assert!(run.state.is_current(&reference("a", 1)) && run.state.delivery_wanted(&reference("a", 1)));
    assert_eq!(run.state.heartbeat_timeout(&reference("a", 1)), Some(span(4.0)));
}

#[test]
fn a_worker_is_told_the_first_end_of_its_work() {
    let mut run = Run::start(
        "timeout: 8s\ntasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, timeout: 10s, total_timeout: 9s}",
        "{}",
    );
    let delivery = run.dispatch_at(2.0, "a", WIDE);
    assert_eq!(delivery.expire_time, Some(at(8.0)));
}

#[test]
fn only_what_waits_is_handed_out() {
    let not_waiting = |unit: &str| then_rejected(Rejection::NotWaiting { unit: arc(unit) });
    check(ONE, given([(1.0, dispatch("a"))]), when(2.0, dispatch("a")), not_waiting("a"));
    check(ONE, given([]), when(2.0, dispatch("x")), not_waiting("x"));
    check(ONE, given([(1.0, dispatch("a")), (1.0, complete("a", 1, "1"))]), when(2.0, dispatch("a")), not_waiting("a"));
    check(ONE, given([(1.0, cancel())]), when(2.0, dispatch("a")), not_waiting("a"));
    check(TWO, given([(1.0, dispatch("a")), (1.0, cancel())]), when(2.0, dispatch("b")), not_waiting("b"));
}

#[test]
fn c009_a_delayed_attempt_is_handed_out_once_and_not_before_it_is_due() {
    let lines =
        "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, retry: {initial_interval: 6h, max_interval: 6h, jitter: 0}}";
    let mut run = Run::start(lines, "{}");
    run.at(0.0, dispatch("a"));
    assert_eq!(run.at(1.0, fail("a", 1, "E")), ["a attempt 1/1 failed E, retry 21601"]);
    for hour in 1..6 {
        assert_eq!(
            run.decide_at(f64::from(hour) * 3600.0, dispatch("a")),
            Err(Rejection::NotWaiting { unit: arc("a") })
        );
        assert_eq!(run.at(f64::from(hour) * 3600.0, wake()), ["woke"]);
    }
    assert_eq!(run.state.deadline(), Some(at(21601.0)));
    assert_eq!(run.at(21601.0, wake()), ["a scheduled 2"]);
    assert_eq!(run.at(21602.0, dispatch("a")), ["a dispatched 2/2"]);
    assert_eq!(run.decide_at(21602.0, dispatch("a")), Err(Rejection::NotWaiting { unit: arc("a") }));
}

#[test]
fn an_input_that_the_worker_cannot_take_fails_the_step() {
    let lines = "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, input: hello}";
    check(
        lines,
        given([]),
        when(1.0, dispatch_to("a", 16 * 1024 + 6)),
        then(
            Outcome::Done,
            &[
                "a failed INPUT_TOO_LARGE",
                "winding down for failure INPUT_TOO_LARGE until 31",
                "FAILED INPUT_TOO_LARGE",
            ],
        ),
    );
    check(lines, given([]), when(1.0, dispatch_to("a", 16 * 1024 + 7)), then(Outcome::Done, &["a dispatched 1/1"]));
}

#[test]
fn progress_goes_to_the_next_delivery_if_it_fits() {
    let lost = |delivery| Command::EndDelivery {
        delivery: reference("a", delivery),
        reason: SessionLost,
        progress: (delivery == 1).then(|| json("\"half way\"")),
    };
    let mut run = Run::start(ONE, "{}");
    run.at(1.0, dispatch("a"));
    run.at(1.0, lost(1));
    assert_eq!(run.dispatch_at(2.0, "a", WIDE).progress, Some(json("\"half way\"")));
    run.at(2.0, lost(2));
    assert_eq!(run.dispatch_at(2.0, "a", 16 * 1024 + 8).progress, None, "the task goes out without it");
}

// Success.

#[test]
fn a_success_ends_the_step() {
    check(
        ONE,
        given([(1.0, dispatch("a"))]),
        when(2.0, complete("a", 1, "7")),
        then(ACCEPTED, &["a succeeded 7 by 1", "SUCCEEDED null"]),
    );
}

#[test]
fn c013_a_success_of_a_lost_delivery_counts_while_another_worker_has_the_task() {
    let lost = given([(1.0, dispatch("a")), (2.0, end("a", 1, SessionLost)), (3.0, dispatch("a"))]);
    check(TWO, lost.clone(), when(4.0, complete("a", 1, "7")), then(ACCEPTED, &["a succeeded 7 by 1"]));
    let mut run = Run::start(TWO, "{}");
    for (seconds, command) in lost {
        run.at(seconds, command);
    }
    run.at(4.0, complete("a", 1, "7"));
    assert!(!run.state.delivery_wanted(&reference("a", 2)), "the other worker is told to stop");
}

#[test]
fn c013_failures_beats_holds_and_ends_of_an_older_delivery_change_nothing() {
    let lost = given([(1.0, dispatch("a")), (2.0, end("a", 1, SessionLost)), (3.0, dispatch("a"))]);
    check(ONE, lost.clone(), when(4.0, fail("a", 1, "E")), then(refused(StaleToken), &[]));
    check(ONE, lost.clone(), when(4.0, miss_beat("a", 1)), then(Outcome::Done, &[]));
    check(ONE, lost.clone(), when(4.0, hold("a", 1)), then(Outcome::Done, &[]));
    check(ONE, lost, when(4.0, end("a", 1, Released)), then(refused(StaleToken), &[]));
}

#[test]
fn a_release_gives_the_task_back_and_its_repeat_is_a_duplicate() {
    let mut run = Run::start(ONE, "{}");
    run.at(1.0, dispatch("a"));
    assert_eq!(run.decide_at(2.0, end("a", 1, Released)), Ok(ACCEPTED));
    assert_eq!(run.decide_at(3.0, end("a", 1, Released)), Ok(DUPLICATE));
    run.at(4.0, dispatch("a"));
    run.at(5.0, complete("a", 2, "1"));
    assert_eq!(run.decide_at(6.0, end("a", 1, Released)), Ok(DUPLICATE));
    assert_eq!(run.decide_at(6.0, end("a", 2, Released)), Ok(refused(ExecutionClosed)));
}

#[test]
fn a_success_counts_while_its_unit_backs_off_and_the_retry_is_forgotten() {
    let mut run = Run::start(TWO, "{}");
    run.at(1.0, dispatch("a"));
    run.at(2.0, fail("a", 1, "E"));
    assert_eq!(run.decide_at(2.1, complete("a", 1, "7")), Ok(ACCEPTED));
    assert_eq!(run.state.deadline(), None);
}

#[test]
fn a_success_counts_while_its_unit_waits_again_and_its_place_in_the_queue_is_given_up() {
    let mut run = Run::start(TWO, "{}");
    run.at(1.0, dispatch("a"));
    run.at(2.0, end("a", 1, NotListed));
    assert_eq!(run.state.waiting().count(), 2);
    run.at(3.0, complete("a", 1, "7"));
    assert_eq!(run.state.waiting().map(|waiting| waiting.unit).collect::<Vec<_>>(), [arc("b")]);
}

#[test]
fn c011_a_slow_worker_that_finishes_after_its_replacement_changes_nothing_but_is_recorded_once() {
    let mut run = Run::start(TWO, "{}");
    run.at(1.0, dispatch("a"));
    run.at(61.0, end("a", 1, SessionLost));
    run.at(62.0, dispatch("a"));
    run.at(63.0, complete("a", 2, "2"));
    assert_eq!(run.at(70.0, complete("a", 1, "1")), ["a late 1 1"]);
    assert_eq!(run.decide_at(71.0, complete("a", 1, "1")), Ok(refused(UnitResolved)));
    assert_eq!(run.decide_at(71.0, fail("a", 1, "E")), Ok(refused(UnitResolved)));
    assert_eq!(run.lines().last().unwrap(), "a late 1 1", "repeats are not recorded");
    let output = run.state.steps().next().unwrap().output.cloned();
    assert_eq!(output, Some(json("2")), "the first success stands");
}

#[test]
fn c011_after_the_close_a_late_success_is_refused_without_a_trace() {
    let story = given([
        (1.0, dispatch("a")),
        (2.0, end("a", 1, SessionLost)),
        (3.0, dispatch("a")),
        (4.0, complete("a", 2, "2")),
    ]);
    check(ONE, story.clone(), when(5.0, complete("a", 1, "1")), then(refused(ExecutionClosed), &[]));
    check(ONE, story.clone(), when(5.0, fail("a", 2, "E")), then(refused(ExecutionClosed), &[]));
    check(ONE, story, when(5.0, hold("a", 1)), then(Outcome::Done, &[]));
}

#[test]
fn a_repeated_success_is_a_duplicate_also_after_the_close() {
    let done = given([(1.0, dispatch("a")), (2.0, complete("a", 1, "7"))]);
    check(TWO, done.clone(), when(3.0, complete("a", 1, "7")), then(DUPLICATE, &[]));
    check(ONE, done.clone(), when(3.0, complete("a", 1, "7")), then(DUPLICATE, &[]));
    check(ONE, done.clone(), when(3.0, complete("a", 1, "8")), then(refused(ExecutionClosed), &[]));
    check(TWO, done, when(3.0, complete("a", 1, "8")), then(refused(UnitResolved), &["a late 1 8"]));
}

#[test]
fn a_repeated_failure_is_a_duplicate_also_while_the_next_attempt_is_out() {
    let failed = given([(1.0, dispatch("a")), (2.0, fail("a", 1, "E")), (4.0, wake()), (4.0, dispatch("a"))]);
    check(ONE, failed.clone(), when(5.0, fail("a", 1, "E")), then(DUPLICATE, &[]));
    check(ONE, failed.clone(), when(5.0, fail("a", 1, "OTHER")), then(refused(StaleToken), &[]));
    check(ONE, failed, when(5.0, fail_for_good("a", 1, "E")), then(refused(StaleToken), &[]));
}

#[test]
fn a_token_that_was_never_given_out_is_stale() {
    for token in [complete("a", 2, "1"), complete("a", 0, "1"), complete("x", 1, "1"), fail("a", 9, "E")] {
        check(ONE, given([(1.0, dispatch("a"))]), when(2.0, token), then(refused(StaleToken), &[]));
    }
    check(ONE, given([]), when(2.0, complete("a", 1, "1")), then(refused(StaleToken), &[]));
}

#[test]
fn the_newest_32_reports_of_a_unit_are_remembered() {
    let lines = "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, retry: {max_attempts: 100, initial_interval: 0s}}";
    let mut run = Run::start(lines, "{}");
    for attempt in 1..=40 {
        run.at(f64::from(attempt), dispatch("a"));
        run.at(f64::from(attempt), fail("a", attempt, "E"));
    }
    assert_eq!(run.decide_at(50.0, fail("a", 9, "E")), Ok(DUPLICATE));
    assert_eq!(run.decide_at(50.0, fail("a", 8, "E")), Ok(refused(StaleToken)));
}

// Contracts.

#[test]
fn an_output_that_breaks_the_contract_fails_the_attempt_that_sent_it() {
    let sent = given([(1.0, dispatch("a"))]);
    let retried = "a attempt 1/1 failed OUTPUT_INVALID, retry ";
    let mut run = Run::start(CHECKED, "{}");
    run.at(1.0, dispatch("a"));
    let from = run.log.len();
    assert_eq!(run.decide_at(2.0, complete("a", 1, "\"x\"")), Ok(ACCEPTED));
    assert!(line(&run.log[from].kind).starts_with(retried));
    assert_eq!(run.decide_at(2.0, complete("a", 1, "\"x\"")), Ok(DUPLICATE));
    check(CHECKED, sent, when(2.0, complete("a", 1, "3")), then(ACCEPTED, &["a succeeded 3 by 1", "SUCCEEDED null"]));
}

#[test]
fn an_output_that_breaks_the_contract_is_refused_from_a_stale_token() {
    let lost = given([(1.0, dispatch("a")), (2.0, end("a", 1, SessionLost)), (3.0, dispatch("a"))]);
    check(CHECKED, lost, when(4.0, complete("a", 1, "\"x\"")), then(refused(StaleToken), &[]));
}

// Failures and retries.

#[test]
fn c021_pauses_grow_from_the_first_interval_and_not_from_the_longest() {
    let lines = "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, retry: {initial_interval: 200ms, backoff_coefficient: 2, max_interval: 1h, max_attempts: 10, jitter: 0}}";
    let mut run = Run::start(lines, "{}");
    let mut now = 0.0;
    for attempt in 1..=9_u32 {
        run.at(now, dispatch("a"));
        run.at(now, fail("a", attempt, "E"));
        now += 0.2 * f64::from(1 << (attempt - 1));
        assert_eq!(run.state.deadline(), Some(at(now)), "attempt {attempt}");
        assert_eq!(run.at(now, wake()), [format!("a scheduled {}", attempt + 1)]);
    }
    run.at(now, dispatch("a"));
    assert_eq!(run.at(now, fail("a", 10, "E"))[..2], ["a attempt 10/10 failed E, no retry", "a failed E"]);
}

#[test]
fn jitter_shortens_pauses_and_a_replay_gives_the_same() {
    let mut run = Run::start(ONE, "{}");
    run.at(0.0, dispatch("a"));
    run.at(0.0, fail("a", 1, "E"));
    let pause = run.state.deadline().unwrap().since(at(0.0));
    assert!((span(0.8)..=span(1.0)).contains(&pause), "{pause:?}");
}

#[test]
fn a_retry_without_pause_waits_for_a_worker_at_once() {
    check(
        "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, retry: {initial_interval: 0s}}",
        given([(1.0, dispatch("a"))]),
        when(2.0, fail("a", 1, "E")),
        then(ACCEPTED, &["a attempt 1/1 failed E, retry 2", "a scheduled 2"]),
    );
}

#[test]
fn the_worker_may_ask_for_a_longer_pause_but_not_for_a_shorter_one() {
    let after = |seconds| Command::Fail {
        delivery: reference("a", 1),
        failure: failure("", "E"),
        retryable: true,
        retry_after: Some(span(seconds)),
        progress: None,
    };
    let lines = "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, retry: {jitter: 0}}";
    let sent = given([(1.0, dispatch("a"))]);
    check(lines, sent.clone(), when(2.0, after(5.0)), then(ACCEPTED, &["a attempt 1/1 failed E, retry 7"]));
    check(lines, sent, when(2.0, after(0.5)), then(ACCEPTED, &["a attempt 1/1 failed E, retry 3"]));
}

#[test]
fn what_may_not_be_retried_fails_the_step_at_once() {
    let failed = ["a attempt 1/1 failed E, no retry", "a failed E", "winding down for failure E until 32", "FAILED E"];
    let sent = given([(1.0, dispatch("a"))]);
    check(ONE, sent.clone(), when(2.0, fail_for_good("a", 1, "E")), then(ACCEPTED, &failed));
    let listed = "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, retry: {non_retryable: [E]}}";
    check(listed, sent.clone(), when(2.0, fail("a", 1, "E")), then(ACCEPTED, &failed));
    let once = "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, retry: {max_attempts: 1}}";
    check(once, sent, when(2.0, fail("a", 1, "E")), then(ACCEPTED, &failed));
}

#[test]
fn no_retry_is_planned_beyond_the_total_timeout() {
    let lines = "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, total_timeout: 10s, retry: {initial_interval: 5s, jitter: 0}}";
    let sent = |seconds| given([(seconds, dispatch("a"))]);
    check(lines, sent(1.0), when(4.9, fail("a", 1, "E")), then(ACCEPTED, &["a attempt 1/1 failed E, retry 9.900"]));
    check(
        lines,
        sent(1.0),
        when(5.0, fail("a", 1, "E")),
        then(
            ACCEPTED,
            &["a attempt 1/1 failed E, no retry", "a failed E", "winding down for failure E until 35", "FAILED E"],
        ),
    );
}

#[test]
fn a_failed_step_that_may_fail_lets_its_dependents_run() {
    check(
        "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, on_error: continue, retry: {max_attempts: 1}}\n  - {id: b, compute: \"${ steps.a.error.code }\"}",
        given([(1.0, dispatch("a"))]),
        when(2.0, fail("a", 1, "E")),
        then(ACCEPTED, &["a attempt 1/1 failed E, no retry", "a failed E", "b succeeded \"E\"", "SUCCEEDED null"]),
    );
}

#[test]
fn a_failure_names_its_unit_whatever_the_worker_says() {
    let mut run = Run::start(ONE, "{}");
    run.at(1.0, dispatch("a"));
    run.at(2.0, fail("a", 1, "E"));
    assert_eq!(run.state.steps().next().unwrap().failure, Some(&failure("a", "E")));
}

// Lost deliveries.

#[test]
fn a_lost_delivery_is_handed_out_again_as_the_same_attempt_from_its_old_place() {
    for reason in [SessionLost, NotListed, Unregistered, Released] {
        let mut run = Run::start(ONE, "{}");
        run.at(1.0, dispatch("a"));
        assert_eq!(run.at(2.0, end("a", 1, reason)), [format!("a ended 1 {reason:?}")]);
        assert_eq!(run.state.waiting().next().unwrap().since, at(0.0));
        let delivery = run.dispatch_at(3.0, "a", WIDE);
        assert_eq!((delivery.attempt, delivery.reference.delivery, delivery.redelivery), (1, 2, true));
    }
}

#[test]
fn every_delivery_after_a_lost_one_is_a_redelivery_until_the_next_attempt() {
    let redelivery = |run: &mut Run, seconds| run.dispatch_at(seconds, "a", WIDE).redelivery;
    let mut run = Run::start("tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, retry: {initial_interval: 0s}}", "{}");
    assert!(!redelivery(&mut run, 1.0));
    run.at(1.0, end("a", 1, SessionLost));
    assert!(redelivery(&mut run, 2.0));
    run.at(2.0, end("a", 2, NotSent));
    assert!(redelivery(&mut run, 3.0));
    run.at(3.0, fail("a", 3, "E"));
    assert!(!redelivery(&mut run, 4.0));
}

#[test]
fn a_task_that_never_left_counts_as_no_delivery() {
    let mut run = Run::start("tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, queue_timeout: 60s}", "{}");
    for delivery in 1..=20 {
        run.at(f64::from(delivery), dispatch("a"));
        assert_eq!(run.at(f64::from(delivery), end("a", delivery, NotSent)), [format!("a ended {delivery} NotSent")]);
    }
    assert_eq!(run.state.deadline(), Some(at(60.0)), "it has waited all the time");
    let delivery = run.dispatch_at(30.0, "a", WIDE);
    assert_eq!((delivery.attempt, delivery.redelivery, delivery.schedule_time), (1, false, at(0.0)));
}

#[test]
fn c031_a_task_that_kills_its_workers_fails_after_ten_deliveries() {
    let mut run = Run::start(ONE, "{}");
    for delivery in 1..10 {
        run.at(f64::from(delivery), dispatch("a"));
        run.at(f64::from(delivery), end("a", delivery, SessionLost));
    }
    run.at(10.0, dispatch("a"));
    assert_eq!(
        run.at(10.0, end("a", 10, SessionLost)),
        [
            "a ended 10 SessionLost",
            "a failed DELIVERIES_EXHAUSTED",
            "winding down for failure DELIVERIES_EXHAUSTED until 40",
            "FAILED DELIVERIES_EXHAUSTED"
        ]
    );
}

#[test]
fn lost_deliveries_count_over_all_attempts_of_a_unit() {
    let mut run = Run::start("tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, retry: {initial_interval: 0s}}", "{}");
    run.settings.deliveries_max = 2;
    run.at(1.0, dispatch("a"));
    run.at(1.0, end("a", 1, SessionLost));
    run.at(2.0, dispatch("a"));
    run.at(2.0, fail("a", 2, "E"));
    run.at(3.0, dispatch("a"));
    assert_eq!(run.at(3.0, end("a", 3, SessionLost))[1], "a failed DELIVERIES_EXHAUSTED");
}

#[test]
fn a_held_delivery_is_held_once() {
    check(ONE, given([(1.0, dispatch("a"))]), when(11.0, hold("a", 1)), then(Outcome::Done, &["a held 1"]));
    check(ONE, given([(1.0, dispatch("a")), (11.0, hold("a", 1))]), when(12.0, hold("a", 1)), then(Outcome::Done, &[]));
}

#[test]
fn a_missed_beat_fails_the_attempt_which_is_retried() {
    check(
        "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, heartbeat_timeout: 5s, retry: {jitter: 0}}",
        given([(1.0, dispatch("a")), (2.0, hold("a", 1))]),
        when(20.0, miss_beat("a", 1)),
        then(Outcome::Done, &["a attempt 1/1 failed HEARTBEAT_TIMEOUT, retry 21"]),
    );
}
