//! Calls to those that something is wrong with, again and again while it lasts: what each is told, and how soon.
//!
//! A session is written, an execution is started, and one is read that every node had in memory before. No answer is older
//! than its call.

use super::{
    KEYS_PER_LIFE,
    fault::{Fault, Told},
};
use crate::{
    caller::{accepted, start_request},
    connect::{self, Admin, Tasks},
    journal::{Journal, Life},
    workflow::Plan,
};
use orbit::proto::{admin::GetExecutionRequest, worker::RegisterWorkerRequest, workflow::execution::State};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Response, Status};
use tonic_types::StatusExt as _;

/// Within this a node that lives has answered, whatever its database does: `--db-timeout`, which is 5 s unless it is set, and
/// what a busy machine adds.
const ANSWER_MAX: Duration = Duration::from_secs(6);

/// How long those that a fault is about are asked at least.
const ASKED_MIN: Duration = Duration::from_millis(500);

/// Between an answer and the next call.
const PAUSE: Duration = Duration::from_millis(100);

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A write that hinders nobody: the session has no work, and ends by its silence.
    Register,
    Start,
    /// Of an execution that was in the node's memory before.
    Get,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Register, Self::Start, Self::Get];
}

/// What a call came to.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Answer {
    Done,
    /// UNAVAILABLE since the database is, and when to come again.
    Told,
    /// Anything else.
    Other(String),
}

/// A call that is over.
#[derive(Clone, Debug)]
struct Call {
    kind: Kind,
    node: SocketAddr,
    took: Duration,
    answer: Answer,
}

/// What the calls of one fault came to.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Asked {
    /// How many were told UNAVAILABLE, and when to come again.
    pub(super) told: usize,
    /// The longest that one took.
    pub(super) longest: Duration,
}

impl Asked {
    /// Adds those of another time.
    pub(super) fn add(&mut self, other: Self) {
        self.told += other.told;
        self.longest = self.longest.max(other.longest);
    }
}

/// What the askers know.
#[derive(Clone)]
pub(super) struct Question {
    /// The execution that is read, and the state that everybody knows it to be in.
    pub(super) id: String,
    pub(super) state: State,
    /// Names for new executions.
    pub(super) keys: Arc<AtomicU64>,
    pub(super) journal: Journal,
}

/// The askers.
pub(super) struct Asking {
    begin: Instant,
    nodes: usize,
    stop: CancellationToken,
    askers: JoinSet<()>,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Asking {
    /// Begins to ask each of these nodes for everything at once.
    pub(super) fn begin(nodes: &[SocketAddr], question: &Question) -> Self {
        let (stop, calls) = (CancellationToken::new(), Arc::new(Mutex::new(Vec::new())));
        let mut askers = JoinSet::new();
        for node in nodes.iter().copied() {
            for kind in Kind::ALL {
                let (question, stop, calls) = (question.clone(), stop.clone(), Arc::clone(&calls));
                askers.spawn(async move {
                    let (mut admin, mut tasks) = (connect::admin(node), connect::tasks(node));
                    while !stop.is_cancelled() {
                        let begin = Instant::now();
                        let answer = question.ask(kind, &mut admin, &mut tasks).await;
                        lock(&calls).push(Call { kind, node, took: begin.elapsed(), answer });
                        tokio::time::sleep(PAUSE).await;
                    }
                });
            }
        }
        Self { begin: Instant::now(), nodes: nodes.len(), stop, askers, calls }
    }

    /// Waits until everybody was told who must be, and the fault has lasted that long.
    pub(super) async fn go_on(&self, fault: Fault, until: Instant) {
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let is_over = Instant::now() >= until && self.begin.elapsed() >= ASKED_MIN;
            let is_told = match fault.told() {
                Told::Nobody => true,
                Told::Somebody => self.told() > 0,
                Told::Everybody => self.lines_told() == self.nodes * Kind::ALL.len(),
            };
            if is_over && is_told {
                return;
            }
            let asked = self.begin.elapsed();
            assert!(
                is_told || asked < ANSWER_MAX,
                "{fault:?}: {:?} was not told of it\n{:?}",
                fault.told(),
                self.calls()
            );
        }
    }

