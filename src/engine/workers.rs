//! What workers do: register, wait for tasks, say that they live, report.

use super::{
    Core, Engine,
    call::{Error, HeartbeatAnswer, HeldToken, Polled, Registered, Registration, Report, Task},
    dispatch::{Granter, Parked},
    sessions::{Beat, Look, Session},
};
use crate::domain::{
    Claimant, Command, DeliveryRef, EndReason, Outcome, Payload, RefusalReason, ReportOutcome, SessionId, TaskToken,
};
use crate::store::{ExecutionKey, Find, HeldRow, Pool, SessionRow};
use futures_util::{StreamExt, stream};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Room in a message for what stands beside a task's input.
const TASK_OVERHEAD_BYTES: usize = 2 * 1024;
/// Room in a message for everything but the tasks.
const FRAME_OVERHEAD_BYTES: usize = 16 * 1024;
/// Executions that are asked at once about the tokens of one heartbeat.
const LOOKS_AT_ONCE: usize = 16;
/// Held rows of one session that are read: more than any worker has slots.
const HELD_ROWS_MAX: usize = 10_000;

impl Engine {
    /// Registers a worker; the session is durable before the answer.
    ///
    /// # Errors
    /// `Store`.
    pub async fn register(&self, registration: Registration) -> Result<Registered, Error> {
        let core = self.core.clone();
        self.detached(async move { core.register(registration).await }).await
    }

    /// Waits for tasks: returns as soon as there are any, or empty once `wait` has passed, the server drains, or the
    /// session is over. Dropping the future gives back what was not taken.
    ///
    /// # Errors
    /// `SessionNotFound`, `Store`.
    pub async fn poll(&self, session: SessionId, max_tasks: u32, wait: Duration) -> Result<Polled, Error> {
        let session = self.core.session(session).await?;
        session.touch(self.core.clock.now());
        let mut parked = self.core.park(&session);
        parked.grant(max_tasks);
        // Should the call go away meanwhile, the tasks go back.
        let mut taken = Taken { core: self.core.clone(), tasks: Vec::new() };
        let first = tokio::select! {
            // A task that is there goes before any reason to stop.
            biased;
            task = parked.next() => task,
            () = self.core.draining.cancelled() => None,
            () = session.over.cancelled() => None,
            () = crate::clock::sleep(wait) => None,
        };
        // What is reserved now is one commit away: it belongs to this answer.
        parked.close();
        taken.tasks.extend(first);
        while let Some(task) = parked.next().await {
            taken.tasks.push(task);
        }
        let mut tasks = std::mem::take(&mut taken.tasks);
        taken.tasks = fit(&session, &mut tasks);
        Ok(Polled { tasks, draining: self.is_draining() })
    }

    /// Opens the task side of a stream.
    ///
    /// # Errors
    /// `SessionNotFound`, `Store`.
    pub async fn open_stream(&self, session: SessionId) -> Result<Outlet, Error> {
        let session = self.core.session(session).await?;
        session.touch(self.core.clock.now());
        let parked = self.core.park(&session);
        Ok(Outlet { core: self.core.clone(), session, parked, ahead: None })
    }

    /// Says that a worker lives, and which tokens it holds.
    ///
    /// # Errors
    /// `SessionNotFound`, `Store`.
    pub async fn heartbeat(&self, session: SessionId, held: Vec<HeldToken>) -> Result<HeartbeatAnswer, Error> {
        let core = &self.core;
        let session = core.session(session).await?;
        let now = core.clock.now();
        session.touch(now);
        core.take_in_rows(&session).await?;
        let listed: BTreeSet<TaskToken> = held.iter().map(|held| held.token.clone()).collect();
        core.sessions.list(session.row.id, listed.iter().map(|token| token.execution));
        let dropped = session.tokens(|tokens| {
            for held in held {
                tokens.list(held.token, held.progress, held.beat, now);
            }
            tokens.miss(&listed, now)
        });
        core.sessions.unlisted(session.row.id, &dropped.into_iter().map(|token| (token, false)).collect::<Vec<_>>());
        core.doubt_changed(&session).await?;
        core.look_at_doubtful(&session).await;
        let settled = session.tokens(|tokens| tokens.drop_settled());
        core.sessions.unlisted(session.row.id, &settled);
        Ok(HeartbeatAnswer { stop: session.tokens(|tokens| tokens.unwanted()), draining: self.is_draining() })
    }

