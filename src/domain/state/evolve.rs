//! What each event does to the state.

use super::unit::{Out, RELEASE_HASH, Status, Task, UnitState};
use super::{Indexes, Phase, State, Timer, WindDown, requests, signals};
use crate::domain::definition::{Definition, OnError, StepIndex};
use crate::domain::{Cause, EndReason, Event, EventKind, Payload, Timestamp};
use std::sync::Arc;

impl State {
    /// The state after an execution's first event.
    ///
    /// # Panics
    /// If the event is not `ExecutionCreated`, which would be a fault of the caller's.
    #[must_use]
    pub fn begin(definition: Arc<Definition>, event: &Event) -> Self {
        let EventKind::ExecutionCreated(created) = &event.kind else {
            panic!("an execution begins with ExecutionCreated, not with {:?}", event.kind);
        };
        let blockers = |needs: &[StepIndex]| u32::try_from(needs.len()).expect("a definition has at most 10,000 steps");
        let units = definition.steps.iter().map(|step| UnitState::new(blockers(&step.needs))).collect();
        let mut state = Self {
            definition,
            created: created.clone(),
            start_time: event.time,
            last_number: event.number,
            last_time: event.time,
            phase: Phase::Running,
            wind_down: None,
            close_time: None,
            output: None,
            terminate_reason: None,
            units,
            signals: signals::Signals::default(),
            requests: requests::Requests::default(),
            indexes: Indexes::default(),
        };
        state.remember_request(event);
        state.rebuild_indexes();
        state
    }

    /// Applies the next event.
    ///
    /// # Panics
    /// If the event's number does not follow the newest one's, or it speaks of a unit that the definition does not
    /// have: then the history is not this execution's.
    pub fn evolve(&mut self, event: &Event) {
        assert_eq!(event.number, self.last_number + 1, "events are applied in order, without gaps");
        debug_assert!(event.time >= self.last_time, "time never goes back");
        debug_assert!(!self.is_closed(), "nothing follows the close: {:?}", event.kind);
        self.last_number = event.number;
        self.last_time = event.time;
        self.remember_request(event);
        self.apply(event);
    }

