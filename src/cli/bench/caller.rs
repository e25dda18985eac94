//! The caller of a benchmark: keeps so many executions going or starts so many a second, and checks what comes out.

use super::{Load, chain, connect::connect, process};
use crate::{
    cli::error::Error,
    clock::{self, Clock as _, SystemClock},
    proto::{
        admin::{StartExecutionRequest, WaitExecutionRequest, admin_service_client::AdminServiceClient},
        workflow::{Execution, Payload, execution::State, payload::Content},
    },
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::task::JoinSet;
use tonic::{Code, transport::Channel};

/// Connections to a server to spread the calls over; one alone is a single task of the server's.
const CONNECTIONS_MAX: u32 = 4;

/// How long executions that are under way at the end may take to end, so that none is left behind.
const TAIL: Duration = Duration::from_secs(30);

/// How long a call waits for the end of an execution.
const WAIT: Duration = Duration::from_secs(50);

/// After an error, so that a server that is away is not asked in a tight loop.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

/// At a rate, how often what is due is started.
const BETWEEN_OFFERS: Duration = Duration::from_millis(1);

/// Starts executions and waits for them.
#[derive(Debug, clap::Args)]
pub(super) struct Caller {
    /// Servers, `HOST:PORT`; the executions are spread over them
    #[arg(long = "server", required = true)]
    servers: Vec<String>,
    #[command(flatten)]
    load: Load,
}

/// What the caller tells while it works.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message {
    /// The warm-up is over.
    Measuring,
    /// So many ended in so many seconds so far, the warm-up included.
    Tick {
        /// Since the beginning.
        seconds: f64,
        /// Ended well.
        workflows: f64,
    },
    /// The measured time is over.
    Measured,
    /// The last execution has ended.
    Done(Measured),
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct Measured {
    /// Length of the measured time.
    pub(super) seconds: f64,
    /// Executions that ended well in it.
    pub(super) workflows: u64,
    /// From the start call to the end seen, of those.
    pub(super) latency: Latency,
    /// Starts that the server refused since it has enough to do (RESOURCE_EXHAUSTED), warm-up included.
    pub(super) refused: u64,
    /// Other calls that failed, and executions that did not end as they should, warm-up and tail included.
    pub(super) errors: u64,
    /// What the first of them was; empty without errors.
    pub(super) first_error: String,
}

/// Percentiles, in milliseconds; 0 if nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct Latency {
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

impl Latency {
    /// From how long each took, in microseconds.
    pub(super) fn of(mut micros: Vec<u64>) -> Self {
        micros.sort_unstable();
        // Nearest rank: the smallest value that at least this share of all does not exceed.
        let rank = |share: usize| (micros.len() * share).div_ceil(100).saturating_sub(1);
        let millis = |at: usize| {
            let value = u32::try_from(micros.get(at).copied().unwrap_or(0)).unwrap_or(u32::MAX);
            f64::from(value) / 1_000.0
        };
        Self { p50: millis(rank(50)), p90: millis(rank(90)), p99: millis(rank(99)), max: millis(rank(100)) }
    }
}

/// What all loops share.
struct Shared {
    clock: SystemClock,
    workflow: String,
    /// Measured from this instant on …
    from: Duration,
    /// … until this one, after which nothing new is started.
    until: Duration,
    /// Number of the next execution, for its input.
    next: AtomicU64,
    /// Ended well, for progress.
    ended: AtomicU64,
    /// Asked for, of which nothing has been heard yet.
    open: AtomicU64,
}

/// What one loop has seen.
#[derive(Default)]
struct Seen {
    latencies_micros: Vec<u64>,
    refused: u64,
    errors: u64,
    first_error: String,
}

impl Caller {
    pub(super) async fn run(self) -> Result<(), Error> {
        tokio::select! {
            done = self.work() => done,
            () = process::told_to_stop() => Ok(()),
        }
    }

    async fn work(&self) -> Result<(), Error> {
        let Load { concurrency, rate, duration, warm_up, .. } = self.load;
        let mut connections = Vec::new();
        let each = u32::try_from(self.servers.len()).expect("there are few servers");
        let wanted = if rate.is_some() { CONNECTIONS_MAX } else { concurrency.div_ceil(each) };
        for _ in 0..wanted.min(CONNECTIONS_MAX) {
            for server in &self.servers {
                connections.push(connect(server).await?);
            }
        }
        let clock = SystemClock::starting_at(None);
        let start = clock.monotonic();
        let shared = Arc::new(Shared {
            clock,
            workflow: self.load.workflow().name(),
            from: start + warm_up,
            until: start + warm_up + duration,
            next: AtomicU64::new(1),
            ended: AtomicU64::new(0),
            open: AtomicU64::new(0),
        });
        let mut loops = JoinSet::new();
        if let Some(rate) = rate {
            loops.spawn(offer(Arc::clone(&shared), connections, rate));
        } else {
            for (_, channel) in (0..concurrency).zip(connections.iter().cycle()) {
                loops.spawn(keep_going(Arc::clone(&shared), AdminServiceClient::new(channel.clone())));
            }
        }

        tell_progress(&shared, start, shared.from).await?;
        process::say(&Message::Measuring)?;
        tell_progress(&shared, start, shared.until).await?;
        process::say(&Message::Measured)?;

        let mut all = Seen::default();
        let collect = async {
            while let Some(seen) = loops.join_next().await {
                all.add(seen.expect("a loop does not panic"));
            }
        };
        if tokio::time::timeout(TAIL, collect).await.is_err() {
            let left = shared.open.load(Ordering::Relaxed);
            all.add(Seen { errors: left, first_error: format!("{left} executions did not end"), ..Seen::default() });
        }
        process::say(&Message::Done(Measured {
            seconds: duration.as_secs_f64(),
            workflows: u64::try_from(all.latencies_micros.len()).expect("a count fits"),
            latency: Latency::of(all.latencies_micros),
            refused: all.refused,
            errors: all.errors,
            first_error: all.first_error,
        }))
    }
}

impl Seen {
    fn add(&mut self, other: Self) {
        self.latencies_micros.extend(other.latencies_micros);
        self.refused += other.refused;
        self.errors += other.errors;
        if self.first_error.is_empty() {
            self.first_error = other.first_error;
        }
    }
}

/// Says once a second how far it is, until that instant.
async fn tell_progress(shared: &Shared, start: Duration, until: Duration) -> Result<(), Error> {
    loop {
        let now = shared.clock.monotonic();
        if now >= until {
            return Ok(());
        }
        clock::sleep((until - now).min(Duration::from_secs(1))).await;
        let seconds = (shared.clock.monotonic() - start).as_secs_f64();
        let workflows = f64::from(u32::try_from(shared.ended.load(Ordering::Relaxed)).unwrap_or(u32::MAX));
        process::say(&Message::Tick { seconds, workflows })?;
    }
}

/// One execution after the other until the time is over.
async fn keep_going(shared: Arc<Shared>, mut client: AdminServiceClient<Channel>) -> Seen {
    let mut seen = Seen::default();
    while shared.clock.monotonic() < shared.until {
        let one = run_one(&shared, &mut client).await;
        let is_well = one.refused + one.errors == 0;
        seen.add(one);
        if !is_well {
            clock::sleep(PAUSE_AFTER_ERROR).await;
        }
    }
    seen
}

/// So many executions a second until the time is over, whatever has become of the earlier ones; then waits for them.
async fn offer(shared: Arc<Shared>, connections: Vec<Channel>, rate: u32) -> Seen {
    let start = shared.clock.monotonic();
    let mut clients = connections.into_iter().map(AdminServiceClient::new).cycle();
    let mut under_way = JoinSet::new();
    let mut seen = Seen::default();
    let mut offered = 0;
    loop {
        let now = shared.clock.monotonic();
        if now >= shared.until {
            break;
        }
        let due = (now - start).as_micros() * u128::from(rate) / 1_000_000;
        while offered < due {
            offered += 1;
            let (shared, mut client) = (Arc::clone(&shared), clients.next().expect("there is a connection"));
            under_way.spawn(async move { run_one(&shared, &mut client).await });
        }
        while let Some(one) = under_way.try_join_next() {
            seen.add(one.expect("a call does not panic"));
        }
        clock::sleep(BETWEEN_OFFERS).await;
    }
    while let Some(one) = under_way.join_next().await {
        seen.add(one.expect("a call does not panic"));
    }
    seen
}

/// One execution, and what was seen of it.
async fn run_one(shared: &Shared, client: &mut AdminServiceClient<Channel>) -> Seen {
    let start = shared.clock.monotonic();
    let input = chain::input(shared.next.fetch_add(1, Ordering::Relaxed));
    shared.open.fetch_add(1, Ordering::Relaxed);
    let result = run_to_end(client, &shared.workflow, &input).await;
    shared.open.fetch_sub(1, Ordering::Relaxed);
    match result {
        Ok(()) => {
            let end = shared.clock.monotonic();
            shared.ended.fetch_add(1, Ordering::Relaxed);
            let counts = (shared.from..shared.until).contains(&end);
            let micros = u64::try_from((end - start).as_micros()).unwrap_or(u64::MAX);
            Seen { latencies_micros: counts.then_some(micros).into_iter().collect(), ..Seen::default() }
        }
        Err(Trouble::Refused(_)) => Seen { refused: 1, ..Seen::default() },
        Err(Trouble::Error(first_error)) => Seen { errors: 1, first_error, ..Seen::default() },
    }
}

/// Why an execution did not end as it should; the text says what went wrong.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The server has enough to do; nothing was started.
    Refused(String),
    /// A call failed, or what came out is not what should.
    Error(String),
}

