//! Schedules in the random history: few of them with few slots, so that fences, slots and calls are met again and again.

use super::{Known, Random, Subject, ask, equal};
use crate::make::*;
use orbit::domain::{RequestKey, Timestamp, Uid};
use orbit::store::{
    Append, FindSchedule, REQUEST_MEMORY, ScheduleFilter, ScheduleKey, ScheduleRow, ScheduleState, ScheduleWrite,
    ScheduleWritten, SlotCounts, SlotKind, SlotName, SlotOutcome, SlotRow,
};
use std::collections::{BTreeMap, BTreeSet};

/// Ids that schedules have, one after another.
const IDS: u64 = 6;
/// Uids of schedules begin here: no execution's comes this far.
const UIDS: u128 = 1_000_000;

/// What the test knows of schedules: the uid of the next one, and writes to make again.
#[derive(Default)]
pub(super) struct Schedules {
    made: u64,
    past: Vec<(u128, ScheduleWrite)>,
    /// How many writes came to what.
    outcomes: BTreeMap<&'static str, usize>,
}

impl Schedules {
    /// The uid of any that was made, or of one that was not.
    fn any(&self, random: &mut Random) -> u128 {
        UIDS + u128::from(random.below(self.made + 1))
    }
}

impl Subject<'_> {
    fn schedule(&self, uid: u128) -> ScheduleKey {
        self.schedules.get(&uid).copied().unwrap_or(ScheduleKey(1 << 40))
    }

    fn schedule_uid(&self, key: ScheduleKey) -> u128 {
        *self.schedules.iter().find(|(_, known)| **known == key).expect("a key that was given").0
    }

    fn schedule_row(&self, mut row: ScheduleRow) -> ScheduleRow {
        row.key = ScheduleKey(i64::try_from(self.schedule_uid(row.key)).unwrap());
        assert_eq!(row.uid, uuid(row.key.0 as u128));
        row
    }
}

fn any_time(random: &mut Random) -> Timestamp {
    time(i64::try_from(random.below(30)).unwrap())
}

/// When a call is made: today, tomorrow or the day after.
fn any_day(random: &mut Random) -> Timestamp {
    any_time(random) + REQUEST_MEMORY * u32::try_from(random.below(3)).unwrap()
}

fn any_request(random: &mut Random) -> RequestKey {
    RequestKey { key: [random.below(4) as u8; 16], content: [random.below(2) as u8; 16] }
}

fn any_name(random: &mut Random) -> SlotName {
    let kind = random.of(&SlotKind::ALL);
    let request = if kind == SlotKind::Regular { "" } else { random.of(&["a", "b"]) };
    SlotName { nominal_time: any_time(random), kind, request: request.into() }
}

