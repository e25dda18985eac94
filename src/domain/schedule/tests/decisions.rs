//! What a schedule decides about slots that are due: overlap, catch-up, pauses, triggers, backfills and changes.

use super::*;
use crate::domain::schedule::{
    BackfillError, Decision, Ending, Outcome, Overlap, PACE, PauseReason, SLOTS_MAX, SkipReason, SlotKind, Trigger,
};
use std::sync::Arc;

/// A schedule that fires each minute.
fn minutely(overlap: Overlap) -> Schedule {
    let mut schedule = schedule(&every(60));
    schedule.policies.overlap = overlap;
    schedule
}

/// The ledger's rows: the time of day, or of the first and last, and the outcome.
fn rows(decision: &Decision) -> Vec<String> {
    let row = |entry: &crate::domain::schedule::Entry| {
        let time = |instant| utc(instant)[11..19].to_owned();
        let kind = match entry.slot.kind {
            SlotKind::Regular => "",
            SlotKind::Trigger { .. } => "trigger ",
            SlotKind::Backfill { .. } => "backfill ",
        };
        let outcome = match &entry.outcome {
            Outcome::Started { .. } => "started",
            Outcome::Buffered => "buffered",
            Outcome::Skipped(SkipReason::Overlap) => "overlap",
            Outcome::Skipped(SkipReason::Superseded) => "superseded",
            Outcome::Skipped(SkipReason::Paused) => "paused",
            Outcome::Skipped(SkipReason::Replaced) => "replaced",
            Outcome::Missed => "missed",
            Outcome::Failed { .. } => "failed",
        };
        match entry.count {
            1 => format!("{kind}{} {outcome}", time(entry.slot.nominal)),
            count => format!("{kind}{}-{} {count} {outcome}", time(entry.slot.nominal), time(entry.last)),
        }
    };
    decision.entries.iter().map(row).collect()
}

/// When the next decision is asked for.
fn wake(decision: &Decision) -> String {
    decision.wake.map_or_else(|| "never".to_owned(), utc)
}

/// Decides over and over, as an engine does that finds no run open, until nothing is due.
fn work_off(schedule: &Schedule, state: &State, now: &str) -> (State, Vec<Decision>) {
    let (mut state, mut decisions) = (state.clone(), Vec::new());
    let mut now = at(now);
    loop {
        let decision = schedule.decide(&state, &Situation { now, open_runs: 0, obstacle: None });
        state = decision.state.clone();
        let wake = decision.wake;
        decisions.push(decision);
        match wake {
            Some(wake) if wake <= now => {}
            Some(wake) if wake == now + PACE => now = wake,
            Some(_) | None => return (state, decisions),
        }
        assert!(decisions.len() < 1_000, "it ends");
    }
}

fn trigger(request: &str, overlap: Option<Overlap>) -> Trigger {
    Trigger { request: Arc::from(request), overlap }
}

const NOON: &str = "2026-01-01T12:00:00Z";

#[test]
fn a_slot_starts_one_execution_when_it_is_due() {
    let schedule = minutely(Overlap::Skip);
    let first = schedule.decide(&made("2026-01-01T11:59:30Z"), &when("2026-01-01T11:59:30Z", 0));
    assert_eq!((rows(&first), wake(&first)), (vec![], NOON.to_owned()));
    let due = schedule.decide(&first.state, &when(NOON, 0));
    assert_eq!(rows(&due), ["12:00:00 started"]);
    assert_eq!(wake(&due), "2026-01-01T12:01:00Z");
    // The same moment again, and an earlier one after the clock was put back, find nothing.
    for now in [NOON, "2026-01-01T11:00:00Z"] {
        assert_eq!(rows(&schedule.decide(&due.state, &when(now, 1))), [""; 0], "{now}");
    }
    let Outcome::Started { execution } = &due.entries[0].outcome else { panic!("it has started") };
    // What is stored refers to this id: it never changes.
    assert_eq!(execution.as_str(), "~31ba6642715bb9423c59acd2b0910ebd");
    assert!(execution.is_reserved());
}

