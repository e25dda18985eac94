//! Workers as `docs/workers.md` describes them, by stream and by poll.
//!
//! A worker reconnects for ever, lists each token from its receipt until its report is answered, and sends a report until
//! it is answered. Now and then it sends one again, or another one for the same token, and writes down the answer.

mod handler;
mod poll;
pub(crate) mod process;
mod stream;

use crate::{
    chance::Chance,
    connect::{Answer, Flight, Refusal, Route, Tasks, once},
    journal::{Journal, Outcome, Received, Record, Report, Reported},
};
use orbit::proto::{
    worker::{
        CompleteTaskRequest, FailTaskRequest, HeldTask, RegisterWorkerRequest, ReportOutcome, UnregisterWorkerRequest,
    },
    workflow::{Failure, Payload, Task, payload::Content},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    io::Write as _,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::{
    sync::{Notify, mpsc},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// Contracts that these workers can do.
const CONTRACTS: [&str; 3] = ["work.add@1", "work.flaky@1", "work.hold@1"];

/// How long the last reports may take once a worker is told to end.
const DRAIN: Duration = Duration::from_secs(30);

/// What a worker is.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct Setup {
    pub(crate) name: String,
    /// The nodes that it may call; it begins with the first.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) mode: Mode,
    /// Tasks that it has at the same time.
    pub(crate) slots: usize,
    pub(crate) seed: u64,
}

/// How tasks come.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(crate) enum Mode {
    Stream,
    Poll,
}

/// A worker of this process.
#[derive(Debug)]
pub(crate) struct Worker {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Worker {
    pub(crate) fn begin(setup: Setup, journal: &Journal, flight: &Flight) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(setup, Sink::Journal(journal.clone()), flight.clone(), stop.clone()));
        Self { stop, task }
    }

    /// Lets it drain.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.task.await.expect("a worker does not panic");
    }
}

/// Where a worker writes down what it is told.
#[derive(Clone, Debug)]
enum Sink {
    Journal(Journal),
    /// Lines of JSON, for the process that keeps the journal.
    Stdout,
}

impl Sink {
    fn record(&self, record: Record) {
        match self {
            Self::Journal(journal) => journal.record(record),
            Self::Stdout => {
                let line = serde_json::to_string(&record).expect("a record is JSON") + "\n";
                let mut stdout = std::io::stdout().lock();
                // The reader is gone only when the test is over.
                let _ = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush());
            }
        }
    }
}

/// A task that this worker has, until its report is answered.
#[derive(Debug)]
struct Held {
    task: Received,
    report: Option<Report>,
    /// Ends the handler.
    unwanted: CancellationToken,
}

/// What the parts of a worker share.
#[derive(Debug)]
struct Shared {
    setup: Setup,
    sink: Sink,
    flight: Flight,
    route: Route,
    client: Tasks,
    held: Mutex<HashMap<String, Held>>,
    /// Somebody's report was answered: there is room.
    freed: Notify,
    /// Tokens whose reports can be sent, for the stream.
    reports: mpsc::UnboundedSender<String>,
    chance: Mutex<Chance>,
}

/// A registration.
#[derive(Clone, Debug)]
struct Session {
    id: String,
    heartbeat_interval: Duration,
}

/// Why fetching ended.
#[derive(Debug)]
enum Ended {
    Connection,
    Session,
}

