//! Deadlines of calls: the caller's `grpc-timeout`, and 60 s for every unary call.
//!
//! A call that is late gets DEADLINE_EXCEEDED; a stream that is late ends with it. What changes state runs on in a task
//! of its own, so a late write is whole or not begun, and the same `request_id` tells which.

use super::status::{Refusal, verdict};
use crate::{clock, proto};
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response};
use http_body::{Frame, SizeHint};
use prost::Message;
use std::{
    collections::HashSet,
    pin::Pin,
    sync::LazyLock,
    task::{Context, Poll},
    time::Duration,
};
use tonic::Status;

/// Longest time of a unary call. Longer than the longest poll or wait (50 s).
pub(super) const UNARY_MAX: Duration = Duration::from_secs(60);

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Paths of the methods that stream in one direction or both.
static STREAMS: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let sets = [
        proto::DESCRIPTORS,
        proto::health::DESCRIPTORS,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ];
    sets.into_iter().flat_map(stream_paths).collect()
});

fn stream_paths(descriptors: &[u8]) -> Vec<String> {
    let set = prost_types::FileDescriptorSet::decode(descriptors).expect("the compiler wrote these descriptors");
    let mut paths = Vec::new();
    for file in &set.file {
        for service in &file.service {
            let streams = service.method.iter().filter(|method| method.client_streaming() || method.server_streaming());
            paths.extend(streams.map(|method| format!("/{}.{}/{}", file.package(), service.name(), method.name())));
        }
    }
    paths
}

/// How long a call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deadline {
    /// Its answer is there within this.
    Unary(Duration),
    /// It streams, and is over within this if its caller set a deadline.
    Stream(Option<Duration>),
}

/// The deadline of a call.
pub(super) fn of<B>(request: &Request<B>) -> Deadline {
    let asked = request.headers().get(GRPC_TIMEOUT).and_then(|value| parse(value.to_str().ok()?));
    if STREAMS.contains(request.uri().path()) {
        return Deadline::Stream(asked);
    }
    Deadline::Unary(asked.map_or(UNARY_MAX, |asked| asked.min(UNARY_MAX)))
}

/// Reads `grpc-timeout`: at most 8 digits and a unit. A malformed one counts as none, as with other servers.
fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_hours(count),
        "M" => Duration::from_mins(count),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

fn exceeded() -> Status {
    verdict(&Refusal::DeadlineExceeded).into_status()
}

/// Answers in time: with the response, whose body ends in time too, or with DEADLINE_EXCEEDED.
pub(super) async fn enforce(deadline: Deadline, response: impl Future<Output = Response<Body>>) -> Response<Body> {
    match deadline {
        Deadline::Unary(deadline) => within(clock::sleep(deadline), response).await,
        Deadline::Stream(None) => response.await,
        Deadline::Stream(Some(deadline)) => {
            let mut timer: Timer = Box::pin(clock::sleep(deadline));
            let response = within(&mut timer, response).await;
            response.map(|body| Body::new(Timed { body, timer: Some(timer) }))
        }
    }
}

async fn within(timer: impl Future<Output = ()>, response: impl Future<Output = Response<Body>>) -> Response<Body> {
    tokio::select! {
        // A response that is ready is given, also at the last moment.
        biased;
        response = response => response,
        () = timer => exceeded().into_http(),
    }
}

type Timer = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A body that ends with DEADLINE_EXCEEDED if it has not ended by itself.
struct Timed {
    body: Body,
    /// Gone once it has passed.
    timer: Option<Timer>,
}

impl http_body::Body for Timed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.timer.is_none() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        match self.timer.as_mut().map(|timer| timer.as_mut().poll(cx)) {
            Some(Poll::Ready(())) => {
                self.timer = None;
                let mut trailers = HeaderMap::new();
                exceeded().add_header(&mut trailers).map_err(axum::Error::new)?;
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
            _ => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(path: &str, timeout: Option<&str>) -> Deadline {
        let mut request = Request::builder().uri(path);
        if let Some(timeout) = timeout {
            request = request.header(GRPC_TIMEOUT, timeout);
        }
        of(&request.body(()).unwrap())
    }

    #[test]
    fn unary_calls_are_capped_and_streams_are_not() {
        let unary = "/orbit.admin.v1.AdminService/GetExecution";
        assert_eq!(call(unary, None), Deadline::Unary(UNARY_MAX));
        assert_eq!(call(unary, Some("50m")), Deadline::Unary(Duration::from_millis(50)));
        assert_eq!(call(unary, Some("2H")), Deadline::Unary(UNARY_MAX));
        for stream in [
            "/orbit.worker.v1.WorkerService/StreamTasks",
            "/orbit.admin.v1.AdminService/WatchEvents",
            "/grpc.health.v1.Health/Watch",
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        ] {
            assert_eq!(call(stream, None), Deadline::Stream(None), "{stream}");
            assert_eq!(call(stream, Some("1H")), Deadline::Stream(Some(Duration::from_hours(1))));
        }
    }

    #[test]
    fn malformed_timeouts_count_as_none() {
        for text in ["", "S", "1", "1x", "-1S", "123456789S", "1.5S", "é"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("99999999H"), Some(Duration::from_hours(99_999_999)));
        assert_eq!(parse("0n"), Some(Duration::ZERO));
    }
}
