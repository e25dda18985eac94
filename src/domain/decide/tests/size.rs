//! How large events are taken to be, and where a decision stops for it.

use super::super::{BYTES_MAX, PAYLOAD_INLINE_MAX, event_bytes, event_bytes_whole};
use super::*;

/// What every event counts, whatever is in it.
const FIXED: usize = 160;

/// A JSON string of so many bytes.
fn text(bytes: usize) -> Payload {
    json(&format!("\"{}\"", "x".repeat(bytes - 2)))
}

/// A failure that counts 110.
fn why() -> Failure {
    Failure { code: arc("ABC"), message: arc("seven b"), details: Some(text(100)), unit: arc("a") }
}

fn counts(kind: &EventKind, bytes: usize) {
    assert_eq!(event_bytes(kind), FIXED + bytes, "{kind:?}");
    assert_eq!(event_bytes_whole(kind), FIXED + bytes, "{kind:?}");
}

fn created() -> Created {
    let run = Run::start("steps: [{id: a, compute: 1}]", "[1,2,3]");
    let EventKind::ExecutionCreated(created) = &run.log[0].kind else { panic!("it begins so") };
    (**created).clone()
}

#[test]
fn an_event_counts_its_payloads_and_texts() {
    let unit = arc("a");
    let request = |input| EventKind::StepScheduled { unit: arc("a"), attempt: 1, input };
    counts(&request(None), 0);
    counts(&request(Some(text(50))), 50);
    let (delivery, reason) = (1, EndReason::SessionLost);
    counts(&EventKind::DeliveryEnded { unit: unit.clone(), delivery, reason, progress: Some(text(9)) }, 9);
    let failed = EventKind::AttemptFailed {
        unit: unit.clone(),
        attempt: 1,
        delivery,
        failure: why(),
        retry_time: None,
        progress: Some(text(1_000)),
        report: None,
    };
    counts(&failed, 1_110);
    counts(&EventKind::StepFailed { unit: unit.clone(), failure: why() }, 110);
    counts(&EventKind::ExecutionFailed { failure: why() }, 110);
    counts(&EventKind::LateSuccess { unit: unit.clone(), delivery, output: text(5) }, 5);
    counts(&EventKind::ExecutionSucceeded { output: text(6) }, 6);
    counts(&EventKind::FanOutStarted { unit: unit.clone(), items: json("[1,2]") }, 5);
    counts(&EventKind::ContinuedAsNew { unit, input: text(8) }, 8);
    counts(&EventKind::ExecutionTerminated { reason: arc("why") }, 3);
    counts(&EventKind::ExecutionPaused { reason: arc("why?") }, 4);
    counts(&EventKind::Woke, 0);
    for (cause, bytes) in [(Cause::Failure(why()), 110), (Cause::Cancel(arc("enough")), 6), (Cause::Timeout, 0)] {
        counts(&EventKind::WindDownStarted { cause, give_up_time: at(1.0) }, bytes);
    }
}

#[test]
fn what_runs_again_counts_its_names_and_items() {
    let steps = vec![
        ReopenedStep { unit: arc("ship"), items: vec![1, 2, 3] },
        ReopenedStep { unit: arc("a"), items: Vec::new() },
    ];
    counts(&EventKind::ExecutionReopened { steps, generation: 2, expire_time: None }, 4 + 8 + 3 * 3 + 1 + 8);
}

#[test]
fn a_start_counts_labels_and_results() {
    let results = vec![
        StepResult { step: arc("abc"), end: StepEnd::Succeeded(text(20)) },
        StepResult { step: arc("abcd"), end: StepEnd::Failed(why()) },
        StepResult { step: arc("abcde"), end: StepEnd::Skipped(SkipReason::WhenFalse) },
    ];
    let labels = BTreeMap::from([("key".to_owned(), "value".to_owned())]);
    let with_all = Created { labels, results, ..created() };
    counts(&EventKind::ExecutionCreated(Box::new(created())), 7);
    counts(&EventKind::ExecutionCreated(Box::new(with_all)), 7 + (3 + 5 + 8) + (3 + 20) + (4 + 110) + 5);
}

#[test]
fn a_run_counts_all_that_it_takes_over() {
    let call = |key| RememberedCall { request: request(key, 1), number: 1, time: at(0.0) };
    let signal = UntakenSignal { number: 2, name: arc("go"), payload: text(30), expire_time: None, handler: None };
    let child = ChildRequest {
        id: ExecutionId::parse("~1").unwrap(),
        definition_hash: CHILD_HASH,
        input: text(40),
        run: 1,
        unit: arc("a"),
        generation: 1,
        attempt: 1,
        depth: 1,
        trace_parent: arc(""),
    };
    let start = RunStart {
        created: created(),
        start_time: at(0.0),
        signals: vec![signal.clone(), signal],
        calls: vec![call(1), call(2), call(3)],
        deliveries: 0,
        reports: vec![AcceptedReport { unit: arc("a"), delivery: 1, hash: [0; 16] }; 2],
        senders: vec![call(4)],
        abandoned: vec![AbandonedChild { child, has_started: true, since: Some(at(0.0)) }],
    };
    let signals = 2 * (FIXED + 30);
    counts(&EventKind::RunStarted(Box::new(start)), 7 + signals + (FIXED + 40) + (3 + 2 + 1) * FIXED);
}

#[test]
fn a_large_payload_counts_as_its_digest_where_it_is_stored_apart() {
    for (bytes, stored) in [(PAYLOAD_INLINE_MAX, PAYLOAD_INLINE_MAX), (PAYLOAD_INLINE_MAX + 1, 40)] {
        let kind = EventKind::ExecutionSucceeded { output: text(bytes) };
        assert_eq!((event_bytes(&kind), event_bytes_whole(&kind)), (FIXED + stored, FIXED + bytes));
    }
}

/// Steps that need nothing, each with an output of so many bytes.
fn wide(steps: usize, bytes: usize) -> Run {
    let steps: Vec<String> = (0..steps).map(|step| format!("  - {{id: s{step}, compute: '${{ input }}'}}")).collect();
    Run::start(&format!("steps:\n{}\n", steps.join("\n")), text(bytes).as_str())
}

#[test]
fn a_decision_stops_before_its_events_are_too_many_or_too_large() {
    // An event is begun as long as there is room for two more; the first is the creation.
    assert_eq!(wide(1_100, 3).log.len(), 998);
    // One piece of work may add 320 KiB.
    let log = wide(100, 20_000).log;
    let bytes: usize = log.iter().map(|event| event_bytes(&event.kind)).sum();
    let limit = BYTES_MAX - 320 * 1024;
    assert!(limit < bytes && bytes <= limit + FIXED + 20_000, "{bytes}");
}
