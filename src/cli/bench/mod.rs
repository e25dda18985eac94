//! Measures a server with real parts: `bench`.
//!
//! Server, worker and caller are processes of their own and talk over TCP, so nothing is cheaper than it is in use. A
//! workflow is a chain of task steps, each of which echoes its input of 250 bytes; the caller starts executions, waits
//! for their ends, and compares each output with what it should be.
//!
//! What counts is what ended within the measured time, after a warm-up. Latency is from the start call to the end seen.

mod caller;
mod chain;
mod connect;
mod process;
mod report;
mod worker;

use super::{
    client,
    error::Error,
    output::Output,
    scratch::Scratch,
    version::{PROFILE, VERSION},
};
use crate::{
    config::{Database, duration_between},
    proto::admin::{
        DeployDefinitionRequest, GetServerInfoRequest, GetServerInfoResponse, admin_service_client::AdminServiceClient,
        deploy_definition_request::Content,
    },
};
use caller::Measured;
use process::{Helper, Server, Usage};
use report::Report;
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
  orbit bench --db sqlite:/data/bench.db -o json
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
    /// Where its own server keeps its data: a directory, for files that are removed at the end, or `sqlite:FILE`, which
    /// must be new and stays [default: the system's directory for temporary files]
    #[arg(long, value_name = "DIR", conflicts_with = "server")]
    db: Option<Place>,
    #[command(flatten)]
    load: Load,
    /// How tasks reach the worker
    #[arg(long, value_enum, default_value = "stream")]
    mode: Mode,
}

/// How much is asked of the server, and for how long.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Load {
    /// Task steps of a workflow, one after the other: 1 to 1000
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    steps: u32,
    /// Executions at a time: 1 to 10000
    #[arg(long, value_name = "COUNT", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: u32,
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
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with("sqlite:") {
            let Database::Sqlite(path) = text.parse()?;
            return Ok(Self::File(path));
        }
        Ok(Self::Directory(PathBuf::from(text)))
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
        // Declared before the server, so that it is removed after the server's end.
        let scratch;
        let server = match &self.server {
            Some(_) => None,
            None => {
                let path = match &self.db {
                    Some(Place::File(path)) => path.clone(),
                    place => {
                        scratch = match place {
                            Some(Place::Directory(directory)) => Scratch::within(directory, "orbit-bench")?,
                            Some(Place::File(_)) | None => Scratch::new("orbit-bench")?,
                        };
                        scratch.path().join("orbit.db")
                    }
                };
                progress.show("starting a server");
                let server = Server::start(path).await?;
                if server.is_in_memory() {
                    progress.clear();
                    output.note("the database is in memory (tmpfs), where a commit costs nothing; --db names a disk");
                }
                Some(server)
            }
        };
        let address = match (&self.server, &server) {
            (Some(endpoint), _) => endpoint.uri().authority().map(ToString::to_string).unwrap_or_default(),
            (None, Some(server)) => server.address.clone(),
            (None, None) => unreachable!("without an address a server was started"),
        };
        let pid = self.server_pid.or(server.as_ref().map(|server| server.pid));

        let info = self.prepare(&address).await?;
        let worker = Helper::start(["worker", "--server", &address, "--mode", self.mode.name()])?;
        let Measurement { measured, cpu } = self.measure(&address, worker, pid, progress).await?;
        let report = Report {
            server: report::Server {
                cpu_us_per_step: cpu.map(|cpu| report::per_step(cpu, &measured, self.load.steps)),
                rss_bytes: pid.and_then(process::rss_bytes),
                db_bytes: server.as_ref().map(Server::db_bytes),
            },
            measured,
            store: info.store,
            mode: self.mode.name(),
            profile: PROFILE,
            version: info.version,
            steps: self.load.steps,
            concurrency: self.load.concurrency,
        };
        if let Some(server) = server {
            server.stop().await?;
        }
        progress.clear();
        report.show(output)
    }

    /// Deploys the chain and learns what the server is.
    async fn prepare(&self, address: &str) -> Result<GetServerInfoResponse, Error> {
        let channel = connect::connect(address).await?;
        let mut client = AdminServiceClient::new(channel);
        let request = DeployDefinitionRequest {
            content: Some(Content::Source(chain::source(self.load.steps))),
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
        address: &str,
        mut worker: Helper,
        pid: Option<u32>,
        progress: Progress,
    ) -> Result<Measurement, Error> {
        worker.expect_ready().await?;
        let mut caller = Helper::start(self.load.caller_arguments(address))?;
        let mut before: Option<Usage> = None;
        let mut cpu = None;
        let measured = loop {
            let message = tokio::select! {
                message = caller.next::<caller::Message>() => message?,
                () = worker.ended() => return Err(Error::failure("the worker ended too early")),
            };
            match message {
                caller::Message::Measuring => before = pid.and_then(process::usage),
                caller::Message::Tick { seconds, workflows } => {
                    let (rate, steps) = (workflows / seconds.max(0.001), f64::from(self.load.steps));
                    progress.show(&format!("{seconds:.0} s: {rate:.0} workflows/s, {:.0} steps/s", rate * steps));
                }
                caller::Message::Measured => {
                    let after = pid.and_then(process::usage);
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
    /// The command line of the process that puts this load on a server.
    fn caller_arguments(&self, address: &str) -> Vec<String> {
        let millis = |span: Duration| format!("{}ms", span.as_millis());
        [
            "caller",
            "--server",
            address,
            "--steps",
            &self.steps.to_string(),
            "--concurrency",
            &self.concurrency.to_string(),
            "--duration",
            &millis(self.duration),
            "--warm-up",
            &millis(self.warm_up),
        ]
        .map(ToOwned::to_owned)
        .to_vec()
    }
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
