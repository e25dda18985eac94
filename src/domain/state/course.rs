//! What an execution keeps beside its units: whether it is held, which run and which generation it is in.
//!
//! - A pause is a flag of a running execution: nothing begins, and what waits for time alone waits; what workers have goes
//!   on. Whatever ends the running lifts it.
//! - Deliveries are numbered on over runs and generations, so that a report of an older one is known as such; the newest
//!   accepted reports of units that are no more are kept, to know their repeats.

use super::unit::{Report, Status, UnitState};
use super::{Phase, State, UnitKey};
use crate::domain::{AcceptedReport, DeliveryRef, Payload, Timestamp};
use std::{collections::VecDeque, sync::Arc};

/// Accepted reports of units that are no more which are remembered, the newest.
const REPORTS_MAX: usize = 100;

/// What an execution keeps beside its units.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Course {
    /// What holds it.
    pub(super) pause: Option<Pause>,
    /// Input of the next run, once this one has ended for it.
    pub(super) next_input: Option<Payload>,
    /// Newest generation of units, from 1.
    pub(super) generation: u32,
    /// Number of the first event that counts against the longest history: the run's first, or that which had it run again.
    pub(super) history_from: u64,
    /// When that happened: since then what has not begun waits for its turn.
    pub(super) begin_time: Timestamp,
    /// Newest delivery of any unit.
    pub(super) deliveries: u32,
    /// Accepted reports of units that are no more, oldest first.
    pub(super) reports: VecDeque<AcceptedReport>,
}

/// What holds an execution.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pause {
    /// Number of the event that did.
    pub(super) number: u64,
    /// When it did.
    pub(super) time: Timestamp,
    /// Why; may be empty.
    pub(super) reason: Arc<str>,
}

impl Course {
    /// The course of an execution that begins with the event of this number and time, or of a run after so many
    /// deliveries.
    pub(super) fn new(history_from: u64, begin_time: Timestamp, deliveries: u32) -> Self {
        let reports = VecDeque::new();
        Self { pause: None, next_input: None, generation: 1, history_from, begin_time, deliveries, reports }
    }

    /// Keeps the accepted reports of a unit that is about to be no more.
    pub(super) fn keep_reports(&mut self, unit: &Arc<str>, reports: &VecDeque<Report>) {
        for Report { delivery, hash } in reports {
            self.reports.push_back(AcceptedReport { unit: unit.clone(), delivery: *delivery, hash: *hash });
        }
        let surplus = self.reports.len().saturating_sub(REPORTS_MAX);
        self.reports.drain(..surplus);
    }
}

impl State {
    /// Whether a pause holds it.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.phase == Phase::Running && self.course.pause.is_some()
    }

    /// Number of the event that paused it, while it is paused.
    pub(in crate::domain) fn pause_number(&self) -> Option<u64> {
        self.course.pause.as_ref().map(|pause| pause.number)
    }

    /// Events of the newest run, or since it was last taken up again: what [`Settings::history_events_max`] bounds.
    ///
    /// [`Settings::history_events_max`]: crate::domain::Settings::history_events_max
    #[must_use]
    pub fn history_events(&self) -> u64 {
        self.last_number + 1 - self.course.history_from
    }

    /// When the first step begins, where the start was delayed.
    #[must_use]
    pub fn begin_time(&self) -> Option<Timestamp> {
        self.created.begin_time
    }

    /// Whether nothing begins, since it is paused or its start is delayed.
    pub(in crate::domain) fn is_held(&self) -> bool {
        self.is_paused() || self.is_delayed()
    }

    /// Whether it runs and its first step must not begin yet. The newest event's time tells, so that its history does.
    pub(super) fn is_delayed(&self) -> bool {
        self.phase == Phase::Running && self.created.begin_time.is_some_and(|time| self.last_time < time)
    }

    /// The newest generation of units, from 1.
    pub(in crate::domain) fn generation(&self) -> u32 {
        self.course.generation
    }

    /// Whether a report of a unit that is no more was accepted.
    pub(in crate::domain) fn was_accepted(&self, delivery: &DeliveryRef, hash: [u8; 16]) -> bool {
        let is_same = |report: &AcceptedReport| report.delivery == delivery.delivery && report.unit == delivery.unit;
        self.course.reports.iter().any(|report| report.hash == hash && is_same(report))
    }

    /// Holds it.
    pub(super) fn pause(&mut self, pause: Pause) {
        self.change_all(Some(pause), |_| {});
    }

    /// Lets it go on. What waits for a worker waits anew, as far as its `queue_timeout` goes.
    pub(super) fn resume(&mut self, time: Timestamp) {
        self.change_all(None, |unit| match &mut unit.status {
            Status::Waiting { since } => *since = time,
            Status::Out(out) => out.since = time,
            Status::Pending { .. }
            | Status::BackingOff { .. }
            | Status::Spent
            | Status::Sleeping { .. }
            | Status::FanOut { .. }
            | Status::Awaiting { .. }
            | Status::Child(_)
            | Status::Sending { .. }
            | Status::Succeeded
            | Status::Failed
            | Status::Skipped
            | Status::Cancelled => {}
        });
    }

    /// Timers and waiting units depend on a pause, so every unit leaves the indexes under the old one and enters them under
    /// the new.
    fn change_all(&mut self, pause: Option<Pause>, change: impl Fn(&mut UnitState)) {
        let keys = self.units.keys();
        for key in &keys {
            self.unindex(*key);
        }
        self.course.pause = pause;
        for key in keys {
            change(self.units.entry(key));
            self.index(key);
        }
    }

    /// Makes a unit as if it had never begun, in the newest generation.
    pub(super) fn renew(&mut self, key: UnitKey, blockers: u32) {
        let unit = self.units.entry(key);
        let old = std::mem::replace(unit, UnitState::new(blockers));
        (unit.generation, unit.first_delivery) = (self.course.generation, self.course.deliveries);
        if let Some(task) = old.task {
            let name = key.name(&self.definition);
            self.course.keep_reports(&name, &task.reports);
        }
    }
}
