//! The workflow that is measured: task steps in a row, each of which gets the output of the one before, or one step that
//! goes through many items.

use std::fmt::Write as _;

/// The contract of every step: its output is its input.
pub(super) const CONTRACT: &str = "bench.echo@1";

/// The queue of every step.
pub(super) const QUEUE: &str = "bench";

/// Length of each step's input, in bytes of JSON text.
const INPUT_BYTES: usize = 250;

/// A workflow whose output is its input.
#[derive(Clone, Copy, Debug)]
pub(super) enum Workflow {
    /// So many steps in a row.
    Steps(u32),
    /// One step with so many items.
    Items(u32),
}

impl Workflow {
    pub(super) fn name(self) -> String {
        match self {
            Self::Steps(steps) => name(steps),
            Self::Items(items) => format!("bench-items-{items}"),
        }
    }

    /// The definition, the same each time, so that deploying it again is a no-op.
    pub(super) fn source(self) -> String {
        match self {
            Self::Steps(steps) => in_a_row(steps),
            Self::Items(items) => fanned_out(items),
        }
    }
}

fn name(steps: u32) -> String {
    format!("bench-{steps}")
}

fn fanned_out(items: u32) -> String {
    let list: Vec<String> = (0..items).map(|item| (item % 10).to_string()).collect();
    format!(
        "name: bench-items-{items}\nversion: 1.0.0\ndescription: Goes through {items} items.\n\
         tasks: {{{CONTRACT}: {{}}}}\nsteps:\n  \
         - {{id: each, for_each: [{}], task: {CONTRACT}, queue: {QUEUE}, timeout: 10m, input: \"${{ item.value }}\"}}\n\
         result: ${{ input }}\n",
        list.join(",")
    )
}

fn in_a_row(steps: u32) -> String {
    let mut text = format!(
        "name: {}\nversion: 1.0.0\ndescription: Echoes its input through {steps} tasks.\n\
         tasks: {{{CONTRACT}: {{}}}}\nsteps:\n",
        name(steps)
    );
    let mut input = "input".to_owned();
    for step in 1..=steps {
        writeln!(text, "  - {{id: s{step}, task: {CONTRACT}, queue: {QUEUE}, timeout: 1m, input: \"${{ {input} }}\"}}")
            .expect("a string takes everything");
        input = format!("steps.s{step}.output");
    }
    writeln!(text, "result: ${{ {input} }}").expect("a string takes everything");
    text
}

/// The input of one execution, different for each, as JSON text of 250 bytes.
pub(super) fn input(number: u64) -> String {
    let digits = number.to_string();
    ["\"", &"0".repeat(INPUT_BYTES - 2 - digits.len()), &digits, "\""].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_takes_the_output_of_the_one_before() {
        assert_eq!(
            Workflow::Steps(2).source(),
            "name: bench-2\nversion: 1.0.0\ndescription: Echoes its input through 2 tasks.\n\
             tasks: {bench.echo@1: {}}\nsteps:\n  \
             - {id: s1, task: bench.echo@1, queue: bench, timeout: 1m, input: \"${ input }\"}\n  \
             - {id: s2, task: bench.echo@1, queue: bench, timeout: 1m, input: \"${ steps.s1.output }\"}\n\
             result: ${ steps.s2.output }\n"
        );
    }

    #[test]
    fn both_are_right_definitions() {
        use crate::domain::definition::Definition;
        for workflow in [Workflow::Steps(3), Workflow::Items(10_000)] {
            let (definition, warnings) = Definition::parse("bench.yaml", &workflow.source()).unwrap();
            assert_eq!((&*definition.name, warnings), (&*workflow.name(), vec![]));
        }
    }

    #[test]
    fn inputs_differ_and_have_their_length() {
        assert_eq!(input(7).len(), INPUT_BYTES);
        assert_ne!(input(7), input(8));
        assert!(serde_json::from_str::<String>(&input(u64::MAX)).is_ok());
    }
}
