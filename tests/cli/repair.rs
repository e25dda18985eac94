//! Holds executions, asks them, has them run again, and lets go of them.

use crate::harness::Server;

const HELD: &str = "name: held\nversion: 1.0.0\nsignals: {go: {}}
queries: {step: '${ steps.hold.state }', lost: '${ steps.hold.output.nothing }'}
steps: [{id: hold, await: {signal: go}}, {id: next, needs: [hold], compute: 7}]\nresult: ${ steps.next.output }\n";
/// Fails until its input says otherwise.
const PICKY: &str = "name: picky\nversion: 1.0.0\ninput: {type: object, properties: {ok: {type: boolean}}}
steps:
  - {id: first, compute: '${ execution.id }'}
  - {id: broken, needs: [first], when: '!input.ok', fail: {code: OUT_OF_STOCK}}
  - {id: last, needs: [broken], compute: '${ steps.first.output }'}
result: ${ steps.last.output }\n";

#[test]
fn an_execution_is_paused_and_goes_on() {
    let server = Server::with(&[HELD]);
    assert_eq!(server.orbit(&["start", "held", "--id", "h"]).code, 0);
    let paused = server.orbit(&["pause", "h", "--reason", "stocktaking"]);
    assert_eq!(paused.code, 0, "{}", paused.stderr);
    assert!(paused.stdout.starts_with("h is paused since event "), "{}", paused.stdout);
    let again = server.orbit(&["pause", "h", "-o", "json"]);
    assert!(paused.stdout.trim_end().ends_with(again.stdout_json()["eventNumber"].as_str().unwrap()));
    assert!(server.orbit(&["get", "h"]).stdout.contains("PAUSED"));
    assert_eq!(server.orbit(&["list", "--state", "paused", "-o", "json"]).stdout_json()[0]["id"], "h");

    assert!(server.orbit(&["resume", "h"]).stdout.starts_with("h goes on since event "));
    assert_eq!(server.orbit(&["resume", "h"]).stdout, "h was not paused\n");
    assert_eq!(server.orbit(&["signal", "h", "go"]).code, 0);
    assert_eq!(server.orbit(&["get", "h", "--wait"]).stdout, "7\n");
    for command in ["pause", "resume"] {
        let closed = server.orbit(&[command, "h"]);
        assert_eq!(closed.code, 4);
        assert!(closed.stderr.contains("(EXECUTION_CLOSED)"), "{}", closed.stderr);
        assert_eq!(server.orbit(&[command, "nope"]).code, 3);
    }
}

#[test]
fn a_query_prints_what_it_gives_also_after_the_end() {
    let server = Server::with(&[HELD]);
    assert_eq!(server.orbit(&["start", "held", "--id", "h"]).code, 0);
    assert_eq!(server.orbit(&["query", "h", "step"]).stdout, "\"AWAITING\"\n");
    assert_eq!(server.orbit(&["terminate", "h"]).code, 0);
    let asked = server.orbit(&["query", "h", "step", "-o", "json"]).stdout_json();
    assert_eq!(asked["result"], "CANCELLED");
    for (query, code, reason) in [("nope", 3, "QUERY_NOT_FOUND"), ("lost", 4, "QUERY_FAILED")] {
        let refused = server.orbit(&["query", "h", query]);
        assert_eq!(refused.code, code, "{}", refused.stderr);
        assert!(refused.stderr.contains(&format!("({reason})")), "{}", refused.stderr);
    }
    assert_eq!(server.orbit(&["query", "nope", "step"]).code, 3);
}

