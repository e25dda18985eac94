//! The whole language misused: each fault with its code and place, and what is warned of.

use super::{super::fault::code, *};

/// A definition of the step `a`, a child `kid` and these handlers.
fn with_handlers(handlers: &str) -> String {
    format!(
        "name: n\nversion: 1.0.0\nsignals: {{go: {{}}}}\nsteps:\n- {{id: a, compute: 1}}\n- {{id: kid, workflow: c@*}}\nhandlers: {{{handlers}}}\n"
    )
}

/// The warnings of a definition of these steps, without those of tasks and contracts.
fn gaps(steps: &str) -> Vec<(&'static str, String)> {
    let source = format!("name: n\nversion: 1.0.0\nsignals: {{go: {{}}}}\nsteps:\n{steps}");
    let (_, warnings) = Definition::parse("n.yaml", &source).unwrap_or_else(|faults| panic!("{faults:#?}\n{source}"));
    warnings
        .into_iter()
        .filter(|warning| ![code::CONTRACT_UNDECLARED, code::TASK_WITHOUT_TIMEOUT].contains(&warning.code))
        .map(|warning| (warning.code, warning.path))
        .collect()
}

#[test]
fn fan_outs() {
    for (step, expected) in [
        ("{id: t, compute: 1, as: x}", &[(code::FIELD_NOT_APPLICABLE, "steps[1].as")] as &[_]),
        ("{id: t, compute: 1, max_parallel: 2}", &[(code::FIELD_NOT_APPLICABLE, "steps[1].max_parallel")]),
        ("{id: t, compute: 1, for_each: 5}", &[(code::TYPE_MISMATCH, "steps[1].for_each")]),
        ("{id: t, compute: 1, for_each: {a: 1}}", &[(code::TYPE_MISMATCH, "steps[1].for_each")]),
        ("{id: t, compute: 1, for_each: 'x ${ input }'}", &[(code::TYPE_MISMATCH, "steps[1].for_each")]),
        ("{id: t, compute: 1, for_each: ['${ nope }']}", &[(code::EXPRESSION_INVALID, "steps[1].for_each[0]")]),
        ("{id: t, compute: 1, for_each: '${ steps.t.output }'}", &[(code::STEP_SELF_REFERENCE, "steps[1].for_each")]),
        ("{id: t, compute: 1, for_each: '${ item.value }'}", &[(code::EXPRESSION_INVALID, "steps[1].for_each")]),
        ("{id: t, compute: 1, for_each: [], when: item.index > 1}", &[(code::EXPRESSION_INVALID, "steps[1].when")]),
        ("{id: t, compute: '${ item }', for_each: []}", &[(code::EXPRESSION_INVALID, "steps[1].compute")]),
        ("{id: t, compute: '${ item.valeu }', for_each: []}", &[(code::EXPRESSION_INVALID, "steps[1].compute")]),
        ("{id: t, compute: '${ item.index }', as: x, for_each: []}", &[(code::EXPRESSION_INVALID, "steps[1].compute")]),
        ("{id: t, compute: '${ item.index }'}", &[(code::EXPRESSION_INVALID, "steps[1].compute")]),
        ("{id: t, compute: 1, for_each: [], as: input}", &[(code::NAME_INVALID, "steps[1].as")]),
        ("{id: t, compute: 1, for_each: [], as: map}", &[(code::NAME_INVALID, "steps[1].as")]),
        ("{id: t, compute: 1, for_each: [], as: 1st}", &[(code::NAME_INVALID, "steps[1].as")]),
        ("{id: t, compute: 1, for_each: [], as: in}", &[(code::NAME_INVALID, "steps[1].as")]),
        ("{id: t, compute: 1, for_each: [], max_parallel: -1}", &[(code::OUT_OF_RANGE, "steps[1].max_parallel")]),
        ("{id: t, compute: 1, for_each: [], max_parallel: 100001}", &[(code::OUT_OF_RANGE, "steps[1].max_parallel")]),
        (
            "{id: t, for_each: [], needs: [a], continue_as_new: {}}",
            &[(code::FIELD_NOT_APPLICABLE, "steps[1].for_each")],
        ),
    ] {
        check_faults(&with_step(step), expected);
    }
    let items = |count: usize| with_step(&format!("{{id: t, compute: 1, for_each: [{}]}}", "1,".repeat(count)));
    parse(&items(ITEMS_MAX));
    check_faults(&items(ITEMS_MAX + 1), &[(code::TOO_MANY, "steps[1].for_each")]);
    let plain = parse(&with_step("{id: t, compute: 1, for_each: '${ input }', max_parallel: 0}"));
    let for_each = plain.steps[1].for_each.as_ref().unwrap();
    assert_eq!((&*for_each.variable, for_each.parallel_max), ("item", None));
}

