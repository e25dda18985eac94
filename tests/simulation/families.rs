//! What must be true of executions that have to do with each other: a parent and its children agree, and what one asked of
//! another was done once.
//!
//! Where executions may be deleted, what is not there is not held against those that knew it.

use crate::invariants::{Histories, History};
use orbit::domain::{Event, EventKind, Failure, Unit, code, sender_key};
use orbit::store::ExecutionState;
use std::collections::{BTreeMap, BTreeSet};

/// Holds every family at any moment.
pub(crate) fn check(histories: &Histories, may_be_gone: bool) {
    let mut asked = BTreeSet::new();
    let mut came: BTreeMap<[u8; 16], usize> = BTreeMap::new();
    for event in histories.all().flat_map(|history| &history.events) {
        if let EventKind::SignalReceived { sender: Some(sender), .. } = &event.kind {
            *came.entry(*sender).or_default() += 1;
        }
    }
    assert!(came.values().all(|count| *count == 1), "a step's signal came twice");
    for history in histories.all() {
        Parent { histories, history, may_be_gone, waited: BTreeMap::new(), asked: &mut asked }.check();
        check_signals(history, &came, may_be_gone);
        check_child(histories, history, may_be_gone);
    }
}

/// A child was asked for, and tells its parent once that it has ended.
fn check_child(histories: &Histories, child: &History, may_be_gone: bool) {
    let told = child.events.iter().filter(|event| matches!(event.kind, EventKind::ParentTold)).count();
    let Some(of) = parent_of(child) else {
        return assert_eq!(told, 0, "{} has nobody to tell", child.row.id);
    };
    assert!(told <= 1, "{} told its parent {told} times", child.row.id);
    let Some(parent) = histories.by_uid(of.uid) else {
        return assert!(may_be_gone, "the parent of {} is lost", child.row.id);
    };
    let has_asked = parent.events.iter().any(|event| match &event.kind {
        EventKind::ChildRequested { unit, attempt, child_id, .. } => {
            (unit, *attempt, child_id.as_str()) == (&of.unit, of.attempt, &child.row.id)
        }
        _ => false,
    });
    assert!(has_asked, "nobody asked for {}: {}", child.row.id, parent.story());
}

/// Holds every family once everything has ended.
pub(crate) fn check_end(histories: &Histories, may_be_gone: bool) {
    for history in histories.all() {
        let told = history.events.iter().any(|event| matches!(event.kind, EventKind::ParentTold));
        assert_eq!(told, parent_of(history).is_some(), "{} and its parent", history.row.id);
        // Children that are not there were never made, and their units say so.
        let children = history.events.iter().filter_map(|event| match &event.kind {
            EventKind::ChildStarted { child_uid, .. } => Some(*child_uid),
            _ => None,
        });
        for uid in children {
            let is_closed = histories.by_uid(uid).map(|child| child.row.state.is_closed());
            assert!(is_closed.unwrap_or(may_be_gone), "a child of {} lives on: {uid}", history.row.id);
        }
    }
}

/// The unit of another execution that asked for this one.
fn parent_of(history: &History) -> Option<&orbit::domain::Parent> {
    match &history.events[0].kind {
        EventKind::ExecutionCreated(created) => created.parent.as_ref(),
        _ => None,
    }
}

/// A history and the children that it asks for.
struct Parent<'a> {
    histories: &'a Histories,
    history: &'a History,
    may_be_gone: bool,
    /// The child that a unit waits for.
    waited: BTreeMap<&'a Unit, &'a orbit::domain::ExecutionId>,
    /// Every child that any execution asked for.
    asked: &'a mut BTreeSet<String>,
}

