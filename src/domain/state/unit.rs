//! One unit of an execution: where it stands, and what a task among them remembers.

use super::timer::Timer;
use crate::domain::definition::{Action, Await, ChildStep, Step, TaskStep, Unknown};
use crate::domain::retry::RetryPolicy;
use crate::domain::{ExecutionId, Failure, Payload, Recipient, SessionId, Timestamp, Uid};
use std::{collections::VecDeque, sync::Arc, time::Duration};

/// Accepted reports that a unit remembers, the newest, to know their repeats.
const REPORTS_MAX: usize = 32;

/// Stands for the content of a release, which has none. A hash of content never is this.
pub(in crate::domain) const RELEASE_HASH: [u8; 16] = *b"release release ";

/// What a step asks of a worker, if it is a task.
pub(in crate::domain) fn task_of(step: &Step) -> Option<&TaskStep> {
    match &step.action {
        Action::Task(task) => Some(task),
        Action::Compute(_)
        | Action::Sleep(_)
        | Action::Await(_)
        | Action::Fail(_)
        | Action::Child(_)
        | Action::Signal(_)
        | Action::ContinueAsNew(_) => None,
    }
}

/// What a step with attempts says of them.
#[derive(Clone, Copy, Debug)]
pub(in crate::domain) struct Attempts<'a> {
    /// What happens after one that failed.
    pub(in crate::domain) retry: &'a RetryPolicy,
    /// Longest time of one.
    pub(in crate::domain) timeout: Option<Duration>,
    /// Longest time of all together.
    pub(in crate::domain) total_timeout: Option<Duration>,
}

/// What a step says of its attempts, if it has any: a task, or a child.
pub(in crate::domain) fn attempts_of(step: &Step) -> Option<Attempts<'_>> {
    match &step.action {
        Action::Task(TaskStep { retry, timeout, total_timeout, .. })
        | Action::Child(ChildStep { retry, timeout, total_timeout, .. }) => {
            Some(Attempts { retry, timeout: *timeout, total_timeout: *total_timeout })
        }
        Action::Compute(_)
        | Action::Sleep(_)
        | Action::Await(_)
        | Action::Fail(_)
        | Action::Signal(_)
        | Action::ContinueAsNew(_) => None,
    }
}

/// What a step waits for, if it awaits a signal.
pub(in crate::domain) fn await_of(step: &Step) -> Option<&Await> {
    match &step.action {
        Action::Await(wait) => Some(wait),
        Action::Task(_)
        | Action::Compute(_)
        | Action::Sleep(_)
        | Action::Fail(_)
        | Action::Child(_)
        | Action::Signal(_)
        | Action::ContinueAsNew(_) => None,
    }
}

/// Where a unit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::domain) enum Status {
    /// Some step that it needs has not ended, or it is about to begin.
    Pending {
        /// Since when no step that it needs holds it back; nothing while one does, and of what nothing ever held back.
        free_since: Option<Timestamp>,
    },
    /// Waits for a worker.
    Waiting {
        /// Since when: what `queue_timeout` counts from.
        since: Timestamp,
    },
    /// A worker has the newest delivery.
    Out(Out),
    /// Waits for its next attempt.
    BackingOff {
        /// Since when: when the attempt before failed.
        since: Timestamp,
        /// When that begins.
        retry_time: Timestamp,
    },
    /// Its last attempt failed or its last delivery was lost; its end follows in the same decision.
    Spent,
    /// Sleeps.
    Sleeping {
        /// Since when.
        since: Timestamp,
        /// Until when.
        wake_time: Timestamp,
    },
    /// Its items run.
    FanOut {
        /// Since when.
        since: Timestamp,
    },
    /// Waits for a signal.
    Awaiting {
        /// Since when.
        since: Timestamp,
        /// When the wait times out.
        expire_time: Option<Timestamp>,
        /// Number of the event that began it: longer waits are served first.
        number: u64,
    },
    /// Waits for the end of its child.
    Child(ChildWait),
    /// Waits until another execution has its signal.
    Sending {
        /// Since when.
        since: Timestamp,
        /// Number of the event that asked for it.
        number: u64,
    },
    /// Ended well.
    Succeeded,
    /// Failed for good.
    Failed,
    /// Did not run.
    Skipped,
    /// Dropped or given up.
    Cancelled,
}

impl Status {
    /// Of a unit that has not begun, as long as steps that it needs may hold it back.
    pub(in crate::domain) const BLOCKED: Self = Self::Pending { free_since: None };

    /// Whether the unit has not begun.
    pub(in crate::domain) const fn is_pending(self) -> bool {
        matches!(self, Self::Pending { .. })
    }

