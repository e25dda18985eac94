//! Names of metrics, with their unit and meaning; the only place that spells them.
//!
//! Prefix `orbit_` (but for the RPC histogram, whose name OpenTelemetry gives), base units, no ids as labels.
//! To add one: a constant here with its `describe_…` line in [`describe`], the line that records it where it happens, and
//! its line in `docs/operations.md` (`tests/tidy.rs` looks).

use metrics::{Counter, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::{
    collections::HashMap,
    sync::{OnceLock, PoisonError, RwLock},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// Gauge, 1: version and store of the server.
pub const BUILD_INFO: &str = "orbit_build_info";
/// Histogram, seconds: calls of `rpc_method` that ended with `rpc_status_code`. Polls and waits include their hold.
pub const CALL_DURATION: &str = "rpc_server_call_duration_seconds";
/// Gauge: calls of `rpc_method` that run; parked polls among them.
pub const CALLS_IN_FLIGHT: &str = "orbit_rpc_in_flight";
/// Gauge: connections that are open.
pub const CONNECTIONS: &str = "orbit_connections";
/// Gauge: streams of workers that are open.
pub const TASK_STREAMS: &str = "orbit_task_streams";
/// Gauge, 1 or 0: whether the server takes new work: neither draining nor without its database.
pub const READY: &str = "orbit_ready";
/// Gauge, bytes: size of the database with its log.
pub const DATABASE_BYTES: &str = "orbit_db_size_bytes";
/// Gauge, bytes: size of the write-ahead log alone.
pub const LOG_BYTES: &str = "orbit_sqlite_wal_bytes";
/// Gauge: connections to PostgreSQL that reads and writes beside commits have in use; at most `--db-connections`.
pub const DATABASE_CONNECTIONS: &str = "orbit_db_connections_in_use";
/// Gauge: reads and writes beside commits that wait for a connection to PostgreSQL.
pub const DATABASE_WAITING: &str = "orbit_db_connections_waiting";
/// Gauge: executions in a `state`.
pub const EXECUTIONS: &str = "orbit_executions";

/// Histogram: appends of one commit batch.
pub const COMMIT_BATCH_APPENDS: &str = "orbit_commit_batch_appends";
/// Histogram, seconds: commits of one batch, from its beginning to the answer; retries within the store included.
pub const COMMIT_DURATION: &str = "orbit_commit_duration_seconds";
/// Histogram, seconds: looks whether other nodes have written to an execution.
pub const PROBE_DURATION: &str = "orbit_probe_duration_seconds";
/// Histogram, seconds: from when a timer was due to when it fired.
pub const TIMER_LAG: &str = "orbit_timer_lag_seconds";
/// Counter: executions whose rows were all removed.
pub const EXECUTIONS_DELETED: &str = "orbit_executions_deleted_total";
/// Counter: runs that reached four fifths of the events that one may have.
pub const HISTORIES_LONG: &str = "orbit_histories_long_total";
/// Counter: executions that batches reached. Label `outcome`: `done`, `skipped`, `failed`.
pub const BATCH_EXECUTIONS: &str = "orbit_batch_executions_total";
/// Histogram: from when a slot of a schedule was planned to when it was decided to start; without those that waited for the end
/// of another execution.
pub const SCHEDULE_FIRE_LAG: &str = "orbit_schedule_fire_lag_seconds";
/// Counter: slots of schedules. Label `outcome`: `started`, `buffered`, `overlapped`, `superseded`, `paused`, `replaced`,
/// `missed`, `failed`.
pub const SCHEDULE_SLOTS: &str = "orbit_schedule_slots_total";
/// Gauge: schedules. Label `state`: `active`, `paused`, `invalid`, `completed`.
pub const SCHEDULES: &str = "orbit_schedules";
/// Counter: looks at schedules that failed for a reason of their own, so that they rest for a while.
pub const SCHEDULES_SET_ASIDE: &str = "orbit_schedules_set_aside_total";
/// Counter: executions that were read from the store to be decided on.
pub const EXECUTIONS_LOADED: &str = "orbit_executions_loaded_total";
/// Counter: states in memory that were brought up to date with what other nodes had committed.
pub const EXECUTIONS_CAUGHT_UP: &str = "orbit_executions_caught_up_total";
/// Counter: appends that another writer was before; each was decided again or refused.
pub const WRITE_CONFLICTS: &str = "orbit_write_conflicts_total";
/// Counter: sessions that were lost.
pub const SESSIONS_LOST: &str = "orbit_sessions_lost_total";
/// Counter: events that were committed, by `kind`.
pub const EVENTS: &str = "orbit_events_total";
/// Gauge: executions with a mailbox.
pub const MAILBOXES: &str = "orbit_mailboxes";
/// Gauge, bytes: states in the cache, as estimated.
pub const CACHE_BYTES: &str = "orbit_cache_bytes";
/// Gauge: polls and streams that wait for tasks.
pub const POLLS_PARKED: &str = "orbit_polls_parked";
/// Gauge: waiting tasks that this server knows of; the database may hold more.
pub const TASKS_KNOWN: &str = "orbit_tasks_known";
/// Gauge: timers of the next seconds.
pub const TIMERS_HOT: &str = "orbit_timers_hot";
/// Gauge: sessions of workers that this server has heard of.
pub const SESSIONS: &str = "orbit_sessions";
/// Counter: what executions asked of others and was tried, by `kind` and `result`; what failed is tried again.
pub const EFFECTS: &str = "orbit_effects_total";
/// Gauge: effects that wait or are under way here.
pub const EFFECTS_UNDER_WAY: &str = "orbit_effects_under_way";
/// Counter: connections that could not be accepted, for example for want of file descriptors.
pub const ACCEPT_FAILED: &str = "orbit_accept_failed_total";

/// Counter: requests of `http` steps that this server made or refused, by `outcome`: the class of the status (`2xx` …
/// `5xx`), `invalid`, `forbidden`, `failed`, `too_large`, `timeout`, `unwanted` (its step was cancelled), `released`
/// (the server ended).
pub const HTTP_REQUESTS: &str = "orbit_http_requests_total";
/// Histogram, seconds: requests of `http` steps, from the task's receipt to the end of the response, redirects included.
pub const HTTP_DURATION: &str = "orbit_http_request_duration_seconds";
/// Gauge: requests of `http` steps that run, or whose result is being reported; at most `--http-slots`.
pub const HTTP_IN_FLIGHT: &str = "orbit_http_in_flight";

/// Gauge: nodes that share the database and live, this one among them.
pub const NODES_LIVE: &str = "orbit_nodes_live";
/// Gauge: the newest kind of event that every live node can read, and that is written therefore.
pub const EVENT_LEVEL: &str = "orbit_event_level";
/// Counter: messages with news that were published to other nodes.
pub const NEWS_PUBLISHED: &str = "orbit_news_published_total";
/// Counter: messages with news of other nodes that came.
pub const NEWS_HEARD: &str = "orbit_news_heard_total";
/// Counter: times after which news may have been missed.
pub const NEWS_GAPS: &str = "orbit_news_gaps_total";
/// Gauge, seconds since 1970: when a background `duty` last did its work without a failure.
pub const DUTY_LAST_SUCCESS: &str = "orbit_duty_last_success_timestamp_seconds";

/// Upper bounds of the histogram of appends in a batch.
const BATCH_BUCKETS: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// Upper bounds of the histograms of the database's work, in seconds.
const STORE_BUCKETS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

/// Upper bounds of the histogram of timers, in seconds.
const LAG_BUCKETS: [f64; 8] = [0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

/// Upper bounds of the histogram of calls, in seconds. The last ones hold the long polls.
const CALL_BUCKETS: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0];

static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();

/// Begins to record, once a process; gives what `/metrics` renders.
///
/// # Panics
/// If another recorder was installed, which only a mistake in this program can do.
pub fn install() -> &'static PrometheusHandle {
    HANDLE.get_or_init(|| {
        let histograms: [(&str, &[f64]); 6] = [
            (CALL_DURATION, &CALL_BUCKETS),
            (HTTP_DURATION, &CALL_BUCKETS),
            (COMMIT_BATCH_APPENDS, &BATCH_BUCKETS),
            (COMMIT_DURATION, &STORE_BUCKETS),
            (PROBE_DURATION, &STORE_BUCKETS),
            (TIMER_LAG, &LAG_BUCKETS),
        ];
        let builder = histograms.into_iter().fold(PrometheusBuilder::new(), |builder, (name, buckets)| {
            builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), buckets).expect("there are buckets")
        });
        let handle = builder.install_recorder().expect("this is the only recorder");
        describe();
        handle
    })
}

