//! The gRPC services with what they share: limits, reflection, deadlines, headers, statuses.

use super::{Services, deadline, health::HealthService, native};
use crate::clock::Entropy;
use crate::proto::{
    self, admin::admin_service_server::AdminServiceServer, health::health_server::HealthServer,
    schedule::schedule_service_server::ScheduleServiceServer, worker::worker_service_server::WorkerServiceServer,
};
use axum::{
    Router,
    body::Body,
    extract::Request,
    middleware::{self, Next},
    response::Response,
};
use http::{HeaderName, HeaderValue};
use std::sync::Arc;
use tonic::service::Routes;

/// Largest message that is taken, in bytes: 4 MiB.
pub(super) const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Version of the server, on every answer.
const SERVER_VERSION: HeaderName = HeaderName::from_static("orbit-server-version");
/// Id of the call, on every answer: for a support case, and to find it in a proxy's log.
const REQUEST_ID: HeaderName = HeaderName::from_static("orbit-request-id");
/// A caller's own id of the call, which is given back.
const CALLER_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Sets what every service must have; the library has it per service, not per server.
macro_rules! limited {
    ($service:expr) => {
        $service.max_decoding_message_size(MESSAGE_BYTES_MAX)
    };
}

/// All gRPC services of the server.
pub(super) fn grpc(services: &Services, health: HealthService) -> Router {
    let Services { admin, worker, schedules } = services;
    Routes::default()
        .add_service(limited!(AdminServiceServer::from_arc(admin.clone())))
        .add_service(limited!(WorkerServiceServer::from_arc(worker.clone())))
        .add_service(limited!(ScheduleServiceServer::from_arc(schedules.clone())))
        .add_service(limited!(HealthServer::new(health)))
        .add_service(limited!(reflection().build_v1().expect("the compiler wrote these descriptors")))
        .add_service(limited!(reflection().build_v1alpha().expect("the compiler wrote these descriptors")))
        .into_axum_router()
        .layer(middleware::from_fn(call))
}

fn reflection<'a>() -> tonic_reflection::server::Builder<'a> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(proto::health::DESCRIPTORS)
        // The details of errors, so that a generic client can show them.
        .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
}

/// What surrounds every gRPC call.
async fn call(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let deadline = deadline::of(&request);
    native::rewrite(deadline::enforce(deadline, next.run(request)).await, &path)
}

/// Puts the server's version and the call's id on every answer, gRPC and HTTP alike.
pub(super) async fn mark(entropy: Arc<dyn Entropy>, request: Request, next: Next) -> Response<Body> {
    let given = request.headers().get(&CALLER_REQUEST_ID).filter(|id| id.len() <= 128).cloned();
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(SERVER_VERSION, HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
    let id = entropy.uuid().to_string();
    headers.insert(REQUEST_ID, HeaderValue::from_str(&id).expect("a UUID is a header's value"));
    if let Some(given) = given {
        headers.insert(CALLER_REQUEST_ID, given);
    }
    response
}
