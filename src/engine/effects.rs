//! Does what executions ask of others: right after the commit that made an effect, and again on wake-ups until an event
//! settles it.
//!
//! - Nothing here is needed to know what is to be done: it follows from the state ([`Effect`]), so what has no room, fails
//!   or dies with the node is found again by the execution's deadline, on whichever node that is.
//! - An effect is under way once on a node. Two nodes may do it at once: its target takes it once.
//! - Executions take turns, so one that starts ten thousand children does not keep the others waiting; of each only so
//!   many wait, and of all together only so many run.

mod perform;

use super::Core;
use crate::domain::{Command, Effect, EffectId, ExecutionId, State, Uid};
use crate::store::ExecutionKey;
use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Effects that are done at once. Each waits for two commits, which many share.
const PARALLEL_MAX: usize = 64;
/// Effects that wait, of all executions; more come again with the next wake-up.
const WAITING_MAX: usize = 10_000;
/// Effects that wait, of one execution: what a second can do.
const WAITING_OF_ONE_MAX: usize = 1_000;
/// How old an effect may be when its turn comes: what it follows from may have passed, and far later its target, too.
const AGE_MAX: Duration = Duration::from_secs(60);

/// Something to do, and for whom.
#[derive(Clone, Debug)]
struct Job {
    effect: Effect,
    key: ExecutionKey,
    uid: Uid,
    id: ExecutionId,
    /// When it came, by the monotonic clock.
    since: Duration,
}

#[derive(Default)]
struct Jobs {
    /// Executions for which something waits, each once.
    order: VecDeque<ExecutionKey>,
    by_execution: HashMap<ExecutionKey, VecDeque<Job>>,
    /// What waits or is under way.
    known: HashSet<(ExecutionKey, EffectId)>,
    waiting: usize,
    /// Tasks that do effects.
    running: usize,
}

impl Jobs {
    /// Takes a job in, unless it is known or there is no room.
    fn put(&mut self, job: Job) {
        let key = job.key;
        let waits = self.by_execution.get(&key).map_or(0, VecDeque::len);
        if self.waiting >= WAITING_MAX || waits >= WAITING_OF_ONE_MAX || !self.known.insert((key, job.effect.id())) {
            return;
        }
        self.waiting += 1;
        self.by_execution.entry(key).or_default().push_back(job);
        if waits == 0 {
            self.order.push_back(key);
        }
    }

    /// The next job: of the execution that has waited for its turn longest.
    fn take(&mut self) -> Option<Job> {
        let key = self.order.pop_front()?;
        let jobs = self.by_execution.get_mut(&key).expect("who stands in the order has jobs");
        let job = jobs.pop_front().expect("who stands in the order has jobs");
        self.waiting -= 1;
        if jobs.is_empty() {
            self.by_execution.remove(&key);
        } else {
            self.order.push_back(key);
        }
        Some(job)
    }
}

/// The effects that this node does.
#[derive(Default)]
pub(super) struct Effects {
    jobs: Mutex<Jobs>,
}

impl Effects {
    fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Effects that wait or are under way: for metrics.
    pub(super) fn len(&self) -> usize {
        self.lock().known.len()
    }
}

/// An effect under way; it may come again once this is dropped.
struct UnderWay<'a> {
    effects: &'a Effects,
    job: Job,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.effects.lock().known.remove(&(self.job.key, self.job.effect.id()));
    }
}

/// A task that does effects; where it panics, another takes its place with the next effect.
struct Running<'a> {
    effects: &'a Effects,
    is_over: bool,
}

impl Running<'_> {
    /// The next effect; with none left this task ends.
    fn next(&mut self) -> Option<UnderWay<'_>> {
        let mut jobs = self.effects.lock();
        match jobs.take() {
            Some(job) => Some(UnderWay { effects: self.effects, job }),
            None => {
                // Under the same lock, so that what comes now begins another task.
                jobs.running -= 1;
                self.is_over = true;
                None
            }
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.effects.lock().running -= 1;
        }
    }
}

impl Core {
    /// Sees to it that effects of an execution are done.
    pub(super) fn drive(self: &Arc<Self>, key: ExecutionKey, state: &State, effects: Vec<Effect>) {
        if effects.is_empty() || self.stop.is_cancelled() {
            return;
        }
        let since = self.clock.monotonic();
        let mut jobs = self.effects.lock();
        for effect in effects {
            jobs.put(Job { effect, key, uid: state.uid(), id: state.id().clone(), since });
        }
        let more = jobs.waiting.min(PARALLEL_MAX.saturating_sub(jobs.running));
        jobs.running += more;
        drop(jobs);
        for _ in 0..more {
            let core = self.clone();
            self.tasks.spawn(async move { core.do_effects().await });
        }
    }

