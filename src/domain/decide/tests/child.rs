//! What becomes of children, as their parent sees it and as they see it themselves.

use super::*;

/// A child that is tried twice at once, each time for at most a minute.
const ONE: &str = "steps:
  - {id: a, workflow: child@^1, input: {n: 1}, timeout: 1m, retry: {max_attempts: 2, initial_interval: 0s}}
result: '${ steps.a.output }'
";

fn child_of(run: &Run, unit: &str, attempt: u32) -> ExecutionId {
    ExecutionId::of_child(run.state.uid(), 1, unit, 1, attempt)
}

fn uid(attempt: u32) -> Uid {
    Uid(Uuid::from_u128(100 + u128::from(attempt)))
}

fn started(run: &Run, unit: &str, attempt: u32) -> Command {
    let (child_id, child_uid) = (child_of(run, unit, attempt), uid(attempt));
    Command::Settle(Settled::ChildStarted { unit: arc(unit), child_id, child_uid })
}

fn ended(run: &Run, unit: &str, attempt: u32, outcome: ChildOutcome) -> Command {
    let (child_id, child_uid) = (child_of(run, unit, attempt), uid(attempt));
    Command::EndChild(Box::new(ChildEnd { unit: arc(unit), child_id, child_uid, outcome }))
}

fn succeeded(run: &Run, unit: &str, attempt: u32) -> Command {
    ended(run, unit, attempt, ChildOutcome::Succeeded(json("42")))
}

fn failed(run: &Run, unit: &str, attempt: u32, code: &str) -> Command {
    ended(run, unit, attempt, ChildOutcome::Failed(Failure { details: Some(json("[1]")), ..failure("x", code) }))
}

fn has_cancel(run: &Run, unit: &str, attempt: u32, is_gone: bool) -> Command {
    Command::Settle(Settled::ChildCancelled { unit: arc(unit), child_id: child_of(run, unit, attempt), is_gone })
}

/// What is to be done outside, in short.
fn effects(run: &Run) -> Vec<String> {
    let child = |child: &ChildRequest| {
        assert_eq!(child.definition_hash, CHILD_HASH);
        format!("{}/{} {}", child.unit, child.attempt, child.input.as_str())
    };
    let line = |effect: Effect| match effect {
        Effect::StartChild(request) => format!("start {}", child(&request)),
        Effect::CancelChild { child: request, has_started, .. } => {
            format!("cancel {}{}", child(&request), if has_started { "" } else { ", which may not be there" })
        }
        Effect::TellParent { end, .. } => format!("tell {} of {:?}", end.unit, end.outcome),
        Effect::Signal(signal) => format!("signal {} from {}", signal.name, signal.unit),
    };
    run.state.pending().map(line).collect()
}

#[test]
fn a_child_is_asked_for_started_and_its_output_is_the_units() {
    let mut run = Run::start(ONE, "{}");
    assert_eq!(run.lines()[1..], ["a asks for child 1 {\"n\":1} until 60"]);
    assert_eq!(effects(&run), ["start a/1 {\"n\":1}"]);
    let command = started(&run, "a", 1);
    assert_eq!(run.at(1.0, command), ["a child 1 started"]);
    assert_eq!(effects(&run), [""; 0]);
    let child = run.state.steps().next().unwrap().child;
    assert_eq!(child, Some((&child_of(&run, "a", 1), Some(uid(1)))));
    let command = succeeded(&run, "a", 1);
    assert_eq!(run.at(2.0, command), ["a succeeded 42", "SUCCEEDED 42"]);
}

#[test]
fn an_end_may_overtake_the_news_of_the_start_and_either_may_come_twice() {
    let mut run = Run::start(ONE, "{}");
    let (start, end) = (started(&run, "a", 1), succeeded(&run, "a", 1));
    assert_eq!(run.at(1.0, end.clone()), ["a child 1 started", "a succeeded 42", "SUCCEEDED 42"]);
    assert_eq!(run.at(2.0, end), [""; 0]);
    assert_eq!(run.at(3.0, start), [""; 0]);
}

