//! How an execution and its steps show to those who ask.

use super::unit::{Status, task_of};
use super::{State, UnitKey};
use crate::domain::definition::{ExecutionScope, ItemScope, Lifetime, Role, Scope, StepIndex, StepLookup, StepView};
use crate::domain::{Cause, ExecutionId, Failure, Payload, Timestamp, Uid};
use std::sync::Arc;

/// Where an execution is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Steps run or wait.
    Running,
    /// It will end FAILED, CANCELLED or TIMED_OUT; deliveries that are out may still report.
    WindingDown,
    /// Closed: every step ended well, there is an output.
    Succeeded,
    /// Closed by a failure.
    Failed,
    /// Closed by a cancel.
    Cancelled,
    /// Closed by the execution's timeout.
    TimedOut,
    /// Closed at once by a terminate.
    Terminated,
}

impl Phase {
    /// Whether nothing can happen any more.
    #[must_use]
    pub const fn is_closed(self) -> bool {
        match self {
            Self::Running | Self::WindingDown => false,
            Self::Succeeded | Self::Failed | Self::Cancelled | Self::TimedOut | Self::Terminated => true,
        }
    }

    /// Whether units of this lifetime may go on.
    #[must_use]
    pub const fn is_live(self, lifetime: Lifetime) -> bool {
        match lifetime {
            Lifetime::Forward => matches!(self, Self::Running),
            Lifetime::Undo | Lifetime::Handler => matches!(self, Self::WindingDown),
        }
    }

    /// Its name as users know it, for example `TIMED_OUT`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::WindingDown => "WINDING_DOWN",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
            Self::TimedOut => "TIMED_OUT",
            Self::Terminated => "TERMINATED",
        }
    }
}

/// Where a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepState {
    /// Waits for other steps.
    Pending,
    /// Waits for a worker.
    Scheduled,
    /// A worker has it.
    Running,
    /// Waits for the next attempt.
    BackingOff,
    /// Sleeps.
    Sleeping,
    /// Waits for a signal.
    Awaiting,
    /// Ended well.
    Succeeded,
    /// Failed for good.
    Failed,
    /// Did not run: `when` was false, or there was nothing to go through.
    Skipped,
    /// Dropped or given up when the execution wound down or was terminated.
    Cancelled,
}

impl StepState {
    /// Its name as users and expressions know it, for example `BACKING_OFF`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Scheduled => "SCHEDULED",
            Self::Running => "RUNNING",
            Self::BackingOff => "BACKING_OFF",
            Self::Sleeping => "SLEEPING",
            Self::Awaiting => "AWAITING",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Skipped => "SKIPPED",
            Self::Cancelled => "CANCELLED",
        }
    }
}

/// How one step of an execution stands.
#[derive(Clone, Debug, PartialEq)]
pub struct StepStatus<'a> {
    /// Id of the step.
    pub step: &'a Arc<str>,
    /// Where it is.
    pub state: StepState,
    /// Newest attempt, from 1; 0 if none was begun, and for steps that are not tasks.
    pub attempt: u32,
    /// Newest delivery of all attempts together, from 1; 0 before the first.
    pub delivery: u32,
    /// Worker that has or had the newest delivery.
    pub worker_id: Option<&'a Arc<str>>,
    /// Output, once it succeeded.
    pub output: Option<&'a Payload>,
    /// Why the newest attempt, or the step, failed.
    pub failure: Option<&'a Failure>,
    /// When it goes on by itself: end of the pause, of the sleep or of the wait.
    pub wake_time: Option<Timestamp>,
    /// Contract `name@version` of a task.
    pub contract: Option<&'a Arc<str>>,
    /// Queue of a task.
    pub queue: Option<&'a Arc<str>>,
    /// Newest progress, as far as events hold it.
    pub progress: Option<&'a Payload>,
    /// When it last began to wait for a worker.
    pub schedule_time: Option<Timestamp>,
    /// How far a `for_each` that has begun has come.
    pub fan_out: Option<FanOutStatus>,
    /// The child of the newest attempt: its id, and its uid once it has started.
    pub child: Option<(&'a ExecutionId, Option<Uid>)>,
}

/// How far a fan-out has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FanOutStatus {
    /// Items.
    pub items: u32,
    /// Items that have begun, ended ones among them.
    pub begun: u32,
    /// Items that have begun and not ended.
    pub open: u32,
    /// Items that failed for good.
    pub failed: u32,
}