impl Trouble {
    /// What went wrong.
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Refused(text) | Self::Error(text) => text,
        }
    }
}

/// Starts an execution, waits for its end and compares its output with its input.
pub(super) async fn run_to_end(
    client: &mut AdminServiceClient<Channel>,
    workflow: &str,
    input: &str,
) -> Result<(), Trouble> {
    let request = StartExecutionRequest {
        workflow: workflow.to_owned(),
        input: Some(Payload { content: Some(Content::Json(input.to_owned())) }),
        ..StartExecutionRequest::default()
    };
    let started = client.start_execution(request).await.map_err(|status| {
        let text = format!("start: {status}");
        if status.code() == Code::ResourceExhausted { Trouble::Refused(text) } else { Trouble::Error(text) }
    })?;
    let started = started.into_inner();
    loop {
        let request = WaitExecutionRequest {
            id: started.id.clone(),
            uid: started.uid.clone(),
            wait_duration: Some(prost_types::Duration::try_from(WAIT).expect("50 s fit")),
        };
        let response =
            client.wait_execution(request).await.map_err(|status| Trouble::Error(format!("wait: {status}")))?;
        let execution = response.into_inner().execution.unwrap_or_default();
        match execution.state() {
            State::Running | State::Paused | State::WindingDown => {}
            State::Succeeded if output(&execution).is_some_and(|output| output == input) => return Ok(()),
            State::Succeeded => {
                let text = format!("{}: the output is {:?} and not {input}", started.id, output(&execution));
                return Err(Trouble::Error(text));
            }
            state @ (State::Unspecified | State::Failed | State::Cancelled | State::TimedOut | State::Terminated) => {
                let text = format!("{} ended {}: {:?}", started.id, state.as_str_name(), execution.failure);
                return Err(Trouble::Error(text));
            }
        }
    }
}

fn output(execution: &Execution) -> Option<&String> {
    match execution.output.as_ref()?.content.as_ref()? {
        Content::Json(text) => Some(text),
        Content::Value(_) | Content::Reference(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        assert_eq!(Latency::of(Vec::new()), Latency::default());
        assert_eq!(Latency::of(vec![2_000]), Latency { p50: 2.0, p90: 2.0, p99: 2.0, max: 2.0 });
        let hundred = (1..=100).rev().map(|millis| millis * 1_000).collect();
        assert_eq!(Latency::of(hundred), Latency { p50: 50.0, p90: 90.0, p99: 99.0, max: 100.0 });
    }
}
