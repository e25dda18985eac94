//! Accepts connections and ends them: at their age, when the server drains, when time is up.
//!
//! The loop is our own because the library's cannot do what a fleet of long polls needs: an age with jitter that first
//! sends GOAWAY and cuts only much later, and an end that does not wait for ever for one open stream.

use crate::clock::{self, Entropy};
use crate::telemetry;
use axum::Router;
use http::Extensions;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use std::{sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceBuilder;

/// Most calls at once on one connection. A worker may park many polls; what is beyond waits in its client.
pub(super) const STREAMS_MAX: u32 = 1_000;

/// Flow-control windows. The protocol's 64 KiB would stall a stream of tasks at every round trip.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// Most bytes of a request's headers.
const HEADERS_BYTES_MAX: u32 = 16 * 1024;

/// Most connections at once. The next ones wait in the listener's queue.
const CONNECTIONS_MAX: usize = 10_000;

/// How long polls may still finish on an aged connection before watches are asked to end.
const WATCH_GRACE: Duration = Duration::from_mins(1);

/// How long anything may; longer than the longest life of a stream of tasks.
const CUT_GRACE: Duration = Duration::from_mins(12);

/// How long a client may take for the headers of an HTTP/1.1 request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// Pause after a connection that could not be accepted, for example for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Tells a call that its connection is to end, so that what never ends by itself does.
#[derive(Clone, Debug, Default)]
pub(super) struct Closing(CancellationToken);

impl Closing {
    /// The sign of the connection that a call came by; one that is never given, if there is none.
    pub(super) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Waits for the sign.
    pub(super) async fn ended(&self) {
        self.0.cancelled().await;
    }
}

/// PINGs on HTTP/2 connections, also on idle ones.
#[derive(Clone, Copy, Debug)]
pub struct Keepalive {
    /// From one to the next. Default 30 s, below the 60 s at which proxies drop silent connections.
    pub interval: Duration,
    /// Silence after one that ends the connection. Default 10 s.
    pub timeout: Duration,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { interval: Duration::from_secs(30), timeout: Duration::from_secs(10) }
    }
}

/// All connections of a server.
pub(super) struct Connections {
    /// Who answers.
    pub(super) router: Router,
    /// Moves the age of each.
    pub(super) entropy: Arc<dyn Entropy>,
    /// Age at which each gets GOAWAY, before it is moved by up to a tenth.
    pub(super) age: Duration,
    /// How often each is asked whether anybody is there.
    pub(super) keepalive: Keepalive,
    /// Ends the accepting, and sends GOAWAY on each.
    pub(super) drain: CancellationToken,
    /// Cuts each.
    pub(super) cut: CancellationToken,
    /// Those that are open.
    pub(super) open: TaskTracker,
}

impl Connections {
    /// Accepts until the server drains.
    pub(super) async fn accept(self, listener: TcpListener) {
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let drain = self.drain.clone();
        let accepting = async {
            loop {
                let permit = room.clone().acquire_owned().await.expect("nobody closes it");
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let connection = self.serve(stream);
                        self.open.spawn(async move {
                            connection.await;
                            drop(permit);
                        });
                    }
                    Err(error) => {
                        telemetry::accept_failed();
                        tracing::warn!(%error, "a connection could not be accepted");
                        clock::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        };
        drain.run_until_cancelled(accepting).await;
        self.open.close();
    }

    /// Serves one connection until it ends.
    fn serve(&self, stream: TcpStream) -> impl Future<Output = ()> + Send + 'static {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection is already gone");
        }
        let closing = Closing::default();
        let service = {
            let closing = closing.clone();
            ServiceBuilder::new()
                .map_request(move |mut request: http::Request<hyper::body::Incoming>| {
                    request.extensions_mut().insert(closing.clone());
                    request
                })
                .service(self.router.clone())
        };
        let age = moved(self.age, &*self.entropy);
        let (drain, cut, builder) = (self.drain.clone(), self.cut.clone(), builder(self.keepalive));
        async move {
            let _present = telemetry::Present::new(telemetry::CONNECTIONS);
            let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
            tokio::pin!(connection);
            let end = async {
                tokio::select! {
                    () = clock::sleep(age) => End::Aged,
                    () = drain.cancelled() => End::Drained,
                }
            };
            let end = tokio::select! {
                // How a connection ends is its client's business; calls have their own statuses.
                _ = connection.as_mut() => None,
                () = cut.cancelled() => None,
                end = end => Some(end),
            };
            let Some(end) = end else { return };
            connection.as_mut().graceful_shutdown();
            let grace = async {
                match end {
                    End::Aged => clock::sleep(WATCH_GRACE).await,
                    End::Drained => {}
                }
                closing.0.cancel();
                clock::sleep(CUT_GRACE).await;
            };
            tokio::select! {
                _ = connection.as_mut() => {}
                () = cut.cancelled() => {}
                () = grace => {}
            }
        }
    }
}

/// A span that is up to a tenth shorter or longer: what began together does not end together.
pub(super) fn moved(span: Duration, entropy: &dyn Entropy) -> Duration {
    let tenth = span / 10;
    let width = u64::try_from(2 * tenth.as_micros()).unwrap_or(u64::MAX).max(1);
    span - tenth + Duration::from_micros(entropy.number() % width)
}

/// Why a connection is asked to end.
enum End {
    Aged,
    Drained,
}

/// HTTP/1.1 and HTTP/2 on one port, told apart by the first bytes.
fn builder(keepalive: Keepalive) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(keepalive.interval)
        .keep_alive_timeout(keepalive.timeout)
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEADERS_BYTES_MAX);
    builder
}
