//! Callers: each starts one execution after the other, gives it what it needs, and waits for its end.
//!
//! A caller that does not get an answer sends the same call again, with the same request id, until it gets one.

use crate::{
    chance::Chance,
    connect::{Admin, Answer, Flight, Refusal, admin_of, insist, once},
    journal::{End, Journal, Life, Start, Stop},
    workflow::Plan,
};
use orbit::proto::{
    admin::{
        CancelExecutionRequest, SignalExecutionRequest, StartExecutionRequest, StartExecutionResponse,
        TerminateExecutionRequest, WaitExecutionRequest,
    },
    workflow::{Execution, Payload, execution::State, payload::Content},
};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How much the callers do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Processes that callers stand for: connections of their own.
    pub(crate) clients: u64,
    /// Executions that each client has under way at the same time.
    pub(crate) lives: u64,
    /// Chooses what the next execution does.
    pub(crate) plan: fn(&mut Chance) -> Plan,
}

/// The callers of a run.
#[derive(Debug)]
pub(crate) struct Callers {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Callers {
    pub(crate) fn begin(
        addresses: &[SocketAddr],
        load: Load,
        journal: &Journal,
        flight: &Flight,
        chance: &Chance,
    ) -> Self {
        let stop = CancellationToken::new();
        let keys = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        let mut addresses = addresses.to_vec();
        for client in 0..load.clients {
            let admin = admin_of(&addresses);
            // The next one begins with another node.
            addresses.rotate_left(1);
            for life in 0..load.lives {
                let chance = chance.fork(client * load.lives + life);
                let mut caller = Caller::new(admin.clone(), journal, flight, chance);
                let (keys, stop) = (Arc::clone(&keys), stop.clone());
                tasks.spawn(async move {
                    while !stop.is_cancelled() {
                        let plan = (load.plan)(&mut caller.chance);
                        caller.live(keys.fetch_add(1, Ordering::Relaxed), plan, &stop).await;
                    }
                });
            }
        }
        Self { stop, tasks }
    }

    /// Lets each caller finish the calls that its execution needs.
    pub(crate) async fn end(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("a caller does not panic");
        }
    }
}

/// One caller.
pub(crate) struct Caller {
    admin: Admin,
    journal: Journal,
    flight: Flight,
    chance: Chance,
}

impl Caller {
    pub(crate) fn new(admin: Admin, journal: &Journal, flight: &Flight, chance: Chance) -> Self {
        Self { admin, journal: journal.clone(), flight: flight.clone(), chance }
    }

    /// Sees one execution from its start to its end, unless it is told to stop waiting.
    pub(crate) async fn live(&mut self, key: u64, plan: Plan, stop: &CancellationToken) {
        let mut life = Life::begun(key, plan);
        if let Some(start) = self.start(&life).await {
            let id = start.id.clone();
            life.start = accepted(&life, start);
            self.act(&id, &mut life).await;
            tokio::select! {
                end = self.wait(&id) => life.end = end,
                () = stop.cancelled() => {}
            }
        }
        self.journal.life(life);
    }

    /// Starts the execution of a life, as often as it takes where that is safe. Nothing if nobody knows what came of it.
    pub(crate) async fn start(&mut self, life: &Life) -> Option<StartExecutionResponse> {
        let request = start_request(life);
        let is_safe = !request.id.is_empty() || !request.request_id.is_empty();
        let admin = &self.admin;
        let call = || {
            let (mut admin, request) = (admin.clone(), request.clone());
            async move { admin.start_execution(request).await }
        };
        let started = if is_safe {
            insist(&self.flight, &mut self.chance, call).await
        } else {
            match once(&self.flight, call()).await {
                Answer::Done(response) => Ok(response),
                Answer::Refused(refusal) => Err(refusal),
                Answer::Unknown(_) => return None,
            }
        };
        match started {
            Ok(response) => {
                // A repeat without a request id may find what the call before it made.
                if !response.created && !request.request_id.is_empty() {
                    self.journal
                        .fault(format!("start {}: the repeat of a call has another answer: {response:?}", life.key));
                }
                Some(response)
            }
            Err(refusal) => {
                self.journal.fault(format!("start {} was refused: {refusal:?}", life.key));
                None
            }
        }
    }

    /// Does what the plan wants done from outside.
    pub(crate) async fn act(&mut self, id: &str, life: &mut Life) {
        match life.plan.clone() {
            Plan::Signals { items, .. } => {
                for (index, item) in items.into_iter().enumerate() {
                    match self.signal(signal_request(id, life.key, index, item)).await {
                        Ok(event_number) => life.signals.push(event_number),
                        Err(refusal) => self.journal.fault(format!("signal to {}: {refusal:?}", life.key)),
                    }
                }
            }
            Plan::Patient { ends, .. } => match self.stop(stop_request(id, life.key, ends)).await {
                Ok(event_number) => life.stop = Some(Stop { state: ends, event_number }),
                Err(refusal) => self.journal.fault(format!("stop of {}: {refusal:?}", life.key)),
            },
            Plan::Interrupted { .. } => match self.stop(stop_request(id, life.key, State::Cancelled)).await {
                Ok(event_number) => life.stop = Some(Stop { state: State::Cancelled, event_number }),
                Err(refusal) if refusal.reason == "EXECUTION_CLOSED" => {}
                Err(refusal) => self.journal.fault(format!("cancel of {}: {refusal:?}", life.key)),
            },
            Plan::Chain { .. }
            | Plan::Join { .. }
            | Plan::Retry { .. }
            | Plan::Forgiving { .. }
            | Plan::Sleep { .. }
            | Plan::Compute { .. }
            | Plan::Hold { .. }
            | Plan::Pass { .. } => {}
        }
    }

