//! Signals and the steps that await them.

use super::*;

const ONE: &str =
    "signals: {s: {}, n: {type: integer}}\nsteps:\n  - {id: w, await: {signal: s}}\nresult: \"${ steps.w.output }\"";
const LATER: &str = "signals: {s: {}}\nsteps:\n  - {id: z, sleep: {for: 5s}}\n  - {id: w, await: {signal: s}, needs: [z]}\n  - {id: v, await: {signal: s}, needs: [w]}";

#[test]
fn a_signal_ends_the_wait_for_it() {
    check(
        ONE,
        vec![],
        when(1.0, signal("s", "7")),
        then(Outcome::Recorded(3), &["signal s 7", "w succeeded 7 from 3", "SUCCEEDED 7"]),
    );
}

#[test]
fn a_signal_that_comes_before_the_wait_is_kept_for_it() {
    let mut run = Run::start(LATER, "{}");
    run.at(1.0, signal("s", "1"));
    assert_eq!(run.state.buffered_signals(), 1);
    assert_eq!(run.at(5.0, wake()), ["z succeeded null", "w awaits", "w succeeded 1 from 3", "v awaits"]);
    assert_eq!(run.state.buffered_signals(), 0);
}

#[test]
fn c071_two_signals_are_taken_one_after_another_in_their_order() {
    let mut run = Run::start(LATER, "{}");
    run.at(1.0, signal("s", "1"));
    run.at(1.0, signal("s", "2"));
    assert_eq!(
        run.at(5.0, wake())[1..],
        ["w awaits", "w succeeded 1 from 3", "v awaits", "v succeeded 2 from 4", "SUCCEEDED null"]
    );
    // The same if the waits were there first.
    let mut run = Run::start(LATER, "{}");
    run.at(5.0, wake());
    assert_eq!(run.at(6.0, signal("s", "1")), ["signal s 1", "w succeeded 1 from 5", "v awaits"]);
    assert_eq!(run.at(6.0, signal("s", "2")), ["signal s 2", "v succeeded 2 from 8", "SUCCEEDED null"]);
}

#[test]
fn c069_a_second_signal_after_the_end_is_refused_and_never_lost_silently() {
    let closed = then_rejected(Rejection::ExecutionClosed { state: "SUCCEEDED" });
    check(ONE, vec![(1.0, signal("s", "1"))], when(1.0, signal("s", "2")), closed);
    // One that came while it ran and that nobody took is still shown.
    let both = "signals: {s: {}}\nsteps:\n  - {id: z, sleep: {for: 5s}}";
    let mut run = Run::start(both, "{}");
    run.at(1.0, signal("s", "1"));
    run.at(5.0, wake());
    assert_eq!((run.state.phase(), run.state.buffered_signals()), (Phase::Succeeded, 1));
}

#[test]
fn c073_a_flood_meets_a_limit_and_does_not_keep_the_execution_from_closing() {
    let mut run = Run::start(LATER, "{}");
    run.settings.buffered_signals_max = 3;
    for number in 0..3 {
        run.at(1.0, signal("s", &number.to_string()));
    }
    assert_eq!(run.decide_at(1.0, signal("s", "3")), Err(Rejection::SignalBufferFull { limit: 3 }));
    run.at(5.0, wake());
    assert_eq!(run.state.phase(), Phase::Succeeded);
    assert_eq!(run.decide_at(6.0, signal("s", "4")), Err(Rejection::ExecutionClosed { state: "SUCCEEDED" }));
}

#[test]
fn a_full_buffer_lets_a_signal_through_that_is_awaited() {
    let mut run = Run::start(
        "signals: {s: {}, u: {}}\nsteps:\n  - {id: w, await: {signal: s}}\n  - {id: x, await: {signal: s}}",
        "{}",
    );
    run.settings.buffered_signals_max = 1;
    run.at(1.0, signal("u", "1"));
    assert_eq!(run.decide_at(1.0, signal("u", "2")), Err(Rejection::SignalBufferFull { limit: 1 }));
    assert_eq!(run.at(1.0, signal("s", "3"))[1], "w succeeded 3 from 5");
}

#[test]
fn a_full_buffer_drops_what_has_expired() {
    let mut run = Run::start(LATER, "{}");
    run.settings.buffered_signals_max = 1;
    run.at(1.0, signal_until("s", "1", 2.0));
    assert_eq!(run.at(3.0, signal("s", "2")), ["signal 3 expired", "signal s 2"]);
}

#[test]
fn c067_an_expired_signal_is_not_delivered() {
    let mut run = Run::start(LATER, "{}");
    run.at(1.0, signal_until("s", "1", 2.0));
    run.at(1.0, signal_until("s", "2", 60.0));
    assert_eq!(run.state.deadline(), Some(at(5.0)), "expiry is judged at delivery, it is no timer");
    assert_eq!(
        run.at(5.0, wake()),
        ["z succeeded null", "signal 3 expired", "w awaits", "w succeeded 2 from 4", "v awaits"]
    );
}

