//! Retry of what failed, and rerun from a step.

use super::*;
use crate::domain::decide::results;

const SAGA: &str = "timeout: 100s
tasks: {t@1: {}, undo@1: {}}
steps:
  - {id: a, task: t@1, compensate: {task: undo@1}}
  - {id: b, needs: [a], task: t@1, retry: {max_attempts: 1}}
  - {id: c, needs: [b], task: t@1}
  - {id: z, compute: 5}
result: '${ steps.b.output }'
";

fn retry() -> Command {
    Command::Retry { obstacle: None, request: None }
}

/// Retries, and lets begin what runs again: a decision of its own.
fn again(run: &mut Run, second: f64) -> Vec<String> {
    let mut lines = run.at(second, retry());
    assert!(run.state.work_due_now());
    lines.extend(run.at(second, wake()));
    lines
}

fn done(run: &mut Run, second: f64, unit: &str, delivery: u32) -> Vec<String> {
    run.at(second, dispatch(unit));
    run.at(second, complete(unit, delivery, &delivery.to_string()))
}

fn fails(run: &mut Run, second: f64, unit: &str, delivery: u32) -> Vec<String> {
    run.at(second, dispatch(unit));
    run.at(second, fail_for_good(unit, delivery, "X"))
}

/// `b` has failed, and `a` was undone.
fn failed() -> Run {
    let mut run = Run::start(SAGA, "{}");
    done(&mut run, 1.0, "a", 1);
    fails(&mut run, 2.0, "b", 1);
    done(&mut run, 3.0, "compensate:a", 1);
    assert_eq!(run.state.phase(), Phase::Failed);
    run
}

#[test]
fn what_failed_or_was_undone_runs_again_and_what_depends_on_it() {
    let mut run = failed();
    assert_eq!(again(&mut run, 50.0), ["REOPENED 2: a b c until 150", "a scheduled 1 null"]);
    assert_eq!((run.state.phase(), run.state.close_time(), run.state.cause()), (Phase::Running, None, None));
    done(&mut run, 51.0, "a", 2);
    done(&mut run, 52.0, "b", 2);
    assert_eq!(done(&mut run, 53.0, "c", 2).last().unwrap(), "SUCCEEDED 2");
}

#[test]
fn what_was_not_undone_keeps_its_result() {
    let lines = SAGA.replace(", compensate: {task: undo@1}", "");
    let mut run = Run::start(&lines, "{}");
    done(&mut run, 1.0, "a", 1);
    fails(&mut run, 2.0, "b", 1);
    assert_eq!(again(&mut run, 3.0), ["REOPENED 2: b c until 103", "b scheduled 1 null"]);
}

#[test]
fn attempts_begin_anew_with_another_key_and_older_reports_do_not_count() {
    let mut run = Run::start(SAGA, "{}");
    let first = run.dispatch_at(1.0, "a", WIDE);
    run.at(2.0, fail_for_good("a", 1, "X"));
    assert_eq!(again(&mut run, 3.0)[0], "REOPENED 2: a b c until 103");
    let second = run.dispatch_at(4.0, "a", WIDE);
    assert_ne!(first.idempotency_key, second.idempotency_key);
    assert_eq!((second.attempt, second.redelivery, second.reference.delivery), (1, false, 2));
    assert_eq!(run.decide_at(5.0, complete("a", 1, "1")), Ok(refused(RefusalReason::StaleToken)));
    assert_eq!(run.decide_at(5.0, fail_for_good("a", 1, "X")), Ok(DUPLICATE), "it was accepted once");
    assert_eq!(run.decide_at(6.0, complete("a", 2, "1")), Ok(ACCEPTED));
}

#[test]
fn it_can_fail_and_be_undone_again() {
    let mut run = failed();
    again(&mut run, 50.0);
    done(&mut run, 51.0, "a", 2);
    let lines = fails(&mut run, 52.0, "b", 2);
    assert_eq!(lines.last().unwrap(), "compensate:a scheduled 1 null");
    assert_eq!(done(&mut run, 53.0, "compensate:a", 2).last().unwrap(), "FAILED X");
    assert_eq!(again(&mut run, 60.0)[0], "REOPENED 3: a b c until 160");
}

#[test]
fn a_failure_that_is_allowed_stays_a_result() {
    let lines = "tasks: {t@1: {}}
steps:
  - {id: a, task: t@1, on_error: continue, retry: {max_attempts: 1}}
  - {id: b, needs: [a], task: t@1}
";
    let mut run = Run::start(lines, "{}");
    fails(&mut run, 1.0, "a", 1);
    fails(&mut run, 2.0, "b", 1);
    assert_eq!(again(&mut run, 3.0), ["REOPENED 2: b", "b scheduled 1 null"]);
}

#[test]
fn of_a_fan_out_only_what_failed_runs_again() {
    let lines = "tasks: {t@1: {}}
steps:
  - {id: a, for_each: [1, 2, 3, 4, 5], max_parallel: 3, task: t@1, input: '${ item.value }', retry: {max_attempts: 1}}
  - {id: b, needs: [a], compute: '${ steps.a.output }'}
result: '${ steps.b.output }'
";
    let mut run = Run::start(lines, "{}");
    done(&mut run, 1.0, "a[0]", 1);
    run.at(2.0, dispatch("a[1]"));
    let lines = fails(&mut run, 2.0, "a[2]", 1);
    assert_eq!(lines.last().unwrap(), "winding down for failure X until 32");
    assert_eq!(run.at(3.0, complete("a[1]", 1, "20")).last().unwrap(), "FAILED X");
    // The third failed, the fourth was dropped, the fifth had not begun.
    assert_eq!(
        again(&mut run, 4.0),
        ["REOPENED 2: a[2, 3, 4] b", "a[2] scheduled 1 3", "a[3] scheduled 1 4", "a[4] scheduled 1 5"]
    );
    done(&mut run, 5.0, "a[4]", 2);
    done(&mut run, 6.0, "a[3]", 2);
    assert_eq!(done(&mut run, 7.0, "a[2]", 2).last().unwrap(), "SUCCEEDED [1,20,2,2,2]");
}

