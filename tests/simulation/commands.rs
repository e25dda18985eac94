//! What clients and workers do, each call in a task of its own: its answer goes into the journal when it comes.

use crate::{
    coverage::{Command, Of},
    definitions::{CONTRACTS, OUTPUT, QUEUES, WRONG_OUTPUT},
    harness::{arc, json, name, registration, request},
    journal::{Call, Content, Journal},
    world::{Server, Shared, World},
};
use orbit::domain::{ExecutionId, Failure, Rejection, ReportOutcome, SessionId};
use orbit::engine::{Error, ExecutionName, HeldToken, Report, StartExecution, Task, input_digest};
use orbit::store::{ExecutionState, Find, ListFilter, Store};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

/// Executions that one run makes at most.
const STARTS_MAX: usize = 14;

/// A command that is under way, and where its answer goes.
#[derive(Clone)]
struct Desk {
    shared: Arc<Mutex<Shared>>,
    flight: u64,
}

impl Desk {
    fn journal(&self, write: impl FnOnce(&mut Journal)) {
        write(&mut self.shared.lock().unwrap().journal);
    }

    /// Takes note of an error: a store that failed excuses itself, a refusal must be one of those that may be.
    fn error(&self, error: &Error, is_expected: bool) {
        let mut shared = self.shared.lock().unwrap();
        let is_excused = matches!(error, Error::Store(_)) && shared.store_failed_since(self.flight);
        if !is_expected && !is_excused {
            shared.journal.faults.push(format!("unexpected answer: {error:?}"));
        }
    }
}