#[test]
fn a_signal_that_has_expired_when_it_comes_is_recorded_and_not_delivered() {
    check(
        ONE,
        vec![],
        when(5.0, signal_until("s", "1", 5.0)),
        then(Outcome::Recorded(3), &["signal s 1", "signal 3 expired"]),
    );
}

#[test]
fn a_signal_that_is_not_declared_is_refused() {
    check(ONE, vec![], when(1.0, signal("x", "1")), then_rejected(Rejection::SignalUnknown { name: arc("x") }));
}

#[test]
fn a_signal_that_does_not_fit_its_schema_is_refused() {
    let mut run = Run::start(ONE, "{}");
    assert!(matches!(run.decide_at(1.0, signal("n", "\"x\"")), Err(Rejection::SignalInvalid { .. })));
    assert_eq!(run.at(1.0, signal("n", "1")), ["signal n 1"]);
}

#[test]
fn a_wait_takes_the_oldest_signal_that_matches_and_leaves_the_others() {
    let lines = "signals: {s: {}}\nsteps:\n  - {id: z, sleep: {for: 5s}}\n  - {id: w, await: {signal: s, match: \"${ signal.x == input.x }\"}, needs: [z]}";
    let mut run = Run::start(lines, r#"{"x":2}"#);
    run.at(1.0, signal("s", r#"{"x":1}"#));
    run.at(1.0, signal("s", r#"{"x":2}"#));
    run.at(1.0, signal("s", r#"{"x":2,"y":1}"#));
    assert_eq!(run.at(5.0, wake())[2], "w succeeded {\"x\":2} from 4");
    assert_eq!(run.state.buffered_signals(), 2);
}

#[test]
fn a_signal_goes_to_the_longest_wait_that_matches() {
    let lines = "signals: {s: {}}\nsteps:\n  - {id: w, await: {signal: s, match: \"${ signal == 1 }\"}}\n  - {id: x, await: {signal: s}}\n  - {id: y, await: {signal: s}}";
    let mut run = Run::start(lines, "{}");
    assert_eq!(run.at(1.0, signal("s", "2")), ["signal s 2", "x succeeded 2 from 5"]);
    assert_eq!(run.at(1.0, signal("s", "1")), ["signal s 1", "w succeeded 1 from 7"]);
    assert_eq!(run.at(1.0, signal("s", "1")), ["signal s 1", "y succeeded 1 from 9", "SUCCEEDED null"]);
}

#[test]
fn a_match_that_cannot_be_evaluated_fails_the_wait_and_leaves_the_signal() {
    let lines = "signals: {s: {}}\nsteps:\n  - {id: w, await: {signal: s, match: \"${ signal.x == 1 }\"}, on_error: continue}\n  - {id: x, await: {signal: s}, needs: [w]}";
    let mut run = Run::start(lines, "{}");
    assert_eq!(
        run.at(1.0, signal("s", "{}")),
        ["signal s {}", "w failed EXPRESSION_FAILED", "x awaits", "x succeeded {} from 3", "SUCCEEDED null"]
    );
}

#[test]
fn c047_a_wait_that_got_its_signal_leaves_no_timeout_behind() {
    let lines = "signals: {s: {}}\nsteps:\n  - {id: w, await: {signal: s, timeout: 4h}}";
    let mut run = Run::start(lines, "{}");
    assert_eq!(run.lines()[1], "w awaits until 14400");
    assert_eq!(run.at(2.0, signal("s", "1")), ["signal s 1", "w succeeded 1 from 3", "SUCCEEDED null"]);
    assert_eq!(run.state.deadline(), None);
    assert_eq!(run.at(14400.0, wake()), [""; 0]);
}

#[test]
fn c047_a_wait_that_timed_out_takes_no_signal() {
    let lines = "signals: {s: {}}\nsteps:\n  - {id: w, await: {signal: s, timeout: 5s}, on_error: continue}\n  - {id: x, await: {signal: s}, needs: [w]}";
    let mut run = Run::start(lines, "{}");
    assert_eq!(run.at(5.0, wake()), ["w failed AWAIT_TIMEOUT", "x awaits"]);
    assert_eq!(run.at(6.0, signal("s", "1"))[1], "x succeeded 1 from 5");
}

#[test]
fn signals_are_kept_while_the_execution_winds_down() {
    let lines = "signals: {s: {}}\ntasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1}\n  - {id: w, await: {signal: s}}";
    let mut run = Run::start(lines, "{}");
    run.at(1.0, dispatch("a"));
    run.at(2.0, cancel());
    assert_eq!(run.at(3.0, signal("s", "1")), ["signal s 1"]);
    assert_eq!(run.state.buffered_signals(), 1);
}
