//! Measures the SQLite store alone, synced, on the disk of `TMPDIR`: commits of steps, and lists over many executions.
//!
//! `cargo bench --bench store` · `EXECUTIONS=1000000` fills the lists (default 100,000).

use bytes::Bytes;
use orbit::domain::{Timestamp, Uid};
use orbit::store::{
    Append, Committed, ExecutionKey, ExecutionState, ListCursor, ListFilter, NewExecution, SqliteStore, StateChange,
    Store, Target, WakeChange, sqlite::Options,
};
use std::time::{Duration, Instant};
use uuid::Uuid;

const EVENT_BYTES: usize = 400;
const MEASURE: Duration = Duration::from_secs(4);

#[expect(clippy::disallowed_methods, reason = "a measurement reads the real clock")]
fn now() -> Instant {
    Instant::now()
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let directory = tempfile::tempdir().expect("a directory for the database");
    let store =
        SqliteStore::open(&directory.path().join("orbit.db"), Options::default()).await.expect("a new database");
    for batch in [1, 8, 64, 256] {
        steps(&store, batch).await;
    }
    lifecycles(&store, 64).await;
    lists(&store).await;
    store.close().await.expect("closing");
}

fn start(number: u128) -> Append {
    let tenant = format!("tenant-{}", number % 100);
    let new = NewExecution {
        uid: Uid(Uuid::from_u128(number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))),
        id: format!("order-{number}").into(),
        workflow: format!("workflow-{}", number % 10).into(),
        version: "1.0.0".into(),
        definition_hash: [1; 32],
        input_digest: [2; 16],
        request: None,
        start_time: Timestamp::from_micros(i64::try_from(number).expect("small") * 1000),
        state: ExecutionState::Running,
        close_time: None,
        labels: [("tenant".to_owned(), tenant)].into(),
    };
    Append { target: Target::New(Box::new(new)), ..step(ExecutionKey(0), 1) }
}

fn step(key: ExecutionKey, number: u64) -> Append {
    Append {
        target: Target::Existing(key),
        run: 1,
        first_number: number,
        last_number: number,
        batch_id: Uuid::new_v4(),
        events: Bytes::from(vec![7; EVENT_BYTES]),
        payloads: Vec::new(),
        ready_added: Vec::new(),
        ready_removed: Vec::new(),
        state: None,
        wake: WakeChange::Keep,
        snapshot: None,
    }
}

fn end(key: ExecutionKey, number: u64) -> Append {
    let to = if number % 50 == 7 { ExecutionState::Failed } else { ExecutionState::Succeeded };
    let state = StateChange { from: ExecutionState::Running, to, close_time: Some(Timestamp::from_micros(1)) };
    Append { state: Some(state), wake: WakeChange::Set(None), ..step(key, 2) }
}

async fn commit(store: &SqliteStore, batch: Vec<Append>) -> Vec<ExecutionKey> {
    let outcomes = store.commit(batch).await.expect("the disk works");
    let key = |outcome| match outcome {
        Committed::Written(key) => key,
        other => panic!("{other:?}"),
    };
    outcomes.into_iter().map(key).collect()
}

