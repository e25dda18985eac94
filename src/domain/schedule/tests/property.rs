//! What holds for any schedule: checked with random ones, the slots against a search that tries every second.

use super::*;
use crate::domain::schedule::{Missing, Outcome, Overlap, Repeated, Upcoming, civil::Civil, zone::Zone};
use proptest::prelude::*;
use std::collections::BTreeSet;

const ZONES: [&str; 8] = [
    "UTC",
    "America/New_York",
    "Europe/London",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Asia/Tehran",
    "Pacific/Apia",
    "America/Sao_Paulo",
];

/// Instants near changes of some of the clocks, in seconds.
const CHANGES: [i64; 8] = [
    1_772_953_200, // New York, 2026-03-08
    1_793_512_800, // New York, 2026-11-01
    1_774_746_000, // London, 2026-03-29
    1_775_314_800, // Lord Howe, 2026-04-04
    1_771_120_800, // Casablanca, 2026-02-15
    1_663_788_600, // Tehran, 2022-09-21
    1_325_239_200, // Apia, 2011-12-30
    1_541_300_400, // Sao Paulo, 2018-11-04, at midnight
];

fn field(first: u32, last: u32) -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("*".to_owned()),
        3 => (first..=last).prop_map(|number| number.to_string()),
        2 => (first..=last, first..=last).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        1 => (1..=(last - first)).prop_map(|step| format!("*/{step}")),
        1 => (first..=last, first..=last).prop_map(|(a, b)| format!("{a},{b}")),
    ]
}

fn expressions() -> impl Strategy<Value = String> {
    (field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 7))
        .prop_map(|(minute, hour, day, month, weekday)| format!("{minute} {hour} {day} {month} {weekday}"))
}

fn drafts() -> impl Strategy<Value = Draft> {
    let missing = prop_oneof![Just(None), Just(Some(Missing::Skip)), Just(Some(Missing::Shift))];
    let repeated =
        prop_oneof![Just(None), Just(Some(Repeated::First)), Just(Some(Repeated::Last)), Just(Some(Repeated::Both))];
    let excluded = proptest::collection::vec(expressions(), 0..2);
    (proptest::collection::vec(expressions(), 1..3), 0..ZONES.len(), missing, repeated, excluded).prop_map(
        |(crons, zone, missing, repeated, excluded)| Draft {
            crons,
            timezone: ZONES[zone].to_owned(),
            missing,
            repeated,
            exclusions: crate::domain::schedule::Exclusions { crons: excluded, ..Default::default() },
            ..Draft::default()
        },
    )
}

/// Whether a cron matches a local time, by its text.
fn matches(expression: &str, local: Civil) -> bool {
    let text = local.to_string();
    let number = |from: usize, to: usize| text[from..to].parse::<u32>().unwrap();
    let weekday = super::super::civil::weekday(local.day());
    let fields: Vec<&str> = expression.split(' ').collect();
    let has = |index: usize, number: u32, first: u32, last: u32| {
        fields[index].split(',').any(|item| {
            let (range, step) = item.split_once('/').map_or((item, 1), |(range, step)| (range, step.parse().unwrap()));
            let (from, to) = match range.split_once('-') {
                _ if range == "*" => (first, last),
                Some((from, to)) => (from.parse().unwrap(), to.parse().unwrap()),
                None => (range.parse().unwrap(), range.parse().unwrap()),
            };
            (from..=to).contains(&number) && (number - from).is_multiple_of(step)
        })
    };
    let day = has(2, number(8, 10), 1, 31);
    let on_weekday = has(4, weekday, 0, 6) || (weekday == 0 && !fields[4].starts_with('*') && has(4, 7, 0, 6));
    let day_matches =
        if fields[2].starts_with('*') || fields[4].starts_with('*') { day && on_weekday } else { day || on_weekday };
    text.ends_with(":00")
        && has(0, number(14, 16), 0, 59)
        && has(1, number(11, 13), 0, 23)
        && has(3, number(5, 7), 1, 12)
        && day_matches
}

