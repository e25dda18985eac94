//! The real program, run as its users run it: what it prints, where, and how it ends.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may panic, and it waits by the real clock")]

#[path = "cli/batch.rs"]
mod batch;
#[path = "cli/harness.rs"]
mod harness;
#[path = "cli/migrate.rs"]
mod migrate;
#[path = "cli/postgres.rs"]
mod on_postgres;
#[path = "support/postgres.rs"]
mod postgres;
#[path = "cli/repair.rs"]
mod repair;
#[path = "cli/schedule.rs"]
mod schedule;
#[path = "cli/secrets.rs"]
mod secrets;
#[path = "cli/tls.rs"]
mod tls;

use harness::{Dir, Server, orbit, text};
use std::{fs, process::Stdio};

const COMPUTE: &str =
    "name: compute\nversion: 1.0.0\nsteps: [{id: same, compute: \"${ input }\"}]\nresult: ${ steps.same.output }\n";
const FAILING: &str =
    "name: failing\nversion: 1.0.0\nsteps: [{id: broken, fail: {code: OUT_OF_STOCK, message: nothing left}}]\n";
const SLEEPING: &str = "name: sleeping\nversion: 1.0.0\nsteps: [{id: nap, sleep: {for: 1h}}]\n";
const HASTY: &str = "name: hasty\nversion: 1.0.0\ntimeout: 50ms\nsteps: [{id: nap, sleep: {for: 1h}}]\n";
const WAITING: &str = "name: waiting\nversion: 1.0.0\nsignals: {go: {}}\nsteps: [{id: hold, await: {signal: go}}]\nresult: ${ steps.hold.output }\n";
const FIVE_FAULTS: &str = "\
name: faulty
version: one
steps:
  - id: first
    task: not a contract
    retry: {jitter: 2}
  - id: second
    needs: [third]
    sleep: {for: soon}
";

#[test]
fn lists_of_nothing_are_empty_arrays() {
    let server = Server::start();
    for arguments in [&["list", "-o", "json"][..], &["worker", "list", "-o", "json"]] {
        let done = server.orbit(arguments);
        assert_eq!((done.code, &*done.stdout), (0, "[]\n"), "{arguments:?}: {}", done.stderr);
    }
}

#[test]
fn what_is_not_there_ends_with_3_and_a_hint() {
    let server = Server::start();
    let done = server.orbit(&["get", "nope"]);
    assert_eq!((done.code, &*done.stdout), (3, ""));
    assert!(done.stderr.starts_with("error: ") && done.stderr.contains("(EXECUTION_NOT_FOUND)"), "{}", done.stderr);
    assert!(done.stderr.contains("\nhint: "), "{}", done.stderr);
    assert_eq!(server.orbit(&["start", "nope"]).code, 3);

    let error = server.orbit(&["get", "nope", "-o", "json"]).stderr_json();
    assert_eq!(error["error"]["code"], 404);
    assert_eq!(error["error"]["status"], "NOT_FOUND");
    assert_eq!(error["error"]["details"][0]["reason"], "EXECUTION_NOT_FOUND");
}

#[test]
fn a_good_end_is_0_and_its_output() {
    let server = Server::with(&[COMPUTE]);
    // Beyond 2^53: no digit may be lost on the way through.
    let done = server.orbit(&["start", "compute", "--id", "a", "--input", "{\"n\": 9007199254740993}", "--wait"]);
    assert_eq!((done.code, &*done.stdout), (0, "{\n  \"n\": 9007199254740993\n}\n"), "{}", done.stderr);

    let execution = server.orbit(&["get", "a", "-o", "json"]).stdout_json();
    assert_eq!(execution["state"], "STATE_SUCCEEDED");
    assert_eq!(execution["steps"][0]["step"], "same");
    let events = server.orbit(&["history", "a", "-o", "json"]).stdout_json();
    assert_eq!(events[0]["number"], "1");
    let followed = server.orbit(&["history", "a", "--follow", "-o", "json"]);
    assert_eq!((followed.code, followed.stdout.lines().count()), (0, events.as_array().unwrap().len()));
}

