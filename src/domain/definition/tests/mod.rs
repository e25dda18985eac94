//! Definitions from text to model and back.

mod faults;
mod form;
mod language;
mod limits;
mod misuse;

use super::*;
use crate::domain::retry::RetryPolicy;
use std::{sync::Arc, time::Duration};

const ORDER: &str = include_str!("../../../../examples/order/order.yaml");
fn parse(source: &str) -> Definition {
    Definition::parse("test.yaml", source)
        .map(|(definition, _)| definition)
        .unwrap_or_else(|faults| panic!("{faults:#?}\n{source}"))
}

fn faults(source: &str) -> Vec<Fault> {
    Definition::parse("test.yaml", source).map(|(definition, _)| definition).expect_err(source)
}

/// A definition of the step `a` and one more, which the text begins with.
fn with_step(step: &str) -> String {
    format!("name: n\nversion: 1.0.0\nsignals: {{go: {{}}}}\nsteps:\n- {{id: a, compute: 1}}\n- {step}\n")
}

/// A definition with one more field.
fn with_field(field: &str) -> String {
    format!("name: n\nversion: 1.0.0\nsteps: [{{id: a, compute: 1}}]\n{field}\n")
}

/// The faults' codes and paths must be these.
fn check_faults(source: &str, expected: &[(&str, &str)]) {
    let found = faults(source);
    let found: Vec<(&str, &str)> = found.iter().map(|fault| (fault.code, &*fault.path)).collect();
    assert_eq!(found, expected, "{source}");
}

fn task(source: &str) -> TaskStep {
    let mut definition = parse(source);
    match definition.steps.remove(1).action {
        Action::Task(task) => task,
        other @ (Action::Compute(_)
        | Action::Sleep(_)
        | Action::Await(_)
        | Action::Fail(_)
        | Action::Child(_)
        | Action::Signal(_)
        | Action::ContinueAsNew(_)) => panic!("{other:?} is no task"),
    }
}

#[test]
fn the_example_parses_without_warnings() {
    let (order, warnings) = Definition::parse("order.yaml", ORDER).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(order.steps.len(), 5);
    let ship = order.step(order.find("ship").unwrap());
    let needs: Vec<&str> = ship.needs.iter().map(|need| &*order.step(*need).id).collect();
    assert_eq!(needs, ["reserve", "charge"]);
    let total = order.step(order.find("total").unwrap());
    assert_eq!(total.dependents, [order.find("approval").unwrap(), order.find("charge").unwrap()]);
    let Action::Task(charge) = &order.step(order.find("charge").unwrap()).action else { panic!("charge is a task") };
    assert_eq!(&*charge.queue, "payments");
    assert_eq!(charge.timeout, Some(Duration::from_secs(30)));
    assert_eq!(charge.retry.max_attempts, 5);
    assert!(charge.input_schema.is_some() && charge.output_schema.is_some());
}

#[test]
fn the_examples_input_needs_an_approval() {
    struct Total(crate::domain::Payload);
    impl StepLookup for Total {
        fn step(&self, _: StepIndex) -> StepView<'_> {
            StepView { output: Some(&self.0), error: None, state: "SUCCEEDED" }
        }
    }
    let order = parse(ORDER);
    let input = crate::domain::Payload::from_json(include_str!("../../../../examples/order/input.json"));
    let schema = order.input.as_ref().unwrap();
    assert_eq!(schema.validate(&input), Ok(()));
    let input = schema.with_defaults(&input);
    let scope = |steps| Scope {
        input: &input,
        steps,
        signal: None,
        event: None,
        failure: None,
        item: None,
        execution: ExecutionScope { id: "e", run: 1, start_time: crate::domain::Timestamp::default() },
        schedule: None,
        meter: None,
    };
    let none = Total(crate::domain::Payload::null());
    let Action::Compute(total) = &order.steps[0].action else { panic!("the total is computed") };
    let total = Total(total.evaluate(&scope(&none)).unwrap());
    assert_eq!(total.0.as_str(), "103750", "a lamp without a quantity is one lamp");
    let when = order.step(order.find("approval").unwrap()).when.as_ref().unwrap();
    assert_eq!(when.evaluate_bool(&scope(&total)), Ok(true));
}

