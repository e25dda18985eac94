//! Decides what happens to tasks: hand-out, reports, lost deliveries, retries.
//!
//! - A success counts from any token of an unresolved unit; a failure, a beat, a hold or an end only from the delivery
//!   that is out. A result that breaks its contract fails only the attempt that sent it.
//! - A repeat of an accepted report adds no event, also after the close; what a resolved unit or a closed execution is
//!   told changes nothing, but a late success is recorded once a delivery while the execution is open.
//! - A delivery that ends without a report has an unknown outcome: the same attempt waits again at its old place. Only a
//!   task that never left the server is not counted.
//! - A success that comes after its unit was given up, but before its undo began, counts too: then there is an output to
//!   undo by.
//! - While the execution winds down, whatever ends a delivery of its run without success cancels its unit.

use super::Decision;
use crate::domain::state::{RELEASE_HASH, Report, Status, UnitKey, attempts_of, task_of};
use crate::domain::{
    Claimant, Delivery, DeliveryRef, EndReason, EventKind, ExecutionId, Failure, Outcome, Payload, RefusalReason,
    Rejection, ReportOutcome, Timestamp, Unit, code, digest16, idempotency_key,
};
use std::time::Duration;

/// Room in a message for all of a task but its payloads. Well below the smallest message that a worker may name.
const MESSAGE_OVERHEAD: usize = 16 * 1024;

/// What a worker says of its failure.
pub(super) struct FailureReport {
    pub(super) failure: Failure,
    pub(super) retryable: bool,
    pub(super) retry_after: Option<Duration>,
    pub(super) progress: Option<Payload>,
}

impl FailureReport {
    /// Names the report's content; progress is not part of it, since it may be the server's own newest.
    fn hash(&self) -> [u8; 16] {
        let details = self.failure.details.as_ref().map_or("", Payload::as_str);
        let retry_after =
            self.retry_after.map_or(u64::MAX, |after| u64::try_from(after.as_micros()).unwrap_or(u64::MAX));
        digest16(&[
            b"fail",
            self.failure.code.as_bytes(),
            self.failure.message.as_bytes(),
            details.as_bytes(),
            &[u8::from(self.retryable)],
            &retry_after.to_le_bytes(),
        ])
    }
}

