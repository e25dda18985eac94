//! Random definitions under random commands and times: what must be true of every history.
//!
//! Each decision is held to the invariants of [`Run::decide_at`]; here the whole history is, and the deadline is
//! compared with one that is worked out from the events alone. `SEED=n` runs one case again, `CASES=n` more of them.

use super::*;
use crate::domain::definition::{Action, TaskStep};
use std::collections::{BTreeMap, BTreeSet};

/// Cases of one run, unless `CASES` says otherwise.
const CASES: u64 = 250;

/// Decisions of one case.
const DECISIONS: usize = 60;

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

fn random_task(random: &mut Random) -> String {
    let mut text = String::from("task: t@1");
    let mut maybe = |text: &mut String, odds, field: &str| {
        if random.one_in(odds) {
            *text += field;
        }
    };
    maybe(&mut text, 3, ", timeout: 7s");
    maybe(&mut text, 4, ", queue_timeout: 40s");
    maybe(&mut text, 4, ", total_timeout: 90s");
    maybe(&mut text, 4, ", heartbeat_timeout: 5s, timeout: 20s");
    maybe(&mut text, 3, ", retry: {max_attempts: 2, initial_interval: 0s}");
    // A field may stand once only.
    if text.matches(", timeout:").count() == 2 { text.replacen(", timeout: 7s", "", 1) } else { text }
}

fn random_definition(random: &mut Random) -> String {
    let count = 1 + random.below(6);
    let mut lines = String::new();
    if random.one_in(4) {
        lines += "timeout: 2m\n";
    }
    lines += "tasks: {t@1: {output: {type: integer}}}\nsignals: {s: {}}\nresult: \"${ steps.s0.state }\"\nsteps:\n";
    for step in 0..count {
        let action = match random.below(10) {
            0..=4 => random_task(random),
            5 => "compute: \"${ 1 + 1 }\"".into(),
            6 => "sleep: {for: 8s}".into(),
            7 => random.pick(&["await: {signal: s}", "await: {signal: s, timeout: 15s}"]).into(),
            8 => "await: {signal: s, match: \"${ signal > 1 }\"}".into(),
            _ => random.pick(&["fail: {code: NO}", "compute: \"${ input.nothing }\""]).into(),
        };
        let needs: Vec<String> = (0..step).filter(|_| random.one_in(3)).map(|needed| format!("s{needed}")).collect();
        let on_error = random.pick(&["", ", on_error: continue"]);
        let when = random.pick(&["", "", "", ", when: \"${ false }\""]);
        lines += &format!("  - {{id: s{step}, {action}, needs: [{}]{on_error}{when}}}\n", needs.join(", "));
    }
    lines
}

fn random_command(random: &mut Random, run: &Run, now: f64) -> Command {
    let unit = arc(&format!("s{}", random.below(run.definition.steps.len() + 1)));
    let waiting: Vec<Unit> = run.state.waiting().map(|waiting| waiting.unit).collect();
    let delivery = reference(&unit, u32::try_from(random.below(4)).unwrap());
    let reason = random.pick(&[
        EndReason::SessionLost,
        EndReason::NotListed,
        EndReason::Released,
        EndReason::Unregistered,
        EndReason::NotSent,
    ]);
    let progress = random.one_in(2).then(|| json("1"));
    match random.below(20) {
        0..=5 if !waiting.is_empty() => dispatch(&waiting[random.below(waiting.len())]),
        0 => dispatch(&unit),
        1..=5 => complete(&unit, delivery.delivery, random.pick(&["1", "2", "\"wrong\""])),
        6..=8 => fail(&unit, delivery.delivery, random.pick(&["E", "F"])),
        9 => fail_for_good(&unit, delivery.delivery, "E"),
        10 => hold(&unit, delivery.delivery),
        11..=12 => Command::EndDelivery { delivery, reason, progress },
        13 => Command::MissBeat { delivery, progress },
        14..=15 => Command::Signal {
            name: arc("s"),
            payload: json(random.pick(&["1", "2", "\"x\""])),
            expire_time: random.one_in(2).then(|| at(now + 10.0)),
            request: random.one_in(2).then(|| request(u8::try_from(random.below(3)).unwrap(), 1)),
        },
        16 if random.one_in(6) => cancel(),
        17 if random.one_in(20) => terminate(),
        _ => {
            let due = run.state.checks_due(at(now));
            Command::Wake { held: due.into_iter().filter(|_| random.one_in(2)).collect(), early: Vec::new() }
        }
    }
}

