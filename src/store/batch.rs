//! A batch on its way: what is still to be written, and what became of the rest.
//!
//! An error that lies in the data halves what was to be written together, until the guilty append stands alone and the rest
//! is written.

use super::{Append, Committed};

/// A batch.
pub(super) struct Batch<'a> {
    appends: &'a [Append],
    outcomes: Vec<Committed>,
    /// Parts that are still to be written, the next one last.
    parts: Vec<Vec<usize>>,
}

/// Appends that are written together.
pub(super) struct Part<'a> {
    places: Vec<usize>,
    pub(super) appends: Vec<&'a Append>,
}

impl<'a> Batch<'a> {
    /// All of it in one part, but for appends that break a rule, and for those that have two fences, each of which is a part.
    pub(super) fn new(appends: &'a [Append]) -> Self {
        let mut outcomes = vec![Committed::Conflict; appends.len()];
        let mut together = Vec::with_capacity(appends.len());
        let mut parts = Vec::new();
        for (place, append) in appends.iter().enumerate() {
            match append.check() {
                Ok(()) if append.has_two_fences() => parts.push(vec![place]),
                Ok(()) => together.push(place),
                Err(rule) => outcomes[place] = Committed::Failed { what: rule.to_owned() },
            }
        }
        parts.push(together);
        Self { appends, outcomes, parts }
    }

    /// What is to be written next.
    pub(super) fn next_part(&mut self) -> Option<Part<'a>> {
        loop {
            let places = self.parts.pop()?;
            if !places.is_empty() {
                let appends = places.iter().map(|place| &self.appends[*place]).collect();
                return Some(Part { places, appends });
            }
        }
    }

    /// A part was written, each append with its outcome.
    pub(super) fn is_written(&mut self, part: Part<'a>, outcomes: Vec<Committed>) {
        for (place, outcome) in part.places.into_iter().zip(outcomes) {
            self.outcomes[place] = outcome;
        }
    }

    /// A part cannot be written, since something in it cannot be.
    pub(super) fn has_a_fault(&mut self, part: Part<'a>, cause: &sqlx::Error) {
        let mut places = part.places;
        if let [guilty] = places[..] {
            tracing::error!(error = %cause, "an append cannot be written");
            self.outcomes[guilty] = Committed::Failed { what: cause.to_string() };
        } else {
            let second_half = places.split_off(places.len() / 2);
            self.parts.extend([second_half, places]);
        }
    }

    /// What became of each append.
    pub(super) fn outcomes(self) -> Vec<Committed> {
        self.outcomes
    }
}
