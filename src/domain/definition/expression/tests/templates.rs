//! Templates: what they give, and sleeps that end at a time one gives.

use super::*;
use std::time::Duration;

#[test]
fn templates_keep_types_digits_and_order() {
    let world = World::new(INPUT);
    for (template, expected) in [
        (r#""${ input.n }""#, "2"),
        (r#""${input.big}\n""#, "9007199254740993"),
        (
            r#"{"z": "${ input.list }", "a": 1.50, "m": 12345678901234567890123}"#,
            r#"{"z":[3, 1, 2],"a":1.50,"m":12345678901234567890123}"#,
        ),
        (r#""n=${ input.n }, ${ input.text }!""#, r#""n=2, é\"x!""#),
        (r#""${ input.n }${ input.flag }${ input.nothing }${ input.none }${ input.price }""#, r#""2falsenull[]1.50""#),
        (r#"" ${ input.n }""#, r#"" 2""#),
        (r#""$${ input.n } costs $5 and $""#, r#""${ input.n } costs $5 and $""#),
        (r#""$${a}${ input.n }""#, r#""${a}2""#),
        (r#""${ {'a': '}'}.a }""#, r#""}""#),
        (r#""${ \"}\" } and ${ '{' }""#, r#""} and {""#),
        (r#"{"$${x}": "${ input.n }"}"#, r#"{"${x}":2}"#),
        (
            r#"[["${ steps.second.error }"]]"#,
            r#"[[{"code":"DECLINED","message":"no money","details":{"bank": 7},"unit":"second"}]]"#,
        ),
        ("null", "null"),
        (r#"{"a": [true, null, "x"], "b": {}}"#, r#"{"a":[true,null,"x"],"b":{}}"#),
    ] {
        assert_eq!(world.fill(template).as_deref(), Ok(expected), "{template}");
    }
}

#[test]
fn a_whole_payload_is_passed_on_without_a_copy() {
    let world = World::new(INPUT);
    let payload = world.template(r#""${ input }""#).evaluate(&world.scope()).unwrap();
    assert!(std::ptr::eq(payload.as_str(), world.input.as_str()));
    let payload = world.template(r#""${ steps.first.output }""#).evaluate(&world.scope()).unwrap();
    assert!(std::ptr::eq(payload.as_str(), world.steps.output.as_str()));
}

#[test]
fn broken_templates_say_where() {
    let world = World::new(INPUT);
    for (template, path, part) in [
        (r#"{"a": [1, "${ input.n"]}"#, ".a[1]", "without a closing"),
        (r#"{"${ input.n }": 1}"#, "", "name of a field"),
        (r#"{"a": {"b": "x ${ 1 + } y"}}"#, ".a.b", ""),
        (r#""${}""#, "", "empty"),
    ] {
        let node = source::read_json(template).unwrap();
        let faults = Template::compile(&node, &mut world.references()).expect_err(template);
        assert_eq!(faults[0].path, path, "{template}");
        assert!(faults[0].error.message.contains(part), "{template}: {}", faults[0].error.message);
    }
}

#[test]
fn texts_of_equal_meaning_have_one_canonical_form() {
    for (text, expected) in
        [("${ a }", "${a}"), ("${a}\n", "${a}"), ("x ${  a  } $${b} $", "x ${a} $${b} $"), ("plain", "plain")]
    {
        assert_eq!(canonical_text(text), expected);
        assert_eq!(canonical_text(expected), expected);
    }
}

#[test]
fn sleeps_end_at_a_time() {
    use crate::domain::definition::Sleep;
    let world = World::new(INPUT);
    let now = Timestamp::from_micros(10_000_000);
    let wake = |sleep: Sleep| sleep.wake_time(&world.scope(), now);
    for (template, span) in [
        (r#""90s""#, Duration::from_secs(90)),
        (r#""${ input.n }""#, Duration::from_secs(2)),
        (r#""${ input.price }""#, Duration::from_millis(1_500)),
        (r#""${ input.n }m""#, Duration::from_secs(120)),
        (r#""${ duration('1h') }""#, Duration::from_secs(3_600)),
        (r#""${ input.zero }""#, Duration::ZERO),
    ] {
        assert_eq!(wake(Sleep::For(world.template(template))), Ok(now + span), "{template}");
    }
    for template in [
        r#""${ input.flag }""#,
        r#""${ -1 }""#,
        r#""${ input.huge }""#,
        r#""${ input.blank }""#,
        r#""${ 'P1D' }""#,
        r#""${ 1e300 }""#,
        r#""${ input.none }""#,
    ] {
        let error = wake(Sleep::For(world.template(template))).expect_err(template);
        assert!(matches!(error.problem, Problem::NotTime(_)), "{template}: {error}");
    }
    let until = |template: &str| wake(Sleep::Until(world.template(template)));
    assert_eq!(until(r#""${ input.time }""#), Ok(Timestamp::from_micros(1_769_850_000_000_000)));
    assert_eq!(until(r#""${ timestamp(input.time) }""#), Ok(Timestamp::from_micros(1_769_850_000_000_000)));
    assert_eq!(until(r#""1969-01-01T00:00:00Z""#), Ok(now), "the past is now");
    assert!(until(r#""${ input.n }""#).is_err());
    assert!(until(r#""${ input.text }""#).is_err());
}