    async fn signal(&mut self, request: SignalExecutionRequest) -> Result<i64, Refusal> {
        let admin = &self.admin;
        let call = || {
            let (mut admin, request) = (admin.clone(), request.clone());
            async move { admin.signal_execution(request).await }
        };
        insist(&self.flight, &mut self.chance, call).await.map(|response| response.event_number)
    }

    async fn stop(&mut self, request: StopRequest) -> Result<i64, Refusal> {
        let admin = &self.admin;
        match request {
            StopRequest::Cancel(request) => {
                let call = || {
                    let (mut admin, request) = (admin.clone(), request.clone());
                    async move { admin.cancel_execution(request).await }
                };
                insist(&self.flight, &mut self.chance, call).await.map(|response| response.event_number)
            }
            StopRequest::Terminate(request) => {
                let call = || {
                    let (mut admin, request) = (admin.clone(), request.clone());
                    async move { admin.terminate_execution(request).await }
                };
                insist(&self.flight, &mut self.chance, call).await.map(|response| response.event_number)
            }
        }
    }

    /// The end, however often the connection breaks. Waiting is no command: it is not counted as one.
    async fn wait(&mut self, id: &str) -> Option<End> {
        loop {
            let request = WaitExecutionRequest { id: id.to_owned(), ..WaitExecutionRequest::default() };
            match once(&Flight::default(), self.admin.wait_execution(request)).await {
                Answer::Done(response) => {
                    let execution = response.execution.expect("it is always there");
                    if let Some(end) = end_of(&execution) {
                        return Some(end);
                    }
                }
                Answer::Refused(refusal) => {
                    self.journal.fault(format!("wait for {id}: {refusal:?}"));
                    return None;
                }
                Answer::Unknown(_) => {
                    let pause = self.chance.millis(5, 40);
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }
}

/// What the answer to a life's start tells.
pub(crate) fn accepted(life: &Life, answer: StartExecutionResponse) -> Start {
    Start::Accepted { id: answer.id, uid: answer.uid, request_id: start_request(life).request_id }
}

/// The start call of a life; the same each time, and with or without what makes a repeat safe.
pub(crate) fn start_request(life: &Life) -> StartExecutionRequest {
    let id = format!("life-{}", life.key);
    let request_id = format!("start-{}", life.key);
    let (id, request_id) = match life.key % 8 {
        0..3 => (id, request_id),
        3..5 => (String::new(), request_id),
        5..7 => (id, String::new()),
        _ => (String::new(), String::new()),
    };
    StartExecutionRequest {
        id,
        workflow: life.plan.workflow().to_owned(),
        input: Some(payload(&life.plan.input())),
        labels: HashMap::from([("start".to_owned(), life.key.to_string())]),
        request_id,
        ..StartExecutionRequest::default()
    }
}

/// The signal with this index of a life.
pub(crate) fn signal_request(id: &str, key: u64, index: usize, item: i64) -> SignalExecutionRequest {
    SignalExecutionRequest {
        id: id.to_owned(),
        name: "item".to_owned(),
        payload: Some(payload(&json!({"number": item}))),
        request_id: format!("signal-{key}-{index}"),
        ..SignalExecutionRequest::default()
    }
}

enum StopRequest {
    Cancel(CancelExecutionRequest),
    Terminate(TerminateExecutionRequest),
}

fn stop_request(id: &str, key: u64, ends: State) -> StopRequest {
    let (id, request_id) = (id.to_owned(), format!("stop-{key}"));
    if ends == State::Terminated {
        StopRequest::Terminate(TerminateExecutionRequest { id, request_id, ..TerminateExecutionRequest::default() })
    } else {
        StopRequest::Cancel(CancelExecutionRequest { id, request_id, ..CancelExecutionRequest::default() })
    }
}

/// A payload of this document.
pub(crate) fn payload(document: &Value) -> Payload {
    Payload { content: Some(Content::Json(document.to_string())) }
}

/// The JSON text of an answer's payload.
pub(crate) fn text(payload: &Payload) -> &str {
    match &payload.content {
        Some(Content::Json(text)) => text,
        Some(Content::Value(_) | Content::Reference(_)) | None => panic!("answers carry JSON text: {payload:?}"),
    }
}

/// The document of an answer's payload; null if there is none.
pub(crate) fn document(payload: Option<&Payload>) -> Value {
    payload.map_or(Value::Null, |payload| serde_json::from_str(text(payload)).expect("it is JSON"))
}

/// How an execution ended; none if it is open.
pub(crate) fn end_of(execution: &Execution) -> Option<End> {
    let state = execution.state();
    let result = match state {
        State::Succeeded => document(execution.output.as_ref()),
        State::Failed => json!(execution.failure.as_ref().expect("a failed one says why").code),
        State::Cancelled | State::TimedOut | State::Terminated => Value::Null,
        State::Unspecified | State::Running | State::Paused | State::WindingDown => return None,
    };
    Some(End { state, result })
}
