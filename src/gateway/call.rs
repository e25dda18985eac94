//! One call: reads its message from path, query, body and headers, and writes its answer.

use std::{future::Future, pin::Pin, time::Duration};

use bytes::Bytes;
use http::{Extensions, HeaderMap, StatusCode};
use tonic::{Code, Status, metadata::MetadataMap};

use super::{Response, body, error, headers, route::decode};
use crate::{
    clock,
    proto::{
        json::{self, Message, Reader},
        workflow::ErrorReason,
    },
};

/// How much earlier than its time a late call is answered: the answer is to leave before the caller hangs up.
const ANSWER_TIME: Duration = Duration::from_millis(5);

/// The instant at which the caller no longer waits; it counts from its first poll.
pub(super) type Deadline = Option<Pin<Box<dyn Future<Output = ()> + Send>>>;

/// One call that a route answers.
pub(super) struct Call {
    /// The request's headers that go along with the call.
    metadata: HeaderMap,
    extensions: Extensions,
    /// The path's segments.
    values: Vec<String>,
    /// Parameters other than `pretty`, decoded.
    parameters: Vec<(String, String)>,
    pretty: bool,
    last_event_id: Option<String>,
    idempotency_key: Option<String>,
    reader: Reader,
    /// Whether the caller wants Server-Sent Events.
    pub(super) wants_events: bool,
    /// When the caller no longer waits.
    pub(super) deadline: Deadline,
    /// The body; empty until it was read.
    pub(super) body: Bytes,
}

impl Call {
    /// Takes what the request's head says. What is wrong with it is told by [`Self::request`], with everything else.
    /// The call takes no longer than `time_max`, or what the caller asks for if that is shorter.
    pub(super) fn new(
        headers: &HeaderMap,
        extensions: Extensions,
        query: Option<&str>,
        values: Vec<String>,
        time_max: Option<Duration>,
    ) -> Self {
        let mut reader = Reader::default();
        let asked = headers::timeout(headers, &mut reader);
        let timeout = asked.into_iter().chain(time_max).min();
        let mut call = Self {
            metadata: headers::metadata(headers, timeout),
            extensions,
            values,
            parameters: vec![],
            pretty: false,
            last_event_id: headers::text(headers, "last-event-id", &mut reader),
            idempotency_key: headers::text(headers, "idempotency-key", &mut reader),
            reader,
            wants_events: headers::accepts(headers, "text/event-stream"),
            deadline: timeout.map(|timeout| Box::pin(clock::sleep(timeout.saturating_sub(ANSWER_TIME))) as _),
            body: Bytes::new(),
        };
        call.take_query(query.unwrap_or_default());
        call
    }

    fn take_query(&mut self, query: &str) {
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (raw_name, raw_value) = pair.split_once('=').unwrap_or((pair, ""));
            let text = |raw: &str| decode(&raw.replace('+', " "));
            match (text(raw_name), text(raw_value)) {
                (Some(name), Some(value)) if name == "pretty" => match value.as_str() {
                    "" | "true" => self.pretty = true,
                    "false" => self.pretty = false,
                    _ => self.reader.at(&name, |reader| reader.fault("expected true or false")),
                },
                (Some(name), Some(value)) => self.parameters.push((name, value)),
                _ => self.reader.at(raw_name, |reader| reader.fault("not percent-encoded UTF-8")),
            }
        }
    }

    /// Reads the message from the body. Its fields are no parameters then.
    pub(super) fn body<M: Message>(&mut self, into: &mut M) {
        for (name, _) in &self.parameters {
            self.reader.at(name, |reader| reader.fault("no such parameter; the fields of this call go into the body"));
        }
        if !self.body.is_empty() {
            self.reader.document(into, &self.body);
        }
    }

    /// Reads the message from the query parameters. A body has no place then.
    pub(super) fn query<M: Message>(&mut self, into: &mut M) {
        if !self.body.is_empty() {
            self.reader.at("body", |reader| reader.fault("this call takes none; its fields are query parameters"));
        }
        for (name, text) in &self.parameters {
            self.reader.parameter(into, name, text);
        }
    }

    /// Sets the field that a segment of the path is the value of.
    pub(super) fn variable(&mut self, place: usize, name: &str, field: &mut String) {
        let value = std::mem::take(&mut self.values[place]);
        self.reader.at(name, |reader| {
            if value.is_empty() {
                reader.fault("must not be empty in the path");
            } else if !field.is_empty() && *field != value {
                reader.fault(format!("is {value:?} in the path and {field:?} elsewhere"));
            }
        });
        *field = value;
    }

    /// Fills an empty `request_id` from the header `Idempotency-Key`.
    pub(super) fn idempotency_key(&mut self, field: &mut String) {
        if let Some(key) = self.idempotency_key.take().filter(|_| field.is_empty()) {
            *field = key;
        }
    }

    /// Sets the number to resume after from the header `Last-Event-ID`. The header wins over a parameter: a browser that
    /// reconnects repeats the address that it began with, and the header is the newer of the two.
    pub(super) fn last_event_id(&mut self, field: &mut i64) {
        if let Some(id) = self.last_event_id.take().filter(|id| !id.is_empty()) {
            match id.parse() {
                Ok(number) => *field = number,
                Err(_) => self.reader.at("last-event-id", |reader| reader.fault("expected the id of an event")),
            }
        }
    }

    /// The request for the service, with the headers that go along and the connection's extensions.
    ///
    /// # Errors
    /// All that was found wrong with path, parameters, headers and body.
    pub(super) fn request<M>(&mut self, message: M) -> Result<tonic::Request<M>, Status> {
        std::mem::take(&mut self.reader).finish().map_err(error::faults)?;
        self.body = Bytes::new();
        let metadata = MetadataMap::from_headers(std::mem::take(&mut self.metadata));
        Ok(tonic::Request::from_parts(metadata, std::mem::take(&mut self.extensions), message))
    }

    /// Waits for a result, but not longer than the caller does.
    ///
    /// # Errors
    /// What went wrong with the result, or `DEADLINE_EXCEEDED`.
    pub(super) async fn bounded<T>(&mut self, result: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        tokio::select! {
            biased;
            result = result => result,
            () = passed(&mut self.deadline) => Err(exceeded()),
        }
    }

    /// Writes the answer of a unary call.
    ///
    /// # Errors
    /// The answer has no JSON form.
    pub(super) fn answer<M: Message>(&self, reply: &tonic::Response<M>) -> Result<Response, Status> {
        let mut text = json::to_string(reply.get_ref()).map_err(|why| error::unwritable(&why))?;
        if self.pretty {
            text = json::pretty(&text);
            text.push('\n');
        }
        let mut response = body::json(StatusCode::OK, text);
        headers::answer(reply.metadata(), response.headers_mut());
        Ok(response)
    }
}

/// Waits until the deadline has passed; for ever without one.
pub(super) async fn passed(deadline: &mut Deadline) {
    match deadline {
        Some(deadline) => deadline.await,
        None => std::future::pending().await,
    }
}

/// The error of a call whose deadline has passed.
pub(super) fn exceeded() -> Status {
    error::refusal(Code::DeadlineExceeded, ErrorReason::DeadlineExceeded, "the call's own deadline has passed", [])
}
