//! Why an execution does not move: everything that it waits for.
//!
//! - Each unit that has begun and not ended is one wait; then come the steps that wait for others. What concerns the
//!   execution as a whole (it winds down, it is closed) comes first.
//! - A wait is a value; `sentence` says it to people, and what they can do about it.
//! - What no state knows, which workers live and when they were heard of, is filled in by whoever knows it: [`Supply`],
//!   [`AtWorker::contact_time`], [`AtWorker::beat_due_time`].
//!
//! A new way of waiting is a variant of [`Reason`], with its sentence and its message in `explanation.proto`.

mod sentence;
mod supply;

pub use supply::{Announcement, Supply};

use super::definition::Winding;
use super::state::{ChildWait, Status, UnitKey, await_of, task_of};
use super::{ExecutionId, Failure, SessionId, State, Timestamp, Uid, Unit};
use std::{sync::Arc, time::Duration};

/// Most waits that an explanation lists.
pub const WAITS_MAX: usize = 100;

/// Most names that one wait lists.
pub const NAMES_MAX: usize = 10;

/// What an execution waits for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explanation {
    /// The waits, at most [`WAITS_MAX`].
    pub waits: Vec<Wait>,
    /// How many more there are.
    pub more: usize,
}

/// One thing that is waited for.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    /// Unit that waits; none for the execution as a whole.
    pub unit: Option<Unit>,
    /// Since when; nothing of what was set aside, and of children that a server before this one left behind.
    pub since: Option<Timestamp>,
    /// When it ends by itself, well or not; none if it need not.
    pub until: Option<Timestamp>,
    /// What is waited for.
    pub reason: Reason,
}

/// What is waited for.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// The execution is closed.
    Closed {
        /// Its state, as `FAILED`.
        state: &'static str,
    },
    /// Its stored data contradicts itself, so nothing is done with it.
    Quarantined {
        /// Why.
        why: Arc<str>,
    },
    /// The execution is paused.
    Pause {
        /// Why; may be empty.
        reason: Arc<str>,
    },
    /// The start of the execution was delayed.
    Delay,
    /// The unit would go on, but the execution is paused or its start is delayed.
    Held,
    /// The execution winds down.
    WindDown(WindDown),
    /// Something is due that the server has not done yet.
    Work,
    /// A worker is to take the task.
    Worker(ForWorker),
    /// A worker has the task.
    AtWorker(AtWorker),
    /// The next attempt is to come.
    Retry {
        /// The attempt that failed, from 1.
        attempt: u32,
        /// Why it failed, as far as it is known.
        failure: Option<Failure>,
    },
    /// A sleep is to end.
    Time,
    /// A signal is to come.
    Signal {
        /// Its name.
        name: Arc<str>,
        /// Whether only some are taken.
        has_match: bool,
        /// Signals of that name that have come and were not taken.
        unmatched: usize,
    },
    /// A child is to end.
    Child(ForChild),
    /// Another execution is to take a signal.
    Recipient {
        /// Its id.
        id: ExecutionId,
        /// Name of the signal.
        name: Arc<str>,
    },
    /// The parent is to hear of its end.
    Parent {
        /// Id of the parent.
        id: ExecutionId,
        /// Its unit that waits.
        unit: Unit,
    },
    /// Children that no unit waits for any more are to be cancelled.
    Abandoned {
        /// Ids of the first of them, at most [`NAMES_MAX`].
        ids: Vec<ExecutionId>,
        /// How many more.
        more: usize,
    },
    /// Items are to end.
    Items(Items),
    /// Other steps are to end.
    Steps {
        /// Names of the first of them, at most [`NAMES_MAX`].
        names: Vec<Unit>,
        /// How many more.
        more: usize,
    },
}

/// How far a wind-down has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindDown {
    /// Why it winds down.
    pub cause: Winding,
    /// What it waits for.
    pub stage: Stage,
}

/// What a wind-down waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// So many units that others have are to end.
    Stopping(usize),
    /// A unit is being undone; after it come so many.
    Undoing(usize),
    /// Handlers run.
    Handling,
}

/// A task that waits for a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForWorker {
    /// Queue.
    pub queue: Arc<str>,
    /// Contract `name@version`.
    pub contract: Arc<str>,
    /// Language that the worker must have; none for any.
    pub language: Option<Arc<str>>,
    /// 1 first to 5 last.
    pub priority: u8,
    /// Attempt, from 1.
    pub attempt: u32,
    /// The workers that there are, once somebody has looked.
    pub supply: Option<Supply>,
}

