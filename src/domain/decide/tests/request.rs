//! Calls with a `request_id`.

use super::*;

const WAITS: &str = "signals: {s: {}}\ntasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1}\n";
const HOUR: f64 = 3600.0;

fn signal_as(key: u8, content: u8) -> Command {
    Command::Signal { name: arc("s"), payload: json("1"), expire_time: None, request: Some(request(key, content)) }
}

fn cancel_as(key: u8, content: u8) -> Command {
    Command::Cancel { reason: arc(""), request: Some(request(key, content)) }
}

#[test]
fn the_same_call_again_gets_the_first_answer_and_no_event() {
    check(WAITS, vec![(1.0, signal_as(1, 1))], when(2.0, signal_as(1, 1)), then(Outcome::Recorded(3), &[]));
    check(WAITS, vec![(1.0, signal_as(1, 1))], when(2.0, signal_as(2, 1)), then(Outcome::Recorded(4), &["signal s 1"]));
}

#[test]
fn a_used_request_id_with_other_content_is_refused() {
    check(WAITS, vec![(1.0, signal_as(1, 1))], when(2.0, signal_as(1, 2)), then_rejected(Rejection::RequestIdReused));
}

#[test]
fn a_remembered_call_is_answered_before_any_other_rule() {
    let closed = vec![(1.0, signal_as(1, 1)), (2.0, terminate())];
    check(WAITS, closed.clone(), when(3.0, signal_as(1, 1)), then(Outcome::Recorded(3), &[]));
    check(WAITS, closed.clone(), when(3.0, signal_as(1, 2)), then_rejected(Rejection::RequestIdReused));
    check(WAITS, closed, when(3.0, signal_as(2, 1)), then_rejected(Rejection::ExecutionClosed { state: "TERMINATED" }));
    check(WAITS, vec![(1.0, cancel_as(1, 1))], when(2.0, cancel_as(1, 1)), then(Outcome::Recorded(3), &[]));
}

#[test]
fn calls_are_remembered_for_a_day_and_then_forgotten() {
    let mut run = Run::start(WAITS, "{}");
    run.at(0.0, signal_as(1, 1));
    run.at(23.0 * HOUR, signal_as(2, 1));
    assert_eq!(run.decide_at(24.0 * HOUR, signal_as(1, 1)), Ok(Outcome::Recorded(3)));
    run.at(24.1 * HOUR, signal_as(3, 1));
    assert_eq!(run.decide_at(24.2 * HOUR, signal_as(1, 2)), Ok(Outcome::Recorded(6)), "the key is free again");
    assert_eq!(run.decide_at(24.3 * HOUR, signal_as(2, 1)), Ok(Outcome::Recorded(4)));
}

#[test]
fn the_request_is_in_the_event_that_records_the_call_and_in_no_other() {
    let mut run = Run::start("signals: {s: {}}\nsteps:\n  - {id: w, await: {signal: s}}", "{}");
    run.at(1.0, signal_as(1, 1));
    let recorded: Vec<_> = run.log.iter().filter(|event| event.request.is_some()).map(|event| event.number).collect();
    assert_eq!(recorded, [3]);
}
