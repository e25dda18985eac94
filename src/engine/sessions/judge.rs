//! The session loop: ends what is lost.
//!
//! - Only changes of values and this node's monotonic time are judged by, never another machine's clock.
//! - A session ends by a compare-and-set on the contact that was judged; whoever loses it, to a worker that was heard of
//!   or to another judge, does nothing more.
//! - Where several nodes judge, each comes first for its own sessions and executions, and some seconds later for all.
//! - What fails is tried again in the next round, and keeps nothing else from being done.

use super::{Beat, HeldKey, Session, held_key};
use crate::domain::{Command, DeliveryRef, EndReason, Payload, SessionId, TaskToken, Timestamp};
use crate::engine::{Core, call::Error};
use crate::store::HeldRow;
use futures_util::{StreamExt, stream};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Held rows that one round looks at.
const ROWS_MAX: usize = 256;
/// Deliveries that are ended at once: their commits go together.
const ENDS_AT_ONCE: usize = 32;
/// Sessions that are read at once.
const SESSIONS_PAGE: usize = 256;
/// How often the sessions in the store are read, in rounds: those of other nodes, or of a life before.
const ROUNDS_PER_READ: u32 = 5;
/// How long sessions and held tasks are left to the node that comes first for them.
const OTHERS_FIRST: Duration = Duration::from_secs(5);

/// What the judge has seen of a session: a contact value, and since when by monotonic time.
#[derive(Clone, Copy)]
struct Sight {
    contact: Timestamp,
    since: Duration,
}

struct Judge {
    core: Arc<Core>,
    sights: BTreeMap<SessionId, Sight>,
    /// Sessions without a row that have held rows, and since when.
    orphans: BTreeMap<SessionId, Duration>,
}

/// Runs until the engine stops.
pub(super) async fn run(core: Arc<Core>) {
    let mut judge = Judge { core: core.clone(), sights: BTreeMap::new(), orphans: BTreeMap::new() };
    let mut round = 0_u32;
    loop {
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = crate::clock::sleep(core.presence_interval()) => {}
        }
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = judge.round(round.is_multiple_of(ROUNDS_PER_READ)) => {}
        }
        round = round.wrapping_add(1);
    }
}

impl Judge {
    async fn round(&mut self, reads_store: bool) {
        if reads_store && let Err(error) = self.read_sessions().await {
            self.core.sessions.steadiness().failed(self.core.clock.monotonic());
            tracing::warn!(error = &error as &dyn std::error::Error, "sessions could not be read");
        }
        match self.end_silent().await {
            Ok(()) => self.core.duty_done("sessions"),
            Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "a lost session could not be ended"),
        }
        match self.end_overdue().await {
            Ok(()) => self.core.duty_done("held tasks"),
            Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "overdue tasks could not be ended"),
        }
    }

    /// Takes in what other nodes heard: contacts, newer connections, sessions that are there no more.
    async fn read_sessions(&self) -> Result<(), Error> {
        let core = &self.core;
        let mut missing: BTreeSet<SessionId> = core.sessions.all().iter().map(|session| session.row.id).collect();
        let mut after = None;
        loop {
            let rows = core.store.sessions(after, SESSIONS_PAGE).await.map_err(Error::Store)?;
            after = rows.last().map(|row| row.id);
            let is_last = rows.len() < SESSIONS_PAGE;
            for row in rows {
                missing.remove(&row.id);
                let contact = row.contact_time;
                core.sessions.keep(row).seen_in_store(contact);
            }
            if is_last {
                break;
            }
        }
        for id in missing {
            self.refresh(id).await?;
        }
        Ok(())
    }

    /// Ends the sessions that have been silent for too long.
    async fn end_silent(&mut self) -> Result<(), Error> {
        let core = self.core.clone();
        let now = core.clock.monotonic();
        // Asked after the sessions were read: a process that was stopped meanwhile has written no presence since.
        let steady_since = core.sessions.steadiness().since(now);
        let live = core.members.live();
        let sessions = core.sessions.all();
        let ids: BTreeSet<SessionId> = sessions.iter().map(|session| session.row.id).collect();
        self.sights.retain(|id, _| ids.contains(id));
        let mut outcome = Ok(());
        for session in sessions {
            let (contact, _) = session.contact();
            let sight = self.sights.entry(session.row.id).or_insert(Sight { contact, since: now });
            if sight.contact != contact {
                *sight = Sight { contact, since: now };
            }
            let Some(steady_since) = steady_since else { continue };
            let silence = now.saturating_sub(sight.since.max(steady_since));
            let patience = if live.judges(session.row.id) { Duration::ZERO } else { OTHERS_FIRST };
            if silence >= session.timeout + patience {
                outcome = outcome.and(self.end(&session, contact).await);
            }
        }
        outcome
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

    /// A session changed under the judge's eyes: takes in its row, or forgets it if it is gone. What it held is the
    /// business of whoever ended it, then of those who look for held rows without a session.
    async fn refresh(&self, id: SessionId) -> Result<(), Error> {
        match self.core.store.session(id).await.map_err(Error::Store)? {
            Some(row) => {
                let contact = row.contact_time;
                self.core.sessions.keep(row).seen_in_store(contact);
            }
            None => drop(self.core.sessions.forget(id)),
        }
        Ok(())
    }

    /// Ends held deliveries that nobody lists, that owe a beat, or whose session is gone.
    async fn end_overdue(&mut self) -> Result<(), Error> {
        let core = self.core.clone();
        let (now, monotonic) = (core.clock.now(), core.clock.monotonic());
        let live = core.members.live();
        let steadiness = core.sessions.steadiness();
        let mut ends = Vec::new();
        let steady = steadiness.since(monotonic).map(|since| monotonic.saturating_sub(since));
        if let Some(steady) = steady.filter(|steady| *steady >= core.sessions.timeout_min()) {
            let own = core.config.settings.session_timeout;
            for row in core.store.held_overdue(now, own, ROWS_MAX).await.map_err(Error::Store)? {
                let timeout = core.timeout_of(row.session).await?.unwrap_or(own);
                if steady < timeout {
                    continue;
                }
                let patience = if live.is_mine(row.execution) { Duration::ZERO } else { OTHERS_FIRST };
                let is_over = |since: Timestamp, limit: Duration| steadiness.age(since, now) >= limit + patience;
                if row.missing_since.is_some_and(|since| is_over(since, timeout)) {
                    ends.push((row, Some(EndReason::NotListed)));
                } else if beat_timeout(&row).is_some_and(|timeout| is_over(row.beat_time, timeout)) {
                    ends.push((row, None));
                }
            }
        }
        let orphans = core.store.held_without_session(ROWS_MAX).await.map_err(Error::Store)?;
        let ids: BTreeSet<SessionId> = orphans.iter().map(|row| row.session).collect();
        self.orphans.retain(|id, _| ids.contains(id));
        for row in orphans {
            let since = *self.orphans.entry(row.session).or_insert(monotonic);
            if live.judges(row.session) || monotonic.saturating_sub(since) >= OTHERS_FIRST {
                ends.push((row, Some(EndReason::SessionLost)));
            }
        }
        core.end_held(ends).await.map(drop)
    }
}