    /// Takes a worker's report on one delivery.
    ///
    /// # Errors
    /// `Overloaded`, `Store`.
    pub async fn report(&self, token: TaskToken, report: Report) -> Result<ReportOutcome, Error> {
        let core = &self.core;
        let delivery = token.delivery.clone();
        let command = match report {
            Report::Complete { output } => Command::Complete { delivery, output },
            Report::Fail { failure, retryable, retry_after } => {
                let progress = core.newest_progress(&token).await?;
                Command::Fail { delivery, failure, retryable, retry_after, progress }
            }
            Report::Release => {
                let progress = core.newest_progress(&token).await?;
                Command::EndDelivery { delivery, reason: EndReason::Released, progress }
            }
        };
        let outcome = match core.execute_for(token.execution, Some(token.uid), command).await {
            Ok(Outcome::Report(outcome)) => outcome,
            // What is gone, or of another life of the database, is as good as closed.
            Err(Error::ExecutionNotFound { .. }) => ReportOutcome::Refused(RefusalReason::ExecutionClosed),
            Ok(Outcome::Recorded(_) | Outcome::Dispatched(_) | Outcome::Done) => return Err(Error::Internal),
            Err(error) => return Err(error),
        };
        core.sessions.reported(&token);
        Ok(outcome)
    }

    /// Ends a session at once; one that is not there is fine.
    ///
    /// # Errors
    /// `Store`.
    pub async fn unregister(&self, session: SessionId) -> Result<(), Error> {
        let core = self.core.clone();
        self.detached(async move {
            core.store.end_session(session, None).await.map_err(Error::Store)?;
            core.end_tokens_of(session, EndReason::Unregistered).await
        })
        .await
    }
}

/// Tasks that no answer has yet; what is left of them goes back.
struct Taken {
    core: Arc<Core>,
    tasks: Vec<Task>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        for task in self.tasks.drain(..) {
            self.core.return_unsent(task);
        }
    }
}

/// Keeps as many tasks as one message of the worker's can take, at least one; gives the others.
fn fit(session: &Session, tasks: &mut Vec<Task>) -> Vec<Task> {
    let room = message_room(session);
    let mut bytes = 0;
    let count = tasks
        .iter()
        .take_while(|task| {
            bytes += size_of_task(task);
            bytes <= room
        })
        .count();
    tasks.split_off(count.max(1).min(tasks.len()))
}

/// The task side of a stream.
pub struct Outlet {
    core: Arc<Core>,
    session: Arc<Session>,
    parked: Parked,
    /// A task that had no room in the last frame.
    ahead: Option<Task>,
}

impl Outlet {
    /// Grants credits from the stream's reading half.
    #[must_use]
    pub fn granter(&self) -> Granter {
        self.parked.granter()
    }

    /// Takes note that the worker was heard of.
    pub fn touch(&self) {
        self.session.touch(self.core.clock.now());
    }

    /// The next tasks: all that are there, as far as one message has room. Nothing once the stream must end.
    pub async fn next(&mut self) -> Option<Vec<Task>> {
        let first = match self.ahead.take() {
            Some(task) => task,
            None => tokio::select! {
                biased;
                task = self.parked.next() => task?,
                () = self.core.draining.cancelled() => return None,
                () = self.session.over.cancelled() => return None,
            },
        };
        let room = message_room(&self.session);
        let mut bytes = size_of_task(&first);
        let mut tasks = vec![first];
        while let Some(task) = self.parked.try_next() {
            bytes += size_of_task(&task);
            if bytes > room {
                self.ahead = Some(task);
                break;
            }
            tasks.push(task);
        }
        Some(tasks)
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        let left = self.parked.leave();
        for task in self.ahead.take().into_iter().chain(left) {
            self.core.return_unsent(task);
        }
    }
}

fn message_room(session: &Session) -> usize {
    usize::try_from(session.row.message_bytes_max).unwrap_or(usize::MAX).saturating_sub(FRAME_OVERHEAD_BYTES)
}

