//! Random definitions of the whole language, for the tests of the rules.
//!
//! Everything follows from the numbers that the caller draws, so a seed gives the same definition again. The texts are
//! right: each parses, which a test here holds. They are small in what they do and wide in what they combine.

/// What a sample may hold, and how much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Most steps under `steps`.
    pub(crate) steps_max: usize,
    /// Whether steps may start children, and send them signals.
    pub(crate) children: bool,
    /// Whether a step may end the run and begin the next.
    pub(crate) continues: bool,
    /// Whether steps may send requests or signals.
    pub(crate) reaches_out: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self { steps_max: 30, children: true, continues: true, reaches_out: true }
    }
}

/// Draws a number below a bound that is not 0.
pub(crate) type Draw<'d> = &'d mut dyn FnMut(usize) -> usize;

/// Contracts of the tasks; each gives an integer.
pub(crate) const CONTRACTS: [&str; 2] = ["t@1", "u@1"];

/// What undoes.
pub(crate) const UNDO: &str = "undo@1";

/// What runs in handlers.
pub(crate) const HANDLE: &str = "handle@1";

/// Workflow of the children.
pub(crate) const CHILD: &str = "child";

/// Signals that the definition takes; `note` is taken by handlers only.
pub(crate) const SIGNALS: [&str; 2] = ["go", "note"];

/// The lines of a definition but for its name and version. Its input is `{n: integer, items: [integer]}`.
pub(crate) fn lines(draw: Draw<'_>, shape: Shape) -> String {
    Sampler { draw, shape, children: Vec::new() }.lines()
}

struct Sampler<'d> {
    draw: Draw<'d>,
    shape: Shape,
    /// The steps so far that each start one child.
    children: Vec<String>,
}

/// Where a step stands.
#[derive(Clone, Copy, PartialEq)]
enum In {
    Steps,
    Handlers,
    OnEvent,
}

