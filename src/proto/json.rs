//! The canonical JSON form of the protobuf messages, generated from their descriptors.
//!
//! - Writing: lowerCamelCase names, enums by name, 64-bit integers as strings, bytes as base64. Zero scalars, enums and
//!   empty lists and maps are written; unset messages, unset `optional` fields and unset oneofs are left out.
//! - Reading: lowerCamelCase or snake_case names, numbers or numeric strings, `null` as unset. Unknown fields, fields
//!   given twice and two fields of a oneof are refused. One reading finds *all* faults, each with its path.
//! - A [`Payload`](crate::proto::workflow::Payload) is the plain JSON document itself, byte for byte; there `null` is a value.
//!
//! `build/json.rs` writes one [`Message`] impl a message, which names a codec for each field. A query parameter is read
//! by the same impl as a JSON field ([`Source`]), so that there is one list of fields and one reading of each type.
//!
//! # Design
//!
//! Nothing here is generic over a serializer: a member's value is the slice of text that `serde_json` has found, and
//! writing appends to a buffer. That compiles fast, keeps every digit of a payload, and a bad value never stops the
//! reading of the next one. The `serde` impls of the messages go through the text, so they work with `serde_json` only.

mod codec;
mod document;
mod nearest;
mod payload;
mod pretty;
mod read;
mod wkt;
mod write;

pub use codec::{B64, Bool, Codec, Enum, F64, I32, I64, Msg, Names, Scalar, Str, U32, U64};
pub use nearest::nearest;
pub use payload::Document;
pub use pretty::pretty;
pub use read::{FAULTS_MAX, Fault, Faults, Reader, Source};
pub use wkt::{Mask, Span, Time};
pub use write::{Unwritable, Writer};

/// A message that has a JSON form. Implemented by generated code.
pub trait Message: Default {
    /// Full name, such as `orbit.workflow.v1.Event`.
    const NAME: &'static str;
    /// Names of each field: as in the proto file, and in JSON.
    const FIELDS: &'static [(&'static str, &'static str)];
    /// Reads the field at this place in [`Self::FIELDS`].
    fn read(&mut self, field: usize, from: Source<'_>, reader: &mut Reader);
    /// Writes all fields as members of the object that is open.
    fn write(&self, writer: &mut Writer);
}

/// Reads a message from a JSON document.
///
/// # Errors
/// All faults of the document, up to [`FAULTS_MAX`], each with the path of its field.
pub fn from_slice<M: Message>(json: &[u8]) -> Result<M, Faults> {
    let mut message = M::default();
    let mut reader = Reader::default();
    reader.document(&mut message, json);
    reader.finish().map(|()| message)
}

/// Writes a message as JSON text on one line, except for line breaks inside of payloads.
///
/// # Errors
/// A value has no JSON form: a time out of range, a payload that is a reference or no JSON text.
pub fn to_string<M: Message>(message: &M) -> Result<String, Unwritable> {
    let mut writer = Writer::default();
    writer.object(|writer| message.write(writer));
    writer.finish()
}

/// As [`to_string`], without zero scalars, empty lists and empty maps. Reading it gives the same message.
///
/// # Errors
/// As [`to_string`].
pub fn to_string_sparse<M: Message>(message: &M) -> Result<String, Unwritable> {
    let mut writer = Writer::sparse();
    writer.object(|writer| message.write(writer));
    writer.finish()
}

/// Writes a message as JSON text, indented by two spaces, payloads too.
///
/// # Errors
/// As [`to_string`].
pub fn to_string_pretty<M: Message>(message: &M) -> Result<String, Unwritable> {
    to_string(message).map(|text| pretty(&text))
}

/// `serde` for a message, through its JSON text.
macro_rules! serde_of {
    ($($message:ty),* $(,)?) => { $(
        impl ::serde::Serialize for $message {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let text = super::to_string(self).map_err(::serde::ser::Error::custom)?;
                let raw = ::serde_json::value::RawValue::from_string(text).map_err(::serde::ser::Error::custom)?;
                ::serde::Serialize::serialize(&raw, serializer)
            }
        }
        impl<'de> ::serde::Deserialize<'de> for $message {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let raw = <Box<::serde_json::value::RawValue> as ::serde::Deserialize>::deserialize(deserializer)?;
                super::from_slice(raw.get().as_bytes()).map_err(::serde::de::Error::custom)
            }
        }
    )* };
}

/// The generated impls.
#[allow(clippy::all, clippy::pedantic, unused_variables, reason = "generated code")]
mod generated {
    use super::*;

    include!(concat!(env!("OUT_DIR"), "/json.rs"));
}

#[cfg(test)]
mod tests;