fn size_of_task(task: &Task) -> usize {
    TASK_OVERHEAD_BYTES
        + task.delivery.input.len()
        + task.delivery.progress.as_ref().map_or(0, crate::domain::Payload::len)
}

impl Core {
    /// Finds a session, in memory or in the store.
    pub(super) async fn session(&self, id: SessionId) -> Result<Arc<Session>, Error> {
        if let Some(session) = self.sessions.get(id) {
            return Ok(session);
        }
        let row = self.store.session(id).await.map_err(Error::Store)?;
        Ok(self.sessions.keep(row.ok_or(Error::SessionNotFound)?))
    }

    fn park(&self, session: &Session) -> Parked {
        let row = &session.row;
        let mut pools = Vec::new();
        for queue in &row.queues {
            for contract in &row.contracts {
                let languages = [Arc::from(""), row.language.clone()];
                for language in languages.into_iter().take(if row.language.is_empty() { 1 } else { 2 }) {
                    pools.push(Pool { queue: queue.clone(), contract: contract.clone(), language });
                }
            }
        }
        let claimant = Claimant {
            session_id: row.id,
            worker_id: row.worker_id.clone(),
            message_bytes_max: usize::try_from(row.message_bytes_max).unwrap_or(usize::MAX),
            session_timeout: session.timeout,
        };
        self.dispatch.park(claimant, pools)
    }

    async fn register(&self, registration: Registration) -> Result<Registered, Error> {
        let (now, timeout) = (self.clock.now(), self.config.settings.session_timeout);
        let mut row = SessionRow {
            id: registration.previous_session.unwrap_or_else(|| SessionId(self.entropy.uuid())),
            worker_id: registration.worker_id,
            language: registration.language,
            sdk: registration.sdk,
            build: registration.build,
            queues: without_repeats(registration.queues),
            contracts: without_repeats(registration.contracts),
            slots: registration.slots,
            message_bytes_max: registration.message_bytes_max,
            register_time: now,
            contact_time: now,
            connection: 1,
            timeout: Some(timeout),
        };
        let resumed = match registration.previous_session {
            Some(_) => self.store.resume_session(&row).await.map_err(Error::Store)?,
            None => None,
        };
        let is_resumed = resumed.is_some();
        if let Some(resumed) = resumed {
            row = resumed;
        } else {
            row.id = SessionId(self.entropy.uuid());
            self.store.put_session(&row).await.map_err(Error::Store)?;
        }
        let warnings = self.warnings_for(&row).await?;
        let session = self.sessions.keep(row);
        if !is_resumed {
            // A new session holds nothing.
            session.take_in(Vec::new());
        }
        Ok(Registered {
            session: session.row.id,
            resumed: is_resumed,
            heartbeat_interval: timeout / 3,
            session_timeout: timeout,
            warnings,
        })
    }

    /// Contracts that are announced at a version that no definition uses, while another one is in use.
    async fn warnings_for(&self, row: &SessionRow) -> Result<Vec<String>, Error> {
        let mut warnings = Vec::new();
        for contract in &row.contracts {
            let Some((name, version)) = contract.split_once('@') else { continue };
            let used = self.store.contract_versions(name).await.map_err(Error::Store)?;
            if !used.is_empty() && !used.iter().any(|used| used == version) {
                warnings.push(format!("{name} is announced at version {version}; definitions use {}", used.join(", ")));
            }
        }
        Ok(warnings)
    }

    /// Reads what a session holds as far as this node may not know: what its worker lists no more must be noticed. That
    /// is once, what it held before this node heard of it; in a shared store always, since its heartbeats go anywhere.
    async fn take_in_rows(&self, session: &Session) -> Result<(), Error> {
        if session.has_rows() && !self.store.is_shared() {
            return Ok(());
        }
        let rows = self.store.held_by_session(session.row.id, HELD_ROWS_MAX).await.map_err(Error::Store)?;
        let mut held = Vec::new();
        for row in session.take_in(rows) {
            if self.sessions.has_ended(&row) {
                continue;
            }
            // Without its execution a row is nobody's; it goes with its session.
            let execution = self.store.execution(&Find::Key(row.execution)).await.map_err(Error::Store)?;
            let Some(execution) = execution else { continue };
            let delivery = DeliveryRef { unit: row.unit.clone(), delivery: row.delivery };
            held.push((TaskToken { execution: row.execution, uid: execution.uid, delivery }, row));
        }
        self.sessions.list(session.row.id, held.iter().map(|(token, _)| token.execution));
        session.take_in_new(held);
        Ok(())
    }

