//! From one run to the next.
//!
//! A run begins as an execution does, with what the runs before have left to it: nothing else of them stays in memory.

use super::course::Course;
use super::unit::Status;
use super::{Phase, State, UnitKey, requests, signals};
use crate::domain::definition::{Definition, OnError, StepIndex};
use crate::domain::{AcceptedReport, Created, Event, EventKind, Payload, RunStart, StepEnd, StepResult};
use std::sync::Arc;

impl State {
    /// The state after the first event of an execution, or of a run.
    ///
    /// # Panics
    /// If the event is neither `ExecutionCreated` nor `RunStarted`, which would be a fault of the caller's.
    #[must_use]
    pub fn begin(definition: Arc<Definition>, event: &Event) -> Self {
        let (created, start) = if let EventKind::ExecutionCreated(created) = &event.kind {
            (created.clone(), None)
        } else if let EventKind::RunStarted(start) = &event.kind {
            (Box::new(start.created.clone()), Some(start))
        } else {
            panic!("an execution begins with ExecutionCreated or RunStarted, not with {:?}", event.kind);
        };
        let mut state = Self::new(definition, created, event);
        match start {
            Some(start) => state.take_over(start),
            None => state.take_results(),
        }
        state.remember_request(event);
        state.rebuild_indexes();
        state.set_look(event.time, false);
        state
    }

    /// Whether it begins with this event, which is then no other's follower.
    #[must_use]
    pub fn begins_with(event: &Event) -> bool {
        event.number == 1 || matches!(event.kind, EventKind::RunStarted(_))
    }

    /// Whether a run has ended and the next one has not begun. It begins before anything else is decided.
    #[must_use]
    pub fn is_between_runs(&self) -> bool {
        self.phase == Phase::Running && self.course.next_input.is_some()
    }

    /// What the next run begins with; nothing unless it is due.
    pub(in crate::domain) fn next_run(&self) -> Option<RunStart> {
        let input = self.course.next_input.clone().filter(|_| self.phase == Phase::Running)?;
        let run = self.created.run + 1;
        let (begin_time, results) = (None, Vec::new());
        let created = Created { run, input, begin_time, results, ..(*self.created).clone() };
        let mut course = self.course.clone();
        for (unit, reports) in self.newest_reports() {
            course.keep_reports(&unit, &reports);
        }
        Some(RunStart {
            created,
            start_time: self.start_time,
            signals: self.signals.untaken().collect(),
            calls: self.requests.remembered().collect(),
            senders: self.senders.remembered().collect(),
            abandoned: self.effects.abandoned.values().cloned().collect(),
            deliveries: course.deliveries,
            reports: course.reports.into(),
        })
    }

    /// What the run's units had accepted, the unit that ended last last.
    fn newest_reports(&self) -> Vec<(Arc<str>, std::collections::VecDeque<super::Report>)> {
        let reports = |key: UnitKey| {
            let unit = self.unit(key);
            let task = unit.task.as_deref().filter(|task| !task.reports.is_empty())?;
            Some((unit.end_number, self.name(key), task.reports.clone()))
        };
        let mut all: Vec<_> = self.units.keys().into_iter().filter_map(reports).collect();
        all.sort_by_key(|(end_number, _, _)| *end_number);
        all.into_iter().map(|(_, unit, reports)| (unit, reports)).collect()
    }

    /// A run ended, and the next one begins with this input.
    pub(super) fn end_run(&mut self, key: UnitKey, input: Payload, number: u64) {
        self.change(key, |unit| unit.end(Status::Succeeded, number));
        self.course.next_input = Some(input);
    }

    /// The next run begins. The journal of waiting units goes on; nothing waited.
    pub(super) fn begin_run(&mut self, event: &Event) {
        let ready = std::mem::take(&mut self.indexes.ready);
        *self = Self::begin(self.definition.clone(), event);
        self.indexes.ready = ready;
    }

    /// Takes over what the runs before have left.
    fn take_over(&mut self, start: &RunStart) {
        self.start_time = start.start_time;
        self.course = Course::new(self.last_number, self.last_time, start.deliveries);
        self.course.reports = start.reports.iter().cloned().collect::<std::collections::VecDeque<AcceptedReport>>();
        for unit in &mut self.units.steps {
            unit.first_delivery = start.deliveries;
        }
        for signal in &start.signals {
            self.signals.insert(signal.number, signals::Signal::of(signal));
        }
        for sender in &start.senders {
            self.remember_sender(sender.request.key, sender.number, sender.time);
        }
        for abandoned in &start.abandoned {
            self.effects.abandoned.insert(abandoned.child.id.clone(), abandoned.clone());
        }
        for call in &start.calls {
            let (number, time, content) = (call.number, call.time, call.request.content);
            self.requests.insert(call.request.key, requests::Remembered { number, time, content });
        }
    }

    /// Takes over what steps gave in the execution that this one repeats.
    fn take_results(&mut self) {
        for StepResult { step, end } in std::mem::take(&mut self.created.results) {
            let Some(index) = self.definition.find(&step) else { continue };
            let unit = &mut self.units.steps[index.position()];
            unit.given = true;
            match &end {
                StepEnd::Succeeded(output) => {
                    unit.status = Status::Succeeded;
                    unit.output = Some(output.clone());
                }
                StepEnd::Failed(failure) => {
                    unit.status = Status::Failed;
                    unit.failure = Some(Box::new(failure.clone()));
                }
                StepEnd::Skipped(_) => unit.status = Status::Skipped,
            }
        }
        let steps: Vec<StepIndex> = self.definition.indexed().map(|(step, _)| step).collect();
        for step in steps {
            let blockers = self.blockers_of(step);
            self.units.steps[step.position()].blockers = blockers;
        }
    }

    /// How many steps hold a step back, as all of them stand.
    pub(super) fn blockers_of(&self, step: StepIndex) -> u32 {
        let holds = |need: &&StepIndex| {
            let lets_go = match self.units.steps[need.position()].status {
                Status::Succeeded | Status::Skipped => true,
                Status::Failed => self.step(**need).on_error == OnError::Continue,
                Status::Pending { .. }
                | Status::Waiting { .. }
                | Status::Out(_)
                | Status::BackingOff { .. }
                | Status::Spent
                | Status::Sleeping { .. }
                | Status::FanOut { .. }
                | Status::Awaiting { .. }
                | Status::Child(_)
                | Status::Sending { .. }
                | Status::Cancelled => false,
            };
            !lets_go
        };
        let blockers = self.step(step).needs.iter().filter(holds).count();
        u32::try_from(blockers).expect("a definition has at most 10,000 steps")
    }
}