#[test]
fn a_failed_child_is_tried_again_under_another_id_and_then_fails_its_unit_with_its_own_code() {
    let mut run = Run::start(ONE, "{}");
    let command = failed(&run, "a", 1, "NO_STOCK");
    assert_eq!(
        run.at(1.0, command),
        ["a child 1 started", "a attempt 1/0 failed NO_STOCK, retry 1", "a asks for child 2 until 61"]
    );
    assert_ne!(child_of(&run, "a", 1), child_of(&run, "a", 2));
    assert_eq!(effects(&run), ["start a/2 {\"n\":1}"]);
    let command = failed(&run, "a", 2, "NO_STOCK");
    run.at(2.0, command);
    let failure = run.state.failure().unwrap();
    assert_eq!((&*failure.code, &*failure.unit), ("NO_STOCK", "a"));
    let details = format!(r#"{{"child_id":"{}","child_uid":"{}","details":[1]}}"#, child_of(&run, "a", 2), uid(2));
    assert_eq!(failure.details.as_ref().unwrap().as_str(), details);
    assert_eq!(effects(&run), [""; 0]);
}

#[test]
fn only_children_that_failed_or_timed_out_are_tried_again() {
    for (outcome, code, is_retried) in [
        (ChildOutcome::TimedOut, code::CHILD_TIMED_OUT, true),
        (ChildOutcome::Cancelled(arc("why")), code::CHILD_CANCELLED, false),
        (ChildOutcome::Terminated(arc("")), code::CHILD_TERMINATED, false),
    ] {
        let mut run = Run::start(ONE, "{}");
        let command = ended(&run, "a", 1, outcome);
        run.at(1.0, command);
        assert_eq!(run.state.failure().is_none(), is_retried, "{code}");
        let told = run.state.steps().next().unwrap().failure.unwrap().code.clone();
        assert_eq!(&*told, code);
    }
}

#[test]
fn a_child_that_cannot_be_started_fails_its_unit_at_once() {
    let mut run = Run::start(ONE, "{}");
    let child_id = child_of(&run, "a", 1);
    let refused =
        Settled::ChildRefused { unit: arc("a"), child_id, code: code::INPUT_INVALID, message: arc("no such field") };
    assert_eq!(
        run.at(1.0, Command::Settle(refused)),
        [
            "a attempt 1/0 failed INPUT_INVALID, no retry",
            "a failed INPUT_INVALID",
            "winding down for failure INPUT_INVALID until 31",
            "FAILED INPUT_INVALID"
        ]
    );
    assert_eq!(effects(&run), [""; 0]);
}

#[test]
fn an_attempt_that_times_out_leaves_its_child_to_be_cancelled_and_does_not_wait() {
    let mut run = Run::start(ONE, "{}");
    let command = started(&run, "a", 1);
    run.at(1.0, command);
    assert_eq!(run.at(60.0, wake()), ["a attempt 1/0 failed TIMEOUT, retry 60", "a asks for child 2 until 120"]);
    assert_eq!(effects(&run), ["start a/2 {\"n\":1}", "cancel a/1 {\"n\":1}"]);
    // The late end changes nothing, and the other child goes on.
    let (late, cancelled) = (succeeded(&run, "a", 1), has_cancel(&run, "a", 1, false));
    assert_eq!(run.at(61.0, late), [""; 0]);
    assert_eq!(run.at(61.0, cancelled.clone()), ["a child 1 has the cancel"]);
    assert_eq!(run.at(61.0, cancelled), [""; 0]);
    let command = succeeded(&run, "a", 2);
    assert_eq!(run.at(62.0, command).last().unwrap(), "SUCCEEDED 42");
    assert_eq!(effects(&run), [""; 0]);
}

#[test]
fn all_attempts_together_may_time_out() {
    let mut run = Run::start("steps: [{id: a, workflow: child@^1, total_timeout: 10s, on_error: continue}]", "{}");
    assert_eq!(run.at(10.0, wake()), ["woke", "a failed TOTAL_TIMEOUT", "SUCCEEDED null"]);
    assert_eq!(effects(&run), ["cancel a/1 null, which may not be there"]);
    // Closed, it is looked at until the child knows.
    assert_eq!(run.state.deadline(), Some(at(11.0)));
    assert_eq!(run.at(11.0, wake()), ["woke"]);
    let command = has_cancel(&run, "a", 1, false);
    assert_eq!(run.at(12.0, command), ["a child 1 has the cancel"]);
    assert_eq!(run.state.deadline(), None);
}

#[test]
fn c037_a_cancel_before_the_child_is_known_to_have_started_reaches_it() {
    let mut run = Run::start(ONE, "{}");
    assert_eq!(run.at(1.0, cancel()), ["winding down for cancel until 31"]);
    assert_eq!(effects(&run), ["cancel a/1 {\"n\":1}, which may not be there"]);
    let command = has_cancel(&run, "a", 1, false);
    assert_eq!(run.at(2.0, command), ["a child 1 has the cancel"]);
    // It waits for the end, without grace: the child may have something to undo.
    assert_eq!(run.state.deadline(), None);
    let command = ended(&run, "a", 1, ChildOutcome::Cancelled(arc("")));
    assert_eq!(
        run.at(99.0, command),
        ["a child 1 started", "a attempt 1/0 failed CHILD_CANCELLED, no retry", "a cancelled", "CANCELLED"]
    );
}

#[test]
fn a_child_that_is_gone_is_not_waited_for() {
    let mut run = Run::start(ONE, "{}");
    run.at(1.0, cancel());
    let command = has_cancel(&run, "a", 1, true);
    assert_eq!(run.at(2.0, command), ["a child 1 has the cancel", "a cancelled", "CANCELLED"]);
}

#[test]
fn a_child_that_succeeds_although_its_parent_winds_down_is_undone() {
    let mut run = Run::start(
        "tasks: {u@1: {}}\nsteps: [{id: a, workflow: child@^1, \
         compensate: {task: u@1, input: '${ steps.a.output }'}}]",
        "{}",
    );
    run.at(1.0, cancel());
    let command = succeeded(&run, "a", 1);
    assert_eq!(run.at(2.0, command), ["a child 1 started", "a succeeded 42", "compensate:a scheduled 1 42"]);
}

#[test]
fn a_terminate_has_children_cancelled_after_it() {
    let mut run = Run::start(ONE, "{}");
    let command = started(&run, "a", 1);
    run.at(1.0, command);
    assert_eq!(run.at(2.0, terminate()), ["TERMINATED"]);
    assert_eq!(effects(&run), ["cancel a/1 {\"n\":1}"]);
    let (end, cancelled) = (succeeded(&run, "a", 1), has_cancel(&run, "a", 1, false));
    assert_eq!(run.at(3.0, end), [""; 0]);
    assert_eq!(run.at(4.0, cancelled), ["a child 1 has the cancel"]);
    assert!(!run.state.has_pending());
}

#[test]
fn children_that_undo_or_handle_are_not_cancelled_by_what_caused_them() {
    let mut run = Run::start(
        "tasks: {t@1: {}}
steps:
  - {id: a, task: t@1, compensate: {workflow: undo@*, input: '${ steps.a.output }'}}
  - {id: b, needs: [a], fail: {code: NO, message: no}}
handlers: {failure: [{id: tell, workflow: tell@*}]}
",
        "{}",
    );
    run.at(1.0, dispatch("a"));
    assert_eq!(run.at(1.0, complete("a", 1, "7")).last().unwrap(), "compensate:a asks for child 1 7");
    assert_eq!(effects(&run), ["start compensate:a/1 7"]);
    let command = succeeded(&run, "compensate:a", 1);
    assert_eq!(run.at(2.0, command).last().unwrap(), "failure:tell asks for child 1 null");
    assert_eq!(effects(&run), ["start failure:tell/1 null"]);
    // A terminate does.
    run.at(3.0, terminate());
    assert_eq!(effects(&run), ["cancel failure:tell/1 null, which may not be there"]);
}

#[test]
fn each_item_has_a_child_of_its_own() {
    let mut run = Run::start(
        "steps: [{id: a, for_each: [x, y], workflow: child@^1, input: '${ item.value }'}]\nresult: '${ steps.a.output }'",
        "{}",
    );
    assert_eq!(effects(&run), ["start a[0]/1 \"x\"", "start a[1]/1 \"y\""]);
    for item in [1, 0] {
        let unit = format!("a[{item}]");
        let command = ended(&run, &unit, 1, ChildOutcome::Succeeded(json(&item.to_string())));
        run.at(1.0, command);
    }
    assert_eq!(run.lines().last().unwrap(), "SUCCEEDED [0,1]");
}

#[test]
fn open_effects_are_looked_at_after_pauses_that_double_up_to_ten_minutes() {
    let mut run = Run::start("steps: [{id: a, workflow: child@^1}]", "{}");
    let mut second = 0.0;
    for pause in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 600.0, 600.0] {
        second += pause;
        assert_eq!(run.state.deadline(), Some(at(second)));
        assert_eq!(run.at(second, wake()), ["woke"]);
    }
    let command = started(&run, "a", 1);
    run.at(second + 1.0, command);
    assert_eq!(run.state.deadline(), None);
}

