//! The rules of one history, each with a name.
//!
//! Folds the events and nothing else: what [`State`] makes of them is not asked.

use super::*;
use crate::domain::definition::{OnError, Role};
use crate::domain::state::attempts_of;

/// Holds a rule, by its name.
#[track_caller]
pub(super) fn hold(rule: &str, holds: bool, detail: impl FnOnce() -> String) {
    assert!(holds, "rule broken: {rule}: {}", detail());
}

/// How a unit ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    Succeeded,
    Failed,
    Skipped,
    Cancelled,
}

/// Who has a unit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Engaged {
    Worker,
    Child,
    Recipient,
}

/// What a history has said so far.
#[derive(Default)]
pub(super) struct History {
    /// Events that were read.
    read: usize,
    /// Units that ended, with the number of the event.
    pub(super) ended: BTreeMap<Unit, (u64, End)>,
    /// Units that have begun, with their newest attempt.
    begun: BTreeMap<Unit, u32>,
    /// All units that ever began, of every run.
    pub(super) units: Vec<Unit>,
    deliveries: BTreeMap<Unit, u32>,
    engaged: BTreeMap<Unit, Engaged>,
    /// Units of which some delivery ended without a report.
    pub(super) unknown: BTreeSet<Unit>,
    /// Units that were undone, or are being.
    pub(super) undone: BTreeSet<Unit>,
    /// Items that have begun and not ended, by their step.
    open_items: BTreeMap<String, BTreeSet<Unit>>,
    /// Steps whose results are another execution's.
    given: BTreeSet<Unit>,
    late: BTreeSet<(Unit, u32)>,
    /// Signals that were taken or have expired.
    signals: BTreeSet<u64>,
    begin_time: Option<Timestamp>,
    is_paused: bool,
    /// Why it winds down.
    cause: Option<Cause>,
    pub(super) handling: bool,
    closed: Option<&'static str>,
    is_deleted: bool,
}

impl History {
    /// Reads on, and holds what is new to the rules.
    pub(super) fn read(&mut self, run: &Run) {
        for event in &run.log[self.read..] {
            self.event(run, event);
        }
        self.read = run.log.len();
    }

    /// Number of a unit's newest delivery; 0 before the first.
    pub(super) fn deliveries(&self, unit: &Unit) -> u32 {
        self.deliveries.get(unit).copied().unwrap_or(0)
    }

    /// The deliveries that are out.
    pub(super) fn out(&self) -> impl Iterator<Item = (&Unit, u32)> {
        let out = self.engaged.iter().filter(|(_, by)| **by == Engaged::Worker);
        out.map(|(unit, _)| (unit, self.deliveries(unit)))
    }

