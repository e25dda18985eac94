//! What executions do to each other, and batches to executions: each from when it is asked for until it is settled.
//!
//! The nodes' commits tell of both, also of those that nobody else hears of. A fault counts for a deed if it struck any
//! node meanwhile: whichever node was to do it, or did.

use crate::coverage::{Coverage, Fault};
use orbit::domain::{Event, EventKind, ExecutionKey, Unit};
use orbit::store::{Append, BatchAction, Committed};
use orbit::wire::event::decode_batch;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use uuid::Uuid;

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Deed {
    /// The child of a step of an execution that has no parent is started.
    ChildOfStep,
    /// The child of an item of a fan-out is started.
    ChildOfItem,
    ChildOfUndoing,
    ChildOfHandler,
    /// A child of a child, or one below that.
    Grandchild,
    /// A child that nobody waits for any more is cancelled.
    ChildCancel,
    /// A parent hears how its child has ended.
    ParentTold,
    SignalToChild,
    SignalToParent,
    SignalToOther,
    /// An execution that continued as new begins its next run.
    NextRun,
    BatchOfCancels,
    BatchOfTerminations,
    BatchOfRetries,
    BatchOfDeletions,
}

impl Deed {
    pub(crate) const ALL: [Self; 15] = [
        Self::ChildOfStep,
        Self::ChildOfItem,
        Self::ChildOfUndoing,
        Self::ChildOfHandler,
        Self::Grandchild,
        Self::ChildCancel,
        Self::ParentTold,
        Self::SignalToChild,
        Self::SignalToParent,
        Self::SignalToOther,
        Self::NextRun,
        Self::BatchOfCancels,
        Self::BatchOfTerminations,
        Self::BatchOfRetries,
        Self::BatchOfDeletions,
    ];

    fn child_of(unit: &Unit, is_child: bool) -> Self {
        if unit.starts_with("compensate:") {
            Self::ChildOfUndoing
        } else if unit.contains(':') {
            Self::ChildOfHandler
        } else if unit.ends_with(']') {
            Self::ChildOfItem
        } else if is_child {
            Self::Grandchild
        } else {
            Self::ChildOfStep
        }
    }
}

/// How often each fault has happened.
type Faults = [u64; Fault::ALL.len()];

/// Names what is under way.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Thread {
    Child(ExecutionKey, Unit),
    ChildCancel(ExecutionKey, Arc<str>),
    ParentTold(ExecutionKey),
    Signal(ExecutionKey, Unit),
    NextRun(ExecutionKey),
    Batch(Uuid),
}

/// What is under way.
#[derive(Default)]
pub(crate) struct Deeds {
    /// How many nodes there are.
    pub(crate) nodes: usize,
    /// Each with the faults that there had been when it was asked for.
    open: BTreeMap<Thread, (Deed, Faults)>,
    /// Executions that have a parent.
    children: BTreeSet<ExecutionKey>,
    /// The id of the child that each unit of an execution asked for last.
    asked: BTreeMap<ExecutionKey, BTreeMap<Unit, Arc<str>>>,
    faults: Faults,
}