#[test]
fn a_look_brings_up_the_open_effects_and_no_others() {
    let mut run = Run::start("steps: [{id: a, for_each: [1, 2], workflow: child@^1}]", "{}");
    let command = started(&run, "a[0]", 1);
    run.at(0.5, command);
    let context = context(1.5, run.settings);
    let (events, _) = decide(&mut run.state, wake(), &context).unwrap();
    assert_eq!(lines(&events), ["woke"]);
    let fresh = run.state.take_fresh_effects();
    assert_eq!(fresh.iter().map(Effect::id).collect::<Vec<_>>(), [EffectId::StartChild(child_of(&run, "a[1]", 1))]);
    assert_eq!(run.state.take_fresh_effects(), []);
}

#[test]
fn what_others_must_hear_of_is_not_deleted_before() {
    let mut run = Run::start(ONE, "{}");
    run.at(1.0, terminate());
    let delete = || Command::BeginDeletion { request: None };
    assert_eq!(run.decide_at(2.0, delete()), Err(Rejection::EffectsOpen));
    let command = has_cancel(&run, "a", 1, false);
    run.at(3.0, command);
    assert_eq!(run.at(4.0, delete()), ["deletion began"]);
}

#[test]
fn a_child_that_was_given_up_on_is_cancelled_also_in_the_next_run() {
    let mut run = Run::start(
        "steps:
  - {id: a, workflow: child@^1, input: 5, total_timeout: 10s, on_error: continue}
  - {id: again, needs: [a], when: 'execution.run < 2', continue_as_new: {}}
",
        "{}",
    );
    let abandoned = child_of(&run, "a", 1);
    run.at(10.0, wake());
    run.at(10.5, wake());
    assert_eq!(run.state.run(), 2);
    let ids: Vec<EffectId> = run.state.pending().map(|effect| effect.id()).collect();
    let next = ExecutionId::of_child(run.state.uid(), 2, "a", 1, 1);
    assert_eq!(ids, [EffectId::StartChild(next), EffectId::CancelChild(abandoned.clone())]);
    let cancelled = Settled::ChildCancelled { unit: arc("a"), child_id: abandoned, is_gone: false };
    assert_eq!(run.at(11.0, Command::Settle(cancelled)), ["a child 1 has the cancel"]);
}