    fn event(&mut self, run: &Run, event: &Event) {
        let number = event.number;
        hold("nothing follows the deletion", !self.is_deleted, || format!("{event:?}"));
        if self.closed.is_some() {
            let may = matches!(
                event.kind,
                EventKind::ChildCancelSent { .. }
                    | EventKind::ParentTold
                    | EventKind::ExecutionReopened { .. }
                    | EventKind::DeletionBegan
                    | EventKind::Woke
            );
            hold("nothing is dispatched, begins or ends after the close", may, || format!("{event:?}"));
        }
        match &event.kind {
            EventKind::ExecutionCreated(created) => {
                self.begin_time = created.begin_time;
                self.given = created.results.iter().map(|result| result.step.clone()).collect();
            }
            EventKind::StepScheduled { unit, attempt, .. } => self.attempt(run, event, unit, *attempt),
            EventKind::ChildRequested { unit, attempt, .. } => {
                self.attempt(run, event, unit, *attempt);
                self.engaged.insert(unit.clone(), Engaged::Child);
            }
            EventKind::SignalRequested { unit, .. } => {
                self.begin(run, event, unit);
                self.engaged.insert(unit.clone(), Engaged::Recipient);
            }
            EventKind::SleepStarted { unit, .. }
            | EventKind::AwaitStarted { unit, .. }
            | EventKind::FanOutStarted { unit, .. } => self.begin(run, event, unit),
            EventKind::StepDispatched { unit, delivery, .. } => {
                self.begin(run, event, unit);
                let before = self.deliveries.insert(unit.clone(), *delivery);
                hold("deliveries are numbered on", before < Some(*delivery), || format!("{unit}: {delivery}"));
                let before = self.engaged.insert(unit.clone(), Engaged::Worker);
                hold("one delivery of a unit is out at a time", before.is_none(), || unit.to_string());
            }
            EventKind::DeliveryEnded { unit, reason, .. } => {
                self.engaged.remove(unit);
                if *reason != EndReason::NotSent {
                    self.unknown.insert(unit.clone());
                }
            }
            EventKind::AttemptFailed { unit, report, .. } => {
                self.engaged.remove(unit);
                if report.is_none() {
                    self.unknown.insert(unit.clone());
                }
            }
            EventKind::StepSucceeded { unit, signal_number, .. } => {
                signal_number.iter().for_each(|number| self.take_signal(*number));
                self.end(run, event, unit, End::Succeeded);
            }
            EventKind::FanOutEnded { unit } => {
                let items = self.open_items.get(&**unit).is_none_or(BTreeSet::is_empty);
                hold("a fan-out ends after its items", items, || unit.to_string());
                self.end(run, event, unit, End::Succeeded);
            }
            EventKind::StepCancelled { unit } => {
                if matches!(self.engaged.get(unit), Some(Engaged::Worker | Engaged::Recipient)) {
                    self.unknown.insert(unit.clone());
                }
                self.end(run, event, unit, End::Cancelled);
            }
            EventKind::StepFailed { unit, .. } => {
                // No report of its worker's, or of its child's, says so: then there is an attempt that failed before.
                if matches!(self.engaged.get(unit), Some(Engaged::Worker | Engaged::Child)) {
                    self.unknown.insert(unit.clone());
                }
                self.end(run, event, unit, End::Failed);
            }
            EventKind::StepSkipped { unit, .. } => self.end(run, event, unit, End::Skipped),
            EventKind::LateSuccess { unit, delivery, .. } => {
                let is_new = self.late.insert((unit.clone(), *delivery));
                hold("a late success is recorded once", is_new, || format!("{unit}: {delivery}"));
            }
            EventKind::SignalExpired { signal_number } | EventKind::EventTaken { signal_number, .. } => {
                self.take_signal(*signal_number);
            }
            EventKind::WindDownStarted { cause, .. } => self.wind_down(number, cause),
            EventKind::ExecutionSucceeded { .. } => self.hold_whole(run, "it ends well only when everything has"),
            EventKind::ExecutionFailed { .. }
            | EventKind::ExecutionCancelled
            | EventKind::ExecutionTimedOut
            | EventKind::ExecutionTerminated { .. } => self.hold_close(run, &event.kind),
            EventKind::ExecutionPaused { .. } => self.is_paused = true,
            EventKind::ExecutionResumed => self.is_paused = false,
            EventKind::ContinuedAsNew { unit, .. } => {
                self.end(run, event, unit, End::Succeeded);
                self.hold_whole(run, "a run ends only when nothing runs beside");
            }
            EventKind::RunStarted(_) => {
                let (read, signals) = (self.read, std::mem::take(&mut self.signals));
                let (units, deliveries) = (std::mem::take(&mut self.units), std::mem::take(&mut self.deliveries));
                *self = Self { read, signals, units, deliveries, ..Self::default() };
            }
            EventKind::ExecutionReopened { steps, .. } => self.reopen(run, steps),
            EventKind::DeletionBegan => {
                hold("only what is closed is deleted", self.closed.is_some(), String::new);
                self.is_deleted = true;
            }
            EventKind::TaskHeld { .. }
            | EventKind::SignalReceived { .. }
            | EventKind::ChildStarted { .. }
            | EventKind::ChildCancelSent { .. }
            | EventKind::ParentTold
            | EventKind::Woke => {}
        }
        self.closed = self.closed.or(close_of(&event.kind));
    }

    fn take_signal(&mut self, number: u64) {
        hold("a signal is taken once", self.signals.insert(number), || number.to_string());
    }

    /// A task begins to wait, or a child is asked for.
    fn attempt(&mut self, run: &Run, event: &Event, unit: &Unit, attempt: u32) {
        let before = self.begun.get(unit).copied().unwrap_or(0);
        let attempts = attempts_of(run.definition.step(step_of(run, unit)));
        let most = attempts.map_or(0, |attempts| attempts.retry.max_attempts);
        let is_next = attempt == before + 1 && attempt <= most;
        hold("attempts count up to the limit", is_next, || format!("{unit}: {attempt} after {before} of {most}"));
        self.begin(run, event, unit);
        self.begun.insert(unit.clone(), attempt);
    }

