//! The worker for `http` steps that lives in the server: a session, slots and reports like any other worker's.
//!
//! - An `http` step is a task of a reserved contract, so retries, time limits, cancels and lost nodes follow the rules of
//!   tasks: if this node dies amid a request, its session is lost and another node makes the request again, with the
//!   same idempotency key.
//! - A token is listed from its receipt until its report is answered. One whose work is not wanted any more loses its
//!   connection at the next beat, a second later at most.
//! - When the server drains no more tasks are taken; requests that run go on until the engine stops, and what is left
//!   then goes back at once.

use super::{Core, Engine, Error, HeldToken, Outlet, Registration, Report, Task};
use crate::config;
use crate::domain::{
    Failure, Payload, ReportOutcome, SessionId, TaskToken, Timestamp, code,
    definition::{Action, Definition, HTTP_CONTRACT, HTTP_QUEUE, HTTP_TIMEOUT_DEFAULT},
};
use crate::egress::{self, Client, Defaults, Request};
use crate::telemetry;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Name of the worker.
const WORKER_ID: &str = "orbit:http";

/// Longest between two beats while requests run: a cancel stops them so fast.
const BEAT_MAX: Duration = Duration::from_secs(1);

/// First and longest pause before a report is tried again that the server could not take.
const REPORT_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Largest task: a payload with its progress, and what stands beside it.
const MESSAGE_BYTES_MAX: u64 = 5 * 1024 * 1024;

/// Sessions that are read at once to find one that serves `http` steps.
const SESSIONS_PAGE: usize = 1_000;

/// What an engine knows of its own worker for `http` steps.
#[derive(Default)]
pub(super) struct Http {
    is_served: AtomicBool,
    /// Counts the requests that run.
    requests: TaskTracker,
}

impl Engine {
    /// Begins to run `http` steps on this node, as far as `rules` allow any host.
    pub fn serve_http(&self, rules: &config::Http) {
        let http = &self.core.http;
        if rules.allow.is_empty() || http.is_served.swap(true, Ordering::Relaxed) {
            return;
        }
        let worker = Worker {
            engine: self.clone(),
            client: Client::new(rules.clone()),
            slots: rules.slots,
            session: None,
            requests: JoinSet::new(),
            held: HashMap::new(),
            next_beat: Duration::ZERO,
        };
        self.core.tasks.spawn(worker.run());
    }

    /// Refuses a definition with steps that no server runs.
    ///
    /// # Errors
    /// `HttpDisabled`; `Store`.
    pub async fn check_served(&self, definition: &Definition) -> Result<(), Error> {
        let is_http = |action: &Action| matches!(action, Action::Task(task) if *task.contract == *HTTP_CONTRACT);
        let step = definition.steps.iter().find(|step| is_http(&step.action));
        let Some(step) = step else { return Ok(()) };
        if self.core.http.is_served.load(Ordering::Relaxed) || self.core.is_served_elsewhere().await? {
            return Ok(());
        }
        Err(Error::HttpDisabled { step: step.id.clone() })
    }

    /// Waits until no request of an `http` step runs on this node: for the time after it began to drain.
    pub async fn http_settled(&self) {
        let requests = &self.core.http.requests;
        requests.close();
        requests.wait().await;
    }
}

impl Core {
    /// Whether another node, or a worker in its place, serves `http` steps.
    async fn is_served_elsewhere(&self) -> Result<bool, Error> {
        let mut after = None;
        loop {
            let sessions = self.store.sessions(after, SESSIONS_PAGE).await.map_err(Error::Store)?;
            if sessions.iter().any(|session| session.contracts.iter().any(|contract| **contract == *HTTP_CONTRACT)) {
                return Ok(true);
            }
            match sessions.last() {
                Some(last) if sessions.len() == SESSIONS_PAGE => after = Some(last.id),
                Some(_) | None => return Ok(false),
            }
        }
    }
}

/// The worker.
struct Worker {
    engine: Engine,
    client: Client,
    slots: u32,
    session: Option<SessionId>,
    requests: JoinSet<()>,
    /// What runs, and how to stop it.
    held: HashMap<Id, (TaskToken, CancellationToken)>,
    /// When to beat next, in monotonic time.
    next_beat: Duration,
}

/// Why a session is not served any more.
enum End {
    /// It is lost, or another connection has it.
    Over,
    /// The engine stops.
    Stopped,
}

