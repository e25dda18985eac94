//! `request_id`: how a repeated call is known.

use crate::domain::{RequestKey, digest16};

/// Most characters of a `request_id`.
pub const ID_LENGTH_MAX: usize = 64;

/// Whose calls share request ids. There are no credentials yet, so everybody is one caller.
const CALLER: &[u8] = b"";

/// The key of a call: none if it has no `request_id`.
///
/// `resource` is what the request names, and `content` everything else that it asks for, without the `request_id`.
///
/// # Errors
/// What is wrong with the `request_id`.
pub fn key(rpc: &str, resource: &str, id: &str, content: &[&[u8]]) -> Result<Option<RequestKey>, &'static str> {
    if id.is_empty() {
        return Ok(None);
    }
    if id.chars().count() > ID_LENGTH_MAX || id.chars().any(char::is_control) {
        return Err("must be 1 to 64 characters, best a UUID, without control characters");
    }
    let key = digest16(&[CALLER, rpc.as_bytes(), resource.as_bytes(), id.as_bytes()]);
    Ok(Some(RequestKey { key, content: digest16(content) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_call_has_the_same_key_and_another_call_another() {
        let of = |rpc, resource, id, content: &[u8]| key(rpc, resource, id, &[content]).unwrap().unwrap();
        let first = of("SignalExecution", "a", "1", b"x");
        assert_eq!(first, of("SignalExecution", "a", "1", b"x"));
        assert_eq!(first.key, of("SignalExecution", "a", "1", b"y").key);
        assert_ne!(first.content, of("SignalExecution", "a", "1", b"y").content);
        for other in [("CancelExecution", "a", "1"), ("SignalExecution", "b", "1"), ("SignalExecution", "a", "2")] {
            assert_ne!(first.key, of(other.0, other.1, other.2, b"x").key);
        }
    }

    #[test]
    fn ids_are_bounded() {
        assert_eq!(key("r", "a", "", &[]), Ok(None));
        assert!(key("r", "a", &"ä".repeat(64), &[]).is_ok());
        assert!(key("r", "a", &"a".repeat(65), &[]).is_err());
        assert!(key("r", "a", "a\0", &[]).is_err());
    }
}