    fn apply(&mut self, event: &Event) {
        let time = event.time;
        match &event.kind {
            EventKind::ExecutionCreated(_) => panic!("an execution is created once"),
            EventKind::StepScheduled { unit, attempt, input } => {
                self.change(self.named(unit), |unit| scheduled(unit, *attempt, input.as_ref(), time));
            }
            EventKind::StepDispatched {
                unit,
                delivery,
                session_id,
                worker_id,
                check_time,
                expire_time,
                attempt: _,
            } => {
                self.change(self.named(unit), |unit| {
                    let since = if let Status::Waiting { since } = unit.status { since } else { time };
                    let (check_time, expire_time) = (*check_time, *expire_time);
                    unit.status = Status::Out(Out { since, dispatch_time: time, check_time, expire_time, held: false });
                    let task = expect_task(unit);
                    task.delivery = *delivery;
                    task.session_id = Some(*session_id);
                    task.worker_id = Some(worker_id.clone());
                });
            }
            EventKind::TaskHeld { unit, delivery } => {
                self.change(self.named(unit), |unit| {
                    if let (true, Status::Out(out)) = (unit.is_current(*delivery), &mut unit.status) {
                        out.held = true;
                    }
                });
            }
            EventKind::DeliveryEnded { unit, reason, progress, delivery } => {
                let running = self.phase == Phase::Running;
                self.change(self.named(unit), |unit| {
                    delivery_ended(unit, *reason, progress.as_ref(), time, running);
                    if *reason == EndReason::Released {
                        expect_task(unit).remember(*delivery, Some(RELEASE_HASH));
                    }
                });
            }
            EventKind::AttemptFailed { unit, delivery, failure, retry_time, progress, report, attempt: _ } => {
                self.change(self.named(unit), |unit| {
                    unit.status = match *retry_time {
                        Some(retry_time) => Status::BackingOff { retry_time },
                        None => Status::Spent,
                    };
                    unit.failure = Some(Box::new(failure.clone()));
                    let task = expect_task(unit);
                    task.keep_progress(progress.as_ref());
                    task.remember(*delivery, *report);
                });
            }
            EventKind::StepSucceeded { unit, output, delivery, signal_number, report } => {
                if let Some(number) = signal_number {
                    self.signals.take(*number);
                }
                let index = self.named(unit);
                self.change(index, |unit| {
                    unit.status = Status::Succeeded;
                    unit.output = Some(output.clone());
                    unit.failure = None;
                    if let Some(task) = &mut unit.task {
                        task.remember(*delivery, *report);
                    }
                });
                self.let_dependents_go_on(index);
            }
            EventKind::StepFailed { unit, failure } => {
                let index = self.named(unit);
                self.change(index, |unit| {
                    unit.status = Status::Failed;
                    unit.failure = Some(Box::new(failure.clone()));
                });
                match self.step(index).on_error {
                    OnError::Continue => self.let_dependents_go_on(index),
                    // The wind-down follows in the same decision.
                    OnError::Fail => {}
                }
            }
            EventKind::StepSkipped { unit, reason: _ } => {
                let index = self.named(unit);
                self.change(index, |unit| unit.status = Status::Skipped);
                self.let_dependents_go_on(index);
            }
            EventKind::StepCancelled { unit } => self.change(self.named(unit), |unit| unit.status = Status::Cancelled),
            EventKind::SleepStarted { unit, wake_time } => {
                self.change(self.named(unit), |unit| unit.status = Status::Sleeping { wake_time: *wake_time });
            }
            EventKind::AwaitStarted { unit, expire_time } => {
                let (expire_time, number) = (*expire_time, event.number);
                self.change(self.named(unit), |unit| unit.status = Status::Awaiting { expire_time, number });
            }
            EventKind::SignalReceived { name, payload, expire_time, sender: _ } => {
                let (name, payload, expire_time) = (name.clone(), payload.clone(), *expire_time);
                self.signals.insert(event.number, signals::Signal { name, payload, expire_time });
            }
            EventKind::SignalExpired { signal_number } => {
                self.signals.take(*signal_number);
            }
            EventKind::LateSuccess { unit, delivery, output: _ } => {
                self.change(self.named(unit), |unit| {
                    if let Some(task) = &mut unit.task {
                        task.late.push(*delivery);
                    }
                });
            }
            EventKind::WindDownStarted { cause, give_up_time } => {
                self.start_wind_down(cause.clone(), event.number, *give_up_time);
            }
            EventKind::ExecutionSucceeded { output } => {
                self.output = Some(output.clone());
                self.close(Phase::Succeeded, time);
            }
            EventKind::ExecutionFailed { failure: _ } => self.close(Phase::Failed, time),
            EventKind::ExecutionCancelled => self.close(Phase::Cancelled, time),
            EventKind::ExecutionTimedOut => self.close(Phase::TimedOut, time),
            EventKind::ExecutionTerminated { reason } => {
                self.terminate_reason = Some(reason.clone());
                self.close(Phase::Terminated, time);
            }
            EventKind::Woke => {}
            EventKind::ChildRequested { .. }
            | EventKind::ChildStarted { .. }
            | EventKind::ChildCancelSent { .. }
            | EventKind::ParentTold
            | EventKind::SignalRequested { .. } => unreachable!("no decision makes it yet"),
        }
    }

    fn named(&self, unit: &str) -> StepIndex {
        self.find(unit).unwrap_or_else(|| panic!("the definition has no unit {unit:?}"))
    }

    fn remember_request(&mut self, event: &Event) {
        self.requests.forget(event.time);
        if let Some(request) = event.request {
            let (number, time, content) = (event.number, event.time, request.content);
            self.requests.insert(request.key, requests::Remembered { number, time, content });
        }
    }