    /// Whether the unit has ended; it never leaves such a status.
    pub(in crate::domain) const fn is_resolved(self) -> bool {
        match self {
            Self::Succeeded | Self::Failed | Self::Skipped | Self::Cancelled => true,
            Self::Pending { .. }
            | Self::Waiting { .. }
            | Self::Out(_)
            | Self::BackingOff { .. }
            | Self::Spent
            | Self::Sleeping { .. }
            | Self::FanOut { .. }
            | Self::Awaiting { .. }
            | Self::Child(_)
            | Self::Sending { .. } => false,
        }
    }

    /// Whether the unit has ended without having done or skipped its work.
    pub(super) const fn is_dropped(self) -> bool {
        matches!(self, Self::Failed | Self::Cancelled)
    }

    /// Whether it may have begun and has not ended.
    pub(super) const fn is_active(self) -> bool {
        !self.is_pending() && !self.is_resolved()
    }

    /// Whether somebody else has it, so that a wind-down waits for it.
    pub(super) const fn is_engaged(self) -> bool {
        match self {
            Self::Out(_) | Self::Spent | Self::Child(_) | Self::Sending { .. } => true,
            Self::Pending { .. }
            | Self::Waiting { .. }
            | Self::BackingOff { .. }
            | Self::Sleeping { .. }
            | Self::FanOut { .. }
            | Self::Awaiting { .. }
            | Self::Succeeded
            | Self::Failed
            | Self::Skipped
            | Self::Cancelled => false,
        }
    }
}

/// A child that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::domain) struct ChildWait {
    /// When the attempt times out.
    pub(in crate::domain) expire_time: Option<Timestamp>,
    /// When the child was known to have started; nothing before.
    pub(in crate::domain) start_time: Option<Timestamp>,
    /// Whether it has its cancel.
    pub(in crate::domain) cancel_sent: bool,
}

/// Another execution that a unit has to do with.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::domain) enum Remote {
    /// The child of the newest attempt.
    Child(ChildRef),
    /// Who gets its signal.
    Recipient(Sending),
}

/// A child, as far as it is known.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::domain) struct ChildRef {
    /// Id.
    pub(in crate::domain) id: ExecutionId,
    /// Uid, once it has started.
    pub(in crate::domain) uid: Option<Uid>,
}

/// A signal on its way.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::domain) struct Sending {
    /// Who gets it.
    pub(in crate::domain) recipient: Recipient,
    /// Name.
    pub(in crate::domain) name: Arc<str>,
    /// Payload.
    pub(in crate::domain) payload: Payload,
}

/// A delivery that is out: nothing has been heard that would end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::domain) struct Out {
    /// Since when the unit had waited; restored if the task never left the server.
    pub(in crate::domain) since: Timestamp,
    /// When it was handed out.
    pub(in crate::domain) dispatch_time: Timestamp,
    /// When it is looked for for the first time.
    pub(in crate::domain) check_time: Timestamp,
    /// When it times out.
    pub(in crate::domain) expire_time: Option<Timestamp>,
    /// Whether its session watches it, so that the first check is done.
    pub(in crate::domain) held: bool,
}

/// A report that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::domain) struct Report {
    /// Delivery that reported.
    pub(in crate::domain) delivery: u32,
    /// Hash of kind and content.
    pub(in crate::domain) hash: [u8; 16],
}

/// What a task remembers from its first attempt on.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::domain) struct Task {
    /// Input of all attempts; nothing once the unit has ended, so that one which has costs no more than what it gave.
    pub(in crate::domain) input: Option<Payload>,
    /// When the first attempt began to wait: what `total_timeout` counts from.
    pub(in crate::domain) first_time: Timestamp,
    /// When the newest attempt began to wait: its place in the queue, also when it is handed out again.
    pub(in crate::domain) attempt_time: Timestamp,
    /// Newest attempt, from 1.
    pub(in crate::domain) attempt: u32,
    /// Newest delivery, or the newest of the runs and generations before its own first; 0 if there is none.
    pub(in crate::domain) delivery: u32,
    /// Deliveries that ended with unknown outcome.
    pub(in crate::domain) lost: u32,
    /// Whether one of them was of the newest attempt.
    pub(in crate::domain) redelivery: bool,
    /// Session that has or had the newest delivery.
    pub(in crate::domain) session_id: Option<SessionId>,
    /// Its worker's name.
    pub(in crate::domain) worker_id: Option<Arc<str>>,
    /// Newest progress.
    pub(in crate::domain) progress: Option<Payload>,
    /// Accepted reports, oldest first.
    pub(in crate::domain) reports: VecDeque<Report>,
    /// Deliveries whose late success has been recorded.
    pub(in crate::domain) late: Vec<u32>,
}

