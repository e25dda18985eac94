//! The names of things, each its own type, so that two cannot be swapped.

use sha2::{Digest, Sha256};
use std::{fmt, sync::Arc};
use uuid::Uuid;

/// Id of an execution: 1 to 128 of `A-Z a-z 0-9 . _ : @ + ~ -`, the first alphanumeric; or, of those that the server
/// makes, the first a `~`, so that nobody can choose an id that it will make.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ExecutionId(Arc<str>);

/// Most characters of an execution's id.
pub const EXECUTION_ID_LENGTH_MAX: usize = 128;

/// What the ids begin with that only the server makes.
const RESERVED: u8 = b'~';

impl ExecutionId {
    /// Takes the id of an execution that exists, or may; nothing if it breaks the rule above.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let first_is_allowed = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric() || b == RESERVED);
        let rest_is_allowed = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:@+~-".contains(&b));
        (first_is_allowed && rest_is_allowed && text.len() <= EXECUTION_ID_LENGTH_MAX).then(|| Self(Arc::from(text)))
    }

    /// Takes an id that a caller chose for a new execution: as [`parse`](Self::parse), without the server's own.
    #[must_use]
    pub fn choose(text: &str) -> Option<Self> {
        Self::parse(text).filter(|id| !id.is_reserved())
    }

    /// Whether only the server makes such an id.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        self.0.bytes().next() == Some(RESERVED)
    }

    /// The id of the child that an attempt of a unit starts: it starts once, however often it is started.
    #[must_use]
    pub fn of_child(parent: Uid, run: u32, unit: &str, generation: u32, attempt: u32) -> Self {
        let hash = digest16(&[
            b"child",
            parent.0.as_bytes(),
            &run.to_le_bytes(),
            unit.as_bytes(),
            &generation.to_le_bytes(),
            &attempt.to_le_bytes(),
        ]);
        Self::derived(hash)
    }

    /// The id that follows from a hash of what the execution is for.
    pub(super) fn derived(hash: [u8; 16]) -> Self {
        Self(Arc::from(format!("{}{}", char::from(RESERVED), hex(&hash))))
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

/// A schedulable instance of a step, by name: `charge`, `ship[3]`, `compensate:charge`, `failure:notify`.
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
    hex(&hash)
}

/// The key under which an execution takes a unit's signal once: it names the sender, however often the signal is sent.
#[must_use]
pub fn sender_key(uid: Uid, run: u32, unit: &str, generation: u32) -> [u8; 16] {
    digest16(&[b"signal", uid.0.as_bytes(), &run.to_le_bytes(), unit.as_bytes(), &generation.to_le_bytes()])
}

/// Bytes as lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_begins_with_a_letter_or_digit_unless_the_server_made_it() {
        for text in ["a", "9", "order:1@x+y~z-._"] {
            assert_eq!(ExecutionId::choose(text).unwrap().as_str(), text);
        }
        for text in ["", ".a", "-a", "a b", "a/b", "ü", "~", "~a"] {
            assert_eq!(ExecutionId::choose(text), None, "{text}");
        }
        assert!(ExecutionId::parse("~a").unwrap().is_reserved());
        assert!(ExecutionId::parse(&"a".repeat(128)).is_some() && ExecutionId::parse(&"a".repeat(129)).is_none());
    }

    #[test]
    fn each_attempt_has_a_child_of_its_own_and_always_the_same() {
        let child = |run, unit, generation, attempt| {
            ExecutionId::of_child(Uid(Uuid::from_u128(1)), run, unit, generation, attempt).to_string()
        };
        // What is stored refers to these ids: they never change.
        assert_eq!(child(1, "ship[3]", 1, 1), "~b3770dc1f9a4515914212911967caa9e");
        let all = [child(2, "a", 1, 1), child(1, "b", 1, 1), child(1, "a", 2, 1), child(1, "a", 1, 2)];
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len());
        assert!(all.iter().all(|id| ExecutionId::parse(id).is_some_and(|id| id.is_reserved())));
    }
}