/// The slots of a span, by trying every minute of it and of every gap.
fn by_trying(draft: &Draft, from: i64, to: i64) -> BTreeSet<i64> {
    let zone = Zone::find(&draft.timezone).unwrap();
    let mut slots = BTreeSet::new();
    for expression in &draft.crons {
        let follows = expression.split(' ').take(2).any(|field| field.starts_with('*'));
        let missing = draft.missing.unwrap_or(if follows { Missing::Skip } else { Missing::Shift });
        let repeated = draft.repeated.unwrap_or(if follows { Repeated::Both } else { Repeated::First });
        let shows = |at: i64| zone.local(at);
        for at in (from..to).step_by(60) {
            let local = shows(at);
            let around = |range: std::ops::Range<i64>| range.step_by(60).any(|other| shows(other) == local);
            let fires = || match repeated {
                Repeated::Both => true,
                Repeated::First => !around(at - 7_200..at),
                Repeated::Last => !around(at + 60..at + 7_260),
            };
            if matches(expression, local) && fires() {
                slots.insert(at);
            }
            let before = shows(at - 1).0 + 1;
            if missing == Missing::Shift
                && (before..local.0).step_by(60).any(|left_out| matches(expression, Civil(left_out)))
            {
                slots.insert(at);
            }
        }
    }
    slots.retain(|at| !draft.exclusions.crons.iter().any(|cron| matches(cron, zone.local(*at))));
    slots
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn c053_slots_are_those_that_trying_every_minute_finds(
        draft in drafts(), change in 0..CHANGES.len(), offset in -90_000_i64..90_000,
    ) {
        let from = (CHANGES[change] + offset).div_euclid(60) * 60;
        let to = from + 60_000;
        let Ok(spec) = Spec::check(&draft) else { return Ok(()) };
        let mut found = BTreeSet::new();
        let mut after = Timestamp::from_micros(from * 1_000_000 - 1);
        while let Some(slot) = spec.next(after) {
            prop_assert!(slot > after);
            if slot.as_micros() >= to * 1_000_000 {
                break;
            }
            found.insert(slot.as_micros() / 1_000_000);
            after = slot;
        }
        prop_assert_eq!(found, by_trying(&draft, from, to));
    }

    #[test]
    fn c053_the_next_slot_is_later_and_the_same_from_anywhere_before_it(
        draft in drafts(), after in 0_i64..4_133_000_000, fraction in 0.0..1.0_f64,
    ) {
        let Ok(spec) = Spec::check(&draft) else { return Ok(()) };
        let after = Timestamp::from_micros(after * 1_000_000 + 1);
        if let Upcoming::At(slot) = spec.upcoming(after) {
            prop_assert!(slot > after);
            let between = after + slot.since(after).mul_f64(fraction);
            if between < slot {
                prop_assert_eq!(spec.next(between), Some(slot));
            }
        }
    }

    #[test]
    fn no_text_makes_a_panic(text in "[-*/,0-9A-Za-z@#? ]{0,24}", zone in "[A-Za-z/+ 0-9]{0,12}") {
        let _ = Spec::check(&Draft { cron_seconds: true, ..cron(&text, &zone) });
    }

    #[test]
    fn each_slot_is_decided_exactly_once_whatever_happens(
        seconds in 1_u64..100, jitter in 0_u64..200, window in 10_u64..500, overlap in 0..5_usize,
        moments in proptest::collection::vec((0_u64..2_000, 0_u32..3, 0..6_u8), 1..60),
    ) {
        let overlaps = [Overlap::Skip, Overlap::Allow, Overlap::BufferOne, Overlap::CancelPrevious, Overlap::TerminatePrevious];
        let mut schedule = schedule(&Draft { jitter: Duration::from_secs(jitter), ..every(seconds) });
        schedule.policies.overlap = overlaps[overlap];
        schedule.policies.catchup_window = Duration::from_secs(window);
        let start = at("2026-01-01T00:00:00Z");
        let (mut now, mut newest) = (start, start);
        let mut state = State::new(now);
        let mut executions = BTreeSet::new();
        let mut decided = 0_u64;
        for (step, open_runs, action) in moments {
            // The clock goes on, and sometimes back.
            now = if action == 5 { now - Duration::from_secs(step / 4) } else { now + Duration::from_secs(step) };
            newest = newest.max(now);
            match action {
                3 => state.pause(crate::domain::schedule::PauseReason::Asked { note: "".into() }, now),
                4 => state.resume(now),
                _ => {}
            }
            let situation = Situation { now, open_runs, obstacle: None };
            let waited = state.waiting.is_some();
            let decision = schedule.decide(&state, &situation);
            prop_assert!(decision.state.cursor >= state.cursor);
            prop_assert_eq!(&schedule.decide(&state, &situation), &decision, "a decision follows from its arguments");
            for entry in &decision.entries {
                match &entry.outcome {
                    Outcome::Started { execution } => {
                        prop_assert!(entry.due <= newest, "nothing starts early");
                        prop_assert!(executions.insert(execution.clone()), "nothing starts twice");
                    }
                    Outcome::Buffered | Outcome::Skipped(_) | Outcome::Missed | Outcome::Failed { .. } => {}
                }
                // A slot that waited had its row before.
                let is_new = !(waited && state.waiting.as_ref().is_some_and(|waiting| waiting.slot == entry.slot));
                decided += if is_new { entry.count } else { 0 };
            }
            state = decision.state;
            let epoch = Timestamp::default();
            let until_cursor = state.cursor.since(epoch).as_secs() / seconds - start.since(epoch).as_secs() / seconds;
            prop_assert_eq!(decided, until_cursor, "each slot up to the cursor has one row");
            if overlaps[overlap] != Overlap::Allow && open_runs > 0 {
                let starts = decision.entries.iter().filter(|entry| matches!(entry.outcome, Outcome::Started { .. }));
                prop_assert_eq!(starts.count(), 0, "nothing starts beside an open run");
            }
        }
    }
}
