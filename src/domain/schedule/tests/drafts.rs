//! What a draft may say: calendars, intervals, exclusions, zones and bounds, and how its faults are told.

use super::*;
use crate::domain::schedule::{DateRange, Exclusions, JITTER_MAX, LeftOut, SOURCES_MAX, Upcoming};

/// Path and code of each fault.
fn refused(draft: &Draft) -> Vec<(String, &'static str)> {
    faults(draft).into_iter().map(|fault| (fault.path, fault.code)).collect()
}

fn dates(first: &str, last: Option<&str>) -> DateRange {
    DateRange { first: first.to_owned(), last: last.map(str::to_owned) }
}

#[test]
fn c059_a_zone_that_does_not_exist_is_refused_with_one_that_does() {
    for (name, hint) in [
        ("America/New_Yrok", "did you mean `America/New_York`?"),
        ("europe/london", "did you mean `Europe/London`?"),
        ("Berlin", "did you mean `Europe/Berlin`?"),
        ("new york", "did you mean `America/New_York`?"),
        ("UTC+3", "`Etc/GMT-3`"),
        ("+02:00", "an offset is no zone"),
        ("GMT-5", "an offset is no zone"),
        ("PST", "`America/Los_Angeles`"),
        ("cest", "`Europe/Berlin`"),
        ("Mars/Olympus", "write an IANA name"),
        (" ", "no zone is assumed"),
        ("", "no zone is assumed"),
    ] {
        let faults = faults(&cron("0 9 * * *", name));
        assert_eq!(faults.len(), 1, "{name}: {faults:?}");
        assert_eq!(faults[0].path, "timezone", "{name}");
        assert!(faults[0].hint.contains(hint), "{name}: {}", faults[0].hint);
    }
    for name in ["UTC", "Etc/UTC", "Europe/London", "America/Argentina/Buenos_Aires", "Etc/GMT-3", "EST"] {
        assert!(Spec::check(&cron("0 9 * * *", name)).is_ok(), "{name}");
    }
}

#[test]
fn c059_only_what_no_zone_changes_may_go_without() {
    assert!(Spec::check(&every(60)).is_ok());
    let excluded = Exclusions { crons: vec!["* * 25 12 *".to_owned()], ..Exclusions::default() };
    assert_eq!(refused(&Draft { exclusions: excluded, ..every(60) }), [("timezone".to_owned(), "FIELD_REQUIRED")]);
    assert_eq!(
        refused(&Draft { timezone: "Nowhere".to_owned(), ..every(60) }),
        [("timezone".to_owned(), "TIMEZONE_INVALID")]
    );
}

