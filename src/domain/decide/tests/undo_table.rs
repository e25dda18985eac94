//! What becomes of a unit when its execution winds down: cause × state of the unit × policy → events.
//!
//! The table of `docs/workflows.md` is read and must say the same.

use super::*;

/// What began the end; it makes no difference to what is undone.
#[derive(Clone, Copy, Debug)]
enum Why {
    Failure,
    Cancel,
    Timeout,
}

/// How the step says that it is undone.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Policy {
    Compensate,
    Skip,
    Nothing,
    Irreversible,
}

/// Where the unit `a` is when the end begins, as the page says it.
const STATES: [(&str, Setup); 11] = [
    ("had succeeded", Setup { before: &[(990.0, Does::Takes), (991.0, Does::Succeeds)], after: &[] }),
    ("is running, then reports success", Setup { before: RUNS, after: &[(1_005.0, Does::Succeeds)] }),
    ("is running, then reports failure", Setup { before: RUNS, after: &[(1_005.0, Does::Fails)] }),
    ("is running, and silent for the grace", Setup { before: RUNS, after: &[(1_030.0, Does::Waits)] }),
    ("was lost with its worker", Setup { before: &[(990.0, Does::Takes), (991.0, Does::Dies)], after: &[] }),
    ("is running, then lost with its worker", Setup { before: RUNS, after: &[(1_005.0, Does::Dies)] }),
    ("waits for its first worker", Setup { before: &[], after: &[] }),
    (
        "waits for its next attempt after a reported failure",
        Setup { before: &[(985.0, Does::Takes), (990.0, Does::Fails)], after: &[] },
    ),
    (
        "waits for its next attempt after a timeout",
        Setup { before: &[(980.0, Does::Takes), (980.0, Does::IsHeld), (990.0, Does::Waits)], after: &[] },
    ),
    ("had not begun", Setup { before: &[], after: &[] }),
    ("was skipped", Setup { before: &[], after: &[] }),
];

const RUNS: &[(f64, Does)] = &[(996.0, Does::Takes), (996.0, Does::IsHeld)];

/// What the worker of `a` does, before and after the end begins at 1,000 s.
#[derive(Clone, Copy)]
struct Setup {
    before: &'static [(f64, Does)],
    after: &'static [(f64, Does)],
}

#[derive(Clone, Copy)]
enum Does {
    Takes,
    IsHeld,
    Succeeds,
    Fails,
    Dies,
    /// Time passes.
    Waits,
}

impl Does {
    fn command(self) -> Command {
        match self {
            Self::Takes => dispatch("a"),
            Self::IsHeld => hold("a", 1),
            Self::Succeeds => complete("a", 1, "7"),
            Self::Fails => fail("a", 1, "NO"),
            Self::Dies => end("a", 1, EndReason::SessionLost),
            Self::Waits => wake(),
        }
    }
}

/// What came of it.
#[derive(Debug, PartialEq)]
struct Row {
    /// Kinds of the unit's own events since the end began.
    events: Vec<&'static str>,
    /// The undos with their inputs, in order.
    undone: Vec<String>,
}

fn lines_of(state: &str, policy: Policy) -> String {
    let condition = match state {
        "had not begun" => "needs: [never], ",
        "was skipped" => "when: \"${ false }\", ",
        _ => "",
    };
    let timeout = if state.ends_with("after a timeout") { ", timeout: 10s" } else { "" };
    let undo = match policy {
        Policy::Compensate => ", compensate: {task: undo@1, input: \"${ steps.a.output }\"}",
        Policy::Skip => ", compensate: {task: undo@1, unknown: skip, input: \"${ steps.a.output }\"}",
        Policy::Nothing => "",
        Policy::Irreversible => ", irreversible: true",
    };
    format!(
        "timeout: 1000s\ntasks: {{a@1: {{}}, undo@1: {{}}}}\nsignals: {{s: {{}}}}\nsteps:\n  \
         - {{id: first, task: a@1, compensate: {{task: undo@1, input: \"${{ steps.first.output }}\"}}}}\n  \
         - {{id: cause, task: a@1}}\n  \
         - {{id: never, await: {{signal: s}}}}\n  \
         - {{id: a, {condition}task: a@1, retry: {{initial_interval: 50s, jitter: 0}}{timeout}{undo}}}\n"
    )
}