impl Decision<'_> {
    /// Hands a waiting unit to a worker. An input that its message cannot carry fails the step.
    pub(super) fn dispatch(&mut self, unit: Unit, claimant: Claimant) -> Result<Outcome, Rejection> {
        let is_held = self.state.is_held();
        let is_waiting = |key: &UnitKey| !is_held && matches!(self.state.unit(*key).status, Status::Waiting { .. });
        let Some(key) = self.state.find(&unit).filter(is_waiting) else { return Err(Rejection::NotWaiting { unit }) };
        let definition = self.state.definition().clone();
        let step = task_of(definition.step(key.step)).expect("only tasks wait for a worker");
        let task = self.state.unit(key).task.as_deref().expect("a task that waits has an attempt");
        let input = task.input.clone().expect("a task that waits has its input");
        let (attempt, redelivery) = (task.attempt, task.redelivery);
        let generation = self.state.unit(key).generation;
        let (schedule_time, delivery, progress) = (task.attempt_time, task.delivery + 1, task.progress.clone());

        let room = claimant.message_bytes_max.saturating_sub(MESSAGE_OVERHEAD);
        if input.len() > room {
            let message = format!(
                "input of {} bytes does not fit the {} bytes that worker {} takes",
                input.len(),
                claimant.message_bytes_max,
                claimant.worker_id
            );
            self.fail_unit_with(key, code::INPUT_TOO_LARGE, message);
            return Ok(Outcome::Done);
        }
        // Progress is a help, not a part of the task: where both do not fit, the task begins without it.
        let progress = progress.filter(|progress| input.len() + progress.len() <= room);

        let timeout = claimant.session_timeout;
        let check_time = self.now + step.heartbeat_timeout.map_or(timeout, |heartbeat| heartbeat.min(timeout));
        let expire_time = step.timeout.map(|timeout| self.now + timeout);
        let total_deadline = self.state.unit(key).total_deadline(self.state.step(key.step));
        let work_expires = [expire_time, total_deadline, self.state.expire_time()].into_iter().flatten().min();
        self.emit(EventKind::StepDispatched {
            unit: unit.clone(),
            attempt,
            delivery,
            session_id: claimant.session_id,
            worker_id: claimant.worker_id,
            check_time,
            expire_time,
        });
        Ok(Outcome::Dispatched(Box::new(Delivery {
            idempotency_key: idempotency_key(self.state.uid(), self.state.run(), &unit, generation),
            reference: DeliveryRef { unit, delivery },
            contract: step.contract.clone(),
            queue: step.queue.clone(),
            input,
            attempt,
            redelivery,
            schedule_time,
            dispatch_time: self.now,
            expire_time: work_expires,
            heartbeat_timeout: step.heartbeat_timeout,
            progress,
        })))
    }

    /// Judges a worker's success.
    pub(super) fn complete(&mut self, delivery: &DeliveryRef, output: Payload) -> ReportOutcome {
        let hash = digest16(&[b"complete", output.as_str().as_bytes()]);
        let key = match self.judge(delivery, hash) {
            Ok(key) => key,
            Err(outcome) => return outcome,
        };
        let unit = self.state.unit(key);
        let (resolved, current) = (unit.status.is_resolved(), unit.is_current(delivery.delivery));
        // Taken, output included, until its undo begins (`state::work`).
        let resolved = resolved && !self.state.takes_late_success(key);
        let (unit, number) = (self.name(key), delivery.delivery);
        if resolved {
            let recorded = self.state.unit(key).task.as_ref().is_some_and(|task| task.late.contains(&number));
            if !recorded {
                self.emit(EventKind::LateSuccess { unit, delivery: number, output });
            }
            return ReportOutcome::Refused(RefusalReason::UnitResolved);
        }
        if let Err(message) = self.check_output(key, &output) {
            if !current {
                return ReportOutcome::Refused(RefusalReason::StaleToken);
            }
            let failure = Failure::new(code::OUTPUT_INVALID, message, &unit);
            self.attempt_failed(key, AttemptEnd::of_report(failure, hash));
            return ReportOutcome::Accepted;
        }
        self.emit(EventKind::StepSucceeded { unit, output, delivery: number, signal_number: None, report: Some(hash) });
        ReportOutcome::Accepted
    }

    /// Judges a worker's failure.
    pub(super) fn fail_attempt(&mut self, delivery: &DeliveryRef, mut report: FailureReport) -> ReportOutcome {
        let hash = report.hash();
        let key = match self.judge(delivery, hash) {
            Ok(key) => key,
            Err(outcome) => return outcome,
        };
        let unit = self.state.unit(key);
        if unit.status.is_resolved() {
            return ReportOutcome::Refused(RefusalReason::UnitResolved);
        }
        if !unit.is_current(delivery.delivery) {
            return ReportOutcome::Refused(RefusalReason::StaleToken);
        }
        report.failure.unit = self.name(key);
        let end = AttemptEnd {
            failure: report.failure,
            retryable: report.retryable,
            retry_after: report.retry_after,
            progress: report.progress,
            report: Some(hash),
        };
        self.attempt_failed(key, end);
        ReportOutcome::Accepted
    }

    /// Judges a worker's release: it gives its task back, and the same attempt waits again.
    pub(super) fn release(&mut self, delivery: &DeliveryRef, progress: Option<Payload>) -> ReportOutcome {
        let key = match self.judge(delivery, RELEASE_HASH) {
            Ok(key) => key,
            Err(outcome) => return outcome,
        };
        let unit = self.state.unit(key);
        if unit.status.is_resolved() {
            return ReportOutcome::Refused(RefusalReason::UnitResolved);
        }
        if !unit.is_current(delivery.delivery) {
            return ReportOutcome::Refused(RefusalReason::StaleToken);
        }
        self.delivery_lost(key, EndReason::Released, progress);
        ReportOutcome::Accepted
    }

    /// Notes that a delivery's session watches it from now on.
    pub(super) fn hold(&mut self, delivery: &DeliveryRef) -> Outcome {
        let unheld = self.current(delivery).filter(|key| self.state.unit(*key).out().is_some_and(|(out, _)| !out.held));
        if unheld.is_some() {
            self.emit(EventKind::TaskHeld { unit: delivery.unit.clone(), delivery: delivery.delivery });
        }
        Outcome::Done
    }

    /// Ends a delivery that got no report.
    pub(super) fn end_delivery(
        &mut self,
        delivery: &DeliveryRef,
        reason: EndReason,
        progress: Option<Payload>,
    ) -> Outcome {
        if let Some(key) = self.current(delivery) {
            self.delivery_lost(key, reason, progress);
        }
        Outcome::Done
    }

    /// Fails the attempt of a held delivery that sent no beat in time.
    pub(super) fn miss_beat(&mut self, delivery: &DeliveryRef, progress: Option<Payload>) -> Outcome {
        if let Some(key) = self.current(delivery) {
            self.beat_missed(key, progress);
        }
        Outcome::Done
    }

    /// The attempt of a unit whose delivery is out ended for want of a beat.
    pub(super) fn beat_missed(&mut self, key: UnitKey, progress: Option<Payload>) {
        let timeout = task_of(self.state.step(key.step)).and_then(|task| task.heartbeat_timeout).unwrap_or_default();
        self.attempt_timed_out(key, code::HEARTBEAT_TIMEOUT, format!("no beat within {timeout:?}"), progress);
    }

    /// The attempt of a unit whose delivery is out ended by a timeout.
    pub(super) fn attempt_timed_out(&mut self, key: UnitKey, code: &str, message: String, progress: Option<Payload>) {
        let failure = Failure::new(code, message, &self.name(key));
        self.attempt_failed(key, AttemptEnd { progress, ..AttemptEnd::of_timeout(failure) });
    }

    /// The delivery of a unit that is out ended with unknown outcome, or never left.
    pub(super) fn delivery_lost(&mut self, key: UnitKey, reason: EndReason, progress: Option<Payload>) {
        let Some(reference) = self.state.delivery_out(key) else { return };
        let DeliveryRef { unit, delivery } = reference;
        self.emit(EventKind::DeliveryEnded { unit: unit.clone(), delivery, reason, progress });
        if !self.state.is_live(key.step) {
            self.emit(EventKind::StepCancelled { unit });
            return;
        }
        let lost = self.state.unit(key).task.as_ref().map_or(0, |task| task.lost);
        if reason != EndReason::NotSent && lost >= self.settings.deliveries_max {
            let message = format!("{lost} deliveries ended without their worker's report");
            self.fail_unit_with(key, code::DELIVERIES_EXHAUSTED, message);
        }
    }

    /// Begins the next attempt of a unit whose pause is over.
    pub(super) fn schedule_next_attempt(&mut self, key: UnitKey) {
        let attempt = self.state.unit(key).task.as_ref().map_or(0, |task| task.attempt) + 1;
        if self.state.step(key.step).action.as_child().is_some() {
            return self.request_child(key, attempt, None);
        }
        let unit = self.name(key);
        self.emit(EventKind::StepScheduled { unit, attempt, input: None });
    }

    /// What every report is asked first: does its token exist, is it a repeat, is anybody still interested?
    fn judge(&self, delivery: &DeliveryRef, hash: [u8; 16]) -> Result<UnitKey, ReportOutcome> {
        let number = delivery.delivery;
        let known = self.state.find(&delivery.unit).and_then(|key| {
            let unit = self.state.unit(key);
            unit.task.as_deref().filter(|_| unit.knows(number)).map(|task| (key, task))
        });
        if self.state.was_accepted(delivery, hash) {
            return Err(ReportOutcome::Duplicate);
        }
        if known.is_some_and(|(_, task)| task.reports.contains(&Report { delivery: number, hash })) {
            return Err(ReportOutcome::Duplicate);
        }
        if self.state.is_closed() {
            return Err(ReportOutcome::Refused(RefusalReason::ExecutionClosed));
        }
        known.map(|(key, _)| key).ok_or(ReportOutcome::Refused(RefusalReason::StaleToken))
    }

    /// The unit whose delivery this is, if it is out.
    fn current(&self, delivery: &DeliveryRef) -> Option<UnitKey> {
        self.state.find(&delivery.unit).filter(|_| self.state.is_current(delivery))
    }

    fn check_output(&self, key: UnitKey, output: &Payload) -> Result<(), String> {
        let Some(task) = task_of(self.state.step(key.step)) else { return Ok(()) };
        let Some(schema) = &task.output_schema else { return Ok(()) };
        schema
            .validate(output)
            .map_err(|violations| format!("output does not fit the contract {}: {violations}", task.contract))
    }

    /// Ends the attempt of a unit whose delivery is out, or that waits for its child: the next one follows after its pause, or the step's end.
    pub(super) fn attempt_failed(&mut self, key: UnitKey, end: AttemptEnd) {
        let unit = self.state.unit(key);
        let Some(delivery) = unit.attempt_out() else { return };
        let attempt = unit.task.as_ref().map_or(0, |task| task.attempt);
        let unit = self.name(key);
        let stops = !self.state.is_live(key.step);
        let retry_time = if stops { None } else { self.retry_time(key, attempt, &end) };
        let failure = end.failure.clone();
        self.emit(EventKind::AttemptFailed {
            unit: unit.clone(),
            attempt,
            delivery,
            failure: end.failure,
            retry_time,
            progress: end.progress,
            report: end.report,
        });
        if stops {
            self.emit(EventKind::StepCancelled { unit });
            return;
        }
        match retry_time {
            None => self.fail_unit(key, failure),
            Some(time) if time <= self.now && !self.state.is_held() => self.schedule_next_attempt(key),
            Some(_) => {}
        }
    }

    /// When the next attempt begins; nothing if there is none.
    ///
    /// There is none either if it could only begin once `total_timeout` has passed: then the failure at hand says more
    /// than the timeout would, and says it now.
    fn retry_time(&self, key: UnitKey, attempt: u32, end: &AttemptEnd) -> Option<Timestamp> {
        let step = self.state.step(key.step);
        let policy = attempts_of(step)?.retry;
        if !end.retryable || attempt >= policy.max_attempts || !policy.retries(&end.failure.code) {
            return None;
        }
        let seed = [self.state.uid().0.as_bytes(), self.name(key).as_bytes()].concat();
        let pause = policy.pause(attempt, &seed).max(end.retry_after.unwrap_or_default());
        let retry_time = self.now + pause;
        let total_deadline = self.state.unit(key).total_deadline(step);
        if total_deadline.is_some_and(|deadline| retry_time >= deadline) { None } else { Some(retry_time) }
    }
}

/// How an attempt ended.
pub(super) struct AttemptEnd {
    failure: Failure,
    retryable: bool,
    retry_after: Option<Duration>,
    progress: Option<Payload>,
    /// Hash of the report that ended it, if one did.
    report: Option<[u8; 16]>,
}

impl AttemptEnd {
    fn of_timeout(failure: Failure) -> Self {
        Self { failure, retryable: true, retry_after: None, progress: None, report: None }
    }

    fn of_report(failure: Failure, hash: [u8; 16]) -> Self {
        Self { report: Some(hash), ..Self::of_timeout(failure) }
    }

    /// Of an attempt whose child ended, or never will be. That is a report: its outcome is known.
    pub(super) fn of_child(failure: Failure, retryable: bool, child_id: &ExecutionId) -> Self {
        Self { retryable, ..Self::of_report(failure, digest16(&[b"end of child", child_id.as_str().as_bytes()])) }
    }
}
