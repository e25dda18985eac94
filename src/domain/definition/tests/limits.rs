//! What is beyond every limit: durations, retries, graphs.

use super::{super::fault::code, *};
use std::time::Instant;

#[test]
fn c019_heartbeat_timeouts_that_cannot_work_are_refused() {
    for step in [
        "{id: t, task: x@1, timeout: 5s, heartbeat_timeout: 10s}",
        "{id: t, task: x@1, timeout: 5s, heartbeat_timeout: 999ms}",
        "{id: t, task: x@1, heartbeat_timeout: 0s}",
    ] {
        check_faults(&with_step(step), &[(code::HEARTBEAT_TIMEOUT_INVALID, "steps[1].heartbeat_timeout")]);
    }
    check_faults(
        &with_step("{id: t, task: x@1, heartbeat_timeout: -1s}"),
        &[
            (code::DURATION_OUT_OF_RANGE, "steps[1].heartbeat_timeout"),
            (code::HEARTBEAT_TIMEOUT_INVALID, "steps[1].heartbeat_timeout"),
        ],
    );
    task(&with_step("{id: t, task: x@1, timeout: 5s, heartbeat_timeout: 5s}"));
    task(&with_step("{id: t, task: x@1, heartbeat_timeout: 1s}"));
}

#[test]
fn c049_absurd_durations_are_refused_with_the_limit_named() {
    for text in ["-1s", "36501d", "1844674407370955161s"] {
        for field in ["timeout", "queue_timeout", "total_timeout"] {
            let fault = faults(&with_step(&format!("{{id: t, task: x@1, {field}: {text}}}"))).remove(0);
            assert_eq!(fault.code, code::DURATION_OUT_OF_RANGE, "{field}: {text}");
            assert!(fault.message.contains("36,500 days") || fault.message.contains("at least 0"), "{}", fault.message);
        }
        check_faults(
            &with_step(&format!("{{id: t, sleep: {{for: {text}}}}}")),
            &[(code::DURATION_OUT_OF_RANGE, "steps[1].sleep.for")],
        );
        check_faults(
            &with_step(&format!("{{id: t, await: {{signal: go, timeout: {text}}}}}")),
            &[(code::DURATION_OUT_OF_RANGE, "steps[1].await.timeout")],
        );
    }
    for text in ["1e30s", "P1000000D", "soon", "''", "5"] {
        check_faults(
            &with_step(&format!("{{id: t, task: x@1, timeout: {text}}}")),
            &[(code::DURATION_INVALID, "steps[1].timeout")],
        );
    }
    check_faults(&with_step("{id: t, task: x@1, timeout: 0s}"), &[(code::DURATION_OUT_OF_RANGE, "steps[1].timeout")]);
    check_faults(
        &with_step("{id: t, sleep: {until: '+262143-01-01T00:00:00Z'}}"),
        &[(code::TIME_INVALID, "steps[1].sleep.until")],
    );
    parse(&with_step("{id: t, sleep: {for: 0s}}"));
    parse(&with_step("{id: t, sleep: {for: 36500d}}"));
}

#[test]
fn c025_retry_policies_outside_their_range_are_refused() {
    for (retry, expected) in [
        ("max_attempts: -1", "max_attempts"),
        ("max_attempts: 1000001", "max_attempts"),
        ("max_attempts: 99999999999999999999", "max_attempts"),
        ("backoff_coefficient: 0.5", "backoff_coefficient"),
        ("backoff_coefficient: -2", "backoff_coefficient"),
        ("backoff_coefficient: 1001", "backoff_coefficient"),
        ("backoff_coefficient: 1e308", "backoff_coefficient"),
        ("backoff_coefficient: NaN", "backoff_coefficient"),
        ("backoff_coefficient: Infinity", "backoff_coefficient"),
        ("jitter: -0.1", "jitter"),
        ("jitter: 1.1", "jitter"),
        ("jitter: NaN", "jitter"),
        ("{initial_interval: 2m, max_interval: 1m}", "max_interval"),
    ] {
        let retry = retry.trim_matches(['{', '}']);
        let path = format!("steps[1].retry.{expected}");
        check_faults(&with_step(&format!("{{id: t, task: x@1, retry: {{{retry}}}}}")), &[(code::OUT_OF_RANGE, &path)]);
    }
    let codes = (0..101).map(|n| format!("C{n}")).collect::<Vec<_>>().join(", ");
    check_faults(
        &with_step(&format!("{{id: t, task: x@1, retry: {{non_retryable: [{codes}]}}}}")),
        &[(code::TOO_MANY, "steps[1].retry.non_retryable")],
    );
}

