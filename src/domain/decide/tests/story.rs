//! Longer stories: whole executions, large graphs, odd values, stored states.

use super::*;

/// The definition of an order: totals, a payment, an approval, a shipment.
const ORDER: &str = r#"
tasks: {payments.charge@1: {}, shipping.send@2: {}}
signals: {approved: {type: object}}
steps:
  - {id: total, compute: "${ input.items.map(i, i.cents).sum() }"}
  - {id: charge, task: payments.charge@1, queue: payments, language: python, priority: 1, input: {cents: "${ steps.total.output }"}}
  - {id: approval, needs: [charge], when: "${ steps.total.output > 100 }", await: {signal: approved, timeout: 24h}}
  - {id: ship, needs: [approval], task: shipping.send@2, input: {receipt: "${ steps.charge.output.receipt }"}}
result: {tracking: "${ steps.ship.output }"}
"#;

#[test]
fn an_order_goes_from_payment_to_delivery() {
    let mut run = Run::start(ORDER, r#"{"items":[{"cents":60},{"cents":70}]}"#);
    assert_eq!(run.lines()[1..], ["total succeeded 130", "charge scheduled 1 {\"cents\":130}"]);
    let waiting = run.state.waiting().next().unwrap();
    assert_eq!((&*waiting.queue, waiting.language.as_deref(), waiting.priority), ("payments", Some("python"), 1));
    run.at(1.0, dispatch("charge"));
    assert_eq!(run.at(2.0, complete("charge", 1, r#"{"receipt":"r"}"#))[1..], ["approval awaits until 86402"]);
    assert_eq!(run.at(3.0, signal("approved", "{}"))[2..], ["ship scheduled 1 {\"receipt\":\"r\"}"]);
    run.at(4.0, dispatch("ship"));
    assert_eq!(run.at(5.0, complete("ship", 1, "\"t\""))[1..], ["SUCCEEDED {\"tracking\":\"t\"}"]);
}

#[test]
fn a_small_order_needs_no_approval() {
    let mut run = Run::start(ORDER, r#"{"items":[]}"#);
    run.at(1.0, dispatch("charge"));
    assert_eq!(
        run.at(2.0, complete("charge", 1, r#"{"receipt":"r"}"#))[1..],
        ["approval skipped", "ship scheduled 1 {\"receipt\":\"r\"}"]
    );
}

#[test]
fn c081_empty_values_stay_what_they_are_from_input_to_output() {
    let lines =
        "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, input: \"${ input }\"}\nresult: \"${ steps.a.output }\"";
    for value in ["null", "{}", "[]", "0", "\"\"", "false"] {
        let mut run = Run::start(lines, value);
        let delivery = run.dispatch_at(1.0, "a", WIDE);
        assert_eq!(delivery.input, json(value));
        assert_eq!(run.at(2.0, complete("a", 1, value))[1..], [format!("SUCCEEDED {value}")]);
        assert_eq!(run.state.steps().next().unwrap().output, Some(&json(value)));
    }
}

#[test]
fn c081_a_path_into_null_fails_its_step_with_a_typed_error() {
    let lines = "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1}\n  - {id: b, compute: \"${ steps.a.output.x }\"}";
    let mut run = Run::start(lines, "{}");
    run.at(1.0, dispatch("a"));
    assert_eq!(run.at(2.0, complete("a", 1, "null"))[1..2], ["b failed EXPRESSION_FAILED"]);
}

#[test]
fn c083_a_failure_ends_the_execution_at_any_distance_from_a_join() {
    let lines = "steps:\n  - {id: gate, fail: {code: NO}}\n  - {id: x, compute: 1, needs: [gate]}\n  - {id: y, compute: 1}\n  - {id: publish, compute: 1, needs: [x, y]}";
    let run = Run::start(lines, "{}");
    assert_eq!(run.state.phase(), Phase::Failed);
    assert!(
        run.state
            .steps()
            .filter(|step| matches!(&**step.step, "x" | "publish"))
            .all(|step| step.state == StepState::Cancelled)
    );
}

#[test]
fn c091_a_layered_graph_is_walked_once() {
    // 60 layers of two steps, each needing both of the layer before: 2^60 paths, 236 edges.
    let mut lines = String::from("steps:\n  - {id: a0, compute: 1}\n  - {id: b0, compute: 1}\n");
    for layer in 1..60 {
        for name in ["a", "b"] {
            let before = layer - 1;
            lines += &format!("  - {{id: {name}{layer}, compute: 1, needs: [a{before}, b{before}]}}\n");
        }
    }
    let run = Run::start(&lines, "{}");
    assert_eq!((run.state.phase(), run.log.len()), (Phase::Succeeded, 122));
}

#[test]
fn steps_show_where_they_are() {
    let lines = "tasks: {t@1: {}}\nsignals: {s: {}}\nsteps:\n  - {id: a, task: t@1, retry: {jitter: 0}}\n  - {id: z, sleep: {for: 9s}}\n  - {id: w, await: {signal: s, timeout: 7s}}\n  - {id: p, compute: 1, needs: [z]}\n  - {id: k, compute: 1, when: \"${ false }\"}";
    let mut run = Run::start(lines, "{}");
    let states = |run: &Run| run.state.steps().map(|step| step.state).collect::<Vec<_>>();
    use StepState::{Awaiting, BackingOff, Pending, Running, Scheduled, Skipped, Sleeping};
    assert_eq!(states(&run), [Scheduled, Sleeping, Awaiting, Pending, Skipped]);
    run.at(1.0, dispatch("a"));
    assert_eq!(states(&run)[0], Running);
    run.at(2.0, fail("a", 1, "E"));
    let step = run.state.steps().next().unwrap();
    assert_eq!((step.state, step.wake_time), (BackingOff, Some(at(3.0))));
    assert_eq!((step.attempt, step.delivery, step.worker_id), (1, 1, Some(&arc("w"))));
    assert_eq!((step.contract, step.queue), (Some(&arc("t@1")), Some(&arc("default"))));
    let wakes: Vec<_> = run.state.steps().skip(1).map(|step| step.wake_time).collect();
    assert_eq!(wakes, [Some(at(9.0)), Some(at(7.0)), None, None]);
}

#[test]
fn a_step_shows_since_when_it_waits_also_after_its_delivery_was_lost() {
    let mut run = Run::start("tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1}", "{}");
    let since = |run: &Run| run.state.steps().next().unwrap().schedule_time;
    run.at(1.0, dispatch("a"));
    assert_eq!(since(&run), Some(at(0.0)));
    run.at(9.0, end("a", 1, EndReason::SessionLost));
    assert_eq!(since(&run), Some(at(9.0)));
}

#[test]
fn retries_do_not_repeat_the_input() {
    let lines = "tasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1, input: big, retry: {initial_interval: 0s}}";
    let mut run = Run::start(lines, "{}");
    run.at(1.0, dispatch("a"));
    assert_eq!(run.at(2.0, fail("a", 1, "E"))[1], "a scheduled 2");
    let delivery = run.dispatch_at(3.0, "a", WIDE);
    assert_eq!(delivery.input, json("\"big\""));
}

#[test]
fn a_decision_of_large_payloads_stops_at_its_byte_limit() {
    // Sixty inputs of 40 KB each are 2.4 MB: more than one decision takes.
    let text = "x".repeat(40_000);
    let mut lines = String::from("tasks: {t@1: {}}\nsteps:\n");
    for number in 0..60 {
        lines += &format!("  - {{id: s{number}, task: t@1, input: \"${{ input }}\"}}\n");
    }
    let mut run = Run::start(&lines, &format!("\"{text}\""));
    let mut decisions = 1;
    while run.state.work_due_now() {
        run.at(0.0, wake());
        decisions += 1;
    }
    assert_eq!(run.state.waiting().count(), 60);
    assert!((3..=6).contains(&decisions), "{decisions}");
    assert!(run.state.size_bytes() >= 60 * 40_000);
    for number in 0..60 {
        run.at(1.0, dispatch(&format!("s{number}")));
        run.at(2.0, complete(&format!("s{number}"), 1, "1"));
    }
    assert!(run.state.size_bytes() < 2 * 40_000, "what has ended remembers no input: {}", run.state.size_bytes());
}

#[test]
fn a_snapshot_of_another_definition_or_with_any_damage_is_ignored() {
    let run = Run::start(ORDER, r#"{"items":[]}"#);
    let bytes = run.state.to_bytes();
    assert!(State::from_bytes(definition(ORDER), &bytes).is_some());
    assert!(State::from_bytes(definition("steps:\n  - {id: a, compute: 1}"), &bytes).is_none());
    for position in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[position] ^= 1;
        assert!(State::from_bytes(definition(ORDER), &damaged).is_none(), "byte {position}");
        if position % 16 == 0 {
            assert!(State::from_bytes(definition(ORDER), &bytes[..position]).is_none());
        }
    }
}

#[test]
fn a_snapshot_of_an_older_format_is_ignored() {
    let run = Run::start(ORDER, r#"{"items":[]}"#);
    let bytes = run.state.to_bytes();
    let (content, _) = bytes.split_at(bytes.len() - 16);
    assert_eq!(u16::from(content[0]), State::SNAPSHOT_FORMAT);
    for format in 0..State::SNAPSHOT_FORMAT {
        let mut older = content.to_vec();
        older[0] = u8::try_from(format).unwrap();
        let digest = crate::domain::digest16(&[&older]);
        older.extend_from_slice(&digest);
        assert!(State::from_bytes(definition(ORDER), &older).is_none(), "format {format}");
    }
}

#[test]
fn a_restored_state_goes_on_as_if_nothing_had_happened() {
    let mut run = Run::start(ORDER, r#"{"items":[{"cents":500}]}"#);
    run.at(1.0, dispatch("charge"));
    run.state = State::from_bytes(run.state.definition().clone(), &run.state.to_bytes()).unwrap();
    assert_eq!(run.state.take_ready_changes(), (vec![], vec![]));
    run.at(2.0, complete("charge", 1, r#"{"receipt":"r"}"#));
    assert_eq!(run.state.steps().nth(2).unwrap().state, StepState::Awaiting);
}
