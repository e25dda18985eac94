//! Lists of which little is found.

use crate::harness::*;
use orbit::domain::{Timestamp, Uid};
use orbit::proto::admin as proto;
use orbit::store::{
    Append, ExecutionState, Faulty, NewExecution, SqliteStore, Store as _, Target, WakeChange,
    faulty::{Call, Fate},
    sqlite,
};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

/// A row in a list, of a history that nobody reads.
fn listed(number: u128, tenant: &str, workflow: &str) -> Append {
    let new = NewExecution {
        uid: Uid(Uuid::from_u128(number)),
        id: format!("e{number}").into(),
        workflow: workflow.into(),
        version: "1.0.0".into(),
        definition_hash: [1; 32],
        input_digest: [1; 16],
        request: None,
        start_time: Timestamp::from_micros(number as i64),
        state: ExecutionState::Running,
        close_time: None,
        labels: [("tenant".to_owned(), tenant.to_owned())].into(),
        schedule: None,
    };
    Append {
        target: Target::New(Box::new(new)),
        run: 1,
        first_number: 1,
        last_number: 1,
        batch_id: Uuid::from_u128(number),
        events: Vec::new().into(),
        payloads: Vec::new(),
        ready_added: Vec::new(),
        ready_removed: Vec::new(),
        state: None,
        wake: WakeChange::Keep,
        snapshot: None,
        begins_run: None,
        deletion: None,
    }
}

#[tokio::test]
async fn a_page_of_which_little_is_found_is_answered_after_a_while_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&directory.path().join("orbit.db"), sqlite::Options::default()).await.unwrap();
    let others = (1..2500).flat_map(|n| [listed(2 * n, "a", "order"), listed(2 * n + 1, "b", "refund")]);
    let rows: Vec<Append> = std::iter::once(listed(1, "a", "refund")).chain(others).collect();
    for rows in rows.chunks(1000) {
        store.commit(rows.to_vec()).await.unwrap();
    }
    let slow = Faulty::new(Arc::new(store), |call| match call {
        Call::Read("list") => Fate::Takes(Duration::from_millis(40)),
        Call::Read(_) | Call::Write(_) | Call::Commit(_) => Fate::Works,
    });
    let mut server = server_with(|_| {}, Arc::new(slow)).await;
    let filter = "labels.tenant = \"a\" AND workflow = \"refund\"".to_owned();
    let mut request = proto::ListExecutionsRequest { filter, ..Default::default() };
    let mut pages = Vec::new();
    loop {
        let page = server.admin.list_executions(request.clone()).await.unwrap().into_inner();
        pages.push(page.executions.into_iter().map(|execution| execution.id).collect::<Vec<_>>());
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    // Two thousand five hundred entries, four hundred at a time.
    assert_eq!((pages.len(), pages.concat()), (7, vec!["e1".to_owned()]));
    assert_eq!(pages[6], ["e1"]);
    server.end().await;
}