/// The next instant at which something is due, worked out from the events.
fn deadline_by_history(run: &Run) -> Option<Timestamp> {
    let task = |unit: &Unit| -> Option<&TaskStep> {
        match &run.definition.steps.iter().find(|step| step.id == *unit)?.action {
            Action::Task(task) => Some(task),
            Action::Compute(_)
            | Action::Sleep(_)
            | Action::Await(_)
            | Action::Fail(_)
            | Action::Child(_)
            | Action::Signal(_)
            | Action::ContinueAsNew(_) => None,
        }
    };
    let mut execution = run.state.expire_time();
    let mut totals: BTreeMap<Unit, Timestamp> = BTreeMap::new();
    let mut timers: BTreeMap<Unit, Vec<Option<Timestamp>>> = BTreeMap::new();
    let mut out: BTreeMap<Unit, Timestamp> = BTreeMap::new();
    let mut waited: BTreeMap<Unit, Vec<Option<Timestamp>>> = BTreeMap::new();
    let mut winding_down = false;
    for event in &run.log {
        match &event.kind {
            EventKind::StepScheduled { unit, attempt, .. } => {
                if let (1, Some(total)) = (*attempt, task(unit).and_then(|task| task.total_timeout)) {
                    totals.insert(unit.clone(), event.time + total);
                }
                timers.insert(
                    unit.clone(),
                    vec![task(unit).and_then(|task| task.queue_timeout).map(|span| event.time + span)],
                );
            }
            EventKind::StepDispatched { unit, check_time, expire_time, .. } => {
                let before = timers.insert(unit.clone(), vec![*expire_time, Some(*check_time)]);
                waited.insert(unit.clone(), before.unwrap_or_default());
                out.insert(unit.clone(), event.time);
            }
            EventKind::TaskHeld { unit, .. } => timers.get_mut(unit).unwrap().truncate(1),
            EventKind::DeliveryEnded { unit, reason, .. } => {
                let again = task(unit).and_then(|task| task.queue_timeout).map(|span| event.time + span);
                let not_sent = *reason == EndReason::NotSent;
                let waits = if not_sent { waited.remove(unit).unwrap_or_default() } else { vec![again] };
                timers.insert(unit.clone(), if winding_down { vec![] } else { waits });
                out.remove(unit);
            }
            EventKind::AttemptFailed { unit, retry_time, .. } => {
                timers.insert(unit.clone(), vec![*retry_time]);
                out.remove(unit);
            }
            EventKind::SleepStarted { unit, wake_time } => drop(timers.insert(unit.clone(), vec![Some(*wake_time)])),
            EventKind::AwaitStarted { unit, expire_time } => drop(timers.insert(unit.clone(), vec![*expire_time])),
            EventKind::StepSucceeded { unit, .. }
            | EventKind::StepFailed { unit, .. }
            | EventKind::StepSkipped { unit, .. }
            | EventKind::StepCancelled { unit } => {
                timers.remove(unit);
                totals.remove(unit);
                out.remove(unit);
            }
            EventKind::WindDownStarted { give_up_time, .. } => {
                winding_down = true;
                execution = Some(*give_up_time);
                totals.clear();
                timers.retain(|unit, _| out.contains_key(unit));
            }
            EventKind::ExecutionSucceeded { .. }
            | EventKind::ExecutionFailed { .. }
            | EventKind::ExecutionCancelled
            | EventKind::ExecutionTimedOut
            | EventKind::ExecutionTerminated { .. } => return None,
            EventKind::ExecutionCreated(_)
            | EventKind::SignalReceived { .. }
            | EventKind::SignalExpired { .. }
            | EventKind::LateSuccess { .. }
            | EventKind::ChildRequested { .. }
            | EventKind::ChildStarted { .. }
            | EventKind::ChildCancelSent { .. }
            | EventKind::SignalRequested { .. }
            | EventKind::ParentTold
            | EventKind::FanOutStarted { .. }
            | EventKind::FanOutEnded { .. }
            | EventKind::Woke => {}
        }
    }
    timers.into_values().flatten().flatten().chain(totals.into_values()).chain(execution).min()
}

