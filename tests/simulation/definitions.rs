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

/// The lines of a definition after its version. With few steps a part of the runs ends early.
pub(crate) fn lines(random: &mut Random) -> String {
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
    for step in 0..count {
        let action = match random.below(12) {
            0..=6 => task(random),
            7 => "compute: '${ 1 + 1 }'".into(),
            8 => (*random.pick(&["sleep: {for: 8s}", "sleep: {for: 1m}", "sleep: {for: 0s}"])).to_owned(),
            9 => (*random.pick(&["await: {signal: s}", "await: {signal: s, timeout: 15s}"])).to_owned(),
            10 => "await: {signal: s, match: '${ signal > 1 }'}".into(),
            _ => (*random.pick(&["fail: {code: NO}", "compute: '${ input.nothing }'"])).to_owned(),
        };
        let needs: Vec<String> = (0..step).filter(|_| random.one_in(3)).map(|needed| format!("s{needed}")).collect();
        let on_error = random.pick(&["", ", on_error: continue"]);
        let when = random.pick(&["", "", "", "", ", when: '${ false }'"]);
        lines += &format!("  - {{id: s{step}, {action}, needs: [{}]{on_error}{when}}}\n", needs.join(", "));
    }
    if random.one_in(4) {
        let all: Vec<String> = (0..count).map(|step| format!("s{step}")).collect();
        let when = "when: '${ execution.run < 4 }'";
        lines += &format!("  - {{id: again, needs: [{}], {when}, continue_as_new: {{}}}}\n", all.join(", "));
    }
    if random.one_in(3) {
        let step = *random.pick(&["task: t@1", "compute: '${ event }'", "task: u@1, on_error: continue"]);
        lines += "handlers:\n  on_event:\n";
        lines += &format!("    - {{signal: s, match: '${{ event != 2 }}', step: {{id: h, {step}}}}}\n");
    }
    lines
}