#[test]
fn a_schedule_does_not_fire_what_had_passed_when_it_was_made() {
    let draft = Draft { start_time: Some(at("2025-01-01T00:00:00Z")), ..every(60) };
    let decision = schedule(&draft).decide(&made(NOON), &when(NOON, 0));
    assert_eq!((rows(&decision), wake(&decision)), (vec![], "2026-01-01T12:01:00Z".to_owned()));
}

#[test]
fn slots_have_identities_of_their_own() {
    let ids = |uid| {
        let request: Arc<str> = Arc::from("r");
        let nominal = at(NOON);
        let slots = [
            SlotKind::Regular,
            SlotKind::Trigger { request: Arc::clone(&request) },
            SlotKind::Backfill { request },
            SlotKind::Backfill { request: Arc::from("s") },
        ];
        slots
            .map(|kind| crate::domain::schedule::Slot { nominal, kind }.execution_id(ScheduleUid(Uuid::from_u128(uid))))
    };
    let all: std::collections::BTreeSet<_> = ids(1).into_iter().chain(ids(2)).collect();
    assert_eq!(all.len(), 8);
}

#[test]
fn c065_what_was_decided_once_is_not_decided_again_after_a_change_and_back() {
    let old = minutely(Overlap::Skip);
    let mut new = old.clone();
    new.spec = spec(&every(120));
    let state = old.decide(&made("2026-01-01T11:59:30Z"), &when(NOON, 0)).state;
    // A, then B, then A again, with slots of A due and not decided: none of them starts, and all are accounted for.
    let changed = old.replace(&state, &new, &when("2026-01-01T12:03:00Z", 0));
    assert_eq!(rows(&changed), ["12:01:00-12:03:00 3 replaced"]);
    assert_eq!(wake(&changed), "2026-01-01T12:04:00Z");
    let back = new.replace(&changed.state, &old, &when("2026-01-01T12:04:30Z", 0));
    assert_eq!(rows(&back), ["12:04:00 replaced"]);
    assert_eq!(wake(&back), "2026-01-01T12:05:00Z");
    // Another input or policy is no other time: nothing is lost.
    let mut patient = old.clone();
    patient.policies.overlap = Overlap::BufferOne;
    assert_eq!(
        rows(&old.replace(&state, &patient, &when("2026-01-01T12:02:00Z", 0))),
        ["12:01:00 started", "12:02:00 buffered"]
    );
}

#[test]
fn a_change_of_times_never_fires_the_past() {
    let old = schedule(&cron("0 9 * * *", "UTC"));
    let new = schedule(&cron("0 * * * *", "UTC"));
    let decision = old.replace(&made("2026-01-01T00:00:00Z"), &new, &when("2026-01-01T08:30:00Z", 0));
    assert_eq!((rows(&decision), wake(&decision)), (vec![], "2026-01-01T09:00:00Z".to_owned()));
}

#[test]
fn each_overlap_policy_does_what_it_says() {
    let state = made("2026-01-01T11:59:30Z");
    for (overlap, expected, ending) in [
        (Overlap::Skip, "12:00:00 overlap", None),
        (Overlap::Allow, "12:00:00 started", None),
        (Overlap::BufferOne, "12:00:00 buffered", None),
        (Overlap::CancelPrevious, "12:00:00 buffered", Some(Ending::Cancel)),
        (Overlap::TerminatePrevious, "12:00:00 buffered", Some(Ending::Terminate)),
    ] {
        let decision = minutely(overlap).decide(&state, &when(NOON, 1));
        assert_eq!(rows(&decision), [expected], "{overlap:?}");
        assert_eq!(decision.ending, ending, "{overlap:?}");
        assert_eq!(wake(&decision), "2026-01-01T12:01:00Z", "{overlap:?}");
    }
}

