//! No source and no value holds the server up or brings it down.

use super::*;
use proptest::prelude::*;
use std::time::Duration;

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
