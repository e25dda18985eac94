//! Which steps begin when, and what becomes of those that cannot.

use super::*;

const TASKS: &str = "tasks: {t@1: {}}\nsteps:\n";

fn steps(lines: &[&str]) -> String {
    format!("{TASKS}{}", lines.iter().map(|line| format!("  - {line}\n")).collect::<String>())
}

#[test]
fn a_step_begins_once_all_that_it_needs_has_ended() {
    let lines = steps(&["{id: a, task: t@1}", "{id: b, task: t@1}", "{id: c, task: t@1, needs: [a, b]}"]);
    let mut run = Run::start(&lines, "{}");
    assert_eq!(run.lines()[1..], ["a scheduled 1 null", "b scheduled 1 null"]);
    run.at(1.0, dispatch("a"));
    run.at(1.0, dispatch("b"));
    assert_eq!(run.at(2.0, complete("b", 1, "2")), ["b succeeded 2 by 1"]);
    assert_eq!(run.at(3.0, complete("a", 1, "1")), ["a succeeded 1 by 1", "c scheduled 1 null"]);
}

#[test]
fn a_step_whose_condition_is_false_is_skipped_and_its_dependents_run() {
    let run = Run::start(
        "steps:\n  - {id: a, compute: 1, when: \"${ false }\"}\n  - {id: b, compute: \"${ steps.a.output == null }\"}\n  - {id: c, compute: \"${ steps.a.state }\"}",
        "{}",
    );
    assert_eq!(run.lines()[1..], ["a skipped", "b succeeded true", "c succeeded \"SKIPPED\"", "SUCCEEDED null"]);
}

#[test]
fn a_condition_that_cannot_be_evaluated_fails_its_step() {
    let run = Run::start("steps:\n  - {id: a, compute: 1, when: \"${ input.x }\"}", "{}");
    assert_eq!(
        run.lines()[1..],
        [
            "a failed EXPRESSION_FAILED",
            "winding down for failure EXPRESSION_FAILED until 30",
            "FAILED EXPRESSION_FAILED"
        ]
    );
}

#[test]
fn a_failed_step_that_may_fail_leaves_null_and_an_error() {
    let run = Run::start(
        "steps:\n  - {id: a, fail: {code: NO_WAY, message: \"no ${ input.x }\"}, on_error: continue}\n  - {id: b, compute: {code: \"${ steps.a.error.code }\", message: \"${ steps.a.error.message }\", out: \"${ steps.a.output }\"}}\nresult: \"${ steps.b.output }\"",
        r#"{"x":"way"}"#,
    );
    assert_eq!(run.lines()[1], "a failed NO_WAY");
    assert_eq!(run.state.phase(), Phase::Succeeded);
    let output = run.state.output().unwrap().as_str();
    assert!(
        output.contains("\"NO_WAY\"") && output.contains("\"no way\"") && output.contains("\"out\":null"),
        "{output}"
    );
}

#[test]
fn a_failed_step_ends_the_execution_and_nothing_after_it_begins() {
    let lines = steps(&["{id: a, fail: {code: NO}}", "{id: b, task: t@1}", "{id: c, task: t@1, needs: [a]}"]);
    let run = Run::start(&lines, "{}");
    assert_eq!(run.lines()[1..], ["a failed NO", "winding down for failure NO until 30", "FAILED NO"]);
    assert_eq!(run.state.failure().map(|failure| &*failure.unit), Some("a"));
}

#[test]
fn an_input_that_does_not_fit_the_contract_fails_the_step() {
    let run = Run::start(
        "tasks: {t@1: {input: {type: object, required: [x]}}}\nsteps:\n  - {id: a, task: t@1, input: {}}",
        "{}",
    );
    assert_eq!(run.lines()[1..2], ["a failed INPUT_INVALID"]);
    assert_eq!(run.state.phase(), Phase::Failed);
}

#[test]
fn an_input_that_cannot_be_made_fails_the_step() {
    let run = Run::start("tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, input: \"${ input.x }\"}", "{}");
    assert_eq!(run.lines()[1..2], ["a failed EXPRESSION_FAILED"]);
}

#[test]
fn a_value_beyond_the_limit_of_a_payload_fails_its_step() {
    // Doubling 22 times passes 2 MiB.
    let mut lines = String::from("steps:\n  - {id: s0, compute: xxxxxxxx}\n");
    for number in 1..=22 {
        let before = number - 1;
        lines +=
            &format!("  - {{id: s{number}, compute: \"${{ steps.s{before}.output + steps.s{before}.output }}\"}}\n");
    }
    let run = Run::start(&lines, "{}");
    assert_eq!(run.state.failure().map(|failure| &*failure.code), Some(code::RESULT_TOO_LARGE));
}

#[test]
fn a_chain_of_ten_thousand_computed_steps_is_done_in_limited_decisions() {
    let mut lines = String::from("steps:\n  - {id: s0, compute: 0}\n");
    for number in 1..10_000 {
        lines += &format!("  - {{id: s{number}, compute: {number}, needs: [s{}]}}\n", number - 1);
    }
    let definition = definition(&lines);
    let settings = Settings::default();
    let (mut state, mut events) = start(definition.clone(), a_start("{}"), &context(0.0, settings)).unwrap();
    let mut decisions = 1;
    while state.work_due_now() {
        assert_eq!(state.deadline(), Some(state.last_time()), "work that is left is due at once");
        let (more, _) = decide(&mut state, wake(), &context(0.0, settings)).unwrap();
        assert!(more.len() <= EVENTS_MAX);
        events.extend(more);
        decisions += 1;
    }
    assert_eq!(state.phase(), Phase::Succeeded);
    assert_eq!((events.len(), decisions), (10_002, 11));
    let mut replayed = State::begin(definition, &events[0]);
    events[1..].iter().for_each(|event| replayed.evolve(event));
    assert!(replayed == state);
}

#[test]
fn a_wide_start_schedules_the_rest_at_the_next_wake_up() {
    let lines = steps(
        &(0..1_500)
            .map(|n| format!("{{id: s{n}, task: t@1}}"))
            .collect::<Vec<_>>()
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
    );
    let mut run = Run::start(&lines, "{}");
    assert!(run.log.len() <= EVENTS_MAX && run.state.work_due_now());
    run.at(0.0, wake());
    assert_eq!(run.state.waiting().count(), 1_500);
    assert!(!run.state.work_due_now());
    assert_eq!(run.at(0.0, wake()), ["woke"]);
}

#[test]
fn a_join_of_many_steps_begins_its_dependent_once() {
    let mut lines: Vec<String> = (0..200).map(|n| format!("{{id: s{n}, task: t@1}}")).collect();
    lines.push(format!(
        "{{id: end, compute: done, needs: [{}]}}",
        (0..200).map(|n| format!("s{n}")).collect::<Vec<_>>().join(", ")
    ));
    let mut run = Run::start(&steps(&lines.iter().map(String::as_str).collect::<Vec<_>>()), "{}");
    for n in 0..200 {
        run.at(1.0, dispatch(&format!("s{n}")));
    }
    for n in (0..200).rev() {
        let lines = run.at(2.0, complete(&format!("s{n}"), 1, "1"));
        assert_eq!(lines.len(), if n == 0 { 3 } else { 1 }, "{lines:?}");
    }
    assert_eq!(run.state.phase(), Phase::Succeeded);
}