impl Deeds {
    /// Something happened to some node.
    pub(crate) fn happens(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    /// A batch was made.
    pub(crate) fn batch_made(&mut self, id: Uuid, action: BatchAction) {
        let deed = match action {
            BatchAction::Cancel => Deed::BatchOfCancels,
            BatchAction::Terminate => Deed::BatchOfTerminations,
            BatchAction::Retry => Deed::BatchOfRetries,
            BatchAction::Delete => Deed::BatchOfDeletions,
        };
        self.begin(Thread::Batch(id), deed);
    }

    /// A batch has ended.
    pub(crate) fn batch_ended(&mut self, id: Uuid, coverage: &mut Coverage) {
        self.end(&Thread::Batch(id), coverage);
    }

    /// A node wrote something.
    pub(crate) fn written(&mut self, append: &Append, committed: &Committed, coverage: &mut Coverage) {
        let Committed::Written(key) = committed else { return };
        let events = decode_batch(&append.events, 1, &|_| None).expect("what was written is readable");
        for event in &events {
            self.happened(*key, event, coverage);
        }
    }

    fn happened(&mut self, key: ExecutionKey, event: &Event, coverage: &mut Coverage) {
        match &event.kind {
            EventKind::ExecutionCreated(created) if created.parent.is_some() => {
                self.children.insert(key);
            }
            EventKind::ChildRequested { unit, child_id, .. } => {
                self.asked.entry(key).or_default().insert(unit.clone(), child_id.as_str().into());
                self.begin(Thread::Child(key, unit.clone()), Deed::child_of(unit, self.children.contains(&key)));
            }
            EventKind::ChildStarted { unit, .. } => self.end(&Thread::Child(key, unit.clone()), coverage),
            EventKind::ChildCancelSent { child_id, .. } => {
                self.end(&Thread::ChildCancel(key, child_id.as_str().into()), coverage);
            }
            EventKind::ParentTold => self.end(&Thread::ParentTold(key), coverage),
            EventKind::SignalRequested { unit, recipient, .. } => {
                let deed = match (&recipient.child, recipient.uid) {
                    (Some(_), _) => Deed::SignalToChild,
                    (None, Some(_)) => Deed::SignalToParent,
                    (None, None) => Deed::SignalToOther,
                };
                self.begin(Thread::Signal(key, unit.clone()), deed);
            }
            EventKind::StepSucceeded { unit, .. } => {
                if let Some(asked) = self.asked.get_mut(&key) {
                    asked.remove(unit);
                }
                self.end(&Thread::Signal(key, unit.clone()), coverage);
            }
            EventKind::AttemptFailed { unit, .. }
            | EventKind::StepFailed { unit, .. }
            | EventKind::StepCancelled { unit } => {
                self.nobody_waits(key, Some(unit));
                self.end(&Thread::Signal(key, unit.clone()), coverage);
            }
            EventKind::WindDownStarted { .. } => self.nobody_waits(key, None),
            EventKind::ExecutionSucceeded { .. }
            | EventKind::ExecutionFailed { .. }
            | EventKind::ExecutionCancelled
            | EventKind::ExecutionTimedOut
            | EventKind::ExecutionTerminated { .. } => {
                self.nobody_waits(key, None);
                if self.children.contains(&key) {
                    self.begin(Thread::ParentTold(key), Deed::ParentTold);
                }
            }
            EventKind::ContinuedAsNew { .. } => self.begin(Thread::NextRun(key), Deed::NextRun),
            EventKind::RunStarted(_) => self.end(&Thread::NextRun(key), coverage),
            _ => {}
        }
    }

    /// The children of this unit, or of all, may have to be cancelled.
    fn nobody_waits(&mut self, key: ExecutionKey, unit: Option<&Unit>) {
        let Some(asked) = self.asked.get(&key) else { return };
        let is_it = |asked: &&Unit| unit.is_none_or(|unit| unit == *asked);
        let ids: Vec<Arc<str>> = asked.keys().filter(is_it).map(|unit| asked[unit].clone()).collect();
        for id in ids {
            self.begin(Thread::ChildCancel(key, id), Deed::ChildCancel);
        }
    }

    /// What is under way already began before.
    fn begin(&mut self, thread: Thread, deed: Deed) {
        self.open.entry(thread).or_insert((deed, self.faults));
    }

    fn end(&mut self, thread: &Thread, coverage: &mut Coverage) {
        let Some((deed, before)) = self.open.remove(thread) else { return };
        let met = Fault::ALL.into_iter().filter(|fault| self.faults[*fault as usize] > before[*fault as usize]);
        coverage.count_deed(deed, self.nodes, &met.collect::<Vec<_>>());
    }
}
