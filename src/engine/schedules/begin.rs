//! Looks at schedules before they decide, and prepares what their slots start.

use super::progress::{OPEN_MAX, Run};
use super::record::{Plan, Record};
use crate::domain::{
    Payload, Timestamp, Uid,
    decide::{Start, checked_input},
    definition::Definition,
    digest16,
    schedule::{ScheduleScope, Situation, Slot, SlotInput},
};
use crate::engine::{Core, call::Error, start::Prepared};
use crate::store::{ExecutionState, ScheduleRow, ScheduleRun};
use crate::wire::schedule::LABEL;
use std::{collections::BTreeMap, sync::Arc};
use uuid::Uuid;

/// A schedule with what it meets.
#[derive(Clone, Debug)]
pub(super) struct Looked {
    /// The schedule, as of which only those executions are open that still are.
    pub(super) record: Record,
    /// The definition of what it starts, or why nothing can be started.
    pub(super) definition: Result<Arc<Definition>, Arc<str>>,
}

impl Looked {
    /// What its decisions depend on.
    pub(super) fn situation(&self, now: Timestamp) -> Situation<'_> {
        Situation {
            now,
            open_runs: u32::try_from(self.record.progress.open.len()).unwrap_or(u32::MAX),
            obstacle: self.definition.as_ref().err().map(|why| &**why),
        }
    }

    /// Its plan.
    ///
    /// # Errors
    /// `ScheduleInvalid`, if it has none.
    pub(super) fn plan(&self) -> Result<&Plan, Error> {
        let invalid = |why: &Arc<str>| Error::ScheduleInvalid { id: self.record.row.id.to_string(), why: why.clone() };
        self.record.plan.as_ref().map_err(invalid)
    }
}

impl Core {
    /// Reads what rows of schedules mean, and looks at the executions that they started, all at once.
    pub(super) async fn look_at(&self, rows: Vec<ScheduleRow>, now: Timestamp) -> Result<Vec<Looked>, Error> {
        let records: Vec<Record> = rows.into_iter().map(Record::of).collect();
        let uids: Vec<Uuid> = records.iter().map(|record| record.row.uid).collect();
        let open = self.store.open_runs(&uids, OPEN_MAX).await.map_err(Error::Store)?;
        let is_open = |run: &Run, open: &[ScheduleRun]| open.iter().any(|other| other.uid == run.uid);
        let remembered = records.iter().zip(&open);
        let perhaps_closed: Vec<Uid> = remembered
            .flat_map(|(record, open)| record.progress.open.iter().filter(|run| !is_open(run, open)))
            .map(|run| run.uid)
            .collect();
        let states = match perhaps_closed[..] {
            [] => Vec::new(),
            [..] => self.store.states_of(&perhaps_closed).await.map_err(Error::Store)?,
        };
        let states: BTreeMap<Uid, Option<ExecutionState>> = perhaps_closed.into_iter().zip(states).collect();
        let mut looked = Vec::with_capacity(records.len());
        for (mut record, open) in records.into_iter().zip(open) {
            take_note_of_ends(&mut record, open, &states, now);
            let definition = match &record.plan {
                Ok(plan) => self.definition_to_start(plan).await?,
                Err(why) => Err(why.clone()),
            };
            looked.push(Looked { record, definition });
        }
        Ok(looked)
    }

    /// The definition of what a schedule starts, or why there is none.
    pub(super) async fn definition_to_start(&self, plan: &Plan) -> Result<Result<Arc<Definition>, Arc<str>>, Error> {
        match self.definition_for(&plan.start.workflow, plan.start.version.as_ref()).await {
            Ok(definition) => Ok(Ok(definition)),
            Err(error @ (Error::DefinitionNotFound { .. } | Error::Internal)) => {
                let what = match error {
                    Error::Internal => "its workflow's definition cannot be read".to_owned(),
                    other => other.to_string(),
                };
                Ok(Err(what.into()))
            }
            Err(error) => Err(error),
        }
    }

