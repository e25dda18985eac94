//! The graph of steps: who waits for whom, and that nobody waits for ever.
//!
//! Everything is linear in steps and edges and without recursion: a chain of 10,000 steps is a chain, not a stack.

use super::{
    fault::{Place, code},
    fields::Checker,
    model::{Step, StepIndex},
};

/// Cycles that are named; one mistake often closes many.
const CYCLES_MAX: usize = 10;

/// Steps of a cycle that are named.
const NAMES_MAX: usize = 20;

/// Fills in the dependents and reports cycles. Says whether there is none.
pub(super) fn connect(checker: &mut Checker<'_>, steps: &mut [Step], places: &[Place]) -> bool {
    let mut dependents: Vec<Vec<StepIndex>> = vec![Vec::new(); steps.len()];
    for (position, step) in steps.iter().enumerate() {
        for need in &step.needs {
            dependents[need.position()].push(StepIndex::new(position));
        }
    }
    for (step, dependents) in steps.iter_mut().zip(dependents) {
        step.dependents = dependents;
    }
    let mut removed = vec![false; steps.len()];
    let mut is_acyclic = true;
    for _ in 0..CYCLES_MAX {
        let Some(cycle) = find_cycle(steps, &removed) else { break };
        is_acyclic = false;
        let first = cycle[0];
        let mut names: Vec<&str> =
            cycle.iter().take(NAMES_MAX).map(|index| steps[index.position()].short_id()).collect();
        if cycle.len() > NAMES_MAX {
            names.push("…");
        }
        names.push(steps[first.position()].short_id());
        let message = format!("steps need each other, so none can begin: {}", names.join(" -> "));
        let place = places[first.position()].field("needs");
        checker.refuse_at(code::CYCLE, &place, message, "remove one of these dependencies");
        for index in cycle {
            removed[index.position()] = true;
        }
    }
    is_acyclic
}

/// All that a step needs, directly or not: a set of bits for each of the first steps of a definition.
pub(super) struct Ancestors {
    words: usize,
    bits: Vec<u64>,
}

impl Ancestors {
    /// Of steps that need each other only, without a cycle.
    pub(super) fn of(steps: &[Step]) -> Self {
        let words = steps.len().div_ceil(64);
        let mut found = Self { words, bits: vec![0; words * steps.len()] };
        let mut unmet: Vec<usize> = steps.iter().map(|step| step.needs.len()).collect();
        let mut ready: Vec<usize> = (0..steps.len()).filter(|position| unmet[*position] == 0).collect();
        while let Some(position) = ready.pop() {
            for dependent in &steps[position].dependents {
                let dependent = dependent.position();
                found.add(dependent, position);
                unmet[dependent] -= 1;
                if unmet[dependent] == 0 {
                    ready.push(dependent);
                }
            }
        }
        found
    }

    /// Adds a need and all that it needs itself.
    fn add(&mut self, to: usize, need: usize) {
        for word in 0..self.words {
            let bits = self.bits[need * self.words + word];
            self.bits[to * self.words + word] |= bits;
        }
        self.bits[to * self.words + need / 64] |= 1 << (need % 64);
    }

    /// Whether `of` needs `step`.
    pub(super) fn contains(&self, of: StepIndex, step: StepIndex) -> bool {
        let position = step.position();
        self.bits[of.position() * self.words + position / 64] & (1 << (position % 64)) != 0
    }

    /// How many steps `of` needs.
    pub(super) fn count(&self, of: StepIndex) -> usize {
        self.row(of).iter().map(|word| usize::try_from(word.count_ones()).expect("at most 64")).sum()
    }

    /// The first of these steps that `of` needs.
    pub(super) fn first_of(&self, of: StepIndex, these: &Set) -> Option<StepIndex> {
        first(self.row(of).iter().zip(&these.0).map(|(row, these)| row & these))
    }

    /// The first of these steps that `of` does not need, itself aside.
    pub(super) fn first_but(&self, of: StepIndex, these: &Set) -> Option<StepIndex> {
        let own = |word: usize| if of.position() / 64 == word { 1 << (of.position() % 64) } else { 0 };
        first(self.row(of).iter().zip(&these.0).enumerate().map(|(word, (row, these))| these & !row & !own(word)))
    }

    fn row(&self, of: StepIndex) -> &[u64] {
        &self.bits[of.position() * self.words..][..self.words]
    }
}

/// Some of the steps.
pub(super) struct Set(Vec<u64>);

impl Set {
    /// The steps for which this is true.
    pub(super) fn of(steps: &[Step], is_in: impl Fn(&Step) -> bool) -> Self {
        let mut bits = vec![0; steps.len().div_ceil(64)];
        for (position, _) in steps.iter().enumerate().filter(|(_, step)| is_in(step)) {
            bits[position / 64] |= 1 << (position % 64);
        }
        Self(bits)
    }
}

fn first(words: impl Iterator<Item = u64>) -> Option<StepIndex> {
    let (word, bits) = words.enumerate().find(|(_, bits)| *bits != 0)?;
    let bit = usize::try_from(bits.trailing_zeros()).expect("below 64");
    Some(StepIndex::new(word * 64 + bit))
}

/// A cycle among the steps that are not removed, each step needing the next, from the one that stands first in the text.
fn find_cycle(steps: &[Step], removed: &[bool]) -> Option<Vec<StepIndex>> {
    // Steps whose needs are all met are taken away until none is left, or only such that wait for each other.
    let mut unmet: Vec<usize> =
        steps.iter().map(|step| step.needs.iter().filter(|need| !removed[need.position()]).count()).collect();
    let mut gone: Vec<bool> = removed.to_vec();
    let mut ready: Vec<usize> = (0..steps.len()).filter(|position| !gone[*position] && unmet[*position] == 0).collect();
    while let Some(position) = ready.pop() {
        gone[position] = true;
        for dependent in &steps[position].dependents {
            let dependent = dependent.position();
            unmet[dependent] -= 1;
            if unmet[dependent] == 0 && !gone[dependent] {
                ready.push(dependent);
            }
        }
    }
    // Each step that is left needs one that is left, so following needs must come back to a step on the way.
    let start = gone.iter().position(|gone| !gone)?;
    let mut visited_as: Vec<Option<usize>> = vec![None; steps.len()];
    let mut walk: Vec<StepIndex> = Vec::new();
    let mut at = StepIndex::new(start);
    loop {
        if let Some(from) = visited_as[at.position()] {
            let mut cycle = walk.split_off(from);
            let first = (0..cycle.len()).min_by_key(|place| cycle[*place]).unwrap_or(0);
            cycle.rotate_left(first);
            return Some(cycle);
        }
        visited_as[at.position()] = Some(walk.len());
        walk.push(at);
        at = steps[at.position()].needs.iter().copied().find(|need| !gone[need.position()])?;
    }
}
