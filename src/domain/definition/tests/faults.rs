//! Every fault: its code, its place, its hint.

use super::{super::fault::code, *};
use std::collections::BTreeSet;

const FAULTS_PAGE: &str = include_str!("../../../../docs/definition-faults.md");
const FAULTS_SOURCE: &str = include_str!("../fault.rs");

#[test]
fn each_fault_has_its_code_and_place() {
    for (step, expected) in [
        ("{id: t}", &[(code::ACTION_REQUIRED, "steps[1]")] as &[_]),
        ("{id: t, task: null}", &[(code::ACTION_REQUIRED, "steps[1]")]),
        ("{id: t, task: x@1, compute: 1}", &[(code::ACTION_AMBIGUOUS, "steps[1]")]),
        ("{compute: 1}", &[(code::FIELD_REQUIRED, "steps[1].id")]),
        ("{id: a, compute: 1}", &[(code::STEP_DUPLICATE, "steps[1].id")]),
        ("{id: 1a, compute: 1}", &[(code::NAME_INVALID, "steps[1].id")]),
        ("{id: a-b, compute: 1}", &[(code::NAME_INVALID, "steps[1].id")]),
        ("{id: true, compute: 1}", &[(code::TYPE_MISMATCH, "steps[1].id")]),
        ("{id: t, compute: 1, tasc: x}", &[(code::UNKNOWN_FIELD, "steps[1].tasc")]),
        ("{id: t, compute: 1, on_error: fail, onError: fail}", &[(code::DUPLICATE_KEY, "steps[1].onError")]),
        (
            "{id: t, compute: 1, timeout: 5s, queue: q}",
            &[(code::FIELD_NOT_APPLICABLE, "steps[1].timeout"), (code::FIELD_NOT_APPLICABLE, "steps[1].queue")],
        ),
        ("{id: t, compute: 1, needs: [b]}", &[(code::STEP_UNKNOWN, "steps[1].needs[0]")]),
        ("{id: t, compute: 1, needs: [t]}", &[(code::STEP_SELF_REFERENCE, "steps[1].needs[0]")]),
        ("{id: t, compute: 1, needs: a}", &[(code::TYPE_MISMATCH, "steps[1].needs")]),
        ("{id: t, compute: '${ steps.t.output }'}", &[(code::STEP_SELF_REFERENCE, "steps[1].compute")]),
        ("{id: t, compute: {x: ['${ steps.b.output }']}}", &[(code::STEP_UNKNOWN, "steps[1].compute.x[0]")]),
        ("{id: t, compute: '${ 1 + }'}", &[(code::EXPRESSION_INVALID, "steps[1].compute")]),
        ("{id: t, compute: '${ 1'}", &[(code::TEMPLATE_INVALID, "steps[1].compute")]),
        ("{id: t, compute: 1, when: '1 +'}", &[(code::EXPRESSION_INVALID, "steps[1].when")]),
        ("{id: t, compute: 1, when: 5}", &[(code::TYPE_MISMATCH, "steps[1].when")]),
        ("{id: t, compute: '${ signal.by }'}", &[(code::EXPRESSION_INVALID, "steps[1].compute")]),
        ("{id: t, task: x}", &[(code::CONTRACT_INVALID, "steps[1].task")]),
        ("{id: t, task: x@}", &[(code::CONTRACT_INVALID, "steps[1].task")]),
        ("{id: t, task: x@1, queue: 'a b'}", &[(code::NAME_INVALID, "steps[1].queue")]),
        ("{id: t, task: x@1, priority: 6}", &[(code::OUT_OF_RANGE, "steps[1].priority")]),
        ("{id: t, task: x@1, priority: -1}", &[(code::OUT_OF_RANGE, "steps[1].priority")]),
        ("{id: t, task: x@1, priority: 1.5}", &[(code::TYPE_MISMATCH, "steps[1].priority")]),
        ("{id: t, sleep: {}}", &[(code::FIELD_REQUIRED, "steps[1].sleep")]),
        ("{id: t, sleep: {for: 1s, until: '2026-01-01T00:00:00Z'}}", &[(code::ACTION_AMBIGUOUS, "steps[1].sleep")]),
        ("{id: t, sleep: {for: 5}}", &[(code::TYPE_MISMATCH, "steps[1].sleep.for")]),
        ("{id: t, sleep: {for: soon}}", &[(code::DURATION_INVALID, "steps[1].sleep.for")]),
        ("{id: t, sleep: {until: tomorrow}}", &[(code::TIME_INVALID, "steps[1].sleep.until")]),
        ("{id: t, await: {}}", &[(code::FIELD_REQUIRED, "steps[1].await.signal")]),
        ("{id: t, await: {signal: og}}", &[(code::SIGNAL_UNDECLARED, "steps[1].await.signal")]),
        ("{id: t, await: {signal: go, match: 'signal.'}}", &[(code::EXPRESSION_INVALID, "steps[1].await.match")]),
        ("{id: t, await: {signal: go}, timeout: 5s}", &[(code::FIELD_NOT_APPLICABLE, "steps[1].timeout")]),
        ("{id: t, fail: {}}", &[(code::FIELD_REQUIRED, "steps[1].fail.code")]),
        ("{id: t, fail: {code: lower}}", &[(code::NAME_INVALID, "steps[1].fail.code")]),
    ] {
        check_faults(&with_step(step), expected);
    }
}

