//! How executions begin, and those that end in the same breath.

use super::*;

#[test]
fn a_start_runs_on_to_the_first_task() {
    let run =
        Run::start("tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, input: {x: \"${ input.x }\"}}", r#"{"x":1}"#);
    assert_eq!(run.lines(), ["created {\"x\":1}", "a scheduled 1 {\"x\":1}"]);
    assert_eq!(run.state.phase(), Phase::Running);
}

#[test]
fn an_execution_of_computed_steps_closes_at_once() {
    let run = Run::start(
        "steps:\n  - {id: a, compute: \"${ input.x + 1 }\"}\n  - {id: b, compute: \"${ steps.a.output * 2 }\"}\nresult: \"${ steps.b.output }\"",
        r#"{"x":1}"#,
    );
    assert_eq!(run.lines(), ["created {\"x\":1}", "a succeeded 2", "b succeeded 4", "SUCCEEDED 4"]);
    assert_eq!(run.state.output(), Some(&json("4")));
    assert_eq!(run.state.close_time(), Some(at(0.0)));
}

#[test]
fn without_a_result_the_output_is_null() {
    let run = Run::start("steps:\n  - {id: a, compute: 1}", "{}");
    assert_eq!(run.lines(), ["created {}", "a succeeded 1", "SUCCEEDED null"]);
}

#[test]
fn defaults_are_filled_in_before_the_input_is_kept() {
    let lines = "input: {type: object, properties: {x: {type: integer, default: 5}}}\nsteps:\n  - {id: a, compute: \"${ input.x }\"}";
    assert_eq!(Run::start(lines, "{}").lines()[0], "created {\"x\":5}");
}

#[test]
fn an_input_that_does_not_fit_begins_nothing() {
    let definition = definition("input: {type: object, required: [x]}\nsteps:\n  - {id: a, compute: 1}");
    let result = start(definition, a_start("{}"), &context(0.0, Settings::default()));
    assert!(matches!(result, Err(Rejection::InputInvalid { .. })));
}

#[test]
fn labels_of_the_call_win_over_those_of_the_definition() {
    let definition = definition("labels: {team: shop, tier: one}\nsteps:\n  - {id: a, compute: 1}");
    let call = Start { labels: BTreeMap::from([("tier".into(), "two".into())]), ..a_start("{}") };
    let (state, _) = start(definition, call, &context(0.0, Settings::default())).unwrap();
    assert_eq!(state.labels(), &BTreeMap::from([("team".into(), "shop".into()), ("tier".into(), "two".into())]));
}

#[test]
fn the_request_of_a_start_is_in_its_first_event() {
    let call = Start { request: Some(request(1, 2)), ..a_start("{}") };
    let (_, events) =
        start(definition("steps:\n  - {id: a, compute: 1}"), call, &context(0.0, Settings::default())).unwrap();
    assert_eq!(events[0].request, Some(request(1, 2)));
    assert!(events[1..].iter().all(|event| event.request.is_none()));
}

#[test]
fn the_timeout_of_the_definition_counts_from_the_start() {
    let run = Run::start("timeout: 1h\nsteps:\n  - {id: a, sleep: {for: 2h}}", "{}");
    assert_eq!(run.state.expire_time(), Some(at(3600.0)));
    assert_eq!(run.state.deadline(), Some(at(3600.0)));
}

#[test]
fn a_result_that_cannot_be_made_fails_the_execution() {
    let run = Run::start("steps:\n  - {id: a, compute: {}}\nresult: \"${ steps.a.output.x }\"", "{}");
    assert_eq!(run.lines()[2..], ["winding down for failure EXPRESSION_FAILED until 30", "FAILED EXPRESSION_FAILED"]);
    assert_eq!(run.state.failure().map(|failure| &*failure.unit), Some(""));
}

#[test]
fn an_output_that_does_not_fit_its_schema_fails_the_execution() {
    let run =
        Run::start("output: {type: string}\nsteps:\n  - {id: a, compute: 1}\nresult: \"${ steps.a.output }\"", "{}");
    assert_eq!(run.lines()[2..], ["winding down for failure OUTPUT_INVALID until 30", "FAILED OUTPUT_INVALID"]);
}
