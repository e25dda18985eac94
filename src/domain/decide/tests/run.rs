//! From one run to the next.

use super::*;

const COUNT: &str = "input: {type: object, properties: {n: {type: integer}, step: {type: integer, default: 1}}}
timeout: 1h
tasks: {t@1: {}}
signals: {s: {}}
steps:
  - {id: a, task: t@1, input: '${ input.n }'}
  - {id: again, needs: [a], when: '${ input.n < 3 }', continue_as_new: {input: {n: '${ input.n + input.step }'}}}
result: '${ input.n }'
";

/// Lets the next run begin.
fn next(run: &mut Run, second: f64) -> Vec<String> {
    assert!(run.state.is_between_runs() && run.state.deadline() == Some(run.state.last_time()));
    run.at(second, wake())
}

fn done(run: &mut Run, second: f64, delivery: u32) -> Vec<String> {
    run.at(second, dispatch("a"));
    run.at(second, complete("a", delivery, "0"))
}

#[test]
fn a_run_ends_its_decision_and_the_next_one_begins_with_its_input() {
    let mut run = Run::start(COUNT, r#"{"n":1}"#);
    assert_eq!(done(&mut run, 1.0, 1), ["a succeeded 0 by 1", r#"again ends the run, next {"n":2,"step":1}"#]);
    assert_eq!(next(&mut run, 2.0), [r#"run 2 {"n":2,"step":1}"#, "a scheduled 1 2"]);
    assert_eq!((run.state.run(), run.state.start_time()), (2, at(0.0)));
    assert_eq!(run.state.expire_time(), Some(at(3600.0)), "the timeout is the execution's");
    done(&mut run, 3.0, 2);
    next(&mut run, 4.0);
    assert_eq!(done(&mut run, 5.0, 3), ["a succeeded 0 by 3", "again skipped", "SUCCEEDED 3"]);
}

#[test]
fn whatever_comes_between_two_runs_meets_the_next_one() {
    let mut run = Run::start(COUNT, r#"{"n":1}"#);
    done(&mut run, 1.0, 1);
    run.at(2.0, cancel());
    let lines = run.lines();
    assert_eq!(
        lines[lines.len() - 3..],
        [r#"run 2 {"n":2,"step":1}"#, "winding down for cancel until 32", "CANCELLED"]
    );
}

#[test]
fn a_report_of_a_run_before_does_not_count_and_its_repeat_is_known() {
    let mut run = Run::start(COUNT, r#"{"n":1}"#);
    done(&mut run, 1.0, 1);
    next(&mut run, 2.0);
    run.at(3.0, dispatch("a"));
    assert_eq!(run.decide_at(4.0, complete("a", 1, "0")), Ok(DUPLICATE));
    assert_eq!(run.decide_at(4.0, complete("a", 1, "5")), Ok(refused(RefusalReason::StaleToken)));
    assert_eq!(run.decide_at(4.0, fail("a", 1, "X")), Ok(refused(RefusalReason::StaleToken)));
    assert_eq!(run.decide_at(5.0, complete("a", 2, "0")), Ok(ACCEPTED));
}

#[test]
fn a_unit_has_another_idempotency_key_in_each_run() {
    let mut run = Run::start(COUNT, r#"{"n":1}"#);
    let first = run.dispatch_at(1.0, "a", WIDE);
    run.at(1.0, complete("a", 1, "0"));
    next(&mut run, 2.0);
    let second = run.dispatch_at(3.0, "a", WIDE);
    assert_ne!(first.idempotency_key, second.idempotency_key);
    assert_eq!((second.attempt, second.redelivery, second.reference.delivery), (1, false, 2));
}

#[test]
fn signals_and_calls_go_along_to_the_next_run() {
    let lines = "signals: {s: {}}\ntasks: {t@1: {}}\nsteps:
  - {id: a, task: t@1}
  - {id: b, needs: [a], when: '${ execution.run > 1 }', await: {signal: s}}
  - {id: again, needs: [b], when: '${ execution.run < 2 }', continue_as_new: {}}
result: '${ steps.b.output }'
";
    let mut run = Run::start(lines, "{}");
    let given = Command::Signal { name: arc("s"), payload: json("7"), expire_time: None, request: Some(request(1, 1)) };
    assert_eq!(run.decide_at(1.0, given.clone()), Ok(Outcome::Recorded(3)));
    done(&mut run, 2.0, 1);
    next(&mut run, 3.0);
    assert_eq!(run.state.buffered_signals(), 1);
    assert_eq!(run.decide_at(4.0, given.clone()), Ok(Outcome::Recorded(3)));
    assert_eq!(
        run.decide_at(
            4.0,
            Command::Signal { name: arc("s"), payload: json("8"), expire_time: None, request: Some(request(1, 2)) }
        ),
        Err(Rejection::RequestIdReused)
    );
    assert_eq!(done(&mut run, 5.0, 2)[1..], ["b awaits", "b succeeded 7 from 3", "again skipped", "SUCCEEDED 7"]);
}

#[test]
fn an_input_that_the_next_run_cannot_take_fails_the_execution() {
    let lines = COUNT.replace("n: '${ input.n + input.step }'", "n: x");
    let mut run = Run::start(&lines, r#"{"n":1}"#);
    let lines = done(&mut run, 1.0, 1);
    assert_eq!(
        lines[1..],
        ["again failed INPUT_INVALID", "winding down for failure INPUT_INVALID until 31", "FAILED INPUT_INVALID"]
    );
}

#[test]
fn runs_without_a_task_end_one_decision_each() {
    let lines = "steps:
  - {id: a, compute: '${ input.n + 1 }'}
  - {id: again, needs: [a], when: '${ input.n < 1000 }', continue_as_new: {input: {n: '${ steps.a.output }'}}}
result: '${ input.n }'
";
    let mut run = Run::start(lines, r#"{"n":0}"#);
    let size = run.state.size_bytes();
    while !run.state.is_closed() {
        let from = run.log.len();
        run.at(1.0, wake());
        assert!(run.log.len() - from <= 5);
        assert!(run.state.size_bytes() <= size + 400);
    }
    assert_eq!((run.state.run(), run.state.output()), (1001, Some(&json("1000"))));
}
