//! What callers do with schedules: make, read, list, change, pause, resume, trigger, backfill, delete.

use super::{
    begin::{Looked, fits, slot_input},
    fire::{Fired, Firing},
    record::{Plan, Record, Viewed},
};
use crate::domain::definition::Definition;
use crate::domain::schedule::{
    BACKFILLS_MAX, BackfillError, Decision, Entry, Outcome, Overlap, PauseReason, Schedule, ScheduleUid, SkipReason,
    State, Trigger, code,
};
use crate::domain::{Rejection, RequestKey, Timestamp, Uid, digest16};
use crate::engine::{Core, Engine, call::Error};
use crate::store::{
    self, FindSchedule, REQUEST_MEMORY, ScheduleFilter, ScheduleKey, ScheduleRequest, ScheduleRow, ScheduleState,
    SlotCounts, SlotName, SlotOutcome, SlotRow,
};
use crate::wire::schedule::{Setting, Settings, Start, Update};
use crate::wire::{Invalid, Violations};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

/// How often a change is tried again after somebody else was first.
const TRIES_MAX: u32 = 10;
/// First pause between two tries; doubled each time, and each drawn at random from its second half.
const FIRST_PAUSE: Duration = Duration::from_millis(2);

/// Asks for a schedule.
#[derive(Clone, Debug)]
pub struct NewSchedule {
    /// Id.
    pub id: Arc<str>,
    /// What the caller set.
    pub settings: Settings,
    /// Whether it begins paused, and why.
    pub paused: Option<Arc<str>>,
    /// The call's `request_id`.
    pub request: Option<RequestKey>,
}

/// Makes of what is set, as it is stored, what is to be set; or tells what is wrong with that.
pub type Patch = Arc<dyn Fn(&str) -> Result<Update, Invalid> + Send + Sync>;

/// The etag that a schedule must have; none for any.
pub type Etag = Option<Arc<str>>;

/// A span whose slots are to start again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackfillSpan {
    /// First instant.
    pub first: Timestamp,
    /// Last instant.
    pub last: Timestamp,
    /// How many executions of the schedule may be open for another to start.
    pub concurrency: u32,
}

/// A change of a schedule that exists.
enum Change {
    Update(Patch),
    Pause(Arc<str>),
    Resume,
    Delete { allow_missing: bool },
    Trigger { overlap: Option<Overlap> },
    Backfill(BackfillSpan),
}

/// A change that was made, now or by the same call before.
struct Changed {
    /// The schedule as it is now; none if there was none, which the call allows.
    row: Option<ScheduleRow>,
    /// Names the call among those of the schedule.
    call: Arc<str>,
    /// When it was made.
    time: Timestamp,
    /// What it did, if that was done now.
    slots: Option<Vec<SlotRow>>,
}

impl Changed {
    fn viewed(self, id: &str) -> Result<Viewed, Error> {
        self.row.map(Viewed::of).ok_or_else(|| not_found(id))
    }
}

/// The etag of a schedule.
#[must_use]
pub(super) fn etag(row: &ScheduleRow) -> String {
    let uid = row.uid.simple().to_string();
    format!("\"{}-{}\"", &uid[uid.len() - 8..], row.revision)
}

impl Viewed {
    /// Its etag, quoted.
    #[must_use]
    pub fn etag(&self) -> String {
        etag(&self.row)
    }
}

impl Engine {
    /// Makes a schedule; the same request again gives the one that it made.
    ///
    /// # Errors
    /// `ScheduleAlreadyExists`, `DefinitionNotFound`, `Invalid` (nothing of it is ever due, input that does not fit),
    /// `Rejected` (the request id was used for another call), `Store`.
    pub async fn create_schedule(&self, new: NewSchedule) -> Result<Viewed, Error> {
        let core = self.core.clone();
        self.detached(async move { core.create_schedule(new).await }).await
    }

