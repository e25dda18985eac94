//! What clients and workers do, each call in a task of its own: its answer goes into the journal when it comes.

use crate::{
    coverage::{Command, Of},
    definitions::{CONTRACTS, OUTPUT, QUEUES, WRONG_OUTPUT},
    desk::Desk,
    harness::{arc, json, name, registration, request},
    journal::{Call, Content},
    node::Server,
    world::{World, ready},
};
use orbit::domain::{ExecutionId, Failure, Rejection, ReportOutcome, SessionId};
use orbit::engine::{Error, ExecutionName, HeldToken, Report, StartExecution, Task, input_digest};
use orbit::store::{ExecutionState, Find, ListFilter, Store};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Executions that one run makes at most.
const STARTS_MAX: usize = 16;
/// What signals carry.
const PAYLOADS: [&str; 4] = ["1", "2", "5", "\"x\""];

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
    fn newest(&self, id: &str) -> u64 {
        let row = ready(self.memory.execution(&Find::Id(id.into()))).unwrap().expect("it was started");
        ready(self.memory.newest_numbers(&[row.key])).unwrap()[0].expect("it has events")
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

    fn some_execution(&mut self) -> Option<(ExecutionName, ExecutionState)> {
        let rows = ready(self.memory.list(&ListFilter::default(), None, 1_000)).unwrap().rows;
        let (row, of) = self.some(rows, |row| row.id.clone())?;
        Some((name(&row.id), of?))
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
        if let Some(state) = self.state_of(id.as_str()) {
            self.send_named_signal(server, ExecutionName { id: id.clone(), uid: None }, state);
        }
        if self.random.one_in(4) {
            return;
        }
        if let Some(state) = self.state_of(id.as_str()) {
            self.send_end(server, Command::Cancel, ExecutionName { id, uid: None }, state);
        }
    }

    /// Has every node write to one execution at once.
    pub(crate) fn collide(&mut self) {
        let Some((name, _)) = self.some_execution() else { return };
        for server in self.servers() {
            for _ in 0..2 {
                let Some(state) = self.state_of(name.id.as_str()) else { return };
                self.send_named_signal(&server, name.clone(), state);
            }
        }
    }

    /// Sends a command of this kind, or what must come before it.
    pub(crate) fn perform(&mut self, server: &Server, command: Command) {
        match command {
            Command::Start => self.start(server),
            Command::StartRepeat | Command::StartOther => self.start_again(server, command),
            Command::Signal => self.signal(server),
            Command::SignalRepeat => self.signal_again(server),
            Command::Cancel | Command::Terminate => self.end(server, command),
            Command::Pause | Command::Unpause | Command::Retry => self.hold_or_retry(server, command),
            Command::Complete => self.report(server, command, Content::Complete(json(OUTPUT))),
            Command::CompleteWrong => self.report(server, command, Content::Complete(json(WRONG_OUTPUT))),
            Command::Fail => self.report(server, command, Content::Fail),
            Command::Release => self.report(server, command, Content::Release),
            Command::ReportRepeat => self.report_again(server),
            Command::ReportLate => self.report_late(server),
            Command::Get | Command::Wait | Command::Watch => self.look(server, command),
            Command::Poll => self.poll(server),
            Command::Stream => self.stream(server),
            Command::Heartbeat => self.heartbeat(server),
            Command::Register | Command::Resume => self.register(server),
            Command::Unregister => self.leave(server),
        }
    }

    fn start(&mut self, server: &Server) {
        let number = self.starts.len();
        if number >= STARTS_MAX || self.random.one_in(3) {
            return self.start_again(server, Command::Start);
        }
        let workflow = self.random.below(self.workflows.len());
        let workflow = self.workflows[workflow].definition.name.clone();
        let input = *self.random.pick(&["{}", "{\"x\":1}"]);
        let call = StartExecution {
            id: Some(ExecutionId::parse(&format!("e{number}")).unwrap()),
            workflow: workflow.clone(),
            version: None,
            input: json(input),
            input_digest: input_digest(&workflow, input),
            labels: BTreeMap::new(),
            request: (!self.random.one_in(3)).then(|| request(&format!("start {number}"), "1")),
            id_reuse: orbit::engine::IdReuse::Reject,
            trace_parent: arc(""),
            delay: None,
            signal: None,
        };
        self.starts.push(call.clone());
        self.send_start(server, Command::Start, call);
        // Now and then twice at once.
        if self.random.one_in(4) {
            let other = self.some_server();
            self.start_again(&other, Command::Start);
        }
    }

    fn start_again(&mut self, server: &Server, command: Command) {
        let is_right = |call: &&StartExecution| command != Command::StartRepeat || call.request.is_some();
        let calls: Vec<StartExecution> = self.starts.iter().filter(is_right).cloned().collect();
        let id_of = |call: &StartExecution| call.id.as_ref().unwrap().as_str().into();
        let Some((mut call, of)) = self.some(calls, id_of) else { return };
        if command == Command::StartOther {
            if of.is_none() {
                return;
            }
            call.input = json("[7]");
            call.input_digest = input_digest(&call.workflow, "[7]");
        }
        if command != Command::StartRepeat {
            call.request = None;
        }
        self.send_start(server, command, call);
    }

    fn send_start(&self, server: &Server, command: Command, call: StartExecution) {
        let id = call.id.clone().unwrap();
        let (of, has_request) = (self.state_of(id.as_str()), call.request.is_some());
        let engine = server.engine.clone();
        Self::send(server, command, of, |desk| async move {
            match engine.start_execution(call).await {
                Ok(started) => desk.journal(|journal| {
                    journal.start(&started, has_request);
                    if command == Command::StartOther {
                        journal.faults.push(format!("{} was started with another input", started.id));
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

    fn signal(&mut self, server: &Server) {
        let Some((name, state)) = self.some_execution() else { return };
        if self.random.one_in(2) {
            return self.send_named_signal(server, name, state);
        }
        let payload = self.random.pick(&PAYLOADS).to_string();
        let expires = self.random.one_in(3).then_some(Duration::from_secs(3));
        self.send_signal(server, Command::Signal, state, name, payload, None, expires);
    }

    /// A signal with a `request_id`.
    fn send_named_signal(&mut self, server: &Server, name: ExecutionName, state: ExecutionState) {
        let payload = self.random.pick(&PAYLOADS).to_string();
        let position = self.starts.iter().position(|start| start.id.as_ref() == Some(&name.id)).unwrap();
        let key = format!("signal {}", self.random.next());
        self.signals.push((position, payload.clone(), key.clone()));
        self.send_signal(server, Command::Signal, state, name, payload, Some(key), None);
    }

    fn signal_again(&mut self, server: &Server) {
        let ids: Vec<Arc<str>> = self.starts.iter().map(|call| call.id.as_ref().unwrap().as_str().into()).collect();
        let signals = self.signals.clone();
        let Some(((position, payload, key), Some(state))) = self.some(signals, |signal| ids[signal.0].clone()) else {
            return;
        };
        let name = name(&ids[position]);
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
        let expire_time = expires.map(|span| server.now() + span);
        if key.is_none() {
            self.shared().journal.signal_sent(name.id.as_str());
        }
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

    fn end(&mut self, server: &Server, command: Command) {
        let Some((name, state)) = self.some_execution() else { return };
        // Executions that run are worth more alive.
        if state == ExecutionState::Running && !self.random.one_in(3) {
            return;
        }
        self.send_end(server, command, name, state);
    }

    fn hold_or_retry(&mut self, server: &Server, command: Command) {
        let Some((name, state)) = self.some_execution() else { return };
        let key = self.random.one_in(2).then(|| request(&format!("hold {}", self.random.next()), "1"));
        let engine = server.engine.clone();
        Self::send(server, command, Some(state), |desk| async move {
            let (answer, call) = match command {
                Command::Pause => (engine.pause(&name, arc("look"), key).await, Call::Pause),
                Command::Unpause => (engine.resume(&name, key).await, Call::Unpause),
                _ => (engine.retry(&name, key).await, Call::Retry),
            };
            match answer {
                // It was not paused.
                Ok(0) => {}
                Ok(number) => desk.journal(|journal| {
                    if let Some(uid) = journal.uid_of(name.id.as_str()) {
                        journal.record(uid, number, call, key);
                    }
                }),
                Err(error) => {
                    let is_refusal = matches!(
                        error,
                        Error::Rejected(
                            Rejection::ExecutionClosed { .. }
                                | Rejection::WindingDown { .. }
                                | Rejection::NotRetryable { .. }
                        )
                    );
                    desk.error(&error, is_refusal);
                }
            }
        });
    }

    fn send_end(&mut self, server: &Server, command: Command, name: ExecutionName, state: ExecutionState) {
        let key = self.random.one_in(2).then(|| request(&format!("end {}", self.random.next()), "1"));
        let engine = server.engine.clone();
        Self::send(server, command, Some(state), |desk| async move {
            let (answer, call) = if command == Command::Cancel {
                (engine.cancel(&name, arc("enough"), key).await, Call::Cancel)
            } else {
                (engine.terminate(&name, arc("now"), key).await, Call::Terminate)
            };
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

    /// A worker reports on a task that it holds, or held when its execution was closed.
    fn report(&mut self, server: &Server, command: Command, content: Content) {
        let (held, all): (Vec<Task>, Vec<Task>) = {
            let shared = self.shared();
            (shared.workers.iter().flat_map(|worker| worker.held.clone()).collect(), shared.tasks.clone())
        };
        let mut tasks = held;
        for task in all {
            if self.state_of(task.execution_id.as_str()).is_some_and(ExecutionState::is_closed) {
                tasks.push(task);
            }
        }
        let Some((task, of)) = self.some(tasks, id_of_task) else { return };
        for worker in &mut self.shared().workers {
            worker.held.retain(|held| held.token != task.token);
        }
        self.send_report(server, command, task, content, of);
    }

    /// The same report comes again.
    fn report_again(&mut self, server: &Server) {
        let sent = self.shared().sent.clone();
        let Some(((task, content), of)) = self.some(sent, |(task, _)| id_of_task(task)) else { return };
        self.send_report(server, Command::ReportRepeat, task, content, of);
    }

    /// A report on any token that there ever was.
    fn report_late(&mut self, server: &Server) {
        let tasks = self.shared().tasks.clone();
        let Some((task, of)) = self.some(tasks, id_of_task) else { return };
        let content = match self.random.below(4) {
            0 => Content::Complete(json(OUTPUT)),
            1 => Content::Complete(json(WRONG_OUTPUT)),
            2 => Content::Fail,
            _ => Content::Release,
        };
        self.send_report(server, Command::ReportLate, task, content, of);
    }

    fn send_report(&self, server: &Server, command: Command, task: Task, content: Content, of: Of) {
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
    fn look(&mut self, server: &Server, command: Command) {
        let Some((name, state)) = self.some_execution() else { return };
        let engine = server.engine.clone();
        let least = self.newest(name.id.as_str());
        match command {
            Command::Get => Self::send(server, Command::Get, Some(state), |desk| async move {
                match engine.execution(&name).await {
                    Ok(standing) => desk.journal(|journal| journal.read.push((standing, least))),
                    Err(error) => desk.error(&error, false),
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
                    let was_fine = !desk.was_disturbed();
                    desk.journal(|journal| journal.watch(key, after, events, was_fine.then_some(least)));
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
        let wait = Duration::from_millis(self.random.next() % 5_000);
        let memory = self.memory.clone();
        let asked = ready(memory.session(session)).unwrap();
        Self::send(server, Command::Poll, None, |desk| async move {
            let begin = engine.clock().monotonic();
            match engine.poll(session, count, wait).await {
                Ok(polled) => {
                    if let Some(asked) = asked.filter(|_| polled.tasks.is_empty()) {
                        let waited = engine.clock().monotonic() - begin;
                        desk.polled_nothing(&memory, &asked, waited, engine.clock().now());
                    }
                    take(&desk, worker, life, polled.tasks);
                }
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
        let (engine, cares) = (server.engine.clone(), self.random.one_in(3));
        Self::send(server, Command::Heartbeat, None, |desk| async move {
            match engine.heartbeat(session, held).await {
                // What is not wanted is dropped, if the worker cares.
                Ok(answer) if cares => {
                    let workers = &mut desk.shared.lock().unwrap().workers;
                    workers[worker].held.retain(|task| !answer.stop.contains(&task.token));
                }
                Ok(_) => {}
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
        let language = *self.random.pick(&["", "python"]);
        registration.language = arc(language);
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

fn id_of_task(task: &Task) -> Arc<str> {
    task.execution_id.as_str().into()
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
pub(crate) async fn work_diligently(server: Server, session: SessionId) -> usize {
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
