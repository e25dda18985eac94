//! Expressions and templates against scopes.

use super::*;
use crate::domain::definition::{node::Node, source};
use proptest::prelude::*;
use std::{collections::HashMap, time::Duration};

const INPUT: &str = r#"{ "n": 2, "big": 9007199254740993, "huge": 12345678901234567890123, "unsigned": 18446744073709551615,
    "price": 1.50, "text": "é\"x", "flag": false, "nothing": null, "empty": {}, "none": [], "zero": 0, "blank": "",
    "list": [3, 1, 2], "words": ["b", "a", "b"], "nested": {"a": {"b": [10, {"c": "deep"}]}}, "odd key": 1,
    "items": [{"sku": "x", "cents": 100}, {"sku": "y", "cents": 250}], "time": "2026-01-31T09:00:00Z" }"#;

/// Three steps: `first` succeeded, `second` failed and went on, `third` has not run.
struct Steps {
    output: Payload,
    failure: Failure,
}

impl StepLookup for Steps {
    fn step(&self, index: StepIndex) -> StepView<'_> {
        match index.0 {
            0 => StepView { output: Some(&self.output), error: None, state: "SUCCEEDED" },
            1 => StepView { output: None, error: Some(&self.failure), state: "FAILED" },
            _ => StepView { output: None, error: None, state: "WAITING" },
        }
    }
}

struct World {
    input: Payload,
    signal: Payload,
    steps: Steps,
    ids: HashMap<&'static str, StepIndex>,
}