#[test]
fn a_closed_child_is_not_retried_since_its_parent_has_its_end() {
    let mut run = born("steps: [{id: f, fail: {code: NO}}]", 1, None);
    let retried = run.decide_at(1.0, Command::Retry { obstacle: None, request: None });
    let obstacle = Obstacle::ParentDone;
    assert_eq!(retried, Err(Rejection::NotRetryable { state: "FAILED", obstacle }));
}

// The child's own view.

pub(super) fn born(lines: &str, depth: u32, cancelled: Option<&str>) -> Run {
    let parent = Parent {
        key: ExecutionKey(5),
        uid: Uid(Uuid::from_u128(1)),
        id: ExecutionId::parse("p").unwrap(),
        run: 1,
        unit: arc("a"),
        generation: 1,
        attempt: 1,
    };
    let birth = Some(Birth { parent, depth, cancelled: cancelled.map(arc) });
    Run::start_with(lines, Start { birth, ..a_start("{}") })
}

#[test]
fn a_child_tells_its_parent_until_that_knows() {
    let mut run = born("steps: [{id: c, compute: 5}]\nresult: '${ steps.c.output }'", 1, None);
    assert!(run.state.is_closed());
    assert_eq!(effects(&run), ["tell a of Succeeded(Payload(5))"]);
    assert_eq!(run.at(1.0, wake()), ["woke"]);
    assert_eq!(run.at(2.0, Command::Settle(Settled::ParentTold)), ["parent told"]);
    assert_eq!(run.at(2.0, Command::Settle(Settled::ParentTold)), [""; 0]);
    assert_eq!((effects(&run).len(), run.state.deadline()), (0, None));
}