#[test]
fn a_variable_hides_nothing_and_is_hidden_by_loops() {
    for compute in [
        "${ item.value.map(item, item.index) }",
        "${ input.list.filter(x, x.sku == item.value.sku)[item.index].name }",
        "${ [1, 2].map(i, i + item.index) }",
        "${ has(item.value.sku) ? size(item.value.sku) : 0 }",
    ] {
        parse(&with_step(&format!("{{id: t, for_each: [], compute: '{compute}'}}")));
    }
    for name in ["size", "x", "_", "result", "items"] {
        let compute = format!("${{ size({name}.value.list.map(i, i.x + {name}.index)) }}");
        parse(&with_step(&format!("{{id: t, as: {name}, for_each: [], compute: '{compute}'}}")));
    }
}

#[test]
fn children() {
    for (step, expected) in [
        ("{id: t, workflow: c}", &[(code::CHILD_INVALID, "steps[1].workflow")] as &[_]),
        ("{id: t, workflow: 'a b@*'}", &[(code::CHILD_INVALID, "steps[1].workflow")]),
        ("{id: t, workflow: c@1}", &[(code::CHILD_INVALID, "steps[1].workflow")]),
        ("{id: t, workflow: c@latest}", &[(code::CHILD_INVALID, "steps[1].workflow")]),
        ("{id: t, workflow: c@*, queue: q}", &[(code::FIELD_NOT_APPLICABLE, "steps[1].queue")]),
        ("{id: t, workflow: c@*, priority: 1}", &[(code::FIELD_NOT_APPLICABLE, "steps[1].priority")]),
        ("{id: t, workflow: c@*, timeout: 0s}", &[(code::DURATION_OUT_OF_RANGE, "steps[1].timeout")]),
        ("{id: t, workflow: c@*, pin: {version: 1.0.0}}", &[(code::FIELD_NOT_APPLICABLE, "steps[1].pin")]),
        ("{id: t, compute: 1, pin: {}}", &[(code::FIELD_NOT_APPLICABLE, "steps[1].pin")]),
        ("{id: t, workflow: c@*, input: '${ nope }'}", &[(code::EXPRESSION_INVALID, "steps[1].input")]),
    ] {
        check_faults(&with_step(step), expected);
    }
}

