//! Calls to servers that may be gone at any moment.

use crate::chance::Chance;
use futures_util::future::BoxFuture;
use orbit::proto::{
    admin::admin_service_client::AdminServiceClient, worker::worker_service_client::WorkerServiceClient,
};
use std::{
    error::Error,
    future::Future,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tonic::{
    Code, Response, Status,
    body::Body,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt as _;
use tower::{Service, ServiceExt as _};

pub(crate) type Admin = AdminServiceClient<Route>;
pub(crate) type Tasks = WorkerServiceClient<Route>;

/// Calls after which a client of several nodes turns to the next one, though this one answers.
const CALLS_PER_NODE: usize = 50;

/// How long one of several nodes may take for a call that waits for nothing, before the next one is asked.
const LIMIT: Duration = Duration::from_secs(3);

/// Calls that may wait.
const WAITS: [&str; 4] = ["/WaitExecution", "/WatchEvents", "/PollTasks", "/StreamTasks"];

/// How long a connection to one of several nodes may be silent before it is asked whether it lives, and how long the answer
/// may take. Where there is somebody else to turn to, a node that stands still is left.
const SILENCE: Duration = Duration::from_secs(1);

/// The longest that a call may take. Longer than any wait in a call; a call that takes it counts as broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// A TCP connection of its own, which is made anew whenever it breaks.
pub(crate) fn channel(address: SocketAddr) -> Channel {
    endpoint(address).connect_lazy()
}

fn endpoint(address: SocketAddr) -> Endpoint {
    Endpoint::from_shared(format!("http://{address}"))
        .expect("an address makes a URL")
        .connect_timeout(Duration::from_secs(2))
        .tcp_nodelay(true)
}

pub(crate) fn admin(address: SocketAddr) -> Admin {
    admin_of(&[address])
}

pub(crate) fn tasks(address: SocketAddr) -> Tasks {
    WorkerServiceClient::new(Route::to(&[address]))
}

/// A client of several nodes, which begins with the first.
pub(crate) fn admin_of(addresses: &[SocketAddr]) -> Admin {
    AdminServiceClient::new(Route::to(addresses))
}

/// The way to a server: a connection to each of its nodes. One of them is used, until it does not answer or has answered
/// often enough; then it is the next one's turn. Clones share the turn.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    nodes: Arc<[Channel]>,
    turn: Arc<AtomicUsize>,
    calls: Arc<AtomicUsize>,
}

impl Route {
    /// The way to these nodes, which begins with the first.
    pub(crate) fn to(addresses: &[SocketAddr]) -> Self {
        let nodes = match addresses {
            [address] => vec![channel(*address)],
            addresses => addresses
                .iter()
                .map(|address| {
                    endpoint(*address)
                        .http2_keep_alive_interval(SILENCE)
                        .keep_alive_timeout(SILENCE)
                        .keep_alive_while_idle(true)
                        .connect_lazy()
                })
                .collect(),
        };
        Self { nodes: nodes.into(), turn: Arc::default(), calls: Arc::default() }
    }

    /// Whether there is another node to turn to.
    pub(crate) fn is_wide(&self) -> bool {
        self.nodes.len() > 1
    }

    /// Makes it the next node's turn.
    pub(crate) fn turn(&self) {
        self.turn.fetch_add(1, Ordering::Relaxed);
    }
}

impl Service<http::Request<Body>> for Route {
    type Response = http::Response<Body>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // A channel is asked when a call has chosen it.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let turn = self.turn.load(Ordering::Relaxed);
        let channel = self.nodes[turn % self.nodes.len()].clone();
        let limit = if self.is_wide() && !WAITS.iter().any(|rpc| request.uri().path().ends_with(rpc)) {
            LIMIT
        } else {
            PATIENCE
        };
        let is_enough = self.calls.fetch_add(1, Ordering::Relaxed) % CALLS_PER_NODE == CALLS_PER_NODE - 1;
        let route = self.clone();
        Box::pin(async move {
            let answer = match tokio::time::timeout(limit, channel.oneshot(request)).await {
                Ok(answer) => answer.map_err(Self::Error::from),
                Err(elapsed) => Err(elapsed.into()),
            };
            let status = answer.as_ref().ok().and_then(|response| response.headers().get("grpc-status"));
            let is_away =
                answer.is_err() || status.is_some_and(|code| code == (Code::Unavailable as i32).to_string().as_str());
            if is_enough || is_away {
                // Unless somebody else has left that node already.
                let _ = route.turn.compare_exchange(turn, turn + 1, Ordering::Relaxed, Ordering::Relaxed);
            }
            answer
        })
    }
}

/// What a call came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer<T> {
    /// The server did it.
    Done(T),
    /// The server will not do it.
    Refused(Refusal),
    /// Nobody knows whether the server did it: the connection broke, or the server could not say.
    Unknown(String),
}

/// Why the server will not do it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    /// Name of the `ErrorReason`.
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl<T> Answer<T> {
    pub(crate) fn of(result: Result<Response<T>, Status>) -> Self {
        match result {
            Ok(response) => Self::Done(response.into_inner()),
            Err(status) => match Refusal::of(&status) {
                Some(refusal) => Self::Refused(refusal),
                None => Self::Unknown(status.to_string()),
            },
        }
    }
}

impl Refusal {
    /// The refusal that a status carries; none if it says nothing about what happened.
    pub(crate) fn of(status: &Status) -> Option<Self> {
        const PASSING: [&str; 5] =
            ["STORE_UNAVAILABLE", "WRITE_CONFLICT", "SERVER_DRAINING", "OVERLOADED", "DEADLINE_EXCEEDED"];
        // A status without the server's own details was made on this side: a connection broke.
        let details = status.get_error_details();
        let info = details.error_info().cloned()?;
        if status.code() == Code::Unavailable && details.retry_info().is_none() {
            return Some(Self {
                reason: info.reason,
                message: "unavailable, and nobody says when it will be".to_owned(),
            });
        }
        let is_final = !PASSING.contains(&info.reason.as_str());
        is_final.then(|| Self { reason: info.reason, message: status.message().to_owned() })
    }
}

/// Counts the commands that were sent and are not answered.
#[derive(Clone, Default, Debug)]
pub(crate) struct Flight(Arc<AtomicUsize>);

/// One command on its way.
#[derive(Debug)]
pub(crate) struct Flying(Flight);

impl Flight {
    pub(crate) fn take_off(&self) -> Flying {
        self.0.fetch_add(1, Ordering::Relaxed);
        Flying(self.clone())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Flying {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Calls once.
pub(crate) async fn once<T>(flight: &Flight, call: impl Future<Output = Result<Response<T>, Status>>) -> Answer<T> {
    let _flying = flight.take_off();
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(result) => Answer::of(result),
        Err(_) => Answer::Unknown(format!("no answer within {PATIENCE:?}")),
    }
}

/// Calls until the server says what it did, with the same request each time.
pub(crate) async fn insist<T, F>(
    flight: &Flight,
    chance: &mut Chance,
    mut call: impl FnMut() -> F,
) -> Result<T, Refusal>
where
    F: Future<Output = Result<Response<T>, Status>>,
{
    loop {
        match once(flight, call()).await {
            Answer::Done(response) => return Ok(response),
            Answer::Refused(refusal) => return Err(refusal),
            Answer::Unknown(_) => tokio::time::sleep(chance.millis(5, 40)).await,
        }
    }
}