impl Worker {
    async fn run(mut self) {
        let core = self.engine.core.clone();
        loop {
            match self.open().await {
                Ok((outlet, interval)) => match self.serve(outlet, interval).await {
                    End::Over => {}
                    End::Stopped => break,
                },
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the worker for http steps cannot register"
                    );
                    tokio::select! {
                        () = core.stop.cancelled() => break,
                        () = crate::clock::sleep(core.config.retry_pause) => {}
                    }
                }
            }
        }
        // Each request sees the stop by itself and gives its task back.
        while self.requests.join_next().await.is_some() {}
        if let Some(session) = self.session
            && let Err(error) = self.engine.unregister(session).await
        {
            tracing::warn!(error = &error as &dyn std::error::Error, "the worker for http steps could not unregister");
        }
    }

    /// Registers, if it can as the session of before, and opens the way for its tasks.
    async fn open(&mut self) -> Result<(Outlet, Duration), Error> {
        let registered = self.engine.register(registration(self.slots, self.session)).await?;
        self.session = Some(registered.session);
        let outlet = self.engine.open_stream(registered.session).await?;
        let running = u32::try_from(self.requests.len()).unwrap_or(u32::MAX);
        outlet.granter().grant(self.slots.saturating_sub(running));
        Ok((outlet, registered.heartbeat_interval))
    }

    /// Takes tasks and lists them until the session is over or the engine stops.
    async fn serve(&mut self, outlet: Outlet, interval: Duration) -> End {
        let core = self.engine.core.clone();
        let granter = outlet.granter();
        let mut outlet = Some(outlet);
        self.next_beat = core.clock.monotonic() + interval;
        loop {
            let rest = self.next_beat.saturating_sub(core.clock.monotonic());
            tokio::select! {
                () = core.stop.cancelled() => return End::Stopped,
                tasks = next_tasks(&mut outlet) => match tasks {
                    Some(tasks) => {
                        for task in tasks {
                            self.begin(task);
                        }
                        self.next_beat = self.next_beat.min(core.clock.monotonic() + BEAT_MAX.min(interval));
                    }
                    // What runs goes on, and so do its beats.
                    None if self.engine.is_draining() => outlet = None,
                    None => return End::Over,
                },
                Some(ended) = self.requests.join_next_with_id() => {
                    self.end(ended);
                    granter.grant(1);
                }
                () = crate::clock::sleep(rest) => {
                    let longest = if self.held.is_empty() { interval } else { BEAT_MAX.min(interval) };
                    self.next_beat = core.clock.monotonic() + longest;
                    match self.beat().await {
                        Ok(()) => {}
                        Err(Error::SessionNotFound) => return End::Over,
                        Err(error) => {
                            tracing::warn!(error = &error as &dyn std::error::Error, "a beat of the worker for http steps failed");
                        }
                    }
                }
            }
        }
    }

    fn begin(&mut self, task: Task) {
        let unwanted = CancellationToken::new();
        let token = task.token.clone();
        let running = self.engine.core.http.requests.token();
        let work = perform(self.engine.clone(), self.client.clone(), task, unwanted.clone());
        let handle = self.requests.spawn(async move {
            work.await;
            drop(running);
        });
        self.held.insert(handle.id(), (token, unwanted));
    }

    fn end(&mut self, ended: Result<(Id, ()), JoinError>) {
        let id = match &ended {
            Ok((id, ())) => *id,
            Err(error) => error.id(),
        };
        let held = self.held.remove(&id);
        if let (Err(error), Some((token, _))) = (ended, held) {
            // The token is listed no more, so the delivery ends with unknown outcome and counts as one.
            tracing::error!(execution = token.execution.0, unit = %token.delivery.unit, %error, "an http step failed badly");
        }
    }

    /// Lists what is held, and stops what is not wanted any more.
    async fn beat(&self) -> Result<(), Error> {
        let Some(session) = self.session else { return Ok(()) };
        let held = self.held.values().map(|(token, _)| HeldToken { token: token.clone(), progress: None, beat: false });
        let answer = self.engine.heartbeat(session, held.collect()).await?;
        for (token, unwanted) in self.held.values() {
            if answer.stop.contains(token) {
                unwanted.cancel();
            }
        }
        Ok(())
    }
}

