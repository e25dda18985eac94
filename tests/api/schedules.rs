//! Schedules, as callers keep them: each rpc with its happy path and its refusals, and what a fire comes to.

mod names;

use crate::harness::*;
use futures_util::StreamExt as _;
use orbit::proto::schedule::{self as proto, planned_slot::Skip, schedule::State, schedule_policies::Overlap, slot};
use orbit::store::{MemoryStore, SqliteStore, Store};
use std::{sync::Arc, time::Duration};
use tonic::Code;
use tonic_types::StatusExt as _;

/// A workflow that waits for an hour, with an input that must fit.
const SLEEPER: &str = "name: sleeper\nversion: 1.0.0\n\
    input: {type: object, required: [day], properties: {day: {type: string}}}\n\
    steps: [{id: a, sleep: {for: 1h}}]\n";

/// A workflow that ends at once.
const QUICK: &str =
    "name: quick\nversion: 1.0.0\nsteps: [{id: a, compute: \"${ input }\"}]\nresult: \"${ steps.a.output }\"\n";

fn spec(crons: &[&str]) -> proto::ScheduleSpec {
    proto::ScheduleSpec {
        crons: crons.iter().map(|cron| (*cron).to_owned()).collect(),
        timezone: "UTC".to_owned(),
        ..Default::default()
    }
}

/// Every second.
fn secondly() -> proto::ScheduleSpec {
    let every = proto::IntervalRule { every: Some(seconds(1)), offset: None };
    proto::ScheduleSpec { intervals: vec![every], ..Default::default() }
}

fn starts(workflow: &str, input: &str) -> Option<proto::StartTemplate> {
    Some(proto::StartTemplate { workflow: workflow.to_owned(), input: json(input), ..Default::default() })
}

