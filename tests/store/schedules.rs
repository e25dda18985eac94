//! Schedules and their ledger: written under the fence of the version, found when due, listed, deleted.

use crate::{make::*, on_every_store};
use orbit::domain::{RequestKey, Timestamp, Uid};
use orbit::store::{
    Append, ExecutionKey, ExecutionState, Find, FindSchedule, REQUEST_MEMORY, ScheduleFilter, ScheduleKey, ScheduleRow,
    ScheduleState, ScheduleWrite, ScheduleWritten, SlotCounts, SlotKind, SlotName, SlotOutcome, SlotRow, StateChange,
    Store, Target,
};
use std::{collections::BTreeMap, time::Duration};
use uuid::Uuid;

on_every_store![
    a_schedule_is_stored_and_found_whole,
    an_id_is_free_again_after_a_deletion_and_the_uid_stays,
    of_two_decisions_on_one_version_one_is_written_with_all_that_it_starts,
    the_same_write_again_is_answered_as_written,
    a_slot_is_decided_once_and_one_that_waits_once_more,
    one_write_that_cannot_be_whole_fails_alone,
    a_deleted_schedule_takes_no_decision,
    what_is_due_comes_earliest_first_and_in_pages,
    schedules_are_listed_by_id_workflow_and_state,
    the_ledger_is_listed_newest_first,
    a_call_is_remembered_with_its_schedule,
    a_call_is_written_once_until_it_is_forgotten,
    what_answers_a_call_stays_for_as_long_as_the_call,
    what_is_old_goes_but_not_what_waits,
    states_of_executions_are_told_in_order,
    open_executions_of_schedules_are_found_oldest_first_also_those_that_are_open_again,
    many_schedules_fire_together,
];

fn row(id: &str, number: u128) -> ScheduleRow {
    ScheduleRow {
        key: ScheduleKey(0),
        uid: uuid(number),
        id: id.into(),
        version: 1,
        revision: 1,
        workflow: "order".into(),
        settings: r#"{"spec":{"crons":["@daily"]}}"#.into(),
        state: ScheduleState::Active,
        note: "".into(),
        invalid: None,
        cursor_time: time(100),
        next_time: Some(time(200)),
        progress: "{}".into(),
        counts: SlotCounts::default(),
        create_time: time(50),
        update_time: time(50),
        delete_time: None,
    }
}

fn creation(row: ScheduleRow) -> ScheduleWrite {
    ScheduleWrite {
        write_id: Uuid::new_v4(),
        decided_on: None,
        row,
        is_change: true,
        slots: Vec::new(),
        request: None,
        starts: Vec::new(),
    }
}

/// A decision on a row as it stands.
fn decision(row: &ScheduleRow) -> ScheduleWrite {
    let after = ScheduleRow {
        version: row.version + 1,
        cursor_time: row.cursor_time + Duration::from_micros(100),
        next_time: row.next_time.map(|time| time + Duration::from_micros(100)),
        progress: format!("{{\"actions\":{}}}", row.version).into(),
        counts: SlotCounts { started: row.counts.started + 1, ..row.counts },
        ..row.clone()
    };
    ScheduleWrite { decided_on: Some(row.version), is_change: false, ..creation(after) }
}

fn slot(nominal: i64, outcome: SlotOutcome) -> SlotRow {
    SlotRow {
        name: SlotName { nominal_time: time(nominal), kind: SlotKind::Regular, request: "".into() },
        planned_time: time(nominal + 3),
        actual_time: time(nominal + 5),
        outcome,
        last_time: time(nominal),
        slot_count: 1,
        execution: None,
        detail: "why".into(),
    }
}

fn started(nominal: i64, start: &Append) -> SlotRow {
    let Target::New(new) = &start.target else { panic!("not a start") };
    SlotRow { execution: Some((new.id.clone(), new.uid)), ..slot(nominal, SlotOutcome::Started) }
}

/// A decision whose slot starts an execution.
fn firing(row: &ScheduleRow, nominal: i64, number: u128) -> ScheduleWrite {
    let begun = start(&format!("~{number}"), number);
    ScheduleWrite { slots: vec![started(nominal, &begun)], starts: vec![begun], ..decision(row) }
}

async fn write(store: &dyn Store, write: ScheduleWrite) -> ScheduleWritten {
    store.write_schedules(vec![write]).await.unwrap().pop().unwrap()
}

