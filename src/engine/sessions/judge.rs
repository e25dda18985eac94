//! The session loop: writes presence, and ends what is lost.

use super::Session;
use crate::domain::{Command, DeliveryRef, EndReason, SessionId, Timestamp};
use crate::engine::{Core, call::Error};
use crate::store::{HeldRow, NodeRow, Presence};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Held rows that one round looks at.
const ROWS_MAX: usize = 256;
/// Sessions that are read at once.
const SESSIONS_PAGE: usize = 256;
/// How often the sessions in the store are read, in rounds: those of other nodes, or of a life before.
const ROUNDS_PER_READ: u32 = 5;

/// What the judge has seen of a session: a contact value, and since when by monotonic time.
#[derive(Clone, Copy)]
struct Sight {
    contact: Timestamp,
    since: Duration,
}

struct Judge {
    core: Arc<Core>,
    sights: BTreeMap<SessionId, Sight>,
    /// Since when presence has worked without interruption.
    steady_since: Duration,
    last_round: Duration,
}

/// Runs until the engine stops.
pub(in crate::engine) async fn run(core: Arc<Core>) {
    let interval = core.config.presence_interval();
    let now = core.clock.monotonic();
    let mut judge = Judge { core: core.clone(), sights: BTreeMap::new(), steady_since: now, last_round: now };
    let mut round = 0_u32;
    loop {
        tokio::select! {
            biased;
            () = core.stop.cancelled() => break,
            () = crate::clock::sleep(interval) => {}
        }
        // A loop that was held up for long cannot tell silence from its own absence.
        let now = core.clock.monotonic();
        if now.saturating_sub(judge.last_round) > interval * 5 {
            judge.steady_since = now;
        }
        judge.last_round = now;
        if let Err(error) = judge.round(round.is_multiple_of(ROUNDS_PER_READ)).await {
            judge.steady_since = core.clock.monotonic();
            tracing::warn!(%error, "presence could not be written or read");
        }
        round = round.wrapping_add(1);
    }
    // What was heard last is worth a row: the next life of this node judges by it.
    if let Err(error) = judge.write().await {
        tracing::warn!(%error, "presence could not be written at the end");
    }
}

impl Judge {
    async fn round(&mut self, reads_store: bool) -> Result<(), Error> {
        self.write().await?;
        self.look(reads_store).await?;
        self.end_overdue().await?;
        Ok(())
    }

    /// Writes contacts, held rows and this node's time, in one transaction; nothing if nothing changed.
    async fn write(&self) -> Result<(), Error> {
        let core = &self.core;
        let ended = core.sessions.take_ended();
        if !ended.is_empty()
            && let Err(error) = core.store.delete_held(&ended).await
        {
            core.sessions.put_back_ended(ended);
            return Err(Error::Store(error));
        }
        let now = core.clock.now();
        let third = core.config.settings.session_timeout / 3;
        let (contacts, held) = core.sessions.changes(third);
        // Where other nodes look for this one's time, it is news every time.
        if contacts.is_empty() && held.is_empty() && !core.store.is_shared() {
            return Ok(());
        }
        let node = Some(NodeRow { id: core.node, now, level: crate::engine::EVENT_LEVEL });
        let presence = Presence { contacts, held, node };
        let nodes = core.store.presence(&presence).await.map_err(Error::Store)?;
        core.members.seen(&nodes, core.clock.monotonic());
        core.sessions.written(&presence.contacts, &presence.held);
        if let Some(newest) = nodes.iter().map(|node| node.now).max() {
            core.clock.advance(newest);
        }
        Ok(())
    }

    /// Looks at every session, and ends those that have been silent for too long.
    async fn look(&mut self, reads_store: bool) -> Result<(), Error> {
        let core = self.core.clone();
        if reads_store {
            let mut after = None;
            loop {
                let rows = core.store.sessions(after, SESSIONS_PAGE).await.map_err(Error::Store)?;
                after = rows.last().map(|row| row.id);
                let is_last = rows.len() < SESSIONS_PAGE;
                for row in rows {
                    let contact = row.contact_time;
                    core.sessions.keep(row).seen_in_store(contact);
                }
                if is_last {
                    break;
                }
            }
        }
        let timeout = core.config.settings.session_timeout;
        let now = core.clock.monotonic();
        let sessions = core.sessions.all();
        self.sights.retain(|id, _| sessions.iter().any(|session| session.row.id == *id));
        for session in sessions {
            let (contact, _) = session.contact();
            let sight = self.sights.entry(session.row.id).or_insert(Sight { contact, since: now });
            if sight.contact != contact {
                *sight = Sight { contact, since: now };
            }
            let silence = now.saturating_sub(sight.since.max(self.steady_since));
            if silence >= timeout {
                self.end(&session, contact).await?;
            }
        }
        Ok(())
    }