fn create_request(id: &str, spec: proto::ScheduleSpec) -> proto::CreateScheduleRequest {
    proto::CreateScheduleRequest {
        id: id.to_owned(),
        spec: Some(spec),
        start: starts("sleeper", r#"{"day": "${ schedule.nominal_time }"}"#),
        ..Default::default()
    }
}

fn with_overlap(overlap: Overlap) -> Option<proto::SchedulePolicies> {
    Some(proto::SchedulePolicies { overlap: overlap.into(), ..Default::default() })
}

impl Harness {
    async fn create(&mut self, request: proto::CreateScheduleRequest) -> proto::Schedule {
        self.schedules.create_schedule(request).await.unwrap().into_inner().schedule.unwrap()
    }

    async fn schedule(&mut self, id: &str) -> proto::Schedule {
        let request = proto::GetScheduleRequest { id: id.to_owned(), ..Default::default() };
        self.schedules.get_schedule(request).await.unwrap().into_inner().schedule.unwrap()
    }

    async fn trigger(&mut self, id: &str) -> proto::Slot {
        let request = proto::TriggerScheduleRequest { id: id.to_owned(), ..Default::default() };
        self.schedules.trigger_schedule(request).await.unwrap().into_inner().slot.unwrap()
    }

    async fn slots(&mut self, id: &str) -> Vec<proto::Slot> {
        let request = proto::ListSlotsRequest { id: id.to_owned(), page_size: 1_000, ..Default::default() };
        self.schedules.list_slots(request).await.unwrap().into_inner().slots
    }

    /// Waits until the ledger has so many rows with this outcome.
    async fn slots_with(&mut self, id: &str, outcome: slot::Outcome, count: usize) -> Vec<proto::Slot> {
        for _ in 0..1_200 {
            let slots: Vec<_> = self.slots(id).await.into_iter().filter(|slot| slot.outcome() == outcome).collect();
            if slots.len() >= count {
                return slots;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("{id} never has {count} slots {outcome:?}: {:?}", self.slots(id).await);
    }
}

#[tokio::test]
async fn a_schedule_is_made_read_listed_and_deleted() {
    let mut server = server().await;
    server.deploy(SLEEPER).await;
    let request = proto::CreateScheduleRequest {
        description: "the report of the day".to_owned(),
        policies: with_overlap(Overlap::BufferOne),
        request_id: "r".to_owned(),
        ..create_request("nightly", spec(&["30 1 * * *"]))
    };
    let made = server.create(request.clone()).await;
    assert_eq!((made.state(), &*made.id, &*made.description), (State::Active, "nightly", "the report of the day"));
    assert_eq!(made.spec, request.spec);
    assert_eq!(made.policies, request.policies);
    let next = made.next_time.unwrap().seconds;
    assert_eq!(next % 86_400, 90 * 60, "half past one");
    assert!(made.etag.starts_with('"') && made.etag.ends_with('"'), "{}", made.etag);
    assert_eq!(server.schedule("nightly").await, made);

    let again = server.create(request.clone()).await;
    assert_eq!(again, made, "the same call finds its schedule");
    let other = proto::CreateScheduleRequest { description: "x".to_owned(), ..request.clone() };
    assert_refused(server.schedules.create_schedule(other).await, Code::InvalidArgument, "REQUEST_ID_REUSED");
    let taken = proto::CreateScheduleRequest { request_id: String::new(), ..request };
    let status =
        assert_refused(server.schedules.create_schedule(taken).await, Code::AlreadyExists, "SCHEDULE_ALREADY_EXISTS");
    assert_eq!(metadata(&status, "uid"), made.uid);

    for id in ["a", "b"] {
        let paused = proto::CreateScheduleRequest {
            paused: true,
            pause_note: "later".to_owned(),
            ..create_request(id, spec(&["@daily"]))
        };
        assert_eq!(server.create(paused).await.pause_note, "later");
    }
    let page = proto::ListSchedulesRequest { page_size: 2, ..Default::default() };
    let page = server.schedules.list_schedules(page).await.unwrap().into_inner();
    let next = proto::ListSchedulesRequest { page_size: 2, page_token: page.next_page_token, ..Default::default() };
    let rest = server.schedules.list_schedules(next.clone()).await.unwrap().into_inner();
    let ids: Vec<_> = page.schedules.iter().chain(&rest.schedules).map(|schedule| &*schedule.id).collect();
    assert_eq!((ids, &*rest.next_page_token), (vec!["a", "b", "nightly"], ""));
    let state = proto::ListSchedulesRequest { state: State::Paused.into(), ..Default::default() };
    assert_eq!(server.schedules.list_schedules(state.clone()).await.unwrap().into_inner().schedules.len(), 2);
    let mixed = proto::ListSchedulesRequest { page_token: next.page_token, ..state };
    assert_refused(server.schedules.list_schedules(mixed).await, Code::InvalidArgument, "PAGE_TOKEN_INVALID");

    let delete = proto::DeleteScheduleRequest {
        id: "nightly".to_owned(),
        etag: made.etag.clone(),
        request_id: "d".to_owned(),
        ..Default::default()
    };
    server.schedules.delete_schedule(delete.clone()).await.unwrap();
    server.schedules.delete_schedule(delete).await.expect("the same call is answered as it was");
    let get = proto::GetScheduleRequest { id: "nightly".to_owned(), ..Default::default() };
    assert_refused(server.schedules.get_schedule(get.clone()).await, Code::NotFound, "SCHEDULE_NOT_FOUND");
    let by_uid = proto::GetScheduleRequest { uid: made.uid.clone(), ..get };
    let gone = server.schedules.get_schedule(by_uid).await.unwrap().into_inner().schedule.unwrap();
    assert!(gone.delete_time.is_some() && gone.next_time.is_none());
    let missing = proto::DeleteScheduleRequest { id: "nightly".to_owned(), ..Default::default() };
    assert_refused(server.schedules.delete_schedule(missing.clone()).await, Code::NotFound, "SCHEDULE_NOT_FOUND");
    let missing = proto::DeleteScheduleRequest { allow_missing: true, ..missing };
    server.schedules.delete_schedule(missing).await.unwrap();
    let anew = server.create(create_request("nightly", spec(&["@daily"]))).await;
    assert_ne!(anew.uid, made.uid, "another one under the same id");
    server.end().await;
}

#[tokio::test]
async fn c059_what_cannot_be_a_schedule_is_refused_with_all_faults_at_once() {
    let mut server = server().await;
    server.deploy(SLEEPER).await;
    let nothing = server.schedules.create_schedule(proto::CreateScheduleRequest::default()).await;
    let status = assert_refused(nothing, Code::InvalidArgument, "FIELD_VIOLATION");
    assert_eq!(bad_fields(&status), ["id", "spec", "start"]);

    let bad = proto::CreateScheduleRequest {
        id: "~x".to_owned(),
        spec: Some(proto::ScheduleSpec {
            crons: vec!["61 * * * *".to_owned(), "* * * * * *".to_owned()],
            timezone: "America/New_Yrok".to_owned(),
            ..Default::default()
        }),
        start: starts("sleeper", "{\"day\": \"${ nope }\"}"),
        policies: Some(proto::SchedulePolicies { max_actions: -1, ..Default::default() }),
        ..Default::default()
    };
    let status = assert_refused(server.schedules.create_schedule(bad).await, Code::InvalidArgument, "FIELD_VIOLATION");
    let fields = bad_fields(&status);
    let codes = ["CRON_INVALID: ", "TIMEZONE_INVALID: ", "TEMPLATE_INVALID: ", "OUT_OF_RANGE: "];
    let bad = status.get_details_bad_request().unwrap().field_violations;
    for code in codes {
        assert!(bad.iter().any(|it| it.description.contains(code)), "{code} is in none of {bad:?}");
    }
    for field in ["id", "spec.crons[0]", "spec.crons[1]", "spec.timezone", "start.input.day", "policies.max_actions"] {
        assert!(fields.iter().any(|it| it == field), "{field} in {fields:?}");
    }
    for zone in ["UTC+3", "PST", ""] {
        let bad = create_request("x", proto::ScheduleSpec { timezone: zone.to_owned(), ..spec(&["@daily"]) });
        let status =
            assert_refused(server.schedules.create_schedule(bad).await, Code::InvalidArgument, "FIELD_VIOLATION");
        assert_eq!(bad_fields(&status), ["spec.timezone"], "{zone:?}");
    }
    let past = proto::ScheduleSpec { end_time: Some(prost_types::Timestamp::default()), ..spec(&["@daily"]) };
    let refused = server.schedules.create_schedule(create_request("x", past)).await;
    let status = assert_refused(refused, Code::InvalidArgument, "FIELD_VIOLATION");
    assert_eq!(bad_fields(&status), ["spec.end_time"]);
    assert!(status.message().contains("NEVER_FIRES: "), "{}", status.message());

    let unfit =
        proto::CreateScheduleRequest { start: starts("sleeper", "{}"), ..create_request("x", spec(&["@daily"])) };
    let status =
        assert_refused(server.schedules.create_schedule(unfit).await, Code::InvalidArgument, "FIELD_VIOLATION");
    assert_eq!(bad_fields(&status), ["start.input"]);
    assert!(status.message().contains("INPUT_INVALID: "), "{}", status.message());
    let list = proto::CreateScheduleRequest {
        start: starts("sleeper", r#"["${ nope }"]"#),
        ..create_request("x", spec(&["@daily"]))
    };
    let status = assert_refused(server.schedules.create_schedule(list).await, Code::InvalidArgument, "FIELD_VIOLATION");
    assert_eq!(bad_fields(&status), ["start.input[0]"]);
    let unknown =
        proto::CreateScheduleRequest { start: starts("nope", "{}"), ..create_request("x", spec(&["@daily"])) };
    assert_refused(server.schedules.create_schedule(unknown).await, Code::NotFound, "DEFINITION_NOT_FOUND");
    server.end().await;
}

#[tokio::test]
async fn an_update_changes_what_its_mask_names() {
    let mut server = server().await;
    server.deploy(SLEEPER).await;
    let made = server.create(create_request("nightly", spec(&["30 1 * * *"]))).await;
    let update = |paths: &[&str], schedule: proto::Schedule| proto::UpdateScheduleRequest {
        id: "nightly".to_owned(),
        schedule: Some(schedule),
        update_mask: Some(prost_types::FieldMask { paths: paths.iter().map(|path| (*path).to_owned()).collect() }),
        ..Default::default()
    };
    let zone = proto::Schedule {
        spec: Some(proto::ScheduleSpec { timezone: "Europe/London".to_owned(), ..Default::default() }),
        ..Default::default()
    };
    let request = proto::UpdateScheduleRequest { etag: made.etag.clone(), ..update(&["spec.timezone"], zone.clone()) };
    let changed = server.schedules.update_schedule(request.clone()).await.unwrap().into_inner().schedule.unwrap();
    let spec = changed.spec.clone().unwrap();
    assert_eq!((&*spec.timezone, &*spec.crons[0]), ("Europe/London", "30 1 * * *"));
    assert_eq!(changed.start, made.start);
    assert_ne!(changed.etag, made.etag);
    let status = assert_refused(server.schedules.update_schedule(request).await, Code::Aborted, "ETAG_MISMATCH");
    assert_eq!(metadata(&status, "etag"), changed.etag);

    let all = proto::Schedule { description: "new".to_owned(), etag: "ignored".to_owned(), ..Default::default() };
    let request = proto::UpdateScheduleRequest { update_mask: None, ..update(&[], all) };
    let changed = server.schedules.update_schedule(request).await.unwrap().into_inner().schedule.unwrap();
    assert_eq!((&*changed.description, changed.spec), ("new", Some(spec)));

    for (paths, schedule, field) in [
        (vec!["nope"], zone.clone(), "update_mask"),
        (vec!["spec.nope"], zone, "update_mask"),
        (vec!["spec"], proto::Schedule::default(), "schedule.spec"),
        (vec!["start.input"], proto::Schedule::default(), "schedule.start.input"),
    ] {
        let refused = server.schedules.update_schedule(update(&paths, schedule)).await;
        let status = assert_refused(refused, Code::InvalidArgument, "FIELD_VIOLATION");
        assert_eq!(bad_fields(&status), [field], "{paths:?}");
    }
    let missing =
        proto::UpdateScheduleRequest { id: "other".to_owned(), ..update(&["description"], proto::Schedule::default()) };
    assert_refused(server.schedules.update_schedule(missing).await, Code::NotFound, "SCHEDULE_NOT_FOUND");
    let body = r#"{"schedule": {"spec": {"crons": ["@weekly"]}}, "updateMask": "spec.crons"}"#;
    let answer = http(server.address, "PATCH", "/v1/schedules/nightly", body).await.json();
    assert_eq!(answer["schedule"]["spec"]["crons"][0], "@weekly", "{answer}");

    // One kind of exclusions and one label at a time; the names are read as they are written.
    let body = r#"{"schedule": {"spec": {"exclusions": {"dates": [{"firstDate": "2026-12-24"}]}},
        "start": {"labels": {"teamA": "x", "b.c": "y"}}},
        "updateMask": "spec.exclusions.dates,start.labels.teamA,start.labels.b.c"}"#;
    http(server.address, "PATCH", "/v1/schedules/nightly", body).await.json();
    let body = r#"{"schedule": {"spec": {"exclusions": {"crons": ["* 1 * * *"]}}, "start": {"labels": {"d": "z"}}},
        "updateMask": "spec.exclusions.crons,start.labels.d,start.labels.b.c,spec.startTime,spec.end_time"}"#;
    let answer = http(server.address, "PATCH", "/v1/schedules/nightly", body).await.json();
    let changed = &answer["schedule"];
    assert_eq!(changed["spec"]["exclusions"]["dates"][0]["firstDate"], "2026-12-24", "{answer}");
    assert_eq!(changed["spec"]["exclusions"]["crons"][0], "* 1 * * *", "{answer}");
    assert_eq!(changed["start"]["labels"], serde_json::json!({"teamA": "x", "d": "z"}), "{answer}");
    let body = r#"{"schedule": {"description": "x"}, "updateMask": "Description"}"#;
    let answer = http(server.address, "PATCH", "/v1/schedules/nightly", body).await.json();
    assert!(answer["error"]["message"].as_str().unwrap().contains("no path \"Description\""), "{answer}");
    server.end().await;
}

#[tokio::test]
async fn what_an_update_leaves_is_not_judged_again() {
    let mut server = server().await;
    server.deploy(SLEEPER).await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let end_time = Some(prost_types::Timestamp { seconds: i64::try_from(now).unwrap() + 2, nanos: 0 });
    let short = proto::ScheduleSpec { end_time, ..secondly() };
    let made = server.create(create_request("short", short)).await;
    for _ in 0..400 {
        if server.schedule("short").await.state() == State::Completed {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    let update = |paths: &[&str], schedule: proto::Schedule| proto::UpdateScheduleRequest {
        id: "short".to_owned(),
        schedule: Some(schedule),
        update_mask: Some(prost_types::FieldMask { paths: paths.iter().map(|path| (*path).to_owned()).collect() }),
        ..Default::default()
    };
    let labels = [("team".to_owned(), "shop".to_owned())];
    let new = proto::Schedule {
        description: "over".to_owned(),
        spec: made.spec.clone(),
        start: Some(proto::StartTemplate { labels: labels.clone().into(), ..Default::default() }),
        ..Default::default()
    };
    let request = update(&["description", "start.labels", "spec"], new);
    let changed = server.schedules.update_schedule(request).await.unwrap().into_inner().schedule.unwrap();
    assert_eq!((changed.state(), &*changed.description), (State::Completed, "over"));
    assert_eq!(changed.start.unwrap().labels, labels.into());
    let other = proto::Schedule {
        spec: Some(proto::ScheduleSpec { jitter: Some(seconds(1)), ..made.spec.unwrap() }),
        ..Default::default()
    };
    let refused = server.schedules.update_schedule(update(&["spec.jitter"], other)).await;
    let status = assert_refused(refused, Code::InvalidArgument, "FIELD_VIOLATION");
    assert_eq!(bad_fields(&status), ["schedule.spec.end_time"]);
    server.end().await;
}

#[tokio::test]
async fn c055_a_trigger_counts_as_the_open_execution() {
    let mut server = server().await;
    server.deploy(SLEEPER).await;
    let made = server
        .create(proto::CreateScheduleRequest {
            policies: with_overlap(Overlap::BufferOne),
            ..create_request("nightly", spec(&["0 0 1 1 *"]))
        })
        .await;
    let request =
        proto::TriggerScheduleRequest { id: "nightly".to_owned(), request_id: "t".to_owned(), ..Default::default() };
    let slot = server.schedules.trigger_schedule(request.clone()).await.unwrap().into_inner().slot.unwrap();
    assert_eq!((slot.outcome(), slot.kind()), (slot::Outcome::Started, slot::Kind::Trigger));
    let execution = slot.execution.clone().unwrap();
    assert!(execution.id.starts_with('~'), "{}", execution.id);
    let again = server.schedules.trigger_schedule(request.clone()).await.unwrap().into_inner().slot.unwrap();
    assert_eq!(again, slot, "the same call finds its slot");
    let other = proto::TriggerScheduleRequest { overlap: Overlap::Allow.into(), ..request };
    assert_refused(server.schedules.trigger_schedule(other).await, Code::InvalidArgument, "REQUEST_ID_REUSED");

    let started = server.get(&execution.id).await;
    assert_eq!(started.labels["orbit.schedule"], "nightly");
    let input: serde_json::Value = serde_json::from_str(text(started.input.as_ref())).unwrap();
    let nominal = slot.nominal_time.unwrap().to_string();
    assert_eq!(input["day"].as_str().unwrap()[..19], nominal[..19], "the input has the nominal time");

    assert_eq!(server.trigger("nightly").await.outcome(), slot::Outcome::Buffered);
    assert_eq!(server.trigger("nightly").await.outcome(), slot::Outcome::Overlapped);
    let shown = server.schedule("nightly").await;
    assert_eq!(shown.open_executions, std::slice::from_ref(&execution));
    assert!(shown.waiting_time.is_some());
    assert_eq!(shown.etag, made.etag, "what it starts is no change of a caller's");

    // The one that waits starts when the open one has ended, which is heard of at once.
    let cancel = orbit::proto::admin::CancelExecutionRequest { id: execution.id, ..Default::default() };
    server.admin.cancel_execution(cancel).await.unwrap();
    server.slots_with("nightly", slot::Outcome::Started, 2).await;
    let missing = proto::TriggerScheduleRequest { id: "other".to_owned(), ..Default::default() };
    assert_refused(server.schedules.trigger_schedule(missing).await, Code::NotFound, "SCHEDULE_NOT_FOUND");
    server.end().await;
}

#[tokio::test]
async fn slots_start_on_time_and_pausing_ends_that() {
    for store in [Arc::new(MemoryStore::new()) as Arc<dyn Store>, sqlite().await] {
        let mut server = server_with(|_| {}, store).await;
        server.deploy(QUICK).await;
        let request = proto::CreateScheduleRequest {
            start: starts("quick", r#"{"at": "${ schedule.nominal_time }", "of": "${ schedule.id }"}"#),
            ..create_request("tick", secondly())
        };
        server.create(request).await;
        let slots = server.slots_with("tick", slot::Outcome::Started, 3).await;
        for slot in &slots {
            let (nominal, actual) = (slot.nominal_time.unwrap(), slot.actual_time.unwrap());
            assert_eq!((nominal.nanos, slot.kind(), slot.slot_count), (0, slot::Kind::Regular, 1));
            assert!((0..3).contains(&(actual.seconds - nominal.seconds)), "{slot:?}");
            let execution = server.wait(&slot.execution.clone().unwrap().id).await;
            assert!(text(execution.output.as_ref()).contains("\"of\":\"tick\""), "{execution:?}");
        }
        let pause =
            proto::PauseScheduleRequest { id: "tick".to_owned(), note: "enough".to_owned(), ..Default::default() };
        let paused = server.schedules.pause_schedule(pause.clone()).await.unwrap().into_inner().schedule.unwrap();
        assert_eq!((paused.state(), &*paused.pause_note), (State::Paused, "enough"));
        let before = server.slots("tick").await.len();
        tokio::time::sleep(Duration::from_millis(2_100)).await;
        assert_eq!(server.slots("tick").await.len(), before, "nothing starts once the pause was answered");

        let resume = proto::ResumeScheduleRequest { id: "tick".to_owned(), ..Default::default() };
        let resumed = server.schedules.resume_schedule(resume).await.unwrap().into_inner().schedule.unwrap();
        assert_eq!((resumed.state(), resumed.pause_time), (State::Active, None));
        server.slots_with("tick", slot::Outcome::Started, before + 1).await;
        let stale = proto::PauseScheduleRequest { etag: paused.etag, ..pause };
        assert_refused(server.schedules.pause_schedule(stale).await, Code::Aborted, "ETAG_MISMATCH");
        let missing = proto::ResumeScheduleRequest { id: "other".to_owned(), ..Default::default() };
        assert_refused(server.schedules.resume_schedule(missing).await, Code::NotFound, "SCHEDULE_NOT_FOUND");
        server.end().await;
    }
}

async fn sqlite() -> Arc<dyn Store> {
    let directory = tempfile::tempdir().unwrap().keep();
    Arc::new(SqliteStore::open(&directory.join("orbit.db"), Default::default()).await.unwrap())
}

#[tokio::test]
async fn a_backfill_starts_the_slots_of_a_span_in_order() {
    let mut server = server().await;
    server.deploy(QUICK).await;
    let request =
        proto::CreateScheduleRequest { start: starts("quick", "1"), ..create_request("nightly", spec(&["@daily"])) };
    server.create(request).await;
    let day = 86_400;
    let first = 1_700_000_000 / day * day;
    let instant = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    let backfill = proto::BackfillScheduleRequest {
        id: "nightly".to_owned(),
        first_time: instant(first),
        last_time: instant(first + 4 * day),
        concurrency: 2,
        request_id: "b".to_owned(),
    };
    let answer = server.schedules.backfill_schedule(backfill.clone()).await.unwrap().into_inner();
    let mut slots = server.slots_with("nightly", slot::Outcome::Started, 5).await;
    slots.reverse();
    for (slot, number) in slots.iter().zip(0..) {
        assert_eq!((slot.kind(), &*slot.request), (slot::Kind::Backfill, &*answer.request));
        assert_eq!(slot.nominal_time.unwrap().seconds, first + number * day);
    }
    let again = server.schedules.backfill_schedule(backfill.clone()).await.unwrap().into_inner();
    assert_eq!(again.request, answer.request);
    assert_eq!(server.slots("nightly").await.len(), 5);

    let new = proto::BackfillScheduleRequest { request_id: String::new(), ..backfill };
    for (bad, field) in [
        (proto::BackfillScheduleRequest { first_time: None, ..new.clone() }, "first_time"),
        (
            proto::BackfillScheduleRequest {
                first_time: instant(first + 1),
                last_time: instant(first + 2),
                ..new.clone()
            },
            "first_time",
        ),
        (proto::BackfillScheduleRequest { last_time: instant(4_000_000_000), ..new.clone() }, "last_time"),
        (proto::BackfillScheduleRequest { concurrency: 101, ..new.clone() }, "concurrency"),
    ] {
        let refused = server.schedules.backfill_schedule(bad).await;
        assert_eq!(bad_fields(&assert_refused(refused, Code::InvalidArgument, "FIELD_VIOLATION")), [field]);
    }
    let missing = proto::BackfillScheduleRequest { id: "other".to_owned(), ..new };
    assert_refused(server.schedules.backfill_schedule(missing).await, Code::NotFound, "SCHEDULE_NOT_FOUND");
    server.end().await;
}

#[tokio::test]
async fn a_preview_tells_what_is_left_out_and_why() {
    let mut server = server().await;
    server.deploy(SLEEPER).await;
    let exclusions = proto::Exclusions {
        dates: vec![proto::DateRange { first_date: "2026-11-02".to_owned(), last_date: String::new() }],
        ..Default::default()
    };
    let new_york = proto::ScheduleSpec {
        timezone: "America/New_York".to_owned(),
        exclusions: Some(exclusions),
        ..spec(&["30 1 * * *"])
    };
    let preview = proto::PreviewScheduleRequest {
        spec: Some(new_york),
        // Midnight of October 31 there.
        after_time: Some(prost_types::Timestamp { seconds: 1_793_419_200, nanos: 0 }),
        max_slots: 3,
        ..Default::default()
    };
    let slots = server.schedules.preview_schedule(preview.clone()).await.unwrap().into_inner().slots;
    let told: Vec<_> = slots.iter().map(|slot| (&*slot.local_time, slot.skip())).collect();
    assert_eq!(
        told,
        [
            ("2026-10-31T01:30:00-04:00", Skip::Unspecified),
            ("2026-11-01T01:30:00-04:00", Skip::Unspecified),
            ("2026-11-01T01:30:00-05:00", Skip::Repeated),
            ("2026-11-02T01:30:00-05:00", Skip::Excluded),
            ("2026-11-03T01:30:00-05:00", Skip::Unspecified),
        ]
    );
    server.create(create_request("nightly", spec(&["@daily"]))).await;
    let stored = proto::PreviewScheduleRequest { id: "nightly".to_owned(), ..Default::default() };
    let slots = server.schedules.preview_schedule(stored.clone()).await.unwrap().into_inner().slots;
    assert_eq!(slots.len(), 10);
    let body = r#"{"id": "nightly", "maxSlots": 2}"#;
    let answer = http(server.address, "POST", "/v1/schedules:preview", body).await.json();
    assert_eq!(answer["slots"].as_array().unwrap().len(), 2, "{answer}");

    let never = proto::Exclusions { crons: vec!["* * * * *".to_owned()], ..Default::default() };
    let cut = proto::PreviewScheduleRequest {
        spec: Some(proto::ScheduleSpec { exclusions: Some(never), ..spec(&["* * * * *"]) }),
        after_time: Some(prost_types::Timestamp { seconds: 0, nanos: 0 }),
        ..Default::default()
    };
    let cut = server.schedules.preview_schedule(cut).await.unwrap().into_inner();
    assert_eq!((cut.slots.len(), cut.unlisted_count), (1_000, 19_000));
    assert_eq!(cut.stop_time.unwrap().seconds, 20_000 * 60);

    let both = proto::PreviewScheduleRequest { id: "nightly".to_owned(), ..preview };
    let status =
        assert_refused(server.schedules.preview_schedule(both).await, Code::InvalidArgument, "FIELD_VIOLATION");
    assert_eq!(bad_fields(&status), ["spec"]);
    let missing = proto::PreviewScheduleRequest { id: "other".to_owned(), ..stored };
    assert_refused(server.schedules.preview_schedule(missing).await, Code::NotFound, "SCHEDULE_NOT_FOUND");
    server.end().await;
}

#[tokio::test]
async fn a_failure_pauses_a_schedule_that_asks_for_it() {
    let mut server = server().await;
    server.deploy("name: broken\nversion: 1.0.0\nsteps: [{id: a, fail: {code: NO, message: no}}]\n").await;
    let request = proto::CreateScheduleRequest {
        start: starts("broken", "null"),
        policies: Some(proto::SchedulePolicies { pause_on_failure: true, ..Default::default() }),
        ..create_request("fragile", spec(&["0 0 1 1 *"]))
    };
    server.create(request).await;
    assert_eq!(server.trigger("fragile").await.outcome(), slot::Outcome::Started);
    for _ in 0..400 {
        if server.schedule("fragile").await.state() == State::Paused {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    let paused = server.schedule("fragile").await;
    assert!(paused.state() == State::Paused && paused.pause_note.contains("failed"), "{paused:?}");
    server.end().await;
}

#[tokio::test]
async fn c059_one_bad_schedule_is_marked_and_stops_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orbit.db");
    let open = async || Arc::new(SqliteStore::open(&path, Default::default()).await.unwrap());
    let store = open().await;
    let mut server = server_with(|_| {}, store.clone()).await;
    server.deploy(QUICK).await;
    for id in ["bad", "good"] {
        let request = proto::CreateScheduleRequest { start: starts("quick", "1"), ..create_request(id, secondly()) };
        server.create(request).await;
    }
    server.end().await;
    store.close().await.unwrap();
    // Somebody's hand is at the database.
    let url = format!("sqlite://{}", path.display());
    let mut connection = <sqlx::SqliteConnection as sqlx::Connection>::connect(&url).await.unwrap();
    let settings = r#"{"spec":{"crons":["* * * * *"],"timezone":"Mars/Olympus"},"start":{"workflow":"quick"}}"#;
    sqlx::query("UPDATE schedules SET settings = ?, next_time = 1 WHERE id = 'bad'")
        .bind(settings)
        .execute(&mut connection)
        .await
        .unwrap();
    sqlx::Connection::close(connection).await.unwrap();

    let mut server = server_with(|_| {}, open().await).await;
    let before = server.slots("good").await.len();
    server.slots_with("good", slot::Outcome::Started, before + 2).await;
    let bad = server.schedule("bad").await;
    assert_eq!(bad.state(), State::Invalid);
    assert!(bad.invalid_reason.contains("Mars/Olympus"), "{}", bad.invalid_reason);
    let listed = proto::ListSchedulesRequest { state: State::Invalid.into(), ..Default::default() };
    let listed = server.schedules.list_schedules(listed).await.unwrap().into_inner().schedules;
    assert_eq!(listed.iter().map(|schedule| &*schedule.id).collect::<Vec<_>>(), ["bad"]);
    let trigger = proto::TriggerScheduleRequest { id: "bad".to_owned(), ..Default::default() };
    assert_refused(server.schedules.trigger_schedule(trigger).await, Code::FailedPrecondition, "SCHEDULE_INVALID");
    let preview = proto::PreviewScheduleRequest { id: "bad".to_owned(), ..Default::default() };
    assert_refused(server.schedules.preview_schedule(preview).await, Code::FailedPrecondition, "SCHEDULE_INVALID");
    // What is wrong is not what this changes, and stays as it is; and so is what cannot start.
    let described = proto::UpdateScheduleRequest {
        id: "bad".to_owned(),
        schedule: Some(proto::Schedule { description: "of Mars".to_owned(), ..Default::default() }),
        ..Default::default()
    };
    let described = server.schedules.update_schedule(described).await.unwrap().into_inner().schedule.unwrap();
    assert_eq!((described.state(), &*described.description), (State::Invalid, "of Mars"));
    assert!(described.invalid_reason.contains("Mars/Olympus"), "{}", described.invalid_reason);
    assert_eq!(described.spec.unwrap().timezone, "Mars/Olympus");
    // An update sets it right.
    let update = proto::UpdateScheduleRequest {
        id: "bad".to_owned(),
        schedule: Some(proto::Schedule { spec: Some(secondly()), ..Default::default() }),
        ..Default::default()
    };
    server.schedules.update_schedule(update).await.unwrap();
    let before = server.slots("bad").await.len();
    server.slots_with("bad", slot::Outcome::Started, before + 1).await;
    assert_eq!(server.schedule("bad").await.state(), State::Active);
    server.end().await;
}

/// Schedules that are due in the same second.
const CROWD: usize = 1_000;

/// How late the last of them may start here: two seconds on a machine that has nothing else to do, and a program that was
/// compiled for speed.
const CROWD_LAG_MAX: Duration = Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 2 });

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_schedules_that_are_due_together_all_start_at_once() {
    let mut server = server_with(|_| {}, sqlite().await).await;
    server.deploy(QUICK).await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let due = i64::try_from(now).unwrap() + 20;
    let spec = proto::ScheduleSpec {
        intervals: vec![proto::IntervalRule { every: Some(seconds(86_400)), offset: Some(seconds(due % 86_400)) }],
        ..Default::default()
    };
    let client = server.schedules.clone();
    let create = |number: usize| {
        let mut client = client.clone();
        let request = proto::CreateScheduleRequest {
            start: starts("quick", "1"),
            ..create_request(&format!("s{number:04}"), spec.clone())
        };
        async move { client.create_schedule(request).await.unwrap() }
    };
    let mut created = futures_util::stream::iter((0..CROWD).map(create)).buffer_unordered(32);
    while created.next().await.is_some() {}
    let mut late = Duration::ZERO;
    for number in 0..CROWD {
        let id = format!("s{number:04}");
        let [slot] = &server.slots_with(&id, slot::Outcome::Started, 1).await[..] else {
            panic!("{id} has started once")
        };
        let (nominal, actual) = (slot.nominal_time.unwrap(), slot.actual_time.unwrap());
        assert_eq!(nominal.seconds, due, "they were made in time");
        late = late.max(Duration::from_micros(
            u64::try_from((actual.seconds - due) * 1_000_000 + i64::from(actual.nanos) / 1_000).unwrap(),
        ));
    }
    eprintln!("the last of {CROWD} was decided {} ms late", late.as_millis());
    assert!(late < CROWD_LAG_MAX, "{late:?}");
    server.end().await;
}