impl<'a> Parent<'a> {
    fn check(mut self) {
        let mut cancelled = BTreeSet::new();
        for event in &self.history.events {
            match &event.kind {
                EventKind::ChildRequested { unit, child_id, .. } => {
                    assert!(self.asked.insert(child_id.to_string()), "{child_id} was asked for twice");
                    self.waited.insert(unit, child_id);
                }
                EventKind::ChildStarted { unit, child_uid, .. } => {
                    let Some(child) = self.histories.by_uid(*child_uid) else {
                        assert!(self.may_be_gone, "child {child_uid} of {} is lost", self.history.row.id);
                        continue;
                    };
                    assert_eq!(self.waited.get(unit).map(|id| id.as_str()), Some(&*child.row.id));
                    let parent = parent_of(child).expect("a child has a parent");
                    assert_eq!((parent.uid, &parent.unit), (self.history.row.uid, unit));
                }
                EventKind::ChildCancelSent { child_id, .. } => {
                    assert!(cancelled.insert(child_id), "the cancel of {child_id} was settled twice");
                }
                _ => self.check_end_of_unit(event),
            }
        }
    }

    /// What a unit says of its child's end is what became of the child.
    fn check_end_of_unit(&mut self, event: &'a Event) {
        let (unit, end) = match &event.kind {
            EventKind::StepSucceeded { unit, output, .. } => (unit, Some(Ok(output))),
            EventKind::AttemptFailed { unit, failure, report: Some(_), .. } => (unit, Some(Err(failure))),
            EventKind::AttemptFailed { unit, .. }
            | EventKind::StepFailed { unit, .. }
            | EventKind::StepCancelled { unit } => (unit, None),
            _ => return,
        };
        let (Some(id), Some(end)) = (self.waited.remove(unit), end) else { return };
        let child = self.histories.by_id(id.as_str());
        let told = child.map(|child| (child.row.state, child));
        let agrees = match (end, told) {
            (Err(failure), None) => self.may_be_gone || is_unborn(failure),
            (Ok(_), None) => self.may_be_gone,
            (Ok(output), Some((ExecutionState::Succeeded, child))) => child
                .events
                .iter()
                .any(|event| matches!(&event.kind, EventKind::ExecutionSucceeded { output: given } if given == output)),
            (Err(failure), Some((state, _))) => match state {
                ExecutionState::Failed => true,
                ExecutionState::Cancelled => *failure.code == *code::CHILD_CANCELLED,
                ExecutionState::TimedOut => *failure.code == *code::CHILD_TIMED_OUT,
                ExecutionState::Terminated => *failure.code == *code::CHILD_TERMINATED,
                _ => false,
            },
            (Ok(_), Some(_)) => false,
        };
        let child = child.map(History::story);
        assert!(agrees, "{:?} is not what its child {id} says: {child:?}\n{}", event.kind, self.history.story());
    }
}

/// Whether a unit failed since its child could not be made.
fn is_unborn(failure: &Failure) -> bool {
    [code::CHILD_NOT_STARTED, code::INPUT_INVALID].contains(&&*failure.code)
}

/// A signal that a step gave has come.
fn check_signals(history: &History, came: &BTreeMap<[u8; 16], usize>, may_be_gone: bool) {
    let (mut run, mut generation) = (1, 1);
    let mut sending: BTreeMap<&Unit, [u8; 16]> = BTreeMap::new();
    for event in &history.events {
        match &event.kind {
            EventKind::RunStarted(_) => (run, generation) = (run + 1, 1),
            EventKind::ExecutionReopened { generation: next, .. } => generation = *next,
            EventKind::SignalRequested { unit, .. } => {
                sending.insert(unit, sender_key(history.row.uid, run, unit, generation));
            }
            EventKind::StepSucceeded { unit, .. } => {
                if let Some(sender) = sending.remove(unit) {
                    let has_come = came.contains_key(&sender) || may_be_gone;
                    assert!(has_come, "the signal that {unit} gave is lost: {}", history.story());
                }
            }
            EventKind::StepFailed { unit, .. } | EventKind::StepCancelled { unit } => {
                sending.remove(unit);
            }
            _ => {}
        }
    }
}
