//! The JSON form and the hash.

use super::*;
use proptest::prelude::*;
use sha2::Digest as _;

#[test]
fn texts_of_one_meaning_have_one_hash() {
    let hash = |source: &str| parse(source).hash;
    let plain = "name: n\nversion: 1.0.0\ninput: {type: object, required: [a]}\nsteps: [{id: a, compute: {x: '${ input.a }', y: 2}}, {id: b, task: x@1, needs: [a], input: '${ steps.a.output }'}]\n";
    let expected = hash(plain);
    for same in [
        // Order of keys, defaults written out, description, labels, comments, spelling, white space.
        "# A comment.\nsteps: [{compute: {y: 2, x: '${input.a}'}, id: a, on_error: fail}, {id: b, task: x@1, input: '${  steps.a.output  }', priority: 3, queue: default}]\ninput: {required: [a], type: object}\nversion: 1.0.0\nname: n\ndescription: more\nlabels: {a: b}\nresult: null\n",
        "name: n\nversion: 1.0.0\ninput: {type: object, required: [a]}\nsteps: [{id: a, compute: {x: '${ input.a }', y: 0x2}}, {id: b, task: x@1, input: '${ steps.a.output }', onError: ON_ERROR_FAIL, retry: {max_attempts: 3, initialInterval: 1000ms, max_interval: 60s, jitter: 0.2}}]\n",
        "{\"name\": \"n\", \"version\": \"1.0.0\", \"input\": {\"type\": \"object\", \"required\": [\"\\u0061\"]}, \"steps\": [{\"id\": \"a\", \"compute\": {\"x\": \"${ input.a }\", \"y\": 2}}, {\"id\": \"b\", \"task\": \"x@1\", \"needs\": [\"a\", \"a\"], \"input\": \"${ steps.a.output }\\n\"}]}",
    ] {
        assert_eq!(hash(same), expected, "{same}");
    }
    for other in [
        plain.replace("1.0.0", "1.0.1"),
        plain.replace("name: n", "name: m"),
        plain.replace("y: 2", "y: 3"),
        plain.replace("y: 2", "y: '2'"),
        plain.replace("input.a }", "input.b }"),
        plain.replace("[a]}\n", "[b]}\n"),
        plain.replace("id: b, task: x@1", "id: b, task: x@2"),
        plain.replace("needs: [a]", "timeout: 1s"),
        plain.replace("needs: [a]", "when: 'true'"),
        plain.replace("needs: [a]", "on_error: continue"),
        plain.replace("needs: [a]", "retry: {jitter: 0}"),
        format!("{plain}result: 1\n"),
        format!("{plain}timeout: 1s\n"),
        format!("{plain}signals: {{go: {{}}}}\n"),
    ] {
        assert_ne!(hash(&other), expected, "{other}");
    }
}

/// All that the first release of the language knew.
const FIRST: &str = "name: n\nversion: 1.0.0-rc.1\ndescription: \"a \\\"b\\\"\"\nlabels: {k: v}\ntimeout: 90s\ninput: true\noutput: {}\ntasks: {x@1: {input: {type: integer}}, y@1: }\nsignals: {go: {}}\nsteps:\n\
        - {id: a, compute: null}\n- {id: b, compute: 12345678901234567890123}\n- {id: c, sleep: {for: '${ input }'}}\n- {id: d, sleep: {until: '2026-01-01T00:00:00Z'}}\n\
        - {id: e, await: {signal: go, match: \"signal.x == '}'\", timeout: 5s}, when: 'true // yes'}\n- {id: f, fail: {code: NO, message: 'x ${ input.y }'}, on_error: continue}\n- {id: g, fail: {code: NO}}\n\
        - {id: h, task: x@1, input: [1.0, '$${x}'], language: go, queue: q, priority: 5, timeout: 1s, queue_timeout: 2s, total_timeout: 3s, heartbeat_timeout: 1s, retry: {max_attempts: 1, initial_interval: 0s, backoff_coefficient: 3.5, max_interval: 1ms, jitter: 1, non_retryable: [A]}}\n\
        - {id: i, task: y@1, needs: [h]}\nresult: {a: '${ steps.i.error }'}\n";

#[test]
fn the_hash_of_the_format_does_not_change() {
    // Deployed definitions are compared by it: another value here breaks every redeploy of an unchanged file.
    assert_eq!(
        parse("name: n\nversion: 1.0.0\nsteps: [{id: a, compute: '${ input }'}]\n").hash_hex(),
        "07b6df93a1f0a1a095239851a9a6159ea4cb5824eac44c306f04eadc50e51ff5"
    );
}

#[test]
fn what_was_deployed_before_keeps_its_json_and_its_hash() {
    let digest = |text: &str| sha2::Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for (source, hash, json) in [
        (
            FIRST,
            "cc29dc8ac9a6d3f9a54a4bb805addfd2f033801d3a6d697516442b7e8d835794",
            "e602c70994ebc519bbb54f5a56495fe217e6d82e0b299d6c8d17f4cb4469491b",
        ),
        (
            ORDER,
            "5b65a949fdee504ac5dba35c9c06d7599f4563ec96eaf3e9bf87fe13d71ab9a1",
            "77b6e0ba6d7d01498f32961ebc23e1ddb5722928a4f87a4294df241554324355",
        ),
    ] {
        let definition = parse(source);
        assert_eq!((&*definition.hash_hex(), &*digest(&definition.to_json())), (hash, json));
    }
}