#[test]
fn one_slot_waits_and_starts_when_the_run_has_ended() {
    let schedule = minutely(Overlap::BufferOne);
    let waiting = schedule.decide(&made("2026-01-01T11:59:30Z"), &when(NOON, 1));
    let second = schedule.decide(&waiting.state, &when("2026-01-01T12:01:00Z", 1));
    assert_eq!(rows(&second), ["12:01:00 overlap"]);
    let ended = schedule.decide(&second.state, &when("2026-01-01T12:01:20Z", 0));
    assert_eq!(rows(&ended), ["12:00:00 started"]);
    assert_eq!(ended.state.waiting, None);
    // It counts as open in the same decision.
    let both = schedule.decide(&second.state, &when("2026-01-01T12:02:00Z", 0));
    assert_eq!(rows(&both), ["12:00:00 started", "12:02:00 buffered"]);
}

#[test]
fn the_newest_slot_waits_for_the_run_that_it_ends() {
    let schedule = minutely(Overlap::CancelPrevious);
    let waiting = schedule.decide(&made("2026-01-01T11:59:30Z"), &when(NOON, 1));
    let newer = schedule.decide(&waiting.state, &when("2026-01-01T12:01:00Z", 1));
    assert_eq!(rows(&newer), ["12:00:00 superseded", "12:01:00 buffered"]);
    assert_eq!(newer.ending, Some(Ending::Cancel), "it is asked again, for the first may have been lost");
    // The row of a slot that waited stays one of its own.
    let later = schedule.decide(&newer.state, &when("2026-01-01T12:04:00Z", 1));
    assert_eq!(rows(&later), ["12:01:00 superseded", "12:02:00-12:03:00 2 superseded", "12:04:00 buffered"]);
    let ended = schedule.decide(&newer.state, &when("2026-01-01T12:01:10Z", 0));
    assert_eq!((rows(&ended), ended.ending), (vec!["12:01:00 started".to_owned()], None));
}

#[test]
fn after_downtime_slots_start_in_order_and_without_a_storm() {
    let down = "2026-01-01T13:00:00Z";
    let state = made("2026-01-01T11:59:30Z");
    let one = minutely(Overlap::Skip).decide(&state, &when(down, 0));
    assert_eq!(rows(&one), ["12:00:00 started", "12:01:00-13:00:00 60 overlap"]);
    let two = minutely(Overlap::BufferOne).decide(&state, &when(down, 0));
    assert_eq!(rows(&two), ["12:00:00 started", "12:02:00-13:00:00 59 overlap", "12:01:00 buffered"]);
    let newest = minutely(Overlap::CancelPrevious).decide(&state, &when(down, 0));
    assert_eq!(rows(&newest), ["12:00:00 started", "12:01:00-12:59:00 59 superseded", "13:00:00 buffered"]);
    let (_, decisions) = work_off(&minutely(Overlap::Allow), &state, down);
    let starts: Vec<String> = decisions.iter().flat_map(rows).collect();
    assert_eq!(starts.len(), 61);
    assert!(starts.is_sorted(), "in order");
    assert_eq!(decisions.len(), 7, "ten at a time");
    assert!(decisions[..6].iter().all(|decision| decision.entries.len() == 10 && decision.wake.is_some()));
}

#[test]
fn what_is_older_than_the_catch_up_window_is_missed() {
    let mut schedule = minutely(Overlap::Allow);
    schedule.policies.catchup_window = Duration::from_secs(120);
    let decision = schedule.decide(&made("2026-01-01T11:59:30Z"), &when("2026-01-01T12:10:00Z", 0));
    assert_eq!(
        rows(&decision),
        ["12:00:00-12:07:00 8 missed", "12:08:00 started", "12:09:00 started", "12:10:00 started"]
    );
}

#[test]
fn a_year_of_missed_minutes_is_worked_off_in_portions() {
    let mut schedule = minutely(Overlap::Skip);
    schedule.policies.catchup_window = Duration::from_secs(60);
    let (state, decisions) = work_off(&schedule, &made("2025-01-01T00:00:00Z"), "2026-01-01T00:00:30Z");
    let missed: u64 = decisions
        .iter()
        .flat_map(|decision| &decision.entries)
        .filter(|entry| entry.outcome == Outcome::Missed)
        .map(|entry| entry.count)
        .sum();
    assert_eq!(missed, 365 * 24 * 60 - 1);
    assert_eq!(decisions.len(), 53);
    assert!(decisions.iter().all(|decision| decision.entries.len() <= 2));
    assert_eq!(rows(decisions.last().unwrap()).last().unwrap(), "00:00:00 started");
    assert_eq!((state.cursor, state.actions), (at("2026-01-01T00:00:00Z"), 1));
    assert!(
        decisions
            .iter()
            .all(|decision| decision.entries.iter().map(|entry| entry.count).sum::<u64>() <= u64::from(SLOTS_MAX))
    );
}