/// Makes a schedule and reads it.
async fn made(store: &dyn Store, row: ScheduleRow) -> ScheduleRow {
    let uid = row.uid;
    assert!(matches!(write(store, creation(row)).await, ScheduleWritten::Written(..)));
    store.schedule(&FindSchedule::Uid(uid)).await.unwrap().unwrap()
}

async fn by_id(store: &dyn Store, id: &str) -> Option<ScheduleRow> {
    store.schedule(&FindSchedule::Id(id.into())).await.unwrap()
}

fn keys(written: &ScheduleWritten) -> Vec<ExecutionKey> {
    match written {
        ScheduleWritten::Written(_, keys) => keys.clone(),
        other => panic!("not written: {other:?}"),
    }
}

async fn a_schedule_is_stored_and_found_whole(store: &dyn Store) {
    for (number, state) in (1..).zip(ScheduleState::ALL) {
        let whole = ScheduleRow {
            state,
            note: "resting".into(),
            invalid: Some("unknown zone".into()),
            next_time: (number > 1).then(|| time(7)),
            counts: SlotCounts { started: 1, skipped: 2, missed: 3, failed: 4 },
            ..row(&format!("s{number}"), number)
        };
        let there = made(store, whole.clone()).await;
        assert_eq!(there, ScheduleRow { key: there.key, ..whole });
        assert_eq!(by_id(store, &there.id).await, Some(there));
    }
    assert_eq!(by_id(store, "other").await, None);
    let counts = store.count_schedules().await.unwrap();
    assert_eq!(counts, ScheduleState::ALL.into_iter().map(|state| (state, 1)).collect::<BTreeMap<_, _>>());
}

async fn an_id_is_free_again_after_a_deletion_and_the_uid_stays(store: &dyn Store) {
    let first = made(store, row("nightly", 1)).await;
    assert_eq!(write(store, creation(row("nightly", 2))).await, ScheduleWritten::Conflict);
    let gone = ScheduleRow { delete_time: Some(time(90)), next_time: None, revision: 2, ..decision(&first).row };
    let deletion = ScheduleWrite { row: gone, is_change: true, ..decision(&first) };
    assert_eq!(write(store, deletion).await, ScheduleWritten::Written(first.key, Vec::new()));
    assert_eq!(by_id(store, "nightly").await, None);
    let second = made(store, row("nightly", 2)).await;
    assert!(second.key > first.key, "a key is never used again");
    assert_eq!(by_id(store, "nightly").await.map(|row| row.uid), Some(uuid(2)));
    let tomb = store.schedule(&FindSchedule::Uid(uuid(1))).await.unwrap().unwrap();
    assert_eq!((tomb.delete_time, tomb.revision), (Some(time(90)), 2));
    assert_eq!(store.schedules_of(&[first.key, second.key]).await.unwrap(), [second]);
}

async fn of_two_decisions_on_one_version_one_is_written_with_all_that_it_starts(store: &dyn Store) {
    let before = made(store, row("nightly", 1)).await;
    let first = write(store, firing(&before, 200, 11)).await;
    let [key] = keys(&first)[..] else { panic!("one execution") };
    assert_eq!(store.execution(&Find::Id("~11".into())).await.unwrap().unwrap().key, key);
    // The other one is of another node, with an execution of its own for another slot.
    assert_eq!(write(store, firing(&before, 300, 12)).await, ScheduleWritten::Conflict);
    assert_eq!(store.execution(&Find::Id("~12".into())).await.unwrap(), None);
    let after = by_id(store, "nightly").await.unwrap();
    assert_eq!((after.version, after.revision, after.counts.started), (2, 1, 1));
    assert_eq!(after.cursor_time, time(200));
    let ledger = store.slots(after.key, None, None, 9).await.unwrap();
    assert_eq!(ledger.iter().map(|slot| slot.name.nominal_time).collect::<Vec<_>>(), [time(200)]);
    assert_eq!(ledger[0].execution, Some(("~11".into(), Uid(uuid(11)))));
    assert_eq!(store.count().await.unwrap(), [(ExecutionState::Running, 1)].into());
}

