//! `orbit schedule`: what it prints, and how it ends.

use crate::harness::{Server, until};

const DAILY: &str =
    "name: daily\nversion: 1.0.0\ninput: {type: object, required: [day]}\nsteps: [{id: nap, sleep: {for: 1h}}]\n";
const INPUT: &str = "{\"day\": \"${ schedule.nominal_time }\"}";

fn create<'a>(id: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["schedule", "create", id, "--workflow", "daily", "--input", INPUT], more].concat()
}

#[test]
fn a_schedule_is_made_shown_changed_and_deleted() {
    let server = Server::with(&[DAILY]);
    let made = server.orbit(&create("nightly", &["--cron", "30 1 * * *", "--timezone", "Europe/London", "-o", "json"]));
    assert_eq!(made.code, 0, "{}", made.stderr);
    let made = made.stdout_json();
    assert_eq!((&made["state"], &made["spec"]["crons"][0]), (&"STATE_ACTIVE".into(), &"30 1 * * *".into()));
    let shown = server.orbit(&["schedule", "get", "nightly"]);
    for part in ["nightly", "ACTIVE", "30 1 * * *", "Europe/London", "daily", "0 started"] {
        assert!(shown.stdout.contains(part), "{part} is not in\n{}", shown.stdout);
    }
    let taken = server.orbit(&create("nightly", &["--cron", "@daily"]));
    assert_eq!(taken.code, 4, "{}", taken.stderr);
    assert!(taken.stderr.contains("SCHEDULE_ALREADY_EXISTS"), "{}", taken.stderr);

    let changed =
        server.orbit(&["schedule", "update", "nightly", "--interval", "1h+5m", "--overlap", "allow", "-o", "json"]);
    let changed = changed.stdout_json();
    assert_eq!(changed["spec"]["intervals"][0]["every"], "3600s");
    assert_eq!((&changed["spec"]["crons"][0], &changed["start"]["workflow"]), (&"30 1 * * *".into(), &"daily".into()));
    assert_eq!(changed["policies"]["overlap"], "OVERLAP_ALLOW");
    let nothing = server.orbit(&["schedule", "update", "nightly"]);
    assert_eq!(nothing.code, 2, "{}", nothing.stderr);

    // Each kind of exclusions and each label alone.
    let update = |more: &[&str]| {
        let updated = server.orbit(&[&["schedule", "update", "nightly", "-o", "json"], more].concat());
        assert_eq!(updated.code, 0, "{}", updated.stderr);
        updated.stdout_json()
    };
    update(&["--exclude-date", "2026-12-24", "--exclude-cron", "* 2 * * *", "--label", "team=shop", "--label", "a=b"]);
    let kept = update(&[
        "--six-field-crons",
        "false",
        "--exclude-date",
        "2026-12-25..2026-12-26",
        "--label",
        "c=d",
        "--remove-label",
        "a",
    ]);
    assert_eq!(kept["spec"]["exclusions"]["crons"][0], "* 2 * * *", "{kept}");
    assert_eq!(kept["spec"]["exclusions"]["dates"].as_array().unwrap().len(), 1, "{kept}");
    assert_eq!(kept["start"]["labels"].to_string(), r#"{"c":"d","team":"shop"}"#);
    let shown = server.orbit(&["schedule", "get", "nightly"]).stdout;
    for part in ["2026-12-25..2026-12-26, * 2 * * *", "c=d team=shop", "every 3600s+300s", "schedule.nominal_time"] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }

    let paused = server.orbit(&["schedule", "pause", "nightly", "--note", "moving", "-o", "json"]).stdout_json();
    assert_eq!((&paused["state"], &paused["pauseNote"]), (&"STATE_PAUSED".into(), &"moving".into()));
    let listed = server.orbit(&["schedule", "list", "--state", "paused"]);
    assert!(listed.stdout.contains("nightly") && listed.stdout.contains("moving"), "{}", listed.stdout);
    let resumed = server.orbit(&["schedule", "resume", "nightly", "-o", "json"]).stdout_json();
    assert_eq!(resumed["state"], "STATE_ACTIVE");
    let deleted = server.orbit(&["schedule", "delete", "nightly"]);
    assert_eq!((deleted.code, &*deleted.stdout), (0, ""), "{}", deleted.stderr);
    assert_eq!(server.orbit(&["schedule", "delete", "nightly"]).code, 3);
    assert_eq!(server.orbit(&["schedule", "delete", "nightly", "--allow-missing"]).code, 0);
    assert!(server.orbit(&["schedule", "list"]).stderr.contains("no schedules"));
}

