//! Every kind of event comes back from its bytes as it went, and nothing unknown is skipped.

use super::*;
use crate::domain::{
    AbandonedChild, AcceptedReport, ChildRequest, Created, RememberedCall, ReopenedStep, RunStart, StepEnd, StepResult,
    UntakenSignal, code,
};
use crate::domain::{
    Cause, EndReason, ExecutionId, ExecutionKey, Parent, Recipient, RequestKey, SessionId, SkipReason, Timestamp, Uid,
};
use crate::proto::workflow::event::Kind;
use crate::wire::time;
use std::collections::BTreeMap;
use uuid::Uuid;

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_123_456);

fn failure() -> Failure {
    Failure {
        code: Arc::from(code::TIMEOUT),
        message: Arc::from("took too long"),
        details: Some(Payload::from_json("{\"a\":1}")),
        unit: Arc::from("charge"),
    }
}

fn run_start(created: Created) -> RunStart {
    RunStart {
        created: Created { run: 2, ..created },
        start_time: NOW,
        signals: vec![UntakenSignal {
            number: 3,
            name: Arc::from("approved"),
            payload: Payload::from_json("1"),
            expire_time: Some(NOW),
            handler: Some(Arc::from("on_event:log")),
        }],
        calls: vec![RememberedCall { request: RequestKey { key: [1; 16], content: [2; 16] }, number: 4, time: NOW }],
        deliveries: 9,
        reports: vec![AcceptedReport { unit: Arc::from("charge"), delivery: 9, hash: [3; 16] }],
        senders: vec![RememberedCall { request: RequestKey { key: [6; 16], content: [0; 16] }, number: 5, time: NOW }],
        abandoned: vec![AbandonedChild {
            child: ChildRequest {
                id: ExecutionId::parse("~0e").unwrap(),
                definition_hash: [0xCD; 32],
                input: Payload::from_json("2"),
                run: 1,
                unit: Arc::from("invoice"),
                generation: 1,
                attempt: 2,
                depth: 4,
                trace_parent: Arc::from("00-x"),
            },
            has_started: true,
            since: Some(NOW),
        }],
    }
}

