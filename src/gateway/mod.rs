//! HTTP/JSON over the same service objects that answer gRPC.
//!
//! - Every unary rpc and server stream has the routes of its `google.api.http` annotation, generated at build time;
//!   nothing here knows a message by name, and no call leaves the process.
//! - HTTP has no behaviour of its own: a call is read into its message, the service judges it, the answer is written as
//!   JSON. What is refused here is what no message could say: an unknown route, field or parameter, a body that is no
//!   JSON or too large.
//! - Every error has one envelope, `{"error": {"code", "status", "message", "details"}}` (`error.rs`).
//! - Server streams are NDJSON, or Server-Sent Events for a caller that accepts `text/event-stream` (`stream.rs`). Both
//!   end with an explicit `end` or `error`, so that a cut connection is never taken for the end.
//!
//! # Design
//!
//! The path is split before it is decoded, and each segment is decoded once, so `%2F` stays inside of its value and the
//! service refuses it there. A verb is what follows the last literal `:`, if some route of that path has such a verb;
//! a value that ends in `:cancel` itself is written with `%3A`. No router at hand can do both, hence `route.rs`.
//!
//! The body is read whole before the service is called; a message has a limit for it. A call whose connection ends is
//! dropped where it waits, exactly as a gRPC call is.

mod body;
mod call;
mod error;
mod headers;
mod route;
mod stream;

use std::{fmt, sync::Arc, time::Duration};

use axum::body::Body;
use http::{HeaderValue, Method, StatusCode, header};
use tonic::{Code, Status};

use crate::proto::{
    admin::admin_service_server::AdminService, schedule::schedule_service_server::ScheduleService,
    worker::worker_service_server::WorkerService, workflow::ErrorReason,
};
use call::Call;
pub use error::{code_name, envelope};
use route::Router;

/// An HTTP request as the server hands it over.
pub type Request = http::Request<Body>;
/// An HTTP response.
pub type Response = http::Response<Body>;

/// What a request may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest body in bytes; a larger one gets 413 `PAYLOAD_TOO_LARGE`. Default 4 MiB, as for a gRPC message.
    pub body_bytes_max: usize,
    /// Longest time of a call that answers once, from its head to its answer; a later one gets 504
    /// `DEADLINE_EXCEEDED`, as does one whose caller asked for a shorter time. Default 60 s: longer than any poll or
    /// wait. Streams have only the caller's own limit.
    pub unary_time_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { body_bytes_max: 4 * 1024 * 1024, unary_time_max: Duration::from_secs(60) }
    }
}

/// Answers HTTP/JSON requests by calling the services. Cheap to clone.
#[derive(Clone)]
pub struct Gateway {
    router: Arc<Router>,
    limits: Limits,
}

impl Gateway {
    /// Makes the routes to these services.
    #[must_use]
    pub fn new<A: AdminService, W: WorkerService, S: ScheduleService>(
        admin: &Arc<A>,
        worker: &Arc<W>,
        schedules: &Arc<S>,
        limits: Limits,
    ) -> Self {
        let mut router = Router::default();
        generated::admin_service(admin, &mut router);
        generated::worker_service(worker, &mut router);
        generated::schedule_service(schedules, &mut router);
        Self { router: Arc::new(router), limits }
    }

    /// Answers one request. Meant as the fallback of the router that has the gRPC services: a gRPC call that comes here
    /// has an unknown name and gets UNIMPLEMENTED in gRPC's own form.
    pub async fn handle(&self, request: Request) -> Response {
        let content_type = request.headers().get(header::CONTENT_TYPE);
        if content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc")) {
            let message = format!("no rpc {}", request.uri().path());
            return error::refusal(Code::Unimplemented, ErrorReason::MethodUnknown, message, []).into_http();
        }
        let is_head = request.method() == Method::HEAD;
        let mut response = self.answer(request).await.unwrap_or_else(|status| error::response(&status));
        if is_head {
            // The headers stay as they were, the length too: that is what the caller asks for.
            *response.body_mut() = Body::empty();
        }
        response
    }

    async fn answer(&self, request: Request) -> Result<Response, Status> {
        let (parts, body) = request.into_parts();
        let Some(found) = self.router.find(parts.uri.path())? else {
            let message = format!("no route {} {}", parts.method, parts.uri.path());
            return Err(error::refusal(Code::NotFound, ErrorReason::RouteNotFound, message, []));
        };
        if parts.method == Method::OPTIONS {
            let mut response = Response::default();
            *response.status_mut() = StatusCode::NO_CONTENT;
            return Ok(allowing(response, &found.allow()));
        }
        let wanted = if parts.method == Method::HEAD { "GET" } else { parts.method.as_str() };
        let Some(route) = found.route(wanted) else {
            let allow = found.allow();
            let message = format!("{} is not allowed here; allowed are {allow}", parts.method);
            let metadata = [("allow", allow.clone())];
            let status = error::refusal(Code::Unimplemented, ErrorReason::MethodNotAllowed, message, metadata);
            return Ok(allowing(error::response(&status), &allow));
        };
        tracing::debug!(rpc = route.spec.rpc, "http call");
        let time_max = (!route.spec.streams).then_some(self.limits.unary_time_max);
        let mut call = Call::new(&parts.headers, parts.extensions, parts.uri.query(), found.values, time_max);
        let read = body::read(&parts.headers, body, self.limits.body_bytes_max, route.spec.takes_body);
        call.body = call.bounded(read).await?;
        (route.handler)(call).await
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("limits", &self.limits).finish_non_exhaustive()
    }
}

fn allowing(mut response: Response, methods: &str) -> Response {
    let value = HeaderValue::from_str(methods).expect("names of methods are visible ASCII");
    response.headers_mut().insert(header::ALLOW, value);
    response
}

/// The generated routes.
mod generated {
    use std::sync::Arc;

    use super::{
        route::{Router, Segment, Spec},
        stream,
    };

    include!(concat!(env!("OUT_DIR"), "/gateway.rs"));
}

#[cfg(test)]
mod tests;