#[test]
fn requests() {
    for (step, expected) in [
        ("{id: t, http: {}}", &[(code::FIELD_REQUIRED, "steps[1].http.url")] as &[_]),
        ("{id: t, http: 'https://x/'}", &[(code::TYPE_MISMATCH, "steps[1].http")]),
        ("{id: t, http: {url: /x}}", &[(code::HTTP_URL_INVALID, "steps[1].http.url")]),
        ("{id: t, http: {url: 'https://'}}", &[(code::HTTP_URL_INVALID, "steps[1].http.url")]),
        ("{id: t, http: {url: 'https:///x'}}", &[(code::HTTP_URL_INVALID, "steps[1].http.url")]),
        ("{id: t, http: {url: 'ftp://x/'}}", &[(code::HTTP_URL_INVALID, "steps[1].http.url")]),
        ("{id: t, http: {url: 'https://x/a b'}}", &[(code::HTTP_URL_INVALID, "steps[1].http.url")]),
        ("{id: t, http: {url: 'https://x/${ nope }'}}", &[(code::EXPRESSION_INVALID, "steps[1].http.url")]),
        ("{id: t, http: {url: 'https://x/', method: GTE}}", &[(code::ENUM_INVALID, "steps[1].http.method")]),
        (
            "{id: t, http: {url: 'https://x/', method: get, body: 1}}",
            &[(code::FIELD_NOT_APPLICABLE, "steps[1].http.method")],
        ),
        (
            "{id: t, http: {url: 'https://x/', headers: {Host: x, 'a b': x, X-A: y, x-a: y}}}",
            &[
                (code::HTTP_HEADER_INVALID, "steps[1].http.headers[\"Host\"]"),
                (code::HTTP_HEADER_INVALID, "steps[1].http.headers[\"a b\"]"),
                (code::HTTP_HEADER_INVALID, "steps[1].http.headers[\"x-a\"]"),
            ],
        ),
        (
            "{id: t, http: {url: 'https://x/', headers: {Expect: x, proxy-authorization: x, http2-settings: x}}}",
            &[
                (code::HTTP_HEADER_INVALID, "steps[1].http.headers[\"Expect\"]"),
                (code::HTTP_HEADER_INVALID, "steps[1].http.headers[\"proxy-authorization\"]"),
                (code::HTTP_HEADER_INVALID, "steps[1].http.headers[\"http2-settings\"]"),
            ],
        ),
        (
            "{id: t, http: {url: 'https://x/', headers: {a: \"x\\ny\", b: 1}}}",
            &[
                (code::HTTP_HEADER_INVALID, "steps[1].http.headers[\"a\"]"),
                (code::TYPE_MISMATCH, "steps[1].http.headers[\"b\"]"),
            ],
        ),
        ("{id: t, http: {url: 'https://x/', headers: [a]}}", &[(code::TYPE_MISMATCH, "steps[1].http.headers")]),
        ("{id: t, http: {url: 'https://x/'}, input: 1}", &[(code::FIELD_NOT_APPLICABLE, "steps[1].input")]),
        ("{id: t, http: {url: 'https://x/', query: 1}}", &[(code::UNKNOWN_FIELD, "steps[1].http.query")]),
        ("{id: t, task: 'orbit:http@1'}", &[(code::CONTRACT_INVALID, "steps[1].task")]),
        ("{id: t, task: x@1, queue: 'orbit:http'}", &[(code::NAME_INVALID, "steps[1].queue")]),
    ] {
        check_faults(&with_step(step), expected);
    }
    let headers: Vec<String> = (0..65).map(|n| format!("h{n}: x")).collect();
    check_faults(
        &with_step(&format!("{{id: t, http: {{url: 'https://x/', headers: {{{}}}}}}}", headers.join(", "))),
        &[(code::TOO_MANY, "steps[1].http.headers")],
    );
    parse(&with_step(
        "{id: t, http: {url: '${ input.url }', method: delete, headers: {x-a: '${ input.a }'}, body: {}}}",
    ));
    parse(&with_step("{id: t, http: {url: 'HTTPS://${ input.host }/x'}}"));
}

#[test]
fn signals_to_others() {
    for (step, expected) in [
        (
            "{id: t, signal: {}}",
            &[(code::FIELD_REQUIRED, "steps[1].signal"), (code::FIELD_REQUIRED, "steps[1].signal.name")] as &[_],
        ),
        ("{id: t, signal: {parent: false, name: x}}", &[(code::FIELD_REQUIRED, "steps[1].signal")]),
        ("{id: t, signal: {parent: 'yes', name: x}}", &[(code::TYPE_MISMATCH, "steps[1].signal.parent")]),
        ("{id: t, signal: {parent: true, execution: e, name: x}}", &[(code::ACTION_AMBIGUOUS, "steps[1].signal")]),
        ("{id: t, signal: {execution: 5, name: x}}", &[(code::TYPE_MISMATCH, "steps[1].signal.execution")]),
        ("{id: t, signal: {parent: true, name: 'a b'}}", &[(code::NAME_INVALID, "steps[1].signal.name")]),
        ("{id: t, signal: {child: nobody, name: x}}", &[(code::STEP_UNKNOWN, "steps[1].signal.child")]),
        ("{id: t, signal: {child: t, name: x}}", &[(code::STEP_SELF_REFERENCE, "steps[1].signal.child")]),
        ("{id: t, signal: {child: a, name: x}}", &[(code::SIGNAL_TARGET_INVALID, "steps[1].signal.child")]),
        ("{id: t, signal: {parent: true, name: x}, input: 1}", &[(code::FIELD_NOT_APPLICABLE, "steps[1].input")]),
    ] {
        check_faults(&with_step(step), expected);
    }
    let child = |kid: &str, send: &str| {
        with_step(&format!("{{id: kid, workflow: c@*{kid}}}\n- {{id: t, signal: {{child: kid, name: x}}{send}}}"))
    };
    parse(&child("", ""));
    let invalid = &[(code::SIGNAL_TARGET_INVALID, "steps[2].signal.child")];
    check_faults(&child(", for_each: []", ""), invalid);
    check_faults(&child("", ", needs: [kid]"), invalid);
    parse(&with_handlers("on_event: [{signal: go, step: {id: e, signal: {child: kid, name: x}}}]"));
    parse(&with_handlers("cancel: [{id: k, workflow: c@*}, {id: e, signal: {child: k, name: x}}]"));
    check_faults(
        &with_handlers("cancel: [{id: e, signal: {child: kid, name: x}}]"),
        &[(code::STEP_OUT_OF_SCOPE, "handlers.cancel[0].signal.child")],
    );
}

