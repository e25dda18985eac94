//! `grpc.health.v1.Health`: Check, Watch, List.
//!
//! Services: `""` and each service by its full name (as ready as the server), `readiness`, and `liveness`, which is
//! SERVING for as long as anything answers. An unknown one is NOT_FOUND to Check and SERVICE_UNKNOWN to Watch, whose
//! stream stays open, as health.proto asks for.

use super::readiness::{Beacon, Readiness};
use crate::proto::health::{
    HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse,
    health_check_response::ServingStatus, health_server::Health,
};
use futures_util::StreamExt;
use std::pin::Pin;
use tokio_stream::{Stream, wrappers::WatchStream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

/// Services whose health is that of the whole server.
const SERVING_WHEN_READY: [&str; 5] = [
    "",
    "readiness",
    "orbit.admin.v1.AdminService",
    "orbit.schedule.v1.ScheduleService",
    "orbit.worker.v1.WorkerService",
];

/// The service that tells only that the process answers.
const LIVENESS: &str = "liveness";

/// Answers `grpc.health.v1.Health`.
pub(super) struct HealthService {
    /// Whether the server is ready.
    pub(super) beacon: Beacon,
    /// Ends the watches, so that their connections can close.
    pub(super) stop: CancellationToken,
}

fn status(service: &str, readiness: Readiness) -> Option<ServingStatus> {
    if service == LIVENESS {
        return Some(ServingStatus::Serving);
    }
    SERVING_WHEN_READY.contains(&service).then_some(match readiness {
        Readiness::Ready => ServingStatus::Serving,
        Readiness::StoreUnavailable | Readiness::Draining => ServingStatus::NotServing,
    })
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl Health for HealthService {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        match status(&service, self.beacon.now()) {
            Some(status) => Ok(Response::new(response(status))),
            None => Err(Status::not_found("unknown service; List tells those there are")),
        }
    }

    async fn list(&self, _: Request<HealthListRequest>) -> Result<Response<HealthListResponse>, Status> {
        let now = self.beacon.now();
        let services = SERVING_WHEN_READY.into_iter().chain([LIVENESS]);
        let statuses =
            services.filter_map(|service| Some((service.to_owned(), response(status(service, now)?)))).collect();
        Ok(Response::new(HealthListResponse { statuses }))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let service = request.into_inner().service;
        let changes = WatchStream::new(self.beacon.subscribe());
        let mut told = None;
        let statuses = changes.filter_map(move |readiness| {
            let status = status(&service, readiness).unwrap_or(ServingStatus::ServiceUnknown);
            let news = told.replace(status) != Some(status);
            std::future::ready(news.then(|| Ok(response(status))))
        });
        Ok(Response::new(Box::pin(statuses.take_until(self.stop.clone().cancelled_owned()))))
    }
}
