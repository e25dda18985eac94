//! Cron expressions: what they mean, and how faults are told.

use super::*;

/// The days of 2026 on which an expression fires, as MM-DD, at most twelve.
fn days(expression: &str) -> Vec<String> {
    let spec = spec(&cron(expression, "UTC"));
    between(&spec, "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z")
        .into_iter()
        .map(|slot| slot[5..10].to_owned())
        .take(12)
        .collect()
}

fn check(expression: &str, after: &str, expected: &[&str]) {
    assert_eq!(slots(&spec(&cron(expression, "UTC")), after, expected.len()), expected, "{expression}");
}

/// Column, message and hint of each fault.
fn faults_of(expression: &str) -> Vec<(u32, String, String)> {
    faults(&cron(expression, "UTC"))
        .into_iter()
        .map(|fault| {
            assert_eq!((fault.path.as_str(), fault.line), ("crons[0]", 0), "{expression}");
            (fault.column, fault.message, fault.hint)
        })
        .collect()
}

#[test]
fn fields_take_numbers_lists_ranges_steps_and_names() {
    let after = "2026-01-01T00:00:00Z";
    check("30 9 * * *", after, &["2026-01-01T09:30:00Z", "2026-01-02T09:30:00Z"]);
    check("0,30 9-10 * * *", after, &["2026-01-01T09:00:00Z", "2026-01-01T09:30:00Z", "2026-01-01T10:00:00Z"]);
    check("*/20 12 * * *", after, &["2026-01-01T12:00:00Z", "2026-01-01T12:20:00Z", "2026-01-01T12:40:00Z"]);
    check("10-30/10 0 * * *", after, &["2026-01-01T00:10:00Z", "2026-01-01T00:20:00Z", "2026-01-01T00:30:00Z"]);
    check("50/5 0 * * *", after, &["2026-01-01T00:50:00Z", "2026-01-01T00:55:00Z", "2026-01-02T00:50:00Z"]);
    check("0 0 1 feb,Apr-MAY *", after, &["2026-02-01T00:00:00Z", "2026-04-01T00:00:00Z", "2026-05-01T00:00:00Z"]);
    check("  0\t12  * * * ", after, &["2026-01-01T12:00:00Z"]);
}

#[test]
fn words_stand_for_expressions() {
    let after = "2026-03-31T23:59:00Z";
    check("@hourly", after, &["2026-04-01T00:00:00Z", "2026-04-01T01:00:00Z"]);
    check("@daily", after, &["2026-04-01T00:00:00Z", "2026-04-02T00:00:00Z"]);
    check("@midnight", after, &["2026-04-01T00:00:00Z", "2026-04-02T00:00:00Z"]);
    check("@weekly", after, &["2026-04-05T00:00:00Z", "2026-04-12T00:00:00Z"]);
    check("@monthly", after, &["2026-04-01T00:00:00Z", "2026-05-01T00:00:00Z"]);
    check("@yearly", after, &["2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"]);
    check("@ANNUALLY", after, &["2027-01-01T00:00:00Z"]);
}

#[test]
fn c061_day_of_month_or_weekday_is_enough_where_both_are_restricted() {
    // The first of the month and every Monday.
    assert_eq!(days("0 9 1 * 1")[..6], ["01-01", "01-05", "01-12", "01-19", "01-26", "02-01"]);
    // A field that begins with a star is not restricted, as in Vixie cron: both must match.
    assert_eq!(days("0 9 */2 * 1")[..4], ["01-05", "01-19", "02-09", "02-23"]);
    assert_eq!(days("0 9 1-7 * *")[5..8], ["01-06", "01-07", "02-01"]);
    assert_eq!(days("0 9 * * 1")[..2], ["01-05", "01-12"]);
}

#[test]
fn c061_the_31st_fires_in_seven_months_and_is_not_moved() {
    assert_eq!(days("0 0 31 * *"), ["01-31", "03-31", "05-31", "07-31", "08-31", "10-31", "12-31"]);
    assert!(faults_of("0 0 L * *")[0].2.contains("day -1 of a calendar"));
}

#[test]
fn leap_days_and_month_ends_are_right_in_every_century() {
    let leap = spec(&cron("0 0 29 2 *", "UTC"));
    let all = between(&leap, "1970-01-01T00:00:00Z", "2101-01-01T00:00:00Z");
    assert_eq!(all.len(), 33 - 1, "every fourth year from 1972 to 2096, but not 2100");
    assert!(all.contains(&"2000-02-29T00:00:00Z".to_owned()) && !all.contains(&"2100-02-29T00:00:00Z".to_owned()));
    let end = Calendar { days: one(-1), ..Calendar::default() };
    let last = spec(&Draft { calendars: vec![end], timezone: "UTC".to_owned(), ..Draft::default() });
    let expected = ["2096-01-31", "2096-02-29", "2096-03-31", "2096-04-30"].map(|day| format!("{day}T00:00:00Z"));
    assert_eq!(slots(&last, "2096-01-01T00:00:00Z", 4), expected);
}

