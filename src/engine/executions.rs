//! What callers do with executions that exist: read, query, wait, watch, signal, cancel, terminate, pause, resume, retry.

use super::{
    Core, Engine,
    call::{Error, ExecutionName, Standing},
    mailbox::{Glance, Item, Mailbox, Whose},
};
use crate::domain::{
    Command, Event, EventKind, Outcome, Payload, Rejection, RequestKey, Timestamp, Uid, decide, query,
};
use crate::store::{ExecutionKey, Find};
use std::{sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};

/// Bytes of one page of history.
const PAGE_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of an event, as far as nothing is known of it.
const EVENT_BYTES: usize = 512;
/// Events that a watcher may be behind in memory.
const WATCH_LENGTH: usize = 64;
/// Events that a watcher reads at once.
const WATCH_PAGE: usize = 256;

impl Engine {
    /// Reads an execution's committed state.
    ///
    /// # Errors
    /// `ExecutionNotFound`, `Store`.
    pub async fn execution(&self, name: &ExecutionName) -> Result<Standing, Error> {
        let core = &self.core;
        let found = core.find(name).await?;
        let mut standing = core.read(found.key, true).await;
        if is_past(&standing)
            && let Some(key) = core.passed_on(name, &found).await?
        {
            standing = core.read(key, true).await;
        }
        standing.map_err(|error| error.named(name))?.ok_or(Error::Internal)
    }

    /// Evaluates a query of the definition on the committed state; gives the result, and the number of the newest event
    /// that it knew.
    ///
    /// # Errors
    /// `ExecutionNotFound`, `Query`, `Store`.
    pub async fn query(&self, name: &ExecutionName, query: &str) -> Result<(Payload, u64), Error> {
        let state = self.execution(name).await?.state;
        Ok((query::evaluate(&state, query)?, state.last_number()))
    }

    /// Waits until an execution is closed; returns it open when the time is over or the server drains.
    ///
    /// # Errors
    /// `ExecutionNotFound`, `Store`.
    pub async fn wait(&self, name: &ExecutionName, longest: Duration) -> Result<Standing, Error> {
        let core = &self.core;
        let deadline = crate::clock::sleep(longest);
        tokio::pin!(deadline);
        let found = core.find(name).await?;
        let mut key = found.key;
        // Watching begins before looking, so that the close cannot slip between.
        let mut watch = core.cache.watch(key);
        let mut standing = core.read_closed(watch.mailbox()).await;
        if is_past(&standing)
            && let Some(other) = core.passed_on(name, &found).await?
        {
            key = other;
            watch = core.cache.watch(key);
            standing = core.read_closed(watch.mailbox()).await;
        }
        loop {
            if let Some(standing) = standing.map_err(|error| error.named(name))? {
                return Ok(standing);
            }
            tokio::select! {
                biased;
                () = core.draining.cancelled() => break,
                () = &mut deadline => break,
                changed = watch.progress().wait_for(|progress| progress.is_closed || progress.is_behind()) => {
                    changed.map_err(|_| Error::Internal)?;
                }
            }
            standing = core.read_closed(watch.mailbox()).await;
        }
        core.read(key, true).await.map_err(|error| error.named(name))?.ok_or(Error::Internal)
    }

    /// Reads events after a number: at most `limit`, and about 1 MiB (at least one, if there is any).
    ///
    /// # Errors
    /// `ExecutionNotFound`, `Store`.
    pub async fn events(&self, name: &ExecutionName, after: u64, limit: usize) -> Result<Vec<Event>, Error> {
        let key = self.core.find_certain(name).await?;
        let mut events = self.core.events_after(key, after, limit).await?;
        let mut bytes = 0;
        let fits = |event: &&Event| {
            bytes += decide::event_bytes_whole(&event.kind);
            bytes <= PAGE_BYTES_MAX
        };
        let count = events.iter().take_while(fits).count();
        events.truncate(count.max(1));
        Ok(events)
    }

