//! What bounds an execution: the length of its history, and the work of its expressions on large values.

use super::*;

/// Settings under which so many events are too many.
fn events(most: u64) -> Settings {
    Settings { history_events_max: most, ..Settings::default() }
}

fn run_of(lines: &str, input: &str, settings: Settings) -> Run {
    Run::start_of(definition(lines), input, settings)
}

/// A task that fails for as long as it is tried.
const ENDLESS: &str = "tasks: {t@1: {}, u@1: {}, n@1: {}}
steps:
  - {id: done, task: t@1, compensate: {task: u@1}}
  - {id: poll, needs: [done], task: t@1, input: big, retry: {max_attempts: 1000, initial_interval: 0s}}
handlers:
  failure: [{id: tell, task: n@1, input: '${ failure.code }'}]
";

#[test]
fn c087_an_execution_whose_history_is_too_long_fails_and_is_wound_down() {
    let mut run = run_of(ENDLESS, "{}", events(40));
    run.at(1.0, dispatch("done"));
    run.at(1.0, complete("done", 1, "1"));
    let mut second = 2.0;
    let delivery = |run: &Run| run.state.steps().nth(1).unwrap().delivery;
    while run.state.phase() == Phase::Running {
        run.at(second, dispatch("poll"));
        if run.state.phase() == Phase::Running {
            run.at(second, fail("poll", delivery(&run), "NOT_YET"));
            second += 1.0;
            run.at(second, wake());
        }
    }
    assert!((41..45).contains(&run.state.history_events()), "{}", run.state.history_events());
    assert_eq!(run.state.failure().unwrap().code, arc("HISTORY_TOO_LONG"));
    assert_eq!(run.state.cause().map(Cause::as_failure).unwrap().code, arc("HISTORY_TOO_LONG"));
    // A retry names its attempt and not the input again.
    let inputs = run.lines().iter().filter(|line| line.contains("\"big\"")).count();
    assert_eq!(inputs, 1);
    // Whatever was out is given up before anything is undone.
    run.at(second + 31.0, wake());
    second += 31.0;
    run.at(second + 1.0, dispatch("compensate:done"));
    run.at(second + 1.0, complete("compensate:done", 1, "1"));
    assert_eq!(run.dispatch_at(second + 2.0, "failure:tell", WIDE).input, json("\"HISTORY_TOO_LONG\""));
    assert_eq!(
        run.at(second + 2.0, complete("failure:tell", 1, "1")),
        ["failure:tell succeeded 1 by 1", "FAILED HISTORY_TOO_LONG"]
    );
}

