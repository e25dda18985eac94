//! Runs a server: `server`, and `dev` for one to try things on.

use super::{
    database::{open, patiently, with_causes},
    error::Error,
    log,
    output::{Output, Tone},
    scratch::Scratch,
    table::{Cell, Table},
    version::VERSION,
};
use crate::{
    api,
    clock::{SystemClock, SystemEntropy},
    config::{self, Database, Tuning, parse_secretly},
    domain::Settings,
    engine::{self, Engine},
    gateway::{self, Gateway},
};
use std::{net::SocketAddr, sync::Arc};

/// Runs a server until SIGTERM or Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  orbit server --db /var/lib/orbit/orbit.db
  ORBIT_DB=/var/lib/orbit/orbit.db ORBIT_LISTEN=127.0.0.1:8080 orbit server
  PGPASSWORD=… orbit server --db 'postgres://orbit@db.example/orbit?sslmode=verify-full'

SIGTERM and Ctrl-C end it well: polls and streams are answered, calls that run get the drain timeout, then it exits
with 0. A second one ends it at once.")]
pub(super) struct Server {
    #[command(flatten)]
    config: config::Server,
}

/// Runs a server to try things on, and prints what to paste.
#[derive(Debug, clap::Args)]
pub(super) struct Dev {
    /// Database: a file, as a path or as `sqlite:PATH`, or `postgres://USER:PASSWORD@HOST:PORT/NAME` [default: a
    /// temporary file, removed at the end]
    // Without a variable: what names the production database must not make it the toy.
    #[arg(long = "db", value_name = "DATABASE", value_parser = parse_secretly::<Database>())]
    database: Option<Database>,
    /// Address for gRPC, HTTP/JSON and metrics, `IP:PORT`
    #[arg(long, env = "ORBIT_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:7070")]
    listen: SocketAddr,
    #[command(flatten)]
    tuning: Tuning,
}

impl Server {
    pub(super) fn run(self, output: Output) -> Result<(), Error> {
        let database = self.config.database.to_string();
        serve(&self.config, |address| {
            if output.is_json() {
                let line =
                    serde_json::json!({ "address": address.to_string(), "database": database, "version": VERSION });
                return output.line(&line.to_string());
            }
            output.line(&format!("orbit {VERSION} serves on {address}, data in {database}"))
        })
    }
}

impl Dev {
    pub(super) fn run(self, output: Output) -> Result<(), Error> {
        // Declared before the server runs, so that it is removed after the server's end.
        let scratch;
        let (database, note) = match self.database {
            Some(database) => (database, ""),
            None => {
                scratch = Scratch::new("orbit-dev")?;
                (Database::Sqlite(scratch.path().join("orbit.db")), " (removed at the end)")
            }
        };
        let shown = format!("{database}{note}");
        let config = config::Server { database, listen: self.listen, allow_anonymous: false, tuning: self.tuning };
        serve(&config, |address| greet(address, &shown, output))
    }
}

/// Serves until it is told to end. `started` tells the user once the port answers.
fn serve(config: &config::Server, started: impl FnOnce(SocketAddr) -> Result<(), Error>) -> Result<(), Error> {
    config.check().map_err(Error::usage)?;
    log::start(&config.tuning)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::failure(format!("cannot start the runtime: {error}")))?;
    let served = runtime.block_on(run(config, started));
    // Work that hangs must not keep the process: it was given its time while the server ended.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    served
}

async fn run(config: &config::Server, started: impl FnOnce(SocketAddr) -> Result<(), Error>) -> Result<(), Error> {
    let engine_config = engine::Config {
        settings: Settings {
            session_timeout: config.tuning.session_timeout,
            cancel_grace: config.tuning.cancel_grace,
            history_events_max: config.tuning.history_events_max,
            ..Settings::default()
        },
        cache_bytes_max: config.tuning.cache_bytes,
        retention: config.tuning.retention,
        slot_retention: config.tuning.slot_retention,
        active_executions_max: config.tuning.active_executions_max,
        ..engine::Config::default()
    };
    // The port first: a server that cannot have it has not touched the database.
    let server = api::Server::bind(api::Options::of(config)).await.map_err(|error| match error {
        api::Error::Listen(..) => failure(&error).hint("--listen takes another address; port 0 is any free port"),
        api::Error::RemoteWithoutCredentials(_) | api::Error::Close(_) => failure(&error),
    })?;
    let store =
        patiently(&config.database, config.tuning.postgres.wait, async || open(&config.database, &config.tuning).await)
            .await?;
    let clock = match store.opened().newest_now {
        Some(now) if store.is_shared() => SystemClock::starting_exactly_at(now),
        newest => SystemClock::starting_at(newest),
    };

    let shutdown = api::shutdown::requested();
    tokio::pin!(shutdown);
    // Its first poll takes the signals, so that one which comes right after the start-up line is not missed.
    tokio::select! {
        biased;
        listening = &mut shutdown => {
            return listening.map_err(|error| Error::failure(format!("cannot listen for signals: {error}")));
        }
        () = std::future::ready(()) => {}
    }
    let engine = Engine::start(store, Arc::new(clock), Arc::new(SystemEntropy), engine_config);
    engine.serve_http(&config.tuning.http);
    let everything_else = |services: &api::Services| {
        let gateway = Gateway::new(&services.admin, &services.worker, &services.schedules, gateway::Limits::default());
        move |request: gateway::Request| {
            let gateway = gateway.clone();
            async move { gateway.handle(request).await }
        }
    };
    started(server.address())?;
    let until = async {
        if let Err(error) = shutdown.await {
            tracing::error!(%error, "cannot listen for signals any more");
        }
    };
    server.serve(engine, everything_else, until).await.map_err(|error| failure(&error))
}

/// What went wrong with the server itself.
fn failure(error: &api::Error) -> Error {
    Error::failure(with_causes(error))
}

/// Where everything is, and lines to paste.
fn greet(address: SocketAddr, database: &str, output: Output) -> Result<(), Error> {
    let mut table = Table::default();
    table.field("Database", database);
    table.field("gRPC", address.to_string());
    table.field("HTTP/JSON", format!("http://{address}/v1/"));
    table.field("Metrics", format!("http://{address}/metrics"));
    table.field("Ready?", format!("http://{address}/readyz"));
    output.line(&format!("orbit {VERSION} serves until Ctrl-C"))?;
    output.table(&table)?;
    output.line("\nTo paste into another terminal:")?;
    let mut lines = Table::default();
    for line in [
        format!("curl http://{address}/v1/server"),
        format!("grpcurl -plaintext {address} orbit.admin.v1.AdminService/GetServerInfo"),
        format!("export ORBIT_SERVER={address}; orbit list"),
    ] {
        lines.row([Cell::from(" "), Cell::toned(Tone::Strong, line)]);
    }
    output.table(&lines)
}
