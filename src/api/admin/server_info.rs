//! What the server tells about itself and its workers.

use super::{Answer, WAIT_MAX, cut_page};
use crate::api::{render, services::MESSAGE_BYTES_MAX};
use crate::domain::{PAYLOAD_BYTES_MAX, SessionId, definition::ITEMS_MAX};
use crate::engine::Engine;
use crate::proto::admin as proto;
use crate::wire::{Violations, page, time};
use std::time::Duration;
use uuid::Uuid;

/// How long a `request_id` is remembered.
const REQUEST_ID_RETENTION: Duration = Duration::from_hours(24);

/// Features that a client may ask for by name.
const CAPABILITIES: [&str; 4] = ["signals", "stream_tasks", "wait_execution", "watch_events"];

/// `GetServerInfo`.
pub(super) fn tell(engine: &Engine) -> proto::GetServerInfoResponse {
    let (store, settings) = (engine.store(), &engine.config().settings);
    let bytes = |bytes: usize| i64::try_from(bytes).expect("limits are small");
    proto::GetServerInfoResponse {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: store.kind().to_owned(),
        schema_version: i32::try_from(store.opened().schema_version).unwrap_or(i32::MAX),
        limits: Some(proto::Limits {
            payload_bytes_max: bytes(PAYLOAD_BYTES_MAX),
            message_bytes_max: bytes(MESSAGE_BYTES_MAX),
            page_size_max: i32::try_from(page::SIZE_MAX).expect("limits are small"),
            wait_duration_max: Some(time::render_span(WAIT_MAX)),
            buffered_signals_max: i32::try_from(settings.buffered_signals_max).unwrap_or(i32::MAX),
            session_timeout: Some(time::render_span(settings.session_timeout)),
            request_id_retention: Some(time::render_span(REQUEST_ID_RETENTION)),
            fan_out_items_max: i32::try_from(ITEMS_MAX).expect("limits are small"),
            history_events_max: i64::try_from(settings.history_events_max).unwrap_or(i64::MAX),
            active_executions_max: engine
                .config()
                .active_executions_max
                .map_or(0, |limit| i64::try_from(limit).unwrap_or(i64::MAX)),
        }),
        capabilities: CAPABILITIES.map(str::to_owned).to_vec(),
        now: Some(time::render(engine.clock().now())),
        node_id: engine.node().to_string(),
        nodes: engine.nodes().into_iter().map(render_node).collect(),
    }
}

fn render_node((id, level): (Uuid, u32)) -> proto::Node {
    proto::Node { id: id.to_string(), event_level: i32::try_from(level).unwrap_or(i32::MAX) }
}

/// `ListWorkers`.
pub(super) async fn list_workers(
    engine: &Engine,
    request: proto::ListWorkersRequest,
) -> Answer<proto::ListWorkersResponse> {
    let mut violations = Violations::new();
    let size = page::size(&mut violations, request.page_size);
    let list = page::List { rpc: "ListWorkers", arguments: &[] };
    let read = |bytes: &[u8]| Uuid::from_slice(bytes).ok().map(SessionId);
    let after = list.cursor(&mut violations, &request.page_token, read);
    violations.finish(Some(()))?;
    let (rows, more) = cut_page(engine.store().sessions(after, size + 1).await?, size);
    let next = rows.last().filter(|_| more).map(|row| list.token(row.id.0.as_bytes()));
    Ok(proto::ListWorkersResponse {
        workers: rows.iter().map(render::session).collect(),
        next_page_token: next.unwrap_or_default(),
    })
}
