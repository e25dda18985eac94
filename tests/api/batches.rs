//! Batches, as callers make and follow them.

use crate::harness::*;
use orbit::proto::admin::{self as proto, batch, create_batch_request::Action};
use orbit::proto::workflow::execution::State;
use std::time::Duration;
use tonic::Code;

const SLEEPER: &str = "name: sleeper\nversion: 1.0.0\nsteps: [{id: a, sleep: {for: 1h}}]\n";

fn cancelling(filter: &str) -> proto::CreateBatchRequest {
    proto::CreateBatchRequest {
        action: Some(Action::Cancel(proto::CancelAction { reason: "moved".to_owned() })),
        filter: filter.to_owned(),
        ..Default::default()
    }
}

async fn get(server: &mut Harness, id: &str) -> proto::Batch {
    let request = proto::GetBatchRequest { id: id.to_owned() };
    server.admin.get_batch(request).await.unwrap().into_inner().batch.unwrap()
}

/// Waits until the batch has ended.
async fn ended(server: &mut Harness, id: &str) -> proto::Batch {
    for _ in 0..400 {
        let batch = get(server, id).await;
        if batch.state() != batch::State::Running {
            return batch;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("batch {id} does not end");
}

#[tokio::test]
async fn a_batch_acts_on_all_that_match_and_tells_how_far_it_is() {
    let mut server = server().await;
    server.deploy(SLEEPER).await;
    for number in 0..70 {
        server.start("sleeper", &format!("e{number}"), "null").await;
    }
    let counted = proto::CreateBatchRequest { dry_run: true, ..cancelling("workflow = sleeper") };
    let counted = server.admin.create_batch(counted).await.unwrap().into_inner().batch.unwrap();
    assert_eq!((&*counted.id, counted.expected_count, counted.expected_complete), ("", 70, true));

    let request = proto::CreateBatchRequest { request_id: "r".to_owned(), ..cancelling("workflow = sleeper") };
    let made = server.admin.create_batch(request.clone()).await.unwrap().into_inner().batch.unwrap();
    assert_eq!((made.expected_count, made.filter.as_str()), (70, "workflow = sleeper"));
    let done = ended(&mut server, &made.id).await;
    assert_eq!(
        (done.state(), done.done_count, done.skipped_count, done.failed_count),
        (batch::State::Succeeded, 70, 0, 0)
    );
    assert_eq!(done.action, Some(batch::Action::Cancel(proto::CancelAction { reason: "moved".to_owned() })));
    assert!(done.end_time.is_some());
    let cancelled = server.get("e69").await;
    assert_eq!((cancelled.state(), &*cancelled.reason), (State::Cancelled, "moved"));

    let again = server.admin.create_batch(request.clone()).await.unwrap().into_inner().batch.unwrap();
    assert_eq!(again, done, "the same call finds its batch");
    let other = proto::CreateBatchRequest { filter: "state = RUNNING".to_owned(), ..request };
    assert_refused(server.admin.create_batch(other).await, Code::InvalidArgument, "REQUEST_ID_REUSED");
    server.end().await;
}

#[tokio::test]
async fn batches_are_listed_in_pages_over_http_too() {
    let mut server = server().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let body = r#"{"retry": {}, "filter": "state = FAILED"}"#;
        let made = http(server.address, "POST", "/v1/batches", body).await.json();
        ids.insert(0, made["batch"]["id"].as_str().unwrap().to_owned());
        assert!(made["batch"]["retry"].is_object(), "{made}");
    }
    for id in &ids {
        assert_eq!(ended(&mut server, id).await.state(), batch::State::Succeeded);
    }
    let page = server.admin.list_batches(proto::ListBatchesRequest { page_size: 2, ..Default::default() }).await;
    let page = page.unwrap().into_inner();
    let next = proto::ListBatchesRequest { page_size: 2, page_token: page.next_page_token };
    let rest = server.admin.list_batches(next).await.unwrap().into_inner();
    let listed: Vec<_> = page.batches.iter().chain(&rest.batches).map(|batch| batch.id.clone()).collect();
    assert_eq!((listed, &*rest.next_page_token), (ids.clone(), ""));
    let cancelled = http(server.address, "POST", &format!("/v1/batches/{}:cancel", ids[0]), "{}").await.json();
    assert_eq!(cancelled["batch"]["state"], "STATE_SUCCEEDED", "it had ended");
    server.end().await;
}

#[tokio::test]
async fn what_cannot_be_a_batch_is_refused() {
    let mut server = server().await;
    let nothing = server.admin.create_batch(proto::CreateBatchRequest::default()).await;
    let status = assert_refused(nothing, Code::InvalidArgument, "FIELD_VIOLATION");
    assert_eq!(bad_fields(&status), ["action", "filter"]);
    let garbled = server.admin.create_batch(cancelling("state ~ RUNNING")).await;
    assert_eq!(bad_fields(&assert_refused(garbled, Code::InvalidArgument, "FIELD_VIOLATION")), ["filter"]);
    let garbled = server.admin.get_batch(proto::GetBatchRequest { id: "x".to_owned() }).await;
    assert_eq!(bad_fields(&assert_refused(garbled, Code::InvalidArgument, "FIELD_VIOLATION")), ["id"]);
    let id = "00000000-0000-0000-0000-000000000000".to_owned();
    let missing = server.admin.get_batch(proto::GetBatchRequest { id: id.clone() }).await;
    assert_refused(missing, Code::NotFound, "BATCH_NOT_FOUND");
    let missing = server.admin.cancel_batch(proto::CancelBatchRequest { id }).await;
    assert_refused(missing, Code::NotFound, "BATCH_NOT_FOUND");
    server.end().await;
}
