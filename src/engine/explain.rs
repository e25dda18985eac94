//! Tells why an execution does not move: what its state waits for, and what this node knows of the workers.

use super::{
    Core, Engine,
    call::{Error, ExecutionName},
};
use crate::domain::explain::{Announcement, AtWorker, Explanation, Reason, Supply};
use crate::domain::{DeliveryRef, SessionId, TaskToken, Timestamp, Uid};
use crate::store::{ExecutionRow, ExecutionState, Find, HeldRow, SessionRow};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Most sessions that are looked at, so that the call is bounded however many workers there are.
const SESSIONS_MAX: usize = 10_000;
/// Sessions that are read at once.
const SESSIONS_PAGE: usize = 1_000;

/// Why an execution does not move.
#[derive(Clone, Debug)]
pub struct Explained {
    /// Its id.
    pub id: Arc<str>,
    /// Its uid.
    pub uid: Uid,
    /// Its state.
    pub state: ExecutionState,
    /// Number of its newest event; 0 of one that cannot be read.
    pub last_number: u64,
    /// When its own timeout passes, while that counts.
    pub expire_time: Option<Timestamp>,
    /// When it was looked at.
    pub now: Timestamp,
    /// What it waits for.
    pub explanation: Explanation,
}

impl Engine {
    /// Tells everything that an execution waits for, also of one that was set aside.
    ///
    /// # Errors
    /// `ExecutionNotFound`, `EventUnknown`, `Overloaded`, `Store`.
    pub async fn explain(&self, name: &ExecutionName) -> Result<Explained, Error> {
        let core = &self.core;
        let standing = match self.execution(name).await {
            Ok(standing) => standing,
            Err(Error::Quarantined { why }) => {
                let row = core.row_of(name).await?;
                return Ok(explained(&row, core.clock.now(), Explanation::of_quarantine(why)));
            }
            Err(error) => return Err(error),
        };
        let (row, state) = (&standing.row, &standing.state);
        // What is due is judged by the newest time that the execution knows, too: clocks of nodes differ.
        let now = core.clock.now().max(state.last_time());
        let mut explanation = state.explain(now);
        core.add_known(row, &mut explanation).await?;
        Ok(Explained {
            last_number: state.last_number(),
            expire_time: state.expire_time().filter(|_| row.state == ExecutionState::Running),
            ..explained(row, now, explanation)
        })
    }
}

fn explained(row: &ExecutionRow, now: Timestamp, explanation: Explanation) -> Explained {
    Explained {
        id: row.id.clone(),
        uid: row.uid,
        state: row.state,
        last_number: 0,
        expire_time: None,
        now,
        explanation,
    }
}

impl Core {
    async fn row_of(&self, name: &ExecutionName) -> Result<ExecutionRow, Error> {
        let find = name.uid.map_or_else(|| Find::Id(name.id.as_str().into()), Find::Uid);
        let row = self.store.execution(&find).await.map_err(Error::Store)?;
        row.ok_or_else(|| Error::ExecutionNotFound { id: name.id.to_string() })
    }

    /// Fills in what no state knows.
    async fn add_known(&self, row: &ExecutionRow, explanation: &mut Explanation) -> Result<(), Error> {
        let has = |is_it: fn(&Reason) -> bool| explanation.waits.iter().any(|wait| is_it(&wait.reason));
        let sessions =
            if has(|reason| matches!(reason, Reason::Worker(_))) { self.live_sessions().await? } else { Vec::new() };
        let held = if has(|reason| matches!(reason, Reason::AtWorker(task) if task.heartbeat_timeout.is_some())) {
            self.store.held_by_execution(row.key).await.map_err(Error::Store)?
        } else {
            Vec::new()
        };
        let asking = self.dispatch.asking();
        // Many items wait for the same workers.
        let mut known = BTreeMap::new();
        for wait in &mut explanation.waits {
            match &mut wait.reason {
                Reason::Worker(task) => {
                    let pool = (task.queue.clone(), task.contract.clone(), task.language.clone());
                    let count = || Supply::of(task, sessions.iter().map(|session| announcement(session, &asking)));
                    let supply = known.entry(pool).or_insert_with(count).clone();
                    task.supply = Some(supply);
                }
                Reason::AtWorker(task) => {
                    task.contact_time = self.contact_of(task.session_id).await?;
                    if let (Some(unit), Some(since)) = (&wait.unit, wait.since) {
                        let delivery = DeliveryRef { unit: unit.clone(), delivery: task.delivery };
                        let token = TaskToken { execution: row.key, uid: row.uid, delivery };
                        task.beat_due_time = self.beat_due(task, &token, since, &held);
                    }
                }
                Reason::Closed { .. }
                | Reason::Quarantined { .. }
                | Reason::Pause { .. }
                | Reason::Delay
                | Reason::Held
                | Reason::WindDown(_)
                | Reason::Work
                | Reason::Retry { .. }
                | Reason::Time
                | Reason::Signal { .. }
                | Reason::Parent { .. }
                | Reason::Abandoned { .. }
                | Reason::Child(_)
                | Reason::Recipient { .. }
                | Reason::Items(_)
                | Reason::Steps { .. } => {}
            }
        }
        Ok(())
    }

    /// All sessions that have not been judged lost, as far as they are counted.
    async fn live_sessions(&self) -> Result<Vec<SessionRow>, Error> {
        let mut sessions: Vec<SessionRow> = Vec::new();
        while sessions.len() < SESSIONS_MAX {
            let after = sessions.last().map(|session| session.id);
            let page = self.store.sessions(after, SESSIONS_PAGE).await.map_err(Error::Store)?;
            let is_last = page.len() < SESSIONS_PAGE;
            sessions.extend(page);
            if is_last {
                break;
            }
        }
        Ok(sessions)
    }

    /// When a session was last heard of, here or elsewhere; nothing if there is none.
    async fn contact_of(&self, id: Option<SessionId>) -> Result<Option<Timestamp>, Error> {
        let Some(id) = id else { return Ok(None) };
        let Some(row) = self.store.session(id).await.map_err(Error::Store)? else { return Ok(None) };
        let here = self.sessions.get(id).map(|session| session.contact().0);
        Ok(here.max(Some(row.contact_time)))
    }

    /// When the next beat of a delivery is due, counted from the newest that is known.
    fn beat_due(&self, task: &AtWorker, token: &TaskToken, since: Timestamp, held: &[HeldRow]) -> Option<Timestamp> {
        let timeout = task.heartbeat_timeout?;
        let row = held.iter().find(|row| row.unit == token.delivery.unit && row.delivery == token.delivery.delivery);
        let beats = [Some(since), row.map(|row| row.beat_time), self.sessions.beat_of(token).map(|beat| beat.time)];
        beats.into_iter().flatten().max().map(|beat| beat + timeout)
    }
}

fn announcement<'a>(session: &'a SessionRow, asking: &BTreeSet<SessionId>) -> Announcement<'a> {
    Announcement {
        queues: &session.queues,
        contracts: &session.contracts,
        language: &session.language,
        slots: session.slots,
        asks: asking.contains(&session.id),
    }
}