#[test]
fn cycles_are_named() {
    let steps = |steps: &str| format!("name: n\nversion: 1.0.0\nsteps:\n{steps}");
    let source = steps(
        "- {id: z, compute: 1}\n- {id: a, compute: 1, needs: [b]}\n- {id: b, compute: '${ steps.c.output }'}\n- {id: c, compute: 1, needs: [a, z]}\n- {id: d, compute: 1, needs: [a]}\n",
    );
    let found = faults(&source);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].code, &*found[0].path, found[0].line), (code::CYCLE, "steps[1].needs", 5));
    assert!(found[0].message.ends_with("a -> b -> c -> a"), "{}", found[0].message);
    let two = steps(
        "- {id: a, compute: 1, needs: [b]}\n- {id: b, compute: 1, needs: [a]}\n- {id: c, compute: 1, needs: [d]}\n- {id: d, compute: 1, needs: [c]}\n",
    );
    let found = faults(&two);
    assert_eq!(found.len(), 2);
    assert!(found[0].message.ends_with("a -> b -> a") && found[1].message.ends_with("c -> d -> c"));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "measures the time that passes for a user")]
fn c091_large_graphs_take_no_time() {
    let text = |steps: Vec<(String, Vec<String>)>| {
        let steps =
            steps.into_iter().map(|(id, needs)| format!("{{\"id\":\"{id}\",\"compute\":1,\"needs\":{needs:?}}}"));
        format!("{{\"name\":\"n\",\"version\":\"1.0.0\",\"steps\":[{}]}}", steps.collect::<Vec<_>>().join(","))
    };
    let fan_in = text((0..27).map(|n| (format!("s{n}"), (0..n).map(|m| format!("s{m}")).collect())).collect());
    let layers = text(
        (0..120)
            .map(|n| {
                let layer = n / 2;
                (
                    format!("s{n}"),
                    if layer == 0 {
                        vec![]
                    } else {
                        vec![format!("s{}", layer * 2 - 2), format!("s{}", layer * 2 - 1)]
                    },
                )
            })
            .collect(),
    );
    let chain = text(
        (0..10_000).map(|n| (format!("s{n}"), if n == 0 { vec![] } else { vec![format!("s{}", n - 1)] })).collect(),
    );
    let ring = text((0..10_000).map(|n| (format!("s{n}"), vec![format!("s{}", (n + 1) % 10_000)])).collect());
    let saga = chain.replace("\"compute\":1", "task: x@1, compensate: {task: u@1}");
    for (name, source, steps, millis) in [
        ("fan-in", &fan_in, 27, 100),
        ("layers", &layers, 120, 100),
        ("chain", &chain, 10_000, 100),
        // Who can fail beside whom is a matter of all pairs.
        ("saga", &saga, 20_000, 300),
    ] {
        let started = Instant::now();
        assert_eq!(parse(source).steps.len(), steps);
        let limit = Duration::from_millis(if cfg!(debug_assertions) { 10 * millis } else { millis });
        assert!(started.elapsed() < limit, "{name}: {:?}", started.elapsed());
    }
    let found = faults(&ring);
    assert_eq!(found.len(), 1);
    assert!(found[0].message.contains("s0 -> s1 -> ") && found[0].message.ends_with("… -> s0"), "{}", found[0].message);
    let too_many = text((0..10_001).map(|n| (format!("s{n}"), vec![])).collect());
    check_faults(&too_many, &[(code::TOO_MANY, "steps")]);
}