    /// Reads a schedule; one that was deleted by its uid only.
    ///
    /// # Errors
    /// `ScheduleNotFound`, `Store`.
    pub async fn schedule(&self, id: &str, uid: Option<Uuid>) -> Result<Viewed, Error> {
        self.core.find_schedule(id, uid).await.map(Viewed::of)
    }

    /// Lists schedules by id, after one.
    ///
    /// # Errors
    /// `Store`.
    pub async fn schedules(
        &self,
        filter: &ScheduleFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Viewed>, Error> {
        let rows = self.core.store.schedules(filter, after, limit).await.map_err(Error::Store)?;
        Ok(rows.into_iter().map(Viewed::of).collect())
    }

    /// Changes what a schedule is set to.
    ///
    /// # Errors
    /// As [`create_schedule`](Self::create_schedule), and `ScheduleNotFound`, `EtagMismatch`, `WriteConflict`.
    pub async fn update_schedule(
        &self,
        id: Arc<str>,
        etag: Etag,
        patch: Patch,
        request: Option<RequestKey>,
    ) -> Result<Viewed, Error> {
        self.change(&id, etag, request, Change::Update(patch)).await?.viewed(&id)
    }

    /// Pauses a schedule.
    ///
    /// # Errors
    /// `ScheduleNotFound`, `EtagMismatch`, `Rejected` (request id reused), `WriteConflict`, `Store`.
    pub async fn pause_schedule(
        &self,
        id: Arc<str>,
        etag: Etag,
        note: Arc<str>,
        request: Option<RequestKey>,
    ) -> Result<Viewed, Error> {
        self.change(&id, etag, request, Change::Pause(note)).await?.viewed(&id)
    }

    /// Ends a pause, and judges anew what was invalid.
    ///
    /// # Errors
    /// As [`pause_schedule`](Self::pause_schedule).
    pub async fn resume_schedule(
        &self,
        id: Arc<str>,
        etag: Etag,
        request: Option<RequestKey>,
    ) -> Result<Viewed, Error> {
        self.change(&id, etag, request, Change::Resume).await?.viewed(&id)
    }

    /// Deletes a schedule; its ledger stays for as long as any. That there is none may be allowed: then the call is remembered
    /// all the same, and made again it leaves alone what has been made since.
    ///
    /// # Errors
    /// As [`pause_schedule`](Self::pause_schedule).
    pub async fn delete_schedule(
        &self,
        id: Arc<str>,
        etag: Etag,
        allow_missing: bool,
        request: Option<RequestKey>,
    ) -> Result<(), Error> {
        self.change(&id, etag, request, Change::Delete { allow_missing }).await.map(drop)
    }

    /// Starts an execution now, if the overlap policy lets it; gives the slot that the call made.
    ///
    /// # Errors
    /// As [`pause_schedule`](Self::pause_schedule), and `ScheduleInvalid`.
    pub async fn trigger_schedule(
        &self,
        id: Arc<str>,
        overlap: Option<Overlap>,
        request: Option<RequestKey>,
    ) -> Result<SlotRow, Error> {
        let changed = self.change(&id, None, request, Change::Trigger { overlap }).await?;
        let kind = store::SlotKind::Trigger;
        let slot = match changed.slots {
            Some(slots) => {
                let own = |slot: &SlotRow| slot.name.kind == kind && slot.name.request == changed.call;
                slots.into_iter().find(own)
            }
            None => {
                let row = changed.row.ok_or_else(|| not_found(&id))?;
                let name = SlotName { nominal_time: changed.time, kind, request: changed.call };
                self.core.store.slot(row.key, &name).await.map_err(Error::Store)?
            }
        };
        // Retention leaves it alone for as long as the call is remembered.
        slot.ok_or(Error::Internal)
    }

    /// Starts executions for the slots of a span again; gives the name of the call, which those slots have.
    ///
    /// # Errors
    /// As [`pause_schedule`](Self::pause_schedule), and `ScheduleInvalid`, `Invalid` (a span that has no slot, too many, or is
    /// not over), `BackfillsPending`.
    pub async fn backfill_schedule(
        &self,
        id: Arc<str>,
        span: BackfillSpan,
        request: Option<RequestKey>,
    ) -> Result<(Arc<str>, Viewed), Error> {
        let changed = self.change(&id, None, request, Change::Backfill(span)).await?;
        Ok((changed.call.clone(), changed.viewed(&id)?))
    }

    /// A schedule's rules, for a look at what it will do.
    ///
    /// # Errors
    /// `ScheduleNotFound`, `ScheduleInvalid`, `Store`.
    pub async fn schedule_rules(&self, id: &str) -> Result<Schedule, Error> {
        let row = self.core.find_schedule(id, None).await?;
        let Record { row, plan, .. } = Record::of(row);
        match plan {
            Ok(plan) => Ok(plan.schedule),
            Err(why) => Err(Error::ScheduleInvalid { id: row.id.to_string(), why }),
        }
    }

    /// Lists the ledger of a schedule, the newest nominal time first, after a slot.
    ///
    /// # Errors
    /// `ScheduleNotFound`, `Store`.
    pub async fn slots(
        &self,
        id: &str,
        uid: Option<Uuid>,
        outcome: Option<SlotOutcome>,
        after: Option<SlotName>,
        limit: usize,
    ) -> Result<Vec<SlotRow>, Error> {
        let row = self.core.find_schedule(id, uid).await?;
        self.core.store.slots(row.key, outcome, after, limit).await.map_err(Error::Store)
    }

    async fn change(
        &self,
        id: &Arc<str>,
        etag: Etag,
        request: Option<RequestKey>,
        change: Change,
    ) -> Result<Changed, Error> {
        let (core, id) = (self.core.clone(), id.clone());
        self.detached(async move { core.change_schedule(&id, etag.as_deref(), request, &change).await }).await
    }
}

impl Core {
    /// Finds a schedule; one that was deleted by its uid only.
    async fn find_schedule(&self, id: &str, uid: Option<Uuid>) -> Result<ScheduleRow, Error> {
        let find = uid.map_or_else(|| FindSchedule::Id(id.into()), FindSchedule::Uid);
        let row = self.store.schedule(&find).await.map_err(Error::Store)?;
        row.filter(|row| *row.id == *id).ok_or_else(|| not_found(id))
    }

