//! What clients and workers do, each call in a task of its own: its answer goes into the journal when it comes.

mod starts;
mod work;

pub(crate) use work::work_diligently;

use crate::{
    coverage::{Command, Of},
    definitions::{OUTPUT, WRONG_OUTPUT},
    desk::Desk,
    harness::{arc, json, name, request},
    journal::{Call, Content},
    node::Server,
    world::{World, ready},
};
use orbit::domain::{Rejection, Uid};
use orbit::engine::{Error, ExecutionName, NewBatch, Task};
use orbit::store::{BatchAction, ExecutionRow, ExecutionState, Find, ListFilter, Store};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Executions that one run makes at most.
const STARTS_MAX: usize = 16;
/// What signals carry.
const PAYLOADS: [&str; 4] = ["1", "2", "5", "\"x\""];

/// Batches that one run makes at most.
const BATCHES_MAX: usize = 12;

/// An execution that a command is for.
#[derive(Clone)]
struct Target {
    name: ExecutionName,
    state: ExecutionState,
    uid: Uid,
    /// Whether it may be deleted: then what was answered of it may have no trace.
    may_go: bool,
}

impl Target {
    /// Whether an error is one of those that a command on it may have.
    fn expects(&self, error: &Error, is_refusal: bool) -> bool {
        is_refusal || self.may_go && tells_that_it_is_gone(error)
    }

    /// Takes note of what a call did.
    fn record(&self, desk: &Desk, number: u64, call: Call, key: Option<orbit::domain::RequestKey>) {
        if !self.may_go {
            desk.journal(|journal| journal.record(self.uid, number, call, key));
        }
    }
}

fn tells_that_it_is_gone(error: &Error) -> bool {
    matches!(error, Error::ExecutionNotFound { .. } | Error::Rejected(Rejection::Deleted))
}

