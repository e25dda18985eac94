//! What one execution asks of another, done by servers that lose it, repeat it, or die before they say what came of it.

use super::world::{Flight, LIVES_MAX, World};
use super::*;

/// How old an effect may be when it is done, in seconds; a server drops what is older.
const AGE_MAX: f64 = 60.0;

impl World {
    /// Does an effect that was on its way.
    pub(super) fn land(&mut self, flight: usize) {
        let Flight { from, effect, since } = self.flights.swap_remove(flight);
        if since + AGE_MAX < self.now || self.lives[from].is_removed {
            return;
        }
        let settled = self.perform(from, &effect);
        // A server that dies here leaves it undone as far as its sender knows.
        let is_told = !self.has_faults || !self.random.one_in(4);
        if let (Some(settled), true) = (settled, is_told && !self.lives[from].is_removed) {
            let copies = if self.has_faults && self.random.one_in(6) { 2 } else { 1 };
            for settled in std::iter::repeat_n(settled, copies) {
                self.decide(from, Command::Settle(settled)).expect("what came of an effect is never refused");
            }
        }
    }

    /// Does it; says what came of it, or nothing if it is to be tried again.
    fn perform(&mut self, from: usize, effect: &Effect) -> Option<Settled> {
        match effect {
            Effect::StartChild(child) => Some(self.start_child(from, child)),
            Effect::CancelChild { child, has_started, reason } => {
                Some(self.cancel_child(from, child, *has_started, reason))
            }
            Effect::TellParent { parent, end } => {
                if let Some(parent) = self.find_uid(parent.uid) {
                    self.decide(parent, Command::EndChild(end.clone())).expect("an end is never refused");
                }
                Some(Settled::ParentTold)
            }
            Effect::Signal(signal) => self.signal(from, signal),
        }
    }

    fn start_child(&mut self, from: usize, child: &ChildRequest) -> Settled {
        let (unit, child_id) = (child.unit.clone(), child.id.clone());
        match self.make_child(from, child, None) {
            Some(child_uid) => Settled::ChildStarted { unit, child_id, child_uid },
            None => {
                let (code, message) = (code::CHILD_NOT_STARTED, arc("its definition is not here any more"));
                Settled::ChildRefused { unit, child_id, code, message }
            }
        }
    }

    /// The child, made unless it is there; nothing if it never can be.
    fn make_child(&mut self, from: usize, child: &ChildRequest, cancelled: Option<Arc<str>>) -> Option<Uid> {
        if let Some(made) = self.find(&child.id) {
            return Some(self.lives[made].run.state.uid());
        }
        let is_lost = digest16(&[child.id.as_str().as_bytes()])[0].is_multiple_of(12);
        let definition = self.children.get(usize::try_from(child.depth).unwrap()).cloned();
        let definition = definition.filter(|_| !is_lost && self.may_be_made(child))?;
        let state = &self.lives[from].run.state;
        let parent = Parent {
            key: ExecutionKey(1),
            uid: state.uid(),
            id: state.id().clone(),
            run: child.run,
            unit: child.unit.clone(),
            generation: child.generation,
            attempt: child.attempt,
        };
        self.count_child(from, child);
        let birth = Some(Birth { parent, depth: child.depth, cancelled });
        let start = Start { id: child.id.clone(), birth, ..a_start(child.input.as_str()) };
        let made = self.start(definition, start).expect("nothing is asked of the input");
        Some(self.lives[made].run.state.uid())
    }

    /// A family has a bound, which says the same of a child whenever it is asked.
    fn may_be_made(&mut self, child: &ChildRequest) -> bool {
        if self.lives.len() >= LIVES_MAX {
            self.unmade.insert(child.id.clone());
        }
        !self.unmade.contains(&child.id)
    }

    fn count_child(&mut self, from: usize, child: &ChildRequest) {
        let mut meet = |what: &str| *self.met.entry(what.into()).or_default() += 1;
        if child.depth > 1 {
            meet("child of a child");
        }
        match lifetime_of(&self.lives[from].run, &child.unit) {
            Lifetime::Undo => meet("child that undoes"),
            Lifetime::Handler => meet("child of a handler"),
            Lifetime::Forward if child.unit.contains('[') => meet("child of a fan-out"),
            Lifetime::Forward => {}
        }
    }

    fn cancel_child(&mut self, from: usize, child: &ChildRequest, has_started: bool, reason: &Arc<str>) -> Settled {
        let cancelled =
            |is_gone| Settled::ChildCancelled { unit: child.unit.clone(), child_id: child.id.clone(), is_gone };
        let Some(made) = self.find(&child.id) else {
            let is_gone = has_started || self.make_child(from, child, Some(reason.clone())).is_none();
            return cancelled(is_gone);
        };
        match self.decide(made, Command::Cancel { reason: reason.clone(), request: None }) {
            Ok(_) | Err(Rejection::ExecutionClosed { .. } | Rejection::WindingDown { .. }) => cancelled(false),
            Err(Rejection::Deleted) => cancelled(true),
            Err(rejection) => panic!("a cancel was refused: {rejection}"),
        }
    }

    fn signal(&mut self, from: usize, signal: &SignalRequest) -> Option<Settled> {
        let SignalRequest { unit, number, recipient, name, payload, sender, may_come } = signal;
        let before = self.senders.insert((from, *number), *sender);
        hold("a signal keeps its sender", before.is_none_or(|before| before == *sender), || unit.to_string());
        let refused = |reason, message: &str| {
            Some(Settled::SignalRefused { unit: unit.clone(), number: *number, reason, message: arc(message) })
        };
        let found = match recipient.uid {
            Some(uid) => self.find_uid(uid),
            None => self.find(&recipient.id),
        };
        let Some(found) = found else {
            return if *may_come { None } else { refused("EXECUTION_NOT_FOUND", "there is none") };
        };
        if recipient.child.is_some() {
            *self.met.entry("signal to a child".into()).or_default() += 1;
        } else if recipient.uid.is_some() {
            *self.met.entry("signal to a parent".into()).or_default() += 1;
        }
        let command = Command::SignalFrom { sender: *sender, name: name.clone(), payload: payload.clone() };
        match self.decide(found, command) {
            Ok(_) => Some(Settled::SignalTaken { unit: unit.clone(), number: *number }),
            Err(Rejection::SignalBufferFull { .. }) => None,
            Err(Rejection::Deleted) => refused("EXECUTION_NOT_FOUND", "it is gone"),
            Err(Rejection::WindingDown { .. }) => refused("SIGNAL_BUFFER_FULL", "it winds down"),
            Err(Rejection::ExecutionClosed { .. }) => refused("EXECUTION_CLOSED", "it is closed"),
            Err(rejection) => panic!("a signal was refused: {rejection}"),
        }
    }
}