    /// The call of a request, if it was made before and is remembered.
    ///
    /// To be asked after the look at the schedule that the call is about: if the same call is being made by another one, either
    /// it is found here, or it has yet to write, which raises the schedule's version. So of all that come at once one is
    /// carried out, and the others, having lost the fence, look again and find it.
    async fn call_before(
        &self,
        request: Option<&RequestKey>,
        now: Timestamp,
    ) -> Result<Option<ScheduleRequest>, Error> {
        let Some(request) = request else { return Ok(None) };
        let call = self.store.schedule_request(request.key).await.map_err(Error::Store)?;
        let call = call.filter(|call| call.time >= now - REQUEST_MEMORY);
        if call.as_ref().is_some_and(|call| call.content != request.content) {
            return Err(Rejection::RequestIdReused.into());
        }
        Ok(call)
    }

    /// The name of a call among those of a schedule, which its slots and executions have. It follows from when the call was
    /// made, too: made again after it was forgotten it is another one, whose execution must not have the first one's id.
    fn call_name(&self, request: Option<&RequestKey>, time: Timestamp) -> Arc<str> {
        let of = |request: &RequestKey| digest16(&[b"call", &request.key, &time.as_micros().to_be_bytes()]);
        let uuid = request.map_or_else(|| self.entropy.uuid(), |request| Uuid::from_bytes(of(request)));
        uuid.simple().to_string().into()
    }

