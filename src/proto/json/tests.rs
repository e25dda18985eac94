//! The JSON form of the real messages.

use std::collections::HashMap;

use super::{Faults, Message, Reader, from_slice, to_string, to_string_pretty};
use crate::proto::{
    admin::{ListExecutionsRequest, StartExecutionRequest, StateCount, WatchEventsResponse},
    workflow::{
        Definition, Event, Execution, Payload, PayloadReference, RequestKey, RetryPolicy, Sleep, Step, StepSucceeded,
        event::Kind, execution::State, payload::Content, step::Action,
    },
};

fn read<M: Message>(json: &str) -> M {
    from_slice(json.as_bytes()).unwrap()
}

fn faults<M: Message>(json: &str) -> Vec<String> {
    let Faults(faults) = from_slice::<M>(json.as_bytes()).err().expect("refused");
    faults.into_iter().map(|fault| format!("{}: {}", fault.field, fault.description)).collect()
}

fn payload(json: &str) -> Payload {
    Payload { content: Some(Content::Json(json.to_owned())) }
}

#[test]
fn writes_zero_scalars_and_empty_lists_but_not_what_is_unset() {
    let text = to_string(&Execution { state: State::Running.into(), ..Default::default() }).unwrap();
    assert_eq!(
        text,
        r#"{"id":"","uid":"","run":0,"workflow":"","version":"","definitionHash":"","state":"STATE_RUNNING","cause":"CAUSE_UNSPECIFIED","labels":{},"reason":"","lastEventNumber":"0","steps":[],"bufferedSignals":0,"payloadsOmitted":false}"#
    );
    let policy = RetryPolicy { backoff_coefficient: 1.5, jitter: Some(0.0), ..Default::default() };
    assert_eq!(
        to_string(&policy).unwrap(),
        r#"{"maxAttempts":0,"backoffCoefficient":1.5,"jitter":0,"nonRetryable":[]}"#
    );
    assert_eq!(
        to_string(&RetryPolicy::default()).unwrap(),
        r#"{"maxAttempts":0,"backoffCoefficient":0,"nonRetryable":[]}"#
    );
}

#[test]
fn every_kind_of_field_comes_back_as_it_was() {
    let event = Event {
        number: i64::MAX,
        time: Some(prost_types::Timestamp { seconds: 1_767_225_600, nanos: 1_000 }),
        request: Some(RequestKey { key: vec![0, 255, 254], content: vec![] }),
        kind: Some(Kind::StepSucceeded(StepSucceeded {
            unit: "a\"\n\u{1F600}".to_owned(),
            output: Some(payload("{ \"n\" : 1e400 }")),
            ..Default::default()
        })),
    };
    let text = to_string(&event).unwrap();
    assert_eq!(
        text,
        r#"{"number":"9223372036854775807","time":"2026-01-01T00:00:00.000001Z","request":{"key":"AP/+","content":""},"stepSucceeded":{"unit":"a\"\n😀","output":{ "n" : 1e400 },"delivery":0,"signalNumber":"0","report":""}}"#
    );
    assert_eq!(read::<Event>(&text), event);
    assert_eq!(read::<Event>(&to_string_pretty(&event).unwrap()).number, event.number);
    assert_eq!(serde_json::from_str::<Event>(&serde_json::to_string(&event).unwrap()).unwrap(), event);
}

