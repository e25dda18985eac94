//! Rows for tests: whole, and each different.

use bytes::Bytes;
use orbit::domain::{RequestKey, SessionId, Timestamp, Uid};
use orbit::store::{
    Append, DefinitionRow, ExecutionKey, ExecutionState, HeldRow, LargePayload, NewExecution, Pool, ReadyUnit,
    SessionRow, Snapshot, StateChange, Target, WakeChange,
};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

pub(crate) fn time(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

pub(crate) fn uuid(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

/// The start of an execution that runs, with two events.
pub(crate) fn start(id: &str, number: u128) -> Append {
    Append {
        target: Target::New(Box::new(NewExecution {
            uid: Uid(uuid(number)),
            id: id.into(),
            workflow: "order".into(),
            version: "1.0.0".into(),
            definition_hash: [7; 32],
            input_digest: [3; 16],
            request: None,
            start_time: time(1_000_000),
            state: ExecutionState::Running,
            close_time: None,
            labels: [].into(),
            schedule: None,
        })),
        ..append(ExecutionKey(0), 1, 2)
    }
}

/// Changes the row of a start.
pub(crate) fn with_row(mut append: Append, change: impl FnOnce(&mut NewExecution)) -> Append {
    let Target::New(new) = &mut append.target else { panic!("not a start") };
    change(new);
    append
}

pub(crate) fn with_labels(append: Append, labels: &[(&str, &str)]) -> Append {
    with_row(append, |row| {
        row.labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    })
}

pub(crate) fn with_request(append: Append, key: u8) -> Append {
    with_row(append, |row| row.request = Some(RequestKey { key: [key; 16], content: [key ^ 1; 16] }))
}

/// An append of events only.
pub(crate) fn append(key: ExecutionKey, first_number: u64, last_number: u64) -> Append {
    Append {
        target: Target::Existing(key),
        run: 1,
        first_number,
        last_number,
        batch_id: Uuid::new_v4(),
        events: Bytes::from(format!("events {first_number} to {last_number}")),
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

/// An append that ends a running execution.
pub(crate) fn ending(key: ExecutionKey, first_number: u64, to: ExecutionState, close_time: i64) -> Append {
    Append {
        state: Some(StateChange { from: ExecutionState::Running, to, close_time: Some(time(close_time)) }),
        wake: WakeChange::Set(None),
        ..append(key, first_number, first_number)
    }
}

pub(crate) fn unit(name: &str, priority: u8, ready_time: i64) -> ReadyUnit {
    let pool = pool();
    ReadyUnit {
        unit: name.into(),
        queue: pool.queue,
        contract: pool.contract,
        language: pool.language,
        priority,
        ready_time: time(ready_time),
    }
}

pub(crate) fn pool() -> Pool {
    Pool { queue: "default".into(), contract: "payments.charge@1".into(), language: "".into() }
}

pub(crate) fn snapshot(number: u64) -> Snapshot {
    Snapshot { number, format: 1, definition_hash: [7; 32], bytes: Bytes::from(format!("state at {number}")) }
}

pub(crate) fn payload(digest: u8, json: &str) -> LargePayload {
    LargePayload { sha256: [digest; 32], json: json.into() }
}

pub(crate) fn definition(name: &str, version: &str, order: u8) -> DefinitionRow {
    DefinitionRow {
        name: name.into(),
        version: version.into(),
        version_order: vec![order],
        prerelease: version.contains('-'),
        hash: [order; 32],
        description: format!("what {name} does"),
        json: format!(r#"{{"name":"{name}"}}"#),
        source: format!("name: {name}\n"),
        contracts: vec!["payments.charge@1".into(), "stock.reserve@2".into()],
        create_time: time(5),
    }
}

pub(crate) fn session(number: u128, contact_time: i64) -> SessionRow {
    SessionRow {
        id: SessionId(uuid(number)),
        worker_id: "worker-1".into(),
        language: "python".into(),
        sdk: "orbit-python/0.1.0".into(),
        build: "abc".into(),
        queues: vec!["default".into(), "slow".into()],
        contracts: vec!["payments.charge@1".into()],
        slots: 16,
        message_bytes_max: 4 << 20,
        register_time: time(10),
        contact_time: time(contact_time),
        connection: 1,
        timeout: Some(Duration::from_micros(30)),
    }
}

pub(crate) fn held(session: u128, execution: i64, unit: &str, delivery: u32) -> HeldRow {
    HeldRow {
        session: SessionId(uuid(session)),
        execution: ExecutionKey(execution),
        unit: unit.into(),
        delivery,
        missing_since: None,
        beat_time: time(100),
        heartbeat_timeout_micros: None,
        progress: None,
    }
}

pub(crate) fn held_key(row: &HeldRow) -> (ExecutionKey, Arc<str>, u32) {
    (row.execution, row.unit.clone(), row.delivery)
}