#[test]
fn the_head_of_a_definition_is_checked() {
    for (field, expected) in [
        ("timeout: 0s", (code::DURATION_OUT_OF_RANGE, "timeout")),
        ("descripton: x", (code::UNKNOWN_FIELD, "descripton")),
        ("description: 1", (code::TYPE_MISMATCH, "description")),
        ("labels: {'a b': x}", (code::LABEL_INVALID, "labels[\"a b\"]")),
        ("labels: {orbit.schedule: x}", (code::LABEL_INVALID, "labels[\"orbit.schedule\"]")),
        ("labels: {tier: 1}", (code::TYPE_MISMATCH, "labels[\"tier\"]")),
        ("labels: [a]", (code::TYPE_MISMATCH, "labels")),
        ("input: {type: nonsense}", (code::SCHEMA_INVALID, "input")),
        ("output: 5", (code::SCHEMA_INVALID, "output")),
        ("input: {$ref: 'https://example.com/schema.json'}", (code::SCHEMA_INVALID, "input")),
        ("tasks: {x: {}}", (code::CONTRACT_INVALID, "tasks[\"x\"]")),
        ("tasks: {x@1: {inputs: {}}}", (code::UNKNOWN_FIELD, "tasks[\"x@1\"].inputs")),
        ("tasks: {x@1: {input: {type: 5}}}", (code::SCHEMA_INVALID, "tasks[\"x@1\"].input")),
        ("signals: {'a b': {}}", (code::NAME_INVALID, "signals[\"a b\"]")),
        ("signals: {go: null}", (code::SCHEMA_INVALID, "signals[\"go\"]")),
        ("result: {x: '${ steps.b.output }'}", (code::STEP_UNKNOWN, "result.x")),
    ] {
        check_faults(&with_field(field), &[expected]);
    }
    check_faults(
        "name: a b\nversion: 1.0\nsteps: []\n",
        &[(code::NAME_INVALID, "name"), (code::VERSION_INVALID, "version"), (code::FIELD_REQUIRED, "steps")],
    );
    check_faults(
        "{}",
        &[(code::FIELD_REQUIRED, "name"), (code::FIELD_REQUIRED, "version"), (code::FIELD_REQUIRED, "steps")],
    );
    check_faults("[]", &[(code::TYPE_MISMATCH, "")]);
    let labels = (0..33).map(|n| format!("l{n}: x")).collect::<Vec<_>>().join(", ");
    check_faults(&with_field(&format!("labels: {{{labels}}}")), &[(code::TOO_MANY, "labels")]);
    check_faults(
        &with_field(&format!("labels: {{l: {}}}", "x".repeat(256))),
        &[(code::LABEL_INVALID, "labels[\"l\"]")],
    );
    check_faults(&with_field(&format!("description: {}", "x".repeat(4_097))), &[(code::TEXT_TOO_LONG, "description")]);
}

