//! Measures a server with real parts: `bench`.
//!
//! Server, worker and caller are processes of their own and talk over TCP, so nothing is cheaper than it is in use. A
//! workflow is a chain of task steps, each of which echoes its input of 250 bytes, or one step that goes through many
//! items; the caller starts executions, waits for their ends, and compares each output with what it should be.
//!
//! Several servers on one database get a share of the calls each: the caller spreads its executions over all of them, and
//! the worker has a session at each.
//!
//! What counts is what ended within the measured time, after a warm-up. Latency is from the start call to the end seen.

mod caller;
mod chain;
mod connect;
mod process;
mod report;
mod sleepers;
mod worker;

use super::{
    client,
    error::Error,
    output::Output,
    scratch::Scratch,
    version::{PROFILE, VERSION},
};
use crate::{
    config::{Database, PostgresUrl, duration_between, parse_secretly},
    proto::admin::{
        DeployDefinitionRequest, GetServerInfoRequest, GetServerInfoResponse, admin_service_client::AdminServiceClient,
        deploy_definition_request::Content,
    },
    store::Schema,
};
use caller::Measured;
use process::{Helper, Server, Usage};
use report::Report;
use sleepers::Sleepers;
use std::{
    io::{IsTerminal as _, Write as _},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};
use tonic::transport::Endpoint;

/// Measures workflows per second and their latency, on a server of its own or a running one.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  orbit bench
  orbit bench --steps 1 --concurrency 1            # latency of one step alone
  orbit bench --items 10000 --concurrency 1 --slots 128
  orbit bench --rate 5000                          # more than it bears: what is refused, and what becomes of the rest
  orbit bench --sleepers 1000000
  orbit bench --db sqlite:/data/bench.db -o json
  orbit bench --db postgres://orbit@localhost/bench --nodes 2
  orbit bench --server 127.0.0.1:7070 --duration 1m"
)]
pub(super) struct Bench {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    plan: Plan,
}

/// The processes that a benchmark starts.
#[derive(Debug, clap::Subcommand)]
enum Role {
    /// Does the tasks.
    #[command(hide = true)]
    Worker(worker::Worker),
    /// Starts executions and waits for them.
    #[command(hide = true)]
    Caller(caller::Caller),
}

#[derive(Debug, clap::Args)]
struct Plan {
    /// Server to measure, `HOST:PORT` [default: one of its own, on a new database]
    #[arg(long, value_name = "ADDRESS", value_parser = client::parse_endpoint)]
    server: Option<Endpoint>,
    /// Process of that server on this machine, for its CPU and memory
    #[arg(long, value_name = "PID", requires = "server")]
    server_pid: Option<u32>,
    /// Where its own server keeps its data: a directory, for files that are removed at the end; `sqlite:FILE`, which
    /// must be new and stays; or `postgres://USER@HOST/NAME`, which must have no executions and is left full of them
    /// [default: the system's directory for temporary files]
    #[arg(long, value_name = "PLACE", conflicts_with = "server", value_parser = parse_secretly::<Place>())]
    db: Option<Place>,
    /// Takes a PostgreSQL database that has executions already; they stay, and servers that use it get the load too
    #[arg(long, requires = "db")]
    reuse: bool,
    /// Servers of its own on one PostgreSQL database, each with a worker and its share of the calls: 1 to 16
    #[arg(long, value_name = "COUNT", default_value_t = 1, conflicts_with = "server",
          value_parser = clap::value_parser!(u16).range(1..=16))]
    nodes: u16,
    /// Instead of work, starts so many executions that sleep for an hour and shows what they cost: starts a second, the
    /// server's memory and idle CPU, and the time from `kill -9` to its successor's first result: 1 to 10000000
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["server", "nodes", "steps", "items", "rate", "duration", "warm_up", "mode", "slots"],
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    sleepers: Option<u32>,
    /// With `--sleepers`, how long the idle server is watched: 1s to 1h
    #[arg(long, value_name = "DURATION", default_value = "60s", requires = "sleepers",
          value_parser = duration_between(Duration::from_secs(1), Duration::from_hours(1)))]
    idle: Duration,
    #[command(flatten)]
    load: Load,
    /// How tasks reach the worker
    #[arg(long, value_enum, default_value = "stream")]
    mode: Mode,
    /// Tasks that the worker takes at a time, at each server: 1 to 10000
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    slots: u16,
}

/// How much is asked of the server, and for how long.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Load {
    /// Task steps of a workflow, one after the other: 1 to 1000
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    steps: u32,
    /// Instead of steps in a row, one step that goes through so many items with `for_each`: 1 to 100000
    #[arg(long, value_name = "COUNT", conflicts_with = "steps",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    items: Option<u32>,
    /// Executions at a time: 1 to 10000
    #[arg(long, value_name = "COUNT", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: u32,
    /// Instead, starts so many executions a second, whatever has become of the earlier ones: 1 to 100000
    #[arg(long, value_name = "COUNT", conflicts_with = "concurrency",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: Option<u32>,
    /// How long to measure: 100ms to 24h
    #[arg(long, value_name = "DURATION", default_value = "10s",
          value_parser = duration_between(Duration::from_millis(100), Duration::from_hours(24)))]
    duration: Duration,
    /// How long to run before that: 0s to 1h
    #[arg(long, value_name = "DURATION", default_value = "2s",
          value_parser = duration_between(Duration::ZERO, Duration::from_hours(1)))]
    warm_up: Duration,
}

