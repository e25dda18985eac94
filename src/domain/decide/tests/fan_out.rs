//! Steps with `for_each`.

use super::*;

/// Goes through `input.items` with a task, two at once.
const SHIP: &str = "tasks: {t@1: {}}
steps:
  - {id: ship, for_each: '${ input.items }', max_parallel: 2, task: t@1, input: '${ item.value.sku + string(item.index) }'}
result: ${ steps.ship.output }
";

fn ship(items: &str) -> Run {
    Run::start(SHIP, &format!("{{\"items\": {items}}}"))
}

#[test]
fn items_begin_in_order_as_many_as_may() {
    let run = ship(r#"[{"sku": "a"}, {"sku": "b"}, {"sku": "c"}]"#);
    assert_eq!(
        run.lines()[1..],
        [
            r#"ship goes through [{"sku": "a"}, {"sku": "b"}, {"sku": "c"}]"#,
            r#"ship[0] scheduled 1 "a0""#,
            r#"ship[1] scheduled 1 "b1""#
        ]
    );
}

#[test]
fn the_next_item_begins_when_one_ends_and_the_output_is_in_the_order_of_the_items() {
    let mut run = ship(r#"[{"sku": "a"}, {"sku": "b"}, {"sku": "c"}]"#);
    run.at(1.0, dispatch("ship[0]"));
    run.at(1.0, dispatch("ship[1]"));
    assert_eq!(run.at(2.0, complete("ship[1]", 1, "20")), ["ship[1] succeeded 20 by 1", r#"ship[2] scheduled 1 "c2""#]);
    run.at(3.0, dispatch("ship[2]"));
    assert_eq!(run.at(4.0, complete("ship[2]", 1, "30")), ["ship[2] succeeded 30 by 1"]);
    assert_eq!(
        run.at(5.0, complete("ship[0]", 1, "10")),
        ["ship[0] succeeded 10 by 1", "ship joined", "SUCCEEDED [10,20,30]"]
    );
}

#[test]
fn c085_no_items_give_an_empty_list() {
    let run = ship("[]");
    assert_eq!(run.lines()[1..], ["ship goes through []", "ship joined", "SUCCEEDED []"]);
}

#[test]
fn c085_what_is_no_list_fails_the_step() {
    for items in ["null", "{}", "7"] {
        let run = ship(items);
        assert_eq!(run.lines()[1], "ship failed EXPRESSION_FAILED", "{items}");
        assert_eq!(run.state.phase(), Phase::Failed);
    }
    let missing = Run::start(SHIP, "{}");
    assert_eq!(missing.lines()[1], "ship failed EXPRESSION_FAILED");
}

#[test]
fn null_in_the_place_of_a_skipped_step_skips_the_fan_out_too() {
    let run = Run::start(
        "steps:
  - {id: find, when: 'false', compute: [1]}
  - {id: each, for_each: '${ steps.find.output }', compute: '${ item.value }'}
  - {id: after, needs: [each], compute: done}
",
        "{}",
    );
    assert_eq!(run.lines()[1..4], ["find skipped", "each skipped", r#"after succeeded "done""#]);
}

#[test]
fn an_item_that_fails_for_good_ends_the_execution() {
    let mut run = ship(r#"[{"sku": "a"}, {"sku": "b"}, {"sku": "c"}]"#);
    run.at(1.0, dispatch("ship[0]"));
    assert_eq!(
        run.at(2.0, fail_for_good("ship[0]", 1, "BROKEN")),
        [
            "ship[0] attempt 1/1 failed BROKEN, no retry",
            "ship[0] failed BROKEN",
            "winding down for failure BROKEN until 32",
            "FAILED BROKEN"
        ]
    );
    let ship = run.state.steps().next().unwrap();
    assert_eq!(
        (ship.state, ship.fan_out),
        (StepState::Failed, Some(FanOutStatus { items: 3, begun: 2, open: 0, failed: 1 }))
    );
}

#[test]
fn an_item_that_may_fail_is_null_in_the_output_and_the_first_failure_stays() {
    let mut run = Run::start(
        "tasks: {t@1: {}}
steps:
  - {id: each, for_each: [1, 2, 3], on_error: continue, task: t@1, retry: {max_attempts: 1}}
result: {outputs: '${ steps.each.output }', code: '${ steps.each.error.code }', unit: '${ steps.each.error.unit }'}
",
        "{}",
    );
    for item in 0..3 {
        run.at(1.0, dispatch(&format!("each[{item}]")));
    }
    run.at(2.0, fail("each[2]", 1, "FIRST"));
    run.at(3.0, fail("each[0]", 1, "SECOND"));
    let end = run.at(4.0, complete("each[1]", 1, "\"b\""));
    assert_eq!(end[1..], ["each joined", r#"SUCCEEDED {"outputs":[null,"b",null],"code":"FIRST","unit":"each[2]"}"#]);
}

#[test]
fn each_item_has_attempts_and_timeouts_of_its_own() {
    let mut run = Run::start(
        "tasks: {t@1: {}}
steps:
  - {id: each, for_each: [1, 2], task: t@1, timeout: 10s, retry: {max_attempts: 2, initial_interval: 5s, jitter: 0}}
",
        "{}",
    );
    run.at(0.0, dispatch("each[0]"));
    run.at(5.0, dispatch("each[1]"));
    assert_eq!(run.at(10.0, wake_holding(&[])), ["each[0] attempt 1/1 failed TIMEOUT, retry 15"]);
    assert_eq!(run.at(15.0, wake()), ["each[1] attempt 1/1 failed TIMEOUT, retry 20", "each[0] scheduled 2"]);
}

#[test]
fn keys_of_items_differ_and_names_that_are_none_are_refused() {
    let mut run = ship(r#"[{"sku": "a"}, {"sku": "b"}]"#);
    let (first, second) = (run.dispatch_at(1.0, "ship[0]", WIDE), run.dispatch_at(1.0, "ship[1]", WIDE));
    assert_ne!(first.idempotency_key, second.idempotency_key);
    for unit in ["ship", "ship[2]", "ship[00]", "ship[+1]", "ship[]", "ship[0", "[0]", "ship[4294967296]"] {
        let stale = refused(RefusalReason::StaleToken);
        assert_eq!(run.decide_at(2.0, complete(unit, 1, "1")), Ok(stale), "{unit}");
    }
}

#[test]
fn c089_a_long_list_begins_over_several_decisions_and_ends_once() {
    let items = 2_500;
    let lines = format!(
        "steps:\n  - {{id: each, for_each: [{}], compute: '${{ item.value + 1 }}'}}\nresult: '${{ size(steps.each.output) }}'\n",
        vec!["1"; items].join(",")
    );
    let mut run = Run::start(&lines, "{}");
    assert!(run.state.work_due_now() && !run.state.is_closed());
    for second in 1..5 {
        run.at(f64::from(second), wake());
    }
    assert_eq!(run.log.len(), items + 4, "created, started, one for each item, joined, succeeded");
    assert_eq!(run.lines().last().unwrap(), "SUCCEEDED 2500");
}

#[test]
fn any_action_may_go_through_a_list() {
    let mut run = Run::start(
        "signals: {go: {}}
steps:
  - {id: nap, for_each: [1, 3], sleep: {for: '${ string(item.value) + \"s\" }'}}
  - {id: wait, for_each: [a, b], await: {signal: go, match: '${ signal == item.value }'}}
result: ${ steps.wait.output }
",
        "{}",
    );
    assert_eq!(run.at(1.0, wake()), ["nap[0] succeeded null"]);
    assert_eq!(run.at(1.5, signal("go", "\"b\""))[1], "wait[1] succeeded \"b\" from 9");
    assert_eq!(run.at(3.0, wake()), ["nap[1] succeeded null", "nap joined"]);
    let end = run.at(4.0, signal("go", "\"a\""));
    assert_eq!(end[2..], ["wait joined", r#"SUCCEEDED ["a","b"]"#]);
}

#[test]
fn winding_down_drops_what_has_not_begun_and_waits_for_what_is_out() {
    let mut run = ship(r#"[{"sku": "a"}, {"sku": "b"}, {"sku": "c"}]"#);
    run.at(1.0, dispatch("ship[0]"));
    assert_eq!(run.at(2.0, cancel()), ["winding down for cancel until 32"]);
    assert_eq!(run.at(3.0, complete("ship[0]", 1, "1")), ["ship[0] succeeded 1 by 1", "CANCELLED"]);
}