#[test]
fn runs_that_end_themselves() {
    let check = |steps: &str, expected: &[(&str, &str)]| {
        check_faults(&format!("name: n\nversion: 1.0.0\nsteps:\n- {{id: a, compute: 1}}\n{steps}\n"), expected);
    };
    let not_last = |path| (code::CONTINUE_AS_NEW_NOT_LAST, path);
    check("- {id: z, continue_as_new: {}}", &[not_last("steps[1]")]);
    check("- {id: z, continue_as_new: {}}\n- {id: b, compute: 1, needs: [z]}", &[not_last("steps[1]"); 2]);
    check(
        "- {id: y, continue_as_new: {}, needs: [a]}\n- {id: z, continue_as_new: {}, needs: [a]}",
        &[not_last("steps[1]"), not_last("steps[2]")],
    );
    check(
        "- {id: z, continue_as_new: {}, needs: [a], compensate: {task: x@1}, irreversible: true}",
        &[(code::FIELD_NOT_APPLICABLE, "steps[1].compensate"), (code::FIELD_NOT_APPLICABLE, "steps[1].irreversible")],
    );
    check(
        "- {id: z, continue_as_new: {inptu: 1}, needs: [a]}",
        &[(code::UNKNOWN_FIELD, "steps[1].continue_as_new.inptu")],
    );
    check("- {id: z, continue_as_new: {}, input: 1, needs: [a]}", &[(code::FIELD_NOT_APPLICABLE, "steps[1].input")]);
    let found = faults(
        "name: n\nversion: 1.0.0\nsteps: [{id: a, compute: 1}, {id: b, compute: 1}, {id: z, continue_as_new: {}, needs: [a]}]",
    );
    assert_eq!(found[0].message, "`b` can run beside it");
    parse(
        "name: n\nversion: 1.0.0\nsteps: [{id: a, compute: 1}, {id: b, compute: '${ steps.a.output }'}, {id: z, when: 'steps.b.output > 1', continue_as_new: {input: '${ steps.b.output }'}}]",
    );
    parse("name: n\nversion: 1.0.0\nsteps: [{id: z, continue_as_new: {}}]");
}