/// A task that a worker has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtWorker {
    /// The worker's name.
    pub worker_id: Arc<str>,
    /// Its session.
    pub session_id: Option<SessionId>,
    /// Attempt, from 1.
    pub attempt: u32,
    /// Delivery, from 1.
    pub delivery: u32,
    /// Whether the worker is known to hold it.
    pub held: bool,
    /// Whether it is to stop.
    pub stops: bool,
    /// When the delivery times out; none if its step has no `timeout`.
    pub expire_time: Option<Timestamp>,
    /// Longest time between two beats, if the step names one.
    pub heartbeat_timeout: Option<Duration>,
    /// When the next beat is due at the latest, once somebody has looked.
    pub beat_due_time: Option<Timestamp>,
    /// When its session was last heard of, once somebody has looked; none if the session is gone, too.
    pub contact_time: Option<Timestamp>,
}

/// A child that is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForChild {
    /// Its id.
    pub id: ExecutionId,
    /// Its uid; none until it is known to have started.
    pub uid: Option<Uid>,
    /// Attempt, from 1.
    pub attempt: u32,
    /// Whether it is to stop.
    pub stops: bool,
    /// Whether it has been told so.
    pub has_cancel: bool,
}

/// How far a fan-out has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Items {
    /// Items.
    pub items: u32,
    /// Items that have begun, ended ones among them.
    pub begun: u32,
    /// Items that have begun and not ended.
    pub open: u32,
    /// Items that failed for good.
    pub failed: u32,
    /// How many may run at once.
    pub parallel_max: Option<u32>,
}

impl Items {
    /// Whether more items would run if they might.
    #[must_use]
    pub fn is_at_limit(&self) -> bool {
        self.begun < self.items && self.parallel_max.is_some_and(|most| self.open >= most)
    }
}

impl Explanation {
    /// What is known of an execution that was set aside.
    #[must_use]
    pub fn of_quarantine(why: Arc<str>) -> Self {
        let wait = Wait { unit: None, since: None, until: None, reason: Reason::Quarantined { why } };
        Self { waits: vec![wait], more: 0 }
    }

    /// Adds a wait, or counts it if there is no room.
    fn add(&mut self, wait: impl FnOnce() -> Wait) {
        if self.waits.len() < WAITS_MAX {
            self.waits.push(wait());
        } else {
            self.more += 1;
        }
    }
}

impl State {
    /// Everything that it waits for at an instant, what concerns it as a whole first.
    #[must_use]
    pub fn explain(&self, now: Timestamp) -> Explanation {
        let mut explanation = Explanation::default();
        for wait in [self.as_a_whole(), self.for_parent(), self.for_abandoned()].into_iter().flatten() {
            explanation.add(|| wait);
        }
        if let Some(since) = self.deadline().filter(|deadline| *deadline <= now) {
            explanation.add(|| Wait { unit: None, since: Some(since), until: None, reason: Reason::Work });
        }
        for (key, _) in self.active() {
            explanation.add(|| self.wait_of(key));
        }
        for step in self.blocked() {
            explanation.add(|| self.wait_of(UnitKey::of(step)));
        }
        explanation
    }

    /// What keeps the execution itself.
    fn as_a_whole(&self) -> Option<Wait> {
        let of_all = |since, until, reason| Some(Wait { unit: None, since, until, reason });
        if self.is_closed() {
            return of_all(self.close_time(), None, Reason::Closed { state: self.phase().as_str() });
        }
        if let Some((since, reason)) = self.paused() {
            return of_all(Some(since), None, Reason::Pause { reason: reason.clone() });
        }
        if self.is_held() {
            return of_all(Some(self.start_time()), self.begin_time(), Reason::Delay);
        }
        let cause = self.winding()?;
        let stage = if self.engaged() > 0 {
            Stage::Stopping(self.engaged())
        } else if self.is_undoing() {
            Stage::Undoing(self.undos_left())
        } else {
            Stage::Handling
        };
        let until = self.give_up_time().filter(|_| matches!(stage, Stage::Stopping(_)));
        of_all(self.winding_since(), until, Reason::WindDown(WindDown { cause, stage }))
    }

    /// The parent does not know of its end.
    fn for_parent(&self) -> Option<Wait> {
        let parent = self.parent().filter(|_| self.has_news_for_parent())?;
        let reason = Reason::Parent { id: parent.id.clone(), unit: parent.unit.clone() };
        Some(Wait { unit: None, since: self.close_time(), until: None, reason })
    }

    fn for_abandoned(&self) -> Option<Wait> {
        let children = self.abandoned_children();
        let more = children.len().saturating_sub(NAMES_MAX);
        // Nobody knows since when, if that is not known of each: it may be the one that has waited longest.
        let since = children.clone().map(|(_, since)| since).min().flatten();
        let ids: Vec<ExecutionId> = children.take(NAMES_MAX).map(|(id, _)| id.clone()).collect();
        let reason = (!ids.is_empty()).then_some(Reason::Abandoned { ids, more })?;
        Some(Wait { unit: None, since, until: None, reason })
    }