    /// Begins no more calls.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits for the last answers, and judges all.
    pub(super) async fn end(mut self, fault: Fault) -> Asked {
        self.stop();
        while let Some(ended) = self.askers.join_next().await {
            ended.expect("an asker does not panic");
        }
        let calls = self.calls().clone();
        let longest = calls.iter().map(|call| call.took).max().unwrap_or_default();
        let others: Vec<_> = calls.iter().filter(|call| matches!(call.answer, Answer::Other(_))).collect();
        // Calls to a node that is killed break; one that was stopped answers them all in the end.
        assert!(others.is_empty() || fault == Fault::NodeKilled, "{fault:?}: {others:?}");
        assert!(
            longest < ANSWER_MAX || !fault.leaves_nodes_alive(),
            "{fault:?}: an answer took {longest:?}\n{calls:?}"
        );
        Asked { told: self.told(), longest }
    }

    fn told(&self) -> usize {
        self.calls().iter().filter(|call| call.answer == Answer::Told).count()
    }

    /// How many kinds of calls were told by their nodes.
    fn lines_told(&self) -> usize {
        let mut lines: Vec<(SocketAddr, Kind)> = Vec::new();
        for call in self.calls().iter().filter(|call| call.answer == Answer::Told) {
            if !lines.contains(&(call.node, call.kind)) {
                lines.push((call.node, call.kind));
            }
        }
        lines.len()
    }

    fn calls(&self) -> MutexGuard<'_, Vec<Call>> {
        lock(&self.calls)
    }
}

fn lock(calls: &Mutex<Vec<Call>>) -> MutexGuard<'_, Vec<Call>> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Question {
    /// Reads the execution through a node, which then has it in memory.
    pub(super) async fn look(&self, node: SocketAddr) {
        let looked = self.ask(Kind::Get, &mut connect::admin(node), &mut connect::tasks(node)).await;
        assert_eq!(looked, Answer::Done, "nothing is wrong yet");
    }

    async fn ask(&self, kind: Kind, admin: &mut Admin, tasks: &mut Tasks) -> Answer {
        match kind {
            Kind::Register => {
                let request = RegisterWorkerRequest {
                    worker_id: "asks".to_owned(),
                    contracts: vec!["no.work@1".to_owned()],
                    ..RegisterWorkerRequest::default()
                };
                classify(&tasks.register_worker(request).await)
            }
            Kind::Start => {
                let key = self.keys.fetch_add(KEYS_PER_LIFE, Ordering::Relaxed);
                let mut life = Life::begun(key, Plan::Compute { value: i64::try_from(key).expect("it is small") });
                let started = admin.start_execution(start_request(&life)).await;
                let answer = classify(&started);
                if let Ok(response) = started {
                    life.start = accepted(&life, response.into_inner());
                }
                self.journal.life(life);
                answer
            }
            Kind::Get => {
                let request = GetExecutionRequest { id: self.id.clone(), ..GetExecutionRequest::default() };
                let got = admin.get_execution(request).await;
                if let Ok(response) = &got {
                    let state = response.get_ref().execution.as_ref().expect("it is always there").state();
                    if state != self.state {
                        return Answer::Other(format!("it is {:?}, but it was said to be {state:?}", self.state));
                    }
                }
                classify(&got)
            }
        }
    }
}

fn classify<T>(result: &Result<Response<T>, Status>) -> Answer {
    let Err(status) = result else { return Answer::Done };
    let details = status.get_error_details();
    let is_told = status.code() == Code::Unavailable
        && details.error_info().is_some_and(|info| info.reason == "STORE_UNAVAILABLE")
        && details.retry_info().is_some_and(|info| info.retry_delay.is_some());
    if is_told { Answer::Told } else { Answer::Other(status.to_string()) }
}