#[test]
fn compensations() {
    let at = "steps[1].compensate";
    for (compensate, expected) in [
        ("{}", &[(code::ACTION_REQUIRED, "")] as &[_]),
        ("{compute: 1}", &[(code::ACTION_REQUIRED, ""), (code::UNKNOWN_FIELD, ".compute")]),
        ("undo@1", &[(code::TYPE_MISMATCH, "")]),
        ("{task: x@1, workflow: c@*}", &[(code::ACTION_AMBIGUOUS, "")]),
        ("{task: x}", &[(code::CONTRACT_INVALID, ".task")]),
        ("{task: x@1, when: 'true'}", &[(code::UNKNOWN_FIELD, ".when")]),
        ("{task: x@1, unknown: ignore}", &[(code::ENUM_INVALID, ".unknown")]),
        ("{task: x@1, input: '${ steps.nobody.output }'}", &[(code::STEP_UNKNOWN, ".input")]),
        ("{task: x@1, input: '${ failure.code }'}", &[(code::EXPRESSION_INVALID, ".input")]),
        ("{task: x@1, input: '${ item.value }'}", &[(code::EXPRESSION_INVALID, ".input")]),
        ("{workflow: c@*, queue: q}", &[(code::FIELD_NOT_APPLICABLE, ".queue")]),
        ("{http: {url: 'https://x/'}, timeout: 0s}", &[(code::DURATION_OUT_OF_RANGE, ".timeout")]),
    ] {
        let expected: Vec<(&str, String)> =
            expected.iter().map(|(code, path)| (*code, format!("{at}{path}"))).collect();
        let expected: Vec<(&str, &str)> = expected.iter().map(|(code, path)| (*code, &**path)).collect();
        check_faults(&with_step(&format!("{{id: t, task: t@1, compensate: {compensate}}}")), &expected);
    }
    check_faults(&with_step("{id: t, fail: {code: NO}, compensate: {task: x@1}}"), &[(code::FIELD_NOT_APPLICABLE, at)]);
    check_faults(&with_step("{id: t, task: t@1, irreversible: 1}"), &[(code::TYPE_MISMATCH, "steps[1].irreversible")]);
    check_faults(
        &with_step("{id: t, task: t@1}\n- {id: u, task: t@1, needs: ['compensate:t']}"),
        &[(code::STEP_UNKNOWN, "steps[2].needs[0]")],
    );
    for word in ["skip", "UNKNOWN_SKIP", "Skip", "2"] {
        let definition =
            parse(&with_step(&format!("{{id: t, task: t@1, compensate: {{task: x@1, unknown: {word}}}}}")));
        assert!(matches!(definition.steps[2].role, Role::Compensation { unknown: Unknown::Skip, .. }), "{word}");
    }
    let (_, warnings) = Definition::parse(
        "n.yaml",
        "name: n\nversion: 1.0.0\ntasks: {x@1: {}, y@1: {}, t@1: {}}\nsteps: [{id: t, task: t@1, timeout: 1s, compensate: {task: x@1}}]\nhandlers: {failure: [{id: h, task: y@1}]}",
    )
    .unwrap();
    let warnings: Vec<(&str, &str)> = warnings.iter().map(|warning| (warning.code, &*warning.path)).collect();
    let without = code::TASK_WITHOUT_TIMEOUT;
    assert_eq!(
        warnings,
        [(without, "steps[0].compensate"), (without, "handlers.failure[0]")],
        "all contracts are used"
    );
}

