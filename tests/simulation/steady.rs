//! A worker that does all that it is told to, whatever becomes of the nodes: it beats in time at some healthy node, goes
//! to another one where it gets no answer, and lists what it holds. It never loses its session or a task.

use crate::{
    definitions::{CONTRACTS, OUTPUT, QUEUES},
    harness::{arc, json, listed, registration},
    invariants::Histories,
    journal::Content,
    node::Server,
    random::Random,
    world::Shared,
};
use orbit::domain::{EndReason, EventKind, SessionId, Timestamp};
use orbit::engine::{HeldToken, Report, Task};
use orbit::store::{Find, MemoryStore, Store};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// How often it beats: four times a session timeout, as its clock and its way to the nodes are not perfect.
pub(crate) const BEAT: Duration = Duration::from_millis(1_500);
/// Tasks that it holds at most.
const HELD_MAX: usize = 4;

/// A task that it holds, and the newest event of its execution when it came.
struct Held {
    task: Task,
    since_number: u64,
    /// When it will be done.
    until: Timestamp,
}

#[derive(Default)]
struct Inner {
    session: Option<SessionId>,
    /// Whether a first beat has been answered.
    is_known: bool,
    held: Vec<Held>,
    lost: Vec<String>,
}

pub(crate) struct Steady {
    inner: Arc<Mutex<Inner>>,
    next_beat: Timestamp,
    random: Random,
}

impl Steady {
    pub(crate) fn new(random: Random, now: Timestamp) -> Self {
        Self { inner: Arc::default(), next_beat: now, random }
    }

    /// Does what is due, at one of these nodes, which are healthy.
    pub(crate) fn act(
        &mut self,
        now: Timestamp,
        servers: &[Server],
        memory: &MemoryStore,
        shared: &Arc<Mutex<Shared>>,
    ) {
        if now < self.next_beat || servers.is_empty() {
            return;
        }
        self.next_beat = now + BEAT;
        let server = self.random.pick(servers).clone();
        let session = self.inner.lock().unwrap().session;
        let Some(session) = session else { return self.register(&server) };
        self.beat(&server, session);
        let is_free = self.inner.lock().unwrap().held.len() < HELD_MAX;
        if is_free && self.random.one_in(2) {
            self.poll(&self.random.clone().pick(servers).clone(), session, now, memory, shared);
        }
        self.report(&self.random.clone().pick(servers).clone(), now, shared);
    }

    fn register(&self, server: &Server) {
        let mut registration = registration(&CONTRACTS);
        registration.worker_id = arc("steady");
        registration.queues = QUEUES.iter().map(|queue| arc(queue)).collect();
        let (inner, engine) = (self.inner.clone(), server.engine.clone());
        server.spawn(async move {
            if let Ok(registered) = engine.register(registration).await {
                inner.lock().unwrap().session.get_or_insert(registered.session);
            }
        });
    }

    fn beat(&self, server: &Server, session: SessionId) {
        let (inner, engine) = (self.inner.clone(), server.engine.clone());
        let held: Vec<HeldToken> = {
            let inner = inner.lock().unwrap();
            inner.held.iter().map(|held| HeldToken { beat: true, ..listed(&held.task) }).collect()
        };
        let number = server.number;
        server.spawn(async move {
            let answer = engine.heartbeat(session, held).await;
            tracing::info!(number, %session, ?answer, "beat");
            let mut inner = inner.lock().unwrap();
            match answer {
                Ok(answer) => {
                    inner.is_known = true;
                    inner.held.retain(|held| !answer.stop.contains(&held.task.token));
                }
                Err(orbit::engine::Error::SessionNotFound) if inner.is_known => {
                    inner.lost.push(format!("the session of the steady worker is lost: {session}"));
                }
                // It goes to another node next time.
                Err(_) => {}
            }
        });
    }

    fn poll(
        &mut self,
        server: &Server,
        session: SessionId,
        now: Timestamp,
        memory: &MemoryStore,
        shared: &Arc<Mutex<Shared>>,
    ) {
        let until = now + Duration::from_millis(self.random.next() % 20_000);
        let (inner, engine, memory, shared) =
            (self.inner.clone(), server.engine.clone(), memory.clone(), shared.clone());
        server.spawn(async move {
            let Ok(polled) = engine.poll(session, 1, Duration::from_secs(1)).await else { return };
            for task in polled.tasks {
                shared.lock().unwrap().journal.receive(&task.token);
                shared.lock().unwrap().tasks.push(task.clone());
                // One that was closed and deleted meanwhile is not there.
                let row = memory.execution(&Find::Key(task.token.execution)).await.unwrap();
                let Some(row) = row else { continue };
                let since_number = memory.newest_numbers(&[row.key]).await.unwrap()[0].unwrap();
                inner.lock().unwrap().held.push(Held { task, since_number, until });
            }
        });
    }

    /// Reports on what is done. It goes on listing a task until the answer has come.
    fn report(&self, server: &Server, now: Timestamp, shared: &Arc<Mutex<Shared>>) {
        let done: Vec<Task> = {
            let inner = self.inner.lock().unwrap();
            inner.held.iter().filter(|held| held.until <= now).map(|held| held.task.clone()).collect()
        };
        for task in done {
            let (inner, engine, shared) = (self.inner.clone(), server.engine.clone(), shared.clone());
            server.spawn(async move {
                let report = Report::Complete { output: json(OUTPUT) };
                if let Ok(outcome) = engine.report(task.token.clone(), report).await {
                    inner.lock().unwrap().held.retain(|held| held.task.token != task.token);
                    shared.lock().unwrap().journal.report(task.token, Content::Complete(json(OUTPUT)), outcome);
                }
            });
        }
    }

    /// It has lost neither its session nor a task.
    pub(crate) fn check(&self, histories: &Histories) {
        let inner = self.inner.lock().unwrap();
        assert!(inner.lost.is_empty(), "{:?}", inner.lost);
        for Held { task, since_number, .. } in &inner.held {
            let Some(history) = histories.by_uid(task.token.uid) else { continue };
            let of = &task.token.delivery;
            let lost = history.events.iter().find(|event| {
                event.number > *since_number
                    && matches!(&event.kind, EventKind::DeliveryEnded { unit, delivery, reason, .. }
                        if (unit, *delivery) == (&of.unit, of.delivery)
                            && matches!(reason, EndReason::SessionLost | EndReason::NotListed))
            });
            assert!(lost.is_none(), "the steady worker lists {of:?} of {}: {lost:?}", history.row.id);
        }
    }
}