/// What must be true of a whole history.
fn hold_history(run: &Run) {
    let (mut resolved, mut late, mut numbers) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut winding_down = false;
    for (position, event) in run.log.iter().enumerate() {
        match &event.kind {
            EventKind::StepSucceeded { unit, signal_number, .. } => {
                assert!(resolved.insert(unit.clone()), "{unit} was resolved twice");
                assert!(signal_number.is_none_or(|number| numbers.insert(number)), "a signal was taken twice");
            }
            EventKind::StepFailed { unit, .. }
            | EventKind::StepSkipped { unit, .. }
            | EventKind::StepCancelled { unit } => {
                assert!(resolved.insert(unit.clone()), "{unit} was resolved twice");
            }
            EventKind::LateSuccess { unit, delivery, .. } => {
                assert!(late.insert((unit.clone(), *delivery)), "a late success was recorded twice");
            }
            EventKind::SignalExpired { signal_number } => {
                assert!(numbers.insert(*signal_number), "a signal was taken twice");
            }
            EventKind::WindDownStarted { .. } => {
                assert!(!winding_down, "the first cause wins");
                winding_down = true;
            }
            EventKind::StepScheduled { .. }
            | EventKind::StepDispatched { .. }
            | EventKind::SleepStarted { .. }
            | EventKind::AwaitStarted { .. } => assert!(!winding_down, "nothing begins while it winds down"),
            EventKind::ExecutionSucceeded { .. }
            | EventKind::ExecutionFailed { .. }
            | EventKind::ExecutionCancelled
            | EventKind::ExecutionTimedOut
            | EventKind::ExecutionTerminated { .. } => {
                assert_eq!(position + 1, run.log.len(), "nothing follows the close");
            }
            EventKind::ExecutionCreated(_)
            | EventKind::TaskHeld { .. }
            | EventKind::DeliveryEnded { .. }
            | EventKind::AttemptFailed { .. }
            | EventKind::SignalReceived { .. }
            | EventKind::ChildRequested { .. }
            | EventKind::ChildStarted { .. }
            | EventKind::ChildCancelSent { .. }
            | EventKind::SignalRequested { .. }
            | EventKind::ParentTold
            | EventKind::FanOutStarted { .. }
            | EventKind::FanOutEnded { .. }
            | EventKind::Woke => {}
        }
    }
    if !run.state.work_due_now() {
        assert_eq!(run.state.deadline(), deadline_by_history(run), "{:#?}", run.lines());
    }
}

/// Answers all that waits until the execution closes.
fn answer_everything(run: &mut Run, mut now: f64) {
    for round in 0..200 {
        if run.state.is_closed() {
            return;
        }
        now += 1.0;
        for waiting in run.state.waiting().collect::<Vec<_>>() {
            let _ = run.decide_at(now, dispatch(&waiting.unit));
        }
        let out: Vec<_> = run
            .state
            .steps()
            .filter(|step| step.state == StepState::Running)
            .map(|step| (step.step.clone(), step.delivery))
            .collect();
        for (unit, delivery) in out {
            let _ = run.decide_at(now, complete(&unit, delivery, "1"));
        }
        if run.state.steps().any(|step| step.state == StepState::Awaiting) {
            let _ = run.decide_at(now, signal("s", "2"));
        }
        if round % 20 == 19 {
            now += 3600.0;
        }
        let _ = run.decide_at(now, wake());
    }
    panic!("it does not close: {:#?}", run.lines());
}

fn run_case(seed: u64) -> (Phase, usize) {
    let _seed = Seed(seed);
    let random = &mut Random(seed);
    let lines = random_definition(random);
    let mut run = Run::start(&lines, "{}");
    run.settings.deliveries_max = 3;
    run.settings.buffered_signals_max = 5;
    let mut now = 0.0;
    hold_history(&run);
    for _ in 0..DECISIONS {
        now += random.pick(&[0.0, 0.0, 0.5, 1.0, 3.0, 9.0]);
        // Now and then the clock of the one who decides is behind.
        let seen = if random.one_in(10) { now - 2.0 } else { now };
        let command = random_command(random, &run, seen);
        let was_closed = run.state.is_closed();
        let from = run.log.len();
        let _ = run.decide_at(seen, command);
        assert!(!was_closed || run.log.len() == from, "closed stays closed");
        hold_history(&run);
    }
    answer_everything(&mut run, now);
    hold_history(&run);
    (run.state.phase(), run.log.len())
}

#[test]
fn every_history_keeps_the_rules() {
    if let Ok(seed) = std::env::var("SEED") {
        run_case(seed.parse().expect("SEED is a number"));
        return;
    }
    let cases = std::env::var("CASES").map_or(CASES, |cases| cases.parse().expect("CASES is a number"));
    let mut phases: BTreeMap<Phase, u32> = BTreeMap::new();
    for seed in 0..cases {
        *phases.entry(run_case(seed).0).or_default() += 1;
    }
    // The cases are worth their time only if they go everywhere.
    for phase in [Phase::Succeeded, Phase::Failed, Phase::Cancelled, Phase::TimedOut, Phase::Terminated] {
        assert!(phases.contains_key(&phase), "no case ends {phase:?}: {phases:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    assert_eq!(run_case(3), run_case(3));
}
