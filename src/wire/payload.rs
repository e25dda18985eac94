//! Payloads on the wire: JSON text is judged here once, and kept byte for byte.
//!
//! Refused on every store alike: what RFC 8259 does not allow, U+0000 and lone surrogates in strings, nesting deeper
//! than 127, a number beyond the doubles, and, in the structured form, an integer that a double cannot hold exactly.

use crate::domain::{PAYLOAD_BYTES_MAX, Payload};
use crate::proto::workflow::{self as proto, payload::Content};
use prost_types::{Value, value::Kind};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// The first integer that has a neighbour which the same double may stand for.
const INTEGER_END: f64 = 9_007_199_254_740_992.0;

/// Why a payload is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// There is none, or it has no content, where one is required.
    #[error("is required: a JSON document")]
    Missing,
    /// It is longer than a payload may be.
    #[error("has {actual} bytes of JSON text; at most {limit} are allowed")]
    TooLarge {
        /// Most bytes.
        limit: usize,
        /// Its bytes.
        actual: usize,
    },
    /// It is not a JSON document that may be stored.
    #[error("{0}")]
    Malformed(String),
}

/// Takes a payload that must be there.
///
/// # Errors
/// Why it is refused.
pub fn parse_required(payload: Option<proto::Payload>) -> Result<Payload, Fault> {
    parse_within(payload, PAYLOAD_BYTES_MAX)
}

/// Takes a payload that may be absent; one that is there must have content.
///
/// # Errors
/// Why it is refused.
pub fn parse_optional(payload: Option<proto::Payload>) -> Result<Option<Payload>, Fault> {
    parse_optional_within(payload, PAYLOAD_BYTES_MAX)
}

/// As [`parse_optional`], with a limit of its own.
///
/// # Errors
/// Why it is refused.
pub fn parse_optional_within(payload: Option<proto::Payload>, limit: usize) -> Result<Option<Payload>, Fault> {
    payload.map(|payload| parse_within(Some(payload), limit)).transpose()
}

fn parse_within(payload: Option<proto::Payload>, limit: usize) -> Result<Payload, Fault> {
    match payload.and_then(|payload| payload.content) {
        None => Err(Fault::Missing),
        Some(Content::Json(text)) => parse_text(text, limit),
        Some(Content::Value(value)) => parse_value(&value, limit),
        Some(Content::Reference(_)) => Err(Fault::Malformed("a reference is for stored events only".to_owned())),
    }
}

/// Takes JSON text of at most `limit` bytes.
///
/// # Errors
/// Why it is refused.
pub fn parse_text(text: String, limit: usize) -> Result<Payload, Fault> {
    if text.len() > limit {
        return Err(Fault::TooLarge { limit, actual: text.len() });
    }
    // Raw U+0000 is a control character, which the parser refuses inside strings and outside.
    serde_json::from_str::<Storable>(&text).map_err(|error| Fault::Malformed(format!("is not valid JSON: {error}")))?;
    Ok(Payload::from_json(text))
}

/// A payload for the wire.
#[must_use]
pub fn render(payload: &Payload) -> proto::Payload {
    proto::Payload { content: Some(Content::Json(payload.as_str().to_owned())) }
}

fn parse_value(value: &Value, limit: usize) -> Result<Payload, Fault> {
    let mut text = String::new();
    write_value(value, &mut text)?;
    if text.len() > limit {
        return Err(Fault::TooLarge { limit, actual: text.len() });
    }
    Ok(Payload::from_json(text))
}

// Recursion is bounded: the protobuf decoder refuses messages nested deeper than 100.
fn write_value(value: &Value, out: &mut String) -> Result<(), Fault> {
    match value.kind.as_ref() {
        None => return Err(Fault::Malformed("a value has no kind".to_owned())),
        Some(Kind::NullValue(_)) => out.push_str("null"),
        Some(Kind::BoolValue(value)) => out.push_str(if *value { "true" } else { "false" }),
        Some(Kind::NumberValue(value)) => write_number(*value, out)?,
        Some(Kind::StringValue(text)) => write_string(text, out)?,
        Some(Kind::ListValue(list)) => {
            out.push('[');
            for (index, value) in list.values.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(value, out)?;
            }
            out.push(']');
        }
        Some(Kind::StructValue(object)) => {
            out.push('{');
            for (index, (name, value)) in object.fields.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_string(name, out)?;
                out.push(':');
                write_value(value, out)?;
            }
            out.push('}');
        }
    }
    Ok(())
}

fn write_string(text: &str, out: &mut String) -> Result<(), Fault> {
    if text.contains('\0') {
        return Err(Fault::Malformed(NUL.to_owned()));
    }
    out.push_str(&serde_json::to_string(text).expect("a string is always JSON"));
    Ok(())
}

