//! Starts executions: makes a new one, finds the one that the same call made, or puts it in the place of another.
//!
//! The common case is one commit and no look before: an id that is taken refuses it. Only then is asked whose it is:
//!
//! 1. The execution that this same call (`request_id`) made, whatever has become of the id since: the first answer again.
//! 2. What the caller's [`IdReuse`] allows: to take the place of a closed execution is a commit with two fences; to end a
//!    running one first is decided in that one's mailbox, and both are written or neither.
//! 3. The same workflow and input: the existing one. Else it is refused.

use super::{
    Core, Engine,
    call::{Error, IdReuse, StartExecution, Started},
    draft::{Draft, Tail, execution_state},
    mailbox::{Hot, Item, Mailbox},
};
use crate::domain::{
    Command, ExecutionId, Rejection, State, Uid,
    decide::{self, Context, Start},
    digest16,
};
use crate::store::{Append, ExecutionKey, ExecutionRow, Find, NewExecution, Replacement, Target};
use std::{sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// How often a start is tried again after what it found had changed meanwhile.
const TRIES_MAX: u32 = 8;
/// First pause between two tries; doubled each time, and each drawn at random from its second half.
const FIRST_PAUSE: Duration = Duration::from_millis(2);

/// Why an execution ends whose id is taken from it.
const REPLACED: &str = "another execution was started in its place";

/// A new execution before its commit.
pub(super) struct Begun {
    state: State,
    draft: Draft,
    new: NewExecution,
}

/// Whose place a new execution takes, and what ends that one if it is open.
struct Replaced {
    old: ExecutionKey,
    end: Option<Append>,
}

impl Engine {
    /// Starts an execution, or finds the one that the same call started.
    ///
    /// # Errors
    /// `DefinitionNotFound`, `ExecutionAlreadyExists`, `Rejected` (input that does not fit, request id reused),
    /// `WriteConflict` (others started, ended and started again and again), `LevelTooHigh`, `Store`.
    pub async fn start_execution(&self, request: StartExecution) -> Result<Started, Error> {
        let core = self.core.clone();
        self.detached(async move { core.start(request).await }).await
    }
}

impl Core {
    async fn start(self: Arc<Self>, request: StartExecution) -> Result<Started, Error> {
        let id = self.id_for(&request);
        for tries in 0..TRIES_MAX {
            let refused = match self.begin(&request, &id).await {
                Ok(begun) => match self.commit_start(begun, None).await? {
                    Some(started) => return Ok(started),
                    None => None,
                },
                // The same start again is answered even where it could not be made any more.
                Err(error @ (Error::Rejected(_) | Error::DefinitionNotFound { .. })) => Some(error),
                Err(error) => return Err(error),
            };
            if let Some(started) = self.meet_holder(&request, &id, refused).await? {
                return Ok(started);
            }
            self.pause(FIRST_PAUSE * 2_u32.pow(tries)).await;
        }
        Err(Error::WriteConflict)
    }

    /// What comes of a start whose id is taken, or that is `refused`; nothing if the id has passed on meanwhile.
    async fn meet_holder(
        self: &Arc<Self>,
        request: &StartExecution,
        id: &ExecutionId,
        refused: Option<Error>,
    ) -> Result<Option<Started>, Error> {
        if let Some(key) = request.request {
            let made = self.store.execution_by_request(id.as_str(), key.key).await.map_err(Error::Store)?;
            if let Some((row, then)) = made.as_ref().and_then(|row| Some((row, row.request?))) {
                let is_same = then.content == key.content;
                return if is_same { Ok(Some(started(row, true))) } else { Err(Rejection::RequestIdReused.into()) };
            }
        }
        let holder = self.store.execution(&Find::Id(id.as_str().into())).await.map_err(Error::Store)?;
        let Some(holder) = holder else { return refused.map_or(Ok(None), Err) };
        match request.id_reuse {
            IdReuse::AllowWhenClosed | IdReuse::TerminateRunning if holder.state.is_closed() => {
                refused.map_or(Ok(()), Err)?;
                let begun = self.begin(request, id).await?;
                self.commit_start(begun, Some(Replaced { old: holder.key, end: None })).await
            }
            IdReuse::TerminateRunning => {
                refused.map_or(Ok(()), Err)?;
                let begun = self.begin(request, id).await?;
                let (answer, replaced) = oneshot::channel();
                if !self.put(holder.key, Item::Replace { begun: Box::new(begun), answer }) {
                    return Err(Error::Overloaded { what: "the execution's mailbox" });
                }
                replaced.await.unwrap_or(Err(Error::Internal))
            }
            IdReuse::Reject | IdReuse::AllowWhenClosed if request.input_digest == holder.input_digest => {
                Ok(Some(started(&holder, false)))
            }
            IdReuse::Reject | IdReuse::AllowWhenClosed => Err(refused.unwrap_or(Error::ExecutionAlreadyExists {
                id: holder.id.to_string(),
                uid: holder.uid,
                workflow: holder.workflow,
                state: holder.state,
            })),
        }
    }

    /// The id of a new execution: the caller's, one that derives from the request, or a new one.
    fn id_for(&self, request: &StartExecution) -> ExecutionId {
        let text = match (&request.id, &request.request) {
            (Some(id), _) => return id.clone(),
            (None, Some(request)) => uuid::Uuid::from_bytes(request.key).to_string(),
            (None, None) => self.entropy.uuid().to_string(),
        };
        ExecutionId::parse(&text).expect("a UUID's text is an id")
    }

    /// Decides the start; nothing is written.
    async fn begin(self: &Arc<Self>, request: &StartExecution, id: &ExecutionId) -> Result<Begun, Error> {
        let definition = self.definition_for(&request.workflow, request.version.as_ref()).await?;
        let context = Context { now: self.clock.now(), settings: self.config.settings };
        let start = Start {
            id: id.clone(),
            uid: Uid(self.entropy.uuid()),
            input: request.input.clone(),
            labels: request.labels.clone(),
            request: request.request,
            trace_parent: request.trace_parent.clone(),
        };
        let (mut state, events) = decide::start(definition, start, &context)?;
        let mut draft = Draft::new(events);
        draft.hand_off(&mut state, &self.dispatch, &context);
        if draft.level() > self.level() {
            return Err(Error::LevelTooHigh);
        }
        let new = NewExecution {
            uid: state.uid(),
            id: id.as_str().into(),
            workflow: request.workflow.clone(),
            version: state.definition().version.to_string().into(),
            definition_hash: state.definition().hash,
            input_digest: request.input_digest,
            request: request.request,
            start_time: state.start_time(),
            state: execution_state(state.phase()),
            close_time: state.close_time(),
            labels: state.labels().clone(),
        };
        Ok(Begun { state, draft, new })
    }

    /// Makes the execution; nothing if its id is taken, or what it replaces has changed.
    async fn commit_start(
        self: &Arc<Self>,
        begun: Begun,
        replaced: Option<Replaced>,
    ) -> Result<Option<Started>, Error> {
        let Begun { state, mut draft, new } = begun;
        let mut row = ExecutionRow {
            // Known once it is committed.
            key: ExecutionKey(0),
            uid: new.uid,
            id: new.id.clone(),
            current: true,
            run: state.run(),
            workflow: new.workflow.clone(),
            version: new.version.clone(),
            definition_hash: new.definition_hash,
            input_digest: new.input_digest,
            request: new.request,
            state: new.state,
            labels: new.labels.clone(),
            start_time: new.start_time,
            close_time: new.close_time,
            wake_time: None,
            quarantined: None,
            delete_time: None,
        };
        let target = match replaced {
            Some(Replaced { old, end }) => Target::Replacing(Box::new(Replacement { new, old, end })),
            None => Target::New(Box::new(new)),
        };
        let drafted = draft.finish(&state, &row, target, Tail::none(&self.config), self.entropy.uuid());
        let key = match self.committer.commit(drafted.append.clone()).await {
            Ok(key) => key,
            Err(Error::WriteConflict) => return Ok(None),
            Err(error) => return Err(error),
        };
        row.key = key;
        let started = started(&row, true);
        let mut hot = Box::new(Hot { row, state, tail_bytes: 0, snapshot_bytes: 0 });
        hot.take_note(&drafted);
        let mailbox = self.cache.mailbox(key);
        // Whoever came between the commit and here has read the state from the store, and goes on with that.
        let is_ours = mailbox.occupy_at(hot.state.last_number());
        self.after_commit(&mailbox, hot, draft, drafted.added, is_ours);
        if is_ours {
            self.begin_turns(mailbox);
        } else {
            self.cache.release(mailbox);
        }
        Ok(Some(started))
    }

    /// Ends an execution whose turn this is and puts another one in its place, in one commit. Nothing if it has been closed or
    /// changed meanwhile.
    pub(super) async fn replace(
        self: &Arc<Self>,
        mailbox: &Arc<Mailbox>,
        hot: Option<Box<Hot>>,
        begun: Begun,
    ) -> Result<Option<Started>, Error> {
        let key = mailbox.key();
        let mut old = match self.state_for(mailbox, hot, 0, &mut false).await {
            Ok(hot) => hot,
            Err(error) => {
                self.cache.drop_state(key);
                // Its deletion has begun, or it was replaced and that one's has.
                return if matches!(error, Error::ExecutionNotFound { .. }) { Ok(None) } else { Err(error) };
            }
        };
        if old.state.is_closed() {
            self.put_to_rest(mailbox, old);
            return Ok(None);
        }
        let context = Context { now: self.clock.now(), settings: self.config.settings };
        let mut draft = Draft::new(Vec::new());
        let terminate = Command::Terminate { reason: REPLACED.into(), request: None };
        if let Err(rejection) = draft.decide(&mut old.state, terminate, &context) {
            self.put_to_rest(mailbox, old);
            return Err(rejection.into());
        }
        draft.hand_off(&mut old.state, &self.dispatch, &context);
        let tail = Tail::of(&old, &self.config);
        let drafted = draft.finish(&old.state, &old.row, Target::Existing(key), tail, self.entropy.uuid());
        let replaced = Replaced { old: key, end: Some(drafted.append.clone()) };
        let committed = self.commit_start(begun, Some(replaced)).await;
        if let Ok(Some(_)) = &committed {
            old.take_note(&drafted);
            old.row.current = false;
            self.after_commit(mailbox, old, draft, drafted.added, true);
        } else {
            self.cache.drop_state(key);
        }
        committed
    }
}

fn started(row: &ExecutionRow, created: bool) -> Started {
    Started { id: row.id.clone(), uid: row.uid, version: row.version.clone(), created, start_time: row.start_time }
}

/// Digest by which the same start is known: workflow and canonical JSON of the input.
#[must_use]
pub fn input_digest(workflow: &str, canonical_input: &str) -> [u8; 16] {
    digest16(&[b"start", workflow.as_bytes(), canonical_input.as_bytes()])
}