#[test]
fn maps_are_written_in_the_order_of_their_keys() {
    let labels: HashMap<_, _> = ["c", "a", "b"].map(|key| (key.to_owned(), key.to_owned())).into();
    let text = to_string(&StartExecutionRequest { labels, ..Default::default() }).unwrap();
    assert!(text.contains(r#""labels":{"a":"a","b":"b","c":"c"}"#), "{text}");
}

#[test]
fn both_spellings_of_a_name_and_both_forms_of_a_number_are_read() {
    let policy: RetryPolicy = read(r#"{"max_attempts": "7", "initialInterval": "0.5s", "jitter": "0.25"}"#);
    assert_eq!((policy.max_attempts, policy.jitter), (7, Some(0.25)));
    assert_eq!(policy.initial_interval, Some(prost_types::Duration { seconds: 0, nanos: 500_000_000 }));
    let count: StateCount = read(r#"{"state": 3, "count": 12345678901}"#);
    assert_eq!((count.state, count.count), (State::Succeeded.into(), 12_345_678_901));
    assert_eq!(to_string(&StateCount { state: 99, count: -1 }).unwrap(), r#"{"state":99,"count":"-1"}"#);
    assert_eq!(read::<StateCount>(r#"{"state":"STATE_FAILED"}"#).state, i32::from(State::Failed));
    assert_eq!(read::<StateCount>("{}"), StateCount::default());
}

#[test]
fn null_is_unset_except_in_a_payload_where_it_is_a_value() {
    let request: StartExecutionRequest = read(r#"{"id": null, "input": null, "labels": null}"#);
    assert_eq!(request, StartExecutionRequest { input: Some(payload("null")), ..Default::default() });
    assert_eq!(to_string(&payload_holder(None)).unwrap(), r#"{"unit":"","delivery":0,"signalNumber":"0","report":""}"#);
    assert!(to_string(&payload_holder(Some(payload("null")))).unwrap().contains(r#""output":null"#));
    let definition: Definition = read(r#"{"signals": {"go": null}, "steps": [{"compute": null}]}"#);
    assert_eq!(definition.signals["go"], payload("null"));
    assert_eq!(definition.steps[0].action, Some(Action::Compute(payload("null"))));
    assert_eq!(faults::<Definition>(r#"{"steps": [null]}"#), ["steps[0]: expected an object, not null"]);
}

fn payload_holder(output: Option<Payload>) -> StepSucceeded {
    StepSucceeded { output, ..Default::default() }
}

#[test]
fn a_payload_keeps_every_byte() {
    let text = "{\"n\":12345678901234567890123,\"f\":1.00000000000000000001,\"z\":1e400,\n \"n\" : \"\\u00e9\"}";
    let request: StartExecutionRequest = read(&format!("{{\"input\": {text} }}"));
    assert_eq!(request.input, Some(payload(text)));
    assert!(to_string(&request).unwrap().contains(&format!("\"input\":{text}")));
}

#[test]
fn a_typed_payload_is_written_as_its_value_and_a_reference_is_refused() {
    use prost_types::{ListValue, Struct, Value, value};
    let number = |number| Value { kind: Some(value::Kind::NumberValue(number)) };
    let list = ListValue { values: vec![number(1.0), number(0.5), number(1e300), Value { kind: None }] };
    let object = Struct { fields: [("l".to_owned(), Value { kind: Some(value::Kind::ListValue(list)) })].into() };
    let content = |content| payload_holder(Some(Payload { content: Some(content) }));
    let value = Value { kind: Some(value::Kind::StructValue(object)) };
    let text = to_string(&content(Content::Value(value))).unwrap();
    assert!(text.contains(r#""output":{"l":[1,0.5,1e+300,null]}"#), "{text}");
    for bad in [
        Content::Reference(PayloadReference::default()),
        Content::Json("{".to_owned()),
        Content::Json("1 2".to_owned()),
        Content::Value(number(f64::NAN)),
    ] {
        assert!(to_string(&content(bad)).is_err());
    }
}

#[test]
fn all_faults_are_found_at_once_each_with_its_path() {
    let json = r#"{"name": 7, "nmae": "x", "labels": {"a": 1, "a": "b"}, "timeout": "1m30s",
        "steps": [{"id": "a", "retry": {"jiter": 1, "maxAttempts": 1.5}}, {"on_error": "FAIL", "task": "t", "sleep": {}, "id": 1, "id": 2}]}"#;
    let found = faults::<Definition>(json);
    let expected = [
        "name: expected a string, not a number",
        "nmae: no such field; did you mean \"name\"?",
        "labels[\"a\"]: expected a string, not a number",
        "labels[\"a\"]: given twice",
        "timeout: expected a duration in seconds such as \"90s\" or \"1.5s\", not \"1m30s\"; write \"90s\"",
        "steps[0].retry.jiter: no such field; did you mean \"jitter\"?",
        "steps[0].retry.maxAttempts: expected an integer from -2147483648 to 2147483647, not \"1.5\"",
        "steps[1].on_error: no value is named \"FAIL\"; expected one of ON_ERROR_UNSPECIFIED, ON_ERROR_FAIL, ON_ERROR_CONTINUE",
        "steps[1].sleep: only one of the fields that exclude each other may be given",
        "steps[1].id: expected a string, not a number",
        "steps[1].id: given twice",
    ];
    assert_eq!(found, expected);
}

#[test]
fn both_spellings_of_one_field_are_that_field_twice() {
    assert_eq!(faults::<RetryPolicy>(r#"{"maxAttempts":1,"max_attempts":1}"#), ["max_attempts: given twice"]);
}

#[test]
fn what_is_no_document_is_refused_as_a_whole() {
    for (json, start) in [
        ("{", ": not a JSON document: EOF"),
        ("{} x", ": not a JSON document: trailing"),
        ("{\"id\": tru}", ": not a JSON document: expected"),
        ("", ": not a JSON document: EOF"),
        ("[]", ": expected an object, not an array"),
        ("{\"id\": \"\\ud800\"}", "id: has an escape"),
    ] {
        let found = faults::<StartExecutionRequest>(json);
        assert!(found[0].starts_with(start) && found.len() == 1, "{json}: {found:?}");
    }
    assert!(from_slice::<StartExecutionRequest>(b"{\"id\": \"\xff\"}").is_err());
}

#[test]
fn a_flood_of_faults_is_cut_and_depth_is_no_danger() {
    let flood: String = (0..10_000).map(|i| format!("\"x{i}\":1,")).collect();
    assert_eq!(faults::<Execution>(&format!("{{{flood}\"y\":1}}")).len(), super::FAULTS_MAX);
    let deep = format!("{{\"input\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(from_slice::<StartExecutionRequest>(deep.as_bytes()).is_ok());
}

#[test]
fn parameters_are_read_as_fields_are() {
    let read = |pairs: &[(&str, &str)]| {
        let (mut step, mut reader) = (Step::default(), Reader::default());
        for (name, text) in pairs {
            reader.parameter(&mut step, name, text);
        }
        reader.finish().map(|()| step).map_err(|faults| faults.to_string())
    };
    let step = read(&[
        ("retry.maxAttempts", "3"),
        ("retry.initial_interval", "1.5s"),
        ("needs", "a"),
        ("needs", "b"),
        ("onError", "ON_ERROR_CONTINUE"),
        ("id", "x&y"),
        ("input", "{\"a\": 1.0}"),
    ]);
    let retry = RetryPolicy {
        max_attempts: 3,
        initial_interval: Some(prost_types::Duration { seconds: 1, nanos: 500_000_000 }),
        ..Default::default()
    };
    let expected = Step {
        id: "x&y".to_owned(),
        needs: vec!["a".to_owned(), "b".to_owned()],
        retry: Some(retry),
        on_error: 2,
        input: Some(payload("{\"a\": 1.0}")),
        ..Default::default()
    };
    assert_eq!(step, Ok(expected));
    let bad = [
        ("retry.max_attempts", "x", "retry.max_attempts: expected an integer"),
        ("retry", "x", "retry: has fields of its own"),
        ("id.x", "x", "id.x: no such field"),
        ("iid", "x", "iid: no such field; did you mean \"id\"?"),
        ("retry.jiter", "x", "retry.jiter: no such field; did you mean \"jitter\"?"),
        (
            "timeout",
            "7d",
            "timeout: expected a duration in seconds such as \"90s\" or \"1.5s\", not \"7d\"; write \"604800s\"",
        ),
        ("priority", "", "priority: expected an integer"),
    ];
    for (name, text, start) in bad {
        let found = read(&[(name, text)]).unwrap_err();
        assert!(found.starts_with(start), "{found}");
    }
    assert_eq!(read(&[("priority", "1"), ("priority", "2")]).unwrap_err(), "priority: given twice");
    assert_eq!(read(&[("on_error", "1"), ("onError", "1")]).unwrap_err(), "onError: given twice");
    let (mut request, mut reader) = (ListExecutionsRequest::default(), Reader::default());
    reader.parameter(&mut request, "page_size", "-1");
    assert_eq!((request.page_size, reader.finish()), (-1, Ok(())));
}

#[test]
fn sleep_has_names_that_are_keywords() {
    let sleep: Sleep = read(r#"{"for": "1s"}"#);
    assert_eq!(sleep.r#for, "1s");
    assert_eq!(to_string(&WatchEventsResponse::default()).unwrap(), "{}");
}
