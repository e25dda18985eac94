//! Handlers of `on_event`.

use super::*;

const LINES: &str = "tasks: {t@1: {}, log@1: {}}
signals: {note: {}, go: {}}
steps:
  - {id: a, await: {signal: go}}
handlers:
  on_event:
    - {signal: note, match: '${ event.kind == \"x\" }', step: {id: log, task: log@1, input: '${ event.text }', retry: {max_attempts: 1}}}
    - {signal: note, step: {id: other, compute: '${ event }', on_error: continue}}
";

fn note(text: &str) -> Command {
    signal("note", &format!(r#"{{"kind":"x","text":"{text}"}}"#))
}

#[test]
fn a_signal_begins_a_unit_of_its_handler() {
    let mut run = Run::start(LINES, "{}");
    assert_eq!(run.at(1.0, note("hi"))[1..], ["on_event:log[0] takes 3", r#"on_event:log[0] scheduled 1 "hi""#]);
    run.at(2.0, dispatch("on_event:log[0]"));
    assert_eq!(run.at(3.0, complete("on_event:log[0]", 1, "1")), ["on_event:log[0] succeeded 1 by 1"]);
    assert_eq!(run.state.buffered_signals(), 0);
}

#[test]
fn a_handler_works_on_one_signal_at_a_time_in_order() {
    let mut run = Run::start(LINES, "{}");
    run.at(1.0, note("one"));
    assert_eq!(run.at(2.0, note("two")).len(), 1);
    assert_eq!(run.at(3.0, note("three")).len(), 1);
    assert_eq!(run.state.buffered_signals(), 2);
    run.at(4.0, dispatch("on_event:log[0]"));
    assert_eq!(
        run.at(5.0, complete("on_event:log[0]", 1, "1")),
        ["on_event:log[0] succeeded 1 by 1", "on_event:log[1] takes 6", r#"on_event:log[1] scheduled 1 "two""#]
    );
    // The unit before is forgotten, but not what was accepted of it.
    assert_eq!(run.decide_at(6.0, complete("on_event:log[0]", 1, "1")), Ok(DUPLICATE));
    assert_eq!(run.decide_at(6.0, complete("on_event:log[0]", 1, "2")), Ok(refused(RefusalReason::StaleToken)));
}

#[test]
fn the_first_handler_whose_match_holds_takes_a_signal() {
    let mut run = Run::start(LINES, "{}");
    assert_eq!(
        run.at(1.0, signal("note", r#"{"kind":"y"}"#))[1..],
        ["on_event:other[0] takes 3", r#"on_event:other[0] succeeded {"kind":"y"}"#]
    );
    assert_eq!(run.at(2.0, signal("note", r#"{"kind":"z"}"#))[1], "on_event:other[1] takes 6");
}

#[test]
fn a_match_that_cannot_be_evaluated_fails_its_handler() {
    let mut run = Run::start(LINES, "{}");
    let lines = run.at(1.0, signal("note", "7"));
    assert_eq!(lines[1..3], ["on_event:log[0] takes 3", "on_event:log[0] failed EXPRESSION_FAILED"]);
    assert_eq!(lines.last().unwrap(), "FAILED EXPRESSION_FAILED");
}

#[test]
fn an_await_wins_over_a_handler() {
    let lines = "signals: {note: {}}\ntasks: {log@1: {}}\nsteps: [{id: a, await: {signal: note}}]
handlers: {on_event: [{signal: note, step: {id: log, task: log@1, input: '${ event }'}}]}\n";
    let mut run = Run::start(lines, "{}");
    assert_eq!(run.at(1.0, signal("note", "1"))[1..], ["a succeeded 1 from 3", "SUCCEEDED null"]);
    // One that begins while the handler is busy takes what waits for it.
    let lines =
        lines.replace("steps: [", "steps: [{id: z, sleep: {for: 10s}}, ").replace("a, await", "a, needs: [z], await");
    let mut run = Run::start(&lines, "{}");
    run.at(1.0, signal("note", "1"));
    run.at(2.0, signal("note", "2"));
    assert_eq!(run.at(10.0, wake()), ["z succeeded null", "a awaits", "a succeeded 2 from 6"]);
}

#[test]
fn it_ends_well_only_when_no_handler_works_and_no_signal_waits_for_one() {
    let mut run = Run::start(LINES, "{}");
    run.at(1.0, note("one"));
    run.at(2.0, note("two"));
    assert_eq!(run.at(3.0, signal("go", "1"))[1..], ["a succeeded 1 from 7"]);
    run.at(4.0, dispatch("on_event:log[0]"));
    run.at(4.0, complete("on_event:log[0]", 1, "1"));
    run.at(5.0, dispatch("on_event:log[1]"));
    assert_eq!(run.at(6.0, complete("on_event:log[1]", 1, "1"))[1..], ["SUCCEEDED null"]);
}

#[test]
fn a_handler_that_fails_ends_the_execution_unless_it_may() {
    let mut run = Run::start(LINES, "{}");
    run.at(1.0, note("one"));
    run.at(2.0, dispatch("on_event:log[0]"));
    let lines = run.at(3.0, fail("on_event:log[0]", 1, "X"));
    assert_eq!(lines[1..], ["on_event:log[0] failed X", "winding down for failure X until 33", "FAILED X"]);

    let lines = LINES.replace("retry: {max_attempts: 1}", "retry: {max_attempts: 1}, on_error: continue");
    let mut run = Run::start(&lines, "{}");
    run.at(1.0, note("one"));
    run.at(1.0, note("two"));
    run.at(2.0, dispatch("on_event:log[0]"));
    assert_eq!(
        run.at(3.0, fail("on_event:log[0]", 1, "X"))[1..3],
        ["on_event:log[0] failed X", "on_event:log[1] takes 6"]
    );
}

#[test]
fn winding_down_drops_handlers_and_takes_no_more_signals() {
    let mut run = Run::start(LINES, "{}");
    run.at(1.0, note("one"));
    run.at(2.0, note("two"));
    run.at(3.0, dispatch("on_event:log[0]"));
    assert_eq!(run.at(4.0, cancel()), ["winding down for cancel until 34"]);
    assert_eq!(run.at(5.0, complete("on_event:log[0]", 1, "1")), ["on_event:log[0] succeeded 1 by 1", "CANCELLED"]);
}

#[test]
fn an_expired_signal_begins_nothing() {
    let mut run = Run::start(LINES, "{}");
    run.at(1.0, note("one"));
    run.at(2.0, signal_until("note", r#"{"kind":"x","text":"late"}"#, 5.0));
    run.at(3.0, dispatch("on_event:log[0]"));
    let lines = run.at(6.0, complete("on_event:log[0]", 1, "1"));
    assert_eq!(lines, ["on_event:log[0] succeeded 1 by 1", "signal 6 expired"]);
}

#[test]
fn a_paused_execution_keeps_signals_for_its_handlers() {
    let mut run = Run::start(LINES, "{}");
    run.at(1.0, Command::Pause { reason: arc(""), request: None });
    assert_eq!(run.at(2.0, note("one")).len(), 1);
    assert_eq!(run.at(3.0, Command::Resume { request: None })[1], "on_event:log[0] takes 4");
}

#[test]
fn a_run_ends_only_once_its_handlers_have_and_leaves_what_waits_to_the_next() {
    let lines = "tasks: {log@1: {}}\nsignals: {note: {}, go: {}}
steps:
  - {id: a, await: {signal: go}}
  - {id: again, needs: [a], continue_as_new: {}}
handlers: {on_event: [{signal: note, step: {id: log, task: log@1, input: '${ event }'}}]}\n";
    let mut run = Run::start(lines, "{}");
    run.at(1.0, signal("note", "1"));
    run.at(2.0, signal("note", "2"));
    assert_eq!(run.at(3.0, signal("go", "1"))[1..], ["a succeeded 1 from 7"]);
    run.at(4.0, dispatch("on_event:log[0]"));
    assert_eq!(run.at(5.0, complete("on_event:log[0]", 1, "1"))[1..], ["again ends the run, next {}"]);
    assert_eq!(
        run.at(6.0, wake()),
        ["run 2 {}", "a awaits", "on_event:log[0] takes 6", "on_event:log[0] scheduled 1 2"]
    );
    // A delivery of the new run has a new number, though its unit has the old name.
    assert_eq!(run.decide_at(7.0, complete("on_event:log[0]", 1, "9")), Ok(refused(RefusalReason::StaleToken)));
    assert_eq!(run.dispatch_at(8.0, "on_event:log[0]", WIDE).reference.delivery, 2);
}