fn beat_timeout(row: &HeldRow) -> Option<Duration> {
    Some(Duration::from_micros(u64::try_from(row.heartbeat_timeout_micros?).unwrap_or(0)))
}

impl Core {
    /// The timeout of a session; nothing if it is gone.
    pub(in crate::engine) async fn timeout_of(&self, id: SessionId) -> Result<Option<Duration>, Error> {
        match self.session(id).await {
            Ok(session) => Ok(Some(session.timeout)),
            Err(Error::SessionNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Ends every delivery that a session is known to hold; the row of each is deleted once its command is answered.
    pub(in crate::engine) async fn end_tokens_of(
        self: &Arc<Self>,
        id: SessionId,
        reason: EndReason,
    ) -> Result<(), Error> {
        let mut listed: BTreeMap<HeldKey, (TaskToken, Beat)> =
            self.sessions.forget(id).into_iter().map(|(token, beat)| (held_key(&token), (token, beat))).collect();
        let mut outcome = Ok(());
        loop {
            let rows = self.store.held_by_session(id, ROWS_MAX).await.map_err(Error::Store)?;
            let mut ends = Vec::new();
            for mut row in rows {
                let known = listed.remove(&(row.execution, row.unit.clone(), row.delivery));
                // Progress that this node has heard and not written yet is newer.
                if let Some((_, beat)) = known
                    && beat.time > row.beat_time
                    && let Some(progress) = beat.progress
                {
                    row.progress = Some(progress.as_str().into());
                }
                ends.push((row, Some(reason)));
            }
            if ends.is_empty() {
                break;
            }
            match self.end_held(ends).await {
                Ok(0) => break,
                Ok(_) => {}
                // The rest is found without its session.
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        let ends = listed.into_values().map(|(token, beat)| async move {
            let command = Command::EndDelivery { delivery: token.delivery, reason, progress: beat.progress };
            answered(self.execute_for(token.execution, Some(token.uid), command).await.map(drop)).map(drop)
        });
        let ended: Vec<Result<(), Error>> = stream::iter(ends).buffer_unordered(ENDS_AT_ONCE).collect().await;
        ended.into_iter().fold(outcome, Result::and)
    }

    /// Ends held deliveries (a missed beat, without a reason), and deletes the rows of those that were answered; says
    /// how many. One that fails is left, and the first failure told once the others are done.
    async fn end_held(self: &Arc<Self>, rows: Vec<(HeldRow, Option<EndReason>)>) -> Result<usize, Error> {
        let ends = rows.into_iter().map(|(row, reason)| async move {
            let delivery = DeliveryRef { unit: row.unit.clone(), delivery: row.delivery };
            let progress = row.progress.map(Payload::from_json);
            let command = match reason {
                Some(reason) => Command::EndDelivery { delivery, reason, progress },
                None => Command::MissBeat { delivery, progress },
            };
            let is_answered = answered(self.execute(row.execution, command).await.map(drop))?;
            Ok::<_, Error>(is_answered.then_some((row.execution, row.unit, row.delivery)))
        });
        let ended: Vec<_> = stream::iter(ends).buffer_unordered(ENDS_AT_ONCE).collect().await;
        let mut outcome = Ok(());
        let mut answered: Vec<HeldKey> = Vec::new();
        for ended in ended {
            match ended {
                Ok(key) => answered.extend(key),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        if !answered.is_empty() {
            self.store.delete_held(&answered).await.map_err(Error::Store)?;
        }
        outcome.map(|()| answered.len())
    }
}

/// Whether a command has its answer, so that nobody need give it again: an execution that is gone or set aside has no
/// deliveries, and one that only newer nodes can read is theirs. Anything else is tried again in the next round.
fn answered(result: Result<(), Error>) -> Result<bool, Error> {
    match result {
        Ok(()) | Err(Error::ExecutionNotFound { .. } | Error::Quarantined { .. } | Error::Internal) => Ok(true),
        Err(Error::EventUnknown | Error::LevelTooHigh) => Ok(false),
        Err(error) => Err(error),
    }
}
