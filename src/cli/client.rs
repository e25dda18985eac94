//! The connection to a server, and patience with one that is away.

use super::error::{Error, is_temporary, retry_after};
use crate::{
    clock::{self, Clock as _, SystemClock},
    proto::{
        admin::admin_service_client::AdminServiceClient, schedule::schedule_service_client::ScheduleServiceClient,
    },
};
use std::time::Duration;
use tonic::{
    Request, Status,
    transport::{Channel, Endpoint},
};

/// Longest time for one call, apart from what it waits for on purpose.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Larger than any message of the server's, so that no execution is too large to look at.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// Which server to talk to.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Connection {
    /// Server to talk to, `HOST:PORT`
    #[arg(long, env = "ORBIT_SERVER", value_name = "ADDRESS", default_value = "127.0.0.1:7070", value_parser = parse_endpoint)]
    server: Endpoint,
}

impl Connection {
    /// A client for callers and operators; it connects with its first call.
    pub(super) fn admin(&self) -> AdminServiceClient<Channel> {
        AdminServiceClient::new(self.server.connect_lazy()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// A client for schedules; it connects with its first call.
    pub(super) fn schedules(&self) -> ScheduleServiceClient<Channel> {
        ScheduleServiceClient::new(self.server.connect_lazy()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }
}

/// Reads `HOST:PORT`, also with `http://` before it.
pub(super) fn parse_endpoint(text: &str) -> Result<Endpoint, String> {
    if text.starts_with("https://") {
        return Err("this version speaks plain HTTP/2 only: HOST:PORT or http://HOST:PORT".to_owned());
    }
    let address = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    let wrong = || format!("{text:?} is not HOST:PORT");
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    if host.is_empty() || port.parse::<u16>().is_err() {
        return Err(wrong());
    }
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|_| wrong())?;
    Ok(endpoint
        .user_agent(concat!("orbit-cli/", env!("CARGO_PKG_VERSION")))
        .map_err(|_| wrong())?
        .connect_timeout(Duration::from_secs(5))
        .tcp_nodelay(true)
        // A peer that vanished without a word is noticed while a call waits.
        .http2_keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(10)))
}

/// A request with the usual deadline.
pub(super) fn call<T>(message: T) -> Request<T> {
    call_within(message, CALL_TIMEOUT)
}

/// A request with a deadline of its own.
pub(super) fn call_within<T>(message: T, timeout: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(timeout);
    request
}

/// A point in time after which a command gives up, or none.
#[derive(Debug)]
pub(super) struct Deadline {
    clock: SystemClock,
    at: Option<Duration>,
}

impl Deadline {
    /// So long from now; `None` waits for ever.
    pub(super) fn after(timeout: Option<Duration>) -> Self {
        let clock = SystemClock::starting_at(None);
        let at = timeout.map(|timeout| clock.monotonic() + timeout);
        Self { clock, at }
    }

    /// What is left of it, at most `longest`.
    pub(super) fn left(&self, longest: Duration) -> Duration {
        self.at.map_or(longest, |at| at.saturating_sub(self.clock.monotonic()).min(longest))
    }

    /// Whether it has passed.
    pub(super) fn passed(&self) -> bool {
        self.at.is_some_and(|at| at <= self.clock.monotonic())
    }
}

/// Growing pauses between tries, from a tenth of a second to five seconds.
#[derive(Debug)]
pub(super) struct Backoff(Duration);

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(5);

    pub(super) fn new() -> Self {
        Self(Self::FIRST)
    }

    /// Waits if the call may work later, at least as long as the server asks for.
    ///
    /// # Errors
    /// The status again if it is final, or the deadline has passed.
    pub(super) async fn pause(&mut self, status: Status, deadline: &Deadline) -> Result<(), Error> {
        if !is_temporary(&status) || deadline.passed() {
            return Err(status.into());
        }
        let pause = self.0.max(retry_after(&status).unwrap_or_default());
        self.0 = (self.0 * 2).min(Self::LONGEST);
        clock::sleep(deadline.left(pause)).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_host_and_a_port() {
        for text in
            ["127.0.0.1:7070", "localhost:7070", "http://localhost:7070", "http://localhost:7070/", "[::1]:7070"]
        {
            assert!(parse_endpoint(text).is_ok(), "{text}");
        }
        for text in ["", "localhost", ":7070", "localhost:http", "localhost:70700", "https://localhost:7070", "a b:1"] {
            assert!(parse_endpoint(text).is_err(), "{text}");
        }
    }
}