impl Task {
    /// A task whose first attempt begins to wait; its deliveries are numbered on from the one that is given.
    pub(super) fn new(input: Payload, time: Timestamp, delivery: u32) -> Self {
        Self {
            input: Some(input),
            first_time: time,
            attempt_time: time,
            attempt: 1,
            delivery,
            lost: 0,
            redelivery: false,
            session_id: None,
            worker_id: None,
            progress: None,
            reports: VecDeque::new(),
            late: Vec::new(),
        }
    }

    /// Remembers an accepted report; the oldest makes room.
    pub(super) fn remember(&mut self, delivery: u32, hash: Option<[u8; 16]>) {
        let Some(hash) = hash else { return };
        if self.reports.len() == REPORTS_MAX {
            self.reports.pop_front();
        }
        // Most units have one, and there may be a hundred thousand of them.
        self.reports.reserve_exact(1);
        self.reports.push_back(Report { delivery, hash });
    }

    /// Keeps newer progress, if there is any.
    pub(super) fn keep_progress(&mut self, progress: Option<&Payload>) {
        if let Some(progress) = progress {
            self.progress = Some(progress.clone());
        }
    }
}

/// One unit.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::domain) struct UnitState {
    /// Where it stands.
    pub(in crate::domain) status: Status,
    /// Steps that it needs and that have not let it go on yet.
    pub(super) blockers: u32,
    /// What a task remembers; nothing before its first attempt, and for other steps.
    pub(in crate::domain) task: Option<Box<Task>>,
    /// Output, once it ended well.
    pub(in crate::domain) output: Option<Payload>,
    /// Why its newest attempt, or it itself, failed.
    pub(in crate::domain) failure: Option<Box<Failure>>,
    /// Number of the event that ended it; 0 before. What ended last is undone first.
    pub(super) end_number: u64,
    /// Whether some delivery ended without its worker's report: its work may have happened.
    pub(super) unknown: bool,
    /// Whether its undo has begun.
    pub(super) undone: bool,
    /// Whether it is the result of an earlier execution: then there is nothing of this one's to undo.
    pub(super) given: bool,
    /// 1, and more if it runs again by a retry of its execution.
    pub(in crate::domain) generation: u32,
    /// Newest delivery of the runs and generations before; its own are numbered on from there.
    pub(super) first_delivery: u32,
    /// The other execution, of a step that starts or signals one.
    pub(super) remote: Option<Box<Remote>>,
}

impl UnitState {
    /// A unit that waits for so many steps.
    pub(super) fn new(blockers: u32) -> Self {
        Self {
            status: Status::BLOCKED,
            blockers,
            task: None,
            output: None,
            failure: None,
            end_number: 0,
            unknown: false,
            undone: false,
            given: false,
            generation: 1,
            first_delivery: 0,
            remote: None,
        }
    }

    /// Ends it by the event of this number.
    pub(super) fn end(&mut self, status: Status, number: u64) {
        debug_assert!(status.is_resolved(), "an end is one of the resolved");
        self.status = status;
        self.end_number = number;
        if let Some(task) = &mut self.task {
            task.input = None;
        }
    }

    /// The child of its newest attempt.
    pub(in crate::domain) fn child(&self) -> Option<&ChildRef> {
        match self.remote.as_deref()? {
            Remote::Child(child) => Some(child),
            Remote::Recipient(_) => None,
        }
    }

    /// The signal that it gives.
    pub(in crate::domain) fn sending(&self) -> Option<&Sending> {
        match self.remote.as_deref()? {
            Remote::Recipient(sending) => Some(sending),
            Remote::Child(_) => None,
        }
    }

    /// The delivery of the attempt that somebody has: 0 of a child, which has none.
    pub(in crate::domain) fn attempt_out(&self) -> Option<u32> {
        if matches!(self.status, Status::Child(_)) { Some(0) } else { self.out().map(|(_, delivery)| delivery) }
    }

    /// The delivery that is out, with its number.
    pub(in crate::domain) fn out(&self) -> Option<(&Out, u32)> {
        let Status::Out(out) = &self.status else { return None };
        self.task.as_ref().map(|task| (out, task.delivery))
    }

    /// Whether a delivery is of its generation and has been handed out.
    pub(in crate::domain) fn knows(&self, delivery: u32) -> bool {
        self.task.as_ref().is_some_and(|task| self.first_delivery < delivery && delivery <= task.delivery)
    }

    /// A step that it needs has ended.
    pub(super) fn let_go(&mut self, time: Timestamp) {
        self.blockers -= 1;
        if let (0, Status::Pending { free_since }) = (self.blockers, &mut self.status) {
            *free_since = Some(time);
        }
    }

    /// Whether nothing that it needs keeps it from beginning.
    pub(super) fn is_unblocked(&self) -> bool {
        self.blockers == 0
    }

