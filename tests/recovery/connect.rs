//! Calls to a server that may be gone at any moment.

use crate::chance::Chance;
use orbit::proto::{
    admin::admin_service_client::AdminServiceClient, worker::worker_service_client::WorkerServiceClient,
};
use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tonic::{
    Response, Status,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt as _;

pub(crate) type Admin = AdminServiceClient<Channel>;
pub(crate) type Tasks = WorkerServiceClient<Channel>;

/// The longest that a call may take. Longer than any wait in a call; a call that takes it counts as broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// A TCP connection of its own, which is made anew whenever it breaks.
pub(crate) fn channel(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}"))
        .expect("an address makes a URL")
        .connect_timeout(Duration::from_secs(2))
        .tcp_nodelay(true)
        .connect_lazy()
}

pub(crate) fn admin(address: SocketAddr) -> Admin {
    AdminServiceClient::new(channel(address))
}

pub(crate) fn tasks(address: SocketAddr) -> Tasks {
    WorkerServiceClient::new(channel(address))
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
        let info = status.get_error_details().error_info().cloned()?;
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