#[test]
fn bad_ends_have_codes_of_their_own() {
    let server = Server::with(&[FAILING, HASTY, SLEEPING]);
    let failed = server.orbit(&["start", "failing", "--id", "f", "--wait"]);
    assert_eq!((failed.code, &*failed.stdout), (10, ""));
    assert!(failed.stderr.contains("OUT_OF_STOCK: nothing left"), "{}", failed.stderr);
    let failed = server.orbit(&["start", "failing", "--id", "f", "--wait", "-o", "json"]);
    assert_eq!(failed.code, 10);
    assert_eq!(failed.stdout_json()["failure"]["code"], "OUT_OF_STOCK");

    assert_eq!(server.orbit(&["start", "hasty", "--wait"]).code, 12);

    for (verb, id) in [("cancel", "c"), ("terminate", "t")] {
        let started = server.orbit(&["start", "sleeping", "--id", id]);
        assert_eq!((started.code, started.stdout), (0, format!("{id}\n")), "{}", started.stderr);
        let done = server.orbit(&[verb, id, "--reason", "changed my mind"]);
        assert_eq!(done.code, 0, "{}", done.stderr);
        let waited = server.orbit(&["get", id, "--wait"]);
        assert_eq!(waited.code, 11, "{}", waited.stderr);
        assert!(waited.stderr.contains("changed my mind"), "{}", waited.stderr);
        assert_eq!(server.orbit(&["terminate", id]).code, 4);
    }
}

#[test]
fn conflicts_end_with_4() {
    let server = Server::with(&[SLEEPING]);
    assert_eq!(server.orbit(&["start", "sleeping", "--id", "a"]).code, 0);
    assert_eq!(server.orbit(&["start", "sleeping", "--id", "a"]).code, 0);
    let other = server.orbit(&["start", "sleeping", "--id", "a", "--input", "1"]);
    assert_eq!(other.code, 4);
    assert!(other.stderr.contains("(EXECUTION_ALREADY_EXISTS)"), "{}", other.stderr);

    let file = server.dir.file("sleeping.yaml", &SLEEPING.replace("1h", "2h"));
    let deployed = server.orbit(&["deploy", &file]);
    assert_eq!(deployed.code, 4);
    assert!(deployed.stderr.contains("(DEFINITION_ALREADY_EXISTS)"), "{}", deployed.stderr);
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    for arguments in [
        &["list", "--limit", "0"][..],
        &["start"],
        &["start", "a", "--input", "{a}"],
        &["start", "a", "--input", "@/does/not/exist"],
        &["start", "a", "--timeout", "5m"],
        &["start", "a", "--wait", "--timeout", "soon"],
        &["get", "a", "--server", "nowhere"],
        &["nonsense"],
        &["server", "--session-timeout", "1ms"],
        &["server", "--db", "mysql://localhost/orbit"],
        &["server", "--db", "postgres://localhost/orbit?nonsense=1"],
        &["server", "--db", "postgres://localhost/orbit?sslmode=verify-full&sslrootcert=/does/not/exist"],
        &["server", "--db-committers", "0"],
        &["bench", "--nodes", "2"],
        &["bench", "--idle", "5s"],
        &["bench", "--sleepers", "5", "--server", "127.0.0.1:1"],
        &["bench", "--sleepers", "5", "--steps", "2"],
        &["bench", "--rate", "5", "--concurrency", "5"],
        &["migrate"],
        &["server", "--listen", "0.0.0.0:0"],
    ] {
        let done = orbit(arguments).done();
        assert_eq!((done.code, &*done.stdout), (2, ""), "{arguments:?}: {}", done.stderr);
    }
}

#[test]
fn a_server_that_is_not_there_ends_with_6() {
    let done = orbit(&["list", "--server", "127.0.0.1:1"]).done();
    assert_eq!(done.code, 6);
    assert!(
        done.stderr.contains("cannot reach the server at 127.0.0.1:1: ") && done.stderr.contains("hint: "),
        "{}",
        done.stderr
    );
    let done = orbit(&["list", "--server", "127.0.0.1:1", "-o", "json"]).done();
    assert_eq!(done.stderr_json()["error"]["status"], "UNAVAILABLE");
}