#[test]
fn all_faults_of_a_draft_are_told_at_once() {
    let draft = Draft {
        crons: vec!["0 9 * * *".to_owned(), "61 9 * *".to_owned(), "61 9 * * *".to_owned()],
        intervals: vec![
            Interval { every: Duration::ZERO, offset: Duration::ZERO },
            Interval { every: Duration::from_secs(60), offset: Duration::from_secs(60) },
            Interval { every: Duration::from_millis(1_500), offset: Duration::ZERO },
        ],
        calendars: vec![
            Calendar { hours: one(24), days: vec![Range::one(1), Range::one(0)], ..Calendar::default() },
            Calendar { months: one(2), days: one(30), ..Calendar::default() },
            Calendar { months: vec![Range { first: 5, last: 3, step: 1 }], ..Calendar::default() },
            Calendar { years: one(1969), minutes: vec![Range { first: 0, last: 59, step: 0 }], ..Calendar::default() },
            Calendar { days: vec![Range { first: -1, last: 5, step: 1 }], ..Calendar::default() },
            Calendar { seconds: vec![Range { first: 0, last: 59, step: -1 }], ..Calendar::default() },
        ],
        exclusions: Exclusions {
            crons: vec!["x * * * *".to_owned()],
            calendars: vec![Calendar { weekdays: one(8), ..Calendar::default() }],
            dates: vec![
                dates("2026-02-29", Some("2026-13-01")),
                dates("2026-03-02", Some("2026-03-01")),
                dates("24.12.2026", None),
                dates("", Some("2101-01-01")),
                dates("2026-1-1", Some("")),
            ],
        },
        timezone: "Nowhere".to_owned(),
        start_time: Some(at("2027-01-01T00:00:00Z")),
        end_time: Some(at("2026-01-01T00:00:00Z")),
        jitter: JITTER_MAX + Duration::from_secs(1),
        ..Draft::default()
    };
    let expected = [
        ("crons[1]", "CRON_INVALID"),
        ("crons[2]", "CRON_INVALID"),
        ("calendars[0].hours[0]", "OUT_OF_RANGE"),
        ("calendars[0].days[1]", "OUT_OF_RANGE"),
        ("calendars[1]", "NEVER_FIRES"),
        ("calendars[2].months[0]", "OUT_OF_RANGE"),
        ("calendars[3].years[0]", "OUT_OF_RANGE"),
        ("calendars[3].minutes[0]", "OUT_OF_RANGE"),
        ("calendars[4].days[0]", "OUT_OF_RANGE"),
        ("calendars[5].seconds[0]", "OUT_OF_RANGE"),
        ("intervals[0].every", "OUT_OF_RANGE"),
        ("intervals[1].offset", "OUT_OF_RANGE"),
        ("intervals[2].every", "OUT_OF_RANGE"),
        ("exclusions.crons[0]", "CRON_INVALID"),
        ("exclusions.calendars[0].weekdays[0]", "OUT_OF_RANGE"),
        ("exclusions.dates[0].first_date", "DATE_INVALID"),
        ("exclusions.dates[0].last_date", "DATE_INVALID"),
        ("exclusions.dates[1]", "DATE_INVALID"),
        ("exclusions.dates[2].first_date", "DATE_INVALID"),
        ("exclusions.dates[3].first_date", "FIELD_REQUIRED"),
        ("exclusions.dates[3].last_date", "DATE_INVALID"),
        ("exclusions.dates[4].first_date", "DATE_INVALID"),
        ("exclusions.dates[4].last_date", "FIELD_REQUIRED"),
        ("timezone", "TIMEZONE_INVALID"),
        ("end_time", "NEVER_FIRES"),
        ("jitter", "OUT_OF_RANGE"),
    ];
    assert_eq!(refused(&draft), expected.map(|(path, code)| (path.to_owned(), code)));
    assert_eq!(refused(&Draft::default()), [("crons".to_owned(), "FIELD_REQUIRED")]);
    let many = Draft { crons: vec!["0 9 * * *".to_owned(); SOURCES_MAX + 1], ..cron("", "UTC") };
    assert_eq!(refused(&many), [("crons".to_owned(), "TOO_MANY")]);
}

#[test]
fn intervals_count_from_1970_and_their_offset() {
    let interval = |every, offset| {
        let interval = Interval { every: Duration::from_secs(every), offset: Duration::from_secs(offset) };
        spec(&Draft { intervals: vec![interval], ..Draft::default() })
    };
    let after = "2026-01-01T00:00:00Z";
    assert_eq!(slots(&interval(3_600, 0), after, 2), ["2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"]);
    assert_eq!(slots(&interval(3_600, 300), after, 2), ["2026-01-01T00:05:00Z", "2026-01-01T01:05:00Z"]);
    // 1970 began on a Thursday.
    assert_eq!(slots(&interval(7 * 86_400, 0), after, 2), ["2026-01-08T00:00:00Z", "2026-01-15T00:00:00Z"]);
    assert_eq!(slots(&interval(1, 0), "2026-01-01T00:00:00.25Z", 2), ["2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"]);
}