    /// A unit begins, or goes on.
    fn begin(&mut self, run: &Run, event: &Event, unit: &Unit) {
        let (lifetime, winds_down) = (lifetime_of(run, unit), self.cause.is_some());
        let is_ended = self.ended.contains_key(unit);
        hold("what has ended does not go on", !is_ended, || format!("{unit} of {:?}", event.kind));
        match lifetime {
            Lifetime::Forward => {
                hold("nothing of the run goes on while it winds down", !winds_down, || unit.to_string());
                let is_held = self.is_paused || self.begin_time.is_some_and(|time| event.time < time);
                hold("nothing begins while it is held", !is_held, || unit.to_string());
            }
            Lifetime::Undo | Lifetime::Handler => {
                hold("undoing and handlers wait for the wind-down", winds_down, || unit.to_string());
            }
        }
        if winds_down {
            let is_out = self.engaged.keys().any(|unit| lifetime_of(run, unit) == Lifetime::Forward);
            hold("what is out ends before anything is undone", !is_out, || unit.to_string());
        }
        self.first(run, unit);
        if let Some((step, _)) = unit.split_once('[')
            && let Some(for_each) = &run.definition.step(step_of(run, unit)).for_each
        {
            let open = self.open_items.entry(step.to_owned()).or_default();
            open.insert(unit.clone());
            let most = for_each.parallel_max.map_or(usize::MAX, |most| usize::try_from(most).unwrap());
            hold("no more items run at once than may", open.len() <= most, || unit.to_string());
        }
    }

    /// What is true of a unit's beginning, which may be its end as well.
    fn first(&mut self, run: &Run, unit: &Unit) {
        if self.begun.contains_key(unit) {
            return;
        }
        self.begun.insert(unit.clone(), 0);
        self.units.push(unit.clone());
        hold("what another execution gave does not run", !self.given.contains(unit), || unit.to_string());
        let step = run.definition.step(step_of(run, unit));
        let lets_go = |need: &&StepIndex| {
            let need = run.definition.step(**need);
            let may_fail = need.on_error == OnError::Continue;
            let ended = self.ended.get(&need.id).is_some_and(|(_, end)| match end {
                End::Succeeded | End::Skipped => true,
                End::Failed => may_fail,
                End::Cancelled => false,
            });
            ended || self.given.contains(&need.id)
        };
        let waits = step.needs.iter().any(|need| !lets_go(&need));
        let begins_alone = unit.contains('[') || step.role.lifetime() == Lifetime::Undo;
        hold("a step begins after those that it needs", begins_alone || !waits, || unit.to_string());
        match step.role.lifetime() {
            Lifetime::Forward => {}
            Lifetime::Undo => self.hold_undo(run, unit),
            Lifetime::Handler => self.hold_handler(run, unit),
        }
    }

    fn end(&mut self, run: &Run, event: &Event, unit: &Unit, end: End) {
        self.first(run, unit);
        self.engaged.remove(unit);
        if let Some((_, before)) = self.ended.insert(unit.clone(), (event.number, end)) {
            let step = run.definition.step(step_of(run, unit));
            let may = end == End::Succeeded
                && matches!(before, End::Failed | End::Cancelled)
                && self.cause.is_some()
                && step.compensation.is_some()
                && !self.undone.contains(unit)
                && !self.handling;
            hold("a unit is resolved at most once", may, || format!("{unit}, {before:?} before: {:?}", event.kind));
        }
        if let Some((step, _)) = unit.split_once('[') {
            self.open_items.entry(step.to_owned()).or_default().remove(unit);
        }
    }

    fn wind_down(&mut self, number: u64, cause: &Cause) {
        hold("the first cause wins", self.cause.is_none(), || format!("{cause:?} after {:?}", self.cause));
        self.cause = Some(cause.clone());
        self.is_paused = false;
        // What waits ends with the wind-down itself.
        let is_dropped = |unit: &&Unit| !self.engaged.contains_key(*unit) && !self.ended.contains_key(*unit);
        let dropped: Vec<Unit> = self.begun.keys().filter(is_dropped).cloned().collect();
        for unit in dropped {
            if let Some((step, _)) = unit.split_once('[') {
                self.open_items.entry(step.to_owned()).or_default().remove(&unit);
            }
            self.ended.insert(unit, (number, End::Cancelled));
        }
    }

