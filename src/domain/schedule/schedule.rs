//! A schedule: its times and policies under one uid.

use super::{
    BACKFILL_CONCURRENCY_MAX, BACKFILL_SLOTS_MAX, BACKFILLS_MAX, Backfill, Decision, PauseReason, Policies,
    ScheduleUid, Situation, Spec, State, Upcoming,
};
use crate::domain::{Timestamp, retry};
use std::{sync::Arc, time::Duration};

/// What decisions are made by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Its uid, which slots, execution ids and jitter derive from.
    pub uid: ScheduleUid,
    /// Its times.
    pub spec: Spec,
    /// Its policies.
    pub policies: Policies,
}

/// Why a backfill is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackfillError {
    /// The schedule has no slot in the span, or the span ends before it begins.
    #[error("the schedule has no slot in that span")]
    Empty,
    /// The span has more slots than one backfill starts.
    #[error("the span has more than {BACKFILL_SLOTS_MAX} slots; backfill it in parts")]
    TooLong,
    /// The span reaches beyond now.
    #[error("the span ends in the future; what is still to come starts by itself")]
    Future,
    /// As many backfills as there may be are not done yet.
    #[error("{BACKFILLS_MAX} backfills of the schedule are not done yet")]
    TooMany,
    /// The number of runs at once is outside its range.
    #[error("must be 1 to {BACKFILL_CONCURRENCY_MAX} runs at once")]
    Concurrency,
}

impl Schedule {
    /// When the slot of a nominal time starts at the earliest: with its jitter, which follows from the schedule's uid and
    /// the slot. It never reaches the slot after it, so slots become due in their order.
    #[must_use]
    pub fn due(&self, nominal: Timestamp) -> Timestamp {
        let jitter = self.spec.draft().jitter;
        if jitter.is_zero() {
            return nominal;
        }
        let room = match self.spec.upcoming(nominal) {
            Upcoming::At(next) | Upcoming::NotBefore(next) => next.since(nominal),
            Upcoming::Never => Duration::MAX,
        };
        let seed = [self.uid.0.as_bytes().as_slice(), &nominal.as_micros().to_be_bytes()].concat();
        let share = retry::fraction(b"orbit.schedule.jitter\0", 0, &seed);
        // The product stays below the jitter, and microseconds are as fine as instants are.
        nominal + Duration::from_micros(micros(jitter.min(room).mul_f64(share)))
    }

    /// Whether nothing starts by itself any more, because as many slots have started as may.
    #[must_use]
    pub fn is_used_up(&self, state: &State) -> bool {
        self.policies.max_actions.is_some_and(|max| state.actions >= max)
    }

    /// Takes note of the end of a run: `failure` says what failed, for people, if it failed or timed out. Then decide.
    pub fn run_ended(&self, state: &mut State, failure: Option<&str>, now: Timestamp) {
        if let Some(failure) = failure
            && self.policies.pause_on_failure
            && state.pause.is_none()
        {
            state.pause(PauseReason::Failure { note: Arc::from(failure) }, now);
        }
    }

    /// Takes a backfill of the slots from `first` to `last`, both included, and decides. Its slots start one after
    /// another, oldest first, whenever fewer than `concurrency` runs of the schedule are open and no slot waits that may
    /// start; a pause does not hold them up, and they do not count for `max_actions`.
    ///
    /// # Errors
    ///
    /// [`BackfillError`], if it is refused; nothing has changed then.
    pub fn backfill(
        &self,
        state: &State,
        request: &Arc<str>,
        (first, last): (Timestamp, Timestamp),
        concurrency: u32,
        situation: &Situation<'_>,
    ) -> Result<Decision, BackfillError> {
        if !(1..=BACKFILL_CONCURRENCY_MAX).contains(&concurrency) {
            return Err(BackfillError::Concurrency);
        }
        if last > situation.now {
            return Err(BackfillError::Future);
        }
        if state.backfills.len() >= BACKFILLS_MAX {
            return Err(BackfillError::TooMany);
        }
        let cursor = first - Duration::from_micros(1);
        let mut slots = 0;
        let mut at = cursor;
        while let Upcoming::At(slot) = self.spec.upcoming(at)
            && slot <= last
        {
            slots += 1;
            at = slot;
            if slots > BACKFILL_SLOTS_MAX {
                return Err(BackfillError::TooLong);
            }
        }
        if slots == 0 {
            return Err(BackfillError::Empty);
        }
        let mut state = state.clone();
        state.backfills.push(Backfill { request: Arc::clone(request), cursor, last, concurrency });
        Ok(self.decide(&state, situation))
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
