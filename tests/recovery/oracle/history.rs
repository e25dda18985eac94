//! Judges one history: its form, and that it has everything that was acknowledged.

use crate::{
    caller::{document, text},
    journal::{Life, Outcome, Report, Reported, Start},
    workflow::Plan,
};
use orbit::proto::workflow::{
    Event, Execution, SignalReceived, StepDispatched, StepSucceeded, event::Kind, execution::State,
};
use std::collections::{HashMap, HashSet};

/// Adds what is wrong to the faults.
pub(super) fn judge(
    life: &Life,
    execution: &Execution,
    reported: &[Reported],
    events: &[Event],
    faults: &mut Vec<String>,
) {
    form(execution, events, faults);
    units(events, faults);
    reports(reported, events, faults);
    calls(life, events, faults);
}

/// Numbers without gaps, time that never goes back, one first event and one last.
fn form(execution: &Execution, events: &[Event], faults: &mut Vec<String>) {
    for (event, number) in events.iter().zip(1..) {
        if event.number != number {
            faults.push(format!("event {} stands where {number} should be", event.number));
            return;
        }
    }
    let time = |event: &Event| event.time.map(|time| (time.seconds, time.nanos));
    if events.windows(2).any(|pair| time(&pair[0]) > time(&pair[1])) {
        faults.push("time goes back".to_owned());
    }
    if !matches!(events.first().and_then(|event| event.kind.as_ref()), Some(Kind::ExecutionCreated(_))) {
        faults.push("it does not begin with its creation".to_owned());
    }
    let closes: Vec<_> =
        events.iter().filter_map(|event| Some((event.number, closed(event.kind.as_ref()?)?))).collect();
    let last = execution.last_event_number;
    if closes != [(last, execution.state())] || events.len() as i64 != last {
        faults.push(format!("closed by {closes:?}, the newest event is {last}, the state {:?}", execution.state()));
    }
}

/// The state that an event closes an execution in.
fn closed(kind: &Kind) -> Option<State> {
    match kind {
        Kind::ExecutionSucceeded(_) => Some(State::Succeeded),
        Kind::ExecutionFailed(_) => Some(State::Failed),
        Kind::ExecutionCancelled(_) => Some(State::Cancelled),
        Kind::ExecutionTimedOut(_) => Some(State::TimedOut),
        Kind::ExecutionTerminated(_) => Some(State::Terminated),
        _ => None,
    }
}

/// Each unit ends at most once, and each of its deliveries has a number of its own.
fn units(events: &[Event], faults: &mut Vec<String>) {
    let mut ended = HashSet::new();
    let mut dispatched: HashMap<&str, i32> = HashMap::new();
    for event in events {
        let unit = match event.kind.as_ref().expect("a kind that this test knows") {
            Kind::StepSucceeded(succeeded) => &succeeded.unit,
            Kind::StepFailed(failed) => &failed.unit,
            Kind::StepSkipped(skipped) => &skipped.unit,
            Kind::StepCancelled(cancelled) => &cancelled.unit,
            Kind::StepDispatched(StepDispatched { unit, delivery, .. }) => {
                if dispatched.insert(unit, *delivery).is_some_and(|before| before > *delivery) {
                    faults.push(format!("delivery {delivery} of {unit} comes late"));
                }
                continue;
            }
            _ => continue,
        };
        if !ended.insert(unit) {
            faults.push(format!("{unit} ends twice"));
        }
    }
}

/// Every accepted report is there as it was sent, and no other report is there instead.
fn reports(reported: &[Reported], events: &[Event], faults: &mut Vec<String>) {
    let mut successes: HashMap<&str, &StepSucceeded> = HashMap::new();
    let mut failures: HashMap<(&str, i32), &str> = HashMap::new();
    for event in events {
        match event.kind.as_ref() {
            Some(Kind::StepSucceeded(succeeded)) => {
                successes.insert(&succeeded.unit, succeeded);
            }
            Some(Kind::AttemptFailed(failed)) => {
                let code = failed.failure.as_ref().map_or("", |failure| failure.code.as_str());
                failures.insert((&failed.unit, failed.delivery), code);
            }
            _ => {}
        }
    }
    let mut first = HashMap::new();
    for Reported { task, report, outcome } in reported {
        let is_there = match report {
            Report::Success(output) => successes.get(task.unit.as_str()).is_some_and(|succeeded| {
                succeeded.delivery == task.delivery && succeeded.output.as_ref().map(text) == Some(output)
            }),
            Report::Failure(code) => failures.get(&(task.unit.as_str(), task.delivery)) == Some(&code.as_str()),
        };
        let counts = *outcome == Outcome::Accepted || *outcome == Outcome::Duplicate;
        if counts != is_there {
            faults.push(format!("{outcome:?}, but the history tells otherwise: {report:?} of {task:?}"));
        }
        if *outcome == Outcome::Accepted && first.insert(&task.token, report).is_some() {
            faults.push(format!("accepted twice: {report:?} of {task:?}"));
        }
    }
}

/// Every accepted call is there: the start, the signals in their order and once, the stop.
fn calls(life: &Life, events: &[Event], faults: &mut Vec<String>) {
    if let Some(Kind::ExecutionCreated(created)) = events.first().and_then(|event| event.kind.as_ref()) {
        if document(created.input.as_ref()) != life.plan.input() {
            faults.push(format!("another input: {:?}", created.input));
        }
        if let Start::Accepted { id, uid, .. } = &life.start
            && (created.id != *id || created.uid != *uid)
        {
            faults.push(format!("another execution: {created:?}"));
        }
    }
    let received: Vec<(i64, &SignalReceived)> = events
        .iter()
        .filter_map(|event| match event.kind.as_ref()? {
            Kind::SignalReceived(received) => Some((event.number, received)),
            _ => None,
        })
        .collect();
    let numbers: Vec<i64> = received.iter().map(|(number, _)| *number).collect();
    if numbers != life.signals {
        faults.push(format!("signals were accepted as {:?}, there are {numbers:?}", life.signals));
    }
    if let Plan::Signals { items, .. } = &life.plan {
        let found: Vec<_> =
            received.iter().map(|(_, signal)| document(signal.payload.as_ref())["number"].as_i64()).collect();
        if found != items.iter().copied().map(Some).take(life.signals.len()).collect::<Vec<_>>() {
            faults.push(format!("signals {items:?} became {found:?}"));
        }
    }
    if let Some(stop) = life.stop {
        let event = usize::try_from(stop.event_number - 1).ok().and_then(|index| events.get(index));
        let is_there = match event.and_then(|event| event.kind.as_ref()) {
            Some(Kind::WindDownStarted(_)) => stop.state == State::Cancelled,
            Some(Kind::ExecutionTerminated(_)) => stop.state == State::Terminated,
            _ => false,
        };
        if !is_there {
            faults.push(format!("{stop:?} is not in the history"));
        }
    }
}
