//! Health, readiness, reflection and metrics.

use crate::harness::*;
use orbit::proto::health::{
    HealthCheckRequest, HealthListRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use orbit::store::{
    Faulty, MemoryStore,
    faulty::{Call, Fate},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tonic::Code;
use tonic_reflection::pb::{v1, v1alpha};

fn named(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

#[tokio::test]
async fn health_tells_known_services_and_bears_unknown_ones() {
    let server = server().await;
    let mut health = HealthClient::new(connect(server.address).await);
    for service in [
        "",
        "readiness",
        "liveness",
        "orbit.admin.v1.AdminService",
        "orbit.schedule.v1.ScheduleService",
        "orbit.worker.v1.WorkerService",
    ] {
        let answer = health.check(named(service)).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
    }
    assert_eq!(health.check(named("nope")).await.unwrap_err().code(), Code::NotFound);
    let list = health.list(HealthListRequest {}).await.unwrap().into_inner().statuses;
    assert_eq!(list.len(), 6);

    let mut watch = health.watch(named("nope")).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::ServiceUnknown);
    let more = tokio::time::timeout(Duration::from_millis(200), watch.message()).await;
    assert!(more.is_err(), "the stream stays open: {more:?}");
    server.end().await;
}

#[tokio::test]
async fn c125_a_draining_server_is_alive_and_not_ready() {
    let server =
        server_with(|options| options.drain_delay = Duration::from_millis(500), Arc::new(MemoryStore::new())).await;
    let mut health = HealthClient::new(connect(server.address).await);
    let mut watch = health.watch(named("")).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    assert_eq!(http(server.address, "GET", "/readyz", "").await.status, 200);

    server.stop.cancel();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    let live = health.check(named("liveness")).await.unwrap().into_inner();
    assert_eq!(live.status(), ServingStatus::Serving);
    assert_eq!(http(server.address, "GET", "/healthz", "").await.status, 200);
    let ready = http(server.address, "GET", "/readyz", "").await;
    assert_eq!((ready.status, ready.body.as_str()), (503, "not ready: shutting down\n"));
    server.end().await;
}

#[tokio::test]
async fn reflection_knows_every_service_and_type_in_both_versions() {
    let server = server().await;
    let channel = connect(server.address).await;
    let request = v1::ServerReflectionRequest {
        message_request: Some(v1::server_reflection_request::MessageRequest::ListServices(String::new())),
        ..Default::default()
    };
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(channel.clone());
    let mut answers = client.server_reflection_info(tokio_stream::iter([request])).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
    let v1::server_reflection_response::MessageResponse::ListServicesResponse(list) = answer else {
        panic!("a list of services, not {answer:?}")
    };
    let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    for service in [
        "orbit.admin.v1.AdminService",
        "orbit.schedule.v1.ScheduleService",
        "orbit.worker.v1.WorkerService",
        "grpc.health.v1.Health",
    ] {
        assert!(names.contains(&service), "{names:?}");
    }

    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(channel);
    for symbol in [
        "orbit.admin.v1.AdminService",
        "orbit.workflow.v1.ErrorReason",
        "google.api.HttpRule",
        "google.rpc.BadRequest",
        "grpc.health.v1.Health",
        "google.protobuf.Duration",
    ] {
        let request = v1alpha::ServerReflectionRequest {
            message_request: Some(v1alpha::server_reflection_request::MessageRequest::FileContainingSymbol(
                symbol.to_owned(),
            )),
            ..Default::default()
        };
        let mut answers = client.server_reflection_info(tokio_stream::iter([request])).await.unwrap().into_inner();
        let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
        let is_file = matches!(answer, v1alpha::server_reflection_response::MessageResponse::FileDescriptorResponse(_));
        assert!(is_file, "{symbol}: {answer:?}");
    }
    server.end().await;
}

#[tokio::test]
async fn metrics_count_calls_by_method_and_code_and_carry_no_ids() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    server.start("echo", "secret-id", "1").await;
    let _ = server.admin.start_execution(start_request("nope", "x", "1")).await;
    let metrics = http(server.address, "GET", "/metrics", "").await;
    assert_eq!(metrics.status, 200);
    for expected in [
        "orbit_build_info{",
        "rpc_method=\"StartExecution\",rpc_status_code=\"OK\"",
        "rpc_method=\"StartExecution\",rpc_status_code=\"NOT_FOUND\"",
        "orbit_executions{state=\"RUNNING\"}",
        "orbit_ready ",
        "orbit_connections ",
    ] {
        assert!(metrics.body.contains(expected), "{expected} is missing in\n{}", metrics.body);
    }
    assert!(!metrics.body.contains("secret-id"));
    server.end().await;
}

#[tokio::test]
async fn a_lost_database_makes_calls_unavailable_and_the_server_not_ready() {
    let broken = Arc::new(AtomicBool::new(false));
    let plan = {
        let broken = broken.clone();
        move |_: Call<'_>| if broken.load(Ordering::Relaxed) { Fate::FailsBefore } else { Fate::Works }
    };
    let mut server = server_with(|_| {}, Arc::new(Faulty::new(Arc::new(MemoryStore::new()), plan))).await;
    server.deploy(ECHO).await;
    broken.store(true, Ordering::Relaxed);
    let status = assert_refused(
        server.admin.list_executions(orbit::proto::admin::ListExecutionsRequest::default()).await,
        Code::Unavailable,
        "STORE_UNAVAILABLE",
    );
    use tonic_types::StatusExt;
    assert!(status.get_details_retry_info().is_some_and(|info| info.retry_delay.is_some()));
    let mut code = 0;
    for _ in 0..100 {
        code = http(server.address, "GET", "/readyz", "").await.status;
        if code == 503 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(code, 503);
    assert_eq!(http(server.address, "GET", "/healthz", "").await.status, 200);
    broken.store(false, Ordering::Relaxed);
    server.end().await;
}

#[tokio::test]
async fn a_panic_in_a_handler_costs_its_call_only_and_tells_an_incident() {
    let plan = |call: Call<'_>| match call {
        Call::Read("count") => panic!("a mistake\n2026-01-01 INFO forged line"),
        _ => Fate::Works,
    };
    let mut server = server_with(|_| {}, Arc::new(Faulty::new(Arc::new(MemoryStore::new()), plan))).await;
    let counts = server.admin.count_executions(orbit::proto::admin::CountExecutionsRequest {}).await;
    let status = assert_refused(counts, Code::Internal, "INTERNAL");
    assert_eq!(metadata(&status, "incident").len(), 36);
    assert!(!status.message().contains("mistake"), "{status:?}");
    server.deploy(ECHO).await;
    server.end().await;
}
