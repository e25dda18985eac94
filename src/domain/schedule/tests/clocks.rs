//! What changes of the clocks do to slots: tables for zones with each kind of change.

use super::*;
use crate::domain::schedule::{LeftOut, Missing, Repeated};

/// Slots of a cron over a span, as the local times that the zone's clocks show.
fn local(draft: &Draft, from: &str, to: &str) -> Vec<String> {
    let spec = spec(draft);
    between(&spec, from, to).into_iter().map(|slot| spec.local(at(&slot))).collect()
}

/// One day, or some, of a zone: what each expression does there by default.
fn check(zone: &str, from: &str, to: &str, table: &[(&str, &[&str])]) {
    for (expression, expected) in table {
        assert_eq!(local(&cron(expression, zone), from, to), *expected, "{expression} in {zone}");
    }
}

#[test]
fn c051_a_daily_job_fires_once_when_clocks_are_put_back() {
    let spec = spec(&cron("30 1 * * *", "America/New_York"));
    let expected = ["2026-10-31T05:30:00Z", "2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"];
    assert_eq!(slots(&spec, "2026-10-31T00:00:00Z", 3), expected);
    // A restart between the two instants that show 01:30 adds none.
    for after in ["2026-11-01T05:30:00Z", "2026-11-01T05:59:59Z", "2026-11-01T06:00:00Z", "2026-11-01T06:29:59Z"] {
        assert_eq!(slots(&spec, after, 1), ["2026-11-02T06:30:00Z"], "{after}");
    }
}

#[test]
fn c053_the_slot_after_an_instant_is_later_throughout_a_repeated_hour() {
    for (zone, from) in [
        ("America/New_York", "2026-11-01T04:00:00Z"),
        ("Australia/Lord_Howe", "2026-04-04T14:00:00Z"),
        ("Africa/Casablanca", "2026-02-15T01:00:00Z"),
    ] {
        for expression in ["* * * * *", "*/7 * * * *", "30 1 * * *", "15,45 1-2 * * *"] {
            for repeated in [None, Some(Repeated::First), Some(Repeated::Last), Some(Repeated::Both)] {
                let spec = spec(&Draft { repeated, ..cron(expression, zone) });
                for second in (0..4 * 3_600).step_by(29) {
                    let after = at(from) + Duration::from_secs(second);
                    let next = spec.next(after).unwrap();
                    assert!(next > after, "{expression} in {zone}: {} after {}", utc(next), utc(after));
                    let again = spec.next(next - Duration::from_micros(1));
                    assert_eq!(again, Some(next), "{expression} in {zone} just before {}", utc(next));
                }
            }
        }
    }
}

#[test]
fn c057_what_follows_the_clock_round_keeps_its_pace_when_clocks_are_put_back() {
    let quarter = spec(&cron("*/15 * * * *", "America/Los_Angeles"));
    let all = between(&quarter, "2026-11-01T07:00:00Z", "2026-11-01T12:00:00Z");
    assert_eq!(all.len(), 20, "{all:?}");
    let hourly = spec(&cron("0 * * * *", "America/Los_Angeles"));
    let expected = ["2026-11-01T08:00:00Z", "2026-11-01T09:00:00Z", "2026-11-01T10:00:00Z", "2026-11-01T11:00:00Z"];
    assert_eq!(slots(&hourly, "2026-11-01T07:00:00Z", 4), expected);
    let secondly = spec(&Draft { cron_seconds: true, ..cron("* * * * * *", "America/Los_Angeles") });
    assert_eq!(between(&secondly, "2026-11-01T08:59:00Z", "2026-11-01T09:01:00Z").len(), 120);
    // And when they are put forward.
    assert_eq!(between(&quarter, "2026-03-08T09:00:00Z", "2026-03-08T12:00:00Z").len(), 12);
}