/// How tasks reach the worker and reports the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Mode {
    /// One stream, with credits and batched frames.
    Stream,
    /// A call for each poll and each report.
    Poll,
}

impl Mode {
    const fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Poll => "poll",
        }
    }
}

/// Where the data of a server of its own goes.
#[derive(Clone, Debug)]
enum Place {
    /// Into a new directory under this one.
    Directory(PathBuf),
    /// Into this file.
    File(PathBuf),
    /// Into this database.
    Postgres(PostgresUrl),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse()? {
            Database::Sqlite(path) if text.starts_with("sqlite:") => Ok(Self::File(path)),
            Database::Sqlite(path) => Ok(Self::Directory(path)),
            Database::Postgres(url) => Ok(Self::Postgres(url)),
        }
    }
}

impl Bench {
    pub(super) fn run(self, output: Output) -> Result<(), Error> {
        match self.role {
            Some(Role::Worker(worker)) => super::call(worker.run()),
            Some(Role::Caller(caller)) => super::call(caller.run()),
            None => super::call(async {
                tokio::select! {
                    done = self.plan.run(output) => done,
                    // Dropping the plan ends its processes and removes its files.
                    _ = tokio::signal::ctrl_c() => Err(Error::Said(super::exit::Exit::Interrupted)),
                }
            }),
        }
    }
}

impl Plan {
    async fn run(self, output: Output) -> Result<(), Error> {
        let progress = Progress { shown: std::io::stderr().is_terminal() && !output.is_json() };
        // Declared before the servers, so that it is removed after their end.
        let mut scratch = None;
        if let Some(count) = self.sleepers {
            let database = self.place(&mut scratch)?;
            self.demand_unused(&database).await?;
            let Self { idle, load: Load { concurrency, .. }, .. } = self;
            return Sleepers { count, concurrency, idle }.run(&database, progress, output).await;
        }
        let mut servers = Vec::new();
        let (addresses, pids) = match &self.server {
            Some(endpoint) => {
                let address = endpoint.uri().authority().map(ToString::to_string).unwrap_or_default();
                (vec![address], self.server_pid.into_iter().collect())
            }
            None => {
                progress.show("starting a server");
                let database = self.place(&mut scratch)?;
                self.demand_unused(&database).await?;
                for _ in 0..self.nodes {
                    servers.push(Server::start(&database).await?);
                }
                if process::is_in_memory(&database) {
                    progress.clear();
                    output.note("the database is in memory (tmpfs), where a commit costs nothing; --db names a disk");
                }
                servers.iter().map(|server| (server.address.clone(), server.pid)).unzip::<_, _, Vec<_>, Vec<_>>()
            }
        };

        let info = self.prepare(&addresses[0]).await?;
        let worker = Helper::start(with_servers(
            ["worker", "--mode", self.mode.name(), "--slots", &self.slots.to_string()],
            &addresses,
        ))?;
        let Measurement { measured, cpu } = self.measure(&addresses, worker, &pids, progress).await?;
        let report = Report {
            server: report::Server {
                cpu_us_per_step: cpu.map(|cpu| report::per_step(cpu, &measured, self.load.tasks())),
                rss_bytes: sum(&pids, process::rss_bytes),
                db_bytes: process::database_bytes(&addresses[0]).await,
            },
            measured,
            store: info.store,
            nodes: addresses.len(),
            mode: self.mode.name(),
            profile: PROFILE,
            version: info.version,
            steps: self.load.tasks(),
            shape: if self.load.items.is_some() { "items" } else { "steps" },
            concurrency: self.load.rate.is_none().then_some(self.load.concurrency),
            offered_per_second: self.load.rate,
        };
        for server in servers {
            server.stop().await?;
        }
        progress.clear();
        report.show(output)
    }

    /// The database of servers of its own; `scratch` keeps the directory that was made for it.
    fn place(&self, scratch: &mut Option<Scratch>) -> Result<Database, Error> {
        let directory = match &self.db {
            Some(Place::Postgres(url)) => return Ok(Database::Postgres(url.clone())),
            _ if self.nodes > 1 => {
                return Err(Error::usage("several nodes need a PostgreSQL database: --db postgres://…"));
            }
            Some(Place::File(path)) => return Ok(Database::Sqlite(path.clone())),
            Some(Place::Directory(directory)) => Scratch::within(directory, "orbit-bench")?,
            None => Scratch::new("orbit-bench")?,
        };
        Ok(Database::Sqlite(scratch.insert(directory).path().join("orbit.db")))
    }

