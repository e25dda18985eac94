//! One JSON document: an input, an output, a signal's content.
//!
//! The text is kept byte for byte, so every digit of a number survives; cloning is a counter.

use std::{fmt, sync::Arc};

/// Most bytes of JSON text in one payload: 2 MiB.
pub const PAYLOAD_BYTES_MAX: usize = 2 * 1024 * 1024;

/// JSON text that is known to be well formed (see `wire::payload` for how it is checked at the edge).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Payload(Arc<str>);

impl Payload {
    /// Takes JSON text that the caller has checked, or made itself from values.
    #[must_use]
    pub fn from_json(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// JSON `null`.
    #[must_use]
    pub fn null() -> Self {
        Self(Arc::from("null"))
    }

    /// The JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Length of the JSON text in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never true: no JSON document has an empty text.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Payload {
    // Payloads may hold secrets, so only tests see them whole; logs print the length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if cfg!(test) { write!(f, "Payload({})", self.0) } else { write!(f, "Payload({} bytes)", self.0.len()) }
    }
}