#[test]
fn calendars_match_in_every_part() {
    let calendar =
        |calendar: Calendar| spec(&Draft { calendars: vec![calendar], timezone: "UTC".to_owned(), ..Draft::default() });
    // Friday the 13th.
    let friday = calendar(Calendar { weekdays: one(5), days: one(13), ..daily(9, 30) });
    let expected = ["2026-02-13T09:30:00Z", "2026-03-13T09:30:00Z", "2026-11-13T09:30:00Z"];
    assert_eq!(slots(&friday, "2026-01-01T00:00:00Z", 3), expected);
    let once = calendar(Calendar { years: one(2028), months: one(2), days: one(29), seconds: one(7), ..daily(12, 0) });
    assert_eq!(slots(&once, "2026-01-01T00:00:00Z", 2), ["2028-02-29T12:00:07Z"]);
    let third_last =
        calendar(Calendar { months: vec![Range { first: 1, last: 12, step: 6 }], days: one(-3), ..daily(0, 0) });
    assert_eq!(slots(&third_last, "2026-01-01T00:00:00Z", 2), ["2026-01-29T00:00:00Z", "2026-07-29T00:00:00Z"]);
    // The last Sunday of a month.
    let last = Calendar { weekdays: one(7), days: vec![Range { first: -7, last: -1, step: 1 }], ..Calendar::default() };
    assert_eq!(slots(&calendar(last), "2026-02-01T12:00:00Z", 2), ["2026-02-22T00:00:00Z", "2026-03-29T00:00:00Z"]);
}

#[test]
fn several_sources_are_one_set_of_slots() {
    let draft = Draft {
        crons: vec!["0 9 * * *".to_owned(), "0 9,12 * * *".to_owned()],
        calendars: vec![daily(9, 0)],
        intervals: vec![Interval { every: Duration::from_secs(6 * 3_600), offset: Duration::ZERO }],
        timezone: "UTC".to_owned(),
        ..Draft::default()
    };
    let expected = ["T06:00", "T09:00", "T12:00", "T18:00"].map(|time| format!("2026-01-01{time}:00Z"));
    assert_eq!(slots(&spec(&draft), "2026-01-01T00:00:00Z", 4), expected);
}

#[test]
fn the_start_and_the_end_belong_to_the_schedule() {
    let draft = Draft {
        start_time: Some(at("2026-06-01T09:00:00Z")),
        end_time: Some(at("2026-06-03T09:00:00Z")),
        ..cron("0 9 * * *", "UTC")
    };
    let spec = spec(&draft);
    let expected = ["2026-06-01T09:00:00Z", "2026-06-02T09:00:00Z", "2026-06-03T09:00:00Z"];
    assert_eq!(slots(&spec, "2026-01-01T00:00:00Z", 9), expected);
    assert_eq!(spec.upcoming(at("2026-06-03T09:00:00Z")), Upcoming::Never);
    assert!(spec.fires_after(at("2026-06-03T08:59:59Z")).is_ok());
    let fault = spec.fires_after(at("2026-06-03T09:00:00Z")).unwrap_err();
    assert_eq!((fault.path.as_str(), fault.code), ("end_time", "NEVER_FIRES"));
    // Within a second nothing is lost.
    let late = super::spec(&Draft { start_time: Some(at("2026-06-01T09:00:00.5Z")), ..draft });
    assert_eq!(slots(&late, "2026-01-01T00:00:00Z", 1), ["2026-06-02T09:00:00Z"]);
}

#[test]
fn exclusions_leave_out_days_times_and_spans_of_dates() {
    let exclusions = Exclusions {
        crons: vec!["* 0-5 * * *".to_owned()],
        calendars: vec![Calendar { weekdays: one(0), ..Calendar::default() }],
        dates: vec![dates("2026-12-24", Some("2026-12-26"))],
    };
    let draft = Draft { exclusions, ..cron("30 4-6 * * *", "Europe/Berlin") };
    let expected = ["2026-12-22T05:30:00Z", "2026-12-23T05:30:00Z", "2026-12-28T05:30:00Z"];
    assert_eq!(slots(&spec(&draft), "2026-12-21T12:00:00Z", 3), expected);
    let preview = schedule(&draft).preview(at("2026-12-23T12:00:00Z"), 1);
    let reasons: Vec<_> = preview
        .times
        .iter()
        .map(|line| match &line.left_out {
            Some(LeftOut::Excluded(path)) => path.as_str(),
            Some(LeftOut::Missing(_) | LeftOut::Repeated) => "?",
            None => "",
        })
        .collect();
    let (cron, calendar, dates) = ("exclusions.crons[0]", "exclusions.calendars[0]", "exclusions.dates[0]");
    // Nine times within the dates, three of the Sunday, two of the Monday before 6 o'clock.
    let expected = [cron, cron, dates, cron, cron, dates, cron, cron, dates, cron, cron, calendar, cron, cron, ""];
    assert_eq!(reasons, expected);
}