    /// Refuses a database that somebody may need. A server of another schema would change it, so it is not even started.
    async fn demand_unused(&self, database: &Database) -> Result<(), Error> {
        let Schema { found, known, .. } = match database {
            Database::Sqlite(path) if path.exists() => {
                return Err(Error::usage(format!("{} exists; a benchmark needs a new database", path.display())));
            }
            Database::Sqlite(_) => return Ok(()),
            Database::Postgres(_) => super::database::schema(database).await?,
        };
        if found != 0 && found != known {
            let text =
                format!("{database} has schema {found} and this version {known}; a benchmark needs an empty one");
            return Err(Error::usage(text));
        }
        if found == 0 || self.reuse {
            return Ok(());
        }
        match super::database::executions(database).await? {
            0 => Ok(()),
            count => {
                Err(Error::usage(format!("{database} has {count} executions; a benchmark needs an empty database"))
                    .hint("--reuse measures on it all the same, and leaves more executions in it"))
            }
        }
    }

    /// Deploys the chain and learns what the server is.
    async fn prepare(&self, address: &str) -> Result<GetServerInfoResponse, Error> {
        let channel = connect::connect(address).await?;
        let mut client = AdminServiceClient::new(channel);
        let request = DeployDefinitionRequest {
            content: Some(Content::Source(self.load.workflow().source())),
            file_name: "bench.yaml".to_owned(),
            validate_only: false,
        };
        client.deploy_definition(client::call(request)).await?;
        let info = client.get_server_info(client::call(GetServerInfoRequest {})).await?.into_inner();
        if self.server.is_none() && info.version != VERSION {
            return Err(Error::failure(format!("the server that was started has version {}", info.version)));
        }
        Ok(info)
    }

    /// Runs the caller to its end. The worker must live as long.
    async fn measure(
        &self,
        addresses: &[String],
        mut worker: Helper,
        pids: &[u32],
        progress: Progress,
    ) -> Result<Measurement, Error> {
        worker.expect_ready().await?;
        let mut caller = Helper::start(with_servers(self.load.caller_arguments(), addresses))?;
        let mut before: Option<Usage> = None;
        let mut cpu = None;
        let measured = loop {
            let message = tokio::select! {
                message = caller.next::<caller::Message>() => message?,
                () = worker.ended() => return Err(Error::failure("the worker ended too early")),
            };
            match message {
                caller::Message::Measuring => before = Usage::of(pids),
                caller::Message::Tick { seconds, workflows } => {
                    let (rate, steps) = (workflows / seconds.max(0.001), f64::from(self.load.tasks()));
                    progress.show(&format!("{seconds:.0} s: {rate:.0} workflows/s, {:.0} steps/s", rate * steps));
                }
                caller::Message::Measured => {
                    let after = Usage::of(pids);
                    cpu = before.zip(after).map(|(before, after)| after.since(before));
                }
                caller::Message::Done(measured) => break measured,
            }
        };
        worker.stop().await?;
        Ok(Measurement { measured, cpu })
    }
}

/// What a run gave.
struct Measurement {
    measured: Measured,
    /// CPU time of the server while it was measured; none if its process is unknown.
    cpu: Option<Duration>,
}

impl Load {
    /// What is measured.
    fn workflow(&self) -> chain::Workflow {
        self.items.map_or(chain::Workflow::Steps(self.steps), chain::Workflow::Items)
    }

    /// Tasks of one execution.
    fn tasks(&self) -> u32 {
        self.items.unwrap_or(self.steps)
    }

    /// The command line of the process that puts this load on servers.
    fn caller_arguments(&self) -> Vec<String> {
        let millis = |span: Duration| format!("{}ms", span.as_millis());
        let (shape, tasks) = if self.items.is_some() { ("--items", self.tasks()) } else { ("--steps", self.tasks()) };
        let (how, many) = self.rate.map_or(("--concurrency", self.concurrency), |rate| ("--rate", rate));
        [
            "caller",
            shape,
            &tasks.to_string(),
            how,
            &many.to_string(),
            "--duration",
            &millis(self.duration),
            "--warm-up",
            &millis(self.warm_up),
        ]
        .map(ToOwned::to_owned)
        .to_vec()
    }
}

/// A command line with a `--server` for each.
fn with_servers<A: Into<String>>(arguments: impl IntoIterator<Item = A>, addresses: &[String]) -> Vec<String> {
    let servers = addresses.iter().flat_map(|address| ["--server".to_owned(), address.clone()]);
    arguments.into_iter().map(Into::into).chain(servers).collect()
}

/// The sum over all processes; none if there are none, or of one it is not known.
fn sum(pids: &[u32], bytes: impl Fn(u32) -> Option<u64>) -> Option<u64> {
    if pids.is_empty() { None } else { pids.iter().map(|pid| bytes(*pid)).sum() }
}

/// One line on stderr that is written over, for people who wait.
#[derive(Clone, Copy)]
struct Progress {
    shown: bool,
}

impl Progress {
    fn show(self, text: &str) {
        if self.shown {
            let _ = write!(std::io::stderr().lock(), "\r\u{1b}[K{text}");
        }
    }

    fn clear(self) {
        self.show("");
    }
}