    /// Every step has ended, and nothing is out.
    fn hold_whole(&self, run: &Run, rule: &str) {
        hold(rule, self.cause.is_none() && self.engaged.is_empty(), || format!("{:?}", self.engaged));
        let mains = run.definition.steps.iter().filter(|step| step.role == Role::Main);
        for step in mains {
            let has_ended = self.ended.contains_key(&step.id) || self.given.contains(&step.id);
            hold(rule, has_ended, || step.id.to_string());
        }
    }

    /// It closes otherwise than well.
    fn hold_close(&self, run: &Run, kind: &EventKind) {
        if let EventKind::ExecutionTerminated { .. } = kind {
            return;
        }
        let is_out = self.engaged.is_empty();
        hold("it closes when nothing is out", is_out, || format!("{:?}", self.engaged));
        self.hold_undone(run);
        let undo_failed = self.undone.iter().any(|unit| {
            let undo = format!("compensate:{unit}");
            self.ended.get(undo.as_str()).is_some_and(|(_, end)| *end != End::Succeeded)
        });
        let expected = match &self.cause {
            Some(Cause::Cancel(_)) if !undo_failed => "ExecutionCancelled",
            Some(Cause::Timeout) if !undo_failed => "ExecutionTimedOut",
            Some(_) => "ExecutionFailed",
            None => "nothing, since it runs",
        };
        hold("it closes by its cause, and FAILED if an undo failed", kind_of(kind) == expected, || format!("{kind:?}"));
    }

    fn reopen(&mut self, run: &Run, steps: &[ReopenedStep]) {
        let may = matches!(self.closed, Some("FAILED" | "TIMED_OUT"));
        hold("only what failed or timed out runs again", may, || format!("{:?}", self.closed));
        (self.closed, self.cause, self.handling, self.is_paused) = (None, None, false, false);
        let is_again = |unit: &Unit| {
            let (step, item) = match unit.split_once('[') {
                Some((step, item)) => (step, item.trim_end_matches(']').parse::<u32>().ok()),
                None => (&**unit, None),
            };
            let is_aside = matches!(lifetime_of(run, unit), Lifetime::Undo | Lifetime::Handler);
            is_aside
                || steps.iter().any(|again| {
                    *again.unit == *step
                        && (again.items.is_empty() || item.is_none_or(|item| again.items.contains(&item)))
                })
        };
        self.ended.retain(|unit, _| !is_again(unit));
        self.begun.retain(|unit, _| !is_again(unit));
        self.unknown.retain(|unit| !is_again(unit));
        self.undone.retain(|unit| !is_again(unit));
        self.open_items.clear();
        let stays = |(unit, (_, end)): (&Unit, &(u64, End))| {
            let may_fail = run.definition.step(step_of(run, unit)).on_error == OnError::Continue;
            match end {
                End::Succeeded | End::Skipped => true,
                End::Failed => may_fail,
                End::Cancelled => false,
            }
        };
        let left: Vec<_> = self.ended.iter().filter(|entry| !stays(*entry)).collect();
        let rule = "what failed or was undone runs again";
        hold(rule, left.is_empty() && self.undone.is_empty(), || format!("{left:?} {:?}", self.undone));
    }
}

/// How an event closes the execution, if it does.
fn close_of(kind: &EventKind) -> Option<&'static str> {
    let ends = [
        (matches!(kind, EventKind::ExecutionSucceeded { .. }), "SUCCEEDED"),
        (matches!(kind, EventKind::ExecutionFailed { .. }), "FAILED"),
        (matches!(kind, EventKind::ExecutionCancelled), "CANCELLED"),
        (matches!(kind, EventKind::ExecutionTimedOut), "TIMED_OUT"),
        (matches!(kind, EventKind::ExecutionTerminated { .. }), "TERMINATED"),
    ];
    ends.into_iter().find(|(is_it, _)| *is_it).map(|(_, name)| name)
}
