//! Reads of history: in pages, and as a stream.

use super::{Admin, Answer, name};
use crate::api::{call::Calls, connection::Closing, status::Refusal};
use crate::domain::{Event, Uid};
use crate::engine::{self, Engine, ExecutionName};
use crate::proto::admin::{self as proto, admin_service_server::AdminService};
use crate::wire::{self, Violations, page};
use futures_util::stream;
use tokio::sync::mpsc::Receiver;
use tonic::Status;
use uuid::Uuid;

/// Where a page of events begins: the execution, so that a new one with the same id is not read on in, and a number.
struct Cursor {
    uid: Uid,
    after: u64,
}

/// `ListEvents`.
pub(super) async fn list(engine: &Engine, request: proto::ListEventsRequest) -> Answer<proto::ListEventsResponse> {
    let mut violations = Violations::new();
    let name = name(&mut violations, &request.id, &request.uid);
    let size = page::size(&mut violations, request.page_size);
    let list = page::List { rpc: "ListEvents", arguments: &[&request.id, &request.uid] };
    let cursor = list.cursor(&mut violations, &request.page_token, read_cursor);
    let mut name = violations.finish(name)?;
    if let Some(cursor) = &cursor {
        name.uid = Some(cursor.uid);
    }
    let standing = engine.execution(&name).await?;
    let events = engine.events(&name, cursor.map_or(0, |cursor| cursor.after), size).await?;
    // A page also ends at a size in bytes, so a short one need not be the last one.
    let last = events.last().map(|event| event.number).filter(|number| *number < standing.state.last_number());
    let next = last.map(|after| list.token(&write_cursor(&Cursor { uid: standing.row.uid, after })));
    Ok(proto::ListEventsResponse {
        events: events.iter().map(wire::event::render).collect(),
        next_page_token: next.unwrap_or_default(),
    })
}

/// `WatchEvents`.
pub(super) async fn watch(
    engine: &Engine,
    calls: Calls,
    closing: Closing,
    request: proto::WatchEventsRequest,
) -> Answer<<Admin as AdminService>::WatchEventsStream> {
    let (name, after) = parse_watch(&request)?;
    let watch = Watch { events: engine.watch(&name, after).await?, calls, closing };
    Ok(Box::pin(stream::unfold(Some(watch), |watch| async {
        let mut watch = watch?;
        let message = watch.next().await?;
        let goes_on = message.is_ok();
        Some((message, goes_on.then_some(watch)))
    })))
}

/// A stream of events on its way to a caller.
struct Watch {
    events: Receiver<Result<Event, engine::Error>>,
    calls: Calls,
    closing: Closing,
}

impl Watch {
    async fn next(&mut self) -> Option<Result<proto::WatchEventsResponse, Status>> {
        let event = tokio::select! {
            event = self.events.recv() => event?,
            // The connection is old and is to be renewed; the caller resumes on another.
            () = self.closing.ended() => Err(engine::Error::Draining),
        };
        let message = event.map(|event| proto::WatchEventsResponse { event: Some(wire::event::render(&event)) });
        Some(message.map_err(|error| self.calls.refuse("WatchEvents", &Refusal::Engine(error))))
    }
}

fn parse_watch(request: &proto::WatchEventsRequest) -> Result<(ExecutionName, u64), wire::Invalid> {
    let mut violations = Violations::new();
    let name = name(&mut violations, &request.id, &request.uid);
    let after = violations.take("after_number", u64::try_from(request.after_number).map_err(|_| "is negative"));
    violations.finish(name.zip(after))
}

fn write_cursor(cursor: &Cursor) -> Vec<u8> {
    let mut bytes = cursor.uid.0.as_bytes().to_vec();
    bytes.extend(cursor.after.to_be_bytes());
    bytes
}

fn read_cursor(bytes: &[u8]) -> Option<Cursor> {
    let (uid, after) = bytes.split_first_chunk()?;
    Some(Cursor { uid: Uid(Uuid::from_bytes(*uid)), after: u64::from_be_bytes(after.try_into().ok()?) })
}