fn describe() {
    describe_gauge!(BUILD_INFO, "Version and store of the server; always 1");
    describe_histogram!(CALL_DURATION, Unit::Seconds, "Duration of calls; polls and waits include their hold");
    describe_gauge!(CALLS_IN_FLIGHT, "Calls that run, parked polls among them");
    describe_gauge!(CONNECTIONS, "Connections that are open");
    describe_gauge!(TASK_STREAMS, "Streams of workers that are open");
    describe_gauge!(READY, "1 while the server takes new work");
    describe_gauge!(DATABASE_BYTES, Unit::Bytes, "Size of the database with its log");
    describe_gauge!(LOG_BYTES, Unit::Bytes, "Size of the write-ahead log");
    describe_gauge!(DATABASE_CONNECTIONS, "Connections to PostgreSQL in use, beside those of commits and news");
    describe_gauge!(DATABASE_WAITING, "Reads and writes that wait for a connection to PostgreSQL");
    describe_gauge!(EXECUTIONS, "Executions by state");
    describe_histogram!(COMMIT_BATCH_APPENDS, Unit::Count, "Appends of one commit batch");
    describe_histogram!(COMMIT_DURATION, Unit::Seconds, "Duration of the commit of one batch");
    describe_histogram!(PROBE_DURATION, Unit::Seconds, "Duration of looks whether other nodes have written");
    describe_histogram!(TIMER_LAG, Unit::Seconds, "From when a timer was due to when it fired");
    describe_counter!(EXECUTIONS_DELETED, "Executions whose rows were all removed");
    describe_counter!(HISTORIES_LONG, "Runs that reached four fifths of the events that one may have");
    describe_counter!(BATCH_EXECUTIONS, "Executions that batches reached, by outcome");
    describe_histogram!(SCHEDULE_FIRE_LAG, Unit::Seconds, "From when a slot was planned to when it started");
    describe_counter!(SCHEDULE_SLOTS, "Slots of schedules, by outcome");
    describe_gauge!(SCHEDULES, "Schedules, by state");
    describe_counter!(SCHEDULES_SET_ASIDE, "Looks at schedules that failed for a reason of their own");
    describe_counter!(EXECUTIONS_LOADED, "Executions that were read from the store to be decided on");
    describe_counter!(EXECUTIONS_CAUGHT_UP, "States brought up to date with what other nodes had committed");
    describe_counter!(WRITE_CONFLICTS, "Appends that another writer was before");
    describe_counter!(SESSIONS_LOST, "Sessions of workers that were lost");
    describe_counter!(EVENTS, "Events that were committed");
    describe_gauge!(MAILBOXES, "Executions with a mailbox");
    describe_gauge!(CACHE_BYTES, Unit::Bytes, "States in the cache, as estimated");
    describe_gauge!(POLLS_PARKED, "Polls and streams that wait for tasks");
    describe_gauge!(TASKS_KNOWN, "Waiting tasks that this server knows of");
    describe_gauge!(TIMERS_HOT, "Timers of the next seconds");
    describe_counter!(EFFECTS, "What executions asked of others and was tried");
    describe_gauge!(EFFECTS_UNDER_WAY, "Effects that wait or are under way");
    describe_gauge!(SESSIONS, "Sessions of workers that this server has heard of");
    describe_counter!(ACCEPT_FAILED, "Connections that could not be accepted");
    describe_counter!(HTTP_REQUESTS, "Requests of http steps that were made or refused");
    describe_histogram!(HTTP_DURATION, Unit::Seconds, "Duration of requests of http steps");
    describe_gauge!(HTTP_IN_FLIGHT, "Requests of http steps that run");
    describe_gauge!(NODES_LIVE, "Nodes that share the database and live");
    describe_gauge!(EVENT_LEVEL, "The newest kind of event that every live node can read");
    describe_counter!(NEWS_PUBLISHED, "Messages with news that were published to other nodes");
    describe_counter!(NEWS_HEARD, "Messages with news of other nodes that came");
    describe_counter!(NEWS_GAPS, "Times after which news may have been missed");
    describe_gauge!(DUTY_LAST_SUCCESS, Unit::Seconds, "When a background duty last did its work, since 1970");
}

