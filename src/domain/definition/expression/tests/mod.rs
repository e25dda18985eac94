//! Expressions and templates against scopes.

mod bounds;
mod templates;

use super::*;
use crate::domain::definition::{
    Place,
    node::Node,
    references::{Ids, Known, List, References},
    source,
};

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
    ids: Ids<'static>,
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
            ids: [("first", List::Main), ("second", List::Main), ("third", List::Main), ("later", List::OnEvent)]
                .into_iter()
                .zip(0..)
                .map(|((id, list), index)| {
                    let place = Place { path: "steps".into(), line: 1, column: 1 };
                    (id, Known { index: StepIndex(index), list, is_child: false, place })
                })
                .collect(),
        }
    }

    fn scope(&self) -> Scope<'_> {
        let execution = ExecutionScope { id: "e-1", run: 3, start_time: Timestamp::from_micros(1_500_000) };
        Scope {
            input: &self.input,
            steps: &self.steps,
            signal: Some(&self.signal),
            event: None,
            failure: None,
            item: None,
            execution,
            schedule: None,
            meter: None,
        }
    }

    fn references(&self) -> References<'_> {
        let mut references = References::of_head(&self.ids);
        references.signal = true;
        references
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
        // What is done with a sum, or with an element of one, is not judged by a guess at its type.
        ("math.abs(input.n - input.list[0])", "1"),
        ("math.abs(input.n - input.list[0]) * 10", "10"),
        ("math.greatest(input.list) * 2 - math.least(input.n, 5)", "4"),
        ("input.items.map(i, i.cents).sum() * 2", "700"),
        ("(input.list + input.list).filter(x, x != null).map(x, {'x': x}).map(x, x.x).size()", "6"),
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
    let mut references = References::of_step(&world.ids, List::Main, StepIndex(0));
    assert_eq!(compile("steps.first.output", &mut references).unwrap_err()[0].kind, CompileErrorKind::OwnStep);
    assert!(compile("signal.by", &mut references).is_err());
}

#[test]
fn expressions_tell_which_steps_they_mention() {
    let world = World::new(INPUT);
    let mut references = References::of_step(&world.ids, List::Main, StepIndex(9));
    compile("has(steps.third.error) ? steps.first.output : steps.first.state", &mut references).unwrap();
    assert_eq!(references.needs, [StepIndex(2), StepIndex(0), StepIndex(0)]);
}

#[test]
fn what_only_the_evaluation_can_tell_is_not_refused_before() {
    let world = World::new(INPUT);
    let sources = [
        "input.n + input.zero + 1",
        "input.n - input.zero - 1",
        "input.n * input.n * 2",
        "input.n / input.n / 2",
        "input.n % input.n % 2",
        "-input.n + 1",
        "(input.flag ? input.n : 1) + 1",
        "(input.flag ? 1 : input.n) + 1",
        "[input.n, 1][0] + 1",
        "{'a': input.n}.a + 1",
        "input.list.map(i, i + input.n)[0] + 1",
        "input.list.map(i, i + input.n + 1).sum() + 1",
        "input.words[0] + input.text + 'x'",
        "input.items.map(i, i.cents * input.n).sum() - input.n - 1",
        "size(input.list) + input.n + 1",
        "double(input.n) + input.price + 1.0",
        "input.list + input.list + [1]",
        "[1] + input.list + input.words",
        "(input.n + input.zero) < 3 && (input.n + 1 < input.zero + 1 || !input.flag)",
        "string(input.n + input.zero) + 'x'",
        "input.list.filter(i, i > input.n)[0] + 1",
        "input.list.filter(i, i > input.zero).map(i, i + i)[0] + 1",
    ];
    let refused: Vec<_> =
        sources.iter().filter_map(|source| world.compile(source).err().map(|errors| (source, errors))).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    for source in ["1 + 'a'", "1 + 1 + 'a'", "'a' - 1", "[1] + 1", "-'a'"] {
        assert!(world.compile(source).is_err(), "{source}");
    }
}
