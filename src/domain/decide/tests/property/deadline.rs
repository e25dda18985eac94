//! The next instant at which something is due, worked out from the events.

use super::*;
use crate::domain::definition::TaskStep;
use crate::domain::state::attempts_of;

/// What a unit waits for that time brings.
#[derive(Clone, Copy, PartialEq)]
enum What {
    /// A worker, for a `queue_timeout`.
    Worker,
    /// Its next attempt, or the end of its sleep.
    Turn,
    /// The first look for a delivery.
    Check,
    /// Anything that a pause does not hold.
    Other,
}

/// What is due when.
#[derive(Default)]
pub(super) struct Deadlines {
    read: usize,
    timers: BTreeMap<Unit, Vec<(What, Timestamp)>>,
    /// When all attempts of a unit have taken too long.
    totals: BTreeMap<Unit, Timestamp>,
    /// What a unit waited for before it was handed out.
    waited: BTreeMap<Unit, Vec<(What, Timestamp)>>,
    /// Units with a delivery, or a signal, that is out.
    out: BTreeSet<Unit>,
    is_paused: bool,
    give_up_time: Option<Timestamp>,
    is_closed: bool,
    begin_time: Option<Timestamp>,
}

impl Deadlines {
    /// Reads on, and compares with what the state says.
    pub(super) fn read(&mut self, run: &Run) {
        for event in &run.log[self.read..] {
            self.event(run, event);
        }
        self.read = run.log.len();
        if run.state.work_due_now() {
            return;
        }
        let (expected, given) = (self.expected(run), run.state.deadline());
        let pauses = |given: Timestamp| given <= run.state.last_time() + Duration::from_secs(600);
        let is_look = run.state.has_pending() && given.is_some_and(pauses);
        let is_early = is_look && (expected.is_none() || given < expected);
        hold("the wake-up time is that of what is due next", is_early || given == expected, || {
            format!("{given:?}, and not {expected:?}: {:#?}", run.lines())
        });
    }

    fn expected(&self, run: &Run) -> Option<Timestamp> {
        if self.is_closed {
            return None;
        }
        let is_held = |what: What| self.is_paused && matches!(what, What::Worker | What::Turn);
        let timers = self.timers.values().flatten().filter(|(what, _)| !is_held(*what)).map(|(_, time)| *time);
        let is_main = |unit: &Unit| lifetime_of(run, unit) == Lifetime::Forward;
        let own = match self.give_up_time {
            Some(time) => Some(time).filter(|_| self.out.iter().any(is_main)),
            None => run.state.expire_time(),
        };
        let begins = self.begin_time.filter(|time| run.state.last_time() < *time && self.give_up_time.is_none());
        timers.chain(self.totals.values().copied()).chain(own).chain(begins).min()
    }