async fn run(setup: Setup, sink: Sink, flight: Flight, stop: CancellationToken) {
    // Unbounded, but no longer than the slots: one entry for each held task.
    let (reports, mut reported) = mpsc::unbounded_channel();
    let route = Route::to(&setup.addresses);
    let shared = Arc::new(Shared {
        client: Tasks::new(route.clone()),
        route,
        chance: Mutex::new(Chance::named(&setup.name).fork(setup.seed)),
        setup,
        sink,
        flight,
        held: Mutex::default(),
        freed: Notify::new(),
        reports,
    });
    let mut session_id = String::new();
    let work = async {
        loop {
            let session = shared.register(std::mem::take(&mut session_id)).await;
            session_id.clone_from(&session.id);
            let ended = match shared.setup.mode {
                Mode::Stream => tokio::select! {
                    ended = stream::work(&shared, &session, &mut reported, &stop) => ended,
                    () = shared.wander() => Ended::Connection,
                },
                Mode::Poll => poll::work(&shared, &session, &stop).await,
            };
            if let Ended::Session = ended {
                session_id.clear();
            }
            shared.pause().await;
        }
    };
    tokio::select! {
        () = work => {}
        () = shared.drained(&stop) => {}
    }
    shared.unregister(session_id).await;
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, HashMap<String, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn chance<T>(&self, choose: impl FnOnce(&mut Chance) -> T) -> T {
        choose(&mut self.chance.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A moment before the next try.
    async fn pause(&self) {
        let pause = self.chance(|chance| chance.millis(5, 50));
        tokio::time::sleep(pause).await;
    }

    /// Resolves when it is time to see another node, though nothing is wrong with this one.
    async fn wander(&self) {
        if !self.route.is_wide() {
            return std::future::pending().await;
        }
        let span = self.chance(|chance| chance.millis(2_000, 15_000));
        tokio::time::sleep(span).await;
        self.route.turn();
    }

    fn fault(&self, fault: &str) {
        self.sink.record(Record::Fault(format!("{}: {fault}", self.setup.name)));
    }

    /// Registers, however often the server is not there.
    async fn register(&self, previous_session_id: String) -> Session {
        let request = RegisterWorkerRequest {
            worker_id: self.setup.name.clone(),
            contracts: CONTRACTS.map(ToOwned::to_owned).to_vec(),
            slots: i32::try_from(self.setup.slots).expect("it is small"),
            previous_session_id,
            ..RegisterWorkerRequest::default()
        };
        loop {
            match Answer::of(self.client.clone().register_worker(request.clone()).await) {
                Answer::Done(response) => {
                    let interval = response.heartbeat_interval.and_then(|interval| interval.try_into().ok());
                    let heartbeat_interval = interval.expect("the server names an interval");
                    return Session { id: response.session_id, heartbeat_interval };
                }
                Answer::Refused(refusal) => self.fault(&format!("cannot register: {refusal:?}")),
                Answer::Unknown(_) => {}
            }
            self.pause().await;
        }
    }

    /// Resolves once the worker was told to end and holds nothing any more; the session is over then.
    async fn drained(&self, stop: &CancellationToken) {
        stop.cancelled().await;
        let begin = Instant::now();
        while !self.held().is_empty() {
            if begin.elapsed() > DRAIN {
                self.fault(&format!("cannot deliver the reports of {:?}", self.held()));
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Ends a session.
    async fn unregister(&self, session_id: String) {
        let request = UnregisterWorkerRequest { session_id };
        // If it does not arrive, the session ends by its silence.
        let _ = Answer::of(self.client.clone().unregister_worker(request).await);
    }

    /// Free slots.
    fn room(&self) -> usize {
        self.setup.slots.saturating_sub(self.held().len())
    }

    /// Takes a task in and begins to work on it.
    fn accept(self: &Arc<Self>, task: Task) {
        let received = Received {
            worker: self.setup.name.clone(),
            token: task.task_token.clone(),
            uid: task.execution_uid.clone(),
            unit: task.unit.clone(),
            attempt: task.attempt,
            delivery: task.delivery,
            redelivery: task.redelivery,
            idempotency_key: task.idempotency_key.clone(),
        };
        let token = task.task_token.clone();
        let unwanted = CancellationToken::new();
        let held = Held { task: received.clone(), report: None, unwanted: unwanted.clone() };
        if self.held().insert(token.clone(), held).is_some() {
            self.fault(&format!("{token} was handed out twice"));
            return;
        }
        self.sink.record(Record::Received(received.clone()));
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            let report = tokio::select! {
                report = handler::handle(&task, &shared.setup.name) => report,
                () = unwanted.cancelled() => {
                    shared.drop_task(&token);
                    return;
                }
            };
            if let Some(held) = shared.held().get_mut(&token) {
                held.report = Some(report.clone());
            }
            match shared.setup.mode {
                Mode::Stream => drop(shared.reports.send(token)),
                Mode::Poll => {
                    let outcome = shared.deliver(&token, &report).await;
                    shared.answered(&token, report, outcome);
                }
            }
        });
    }

    fn drop_task(&self, token: &str) {
        self.held().remove(token);
        self.freed.notify_one();
    }

    /// Stops what is not wanted, as far as it is not reported yet.
    fn stop_tasks(&self, tokens: &[String]) {
        let held = self.held();
        for held in tokens.iter().filter_map(|token| held.get(token)).filter(|held| held.report.is_none()) {
            held.unwanted.cancel();
        }
    }

    /// What a heartbeat lists.
    fn listed(&self) -> Vec<HeldTask> {
        let listed = |token: &String| HeldTask { task_token: token.clone(), progress: None, beat: false };
        self.held().keys().map(listed).collect()
    }

    /// Reports by calls of their own until one is answered.
    async fn deliver(&self, token: &str, report: &Report) -> Result<Outcome, Refusal> {
        loop {
            match self.report(token, report).await {
                Answer::Done(outcome) => return Ok(outcome),
                Answer::Refused(refusal) => return Err(refusal),
                Answer::Unknown(_) => self.pause().await,
            }
        }
    }

    async fn report(&self, token: &str, report: &Report) -> Answer<Outcome> {
        let (mut client, task_token) = (self.client.clone(), token.to_owned());
        let outcome = match report {
            Report::Success(output) => {
                let request = CompleteTaskRequest { task_token, output: Some(json(output)) };
                let call = client.complete_task(request);
                map(once(&self.flight, call).await, |response| response.outcome)
            }
            Report::Failure(code) => {
                let request =
                    FailTaskRequest { task_token, failure: Some(failure(code)), ..FailTaskRequest::default() };
                let call = client.fail_task(request);
                map(once(&self.flight, call).await, |response| response.outcome)
            }
        };
        map(outcome, |outcome| self::outcome(&outcome.expect("an answer has an outcome")))
    }

    /// Writes down the answer to a task's report, lets the task go, and sometimes tries whether the answer lasts.
    fn answered(self: &Arc<Self>, token: &str, report: Report, outcome: Result<Outcome, Refusal>) {
        // A report that was sent twice may be answered twice.
        let Some(Held { task, .. }) = self.held().remove(token) else { return };
        self.freed.notify_one();
        match outcome {
            Ok(outcome) => {
                let probes = matches!(report, Report::Success(_)) && self.chance(|chance| chance.percent(4));
                self.sink.record(Record::Reported(Reported { task: task.clone(), report: report.clone(), outcome }));
                if probes {
                    tokio::spawn(Arc::clone(self).probe(task, report));
                }
            }
            Err(refusal) => self.fault(&format!("report on {task:?} was refused: {refusal:?}")),
        }
    }

    /// Sends a report once more, and then another one.
    async fn probe(self: Arc<Self>, task: Received, report: Report) {
        let other = Report::Success(handler::output(-1, &format!("{}-again", self.setup.name)));
        for report in [report, other] {
            match self.deliver(&task.token, &report).await {
                Ok(outcome) => self.sink.record(Record::Reported(Reported { task: task.clone(), report, outcome })),
                Err(refusal) => self.fault(&format!("repeat of {task:?} was refused: {refusal:?}")),
            }
        }
    }
}

fn map<T, U>(answer: Answer<T>, render: impl FnOnce(T) -> U) -> Answer<U> {
    match answer {
        Answer::Done(response) => Answer::Done(render(response)),
        Answer::Refused(refusal) => Answer::Refused(refusal),
        Answer::Unknown(why) => Answer::Unknown(why),
    }
}

fn outcome(outcome: &ReportOutcome) -> Outcome {
    match (outcome.accepted, outcome.duplicate) {
        (true, false) => Outcome::Accepted,
        (true, true) => Outcome::Duplicate,
        (false, _) => Outcome::Refused(outcome.reason().as_str_name().to_owned()),
    }
}

fn json(text: &str) -> Payload {
    Payload { content: Some(Content::Json(text.to_owned())) }
}

fn failure(code: &str) -> Failure {
    Failure { code: code.to_owned(), message: "as the plan says".to_owned(), ..Failure::default() }
}