    /// Streams events after a number as they are committed; ends after the last one of a closed execution.
    /// The last item is `Draining` if the server stops first.
    ///
    /// # Errors
    /// `ExecutionNotFound`, `Store`.
    pub async fn watch(&self, name: &ExecutionName, after: u64) -> Result<mpsc::Receiver<Result<Event, Error>>, Error> {
        let key = self.core.find_certain(name).await?;
        let name = name.clone();
        let (sender, events) = mpsc::channel(WATCH_LENGTH);
        let core = self.core.clone();
        self.core.tasks.spawn(async move {
            let outcome = tokio::select! {
                biased;
                outcome = core.follow(key, after, &sender) => outcome,
                () = core.draining.cancelled() => Err(Error::Draining),
                () = sender.closed() => return,
            };
            if let Err(error) = outcome {
                // A watcher that has gone needs no error.
                let _ = sender.send(Err(error.named(&name))).await;
            }
        });
        Ok(events)
    }

    /// Gives an execution a signal; back comes the number of its event.
    ///
    /// # Errors
    /// `ExecutionNotFound`, `Rejected`, `Overloaded`, `Store`.
    pub async fn signal(
        &self,
        name: &ExecutionName,
        signal: Arc<str>,
        payload: Payload,
        expire_time: Option<Timestamp>,
        request: Option<RequestKey>,
    ) -> Result<u64, Error> {
        self.record(name, Command::Signal { name: signal, payload, expire_time, request }).await
    }

    /// Cancels an execution; back comes the number of the event that began its end.
    ///
    /// # Errors
    /// `ExecutionNotFound`, `Rejected`, `Overloaded`, `Store`.
    pub async fn cancel(
        &self,
        name: &ExecutionName,
        reason: Arc<str>,
        request: Option<RequestKey>,
    ) -> Result<u64, Error> {
        self.record(name, Command::Cancel { reason, request }).await
    }

    /// Ends an execution at once; back comes the number of its event.
    ///
    /// # Errors
    /// `ExecutionNotFound`, `Rejected`, `Overloaded`, `Store`.
    pub async fn terminate(
        &self,
        name: &ExecutionName,
        reason: Arc<str>,
        request: Option<RequestKey>,
    ) -> Result<u64, Error> {
        self.record(name, Command::Terminate { reason, request }).await
    }

    /// Holds an execution; back comes the number of the event that does.
    ///
    /// # Errors
    /// `ExecutionNotFound`, `Rejected`, `Overloaded`, `Store`.
    pub async fn pause(
        &self,
        name: &ExecutionName,
        reason: Arc<str>,
        request: Option<RequestKey>,
    ) -> Result<u64, Error> {
        self.record(name, Command::Pause { reason, request }).await
    }

    /// Lets a paused execution go on; back comes the number of its event, 0 if it was not paused.
    ///
    /// # Errors
    /// `ExecutionNotFound`, `Rejected`, `Overloaded`, `Store`.
    pub async fn resume(&self, name: &ExecutionName, request: Option<RequestKey>) -> Result<u64, Error> {
        self.record(name, Command::Resume { request }).await
    }

    /// Has what failed of a closed execution run again; back comes the number of its event.
    ///
    /// # Errors
    /// `ExecutionNotFound`, `Rejected`, `Overloaded`, `Store`.
    pub async fn retry(&self, name: &ExecutionName, request: Option<RequestKey>) -> Result<u64, Error> {
        self.record(name, Command::Retry { obstacle: None, request }).await
    }

    /// Deletes a closed execution: once this is answered nothing finds it, and its id is free.
    ///
    /// # Errors
    /// `ExecutionNotFound`, also for one that was deleted by another call, `Rejected` (it is open, the request id was used for
    /// another call), `Overloaded`, `Store`.
    pub async fn delete(&self, name: &ExecutionName, request: Option<RequestKey>) -> Result<(), Error> {
        let missing = match self.record(name, Command::BeginDeletion { request }).await {
            Err(error @ Error::ExecutionNotFound { .. }) => error,
            recorded => return recorded.map(drop),
        };
        // It may be gone because this same call came before.
        let Some(request) = request else { return Err(missing) };
        let found = self.core.store.execution_by_request(name.id.as_str(), request.key).await.map_err(Error::Store)?;
        match found.and_then(|row| row.request) {
            Some(then) if then.content == request.content => Ok(()),
            Some(_) => Err(Rejection::RequestIdReused.into()),
            None => Err(missing),
        }
    }

