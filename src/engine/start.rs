//! Starts executions: makes a new one, finds the one that the same call made, or puts it in the place of another.
//!
//! The common case is one commit and no look before: an id that is taken refuses it. Only then is asked whose it is:
//!
//! 1. The execution that this same call (`request_id`) made, whatever has become of the id since: the first answer again.
//! 2. What the caller's [`IdReuse`] allows: to take the place of a closed execution is a commit with two fences; to end a
//!    running one first is decided in that one's mailbox, and both are written or neither.
//! 3. A signal that comes with the start: an open one of the same workflow gets it. That same call again has that answer again,
//!    also when the one that got it has been closed since.
//! 4. The same workflow and input: the existing one. Else it is refused.

use super::{
    Core, Engine,
    call::{Error, IdReuse, StartExecution, Started},
    draft::{Draft, Drafted, Tail, execution_state},
    mailbox::{Hot, Item, Mailbox},
};
use crate::domain::{
    Command, ExecutionId, Outcome, Rejection, State, StepResult, Uid,
    decide::{self, Context, Start, StartSignal},
    definition::Definition,
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
    /// Number of the event of the signal that came with the start.
    signal_number: Option<u64>,
}

/// A new execution whose append is made.
pub(super) struct Prepared {
    row: ExecutionRow,
    state: State,
    draft: Draft,
    drafted: Drafted,
    signal_number: Option<u64>,
}

impl Prepared {
    /// What is to be committed.
    pub(super) fn append(&self) -> &Append {
        &self.drafted.append
    }

    /// Its uid.
    pub(super) fn uid(&self) -> Uid {
        self.row.uid
    }

    /// Its id.
    pub(super) fn id(&self) -> &Arc<str> {
        &self.row.id
    }
}

/// The execution that a new one repeats.
pub(super) struct Repeated {
    /// Its definition.
    pub(super) definition: Arc<Definition>,
    /// What the new one takes over.
    pub(super) results: Vec<StepResult>,
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
    /// `DefinitionNotFound`, `ExecutionAlreadyExists`, `TooManyExecutions`, `Rejected` (input that does not fit, request id reused),
    /// `WriteConflict` (others started, ended and started again and again), `LevelTooHigh`, `Store`.
    pub async fn start_execution(&self, request: StartExecution) -> Result<Started, Error> {
        let core = self.core.clone();
        self.detached(async move { core.start(request, None).await }).await
    }
}