#[test]
fn c055_a_triggered_run_counts_as_the_running_one() {
    let schedule = minutely(Overlap::BufferOne);
    let triggered =
        schedule.trigger(&made("2026-01-01T11:59:30Z"), &trigger("now", None), &when("2026-01-01T11:59:30Z", 0));
    assert_eq!(rows(&triggered), ["trigger 11:59:30 started"]);
    // It takes 150 s: the slots of 12:00 and 12:01 do not start beside it.
    let noon = schedule.decide(&triggered.state, &when(NOON, 1));
    assert_eq!(rows(&noon), ["12:00:00 buffered"]);
    let next = schedule.decide(&noon.state, &when("2026-01-01T12:01:00Z", 1));
    assert_eq!(rows(&next), ["12:01:00 overlap"]);
    // A slot that is due in the same moment meets it, too.
    let together = schedule.trigger(&made("2026-01-01T11:59:30Z"), &trigger("now", None), &when(NOON, 0));
    assert_eq!(rows(&together), ["trigger 12:00:00 started", "12:00:00 buffered"]);
}

#[test]
fn c055_a_trigger_heeds_the_overlap_policy_or_its_own() {
    let state = made(NOON);
    let now = "2026-01-01T12:00:30Z";
    let row = |overlap, own| rows(&minutely(overlap).trigger(&state, &trigger("a", own), &when(now, 1)));
    assert_eq!(row(Overlap::Skip, None), ["trigger 12:00:30 overlap"]);
    assert_eq!(row(Overlap::BufferOne, None), ["trigger 12:00:30 buffered"]);
    assert_eq!(row(Overlap::Skip, Some(Overlap::Allow)), ["trigger 12:00:30 started"]);
    let ending =
        minutely(Overlap::Skip).trigger(&state, &trigger("a", Some(Overlap::TerminatePrevious)), &when(now, 1));
    assert_eq!(ending.ending, Some(Ending::Terminate));
}

#[test]
fn a_pause_holds_slots_and_its_end_does_not_start_what_it_passed_over() {
    let schedule = minutely(Overlap::BufferOne);
    let mut state = schedule.decide(&made("2026-01-01T11:59:30Z"), &when(NOON, 1)).state;
    state.pause(PauseReason::Asked { note: Arc::from("maintenance") }, at("2026-01-01T12:00:30Z"));
    let paused = schedule.decide(&state, &when("2026-01-01T12:05:00Z", 0));
    assert_eq!((rows(&paused), wake(&paused)), (vec![], "never".to_owned()), "not even the slot that waits");
    let triggered =
        schedule.trigger(&paused.state, &trigger("t", Some(Overlap::Allow)), &when("2026-01-01T12:05:00Z", 0));
    assert_eq!(rows(&triggered), ["trigger 12:05:00 started"], "a person may");
    state = paused.state;
    state.resume(at("2026-01-01T12:05:30Z"));
    let resumed = schedule.decide(&state, &when("2026-01-01T12:06:00Z", 0));
    assert_eq!(rows(&resumed), ["12:00:00 started", "12:01:00-12:05:00 5 paused", "12:06:00 buffered"]);
}

#[test]
fn nobody_is_asked_to_end_for_a_slot_that_a_pause_holds() {
    let schedule = minutely(Overlap::CancelPrevious);
    let mut state = schedule.decide(&made("2026-01-01T11:59:30Z"), &when(NOON, 1)).state;
    state.pause(PauseReason::Asked { note: Arc::from("") }, at("2026-01-01T12:00:10Z"));
    let paused = schedule.decide(&state, &when("2026-01-01T12:00:20Z", 1));
    assert_eq!((paused.ending, paused.state.waiting.is_some()), (None, true));
    state = paused.state;
    state.resume(at("2026-01-01T12:00:30Z"));
    assert_eq!(schedule.decide(&state, &when("2026-01-01T12:00:30Z", 1)).ending, Some(Ending::Cancel));
}

