//! Measures a store alone, synced: commits of steps, and lists over many executions, alone and beside commits.
//!
//! `cargo bench --bench store` measures SQLite on the disk of `TMPDIR`, `DB=postgres://… cargo bench --bench store` PostgreSQL in
//! a database that is empty. `EXECUTIONS=1000000` fills the lists (default 100,000; 0 leaves them out).

use bytes::Bytes;
use orbit::domain::{Timestamp, Uid};
use orbit::store::{
    Append, Committed, ExecutionKey, ExecutionState, ListCursor, ListFilter, NewExecution, PostgresStore, SqliteStore,
    StateChange, Store, Target, WakeChange, postgres, sqlite,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
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
    let store: Arc<dyn Store> = match std::env::var("DB") {
        Ok(url) => Arc::new(PostgresStore::open(postgres::Options::new(url)).await.expect("an empty database")),
        Err(_) => {
            let file = directory.path().join("orbit.db");
            Arc::new(SqliteStore::open(&file, sqlite::Options::default()).await.expect("a new database"))
        }
    };
    for batch in [1, 8, 64, 256] {
        steps(&store, batch, 1).await;
    }
    for committers in 2..=store.committers() {
        steps(&store, 1, committers).await;
        steps(&store, 64, committers).await;
    }
    lifecycles(&*store, 1).await;
    lifecycles(&*store, 64).await;
    lists(&*store).await;
    lists_beside_commits(&store).await;
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
        start_time: Timestamp::from_micros((number % (1 << 40)) as i64 * 1000),
        state: ExecutionState::Running,
        close_time: None,
        labels: [("tenant".to_owned(), tenant), ("region".to_owned(), format!("region-{}", number % 2))].into(),
        schedule: None,
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
        begins_run: None,
        deletion: None,
    }
}

fn end(key: ExecutionKey, number: u64) -> Append {
    let to = if number % 50 == 7 { ExecutionState::Failed } else { ExecutionState::Succeeded };
    let state = StateChange { from: ExecutionState::Running, to, close_time: Some(Timestamp::from_micros(1)) };
    Append { state: Some(state), wake: WakeChange::Set(None), ..step(key, 2) }
}

async fn commit(store: &dyn Store, batch: Vec<Append>) -> Vec<ExecutionKey> {
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

/// One history row an append, as for a step that is handed off; several commits at once.
async fn steps(store: &Arc<dyn Store>, size: usize, committers: usize) {
    let (begin, begin_cpu) = (now(), cpu());
    let lanes = (0..committers).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            let first = Uuid::new_v4().as_u128() >> 16;
            let keys = commit(&*store, (0..1024).map(|n| start(first + n)).collect()).await;
            let (mut rows, mut spans) = (0_usize, Vec::new());
            for number in 2.. {
                for keys in keys.chunks(size) {
                    let begin = now();
                    commit(&*store, keys.iter().map(|key| step(*key, number)).collect()).await;
                    spans.push(begin.elapsed());
                    rows += keys.len();
                }
                if begin.elapsed() > MEASURE {
                    break;
                }
            }
            (rows, spans)
        })
    });
    let (mut rows, mut spans) = (0, Vec::new());
    for lane in lanes.collect::<Vec<_>>() {
        let lane = lane.await.expect("a lane ends");
        rows += lane.0;
        spans.extend(lane.1);
    }
    spans.sort_unstable();
    let what = format!("steps, {committers} at once");
    report(&what, size, rows, begin.elapsed(), cpu() - begin_cpu, &spans);
}

/// Starts and ends, half of a batch each.
async fn lifecycles(store: &dyn Store, size: usize) {
    let (begin, begin_cpu, mut rows) = (now(), cpu(), 0_usize);
    let half = size.div_ceil(2);
    let (mut open, mut next, mut spans) = (Vec::new(), Uuid::new_v4().as_u128() >> 16, Vec::new());
    while begin.elapsed() < MEASURE {
        let mut batch: Vec<Append> = (0..half as u128).map(|n| start(next + n)).collect();
        next += half as u128;
        batch.extend(open.iter().map(|key| end(*key, 2)));
        rows += batch.len();
        let commits = now();
        open = commit(store, batch).await;
        spans.push(commits.elapsed());
        open.truncate(half);
    }
    spans.sort_unstable();
    report("starts and ends", 2 * half, rows, begin.elapsed(), cpu() - begin_cpu, &spans);
}