/// A call began.
pub fn call_began(rpc: &'static str) {
    gauge!(CALLS_IN_FLIGHT, "rpc_method" => rpc).increment(1.0);
}

/// A call ended.
pub fn call_ended(rpc: &'static str, code: &'static str, took: Duration) {
    gauge!(CALLS_IN_FLIGHT, "rpc_method" => rpc).decrement(1.0);
    histogram!(CALL_DURATION, "rpc_method" => rpc, "rpc_status_code" => code, "rpc_system_name" => "grpc")
        .record(took.as_secs_f64());
}

/// Events that were committed, by kind: each counter is looked for once, since every step has several.
#[derive(Default)]
pub struct EventCounters {
    by_kind: RwLock<HashMap<&'static str, Counter>>,
}

impl EventCounters {
    /// Counts one event of this kind.
    pub fn count(&self, kind: &'static str) {
        if let Some(counter) = self.by_kind.read().unwrap_or_else(PoisonError::into_inner).get(kind) {
            counter.increment(1);
            return;
        }
        let mut by_kind = self.by_kind.write().unwrap_or_else(PoisonError::into_inner);
        by_kind.entry(kind).or_insert_with(|| counter!(EVENTS, "kind" => kind)).increment(1);
    }
}

/// Whether the server takes new work.
pub fn ready(ready: bool) {
    gauge!(READY).set(if ready { 1.0 } else { 0.0 });
}