#[test]
fn a_slot_that_a_pause_holds_is_in_nobodys_way() {
    let now = when("2026-01-01T12:00:20Z", 0);
    for overlap in [Overlap::Skip, Overlap::BufferOne, Overlap::CancelPrevious] {
        let schedule = minutely(Overlap::BufferOne);
        let mut state = schedule.decide(&made("2026-01-01T11:59:30Z"), &when(NOON, 1)).state;
        state.pause(PauseReason::Asked { note: Arc::from("") }, at("2026-01-01T12:00:10Z"));
        let triggered = schedule.trigger(&state, &trigger("t", Some(overlap)), &now);
        assert_eq!(rows(&triggered), ["trigger 12:00:20 started"], "{overlap:?}");
        assert_eq!(triggered.state.waiting, state.waiting, "{overlap:?}");
        let span = (at("2026-01-01T11:00:00Z"), at("2026-01-01T11:00:00Z"));
        let backfilled = schedule.backfill(&state, &Arc::from("b"), span, 1, &now).unwrap();
        assert_eq!(rows(&backfilled), ["backfill 11:00:00 started"]);
        assert_eq!(backfilled.state.waiting, state.waiting);
    }
}

#[test]
fn a_failed_run_pauses_the_schedule_that_asks_for_it() {
    let mut schedule = minutely(Overlap::Skip);
    let mut state = made(NOON);
    schedule.run_ended(&mut state, Some("step `charge` failed"), at(NOON));
    assert_eq!(state.pause, None);
    schedule.policies.pause_on_failure = true;
    schedule.run_ended(&mut state, None, at(NOON));
    assert_eq!(state.pause, None);
    schedule.run_ended(&mut state, Some("step `charge` failed"), at(NOON));
    let pause = state.pause.clone().unwrap();
    assert_eq!(
        (pause.since, pause.reason),
        (at(NOON), PauseReason::Failure { note: Arc::from("step `charge` failed") })
    );
    assert_eq!(rows(&schedule.decide(&state, &when("2026-01-01T12:09:00Z", 0))), [""; 0]);
}

#[test]
fn what_cannot_start_fails_and_holds_up_nothing() {
    let mut schedule = minutely(Overlap::Skip);
    let situation = Situation { now: at("2026-01-01T12:02:00Z"), open_runs: 0, obstacle: Some("the workflow is gone") };
    let decision = schedule.decide(&made("2026-01-01T11:59:30Z"), &situation);
    assert_eq!(rows(&decision), ["12:00:00-12:02:00 3 failed"]);
    assert_eq!(decision.state.actions, 0);
    schedule.policies.pause_on_failure = true;
    let paused = schedule.decide(&made("2026-01-01T11:59:30Z"), &situation);
    assert_eq!(rows(&paused), ["12:00:00 failed"]);
    assert!(paused.state.pause.is_some() && paused.wake.is_none());
}

#[test]
fn a_slot_that_waits_does_not_start_beyond_a_lowered_maximum() {
    let old = minutely(Overlap::CancelPrevious);
    let started = old.decide(&made("2026-01-01T11:59:30Z"), &when(NOON, 0)).state;
    let state = old.decide(&started, &when("2026-01-01T12:01:00Z", 1)).state;
    let mut new = old.clone();
    new.policies.max_actions = Some(1);
    let lowered = old.replace(&state, &new, &when("2026-01-01T12:01:10Z", 1));
    assert_eq!((rows(&lowered), lowered.ending), (vec!["12:01:00 replaced".to_owned()], None));
    let ended = new.decide(&lowered.state, &when("2026-01-01T12:01:20Z", 0));
    assert_eq!((rows(&ended), ended.state.actions), (vec![], 1));
}

