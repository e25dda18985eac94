//! The names of things, each its own type, so that two cannot be swapped.

use sha2::{Digest, Sha256};
use std::{fmt, sync::Arc};
use uuid::Uuid;

/// Id of an execution: 1 to 128 of `A-Z a-z 0-9 . _ : @ + ~ -`, the first alphanumeric.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ExecutionId(Arc<str>);

/// Most characters of an execution's id.
pub const EXECUTION_ID_LENGTH_MAX: usize = 128;

impl ExecutionId {
    /// Takes an id that a caller chose; nothing if it breaks the rule above.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let first_is_alphanumeric = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        let rest_is_allowed = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:@+~-".contains(&b));
        (first_is_alphanumeric && rest_is_allowed && text.len() <= EXECUTION_ID_LENGTH_MAX)
            .then(|| Self(Arc::from(text)))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Uid of an execution: made by the server, never reused. Everything else about it derives from this.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Uid(pub Uuid);

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One registration of a worker process: made by the server, so two processes may share a worker id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub Uuid);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A schedulable instance of a step; so far each step has one, named as the step.
pub type Unit = Arc<str>;

/// Names one delivery inside an execution. A token is this with the execution's key and uid.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeliveryRef {
    /// Unit.
    pub unit: Unit,
    /// Delivery of all attempts together, from 1.
    pub delivery: u32,
}

/// Key of an execution's row: never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ExecutionKey(pub i64);

/// Names one delivery among all executions; a task token is its text form (`wire::token`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TaskToken {
    /// Row of the execution.
    pub execution: ExecutionKey,
    /// Uid of the execution, which nobody can guess: 74 of its bits are random.
    pub uid: Uid,
    /// Delivery in the execution.
    pub delivery: DeliveryRef,
}

/// Remembers a call by its `request_id`: 16 bytes of hash each of (caller, rpc, resource, id) and of the content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestKey {
    /// Hash of caller, rpc, resource and `request_id`.
    pub key: [u8; 16],
    /// Hash of the call's content.
    pub content: [u8; 16],
}

/// The first 16 bytes of SHA-256 over the parts, each with its length before it, so that no two lists collide.
#[must_use]
pub fn digest16(parts: &[&[u8]]) -> [u8; 16] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let mut out = [0; 16];
    out.copy_from_slice(&hash.finalize()[..16]);
    out
}

/// The key under which a unit's work must happen at most once: lower-case hex, 32 characters, the same for every
/// attempt and delivery of a generation.
#[must_use]
pub fn idempotency_key(uid: Uid, run: u32, unit: &str, generation: u32) -> String {
    let hash =
        digest16(&[b"idempotency", uid.0.as_bytes(), &run.to_le_bytes(), unit.as_bytes(), &generation.to_le_bytes()]);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
