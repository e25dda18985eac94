//! Many executions at once, and why one does not move.

use crate::harness::Server;

const WAITING: &str = "name: waiting\nversion: 1.0.0\nsignals: {go: {}}\nsteps: [{id: hold, await: {signal: go}}]\n";
const TASK: &str = "name: task\nversion: 1.0.0\ntasks: {pay@1: {}}\nsteps: [{id: pay, task: pay@1, timeout: 1m}]\n";

#[test]
fn a_batch_is_counted_meant_made_and_waited_for() {
    let server = Server::with(&[WAITING]);
    for number in 0..40 {
        let id = format!("e{number}");
        assert_eq!(server.orbit(&["start", "waiting", "--id", &id, "--label", "tenant=a"]).code, 0);
    }
    assert_eq!(server.orbit(&["start", "waiting", "--id", "other"]).code, 0);
    let batch = ["batch", "create", "cancel", "--workflow", "waiting", "--label", "tenant=a"];
    let with = |more: &[&str]| server.orbit(&[&batch[..], more].concat());

    let counted = with(&["--dry-run"]);
    assert_eq!((counted.code, &*counted.stdout), (0, "40 executions match\n"), "{}", counted.stderr);
    let unmeant = with(&[]);
    assert_eq!(unmeant.code, 2, "nobody can be asked: {}", unmeant.stderr);
    let everything = server.orbit(&["batch", "create", "cancel", "--yes"]);
    assert_eq!(everything.code, 2, "{}", everything.stderr);

    let done = with(&["--yes", "--wait", "--reason", "left", "-o", "json"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let made = done.stdout_json();
    assert_eq!((&made["state"], &made["doneCount"]), (&"STATE_SUCCEEDED".into(), &"40".into()), "{made}");
    let id = made["id"].as_str().unwrap();
    assert!(server.orbit(&["batch", "get", id]).stdout.contains("SUCCEEDED"));
    assert!(server.orbit(&["batch", "list"]).stdout.contains(id));
    assert_eq!(server.orbit(&["batch", "cancel", id]).code, 0, "it has ended, and stays so");
    assert!(server.orbit(&["get", "e39"]).stdout.contains("CANCELLED"));
    assert!(server.orbit(&["get", "other"]).stdout.contains("RUNNING"));
    assert_eq!(server.orbit(&["batch", "get", "00000000-0000-0000-0000-000000000000"]).code, 3);
}

#[test]
fn an_execution_that_does_not_move_is_explained() {
    let server = Server::with(&[WAITING, TASK]);
    server.orbit(&["start", "task", "--id", "t"]);
    server.orbit(&["start", "waiting", "--id", "w"]);
    let told = server.orbit(&["explain", "t"]);
    assert_eq!(told.code, 0, "{}", told.stderr);
    let lines: Vec<&str> = told.stdout.lines().collect();
    assert_eq!(lines[0], "t  RUNNING");
    assert_eq!(
        lines[1],
        "└─ pay waits for a worker that does pay@1 in queue \"default\": no live worker announces it there; none \
         announces it anywhere"
    );
    assert!(lines[2].starts_with("     since "), "{}", told.stdout);
    assert_eq!(lines[3], "     hint: start a worker that announces pay@1 and serves queue \"default\"");
    let told = server.orbit(&["explain", "w", "-o", "json"]).stdout_json();
    assert_eq!(told["waits"][0]["signal"]["name"], "go");
    assert_eq!(told["waits"][0]["hint"], "`orbit signal w go` gives it the signal");
    assert_eq!(server.orbit(&["explain", "nope"]).code, 3);
}
