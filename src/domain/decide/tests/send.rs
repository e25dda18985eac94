//! Signals that steps give to other executions, and that other executions' steps give.

use super::*;

const SEND: &str = "steps: [{id: a, signal: {execution: '${ input.to }', name: go, payload: {n: 1}}}]";

/// The signals that are on their way.
fn signals(run: &Run) -> Vec<SignalRequest> {
    let signal = |effect| match effect {
        Effect::Signal(signal) => Some(*signal),
        Effect::StartChild(_) | Effect::CancelChild { .. } | Effect::TellParent { .. } => None,
    };
    run.state.pending().filter_map(signal).collect()
}

fn taken(number: u64) -> Command {
    Command::Settle(Settled::SignalTaken { unit: arc("a"), number })
}

fn refused_for(number: u64, reason: &'static str) -> Command {
    Command::Settle(Settled::SignalRefused { unit: arc("a"), number, reason, message: arc("it said no") })
}

fn from(sender: u8, payload: &str) -> Command {
    Command::SignalFrom { sender: [sender; 16], name: arc("go"), payload: json(payload) }
}

#[test]
fn a_signal_is_sent_until_it_is_taken() {
    let mut run = Run::start(SEND, "{\"to\": \"other\"}");
    assert_eq!(run.lines()[1..], ["a sends go {\"n\":1} to other"]);
    let signal = signals(&run).pop().unwrap();
    assert_eq!((signal.number, &*signal.name, signal.payload.as_str(), signal.may_come), (2, "go", "{\"n\":1}", false));
    assert_eq!(signal.sender, sender_key(run.state.uid(), 1, "a", 1));
    assert_eq!(run.at(1.0, wake()), ["woke"]);
    assert_eq!(run.at(2.0, taken(2)), ["a succeeded null", "SUCCEEDED null"]);
    assert_eq!(run.at(2.0, taken(2)), [""; 0]);
}

#[test]
fn a_signal_that_is_refused_fails_its_unit_and_says_why() {
    let mut run = Run::start(SEND, "{\"to\": \"other\"}");
    assert_eq!(run.at(1.0, refused_for(2, "EXECUTION_CLOSED"))[0], "a failed SIGNAL_NOT_DELIVERED");
    let failure = run.state.failure().unwrap();
    assert_eq!(failure.details.as_ref().unwrap().as_str(), r#"{"reason":"EXECUTION_CLOSED"}"#);
    assert!(!run.state.has_pending());
}

#[test]
fn what_cannot_be_an_id_and_who_has_no_parent_or_child_gets_no_signal() {
    let codes = |lines: &str| Run::start(lines, "{\"to\": \"a b\"}").state.failure().unwrap().code.to_string();
    assert_eq!(codes(SEND), code::SIGNAL_NOT_DELIVERED);
    assert_eq!(codes("steps: [{id: a, signal: {parent: true, name: go}}]"), code::SIGNAL_NOT_DELIVERED);
    let skipped = "steps: [{id: c, when: 'false', workflow: child@*}, {id: a, signal: {child: c, name: go}}]";
    assert_eq!(codes(skipped), code::SIGNAL_NOT_DELIVERED);
    assert_eq!(codes("steps: [{id: a, signal: {execution: '${ input.no }', name: go}}]"), code::EXPRESSION_FAILED);
}

#[test]
fn a_signal_to_a_child_that_has_not_started_is_brought_up_when_it_has() {
    let mut run = Run::start("steps: [{id: a, signal: {child: c, name: go}}, {id: c, workflow: child@*}]", "{}");
    let child_id = ExecutionId::of_child(run.state.uid(), 1, "c", 1, 1);
    let signal = signals(&run).pop().unwrap();
    assert_eq!((&signal.recipient.id, signal.may_come), (&child_id, true));
    let child_uid = Uid(Uuid::from_u128(3));
    let context = context(1.0, run.settings);
    let started = Command::Settle(Settled::ChildStarted { unit: arc("c"), child_id, child_uid });
    decide(&mut run.state, started, &context).unwrap();
    let fresh = run.state.take_fresh_effects();
    assert_eq!(fresh.iter().map(Effect::id).collect::<Vec<_>>(), [EffectId::Signal(signal.number)]);
    assert!(!signals(&run)[0].may_come);
}

#[test]
fn a_wind_down_waits_for_a_signal_on_its_way_and_then_gives_it_up() {
    let mut run = Run::start(SEND, "{\"to\": \"other\"}");
    assert_eq!(run.at(1.0, cancel()), ["winding down for cancel until 31"]);
    assert_eq!(signals(&run).len(), 1);
    let mut other = Run::start(SEND, "{\"to\": \"other\"}");
    other.at(1.0, cancel());
    assert_eq!(other.at(2.0, refused_for(2, "EXECUTION_CLOSED")), ["a cancelled", "CANCELLED"]);
    for second in [2.0, 4.0, 8.0, 16.0] {
        run.at(second, wake());
    }
    assert_eq!(run.at(31.0, wake()), ["a cancelled", "CANCELLED"]);
    assert!(!run.state.has_pending());
}

#[test]
fn a_signal_of_a_step_is_taken_once_also_after_the_close() {
    let mut run =
        Run::start("signals: {go: {}}\nsteps: [{id: w, await: {signal: go}}, {id: v, await: {signal: go}}]", "{}");
    assert_eq!(run.at(1.0, from(1, "1")), ["signal go 1", "w succeeded 1 from 4"]);
    let again = run.decide_at(2.0, from(1, "1")).unwrap();
    assert_eq!((again, run.log.len()), (Outcome::Recorded(4), 5));
    run.at(3.0, from(2, "2"));
    assert!(run.state.is_closed());
    assert_eq!(run.decide_at(4.0, from(2, "2")).unwrap(), Outcome::Recorded(6));
    assert_eq!(run.decide_at(4.0, from(3, "3")), Err(Rejection::ExecutionClosed { state: "SUCCEEDED" }));
}

#[test]
fn senders_are_remembered_for_thirty_days() {
    const DAY: f64 = 86_400.0;
    let mut run = Run::start("signals: {go: {}}\nsteps: [{id: s, sleep: {for: 90d}}]", "{}");
    run.at(0.0, from(1, "1"));
    run.at(29.0 * DAY, from(2, "2"));
    assert_eq!(run.decide_at(29.0 * DAY, from(1, "1")).unwrap(), Outcome::Recorded(3));
    run.at(31.0 * DAY, from(3, "3"));
    assert_eq!(run.at(31.0 * DAY, from(1, "1")), ["signal go 1"]);
}

#[test]
fn a_signal_of_a_step_does_not_wait_for_room_in_what_winds_down() {
    let lines = "tasks: {t@1: {}}\nsignals: {go: {}}\nsteps: [{id: a, task: t@1}]";
    let mut run = Run::start(lines, "{}");
    run.settings.buffered_signals_max = 1;
    run.at(1.0, from(1, "1"));
    let full = Err(Rejection::SignalBufferFull { limit: 1 });
    assert_eq!(run.decide_at(2.0, from(2, "2")), full);
    run.at(3.0, dispatch("a"));
    run.at(4.0, cancel());
    assert_eq!(run.decide_at(5.0, from(2, "2")), Err(Rejection::WindingDown { cause: "CANCEL" }));
    assert_eq!(run.decide_at(6.0, signal("go", "3")), full);
    assert_eq!(run.decide_at(7.0, from(1, "1")), Ok(Outcome::Recorded(3)));
}