    /// Prepares the execution of a slot; or tells why it cannot be.
    ///
    /// # Errors
    /// Those that have nothing to do with the slot, such as `LevelTooHigh`.
    pub(super) fn open_slot(
        self: &Arc<Self>,
        looked: &Looked,
        slot: &Slot,
        now: Timestamp,
    ) -> Result<Result<Prepared, Arc<str>>, Error> {
        let (plan, definition) = match (&looked.record.plan, &looked.definition) {
            (Ok(plan), Ok(definition)) => (plan, definition),
            (Err(why), _) | (_, Err(why)) => return Ok(Err(why.clone())),
        };
        let row = &looked.record.row;
        let input = match slot_input(&plan.start.input, &row.id, slot.nominal, now) {
            Ok(input) => input,
            Err(why) => return Ok(Err(why.into())),
        };
        let id = slot.execution_id(plan.schedule.uid);
        let mut labels = plan.start.labels.clone();
        labels.insert(LABEL.to_owned(), row.id.to_string());
        // No caller can choose the id, so nobody asks whether his start is the same.
        let digest = digest16(&[b"start slot", id.as_str().as_bytes()]);
        let start = Start {
            id,
            uid: Uid(self.entropy.uuid()),
            input,
            labels,
            request: None,
            trace_parent: Arc::from(""),
            delay: None,
            signal: None,
            results: Vec::new(),
            birth: None,
        };
        match self.prepare_start(definition.clone(), start, digest, plan.schedule.uid.0) {
            Ok(prepared) => Ok(Ok(prepared)),
            Err(Error::Rejected(rejection)) => Ok(Err(rejection.to_string().into())),
            Err(error) => Err(error),
        }
    }
}

/// Forgets executions that are not open any more, and lets the rules know how they ended.
///
/// What is open is found by the schedule's uid, so it is known of one, too, that was closed and is open again, and of more
/// than are remembered. One that is remembered and not found is asked for: there may be so many, or it is of a time when uids
/// were not written.
fn take_note_of_ends(
    record: &mut Record,
    found: Vec<ScheduleRun>,
    states: &BTreeMap<Uid, Option<ExecutionState>>,
    now: Timestamp,
) {
    let before = std::mem::take(&mut record.progress.open);
    let (asked, _): (Vec<Run>, Vec<Run>) = before.into_iter().partition(|run| states.contains_key(&run.uid));
    let is_open = |run: &Run| states[&run.uid].is_some_and(|state| !state.is_closed());
    let (still_open, closed): (Vec<Run>, Vec<Run>) = asked.into_iter().partition(is_open);
    let found = found.into_iter().map(|ScheduleRun { id, uid }| Run { id, uid });
    record.progress.open = still_open.into_iter().chain(found).take(OPEN_MAX).collect();
    for run in &closed {
        let failure = match states[&run.uid] {
            Some(ExecutionState::Failed) => Some(format!("execution {} failed", run.id)),
            Some(ExecutionState::TimedOut) => Some(format!("execution {} timed out", run.id)),
            _ => None,
        };
        if let Ok(plan) = &record.plan {
            plan.schedule.run_ended(&mut record.progress.state, failure.as_deref(), now);
        }
    }
}

/// The input of a slot's execution; or why there is none, for people.
pub(super) fn slot_input(
    input: &SlotInput,
    id: &str,
    nominal_time: Timestamp,
    start_time: Timestamp,
) -> Result<Payload, String> {
    let scope = ScheduleScope { id, nominal_time, start_time };
    input.evaluate(scope).map_err(|error| format!("the input cannot be evaluated: {error}"))
}

/// Whether a slot's input fits the definition; or what does not.
pub(super) fn fits(definition: &Definition, input: Payload) -> Result<(), String> {
    checked_input(definition, input).map(drop)
}
