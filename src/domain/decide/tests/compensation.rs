//! What is undone, and in which order.

use super::*;

/// Three steps, one after another, the first two with an undo; the last fails at once.
const SAGA: &str = "tasks: {t@1: {}, u@1: {}}
steps:
  - {id: s1, task: t@1, compensate: {task: u@1, input: '${ steps.s1.output }'}}
  - {id: s2, needs: [s1], task: t@1, compensate: {task: u@1, input: '${ steps.s2.output }'}}
  - {id: s3, needs: [s2], task: t@1, retry: {max_attempts: 1}}
";

/// Hands a unit out and completes it.
fn done(run: &mut Run, second: f64, unit: &str, output: &str) -> Vec<String> {
    run.at(second, dispatch(unit));
    run.at(second, complete(unit, 1, output))
}

#[test]
fn c041_what_ended_last_is_undone_first_one_after_another() {
    let mut run = Run::start(SAGA, "{}");
    done(&mut run, 1.0, "s1", "1");
    done(&mut run, 2.0, "s2", "2");
    run.at(3.0, dispatch("s3"));
    assert_eq!(
        run.at(3.0, fail("s3", 1, "BROKEN"))[1..],
        ["s3 failed BROKEN", "winding down for failure BROKEN until 33", "compensate:s2 scheduled 1 2"]
    );
    assert_eq!(
        done(&mut run, 4.0, "compensate:s2", "null"),
        ["compensate:s2 succeeded null by 1", "compensate:s1 scheduled 1 1"]
    );
    assert_eq!(done(&mut run, 5.0, "compensate:s1", "null"), ["compensate:s1 succeeded null by 1", "FAILED BROKEN"]);
}

#[test]
fn c043_undoing_waits_for_what_is_out_and_undoes_it_if_it_succeeded() {
    let mut run = Run::start(
        "tasks: {t@1: {}, u@1: {}}
steps:
  - {id: a, task: t@1, compensate: {task: u@1}}
  - {id: b, task: t@1, compensate: {task: u@1}}
  - {id: c, task: t@1, retry: {max_attempts: 1}}
",
        "{}",
    );
    done(&mut run, 1.0, "a", "1");
    run.at(1.0, dispatch("b"));
    run.at(1.0, dispatch("c"));
    assert_eq!(run.at(2.0, fail("c", 1, "X")).last().unwrap(), "winding down for failure X until 32");
    assert_eq!(run.at(3.0, complete("b", 1, "2")), ["b succeeded 2 by 1", "compensate:b scheduled 1 null"]);
}

