//! What an execution waits for, one case for each way of waiting.

use super::*;
use crate::domain::explain::{Reason, WAITS_MAX, Wait};
use crate::domain::state::Status;

/// One task.
const TASK: &str = "tasks: {t@1: {}, u@1: {}}\nsignals: {s: {}}\nsteps:\n  - {id: a, task: t@1";

fn explained(run: &Run, second: f64) -> Vec<Wait> {
    run.state.explain(at(second)).waits
}

/// Each wait as a line: unit, sentence, since, until, in seconds.
fn told(run: &Run, second: f64) -> Vec<String> {
    let seconds = |name: &str, time: Option<Timestamp>| {
        time.map_or(String::new(), |time| format!(", {name} {}", (time.as_micros() - START) / 1_000_000))
    };
    let line = |wait: &Wait| {
        let unit = wait.unit.as_ref().map_or(String::new(), |unit| format!("{unit} "));
        format!("{unit}{}{}{}", wait.sentence(), seconds("since", wait.since), seconds("until", wait.until))
    };
    explained(run, second).iter().map(line).collect()
}

#[test]
fn a_task_waits_for_a_worker_of_its_queue_contract_and_language() {
    let run = Run::start(&format!("{TASK}, queue: q, language: go, queue_timeout: 9s}}"), "{}");
    assert_eq!(told(&run, 1.0), ["a waits for a worker that does t@1 in go in queue \"q\", since 0, until 9"]);
    let Reason::Worker(task) = &explained(&run, 1.0)[0].reason else { panic!("it waits for a worker") };
    assert_eq!((&*task.queue, &*task.contract, task.language.as_deref()), ("q", "t@1", Some("go")));
    assert_eq!((task.priority, task.attempt, &task.supply), (3, 1, &None));
}

#[test]
fn a_task_is_at_its_worker() {
    let mut run = Run::start(&format!("{TASK}, timeout: 50s, heartbeat_timeout: 40s}}"), "{}");
    run.at(2.0, dispatch("a"));
    let line = "a is at worker \"w\" (attempt 1, delivery 1)";
    assert_eq!(told(&run, 3.0), [format!("{line}, which is not yet known to hold it, since 2, until 52")]);
    run.at(4.0, hold("a", 1));
    assert_eq!(told(&run, 5.0), [format!("{line}, since 2, until 52")]);
    let Reason::AtWorker(task) = &explained(&run, 5.0)[0].reason else { panic!("it is at a worker") };
    assert_eq!((task.held, task.stops, task.expire_time), (true, false, Some(at(52.0))));
    assert_eq!(task.heartbeat_timeout, Some(span(40.0)));
    run.at(6.0, cancel());
    assert_eq!(
        told(&run, 7.0),
        [
            "winds down for a cancel: 1 unit is still out, since 6, until 36".to_owned(),
            format!("{line}; it is asked to stop, since 2, until 36")
        ]
    );
}

#[test]
fn a_task_pauses_before_its_next_attempt() {
    let mut run = Run::start(&format!("{TASK}, retry: {{initial_interval: 8s, jitter: 0}}}}"), "{}");
    run.at(1.0, dispatch("a"));
    run.at(2.0, fail("a", 1, "BROKEN"));
    assert_eq!(
        told(&run, 3.0),
        ["a pauses before attempt 2, since attempt 1 failed with BROKEN (it broke), since 2, until 10"]
    );
}

#[test]
fn a_step_sleeps() {
    let mut run =
        Run::start("tasks: {t@1: {}}\nsteps:\n  - {id: t, task: t@1}\n  - {id: a, needs: [t], sleep: {for: 7s}}", "{}");
    run.at(1.0, dispatch("t"));
    run.at(2.0, complete("t", 1, "1"));
    assert_eq!(told(&run, 3.0), ["a sleeps, since 2, until 9"]);
}

#[test]
fn a_step_waits_for_a_signal() {
    let lines = "signals: {s: {}}\nsteps:\n  - {id: a, await: {signal: s, match: '${ signal > 5 }', timeout: 9s}}";
    let mut run = Run::start(lines, "{}");
    assert_eq!(told(&run, 1.0), ["a waits for signal \"s\" that fits its `match`, since 0, until 9"]);
    run.at(1.0, signal("s", "1"));
    run.at(1.0, signal("s", "2"));
    let text = "a waits for signal \"s\" that fits its `match`; 2 have come and did not fit, since 0, until 9";
    assert_eq!(told(&run, 1.0), [text]);
    assert_eq!(explained(&run, 1.0)[0].hint("e"), "`orbit signal e s` gives it the signal");
}