/// Which server this is.
pub fn build_info(store: &'static str) {
    gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION"), "store" => store).set(1.0);
}

/// Measures how long something takes, from when this is made.
#[derive(Debug)]
pub struct Timed {
    histogram: &'static str,
    begin: tokio::time::Instant,
}

impl Timed {
    /// Begins.
    #[must_use]
    pub fn begin(histogram: &'static str) -> Self {
        Self { histogram, begin: tokio::time::Instant::now() }
    }

    /// Ends well or not, but ends: what is dropped before is not recorded.
    pub fn end(self) {
        histogram!(self.histogram).record(self.begin.elapsed().as_secs_f64());
    }
}

/// A number that was just read.
pub fn level(gauge: &'static str, value: u64) {
    #[expect(clippy::cast_precision_loss, reason = "a gauge need not be exact beyond 2^53")]
    gauge!(gauge).set(value as f64);
}

/// A background duty did its work without a failure, at this time by the machine's clock.
pub fn duty_done(duty: &'static str, unix_micros: i64) {
    #[expect(clippy::cast_precision_loss, reason = "a gauge need not be exact to the microsecond")]
    gauge!(DUTY_LAST_SUCCESS, "duty" => duty).set(unix_micros as f64 / 1_000_000.0);
}

/// How many executions are in a state.
pub fn executions(state: &'static str, count: u64) {
    #[expect(clippy::cast_precision_loss, reason = "a count need not be exact beyond 2^53")]
    gauge!(EXECUTIONS, "state" => state).set(count as f64);
}

/// How many schedules are in a state.
pub fn schedules(state: &'static str, count: u64) {
    #[expect(clippy::cast_precision_loss, reason = "a count need not be exact beyond 2^53")]
    gauge!(SCHEDULES, "state" => state).set(count as f64);
}

/// Folds what histograms have gathered, so that a server that nobody scrapes does not grow. Ends with `stop`.
pub async fn keep(stop: CancellationToken) {
    const PAUSE: Duration = Duration::from_secs(5);
    while tokio::time::timeout(PAUSE, stop.cancelled()).await.is_err() {
        install().run_upkeep();
    }
}

/// A request of an `http` step ended.
pub fn http_request(outcome: &'static str) {
    counter!(HTTP_REQUESTS, "outcome" => outcome).increment(1);
}

/// A connection could not be accepted.
pub fn accept_failed() {
    counter!(ACCEPT_FAILED).increment(1);
}

/// Counts something while it is there.
#[derive(Debug)]
pub struct Present(&'static str);

impl Present {
    /// One more of what the gauge counts, until this is dropped.
    #[must_use]
    pub fn new(gauge: &'static str) -> Self {
        gauge!(gauge).increment(1.0);
        Self(gauge)
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        gauge!(self.0).decrement(1.0);
    }
}
