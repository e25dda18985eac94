//! The graph of steps: who waits for whom, and that nobody waits for ever.
//!
//! Everything is linear in steps and edges and without recursion: a chain of 10,000 steps is a chain, not a stack.

use super::{
    fault::code,
    fields::{Checker, Path},
    model::{Step, StepIndex},
    step::Place,
};

/// Cycles that are named; one mistake often closes many.
const CYCLES_MAX: usize = 10;

/// Steps of a cycle that are named.
const NAMES_MAX: usize = 20;

/// Fills in the dependents and reports cycles.
pub(super) fn connect(checker: &mut Checker<'_>, steps: &mut [Step], places: &[Place]) {
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
    for _ in 0..CYCLES_MAX {
        let Some(cycle) = find_cycle(steps, &removed) else { break };
        let first = cycle[0];
        let mut names: Vec<&str> = cycle.iter().take(NAMES_MAX).map(|index| &*steps[index.position()].id).collect();
        if cycle.len() > NAMES_MAX {
            names.push("…");
        }
        names.push(&steps[first.position()].id);
        let message = format!("steps need each other, so none can begin: {}", names.join(" -> "));
        let path = Path::ROOT.field("steps");
        let path = path.index(first.position());
        checker.refuse(
            code::CYCLE,
            places[first.position()].mark,
            &path.field("needs"),
            message,
            "remove one of these dependencies",
        );
        for index in cycle {
            removed[index.position()] = true;
        }
    }
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