    async fn create_schedule(self: &Arc<Self>, new: NewSchedule) -> Result<Viewed, Error> {
        for tries in 0..TRIES_MAX {
            let holder = self.store.schedule(&FindSchedule::Id(new.id.clone())).await.map_err(Error::Store)?;
            let now = self.clock.wall();
            if let Some(call) = self.call_before(new.request.as_ref(), now).await? {
                return call.row.map(Viewed::of).ok_or_else(|| not_found(&new.id));
            }
            let (plan, definition) = self.judge_new(&new, now).await?;
            if let Some(holder) = holder {
                return Err(Error::ScheduleAlreadyExists { id: new.id.to_string(), uid: Uid(holder.uid) });
            }
            let firing = self.draft_new(&new, plan, definition, now)?;
            let row = firing.write.row.clone();
            match self.fire(vec![firing]).await?.first() {
                Some(Fired::Written(key)) => {
                    self.schedules.written();
                    return Ok(Viewed::of(ScheduleRow { key: *key, ..row }));
                }
                Some(Fired::Conflict) => self.pause(pause_before(tries)).await,
                Some(Fired::Failed) | None => return Err(Error::Internal),
            }
        }
        Err(Error::WriteConflict)
    }

    /// What a new schedule is to do, and the definition of what it is to start.
    async fn judge_new(&self, new: &NewSchedule, now: Timestamp) -> Result<(Plan, Arc<Definition>), Error> {
        let plan = plan(self.entropy.uuid(), new.settings.setting.clone());
        let definition = self.definition_for(&plan.start.workflow, plan.start.version.as_ref()).await?;
        judge(&new.id, &plan, true, Some(&definition), now)?;
        Ok((plan, definition))
    }

    fn draft_new(
        self: &Arc<Self>,
        new: &NewSchedule,
        plan: Plan,
        definition: Arc<Definition>,
        now: Timestamp,
    ) -> Result<Firing, Error> {
        let mut state = State::new(now);
        if let Some(note) = new.paused.clone() {
            state.pause(PauseReason::Asked { note }, now);
        }
        let row = ScheduleRow {
            key: ScheduleKey(0),
            uid: plan.schedule.uid.0,
            id: new.id.clone(),
            version: 0,
            revision: 1,
            workflow: plan.start.workflow.clone(),
            settings: new.settings.text.clone(),
            state: ScheduleState::Active,
            note: Arc::from(""),
            invalid: None,
            cursor_time: now,
            next_time: None,
            progress: Arc::from("{}"),
            counts: SlotCounts::default(),
            create_time: now,
            update_time: now,
            delete_time: None,
        };
        let progress = super::Progress::new(state);
        let record = Record { row, progress, is_damaged: false, plan: Ok(plan) };
        let looked = Looked { record, definition: Ok(definition) };
        let decision = looked.plan()?.schedule.decide(&looked.record.progress.state, &looked.situation(now));
        let mut firing = self.draft_firing(&looked, decision, now)?;
        firing.write.decided_on = None;
        firing.write.is_change = true;
        firing.write.request = new.request.map(|request| (request, now));
        Ok(firing)
    }

    async fn change_schedule(
        self: &Arc<Self>,
        id: &Arc<str>,
        etag: Option<&str>,
        request: Option<RequestKey>,
        change: &Change,
    ) -> Result<Changed, Error> {
        for tries in 0..TRIES_MAX {
            let row = self.store.schedule(&FindSchedule::Id(id.clone())).await.map_err(Error::Store)?;
            let now = self.clock.wall();
            if let Some(ScheduleRequest { row, time, .. }) = self.call_before(request.as_ref(), now).await? {
                return Ok(Changed { row, call: self.call_name(request.as_ref(), time), time, slots: None });
            }
            let call = self.call_name(request.as_ref(), now);
            let made = match row {
                Some(row) => self.change_row(row, etag, request, change, &call, now).await?,
                None if matches!(change, Change::Delete { allow_missing: true }) => {
                    let is_told = match request {
                        Some(request) => {
                            self.store.remember_schedule_request(request, now).await.map_err(Error::Store)?
                        }
                        None => true,
                    };
                    is_told.then_some(Changed { row: None, call, time: now, slots: None })
                }
                None => return Err(not_found(id)),
            };
            match made {
                Some(changed) => return Ok(changed),
                None => self.pause(pause_before(tries)).await,
            }
        }
        Err(Error::WriteConflict)
    }