#[test]
fn all_faults_come_at_once_in_the_order_of_the_text() {
    let source = "\
name: order
version: 1.0
steps:
  - id: total
    compute: ${ inptu.items }
  - id: charge
    needs: [totl]
    task: payments.charge@1
    timeout: 30x
    retry:
      jitter: 1.5
";
    let found = faults(source);
    let found: Vec<(&str, u32, u32)> = found.iter().map(|fault| (fault.code, fault.line, fault.column)).collect();
    assert_eq!(
        found,
        [
            (code::VERSION_INVALID, 2, 10),
            (code::EXPRESSION_INVALID, 5, 17),
            (code::STEP_UNKNOWN, 7, 13),
            (code::DURATION_INVALID, 9, 14),
            (code::OUT_OF_RANGE, 11, 15),
        ]
    );
}

#[test]
fn expressions_have_their_place_in_every_style() {
    for (compute, line, column) in [
        ("${ 1 + nope }", 6, 29),
        ("\"${ 1 + nope }\"", 6, 30),
        ("'é ${ 1 + nope }'", 6, 32),
        ("{a: 1, b: \"x ${ 1 + nope } y\"}", 6, 42),
        ("|\n    first\n    ${ 1 + nope }\n", 8, 12),
        // With an escape inside, the text's beginning is as near as it gets.
        ("\"${ '\\u0041' + nope }\"", 6, 22),
    ] {
        let source = format!("name: n\nversion: 1.0.0\nsteps:\n- id: a\n  on_error: fail\n  compute: {compute}\n")
            .replace("  compute: ", "  compute:           ");
        let fault = faults(&source).remove(0);
        assert_eq!(
            (fault.code, fault.line, fault.column),
            (code::EXPRESSION_INVALID, line, column),
            "{source}{}",
            fault.message
        );
    }
}

#[test]
fn schemas_have_the_place_of_what_is_wrong_in_them() {
    let fault = faults(&with_field("input:\n  properties:\n    a: {type: string}\n    b: {type: nonsense}")).remove(0);
    assert_eq!((fault.code, fault.line, fault.column), (code::SCHEMA_INVALID, 7, 15), "{}", fault.message);
}

#[test]
fn misspelt_words_get_a_suggestion() {
    for (source, hint) in [
        (with_step("{id: t, compute: 1, neeeds: [a]}"), "did you mean `needs`?"),
        (with_step("{id: t, task: x@1, retry: {maxAttempt: 1}}"), "did you mean `max_attempts`?"),
        (with_step("{id: t, task: x@1, heartbeattimeout: 1s}"), "did you mean `heartbeat_timeout`?"),
        (with_step("{id: t, await: {signal: goo}}"), "did you mean `go`?"),
        (with_step("{id: t, await: {signal: other}}"), "add it to `signals`, for example `other: {}`"),
        (with_step("{id: t, task: x@1, timeout: 30}"), "seconds are written `30s`"),
        (with_field("labels: {tier: 1}"), "quote it: \"1\""),
        (with_step("{id: t, compute: '${ inptu.x }'}"), "did you mean `input`?"),
        (with_step("{id: t, compute: '${ steps.b.output }'}"), "name a step of this definition"),
    ] {
        assert_eq!(faults(&source)[0].hint, hint, "{source}");
    }
}

#[test]
fn every_code_is_explained() {
    let codes: BTreeSet<&str> =
        FAULTS_SOURCE.lines().filter_map(|line| line.trim().strip_prefix("pub const ")?.split(':').next()).collect();
    let explained: BTreeSet<&str> =
        FAULTS_PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(explained, codes);
    for line in FAULTS_SOURCE.lines().filter_map(|line| line.trim().strip_prefix("pub const ")) {
        let name = line.split(':').next().unwrap();
        assert!(line.ends_with(&format!("= \"{name}\";")), "{line}");
    }
}