async fn the_same_write_again_is_answered_as_written(store: &dyn Store) {
    let creation = creation(row("nightly", 1));
    let made = write(store, creation.clone()).await;
    assert_eq!(write(store, creation).await, made);
    let row = by_id(store, "nightly").await.unwrap();
    let fire = firing(&row, 200, 11);
    let fired = write(store, fire.clone()).await;
    assert_eq!(write(store, fire.clone()).await, fired);
    // Also where the schedule has gone on: what it began tells.
    let next = by_id(store, "nightly").await.unwrap();
    write(store, decision(&next)).await;
    assert_eq!(keys(&write(store, fire).await), keys(&fired));
    assert_eq!(store.slots(row.key, None, None, 9).await.unwrap().len(), 1);
}

async fn a_slot_is_decided_once_and_one_that_waits_once_more(store: &dyn Store) {
    let before = made(store, row("nightly", 1)).await;
    let waiting = ScheduleWrite { slots: vec![slot(200, SlotOutcome::Buffered)], ..decision(&before) };
    keys(&write(store, waiting).await);
    let before = by_id(store, "nightly").await.unwrap();
    let mut fire = firing(&before, 200, 11);
    fire.slots[0].actual_time = time(999);
    fire.slots[0].planned_time = time(1);
    keys(&write(store, fire).await);
    let name = slot(200, SlotOutcome::Started).name;
    let there = store.slot(before.key, &name).await.unwrap().unwrap();
    assert_eq!((there.outcome, there.actual_time, there.planned_time), (SlotOutcome::Started, time(999), time(203)));

    let before = by_id(store, "nightly").await.unwrap();
    let again = write(store, firing(&before, 200, 12)).await;
    assert!(matches!(again, ScheduleWritten::Failed { .. }), "{again:?}");
    assert_eq!(by_id(store, "nightly").await.unwrap(), before, "nothing of it was written");
    assert_eq!(store.execution(&Find::Id("~12".into())).await.unwrap(), None);
    assert_eq!(store.slot(before.key, &name).await.unwrap(), Some(there));
}

async fn one_write_that_cannot_be_whole_fails_alone(store: &dyn Store) {
    let (a, b, c) = (made(store, row("a", 1)).await, made(store, row("b", 2)).await, made(store, row("c", 3)).await);
    crate::written(store, start("~12", 99)).await;
    let writes = vec![firing(&a, 200, 11), firing(&b, 200, 12), firing(&c, 200, 13)];
    let written = store.write_schedules(writes).await.unwrap();
    assert_eq!((keys(&written[0]).len(), keys(&written[2]).len()), (1, 1));
    assert!(matches!(written[1], ScheduleWritten::Failed { .. }), "{:?}", written[1]);
    assert_eq!(by_id(store, "b").await.unwrap(), b);
    assert_eq!(store.slots(b.key, None, None, 9).await.unwrap(), []);
    let odd = ScheduleWrite { row: ScheduleRow { version: 9, ..decision(&b).row }, ..decision(&b) };
    assert!(matches!(write(store, odd).await, ScheduleWritten::Failed { .. }));
}

async fn a_deleted_schedule_takes_no_decision(store: &dyn Store) {
    let before = made(store, row("nightly", 1)).await;
    let row = ScheduleRow { delete_time: Some(time(90)), next_time: None, ..decision(&before).row };
    keys(&write(store, ScheduleWrite { row, is_change: true, ..decision(&before) }).await);
    assert_eq!(write(store, firing(&before, 200, 11)).await, ScheduleWritten::Conflict);
    let tomb = store.schedule(&FindSchedule::Uid(uuid(1))).await.unwrap().unwrap();
    assert_eq!(write(store, firing(&tomb, 200, 11)).await, ScheduleWritten::Conflict, "no write revives it");
    assert_eq!(store.execution(&Find::Id("~11".into())).await.unwrap(), None);
    assert_eq!(store.schedules_due(time(i64::MAX), None, 9).await.unwrap(), []);
}

async fn what_is_due_comes_earliest_first_and_in_pages(store: &dyn Store) {
    let mut keys = Vec::new();
    for (number, next) in [(1, Some(30)), (2, Some(10)), (3, Some(20)), (4, Some(20)), (5, None)] {
        let made = made(store, ScheduleRow { next_time: next.map(time), ..row(&format!("s{number}"), number) }).await;
        keys.push(made.key);
    }
    let page = store.schedules_due(time(20), None, 2).await.unwrap();
    assert_eq!(page, [(keys[1], time(10)), (keys[2], time(20))]);
    let next = store.schedules_due(time(20), Some((time(20), keys[2])), 9).await.unwrap();
    assert_eq!(next, [(keys[3], time(20))]);
    assert_eq!(store.next_schedule_time().await.unwrap(), Some(time(10)));
    assert_eq!(store.schedules_due(time(9), None, 9).await.unwrap(), []);
}