#[test]
fn a_trigger_prints_the_execution_and_the_history_has_it() {
    let server = Server::with(&[DAILY]);
    assert_eq!(server.orbit(&create("nightly", &["--cron", "@yearly"])).code, 0);
    let triggered = server.orbit(&["schedule", "trigger", "nightly"]);
    let id = triggered.stdout.trim().to_owned();
    assert!(triggered.code == 0 && id.starts_with('~'), "{}", triggered.stderr);
    assert_eq!(server.orbit(&["get", &id, "-o", "json"]).stdout_json()["labels"]["orbit.schedule"], "nightly");
    let skipped = server.orbit(&["schedule", "trigger", "nightly"]);
    assert_eq!(skipped.code, 4, "{}", skipped.stderr);
    assert!(skipped.stderr.contains("skipped"), "{}", skipped.stderr);
    let beside = server.orbit(&["schedule", "trigger", "nightly", "--overlap", "allow"]);
    assert_eq!(beside.code, 0, "{}", beside.stderr);
    let history = server.orbit(&["schedule", "history", "nightly", "-o", "json"]).stdout_json();
    let outcomes: Vec<_> = history.as_array().unwrap().iter().map(|slot| slot["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["OUTCOME_STARTED", "OUTCOME_OVERLAPPED", "OUTCOME_STARTED"]);
    let table = server.orbit(&["schedule", "history", "nightly", "--outcome", "started"]).stdout;
    assert!(table.contains(&id) && table.contains("trigger"), "{table}");
}

#[test]
fn a_backfill_starts_what_was_before() {
    let server = Server::with(&["name: quick\nversion: 1.0.0\nsteps: [{id: a, compute: 1}]\n"]);
    let made = server.orbit(&["schedule", "create", "s", "--workflow", "quick", "--cron", "@daily"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let span = ["--from", "2024-01-01T00:00:00Z", "--to", "2024-01-03T00:00:00Z"];
    let backfilled = server.orbit(&[&["schedule", "backfill", "s"][..], &span].concat());
    assert_eq!(backfilled.code, 0, "{}", backfilled.stderr);
    let started = || {
        let history = server.orbit(&["schedule", "history", "s", "--outcome", "started", "-o", "json"]).stdout_json();
        history.as_array().unwrap().len()
    };
    until("three days are done again", || started() == 3);
}

#[test]
fn the_next_slots_are_told_with_what_is_left_out() {
    let server = Server::start();
    let next = server.orbit(&[
        "schedule",
        "next",
        "--cron",
        "30 1 * * *",
        "--timezone",
        "America/New_York",
        "--exclude-date",
        "2026-11-02",
        "--after",
        "2026-10-31T12:00:00Z",
        "-n",
        "2",
    ]);
    assert_eq!(next.code, 0, "{}", next.stderr);
    for part in ["2026-11-01T01:30:00-04:00", "2026-11-03T01:30:00-05:00", "excluded by", "twice"] {
        assert!(next.stdout.contains(part), "{part} is not in\n{}", next.stdout);
    }
    assert_eq!(server.orbit(&["schedule", "next"]).code, 2);
    let bad = server.orbit(&["schedule", "next", "--cron", "61 * * * *"]);
    assert_eq!(bad.code, 1);
    assert!(bad.stderr.contains("spec.crons[0]: column 1: CRON_INVALID: "), "{}", bad.stderr);
    let seconds =
        ["schedule", "next", "--cron", "30 0 9 * * *", "--six-field-crons", "--after", "2026-01-01T00:00:00Z"];
    let seconds = server.orbit(&[&seconds[..], &["-n", "1"]].concat());
    assert!(seconds.stdout.contains("2026-01-01T09:00:30+00:00"), "{}{}", seconds.stdout, seconds.stderr);
    let never = ["--cron", "* * * * *", "--exclude-cron", "* * * * *", "--after", "2026-01-01T00:00:00Z"];
    let cut = server.orbit(&[&["schedule", "next", "-o", "json"][..], &never].concat());
    assert_eq!(cut.stdout_json().as_array().unwrap().len(), 1_000);
    for part in ["19000 more times are left out", "--after 2026-01-14T21:20:00Z goes on"] {
        assert!(cut.stderr.contains(part), "{part} is not in\n{}", cut.stderr);
    }
}
