//! Definitions from text to model and back.

use super::*;
use std::time::Duration;

const ORDER: &str = include_str!("../../../examples/order/order.yaml");

fn parse(source: &str) -> Definition {
    Definition::parse("test.yaml", source)
        .map(|(definition, _)| definition)
        .unwrap_or_else(|faults| panic!("{faults:#?}\n{source}"))
}

#[test]
fn the_example_parses_without_warnings() {
    let (order, warnings) = Definition::parse("order.yaml", ORDER).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(order.steps.len(), 5);
    let ship = order.step(order.find("ship").unwrap());
    let needs: Vec<&str> = ship.needs.iter().map(|need| &*order.step(*need).id).collect();
    assert_eq!(needs, ["reserve", "charge"]);
    let Action::Task(charge) = &order.step(order.find("charge").unwrap()).action else { panic!("charge is a task") };
    assert_eq!(&*charge.queue, "payments");
    assert_eq!(charge.timeout, Some(Duration::from_secs(30)));
    assert_eq!(charge.retry.max_attempts, 5);
    assert!(charge.input_schema.is_some() && charge.output_schema.is_some());
}

#[test]
fn json_gives_the_same_definition_and_hash() {
    let order = parse(ORDER);
    let json = order.to_json();
    let again = parse(&json);
    assert_eq!(again, order);
    assert_eq!(again.to_json(), json);
    assert_eq!(Definition::parse_stored(&json).unwrap(), order);
}