#[test]
fn new_york() {
    let (from, to) = ("2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z");
    check(
        "America/New_York",
        from,
        to,
        &[
            ("30 1 * * *", &["2026-03-08T01:30:00-05:00"]),
            ("30 2 * * *", &["2026-03-08T03:00:00-04:00"]),
            ("15,45 2 * * *", &["2026-03-08T03:00:00-04:00"]),
            ("0 3 * * *", &["2026-03-08T03:00:00-04:00"]),
            ("0 2,3 * * *", &["2026-03-08T03:00:00-04:00"]),
            ("0 1-4 * * *", &["2026-03-08T01:00:00-05:00", "2026-03-08T03:00:00-04:00", "2026-03-08T04:00:00-04:00"]),
            ("*/30 2 * * *", &[]),
        ],
    );
    let (from, to) = ("2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z");
    check(
        "America/New_York",
        from,
        to,
        &[
            ("30 1 * * *", &["2026-11-01T01:30:00-04:00"]),
            ("0 2 * * *", &["2026-11-01T02:00:00-05:00"]),
            (
                "0,30 0-2 * * *",
                &[
                    "2026-11-01T00:00:00-04:00",
                    "2026-11-01T00:30:00-04:00",
                    "2026-11-01T01:00:00-04:00",
                    "2026-11-01T01:30:00-04:00",
                    "2026-11-01T02:00:00-05:00",
                    "2026-11-01T02:30:00-05:00",
                ],
            ),
            (
                "*/30 1 * * *",
                &[
                    "2026-11-01T01:00:00-04:00",
                    "2026-11-01T01:30:00-04:00",
                    "2026-11-01T01:00:00-05:00",
                    "2026-11-01T01:30:00-05:00",
                ],
            ),
        ],
    );
}

#[test]
fn each_policy_means_what_it_says() {
    let check = |missing, repeated, expression: &str, from, to, expected: &[&str]| {
        let draft = Draft { missing, repeated, ..cron(expression, "America/New_York") };
        assert_eq!(local(&draft, from, to), expected, "{expression} {missing:?} {repeated:?}");
    };
    let (from, to) = ("2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z");
    check(Some(Missing::Skip), None, "30 2 * * *", from, to, &[]);
    check(Some(Missing::Shift), None, "30 2 * * *", from, to, &["2026-03-08T03:00:00-04:00"]);
    check(Some(Missing::Shift), None, "*/20 2 * * *", from, to, &["2026-03-08T03:00:00-04:00"]);
    let (from, to) = ("2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z");
    let (first, last) = ("2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00");
    check(None, Some(Repeated::First), "30 1 * * *", from, to, &[first]);
    check(None, Some(Repeated::Last), "30 1 * * *", from, to, &[last]);
    check(None, Some(Repeated::Both), "30 1 * * *", from, to, &[first, last]);
    check(
        None,
        Some(Repeated::First),
        "30 */1 * * *",
        "2026-11-01T04:00:00Z",
        "2026-11-01T08:00:00Z",
        &["2026-11-01T00:30:00-04:00", first, "2026-11-01T02:30:00-05:00"],
    );
    check(
        None,
        Some(Repeated::Last),
        "30 */1 * * *",
        "2026-11-01T04:00:00Z",
        "2026-11-01T08:00:00Z",
        &["2026-11-01T00:30:00-04:00", last, "2026-11-01T02:30:00-05:00"],
    );
}

#[test]
fn london() {
    check(
        "Europe/London",
        "2026-03-29T00:00:00Z",
        "2026-03-29T23:00:00Z",
        &[("30 1 * * *", &["2026-03-29T02:00:00+01:00"]), ("59 0 * * *", &["2026-03-29T00:59:00+00:00"])],
    );
    check(
        "Europe/London",
        "2026-10-24T23:00:00Z",
        "2026-10-26T00:00:00Z",
        &[
            ("30 1 * * *", &["2026-10-25T01:30:00+01:00"]),
            (
                "0 0-3 * * *",
                &[
                    "2026-10-25T00:00:00+01:00",
                    "2026-10-25T01:00:00+01:00",
                    "2026-10-25T02:00:00+00:00",
                    "2026-10-25T03:00:00+00:00",
                ],
            ),
        ],
    );
    // The year of British Standard Time, UTC+1 all winter.
    check(
        "Europe/London",
        "1970-12-31T00:00:00Z",
        "1971-01-01T00:00:00Z",
        &[("0 9 * * *", &["1970-12-31T09:00:00+01:00"])],
    );
}

