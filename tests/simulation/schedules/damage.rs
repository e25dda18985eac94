//! Schedules whose rows somebody's hand has spoilt: they are left alone, and what they missed is told.

use super::{QUICK, SLOW, every, ledger, patch};
use crate::harness::*;
use orbit::domain::Timestamp;
use orbit::engine::Error;
use orbit::store::{
    FindSchedule, MemoryStore, ScheduleRow, ScheduleState, ScheduleWrite, ScheduleWritten, SlotOutcome, Store,
};

/// Writes what somebody's hand has changed in a schedule's row, which is due by that.
async fn meddle(memory: &MemoryStore, id: &str, change: impl FnOnce(&mut ScheduleRow)) {
    let mut row = memory.schedule(&FindSchedule::Id(arc(id))).await.unwrap().unwrap();
    let decided_on = Some(row.version);
    row.version += 1;
    row.next_time = Some(Timestamp::from_micros(1));
    change(&mut row);
    let write = ScheduleWrite {
        write_id: uuid::Uuid::new_v4(),
        decided_on,
        row,
        is_change: true,
        slots: Vec::new(),
        request: None,
        starts: Vec::new(),
    };
    let written = memory.write_schedules(vec![write]).await.unwrap();
    assert!(matches!(written[..], [ScheduleWritten::Written(..)]), "{written:?}");
}

#[tokio::test(start_paused = true)]
async fn the_time_in_which_a_schedule_could_not_be_read_is_a_downtime_of_its() {
    use SlotOutcome::{Missed, Overlapped, Started};
    let orbit = orbit();
    orbit.deploy("slow", SLOW).await;
    let settings = every(10, "slow", r#"{"catchupWindow":"60s"}"#);
    orbit.schedule("zone", &settings).await;
    orbit.schedule("replaced", &settings).await;
    pass(12.0).await;
    for id in ["zone", "replaced"] {
        let unknown = |text: &str| text.replace(r#""spec":{"#, r#""spec":{"timezone":"Mars/Olympus","#);
        meddle(&orbit.memory, id, |row| row.settings = unknown(&row.settings).into()).await;
    }
    pass(90.0).await;
    assert_eq!(orbit.outcomes("zone").await, [(10, Started)]);
    assert_eq!(orbit.viewed("zone").await.row.state, ScheduleState::Invalid);
    // The one is set right by the hand that had spoilt it, and resumed; the other one by an update.
    meddle(&orbit.memory, "zone", |row| {
        row.settings = row.settings.replace(r#""timezone":"Mars/Olympus","#, "").into()
    })
    .await;
    orbit.engine.resume_schedule(arc("zone"), None, None).await.unwrap();
    orbit.engine.update_schedule(arc("replaced"), None, patch(&settings), None).await.unwrap();
    pass(1.0).await;
    for id in ["zone", "replaced"] {
        assert_eq!(orbit.outcomes(id).await, [(10, Started), (20, Missed), (50, Started), (60, Overlapped)], "{id}");
        let viewed = orbit.viewed(id).await;
        let slots = ledger(&orbit.memory, &viewed).await;
        assert_eq!(slots.iter().rev().map(|slot| slot.slot_count).collect::<Vec<_>>(), [1, 3, 1, 5]);
        assert_eq!((viewed.row.state, viewed.row.counts.missed), (ScheduleState::Active, 3));
    }
}

#[tokio::test(start_paused = true)]
async fn a_schedule_whose_memory_is_damaged_is_left_alone_until_somebody_says_what_is_to_be() {
    let orbit = orbit();
    orbit.deploy("quick", QUICK).await;
    // What is due of it lets the node look at what it knows nothing of.
    orbit.schedule("tick", &every(10, "quick", "{}")).await;
    for id in ["resumed", "paused", "deleted", "mended"] {
        orbit.schedule(id, &every(10, "quick", r#"{"maxActions":"5"}"#)).await;
    }
    pass(22.0).await;
    for id in ["resumed", "paused", "deleted", "mended"] {
        orbit.engine.pause_schedule(arc(id), None, arc("by hand"), None).await.unwrap();
        meddle(&orbit.memory, id, |row| row.progress = row.progress.replace("\"pause\"", "\"pause").into()).await;
    }
    pass(30.0).await;
    for id in ["resumed", "paused", "deleted", "mended"] {
        let viewed = orbit.viewed(id).await;
        assert_eq!((viewed.row.state, &*viewed.row.note), (ScheduleState::Invalid, "by hand"));
        assert!(viewed.row.progress.contains("\"pause:"), "{}", viewed.row.progress);
        assert!(viewed.row.invalid.unwrap().contains("progress"));
        assert_eq!((viewed.next_slot, ledger(&orbit.memory, &orbit.viewed(id).await).await.len()), (None, 2));
        let update = orbit.engine.update_schedule(arc(id), None, patch(&every(5, "quick", "{}")), None).await;
        assert!(matches!(update, Err(Error::ScheduleInvalid { .. })), "{update:?}");
        let trigger = orbit.engine.trigger_schedule(arc(id), None, None).await;
        assert!(matches!(trigger, Err(Error::ScheduleInvalid { .. })), "{trigger:?}");
        assert_eq!(orbit.viewed(id).await.row.progress, viewed.row.progress);
    }
    orbit.engine.resume_schedule(arc("resumed"), None, None).await.unwrap();
    orbit.engine.pause_schedule(arc("paused"), None, arc("anew"), None).await.unwrap();
    orbit.engine.delete_schedule(arc("deleted"), None, false, None).await.unwrap();
    // The hand that had damaged it sets it right: it is as it was.
    meddle(&orbit.memory, "mended", |row| row.progress = row.progress.replace("\"pause:", "\"pause\":").into()).await;
    pass(50.0).await;
    use SlotOutcome::{Paused, Started};
    let (resumed, paused) = (orbit.viewed("resumed").await, orbit.viewed("paused").await);
    assert_eq!(resumed.row.state, ScheduleState::Completed);
    let outcomes = [(10, Started), (20, Started), (30, Paused), (60, Started), (70, Started), (80, Started)];
    assert_eq!(orbit.outcomes("resumed").await, outcomes, "five in all");
    assert_eq!((paused.row.state, &*paused.row.note, paused.row.invalid), (ScheduleState::Paused, "anew", None));
    let mended = orbit.viewed("mended").await.row;
    assert_eq!((mended.state, &*mended.note, mended.counts.started), (ScheduleState::Paused, "by hand", 2));
    assert!(orbit.engine.schedule("deleted", None).await.is_err());
}