#[test]
fn handlers() {
    for (handlers, expected) in [
        ("failures: []", &[(code::UNKNOWN_FIELD, "handlers.failures")] as &[_]),
        ("failure: {id: x}", &[(code::TYPE_MISMATCH, "handlers.failure")]),
        ("failure: [{id: a, compute: 1}]", &[(code::STEP_DUPLICATE, "handlers.failure[0].id")]),
        (
            "failure: [{id: x, compute: 1}], on_event: [{signal: go, step: {id: x, compute: 1}}]",
            &[(code::STEP_DUPLICATE, "handlers.on_event[0].step.id")],
        ),
        ("failure: [{id: x, compute: 1, needs: [a]}]", &[(code::STEP_OUT_OF_SCOPE, "handlers.failure[0].needs[0]")]),
        (
            "failure: [{id: x, compute: 1}], cancel: [{id: y, compute: '${ steps.x.output }'}]",
            &[(code::STEP_OUT_OF_SCOPE, "handlers.cancel[0].compute")],
        ),
        (
            "failure: [{id: x, compute: 1, needs: [y]}, {id: y, compute: 1, needs: [x]}]",
            &[(code::CYCLE, "handlers.failure[0].needs")],
        ),
        (
            "failure: [{id: x, task: t@1, compensate: {task: u@1}, irreversible: false}]",
            &[
                (code::FIELD_NOT_APPLICABLE, "handlers.failure[0].compensate"),
                (code::FIELD_NOT_APPLICABLE, "handlers.failure[0].irreversible"),
            ],
        ),
        (
            "failure: [{id: x, continue_as_new: {}}]",
            &[(code::FIELD_NOT_APPLICABLE, "handlers.failure[0].continue_as_new")],
        ),
        ("timeout: [{id: x, await: {signal: go}}]", &[(code::FIELD_REQUIRED, "handlers.timeout[0].await.timeout")]),
        (
            "cancel: [{id: x, compute: '${ failure.reason }'}]",
            &[(code::EXPRESSION_INVALID, "handlers.cancel[0].compute")],
        ),
        ("cancel: [{id: x, compute: '${ event }'}]", &[(code::EXPRESSION_INVALID, "handlers.cancel[0].compute")]),
        ("on_event: [{step: {id: x, compute: 1}}]", &[(code::FIELD_REQUIRED, "handlers.on_event[0].signal")]),
        ("on_event: [{signal: go}]", &[(code::FIELD_REQUIRED, "handlers.on_event[0].step")]),
        (
            "on_event: [{signal: og, step: {id: x, compute: '${ nope }'}}]",
            &[
                (code::SIGNAL_UNDECLARED, "handlers.on_event[0].signal"),
                (code::EXPRESSION_INVALID, "handlers.on_event[0].step.compute"),
            ],
        ),
        (
            "on_event: [{signal: go, match: signal.x, step: {id: x, compute: '${ failure }'}}]",
            &[
                (code::EXPRESSION_INVALID, "handlers.on_event[0].match"),
                (code::EXPRESSION_INVALID, "handlers.on_event[0].step.compute"),
            ],
        ),
        (
            "on_event: [{signal: go, step: {id: x, compute: 1, needs: [a], for_each: []}}]",
            &[
                (code::FIELD_NOT_APPLICABLE, "handlers.on_event[0].step.needs"),
                (code::FIELD_NOT_APPLICABLE, "handlers.on_event[0].step.for_each"),
            ],
        ),
        (
            "on_event: [{signal: go, match: 'event > 1', step: {id: x, compute: 1}}, {signal: go, step: {id: y, compute: '${ steps.x.output }'}}]",
            &[(code::STEP_OUT_OF_SCOPE, "handlers.on_event[1].step.compute")],
        ),
        (
            "on_event: [{signal: go, step: {id: x, compute: '${ steps.x.output }'}}]",
            &[(code::STEP_SELF_REFERENCE, "handlers.on_event[0].step.compute")],
        ),
    ] {
        check_faults(&with_handlers(handlers), expected);
    }
    let main = with_step("{id: t, compute: '${ steps.x.output }'}") + "handlers: {failure: [{id: x, compute: 1}]}\n";
    check_faults(&main, &[(code::STEP_OUT_OF_SCOPE, "steps[1].compute")]);
    let result = with_field(
        "result: '${ steps.x.output }'\nqueries: {q: '${ steps.x.state }', 'a b': 1, r: '${ nope }'}\nhandlers: {failure: [{id: x, compute: 1}]}",
    );
    check_faults(
        &result,
        &[
            (code::STEP_OUT_OF_SCOPE, "result"),
            (code::STEP_OUT_OF_SCOPE, "queries[\"q\"]"),
            (code::NAME_INVALID, "queries[\"a b\"]"),
            (code::EXPRESSION_INVALID, "queries[\"r\"]"),
        ],
    );
}

#[test]
fn lists_of_handlers_and_queries_have_an_end() {
    let steps = |count: usize| (0..count).map(|n| format!("{{id: x{n}, compute: 1}}")).collect::<Vec<_>>().join(", ");
    parse(&with_handlers(&format!("cancel: [{}]", steps(100))));
    check_faults(&with_handlers(&format!("cancel: [{}]", steps(101))), &[(code::TOO_MANY, "handlers.cancel")]);
    let queries = |count: usize| (0..count).map(|n| format!("q{n}: 1")).collect::<Vec<_>>().join(", ");
    parse(&with_field(&format!("queries: {{{}}}", queries(100))));
    check_faults(&with_field(&format!("queries: {{{}}}", queries(101))), &[(code::TOO_MANY, "queries")]);
}

