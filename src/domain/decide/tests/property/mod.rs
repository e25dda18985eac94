//! Random families of executions under random commands, faults and times: what must be true of every history.
//!
//! A case is a [`World`]: an execution of a random definition ([`sample`]), its children and theirs, others that get its
//! signals, and what repeats it. Effects between them are lost, repeated, late, and done by servers that die before they
//! say so. Each decision is held to the invariants of [`Run::decide_at`], each history to the rules of [`History`], and
//! its deadline to one that is worked out from the events alone ([`Deadlines`]). Then faults stop: everything ends, and
//! the [`family`] agrees on how.
//!
//! `SEED=n` runs one case again, `CASES=n` more of them, from `FIRST=n` on.

mod commands;
mod deadline;
mod drain;
mod effects;
mod family;
mod history;
mod undo;
mod world;

use super::*;
use crate::domain::definition::{Lifetime, StepIndex, sample};
use deadline::Deadlines;
use history::{History, hold};
use std::collections::BTreeSet;
use world::World;

/// Cases of one run, unless `CASES` says otherwise.
const CASES: u64 = 200;

/// A generator of random numbers: splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound).unwrap()).unwrap()
    }

    fn one_in(&mut self, odds: usize) -> bool {
        self.below(odds) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Prints the seed of the case that fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with SEED={}", self.0);
        }
    }
}

/// The step of a unit's name.
fn step_of(run: &Run, unit: &str) -> StepIndex {
    let step = unit.split_once('[').map_or(unit, |(step, _)| step);
    run.definition.find(step).expect("events name units of the definition")
}

fn lifetime_of(run: &Run, unit: &str) -> Lifetime {
    run.definition.step(step_of(run, unit)).role.lifetime()
}

/// Its name among the kinds of events, or of commands.
fn kind_of(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// What a case met, and how often.
type Met = BTreeMap<String, u64>;

fn run_case(seed: u64) -> Met {
    let _seed = Seed(seed);
    let mut world = World::new(seed);
    world.live();
    world.drain();
    world.hold_family();
    world.delete();
    world.met()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn every_history_keeps_the_rules() {
    if let Some(seed) = number("SEED") {
        run_case(seed);
        return;
    }
    let (first, cases) = (number("FIRST").unwrap_or(0), number("CASES").unwrap_or(CASES));
    let mut met = Met::new();
    for seed in first..first + cases {
        for (what, count) in run_case(seed) {
            *met.entry(what).or_default() += count;
        }
    }
    println!("{cases} cases from SEED={first}: {met:#?}");
    // The cases are worth their time only if they go everywhere.
    let missed: Vec<&str> = TO_MEET.into_iter().filter(|what| !met.contains_key(*what)).collect();
    assert!(cases < CASES || missed.is_empty(), "no case meets {missed:?}");
}

/// Every kind of event and of command, and every end of a family's executions.
const TO_MEET: [&str; 61] = [
    "ExecutionCreated",
    "StepScheduled",
    "StepDispatched",
    "TaskHeld",
    "DeliveryEnded",
    "AttemptFailed",
    "StepSucceeded",
    "StepFailed",
    "StepSkipped",
    "StepCancelled",
    "FanOutStarted",
    "FanOutEnded",
    "SleepStarted",
    "AwaitStarted",
    "SignalReceived",
    "SignalExpired",
    "LateSuccess",
    "WindDownStarted",
    "ExecutionSucceeded",
    "ExecutionFailed",
    "ExecutionCancelled",
    "ExecutionTimedOut",
    "ExecutionTerminated",
    "Woke",
    "ChildRequested",
    "ChildStarted",
    "ChildCancelSent",
    "ParentTold",
    "SignalRequested",
    "ExecutionPaused",
    "ExecutionResumed",
    "ContinuedAsNew",
    "RunStarted",
    "ExecutionReopened",
    "EventTaken",
    "DeletionBegan",
    "Dispatch",
    "Complete",
    "Fail",
    "Hold",
    "EndDelivery",
    "MissBeat",
    "Signal",
    "Cancel",
    "Terminate",
    "Pause",
    "Resume",
    "Retry",
    "BeginDeletion",
    "SignalFrom",
    "EndChild",
    "Settle",
    "Wake",
    "Rerun",
    "Crash",
    "child of a child",
    "child of a fan-out",
    "child that undoes",
    "child of a handler",
    "signal to a child",
    "signal to a parent",
];

#[test]
fn the_same_seed_gives_the_same_history() {
    assert_eq!(run_case(3), run_case(3));
}