    /// What a unit that has not ended waits for.
    fn wait_of(&self, key: UnitKey) -> Wait {
        let unit = self.unit(key);
        let (since, reason) = match unit.status {
            Status::Pending { free_since } => {
                let since = self.blocked_since(key.step, free_since);
                match self.held_since().filter(|_| self.is_unblocked(key.step)) {
                    Some(held) => (Some(since.max(held)), Reason::Held),
                    None => (Some(since), self.for_steps(key)),
                }
            }
            Status::Waiting { since } => match self.held_since() {
                Some(held) => (Some(since.max(held)), Reason::Held),
                None => (Some(since), self.for_worker(key)),
            },
            Status::Out(out) => (Some(out.dispatch_time), self.at_worker(key)),
            Status::BackingOff { since, .. } => (Some(since), self.for_retry(key)),
            Status::Sleeping { since, .. } => (Some(since), Reason::Time),
            Status::FanOut { since } => (Some(since), self.for_items(key)),
            Status::Awaiting { since, .. } => (Some(since), self.for_signal(key)),
            Status::Child(wait) => (wait.start_time.or(Some(unit.attempt_time())), self.for_child(key, wait)),
            Status::Sending { since, .. } => (Some(since), self.for_recipient(key)),
            // Its end follows with the next decision; where it has ended, nothing does.
            Status::Spent | Status::Succeeded | Status::Failed | Status::Skipped | Status::Cancelled => {
                (Some(self.last_time()), Reason::Work)
            }
        };
        Wait { unit: Some(self.name(key)), since, until: self.wait_ends(key), reason }
    }

    fn for_worker(&self, key: UnitKey) -> Reason {
        let Some(task) = task_of(self.step(key.step)) else { return Reason::Work };
        Reason::Worker(ForWorker {
            queue: task.queue.clone(),
            contract: task.contract.clone(),
            language: task.language.clone(),
            priority: task.priority,
            attempt: self.unit(key).task.as_ref().map_or(1, |task| task.attempt),
            supply: None,
        })
    }

    fn at_worker(&self, key: UnitKey) -> Reason {
        let unit = self.unit(key);
        let (Some((out, delivery)), Some(task)) = (unit.out(), &unit.task) else { return Reason::Work };
        Reason::AtWorker(AtWorker {
            worker_id: task.worker_id.clone().unwrap_or_else(|| Arc::from("")),
            session_id: task.session_id,
            attempt: task.attempt,
            delivery,
            held: out.held,
            stops: !self.is_live(key.step),
            expire_time: out.expire_time,
            heartbeat_timeout: task_of(self.step(key.step)).and_then(|task| task.heartbeat_timeout),
            beat_due_time: None,
            contact_time: None,
        })
    }

    fn for_retry(&self, key: UnitKey) -> Reason {
        let unit = self.unit(key);
        let attempt = unit.task.as_ref().map_or(1, |task| task.attempt);
        Reason::Retry { attempt, failure: unit.failure.as_deref().cloned() }
    }

    fn for_signal(&self, key: UnitKey) -> Reason {
        let Some(wait) = await_of(self.step(key.step)) else { return Reason::Work };
        Reason::Signal {
            name: wait.signal.clone(),
            has_match: wait.predicate.is_some(),
            unmatched: self.signals().of(&wait.signal).count(),
        }
    }

    fn for_child(&self, key: UnitKey, wait: ChildWait) -> Reason {
        let unit = self.unit(key);
        let Some(child) = unit.child() else { return Reason::Work };
        Reason::Child(ForChild {
            id: child.id.clone(),
            uid: child.uid,
            attempt: unit.task.as_ref().map_or(1, |task| task.attempt),
            stops: !self.is_live(key.step),
            has_cancel: wait.cancel_sent,
        })
    }

    fn for_recipient(&self, key: UnitKey) -> Reason {
        let Some(sending) = self.unit(key).sending() else { return Reason::Work };
        Reason::Recipient { id: sending.recipient.id.clone(), name: sending.name.clone() }
    }

    fn for_items(&self, key: UnitKey) -> Reason {
        let Some(group) = self.group(key.step) else { return Reason::Work };
        Reason::Items(Items {
            items: group.count(),
            begun: group.next,
            open: group.open,
            failed: group.failed,
            parallel_max: self.step(key.step).for_each.as_ref().and_then(|for_each| for_each.parallel_max),
        })
    }

    fn for_steps(&self, key: UnitKey) -> Reason {
        let needs = self.step(key.step).needs.iter().map(|need| UnitKey::of(*need));
        let needed = needs.filter(|need| !self.unit(*need).status.is_resolved());
        // Handlers wait for all that is undone, and what ends the run for all that runs beside it.
        let open: Vec<UnitKey> = match self.is_unblocked(key.step) {
            false => needed.collect(),
            true => self.active().map(|(key, _)| key).collect(),
        };
        Reason::Steps {
            names: open.iter().take(NAMES_MAX).map(|need| self.name(*need)).collect(),
            more: open.len().saturating_sub(NAMES_MAX),
        }
    }
}