#[test]
fn c037_a_child_may_be_born_cancelled_and_then_no_step_of_it_begins() {
    let run = born("tasks: {t@1: {}}\nsteps: [{id: c, task: t@1}]", 1, Some("nobody waits"));
    assert_eq!(run.lines(), ["created {}", "winding down for cancel until 30", "CANCELLED"]);
    assert_eq!(effects(&run), ["tell a of Cancelled(\"nobody waits\")"]);
}

#[test]
fn nesting_has_a_limit() {
    let lines = "steps: [{id: a, workflow: child@^1}]";
    assert_eq!(effects(&born(lines, NESTING_MAX - 1, None)), ["start a/1 null"]);
    let run = born(lines, NESTING_MAX, None);
    assert_eq!(&*run.state.failure().unwrap().code, code::NESTING_TOO_DEEP);
}

#[test]
fn a_unit_says_why_its_child_ended_otherwise_than_by_itself() {
    for (outcome, message) in [
        (ChildOutcome::Cancelled(arc("why")), "the child was cancelled: why"),
        (ChildOutcome::Cancelled(arc("")), "the child was cancelled"),
        (ChildOutcome::Terminated(arc("stop")), "the child was terminated: stop"),
        (ChildOutcome::TimedOut, "the child's timeout passed"),
    ] {
        let mut run = Run::start(ONE, "{}");
        let command = ended(&run, "a", 1, outcome);
        run.at(1.0, command);
        assert_eq!(&*run.state.steps().next().unwrap().failure.unwrap().message, message);
    }
}

#[test]
fn details_of_a_child_that_do_not_fit_are_left_out() {
    let mut run = Run::start(ONE, "{}");
    let details = json(&format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX - 10)));
    let failure = Failure { details: Some(details), ..failure("x", "NO") };
    let command = ended(&run, "a", 1, ChildOutcome::Failed(failure));
    run.at(1.0, command);
    let details = run.state.steps().next().unwrap().failure.unwrap().details.clone().unwrap();
    assert!(details.as_str().ends_with("\"details\":null}"));
}
