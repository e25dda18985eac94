//! What a start finds, and how soon it serves.

use crate::{
    caller::payload,
    connect::{Admin, Answer},
    journal::Journal,
    oracle,
    run::{alone, beside_others},
    server::{Server, free_address},
    worker::{Mode, Setup, Worker},
    workflow,
};
use futures_util::StreamExt as _;
use orbit::proto::{
    admin::{CountExecutionsRequest, StartExecutionRequest},
    workflow::{event::Kind, execution::State},
};
use serde_json::json;
use std::{
    process::Stdio,
    time::{Duration, Instant},
};

/// A definition whose executions sleep for a day.
const ASLEEP: &str = "
name: asleep
version: 1.0.0
steps:
  - {id: night, sleep: {for: 24h}}
";

/// How long after its start a server may need for its first answer, however many executions are open.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(1);

/// Memory that a server with many open executions may have beyond one without any, before anything happens to them.
const LOADED_MAX: u64 = 16 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn the_first_request_is_served_within_a_second_however_many_executions_are_open() {
    let _alone = alone().await;
    let open = crate::chance::count("OPEN_EXECUTIONS", 5_000);
    let mut server = Server::start().await;
    let mut admin = server.admin();
    workflow::deploy_source(&mut admin, ASLEEP).await;
    let empty = rss_bytes(&server);
    let mut starts = futures_util::stream::iter(0..open)
        .map(|number| start(admin.clone(), "asleep", format!("asleep-{number}")))
        .buffer_unordered(128);
    while starts.next().await.is_some() {}
    drop(starts);

    server.kill(&mut crate::chance::Chance::named("restart"));
    let begin = Instant::now();
    server.start_again().await;
    let answered = loop {
        match Answer::of(server.admin().start_execution(request("asleep", "first".to_owned())).await) {
            Answer::Done(_) => break begin.elapsed(),
            Answer::Refused(refusal) => panic!("{refusal:?}"),
            Answer::Unknown(_) => {}
        }
    };
    let full = rss_bytes(&server);
    eprintln!(
        "{open} open executions: first answer {} ms after the start of the process, {} MiB of memory; {} MiB without any",
        answered.as_millis(),
        full >> 20,
        empty >> 20
    );
    assert!(answered < FIRST_ANSWER_MAX, "{answered:?}");
    assert!(full < empty + LOADED_MAX, "something was loaded at the start");
    let counts = admin.count_executions(CountExecutionsRequest {}).await.unwrap().into_inner().counts;
    let running = counts.iter().find(|count| count.state() == State::Running).map_or(0, |count| count.count);
    assert_eq!(running, i64::try_from(open).unwrap() + 1);
    server.stop().await;
}

/// Memory that the server has.
fn rss_bytes(server: &Server) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", server.pid())).unwrap();
    statm.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[tokio::test(flavor = "multi_thread")]
async fn c007_a_start_while_recovery_runs_happens_once() {
    let _beside_others = beside_others().await;
    let mut chance = crate::chance::Chance::named("c007");
    let mut server = Server::start().await;
    workflow::deploy(&mut server.admin()).await;
    let journal = Journal::default();
    // Work that the next start finds: tasks that wait, for which no worker is there yet.
    let mut ids: Vec<String> = (0..100).map(|number| format!("found-{number}")).collect();
    for id in &ids {
        start(server.admin(), "chain", id.clone()).await;
    }
    server.kill(&mut chance);

    // Both knock at the port before it is open, so they are served in the server's first moments.
    let addresses = vec![server.address()];
    let setup = Setup { name: "early".to_owned(), addresses, mode: Mode::Stream, slots: 64, seed: 0 };
    let worker = Worker::begin(setup, &journal, &crate::connect::Flight::default());
    let starts: Vec<_> = (0..20)
        .map(|number| format!("early-{number}"))
        .inspect(|id| ids.push(id.clone()))
        .map(|id| tokio::spawn(start(server.admin(), "chain", id)))
        .collect();
    server.start_again().await;
    for start in starts {
        start.await.unwrap();
    }
    let mut admin = server.admin();
    for id in &ids {
        assert_eq!(oracle::wait(&mut admin, id).await.state(), State::Succeeded);
        let events = oracle::events(&mut admin, id).await;
        let dispatched = events.iter().filter(|event| matches!(event.kind, Some(Kind::StepDispatched(_)))).count();
        assert_eq!(dispatched, 5, "each task once: {events:?}");
    }
    worker.end().await;
    assert_eq!(journal.lock().faults, Vec::<String>::new());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_server_on_one_file_is_refused_in_plain_words() {
    let _beside_others = beside_others().await;
    let mut server = Server::start().await;
    let mut second = server.command(&server.database(), free_address());
    let output = second.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("in use by another server"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    // The first one does not mind.
    server.admin().count_executions(CountExecutionsRequest {}).await.unwrap();
    server.stop().await;
}

fn request(workflow: &str, id: String) -> StartExecutionRequest {
    StartExecutionRequest {
        request_id: id.clone(),
        id,
        workflow: workflow.to_owned(),
        input: Some(payload(&json!({"value": 1}))),
        ..StartExecutionRequest::default()
    }
}

/// Starts an execution, however often the server is not there.
async fn start(mut admin: Admin, workflow: &str, id: String) {
    loop {
        match Answer::of(admin.start_execution(request(workflow, id.clone())).await) {
            Answer::Done(response) => {
                assert!(response.created);
                return;
            }
            Answer::Refused(refusal) => panic!("{refusal:?}"),
            Answer::Unknown(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}