fn write_number(number: f64, out: &mut String) -> Result<(), Fault> {
    if !number.is_finite() {
        return Err(Fault::Malformed("a number is not finite".to_owned()));
    }
    let whole = number.fract() == 0.0;
    if whole && number.abs() >= INTEGER_END {
        let hint = "send it in `json`, where every digit is kept";
        return Err(Fault::Malformed(format!(
            "a number is an integer at or beyond 2^53, which may have been rounded; {hint}"
        )));
    }
    // People who type 3 mean the integer; a double has no way to say so.
    if whole && !(number == 0.0 && number.is_sign_negative()) {
        #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
        out.push_str(itoa::Buffer::new().format(number as i64));
    } else {
        out.push_str(&serde_json::to_string(&number).expect("a finite number is always JSON"));
    }
    Ok(())
}

const NUL: &str = "a string holds U+0000, which cannot be stored";

/// Any JSON document that can be stored, judged and dropped.
struct Storable;

impl<'de> Deserialize<'de> for Storable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Storable {
    type Value = Self;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON document")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self, E> {
        if text.contains('\0') { Err(E::custom(NUL)) } else { Ok(self) }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self, A::Error> {
        while entries.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self, A::Error> {
        while entries.next_entry::<Name, Self>()?.is_some() {}
        Ok(self)
    }
}

/// The name of an object's entry.
struct Name;

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Self)
    }
}

impl Visitor<'_> for Name {
    type Value = Self;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self, E> {
        if text.contains('\0') { Err(E::custom(NUL)) } else { Ok(self) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Result<Payload, Fault> {
        parse_text(text.to_owned(), PAYLOAD_BYTES_MAX)
    }

    fn value(kind: Kind) -> Result<Payload, Fault> {
        parse_required(Some(proto::Payload { content: Some(Content::Value(Value { kind: Some(kind) })) }))
    }

    #[test]
    fn text_is_kept_byte_for_byte() {
        for text in [
            "null",
            "0",
            "false",
            "[]",
            "{}",
            "\"\"",
            " { \"b\" : 1.50, \"a\": [9007199254740993, 1e2] } ",
            "123456789012345678901234567890",
            "\"\\ud83d\\ude00 \\u00e9 ü\"",
            "-0.0",
        ] {
            assert_eq!(json(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn what_is_not_json_or_cannot_be_stored_is_refused() {
        for text in [
            "",
            " ",
            "{",
            "[1,]",
            "{\"a\":1,}",
            "01",
            "1.",
            "+1",
            "NaN",
            "Infinity",
            "'a'",
            "nul",
            "1 2",
            "1e999",
            "\"a\u{0}b\"",
            "\"a\\u0000b\"",
            "{\"a\\u0000\":1}",
            "\"\\ud800\"",
            "\"\\udc00x\"",
            "\"\n\"",
            "\u{feff}1",
        ] {
            assert!(matches!(json(text), Err(Fault::Malformed(_))), "{text:?}");
        }
        assert!(json(&format!("{}{}", "[".repeat(127), "]".repeat(127))).is_ok());
        assert!(json(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000))).is_err());
    }

    #[test]
    fn the_limit_is_two_mebibytes() {
        let text = format!("\"{}\"", "a".repeat(PAYLOAD_BYTES_MAX - 2));
        assert_eq!(json(&text).unwrap().len(), PAYLOAD_BYTES_MAX);
        let fault = json(&format!("{text} ")).unwrap_err();
        assert_eq!(fault, Fault::TooLarge { limit: PAYLOAD_BYTES_MAX, actual: PAYLOAD_BYTES_MAX + 1 });
    }

    #[test]
    fn a_structured_value_is_converted_exactly_or_refused() {
        assert_eq!(value(Kind::NumberValue(3.0)).unwrap().as_str(), "3");
        assert_eq!(value(Kind::NumberValue(-1.5)).unwrap().as_str(), "-1.5");
        assert_eq!(value(Kind::NumberValue(-0.0)).unwrap().as_str(), "-0.0");
        assert_eq!(value(Kind::NumberValue(INTEGER_END - 1.0)).unwrap().as_str(), "9007199254740991");
        for number in [INTEGER_END, -INTEGER_END, 1e300, f64::NAN, f64::INFINITY] {
            assert!(value(Kind::NumberValue(number)).is_err(), "{number}");
        }
        let object = prost_types::Struct {
            fields: [("a\"".to_owned(), Value { kind: Some(Kind::NullValue(0)) })].into_iter().collect(),
        };
        assert_eq!(value(Kind::StructValue(object)).unwrap().as_str(), r#"{"a\"":null}"#);
        assert!(value(Kind::StringValue("a\0b".to_owned())).is_err());
        assert!(value(Kind::ListValue(prost_types::ListValue { values: vec![Value { kind: None }] })).is_err());
    }

    #[test]
    fn a_payload_without_an_arm_or_with_a_reference_is_refused() {
        assert_eq!(parse_required(None), Err(Fault::Missing));
        assert_eq!(parse_required(Some(proto::Payload { content: None })), Err(Fault::Missing));
        assert_eq!(parse_optional(None), Ok(None));
        assert!(parse_optional(Some(proto::Payload { content: None })).is_err());
        let reference = Content::Reference(proto::PayloadReference { sha256: vec![0; 32], size_bytes: 1 });
        assert!(parse_optional(Some(proto::Payload { content: Some(reference) })).is_err());
    }
}