    /// Changes a schedule as it was read; none if somebody else was first.
    async fn change_row(
        self: &Arc<Self>,
        row: ScheduleRow,
        etag: Option<&str>,
        request: Option<RequestKey>,
        change: &Change,
        call: &Arc<str>,
        now: Timestamp,
    ) -> Result<Option<Changed>, Error> {
        let current = self::etag(&row);
        if etag.is_some_and(|etag| etag != current) {
            return Err(Error::EtagMismatch { id: row.id.to_string(), etag: current });
        }
        let mut looked = self.look_at(vec![row], now).await?.pop().ok_or(Error::Internal)?;
        let decision = self.decide_change(&mut looked, change, call, now).await?;
        let mut firing = self.draft_firing(&looked, decision, now)?;
        let write = &mut firing.write;
        write.request = request.map(|request| (request, now));
        if !matches!(change, Change::Trigger { .. } | Change::Backfill(_)) {
            write.is_change = true;
            write.row.revision += 1;
            write.row.update_time = now;
        }
        if matches!(change, Change::Delete { .. }) {
            write.row.delete_time = Some(now);
            write.row.next_time = None;
        }
        let (row, slots) = (write.row.clone(), write.slots.clone());
        match self.fire(vec![firing]).await?.first() {
            Some(Fired::Written(_)) => {
                self.schedules.written();
                Ok(Some(Changed { row: Some(row), call: call.clone(), time: now, slots: Some(slots) }))
            }
            Some(Fired::Conflict) => Ok(None),
            Some(Fired::Failed) | None => Err(Error::Internal),
        }
    }

    /// Decides what comes of a change; what is set is changed in the record.
    async fn decide_change(
        self: &Arc<Self>,
        looked: &mut Looked,
        change: &Change,
        call: &Arc<str>,
        now: Timestamp,
    ) -> Result<Decision, Error> {
        match change {
            Change::Update(patch) => self.decide_update(looked, patch, now).await,
            Change::Pause(note) => {
                self.mend(looked, note).await?;
                looked.record.progress.state.pause(PauseReason::Asked { note: note.clone() }, now);
                Ok(decide(looked, now))
            }
            Change::Resume => {
                self.mend(looked, &Arc::from("")).await?;
                looked.record.progress.state.resume(now);
                looked.record.row.invalid = None;
                Ok(decide(looked, now))
            }
            Change::Delete { .. } => Ok(leave(looked)),
            Change::Trigger { overlap } => {
                let trigger = Trigger { request: call.clone(), overlap: *overlap };
                let state = &looked.record.progress.state;
                Ok(looked.plan()?.schedule.trigger(state, &trigger, &looked.situation(now)))
            }
            Change::Backfill(span) => {
                let state = &looked.record.progress.state;
                let (plan, situation) = (looked.plan()?, looked.situation(now));
                let backfilled =
                    plan.schedule.backfill(state, call, (span.first, span.last), span.concurrency, &situation);
                backfilled.map_err(|error| refused(&looked.record.row, error))
            }
        }
    }

    /// Begins anew what is damaged.
    async fn mend(&self, looked: &mut Looked, note: &Arc<str>) -> Result<(), Error> {
        if looked.record.is_damaged {
            looked.record.begin_anew(note.clone());
            looked.record.row.invalid = None;
            looked.definition = match &looked.record.plan {
                Ok(plan) => self.definition_to_start(plan).await?,
                Err(why) => Err(why.clone()),
            };
        }
        Ok(())
    }