    /// A step ended so that what needs it may begin, once nothing else holds it back.
    fn let_dependents_go_on(&mut self, index: StepIndex) {
        if self.phase != Phase::Running {
            return;
        }
        let definition = self.definition.clone();
        for dependent in &definition.steps[index.position()].dependents {
            self.change(*dependent, |unit| unit.blockers -= 1);
        }
    }

    /// Drops all that waits; only deliveries that are out remain.
    fn start_wind_down(&mut self, cause: Cause, number: u64, give_up_time: Timestamp) {
        self.wind_down = Some(WindDown { cause, number, give_up_time });
        self.drop_units(Phase::WindingDown, |status| !matches!(status, Status::Out(_) | Status::Spent));
    }

    fn close(&mut self, phase: Phase, time: Timestamp) {
        self.close_time = Some(time);
        self.drop_units(phase, |_| true);
    }

    /// Enters a phase in which the unresolved units that `dropped` names are cancelled.
    fn drop_units(&mut self, phase: Phase, dropped: impl Fn(Status) -> bool) {
        if self.indexes.unresolved == 0 {
            // The common end: nothing is left to drop, so nothing is gone through.
            self.phase = phase;
            self.indexes.timers.clear();
            self.index_execution();
            return;
        }
        // Timers depend on the phase, so every unit leaves the indexes under the old one and enters them under the new.
        for index in self.indexes_of_units() {
            self.unindex(index);
        }
        self.phase = phase;
        self.indexes.timers.clear();
        self.index_execution();
        for index in self.indexes_of_units() {
            let unit = &mut self.units[index.position()];
            if !unit.status.is_resolved() && dropped(unit.status) {
                unit.status = Status::Cancelled;
            }
            self.index(index);
        }
    }

    /// Makes the indexes anew from the units.
    pub(super) fn rebuild_indexes(&mut self) {
        self.indexes = Indexes::default();
        self.index_execution();
        for index in self.indexes_of_units() {
            self.index(index);
        }
    }

    /// The timers of the execution itself.
    fn index_execution(&mut self) {
        let due = match self.phase {
            Phase::Running => self.created.expire_time.map(|time| (time, Timer::Execution, None)),
            Phase::WindingDown => {
                self.wind_down.as_ref().map(|wind_down| (wind_down.give_up_time, Timer::GiveUp, None))
            }
            Phase::Succeeded | Phase::Failed | Phase::Cancelled | Phase::TimedOut | Phase::Terminated => None,
        };
        if let Some(due) = due {
            self.indexes.timers.insert(due);
        }
    }
}

fn expect_task(unit: &mut UnitState) -> &mut Task {
    unit.task.as_mut().expect("only a scheduled task is dispatched, and only a dispatched one fails")
}

fn scheduled(unit: &mut UnitState, attempt: u32, input: Option<&Payload>, time: Timestamp) {
    unit.status = Status::Waiting { since: time };
    match &mut unit.task {
        Some(task) => {
            task.attempt = attempt;
            task.attempt_time = time;
            task.redelivery = false;
        }
        None => unit.task = Some(Box::new(Task::new(input.cloned().unwrap_or_else(Payload::null), time))),
    }
}

fn delivery_ended(unit: &mut UnitState, reason: EndReason, progress: Option<&Payload>, time: Timestamp, running: bool) {
    let sent = match reason {
        EndReason::NotSent => false,
        EndReason::SessionLost | EndReason::NotListed | EndReason::Unregistered | EndReason::Released => true,
    };
    // A task that never left waits on as if nothing had happened, at its old place and with its old queue timeout.
    let since = if let (Status::Out(out), false) = (unit.status, sent) { out.since } else { time };
    unit.status = if running { Status::Waiting { since } } else { Status::Spent };
    let task = expect_task(unit);
    task.keep_progress(progress);
    if sent {
        task.lost += 1;
        task.redelivery = true;
    }
}