#[test]
fn validate_shows_all_faults_with_their_places() {
    let dir = Dir::new();
    let file = dir.file("faulty.yaml", FIVE_FAULTS);
    let done = orbit(&["validate", &file]).done();
    assert_eq!(done.code, 1);
    for (place, code) in [
        ("2:10", "VERSION_INVALID"),
        ("5:11", "CONTRACT_INVALID"),
        ("6:21", "OUT_OF_RANGE"),
        ("8:13", "STEP_UNKNOWN"),
        ("9:18", "DURATION_INVALID"),
    ] {
        let found = done
            .stdout
            .lines()
            .any(|line| line.starts_with(&format!("{file}:{place}: error: ")) && line.ends_with(&format!("[{code}]")));
        assert!(found, "{place} {code} is not in\n{}", done.stdout);
    }
    assert!(done.stdout.lines().filter(|line| line.starts_with("  hint: ")).count() >= 5, "{}", done.stdout);
    assert!(done.stderr.contains("5 faults in 1 file"), "{}", done.stderr);

    let json = orbit(&["validate", &file, "-o", "json"]).done();
    assert_eq!((json.code, json.stdout_json()[0]["faults"].as_array().unwrap().len()), (1, 5));

    let good = dir.file("good.yaml", COMPUTE);
    let done = orbit(&["validate", &good]).done();
    assert_eq!((done.code, done.stdout), (0, format!("{good}: compute@1.0.0 is valid\n")));
}

#[test]
fn deploy_stores_nothing_if_one_file_has_faults() {
    let server = Server::start();
    let good = server.dir.file("good.yaml", COMPUTE);
    let faulty = server.dir.file("faulty.yaml", FIVE_FAULTS);
    let done = server.orbit(&["deploy", &good, &faulty]);
    assert_eq!((done.code, &*done.stdout), (1, ""));
    assert!(done.stderr.contains(&format!("{faulty}:2:10: error: ")), "{}", done.stderr);
    assert_eq!(server.orbit(&["start", "compute"]).code, 3);

    let done = server.orbit(&["deploy", &good]);
    assert_eq!((done.code, &*done.stdout), (0, "compute@1.0.0 deployed\n"), "{}", done.stderr);
    let done = server.orbit(&["deploy", &good, "-o", "json"]);
    assert_eq!((done.code, &done.stdout_json()[0]["created"]), (0, &serde_json::json!(false)));
}

#[test]
fn a_folder_is_deployed_together_in_any_order_or_not_at_all() {
    let server = Server::start();
    server.dir.file(
        "flows/a.yaml",
        "name: parent\nversion: 1.0.0\nsteps: [{id: c, workflow: child@^1}]\nresult: ${ steps.c.output }\n",
    );
    server.dir.file(
        "flows/deep/z.yml",
        "name: child\nversion: 1.2.0\nsteps: [{id: c, compute: 5}]\nresult: ${ steps.c.output }\n",
    );
    server.dir.file("flows/.hidden.yaml", "this is none");
    let folder = server.dir.path("flows");
    let lost = server.dir.file(
        "flows/lost.yaml",
        "name: lost\nversion: 1.0.0\nsteps: [{id: c, workflow: child@^2}, {id: d, workflow: lost@1.0.0}]\n",
    );
    let done = server.orbit(&["deploy", &folder]);
    assert_eq!(done.code, 1, "{}", done.stderr);
    for part in ["lost.yaml: line 3", "CHILD_NOT_FOUND", "no version of workflow `child` fits `^2`", "CHILD_CYCLE"] {
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
    }
    assert_eq!(server.orbit(&["start", "child"]).code, 3);

    std::fs::remove_file(lost).unwrap();
    let done = server.orbit(&["deploy", &folder]);
    assert_eq!((done.code, &*done.stdout), (0, "parent@1.0.0 deployed\nchild@1.2.0 deployed\n"), "{}", done.stderr);
    let done = server.orbit(&["start", "parent", "--id", "p", "--wait", "-o", "json"]);
    assert_eq!((done.code, &done.stdout_json()["output"]), (0, &serde_json::json!(5)), "{}", done.stderr);
    let parent = server.orbit(&["get", "p", "-o", "json"]).stdout_json();
    let child = parent["steps"][0]["child"]["id"].as_str().unwrap().to_owned();
    let child = server.orbit(&["get", &child, "-o", "json"]).stdout_json();
    assert_eq!((&child["version"], &child["parent"]["id"]), (&serde_json::json!("1.2.0"), &serde_json::json!("p")));
}

#[test]
fn colours_are_for_terminals_only() {
    let server = Server::with(&[COMPUTE]);
    assert_eq!(server.orbit(&["start", "compute", "--id", "a", "--wait"]).code, 0);
    let list = |variables: &[(&str, &str)], format: &str| {
        let mut command = server.command(&["list", "-o", format]);
        command.0.envs(variables.iter().copied());
        command.done().stdout
    };
    let escape = '\u{1b}';
    assert!(!list(&[], "table").contains(escape));
    assert!(list(&[("CLICOLOR_FORCE", "1")], "table").contains(escape));
    assert!(!list(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], "table").contains(escape));
    assert!(!list(&[("CLICOLOR_FORCE", "1")], "json").contains(escape));
}