/// Writes, remembers or deletes something.
pub(super) async fn change(
    random: &mut Random,
    known: &mut Vec<Known>,
    schedules: &mut Schedules,
    subjects: &mut [Subject<'_>],
) {
    match random.below(12) {
        0 => {
            let (slots, calls, limit) = (any_day(random), any_day(random), 1 + random.below(4) as usize);
            ask!(subjects, ("delete_slots", slots, calls, limit), |subject| {
                subject.store.delete_slots(slots, calls, limit).await.unwrap()
            });
        }
        1 => {
            let (request, at) = (any_request(random), any_day(random));
            ask!(subjects, ("remember_schedule_request", request.key, at), |subject| {
                subject.store.remember_schedule_request(request, at).await.unwrap()
            });
        }
        _ => write(random, known, schedules, subjects).await,
    }
}

/// Several writes at once: to different schedules, at most one of them new, and at most one with a call.
async fn write(random: &mut Random, known: &mut Vec<Known>, schedules: &mut Schedules, subjects: &mut [Subject<'_>]) {
    let mut next_execution = known.last().map_or(1, |known| known.uid + 1);
    let mut writes: Vec<(u128, ScheduleWrite)> = Vec::new();
    if random.one_in(3) {
        let uid = UIDS + u128::from(schedules.made);
        schedules.made += 1;
        let row = new_row(random, uid);
        let row = any_row(random, row);
        writes.push((uid, any_write(random, None, row, known, &mut next_execution)));
    }
    let existing = subjects[0].store.schedules(&ScheduleFilter::default(), None, 99).await.unwrap();
    for _ in 0..random.below(4) {
        let uid = match existing[..] {
            [] => continue,
            _ if random.one_in(6) => schedules.any(random),
            [..] => random.of(&existing).uid.as_u128(),
        };
        let Some(row) = subjects[0].store.schedule(&FindSchedule::Uid(uuid(uid))).await.unwrap() else { continue };
        // Of one that is stale, or ahead, now and then.
        let decided_on = (row.version + random.of(&[1, 1, 1, 1, 1, 1, 0, 2])).saturating_sub(1).max(1);
        let row = any_row(random, ScheduleRow { version: decided_on + 1, ..row });
        writes.push((uid, any_write(random, Some(decided_on), row, known, &mut next_execution)));
    }
    if random.one_in(4) && !schedules.past.is_empty() {
        writes.push(random.of(&schedules.past));
    }
    let (mut uids, mut ids, mut has_call) = (BTreeSet::new(), BTreeSet::new(), false);
    writes.retain(|(uid, write)| uids.insert(*uid) && ids.insert(write.row.id.clone()));
    for (_, write) in &mut writes {
        if has_call {
            write.request = None;
        }
        has_call |= write.request.is_some();
    }
    let mut outcomes = Vec::new();
    for subject in subjects.iter_mut() {
        let own = |(uid, write): &(u128, ScheduleWrite)| {
            let mut write = write.clone();
            write.row.key = subject.schedule(*uid);
            write
        };
        let written = subject.store.write_schedules(writes.iter().map(own).collect()).await.unwrap();
        let mut told = Vec::new();
        for ((uid, write), outcome) in writes.iter().zip(written) {
            told.push(match outcome {
                ScheduleWritten::Written(key, begun) => {
                    assert_eq!(*subject.schedules.entry(*uid).or_insert(key), key, "a schedule keeps its key");
                    assert_eq!(begun.len(), write.starts.len());
                    for (start, key) in write.starts.iter().zip(begun) {
                        let execution = start.new_execution().unwrap().uid.0.as_u128();
                        assert_eq!(*subject.keys.entry(execution).or_insert(key), key, "an execution keeps its key");
                    }
                    "written"
                }
                ScheduleWritten::Conflict => "conflict",
                ScheduleWritten::Failed { .. } => "failed",
            });
        }
        outcomes.push(told);
    }
    for ((uid, write), outcome) in writes.into_iter().zip(equal(outcomes, "write_schedules")) {
        *schedules.outcomes.entry(outcome).or_default() += 1;
        if outcome == "written" {
            for start in &write.starts {
                learn(known, start);
            }
        }
        schedules.past.push((uid, write));
    }
    known.sort_by_key(|known| known.uid);
}

/// Takes note of an execution that began.
fn learn(known: &mut Vec<Known>, start: &Append) {
    let row = start.new_execution().unwrap().clone();
    let uid = row.uid.0.as_u128();
    if known.iter().all(|known| known.uid != uid) {
        let (newest, state, past) = (start.last_number, row.state, vec![start.clone()]);
        known.push(Known { uid, newest, state, past, row, run: 1, is_current: true, is_deleted: false });
    }
}

fn new_row(random: &mut Random, uid: u128) -> ScheduleRow {
    ScheduleRow {
        key: ScheduleKey(0),
        uid: uuid(uid),
        id: format!("s{}", random.below(IDS)).into(),
        version: 1,
        revision: 1,
        workflow: "order".into(),
        settings: "{}".into(),
        state: ScheduleState::Active,
        note: "".into(),
        invalid: None,
        cursor_time: time(0),
        next_time: None,
        progress: "{}".into(),
        counts: SlotCounts::default(),
        create_time: any_time(random),
        update_time: time(0),
        delete_time: None,
    }
}

/// What a decision may change in a row.
fn any_row(random: &mut Random, row: ScheduleRow) -> ScheduleRow {
    let state = random.of(&ScheduleState::ALL);
    ScheduleRow {
        state,
        note: random.of(&["", "resting"]).into(),
        invalid: (state == ScheduleState::Invalid || random.one_in(4)).then(|| "gone".into()),
        cursor_time: any_time(random),
        next_time: random.one_in(2).then(|| any_time(random)),
        progress: random.of(&["{}", "{\"actions\":1}"]).into(),
        counts: SlotCounts { started: random.below(9), ..row.counts },
        ..row
    }
}

fn any_write(
    random: &mut Random,
    decided_on: Option<u64>,
    mut row: ScheduleRow,
    known: &[Known],
    next_execution: &mut u128,
) -> ScheduleWrite {
    let is_change = decided_on.is_none() || random.one_in(3);
    if is_change && decided_on.is_some() {
        row.revision = (row.revision + 1).min(row.version);
        row.workflow = random.of(&["order", "refund"]).into();
        row.settings = random.of(&["{}", "{\"spec\":{}}"]).into();
        row.update_time = any_time(random);
        if random.one_in(4) {
            (row.delete_time, row.next_time) = (Some(any_time(random)), None);
        }
    }
    let (mut slots, mut starts) = (Vec::new(), Vec::new());
    let mut names = BTreeSet::new();
    for _ in 0..random.below(4) {
        let name = any_name(random);
        if !names.insert(name.clone()) {
            continue;
        }
        let outcome = random.of(&SlotOutcome::ALL);
        let begun = (outcome == SlotOutcome::Started).then(|| {
            let number = *next_execution;
            *next_execution += 1;
            // Now and then the id is taken.
            let taken = known.get(random.below(200) as usize).map(|known| known.row.id.to_string());
            let id = taken.filter(|_| random.one_in(2)).unwrap_or_else(|| format!("~{number}"));
            with_row(start(&id, number), |new| new.schedule = Some(row.uid))
        });
        let execution = begun.as_ref().and_then(Append::new_execution).map(|new| (new.id.clone(), new.uid));
        starts.extend(begun);
        let stretch = if random.one_in(4) { random.below(5) } else { 0 };
        slots.push(SlotRow {
            planned_time: any_time(random),
            actual_time: any_day(random),
            outcome,
            last_time: name.nominal_time + std::time::Duration::from_micros(stretch),
            slot_count: 1 + stretch,
            execution,
            detail: random.of(&["", "why"]).into(),
            name,
        });
    }
    let request = random.one_in(6).then(|| (any_request(random), any_day(random)));
    ScheduleWrite { write_id: uuid(random.next().into()), decided_on, row, is_change, slots, request, starts }
}

/// Asks for all that is read of them.
pub(super) async fn compare(random: &mut Random, known: &[Known], schedules: &Schedules, subjects: &[Subject<'_>]) {
    let (uid, id, limit) = (schedules.any(random), format!("s{}", random.below(IDS)), 1 + random.below(5) as usize);
    for find in [FindSchedule::Uid(uuid(uid)), FindSchedule::Id(id.as_str().into())] {
        ask!(subjects, ("schedule", &find), |subject| {
            subject.store.schedule(&find).await.unwrap().map(|row| subject.schedule_row(row))
        });
    }
    let uids: Vec<u128> =
        (0..random.below(4)).map(|_| schedules.any(random)).collect::<BTreeSet<_>>().into_iter().collect();
    ask!(subjects, ("schedules_of", &uids), |subject| {
        let keys: Vec<ScheduleKey> = uids.iter().map(|uid| subject.schedule(*uid)).collect();
        let rows = subject.store.schedules_of(&keys).await.unwrap();
        rows.into_iter().map(|row| subject.schedule_row(row)).collect::<Vec<_>>()
    });
    let filter = ScheduleFilter {
        workflow: random.one_in(2).then(|| random.of(&["order", "refund"]).into()),
        state: random.one_in(2).then(|| random.of(&ScheduleState::ALL)),
    };
    let after = random.one_in(2).then_some(id);
    ask!(subjects, ("schedules", &filter, &after, limit), |subject| {
        let rows = subject.store.schedules(&filter, after.as_deref(), limit).await.unwrap();
        rows.into_iter().map(|row| subject.schedule_row(row)).collect::<Vec<_>>()
    });
    ask!(subjects, "count_schedules", |subject| subject.store.count_schedules().await.unwrap());
    ask!(subjects, "next_schedule_time", |subject| subject.store.next_schedule_time().await.unwrap());
    let (until, after) = (any_time(random), random.one_in(2).then(|| any_time(random)));
    ask!(subjects, ("schedules_due", until, after, limit), |subject| {
        let after = after.map(|time| (time, subject.schedule(uid)));
        let due = subject.store.schedules_due(until, after, limit).await.unwrap();
        due.into_iter().map(|(key, time)| (subject.schedule_uid(key), time)).collect::<Vec<_>>()
    });
    let request = any_request(random);
    ask!(subjects, ("schedule_request", request.key), |subject| {
        let call = subject.store.schedule_request(request.key).await.unwrap();
        call.map(|call| (call.row.map(|row| subject.schedule_row(row)), call.content, call.time))
    });
    let (name, outcome) = (any_name(random), random.one_in(2).then(|| random.of(&SlotOutcome::ALL)));
    ask!(subjects, ("slot", uid, &name), |subject| subject.store.slot(subject.schedule(uid), &name).await.unwrap());
    let after = random.one_in(2).then_some(name);
    ask!(subjects, ("slots", uid, outcome, &after, limit), |subject| {
        subject.store.slots(subject.schedule(uid), outcome, after.clone(), limit).await.unwrap()
    });
    ask!(subjects, ("open_runs", &uids, limit), |subject| {
        let uids: Vec<_> = uids.iter().map(|uid| uuid(*uid)).collect();
        subject.store.open_runs(&uids, limit).await.unwrap()
    });
    let executions: Vec<Uid> =
        (0..random.below(4)).map(|_| Uid(uuid(u128::from(random.below(known.len() as u64 + 2))))).collect();
    ask!(subjects, ("states_of", &executions), |subject| subject.store.states_of(&executions).await.unwrap());
}

/// The history has met what it is made for.
pub(super) fn check_variety(schedules: &Schedules) {
    for outcome in ["written", "conflict", "failed"] {
        assert!(schedules.outcomes.get(outcome).is_some_and(|count| *count > 2), "{:?}", schedules.outcomes);
    }
}

/// The ledgers whole, of all that were ever made.
pub(super) async fn compare_everything(schedules: &Schedules, subjects: &[Subject<'_>]) {
    for uid in (0..schedules.made).map(|number| UIDS + u128::from(number)) {
        ask!(subjects, ("ledger", uid), |subject| {
            subject.store.slots(subject.schedule(uid), None, None, usize::MAX).await.unwrap()
        });
    }
}