#[test]
fn what_failed_is_retried_or_repeated_with_another_input() {
    let server = Server::with(&[PICKY]);
    let input = ["--input", "{\"ok\": false}"];
    assert_eq!(server.orbit(&[&["start", "picky", "--id", "p", "--wait"], &input[..]].concat()).code, 10);
    let retried = server.orbit(&["retry", "p"]);
    assert_eq!(retried.code, 0, "{}", retried.stderr);
    assert!(retried.stdout.starts_with("p runs again since event "), "{}", retried.stdout);
    assert_eq!(server.orbit(&["get", "p", "--wait"]).code, 10, "its input is the same");

    let rerun = ["rerun", "p", "--from", "broken", "--input", "{\"ok\": true}", "--new-id", "q", "--label", "by=ann"];
    let done = server.orbit(&rerun);
    assert_eq!((done.code, &*done.stdout), (0, "q\n"), "{}", done.stderr);
    assert!(done.stderr.contains("started q, which repeats p from broken on"), "{}", done.stderr);
    assert_eq!(server.orbit(&["get", "q", "--wait"]).stdout, "\"p\"\n", "the first step has not run again");
    assert_eq!(server.orbit(&["list", "--label", "by=ann", "-o", "json"]).stdout_json()[0]["id"], "q");
    assert!(server.orbit(&rerun).stderr.contains("exists already: q"));

    let refused = server.orbit(&["retry", "q"]);
    assert_eq!(refused.code, 4);
    assert!(refused.stderr.contains("(EXECUTION_NOT_RETRYABLE)"), "{}", refused.stderr);
    assert_eq!(server.orbit(&["rerun", "p", "--from", "nope"]).code, 1);
    assert_eq!(server.orbit(&["retry", "nope"]).code, 3);
    assert_eq!(server.orbit(&["rerun", "nope", "--from", "first"]).code, 3);
}

#[test]
fn what_is_closed_is_deleted_and_its_id_is_free() {
    let server = Server::with(&[HELD]);
    assert_eq!(server.orbit(&["start", "held", "--id", "h"]).code, 0);
    let open = server.orbit(&["delete", "h"]);
    assert_eq!(open.code, 4);
    assert!(open.stderr.contains("(EXECUTION_OPEN)"), "{}", open.stderr);
    assert_eq!(server.orbit(&["terminate", "h"]).code, 0);
    let delete = ["delete", "h", "--request-id", "r1"];
    for _ in 0..2 {
        let deleted = server.orbit(&delete);
        assert_eq!((deleted.code, &*deleted.stdout), (0, "h was deleted\n"), "{}", deleted.stderr);
    }
    assert_eq!(server.orbit(&["get", "h"]).code, 3);
    assert_eq!(server.orbit(&["delete", "h"]).code, 3);
    assert_eq!(server.orbit(&["start", "held", "--id", "h", "--input", "1"]).code, 0);
}

#[test]
fn an_id_is_used_again_as_its_policy_says() {
    let server = Server::with(&[HELD]);
    let start = |more: &[&str]| server.orbit(&[&["start", "held", "--id", "h", "-o", "json"], more].concat());
    let uid = |done: &crate::harness::Done| done.stdout_json()["uid"].as_str().unwrap().to_owned();
    let first = uid(&start(&[]));
    // Another input, so that none of them can be the same start.
    assert_eq!(start(&["--input", "1"]).code, 4);
    assert_eq!(start(&["--input", "1", "--id-reuse", "allow-when-closed"]).code, 4, "it is open");
    let second = start(&["--input", "1", "--id-reuse", "terminate-running"]);
    assert_eq!(second.code, 0, "{}", second.stderr);
    let second = uid(&second);
    assert_ne!(first, second);
    assert!(server.orbit(&["get", "h", "--uid", &first]).stdout.contains("TERMINATED"));
    assert_eq!(server.orbit(&["terminate", "h"]).code, 0);
    assert_eq!(start(&["--input", "2"]).code, 4, "also after its end");
    let third = start(&["--input", "2", "--id-reuse", "allow-when-closed"]);
    assert_eq!(third.code, 0, "{}", third.stderr);
    assert_ne!(uid(&third), second);
    assert_eq!(start(&["--id-reuse", "sometimes"]).code, 2);
}