/// The next tasks; waits for ever where no more are taken.
async fn next_tasks(outlet: &mut Option<Outlet>) -> Option<Vec<Task>> {
    match outlet {
        Some(outlet) => outlet.next().await,
        None => std::future::pending().await,
    }
}

fn registration(slots: u32, previous_session: Option<SessionId>) -> Registration {
    Registration {
        worker_id: WORKER_ID.into(),
        language: "".into(),
        sdk: "orbit".into(),
        build: env!("CARGO_PKG_VERSION").into(),
        queues: vec![HTTP_QUEUE.into()],
        contracts: vec![HTTP_CONTRACT.into()],
        slots,
        message_bytes_max: MESSAGE_BYTES_MAX,
        previous_session,
    }
}

/// Makes the request of a task and reports what came of it.
async fn perform(engine: Engine, client: Client, task: Task, unwanted: CancellationToken) {
    let core = &engine.core;
    let _present = telemetry::Present::new(telemetry::HTTP_IN_FLIGHT);
    let timed = telemetry::Timed::begin(telemetry::HTTP_DURATION);
    let deadline = task.delivery.expire_time;
    let left = deadline.map_or(HTTP_TIMEOUT_DEFAULT, |deadline| deadline.since(core.clock.now()));
    let (outcome, report) = tokio::select! {
        biased;
        () = unwanted.cancelled() => ("unwanted", None),
        () = core.stop.cancelled() => ("released", Some(Report::Release)),
        (outcome, report) = answer(&client, &task, core.clock.wall()) => (outcome, Some(report)),
        // A deadline is the execution's to judge, and it has a timer for it.
        () = crate::clock::sleep(left) => ("timeout", deadline.is_none().then(timed_out)),
    };
    timed.end();
    telemetry::http_request(outcome);
    if let Some(report) = report {
        deliver(core, &engine, &task.token, report, &unwanted).await;
    }
}

/// What comes of a task, with its name for metrics.
async fn answer(client: &Client, task: &Task, wall: Timestamp) -> (&'static str, Report) {
    let defaults = Defaults { idempotency_key: &task.delivery.idempotency_key, trace_parent: &task.trace_parent };
    let response = match Request::parse(&task.delivery.input, defaults) {
        Ok(request) => client.call(request).await,
        Err(fault) => Err(fault),
    };
    match response {
        Ok(response) => {
            let outcome = match response.status {
                200..=299 => "2xx",
                300..=399 => "3xx",
                400..=499 => "4xx",
                _ => "5xx",
            };
            (outcome, report(egress::of_response(&response, wall)))
        }
        Err(fault) => {
            let outcome = match &fault {
                egress::Fault::Invalid(_) => "invalid",
                egress::Fault::Forbidden(_) => "forbidden",
                egress::Fault::Failed(_) => "failed",
                egress::Fault::TooLarge(_) => "too_large",
            };
            tracing::debug!(execution = %task.execution_id, unit = %task.token.delivery.unit, ?fault, "an http step got no response");
            (outcome, report(Err(egress::of_fault(fault))))
        }
    }
}

fn report(result: Result<Payload, Box<egress::Failed>>) -> Report {
    match result {
        Ok(output) => Report::Complete { output },
        Err(failed) => {
            let egress::Failed { failure, retryable, retry_after } = *failed;
            Report::Fail { failure, retryable, retry_after }
        }
    }
}

fn timed_out() -> Report {
    let message = format!("no response within {} s", HTTP_TIMEOUT_DEFAULT.as_secs());
    Report::Fail { failure: Failure::new(code::TIMEOUT, message, &Arc::from("")), retryable: true, retry_after: None }
}

/// Reports until the report is answered, or nobody wants it any more.
async fn deliver(core: &Core, engine: &Engine, token: &TaskToken, report: Report, unwanted: &CancellationToken) {
    let (mut pause, longest) = REPORT_PAUSES;
    loop {
        let error = match engine.report(token.clone(), report.clone()).await {
            Ok(ReportOutcome::Accepted | ReportOutcome::Duplicate | ReportOutcome::Refused(_)) => return,
            Err(error) => error,
        };
        tracing::warn!(
            execution = token.execution.0, unit = %token.delivery.unit, error = &error as &dyn std::error::Error,
            "the result of an http step could not be reported"
        );
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = unwanted.cancelled() => return,
            () = crate::clock::sleep(pause) => pause = (pause * 2).min(longest),
        }
    }
}