#[test]
fn lord_howe_moves_by_half_an_hour() {
    check(
        "Australia/Lord_Howe",
        "2026-10-03T13:30:00Z",
        "2026-10-04T13:00:00Z",
        &[
            ("15 2 * * *", &["2026-10-04T02:30:00+11:00"]),
            ("0 2 * * *", &["2026-10-04T02:30:00+11:00"]),
            ("30 2 * * *", &["2026-10-04T02:30:00+11:00"]),
            ("0 1-3 * * *", &["2026-10-04T01:00:00+10:30", "2026-10-04T02:30:00+11:00", "2026-10-04T03:00:00+11:00"]),
        ],
    );
    check(
        "Australia/Lord_Howe",
        "2026-04-04T13:00:00Z",
        "2026-04-05T13:30:00Z",
        &[
            ("45 1 * * *", &["2026-04-05T01:45:00+11:00"]),
            ("15 1 * * *", &["2026-04-05T01:15:00+11:00"]),
            (
                "*/15 1 * * *",
                &[
                    "2026-04-05T01:00:00+11:00",
                    "2026-04-05T01:15:00+11:00",
                    "2026-04-05T01:30:00+11:00",
                    "2026-04-05T01:45:00+11:00",
                    "2026-04-05T01:30:00+10:30",
                    "2026-04-05T01:45:00+10:30",
                ],
            ),
        ],
    );
}

#[test]
fn casablanca_is_back_for_ramadan() {
    check(
        "Africa/Casablanca",
        "2026-02-14T23:00:00Z",
        "2026-02-16T00:00:00Z",
        &[("30 2 * * *", &["2026-02-15T02:30:00+01:00"]), ("0 4 * * *", &["2026-02-15T04:00:00+00:00"])],
    );
    check(
        "Africa/Casablanca",
        "2026-03-22T00:00:00Z",
        "2026-03-22T23:00:00Z",
        &[("30 2 * * *", &["2026-03-22T03:00:00+01:00"])],
    );
}

#[test]
fn tehran_stopped_changing_its_clocks() {
    check(
        "Asia/Tehran",
        "2022-03-21T20:30:00Z",
        "2022-03-22T19:30:00Z",
        &[("30 0 * * *", &["2022-03-22T01:00:00+04:30"])],
    );
    check(
        "Asia/Tehran",
        "2022-09-20T19:30:00Z",
        "2022-09-21T20:30:00Z",
        &[("30 23 * * *", &["2022-09-21T23:30:00+04:30"])],
    );
    check(
        "Asia/Tehran",
        "2023-03-21T20:30:00Z",
        "2023-03-22T20:30:00Z",
        &[("30 0 * * *", &["2023-03-22T00:30:00+03:30"])],
    );
}

#[test]
fn apia_went_without_the_30th_of_december_2011() {
    check(
        "Pacific/Apia",
        "2011-12-29T10:00:00Z",
        "2012-01-01T10:00:00Z",
        &[
            (
                "0 9 * * *",
                &[
                    "2011-12-29T09:00:00-10:00",
                    "2011-12-31T00:00:00+14:00",
                    "2011-12-31T09:00:00+14:00",
                    "2012-01-01T09:00:00+14:00",
                ],
            ),
            ("0 17 * * 5", &["2011-12-31T00:00:00+14:00"]),
            (
                "0 */12 * * *",
                &[
                    "2011-12-29T00:00:00-10:00",
                    "2011-12-29T12:00:00-10:00",
                    "2011-12-31T00:00:00+14:00",
                    "2011-12-31T12:00:00+14:00",
                    "2012-01-01T00:00:00+14:00",
                    "2012-01-01T12:00:00+14:00",
                ],
            ),
        ],
    );
    let skipping = Draft { missing: Some(Missing::Skip), ..cron("0 17 * * 5", "Pacific/Apia") };
    assert_eq!(local(&skipping, "2011-12-29T10:00:00Z", "2012-01-01T10:00:00Z"), [""; 0]);
}