#[test]
fn a_fan_out_waits_for_its_items_and_says_what_holds_more_back() {
    let lines = "tasks: {t@1: {}}\nsteps:\n  - {id: a, for_each: [1, 2, 3], max_parallel: 2, task: t@1, on_error: continue, retry: {max_attempts: 1}}";
    let mut run = Run::start(lines, "{}");
    run.at(1.0, dispatch("a[0]"));
    run.at(1.0, fail("a[0]", 1, "E"));
    assert_eq!(
        told(&run, 2.0),
        [
            "a goes through 3 items: 3 begun, 2 not ended, 1 failed, since 0",
            "a[1] waits for a worker that does t@1 in queue \"default\", since 0",
            "a[2] waits for a worker that does t@1 in queue \"default\", since 1"
        ]
    );
    let run = Run::start(lines, "{}");
    let first = "a goes through 3 items: 2 begun, 2 not ended; the next one begins when one ends, since 2 may run at once, since 0";
    assert_eq!(told(&run, 2.0)[0], first);
}

#[test]
fn a_step_waits_for_other_steps() {
    let names: Vec<String> = (0..12).map(|step| format!("s{step}")).collect();
    let mut lines = String::from("steps:\n");
    for name in &names {
        lines += &format!("  - {{id: {name}, sleep: {{for: 9s}}}}\n");
    }
    lines +=
        &format!("  - {{id: b, compute: 1, needs: [{}]}}\n  - {{id: c, compute: 1, needs: [s0]}}\n", names.join(", "));
    let run = Run::start(&lines, "{}");
    let told = told(&run, 1.0);
    assert_eq!(
        told[12..],
        ["b waits for s0, s1, s2, s3, s4, s5, s6, s7, s8, s9 and 2 more, since 0", "c waits for s0, since 0"]
    );
}

#[test]
fn a_wind_down_says_what_it_waits_for() {
    let lines = "tasks: {t@1: {}, u@1: {}, n@1: {}}
steps:
  - {id: a, task: t@1, compensate: {task: u@1}}
  - {id: b, task: t@1, compensate: {task: u@1}}
  - {id: c, needs: [a, b], fail: {code: NO}}
handlers:
  failure:
    - {id: one, task: n@1}
    - {id: two, needs: [one], task: n@1}
";
    let mut run = Run::start(lines, "{}");
    for unit in ["a", "b"] {
        run.at(1.0, dispatch(unit));
        run.at(1.0, complete(unit, 1, "1"));
    }
    let waits = |unit: &str, contract: &str, since: u32| {
        format!("{unit} waits for a worker that does {contract} in queue \"default\", since {since}")
    };
    let undoing = "winds down for a failure: a unit is being undone, 1 more follows, since 1".to_owned();
    let blocked = "failure:two waits for failure:one, since 1".to_owned();
    let first = "failure:one waits for compensate:b, since 1".to_owned();
    assert_eq!(told(&run, 2.0), [undoing, waits("compensate:b", "u@1", 1), first, blocked.clone()]);
    run.at(3.0, dispatch("compensate:b"));
    run.at(3.0, complete("compensate:b", 1, "1"));
    assert_eq!(told(&run, 3.0)[0], "winds down for a failure: the last unit is being undone, since 1");
    run.at(4.0, dispatch("compensate:a"));
    run.at(4.0, complete("compensate:a", 1, "1"));
    let handling = "winds down for a failure: its handlers of failure run, since 1".to_owned();
    assert_eq!(told(&run, 5.0), [handling, waits("failure:one", "n@1", 4), blocked]);
}

#[test]
fn a_paused_execution_says_so_and_what_would_go_on() {
    let lines = "tasks: {t@1: {}}
steps:
  - {id: a, task: t@1, queue_timeout: 9s}
  - {id: b, task: t@1}
  - {id: c, sleep: {for: 9s}}
  - {id: d, needs: [b], compute: 1}
";
    let mut run = Run::start(lines, "{}");
    run.at(1.0, dispatch("b"));
    run.at(2.0, Command::Pause { reason: arc("look"), request: None });
    run.at(3.0, complete("b", 1, "1"));
    let held = "waits until the execution goes on";
    assert_eq!(
        told(&run, 4.0),
        [
            "is paused: look, since 2".to_owned(),
            format!("a {held}, since 2"),
            "c sleeps, since 0".to_owned(),
            format!("d {held}, since 3")
        ]
    );
    assert_eq!(explained(&run, 4.0)[0].hint("e"), "`orbit resume e` lets it go on");
}