impl World {
    /// Sends a command; `work` is polled on its own.
    fn send<F: Future<Output = ()> + Send + 'static>(
        server: &Server,
        command: Command,
        of: Of,
        work: impl FnOnce(Desk) -> F,
    ) {
        let flight = server.shared.lock().unwrap().begin(server.number, command, of);
        let desk = Desk { shared: server.shared.clone(), flight };
        let work = work(desk);
        let shared = server.shared.clone();
        server.spawn(async move {
            work.await;
            shared.lock().unwrap().end(flight);
        });
    }

    fn state_of(&self, id: &str) -> Of {
        ready(self.memory.execution(&Find::Id(id.into()))).unwrap().map(|row| row.state)
    }

    /// Number of an execution's newest event: what any node says from now on is at least as new.
    fn newest(&self, uid: Uid) -> u64 {
        let row = ready(self.memory.execution(&Find::Uid(uid))).unwrap().expect("it is there");
        ready(self.memory.newest_numbers(&[row.key])).unwrap()[0].expect("it has events")
    }

    /// An execution, by its id, or by its uid where its id may be another's.
    fn target(&self, row: &ExecutionRow) -> Target {
        let may_go = self.deletable.as_ref() == Some(&row.workflow);
        let name = ExecutionName { uid: may_go.then_some(row.uid), ..name(&row.id) };
        Target { name, state: row.state, uid: row.uid, may_go }
    }

    fn target_of(&self, id: &str) -> Option<Target> {
        let row = ready(self.memory.execution(&Find::Id(id.into()))).unwrap()?;
        Some(self.target(&row))
    }

    /// Of some things, one whose execution is in some state, each state as likely as any other; often the one that this
    /// moment is about.
    fn some<T: Clone>(&mut self, things: Vec<T>, id_of: impl Fn(&T) -> Arc<str>) -> Option<(T, Of)> {
        let focus = self.focus.clone().filter(|_| self.random.one_in(2));
        let mut by_state: BTreeMap<Of, Vec<T>> = BTreeMap::new();
        for thing in &things {
            by_state.entry(self.state_of(&id_of(thing))).or_default().push(thing.clone());
        }
        let focused: Vec<T> = things.into_iter().filter(|thing| focus.as_ref() == Some(&id_of(thing))).collect();
        if !focused.is_empty() {
            let thing = self.random.pick(&focused).clone();
            let of = self.state_of(&id_of(&thing));
            return Some((thing, of));
        }
        let states: Vec<Of> = by_state.keys().copied().collect();
        if states.is_empty() {
            return None;
        }
        let of = *self.random.pick(&states);
        Some((self.random.pick(&by_state[&of]).clone(), of))
    }

    fn some_execution(&mut self) -> Option<Target> {
        let rows = ready(self.memory.list(&ListFilter::default(), None, 1_000)).unwrap().rows;
        let (row, _) = self.some(rows, |row| row.id.clone())?;
        Some(self.target(&row))
    }

    /// Sends some command to some node, the usual ones more often.
    pub(crate) fn act(&mut self) {
        let command = match self.random.below(44) {
            0..=7 => Command::Start,
            8..=11 => Command::Signal,
            12 => Command::Cancel,
            13..=17 => Command::Complete,
            18..=19 => Command::Fail,
            20 => Command::ReportLate,
            // What is held must go on more often than it is held.
            37 if self.random.one_in(2) => Command::Pause,
            37 => Command::Unpause,
            38 => Command::Unpause,
            39 if self.random.one_in(2) => Command::Retry,
            21..=27 => Command::Poll,
            28..=29 => Command::Stream,
            30..=32 => Command::Heartbeat,
            33..=36 => Command::Register,
            _ => *self.random.pick(&Command::ALL),
        };
        let server = self.some_server();
        self.perform(&server, command);
    }

    /// Sends some command, each as likely as any other; often to this node.
    pub(crate) fn act_any(&mut self, server: &Server) {
        let command = *self.random.pick(&Command::ALL);
        let other = self.some_server();
        let server = if self.random.one_in(3) { &other } else { server };
        self.perform(server, command);
    }

    /// Makes an execution that workers are busy with wind down, and the next commands be about it.
    pub(crate) fn focus(&mut self, server: &Server) {
        let held: Vec<Task> = self.shared().workers.iter().flat_map(|worker| worker.held.clone()).collect();
        if held.is_empty() {
            return;
        }
        let id = self.random.pick(&held).execution_id.clone();
        self.focus = Some(id.as_str().into());
        let Some(target) = self.target_of(id.as_str()) else { return };
        self.send_named_signal(server, target.clone());
        if !self.random.one_in(4) {
            self.send_end(server, Command::Cancel, target);
        }
    }

    /// Has every node write to one execution at once.
    pub(crate) fn collide(&mut self) {
        let Some(target) = self.some_execution() else { return };
        for server in self.servers() {
            for _ in 0..2 {
                self.send_named_signal(&server, target.clone());
            }
        }
    }

    /// Sends a command of this kind, or what must come before it.
    pub(crate) fn perform(&mut self, server: &Server, command: Command) {
        match command {
            Command::Start => self.start(server),
            Command::StartRepeat | Command::StartOther => self.start_again(server, command),
            Command::StartSignal => self.start_with_signal(server),
            Command::Signal => self.signal(server),
            Command::SignalRepeat => self.signal_again(server),
            Command::Cancel | Command::Terminate => self.end(server, command),
            Command::Pause | Command::Unpause | Command::Retry => self.hold_or_retry(server, command),
            Command::Rerun => self.rerun(server),
            Command::Delete => self.delete(server),
            Command::Batch => self.batch(server),
            Command::BatchCancel => self.cancel_batch(server),
            Command::Complete => self.report(server, command, Content::Complete(json(OUTPUT))),
            Command::CompleteWrong => self.report(server, command, Content::Complete(json(WRONG_OUTPUT))),
            Command::Fail => self.report(server, command, Content::Fail),
            Command::Release => self.report(server, command, Content::Release),
            Command::ReportRepeat => self.report_again(server),
            Command::ReportLate => self.report_late(server),
            Command::ReportGone => self.report_gone(server),
            Command::Get | Command::Wait | Command::Watch => self.look(server, command),
            Command::Poll => self.poll(server),
            Command::Stream => self.stream(server),
            Command::Heartbeat => self.heartbeat(server),
            Command::Register | Command::Resume => self.register(server),
            Command::Unregister => self.leave(server),
        }
    }

    fn signal(&mut self, server: &Server) {
        let Some(target) = self.some_execution() else { return };
        if self.random.one_in(2) {
            return self.send_named_signal(server, target);
        }
        let payload = self.random.pick(&PAYLOADS).to_string();
        let expires = self.random.one_in(3).then_some(Duration::from_secs(3));
        self.send_signal(server, Command::Signal, target, payload, None, expires);
    }

    /// A signal with a `request_id`.
    fn send_named_signal(&mut self, server: &Server, target: Target) {
        let payload = self.random.pick(&PAYLOADS).to_string();
        let key = format!("signal {}", self.random.next());
        self.signals.push((target.name.id.as_str().into(), payload.clone(), key.clone()));
        self.send_signal(server, Command::Signal, target, payload, Some(key), None);
    }

    fn signal_again(&mut self, server: &Server) {
        let signals = self.signals.clone();
        let Some(((id, payload, key), _)) = self.some(signals, |signal| signal.0.clone()) else { return };
        let Some(target) = self.target_of(&id) else { return };
        self.send_signal(server, Command::SignalRepeat, target, payload, Some(key), None);
    }

    fn send_signal(
        &self,
        server: &Server,
        command: Command,
        target: Target,
        payload: String,
        key: Option<String>,
        expires: Option<Duration>,
    ) {
        let key = key.map(|key| request(&key, &payload));
        let engine = server.engine.clone();
        let expire_time = expires.map(|span| server.now() + span);
        if key.is_none() {
            self.shared().journal.signal_sent(target.name.id.as_str());
        }
        let was_known = key.is_some_and(|key| self.shared().journal.knows(&key));
        Self::send(server, command, Some(target.state), |desk| async move {
            let sent = json(&payload);
            match engine.signal(&target.name, arc("s"), sent.clone(), expire_time, key).await {
                Ok(number) => target.record(&desk, number, Call::Signal { payload: sent }, key),
                Err(error) => {
                    let is_refusal = matches!(
                        error,
                        Error::Rejected(Rejection::ExecutionClosed { .. } | Rejection::SignalBufferFull { .. })
                    );
                    // A signal that was acknowledged once has the same answer for ever.
                    desk.error(&error, target.expects(&error, is_refusal && !was_known));
                }
            }
        });
    }

    fn end(&mut self, server: &Server, command: Command) {
        let Some(target) = self.some_execution() else { return };
        // Executions that run are worth more alive.
        if target.state == ExecutionState::Running && !self.random.one_in(3) {
            return;
        }
        self.send_end(server, command, target);
    }

    fn hold_or_retry(&mut self, server: &Server, command: Command) {
        let Some(target) = self.some_execution() else { return };
        let key = self.random.one_in(2).then(|| request(&format!("hold {}", self.random.next()), "1"));
        let engine = server.engine.clone();
        Self::send(server, command, Some(target.state), |desk| async move {
            let name = &target.name;
            let (answer, call) = match command {
                Command::Pause => (engine.pause(name, arc("look"), key).await, Call::Pause),
                Command::Unpause => (engine.resume(name, key).await, Call::Unpause),
                _ => (engine.retry(name, key).await, Call::Retry),
            };
            match answer {
                // It was not paused.
                Ok(0) => {}
                Ok(number) => target.record(&desk, number, call, key),
                Err(error) => {
                    let is_refusal = matches!(
                        error,
                        Error::Rejected(
                            Rejection::ExecutionClosed { .. }
                                | Rejection::WindingDown { .. }
                                | Rejection::NotRetryable { .. }
                        )
                    );
                    desk.error(&error, target.expects(&error, is_refusal));
                }
            }
        });
    }

    fn send_end(&mut self, server: &Server, command: Command, target: Target) {
        let key = self.random.one_in(2).then(|| request(&format!("end {}", self.random.next()), "1"));
        let engine = server.engine.clone();
        Self::send(server, command, Some(target.state), |desk| async move {
            let (answer, call) = if command == Command::Cancel {
                (engine.cancel(&target.name, arc("enough"), key).await, Call::Cancel)
            } else {
                (engine.terminate(&target.name, arc("now"), key).await, Call::Terminate)
            };
            match answer {
                Ok(number) => target.record(&desk, number, call, key),
                Err(error) => {
                    let is_refusal = matches!(
                        error,
                        Error::Rejected(Rejection::ExecutionClosed { .. } | Rejection::WindingDown { .. })
                    );
                    desk.error(&error, target.expects(&error, is_refusal));
                }
            }
        });
    }

    /// Deletes an execution, of the workflow that allows it.
    fn delete(&mut self, server: &Server) {
        let Some(workflow) = self.deletable.clone() else { return };
        let mut rows = ready(self.memory.list(&ListFilter::default(), None, 1_000)).unwrap().rows;
        rows.retain(|row| row.workflow == workflow);
        let Some((row, _)) = self.some(rows, |row| row.id.clone()) else { return };
        let target = self.target(&row);
        let key = self.random.one_in(2).then(|| request(&format!("delete {}", self.random.next()), "1"));
        let engine = server.engine.clone();
        Self::send(server, Command::Delete, Some(target.state), |desk| async move {
            match engine.delete(&target.name, key).await {
                Ok(()) => desk.journal(|journal| journal.deleted(target.uid)),
                Err(error) => {
                    let is_refusal =
                        matches!(error, Error::Rejected(Rejection::ExecutionOpen { .. } | Rejection::EffectsOpen));
                    desk.error(&error, target.expects(&error, is_refusal));
                }
            }
        });
    }

    /// Makes a batch of a few executions of one workflow, or asks for one that was asked for before.
    fn batch(&mut self, server: &Server) {
        if self.batches.len() >= BATCHES_MAX || self.random.one_in(4) {
            let known = self.batches.clone();
            if !known.is_empty() {
                let batch = self.random.pick(&known).clone();
                self.send_batch(server, batch, false);
            }
            return;
        }
        let some = self.random.below(self.workflows.len());
        let some = self.workflows[some].definition.name.clone();
        let (action, workflow, states): (_, _, &[&str]) = match (self.random.below(5), self.deletable.clone()) {
            (0, _) => (BatchAction::Cancel, some, &["", " AND state = RUNNING"]),
            (1, _) => (BatchAction::Terminate, some, &["", " AND state = RUNNING", " AND state = PAUSED"]),
            (4, Some(deletable)) => {
                (BatchAction::Delete, deletable, &["", " AND state = CANCELLED", " AND state = SUCCEEDED"])
            }
            _ => (BatchAction::Retry, some, &["", " AND state = FAILED", " AND state = TIMED_OUT"]),
        };
        let filter = format!("workflow = {workflow}{}", self.random.pick(states));
        let number = self.batches.len();
        let batch = NewBatch {
            action,
            reason: arc("batch"),
            filter: arc(&filter),
            executions_max: *self.random.pick(&[1, 2, 3, 0]),
            request: self.random.one_in(2).then(|| request(&format!("batch {number}"), "1")),
        };
        let is_dry = self.random.one_in(6);
        if !is_dry {
            self.batches.push(batch.clone());
        }
        self.send_batch(server, batch, is_dry);
    }

    fn send_batch(&self, server: &Server, batch: NewBatch, is_dry: bool) {
        let (engine, request) = (server.engine.clone(), batch.request);
        Self::send(server, Command::Batch, None, |desk| async move {
            match engine.create_batch(batch, is_dry).await {
                Ok(row) if is_dry => desk.journal(|journal| {
                    if !row.id.is_nil() {
                        journal.faults.push(format!("a dry run made {row:?}"));
                    }
                }),
                Ok(row) => {
                    desk.shared.lock().unwrap().batch_made(&row);
                    desk.journal(|journal| journal.batch(row.id, request));
                }
                Err(error) => desk.error(&error, false),
            }
        });
    }

    fn cancel_batch(&mut self, server: &Server) {
        let batches = ready(self.memory.batches(None, 100)).unwrap();
        if batches.is_empty() {
            return;
        }
        let (id, engine) = (self.random.pick(&batches).id, server.engine.clone());
        Self::send(server, Command::BatchCancel, None, |desk| async move {
            if let Err(error) = engine.cancel_batch(id).await {
                desk.error(&error, false);
            }
        });
    }

    /// Reads a state, waits for an end, or watches events.
    fn look(&mut self, server: &Server, command: Command) {
        let Some(target) = self.some_execution() else { return };
        let engine = server.engine.clone();
        let least = self.newest(target.uid);
        let (name, state) = (target.name.clone(), target.state);
        match command {
            Command::Get => Self::send(server, Command::Get, Some(state), |desk| async move {
                match engine.execution(&name).await {
                    Ok(standing) => desk.journal(|journal| journal.read.push((standing, least))),
                    Err(error) => desk.error(&error, target.expects(&error, false)),
                }
            }),
            Command::Wait => {
                let longest = Duration::from_millis(self.random.next() % 5_000);
                Self::send(server, Command::Wait, Some(state), |desk| async move {
                    let begin = engine.clock().now();
                    match engine.wait(&name, longest).await {
                        Ok(standing) => {
                            desk.waited(&standing, begin, engine.clock().now());
                            desk.journal(|journal| journal.read.push((standing, least)));
                        }
                        Err(error) => desk.error(&error, target.expects(&error, false)),
                    }
                });
            }
            _ => {
                let after = self.random.next() % 5;
                Self::send(server, Command::Watch, Some(state), |desk| async move {
                    let row = engine.store().execution(&Find::Uid(target.uid)).await;
                    let (key, mut watch) = match (row, engine.watch(&name, after).await) {
                        (Ok(Some(row)), Ok(watch)) => (row.key, watch),
                        (Err(error), _) => return desk.error(&Error::Store(error), false),
                        (_, Err(error)) => return desk.error(&error, target.expects(&error, false)),
                        (Ok(None), Ok(_)) => return desk.error(&Error::Internal, target.may_go),
                    };
                    let (mut events, mut is_gone) = (Vec::new(), false);
                    let _ = tokio::time::timeout(Duration::from_secs(3), async {
                        while let Some(event) = watch.recv().await {
                            match event {
                                Ok(event) => events.push(event),
                                Err(error) => {
                                    is_gone |= tells_that_it_is_gone(&error);
                                    desk.error(&error, target.expects(&error, false));
                                }
                            }
                        }
                    })
                    .await;
                    let was_fine = !desk.was_disturbed() && !is_gone;
                    desk.journal(|journal| journal.watch(key, after, events, was_fine.then_some(least)));
                });
            }
        }
    }
}