#[test]
fn years_1970_to_2100_have_their_clocks_and_none_beyond_fires() {
    check(
        "America/New_York",
        "2100-03-14T05:00:00Z",
        "2100-03-15T04:00:00Z",
        &[("30 2 * * *", &["2100-03-14T03:00:00-04:00"])],
    );
    check(
        "America/New_York",
        "2100-07-01T04:00:00Z",
        "2100-07-02T04:00:00Z",
        &[("0 12 * * *", &["2100-07-01T12:00:00-04:00"])],
    );
    check(
        "Australia/Sydney",
        "2100-12-30T13:00:00Z",
        "2101-02-01T00:00:00Z",
        &[("0 12 * * *", &["2100-12-31T12:00:00+11:00"])],
    );
    assert_eq!(spec(&cron("* * * * *", "UTC")).next(at("2100-12-31T23:59:00Z")), None);
    assert_eq!(spec(&every(60)).next(at("2100-12-31T23:59:00Z")), None);
    assert_eq!(spec(&every(60)).next(at("9999-12-31T23:59:00Z")), None);
    check("UTC", "1970-01-01T00:00:00Z", "1970-01-01T01:00:00Z", &[("0 0 * * *", &["1970-01-01T00:00:00+00:00"])]);
}

#[test]
fn a_preview_tells_what_the_clocks_leave_out() {
    let gap = schedule(&Draft { missing: Some(Missing::Skip), ..cron("30 2 * * *", "America/New_York") });
    let preview = gap.preview(at("2026-03-07T12:00:00Z"), 1).times;
    assert_eq!(preview.len(), 2);
    assert_eq!(preview[0].left_out, Some(LeftOut::Missing("2026-03-08T02:30:00".to_owned())));
    assert_eq!(preview[0].local, "2026-03-08T03:00:00-04:00");
    assert_eq!((preview[1].local.as_str(), &preview[1].left_out), ("2026-03-09T02:30:00-04:00", &None));
    let fold = schedule(&cron("30 1 * * *", "America/New_York"));
    let preview = fold.preview(at("2026-11-01T00:00:00Z"), 2).times;
    let lines: Vec<_> = preview.iter().map(|line| (line.local.as_str(), line.left_out.clone())).collect();
    assert_eq!(
        lines,
        [
            ("2026-11-01T01:30:00-04:00", None),
            ("2026-11-01T01:30:00-05:00", Some(LeftOut::Repeated)),
            ("2026-11-02T01:30:00-05:00", None),
        ]
    );
}

#[test]
fn the_table_of_the_documentation_is_right() {
    let page = include_str!("../../../../docs/schedules.md");
    let mut count = 0;
    for line in page.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [zone, day, _, cron, fires] = cells[..] else { continue };
        let Some(cron) = cron.strip_prefix('`').and_then(|cron| cron.strip_suffix('`')) else { continue };
        let spec = spec(&super::cron(cron, zone));
        let noon = at(&format!("{day}T12:00:00Z"));
        let around = Duration::from_secs(48 * 3_600);
        let slots = std::iter::successors(spec.next(noon - around), |slot| spec.next(*slot));
        let times = slots.take_while(|slot| *slot < noon + around).filter_map(|slot| {
            // Without the seconds.
            let local = spec.local(slot);
            let time = local.strip_prefix(day)?;
            Some(format!("{}{}", &time[1..6], &time[9..]))
        });
        let times: Vec<String> = times.collect();
        let expected = if times.is_empty() { "–".to_owned() } else { times.join(", ") };
        assert_eq!(fires, expected, "{line}");
        count += 1;
    }
    assert!(count > 20, "{count} lines");
}
