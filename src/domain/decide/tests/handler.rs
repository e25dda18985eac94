//! What runs while an execution winds down, after everything is undone.

use super::*;

const LINES: &str = "tasks: {t@1: {}, u@1: {}}
steps:
  - {id: a, task: t@1, compensate: {task: u@1}}
  - {id: b, needs: [a], task: t@1, retry: {max_attempts: 1}}
handlers:
  failure:
    - {id: note, task: t@1, retry: {max_attempts: 1}, input: {code: '${ failure.code }', of: '${ failure.unit }', a: '${ steps.a.output }'}}
    - {id: after, needs: [note], compute: '${ steps.note.output }'}
  cancel:
    - {id: sorry, task: t@1, input: '${ failure.message }'}
";

fn done(run: &mut Run, second: f64, unit: &str, output: &str) -> Vec<String> {
    run.at(second, dispatch(unit));
    run.at(second, complete(unit, 1, output))
}

#[test]
fn handlers_run_after_the_undoing_and_before_the_close() {
    let mut run = Run::start(LINES, "{}");
    done(&mut run, 1.0, "a", "1");
    run.at(2.0, dispatch("b"));
    assert_eq!(run.at(2.0, fail("b", 1, "X")).last().unwrap(), "compensate:a scheduled 1 null");
    assert_eq!(
        done(&mut run, 3.0, "compensate:a", "null")[1],
        r#"failure:note scheduled 1 {"code":"X","of":"b","a":1}"#
    );
    assert_eq!(
        done(&mut run, 4.0, "failure:note", "\"told\""),
        [r#"failure:note succeeded "told" by 1"#, r#"failure:after succeeded "told""#, "FAILED X"]
    );
}

#[test]
fn only_the_handlers_of_the_cause_run() {
    let mut run = Run::start(LINES, "{}");
    assert_eq!(run.at(1.0, cancel())[1], r#"cancel:sorry scheduled 1 "enough""#);
    assert_eq!(done(&mut run, 2.0, "cancel:sorry", "1")[1], "CANCELLED");
    let mut run = Run::start(&format!("timeout: 5s\n{LINES}"), "{}");
    assert_eq!(run.at(5.0, wake())[1], "TIMED_OUT");
}

#[test]
fn a_handler_that_fails_keeps_back_what_needs_it_and_changes_no_end() {
    let mut run = Run::start(LINES, "{}");
    done(&mut run, 1.0, "a", "1");
    run.at(2.0, dispatch("b"));
    run.at(2.0, fail("b", 1, "X"));
    done(&mut run, 3.0, "compensate:a", "null");
    run.at(4.0, dispatch("failure:note"));
    assert_eq!(
        run.at(4.0, fail("failure:note", 1, "Y")),
        ["failure:note attempt 1/1 failed Y, no retry", "failure:note failed Y", "FAILED X"]
    );
}

#[test]
fn a_success_of_a_unit_is_too_late_once_a_handler_has_begun() {
    let mut run = Run::start(
        "tasks: {t@1: {}, u@1: {}}
steps:
  - {id: a, task: t@1, compensate: {task: u@1, unknown: skip}}
handlers:
  cancel: [{id: sorry, task: t@1}]
",
        "{}",
    );
    run.at(1.0, dispatch("a"));
    run.at(1.0, hold("a", 1));
    run.at(2.0, cancel());
    assert_eq!(run.at(32.0, wake()), ["a cancelled", "cancel:sorry scheduled 1 null"]);
    assert_eq!(run.decide_at(33.0, complete("a", 1, "1")), Ok(refused(RefusalReason::UnitResolved)));
    assert_eq!(done(&mut run, 34.0, "cancel:sorry", "1")[1], "CANCELLED");
}

#[test]
fn a_handler_may_go_through_a_list_sleep_and_wait() {
    let mut run = Run::start(
        "signals: {ok: {}}
steps: [{id: a, sleep: {for: 1h}}]
handlers:
  cancel:
    - {id: each, for_each: [1, 2], sleep: {for: '${ string(item.value) + \"s\" }'}}
    - {id: wait, needs: [each], await: {signal: ok, timeout: 1m}}
",
        "{}",
    );
    assert_eq!(run.at(1.0, cancel())[1..3], ["cancel:each goes through [1,2]", "cancel:each[0] sleeps until 2"]);
    run.at(2.0, wake());
    assert_eq!(
        run.at(3.0, wake()),
        ["cancel:each[1] succeeded null", "cancel:each joined", "cancel:wait awaits until 63"]
    );
    let end = run.at(4.0, signal("ok", "1"));
    assert_eq!(end[1..], ["cancel:wait succeeded 1 from 11", "CANCELLED"]);
}