    async fn decide_update(&self, looked: &mut Looked, patch: &Patch, now: Timestamp) -> Result<Decision, Error> {
        if looked.record.is_damaged {
            looked.plan()?;
        }
        let row = &mut looked.record.row;
        let Update { text, setting, workflow, is_spec_new, is_start_new } = patch(&row.settings)?;
        let plan = setting.map(|setting| plan(row.uid, setting));
        looked.definition = match &plan {
            Ok(plan) if is_start_new => {
                Ok(self.definition_for(&plan.start.workflow, plan.start.version.as_ref()).await?)
            }
            Ok(plan) => self.definition_to_start(plan).await?,
            Err(why) => Err(why.clone()),
        };
        if let Ok(plan) = &plan {
            let definition = looked.definition.as_ref().ok().filter(|_| is_start_new);
            judge(&row.id, plan, is_spec_new, definition.map(|definition| &**definition), now)?;
            // An update of other fields is no reason to think that what could not be started can be now.
            if is_start_new || looked.record.plan.is_err() {
                row.invalid = None;
            }
        }
        row.settings = text;
        row.workflow = workflow;
        let old = std::mem::replace(&mut looked.record.plan, plan);
        let situation = looked.situation(now);
        let state = &looked.record.progress.state;
        Ok(match (old, &looked.record.plan) {
            (Ok(old), Ok(new)) => old.schedule.replace(state, &new.schedule, &situation),
            // Nobody knows what the old times were, nor that they were others: the time since is one without a server.
            (Err(_), Ok(new)) => new.schedule.decide(state, &situation),
            (_, Err(_)) => decide(looked, now),
        })
    }
}

/// What a schedule decides now; nothing, if its settings cannot be used.
pub(super) fn decide(looked: &Looked, now: Timestamp) -> Decision {
    let state = &looked.record.progress.state;
    match &looked.record.plan {
        Ok(plan) => plan.schedule.decide(state, &looked.situation(now)),
        Err(_) => Decision { state: state.clone(), entries: Vec::new(), ending: None, wake: None },
    }
}

/// What a schedule leaves undone that is deleted.
fn leave(looked: &Looked) -> Decision {
    let mut state = looked.record.progress.state.clone();
    state.backfills.clear();
    let waiting = state.waiting.take();
    let entry = waiting.map(|waiting| Entry {
        last: waiting.slot.nominal,
        count: 1,
        due: waiting.slot.nominal,
        slot: waiting.slot,
        outcome: Outcome::Skipped(SkipReason::Replaced),
    });
    Decision { state, entries: entry.into_iter().collect(), ending: None, wake: None }
}

fn plan(uid: Uuid, setting: Setting) -> Plan {
    let Setting { spec, policies, start } = setting;
    Plan { schedule: Schedule { uid: ScheduleUid(uid), spec, policies }, start }
}

/// Judges what only the time and the definition tell: the spec, if it is new, and the start, if there is a definition that is new to
/// it.
fn judge(
    id: &str,
    plan: &Plan,
    is_spec_new: bool,
    definition: Option<&Definition>,
    now: Timestamp,
) -> Result<(), Invalid> {
    let mut violations = Violations::new();
    let spec = &plan.schedule.spec;
    if let (true, Err(fault)) = (is_spec_new, spec.fires_after(now)) {
        violations.within("spec", |v| v.faults(&[fault]));
    }
    if let Some(definition) = definition {
        let first = spec.next(now).unwrap_or(now);
        let Start { workflow, input, .. } = &plan.start;
        let judged = slot_input(input, id, first, first).and_then(|input| {
            fits(definition, input)
                .map_err(|why| format!("does not fit the input of {workflow}@{}: {why}", definition.version))
        });
        violations.take_coded("start.input", code::INPUT_INVALID, judged);
    }
    violations.finish(Some(()))
}

fn refused(row: &ScheduleRow, error: BackfillError) -> Error {
    let field = match error {
        BackfillError::TooMany => {
            return Error::BackfillsPending { id: row.id.to_string(), most: BACKFILLS_MAX };
        }
        BackfillError::Empty => "first_time",
        BackfillError::TooLong | BackfillError::Future => "last_time",
        BackfillError::Concurrency => "concurrency",
    };
    Invalid::field(field, error.to_string()).into()
}

/// How long to wait before another try.
fn pause_before(tries: u32) -> Duration {
    FIRST_PAUSE * 2_u32.pow(tries)
}

fn not_found(id: &str) -> Error {
    Error::ScheduleNotFound { id: id.to_owned() }
}