impl Core {
    /// Starts what is asked for; as a repetition of another execution, if one is given.
    pub(super) async fn start(
        self: Arc<Self>,
        request: StartExecution,
        repeated: Option<Repeated>,
    ) -> Result<Started, Error> {
        let id = self.id_for(&request);
        for tries in 0..TRIES_MAX {
            let begun = match self.admit().await {
                Ok(()) => self.begin(&request, &id, repeated.as_ref()).await,
                Err(error) => Err(error),
            };
            let refused = match begun {
                Ok(begun) => match self.commit_start(begun, None).await? {
                    Some(started) => return Ok(started),
                    None => None,
                },
                // The same start again is answered even where it could not be made any more.
                Err(
                    error @ (Error::Rejected(_) | Error::DefinitionNotFound { .. } | Error::TooManyExecutions { .. }),
                ) => Some(error),
                Err(error) => return Err(error),
            };
            if let Some(started) = self.meet_holder(&request, &id, repeated.as_ref(), refused).await? {
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
        repeated: Option<&Repeated>,
        refused: Option<Error>,
    ) -> Result<Option<Started>, Error> {
        if let Some(key) = request.request {
            let made = self.store.execution_by_request(id.as_str(), key.key).await.map_err(Error::Store)?;
            if let Some((row, then)) = made.as_ref().and_then(|row| Some((row, row.request?))) {
                let is_same = then.content == key.content;
                return if is_same {
                    Ok(Some(started(row, true, first_signal(request))))
                } else {
                    Err(Rejection::RequestIdReused.into())
                };
            }
        }
        let holder = self.store.execution(&Find::Id(id.as_str().into())).await.map_err(Error::Store)?;
        let Some(holder) = holder else { return refused.map_or(Ok(None), Err) };
        match request.id_reuse {
            // The one that has the id gets the signal, unless a new one may take its place.
            IdReuse::Reject if request.signal.is_some() && holder.workflow == request.workflow => {
                self.signal_holder(request, &holder).await.map(Some)
            }
            IdReuse::AllowWhenClosed
                if request.signal.is_some()
                    && holder.workflow == request.workflow
                    // A closed one may have had the signal of this very call.
                    && (!holder.state.is_closed() || request.request.is_some()) =>
            {
                match self.signal_holder(request, &holder).await {
                    Err(Error::Rejected(Rejection::ExecutionClosed { .. })) if holder.state.is_closed() => {
                        self.take_place(request, id, repeated, refused, holder.key).await
                    }
                    // It was closed meanwhile, so that a new one may take its place.
                    Err(Error::Rejected(Rejection::ExecutionClosed { .. }) | Error::ExecutionNotFound { .. }) => {
                        Ok(None)
                    }
                    other => other.map(Some),
                }
            }
            IdReuse::AllowWhenClosed | IdReuse::TerminateRunning if holder.state.is_closed() => {
                self.take_place(request, id, repeated, refused, holder.key).await
            }
            IdReuse::TerminateRunning => {
                // One goes and one comes, so there is room.
                let refused = refused.filter(|error| !matches!(error, Error::TooManyExecutions { .. }));
                refused.map_or(Ok(()), Err)?;
                let begun = self.begin(request, id, repeated).await?;
                let (answer, replaced) = oneshot::channel();
                if !self.put(holder.key, Item::Replace { begun: Box::new(begun), answer }) {
                    return Err(Error::Overloaded { what: "the execution's mailbox" });
                }
                replaced.await.unwrap_or(Err(Error::Internal))
            }
            IdReuse::Reject | IdReuse::AllowWhenClosed if request.input_digest == holder.input_digest => {
                Ok(Some(started(&holder, false, None)))
            }
            IdReuse::Reject | IdReuse::AllowWhenClosed => Err(refused.unwrap_or(Error::ExecutionAlreadyExists {
                id: holder.id.to_string(),
                uid: holder.uid,
                workflow: holder.workflow,
                state: holder.state,
            })),
        }
    }

    /// Starts in the place of a closed execution.
    async fn take_place(
        self: &Arc<Self>,
        request: &StartExecution,
        id: &ExecutionId,
        repeated: Option<&Repeated>,
        refused: Option<Error>,
        old: ExecutionKey,
    ) -> Result<Option<Started>, Error> {
        refused.map_or(Ok(()), Err)?;
        let begun = self.begin(request, id, repeated).await?;
        self.commit_start(begun, Some(Replaced { old, end: None })).await
    }

    /// Gives a start's signal to the execution that has the id.
    async fn signal_holder(
        self: &Arc<Self>,
        request: &StartExecution,
        holder: &ExecutionRow,
    ) -> Result<Started, Error> {
        let Some(StartSignal { name, payload }) = request.signal.clone() else { return Err(Error::Internal) };
        let command = Command::Signal { name, payload, expire_time: None, request: request.request };
        match self.execute_for(holder.key, Some(holder.uid), command).await? {
            Outcome::Recorded(number) => Ok(started(holder, false, Some(number))),
            Outcome::Report(_) | Outcome::Dispatched(_) | Outcome::Done => Err(Error::Internal),
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
    async fn begin(
        self: &Arc<Self>,
        request: &StartExecution,
        id: &ExecutionId,
        repeated: Option<&Repeated>,
    ) -> Result<Begun, Error> {
        let (definition, results) = match repeated {
            Some(Repeated { definition, results }) => (definition.clone(), results.clone()),
            None => (self.definition_for(&request.workflow, request.version.as_ref()).await?, Vec::new()),
        };
        let start = Start {
            id: id.clone(),
            uid: Uid(self.entropy.uuid()),
            input: request.input.clone(),
            labels: request.labels.clone(),
            request: request.request,
            trace_parent: request.trace_parent.clone(),
            delay: request.delay,
            signal: request.signal.clone(),
            results,
            birth: None,
        };
        let signal_number = first_signal(request);
        Ok(Begun { signal_number, ..self.begin_of(definition, start, request.input_digest)? })
    }

    /// Makes a child; nothing if its id is taken.
    pub(super) async fn create_child(
        self: &Arc<Self>,
        definition: Arc<Definition>,
        start: Start,
    ) -> Result<Option<Started>, Error> {
        // Nobody else's start has this id, so nobody asks whether his is the same.
        let digest = digest16(&[b"start child", start.id.as_str().as_bytes()]);
        let begun = self.begin_of(definition, start, digest)?;
        self.commit_start(begun, None).await
    }

    fn begin_of(
        self: &Arc<Self>,
        definition: Arc<Definition>,
        start: Start,
        input_digest: [u8; 16],
    ) -> Result<Begun, Error> {
        let context = Context { now: self.clock.now(), settings: self.config.settings };
        let (id, request) = (Arc::from(start.id.as_str()), start.request);
        let (mut state, events) = decide::start(definition, start, &context)?;
        let mut draft = Draft::new(events);
        draft.hand_off(&mut state, &self.dispatch, &context);
        if draft.level() > self.level() {
            return Err(Error::LevelTooHigh);
        }
        let new = NewExecution {
            uid: state.uid(),
            id,
            workflow: state.definition().name.clone(),
            version: state.definition().version.to_string().into(),
            definition_hash: state.definition().hash,
            input_digest,
            request,
            start_time: state.start_time(),
            state: execution_state(&state),
            close_time: state.close_time(),
            labels: state.labels().clone(),
            schedule: None,
        };
        Ok(Begun { state, draft, new, signal_number: None })
    }

    /// Makes the execution; nothing if its id is taken, or what it replaces has changed.
    async fn commit_start(
        self: &Arc<Self>,
        begun: Begun,
        replaced: Option<Replaced>,
    ) -> Result<Option<Started>, Error> {
        let prepared = self.prepare(begun, replaced);
        match self.committer.commit(prepared.append().clone()).await {
            Ok(key) => Ok(Some(self.has_begun(prepared, key))),
            Err(Error::WriteConflict) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes the append of a new execution.
    fn prepare(&self, begun: Begun, replaced: Option<Replaced>) -> Prepared {
        let Begun { state, mut draft, new, signal_number } = begun;
        let row = ExecutionRow {
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
        Prepared { row, state, draft, drafted, signal_number }
    }

    /// Prepares an execution of a schedule, which is made as it is by whoever commits it.
    pub(super) fn prepare_start(
        self: &Arc<Self>,
        definition: Arc<Definition>,
        start: Start,
        input_digest: [u8; 16],
        schedule: uuid::Uuid,
    ) -> Result<Prepared, Error> {
        let mut begun = self.begin_of(definition, start, input_digest)?;
        begun.new.schedule = Some(schedule);
        Ok(self.prepare(begun, None))
    }

    /// A prepared execution was committed.
    pub(super) fn has_begun(self: &Arc<Self>, prepared: Prepared, key: ExecutionKey) -> Started {
        let Prepared { mut row, state, draft, drafted, signal_number } = prepared;
        row.key = key;
        let started = started(&row, true, signal_number);
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
        started
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

fn started(row: &ExecutionRow, created: bool, signal_number: Option<u64>) -> Started {
    Started {
        id: row.id.clone(),
        uid: row.uid,
        version: row.version.clone(),
        created,
        start_time: row.start_time,
        signal_number,
    }
}

/// Number of the event of a signal that comes with a start: it follows the first event.
fn first_signal(request: &StartExecution) -> Option<u64> {
    request.signal.as_ref().map(|_| 2)
}

/// Digest by which the same start is known: workflow and canonical JSON of the input.
#[must_use]
pub fn input_digest(workflow: &str, canonical_input: &str) -> [u8; 16] {
    digest16(&[b"start", workflow.as_bytes(), canonical_input.as_bytes()])
}
