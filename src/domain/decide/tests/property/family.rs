//! What must be true of executions that have to do with each other, once everything has ended.

use super::*;

impl World {
    /// Parents and children agree, and what one asked of another was done exactly once.
    pub(super) fn hold_family(&self) {
        for (index, life) in self.lives.iter().enumerate() {
            self.hold_children(index);
            self.hold_signals(index);
            let told = life.run.log.iter().filter(|event| matches!(event.kind, EventKind::ParentTold)).count();
            let is_child = life.run.state.parent().is_some();
            hold("a parent is told once", told == usize::from(is_child), || life.run.state.id().to_string());
        }
        let mut ids: Vec<_> = self.lives.iter().map(|life| life.run.state.id()).collect();
        ids.sort();
        let twice = ids.windows(2).find(|pair| pair[0] == pair[1]);
        hold("a child starts once", twice.is_none(), || format!("{twice:?}"));
    }

    fn child(&self, id: &ExecutionId) -> Option<&Run> {
        self.lives.iter().map(|life| &life.run).find(|run| run.state.id() == id)
    }

    /// What a parent heard of its children is what became of them.
    fn hold_children(&self, parent: usize) {
        let run = &self.lives[parent].run;
        let mut asked: BTreeSet<&ExecutionId> = BTreeSet::new();
        // The child that a unit waits for.
        let mut waited: BTreeMap<&Unit, &ExecutionId> = BTreeMap::new();
        // Those that no unit waits for any more, though they had not said how they ended; those that have their cancel.
        let (mut left, mut cancelled) = (Vec::new(), BTreeSet::new());
        for event in &run.log {
            if let EventKind::ChildCancelSent { child_id, .. } = &event.kind {
                let is_new = cancelled.insert(child_id);
                hold("a child's cancel is settled once", is_new, || child_id.to_string());
            } else if let EventKind::ExecutionTerminated { .. } = event.kind {
                left.extend(std::mem::take(&mut waited).into_values());
            }
            if let EventKind::ChildRequested { unit, child_id, .. } = &event.kind {
                hold("each attempt asks for a child of its own", asked.insert(child_id), || unit.to_string());
                waited.insert(unit, child_id);
            } else if let EventKind::ChildStarted { unit, child_uid, .. } = &event.kind {
                let child = waited.get(unit).and_then(|id| self.child(id));
                let is_right = child.is_some_and(|child| child.state.uid() == *child_uid);
                hold("who is said to have started has", is_right, || unit.to_string());
            } else if let Some((unit, ends)) = Ends::of(&event.kind)
                && let Some(id) = waited.remove(unit)
            {
                match ends {
                    Ends::Well(output) => {
                        let given = self.child(id).and_then(|child| child.state.output());
                        hold("a unit has its child's output", given == Some(output), || format!("{unit}: {given:?}"));
                    }
                    Ends::Attempt(failure) => self.hold_failure(id, unit, failure),
                    Ends::Otherwise => left.push(id),
                }
            }
        }
        let is_cancelled = |id: &&ExecutionId| cancelled.contains(id);
        hold("a child that nobody waits for is cancelled", left.iter().all(is_cancelled), || format!("{left:?}"));
        hold("no unit waits for ever for its child", waited.is_empty(), || format!("{waited:?}"));
    }

    /// A child's failure is its unit's.
    fn hold_failure(&self, id: &ExecutionId, unit: &Unit, failure: &Failure) {
        let child = self.child(id);
        let own = child.map(|child| (child.state.phase(), child.state.failure().map(|failure| failure.code.clone())));
        let is_same = match &own {
            None => &*failure.code == code::CHILD_NOT_STARTED,
            Some((Phase::Failed, code)) => code.as_ref() == Some(&failure.code),
            Some((Phase::Cancelled, _)) => &*failure.code == code::CHILD_CANCELLED,
            Some((Phase::TimedOut, _)) => &*failure.code == code::CHILD_TIMED_OUT,
            Some((Phase::Terminated, _)) => &*failure.code == code::CHILD_TERMINATED,
            Some((Phase::Running | Phase::WindingDown | Phase::Succeeded, _)) => false,
        };
        hold("a unit has its child's failure", is_same, || format!("{unit}: {} of {own:?}", failure.code));
    }

    /// A signal that was given came exactly once, and one that was not did not come.
    fn hold_signals(&self, index: usize) {
        let run = &self.lives[index].run;
        // Of each unit that gives one, the number of the event that asked for it.
        let mut sent: BTreeMap<&Unit, u64> = BTreeMap::new();
        for event in &run.log {
            if let EventKind::SignalRequested { unit, .. } = &event.kind {
                sent.insert(unit, event.number);
            }
            let Some((unit, ends)) = Ends::of(&event.kind) else { continue };
            let (least, most) = match (ends, &event.kind) {
                (Ends::Well(_), _) => (1, 1),
                // It was given up, and may have come.
                (_, EventKind::StepCancelled { .. }) => (0, 1),
                (Ends::Attempt(_) | Ends::Otherwise, _) => (0, 0),
            };
            if let Some(number) = sent.remove(unit) {
                // Nobody can ask what is gone whether it took it; and what was refused may still be on its way twice.
                let refused = Some(event.time).filter(|_| most == 0);
                let came = self.received(index, number, refused);
                let rule = "a signal that was given came once, and one that was refused had not come";
                hold(rule, least <= came && came <= most, || format!("{unit}: {came} times, {:?}", event.kind));
            }
        }
        let senders: BTreeSet<_> = self.senders.values().collect();
        hold("each signal has a sender of its own", senders.len() == self.senders.len(), String::new);
    }

    /// How often the signal that the event of this number asked for came; to those that are there, before it was refused, if
    /// it was.
    fn received(&self, index: usize, number: u64, refused: Option<Timestamp>) -> usize {
        let Some(key) = self.senders.get(&(index, number)) else { return 0 };
        let lives = self.lives.iter().filter(|life| refused.is_none() || !life.is_removed);
        let came = |event: &&Event| {
            let EventKind::SignalReceived { sender, .. } = &event.kind else { return false };
            // The clocks of those who decide are up to two seconds apart.
            sender.as_ref() == Some(key) && refused.is_none_or(|time| event.time + span(2.0) < time)
        };
        lives.flat_map(|life| &life.run.log).filter(came).count()
    }
}

/// How a unit stops waiting for another execution.
enum Ends<'a> {
    /// Well, with this output.
    Well(&'a Payload),
    /// Its attempt failed, as was reported.
    Attempt(&'a Failure),
    /// By what has nothing to do with the other one.
    Otherwise,
}

impl<'a> Ends<'a> {
    fn of(kind: &'a EventKind) -> Option<(&'a Unit, Self)> {
        if let EventKind::StepSucceeded { unit, output, .. } = kind {
            Some((unit, Self::Well(output)))
        } else if let EventKind::AttemptFailed { unit, failure, report, .. } = kind {
            Some((unit, if report.is_some() { Self::Attempt(failure) } else { Self::Otherwise }))
        } else if let EventKind::StepFailed { unit, .. } | EventKind::StepCancelled { unit } = kind {
            Some((unit, Self::Otherwise))
        } else {
            None
        }
    }
}