#[test]
fn c087_each_run_has_a_history_of_its_own() {
    let lines = "steps:
  - {id: a, compute: '${ input.n + 1 }'}
  - {id: again, needs: [a], when: '${ input.n < 30 }', continue_as_new: {input: {n: '${ steps.a.output }'}}}
result: '${ input.n }'
";
    let mut run = run_of(lines, r#"{"n":0}"#, events(6));
    while !run.state.is_closed() {
        run.at(1.0, wake());
        assert!(run.state.history_events() <= 5);
    }
    assert_eq!((run.state.run(), run.state.output()), (31, Some(&json("30"))));
    assert!(run.state.last_number() > 60);
}

#[test]
fn c087_a_retry_counts_anew() {
    let lines = "signals: {s: {}, go: {}}\nsteps:\n  - {id: a, await: {signal: go}}";
    let mut run = run_of(lines, "{}", events(6));
    for _ in 0..4 {
        run.at(1.0, signal("s", "1"));
    }
    assert_eq!((run.state.phase(), &*run.state.failure().unwrap().code), (Phase::Failed, "HISTORY_TOO_LONG"));
    run.at(2.0, Command::Retry { obstacle: None, request: None });
    assert_eq!(run.state.phase(), Phase::Running);
    assert_eq!(run.at(3.0, signal("go", "7")).last().unwrap(), "SUCCEEDED null");
}

/// A JSON list of 2 MiB.
fn large_list(items: usize) -> String {
    let item = "9".repeat(2 * 1024 * 1024 / items - 2);
    format!("[{}]", vec![item.as_str(); items].join(","))
}

#[test]
fn a_decision_begins_fewer_items_the_more_work_each_of_them_asks_for() {
    let begun = |input: &str| {
        let lines = format!(
            "tasks: {{t@1: {{}}}}\nsteps:\n  - {{id: each, for_each: '${{ input }}', task: t@1, input: '${{ {input} }}'}}"
        );
        let list = format!("[{}]", vec!["\"0123456789\""; 20_000].join(","));
        let mut run = run_of(&lines, &list, Settings::default());
        let first = run.state.waiting().count();
        assert!(run.state.work_due_now());
        run.at(1.0, wake());
        assert!(run.state.waiting().count() >= 2 * first, "each decision goes on");
        first
    };
    let (cheap, reading, dear) = (begun("item.value"), begun("input[19999]"), begun("input.size() + item.index"));
    assert!(cheap > 900, "{cheap}");
    assert!((300..700).contains(&reading), "a list of 260 kB is read past for each: {reading}");
    assert!((50..200).contains(&dear), "a list of 20,000 is made a value for each: {dear}");
}

#[test]
fn many_signals_are_not_held_against_a_wait_that_asks_for_too_much_work() {
    let lines = "signals: {s: {}, go: {}}
steps:
  - {id: first, await: {signal: go}}
  - {id: then, needs: [first], await: {signal: s, match: 'signal.map(x, x + 1).exists(y, y < 0)'}, on_error: continue}
result: '${ steps.then.error.code }'
";
    let mut run = run_of(lines, "{}", Settings::default());
    let numbers = (0..20_000).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    for _ in 0..100 {
        run.at(1.0, signal("s", &format!("[{numbers}]")));
    }
    assert_eq!(run.at(2.0, signal("go", "1")).last().unwrap(), "then failed EXPRESSION_FAILED");
    assert_eq!(run.at(2.0, wake()), ["SUCCEEDED \"EXPRESSION_FAILED\""]);
}

#[test]
fn a_list_that_is_too_large_to_be_stored_fails_its_step_alone() {
    let lines = "steps:
  - {id: each, for_each: '${ input.map(x, [x, x]) }', compute: '${ item.value }', on_error: continue}
  - {id: after, needs: [each], compute: '${ steps.each.error.code }'}
result: '${ steps.after.output }'
";
    let run = run_of(lines, &large_list(40), Settings::default());
    assert_eq!(run.lines().last().unwrap(), "SUCCEEDED \"RESULT_TOO_LARGE\"");
}

#[test]
fn outputs_that_are_too_large_together_fail_the_step_and_not_its_items() {
    let lines = "steps:
  - {id: each, for_each: [1, 2, 3], compute: '${ input }', on_error: continue}
result: {state: '${ steps.each.state }', code: '${ steps.each.error.code }'}
";
    let run = run_of(lines, &format!("\"{}\"", "x".repeat(1024 * 1024)), Settings::default());
    assert_eq!(run.lines().last().unwrap(), r#"SUCCEEDED {"state":"FAILED","code":"RESULT_TOO_LARGE"}"#);
}

#[test]
fn an_item_that_asks_for_too_much_work_fails_alone() {
    let lines = "steps:
  - {id: each, for_each: ['${ input }', []], compute: '${ item.value.map(x, item.value.map(y, x * y)).size() }', on_error: continue}
result: '${ steps.each.output }'
";
    let numbers = (0..20_000).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    let mut run = run_of(lines, &format!("[{numbers}]"), Settings::default());
    assert!(run.state.work_due_now(), "it is enough for one decision");
    run.at(1.0, wake());
    assert_eq!(run.lines().last().unwrap(), "SUCCEEDED [null,0]");
    assert!(run.lines().contains(&"each[0] failed EXPRESSION_FAILED".to_owned()));
}

#[test]
fn a_signal_for_which_a_handler_would_work_too_long_fails_that_handler_alone() {
    let lines = "signals: {note: {}, go: {}}
steps:
  - {id: a, await: {signal: go}}
handlers:
  on_event:
    - {signal: note, step: {id: log, compute: '${ event.map(x, event.map(y, x * y)).size() }', on_error: continue}}
";
    let mut run = run_of(lines, "{}", Settings::default());
    let numbers = (0..20_000).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    let lines = run.at(1.0, signal("note", &format!("[{numbers}]")));
    assert_eq!(lines.last().unwrap(), "on_event:log[0] failed EXPRESSION_FAILED");
    assert_eq!(run.at(2.0, signal("go", "1")).last().unwrap(), "SUCCEEDED null");
}

#[test]
fn a_handler_of_a_large_failure_cannot_make_a_larger_one() {
    let lines = "tasks: {t@1: {}}
steps: [{id: a, task: t@1, retry: {max_attempts: 1}}]
handlers:
  failure:
    - {id: more, compute: '${ [failure.details, failure.details, failure.details] }', on_error: continue}
    - {id: then, needs: [more], compute: '${ failure.code }'}
";
    let mut run = run_of(lines, "{}", Settings::default());
    run.at(1.0, dispatch("a"));
    let details = Some(json(&format!("\"{}\"", "x".repeat(1024 * 1024))));
    let failure = Failure { details, ..failure("", "BIG") };
    let command =
        Command::Fail { delivery: reference("a", 1), failure, retryable: true, retry_after: None, progress: None };
    let lines = run.at(2.0, command);
    assert_eq!(
        lines[lines.len() - 3..],
        ["failure:more failed RESULT_TOO_LARGE", "failure:then succeeded \"BIG\"", "FAILED BIG"]
    );
}

#[test]
fn a_query_that_asks_for_too_much_is_refused() {
    let lines = "signals: {go: {}}
queries:
  work: '${ input.map(x, input.map(y, x * y)).size() }'
  size: '${ input.map(x, input) }'
steps: [{id: a, await: {signal: go}}]
";
    let numbers = (0..20_000).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    let run = run_of(lines, &format!("[{numbers}]"), Settings::default());
    for (query, why) in [("work", "steps"), ("size", "larger")] {
        let refused = crate::domain::query::evaluate(&run.state, query).unwrap_err();
        assert!(refused.to_string().contains(why), "{query}: {refused}");
    }
}
