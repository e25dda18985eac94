//! Server streams: one JSON object a line, or Server-Sent Events.
//!
//! Every message is `{"result": …}`. The last object is `{"end": {}}` if the stream ended well and `{"error": {…}}`, the
//! envelope of all errors, if it did not. A stream without either was cut, and the caller must not take it for complete.
//!
//! - NDJSON, `application/x-ndjson`: exactly one `\n` after each object and none inside. Nothing else is ever on a line,
//!   so a silent stream sends nothing; where a proxy closes silent connections, use events.
//! - Events, `text/event-stream`: the same objects as `data`. The last one's event is `end` or `error`. `id` is the
//!   number of the event that the message carries; `Last-Event-ID` resumes after it. A comment `: ping` follows every
//!   15 s of silence. A browser's `EventSource` reconnects whenever a connection ends: close it on `end`.
//!
//! Line breaks in a payload's text, which can only be white space between its tokens, become spaces.

use std::{convert::Infallible, pin::Pin, time::Duration};

use axum::body::Body;
use futures_util::{Stream, StreamExt as _, stream};
use http::{HeaderName, HeaderValue, header};
use tonic::Status;

use super::{
    Response,
    call::{Call, Deadline, exceeded, passed},
    error, headers,
};
use crate::{
    clock,
    proto::json::{self, Message},
};

/// Silence after which an event stream sends a comment: below the 30 s to 60 s at which proxies close.
const PING: Duration = Duration::from_secs(15);

#[derive(Clone, Copy)]
enum Form {
    Lines,
    Events,
}

/// A message as text, with the number of the event in it.
struct Item {
    number: Option<i64>,
    json: String,
}

/// Answers with a stream; `number` finds the id of a message. What goes wrong from here on is told by its last object.
pub(super) fn answer<M, S>(call: Call, reply: tonic::Response<S>, number: fn(&M) -> Option<i64>) -> Response
where
    M: Message + 'static,
    S: Stream<Item = Result<M, Status>> + Send + 'static,
{
    let (metadata, messages, _) = reply.into_parts();
    let items = messages.map(move |message| {
        let message = message?;
        let json = json::to_string(&message).map_err(|why| error::unwritable(&why))?;
        Ok(Item { number: number(&message), json })
    });
    let (form, content_type) = match call.wants_events {
        true => (Form::Events, "text/event-stream"),
        false => (Form::Lines, "application/x-ndjson"),
    };
    let frames = Frames { items: Box::pin(items), form, deadline: call.deadline, over: false };
    let text = stream::unfold(frames, |mut frames| async move {
        let text = frames.next().await?;
        Some((Ok::<_, Infallible>(text), frames))
    });
    let mut response = Response::new(Body::from_stream(text));
    let to = response.headers_mut();
    to.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    to.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Tells nginx and its kind to pass each line on at once.
    to.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    headers::answer(&metadata, to);
    response
}

struct Frames {
    items: Pin<Box<dyn Stream<Item = Result<Item, Status>> + Send>>,
    form: Form,
    deadline: Deadline,
    over: bool,
}

impl Frames {
    /// The text of the next object or ping; none after the last object.
    async fn next(&mut self) -> Option<String> {
        if self.over {
            return None;
        }
        let item = tokio::select! {
            biased;
            () = passed(&mut self.deadline) => Some(Err(exceeded())),
            item = self.items.next() => item,
            () = silence(self.form) => return Some(": ping\n\n".to_owned()),
        };
        self.over = !matches!(item, Some(Ok(_)));
        Some(match item {
            Some(Ok(Item { number, json })) => self.form.frame(None, number, &format!("{{\"result\":{json}}}")),
            Some(Err(status)) => self.form.frame(Some("error"), None, &error::envelope(&status)),
            None => self.form.frame(Some("end"), None, "{\"end\":{}}"),
        })
    }
}

/// Waits until the stream has been silent for too long; for ever where nothing is sent then.
async fn silence(form: Form) {
    match form {
        Form::Lines => std::future::pending().await,
        Form::Events => clock::sleep(PING).await,
    }
}

impl Form {
    fn frame(self, event: Option<&str>, id: Option<i64>, json: &str) -> String {
        let json = json.replace(['\n', '\r'], " ");
        match self {
            Self::Lines => json + "\n",
            Self::Events => {
                let event = event.map(|event| format!("event: {event}\n")).unwrap_or_default();
                let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
                format!("{event}{id}data: {json}\n\n")
            }
        }
    }
}
