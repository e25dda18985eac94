//! What names a call, and what only the server names.

use super::{SLEEPER, create_request, spec};
use crate::harness::*;
use orbit::proto::schedule::{self as proto, schedule_policies::Overlap};
use tonic::Code;

#[tokio::test]
async fn a_request_id_names_a_call_of_one_rpc_on_one_schedule() {
    let mut server = server().await;
    server.deploy(SLEEPER).await;
    for id in ["a", "b"] {
        let request = create_request(id, spec(&["0 0 1 1 *"]));
        server.create(proto::CreateScheduleRequest { request_id: "r".to_owned(), ..request }).await;
    }
    // Each twice, then with other content; and all with the same request id.
    for id in ["a", "b"] {
        let (id, request_id) = (id.to_owned(), "r".to_owned());
        let reused = (Code::InvalidArgument, "REQUEST_ID_REUSED");
        macro_rules! check {
            ($rpc:ident, $request:expr, $field:ident = $other:expr) => {
                let request = $request;
                let first = server.schedules.$rpc(request.clone()).await.unwrap().into_inner();
                assert_eq!(server.schedules.$rpc(request.clone()).await.unwrap().into_inner(), first);
                let mut other = request;
                other.$field = $other;
                assert_refused(server.schedules.$rpc(other).await, reused.0, reused.1);
            };
        }
        let (create, times) = (create_request(&id, spec(&["0 0 1 1 *"])), Some(spec(&["0 0 2 1 *"])));
        let create = proto::CreateScheduleRequest { request_id: request_id.clone(), ..create };
        check!(create_schedule, create, description = "other".to_owned());
        let schedule = Some(proto::Schedule { spec: times, ..Default::default() });
        let update = proto::UpdateScheduleRequest {
            id: id.clone(),
            schedule,
            request_id: request_id.clone(),
            ..Default::default()
        };
        check!(update_schedule, update, etag = "other".to_owned());
        let pause =
            proto::PauseScheduleRequest { id: id.clone(), request_id: request_id.clone(), ..Default::default() };
        check!(pause_schedule, pause, note = "other".to_owned());
        let resume =
            proto::ResumeScheduleRequest { id: id.clone(), request_id: request_id.clone(), ..Default::default() };
        check!(resume_schedule, resume, etag = "other".to_owned());
        let trigger =
            proto::TriggerScheduleRequest { id: id.clone(), request_id: request_id.clone(), ..Default::default() };
        check!(trigger_schedule, trigger, overlap = Overlap::Allow.into());
        let time = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
        let backfill = proto::BackfillScheduleRequest {
            id: id.clone(),
            first_time: time(1_700_000_000),
            last_time: time(1_750_000_000),
            request_id: request_id.clone(),
            ..Default::default()
        };
        check!(backfill_schedule, backfill, concurrency = 2);
        let delete = proto::DeleteScheduleRequest { id, request_id, ..Default::default() };
        check!(delete_schedule, delete, allow_missing = true);
    }
    server.end().await;
}

#[tokio::test]
async fn labels_of_the_servers_own_are_nobody_elses() {
    let mut server = server().await;
    server.deploy(SLEEPER).await;
    server.create(create_request("nightly", spec(&["0 0 1 1 *"]))).await;
    let execution = server.trigger("nightly").await.execution.unwrap();
    let labels = |key: &str| [(key.to_owned(), "nightly".to_owned())].into();
    for key in ["orbit.schedule", "orbit.", "orbit.other"] {
        let bad = format!("labels[{key:?}]");
        let start = orbit::proto::admin::StartExecutionRequest {
            labels: labels(key),
            ..start_request("sleeper", "x", r#"{"day": ""}"#)
        };
        let status =
            assert_refused(server.admin.start_execution(start).await, Code::InvalidArgument, "FIELD_VIOLATION");
        assert_eq!(bad_fields(&status), std::slice::from_ref(&bad));
        let rerun = orbit::proto::admin::RerunExecutionRequest {
            id: execution.id.clone(),
            from_step: "a".to_owned(),
            labels: labels(key),
            ..Default::default()
        };
        let status =
            assert_refused(server.admin.rerun_execution(rerun).await, Code::InvalidArgument, "FIELD_VIOLATION");
        assert_eq!(bad_fields(&status), std::slice::from_ref(&bad));
        let mut create = create_request("other", spec(&["0 0 1 1 *"]));
        create.start.as_mut().unwrap().labels = labels(key);
        let status =
            assert_refused(server.schedules.create_schedule(create).await, Code::InvalidArgument, "FIELD_VIOLATION");
        assert_eq!(bad_fields(&status), [format!("start.{bad}")]);
    }
    // What repeats an execution of a schedule is none itself.
    let rerun = orbit::proto::admin::RerunExecutionRequest {
        id: execution.id.clone(),
        from_step: "a".to_owned(),
        new_id: "again".to_owned(),
        labels: labels("orbits"),
        ..Default::default()
    };
    server.admin.rerun_execution(rerun).await.unwrap();
    assert_eq!(server.get("again").await.labels, labels("orbits"));
    let filter = "labels.orbit.schedule = \"nightly\"".to_owned();
    let list = orbit::proto::admin::ListExecutionsRequest { filter, ..Default::default() };
    let listed = server.admin.list_executions(list).await.unwrap().into_inner().executions;
    assert_eq!(listed.into_iter().map(|listed| listed.id).collect::<Vec<_>>(), [execution.id]);
    server.end().await;
}