async fn schedules_are_listed_by_id_workflow_and_state(store: &dyn Store) {
    for (number, id, workflow, state) in [
        (1, "c", "order", ScheduleState::Active),
        (2, "a", "order", ScheduleState::Paused),
        (3, "b", "report", ScheduleState::Active),
        (4, "d", "order", ScheduleState::Active),
    ] {
        made(store, ScheduleRow { workflow: workflow.into(), state, ..row(id, number) }).await;
    }
    let list = async |workflow: Option<&str>, state, after: Option<&str>, limit| {
        let filter = ScheduleFilter { workflow: workflow.map(Into::into), state };
        let rows = store.schedules(&filter, after, limit).await.unwrap();
        rows.into_iter().map(|row| row.id.to_string()).collect::<Vec<_>>().join("")
    };
    assert_eq!(list(None, None, None, 3).await, "abc");
    assert_eq!(list(None, None, Some("c"), 3).await, "d");
    assert_eq!(list(Some("order"), None, None, 9).await, "acd");
    assert_eq!(list(None, Some(ScheduleState::Active), Some("b"), 9).await, "cd");
    assert_eq!(list(Some("order"), Some(ScheduleState::Active), None, 1).await, "c");
    assert_eq!(list(Some("order"), Some(ScheduleState::Paused), None, 9).await, "a");
    assert_eq!(list(Some("report"), Some(ScheduleState::Paused), None, 9).await, "");
}

async fn the_ledger_is_listed_newest_first(store: &dyn Store) {
    let before = made(store, row("nightly", 1)).await;
    let called = |nominal, kind, request: &str| SlotRow {
        name: SlotName { nominal_time: time(nominal), kind, request: request.into() },
        ..slot(nominal, SlotOutcome::Overlapped)
    };
    let stretch = SlotRow { last_time: time(190), slot_count: 9, ..slot(100, SlotOutcome::Missed) };
    let slots = vec![
        stretch.clone(),
        slot(200, SlotOutcome::Failed),
        called(200, SlotKind::Trigger, "a"),
        called(200, SlotKind::Backfill, "a"),
        called(200, SlotKind::Backfill, "b"),
        slot(300, SlotOutcome::Buffered),
    ];
    keys(&write(store, ScheduleWrite { slots: slots.clone(), ..decision(&before) }).await);
    let newest_first: Vec<SlotRow> = slots.into_iter().rev().collect();
    let all = store.slots(before.key, None, None, 99).await.unwrap();
    assert_eq!(all, newest_first);
    for (place, slot) in newest_first.iter().enumerate() {
        let next = store.slots(before.key, None, Some(slot.name.clone()), 2).await.unwrap();
        assert_eq!(next[..], newest_first[place + 1..newest_first.len().min(place + 3)]);
    }
    assert_eq!(store.slots(before.key, Some(SlotOutcome::Missed), None, 9).await.unwrap(), [stretch]);
    assert_eq!(store.slots(ScheduleKey(77), None, None, 9).await.unwrap(), []);
}

async fn a_call_is_remembered_with_its_schedule(store: &dyn Store) {
    let request = RequestKey { key: [7; 16], content: [8; 16] };
    let creation = ScheduleWrite { request: Some((request, time(60))), ..creation(row("nightly", 1)) };
    keys(&write(store, creation).await);
    let call = store.schedule_request([7; 16]).await.unwrap().unwrap();
    assert_eq!((call.content, call.time, &*call.row.unwrap().id), ([8; 16], time(60), "nightly"));
    assert_eq!(store.schedule_request([9; 16]).await.unwrap(), None);
    assert_eq!(store.delete_slots(time(0), time(60), 9).await.unwrap(), 0);
    assert_eq!(store.delete_slots(time(0), time(61), 9).await.unwrap(), 1);
    assert_eq!(store.schedule_request([7; 16]).await.unwrap(), None);
}

