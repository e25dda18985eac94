//! What executions cost that only wait: starts many that sleep for an hour, then looks at the server's memory and idle CPU,
//! kills it, and waits for the first result of its successor.

use super::{
    Progress,
    caller::{self, Latency},
    chain,
    connect::connect,
    process::{Server, Usage, database_bytes, rss_bytes},
    worker,
};
use crate::{
    cli::{
        client,
        error::Error,
        output::Output,
        table::Table,
        version::{PROFILE, VERSION},
    },
    clock::{self, Clock as _, SystemClock},
    config::Database,
    proto::{
        admin::{
            CountExecutionsRequest, DeployDefinitionRequest, StartExecutionRequest,
            admin_service_client::AdminServiceClient, deploy_definition_request::Content,
        },
        workflow::execution::State,
    },
};
use std::{
    cell::{Cell, RefCell},
    time::Duration,
};
use tonic::transport::Channel;

/// Connections to spread the starts over; one alone is a single task of the server's.
const CONNECTIONS_MAX: usize = 4;

/// Rest between the last start and the look at the idle server, so that what the starts left behind is not counted.
const SETTLE: Duration = Duration::from_secs(5);

/// The workflow that sleeps.
const NAME: &str = "bench-sleep";

const SOURCE: &str = "name: bench-sleep\nversion: 1.0.0\ndescription: Sleeps for an hour.\n\
                      steps:\n  - {id: rest, sleep: {for: 1h}}\n";

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sleepers {
    /// How many executions.
    pub(super) count: u32,
    /// Start calls at a time.
    pub(super) concurrency: u32,
    /// How long the idle server is watched.
    pub(super) idle: Duration,
}

/// What was found.
#[derive(Debug, serde::Serialize)]
struct Found {
    sleepers: u32,
    starts_per_second: f64,
    start_latency_ms: Latency,
    rss_bytes: Option<u64>,
    idle_cpu_percent: Option<f64>,
    restart_to_first_result_ms: f64,
    db_bytes: Option<u64>,
    store: String,
    profile: &'static str,
    version: &'static str,
    concurrency: u32,
    idle_seconds: f64,
}

impl Sleepers {
    /// Measures on a server of its own on this database, and prints what was found.
    pub(super) async fn run(self, database: &Database, progress: Progress, output: Output) -> Result<(), Error> {
        let clock = SystemClock::starting_at(None);
        let server = Server::start(database).await?;
        let mut client = AdminServiceClient::new(connect(&server.address).await?);
        for (name, source) in [("sleep.yaml", SOURCE.to_owned()), ("bench.yaml", chain::Workflow::Steps(1).source())] {
            let request = DeployDefinitionRequest {
                content: Some(Content::Source(source)),
                file_name: name.to_owned(),
                validate_only: false,
            };
            client.deploy_definition(client::call(request)).await?;
        }

        let (starts_per_second, start_latency_ms) = self.start_all(&server.address, &clock, progress).await?;
        progress.show("letting the server come to rest");
        clock::sleep(SETTLE).await;
        let before = (Usage::of(&[server.pid]), clock.monotonic());
        progress.show(&format!("watching the idle server for {:?}", self.idle));
        clock::sleep(self.idle).await;
        let used = before.0.zip(Usage::of(&[server.pid])).map(|(before, after)| after.since(before));
        let seconds = (clock.monotonic() - before.1).as_secs_f64();
        let idle_cpu_percent = used.map(|used| rounded(used.as_secs_f64() / seconds * 100.0, 1_000.0));
        let rss_bytes = rss_bytes(server.pid);
        let db_bytes = database_bytes(&server.address).await;
        drop(client);

        progress.show("killing the server");
        let killed = clock.monotonic();
        server.kill().await?;
        let server = Server::start(database).await?;
        let store = first_result(&server.address).await?;
        let restart = clock.monotonic() - killed;
        self.demand_all(&server.address).await?;
        server.stop().await?;

        progress.clear();
        Found {
            sleepers: self.count,
            starts_per_second: rounded(starts_per_second, 1.0),
            start_latency_ms,
            rss_bytes,
            idle_cpu_percent,
            restart_to_first_result_ms: rounded(restart.as_secs_f64() * 1_000.0, 10.0),
            db_bytes,
            store,
            profile: PROFILE,
            version: VERSION,
            concurrency: self.concurrency,
            idle_seconds: rounded(seconds, 10.0),
        }
        .show(output)
    }

