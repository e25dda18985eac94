//! Reads of executions: one, a query of one, one that is waited for, lists and counts.

use super::{Answer, WAIT_MAX, name};
use crate::api::{render, wait_duration};
use crate::domain::Timestamp;
use crate::engine::{Engine, filter_of};
use crate::proto::admin as proto;
use crate::store::{ExecutionKey, ListCursor};
use crate::wire::{self, Violations, filter::Filter, page};

/// `GetExecution`.
pub(super) async fn get(engine: &Engine, request: proto::GetExecutionRequest) -> Answer<proto::GetExecutionResponse> {
    let mut violations = Violations::new();
    let name = name(&mut violations, &request.id, &request.uid);
    let standing = engine.execution(&violations.finish(name)?).await?;
    Ok(proto::GetExecutionResponse { execution: Some(wire::execution::render_whole(&standing.state)) })
}

/// `QueryExecution`.
pub(super) async fn query(
    engine: &Engine,
    request: proto::QueryExecutionRequest,
) -> Answer<proto::QueryExecutionResponse> {
    let mut violations = Violations::new();
    let name = name(&mut violations, &request.id, &request.uid);
    let query = violations.take("query", wire::field::name(&request.query));
    let (name, query) = violations.finish(name.zip(query))?;
    let (result, number) = engine.query(&name, &query).await?;
    Ok(proto::QueryExecutionResponse {
        result: Some(wire::payload::render(&result)),
        last_event_number: i64::try_from(number).unwrap_or(i64::MAX),
    })
}

/// `WaitExecution`.
pub(super) async fn wait(
    engine: &Engine,
    request: proto::WaitExecutionRequest,
) -> Answer<proto::WaitExecutionResponse> {
    let mut violations = Violations::new();
    let name = name(&mut violations, &request.id, &request.uid);
    let wait = wait_duration(&mut violations, request.wait_duration.as_ref(), WAIT_MAX);
    let standing = engine.wait(&violations.finish(name)?, wait).await?;
    Ok(proto::WaitExecutionResponse { execution: Some(wire::execution::render(&standing.state)) })
}

/// `ListExecutions`.
pub(super) async fn list(
    engine: &Engine,
    request: proto::ListExecutionsRequest,
) -> Answer<proto::ListExecutionsResponse> {
    let mut violations = Violations::new();
    let size = page::size(&mut violations, request.page_size);
    let list = page::List { rpc: "ListExecutions", arguments: &[&request.filter] };
    let after = list.cursor(&mut violations, &request.page_token, read_cursor);
    let filter = violations.take("filter", Filter::parse(&request.filter));
    let filter = violations.finish(filter)?;
    if filter.is_empty() {
        return Ok(proto::ListExecutionsResponse::default());
    }
    let page = engine.list(&filter_of(filter), after, size).await?;
    Ok(proto::ListExecutionsResponse {
        executions: page.rows.iter().map(render::execution_row).collect(),
        next_page_token: page.next.map(|next| list.token(&write_cursor(next))).unwrap_or_default(),
    })
}

/// `CountExecutions`.
pub(super) async fn count(engine: &Engine) -> Answer<proto::CountExecutionsResponse> {
    let counts = engine.store().count().await?;
    let counts = counts.into_iter().filter(|(_, count)| *count > 0).map(|(state, count)| proto::StateCount {
        state: render::state(state).into(),
        count: i64::try_from(count).unwrap_or(i64::MAX),
    });
    Ok(proto::CountExecutionsResponse { counts: counts.collect() })
}

fn write_cursor(cursor: ListCursor) -> Vec<u8> {
    [cursor.start_time.as_micros().to_be_bytes(), cursor.key.0.to_be_bytes()].concat()
}

fn read_cursor(bytes: &[u8]) -> Option<ListCursor> {
    let (time, key) = bytes.split_first_chunk()?;
    Some(ListCursor {
        start_time: Timestamp::from_micros(i64::from_be_bytes(*time)),
        key: ExecutionKey(i64::from_be_bytes(key.try_into().ok()?)),
    })
}
