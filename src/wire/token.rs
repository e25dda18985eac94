//! Task tokens as text: opaque to workers, one text for each delivery.
//!
//! A token is not signed: it holds the execution's uid, which nobody can guess. Layout, then base64url without padding:
//! version (1 byte), execution key (8, little-endian), uid (16), delivery (4, little-endian), unit (the rest, UTF-8).

use crate::domain::{DeliveryRef, ExecutionKey, TaskToken, Uid};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use std::sync::Arc;
use uuid::Uuid;

const VERSION: u8 = 1;
const HEAD: usize = 1 + 8 + 16 + 4;

/// Most characters of a token.
pub const LENGTH_MAX: usize = 512;

/// A token as text.
#[must_use]
pub fn render(token: &TaskToken) -> String {
    let unit = token.delivery.unit.as_bytes();
    let mut bytes = Vec::with_capacity(HEAD + unit.len());
    bytes.push(VERSION);
    bytes.extend(token.execution.0.to_le_bytes());
    bytes.extend(token.uid.0.as_bytes());
    bytes.extend(token.delivery.delivery.to_le_bytes());
    bytes.extend(unit);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Reads a token.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str) -> Result<TaskToken, &'static str> {
    if text.is_empty() {
        return Err("is required");
    }
    decode(text).ok_or("is not a token that this server gave out")
}

fn decode(text: &str) -> Option<TaskToken> {
    if text.len() > LENGTH_MAX {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (&version, rest) = bytes.split_first()?;
    let (execution, rest) = rest.split_first_chunk()?;
    let (uid, rest) = rest.split_first_chunk()?;
    let (delivery, unit) = rest.split_first_chunk()?;
    let unit = std::str::from_utf8(unit).ok()?;
    if version != VERSION || unit.is_empty() {
        return None;
    }
    Some(TaskToken {
        execution: ExecutionKey(i64::from_le_bytes(*execution)),
        uid: Uid(Uuid::from_bytes(*uid)),
        delivery: DeliveryRef { unit: Arc::from(unit), delivery: u32::from_le_bytes(*delivery) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(unit: &str) -> TaskToken {
        TaskToken {
            execution: ExecutionKey(7_000_000_000),
            uid: Uid(Uuid::from_u128(0x1234)),
            delivery: DeliveryRef { unit: Arc::from(unit), delivery: 3 },
        }
    }

    #[test]
    fn a_token_comes_back_as_it_went() {
        for unit in ["charge", "ship[3]", "compensate:charge"] {
            let text = render(&token(unit));
            assert!(text.len() <= LENGTH_MAX && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)));
            assert_eq!(parse(&text), Ok(token(unit)));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let text = render(&token("charge"));
        for bad in ["", "x", "AAAA", &text[..20], &format!("{text}="), &format!("{text}*"), &"A".repeat(513)] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn one_delivery_has_one_text() {
        // `charge` leaves bits over in the last character; a text that sets them would be a second name.
        let text = render(&token("char"));
        let twins = (b'A'..=b'z').filter(|last| {
            let mut twin = text.clone();
            twin.pop();
            twin.push(char::from(*last));
            parse(&twin) == Ok(token("char"))
        });
        assert_eq!(twins.count(), 1);
    }
}