#[test]
fn an_exclusion_without_seconds_leaves_out_the_whole_minute() {
    let excluded = |cron: &str| Exclusions { crons: vec![cron.to_owned()], ..Exclusions::default() };
    let base = Draft { cron_seconds: true, ..cron("*/20 * * * * *", "UTC") };
    let minute = spec(&Draft { exclusions: excluded("1 * * * *"), ..base.clone() });
    assert_eq!(slots(&minute, "2026-01-01T00:00:30Z", 2), ["2026-01-01T00:00:40Z", "2026-01-01T00:02:00Z"]);
    let second = spec(&Draft { exclusions: excluded("0 1 * * * *"), ..base });
    assert_eq!(slots(&second, "2026-01-01T00:00:40Z", 1), ["2026-01-01T00:01:20Z"]);
}

#[test]
fn an_exclusion_of_a_repeated_hour_leaves_out_what_it_says_in_both_passes() {
    let exclusions = Exclusions { crons: vec!["30-59 1 * * *".to_owned()], ..Exclusions::default() };
    let draft = Draft { exclusions, ..cron("*/15 1 1 11 *", "America/New_York") };
    let expected = ["05:00", "05:15", "06:00", "06:15"].map(|time| format!("2026-11-01T{time}:00Z"));
    assert_eq!(slots(&spec(&draft), "2026-01-01T00:00:00Z", 4), expected);
}

#[test]
fn a_search_ends_however_much_is_excluded() {
    let everything = Exclusions { crons: vec!["*/5 * * * *".to_owned()], ..Exclusions::default() };
    let none = spec(&Draft { exclusions: everything.clone(), ..cron("*/5 * * * *", "Europe/Paris") });
    assert_eq!(none.upcoming(at("2026-01-01T00:00:00Z")), Upcoming::Never);
    assert_eq!(none.fires_after(at("2026-01-01T00:00:00Z")).unwrap_err().code, "NEVER_FIRES");
    // Only together do these leave out all, so nobody sees it at once: the search says how far it came.
    let halves = ["*/10 * * * *", "5/10 * * * *"].map(str::to_owned).to_vec();
    let together = spec(&Draft {
        exclusions: Exclusions { crons: halves, ..Exclusions::default() },
        ..cron("*/5 * * * *", "Europe/Paris")
    });
    let Upcoming::NotBefore(reached) = together.upcoming(at("2026-01-01T00:00:00Z")) else { panic!("too early") };
    assert!(reached > at("2026-03-01T00:00:00Z"), "{}", utc(reached));
    assert_eq!(together.next(at("2026-01-01T00:00:00Z")), None);
    // Eight hours of seconds, and a year of them, are passed over at once.
    let nights = Draft {
        cron_seconds: true,
        exclusions: Exclusions { crons: vec!["* 0-7 * * *".to_owned()], ..Exclusions::default() },
        ..cron("* * * * * *", "UTC")
    };
    assert_eq!(slots(&spec(&nights), "2026-01-01T00:00:00Z", 1), ["2026-01-01T08:00:00Z"]);
    let year = Calendar { years: one(2026), ..Calendar::default() };
    let years = Exclusions { calendars: vec![year], ..Exclusions::default() };
    assert_eq!(
        slots(&spec(&Draft { exclusions: years, ..nights }), "2026-01-01T00:00:00Z", 1),
        ["2027-01-01T00:00:00Z"]
    );
}

