//! What each event does to the state.

use super::course::{Course, Pause};
use super::fan_out::Group;
use super::index::Indexes;
use super::unit::{ChildRef, ChildWait, Out, RELEASE_HASH, Remote, Sending, Status, Task, UnitState};
use super::units::Units;
use super::{Phase, State, UnitKey, WindDown, requests, signals};
use crate::domain::definition::{Definition, Lifetime, OnError, Role, StepIndex};
use crate::domain::{Cause, Created, EndReason, Event, EventKind, Payload, Timestamp};
use std::{collections::BTreeMap, sync::Arc};

impl State {
    /// The state before the first event has been taken over.
    pub(super) fn new(definition: Arc<Definition>, created: Box<Created>, event: &Event) -> Self {
        let blockers = |needs: &[StepIndex]| u32::try_from(needs.len()).expect("a definition has at most 10,000 steps");
        let steps = definition.steps.iter().map(|step| UnitState::new(blockers(&step.needs))).collect();
        Self {
            definition,
            created,
            start_time: event.time,
            last_number: event.number,
            last_time: event.time,
            phase: Phase::Running,
            deleting: false,
            wind_down: None,
            close_time: None,
            output: None,
            terminate_reason: None,
            end_failure: None,
            course: Course::new(event.number, event.time, 0),
            units: Units { steps, ..Units::default() },
            handlers: BTreeMap::new(),
            signals: signals::Signals::default(),
            requests: requests::Requests::default(),
            senders: requests::Requests::default(),
            effects: super::effects::Effects::default(),
            indexes: Indexes::default(),
        }
    }

    /// Applies the next event.
    ///
    /// # Panics
    /// If the event's number does not follow the newest one's, or it speaks of a unit that the definition does not
    /// have: then the history is not this execution's.
    pub fn evolve(&mut self, event: &Event) {
        assert_eq!(event.number, self.last_number + 1, "events are applied in order, without gaps");
        debug_assert!(event.time >= self.last_time, "time never goes back");
        debug_assert!(!self.is_closed() || event.kind.follows_close(), "it is closed: {:?}", event.kind);
        let was_delayed = self.is_delayed();
        self.last_number = event.number;
        self.last_time = event.time;
        if let (true, false, Some(begins)) = (was_delayed, self.is_delayed(), self.begin_timer()) {
            self.indexes.timers.remove(&begins);
        }
        self.remember_request(event);
        self.apply(event);
        self.set_look(event.time, matches!(event.kind, EventKind::Woke));
    }