#[test]
fn a_raised_maximum_starts_nothing_that_passed_while_as_many_had_started() {
    let mut old = minutely(Overlap::Allow);
    old.policies.max_actions = Some(1);
    let state = old.decide(&made("2026-01-01T11:59:30Z"), &when(NOON, 0)).state;
    let mut new = old.clone();
    new.policies.max_actions = Some(9);
    let raised = old.replace(&state, &new, &when("2026-01-01T12:30:30Z", 0));
    assert_eq!((rows(&raised), wake(&raised)), (vec![], "2026-01-01T12:31:00Z".to_owned()));
}

#[test]
fn as_many_slots_start_as_may_and_triggers_do_not_count() {
    let mut schedule = minutely(Overlap::Allow);
    schedule.policies.max_actions = Some(2);
    let triggered =
        schedule.trigger(&made("2026-01-01T11:59:30Z"), &trigger("t", None), &when("2026-01-01T11:59:40Z", 0));
    let decision = schedule.decide(&triggered.state, &when("2026-01-01T12:05:00Z", 0));
    assert_eq!(
        (rows(&decision), wake(&decision)),
        (vec!["12:00:00 started".to_owned(), "12:01:00 started".to_owned()], "never".to_owned())
    );
    assert!(schedule.is_used_up(&decision.state));
    schedule.policies.max_actions = Some(3);
    assert!(!schedule.is_used_up(&decision.state), "more may be allowed later");
}

#[test]
fn a_backfill_starts_its_slots_one_after_another() {
    let schedule = minutely(Overlap::Skip);
    let span = (at("2026-01-01T10:00:00Z"), at("2026-01-01T10:02:00Z"));
    let request: Arc<str> = Arc::from("b");
    let now = "2026-01-01T12:00:10Z";
    let first = schedule.backfill(&made(NOON), &request, span, 1, &when(now, 0)).unwrap();
    assert_eq!(rows(&first), ["backfill 10:00:00 started"]);
    assert_eq!(wake(&first), "2026-01-01T12:01:00Z", "the next is due when the run has ended");
    assert_eq!(rows(&schedule.decide(&first.state, &when(now, 1))), [""; 0]);
    let second = schedule.decide(&first.state, &when(now, 0));
    assert_eq!(rows(&second), ["backfill 10:01:00 started"]);
    // Its run is one of the schedule's: a regular slot meets it.
    let regular = schedule.decide(&second.state, &when("2026-01-01T12:01:00Z", 1));
    assert_eq!(rows(&regular), ["12:01:00 overlap"]);
    let third = schedule.decide(&regular.state, &when("2026-01-01T12:01:30Z", 0));
    assert_eq!(rows(&third), ["backfill 10:02:00 started"]);
    let done = schedule.decide(&third.state, &when("2026-01-01T12:01:40Z", 0));
    assert!(done.state.backfills.is_empty() && done.entries.is_empty());
}

#[test]
fn a_backfill_at_once_is_paced() {
    let schedule = minutely(Overlap::Skip);
    let span = (at("2026-01-01T10:00:00Z"), at("2026-01-01T11:00:00Z"));
    let now = "2026-01-01T12:00:10Z";
    let first = schedule.backfill(&made(NOON), &Arc::from("b"), span, 15, &when(now, 0)).unwrap();
    assert_eq!((first.entries.len(), wake(&first).as_str()), (10, "2026-01-01T12:00:11Z"));
    let second = schedule.decide(&first.state, &when("2026-01-01T12:00:11Z", 10));
    assert_eq!(second.entries.len(), 5, "fifteen at once");
}