    /// Starts all of them; their number a second, and how long a start took.
    async fn start_all(&self, address: &str, clock: &SystemClock, progress: Progress) -> Result<(f64, Latency), Error> {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            connections.push(AdminServiceClient::new(connect(address).await?));
        }
        let next = Cell::new(0);
        let micros = RefCell::new(Vec::with_capacity(self.count as usize));
        let begun = clock.monotonic();
        let loops = connections.iter().cycle().take(self.concurrency as usize).map(|client| {
            let mut client = client.clone();
            let (next, micros) = (&next, &micros);
            async move {
                while next.get() < self.count {
                    next.set(next.get() + 1);
                    let start = clock.monotonic();
                    let request = StartExecutionRequest { workflow: NAME.to_owned(), ..Default::default() };
                    client.start_execution(client::call(request)).await?;
                    let took = (clock.monotonic() - start).as_micros();
                    let mut all = micros.borrow_mut();
                    all.push(u64::try_from(took).unwrap_or(u64::MAX));
                    if all.len() % 1_000 == 0 {
                        progress.show(&format!("{} of {} started", all.len(), self.count));
                    }
                }
                Ok::<_, Error>(())
            }
        });
        futures_util::future::try_join_all(loops).await?;
        let seconds = (clock.monotonic() - begun).as_secs_f64();
        Ok((f64::from(self.count) / seconds.max(1e-6), Latency::of(micros.into_inner())))
    }

    /// Refuses a result after which a sleeper is missing.
    async fn demand_all(&self, address: &str) -> Result<(), Error> {
        let mut client = AdminServiceClient::new(connect(address).await?);
        let counts = client.count_executions(client::call(CountExecutionsRequest {})).await?.into_inner().counts;
        let running = counts.iter().find(|entry| entry.state() == State::Running).map_or(0, |entry| entry.count);
        if running == i64::from(self.count) {
            return Ok(());
        }
        Err(Error::failure(format!("{} executions slept before the kill and {running} after it", self.count)))
    }
}

/// Runs an execution of one task to its end, with a worker that registers for it; the name of the server's store.
async fn first_result(address: &str) -> Result<String, Error> {
    let channel: Channel = connect(address).await?;
    let mut client = AdminServiceClient::new(channel.clone());
    let work = worker::do_one(channel);
    let called = async {
        let input = chain::input(1);
        caller::run_to_end(&mut client, &chain::Workflow::Steps(1).name(), &input)
            .await
            .map_err(|trouble| Error::failure(trouble.into_text()))
    };
    tokio::try_join!(work, called)?;
    Ok(client.get_server_info(client::call(crate::proto::admin::GetServerInfoRequest {})).await?.into_inner().store)
}

impl Found {
    fn show(&self, output: Output) -> Result<(), Error> {
        if output.is_json() {
            return output.line(&serde_json::to_string_pretty(self).expect("numbers and texts have a JSON form"));
        }
        let mebibytes =
            |bytes: u64| format!("{:.1} MiB", f64::from(u32::try_from(bytes >> 10).unwrap_or(u32::MAX)) / 1_024.0);
        let Latency { p50, p99, .. } = self.start_latency_ms;
        let mut table = Table::default();
        table.field("Sleepers", self.sleepers.to_string());
        table.field("Starts/s", format!("{:.0}", self.starts_per_second));
        table.field("Start latency", format!("p50 {p50:.2} ms, p99 {p99:.2} ms, {} at a time", self.concurrency));
        table.field("Server memory", self.rss_bytes.map(mebibytes).unwrap_or_default());
        let idle =
            self.idle_cpu_percent.map(|percent| format!("{percent:.2} % of a core over {} s", self.idle_seconds));
        table.field("Idle CPU", idle.unwrap_or_default());
        table.field("Kill to first result", format!("{:.0} ms", self.restart_to_first_result_ms));
        table.field("Database", self.db_bytes.map(mebibytes).unwrap_or_default());
        table.field("Measured", self.store.clone());
        table.field("Version", format!("{} ({})", self.version, self.profile));
        output.table(&table)
    }
}

/// Cut at so many parts of one: more decimals would only pretend to precision.
fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}