    fn apply(&mut self, event: &Event) {
        let time = event.time;
        match &event.kind {
            EventKind::ExecutionCreated(_) => panic!("an execution is created once"),
            EventKind::StepScheduled { unit, attempt, input } => {
                let key = self.begun(unit);
                self.change(key, |unit| scheduled(unit, *attempt, input.as_ref(), time));
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
                self.course.deliveries = self.course.deliveries.max(*delivery);
            }
            EventKind::TaskHeld { unit, delivery } => {
                self.change(self.named(unit), |unit| {
                    if let (true, Status::Out(out)) = (unit.is_current(*delivery), &mut unit.status) {
                        out.held = true;
                    }
                });
            }
            EventKind::DeliveryEnded { unit, reason, progress, delivery } => {
                let key = self.named(unit);
                let is_live = self.is_live(key.step);
                self.change(key, |unit| {
                    delivery_ended(unit, *reason, progress.as_ref(), time, is_live);
                    if *reason == EndReason::Released {
                        expect_task(unit).remember(*delivery, Some(RELEASE_HASH));
                    }
                });
            }
            EventKind::AttemptFailed { unit, delivery, failure, retry_time, progress, report, attempt: _ } => {
                let key = self.named(unit);
                if report.is_none() {
                    // The child, if it is one, may still run.
                    self.abandon_child(key);
                }
                self.change(key, |unit| {
                    unit.status = match *retry_time {
                        Some(retry_time) => Status::BackingOff { since: time, retry_time },
                        None => Status::Spent,
                    };
                    unit.failure = Some(Box::new(failure.clone()));
                    unit.unknown |= report.is_none();
                    let task = expect_task(unit);
                    task.keep_progress(progress.as_ref());
                    task.remember(*delivery, *report);
                });
            }
            EventKind::StepSucceeded { unit, output, delivery, signal_number, report } => {
                if let Some(number) = signal_number {
                    self.signals.take(*number);
                }
                let (key, number) = (self.begun(unit), event.number);
                self.change(key, |unit| {
                    unit.end(Status::Succeeded, number);
                    unit.output = Some(output.clone());
                    unit.failure = None;
                    if let Some(task) = &mut unit.task {
                        task.remember(*delivery, *report);
                    }
                });
                self.let_dependents_go_on(key);
            }
            EventKind::StepFailed { unit, failure } => {
                let (key, number) = (self.begun(unit), event.number);
                self.abandon_child(key);
                self.change(key, |unit| {
                    // Whoever had it has not said what came of it: all attempts together took too long.
                    unit.unknown |= unit.attempt_out().is_some();
                    unit.end(Status::Failed, number);
                    unit.failure = Some(Box::new(failure.clone()));
                });
                match self.step(key.step).on_error {
                    OnError::Continue => self.let_dependents_go_on(key),
                    // The wind-down follows in the same decision; in a handler, those that need it never begin.
                    OnError::Fail => {}
                }
            }
            EventKind::StepSkipped { unit, reason: _ } => {
                let (key, number) = (self.named(unit), event.number);
                self.change(key, |unit| unit.end(Status::Skipped, number));
                self.let_dependents_go_on(key);
            }
            EventKind::StepCancelled { unit } => {
                let (key, number) = (self.named(unit), event.number);
                self.abandon_child(key);
                self.change(key, |unit| {
                    unit.unknown |= unit.may_be_done_elsewhere();
                    unit.end(Status::Cancelled, number);
                });
            }
            EventKind::FanOutStarted { unit, items } => {
                let key = self.named(unit);
                let group = Group::new(items.clone());
                self.indexes.text_bytes += group.bytes();
                self.units.groups.insert(key.step, group);
                self.change(key, |unit| unit.status = Status::FanOut { since: time });
            }
            EventKind::FanOutEnded { unit } => {
                let (key, number) = (self.named(unit), event.number);
                let output = self.join(key.step);
                self.change(key, |unit| {
                    unit.end(Status::Succeeded, number);
                    unit.output = Some(output);
                });
                self.let_dependents_go_on(key);
            }
            EventKind::SleepStarted { unit, wake_time } => {
                let key = self.begun(unit);
                self.change(key, |unit| unit.status = Status::Sleeping { since: time, wake_time: *wake_time });
            }
            EventKind::AwaitStarted { unit, expire_time } => {
                let (expire_time, number) = (*expire_time, event.number);
                let key = self.begun(unit);
                self.change(key, |unit| unit.status = Status::Awaiting { since: time, expire_time, number });
            }
            EventKind::SignalReceived { name, payload, expire_time, sender, handler } => {
                if let Some(sender) = sender {
                    self.remember_sender(*sender, event.number, time);
                }
                let (name, payload, handler) = (name.clone(), payload.clone(), handler.clone());
                let expire_time = *expire_time;
                self.signals.insert(event.number, signals::Signal { name, payload, expire_time, handler });
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
            EventKind::ExecutionFailed { failure } => {
                self.end_failure = Some(failure.clone()).filter(|failure| self.failure() != Some(failure));
                self.close(Phase::Failed, time);
            }
            EventKind::ExecutionCancelled => self.close(Phase::Cancelled, time),
            EventKind::ExecutionTimedOut => self.close(Phase::TimedOut, time),
            EventKind::ExecutionTerminated { reason } => {
                self.terminate_reason = Some(reason.clone());
                self.close(Phase::Terminated, time);
            }
            EventKind::Woke => {}
            EventKind::DeletionBegan => self.deleting = true,
            EventKind::ExecutionPaused { reason } => {
                self.pause(Pause { number: event.number, time, reason: reason.clone() })
            }
            EventKind::ExecutionResumed => self.resume(time),
            EventKind::ContinuedAsNew { unit, input } => {
                self.end_run(self.named(unit), input.clone(), event.number);
            }
            EventKind::RunStarted(_) => self.begin_run(event),
            EventKind::ExecutionReopened { steps, generation, expire_time } => {
                self.reopen(steps, *generation, *expire_time);
            }
            EventKind::EventTaken { unit, signal_number } => self.take_event(self.named(unit), *signal_number),
            EventKind::ChildRequested { unit, attempt, input, child_id, expire_time } => {
                let (key, expire_time) = (self.begun(unit), *expire_time);
                self.change(key, |unit| {
                    begin_attempt(unit, *attempt, input.as_ref(), time);
                    unit.remote = Some(Box::new(Remote::Child(ChildRef { id: child_id.clone(), uid: None })));
                    unit.status = Status::Child(ChildWait { expire_time, start_time: None, cancel_sent: false });
                });
            }
            EventKind::ChildStarted { unit, attempt: _, child_uid } => {
                let key = self.named(unit);
                self.change(key, |unit| {
                    if let Some(Remote::Child(child)) = unit.remote.as_deref_mut() {
                        child.uid = Some(*child_uid);
                    }
                    if let Status::Child(wait) = &mut unit.status {
                        wait.start_time = Some(time);
                    }
                });
                self.bring_up_signals_to(key);
            }
            EventKind::ChildCancelSent { unit, attempt: _, child_id } => self.cancel_was_sent(unit, child_id),
            EventKind::ParentTold => {
                self.effects.is_parent_told = true;
                self.index_tell();
            }
            EventKind::SignalRequested { unit, recipient, name, payload } => {
                let (key, number) = (self.begun(unit), event.number);
                let sending = Sending { recipient: recipient.clone(), name: name.clone(), payload: payload.clone() };
                self.change(key, |unit| {
                    unit.remote = Some(Box::new(Remote::Recipient(sending)));
                    unit.status = Status::Sending { since: time, number };
                });
            }
        }
    }

    /// The unit of this name, which has begun or is a step's own.
    pub(super) fn named(&self, unit: &str) -> UnitKey {
        UnitKey::parse(&self.definition, unit).unwrap_or_else(|| panic!("the definition has no unit {unit:?}"))
    }

    /// The unit of this name, which begins now or has begun. What it undoes is undone from now on.
    fn begun(&mut self, unit: &str) -> UnitKey {
        let key = self.named(unit);
        if let Role::Compensation { of, .. } = self.step(key.step).role {
            self.change(key.at(of), |unit| unit.undone = true);
        }
        key
    }

    /// Remembers a signal of another execution's step.
    pub(super) fn remember_sender(&mut self, sender: [u8; 16], number: u64, time: Timestamp) {
        self.senders.insert(sender, requests::Remembered { number, time, content: [0; 16] });
        self.senders.forget(time, requests::SENDERS_MEMORY, requests::SENDERS_MAX);
    }

    pub(super) fn remember_request(&mut self, event: &Event) {
        self.requests.forget(event.time, requests::MEMORY, usize::MAX);
        if let Some(request) = event.request {
            let (number, time, content) = (event.number, event.time, request.content);
            self.requests.insert(request.key, requests::Remembered { number, time, content });
        }
    }

    /// A step ended so that what needs it may begin, once nothing else holds it back. An item's end lets nothing go on.
    fn let_dependents_go_on(&mut self, key: UnitKey) {
        if key.item.is_some() || !self.is_live(key.step) {
            return;
        }
        let (definition, time) = (self.definition.clone(), self.last_time);
        for dependent in &definition.step(key.step).dependents {
            self.change(UnitKey::of(*dependent), |unit| unit.let_go(time));
        }
    }

    /// The output of a fan-out, in the order of its items; null for those that failed. What nothing else needs of the
    /// items is dropped.
    fn join(&mut self, step: StepIndex) -> Payload {
        let mut output = String::with_capacity(self.group(step).map_or(0, |group| group.output_bytes));
        let keeps_outputs = self.step(step).compensation.is_some();
        let mut joined = Vec::new();
        output.push('[');
        for (key, unit) in self.units.items_of(step) {
            if output.len() > 1 {
                output.push(',');
            }
            output.push_str(unit.output.as_ref().map_or("null", Payload::as_str));
            joined.push(*key);
        }
        output.push(']');
        if !keeps_outputs {
            for key in joined {
                self.change(key, |unit| unit.output = None);
            }
        }
        Payload::from_json(output)
    }

    /// Drops all that waits; only what somebody else has remains.
    fn start_wind_down(&mut self, cause: Cause, number: u64, give_up_time: Timestamp) {
        let wind_down = WindDown { cause, number, time: self.last_time, give_up_time };
        self.enter(Phase::WindingDown, Some(wind_down), number, |lifetime, status| {
            lifetime == Lifetime::Forward && !status.is_engaged()
        });
    }

    fn close(&mut self, phase: Phase, time: Timestamp) {
        self.close_time = Some(time);
        // What is left to undo, or to handle, has not begun and never will.
        self.enter(phase, self.wind_down.clone(), self.last_number, |lifetime, status| {
            lifetime == Lifetime::Forward || status.is_active()
        });
    }

    /// Enters a phase in which the unresolved units that `dropped` names are cancelled.
    fn enter(
        &mut self,
        phase: Phase,
        wind_down: Option<WindDown>,
        number: u64,
        dropped: impl Fn(Lifetime, Status) -> bool,
    ) {
        let active = self.indexes.active;
        let is_common_end =
            phase.is_closed() && self.indexes.unresolved + active.forward + active.undo + active.handler == 0;
        if is_common_end {
            // Nothing is left to drop, so nothing is gone through. Each phase after RUNNING lifts the pause, here and below.
            (self.phase, self.wind_down, self.course.pause) = (phase, wind_down, None);
            self.indexes.timers.clear();
            self.index_execution();
            return;
        }
        // Timers depend on the phase, so every unit leaves the indexes under the old one and enters them under the new.
        let keys = self.units.keys();
        for key in &keys {
            if dropped(self.step(key.step).role.lifetime(), self.unit(*key).status) {
                self.abandon_child(*key);
            }
        }
        for key in &keys {
            self.unindex(*key);
        }
        (self.phase, self.wind_down, self.course.pause) = (phase, wind_down, None);
        self.indexes.timers.clear();
        self.index_execution();
        for key in keys {
            let lifetime = self.step(key.step).role.lifetime();
            let has_failed = key.item.is_none() && self.group(key.step).is_some_and(|group| group.failed > 0);
            let fails = has_failed && self.step(key.step).on_error == OnError::Fail;
            let unit = self.units.entry(key);
            let status = unit.status;
            if !status.is_resolved() && dropped(lifetime, status) {
                unit.unknown |= unit.may_be_done_elsewhere();
                unit.end(
                    if fails && matches!(status, Status::FanOut { .. }) { Status::Failed } else { Status::Cancelled },
                    number,
                );
            }
            self.index(key);
            if key.item.is_some() && status != self.unit(key).status {
                self.item_changed(key, Some(status), self.unit(key).status);
            }
        }
    }
}

fn expect_task(unit: &mut UnitState) -> &mut Task {
    unit.task.as_mut().expect("only a scheduled task is dispatched, and only a dispatched one fails")
}

fn scheduled(unit: &mut UnitState, attempt: u32, input: Option<&Payload>, time: Timestamp) {
    unit.status = Status::Waiting { since: time };
    begin_attempt(unit, attempt, input, time);
}

fn begin_attempt(unit: &mut UnitState, attempt: u32, input: Option<&Payload>, time: Timestamp) {
    match &mut unit.task {
        Some(task) => {
            task.attempt = attempt;
            task.attempt_time = time;
            task.redelivery = false;
        }
        None => {
            let input = input.cloned().unwrap_or_else(Payload::null);
            unit.task = Some(Box::new(Task::new(input, time, unit.first_delivery)));
        }
    }
}

fn delivery_ended(unit: &mut UnitState, reason: EndReason, progress: Option<&Payload>, time: Timestamp, is_live: bool) {
    let sent = match reason {
        EndReason::NotSent => false,
        EndReason::SessionLost | EndReason::NotListed | EndReason::Unregistered | EndReason::Released => true,
    };
    // A task that never left waits on as if nothing had happened, at its old place and with its old queue timeout.
    let since = if let (Status::Out(out), false) = (unit.status, sent) { out.since } else { time };
    unit.status = if is_live { Status::Waiting { since } } else { Status::Spent };
    let task = expect_task(unit);
    task.keep_progress(progress);
    if sent {
        task.lost += 1;
        task.redelivery = true;
        unit.unknown = true;
    }
}
