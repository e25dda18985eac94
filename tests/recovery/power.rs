//! Power loss: a SIGKILL after which the disk has what was synced, and of the rest any part or nothing.

use crate::{
    caller::{Load, payload},
    chance::{self, Chance},
    connect::{Flight, insist},
    disk::Disk,
    run::{Run, alone, spread},
    server::{Options, Server},
    workflow::{self, Plan},
};
use orbit::proto::admin::{GetExecutionRequest, StartExecutionRequest};
use serde_json::json;
use std::time::Duration;

/// Turns off the syncing of commits. For this test only: it shows that the test would notice.
const UNSAFE_WITHOUT_SYNC: &str = "ORBIT_UNSAFE_WITHOUT_SYNC";

#[tokio::test(flavor = "multi_thread")]
async fn nothing_accepted_is_lost_when_the_power_fails() {
    let _alone = alone().await;
    let losses = chance::count("POWER_LOSSES", 5);
    let disk = Disk::new();
    let mut run = Run::begin("power", Options { disk: Some(disk.clone()), ..Options::default() }).await;
    run.add_workers(8, 32);
    run.call(Load { clients: 4, lives: 32, plan: Plan::any });

    let mut resumes = Vec::new();
    for loss in 1..=losses {
        let in_flight = run.moment(1_000, 50).await;
        // The moment that matters is the one in which a commit is on its way to the disk.
        while !Disk::has_unsynced(&run.server.database()) {
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
        let lost_before = disk.lost_bytes();
        run.server.kill(&mut run.chance);
        let lost = disk.lost_bytes() - lost_before;
        let listens = run.server.start_again().await;
        let resumed = run.resumed(listens, 1).await;
        eprintln!(
            "power loss {loss}: {in_flight} commands in flight, {lost} bytes not synced and lost; workers went on after {} ms",
            resumed.as_millis()
        );
        resumes.push(resumed);
    }
    let verdict = run.end().await;
    eprintln!(
        "{losses} power losses, {} bytes lost; workers went on after {}; {verdict:?}",
        disk.lost_bytes(),
        spread(resumes)
    );
    assert_eq!(disk.losses(), u64::try_from(losses).unwrap());
    assert!(disk.lost_bytes() > 0, "there was nothing to lose, so nothing was tested");
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_starts_are_lost_when_the_power_fails_and_commits_are_not_synced() {
    let _alone = alone().await;
    let mut chance = Chance::named("power without sync");
    let mut server = Server::start_with(Options { disk: Some(Disk::lazy()), ..Options::default() }).await;
    workflow::deploy(&mut server.admin()).await;
    let before = accept_starts(&server, "synced", 20).await;
    server.stop().await;

    server.set(UNSAFE_WITHOUT_SYNC, "true");
    server.start_again().await;
    let after = accept_starts(&server, "unsynced", 200).await;
    server.kill(&mut chance);

    server.set(UNSAFE_WITHOUT_SYNC, "false");
    server.start_again().await;
    assert_eq!(missing(&server, &before).await, 0, "what had been synced must be there");
    let lost = missing(&server, &after).await;
    assert!(lost > 0, "commits were not synced, the power failed, and nothing was lost: this test sees nothing");
    eprintln!("without sync, {lost} of {} accepted starts were lost", after.len());
}

/// Starts executions and answers with the ids of those that were accepted: all.
async fn accept_starts(server: &Server, prefix: &str, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for number in 0..count {
        let request = StartExecutionRequest {
            id: format!("{prefix}-{number}"),
            workflow: "patient".to_owned(),
            input: Some(payload(&json!({"value": number}))),
            ..StartExecutionRequest::default()
        };
        ids.push(server.admin().start_execution(request).await.unwrap().into_inner().id);
    }
    ids
}

/// How many of these executions the server does not know.
async fn missing(server: &Server, ids: &[String]) -> usize {
    let admin = server.admin();
    let (flight, mut chance) = (Flight::default(), Chance::named("missing"));
    let mut missing = 0;
    for id in ids {
        let call = || {
            let mut admin = admin.clone();
            let request = GetExecutionRequest { id: id.clone(), ..GetExecutionRequest::default() };
            async move { admin.get_execution(request).await }
        };
        let found = insist(&flight, &mut chance, call);
        match tokio::time::timeout(Duration::from_secs(10), found).await.unwrap() {
            Ok(_) => {}
            Err(refusal) if refusal.reason == "EXECUTION_NOT_FOUND" => missing += 1,
            Err(refusal) => panic!("{refusal:?}"),
        }
    }
    missing
}