async fn a_call_is_written_once_until_it_is_forgotten(store: &dyn Store) {
    let of = |content| RequestKey { key: [7; 16], content: [content; 16] };
    let day = REQUEST_MEMORY.as_micros() as i64;
    let before = made(store, row("nightly", 1)).await;
    let called =
        |row: &ScheduleRow, content, at| ScheduleWrite { request: Some((of(content), time(at))), ..decision(row) };
    let first = called(&before, 1, 60);
    assert_eq!(write(store, first.clone()).await, ScheduleWritten::Written(before.key, Vec::new()));
    assert_eq!(write(store, first).await, ScheduleWritten::Written(before.key, Vec::new()), "its answer was lost");
    let after = by_id(store, "nightly").await.unwrap();
    let again = ScheduleWrite { slots: vec![slot(200, SlotOutcome::Missed)], ..called(&after, 1, 60 + day) };
    let other = creation(row("other", 2));
    let written = store.write_schedules(vec![again, other]).await.unwrap();
    assert!(matches!(written[..], [ScheduleWritten::Conflict, ScheduleWritten::Written(..)]), "{written:?}");
    assert_eq!(by_id(store, "nightly").await.as_ref(), Some(&after), "nothing of it was written");
    assert_eq!(store.slots(after.key, None, None, 9).await.unwrap(), []);
    let creation = ScheduleWrite { request: Some((of(1), time(60))), ..creation(row("third", 3)) };
    assert_eq!(write(store, creation).await, ScheduleWritten::Conflict);
    assert_eq!(by_id(store, "third").await, None);
    assert!(!store.remember_schedule_request(of(2), time(60 + day)).await.unwrap());

    assert!(store.remember_schedule_request(of(2), time(61 + day)).await.unwrap());
    let call = store.schedule_request([7; 16]).await.unwrap().unwrap();
    assert_eq!((call.row, call.content, call.time), (None, [2; 16], time(61 + day)));
    assert_eq!(write(store, called(&after, 3, 70 + day)).await, ScheduleWritten::Conflict);
    keys(&write(store, called(&after, 3, 62 + 2 * day)).await);
    let call = store.schedule_request([7; 16]).await.unwrap().unwrap();
    assert_eq!((call.row.map(|row| row.version), call.content), (Some(3), [3; 16]));
}

async fn what_answers_a_call_stays_for_as_long_as_the_call(store: &dyn Store) {
    let before = made(store, row("nightly", 1)).await;
    let called = |nominal, kind| SlotRow {
        name: SlotName { nominal_time: time(nominal), kind, request: "a".into() },
        ..slot(nominal, SlotOutcome::Overlapped)
    };
    let slots = vec![called(100, SlotKind::Trigger), called(100, SlotKind::Backfill), called(200, SlotKind::Trigger)];
    keys(&write(store, ScheduleWrite { slots, ..decision(&before) }).await);
    assert_eq!(store.delete_slots(time(999), time(105), 9).await.unwrap(), 1);
    let left = store.slots(before.key, None, None, 9).await.unwrap();
    assert!(left.len() == 2 && left.iter().all(|slot| slot.name.kind == SlotKind::Trigger), "{left:?}");
    assert_eq!(store.delete_slots(time(999), time(106), 9).await.unwrap(), 1);
    assert_eq!(store.delete_slots(time(150), time(999), 9).await.unwrap(), 0, "the ledger is kept for longer");
    assert_eq!(store.delete_slots(time(999), time(999), 9).await.unwrap(), 1);

    let before = by_id(store, "nightly").await.unwrap();
    let gone = ScheduleRow { delete_time: Some(time(400)), next_time: None, ..decision(&before).row };
    keys(&write(store, ScheduleWrite { row: gone, is_change: true, ..decision(&before) }).await);
    assert_eq!(store.delete_slots(time(999), time(400), 9).await.unwrap(), 0);
    assert_eq!(store.delete_slots(time(999), time(401), 9).await.unwrap(), 1);
}