fn every_kind() -> Vec<EventKind> {
    let unit: Arc<str> = Arc::from("charge");
    let payload = || Payload::from_json("[9007199254740993]");
    let created = Created {
        id: ExecutionId::parse("order:1").unwrap(),
        uid: Uid(Uuid::from_u128(1)),
        run: 1,
        workflow: Arc::from("order"),
        version: Arc::from("1.0.0"),
        definition_hash: [0xAB; 32],
        input: payload(),
        labels: BTreeMap::from([("team".to_owned(), "shop".to_owned())]),
        expire_time: Some(NOW),
        trace_parent: Arc::from("00-x"),
        parent: None,
        depth: 0,
        begin_time: None,
        results: Vec::new(),
    };
    let parent = Parent {
        key: ExecutionKey(12),
        uid: Uid(Uuid::from_u128(3)),
        id: ExecutionId::parse("~0f").unwrap(),
        run: 2,
        unit: Arc::from("ship[3]"),
        generation: 1,
        attempt: 2,
    };
    let of_parent = Created { parent: Some(parent), depth: 3, ..created.clone() };
    let result = |step: &str, end| StepResult { step: Arc::from(step), end };
    let results = vec![
        result("a", StepEnd::Succeeded(payload())),
        result("b", StepEnd::Failed(failure())),
        result("c", StepEnd::Skipped(SkipReason::NothingUpstream)),
    ];
    let delayed = Created { begin_time: Some(NOW), results, ..created.clone() };
    let child_id = || ExecutionId::of_child(Uid(Uuid::from_u128(1)), 1, "charge", 1, 1);
    let recipient = |uid, child: Option<&str>| Recipient { id: child_id(), uid, child: child.map(Arc::from) };
    let ended = |reason| EventKind::DeliveryEnded { unit: unit.clone(), delivery: 2, reason, progress: None };
    let wind_down = |cause| EventKind::WindDownStarted { cause, give_up_time: NOW };
    vec![
        EventKind::RunStarted(Box::new(run_start(of_parent.clone()))),
        EventKind::ExecutionCreated(Box::new(delayed)),
        EventKind::ExecutionCreated(Box::new(created)),
        EventKind::StepScheduled { unit: unit.clone(), attempt: 1, input: Some(payload()) },
        EventKind::StepScheduled { unit: unit.clone(), attempt: 2, input: None },
        EventKind::StepDispatched {
            unit: unit.clone(),
            attempt: 1,
            delivery: 2,
            session_id: SessionId(Uuid::from_u128(2)),
            worker_id: Arc::from("host-1"),
            check_time: NOW,
            expire_time: Some(NOW),
        },
        EventKind::TaskHeld { unit: unit.clone(), delivery: 2 },
        ended(EndReason::SessionLost),
        ended(EndReason::NotListed),
        ended(EndReason::Unregistered),
        ended(EndReason::Released),
        ended(EndReason::NotSent),
        EventKind::AttemptFailed {
            unit: unit.clone(),
            attempt: 1,
            delivery: 2,
            failure: failure(),
            retry_time: Some(NOW),
            progress: Some(payload()),
            report: Some([7; 16]),
        },
        EventKind::StepSucceeded {
            unit: unit.clone(),
            output: payload(),
            delivery: 2,
            signal_number: None,
            report: Some([7; 16]),
        },
        EventKind::StepSucceeded {
            unit: unit.clone(),
            output: Payload::null(),
            delivery: 0,
            signal_number: Some(9),
            report: None,
        },
        EventKind::StepFailed { unit: unit.clone(), failure: failure() },
        EventKind::StepSkipped { unit: unit.clone(), reason: SkipReason::WhenFalse },
        EventKind::StepSkipped { unit: unit.clone(), reason: SkipReason::NothingUpstream },
        EventKind::StepCancelled { unit: unit.clone() },
        EventKind::FanOutStarted { unit: unit.clone(), items: payload() },
        EventKind::FanOutEnded { unit: unit.clone() },
        EventKind::SleepStarted { unit: unit.clone(), wake_time: NOW },
        EventKind::AwaitStarted { unit: unit.clone(), expire_time: None },
        EventKind::SignalReceived {
            name: Arc::from("approved"),
            payload: payload(),
            expire_time: None,
            sender: None,
            handler: None,
        },
        EventKind::SignalReceived {
            name: Arc::from("approved"),
            payload: payload(),
            expire_time: None,
            sender: Some([5; 16]),
            handler: Some(Arc::from("on_event:log")),
        },
        EventKind::SignalExpired { signal_number: 4 },
        EventKind::LateSuccess { unit: unit.clone(), delivery: 1, output: payload() },
        wind_down(Cause::Failure(failure())),
        wind_down(Cause::Cancel(Arc::from("changed my mind"))),
        wind_down(Cause::Timeout),
        EventKind::ExecutionSucceeded { output: payload() },
        EventKind::ExecutionFailed { failure: failure() },
        EventKind::ExecutionCancelled,
        EventKind::ExecutionTimedOut,
        EventKind::ExecutionTerminated { reason: Arc::from("stuck") },
        EventKind::Woke,
        EventKind::ExecutionPaused { reason: Arc::from("look") },
        EventKind::ExecutionResumed,
        EventKind::ContinuedAsNew { unit: Arc::from("again"), input: payload() },
        EventKind::ExecutionReopened {
            steps: vec![
                ReopenedStep { unit: Arc::from("ship"), items: vec![0, 99_999] },
                ReopenedStep { unit: Arc::from("bill"), items: Vec::new() },
            ],
            generation: 2,
            expire_time: Some(NOW),
        },
        EventKind::EventTaken { unit: Arc::from("on_event:log[3]"), signal_number: 7 },
        EventKind::ExecutionCreated(Box::new(of_parent)),
        EventKind::ChildRequested {
            unit: unit.clone(),
            attempt: 1,
            input: Some(payload()),
            child_id: child_id(),
            expire_time: Some(NOW),
        },
        EventKind::ChildStarted { unit: unit.clone(), attempt: 1, child_uid: Uid(Uuid::from_u128(4)) },
        EventKind::ChildCancelSent { unit: unit.clone(), attempt: 1, child_id: child_id() },
        EventKind::ParentTold,
        EventKind::DeletionBegan,
        EventKind::SignalRequested {
            unit: unit.clone(),
            recipient: recipient(None, None),
            name: Arc::from("approved"),
            payload: payload(),
        },
        EventKind::SignalRequested {
            unit,
            recipient: recipient(Some(Uid(Uuid::from_u128(4))), Some("charge")),
            name: Arc::from("approved"),
            payload: payload(),
        },
    ]
}

