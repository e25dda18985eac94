//! What workers do: register, ask for tasks, hold them, report on them, and go.

use crate::{
    coverage::{Command, Of},
    definitions::{CONTRACTS, OUTPUT, QUEUES, WRONG_OUTPUT},
    desk::Desk,
    harness::{arc, json, registration},
    journal::Content,
    node::Server,
    world::{World, ready},
};
use orbit::domain::{Failure, ReportOutcome, SessionId};
use orbit::engine::{Error, HeldToken, Report, Task};
use orbit::store::{ExecutionState, Find, Store};
use std::{sync::Arc, time::Duration};

impl World {
    /// A worker reports on a task that it holds, or held when its execution was closed.
    pub(super) fn report(&mut self, server: &Server, command: Command, content: Content) {
        let (held, all): (Vec<Task>, Vec<Task>) = {
            let shared = self.shared();
            (shared.workers.iter().flat_map(|worker| worker.held.clone()).collect(), shared.tasks.clone())
        };
        let mut tasks = self.there(held);
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
    pub(super) fn report_again(&mut self, server: &Server) {
        let mut sent = self.shared().sent.clone();
        sent.retain(|(task, _)| self.state_of(task.execution_id.as_str()).is_some());
        let Some(((task, content), of)) = self.some(sent, |(task, _)| id_of_task(task)) else { return };
        self.send_report(server, Command::ReportRepeat, task, content, of);
    }

    /// A report on any token that there ever was.
    pub(super) fn report_late(&mut self, server: &Server) {
        let tasks = self.shared().tasks.clone();
        let tasks = self.there(tasks);
        let Some((task, of)) = self.some(tasks, id_of_task) else { return };
        let content = self.some_content();
        self.send_report(server, Command::ReportLate, task, content, of);
    }

    /// A report on a token whose execution is not there any more.
    pub(super) fn report_gone(&mut self, server: &Server) {
        let mut tasks = self.shared().tasks.clone();
        tasks.retain(|task| ready(self.memory.execution(&Find::Uid(task.token.uid))).unwrap().is_none());
        if tasks.is_empty() {
            return;
        }
        let task = self.random.pick(&tasks).clone();
        let content = self.some_content();
        self.send_report(server, Command::ReportGone, task, content, None);
    }

    fn some_content(&mut self) -> Content {
        match self.random.below(4) {
            0 => Content::Complete(json(OUTPUT)),
            1 => Content::Complete(json(WRONG_OUTPUT)),
            2 => Content::Fail,
            _ => Content::Release,
        }
    }

    /// Those of tasks whose executions are there.
    fn there(&self, mut tasks: Vec<Task>) -> Vec<Task> {
        tasks.retain(|task| self.state_of(task.execution_id.as_str()).is_some());
        tasks
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

    fn some_worker(&mut self) -> (usize, u32, Option<SessionId>) {
        let count = self.shared().workers.len();
        let number = self.random.below(count);
        let shared = self.shared();
        let worker = &shared.workers[number];
        (number, worker.life, worker.session)
    }

    pub(super) fn poll(&mut self, server: &Server) {
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

    pub(super) fn stream(&mut self, server: &Server) {
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

    pub(super) fn heartbeat(&mut self, server: &Server) {
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
    pub(super) fn register(&mut self, server: &Server) {
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
    pub(super) fn leave(&mut self, server: &Server) {
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