#[test]
fn c045_each_item_is_undone_with_its_own_value() {
    let mut run = Run::start(
        "tasks: {t@1: {}, u@1: {}}
steps:
  - id: each
    for_each: [x, y, z]
    task: t@1
    retry: {max_attempts: 1}
    compensate: {task: u@1, input: {item: '${ item.value }', output: '${ steps.each.output }'}}
",
        "{}",
    );
    for item in 0..3 {
        run.at(1.0, dispatch(&format!("each[{item}]")));
    }
    run.at(2.0, complete("each[1]", 1, "11"));
    run.at(3.0, complete("each[0]", 1, "10"));
    let failed = run.at(4.0, fail("each[2]", 1, "X"));
    assert_eq!(failed.last().unwrap(), r#"compensate:each[0] scheduled 1 {"item":"x","output":10}"#);
    let next = done(&mut run, 5.0, "compensate:each[0]", "null");
    assert_eq!(next[1], r#"compensate:each[1] scheduled 1 {"item":"y","output":11}"#);
    assert_eq!(done(&mut run, 6.0, "compensate:each[1]", "null")[1], "FAILED X");
}

#[test]
fn an_unknown_outcome_is_undone_without_an_output_unless_the_step_says_skip() {
    for (policy, then) in [("compensate", "compensate:a scheduled 1 null"), ("skip", "CANCELLED")] {
        let mut run = Run::start(
            &format!(
                "tasks: {{t@1: {{}}, u@1: {{}}}}
steps:
  - {{id: a, task: t@1, compensate: {{task: u@1, input: '${{ steps.a.output }}', unknown: {policy}}}}}
"
            ),
            "{}",
        );
        run.at(1.0, dispatch("a"));
        run.at(2.0, end("a", 1, EndReason::SessionLost));
        assert_eq!(run.at(3.0, cancel()), ["winding down for cancel until 33", then], "{policy}");
    }
}

#[test]
fn a_unit_that_is_given_up_has_an_unknown_outcome() {
    let mut run = Run::start(SAGA, "{}");
    run.at(1.0, dispatch("s1"));
    run.at(1.0, hold("s1", 1));
    run.at(2.0, cancel());
    assert_eq!(run.at(32.0, wake()), ["s1 cancelled", "compensate:s1 scheduled 1 null"]);
}

#[test]
fn a_success_before_the_undo_begins_counts_and_a_later_one_is_recorded_once() {
    let mut run = Run::start(
        "tasks: {t@1: {}, u@1: {}}
steps:
  - {id: a, task: t@1, compensate: {task: u@1, input: '${ steps.a.output }'}}
  - {id: b, task: t@1, compensate: {task: u@1, input: '${ steps.b.output }'}}
",
        "{}",
    );
    run.at(1.0, dispatch("a"));
    run.at(1.0, dispatch("b"));
    run.at(1.0, hold("a", 1));
    run.at(1.0, hold("b", 1));
    run.at(2.0, cancel());
    // Both are given up; the one that was given up last is undone first.
    assert_eq!(run.at(32.0, wake()), ["a cancelled", "b cancelled", "compensate:b scheduled 1 null"]);
    assert_eq!(run.decide_at(33.0, complete("a", 1, "7")), Ok(ACCEPTED));
    assert_eq!(run.lines().last().unwrap(), "a succeeded 7 by 1");
    assert_eq!(run.decide_at(33.0, complete("a", 1, "7")), Ok(DUPLICATE));
    let late = refused(RefusalReason::UnitResolved);
    assert_eq!(run.decide_at(34.0, complete("b", 1, "8")), Ok(late.clone()));
    assert_eq!(run.lines().last().unwrap(), "b late 1 8");
    assert_eq!(run.decide_at(34.0, complete("b", 1, "8")), Ok(late));
    assert_eq!(done(&mut run, 35.0, "compensate:b", "null")[1], "compensate:a scheduled 1 7");
    assert_eq!(done(&mut run, 36.0, "compensate:a", "null")[1], "CANCELLED");
}

#[test]
fn an_undo_that_fails_is_recorded_and_the_rest_go_on_and_a_cancelled_execution_ends_failed() {
    let mut run = Run::start(SAGA, "{}");
    done(&mut run, 1.0, "s1", "1");
    done(&mut run, 2.0, "s2", "2");
    assert_eq!(run.at(3.0, cancel()), ["winding down for cancel until 33", "compensate:s2 scheduled 1 2"]);
    run.at(4.0, dispatch("compensate:s2"));
    assert_eq!(
        run.at(4.0, fail_for_good("compensate:s2", 1, "X"))[1..],
        ["compensate:s2 failed X", "compensate:s1 scheduled 1 1"]
    );
    assert_eq!(done(&mut run, 5.0, "compensate:s1", "null")[1], "FAILED COMPENSATION_FAILED");
    let failure = run.state.failure().unwrap();
    assert_eq!((&*failure.code, &*failure.message), ("COMPENSATION_FAILED", "could not be undone: compensate:s2"));
    assert!(matches!(run.state.cause(), Some(Cause::Cancel(_))));
}

#[test]
fn an_undo_has_attempts_and_timeouts_of_its_own() {
    let mut run = Run::start(
        "tasks: {t@1: {}, u@1: {}}
steps:
  - {id: a, task: t@1, compensate: {task: u@1, timeout: 5s, retry: {max_attempts: 2, initial_interval: 1s, jitter: 0}}}
",
        "{}",
    );
    run.at(0.0, dispatch("a"));
    run.at(1.0, complete("a", 1, "1"));
    assert_eq!(run.state.phase(), Phase::Succeeded, "an undo is no step of its own");
    let mut run = Run::start_of(run.definition.clone(), "{}", Settings::default());
    run.at(0.0, dispatch("a"));
    run.at(1.0, cancel());
    run.at(1.0, complete("a", 1, "1"));
    run.at(2.0, dispatch("compensate:a"));
    assert_eq!(run.at(7.0, wake()), ["compensate:a attempt 1/1 failed TIMEOUT, retry 8"]);
    assert_eq!(run.at(8.0, wake()), ["compensate:a scheduled 2"]);
    run.at(9.0, dispatch("compensate:a"));
    assert_eq!(
        run.at(14.0, wake()),
        [
            "compensate:a attempt 2/2 failed TIMEOUT, no retry",
            "compensate:a failed TIMEOUT",
            "FAILED COMPENSATION_FAILED"
        ]
    );
}

#[test]
fn nothing_is_undone_once_an_irreversible_step_succeeded_or_may_have() {
    let lines = "tasks: {t@1: {}, u@1: {}}
steps:
  - {id: a, task: t@1, compensate: {task: u@1}}
  - {id: point, needs: [a], task: t@1, irreversible: true}
  - {id: b, needs: [point], task: t@1}
";
    let mut run = Run::start(lines, "{}");
    done(&mut run, 1.0, "a", "1");
    let mut early = Run::start(lines, "{}");
    done(&mut early, 1.0, "a", "1");
    assert_eq!(early.at(2.0, cancel())[1], "compensate:a scheduled 1 null", "it has not begun");
    done(&mut run, 2.0, "point", "1");
    assert_eq!(run.at(3.0, cancel())[1], "CANCELLED");
    let mut lost = Run::start(lines, "{}");
    done(&mut lost, 1.0, "a", "1");
    lost.at(2.0, dispatch("point"));
    lost.at(3.0, end("point", 1, EndReason::SessionLost));
    assert_eq!(lost.at(4.0, cancel())[1], "CANCELLED");
}

#[test]
fn a_terminate_ends_undoing_at_once() {
    let mut run = Run::start(SAGA, "{}");
    done(&mut run, 1.0, "s1", "1");
    run.at(2.0, cancel());
    run.at(3.0, dispatch("compensate:s1"));
    assert_eq!(run.at(4.0, terminate()), ["TERMINATED"]);
}

#[test]
fn what_undoes_is_not_given_up_by_the_cancel_that_began_it() {
    let mut run = Run::start(SAGA, "{}");
    done(&mut run, 1.0, "s1", "1");
    run.at(2.0, cancel());
    run.at(3.0, dispatch("compensate:s1"));
    run.at(3.0, hold("compensate:s1", 1));
    assert_eq!(run.state.deadline(), None, "nothing ends it but its worker");
    assert!(run.state.delivery_wanted(&reference("compensate:s1", 1)));
    assert_eq!(run.at(100.0, complete("compensate:s1", 1, "1"))[1], "CANCELLED");
}

#[test]
fn what_a_worker_had_when_all_attempts_took_too_long_is_undone() {
    let mut run = Run::start(
        "tasks: {t@1: {}, u@1: {}}
steps: [{id: a, task: t@1, total_timeout: 10s, compensate: {task: u@1, input: '${ steps.a.output }'}}]",
        "{}",
    );
    run.at(1.0, dispatch("a"));
    run.at(2.0, hold("a", 1));
    assert_eq!(run.at(10.0, wake()).last().unwrap(), "compensate:a scheduled 1 null");
    // One that no worker had did not happen.
    let mut run = Run::start(
        "tasks: {t@1: {}, u@1: {}}\nsteps: [{id: a, task: t@1, total_timeout: 10s, compensate: {task: u@1}}]",
        "{}",
    );
    assert_eq!(run.at(10.0, wake()).last().unwrap(), "FAILED TOTAL_TIMEOUT");
}

#[test]
fn the_failure_names_ten_of_what_could_not_be_undone() {
    for (items, rest) in [(2, ""), (10, ""), (11, " and 1 more"), (12, " and 2 more")] {
        let list: Vec<String> = (0..items).map(|item| item.to_string()).collect();
        let lines = format!(
            "tasks: {{t@1: {{}}, u@1: {{}}}}
steps: [{{id: a, for_each: [{}], task: t@1, compensate: {{task: u@1, retry: {{max_attempts: 1}}}}}}, {{id: b, sleep: {{for: 1h}}}}]",
            list.join(", ")
        );
        let mut run = Run::start(&lines, "{}");
        for item in 0..items {
            done(&mut run, 1.0, &format!("a[{item}]"), "1");
        }
        run.at(2.0, cancel());
        for item in (0..items).rev() {
            let undo = format!("compensate:a[{item}]");
            run.at(3.0, dispatch(&undo));
            run.at(3.0, fail(&undo, 1, "NO"));
        }
        let names: Vec<String> = (0..items.min(10)).map(|item| format!("compensate:a[{item}]")).collect();
        let failure = run.state.failure().unwrap();
        assert_eq!(&*failure.code, code::COMPENSATION_FAILED);
        assert_eq!(*failure.message, format!("could not be undone: {}{rest}", names.join(", ")));
    }
}