/// CPU time of this process so far.
fn cpu() -> Duration {
    // SAFETY: an all-zero rusage is a valid value, and the call only writes into it.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let time = |time: libc::timeval| Duration::from_micros(time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// One history row an append, as for a step that is handed off.
async fn steps(store: &SqliteStore, size: usize) {
    let first = u128::from(store.statistics().transactions) * 1_000_000 + 1_000_000_000;
    let keys = commit(store, (0..1024).map(|n| start(first + n)).collect()).await;
    let (begin, begin_cpu, mut rows) = (now(), cpu(), 0_usize);
    let mut number = 2;
    while begin.elapsed() < MEASURE {
        for keys in keys.chunks(size) {
            commit(store, keys.iter().map(|key| step(*key, number)).collect()).await;
            rows += keys.len();
        }
        number += 1;
    }
    report("steps", size, rows, begin.elapsed(), cpu() - begin_cpu);
}

/// Starts and ends, half of a batch each.
async fn lifecycles(store: &SqliteStore, size: usize) {
    let (begin, begin_cpu, mut rows) = (now(), cpu(), 0_usize);
    let (mut open, mut next) = (Vec::new(), 1_u128 << 50);
    while begin.elapsed() < MEASURE {
        let mut batch: Vec<Append> = (0..size as u128 / 2).map(|n| start(next + n)).collect();
        next += size as u128 / 2;
        batch.extend(open.iter().map(|key| end(*key, 2)));
        rows += batch.len();
        open = commit(store, batch).await;
        open.truncate(size / 2);
    }
    report("starts and ends", size, rows, begin.elapsed(), cpu() - begin_cpu);
}

fn report(what: &str, size: usize, rows: usize, elapsed: Duration, cpu: Duration) {
    println!(
        "{what:<16} {size:>4} a batch: {:>7.0} rows/s, {:>6.2} ms a commit, {:>5.1} µs of CPU a row",
        rows as f64 / elapsed.as_secs_f64(),
        elapsed.as_secs_f64() * 1000.0 / (rows as f64 / size as f64),
        cpu.as_secs_f64() * 1e6 / rows as f64
    );
}

async fn lists(store: &SqliteStore) {
    let executions = std::env::var("EXECUTIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(100_000_u128);
    let begin = now();
    for first in (0..executions).step_by(1000) {
        let keys = commit(store, (first..first + 1000).map(start).collect()).await;
        let ended = keys.iter().zip(first..).filter(|(_, n)| n % 10 != 0);
        commit(store, ended.map(|(key, n)| end(*key, u64::try_from(n).expect("small"))).collect()).await;
    }
    println!(
        "{executions} executions in {:.1} s; {:?}",
        begin.elapsed().as_secs_f64(),
        store.size().await.expect("a size")
    );
    let tenant = || vec![("tenant".to_owned(), "tenant-42".to_owned())];
    let states = |states: &[ExecutionState]| ListFilter { states: states.to_vec(), ..ListFilter::default() };
    let middle =
        Some(ListCursor { start_time: Timestamp::from_micros(executions as i64 * 500), key: ExecutionKey(i64::MAX) });
    for (what, filter) in [
        ("all", ListFilter::default()),
        ("running", states(&[ExecutionState::Running])),
        ("failed or timed out", states(&[ExecutionState::Failed, ExecutionState::TimedOut])),
        ("terminated (none)", states(&[ExecutionState::Terminated])),
        ("a workflow", ListFilter { workflow: Some("workflow-3".into()), ..ListFilter::default() }),
        ("a label", ListFilter { labels: tenant(), ..ListFilter::default() }),
        ("a label, running", ListFilter { labels: tenant(), ..states(&[ExecutionState::Running]) }),
        (
            "a label, a workflow",
            ListFilter { labels: tenant(), workflow: Some("workflow-2".into()), ..ListFilter::default() },
        ),
        (
            "a label, another workflow (none)",
            ListFilter { labels: tenant(), workflow: Some("workflow-3".into()), ..ListFilter::default() },
        ),
        (
            "a workflow, running",
            ListFilter { workflow: Some("workflow-0".into()), ..states(&[ExecutionState::Running]) },
        ),
        (
            "a workflow, running (none)",
            ListFilter { workflow: Some("workflow-3".into()), ..states(&[ExecutionState::Running]) },
        ),
    ] {
        let mut times = Vec::new();
        for after in [None, middle, None, middle, None, middle] {
            let begin = now();
            let page = store.list(&filter, after, 100).await.expect("a page");
            times.push((begin.elapsed(), page.len()));
        }
        let slowest = times.iter().map(|(time, _)| time.as_secs_f64() * 1000.0).fold(0.0, f64::max);
        println!("list of {what:<32} {slowest:>7.1} ms at most, {} rows", times[0].1);
    }
}