async fn what_is_old_goes_but_not_what_waits(store: &dyn Store) {
    let before = made(store, row("nightly", 1)).await;
    let slots =
        vec![slot(100, SlotOutcome::Buffered), slot(200, SlotOutcome::Missed), slot(300, SlotOutcome::Overlapped)];
    let gone = ScheduleRow { delete_time: Some(time(400)), next_time: None, ..decision(&before).row };
    keys(&write(store, ScheduleWrite { slots, row: gone, is_change: true, ..decision(&before) }).await);
    let left = async || {
        let slots = store.slots(before.key, None, None, 9).await.unwrap();
        slots.iter().map(|slot| slot.name.nominal_time).collect::<Vec<Timestamp>>()
    };
    assert_eq!(store.delete_slots(time(206), time(999), 9).await.unwrap(), 1);
    assert_eq!(left().await, [time(300), time(100)]);
    assert_eq!(store.delete_slots(time(999), time(999), 9).await.unwrap(), 1, "the schedule still has a slot");
    assert_eq!(left().await, [time(100)]);

    let other = made(store, row("other", 2)).await;
    let gone = ScheduleRow { delete_time: Some(time(400)), next_time: None, ..decision(&other).row };
    keys(&write(store, ScheduleWrite { row: gone, is_change: true, ..decision(&other) }).await);
    assert_eq!(store.delete_slots(time(400), time(999), 9).await.unwrap(), 0);
    assert_eq!(store.delete_slots(time(401), time(999), 9).await.unwrap(), 1);
    assert_eq!(store.schedule(&FindSchedule::Uid(uuid(2))).await.unwrap(), None);
}

async fn states_of_executions_are_told_in_order(store: &dyn Store) {
    let key = crate::written(store, start("a", 1)).await;
    crate::written(store, start("b", 2)).await;
    crate::written(store, ending(key, 3, ExecutionState::Failed, 70)).await;
    let states = store.states_of(&[Uid(uuid(2)), Uid(uuid(3)), Uid(uuid(1))]).await.unwrap();
    assert_eq!(states, [Some(ExecutionState::Running), None, Some(ExecutionState::Failed)]);
}

async fn open_executions_of_schedules_are_found_oldest_first_also_those_that_are_open_again(store: &dyn Store) {
    let of = |number: u128, schedule| with_row(start(&format!("~{number}"), number), |row| row.schedule = schedule);
    let mut keys = BTreeMap::new();
    for number in 1..=8 {
        let schedule = [None, Some(uuid(77)), Some(uuid(78))][number as usize % 3];
        keys.insert(number, crate::written(store, of(number, schedule)).await);
    }
    let open = async |schedules: &[u128], limit| {
        let schedules: Vec<Uuid> = schedules.iter().map(|number| uuid(*number)).collect();
        let open = store.open_runs(&schedules, limit).await.unwrap();
        open.iter()
            .map(|runs| {
                assert!(runs.iter().all(|run| *run.id == *format!("~{}", run.uid.0.as_u128())));
                runs.iter().map(|run| run.uid.0.as_u128()).collect::<Vec<u128>>()
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(open(&[78, 79, 77], 9).await, [vec![2, 5, 8], vec![], vec![1, 4, 7]]);
    assert_eq!(open(&[77, 78], 2).await, [[1, 4], [2, 5]]);
    assert_eq!(open(&[], 2).await, [[0; 0]; 0]);
    crate::written(store, ending(keys[&1], 3, ExecutionState::Failed, 70)).await;
    crate::written(store, ending(keys[&4], 3, ExecutionState::Succeeded, 70)).await;
    assert_eq!(open(&[77, 78], 2).await, [vec![7], vec![2, 5]]);
    let again = StateChange { from: ExecutionState::Failed, to: ExecutionState::Running, close_time: None };
    crate::written(store, Append { state: Some(again), ..append(keys[&1], 4, 4) }).await;
    assert_eq!(open(&[77], 2).await, [[1, 7]]);
}

async fn many_schedules_fire_together(store: &dyn Store) {
    let creations: Vec<_> = (0..300).map(|number| creation(row(&format!("s{number:03}"), 1 + number))).collect();
    let written = store.write_schedules(creations).await.unwrap();
    assert_eq!(written.iter().map(|written| keys(written).len()).sum::<usize>(), 0);
    let rows = store.schedules(&ScheduleFilter::default(), None, 999).await.unwrap();
    let firings = rows.iter().zip(1000..).map(|(row, number)| firing(row, 200, number)).collect();
    let fired = store.write_schedules(firings).await.unwrap();
    assert_eq!(fired.iter().map(|fired| keys(fired).len()).sum::<usize>(), 300);
    assert_eq!(store.count().await.unwrap(), [(ExecutionState::Running, 300)].into());
    assert_eq!(store.schedules_due(time(200), None, 9).await.unwrap(), []);
}