impl World {
    /// Sends a command; `work` is polled on its own.
    fn send<F: Future<Output = ()> + Send + 'static>(
        server: &Server,
        command: Command,
        of: Of,
        work: impl FnOnce(Desk) -> F,
    ) {
        let flight = server.shared.lock().unwrap().begin(command, of);
        let desk = Desk { shared: server.shared.clone(), flight };
        let work = work(desk);
        let shared = server.shared.clone();
        tokio::spawn(async move {
            work.await;
            shared.lock().unwrap().end(flight);
        });
    }

    async fn state_of(&self, id: &str) -> Of {
        self.memory.execution(&Find::Id(id.into())).await.unwrap().map(|row| row.state)
    }

    /// An execution in some state, each state as likely as any other.
    async fn some_execution(&mut self) -> Option<(ExecutionName, ExecutionState)> {
        let mut by_state: BTreeMap<ExecutionState, Vec<Arc<str>>> = BTreeMap::new();
        for row in self.memory.list(&ListFilter::default(), None, 1_000).await.unwrap() {
            by_state.entry(row.state).or_default().push(row.id);
        }
        let states: Vec<_> = by_state.keys().copied().collect();
        if states.is_empty() {
            return None;
        }
        let state = *self.random.pick(&states);
        let id = self.random.pick(&by_state[&state]).clone();
        Some((name(&id), state))
    }

    /// Sends some command, whichever is possible now.
    pub(crate) async fn act(&mut self, server: &Server) {
        match self.random.below(40) {
            0..=4 => self.start(server).await,
            5..=6 => self.start_again(server).await,
            7..=9 => self.signal(server).await,
            10 => self.signal_again(server).await,
            11..=12 => self.end(server).await,
            13..=19 => self.report(server).await,
            20..=23 => self.report_again(server).await,
            24..=25 => self.look(server).await,
            26..=30 => self.poll(server),
            31 => self.stream(server),
            32..=34 => self.heartbeat(server),
            35..=38 => self.register(server),
            _ => self.leave(server),
        }
    }

    async fn start(&mut self, server: &Server) {
        if self.starts.len() >= STARTS_MAX {
            return self.start_again(server).await;
        }
        let number = self.starts.len();
        let workflow = self.random.below(self.workflows.len());
        let workflow = self.workflows[workflow].definition.name.clone();
        let input = self.random.pick(&["{}", "{\"x\":1}"]).to_owned();
        let call = StartExecution {
            id: Some(ExecutionId::parse(&format!("e{number}")).unwrap()),
            workflow: workflow.clone(),
            version: None,
            input: json(input),
            input_digest: input_digest(&workflow, input),
            labels: BTreeMap::new(),
            request: self.random.one_in(2).then(|| request(&format!("start {number}"), "1")),
            trace_parent: arc(""),
        };
        self.starts.push(call.clone());
        self.send_start(server, Command::Start, call).await;
        // Now and then twice at once.
        if self.random.one_in(4) {
            self.start_again(server).await;
        }
    }

    async fn start_again(&mut self, server: &Server) {
        if self.starts.is_empty() {
            return;
        }
        let mut call = self.random.pick(&self.starts.clone()).clone();
        let id = call.id.clone().unwrap();
        if self.random.one_in(3) {
            // Each state as likely as any other.
            if let Some((name, _)) = self.some_execution().await {
                call = self.starts.iter().find(|start| start.id.as_ref() == Some(&name.id)).unwrap().clone();
            }
        }
        match self.random.below(3) {
            0 if self.state_of(id.as_str()).await.is_some() && call.id.as_ref() == Some(&id) => {
                call.input = json("[7]");
                call.input_digest = input_digest(&call.workflow, "[7]");
                call.request = None;
                self.send_start(server, Command::StartOther, call).await;
            }
            1 if call.request.is_some() => self.send_start(server, Command::StartRepeat, call).await,
            _ => {
                call.request = None;
                self.send_start(server, Command::Start, call).await;
            }
        }
    }

    async fn send_start(&self, server: &Server, command: Command, call: StartExecution) {
        let id = call.id.clone().unwrap();
        let of = self.state_of(id.as_str()).await;
        let engine = server.engine.clone();
        Self::send(server, command, of, |desk| async move {
            match engine.start_execution(call).await {
                Ok(started) => desk.journal(|journal| {
                    journal.start(&started.id, started.uid);
                    if command == Command::StartOther {
                        journal.faults.push(format!("{} was started with another input", started.id));
                    }
                    if command == Command::StartRepeat && !started.created && of.is_none() {
                        journal.faults.push(format!("the first answer to the start of {} was another", started.id));
                    }
                }),
                Err(error) => {
                    let is_expected =
                        command == Command::StartOther && matches!(error, Error::ExecutionAlreadyExists { .. });
                    desk.error(&error, is_expected);
                }
            }
        });
    }

    async fn signal(&mut self, server: &Server) {
        let Some((name, state)) = self.some_execution().await else { return };
        let payload = self.random.pick(&["1", "2", "5", "\"x\""]).to_string();
        let position = self.starts.iter().position(|start| start.id.as_ref() == Some(&name.id)).unwrap();
        let key = format!("signal {}", self.random.next());
        let is_named = self.random.one_in(2);
        if is_named {
            self.signals.push((position, payload.clone(), key.clone()));
        }
        let expires = self.random.one_in(4).then_some(Duration::from_secs(3));
        self.send_signal(server, Command::Signal, state, name, payload, is_named.then_some(key), expires);
    }

    async fn signal_again(&mut self, server: &Server) {
        if self.signals.is_empty() {
            return;
        }
        let (position, payload, key) = self.random.pick(&self.signals.clone()).clone();
        let id = self.starts[position].id.clone().unwrap();
        let Some(state) = self.state_of(id.as_str()).await else { return };
        let name = ExecutionName { id, uid: None };
        self.send_signal(server, Command::SignalRepeat, state, name, payload, Some(key), None);
    }

    #[expect(clippy::too_many_arguments, reason = "each is a part of one call")]
    fn send_signal(
        &self,
        server: &Server,
        command: Command,
        state: ExecutionState,
        name: ExecutionName,
        payload: String,
        key: Option<String>,
        expires: Option<Duration>,
    ) {
        let key = key.map(|key| request(&key, &payload));
        let engine = server.engine.clone();
        let expire_time = expires.map(|span| orbit::clock::Clock::now(&*server.clock) + span);
        let was_known = key.is_some_and(|key| self.shared().journal.knows(&key));
        Self::send(server, command, Some(state), |desk| async move {
            let sent = json(&payload);
            match engine.signal(&name, arc("s"), sent.clone(), expire_time, key).await {
                Ok(number) => desk.journal(|journal| {
                    if let Some(uid) = journal.uid_of(name.id.as_str()) {
                        journal.record(uid, number, Call::Signal { payload: sent }, key);
                    }
                }),
                Err(error) => {
                    let is_refusal = matches!(
                        error,
                        Error::Rejected(Rejection::ExecutionClosed { .. } | Rejection::SignalBufferFull { .. })
                    );
                    // A signal that was acknowledged once has the same answer for ever.
                    desk.error(&error, is_refusal && !was_known);
                }
            }
        });
    }

    /// Cancels or terminates.
    async fn end(&mut self, server: &Server) {
        let Some((name, state)) = self.some_execution().await else { return };
        // Executions that run are worth more alive.
        if state == ExecutionState::Running && !self.random.one_in(3) {
            return;
        }
        let key = self.random.one_in(2).then(|| request(&format!("end {}", self.random.next()), "1"));
        let (engine, is_cancel) = (server.engine.clone(), !self.random.one_in(3));
        let command = if is_cancel { Command::Cancel } else { Command::Terminate };
        Self::send(server, command, Some(state), |desk| async move {
            let answer = if is_cancel {
                engine.cancel(&name, arc("enough"), key).await
            } else {
                engine.terminate(&name, arc("now"), key).await
            };
            let call = if is_cancel { Call::Cancel } else { Call::Terminate };
            match answer {
                Ok(number) => desk.journal(|journal| {
                    if let Some(uid) = journal.uid_of(name.id.as_str()) {
                        journal.record(uid, number, call, key);
                    }
                }),
                Err(error) => {
                    let is_refusal = matches!(
                        error,
                        Error::Rejected(Rejection::ExecutionClosed { .. } | Rejection::WindingDown { .. })
                    );
                    desk.error(&error, is_refusal);
                }
            }
        });
    }

    async fn state_of_task(&self, task: &Task) -> Of {
        self.memory.execution(&Find::Uid(task.token.uid)).await.unwrap().map(|row| row.state)
    }

    /// Of some tasks, one whose execution is in some state, each state as likely as any other.
    async fn some_task(&mut self, tasks: Vec<Task>) -> Option<Task> {
        let mut by_state: BTreeMap<Of, Vec<Task>> = BTreeMap::new();
        for task in tasks {
            by_state.entry(self.state_of_task(&task).await).or_default().push(task);
        }
        let states: Vec<_> = by_state.keys().copied().collect();
        if states.is_empty() {
            return None;
        }
        let state = *self.random.pick(&states);
        Some(self.random.pick(&by_state[&state]).clone())
    }

    /// A worker reports on a task that it holds.
    async fn report(&mut self, server: &Server) {
        let held: Vec<Task> = self.shared().workers.iter().flat_map(|worker| worker.held.clone()).collect();
        let Some(task) = self.some_task(held).await else { return };
        let content = self.some_content();
        for worker in &mut self.shared().workers {
            worker.held.retain(|held| held.token != task.token);
        }
        let command = match &content {
            Content::Complete(output) if output.as_str() == OUTPUT => Command::Complete,
            Content::Complete(_) => Command::CompleteWrong,
            Content::Fail => Command::Fail,
            Content::Release => Command::Release,
        };
        self.send_report(server, command, task, content).await;
    }

    fn some_content(&mut self) -> Content {
        match self.random.below(8) {
            0..=3 => Content::Complete(json(OUTPUT)),
            4 => Content::Complete(json(WRONG_OUTPUT)),
            5..=6 => Content::Fail,
            _ => Content::Release,
        }
    }

    /// A report comes again, or comes late.
    async fn report_again(&mut self, server: &Server) {
        let sent = self.shared().sent.clone();
        if self.random.one_in(2) {
            let tasks = sent.iter().map(|(task, _)| task.clone()).collect();
            let Some(task) = self.some_task(tasks).await else { return };
            let (_, content) = sent.iter().find(|(sent, _)| sent.token == task.token).unwrap().clone();
            return self.send_report(server, Command::ReportRepeat, task, content).await;
        }
        let tasks = self.shared().tasks.clone();
        let Some(task) = self.some_task(tasks).await else { return };
        let content = self.some_content();
        self.send_report(server, Command::ReportLate, task, content).await;
    }

    async fn send_report(&self, server: &Server, command: Command, task: Task, content: Content) {
        let of = self.state_of_task(&task).await;
        self.shared().sent.push((task.clone(), content.clone()));
        let engine = server.engine.clone();
        let report = match &content {
            Content::Complete(output) => Report::Complete { output: output.clone() },
            Content::Fail => {
                let failure = Failure { code: arc("E"), message: arc("it broke"), details: None, unit: arc("") };
                Report::Fail { failure, retryable: true, retry_after: None }
            }
            Content::Release => Report::Release,
        };
        Self::send(server, command, of, |desk| async move {
            match engine.report(task.token.clone(), report).await {
                Ok(outcome) => desk.journal(|journal| journal.report(task.token, content, outcome)),
                Err(error) => desk.error(&error, false),
            }
        });
    }

    /// Reads a state, waits for an end, or watches events.
    async fn look(&mut self, server: &Server) {
        let Some((name, state)) = self.some_execution().await else { return };
        let engine = server.engine.clone();
        match self.random.below(3) {
            0 => Self::send(server, Command::Get, Some(state), |desk| async move {
                match engine.execution(&name).await {
                    Ok(standing) => desk.journal(|journal| journal.read.push(standing)),
                    Err(error) => desk.error(&error, false),
                }
            }),
            1 => {
                let longest = Duration::from_millis(self.random.next() % 5_000);
                Self::send(server, Command::Wait, Some(state), |desk| async move {
                    match engine.wait(&name, longest).await {
                        Ok(standing) => desk.journal(|journal| journal.read.push(standing)),
                        Err(error) => desk.error(&error, false),
                    }
                });
            }
            _ => {
                let after = self.random.next() % 5;
                Self::send(server, Command::Watch, Some(state), |desk| async move {
                    let row = engine.store().execution(&Find::Id(name.id.as_str().into())).await;
                    let (key, mut watch) = match (row, engine.watch(&name, after).await) {
                        (Ok(Some(row)), Ok(watch)) => (row.key, watch),
                        (Err(error), _) => return desk.error(&Error::Store(error), false),
                        (_, Err(error)) => return desk.error(&error, false),
                        (Ok(None), Ok(_)) => return desk.error(&Error::Internal, false),
                    };
                    let mut events = Vec::new();
                    let _ = tokio::time::timeout(Duration::from_secs(3), async {
                        while let Some(event) = watch.recv().await {
                            match event {
                                Ok(event) => events.push(event),
                                Err(error) => desk.error(&error, false),
                            }
                        }
                    })
                    .await;
                    desk.journal(|journal| journal.watch(key, events));
                });
            }
        }
    }

    fn some_worker(&mut self) -> (usize, u32, Option<SessionId>) {
        let count = self.shared().workers.len();
        let number = self.random.below(count);
        let shared = self.shared();
        let worker = &shared.workers[number];
        (number, worker.life, worker.session)
    }

    fn poll(&mut self, server: &Server) {
        let (worker, life, session) = self.some_worker();
        let Some(session) = session else { return self.register(server) };
        let engine = server.engine.clone();
        let count = u32::try_from(1 + self.random.below(3)).unwrap();
        let wait = Duration::from_millis(self.random.next() % 4_000);
        Self::send(server, Command::Poll, None, |desk| async move {
            match engine.poll(session, count, wait).await {
                Ok(polled) => take(&desk, worker, life, polled.tasks),
                Err(error) => lose(&desk, worker, life, &error),
            }
        });
    }

    fn stream(&mut self, server: &Server) {
        let (worker, life, session) = self.some_worker();
        let Some(session) = session else { return self.register(server) };
        let engine = server.engine.clone();
        let credits = u32::try_from(1 + self.random.below(4)).unwrap();
        let lasts = Duration::from_millis(self.random.next() % 4_000);
        Self::send(server, Command::Stream, None, |desk| async move {
            let mut outlet = match engine.open_stream(session).await {
                Ok(outlet) => outlet,
                Err(error) => return lose(&desk, worker, life, &error),
            };
            outlet.granter().grant(credits);
            // When the time is over the stream breaks off, and what was on its way goes back.
            let _ = tokio::time::timeout(lasts, async {
                while let Some(tasks) = outlet.next().await {
                    outlet.granter().grant(u32::try_from(tasks.len()).unwrap());
                    take(&desk, worker, life, tasks);
                }
            })
            .await;
        });
    }

    fn heartbeat(&mut self, server: &Server) {
        let (worker, life, session) = self.some_worker();
        let Some(session) = session else { return self.register(server) };
        let mut held = Vec::new();
        let tasks = self.shared().workers[worker].held.clone();
        for task in tasks {
            if self.random.one_in(6) {
                continue;
            }
            let progress = self.random.one_in(4).then(|| json("3"));
            held.push(HeldToken { token: task.token, progress, beat: self.random.one_in(4) });
        }
        let engine = server.engine.clone();
        Self::send(server, Command::Heartbeat, None, |desk| async move {
            match engine.heartbeat(session, held).await {
                // What is not wanted is dropped, mostly.
                Ok(answer) => {
                    let workers = &mut desk.shared.lock().unwrap().workers;
                    workers[worker].held.retain(|task| !answer.stop.contains(&task.token));
                }
                Err(error) => lose(&desk, worker, life, &error),
            }
        });
    }

    /// Registers, or takes its session back.
    fn register(&mut self, server: &Server) {
        let (worker, life, session) = self.some_worker();
        let mut registration = registration(&[]);
        registration.worker_id = format!("worker {worker}").into();
        registration.contracts = CONTRACTS[..1 + self.random.below(2)].iter().map(|contract| arc(contract)).collect();
        registration.queues = QUEUES[..1 + self.random.below(2)].iter().map(|queue| arc(queue)).collect();
        registration.language = arc(*self.random.pick(&["", "python"]));
        registration.previous_session = session;
        let command = if session.is_some() { Command::Resume } else { Command::Register };
        let engine = server.engine.clone();
        Self::send(server, command, None, |desk| async move {
            match engine.register(registration).await {
                Ok(registered) => {
                    let workers = &mut desk.shared.lock().unwrap().workers;
                    if workers[worker].life == life {
                        workers[worker].session = Some(registered.session);
                    }
                }
                Err(error) => desk.error(&error, false),
            }
        });
    }

    /// A worker goes: politely, or as if it had been killed.
    fn leave(&mut self, server: &Server) {
        let (number, _, session) = self.some_worker();
        let Some(session) = session else { return };
        let keeps_tasks = self.random.one_in(3);
        let mut shared = self.shared();
        let worker = &mut shared.workers[number];
        worker.life += 1;
        worker.session = None;
        if !keeps_tasks {
            worker.held.clear();
        }
        drop(shared);
        if self.random.one_in(3) {
            return;
        }
        let engine = server.engine.clone();
        Self::send(server, Command::Unregister, None, |desk| async move {
            if let Err(error) = engine.unregister(session).await {
                desk.error(&error, false);
            }
        });
    }
}