#[test]
fn a_list_that_is_cut_says_so() {
    let server = Server::with(&[SLEEPING]);
    for id in ["a", "b", "c"] {
        assert_eq!(server.orbit(&["start", "sleeping", "--id", id, "--label", &format!("name={id}")]).code, 0);
    }
    let cut = server.orbit(&["list", "--limit", "2", "-o", "json"]);
    assert_eq!((cut.code, cut.stdout_json().as_array().unwrap().len()), (0, 2));
    assert!(cut.stderr.contains("showing 2 of 3"), "{}", cut.stderr);
    let all = server.orbit(&["list", "--all"]);
    assert_eq!((all.stdout.lines().count(), &*all.stderr), (4, ""));
    let one =
        server.orbit(&["list", "--label", "name=b", "--state", "running", "--workflow", "sleeping", "-o", "json"]);
    assert_eq!(one.stdout_json()[0]["id"], "b", "{}", one.stderr);
}

#[test]
fn a_signal_reaches_the_step_that_waits() {
    let server = Server::with(&[WAITING]);
    assert_eq!(server.orbit(&["start", "waiting", "--id", "w"]).code, 0);
    let file = server.dir.file("payload.json", "{\"by\": \"ada\"}");
    let done = server.orbit(&["signal", "w", "go", "--payload", &format!("@{file}")]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(server.orbit(&["get", "w", "--wait"]).stdout, "{\n  \"by\": \"ada\"\n}\n");
    assert_eq!(server.orbit(&["signal", "w", "go"]).code, 4);
}

#[test]
fn waiting_goes_on_through_a_restart_of_the_server() {
    let mut server = Server::with(&[WAITING]);
    let mut waiting = server.command(&["start", "waiting", "--id", "w", "--wait"]);
    let mut waiting = waiting.0.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    server.until(&["get", "w"], |done| done.code == 0);
    server.kill();
    server.restart();
    assert_eq!(server.orbit(&["signal", "w", "go", "--payload", "7"]).code, 0);
    assert!(waiting.wait().unwrap().success());
    assert_eq!(text(waiting.stdout.take()), "7\n");
}

#[test]
fn ctrl_c_detaches_from_an_execution_that_goes_on() {
    let server = Server::with(&[WAITING]);
    let mut waiting = server.command(&["start", "waiting", "--id", "w", "--wait"]);
    let mut waiting = waiting.0.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // What it says comes after it has taken SIGINT over.
    let note = harness::line(waiting.stderr.as_mut().unwrap());
    assert!(note.contains("started w of waiting@1.0.0"), "{note}");
    harness::signal(waiting.id(), libc::SIGINT);
    assert_eq!(waiting.wait().unwrap().code(), Some(130));
    assert!(text(waiting.stderr.take()).contains("`orbit get w --wait`"));
    assert_eq!(server.orbit(&["get", "w", "-o", "json"]).stdout_json()["state"], "STATE_RUNNING");
}

#[test]
fn a_second_server_on_the_same_file_refuses_in_plain_words() {
    let server = Server::start();
    let second = orbit(&["server", "--db", &server.database(), "--listen", "127.0.0.1:0"]).done();
    assert_eq!((second.code, &*second.stdout), (1, ""));
    assert!(second.stderr.contains("error: ") && second.stderr.contains("another"), "{}", second.stderr);
    assert_eq!(server.orbit(&["list"]).code, 0);
}

#[test]
fn an_address_that_is_taken_is_refused_in_plain_words() {
    let server = Server::start();
    let dir = Dir::new();
    let second = orbit(&["server", "--db", &dir.path("other.db"), "--listen", &server.address]).done();
    assert_eq!(second.code, 1);
    assert!(second.stderr.contains(&server.address), "{}", second.stderr);
}

#[test]
fn sigterm_and_sigint_end_a_server_well() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut server = Server::start();
        harness::signal(server.child.id(), signal);
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn every_option_of_a_server_can_be_a_variable() {
    let dir = Dir::new();
    let mut command = orbit(&["server"]);
    command.0.envs([
        ("ORBIT_DB", &*dir.path("by-variable.db")),
        ("ORBIT_LISTEN", "127.0.0.1:0"),
        ("ORBIT_OUTPUT", "json"),
    ]);
    let mut child = command.0.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let line: serde_json::Value = serde_json::from_str(&harness::line(child.stdout.as_mut().unwrap())).unwrap();
    assert_eq!(line["database"], format!("sqlite:{}", dir.path("by-variable.db")));
    harness::signal(child.id(), libc::SIGTERM);
    assert!(child.wait().unwrap().success());
    assert!(fs::exists(dir.path("by-variable.db")).unwrap());
}

#[test]
fn dev_prints_what_to_paste_and_leaves_nothing_behind() {
    let mut child =
        orbit(&["dev", "--listen", "127.0.0.1:0"]).0.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let stdout = child.stdout.as_mut().unwrap();
    let mut lines = Vec::new();
    while !lines.iter().any(|line: &String| line.contains("grpcurl ")) {
        lines.push(harness::line(stdout));
    }
    let shown = lines.join("\n");
    for part in ["gRPC", "HTTP", "/metrics", "curl http://127.0.0.1:", "grpcurl -plaintext 127.0.0.1:"] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    let database = lines.iter().find(|line| line.contains("orbit-dev")).unwrap().split_whitespace().nth(1).unwrap();
    let database = database.trim_start_matches("sqlite:").to_owned();
    assert!(fs::exists(&database).unwrap(), "{database}");
    harness::signal(child.id(), libc::SIGTERM);
    assert!(child.wait().unwrap().success());
    assert!(!fs::exists(&database).unwrap(), "{database}");
}

#[test]
fn a_benchmark_of_sleepers_survives_a_kill_and_counts_them_all() {
    let done = orbit(&["bench", "--sleepers", "500", "--concurrency", "16", "--idle", "1s", "-o", "json"]).done();
    assert_eq!(done.code, 0, "{}", done.stderr);
    let report = done.stdout_json();
    assert_eq!((&report["sleepers"], &report["store"]), (&500.into(), &"sqlite".into()));
    for number in [
        &report["starts_per_second"],
        &report["start_latency_ms"]["p50"],
        &report["rss_bytes"],
        &report["restart_to_first_result_ms"],
        &report["db_bytes"],
    ] {
        assert!(number.as_f64().unwrap() > 0.0, "{report}");
    }
    assert!(report["idle_cpu_percent"].as_f64().unwrap() < 100.0, "{report}");
}

#[test]
fn a_benchmark_at_a_rate_counts_what_is_refused() {
    let arguments = ["bench", "--rate", "200", "--steps", "3", "--duration", "3s", "--warm-up", "100ms", "-o", "json"];
    let mut command = orbit(&arguments);
    // One at a time: at this rate most are refused, and the rest end as ever.
    command.0.env("ORBIT_MAX_ACTIVE_EXECUTIONS", "1");
    let done = command.done();
    assert_eq!(done.code, 0, "{}", done.stderr);
    let report = done.stdout_json();
    assert_eq!((&report["offered_per_second"], &report["concurrency"]), (&200.into(), &serde_json::Value::Null));
    assert_eq!(report["errors"], 0);
    for number in [&report["refused"], &report["workflows_per_second"], &report["latency_ms"]["p50"]] {
        assert!(number.as_f64().unwrap() > 0.0, "{report}");
    }
}

#[test]
fn a_benchmark_checks_its_results_in_both_modes() {
    for mode in ["stream", "poll"] {
        let arguments =
            ["bench", "--mode", mode, "--steps", "3", "--concurrency", "4", "--duration", "3s", "--warm-up", "100ms"];
        let done = orbit(&[&arguments[..], &["-o", "json"]].concat()).done();
        assert_eq!(done.code, 0, "{}", done.stderr);
        let report = done.stdout_json();
        assert_eq!(report["errors"], 0);
        assert_eq!((&report["mode"], &report["store"]), (&mode.into(), &"sqlite".into()));
        for number in [
            &report["workflows_per_second"],
            &report["steps_per_second"],
            &report["latency_ms"]["p50"],
            &report["latency_ms"]["max"],
            &report["server"]["cpu_us_per_step"],
            &report["server"]["rss_bytes"],
            &report["server"]["db_bytes"],
        ] {
            assert!(number.as_f64().unwrap() > 0.0, "{report}");
        }
    }
}
