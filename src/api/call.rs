//! What surrounds every handler: measuring, logging, panics, and writes that a dropped call does not cut in two.
//!
//! It sits inside the services, not in a layer, so that gRPC and HTTP/JSON share it.

use super::repeats::Repeats;
use super::status::{Refusal, Verdict, verdict};
use crate::clock::{Clock, Entropy};
use crate::telemetry;
use futures_util::FutureExt;
use std::{any::Any, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio_util::task::TaskTracker;
use tonic::{Code, Response, Status};

/// A call that takes longer is told at warn.
const SLOW: Duration = Duration::from_secs(1);

/// Calls that are meant to take long.
const WAITING: [&str; 2] = ["PollTasks", "WaitExecution"];

/// The calls that run on this server.
#[derive(Clone)]
pub(super) struct Calls {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    repeats: Arc<Repeats>,
    writes: TaskTracker,
}

impl Calls {
    /// No call runs yet.
    pub(super) fn new(clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        Self { clock, entropy, repeats: Arc::default(), writes: TaskTracker::new() }
    }

    /// Runs what only reads, or waits: it ends with its call.
    pub(super) async fn read<T>(
        &self,
        rpc: &'static str,
        work: impl Future<Output = Result<T, Refusal>> + Send,
    ) -> Result<Response<T>, Status> {
        let measured = Measured::new(self, rpc);
        let result = AssertUnwindSafe(work).catch_unwind().await;
        measured.end(result)
    }

    /// Runs what changes state in a task of its own: a caller that hangs up half-way leaves nothing half done.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        rpc: &'static str,
        work: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let measured = Measured::new(self, rpc);
        // In a box: a large future would be moved several times on its way into the task.
        let result = match self.writes.spawn(Box::pin(work)).await {
            Ok(result) => Ok(result),
            Err(error) => Err(error.try_into_panic().unwrap_or_else(|_| Box::new("the runtime shuts down"))),
        };
        measured.end(result)
    }

    /// Runs one of the many works of a stream: guarded as a call, but not measured as one.
    pub(super) async fn guard<T>(
        &self,
        rpc: &'static str,
        work: impl Future<Output = Result<T, Refusal>> + Send,
    ) -> Result<T, Verdict> {
        match AssertUnwindSafe(work).catch_unwind().await {
            Ok(result) => result.map_err(|refusal| self.judge(rpc, &refusal)),
            Err(panic) => Err(self.panicked(rpc, &*panic)),
        }
    }

    /// A task of a stream. It is waited for when the server ends; a panic in it is its own to handle.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.writes.spawn(Box::pin(work));
    }

    /// Waits until the writes that run have ended. New ones may begin meanwhile.
    pub(super) async fn settled(&self) {
        self.writes.close();
        self.writes.wait().await;
    }

    /// The status of a refusal, which is logged.
    pub(super) fn refuse(&self, rpc: &'static str, refusal: &Refusal) -> Status {
        self.judge(rpc, refusal).into_status()
    }

    /// What a caller is told of a refusal, logged as it deserves: refusals at debug, failures at warn unless they repeat,
    /// bugs at error.
    fn judge(&self, rpc: &'static str, refusal: &Refusal) -> Verdict {
        let verdict = verdict(refusal);
        match verdict.code() {
            Code::Internal | Code::Unknown | Code::DataLoss => {
                let incident = self.entropy.uuid().to_string();
                tracing::error!(rpc, incident, error = %Causes(refusal), "a call failed for a fault of the server's");
                self::verdict(&Refusal::Bug { incident })
            }
            code @ (Code::Unavailable | Code::ResourceExhausted) => {
                let kind = ("a call failed", rpc, code_name(code));
                match self.repeats.next(kind, self.clock.monotonic()) {
                    Some(left_out) => {
                        tracing::warn!(rpc, left_out, error = %Causes(refusal), "a call failed");
                    }
                    None => tracing::debug!(rpc, error = %Causes(refusal), "a call failed"),
                }
                verdict
            }
            _ => {
                tracing::debug!(rpc, error = %Causes(refusal), "a call was refused");
                verdict
            }
        }
    }

    fn panicked(&self, rpc: &'static str, panic: &(dyn Any + Send)) -> Verdict {
        let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let incident = self.entropy.uuid().to_string();
        let text = super::log::Escaped(text.unwrap_or("a panic without a text"));
        tracing::error!(rpc, incident, panic = %text, "a handler panicked");
        verdict(&Refusal::Bug { incident })
    }
}

/// One call that runs; counted as cancelled if it is dropped before its end.
struct Measured<'a> {
    calls: &'a Calls,
    rpc: &'static str,
    start: Duration,
    code: Code,
}

impl<'a> Measured<'a> {
    fn new(calls: &'a Calls, rpc: &'static str) -> Self {
        telemetry::call_began(rpc);
        Self { calls, rpc, start: calls.clock.monotonic(), code: Code::Cancelled }
    }

    fn end<T>(mut self, result: Result<Result<T, Refusal>, Box<dyn Any + Send>>) -> Result<Response<T>, Status> {
        let result = match result {
            Ok(Ok(reply)) => Ok(Response::new(reply)),
            Ok(Err(refusal)) => Err(self.calls.refuse(self.rpc, &refusal)),
            Err(panic) => Err(self.calls.panicked(self.rpc, &*panic).into_status()),
        };
        self.code = result.as_ref().map_or_else(Status::code, |_| Code::Ok);
        result
    }
}

impl Drop for Measured<'_> {
    fn drop(&mut self) {
        let now = self.calls.clock.monotonic();
        let took = now.saturating_sub(self.start);
        let code = code_name(self.code);
        telemetry::call_ended(self.rpc, code, took);
        let is_slow = took > SLOW && !WAITING.contains(&self.rpc);
        match is_slow.then(|| self.calls.repeats.next(("a slow call", self.rpc, code), now)).flatten() {
            Some(left_out) => tracing::warn!(rpc = self.rpc, code, ?took, left_out, "a slow call"),
            None => tracing::debug!(rpc = self.rpc, code, ?took, "a call"),
        }
    }
}

/// A code as metrics and logs name it.
fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// An error with its causes, on one line and bounded.
struct Causes<'a>(&'a Refusal);

impl std::fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = self.0.to_string();
        let mut cause = std::error::Error::source(self.0);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        super::log::Escaped(&text).fmt(f)
    }
}
