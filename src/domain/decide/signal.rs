//! Takes signals, and gives them to the steps that await them.
//!
//! - Signals are taken in the order in which they came, each by the longest wait whose `match` holds.
//! - Whether one has expired is judged when it would be taken, not when somebody sweeps: whoever takes one drops the expired
//!   ones first.
//! - A wait looks at the signals that are there when it begins; after that every signal looks at the waits. So each pair
//!   is looked at once.
//! - While the execution winds down signals are still kept, so that a caller need not know; only handlers take them.

use super::Decision;
use crate::domain::definition::{Await, WORK_MAX};
use crate::domain::state::{UnitKey, await_of};
use crate::domain::{EventKind, Payload, Rejection, RequestKey, Timestamp, code};
use std::sync::Arc;

/// Expired signals that one new signal may clear away; more would make one call pay for many.
const EXPIRED_DROPPED_MAX: usize = 100;

/// Work of a decision's expressions after which no signal is held against a wait any more: about a second. Ten thousand
/// signals, or waits, with a `match` that is not outright expensive stay far below.
const MATCH_WORK_MAX: usize = 10 * WORK_MAX;

impl Decision<'_> {
    /// Records a signal and gives it to a step that awaits it.
    pub(super) fn signal(
        &mut self,
        name: &Arc<str>,
        payload: Payload,
        expire_time: Option<Timestamp>,
        giver: Giver,
    ) -> Result<u64, Rejection> {
        self.expect_open()?;
        let definition = self.state.definition().clone();
        let schema = definition.signals.get(name).ok_or_else(|| Rejection::SignalUnknown { name: name.clone() })?;
        schema.validate(&payload).map_err(|violations| Rejection::SignalInvalid { name: name.clone(), violations })?;
        let expired = expire_time.is_some_and(|time| time <= self.now);
        let offer = if expired { Offer::default() } else { self.offer(name, &payload) };
        let is_left = !expired && offer.taker.is_none();
        let handler = if is_left { self.handler_for(name, &payload) } else { None };
        self.make_room(offer.taker.is_some() || expired, giver)?;
        let (request, sender) = match giver {
            Giver::Caller(request) => (request, None),
            Giver::Step(sender) => (None, Some(sender)),
        };
        let received =
            EventKind::SignalReceived { name: name.clone(), payload: payload.clone(), expire_time, sender, handler };
        let number = self.emit_for(request, received);
        if expired {
            self.emit(EventKind::SignalExpired { signal_number: number });
            return Ok(number);
        }
        let phase = self.state.phase();
        for (key, message) in offer.failing {
            self.fail_unit_with(key, code::EXPRESSION_FAILED, message);
            if self.state.phase() != phase {
                return Ok(number);
            }
        }
        if let Some(key) = offer.taker {
            self.succeed(key, payload, Some(number));
        }
        Ok(number)
    }

    /// Finds who takes a signal that comes now.
    fn offer(&self, name: &str, payload: &Payload) -> Offer {
        let mut offer = Offer::default();
        for key in self.state.waits_for(name) {
            let wait = await_of(self.state.step(key.step)).expect("only awaits await");
            match self.matches(key, wait, payload) {
                Ok(true) => {
                    offer.taker = Some(key);
                    break;
                }
                Ok(false) => {}
                Err(message) => offer.failing.push((key, message)),
            }
        }
        offer
    }

    /// Refuses a signal for which the buffer has no place, or drops expired ones that take it.
    ///
    /// A step tries again where there may be room later. In an execution that winds down it could wait for ever, and two
    /// could wait for each other, or one for itself.
    fn make_room(&mut self, passes_through: bool, giver: Giver) -> Result<(), Rejection> {
        let limit = self.settings.buffered_signals_max;
        if passes_through || self.state.signals().len() < limit {
            return Ok(());
        }
        let expired: Vec<u64> = self.state.signals().expired(self.now).take(EXPIRED_DROPPED_MAX).collect();
        if expired.is_empty() {
            return Err(match (giver, self.state.cause()) {
                (Giver::Step(_), Some(cause)) => Rejection::WindingDown { cause: cause.as_str() },
                (Giver::Step(_), None) | (Giver::Caller(_), _) => Rejection::SignalBufferFull { limit },
            });
        }
        for signal_number in expired {
            self.emit(EventKind::SignalExpired { signal_number });
        }
        Ok(())
    }

    /// Drops the expired signals of a name; false if the decision filled up before all were dropped.
    pub(super) fn drop_expired_signals_of(&mut self, name: &str) -> bool {
        let now = self.now;
        let is_expired = |time: Option<Timestamp>| time.is_some_and(|time| time <= now);
        let signals = self.state.signals().of(name);
        let expired: Vec<u64> =
            signals.filter(|(_, signal)| is_expired(signal.expire_time)).map(|(number, _)| number).collect();
        for signal_number in expired {
            if !self.has_room() {
                return false;
            }
            self.emit(EventKind::SignalExpired { signal_number });
        }
        self.has_room()
    }

    /// Gives a wait that has just begun the oldest signal that it matches.
    pub(super) fn take_buffered_signal(&mut self, key: UnitKey, wait: &Await) {
        let found = self.state.signals().of(&wait.signal).find_map(|(number, signal)| {
            match self.matches(key, wait, &signal.payload) {
                Ok(true) => Some(Ok((number, signal.payload.clone()))),
                Ok(false) => None,
                Err(message) => Some(Err(message)),
            }
        });
        match found {
            Some(Ok((number, payload))) => self.succeed(key, payload, Some(number)),
            Some(Err(message)) => self.fail_unit_with(key, code::EXPRESSION_FAILED, message),
            None => {}
        }
    }

    fn matches(&self, key: UnitKey, wait: &Await, payload: &Payload) -> Result<bool, String> {
        match &wait.predicate {
            // Many signals may be held against many waits.
            Some(_) if self.work.units() > MATCH_WORK_MAX => Err("all the matches together take too long".to_owned()),
            Some(predicate) => self
                .with_scope(key, Some(payload), |scope| predicate.evaluate_bool(scope))
                .map_err(|error| error.to_string()),
            None => Ok(true),
        }
    }
}

/// Who gives a signal.
#[derive(Clone, Copy, Debug)]
pub(super) enum Giver {
    /// A caller, maybe with a `request_id`.
    Caller(Option<RequestKey>),
    /// A step of another execution, under its name.
    Step([u8; 16]),
}

/// Who takes a signal.
#[derive(Default)]
struct Offer {
    /// Longer waits whose `match` cannot be evaluated on it; they fail.
    failing: Vec<(UnitKey, String)>,
    /// The wait that takes it.
    taker: Option<UnitKey>,
}