#[test]
fn json_gives_the_same_definition_and_hash() {
    for source in [ORDER, FIRST] {
        let definition = parse(source);
        let json = definition.to_json();
        assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
        let again = parse(&json);
        assert_eq!(again, definition);
        assert_eq!(again.to_json(), json);
        assert_eq!(Definition::parse_stored(&json).unwrap(), definition);
    }
}

#[test]
fn a_stored_definition_is_compiled_but_not_judged() {
    let odd = r#"{"name":"a b","version":"1.0.0","steps":[{"id":"1","task":"x","timeout":"0s","priority":9,"retry":{"jitter":7}}]}"#;
    assert!(Definition::parse("x.json", odd).is_err());
    let stored = Definition::parse_stored(odd).unwrap();
    assert_eq!(&*stored.name, "a b");
    assert_eq!(Definition::parse_stored(&stored.to_json()).unwrap().hash, stored.hash);
    for broken in [
        r#"{"name":"n","version":"1.0.0","steps":[{"id":"a","compute":1,"later":2}]}"#,
        r#"{"name":"n","version":"1.0.0","steps":[{"id":"a","compute":"${ 1 + }"}]}"#,
        r#"{"name":"n","version":"1.0.0","steps":[{"id":"a","compute":1,"needs":["a"]}]}"#,
        "name: n",
        "",
    ] {
        assert!(Definition::parse_stored(broken).is_err(), "{broken}");
    }
}

/// Values for templates, of every kind.
fn json_value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(serde_json::Value::from),
        "[^$\0]{0,12}".prop_map(serde_json::Value::from),
        Just(serde_json::Value::from("${ input.x }")),
        Just(serde_json::Value::from("a ${input.y} $${b}")),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            proptest::collection::hash_map("[^$\0]{0,6}", inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// Steps `s0`, `s1`, …, each with any action, needing only steps before it.
fn step_value() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::json;
    let nanos = 1_000_000_000_u64..1_000_000_000_000;
    let span = nanos.prop_map(|nanos| duration::format(Duration::from_nanos(nanos)));
    let retry = (0..1_000_000, 1.0..1_000.0_f64, 0.0..=1.0_f64, proptest::collection::vec("[A-Z]{1,4}", 0..3))
        .prop_map(|(attempts, coefficient, jitter, codes)| json!({"maxAttempts": attempts, "backoffCoefficient": coefficient, "jitter": jitter, "nonRetryable": codes}));
    prop_oneof![
        json_value().prop_map(|value| json!({"compute": value})),
        (json_value(), span.clone(), retry, 0..=5).prop_map(|(input, span, retry, priority)| json!({"task": "x@1", "input": input, "timeout": span, "retry": retry, "priority": priority})),
        span.clone().prop_map(|span| json!({"sleep": {"for": span}})),
        span.prop_map(|span| json!({"await": {"signal": "go", "timeout": span}, "when": "input.x == 1"})),
        "[^$\0]{0,12}".prop_map(|message| json!({"fail": {"code": "NO", "message": message}, "onError": "continue"})),
    ]
}

proptest! {
    #[test]
    fn any_definition_survives_its_json_form(steps in proptest::collection::vec((step_value(), any::<prop::sample::Index>()), 1..8), description in "[^\0]{0,20}", result in json_value()) {
        let steps: Vec<_> = steps.into_iter().enumerate().map(|(position, (mut step, need))| {
            step["id"] = format!("s{position}").into();
            if position > 0 {
                step["needs"] = serde_json::json!([format!("s{}", need.index(position))]);
            }
            step
        }).collect();
        let source = serde_json::json!({"name": "n", "version": "1.0.0", "description": description, "signals": {"go": {}}, "steps": steps, "result": result});
        let definition = parse(&source.to_string());
        let json = definition.to_json();
        let again = parse(&json);
        prop_assert_eq!(&again, &definition);
        prop_assert_eq!(again.hash, definition.hash);
        prop_assert_eq!(Definition::parse_stored(&json).unwrap().hash, definition.hash);
    }

    #[test]
    fn no_text_panics(text in ".{0,200}") {
        let _ = Definition::parse("x.yaml", &text);
        let _ = Definition::parse("x.json", &text);
        let _ = Definition::parse_stored(&text);
    }

    #[test]
    fn no_damaged_file_panics(at in any::<prop::sample::Index>(), with in ".{0,3}", length in 0..20_usize) {
        let characters: Vec<char> = ORDER.chars().collect();
        let at = at.index(characters.len());
        let damaged: String = characters[..at].iter().copied().chain(with.chars()).chain(characters[(at + length).min(characters.len())..].iter().copied()).collect();
        if let Err(faults) = Definition::parse("order.yaml", &damaged) {
            prop_assert!(!faults.is_empty());
            for fault in faults {
                prop_assert!(fault.line > 0 && fault.column > 0, "{:?}", fault);
            }
        }
    }
}