#[test]
fn a_delayed_start_says_until_when() {
    let start = Start { delay: Some(span(30.0)), ..a_start("{}") };
    let run = Run::start_with("steps:\n  - {id: a, compute: 1}", start);
    assert_eq!(
        told(&run, 1.0),
        [
            "begins later, since its start was delayed, since 0, until 30",
            "a waits until the execution goes on, since 0"
        ]
    );
}

#[test]
fn a_step_that_ends_the_run_waits_for_the_handlers_of_signals() {
    let lines = "tasks: {t@1: {}}
signals: {note: {}}
steps:
  - {id: a, sleep: {for: 5s}}
  - {id: again, needs: [a], when: '${ execution.run < 2 }', continue_as_new: {}}
handlers: {on_event: [{signal: note, step: {id: log, task: t@1}}]}
";
    let mut run = Run::start(lines, "{}");
    run.at(1.0, signal("note", "1"));
    run.at(5.0, wake());
    let log = "on_event:log[0] waits for a worker that does t@1 in queue \"default\", since 1";
    assert_eq!(told(&run, 6.0), [log, "again waits for on_event:log[0], since 5"]);
}

#[test]
fn a_step_waits_for_its_child() {
    let mut run = Run::start("steps: [{id: a, workflow: child@*, timeout: 9s}]", "{}");
    let child_id = ExecutionId::of_child(run.state.uid(), 1, "a", 1, 1);
    assert_eq!(told(&run, 0.5), [format!("a waits for child {child_id} to start, since 0, until 9")]);
    let child_uid = Uid(Uuid::from_u128(2));
    run.at(1.0, Command::Settle(Settled::ChildStarted { unit: arc("a"), child_id: child_id.clone(), child_uid }));
    assert_eq!(told(&run, 1.0), [format!("a waits for child {child_id} to end, since 1, until 9")]);
    run.at(2.0, cancel());
    let about_to = format!("a waits for child {child_id} to end, which is about to be cancelled, since 1");
    assert_eq!(told(&run, 2.0)[1], about_to);
    run.at(
        2.0,
        Command::Settle(Settled::ChildCancelled { unit: arc("a"), child_id: child_id.clone(), is_gone: false }),
    );
    assert_eq!(told(&run, 2.0)[1], format!("a waits for child {child_id} to end, which has been cancelled, since 1"));
}

#[test]
fn a_child_that_is_not_needed_any_more_is_to_be_cancelled() {
    let lines = "steps: [{id: a, workflow: child@*, timeout: 9s, retry: {max_attempts: 2, initial_interval: 0s}}]";
    let mut run = Run::start(lines, "{}");
    run.at(9.0, wake());
    let child = |attempt| ExecutionId::of_child(run.state.uid(), 1, "a", 1, attempt);
    assert_eq!(
        told(&run, 9.0),
        [
            format!("is to cancel children that it does not need any more: {}, since 9", child(1)),
            format!("a waits for child {} to start, since 9, until 18", child(2))
        ]
    );
}

#[test]
fn a_closed_child_is_to_tell_its_parent() {
    let mut run = super::child::born("steps: [{id: c, compute: 5}]", 1, None);
    let parent = "is to tell unit a of its parent p how it ended, since 0".to_owned();
    assert_eq!(told(&run, 0.5), ["is closed (SUCCEEDED), since 0".to_owned(), parent]);
    run.at(1.0, Command::Settle(Settled::ParentTold));
    assert_eq!(told(&run, 1.0), ["is closed (SUCCEEDED), since 0"]);
}

#[test]
fn what_an_earlier_run_left_behind_has_been_so_since_then() {
    let lines = "steps:
  - {id: a, workflow: child@^1, total_timeout: 10s, on_error: continue}
  - {id: nap, needs: [a], sleep: {for: 5s}}
  - {id: again, needs: [nap], when: 'execution.run < 2', continue_as_new: {}}
";
    let mut run = Run::start(lines, "{}");
    let child = |run_number| ExecutionId::of_child(run.state.uid(), run_number, "a", 1, 1);
    let abandoned = format!("is to cancel children that it does not need any more: {}, since 10", child(1));
    let started = format!("a waits for child {} to start, since 15, until 25", child(2));
    run.at(10.0, wake());
    assert_eq!(told(&run, 11.0)[0], abandoned);
    run.at(15.0, wake());
    run.at(15.0, wake());
    assert_eq!(run.state.run(), 2);
    let blocked = ["nap waits for a, since 15".to_owned(), "again waits for nap, since 15".to_owned()];
    assert_eq!(told(&run, 15.5), [&[abandoned, started], &blocked[..]].concat());
}