#[test]
fn jitter_moves_the_start_within_its_bounds_and_never_the_slot() {
    let jittery = schedule(&Draft { jitter: Duration::from_secs(600), ..cron("0 * * * *", "UTC") });
    let slots: Vec<Timestamp> =
        std::iter::successors(jittery.spec.next(at("2026-01-01T00:00:00Z")), |slot| jittery.spec.next(*slot))
            .take(500)
            .collect();
    assert!(slots.iter().all(|slot| slot.as_micros() % 3_600_000_000 == 0));
    let delays: Vec<u64> = slots.iter().map(|slot| jittery.due(*slot).since(*slot).as_secs()).collect();
    assert!(delays.iter().all(|delay| *delay < 600));
    for tenth in 0..10 {
        let count = delays.iter().filter(|delay| **delay / 60 == tenth).count();
        assert!((20..=90).contains(&count), "{count} of 500 in minute {tenth}");
    }
    // Written down once: what is stored refers to it, so no library or machine may change it.
    assert_eq!(utc(jittery.due(slots[0])), "2026-01-01T01:01:44.269908Z");
    let other = Schedule { uid: ScheduleUid(Uuid::from_u128(8)), ..jittery.clone() };
    assert_ne!(other.due(slots[0]), jittery.due(slots[0]));
    // It never reaches the next slot.
    let crowded = schedule(&Draft { jitter: Duration::from_secs(3_600), ..cron("* * * * *", "UTC") });
    for slot in slots.iter().take(100) {
        assert!(crowded.due(*slot).since(*slot) < Duration::from_secs(60));
    }
}

#[test]
fn a_preview_is_bounded_and_says_what_it_does_not_tell() {
    // How many times are told, how many more are left out, and where the look stopped.
    let look = |draft: &Draft, slots_max| {
        let outlook = schedule(draft).preview(at("2026-01-01T00:00:00Z"), slots_max);
        (outlook.times.len(), outlook.unlisted, outlook.stopped.map(utc))
    };
    let minutely = cron("* * * * *", "UTC");
    assert_eq!(look(&minutely, usize::MAX), (1_000, 0, None));
    let ends = Draft { end_time: Some(at("2026-01-01T00:02:00Z")), ..minutely.clone() };
    assert_eq!(look(&ends, 10), (2, 0, None));
    let without = |excluded: &str| Draft {
        exclusions: Exclusions { crons: vec![excluded.to_owned()], ..Exclusions::default() },
        ..minutely.clone()
    };
    // January 1st has 1,440 minutes.
    assert_eq!(look(&without("* * 1 1 *"), 10), (1_010, 439, None));
    assert_eq!(look(&without("* * * 1 *"), 10), (1_000, 19_000, Some("2026-01-14T21:20:00Z".to_owned())));
    let ends = Draft { end_time: Some(at("2026-01-14T21:20:00Z")), ..without("* * * * *") };
    assert_eq!(look(&ends, 10), (1_000, 19_000, None), "there is nothing after it");
    // A hundred crons that say the same make a hundred searches for each time: the look stops after 2,000 of them.
    let alike = Draft { crons: vec!["* * * * *".to_owned(); SOURCES_MAX], ..without("* * * * *") };
    assert_eq!(look(&alike, 10), (1_000, 1_000, Some("2026-01-02T09:20:00Z".to_owned())));
    // Those that name other times are searched for once each.
    let each = Draft { crons: (0..60).map(|minute| format!("{minute} * * * *")).collect(), ..minutely };
    assert_eq!(look(&each, 1_000), (1_000, 0, None));
}

#[test]
fn the_day_after_an_exclusion_is_found_a_month_at_a_time() {
    let last = |crons: &str| {
        let exclusions = Exclusions { crons: vec![crons.to_owned()], ..Exclusions::default() };
        spec(&Draft { exclusions, ..cron("0 0 * * *", "UTC") }).next(at("2026-01-10T12:00:00Z")).map(utc)
    };
    assert_eq!(last("* * * * *"), None);
    assert_eq!(last("* * * 1-11 *").as_deref(), Some("2026-12-01T00:00:00Z"));
    assert_eq!(last("* * 1-30 * *").as_deref(), Some("2026-01-31T00:00:00Z"));
    assert_eq!(last("* * 1-20,22-31 2 *").as_deref(), Some("2026-01-11T00:00:00Z"));
    assert_eq!(last("* * 11-31 1 *").as_deref(), Some("2026-02-01T00:00:00Z"));
    assert_eq!(last("* * * * 1-6,0").as_deref(), None);
}