impl World {
    fn new(input: &str) -> Self {
        let details = Some(Payload::from_json(r#"{"bank": 7}"#));
        Self {
            input: Payload::from_json(input),
            signal: Payload::from_json(r#"{"by": "anna"}"#),
            steps: Steps {
                output: Payload::from_json(r#"{"receipt": "r-1", "cents": 9007199254740993}"#),
                failure: Failure {
                    code: "DECLINED".into(),
                    message: "no money".into(),
                    details,
                    unit: "second".into(),
                },
            },
            ids: HashMap::from([("first", StepIndex(0)), ("second", StepIndex(1)), ("third", StepIndex(2))]),
        }
    }

    fn scope(&self) -> Scope<'_> {
        let execution = ExecutionScope { id: "e-1", run: 3, start_time: Timestamp::from_micros(1_500_000) };
        Scope { input: &self.input, steps: &self.steps, signal: Some(&self.signal), execution }
    }

    fn references(&self) -> References<'_> {
        References { steps: &self.ids, own: None, signal: true, mentioned: Vec::new() }
    }

    fn compile(&self, source: &str) -> Result<Expression, Vec<CompileError>> {
        compile(source, &mut self.references())
    }

    fn evaluate(&self, source: &str) -> Result<String, EvaluationError> {
        let expression = self.compile(source).unwrap_or_else(|errors| panic!("{source}: {errors:?}"));
        expression.evaluate(&self.scope()).map(|payload| payload.as_str().to_owned())
    }

    fn template(&self, json: &str) -> Template {
        let node: Node = source::read_json(json).unwrap();
        Template::compile(&node, &mut self.references()).unwrap_or_else(|faults| {
            panic!("{json}: {:?}", faults.into_iter().map(|fault| fault.error).collect::<Vec<_>>())
        })
    }

    fn fill(&self, json: &str) -> Result<String, EvaluationError> {
        self.template(json).evaluate(&self.scope()).map(|payload| payload.as_str().to_owned())
    }
}

#[test]
fn expressions_give_values() {
    let world = World::new(INPUT);
    for (source, expected) in [
        // Paths, constants, operators.
        ("input.n + 1", "3"),
        ("input.nested.a.b[1].c", "\"deep\""),
        ("input['odd key']", "1"),
        ("input.list[input.n]", "2"),
        ("input.price * 2.0", "3.0"),
        ("-input.n", "-2"),
        ("input.n == 2 && !input.flag", "true"),
        ("input.n > 1 ? 'many' : 'one'", "\"many\""),
        ("'a' + input.text", "\"aé\\\"x\""),
        ("{'k': input.n, 'a': [1, 2.5, true, null]}", "{\"a\":[1,2.5,true,null],\"k\":2}"),
        ("input.n in input.list", "true"),
        ("'n' in input", "true"),
        ("1u + 2u", "3"),
        ("7 / 2", "3"),
        ("7 % 4", "3"),
        ("b'abc'", "\"YWJj\""),
        ("type(input.n) == int", "true"),
        // Steps, the signal, the execution.
        ("steps.first.output.receipt", "\"r-1\""),
        ("steps.first.output.cents - 1", "9007199254740992"),
        ("steps.second.error.code == 'DECLINED' ? steps.second.error.details.bank : 0", "7"),
        ("steps.second.output == null", "true"),
        ("steps.third.state", "\"WAITING\""),
        ("steps['first'].output.receipt", "\"r-1\""),
        ("signal.by.startsWith('an')", "true"),
        ("execution.id + '/' + string(execution.run)", "\"e-1/3\""),
        ("execution.start_time", "\"1970-01-01T00:00:01.5Z\""),
        ("execution.start_time + duration('1h')", "\"1970-01-01T01:00:01.5Z\""),
        ("timestamp(input.time).getHours()", "9"),
        ("timestamp(input.time).getHours('Europe/Berlin')", "10"),
        ("duration('90s')", "\"90s\""),
        // Functions.
        ("input.items.map(i, i.cents).sum()", "350"),
        ("input.items.filter(i, i.cents > 100).map(i, i.sku)", "[\"y\"]"),
        ("input.items.map(i, i.cents > 100, i.sku)", "[\"y\"]"),
        ("input.items.all(i, i.cents > 0)", "true"),
        ("input.items.exists(i, i.sku == 'y')", "true"),
        ("input.items.exists_one(i, i.sku == 'y')", "true"),
        ("input.list.transformList(i, v, i * v)", "[0,1,4]"),
        ("input.nested.transformMap(k, v, k)", "{\"a\":\"a\"}"),
        ("input.nested.map(k, k)", "[\"a\"]"),
        ("[].sum()", "0"),
        ("[1.5, 2.0].sum()", "3.5"),
        ("input.words.distinct()", "[\"b\",\"a\"]"),
        ("[[1], [1], [2]].distinct()", "[[1],[2]]"),
        ("input.list.sort()", "[1,2,3]"),
        ("input.words.sort().join('-')", "\"a-b-b\""),
        ("input.list.reverse()", "[2,1,3]"),
        ("'abc'.reverse()", "\"cba\""),
        ("input.list.slice(1, 3)", "[1,2]"),
        ("[[1], [2, [3]]].flatten()", "[1,2,[3]]"),
        ("[[1], [2, [3]]].flatten(2)", "[1,2,3]"),
        ("lists.range(3)", "[0,1,2]"),
        ("size(input.list) + input.words.size() + size('é😀')", "8"),
        ("math.greatest(input.list) + math.least(1, 2)", "4"),
        ("math.ceil(1.2)", "2.0"),
        ("'a,b'.split(',')", "[\"a\",\"b\"]"),
        ("'%s is %.2f'.format(['pi', 3.14159])", "\"pi is 3.14\""),
        ("'x-1'.matches('^[a-z]-[0-9]{1,3}$')", "true"),
        ("'Hello'.substring(1, 3).upperAscii()", "\"EL\""),
        ("cel.bind(x, input.n, x * x)", "4"),
        ("int('42') + int(2.9)", "44"),
        // A name of a loop hides the scope's.
        ("[1, 2].map(input, input * 2)", "[2,4]"),
        ("[{'output': 1}].map(steps, steps.output)", "[1]"),
        // Presence.
        ("has(input.n) && !has(input.missing) && has(input.nothing)", "true"),
        ("has(input.nested.a.b) && !has(input.nested.x.y)", "true"),
        ("has(steps.second.error) && !has(steps.first.error)", "true"),
        ("input.items.filter(i, has(i.sku)).size()", "2"),
        // Errors that do not decide.
        ("false && input.missing", "false"),
        ("input.missing || true", "true"),
        ("[1, 0, 2].exists(i, 2 / i == 1)", "true"),
        ("1 // a comment", "1"),
    ] {
        assert_eq!(world.evaluate(source).as_deref(), Ok(expected), "{source}");
    }
}

#[test]
fn integers_stay_exact() {
    let world = World::new(INPUT);
    for (source, expected) in [
        ("input.big", "9007199254740993"),
        ("input.big + 0", "9007199254740993"),
        ("[input.big]", "[9007199254740993]"),
        ("9223372036854775807", "9223372036854775807"),
        ("input.unsigned", "18446744073709551615"),
        ("[input.unsigned]", "[18446744073709551615]"),
        // Beyond 64 bits nothing computes, but everything copies.
        ("input.huge", "12345678901234567890123"),
        ("[input.huge, {'a': input}].map(x, x)[0]", "12345678901234567890123"),
        ("input.huge == 5", "false"),
        ("input.price", "1.50"),
    ] {
        assert_eq!(world.evaluate(source).as_deref(), Ok(expected), "{source}");
    }
    for source in [
        "input.huge + 1",
        "input.huge > 1",
        "string(input.huge)",
        "[input.huge].sum()",
        "9223372036854775807 + input.n",
        "-(-9223372036854775807 - 1)",
    ] {
        let error = world.evaluate(source).expect_err(source);
        assert!(matches!(error.problem, Problem::Failed(_)), "{source}: {error}");
    }
}

#[test]
fn c081_values_that_look_like_nothing_stay_what_they_are() {
    let world = World::new(INPUT);
    for (field, expected) in
        [("nothing", "null"), ("empty", "{}"), ("none", "[]"), ("zero", "0"), ("blank", "\"\""), ("flag", "false")]
    {
        assert_eq!(world.evaluate(&format!("input.{field}")).as_deref(), Ok(expected));
        assert_eq!(world.evaluate(&format!("[input.{field}]")).unwrap(), format!("[{expected}]"));
        assert_eq!(
            world.fill(&format!(r#"{{"x": "${{ input.{field} }}"}}"#)).unwrap(),
            format!("{{\"x\":{expected}}}")
        );
        let alone = World::new(expected);
        assert_eq!(alone.evaluate("input").as_deref(), Ok(expected));
        assert_eq!(alone.evaluate("[input]").unwrap(), format!("[{expected}]"));
    }
}

#[test]
fn c081_a_missing_path_is_an_error_that_names_it() {
    let world = World::new(INPUT);
    for (source, path, reason) in [
        ("input.missing", "input.missing", "`input` has no field `missing`"),
        ("input.missing + 1", "input.missing", "`input` has no field `missing`"),
        ("input.nothing.x", "input.nothing.x", "`input.nothing` is null"),
        ("input.n.x.y", "input.n.x", "`input.n` is a number"),
        ("input.nested.a.b[7].c", "input.nested.a.b[7]", "`input.nested.a.b` has 2 elements"),
        ("input['a b'].c", "input[\"a b\"]", "`input` has no field `a b`"),
        ("steps.third.output.x", "steps.third.output.x", "`steps.third.output` is null"),
        ("steps.first.error.code", "steps.first.error.code", "`steps.first.error` is null"),
        ("input.items.map(i, i.price)", "price", "the object has no field `price`"),
        ("input.list[input.n + 5]", "[7]", "the list has 3 elements"),
    ] {
        let error = world.evaluate(source).expect_err(source);
        assert_eq!(error.problem, Problem::Missing { path: path.to_owned(), reason: reason.to_owned() }, "{source}");
        assert_eq!(&*error.expression, source);
    }
}

#[test]
fn wrong_types_are_errors_and_say_so() {
    let world = World::new(INPUT);
    for (source, part) in [
        ("input.n + 'a'", "`+` does not take int and string"),
        ("input.n * input.price", "convert one of them with `double(…)`"),
        ("input.text < 1", "`<` does not take string and int"),
        ("!input.n", "`!` does not take int"),
        ("input.n && true", "`&&` does not take int"),
        ("1 / input.zero", "division by zero"),
        ("input.words.sum()", "`sum` does not take string and string"),
        ("input.list.join(',')", "`join` does not take int"),
        ("[1, 'a'].map(x, dyn(x)).sort()", "`sort` does not take int and string"),
        ("input.n.map(x, x)", "int has no elements"),
        ("0.0 / 0.0", "a number that is not finite"),
        ("type(1)", "which JSON cannot write"),
        ("'%.999f'.format([1.0])", "more than 100 decimals"),
        ("int('x')", "`int`"),
        ("lists.range(-1)", "at least 0"),
    ] {
        let error = world.evaluate(source).expect_err(source).to_string();
        assert!(error.contains(part), "{source}: {error}");
    }
    let condition = world.compile("input.n").unwrap();
    assert_eq!(condition.evaluate_bool(&world.scope()).unwrap_err().problem, Problem::NotBoolean("int".to_owned()));
    assert_eq!(world.compile("input.n == 2").unwrap().evaluate_bool(&world.scope()), Ok(true));
}

#[test]
fn bad_sources_do_not_compile() {
    let world = World::new(INPUT);
    for (source, part, offset) in [
        ("", "empty", 0),
        ("input.", "", 6),
        ("1 +", "", 3),
        ("unknown.x", "unknown", 0),
        ("1 + nope(2)", "nope", 4),
        ("1 + 'a'", "", 0),
        ("steps", "name the step", 0),
        ("steps.first", "a step has", 0),
        ("1 + steps.nobody.output", "there is no step `nobody`", 4),
        ("steps.first.result", "a step has", 0),
        ("execution.uid", "an execution has", 0),
        ("input.?a", "optional", 0),
        ("input.a.map(x, input.b.map(y, input.c.map(z, x)))", "one inside the other", 0),
        ("'a'.map(x, y)", "", 0),
    ] {
        let errors = world.compile(source).expect_err(source);
        assert!(errors.iter().any(|error| error.message.contains(part)), "{source}: {errors:?}");
        if offset > 0 {
            assert!(errors.iter().any(|error| error.offset == offset), "{source}: {errors:?}");
        }
    }
    assert!(world.compile(&"1".repeat(EXPRESSION_BYTES_MAX + 1)).is_err());
    let error = world.compile("steps.frist.output").unwrap_err().remove(0);
    assert_eq!(error.hint, "did you mean `first`?");
    let mut references = References { own: Some(StepIndex(0)), ..world.references() };
    assert_eq!(compile("steps.first.output", &mut references).unwrap_err()[0].kind, CompileErrorKind::OwnStep);
    let mut references = References { signal: false, ..world.references() };
    assert!(compile("signal.by", &mut references).is_err());
}

#[test]
fn expressions_tell_which_steps_they_mention() {
    let world = World::new(INPUT);
    let mut references = world.references();
    compile("has(steps.third.error) ? steps.first.output : steps.first.state", &mut references).unwrap();
    assert_eq!(references.mentioned, [StepIndex(2), StepIndex(0), StepIndex(0)]);
}

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

#[test]
#[expect(clippy::disallowed_methods, reason = "measures the time that passes for a user")]
fn work_is_bounded() {
    let numbers = (0..20_000).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let world =
        World::new(&format!("{{\"list\": [{numbers}], \"text\": \"{}\", \"one\": [1]}}", "a".repeat(1_000_000)));
    // A long list is no trouble where the work grows with its length.
    assert_eq!(world.evaluate("input.list.map(x, x * 2).filter(x, x % 3 == 0).sum()").as_deref(), Ok("133326666"));
    for (source, problem) in [
        ("input.list.map(x, input.list.map(y, x * y))", Problem::TooMuchWork),
        ("input.list.all(x, input.list.exists(y, y == x + 30000) || true)", Problem::TooMuchWork),
        ("lists.range(100000000)", Problem::TooMuchWork),
        ("input.text + input.text + input.text", Problem::TooLarge),
        ("input.text.replace('', input.text)", Problem::TooLarge),
        ("input.text.replace('a', 'bbbb')", Problem::TooLarge),
        ("input.list.map(x, input.text).join()", Problem::TooLarge),
        ("[input.text, input.text, input.text]", Problem::TooLarge),
        ("input.one.map(x, input.text.matches('(a{1,20}){1,20}'))", Problem::TooMuchWork),
    ] {
        let started = std::time::Instant::now();
        let error = world.evaluate(source).map(|text| text.len()).expect_err(source);
        assert_eq!(error.problem, problem, "{source}");
        assert!(started.elapsed() < Duration::from_secs(5), "{source} took {:?}", started.elapsed());
    }
}

#[test]
fn doubling_does_not_explode() {
    let world = World::new(INPUT);
    let nested = |start: &str, step: &str, levels: usize| {
        let mut source = format!("x{levels}");
        for level in (1..=levels).rev() {
            let before = format!("x{}", level - 1);
            source = format!("cel.bind(x{level}, {}, {source})", step.replace('x', &before));
        }
        format!("cel.bind(x0, {start}, {source})")
    };
    for (start, step) in [
        ("'ab'", "x + x"),
        ("[1]", "x + x"),
        ("[1]", "[x, x]"),
        ("[1]", "[x, x] == [x, x] ? [x, x] : [x]"),
        ("'a'", "'%s%s'.format([x, x])"),
    ] {
        let source = nested(start, step, 30);
        let error = world.evaluate(&source).map(|text| text.len()).expect_err(&source);
        assert!(matches!(error.problem, Problem::TooMuchWork | Problem::TooLarge), "{source}: {error}");
    }
}

#[test]
fn deep_sources_do_not_overflow_a_small_stack() {
    let deepest = [
        format!("{}1{}", "(".repeat(47), ")".repeat(47)),
        format!("{}1{}", "[".repeat(47), "]".repeat(47)),
        format!("{}true", "!".repeat(127)),
        vec!["1"; 127].join("+"),
        format!("input{}", ".a".repeat(126)),
        "true ? 1 : ".repeat(40) + "1",
        format!("{}1{}", "[1].map(x, ".repeat(20), ")".repeat(20)),
        format!("{}1{}", "{'a': ".repeat(40), "}".repeat(40)),
        format!("{}1{}", "size([".repeat(23), "])".repeat(23)),
    ];
    let run = move || {
        let world = World::new(INPUT);
        for source in deepest {
            if let Ok(expression) = world.compile(&source) {
                let _ = expression.evaluate(&world.scope());
            }
        }
        for character in
            ["(", "[", "{", "!", "-", "a.", "a?", "1+", "a[", "f(", "'", "\"\"\"", "${", "[1].map(x,", "\\", "x in "]
        {
            let _ = world.compile(&character.repeat(EXPRESSION_BYTES_MAX / character.len()));
        }
    };
    std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(run).unwrap().join().unwrap();
}

/// Pieces that make up sources which are often almost right.
fn source_piece() -> impl Strategy<Value = String> {
    let words = [
        "input",
        "steps",
        "first",
        "output",
        "error",
        "signal",
        "execution",
        "n",
        "list",
        "items",
        "map",
        "filter",
        "all",
        "exists",
        "has",
        "size",
        "sum",
        "cel.bind",
        "matches",
        "format",
        "replace",
        "split",
        "substring",
        "slice",
        "flatten",
        "charAt",
        "indexOf",
        "lastIndexOf",
        "math.abs",
        "math.bitShiftLeft",
        "timestamp",
        "duration",
        "getHours",
        "int",
        "uint",
        "string",
        "double",
        "type",
        "dyn",
        "'a'",
        "\"%d%s\"",
        "'2026-01-01T00:00:00Z'",
        "1",
        "-1",
        "9223372036854775807",
        "1u",
        "1.5",
        "1e308",
        "true",
        "null",
        "x",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ".",
        ",",
        ":",
        "?",
        "+",
        "-",
        "*",
        "/",
        "%",
        "==",
        "<",
        "&&",
        "||",
        "!",
        " in ",
        "[0]",
        "(x, x)",
        ".map(x, x)",
        "b'\\xff'",
        "cel.block",
        "cel.index",
        "proto.hasExt",
        "optional.of",
        ".?",
        "[?",
        "transformMap",
        "'\\ud800'",
        "\\",
        "`",
        "é",
        "$",
        "@0",
        "__result__",
        "Msg{a: 1}",
    ];
    prop_oneof![4 => proptest::sample::select(words.map(str::to_owned).to_vec()), 1 => ".{0,3}"]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_source_panics(pieces in proptest::collection::vec(source_piece(), 0..12)) {
        let world = World::new(INPUT);
        if let Ok(expression) = world.compile(&pieces.concat()) {
            let _ = expression.evaluate(&world.scope());
            let _ = expression.evaluate_bool(&world.scope());
        }
    }

    #[test]
    fn no_text_panics(text in ".{0,60}") {
        let world = World::new(INPUT);
        let node = Node::text(&text);
        if let Ok(template) = Template::compile(&node, &mut world.references()) {
            let _ = template.evaluate(&world.scope());
            let _ = template.evaluate_text(&world.scope());
        }
        let _ = canonical_text(&text);
    }

    #[test]
    fn method_calls_with_any_arguments_do_not_panic(
        receiver in proptest::sample::select(vec!["'héllo'", "input.list", "[]", "''", "1", "1.5", "b'a'", "input", "timestamp('2026-01-01T00:00:00Z')", "duration('1s')"]),
        function in proptest::sample::select(vec!["charAt", "indexOf", "lastIndexOf", "substring", "slice", "split", "replace", "join", "format", "flatten", "sort", "sum", "distinct", "reverse", "trim", "matches", "contains", "getHours", "getFullYear", "size"]),
        arguments in proptest::collection::vec(proptest::sample::select(vec!["0", "1", "-1", "99", "9223372036854775807", "-9223372036854775807", "'l'", "''", "'%'", "'%.3f'", "'('", "[1]", "[input.huge]", "[0.0 / 0.0]", "null"]), 0..3),
    ) {
        let world = World::new(INPUT);
        let arguments = arguments.iter().map(|argument| format!("dyn({argument})")).collect::<Vec<_>>().join(", ");
        let source = format!("dyn({receiver}).{function}({arguments})");
        if let Ok(expression) = world.compile(&source) {
            let _ = expression.evaluate(&world.scope());
        }
    }
}