fn numbered(kinds: Vec<EventKind>) -> Vec<Event> {
    let request = Some(RequestKey { key: [1; 16], content: [2; 16] });
    (1..).zip(kinds).map(|(number, kind)| Event { number, time: NOW, request, kind }).collect()
}

fn decode(bytes: &[u8]) -> Result<Vec<Event>, DecodeError> {
    decode_batch(bytes, FORMAT, &|_| None)
}

#[test]
fn every_kind_comes_back_as_it_went() {
    let events = numbered(every_kind());
    let encoded = encode_batch(&events);
    assert_eq!(encoded.payloads, []);
    assert_eq!(decode(&encoded.bytes).unwrap(), events);
}

#[test]
fn large_payloads_go_apart_once_and_come_back() {
    let large = Payload::from_json(format!("\"{}\"", "a".repeat(INLINE_BYTES_MAX)));
    let received = || EventKind::SignalReceived {
        name: "s".into(),
        payload: large.clone(),
        expire_time: None,
        sender: None,
        handler: None,
    };
    let events = numbered(vec![received(), received()]);

    let encoded = encode_batch(&events);
    assert!(encoded.bytes.len() < 1_000);
    assert_eq!(encoded.payloads.len(), 1);

    let stored = &encoded.payloads[0];
    let resolve = |digest: &[u8; 32]| (*digest == stored.sha256).then(|| stored.json.clone());
    assert_eq!(decode_batch(&encoded.bytes, FORMAT, &resolve).unwrap(), events);
    assert!(matches!(decode(&encoded.bytes), Err(DecodeError::Damaged { number: 1, .. })));
    assert_eq!(render(&events[0]).encoded_len(), render(&events[1]).encoded_len());
    assert!(render(&events[0]).encoded_len() > INLINE_BYTES_MAX);
}

#[test]
fn what_a_newer_version_wrote_stops_the_reader() {
    let mut event = proto::Event { number: 3, time: Some(time::render(NOW)), request: None, kind: None };
    let bytes = |event: &proto::Event| proto::EventBatch { events: vec![event.clone()] }.encode_to_vec();
    assert_eq!(decode(&bytes(&event)), Err(DecodeError::Unknown { number: 3, what: "kind" }));

    let ended = proto::DeliveryEnded { unit: "a".to_owned(), delivery: 1, reason: 99, progress: None };
    event.kind = Some(Kind::DeliveryEnded(ended));
    assert_eq!(decode(&bytes(&event)), Err(DecodeError::Unknown { number: 3, what: "reason" }));

    event.kind =
        Some(Kind::ExecutionSucceeded(proto::ExecutionSucceeded { output: Some(proto::Payload { content: None }) }));
    assert_eq!(decode(&bytes(&event)), Err(DecodeError::Unknown { number: 3, what: "payload" }));
    assert!(matches!(decode_batch(&[], FORMAT + 1, &|_| None), Err(DecodeError::Unknown { .. })));
}

#[test]
fn what_contradicts_itself_is_damaged() {
    let bytes = |event: proto::Event| proto::EventBatch { events: vec![event] }.encode_to_vec();
    let woke = || Some(Kind::Woke(proto::Woke {}));
    let time = || Some(time::render(NOW));
    for event in [
        proto::Event { number: 0, time: time(), request: None, kind: woke() },
        proto::Event { number: 1, time: None, request: None, kind: woke() },
        proto::Event {
            number: 1,
            time: time(),
            request: Some(proto::RequestKey { key: vec![1], content: vec![] }),
            kind: woke(),
        },
    ] {
        assert!(matches!(decode(&bytes(event)), Err(DecodeError::Damaged { .. })));
    }
    assert!(matches!(decode(&[0xFF, 0x00]), Err(DecodeError::Damaged { number: 0, .. })));
}

#[test]
fn names_are_those_of_the_message() {
    let names: std::collections::HashSet<_> = every_kind().iter().map(kind_name).collect();
    let kinds: std::collections::HashSet<_> = every_kind().iter().map(std::mem::discriminant).collect();
    assert_eq!(names.len(), kinds.len(), "each kind has a name of its own");
}