    /// Doubts what is known of tokens whose execution another node has changed since: news of it may have been lost.
    async fn doubt_changed(&self, session: &Session) -> Result<(), Error> {
        if !self.store.is_shared() {
            return Ok(());
        }
        let looked_at = session.tokens(|tokens| tokens.looked_at());
        if looked_at.is_empty() {
            return Ok(());
        }
        let keys: Vec<ExecutionKey> = looked_at.keys().copied().collect();
        let numbers = self.store.newest_numbers(&keys).await.map_err(Error::Store)?;
        session.tokens(|tokens| {
            for ((key, seen), newest) in looked_at.into_iter().zip(numbers) {
                if newest.unwrap_or(0) != seen {
                    tokens.doubt(key);
                }
            }
        });
        Ok(())
    }

    /// Asks the executions of tokens that are in doubt.
    async fn look_at_doubtful(self: &Arc<Self>, session: &Session) {
        let looks = session.tokens(|tokens| tokens.doubtful()).into_iter().map(|token| async move {
            let look = self.look(&token).await;
            (token, look)
        });
        let mut looks = stream::iter(looks).buffer_unordered(LOOKS_AT_ONCE);
        while let Some((token, look)) = looks.next().await {
            // One execution that cannot be read must not cost the worker its session.
            match look {
                Ok(look) => session.tokens(|tokens| tokens.seen(&token, look)),
                Err(error) => {
                    tracing::warn!(execution = token.execution.0, %error, "a listed token could not be looked at")
                }
            }
        }
    }

    /// Asks an execution about a token that a worker lists.
    async fn look(self: &Arc<Self>, token: &TaskToken) -> Result<Look, Error> {
        let standing = match self.read(token.execution, true).await {
            Ok(standing) => standing,
            Err(Error::ExecutionNotFound { .. } | Error::Quarantined { .. }) => None,
            Err(error) => return Err(error),
        };
        let number = standing.as_ref().map_or(0, |standing| standing.state.last_number());
        let state = standing.filter(|standing| standing.row.uid == token.uid).map(|standing| standing.state);
        let Some(state) = state else {
            return Ok(Look { is_wanted: false, number, dispatch_time: None, heartbeat_timeout: None, held: None });
        };
        Ok(Look {
            is_wanted: state.delivery_wanted(&token.delivery),
            number,
            dispatch_time: state.dispatch_time(&token.delivery),
            heartbeat_timeout: state.heartbeat_timeout(&token.delivery),
            held: self.held_row(token).await?,
        })
    }

    /// The row of a token in `held`.
    async fn held_row(&self, token: &TaskToken) -> Result<Option<HeldRow>, Error> {
        let rows = self.store.held_by_execution(token.execution).await.map_err(Error::Store)?;
        let is_it = |row: &HeldRow| row.unit == token.delivery.unit && row.delivery == token.delivery.delivery;
        Ok(rows.into_iter().find(is_it))
    }

    /// The newest progress of a task, whichever node heard it.
    async fn newest_progress(&self, token: &TaskToken) -> Result<Option<Payload>, Error> {
        let here = self.sessions.beat_of(token);
        let elsewhere = if self.store.is_shared() { self.held_row(token).await? } else { None };
        let beats = here.into_iter().chain(elsewhere.as_ref().map(Beat::of));
        Ok(beats.filter(|beat| beat.progress.is_some()).max_by_key(|beat| beat.time).and_then(|beat| beat.progress))
    }
}

fn without_repeats(names: Vec<Arc<str>>) -> Vec<Arc<str>> {
    let mut seen = BTreeSet::new();
    names.into_iter().filter(|name| seen.insert(name.clone())).collect()
}