#[test]
fn c063_weekdays_are_numbered_as_posix_does() {
    // 2026-01-04 is a Sunday.
    for sunday in ["0 16 * * 0", "0 16 * * 7", "0 16 * * SUN", "0 16 * * sun", "0 16 * * 0,7"] {
        assert_eq!(days(sunday)[..3], ["01-04", "01-11", "01-18"], "{sunday}");
    }
    for workdays in ["0 9 * * 1-5", "0 9 * * MON-FRI", "0 9 * * mon,TUE,3,Thu-5"] {
        assert_eq!(days(workdays)[..7], ["01-01", "01-02", "01-05", "01-06", "01-07", "01-08", "01-09"], "{workdays}");
    }
    for weekend in ["0 9 * * 5-7", "0 9 * * FRI-SUN", "0 9 * * 5-0"] {
        assert_eq!(days(weekend)[..4], ["01-02", "01-03", "01-04", "01-09"], "{weekend}");
    }
    // Sunday, Tuesday, Thursday, Saturday.
    assert_eq!(days("0 9 * * */2")[..5], ["01-01", "01-03", "01-04", "01-06", "01-08"]);
    assert_eq!(days("0 9 * * 0-7")[..3], ["01-01", "01-02", "01-03"]);
    assert_eq!(days("0 9 * * 1/2")[..4], ["01-02", "01-05", "01-07", "01-09"]);
}

#[test]
fn seconds_need_an_option() {
    let expression = "*/20 0 12 * * *";
    let fault = &faults_of(expression)[0];
    assert_eq!((fault.0, fault.1.as_str()), (15, "it has 6 fields, not 5"));
    assert!(fault.2.contains("six_field_crons"), "{}", fault.2);
    let spec = spec(&Draft { cron_seconds: true, ..cron(expression, "UTC") });
    let expected = ["2026-01-01T12:00:00Z", "2026-01-01T12:00:20Z", "2026-01-01T12:00:40Z", "2026-01-02T12:00:00Z"];
    assert_eq!(slots(&spec, "2026-01-01T00:00:00Z", 4), expected);
    // Five fields mean the same with the option.
    let five = super::spec(&Draft { cron_seconds: true, ..cron("0 12 * * *", "UTC") });
    assert_eq!(slots(&five, "2026-01-01T00:00:00Z", 1), ["2026-01-01T12:00:00Z"]);
}

#[test]
fn a_fault_says_where_it_is_and_what_to_do() {
    for (expression, column, message, hint) in [
        ("", 1, "it has 0 fields, not 5", "such as `30 9 * * 1-5`"),
        ("0 9 * *", 8, "it has 4 fields, not 5", "minute, hour"),
        ("0 0 9 * * * 2027", 11, "it has 7 fields, not 5", "years are in calendars only"),
        ("60 9 * * *", 1, "60 is no minute; it is 0 to 59", "write 0 to 59"),
        ("0 24 * * *", 3, "24 is no hour", ""),
        ("0 9 0 * *", 5, "0 is no day of month; it is 1 to 31", ""),
        ("0 9 * 13 *", 7, "13 is no month", "JAN, FEB, MAR"),
        ("0 9 * * 8", 9, "8 is no weekday; it is 0 to 7", "SUN, MON, TUE"),
        ("0 9 * * 1-5,MOON", 13, "`MOON` is no weekday", "SUN, MON"),
        ("0 9 ? * 1", 5, "`?` is no day of month", "write `*`"),
        ("0 9 15W * *", 5, "`15W` is no day of month", "POSIX has no"),
        ("0 9 * * 5#2", 9, "`5#2` is no weekday", "POSIX has no"),
        ("0 9 * * 5L", 9, "`5L` is no weekday", "POSIX has no"),
        ("H 9 * * *", 1, "`H` is no minute", "jitter"),
        ("*/0 * * * *", 3, "`0` is no step", "`*/15`"),
        ("*/90 * * * *", 3, "`90` is no step of a minute; it is 1 to 59", "use an interval"),
        ("0 22-2 * * *", 3, "the range 22-2 runs backwards", "write `22-23,0-2`"),
        ("0 9 * * SAT-MON", 9, "the range SAT-MON runs backwards", "write `SAT-SAT,SUN-MON`"),
        ("0 9 * * 7-1", 9, "the range 7-1 runs backwards", "write `0-1`"),
        ("1,,2 * * * *", 3, "a number is missing", ""),
        ("1- * * * *", 3, "a number is missing", ""),
        ("-5 * * * *", 1, "a number is missing", ""),
        ("4294967297 * * * *", 1, "4294967297 is no minute", ""),
        ("é * * * é", 1, "`é` is no minute", ""),
        ("0 0 30 2 *", 5, "it never fires", "29th of February"),
        ("0 0 31 4,6,9,11 *", 5, "it never fires", ""),
        ("@reboot", 1, "`@reboot` is none of the words", "trigger"),
        ("@every 5m", 1, "`@every` is none of the words", "use an interval"),
        ("@fortnightly", 1, "`@fortnightly` is none of the words", "@weekly"),
        ("@daily 5", 8, "nothing comes after `@daily`", ""),
        ("TZ=UTC 0 9 * * *", 1, "`TZ=` is no part of an expression", "`timezone`"),
        ("CRON_TZ=UTC 0 9 * * *", 1, "`CRON_TZ=` is no part of an expression", "`timezone`"),
    ] {
        let faults = faults_of(expression);
        let (at, what, todo) = &faults[0];
        assert_eq!(*at, column, "{expression}: {faults:?}");
        assert!(what.contains(message), "{expression}: {what}");
        assert!(todo.contains(hint), "{expression}: {todo}");
    }
    let long = "0,".repeat(600);
    assert_eq!(faults(&cron(&long, "UTC"))[0].code, "TEXT_TOO_LONG");
}

#[test]
fn all_faults_are_told_at_once() {
    let columns: Vec<u32> = faults_of("60,x 25 0 13-1 8/9").into_iter().map(|fault| fault.0).collect();
    assert_eq!(columns, [1, 4, 6, 9, 11, 16, 18]);
}
