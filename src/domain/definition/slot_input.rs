//! The input of a schedule's runs: a template that sees the slot.

use super::{
    Fault, code,
    expression::{EvaluationError, ExecutionScope, ScheduleScope, Scope, StepLookup, StepView, Template},
    fault::shorten,
    model::StepIndex,
    references::{Ids, References},
    source,
};
use crate::domain::{Payload, Timestamp};

/// A template for the input of runs, compiled. It sees `schedule.id`, `schedule.nominal_time` and `schedule.start_time`.
#[derive(Clone, Debug)]
pub struct SlotInput(Template);

impl SlotInput {
    /// Compiles a JSON document whose texts may hold `${ … }`.
    ///
    /// # Errors
    ///
    /// All faults of it, at least one, with their lines and columns in the text. Paths count from the document.
    pub fn compile(json: &str) -> Result<Self, Vec<Fault>> {
        let node = source::read_json(json)?;
        let ids = Ids::new();
        Template::compile(&node, &mut References::of_schedule(&ids)).map(Self).map_err(|faults| {
            let fault = |fault: super::expression::TemplateFault<'_>| {
                let mark = source::locate(json, fault.node.start, fault.node.end, &fault.part, fault.error.offset);
                Fault {
                    code: code::TEMPLATE_INVALID,
                    message: format!("`{}`: {}", shorten(&fault.part, 100), fault.error.message),
                    hint: fault.error.hint,
                    path: fault.path.trim_start_matches('.').to_owned(),
                    line: mark.line,
                    column: mark.column,
                }
            };
            faults.into_iter().map(fault).collect()
        })
    }

    /// The input of a slot's run.
    ///
    /// # Errors
    ///
    /// [`EvaluationError`] of the first expression that fails.
    pub fn evaluate(&self, schedule: ScheduleScope<'_>) -> Result<Payload, EvaluationError> {
        let nothing = Payload::null();
        self.0.evaluate(&Scope {
            input: &nothing,
            steps: &NoSteps,
            signal: None,
            event: None,
            failure: None,
            item: None,
            execution: ExecutionScope { id: "", run: 0, start_time: Timestamp::default() },
            schedule: Some(schedule),
            meter: None,
        })
    }
}

/// Before the execution begins it has no steps, and none can be mentioned.
struct NoSteps;

impl StepLookup for NoSteps {
    fn step(&self, _: StepIndex) -> StepView<'_> {
        StepView { output: None, error: None, state: "" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: ScheduleScope<'static> = ScheduleScope {
        id: "nightly",
        nominal_time: Timestamp::from_micros(1_793_511_000_000_000),
        start_time: Timestamp::from_micros(1_793_511_001_500_000),
    };

    #[test]
    fn an_input_sees_the_slot_that_it_is_for() {
        let input = SlotInput::compile(
            r#"{"at": "${ schedule.nominal_time }", "from": "${ schedule.nominal_time - duration('24h') }",
                "text": "${ schedule.id } at ${ schedule.start_time }", "number": 1.50}"#,
        );
        let payload = input.map_err(|faults| format!("{faults:?}")).unwrap().evaluate(SLOT).unwrap();
        let expected = r#"{"at":"2026-11-01T05:30:00Z","from":"2026-10-31T05:30:00Z","text":"nightly at 2026-11-01T05:30:01.5Z","number":1.50}"#;
        assert_eq!(payload.as_str(), expected);
    }

    #[test]
    fn an_input_without_expressions_keeps_every_byte_that_matters() {
        let payload = SlotInput::compile("{\"a\": [1, 2.0, null]}").unwrap_or_else(|_| panic!("it compiles"));
        assert_eq!(payload.evaluate(SLOT).unwrap().as_str(), r#"{"a":[1,2.0,null]}"#);
    }

    #[test]
    fn faults_of_an_input_have_their_place() {
        let faults = |json: &str| SlotInput::compile(json).expect_err("it has faults");
        let all = faults("{\"a\": \"${ schedule.time }\",\n \"b\": [\"${ input.x }\", \"${ steps.a.output }\"]}");
        let places: Vec<_> = all.iter().map(|fault| (fault.path.as_str(), fault.line, fault.column)).collect();
        assert_eq!(places, [("a", 1, 11), ("b[0]", 2, 12), ("b[1]", 2, 28)]);
        assert!(all[0].message.contains("`schedule.nominal_time`"), "{}", all[0].message);
        assert!(all[1].hint.contains("sees `schedule` alone"), "{}", all[1].hint);
        assert_eq!(faults("{\"a\": ").len(), 1);
    }

    #[test]
    fn only_the_input_of_a_schedule_sees_schedule() {
        let ids = Ids::new();
        let node = source::read_json(r#""${ schedule.id }""#).unwrap_or_else(|_| panic!("it is JSON"));
        let faults = Template::compile(&node, &mut References::of_head(&ids)).unwrap_err();
        assert_eq!(faults[0].error.hint, "`schedule` is seen by the input of a schedule");
    }
}
