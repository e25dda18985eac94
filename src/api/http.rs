//! `/healthz`, `/readyz` and `/metrics`.

use super::readiness::{Beacon, Readiness};
use crate::engine::Engine;
use crate::store::ScheduleState;
use crate::telemetry;
use axum::{Router, routing::get};
use http::{StatusCode, header};

/// The routes.
pub(super) fn routes(beacon: Beacon, engine: Engine) -> Router {
    Router::new()
        .route("/healthz", get(|| std::future::ready("alive\n")))
        .route(
            "/readyz",
            get(move || {
                let readiness = beacon.now();
                let code = match readiness {
                    Readiness::Ready => StatusCode::OK,
                    Readiness::StoreUnavailable | Readiness::Draining => StatusCode::SERVICE_UNAVAILABLE,
                };
                std::future::ready((code, format!("{}\n", readiness.text())))
            }),
        )
        .route("/metrics", get(move || metrics(engine.clone())))
}

/// What is counted all the time, and what is asked for now.
async fn metrics(engine: Engine) -> impl axum::response::IntoResponse {
    // Where the database does not answer, what it last said stays; everything else is still told.
    if let Ok(size) = engine.store().size().await {
        telemetry::level(telemetry::DATABASE_BYTES, size.database_bytes);
        telemetry::level(telemetry::LOG_BYTES, size.log_bytes);
    }
    let sizes = engine.sizes();
    for (gauge, size) in [
        (telemetry::MAILBOXES, sizes.mailboxes),
        (telemetry::CACHE_BYTES, sizes.cache_bytes),
        (telemetry::POLLS_PARKED, sizes.waiters),
        (telemetry::TASKS_KNOWN, sizes.ready_rows),
        (telemetry::TIMERS_HOT, sizes.timers),
        (telemetry::SESSIONS, sizes.sessions),
        (telemetry::EFFECTS_UNDER_WAY, sizes.effects),
    ] {
        telemetry::level(gauge, u64::try_from(size).unwrap_or(u64::MAX));
    }
    if let Ok(counts) = engine.store().count().await {
        for (state, count) in counts {
            telemetry::executions(super::render::state_name(state), count);
        }
    }
    if let Ok(counts) = engine.store().count_schedules().await {
        for state in ScheduleState::ALL {
            let name = match state {
                ScheduleState::Active => "active",
                ScheduleState::Paused => "paused",
                ScheduleState::Invalid => "invalid",
                ScheduleState::Completed => "completed",
            };
            telemetry::schedules(name, counts.get(&state).copied().unwrap_or_default());
        }
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], telemetry::install().render())
}