#[test]
fn of_a_fan_out_that_was_undone_the_undone_items_run_again() {
    let lines = "tasks: {t@1: {}, undo@1: {}}
steps:
  - {id: a, for_each: [1, 2], task: t@1, compensate: {task: undo@1}}
  - {id: b, needs: [a], task: t@1, retry: {max_attempts: 1}}
result: '${ steps.a.output }'
";
    let mut run = Run::start(lines, "{}");
    done(&mut run, 1.0, "a[0]", 1);
    done(&mut run, 2.0, "a[1]", 1);
    fails(&mut run, 3.0, "b", 1);
    done(&mut run, 4.0, "compensate:a[1]", 1);
    done(&mut run, 5.0, "compensate:a[0]", 1);
    assert_eq!(again(&mut run, 6.0)[0], "REOPENED 2: a[0, 1] b");
    done(&mut run, 7.0, "a[0]", 2);
    done(&mut run, 7.0, "a[1]", 2);
    assert_eq!(done(&mut run, 8.0, "b", 2).last().unwrap(), "SUCCEEDED [2,2]");
}

#[test]
fn a_timed_out_execution_gets_its_time_anew() {
    let mut run = Run::start(SAGA, "{}");
    assert_eq!(run.at(100.0, wake()).last().unwrap(), "TIMED_OUT");
    assert_eq!(again(&mut run, 500.0), ["REOPENED 2: a b c until 600", "a scheduled 1 null"]);
    assert_eq!(run.state.deadline(), Some(at(600.0)));
}

#[test]
fn a_handler_that_was_dropped_works_on_its_signal_again() {
    let lines = "tasks: {t@1: {}}\nsignals: {s: {}}
steps: [{id: a, task: t@1, retry: {max_attempts: 1}}]
handlers: {on_event: [{signal: s, step: {id: log, task: t@1, input: '${ event }'}}]}
";
    let mut run = Run::start(lines, "{}");
    run.at(1.0, signal("s", "1"));
    run.at(1.0, signal("s", "2"));
    fails(&mut run, 2.0, "a", 1);
    assert_eq!(
        again(&mut run, 3.0),
        ["REOPENED 2: a on_event:log[0]", "a scheduled 1 null", "on_event:log[0] scheduled 1 1"]
    );
    assert_eq!(done(&mut run, 4.0, "on_event:log[0]", 2)[1], "on_event:log[1] takes 6");
}

#[test]
fn only_what_failed_or_timed_out_can_be_retried() {
    let refused = |state, obstacle| then_rejected(Rejection::NotRetryable { state, obstacle });
    check(SAGA, vec![], when(1.0, retry()), refused("RUNNING", Obstacle::Open));
    check(SAGA, vec![(1.0, cancel())], when(2.0, retry()), refused("CANCELLED", Obstacle::NotFailed));
    check(SAGA, vec![(1.0, terminate())], when(2.0, retry()), refused("TERMINATED", Obstacle::NotFailed));
    let given = vec![(1.0, dispatch("a")), (2.0, fail_for_good("a", 1, "X"))];
    let taken = Command::Retry { obstacle: Some(Obstacle::IdTaken), request: None };
    check(SAGA, given, when(3.0, taken), refused("FAILED", Obstacle::IdTaken));
}

#[test]
fn a_repeated_retry_is_answered_from_its_event() {
    let mut run = failed();
    let retry = Command::Retry { obstacle: None, request: Some(request(1, 1)) };
    let first = run.decide_at(10.0, retry.clone()).unwrap();
    assert_eq!(run.decide_at(11.0, retry), Ok(first));
}

#[test]
fn a_rerun_takes_over_what_does_not_depend_on_the_step() {
    let lines = SAGA.replace(", compensate: {task: undo@1}", ", irreversible: true");
    let mut run = Run::start(&lines, "{}");
    done(&mut run, 1.0, "a", 1);
    fails(&mut run, 2.0, "b", 1);
    let results = results(&run.state, "b").unwrap();
    let names: Vec<_> = results.iter().map(|result| &*result.step).collect();
    assert_eq!(names, ["a", "z"]);
    let mut rerun = Run::start_with(&lines, Start { results, ..a_start("7") });
    assert_eq!(rerun.lines(), ["created 7", "b scheduled 1 null"]);
    // What was taken over is neither undone nor irreversible.
    assert_eq!(fails(&mut rerun, 3.0, "b", 1).last().unwrap(), "FAILED X");
    assert_eq!(again(&mut rerun, 4.0)[0], "REOPENED 2: b c until 104");
}

#[test]
fn a_rerun_runs_what_was_undone_again() {
    let run = failed();
    let results = results(&run.state, "c").unwrap();
    assert_eq!(results.iter().map(|result| &*result.step).collect::<Vec<_>>(), ["z"]);
    let mut rerun = Run::start_with(SAGA, Start { results, ..a_start("{}") });
    done(&mut rerun, 1.0, "a", 1);
    done(&mut rerun, 2.0, "b", 1);
    assert_eq!(done(&mut rerun, 3.0, "c", 1).last().unwrap(), "SUCCEEDED 1");
}

#[test]
fn a_rerun_begins_with_a_step_of_those_under_steps() {
    let run = failed();
    assert!(results(&run.state, "compensate:a").is_none());
    assert!(results(&run.state, "nobody").is_none());
}
