//! What is to be done at once. It follows from the state, so a decision that stopped at its limit, or a server that died,
//! loses none of it.
//!
//! While the execution runs: steps begin, fan-outs go on, and when all has ended it ends well. While it winds down, one
//! after another: what somebody else has ends; what is to be undone is undone, the last first, one at a time; the
//! handlers run; it closes.

use super::{Phase, State, UnitKey};
use crate::domain::definition::{Action, StepIndex};

/// Something to do at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::domain) enum Work {
    /// Begin this step.
    Begin(StepIndex),
    /// Begin the next item of this fan-out.
    BeginItem(StepIndex),
    /// All items of this fan-out have ended: it ends.
    Join(StepIndex),
    /// Undo this unit.
    Undo(UnitKey),
    /// Let this handler take the next signal that waits for it.
    TakeEvent(StepIndex),
    /// Begin this unit of a handler, which has taken its signal.
    BeginEvent(UnitKey),
    /// Make the output and end well.
    Finish,
    /// Begin the next run.
    BeginRun,
    /// Close, because nothing is left to do.
    Close,
}

impl State {
    /// What is to be done at once, in the order of its importance.
    pub(in crate::domain) fn next_work(&self) -> Option<Work> {
        match self.phase {
            Phase::Running if self.is_between_runs() => Some(Work::BeginRun),
            Phase::Running if self.is_held() => None,
            Phase::Running => self.next_forward(),
            Phase::WindingDown if self.indexes.engaged > 0 || self.indexes.active.undo > 0 => None,
            Phase::WindingDown => match self.next_undo() {
                Some(key) => Some(Work::Undo(key)),
                None => self.next_of_handlers(),
            },
            Phase::Succeeded | Phase::Failed | Phase::Cancelled | Phase::TimedOut | Phase::Terminated => None,
        }
    }

    /// The unit that is undone next: the one that ended last. Nothing is once what cannot be undone may have happened.
    pub(super) fn next_undo(&self) -> Option<UnitKey> {
        let last = self.indexes.undo.last().map(|(_, key)| *key);
        last.filter(|_| self.indexes.irreversible == 0 && !self.handlers_began())
    }

    /// Whether a unit, though it has ended, may still turn out to have succeeded: it will be undone, and is not yet.
    pub(in crate::domain) fn takes_late_success(&self, key: UnitKey) -> bool {
        let unit = self.unit(key);
        self.phase == Phase::WindingDown
            && self.step(key.step).compensation.is_some()
            && !unit.undone
            && unit.status.is_dropped()
            && self.indexes.irreversible == 0
            && !self.handlers_began()
    }

    /// The undoing that failed for good.
    pub(in crate::domain) fn failed_undos(&self) -> impl ExactSizeIterator<Item = UnitKey> + '_ {
        self.indexes.undo_failed.iter().copied()
    }

    fn next_forward(&self) -> Option<Work> {
        let is_main = |step: &&StepIndex| self.is_live(**step);
        if let Some(step) = self.indexes.runnable.first().filter(is_main) {
            return if self.ends_run(*step) { self.next_before_end(*step) } else { Some(Work::Begin(*step)) };
        }
        self.next_of_fan_outs()
            .or_else(|| self.next_of_events(true))
            .or_else(|| (self.indexes.unresolved == 0 && self.indexes.active.forward == 0).then_some(Work::Finish))
    }

    /// Whether a step ends the run.
    fn ends_run(&self, step: StepIndex) -> bool {
        matches!(self.step(step).action, Action::ContinueAsNew(_))
    }

    /// A run ends only once no handler works on a signal; those that wait go along to the next run.
    fn next_before_end(&self, step: StepIndex) -> Option<Work> {
        self.next_of_events(false).or_else(|| (self.indexes.active.forward == 0).then_some(Work::Begin(step)))
    }

    fn next_of_fan_outs(&self) -> Option<Work> {
        let step = *self.indexes.movable.first()?;
        let is_done = self.group(step).is_some_and(super::Group::is_done);
        Some(if is_done { Work::Join(step) } else { Work::BeginItem(step) })
    }

    fn next_of_handlers(&self) -> Option<Work> {
        let runnable = self.handlers().iter().find(|step| self.indexes.runnable.contains(step));
        if let Some(step) = runnable {
            return Some(Work::Begin(*step));
        }
        self.next_of_fan_outs().or_else(|| (self.indexes.active.handler == 0).then_some(Work::Close))
    }

    /// The steps that handle why it winds down.
    fn handlers(&self) -> &[StepIndex] {
        self.winding().map_or(&[], |winding| self.definition.handlers_of(winding))
    }

    /// Whether a handler has begun: then it is settled what was undone.
    fn handlers_began(&self) -> bool {
        let began = |step: &StepIndex| !self.unit(UnitKey::of(*step)).status.is_pending();
        self.handlers().iter().any(began)
    }
}