    async fn do_effects(self: &Arc<Self>) {
        let mut running = Running { effects: &self.effects, is_over: false };
        while !self.stop.is_cancelled() {
            let Some(under_way) = running.next() else { return };
            self.do_effect(&under_way.job).await;
        }
    }

    /// Does an effect and writes down what came of it. What fails comes again with a wake-up.
    async fn do_effect(self: &Arc<Self>, job: &Job) {
        if self.clock.monotonic().saturating_sub(job.since) > AGE_MAX {
            return;
        }
        let done = match self.perform(job).await {
            Ok(settled) => self.execute_for(job.key, Some(job.uid), Command::Settle(settled)).await.map(drop),
            Err(error) => Err(error),
        };
        let result = if done.is_ok() { "done" } else { "failed" };
        metrics::counter!(crate::telemetry::EFFECTS, "kind" => kind_of(&job.effect), "result" => result).increment(1);
        if let Err(error) = done {
            let effect = kind_of(&job.effect);
            tracing::debug!(execution = job.key.0, effect, %error, "not done; it is tried again");
        }
    }
}

/// What metrics and logs call an effect.
fn kind_of(effect: &Effect) -> &'static str {
    match effect {
        Effect::StartChild(_) => "start_child",
        Effect::CancelChild { .. } => "cancel_child",
        Effect::TellParent { .. } => "tell_parent",
        Effect::Signal(_) => "signal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Payload, Recipient, SignalRequest};

    fn job(key: i64, number: u64) -> Job {
        let id = ExecutionId::parse("e").unwrap();
        let signal = SignalRequest {
            unit: "s".into(),
            number,
            recipient: Recipient { id: id.clone(), uid: None, child: None },
            name: "go".into(),
            payload: Payload::null(),
            sender: [0; 16],
            may_come: false,
        };
        let uid = Uid(uuid::Uuid::nil());
        Job { effect: Effect::Signal(Box::new(signal)), key: ExecutionKey(key), uid, id, since: Duration::ZERO }
    }

    #[test]
    fn executions_take_turns() {
        let mut jobs = Jobs::default();
        for number in 1..=3 {
            jobs.put(job(1, number));
        }
        jobs.put(job(2, 1));
        let order: Vec<_> = std::iter::from_fn(|| jobs.take()).map(|job| (job.key.0, job.effect.id())).collect();
        let signal = EffectId::Signal;
        assert_eq!(order, [(1, signal(1)), (2, signal(1)), (1, signal(2)), (1, signal(3))]);
    }

    #[test]
    fn what_is_under_way_does_not_come_again_until_it_is_over() {
        let effects = Effects::default();
        effects.lock().running = 1;
        effects.lock().put(job(1, 1));
        let mut running = Running { effects: &effects, is_over: false };
        let under_way = running.next().unwrap();
        effects.lock().put(job(1, 1));
        assert_eq!(effects.lock().waiting, 0);
        drop(under_way);
        effects.lock().put(job(1, 1));
        assert_eq!(effects.lock().waiting, 1);
    }

    #[test]
    fn what_has_no_room_is_left_to_the_next_wake_up() {
        let mut jobs = Jobs::default();
        for key in 0..20 {
            for number in 0..2_000 {
                jobs.put(job(key, number));
            }
        }
        assert_eq!(jobs.waiting, WAITING_MAX);
        assert!(jobs.by_execution.values().all(|jobs| jobs.len() <= WAITING_OF_ONE_MAX));
        assert_eq!(std::iter::from_fn(|| jobs.take()).count(), WAITING_MAX);
        assert!(jobs.by_execution.is_empty() && jobs.waiting == 0);
    }

    #[test]
    fn a_task_that_panics_makes_room_for_another() {
        let effects = Effects::default();
        effects.lock().running = 1;
        effects.lock().put(job(1, 1));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut running = Running { effects: &effects, is_over: false };
            let _under_way = running.next().unwrap();
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(effects.len(), 0);
        assert_eq!(effects.lock().running, 0);
    }
}