#[test]
fn what_was_taken_up_again_has_waited_since_then() {
    let lines = "tasks: {t@1: {}}
steps:
  - {id: a, for_each: [1, 2], task: t@1, retry: {max_attempts: 1}}
  - {id: b, needs: [a], compute: 1}
";
    let mut run = Run::start(lines, "{}");
    for item in ["a[0]", "a[1]"] {
        run.at(1.0, dispatch(item));
    }
    run.at(2.0, complete("a[0]", 1, "1"));
    run.at(2.0, fail("a[1]", 1, "E"));
    run.at(7.0, Command::Retry { obstacle: None, request: None });
    run.at(8.0, wake());
    let item = "a[1] waits for a worker that does t@1 in queue \"default\", since 8";
    let group = "a goes through 2 items: 2 begun, 1 not ended, since 7";
    assert_eq!(told(&run, 9.0), [group, item, "b waits for a, since 7"]);
}

#[test]
fn a_signal_waits_to_be_taken() {
    let run = Run::start("steps: [{id: a, signal: {execution: other, name: go}}]", "{}");
    let waits = "a gives signal \"go\" to execution other, which has not taken it, since 0";
    assert_eq!(told(&run, 0.5), [waits]);
}

#[test]
fn what_is_due_and_not_done_is_told() {
    let run = Run::start("steps:\n  - {id: a, sleep: {for: 7s}}", "{}");
    assert_eq!(
        told(&run, 8.0),
        ["has something due that the server is about to do, since 7", "a sleeps, since 0, until 7"]
    );
    let many: String = (0..1_500).map(|step| format!("  - {{id: s{step}, compute: 1}}\n")).collect();
    let run = Run::start(&format!("steps:\n{many}"), "{}");
    assert_eq!(told(&run, 0.0), ["has something due that the server is about to do, since 0"]);
}

#[test]
fn what_is_closed_waits_for_nothing() {
    let mut run = Run::start(&format!("{TASK}}}"), "{}");
    run.at(3.0, terminate());
    assert_eq!(told(&run, 9.0), ["is closed (TERMINATED), since 3"]);
}

#[test]
fn what_was_set_aside_says_why() {
    let explanation = crate::domain::explain::Explanation::of_quarantine(arc("row 7 is cut"));
    assert_eq!(explanation.waits[0].sentence(), "is set aside, since its stored data is damaged: row 7 is cut");
}

#[test]
fn of_many_waits_the_first_are_listed_and_the_others_counted() {
    let items = vec!["0"; 250].join(",");
    let run = Run::start(&format!("{TASK}, for_each: [{items}]}}\n  - {{id: b, needs: [a], compute: 1}}"), "{}");
    let explanation = run.state.explain(at(1.0));
    assert_eq!((explanation.waits.len(), explanation.more), (WAITS_MAX, 252 - WAITS_MAX));
}

/// The case above that shows a unit of this status. A new status does not compile without one.
fn case_of(status: Status) -> Option<fn()> {
    match status {
        Status::Pending { .. } => Some(a_step_waits_for_other_steps),
        Status::Waiting { .. } => Some(a_task_waits_for_a_worker_of_its_queue_contract_and_language),
        Status::Out(_) => Some(a_task_is_at_its_worker),
        Status::BackingOff { .. } => Some(a_task_pauses_before_its_next_attempt),
        Status::Sleeping { .. } => Some(a_step_sleeps),
        Status::FanOut { .. } => Some(a_fan_out_waits_for_its_items_and_says_what_holds_more_back),
        Status::Awaiting { .. } => Some(a_step_waits_for_a_signal),
        Status::Child(_) => Some(a_step_waits_for_its_child),
        Status::Sending { .. } => Some(a_signal_waits_to_be_taken),
        // Only inside of a decision.
        Status::Spent => None,
        // It has ended.
        Status::Succeeded | Status::Failed | Status::Skipped | Status::Cancelled => None,
    }
}

#[test]
fn every_status_in_which_a_unit_waits_has_a_case() {
    let now = at(0.0);
    assert!(case_of(Status::BLOCKED).is_some() && case_of(Status::Waiting { since: now }).is_some());
    assert!(case_of(Status::Succeeded).is_none());
}