#[test]
fn gaps_in_compensation_are_warned_of() {
    let gap = |path: &str| (code::COMPENSATION_GAP, path.to_owned());
    let undone = "- {id: a, task: t@1, compensate: {task: u@1}}\n";
    let last = "- {id: z, task: t@1, needs: [b]}\n";
    for (between, expected) in [
        ("- {id: b, task: t@1, needs: [a]}\n", vec![gap("steps[1]")]),
        ("- {id: b, workflow: c@*, needs: [a]}\n", vec![gap("steps[1]")]),
        ("- {id: b, http: {url: 'https://x/', body: 1}, needs: [a]}\n", vec![gap("steps[1]")]),
        // What reads only, is undone, is said to be beyond undoing or to leave nothing.
        ("- {id: b, http: {url: 'https://x/'}, needs: [a]}\n", vec![]),
        ("- {id: b, compute: 1, needs: [a]}\n", vec![]),
        ("- {id: b, task: t@1, needs: [a], compensate: {task: u@1}}\n", vec![]),
        ("- {id: b, task: t@1, needs: [a], irreversible: true}\n", vec![]),
        ("- {id: b, task: t@1, needs: [a], irreversible: false}\n", vec![]),
    ] {
        assert_eq!(gaps(&format!("{undone}{between}{last}")), expected, "{between}");
    }
    for (after, expected) in [
        // Nothing after or beside it can fail the execution.
        ("- {id: z, task: t@1, needs: [b], on_error: continue}\n", vec![]),
        ("- {id: z, compute: 1, needs: [b]}\n", vec![]),
        ("- {id: z, await: {signal: go}, needs: [b]}\n", vec![]),
        ("- {id: z, await: {signal: go, timeout: 1m}, needs: [b]}\n", vec![gap("steps[1]")]),
        ("- {id: z, fail: {code: NO}, needs: [b]}\n", vec![gap("steps[1]")]),
        // Beside each other, each may fail when the other is done.
        ("- {id: z, task: t@1, needs: [a]}\n", vec![gap("steps[1]"), gap("steps[2]")]),
    ] {
        let b = "- {id: b, task: t@1, needs: [a]}\n";
        assert_eq!(gaps(&format!("{undone}{b}{after}")), expected, "{after}");
    }
    assert_eq!(gaps("- {id: a, task: t@1}\n- {id: b, task: t@1, needs: [a]}\n"), [], "who undoes nothing chose so");
}

#[test]
fn what_never_runs_is_warned_of() {
    let never = |path: &str| vec![(code::COMPENSATION_UNREACHABLE, path.to_owned())];
    let after = |point: &str| {
        gaps(&format!(
            "- {{id: a, task: t@1, irreversible: true{point}}}\n- {{id: b, task: t@1, needs: [a], compensate: {{task: u@1}}}}\n"
        ))
    };
    assert_eq!(after(""), never("steps[1].compensate"));
    for point in [", when: 'input.x'", ", for_each: '${ input }'", ", on_error: continue"] {
        assert_eq!(after(point), [], "{point}: it may leave everything reversible");
    }
    assert_eq!(
        gaps("- {id: a, task: t@1, irreversible: true, compensate: {task: u@1}}\n"),
        never("steps[0].compensate")
    );
    let handlers = |first: &str| {
        let step = |id: &str| format!("step: {{id: {id}, compute: 1}}");
        let entries = format!("on_event: [{{signal: go, {first}{}}}, {{signal: go, {}}}]", step("x"), step("y"));
        let (_, warnings) = Definition::parse("n.yaml", &with_handlers(&entries)).unwrap();
        warnings.into_iter().map(|warning| (warning.code, warning.path)).collect::<Vec<_>>()
    };
    assert_eq!(handlers(""), [(code::HANDLER_UNREACHABLE, "handlers.on_event[1]".to_owned())]);
    assert_eq!(handlers("match: 'event > 1', "), []);
}

#[test]
fn hints_name_what_is_seen() {
    for (source, hint) in [
        (with_step("{id: t, compute: '${ item.value }'}"), "a step with `for_each` has an item"),
        (with_step("{id: t, as: parcel, for_each: [], compute: '${ parcle.value }'}"), "did you mean `parcel`?"),
        (with_handlers("failure: [{id: x, compute: '${ failrue.code }'}]"), "did you mean `failure`?"),
        (with_step("{id: t, compute: '${ signal }'}"), "`signal` is seen by the `match` of an `await`"),
        (with_step("{id: t, compute: 1, for_eech: []}"), "did you mean `for_each`?"),
        (with_step("{id: t, http: {url: 'https://x/', method: delet}}"), "did you mean `DELETE`?"),
    ] {
        assert_eq!(faults(&source)[0].hint, hint, "{source}");
    }
}