/// A worker got tasks; one that has lost its memory meanwhile lost them.
fn take(desk: &Desk, worker: usize, life: u32, tasks: Vec<Task>) {
    let mut shared = desk.shared.lock().unwrap();
    for task in tasks {
        shared.journal.receive(&task.token);
        shared.tasks.push(task.clone());
        if shared.workers[worker].life == life {
            shared.workers[worker].held.push(task);
        }
    }
}

/// A worker hears that its session is gone, or nothing.
fn lose(desk: &Desk, worker: usize, life: u32, error: &Error) {
    desk.error(error, matches!(error, Error::SessionNotFound));
    let mut shared = desk.shared.lock().unwrap();
    if matches!(error, Error::SessionNotFound) && shared.workers[worker].life == life {
        shared.workers[worker].session = None;
    }
}

/// A worker that does everything right: what it gets, it has done.
pub(crate) async fn work_diligently(server: &Server, session: SessionId) -> usize {
    let polled = server.engine.poll(session, 100, Duration::from_millis(200)).await.unwrap();
    let count = polled.tasks.len();
    for task in polled.tasks {
        server.shared.lock().unwrap().journal.receive(&task.token);
        let report = Report::Complete { output: json(OUTPUT) };
        let outcome = server.engine.report(task.token.clone(), report).await.unwrap();
        assert_ne!(outcome, ReportOutcome::Duplicate);
        server.shared.lock().unwrap().journal.report(task.token, Content::Complete(json(OUTPUT)), outcome);
    }
    count
}