fn report(what: &str, size: usize, rows: usize, elapsed: Duration, cpu: Duration, spans: &[Duration]) {
    let millis = |part: usize| spans[(spans.len() - 1) * part / 100].as_secs_f64() * 1e3;
    println!(
        "{what:<16} {size:>4} a batch: {:>7.0} rows/s, a commit {:>6.2} ms (p50) {:>6.2} ms (p99), {:>5.1} µs of CPU a row",
        rows as f64 / elapsed.as_secs_f64(),
        millis(50),
        millis(99),
        cpu.as_secs_f64() * 1e6 / rows as f64
    );
}

async fn lists(store: &dyn Store) {
    let executions = std::env::var("EXECUTIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(100_000_u128);
    if executions == 0 {
        return;
    }
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
    let region = |number| vec![("region".to_owned(), format!("region-{number}"))];
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
        ("a label, failed (none)", ListFilter { labels: tenant(), ..states(&[ExecutionState::Failed]) }),
        (
            "a label, workflow, running (none)",
            ListFilter { labels: tenant(), workflow: Some("workflow-3".into()), ..states(&[ExecutionState::Running]) },
        ),
        (
            "a label, failed, in a time (none)",
            ListFilter {
                labels: tenant(),
                start_from: Some(Timestamp::from_micros(executions as i64 * 250)),
                ..states(&[ExecutionState::Failed])
            },
        ),
        ("two labels", ListFilter { labels: [region(0), tenant()].concat(), ..ListFilter::default() }),
        ("two labels (none)", ListFilter { labels: [region(1), tenant()].concat(), ..ListFilter::default() }),
        (
            "two labels, failed or cancelled",
            ListFilter {
                labels: [region(0), tenant()].concat(),
                ..states(&[ExecutionState::Failed, ExecutionState::Cancelled])
            },
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
        // Of whole pages, and of the looks that they need: the service ends a page after the look in which 20 ms are over.
        let (mut pages, mut looks, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        for after in [None, middle].into_iter().cycle().take(20) {
            let (begin, mut found, mut after) = (now(), 0, Some(after));
            while let Some(from) = after.take().filter(|_| found < 100) {
                let begin = now();
                let page = store.list(&filter, from, 100 - found).await.expect("a page");
                looks.push(begin.elapsed());
                found += page.rows.len();
                after = page.next.map(Some);
            }
            pages.push(begin.elapsed());
            rows.push(found);
        }
        let number = looks.len() as f64 / pages.len() as f64;
        let [pages, looks] = [&mut pages, &mut looks].map(|spans| {
            spans.sort_unstable();
            [50, 100].map(|part| spans[(spans.len() - 1) * part / 100].as_secs_f64() * 1000.0)
        });
        println!(
            "list of {what:<34} {:>6.1} ms, {:>6.1} at most; a look {:>5.1} ms, {:>5.1} at most; {} and {} rows in {number:.0}",
            pages[0], pages[1], looks[0], looks[1], rows[0], rows[1]
        );
    }
    let begin = now();
    let counts = store.count().await.expect("counts");
    println!("counts {:>33.1} ms, {counts:?}", begin.elapsed().as_secs_f64() * 1000.0);
}

/// Steps as before, and beside them one page after another.
async fn lists_beside_commits(store: &Arc<dyn Store>) {
    let failed = ListFilter { states: vec![ExecutionState::Failed], ..ListFilter::default() };
    let tenant = ListFilter { labels: vec![("tenant".into(), "tenant-42".into())], ..ListFilter::default() };
    let mut times = Vec::new();
    let reads = async {
        loop {
            for filter in [&failed, &tenant] {
                let begin = now();
                store.list(filter, None, 100).await.expect("a page");
                times.push(begin.elapsed());
            }
        }
    };
    tokio::select! {
        () = steps(store, 64, store.committers()) => {}
        () = reads => {}
    }
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1000.0;
    println!("beside them {} pages: {:.1} ms in the middle, {:.1} ms p99", times.len(), at(50), at(99));
}
