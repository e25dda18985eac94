//! Decides which slots start, wait, are skipped or missed: a bounded number at a time, oldest first.
//!
//! - The cursor never goes back, so no slot is decided twice, whatever clocks do.
//! - A run is open as soon as it has been decided to start, so a second slot of the same decision meets it.
//! - What is late starts in order and not faster than [`STARTS_MAX`] in [`PACE`]; the rest waits, also where runs end meanwhile
//!   and the schedule is looked at for them. What comes due in between and meets nothing late is not held up.
//!
//! # Ending what is open
//!
//! `CancelPrevious` and `TerminatePrevious` let the slot wait until the open runs have really ended. Started at once it
//! would run beside the cancel handlers and compensations of the run that it is to replace.

use super::{
    Backfill, Decision, Ending, Entry, Outcome, Overlap, Pause, PauseReason, Schedule, Situation, SkipReason, Slot,
    SlotKind, State, Trigger, Upcoming, Waiting,
};
use crate::domain::Timestamp;
use std::{sync::Arc, time::Duration};

/// Most executions that one decision starts.
pub const STARTS_MAX: u32 = 10;

/// How long the next decision is put off when one has started as many as it may.
pub const PACE: Duration = Duration::from_secs(1);

/// Most slots of one decision; a year of missed minutes takes some fifty decisions.
pub const SLOTS_MAX: u32 = 10_000;

/// Most ledger rows of one decision.
pub const ENTRIES_MAX: usize = 100;

impl Schedule {
    /// Decides what is due. To be asked when `wake` of the last decision has come, when a run of the schedule has ended,
    /// and after the schedule was made or resumed.
    #[must_use]
    pub fn decide(&self, state: &State, situation: &Situation<'_>) -> Decision {
        let mut deciding = Deciding::new(self, state, situation);
        deciding.start_what_waits();
        deciding.regular_slots();
        deciding.backfills();
        deciding.finish()
    }

    /// Starts a run now, if the overlap policy lets it, and decides what else is due. The run counts as open for all that
    /// comes after. The first entry of kind [`SlotKind::Trigger`] tells what became of it. A pause does not hold it up,
    /// and it does not count for `max_actions`.
    #[must_use]
    pub fn trigger(&self, state: &State, trigger: &Trigger, situation: &Situation<'_>) -> Decision {
        let mut deciding = Deciding::new(self, state, situation);
        deciding.start_what_waits();
        let slot = Slot { nominal: situation.now, kind: SlotKind::Trigger { request: Arc::clone(&trigger.request) } };
        deciding.offer(slot, situation.now, trigger.overlap.unwrap_or(self.policies.overlap));
        deciding.regular_slots();
        deciding.backfills();
        deciding.finish()
    }

    /// Puts new times and policies into force, and decides by them. `self` is the schedule as it was.
    ///
    /// If the times are the same, nothing is lost or repeated. Otherwise nothing starts any more that the old times had
    /// and that was not decided yet, and nothing that the new times have up to now: the ledger gets rows for the former,
    /// for at most [`SLOTS_MAX`] slots. A slot that waits for the end of a run goes on waiting. A schedule that had started
    /// all that it may, and may start more now, goes on from now.
    #[must_use]
    pub fn replace(&self, state: &State, new: &Self, situation: &Situation<'_>) -> Decision {
        if self.spec == new.spec {
            let mut state = state.clone();
            if self.is_used_up(&state) {
                // It had no slots any more; those that would have been are none to be caught up with.
                state.cursor = state.cursor.max(situation.now);
            }
            return new.decide(&state, situation);
        }
        let mut leaving = Deciding::new(self, state, situation);
        leaving.leave_undecided();
        let Deciding { mut state, entries, .. } = leaving;
        state.cursor = state.cursor.max(situation.now);
        let mut decision = new.decide(&state, situation);
        decision.entries.splice(0..0, entries);
        decision
    }
}

/// A decision in the making.
struct Deciding<'a> {
    schedule: &'a Schedule,
    situation: &'a Situation<'a>,
    state: State,
    open_runs: u32,
    starts: u32,
    slots: u32,
    entries: Vec<Entry>,
    /// So many of the entries stand for rows that exist, or come before one that does: no further slot joins them.
    sealed: usize,
    /// Whether the slot that waits does so since this decision, so that the ledger has no row of it.
    waits_anew: Option<Timestamp>,
    wake: Option<Timestamp>,
}

impl<'a> Deciding<'a> {
    fn new(schedule: &'a Schedule, state: &State, situation: &'a Situation<'a>) -> Self {
        Self {
            schedule,
            situation,
            state: state.clone(),
            open_runs: situation.open_runs,
            starts: 0,
            slots: 0,
            entries: Vec::new(),
            sealed: 0,
            waits_anew: None,
            wake: None,
        }
    }