fn row(why: Why, state: &str, setup: Setup, policy: Policy) -> Row {
    let mut run = Run::start(&lines_of(state, policy), "{}");
    run.at(1.0, dispatch("first"));
    run.at(2.0, complete("first", 1, "1"));
    run.at(970.0, dispatch("cause"));
    run.at(970.0, hold("cause", 1));
    setup.before.iter().for_each(|(seconds, does)| drop(run.at(*seconds, does.command())));
    let from = run.log.len();
    match why {
        Why::Failure => drop(run.at(1_000.0 - 0.001, fail_for_good("cause", 1, "BROKEN"))),
        Why::Cancel => drop(run.at(1_000.0 - 0.001, cancel())),
        Why::Timeout => drop(run.at(1_000.0, wake())),
    }
    if !matches!(why, Why::Failure) {
        run.at(1_000.5, fail_for_good("cause", 1, "BROKEN"));
    }
    setup.after.iter().for_each(|(seconds, does)| drop(run.at(*seconds, does.command())));
    // One undo after another, each done at once.
    for second in 0.. {
        let waiting: Vec<Unit> = run.state.waiting().map(|waiting| waiting.unit.clone()).collect();
        assert!(waiting.len() <= 1, "one undo at a time: {waiting:?}");
        let Some(unit) = waiting.first() else { break };
        run.at(1_040.0 + f64::from(second), dispatch(unit));
        run.at(1_040.0 + f64::from(second), complete(unit, 1, "null"));
    }
    let closed = run.state.phase();
    let expected = match why {
        Why::Failure => Phase::Failed,
        Why::Cancel => Phase::Cancelled,
        Why::Timeout => Phase::TimedOut,
    };
    assert_eq!(closed, expected, "{:?}", lines(&run.log[from..]));
    let (mut events, mut undone) = (Vec::new(), Vec::new());
    for text in lines(&run.log[from..]) {
        if let Some((unit, input)) =
            text.split_once(" scheduled 1 ").filter(|(unit, _)| unit.starts_with("compensate:"))
        {
            undone.push(format!("{unit} {input}"));
        } else if let Some(what) = text.strip_prefix("a ") {
            events.push(match what.split(' ').next().unwrap() {
                "succeeded" => "StepSucceeded",
                "cancelled" => "StepCancelled",
                "attempt" => "AttemptFailed",
                "ended" => "DeliveryEnded",
                _ => panic!("what is this doing here? {text}"),
            });
        }
    }
    Row { events, undone }
}

/// Whether a unit has done its work, has not, or nobody knows.
#[derive(Clone, Copy, PartialEq)]
enum Known {
    Done,
    NotDone,
    Unknown,
}

fn known(state: &str) -> Known {
    match state {
        "had succeeded" | "is running, then reports success" => Known::Done,
        "is running, and silent for the grace"
        | "was lost with its worker"
        | "is running, then lost with its worker"
        | "waits for its next attempt after a timeout" => Known::Unknown,
        _ => Known::NotDone,
    }
}

#[test]
fn what_is_undone_follows_from_the_unit_and_its_policy_whatever_the_cause() {
    for (state, setup) in STATES {
        for policy in [Policy::Compensate, Policy::Skip, Policy::Nothing, Policy::Irreversible] {
            let own = match (policy, known(state)) {
                (Policy::Compensate | Policy::Skip, Known::Done) => Some("compensate:a 7"),
                (Policy::Compensate, Known::Unknown) => Some("compensate:a null"),
                _ => None,
            };
            let is_final = policy == Policy::Irreversible && known(state) != Known::NotDone;
            let first = (!is_final).then_some("compensate:first 1");
            let expected: Vec<&str> = own.into_iter().chain(first).collect();
            for why in [Why::Failure, Why::Cancel, Why::Timeout] {
                let row = row(why, state, setup, policy);
                assert_eq!(row.undone, expected, "{why:?}, the unit {state}, {policy:?}");
            }
        }
    }
}

#[test]
fn the_page_on_workflows_has_the_same_table() {
    let page = include_str!("../../../../docs/workflows.md");
    let (_, table) = page.split_once("<!-- compensation table -->\n").expect("the page has the table");
    let told: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).skip(2).collect();
    let mut expected = Vec::new();
    for (state, setup) in STATES {
        let of = |policy| row(Why::Cancel, state, setup, policy);
        for why in [Why::Failure, Why::Timeout] {
            assert_eq!(row(why, state, setup, Policy::Compensate), of(Policy::Compensate), "{why:?}: {state}");
        }
        let events: Vec<String> = of(Policy::Nothing).events.iter().map(|name| format!("`{name}`")).collect();
        let events = if events.is_empty() { "–".to_owned() } else { events.join(", ") };
        let undone = |policy| match of(policy).undone.first().map(String::as_str) {
            Some("compensate:a 7") => "undone",
            Some("compensate:a null") => "undone, output null",
            _ => "–",
        };
        let undone = [Policy::Compensate, Policy::Skip, Policy::Nothing].map(undone).join(" | ");
        expected.push(format!("| {state} | {events} | {undone} |"));
    }
    assert_eq!(told, expected);
}