    /// Declares a session lost, if its contact is still what was seen.
    async fn end(&self, session: &Arc<Session>, contact: Timestamp) -> Result<(), Error> {
        let id = session.row.id;
        let (newest, written) = session.contact();
        // Compare-and-set: whoever hears of it meanwhile, here or on another node, keeps it alive.
        if newest != contact || !self.core.store.end_session(id, Some(written)).await.map_err(Error::Store)? {
            return self.refresh(id).await;
        }
        tracing::info!(session = %id, worker = %session.row.worker_id, "session lost");
        metrics::counter!(crate::telemetry::SESSIONS_LOST).increment(1);
        self.core.end_tokens_of(id, EndReason::SessionLost).await
    }

    /// A session changed under the judge's eyes: takes in its row, or forgets it if it is gone.
    async fn refresh(&self, id: SessionId) -> Result<(), Error> {
        match self.core.store.session(id).await.map_err(Error::Store)? {
            Some(row) => {
                let contact = row.contact_time;
                self.core.sessions.keep(row).seen_in_store(contact);
                Ok(())
            }
            None => self.core.end_tokens_of(id, EndReason::SessionLost).await,
        }
    }

    /// Ends held deliveries that nobody lists, that owe a beat, or whose session is gone.
    async fn end_overdue(&self) -> Result<(), Error> {
        let core = &self.core;
        let now = core.clock.now();
        let timeout = core.config.settings.session_timeout;
        let missing_before =
            Timestamp::from_micros(now.as_micros() - i64::try_from(timeout.as_micros()).unwrap_or(i64::MAX));
        let steady = core.clock.monotonic().saturating_sub(self.steady_since);
        if steady >= timeout {
            for row in core.store.held_overdue(missing_before, now, ROWS_MAX).await.map_err(Error::Store)? {
                let is_missing = row.missing_since.is_some_and(|since| since <= missing_before);
                core.end_held(row, if is_missing { Some(EndReason::NotListed) } else { None }).await?;
            }
        }
        for row in core.store.held_without_session(ROWS_MAX).await.map_err(Error::Store)? {
            core.end_held(row, Some(EndReason::SessionLost)).await?;
        }
        Ok(())
    }
}

impl Core {
    /// Ends every delivery that a session is known to hold; the row of each is deleted once its command is answered.
    pub(in crate::engine) async fn end_tokens_of(
        self: &Arc<Self>,
        id: SessionId,
        reason: EndReason,
    ) -> Result<(), Error> {
        for (token, progress) in self.sessions.forget(id) {
            let command = Command::EndDelivery { delivery: token.delivery, reason, progress };
            answered(self.execute_for(token.execution, Some(token.uid), command).await.map(drop))?;
        }
        loop {
            let rows = self.store.held_by_session(id, ROWS_MAX).await.map_err(Error::Store)?;
            if rows.is_empty() {
                return Ok(());
            }
            for row in rows {
                self.end_held(row, Some(reason)).await?;
            }
        }
    }

    /// Ends one held delivery (a missed beat, without a reason), and deletes its row.
    async fn end_held(self: &Arc<Self>, row: HeldRow, reason: Option<EndReason>) -> Result<(), Error> {
        let delivery = DeliveryRef { unit: row.unit.clone(), delivery: row.delivery };
        let progress = row.progress.map(crate::domain::Payload::from_json);
        let command = match reason {
            Some(reason) => Command::EndDelivery { delivery, reason, progress },
            None => Command::MissBeat { delivery, progress },
        };
        answered(self.execute(row.execution, command).await.map(drop))?;
        self.store.delete_held(&[(row.execution, row.unit, row.delivery)]).await.map_err(Error::Store)
    }
}

/// An execution that is gone or set aside has no deliveries; anything else is tried again in the next round.
fn answered(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(Error::ExecutionNotFound { .. } | Error::Quarantined { .. } | Error::Internal | Error::EventUnknown) => {
            Ok(())
        }
        other => other,
    }
}