    fn finish(mut self) -> Decision {
        if let (Some(due), Some(waiting)) = (self.waits_anew, &self.state.waiting) {
            self.entries.push(Entry::one(waiting.slot.clone(), due, Outcome::Buffered));
        }
        let ending = self.next_waiting().and_then(|waiting| waiting.ending).filter(|_| self.open_runs > 0);
        Decision { state: self.state, entries: self.entries, ending, wake: self.wake }
    }

    /// Starts the slot that waited for open runs to end, once they have. The catch-up window is about the time that a
    /// server was away, so it does not end this wait. What may not start any more, because `max_actions` was lowered to
    /// what has started, does not go on waiting.
    fn start_what_waits(&mut self) {
        let Some(Waiting { slot, .. }) = &self.state.waiting else { return };
        let (slot, due) = (slot.clone(), self.due(slot));
        if slot.kind == SlotKind::Regular && self.schedule.is_used_up(&self.state) {
            self.state.waiting = None;
            self.entries.push(Entry::one(slot, due, Outcome::Skipped(SkipReason::Replaced)));
            // The ledger has a row of it, which becomes this one.
            self.sealed = self.entries.len();
        } else if self.open_runs == 0 && self.next_waiting().is_some() {
            self.state.waiting = None;
            self.start(slot, due);
        }
    }

    /// The slot that starts as soon as no run is open: what a pause or `max_actions` holds back is none, so nobody is asked
    /// to end for it, and no trigger or backfill waits for it.
    fn next_waiting(&self) -> Option<&Waiting> {
        let holds_regular = self.state.pause.is_some() || self.schedule.is_used_up(&self.state);
        self.state.waiting.as_ref().filter(|waiting| waiting.slot.kind != SlotKind::Regular || !holds_regular)
    }

    /// When a slot may start at the earliest.
    fn due(&self, slot: &Slot) -> Timestamp {
        match slot.kind {
            SlotKind::Regular => self.schedule.due(slot.nominal),
            SlotKind::Trigger { .. } | SlotKind::Backfill { .. } => slot.nominal,
        }
    }

    fn regular_slots(&mut self) {
        let now = self.situation.now;
        while self.state.pause.is_none() && !self.schedule.is_used_up(&self.state) {
            let slot = match self.schedule.spec.upcoming(self.state.cursor) {
                Upcoming::At(slot) => slot,
                Upcoming::NotBefore(instant) if instant <= now => {
                    self.state.cursor = instant;
                    return self.wake_by(now);
                }
                Upcoming::NotBefore(instant) => return self.wake_by(instant),
                Upcoming::Never => return,
            };
            if slot > now {
                return self.wake_by(self.schedule.due(slot));
            }
            if self.slots >= SLOTS_MAX || self.entries.len() >= ENTRIES_MAX {
                return self.wake_by(now);
            }
            if self.state.resume_time.is_some_and(|resumed| slot <= resumed) {
                self.pass_over(slot, Outcome::Skipped(SkipReason::Paused));
                continue;
            }
            let window = self.schedule.policies.catchup_window;
            // With its jitter a slot is due at most so much later, which need not be computed for what is long past.
            if slot + self.schedule.spec.draft().jitter + window < now {
                self.pass_over(slot, Outcome::Missed);
                continue;
            }
            let due = self.schedule.due(slot);
            if due > now {
                return self.wake_by(due);
            }
            if due + window < now {
                self.pass_over(slot, Outcome::Missed);
                continue;
            }
            if self.is_paced(due) {
                return;
            }
            self.state.cursor = slot;
            self.slots += 1;
            self.offer(Slot::regular(slot), due, self.schedule.policies.overlap);
        }
    }