impl Sampler<'_> {
    fn one_in(&mut self, odds: usize) -> bool {
        (self.draw)(odds) == 0
    }

    fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[(self.draw)(from.len())]
    }

    fn lines(&mut self) -> String {
        let count = 1 + (self.draw)(self.shape.steps_max);
        let mut lines = String::new();
        lines += self.pick(&["", "", "timeout: 40s\n", "timeout: 12m\n"]);
        lines += "tasks: {t@1: {output: {type: integer}}, u@1: {output: {type: integer}}, undo@1: {}, handle@1: {}}\n";
        lines += "signals: {go: {}, note: {}}\n";
        lines += "queries: {first: '${ steps.s0.output }', states: ['${ steps.s0.state }', '${ execution.run }']}\n";
        lines += "result: '${ steps.s0.state }'\nsteps:\n";
        for step in 0..count {
            lines += &self.main_step(step);
        }
        // A run that ends itself does so when all others have ended.
        if self.shape.continues && self.one_in(5) {
            let needs: Vec<String> = (0..count).map(|step| format!("s{step}")).collect();
            let next = self.pick(&["{}", "{input: {n: '${ input.n + 1 }', items: '${ input.items }'}}"]);
            let needs = needs.join(", ");
            lines +=
                &format!("  - {{id: again, needs: [{needs}], when: 'execution.run < 3', continue_as_new: {next}}}\n");
        }
        lines + &self.handlers()
    }

    fn main_step(&mut self, step: usize) -> String {
        let fan_out = self.fan_out(5);
        let action = self.action(In::Steps, fan_out.is_some(), step);
        let mut needs: Vec<String> = (0..step)
            .filter(|needed| self.one_in(2 + (step - needed).min(8)))
            .map(|needed| format!("s{needed}"))
            .collect();
        if action.starts_with("signal: {child") {
            // The child must run beside it.
            needs.clear();
        }
        if action.starts_with("workflow") && fan_out.is_none() {
            self.children.push(format!("s{step}"));
        }
        let mut text = format!("  - {{id: s{step}, {action}, needs: [{}]", needs.join(", "));
        text += fan_out.unwrap_or_default();
        text += self.pick(&["", "", ", on_error: continue"]);
        text += self.pick(&["", "", "", ", when: 'input.n > 1'", ", when: 'false'"]);
        if !action.starts_with("fail") {
            if self.one_in(3) {
                text += &format!(", compensate: {{{}}}", self.compensation(step, fan_out.is_some()));
            }
            text += if self.one_in(12) { ", irreversible: true" } else { "" };
        }
        text + "}\n"
    }

    fn fan_out(&mut self, odds: usize) -> Option<&'static str> {
        if !self.one_in(odds) {
            return None;
        }
        Some(self.pick(&[
            ", for_each: '${ input.items }'",
            ", for_each: [7, 8, 9], max_parallel: 1",
            ", for_each: '${ input.items.filter(i, i > 1) }', max_parallel: 2",
            ", for_each: []",
            ", for_each: '${ null }'",
            ", for_each: '${ input.n }'",
        ]))
    }

    /// An action, as the beginning of a step's fields.
    fn action(&mut self, stands: In, fans_out: bool, step: usize) -> String {
        let item = if fans_out { "item.value + item.index" } else { "input.n" };
        match (self.draw)(16) {
            0..=5 => self.task(&CONTRACTS, item),
            6 => format!("compute: '${{ {item} + 1 }}'"),
            7 => self
                .pick(&["compute: '${ input.nothing }'", "compute: null", "compute: [1, '${ execution.id }']"])
                .into(),
            8 => format!("sleep: {{for: {}}}", self.pick(&["8s", "0s", "1m", "'${ input.n }'"])),
            9 | 10 if stands == In::Steps => {
                let wait = self.pick(&[
                    "",
                    ", timeout: 15s",
                    ", match: 'signal > 1'",
                    ", match: 'signal == input.n', timeout: 9s",
                ]);
                format!("await: {{signal: go{wait}}}")
            }
            9 | 10 => "await: {signal: go, timeout: 5s}".into(),
            11 => "fail: {code: NO, message: 'no ${ input.n }'}".into(),
            12 if self.shape.children => self.child(item),
            13 if self.shape.reaches_out => self.signal(stands, step),
            14 if self.shape.reaches_out => self.http(item),
            _ => self.task(&CONTRACTS, item),
        }
    }

    fn task(&mut self, contracts: &[&str], input: &str) -> String {
        let mut text = format!("task: {}, input: '${{ {input} }}'", self.pick(contracts));
        text += self.pick(&["", "", ", timeout: 7s", ", timeout: 20s, heartbeat_timeout: 5s"]);
        text += self.pick(&["", "", "", ", queue_timeout: 40s"]);
        text += self.pick(&["", "", "", ", total_timeout: 90s"]);
        text += self.pick(&["", "", ", retry: {max_attempts: 2, initial_interval: 0s}", ", retry: {max_attempts: 1}"]);
        text + self.pick(&["", "", "", ", priority: 1"])
    }

    fn child(&mut self, input: &str) -> String {
        let range = self.pick(&["^1", "*", "1.0.0", "~1.0"]);
        let mut text = format!("workflow: '{CHILD}@{range}', input: {{n: '${{ {input} }}', items: []}}");
        text += self.pick(&["", "", ", timeout: 30s"]);
        text += self.pick(&["", "", ", total_timeout: 80s"]);
        text + self.pick(&["", ", retry: {max_attempts: 1}", ", retry: {max_attempts: 2, initial_interval: 0s}"])
    }

    fn signal(&mut self, stands: In, step: usize) -> String {
        let to = match (self.draw)(4) {
            0 => "parent: true".to_owned(),
            1 | 2 if stands != In::Handlers && !self.children.is_empty() => {
                let child = (self.draw)(self.children.len());
                format!("child: {}", self.children[child])
            }
            _ => format!("execution: 'other-{step}'"),
        };
        // A handler that gives what it takes may keep itself busy for ever.
        let name = if stands == In::OnEvent { SIGNALS[0] } else { self.pick(&SIGNALS) };
        format!("signal: {{{to}, name: {name}, payload: '${{ input.n }}'}}")
    }

    fn http(&mut self, item: &str) -> String {
        let request = match (self.draw)(3) {
            0 => format!("{{url: 'https://api.example.com/${{ {item} }}'}}"),
            1 => format!(
                "{{url: 'http://api.example.com/', body: {{n: '${{ {item} }}'}}, headers: {{x-n: 'n ${{ input.n }}'}}}}"
            ),
            _ => "{method: DELETE, url: '${ input.url }'}".to_owned(),
        };
        format!("http: {request}{}", self.pick(&["", ", timeout: 3s", ", priority: 5"]))
    }

    /// What undoes, and sees the step that it undoes.
    fn compensation(&mut self, step: usize, fans_out: bool) -> String {
        let at = if fans_out { "item.index" } else { "0" };
        let seen = format!("{{\"was\": steps.s{step}.output, \"at\": {at}}}");
        let action = match (self.draw)(6) {
            0 if self.shape.children => self.child("input.n"),
            1 if self.shape.reaches_out => self.http("input.n"),
            _ => self.task(&[UNDO], &seen),
        };
        action + self.pick(&["", "", ", unknown: skip"])
    }

    fn handlers(&mut self) -> String {
        let mut lines = String::new();
        for list in ["failure", "cancel", "timeout"] {
            let count = (self.draw)(3);
            let mut steps = String::new();
            for step in 0..count {
                let id = format!("{list}{step}");
                let fan_out = self.fan_out(6);
                let action = match (self.draw)(3) {
                    0 => self.action(In::Handlers, fan_out.is_some(), step),
                    _ => self.task(&[HANDLE], "[failure.code, steps.s0.state]"),
                };
                let needs = if step > 0 && self.one_in(2) { format!(", needs: [{list}0]") } else { String::new() };
                let rest = self.pick(&["", "", ", on_error: continue", ", when: 'input.n > 1'"]);
                steps += &format!("    - {{id: {id}, {action}{needs}{rest}{}}}\n", fan_out.unwrap_or_default());
            }
            if count > 0 {
                lines += &format!("  {list}:\n{steps}");
            }
        }
        let count = (self.draw)(3);
        if count > 0 {
            lines += "  on_event:\n";
        }
        for step in 0..count {
            let takes = self.pick(&["", ", match: 'event > 1'", ", match: 'event == input.n'"]);
            let action = match (self.draw)(3) {
                0 => self.action(In::OnEvent, false, step),
                _ => self.task(&[HANDLE], "event"),
            };
            lines += &format!("    - {{signal: note{takes}, step: {{id: event{step}, {action}}}}}\n");
        }
        if lines.is_empty() { lines } else { format!("handlers:\n{lines}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::definition::{Action, Definition, Role};
    use std::collections::BTreeSet;

    /// The definition of a seed.
    fn sample(seed: u64, shape: Shape) -> (String, Definition) {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = |bound: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % u64::try_from(bound).unwrap()).unwrap()
        };
        let text = format!("name: n\nversion: 1.0.0\n{}", lines(&mut draw, shape));
        match Definition::parse("n.yaml", &text) {
            Ok((definition, _)) => (text, definition),
            Err(faults) => panic!("seed {seed}: {faults:#?}\n{text}"),
        }
    }

    #[test]
    fn samples_are_right_and_survive_their_json_form() {
        for seed in 1..400 {
            let (text, definition) = sample(seed, Shape::default());
            let json = definition.to_json();
            let (again, _) = Definition::parse("n.json", &json).unwrap_or_else(|faults| panic!("{faults:#?}\n{json}"));
            assert_eq!(again, definition, "{text}");
            assert_eq!((again.to_json(), again.hash), (json.clone(), definition.hash), "{text}");
            assert_eq!(Definition::parse_stored(&json).unwrap(), definition, "{text}");
        }
    }

    #[test]
    fn samples_meet_every_kind_of_step_and_role() {
        let mut met = BTreeSet::new();
        for seed in 1..200 {
            let (_, definition) = sample(seed, Shape::default());
            for step in &definition.steps {
                let action = match &step.action {
                    Action::Task(_) => "task",
                    Action::Compute(_) => "compute",
                    Action::Sleep(_) => "sleep",
                    Action::Await(_) => "await",
                    Action::Fail(_) => "fail",
                    Action::Child(_) => "child",
                    Action::Signal(_) => "signal",
                    Action::ContinueAsNew(_) => "continue_as_new",
                };
                let role = match &step.role {
                    Role::Main if step.for_each.is_some() => "each",
                    Role::Main => "main",
                    Role::Compensation { .. } => "undo",
                    Role::Handler(_) => "handler",
                    Role::OnEvent { .. } => "event",
                };
                met.insert((role, action));
            }
        }
        // Seven actions for items, handlers and events, one more for steps, two for undoing.
        assert_eq!(met.len(), 7 + 8 + 2 + 7 + 7, "{met:?}");
    }
}