    async fn record(&self, name: &ExecutionName, command: Command) -> Result<u64, Error> {
        let core = &self.core;
        let found = core.find(name).await?;
        let whose = if found.is_certain { Whose::Any } else { Whose::IfOpen };
        let mut outcome = core.ask(found.key, whose, command.clone()).await;
        if let Err(Error::ExecutionNotFound { .. }) = outcome
            && !found.is_certain
        {
            outcome = core.ask(core.find_in_store(name).await?, Whose::Any, command).await;
        }
        match outcome.map_err(|error| error.named(name))? {
            Outcome::Recorded(number) => Ok(number),
            Outcome::Report(_) | Outcome::Dispatched(_) | Outcome::Done => Err(Error::Internal),
        }
    }
}

impl Error {
    /// Says which execution was not found.
    fn named(self, name: &ExecutionName) -> Self {
        match self {
            Self::ExecutionNotFound { .. } | Self::Rejected(Rejection::Deleted) => {
                Self::ExecutionNotFound { id: name.id.to_string() }
            }
            other => other,
        }
    }
}

impl Core {
    /// The execution of this name, as far as memory tells.
    async fn find(&self, name: &ExecutionName) -> Result<Found, Error> {
        if let Some(key) = self.cache.key_of(name.id.as_str(), name.uid) {
            // A uid never passes on.
            return Ok(Found { key, is_certain: name.uid.is_some() || self.probe.is_none() });
        }
        Ok(Found { key: self.find_in_store(name).await?, is_certain: true })
    }

    /// The key of the execution of this name.
    async fn find_certain(&self, name: &ExecutionName) -> Result<ExecutionKey, Error> {
        match self.find(name).await? {
            Found { key, is_certain: true } => Ok(key),
            Found { is_certain: false, .. } => self.find_in_store(name).await,
        }
    }

    async fn find_in_store(&self, name: &ExecutionName) -> Result<ExecutionKey, Error> {
        let missing = || Error::ExecutionNotFound { id: name.id.to_string() };
        let find = match name.uid {
            Some(uid) => Find::Uid(uid),
            None => Find::Id(name.id.as_str().into()),
        };
        let row = self.store.execution(&find).await.map_err(Error::Store)?.ok_or_else(missing)?;
        if *row.id == *name.id.as_str() { Ok(row.key) } else { Err(missing()) }
    }

    /// The execution that has the name, if it is another one than was found.
    async fn passed_on(&self, name: &ExecutionName, found: &Found) -> Result<Option<ExecutionKey>, Error> {
        if found.is_certain {
            return Ok(None);
        }
        let key = self.find_in_store(name).await?;
        Ok((key != found.key).then_some(key))
    }

    /// Puts a command into its mailbox and waits for its answer.
    pub(super) async fn execute(self: &Arc<Self>, key: ExecutionKey, command: Command) -> Result<Outcome, Error> {
        self.ask(key, Whose::Any, command).await
    }

    /// The same, for the execution of this uid only.
    pub(super) async fn execute_for(
        self: &Arc<Self>,
        key: ExecutionKey,
        uid: Option<Uid>,
        command: Command,
    ) -> Result<Outcome, Error> {
        self.ask(key, uid.map_or(Whose::Any, Whose::Uid), command).await
    }

    async fn ask(self: &Arc<Self>, key: ExecutionKey, whose: Whose, command: Command) -> Result<Outcome, Error> {
        let (answer, outcome) = oneshot::channel();
        if !self.put(key, Item::Command { command, whose, answer }) {
            return Err(Error::Overloaded { what: "the execution's mailbox" });
        }
        outcome.await.unwrap_or(Err(Error::Internal))
    }

    /// What somebody who waits for the close looks at; nothing while the execution is open.
    async fn read_closed(self: &Arc<Self>, mailbox: &Mailbox) -> Result<Option<Standing>, Error> {
        match mailbox.glance() {
            Glance::Closed(standing) => Ok(Some(*standing)),
            Glance::Open if self.probe.is_none() => Ok(None),
            // Where other nodes write, it may have been closed since.
            Glance::Open | Glance::Unknown => self.read(mailbox.key(), false).await,
        }
    }