    /// Whether what is due since then has to wait, because as many have started at once as may. It is looked at again then.
    fn is_paced(&mut self, due: Timestamp) -> bool {
        let now = self.situation.now;
        if self.starts >= STARTS_MAX {
            self.state.paced_until = Some(now + PACE);
        }
        match self.state.pace(now) {
            Some(until) if due + PACE <= until => {
                self.wake_by(until);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Decides a regular slot without a start.
    fn pass_over(&mut self, slot: Timestamp, outcome: Outcome) {
        self.state.cursor = slot;
        self.slots += 1;
        self.record(Slot::regular(slot), slot, outcome);
    }

    /// Decides one slot that is due, by what it meets.
    fn offer(&mut self, slot: Slot, due: Timestamp, overlap: Overlap) {
        let is_free = self.open_runs == 0 && self.next_waiting().is_none();
        if is_free || overlap == Overlap::Allow {
            return self.start(slot, due);
        }
        match (overlap, &self.state.waiting) {
            (Overlap::Allow, _) => unreachable!("it has started"),
            (Overlap::Skip, _) | (Overlap::BufferOne, Some(_)) => {
                self.record(slot, due, Outcome::Skipped(SkipReason::Overlap));
            }
            (Overlap::BufferOne, None) => self.wait(slot, due, None),
            (Overlap::CancelPrevious, _) => self.wait(slot, due, Some(Ending::Cancel)),
            (Overlap::TerminatePrevious, _) => self.wait(slot, due, Some(Ending::Terminate)),
        }
    }

    /// Lets a slot wait, in the place of one that does.
    fn wait(&mut self, slot: Slot, due: Timestamp, ending: Option<Ending>) {
        if let Some(replaced) = self.state.waiting.replace(Waiting { slot, ending }) {
            let outcome = Outcome::Skipped(SkipReason::Superseded);
            match self.waits_anew {
                Some(due) => self.record(replaced.slot, due, outcome),
                // The ledger has a row of it, which becomes this one.
                None => {
                    let due = self.due(&replaced.slot);
                    self.entries.push(Entry::one(replaced.slot, due, outcome));
                    self.sealed = self.entries.len();
                }
            }
        }
        self.waits_anew = Some(due);
    }

    /// Starts an execution, or fails to.
    fn start(&mut self, slot: Slot, due: Timestamp) {
        if let Some(reason) = self.situation.obstacle {
            let reason: Arc<str> = Arc::from(reason);
            if self.schedule.policies.pause_on_failure && self.state.pause.is_none() {
                let reason = PauseReason::Failure { note: Arc::clone(&reason) };
                self.state.pause = Some(Pause { since: self.situation.now, reason });
            }
            return self.record(slot, due, Outcome::Failed { reason });
        }
        self.starts += 1;
        self.open_runs += 1;
        self.state.actions += u64::from(slot.kind == SlotKind::Regular);
        let execution = slot.execution_id(self.schedule.uid);
        self.entries.push(Entry::one(slot, due, Outcome::Started { execution }));
    }

    /// Writes down what became of a slot; regular ones in a row that went alike share a row.
    fn record(&mut self, slot: Slot, due: Timestamp, outcome: Outcome) {
        if slot.kind == SlotKind::Regular
            && let Some(last) = self.entries[self.sealed..].last_mut()
            && last.slot.kind == SlotKind::Regular
            && last.outcome == outcome
        {
            last.last = slot.nominal;
            last.count += 1;
            return;
        }
        self.entries.push(Entry::one(slot, due, outcome));
    }

    fn backfills(&mut self) {
        let now = self.situation.now;
        while let Some(backfill) = self.state.backfills.first() {
            let Backfill { request, cursor, last, concurrency } = backfill.clone();
            let slot = match self.schedule.spec.upcoming(cursor) {
                Upcoming::At(slot) if slot <= last => slot,
                Upcoming::NotBefore(instant) if instant < last => {
                    self.state.backfills[0].cursor = instant;
                    return self.wake_by(now);
                }
                Upcoming::At(_) | Upcoming::NotBefore(_) | Upcoming::Never => {
                    self.state.backfills.remove(0);
                    continue;
                }
            };
            // The schedule's own slot comes first.
            if self.open_runs >= concurrency || self.next_waiting().is_some() {
                return;
            }
            if self.is_paced(slot) {
                return;
            }
            if self.entries.len() >= ENTRIES_MAX {
                return self.wake_by(now);
            }
            self.state.backfills[0].cursor = slot;
            self.start(Slot { nominal: slot, kind: SlotKind::Backfill { request } }, slot);
        }
    }

    /// Records the slots up to now that are not decided and will not be.
    fn leave_undecided(&mut self) {
        let now = self.situation.now;
        while !self.schedule.is_used_up(&self.state)
            && self.slots < SLOTS_MAX
            && let Upcoming::At(slot) = self.schedule.spec.upcoming(self.state.cursor)
            && slot <= now
        {
            let was_paused =
                self.state.pause.is_some() || self.state.resume_time.is_some_and(|resumed| slot <= resumed);
            let reason = if was_paused { SkipReason::Paused } else { SkipReason::Replaced };
            self.pass_over(slot, Outcome::Skipped(reason));
        }
    }

    /// Asks for the next decision, if none is asked for earlier.
    fn wake_by(&mut self, instant: Timestamp) {
        self.wake = Some(self.wake.map_or(instant, |wake| wake.min(instant)));
    }
}
