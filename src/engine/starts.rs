//! Starts: an execution is made once, however often and through however many nodes it is started.
//!
//! The fence is the id among current executions: whoever comes second finds the first one, and is answered by what that
//! one was started with.

use super::{
    Core, Engine,
    call::{Error, StartExecution, Started},
    draft::{Draft, Tail, execution_state},
    mailbox::Hot,
    turn,
};
use crate::domain::{
    ExecutionId, Rejection, Uid,
    decide::{self, Context, Start},
    digest16,
};
use crate::store::{ExecutionKey, ExecutionRow, Find, NewExecution, Target};
use std::sync::Arc;

impl Engine {
    /// Starts an execution, or finds the one that the same call started.
    ///
    /// # Errors
    /// `DefinitionNotFound`, `ExecutionAlreadyExists`, `Rejected` (input that does not fit, request id reused), `Store`.
    pub async fn start_execution(&self, request: StartExecution) -> Result<Started, Error> {
        let core = self.core.clone();
        self.detached(async move { core.start(request).await }).await
    }
}

impl Core {
    async fn start(self: Arc<Self>, request: StartExecution) -> Result<Started, Error> {
        let id = self.id_for(&request);
        let result = self.try_start(&request, &id).await;
        let taken = match result {
            Ok(Some(started)) => return Ok(started),
            Ok(None) => None,
            // The same start again is answered even where it could not be made any more.
            Err(error @ (Error::Rejected(_) | Error::DefinitionNotFound { .. } | Error::LevelTooHigh)) => Some(error),
            Err(error) => return Err(error),
        };
        let existing = self.store.execution(&Find::Id(id.as_str().into())).await.map_err(Error::Store)?;
        match (existing, taken) {
            (Some(row), taken) => same_start(&request, &row).map_err(|error| match taken {
                Some(first) if !matches!(error, Error::Rejected(Rejection::RequestIdReused)) => first,
                _ => error,
            }),
            (None, Some(error)) => Err(error),
            (None, None) => Err(Error::WriteConflict),
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

    /// Makes the execution; nothing if its id is taken.
    async fn try_start(self: &Arc<Self>, request: &StartExecution, id: &ExecutionId) -> Result<Option<Started>, Error> {
        let definition = self.definition_for(&request.workflow, request.version.as_ref()).await?;
        let context = Context { now: self.clock.now(), settings: self.config.settings };
        let uid = Uid(self.entropy.uuid());
        let start = Start {
            id: id.clone(),
            uid,
            input: request.input.clone(),
            labels: request.labels.clone(),
            request: request.request,
            trace_parent: request.trace_parent.clone(),
        };
        let (mut state, events) = decide::start(definition, start, &context)?;
        let mut draft = Draft::new(events);
        draft.hand_off(&mut state, &self.dispatch, &context);

        let version: Arc<str> = state.definition().version.to_string().into();
        let new = NewExecution {
            uid,
            id: id.as_str().into(),
            workflow: request.workflow.clone(),
            version: version.clone(),
            definition_hash: state.definition().hash,
            input_digest: request.input_digest,
            request: request.request,
            start_time: state.start_time(),
            state: execution_state(state.phase()),
            close_time: state.close_time(),
            labels: state.labels().clone(),
        };
        let mut row = ExecutionRow {
            // Known once it is committed.
            key: ExecutionKey(0),
            uid,
            id: new.id.clone(),
            current: true,
            workflow: new.workflow.clone(),
            version: version.clone(),
            definition_hash: new.definition_hash,
            input_digest: new.input_digest,
            request: new.request,
            state: new.state,
            labels: new.labels.clone(),
            start_time: new.start_time,
            close_time: new.close_time,
            wake_time: None,
            quarantined: None,
        };
        if draft.level() > self.level() {
            return Err(Error::LevelTooHigh);
        }
        let drafted =
            draft.finish(&state, &row, Target::New(Box::new(new)), Tail::none(&self.config), self.entropy.uuid());
        let key = match self.committer.commit(drafted.append.clone()).await {
            Ok(key) => key,
            Err(Error::WriteConflict) => return Ok(None),
            Err(error) => return Err(error),
        };
        row.key = key;
        let started = Started { id: row.id.clone(), uid, version, created: true, start_time: row.start_time };
        let mut hot = Box::new(Hot { row, state, tail_bytes: 0, snapshot_bytes: 0 });
        hot.take_note(&drafted);
        let mailbox = self.cache.mailbox(key);
        // Whoever came between the commit and here has read the state from the store, and goes on with that.
        let is_ours = mailbox.occupy_at(hot.state.last_number());
        self.after_commit(&mailbox, hot, draft, drafted.added, is_ours);
        if is_ours {
            self.tasks.spawn(turn::run(self.clone(), mailbox));
        } else {
            self.cache.release(mailbox);
        }
        Ok(Some(started))
    }
}

/// Whether an execution that has the id was started by this same call, or by one with the same workflow and input.
fn same_start(request: &StartExecution, row: &ExecutionRow) -> Result<Started, Error> {
    let started = |created| Started {
        id: row.id.clone(),
        uid: row.uid,
        version: row.version.clone(),
        created,
        start_time: row.start_time,
    };
    if let (Some(now), Some(then)) = (request.request, row.request)
        && now.key == then.key
    {
        let is_same = now.content == then.content;
        return if is_same { Ok(started(true)) } else { Err(Rejection::RequestIdReused.into()) };
    }
    if request.input_digest == row.input_digest {
        return Ok(started(false));
    }
    Err(Error::ExecutionAlreadyExists {
        id: row.id.to_string(),
        uid: row.uid,
        workflow: row.workflow.clone(),
        state: row.state,
    })
}

/// Digest by which the same start is known: workflow and canonical JSON of the input.
#[must_use]
pub fn input_digest(workflow: &str, canonical_input: &str) -> [u8; 16] {
    digest16(&[b"start", workflow.as_bytes(), canonical_input.as_bytes()])
}
