//! Random definitions: small graphs of every kind of step, with whatever can go wrong in them.

use crate::random::Random;

/// The contracts that steps use; workers serve one or both.
pub(crate) const CONTRACTS: [&str; 2] = ["t@1", "u@1"];
/// The queues that steps use.
pub(crate) const QUEUES: [&str; 2] = ["default", "side"];
/// What each contract takes as output.
pub(crate) const OUTPUT: &str = "1";
/// What no contract takes.
pub(crate) const WRONG_OUTPUT: &str = "\"wrong\"";

fn task(random: &mut Random) -> String {
    let mut text = format!("task: {}", random.pick(&CONTRACTS));
    let mut maybe = |odds, field: &str| {
        if random.one_in(odds) {
            text += ", ";
            text += field;
        }
    };
    maybe(4, "queue: side");
    maybe(6, "language: python");
    maybe(4, "priority: 1");
    maybe(4, "queue_timeout: 20s");
    maybe(4, "total_timeout: 45s");
    maybe(3, "retry: {max_attempts: 2, initial_interval: 0s}");
    match random.below(6) {
        0 => text += ", timeout: 4s",
        1 => text += ", timeout: 15s, heartbeat_timeout: 3s",
        _ => {}
    }
    text
}

/// A child of one of the workflows that there are before this one.
fn child(random: &mut Random, number: usize) -> String {
    // Often the one before, whose children have children.
    let of = if random.one_in(2) { number - 1 } else { random.below(number) };
    let mut text = format!("workflow: w{of}@*, input: '${{ input }}'");
    text += *random.pick(&["", "", ", timeout: 15s"]);
    text += *random.pick(&["", "", ", total_timeout: 40s"]);
    text + *random.pick(&["", ", retry: {max_attempts: 1}", ", retry: {max_attempts: 2, initial_interval: 0s}"])
}

/// A signal: to the parent, to any execution, or to a child of the step that is given.
fn signal(random: &mut Random, children: &[String]) -> String {
    let to = match random.below(3) {
        0 => "parent: true".to_owned(),
        1 if !children.is_empty() => format!("child: {}", random.pick(children)),
        _ => format!("execution: e{}", random.below(6)),
    };
    format!("signal: {{{to}, name: s, payload: {}}}", random.pick(&["2", "5"]))
}

/// The lines of the definition of workflow `w{number}` after its version. With few steps a part of the runs ends early.
/// Children are of workflows with smaller numbers, so no family is endless.
pub(crate) fn lines(random: &mut Random, number: usize) -> String {
    let count = 1 + random.below(6);
    let mut lines = String::new();
    if random.one_in(3) {
        lines += *random.pick(&["timeout: 12s\n", "timeout: 40s\n"]);
    }
    if random.one_in(4) {
        lines += "labels: {team: shop}\n";
    }
    lines += "tasks: {t@1: {output: {type: integer}}, u@1: {output: {type: integer}}}\n";
    lines += "signals: {s: {}}\nresult: '${ steps.s0.state }'\nsteps:\n";
    let mut children = Vec::new();
    for step in 0..count {
        let mut has_items = false;
        let action = match random.below(15) {
            0..=5 => task(random),
            6 => "compute: '${ 1 + 1 }'".into(),
            7 => (*random.pick(&["sleep: {for: 8s}", "sleep: {for: 1m}", "sleep: {for: 0s}"])).to_owned(),
            8 => (*random.pick(&["await: {signal: s}", "await: {signal: s, timeout: 15s}"])).to_owned(),
            9 => "await: {signal: s, match: '${ signal > 1 }'}".into(),
            10 => (*random.pick(&["fail: {code: NO}", "compute: '${ input.nothing }'"])).to_owned(),
            11 | 12 if number > 0 => {
                children.push(format!("s{step}"));
                child(random, number)
            }
            13 => signal(random, &children),
            14 => {
                has_items = true;
                let action = if number > 0 && random.one_in(3) { child(random, number) } else { task(random) };
                format!("for_each: [1, 2, 3]{}, {action}", random.pick(&["", ", max_parallel: 2"]))
            }
            _ => task(random),
        };
        // A child that gets a signal must be able to run beside the step that gives it.
        let is_free = action.starts_with("signal: {child");
        let needs: Vec<String> =
            (0..step).filter(|_| random.one_in(3) && !is_free).map(|needed| format!("s{needed}")).collect();
        let on_error = random.pick(&["", ", on_error: continue"]);
        let when = random.pick(&["", "", "", "", ", when: '${ false }'"]);
        let is_undone = (action.starts_with("task") || action.starts_with("workflow") || has_items) && random.one_in(4);
        let undo = if !is_undone {
            String::new()
        } else if number > 0 && random.one_in(2) {
            format!(", compensate: {{{}}}", child(random, number))
        } else {
            ", compensate: {task: u@1}".into()
        };
        lines += &format!("  - {{id: s{step}, {action}, needs: [{}]{on_error}{when}{undo}}}\n", needs.join(", "));
    }
    if random.one_in(4) {
        let all: Vec<String> = (0..count).map(|step| format!("s{step}")).collect();
        let when = "when: '${ execution.run < 4 }'";
        lines += &format!("  - {{id: again, needs: [{}], {when}, continue_as_new: {{}}}}\n", all.join(", "));
    }
    let mut handlers = String::new();
    if random.one_in(3) {
        let step = match random.below(4) {
            0 if number > 0 => child(random, number),
            1 => signal(random, &[]),
            2 => "compute: '${ event }'".into(),
            _ => (*random.pick(&["task: t@1", "task: u@1, on_error: continue"])).to_owned(),
        };
        handlers += &format!("  on_event:\n    - {{signal: s, match: '${{ event != 2 }}', step: {{id: h, {step}}}}}\n");
    }
    for winding in ["failure", "cancel", "timeout"] {
        if random.one_in(6) {
            let step = match random.below(4) {
                0 | 1 if number > 0 => child(random, number),
                2 => signal(random, &[]),
                _ => format!("task: {}", random.pick(&CONTRACTS)),
            };
            handlers += &format!("  {winding}:\n    - {{id: {winding}0, {step}}}\n");
        }
    }
    if handlers.is_empty() { lines } else { format!("{lines}handlers:\n{handlers}") }
}
