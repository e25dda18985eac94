//! One port for gRPC, HTTP/JSON, health and metrics, from the first byte to the last.
//!
//! The end, in this order: not ready (`/readyz`, health NOT_SERVING; liveness stays) · the drain delay, so that load
//! balancers notice · the engine drains: polls answer empty, streams end · GOAWAY on every connection, calls that run
//! end, and so do requests of `http` steps · at the drain timeout whatever is left is cut · the engine stops, the store
//! closes.

use super::{
    admin::Admin,
    call::Calls,
    connection::{Connections, Keepalive},
    health::HealthService,
    http,
    readiness::Beacon,
    schedule::Schedules,
    services,
    worker::{Streams, Worker},
};
use crate::clock::{self, Entropy, SystemEntropy};
use crate::config;
use crate::engine::Engine;
use crate::store;
use crate::telemetry;
use axum::{handler::Handler, middleware};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How long writes may take to end after the connections have: their callers are gone, their commits are not.
const SETTLE_MAX: Duration = Duration::from_secs(5);

/// What a server must be told.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Whether an address that is not loopback may be served although nobody is asked for credentials.
    pub allow_anonymous: bool,
    /// How long to serve on as "not ready" after the end was asked for.
    pub drain_delay: Duration,
    /// After that, how long calls that run may take before they are cut off. Default 20 s.
    pub drain_timeout: Duration,
    /// Age at which a connection gets GOAWAY, before it is moved by up to a tenth. Default 30 min. Calls that run end as
    /// they would; clients connect again, so load spreads over the servers there are.
    pub connection_age: Duration,
    /// How dead connections are found.
    pub keepalive: Keepalive,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7070)),
            allow_anonymous: false,
            drain_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(20),
            connection_age: Duration::from_mins(30),
            keepalive: Keepalive::default(),
        }
    }
}

impl Options {
    /// The options of a command line.
    #[must_use]
    pub fn of(config: &config::Server) -> Self {
        Self {
            listen: config.listen,
            allow_anonymous: config.allow_anonymous,
            drain_delay: config.tuning.drain_delay,
            drain_timeout: config.tuning.drain_timeout,
            ..Self::default()
        }
    }
}

/// Why a server did not begin, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Everybody who reaches the address could do everything.
    #[error("{0} is not a loopback address, and nobody is asked for credentials")]
    RemoteWithoutCredentials(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
    /// The store did not close cleanly. Nothing that was acknowledged is lost.
    #[error("database did not close cleanly")]
    Close(#[source] store::Error),
}

/// The service objects, for whoever answers what is not gRPC.
#[derive(Clone)]
pub struct Services {
    /// Answers callers and operators.
    pub admin: Arc<Admin>,
    /// Answers workers.
    pub worker: Arc<Worker>,
    /// Answers whoever keeps schedules.
    pub schedules: Arc<Schedules>,
}

/// A server that has its port and answers nobody yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    options: Options,
}

impl Server {
    /// Takes the port.
    ///
    /// # Errors
    /// The address is not loopback and that was not allowed in so many words, or it cannot be listened on.
    pub async fn bind(options: Options) -> Result<Self, Error> {
        let wanted = options.listen;
        if !wanted.ip().is_loopback() && !options.allow_anonymous {
            return Err(Error::RemoteWithoutCredentials(wanted));
        }
        let listen = |error| Error::Listen(wanted, error);
        let listener = TcpListener::bind(wanted).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        Ok(Self { listener, address, options })
    }

    /// The address that was taken, with its port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` is ready, then ends as the module says. `fallback` makes the service of everything that
    /// is neither gRPC, health nor metrics: the gateway.
    ///
    /// # Errors
    /// The store did not close cleanly.
    pub async fn serve<H: Handler<T, ()>, T: 'static>(
        self,
        engine: Engine,
        fallback: impl FnOnce(&Services) -> H,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let Self { listener, options, .. } = self;
        let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
        let calls = Calls::new(engine.clock().clone(), entropy.clone());
        let beacon = Beacon::new();
        let (drain, cut, over) = (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
        telemetry::install();
        telemetry::build_info(engine.store().kind());
        let services = Services {
            admin: Arc::new(Admin { engine: engine.clone(), calls: calls.clone() }),
            worker: Arc::new(Worker {
                engine: engine.clone(),
                calls: calls.clone(),
                streams: Streams { entropy: entropy.clone() },
            }),
            schedules: Arc::new(Schedules { engine: engine.clone(), calls: calls.clone() }),
        };
        let health = HealthService { beacon: beacon.clone(), stop: drain.clone() };
        let marker = entropy.clone();
        let router = services::grpc(&services, health)
            .fallback(fallback(&services))
            .merge(http::routes(beacon.clone(), engine.clone()))
            .layer(middleware::from_fn(move |request, next| services::mark(marker.clone(), request, next)));
        let open = TaskTracker::new();
        let background = TaskTracker::new();
        background.spawn(beacon.clone().probe(engine.store().clone(), over.clone()));
        background.spawn(telemetry::keep(over.clone()));
        let connections = Connections {
            router,
            entropy,
            age: options.connection_age,
            keepalive: options.keepalive,
            drain: drain.clone(),
            cut: cut.clone(),
            open: open.clone(),
        };
        background.spawn(connections.accept(listener));

        shutdown.await;
        beacon.drain();
        clock::sleep(options.drain_delay).await;
        engine.drain();
        drain.cancel();
        let ended = async { tokio::join!(open.wait(), engine.http_settled()) };
        if tokio::time::timeout(options.drain_timeout, ended).await.is_err() {
            tracing::warn!(connections = open.len(), "cutting the calls that still run: the drain timeout has passed");
            cut.cancel();
            open.wait().await;
        }
        if tokio::time::timeout(SETTLE_MAX, calls.settled()).await.is_err() {
            tracing::warn!("writes still run; they are whole or not begun when the store closes");
        }
        over.cancel();
        background.close();
        let store = engine.store().clone();
        let settled = tokio::time::timeout(SETTLE_MAX, async {
            background.wait().await;
            engine.shutdown().await;
        });
        if settled.await.is_err() {
            // What hangs has not been acknowledged, and the store holds whole commits at any moment.
            tracing::warn!("work still runs; it ends with the process");
        }
        match tokio::time::timeout(SETTLE_MAX, store.close()).await {
            Ok(closed) => closed.map_err(Error::Close)?,
            Err(_) => tracing::warn!("the store is still busy; it is whole as it is"),
        }
        tracing::info!("stopped");
        Ok(())
    }
}