impl State {
    /// The steps in the definition's order; undoing and handlers only once they have begun.
    pub fn steps(&self) -> impl Iterator<Item = StepStatus<'_>> {
        let shown = |key: &UnitKey| match self.step(key.step).role {
            Role::Main => true,
            Role::Compensation { .. } | Role::Handler(_) => !self.unit(*key).status.is_pending(),
            // Only its occurrences are units.
            Role::OnEvent { .. } => false,
        };
        let keys = self.definition.indexed().map(|(step, _)| UnitKey::of(step)).filter(shown);
        keys.collect::<Vec<_>>().into_iter().map(|key| self.status_of(key))
    }

    fn status_of(&self, key: UnitKey) -> StepStatus<'_> {
        let (step, unit) = (self.step(key.step), self.unit(key));
        let wake_time = match unit.status {
            Status::BackingOff { retry_time, .. } => Some(retry_time),
            Status::Sleeping { wake_time, .. } => Some(wake_time),
            Status::Awaiting { expire_time, .. } => expire_time,
            Status::Pending { .. }
            | Status::Waiting { .. }
            | Status::Out(_)
            | Status::Spent
            | Status::FanOut { .. }
            | Status::Child(_)
            | Status::Sending { .. }
            | Status::Succeeded
            | Status::Failed
            | Status::Skipped
            | Status::Cancelled => None,
        };
        let asked = task_of(step);
        let task = unit.task.as_deref();
        let group = self.group(key.step).filter(|_| key.item.is_none());
        StepStatus {
            step: &step.id,
            state: state_of(unit.status),
            attempt: task.map_or(0, |task| task.attempt),
            delivery: task.map_or(0, |task| task.delivery),
            worker_id: task.and_then(|task| task.worker_id.as_ref()),
            output: unit.output.as_ref(),
            failure: unit.failure.as_deref().or_else(|| group?.failure.as_deref()),
            wake_time,
            contract: asked.map(|task| &task.contract),
            queue: asked.map(|task| &task.queue),
            progress: task.and_then(|task| task.progress.as_ref()),
            schedule_time: task.map(|task| unit.waiting_since().unwrap_or(task.attempt_time)),
            child: unit.child().map(|child| (&child.id, child.uid)),
            fan_out: group.map(|group| FanOutStatus {
                items: group.count(),
                begun: group.next,
                open: group.open,
                failed: group.failed,
            }),
        }
    }

    /// Runs something with what a unit's expressions see.
    pub(in crate::domain) fn with_scope<T>(
        &self,
        key: UnitKey,
        signal: Option<&Payload>,
        work: impl FnOnce(&Scope<'_>) -> T,
    ) -> T {
        let undone = match self.step(key.step).role {
            Role::Compensation { of, .. } => Some(key.at(of)),
            Role::Main | Role::Handler(_) | Role::OnEvent { .. } => None,
        };
        let of_list = undone.map_or(key.step, |undone| undone.step);
        let value = key.item.and_then(|item| Some((self.group(of_list)?.value(item)?, item)));
        let failure = match self.step(key.step).role {
            Role::Handler(_) => self.cause().map(Cause::as_failure),
            Role::Main | Role::Compensation { .. } | Role::OnEvent { .. } => None,
        };
        let scope = Scope {
            signal,
            event: self.event_of(key),
            failure: failure.as_ref(),
            item: value.map(|(value, index)| ItemScope { value, index }),
            ..self.scope()
        };
        match undone {
            Some(own) => work(&Scope { steps: &Undone { state: self, own }, ..scope }),
            None => work(&scope),
        }
    }

    /// What expressions see that belong to no unit.
    pub(in crate::domain) fn scope(&self) -> Scope<'_> {
        let (id, run, start_time) = (self.id().as_str(), self.run(), self.start_time);
        Scope {
            input: self.input(),
            steps: self,
            signal: None,
            event: None,
            failure: None,
            item: None,
            execution: ExecutionScope { id, run, start_time },
            schedule: None,
            meter: None,
        }
    }

    fn view_of(&self, key: UnitKey) -> StepView<'_> {
        let unit = self.unit(key);
        // A failed attempt is no failed step: expressions see errors that stay.
        let own = if unit.status == Status::Failed { unit.failure.as_deref() } else { None };
        let of_items = || self.group(key.step).filter(|_| key.item.is_none())?.failure.as_deref();
        StepView { output: unit.output.as_ref(), error: own.or_else(of_items), state: state_of(unit.status).as_str() }
    }
}

impl StepLookup for State {
    fn step(&self, index: StepIndex) -> StepView<'_> {
        self.view_of(UnitKey::of(index))
    }
}

/// The steps as the undo of a unit sees them: the step that it undoes is that unit.
struct Undone<'a> {
    state: &'a State,
    own: UnitKey,
}

impl StepLookup for Undone<'_> {
    fn step(&self, index: StepIndex) -> StepView<'_> {
        self.state.view_of(if index == self.own.step { self.own } else { UnitKey::of(index) })
    }
}

fn state_of(status: Status) -> StepState {
    match status {
        Status::Pending { .. } => StepState::Pending,
        Status::Waiting { .. } => StepState::Scheduled,
        Status::Out(_) | Status::Spent | Status::FanOut { .. } | Status::Child(_) | Status::Sending { .. } => {
            StepState::Running
        }
        Status::BackingOff { .. } => StepState::BackingOff,
        Status::Sleeping { .. } => StepState::Sleeping,
        Status::Awaiting { .. } => StepState::Awaiting,
        Status::Succeeded => StepState::Succeeded,
        Status::Failed => StepState::Failed,
        Status::Skipped => StepState::Skipped,
        Status::Cancelled => StepState::Cancelled,
    }
}
