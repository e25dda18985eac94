//! Why an execution does not move, as callers are told.

use crate::harness::*;
use orbit::proto::admin::{self as proto, near_miss::Difference, wait::Reason};
use orbit::proto::worker::RegisterWorkerRequest;
use orbit::proto::workflow::execution::State;
use tonic::Code;

async fn explain(server: &mut Harness, id: &str) -> proto::Explanation {
    let request = proto::ExplainExecutionRequest { id: id.to_owned(), ..Default::default() };
    let told = server.admin.explain_execution(request).await.unwrap().into_inner().explanation.unwrap();
    assert!(told.waits.iter().all(|wait| wait.since_time.is_some()), "each wait says since when: {told:?}");
    told
}

/// Registers a worker of one contract in one queue, with two slots.
async fn register_in(server: &mut Harness, queue: &str, contract: &str) -> String {
    let request = RegisterWorkerRequest {
        worker_id: "host-2".to_owned(),
        contracts: vec![contract.to_owned()],
        queues: vec![queue.to_owned()],
        slots: 2,
        ..Default::default()
    };
    server.worker.register_worker(request).await.unwrap().into_inner().session_id
}

#[tokio::test]
async fn an_execution_tells_what_it_waits_for_from_its_start_to_its_end() {
    let mut server = server().await;
    server.deploy(ORDER).await;
    server.start("order", "o", "{\"cents\": 1}").await;

    // Nobody can do it, but some nearly.
    register_in(&mut server, "other", "payments.charge@1").await;
    register_in(&mut server, "default", "payments.charge@2").await;
    let told = explain(&mut server, "o").await;
    assert_eq!((&*told.id, told.state(), told.more_waits), ("o", State::Running, 0));
    let [charge, approval] = &told.waits[..] else { panic!("two steps wait: {told:?}") };
    assert_eq!((&*charge.unit, charge.since_time.is_some(), &charge.until_time), ("charge", true, &None));
    assert_eq!(
        charge.message,
        "waits for a worker that does payments.charge@1 in queue \"default\": no live worker announces it there; \
         1 announces it in queue \"other\"; 1 announces version 2, and version 1 is needed"
    );
    assert_eq!(charge.hint, "let such a worker serve queue \"default\", too");
    let Some(Reason::Worker(reason)) = &charge.reason else { panic!("it waits for a worker: {charge:?}") };
    assert_eq!((&*reason.contract, reason.sessions, reason.attempt), ("payments.charge@1", 0, 1));
    let near: Vec<_> =
        reason.near_misses.iter().map(|miss| (miss.difference.clone().unwrap(), miss.sessions)).collect();
    assert_eq!(near, [(Difference::Queue("other".to_owned()), 1), (Difference::Version("2".to_owned()), 1)]);
    assert_eq!(approval.message, "waits for charge");

    // One can, and does not ask.
    let session = register_in(&mut server, "default", "payments.charge@1").await;
    let told = explain(&mut server, "o").await;
    assert!(told.waits[0].message.ends_with(": 1 announces it, and none of them asks for a task"), "{told:?}");
    let Some(Reason::Worker(reason)) = &told.waits[0].reason else { panic!("it waits for a worker: {told:?}") };
    assert_eq!((reason.sessions, reason.asking_sessions, reason.slots), (1, 0, 2));

    let task = server.take(&session).await;
    let told = explain(&mut server, "o").await;
    let Some(Reason::Report(report)) = &told.waits[0].reason else { panic!("it is at a worker: {told:?}") };
    assert_eq!((&*report.worker_id, &report.session_id, report.delivery), ("host-2", &session, 1));
    assert!(report.contact_time.is_some() && report.expire_time == told.waits[0].until_time, "{told:?}");

    server.complete(&task.task_token, "{\"receipt\": 1}").await;
    let told = explain(&mut server, "o").await;
    assert_eq!(told.waits[0].message, "waits for signal \"approved\"");
    assert_eq!(told.waits[0].hint, "`orbit signal o approved` gives it the signal");

    let cancel = proto::CancelExecutionRequest { id: "o".to_owned(), ..Default::default() };
    server.admin.cancel_execution(cancel).await.unwrap();
    let over_http = http(server.address, "GET", "/v1/executions/o:explain", "").await.json();
    assert_eq!(over_http["explanation"]["state"], "STATE_CANCELLED");
    assert_eq!(over_http["explanation"]["waits"][0]["message"], "is closed (CANCELLED)");
    assert!(over_http["explanation"]["waits"][0]["closed"].is_object(), "{over_http}");

    let missing = proto::ExplainExecutionRequest { id: "nope".to_owned(), ..Default::default() };
    assert_refused(server.admin.explain_execution(missing).await, Code::NotFound, "EXECUTION_NOT_FOUND");
    server.end().await;
}