    /// Its place in the queue: when its newest attempt began to wait.
    pub(in crate::domain) fn attempt_time(&self) -> Timestamp {
        self.task.as_ref().map_or_else(Timestamp::default, |task| task.attempt_time)
    }

    /// Since when it waits for a worker, or had waited when it was handed out; nothing if its attempt is over.
    pub(super) fn waiting_since(&self) -> Option<Timestamp> {
        match self.status {
            Status::Waiting { since } => Some(since),
            Status::Out(out) => Some(out.since),
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
            | Status::Cancelled => None,
        }
    }

    /// Whether somebody else has its work and may do it though it ends now.
    pub(super) fn may_be_done_elsewhere(&self) -> bool {
        self.out().is_some() || matches!(self.status, Status::Sending { .. })
    }

    /// Whether its work happened, or may have happened.
    pub(super) fn may_have_happened(&self) -> bool {
        !self.given && (self.status == Status::Succeeded || (self.status.is_resolved() && self.unknown))
    }

    /// Whether it is to be undone when the execution winds down, under this policy for an unknown outcome.
    pub(super) fn wants_undo(&self, unknown: Unknown) -> bool {
        let unknown_counts = match unknown {
            Unknown::Compensate => self.unknown,
            Unknown::Skip => false,
        };
        !self.undone
            && !self.given
            && (self.status == Status::Succeeded || (self.status.is_resolved() && unknown_counts))
    }

    /// Whether the number is that of the delivery that is out.
    pub(in crate::domain) fn is_current(&self, delivery: u32) -> bool {
        self.out().is_some_and(|(_, current)| current == delivery)
    }

    /// When all attempts together have taken too long.
    pub(in crate::domain) fn total_deadline(&self, step: &Step) -> Option<Timestamp> {
        let total = attempts_of(step)?.total_timeout?;
        self.task.as_ref().map(|task| task.first_time + total)
    }

    /// What becomes due for it by time.
    ///
    /// Once it should stop only what ends a delivery counts, at last that it is given up. While its execution is paused
    /// queue timeouts, retries and sleeps do not.
    pub(super) fn timers(
        &self,
        step: &Step,
        give_up_time: Option<Timestamp>,
        is_paused: bool,
    ) -> [Option<(Timestamp, Timer)>; 4] {
        let stops = give_up_time.is_some();
        let unless_paused = |due: Option<(Timestamp, Timer)>| due.filter(|_| !is_paused);
        let total = || if stops { None } else { self.total_deadline(step).map(|time| (time, Timer::Total)) };
        match self.status {
            Status::Waiting { since } => {
                let queue = task_of(step).and_then(|task| task.queue_timeout).map(|span| (since + span, Timer::Queue));
                [unless_paused(queue), total(), None, None]
            }
            Status::Out(out) => [
                (!out.held).then_some((out.check_time, Timer::Check)),
                out.expire_time.map(|time| (time, Timer::Delivery)),
                total(),
                give_up_time.map(|time| (time, Timer::GiveUp)),
            ],
            Status::BackingOff { retry_time, .. } => {
                [unless_paused(Some((retry_time, Timer::Retry))), total(), None, None]
            }
            Status::Sleeping { wake_time, .. } => [unless_paused(Some((wake_time, Timer::Sleep))), None, None, None],
            Status::Awaiting { expire_time, .. } => [expire_time.map(|time| (time, Timer::Await)), None, None, None],
            // Who has a child waits for its end, whatever it takes.
            Status::Child(_) if stops => [None, None, None, None],
            Status::Child(wait) => [wait.expire_time.map(|time| (time, Timer::Delivery)), total(), None, None],
            Status::Sending { .. } => [give_up_time.map(|time| (time, Timer::GiveUp)), None, None, None],
            Status::Pending { .. }
            | Status::FanOut { .. }
            | Status::Spent
            | Status::Succeeded
            | Status::Failed
            | Status::Skipped
            | Status::Cancelled => [None, None, None, None],
        }
    }

    /// Bytes of the texts that it holds.
    pub(super) fn text_bytes(&self) -> usize {
        let payload = |payload: &Option<Payload>| payload.as_ref().map_or(0, Payload::len);
        let failure = self.failure.as_ref().map_or(0, |failure| {
            size_of::<Failure>() + failure.code.len() + failure.message.len() + payload(&failure.details)
        });
        let task = self.task.as_ref().map_or(0, |task| {
            size_of::<Task>()
                + payload(&task.input)
                + payload(&task.progress)
                + task.reports.len() * size_of::<Report>()
        });
        let remote = self.remote.as_ref().map_or(0, |remote| {
            let payload = match &**remote {
                Remote::Child(_) => 0,
                Remote::Recipient(sending) => sending.payload.len(),
            };
            size_of::<Remote>() + payload
        });
        payload(&self.output) + failure + task + remote
    }
}
