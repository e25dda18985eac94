//! The deletion of an execution.

use super::*;

const ONE: &str = "signals: {s: {}}\ntasks: {t@1: {}}\nsteps:\n  - {id: a, task: t@1}\n";

fn delete_as(key: u8, content: u8) -> Command {
    Command::BeginDeletion { request: Some(request(key, content)) }
}

const fn delete() -> Command {
    Command::BeginDeletion { request: None }
}

#[test]
fn what_is_open_is_not_deleted() {
    check(ONE, vec![], when(1.0, delete()), then_rejected(Rejection::ExecutionOpen { state: "RUNNING" }));
    let winding_down = vec![(1.0, dispatch("a")), (2.0, cancel())];
    check(ONE, winding_down, when(3.0, delete()), then_rejected(Rejection::ExecutionOpen { state: "WINDING_DOWN" }));
}

#[test]
fn what_is_closed_is_deleted_once() {
    let closed = vec![(1.0, terminate())];
    check(ONE, closed, when(2.0, delete()), then(Outcome::Recorded(4), &["deletion began"]));
    let deleted = vec![(1.0, terminate()), (2.0, delete_as(1, 1))];
    check(ONE, deleted.clone(), when(3.0, delete()), then_rejected(Rejection::Deleted));
    check(ONE, deleted.clone(), when(3.0, delete_as(1, 1)), then(Outcome::Recorded(4), &[]));
    check(ONE, deleted, when(3.0, delete_as(1, 2)), then_rejected(Rejection::RequestIdReused));
}

#[test]
fn after_that_reports_come_too_late_and_calls_find_nothing() {
    let deleted = || vec![(1.0, dispatch("a")), (2.0, terminate()), (3.0, delete())];
    let too_late = || then(Outcome::Report(ReportOutcome::Refused(RefusalReason::ExecutionClosed)), &[]);
    check(ONE, deleted(), when(4.0, complete("a", 1, "1")), too_late());
    check(ONE, deleted(), when(4.0, fail("a", 1, "NO")), too_late());
    check(ONE, deleted(), when(4.0, cancel()), then_rejected(Rejection::Deleted));
    check(ONE, deleted(), when(4.0, terminate()), then_rejected(Rejection::Deleted));
    let signal = Command::Signal { name: arc("s"), payload: json("1"), expire_time: None, request: None };
    check(ONE, deleted(), when(4.0, signal), then_rejected(Rejection::Deleted));
    let wake = Command::Wake { held: Vec::new(), early: Vec::new() };
    check(ONE, deleted(), when(4.0, wake), then(Outcome::Done, &[]));
}

#[test]
fn a_signal_that_came_before_is_still_known() {
    let from = |key| Command::SignalFrom { sender: [key; 16], name: arc("s"), payload: json("1") };
    let deleted = || vec![(1.0, from(1)), (2.0, terminate()), (3.0, delete())];
    check(ONE, deleted(), when(4.0, from(1)), then(Outcome::Recorded(3), &[]));
    check(ONE, deleted(), when(4.0, from(2)), then_rejected(Rejection::Deleted));
}
