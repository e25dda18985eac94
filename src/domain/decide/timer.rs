//! Does what time has made due.
//!
//! - Each timer is its unit's own and names its attempt by the unit's status: what a unit has left behind never fires.
//! - What was due earlier comes first; at the same instant the order of [`Timer`] decides. All events get the time of
//!   the wake-up, however late it is.

use super::Decision;
use crate::domain::state::{Due, Timer, UnitKey, attempts_of, task_of};
use crate::domain::{Cause, DeliveryRef, EndReason, EventKind, Outcome, Payload, code};
use std::collections::HashSet;

impl Decision<'_> {
    /// Does all that is due, as far as one decision goes. A wake-up that finds nothing due writes `Woke`, which is what
    /// moves the execution's stored wake-up time; not where checks that are too early leave something due.
    pub(super) fn wake(&mut self, held: Vec<DeliveryRef>, early: Vec<DeliveryRef>) -> Outcome {
        if self.state.is_closed() && !self.state.has_pending() {
            return Outcome::Done;
        }
        let held: HashSet<DeliveryRef> = held.into_iter().collect();
        let early: HashSet<DeliveryRef> = early.into_iter().collect();
        self.settle();
        while self.has_room() {
            let Some((_, timer, key)) = self.state.due(self.now).find(|due| !self.is_early(due, &early)) else {
                break;
            };
            self.fire(timer, key, &held);
            self.settle();
        }
        if self.events.is_empty() && early.is_empty() {
            self.emit(EventKind::Woke);
        }
        Outcome::Done
    }

    fn is_early(&self, due: &Due, early: &HashSet<DeliveryRef>) -> bool {
        let (_, timer, key) = *due;
        timer == Timer::Check
            && key.and_then(|key| self.state.delivery_out(key)).is_some_and(|delivery| early.contains(&delivery))
    }

    fn fire(&mut self, timer: Timer, key: Option<UnitKey>, held: &HashSet<DeliveryRef>) {
        match (timer, key) {
            (Timer::Execution, _) => {
                self.start_wind_down(Cause::Timeout, None);
            }
            // That time has come is all that there is to say; whoever drives effects sees to them.
            (Timer::Begin | Timer::Effects, _) => {
                self.emit(EventKind::Woke);
            }
            (timer, Some(key)) => self.fire_of_unit(timer, key, held),
            (timer, None) => unreachable!("{timer:?} is a timer of a unit"),
        }
    }

    fn fire_of_unit(&mut self, timer: Timer, key: UnitKey, held: &HashSet<DeliveryRef>) {
        let definition = self.state.definition().clone();
        let task = task_of(definition.step(key.step));
        let attempts = attempts_of(definition.step(key.step));
        let span = |span: Option<std::time::Duration>| span.unwrap_or_default();
        match timer {
            Timer::Total => {
                let message =
                    format!("not done within {:?}", span(attempts.and_then(|attempts| attempts.total_timeout)));
                self.fail_unit_with(key, code::TOTAL_TIMEOUT, message);
            }
            Timer::Delivery => {
                let message = format!("no result within {:?}", span(attempts.and_then(|attempts| attempts.timeout)));
                self.attempt_timed_out(key, code::TIMEOUT, message, None);
            }
            Timer::Check => self.first_check(key, held),
            Timer::Queue => {
                let message = format!("no worker within {:?}", span(task.and_then(|task| task.queue_timeout)));
                self.fail_unit_with(key, code::QUEUE_TIMEOUT, message);
            }
            Timer::Retry => self.schedule_next_attempt(key),
            Timer::Sleep => self.succeed(key, Payload::null(), None),
            Timer::Await => self.fail_unit_with(key, code::AWAIT_TIMEOUT, "no signal came in time"),
            Timer::GiveUp => self.give_up(key),
            Timer::Execution | Timer::Begin | Timer::Effects => {
                unreachable!("{timer:?} is no timer of a unit")
            }
        }
    }

    /// Looks for a delivery for the first time: its session watches it from now on, or it is lost.
    ///
    /// With a `heartbeat_timeout` shorter than the session timeout it is the missing beat that is noticed, which fails
    /// the attempt.
    fn first_check(&mut self, key: UnitKey, held: &HashSet<DeliveryRef>) {
        let Some(reference) = self.state.delivery_out(key) else { return };
        if held.contains(&reference) {
            self.emit(EventKind::TaskHeld { unit: reference.unit, delivery: reference.delivery });
            return;
        }
        let dispatch_time = self.state.unit(key).out().map(|(out, _)| out.dispatch_time);
        let beat_due =
            self.state.heartbeat_timeout(&reference).zip(dispatch_time).map(|(timeout, time)| time + timeout);
        if beat_due.is_some_and(|due| due <= self.now) {
            self.beat_missed(key, None);
        } else {
            self.delivery_lost(key, EndReason::NotListed, None);
        }
    }

    /// Gives up a delivery that is still out although its unit should stop.
    fn give_up(&mut self, key: UnitKey) {
        let unit = self.name(key);
        self.emit(EventKind::StepCancelled { unit });
    }
}
