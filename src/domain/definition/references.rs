//! What the expressions at one place of a definition may mention, and what they did.
//!
//! A mention of a step of one's own list is a `need`. Steps of another list are seen only where they have ended, or
//! may be seen half done: handlers and compensations see the main steps, and need none of them.

use super::{
    fault::Place,
    fields::{list, nearest},
    model::{StepIndex, Winding},
};
use std::collections::HashMap;

/// Most names that a misspelt one is compared with.
const SUGGESTED_AMONG_MAX: usize = 1_000;

/// The list of the text that a step stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// `steps`.
    Main,
    /// A list of `handlers` that runs while the execution winds down.
    Handler(Winding),
    /// `handlers.on_event`.
    OnEvent,
}

impl List {
    /// The list's field, as people write it.
    pub(super) fn field(self) -> &'static str {
        match self {
            Self::Main => "steps",
            Self::Handler(Winding::Failure) => "failure",
            Self::Handler(Winding::Cancel) => "cancel",
            Self::Handler(Winding::Timeout) => "timeout",
            Self::OnEvent => "on_event",
        }
    }

    /// The name of a step's unit.
    pub(super) fn unit(self, id: &str) -> String {
        match self {
            Self::Main => id.to_owned(),
            Self::Handler(_) | Self::OnEvent => format!("{}:{id}", self.field()),
        }
    }
}

/// A step that somebody may mention.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) index: StepIndex,
    pub(super) list: List,
    /// Whether it is a child, and exactly one: a step with `workflow` and without `for_each`.
    pub(super) is_child: bool,
    /// Where it stands.
    pub(super) place: Place,
}

/// All steps by their ids.
pub(super) type Ids<'a> = HashMap<&'a str, Known>;

/// What stands between a name and the step that it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It mentions the step that it belongs to.
    Own,
    /// There is no such step.
    Unknown {
        /// What to do about it.
        hint: String,
    },
    /// There is, but it cannot be seen from here.
    OutOfScope {
        /// Why.
        message: String,
        /// What to do about it.
        hint: &'static str,
    },
}

/// What the expressions of one place may mention, and what they did.
#[derive(Debug)]
pub(super) struct References<'a> {
    ids: &'a Ids<'a>,
    /// The list that they stand in; the head of the definition and compensations see what the main steps see.
    list: List,
    /// The step that they belong to, if it may not be mentioned.
    own: Option<StepIndex>,
    /// Whether a mention is a need.
    binds: bool,
    /// Whether it is the input of a schedule, which sees `schedule` and nothing else.
    schedule: bool,
    /// Whether `signal` is in scope.
    pub(super) signal: bool,
    /// Name of the `for_each` variable in scope.
    pub(super) variable: Option<&'a str>,
    /// The steps that were mentioned and must therefore end before, in order, with repeats.
    pub(super) needs: Vec<StepIndex>,
}

impl<'a> References<'a> {
    /// Of a step.
    pub(super) fn of_step(ids: &'a Ids<'a>, list: List, own: StepIndex) -> Self {
        Self {
            ids,
            list,
            own: Some(own),
            binds: true,
            schedule: false,
            signal: false,
            variable: None,
            needs: Vec::new(),
        }
    }

    /// Of what undoes a step: it may mention that step, too.
    pub(super) fn of_compensation(ids: &'a Ids<'a>) -> Self {
        Self { own: None, binds: false, ..Self::of_step(ids, List::Main, StepIndex(0)) }
    }

    /// Of the definition's head: `result` and `queries`.
    pub(super) fn of_head(ids: &'a Ids<'a>) -> Self {
        Self::of_compensation(ids)
    }

    /// Of a schedule's input.
    pub(super) fn of_schedule(ids: &'a Ids<'a>) -> Self {
        Self { schedule: true, ..Self::of_head(ids) }
    }

    /// Whether `event` is in scope.
    pub(super) fn event(&self) -> bool {
        self.list == List::OnEvent
    }

    /// Whether `failure` is in scope.
    pub(super) fn failure(&self) -> bool {
        matches!(self.list, List::Handler(_))
    }

    /// The names in scope.
    pub(super) fn names(&self) -> Vec<&'a str> {
        if self.schedule {
            return vec!["schedule"];
        }
        let mut names = vec!["input", "steps", "execution"];
        names.extend(self.signal.then_some("signal"));
        names.extend(self.event().then_some("event"));
        names.extend(self.failure().then_some("failure"));
        names.extend(self.variable);
        names
    }

    /// The step of an id that an expression mentions.
    pub(super) fn mention(&mut self, id: &str) -> Result<StepIndex, Refused> {
        let known = self.find(id)?;
        if known.list == self.list {
            self.needs.extend(self.binds.then_some(known.index));
        } else if known.list != List::Main {
            return Err(self.out_of_scope(id, known, "mention a step of the same list, or one under `steps`"));
        }
        Ok(known.index)
    }

    /// The step of an id under `needs`.
    pub(super) fn need(&mut self, id: &str) -> Result<(), Refused> {
        let known = self.find(id)?;
        if known.list != self.list {
            let hint = match (self.list, known.list) {
                (List::Main, _) => "a step needs steps under `steps` only",
                (_, List::Main) => "remove it; steps under `steps` can be mentioned without",
                (_, _) => "name a step of the same list",
            };
            return Err(self.out_of_scope(id, known, hint));
        }
        self.needs.push(known.index);
        Ok(())
    }

    /// The child whose step has this id, for a signal: no need, since the child must still be running.
    pub(super) fn child(&self, id: &str) -> Result<&'a Known, Refused> {
        let known = self.find(id)?;
        let is_seen = known.list == self.list || (self.list == List::OnEvent && known.list == List::Main);
        if is_seen { Ok(known) } else { Err(self.out_of_scope(id, known, "name a step that runs at the same time")) }
    }

    fn find(&self, id: &str) -> Result<&'a Known, Refused> {
        let Some(known) = self.ids.get(id) else {
            let hint = match nearest(id, self.ids.keys().copied().take(SUGGESTED_AMONG_MAX)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "name a step of this definition".to_owned(),
            };
            return Err(Refused::Unknown { hint });
        };
        // Each event has its own run of an `on_event` step, so one of them is never another's past.
        if self.own == Some(known.index) {
            return Err(Refused::Own);
        }
        if self.list == List::OnEvent && known.list == List::OnEvent {
            return Err(self.out_of_scope(id, known, "mention a step under `steps`"));
        }
        Ok(known)
    }

    fn out_of_scope(&self, id: &str, known: &Known, hint: &'static str) -> Refused {
        let here = match self.list {
            List::Main => "here".to_owned(),
            List::Handler(_) | List::OnEvent => format!("from {}", list(&[self.list.field()])),
        };
        Refused::OutOfScope {
            message: format!("the step `{id}` of `{}` cannot be seen {here}", known.list.field()),
            hint,
        }
    }
}