#[test]
fn the_end_of_a_run_does_not_hurry_what_is_paced_and_the_pace_holds_up_no_slot_of_now() {
    let mut schedule = schedule(&every(1));
    schedule.policies.overlap = Overlap::Allow;
    let span = (at("2026-01-01T10:00:00Z"), at("2026-01-01T10:00:59Z"));
    let first = schedule.backfill(&made(NOON), &Arc::from("b"), span, 100, &when("2026-01-01T12:00:00.4Z", 0)).unwrap();
    assert_eq!((first.entries.len(), wake(&first).as_str()), (10, "2026-01-01T12:00:01Z"));
    // All ten have ended at once.
    let looked = schedule.decide(&first.state, &when("2026-01-01T12:00:00.6Z", 0));
    assert_eq!((rows(&looked), &looked.state), (vec![], &first.state));
    let regular = schedule.decide(&first.state, &when("2026-01-01T12:00:01Z", 0));
    assert_eq!(
        (rows(&regular), wake(&regular)),
        (vec!["12:00:01 started".to_owned()], "2026-01-01T12:00:01.4Z".to_owned())
    );
    let next = schedule.decide(&regular.state, &when("2026-01-01T12:00:01.4Z", 0));
    assert_eq!(next.entries.len(), 10);
    // A clock that was put back holds nothing up for long.
    let back = schedule.decide(&next.state, &when("2026-01-01T11:00:00Z", 0));
    assert_eq!(back.entries.len(), 10);

    let late = schedule.decide(&made(NOON), &when("2026-01-01T12:00:15.5Z", 0));
    assert_eq!(late.entries.len(), 10);
    let looked = schedule.decide(&late.state, &when("2026-01-01T12:00:16Z", 0));
    assert_eq!((rows(&looked), wake(&looked)), (vec![], "2026-01-01T12:00:16.5Z".to_owned()), "slots keep their order");
}

#[test]
fn a_backfill_that_makes_no_sense_is_refused() {
    let schedule = minutely(Overlap::Skip);
    let refused = |from: &str, to: &str, concurrency, state: &State| {
        schedule.backfill(state, &Arc::from("b"), (at(from), at(to)), concurrency, &when(NOON, 0)).unwrap_err()
    };
    let state = made(NOON);
    assert_eq!(refused("2026-01-01T10:00:01Z", "2026-01-01T10:00:59Z", 1, &state), BackfillError::Empty);
    assert_eq!(refused("2026-01-01T10:00:00Z", "2026-01-01T09:00:00Z", 1, &state), BackfillError::Empty);
    assert_eq!(refused("2025-01-01T10:00:00Z", "2026-01-01T09:00:00Z", 1, &state), BackfillError::TooLong);
    assert_eq!(refused("2025-01-01T10:00:00Z", "2026-01-02T09:00:00Z", 1, &state), BackfillError::Future);
    assert_eq!(refused("2026-01-01T10:00:00Z", "2026-01-01T10:01:00Z", 0, &state), BackfillError::Concurrency);
    assert_eq!(refused("2026-01-01T10:00:00Z", "2026-01-01T10:01:00Z", 101, &state), BackfillError::Concurrency);
    let backfill = |state: &State| {
        schedule
            .backfill(
                state,
                &Arc::from("b"),
                (at("2026-01-01T10:00:00Z"), at("2026-01-01T10:01:00Z")),
                1,
                &when(NOON, 1),
            )
            .map(|decision| decision.state)
    };
    let full = (0..10).fold(state, |state, _| backfill(&state).unwrap());
    assert_eq!(backfill(&full), Err(BackfillError::TooMany));
}

#[test]
fn jitter_delays_the_decision_and_stays_in_the_ledger() {
    let schedule = schedule(&Draft { jitter: Duration::from_secs(50), ..every(60) });
    let early = schedule.decide(&made("2026-01-01T11:59:30Z"), &when(NOON, 0));
    assert_eq!(rows(&early), [""; 0]);
    let due = schedule.due(at(NOON));
    assert!(due > at(NOON));
    assert_eq!(early.wake, Some(due));
    let decision = schedule.decide(&early.state, &Situation { now: due, open_runs: 0, obstacle: None });
    assert_eq!(rows(&decision), ["12:00:00 started"]);
    assert_eq!(decision.entries[0].due, due);
}

#[test]
fn policies_are_bounded() {
    let mut policies = Policies { catchup_window: Duration::from_secs(9), max_actions: Some(0), ..Policies::default() };
    let paths: Vec<String> = policies.faults().into_iter().map(|fault| fault.path).collect();
    assert_eq!(paths, ["catchup_window", "max_actions"]);
    policies = Policies { catchup_window: Duration::from_secs(10), max_actions: Some(1), ..policies };
    assert_eq!(policies.faults(), []);
    assert_eq!(Policies::default().faults(), []);
}