    /// Reads the committed state; an open one only if asked for.
    pub(super) async fn read(self: &Arc<Self>, key: ExecutionKey, even_open: bool) -> Result<Option<Standing>, Error> {
        let (answer, standing) = oneshot::channel();
        if !self.put(key, Item::Read { even_open, answer }) {
            return Err(Error::Overloaded { what: "the execution's mailbox" });
        }
        standing.await.unwrap_or(Err(Error::Internal))
    }

    /// Reads events from the store: at most `limit`, and no more commits once there is a page of bytes. The store
    /// counts a large payload as its digest, so what it gives may be far more than a page.
    ///
    /// A commit of a fan-out has a thousand events: so little is read at first that few of them are for nothing.
    pub(super) async fn events_after(&self, key: ExecutionKey, after: u64, limit: usize) -> Result<Vec<Event>, Error> {
        let (mut events, mut bytes, mut after) = (Vec::new(), 0, after);
        let mut portion = limit.saturating_mul(EVENT_BYTES).min(PAGE_BYTES_MAX);
        loop {
            let rows_max = limit - events.len();
            let rows = self.store.history(key, after, rows_max, portion).await.map_err(Error::Store)?;
            for row in &rows {
                let decoded = self.decode(key, row).await?.into_iter().filter(|event| event.number > after);
                events.extend(decoded.inspect(|event| bytes += decide::event_bytes_whole(&event.kind)));
                if events.len() >= limit || bytes >= PAGE_BYTES_MAX {
                    events.truncate(limit);
                    return Ok(events);
                }
            }
            let is_all = rows.len() < rows_max && rows.iter().map(|row| row.events.len()).sum::<usize>() < portion;
            match rows.last() {
                Some(last) if !is_all => after = last.last_number,
                Some(_) | None => return Ok(events),
            }
            portion = (portion * 2).min(PAGE_BYTES_MAX);
        }
    }

    /// Sends events as they are committed, until the execution is closed and all are sent.
    async fn follow(
        self: &Arc<Self>,
        key: ExecutionKey,
        mut after: u64,
        sender: &mpsc::Sender<Result<Event, Error>>,
    ) -> Result<(), Error> {
        let mut watch = self.cache.watch(key);
        loop {
            watch.progress().borrow_and_update();
            let events = self.events_after(key, after, WATCH_PAGE).await?;
            let was_empty = events.is_empty();
            let mut may_be_last = was_empty;
            for event in events {
                after = event.number;
                may_be_last = closes(&event);
                if sender.send(Ok(event)).await.is_err() {
                    return Ok(());
                }
            }
            // What was closed may have been taken up again since.
            if may_be_last && self.is_closed_at(key, after).await? {
                return Ok(());
            }
            if was_empty {
                watch.progress().changed().await.map_err(|_| Error::Internal)?;
            }
        }
    }

    /// Whether an execution is closed and has no event after this number.
    async fn is_closed_at(self: &Arc<Self>, key: ExecutionKey, after: u64) -> Result<bool, Error> {
        let row = self.store.execution(&Find::Key(key)).await.map_err(Error::Store)?;
        let row = row.ok_or_else(|| Error::ExecutionNotFound { id: String::new() })?;
        if !row.state.is_closed() {
            return Ok(false);
        }
        Ok(self.store.history(key, after, 1, 1).await.map_err(Error::Store)?.is_empty())
    }
}

/// An execution that was found by its name.
struct Found {
    key: ExecutionKey,
    /// Whether it has the name for certain. An id that memory knows is another's by now if, unknown to this node, the
    /// execution has been closed; as long as it is open, the id is its own.
    is_certain: bool,
}

/// Whether what was read is closed or gone, so that its id may have passed on.
fn is_past(standing: &Result<Option<Standing>, Error>) -> bool {
    match standing {
        Ok(standing) => standing.as_ref().is_some_and(|standing| standing.state.is_closed()),
        Err(error) => matches!(error, Error::ExecutionNotFound { .. }),
    }
}

/// Whether an execution is closed by this event.
fn closes(event: &Event) -> bool {
    matches!(
        event.kind,
        EventKind::ExecutionSucceeded { .. }
            | EventKind::ExecutionFailed { .. }
            | EventKind::ExecutionCancelled
            | EventKind::ExecutionTimedOut
            | EventKind::ExecutionTerminated { .. }
    )
}
