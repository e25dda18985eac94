//! What a benchmark found, as a table or as one JSON object.

use super::caller::{Latency, Measured};
use crate::cli::{error::Error, output::Output, table::Table};
use std::time::Duration;

/// A run and what it ran on.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) measured: Measured,
    pub(super) server: Server,
    pub(super) store: String,
    pub(super) nodes: usize,
    pub(super) mode: &'static str,
    pub(super) profile: &'static str,
    pub(super) version: String,
    /// Tasks of a workflow.
    pub(super) steps: u32,
    /// What they are: `steps` in a row, or `items` of one.
    pub(super) shape: &'static str,
    /// Executions at a time; none at a rate.
    pub(super) concurrency: Option<u32>,
    /// Starts a second; none if executions were kept going.
    pub(super) offered_per_second: Option<u32>,
}

/// What the server used; none where it cannot be known.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(super) struct Server {
    /// CPU time for each task step, of all threads of all servers, everything else that they did included.
    pub(super) cpu_us_per_step: Option<f64>,
    /// Memory of all servers at the end.
    pub(super) rss_bytes: Option<u64>,
    /// Size of the database with its log, as the server tells it at the end.
    pub(super) db_bytes: Option<u64>,
}

#[derive(serde::Serialize)]
struct Json<'a> {
    workflows_per_second: f64,
    steps_per_second: f64,
    latency_ms: Latency,
    refused: u64,
    errors: u64,
    server: Server,
    store: &'a str,
    nodes: usize,
    mode: &'a str,
    profile: &'a str,
    version: &'a str,
    steps: u32,
    shape: &'a str,
    concurrency: Option<u32>,
    offered_per_second: Option<u32>,
    duration_seconds: f64,
}

/// Microseconds of CPU for each step of the executions that were measured.
pub(super) fn per_step(cpu: Duration, measured: &Measured, steps: u32) -> f64 {
    rounded(cpu.as_secs_f64() * 1e6 / (count(measured.workflows) * f64::from(steps)).max(1.0))
}

impl Report {
    /// Prints it. A run with errors is a failure, after it has been printed.
    pub(super) fn show(&self, output: Output) -> Result<(), Error> {
        let rate = count(self.measured.workflows) / self.measured.seconds;
        let json = Json {
            workflows_per_second: rounded(rate),
            steps_per_second: rounded(rate * f64::from(self.steps)),
            latency_ms: self.measured.latency,
            refused: self.measured.refused,
            errors: self.measured.errors,
            server: self.server,
            store: &self.store,
            nodes: self.nodes,
            mode: self.mode,
            profile: self.profile,
            version: &self.version,
            steps: self.steps,
            shape: self.shape,
            concurrency: self.concurrency,
            offered_per_second: self.offered_per_second,
            duration_seconds: self.measured.seconds,
        };
        if output.is_json() {
            output.line(&serde_json::to_string_pretty(&json).expect("numbers and texts have a JSON form"))?;
        } else {
            output.table(&json.table())?;
        }
        if self.measured.errors == 0 {
            return Ok(());
        }
        Err(Error::failure(format!("{} errors; the first: {}", self.measured.errors, self.measured.first_error)))
    }
}

impl Json<'_> {
    fn table(&self) -> Table {
        let Latency { p50, p90, p99, max } = self.latency_ms;
        let mebibytes = |bytes: u64| format!("{:.1} MiB", count(bytes) / f64::from(1 << 20));
        let nodes = if self.nodes == 1 { "1 node".to_owned() } else { format!("{} nodes", self.nodes) };
        let mut table = Table::default();
        table.field("Workflows/s", format!("{:.0}", self.workflows_per_second));
        table.field("Steps/s", format!("{:.0}", self.steps_per_second));
        table.field("Latency", format!("p50 {p50:.2} ms, p90 {p90:.2} ms, p99 {p99:.2} ms, max {max:.2} ms"));
        table.field("Refused", self.refused.to_string());
        table.field("Errors", self.errors.to_string());
        let cpu = self.server.cpu_us_per_step.map(|micros| format!("{micros:.1} µs a step"));
        table.field("Server CPU", cpu.unwrap_or_default());
        table.field("Server memory", self.server.rss_bytes.map(mebibytes).unwrap_or_default());
        table.field("Database", self.server.db_bytes.map(mebibytes).unwrap_or_default());
        let (kept, offered) = (self.concurrency.unwrap_or(0), self.offered_per_second);
        let how =
            offered.map_or_else(|| format!("{kept} executions at a time"), |rate| format!("{rate} starts a second"));
        table.field("Load", format!("{} {}, {how}", self.steps, self.shape));
        table.field("Measured", format!("{} s, {}, {nodes}, {}", self.duration_seconds, self.store, self.mode));
        table.field("Version", format!("{} ({})", self.version, self.profile));
        table
    }
}

/// A count as a number to divide; exact up to 2^53, which no benchmark reaches.
#[expect(clippy::cast_precision_loss, reason = "no count here comes near 2^53")]
fn count(value: u64) -> f64 {
    value as f64
}

/// More decimals would only pretend to precision.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_spread_over_the_steps_that_were_measured() {
        let measured = Measured { workflows: 1_000, ..Measured::default() };
        assert!((per_step(Duration::from_millis(450), &measured, 10) - 45.0).abs() < 1e-9);
        assert!(per_step(Duration::from_millis(450), &Measured::default(), 10).is_finite());
    }
}