    fn event(&mut self, run: &Run, event: &Event) {
        let step = |unit: &Unit| run.definition.step(step_of(run, unit));
        let task = |unit: &Unit| -> Option<&TaskStep> { step(unit).action.as_task() };
        let queue = |unit: &Unit| {
            let span = task(unit).and_then(|task| task.queue_timeout);
            span.map(|span| (What::Worker, event.time + span)).into_iter().collect::<Vec<_>>()
        };
        let other = |time: &Option<Timestamp>| time.map(|time| (What::Other, time));
        match &event.kind {
            EventKind::ExecutionCreated(created) => self.begin_time = created.begin_time,
            EventKind::StepScheduled { unit, attempt, .. } => {
                self.first(run, unit, *attempt, event.time);
                self.timers.insert(unit.clone(), queue(unit));
            }
            EventKind::ChildRequested { unit, attempt, expire_time, .. } => {
                self.first(run, unit, *attempt, event.time);
                self.timers.insert(unit.clone(), other(expire_time).into_iter().collect());
            }
            EventKind::StepDispatched { unit, check_time, expire_time, .. } => {
                let timers = other(expire_time).into_iter().chain([(What::Check, *check_time)]).collect();
                let before = self.timers.insert(unit.clone(), timers);
                self.waited.insert(unit.clone(), before.unwrap_or_default());
                self.out.insert(unit.clone());
            }
            EventKind::TaskHeld { unit, .. } => {
                self.timers.entry(unit.clone()).or_default().retain(|(what, _)| *what != What::Check);
            }
            EventKind::DeliveryEnded { unit, reason, .. } => {
                let waited = self.waited.remove(unit).unwrap_or_default();
                let waits = if *reason == EndReason::NotSent { waited } else { queue(unit) };
                let stops = self.give_up_time.is_some() && lifetime_of(run, unit) == Lifetime::Forward;
                self.timers.insert(unit.clone(), if stops { vec![] } else { waits });
                self.out.remove(unit);
            }
            EventKind::AttemptFailed { unit, retry_time, .. } => {
                let next = retry_time.map(|time| (What::Turn, time));
                self.timers.insert(unit.clone(), next.into_iter().collect());
                self.out.remove(unit);
            }
            EventKind::SleepStarted { unit, wake_time } => {
                self.timers.insert(unit.clone(), vec![(What::Turn, *wake_time)]);
            }
            EventKind::AwaitStarted { unit, expire_time } => {
                self.timers.insert(unit.clone(), other(expire_time).into_iter().collect());
            }
            EventKind::SignalRequested { unit, .. } => {
                self.out.insert(unit.clone());
            }
            EventKind::StepSucceeded { unit, .. }
            | EventKind::StepFailed { unit, .. }
            | EventKind::StepSkipped { unit, .. }
            | EventKind::StepCancelled { unit } => {
                self.timers.remove(unit);
                self.totals.remove(unit);
                self.out.remove(unit);
            }
            EventKind::WindDownStarted { give_up_time, .. } => {
                self.give_up_time = Some(*give_up_time);
                self.is_paused = false;
                self.totals.clear();
                let out = &self.out;
                self.timers.retain(|unit, _| out.contains(unit));
            }
            EventKind::ExecutionSucceeded { .. }
            | EventKind::ExecutionFailed { .. }
            | EventKind::ExecutionCancelled
            | EventKind::ExecutionTimedOut
            | EventKind::ExecutionTerminated { .. } => self.is_closed = true,
            EventKind::ExecutionPaused { .. } => self.is_paused = true,
            EventKind::ExecutionResumed => {
                self.is_paused = false;
                for timers in [&mut self.timers, &mut self.waited] {
                    for (unit, timers) in timers.iter_mut().filter(|(_, timers)| !timers.is_empty()) {
                        if timers.iter().any(|(what, _)| *what == What::Worker) {
                            *timers = queue(unit);
                        }
                    }
                }
            }
            EventKind::RunStarted(_) | EventKind::ExecutionReopened { .. } => {
                *self = Self { read: self.read, ..Self::default() };
            }
            EventKind::SignalReceived { .. }
            | EventKind::SignalExpired { .. }
            | EventKind::LateSuccess { .. }
            | EventKind::ChildStarted { .. }
            | EventKind::ChildCancelSent { .. }
            | EventKind::ParentTold
            | EventKind::DeletionBegan
            | EventKind::FanOutStarted { .. }
            | EventKind::FanOutEnded { .. }
            | EventKind::ContinuedAsNew { .. }
            | EventKind::EventTaken { .. }
            | EventKind::Woke => {}
        }
    }

    /// What a first attempt brings with it.
    fn first(&mut self, run: &Run, unit: &Unit, attempt: u32, time: Timestamp) {
        let total = attempts_of(run.definition.step(step_of(run, unit))).and_then(|attempts| attempts.total_timeout);
        if let (1, Some(total)) = (attempt, total) {
            self.totals.insert(unit.clone(), time + total);
        }
    }
}