#[test]
fn fields_may_be_snake_or_camel_case_and_durations_of_either_form() {
    let snake = task(&with_step(
        "{id: t, task: x@1, timeout: 1h30m, queue_timeout: 1.500s, total_timeout: 7d, heartbeat_timeout: 90s, on_error: continue, \
         priority: 1, retry: {max_attempts: 7, initial_interval: 250ms, backoff_coefficient: 1.5, max_interval: 2m, jitter: 0, non_retryable: [B, A, B]}}",
    ));
    let camel = task(&with_step(
        r#"{"id": "t", "task": "x@1", "timeout": "5400s", "queueTimeout": "1.5s", "totalTimeout": "604800s", "heartbeatTimeout": "90s", "onError": "ON_ERROR_CONTINUE",
         "priority": 1, "retry": {"maxAttempts": 7, "initialInterval": "0.250s", "backoffCoefficient": 1.5, "maxInterval": "120s", "jitter": 0.0, "nonRetryable": ["A", "B"]}}"#,
    ));
    assert_eq!(snake, camel);
    assert_eq!(snake.timeout, Some(Duration::from_secs(5_400)));
    assert_eq!(snake.retry.non_retryable, [Arc::from("A"), Arc::from("B")]);
    assert_eq!(snake.retry.jitter, 0.0);
}

#[test]
fn what_is_not_said_has_its_default() {
    let plain = task(&with_step("{id: t, task: x@1}"));
    assert_eq!(plain.retry, RetryPolicy::default());
    assert_eq!((&*plain.queue, plain.priority, plain.language.as_deref()), ("default", 3, None));
    let long = task(&with_step("{id: t, task: x@1, retry: {initial_interval: 5m}}"));
    assert_eq!(long.retry.max_interval, Duration::from_secs(300));
    let zeros = task(&with_step(
        "{id: t, task: x@1, priority: 0, input: null, retry: {max_attempts: 0, backoff_coefficient: 0}}",
    ));
    assert_eq!(zeros, plain);
}

#[test]
fn words_of_enums_are_taken_in_any_case() {
    for (word, expected) in [
        ("fail", OnError::Fail),
        ("Continue", OnError::Continue),
        ("CONTINUE", OnError::Continue),
        ("ON_ERROR_FAIL", OnError::Fail),
        ("on_error_continue", OnError::Continue),
        ("ON_ERROR_UNSPECIFIED", OnError::Fail),
        ("2", OnError::Continue),
    ] {
        let definition = parse(&with_step(&format!("{{id: t, compute: 1, on_error: {word}}}")));
        assert_eq!(definition.steps[1].on_error, expected, "{word}");
    }
    check_faults(
        &with_step("{id: t, compute: 1, on_error: contineu}"),
        &[(fault::code::ENUM_INVALID, "steps[1].on_error")],
    );
}

#[test]
fn warnings_say_what_looks_like_a_mistake() {
    let source = "name: n\nversion: 1.0.0\ntasks: {y@1: {}, z@1: {}}\nsteps: [{id: a, task: x@1, timeout: 1s}, {id: b, task: y@1}]\n";
    let (_, warnings) = Definition::parse("test.yaml", source).unwrap();
    let warnings: Vec<(&str, &str)> = warnings.iter().map(|warning| (warning.code, &*warning.path)).collect();
    assert_eq!(
        warnings,
        [
            (fault::code::CONTRACT_UNUSED, "tasks[\"z@1\"]"),
            (fault::code::CONTRACT_UNDECLARED, "steps[0].task"),
            (fault::code::TASK_WITHOUT_TIMEOUT, "steps[1]"),
        ]
    );
}
