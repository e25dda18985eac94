//! JSON text to the values of expressions and back.
//!
//! - Integers become 64-bit integers, signed first, unsigned where only that fits; never doubles.
//! - Numbers beyond that become [`Digits`]: they can be copied, but no arithmetic takes them, so nothing is rounded.
//! - Objects are written with their keys sorted; the text of a value depends on the value alone.

use super::{Budget, Problem};
use crate::domain::{PAYLOAD_BYTES_MAX, definition::duration, json};
use base64::Engine as _;
use cel_core::{MapKey, MessageValue, Value, ValueMap};
use std::{any::Any, borrow::Cow, sync::Arc, time::Duration};

/// Deepest nesting of a payload that an expression looks into.
const DEPTH_MAX: usize = 128;

/// A number that no machine type holds exactly, kept as its text.
#[derive(Clone, Debug)]
pub(super) struct Digits(Arc<str>);

impl MessageValue for Digits {
    fn type_name(&self) -> &str {
        "number beyond 64 bits"
    }

    fn eq_message(&self, other: &dyn MessageValue) -> bool {
        other.as_any().downcast_ref::<Self>().is_some_and(|other| other.0 == self.0)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn clone_boxed(&self) -> Box<dyn MessageValue> {
        Box::new(self.clone())
    }
}

/// Reads JSON text, paying for every byte.
pub(super) fn read(text: &str, budget: &mut Budget) -> Result<Value, Problem> {
    budget.spend_bytes(text.len())?;
    let mut cursor = json::Cursor::new(text);
    read_value(&mut cursor, 0)
}

fn read_value(cursor: &mut json::Cursor<'_>, depth: usize) -> Result<Value, Problem> {
    let malformed = |error: json::JsonError| Problem::Failed(format!("the payload is not JSON: {error}"));
    if depth > DEPTH_MAX {
        return Err(Problem::Failed(format!("the payload is nested more than {DEPTH_MAX} deep")));
    }
    Ok(match cursor.peek() {
        Some(b'"') => Value::String(match cursor.string().map_err(malformed)? {
            Cow::Borrowed(text) => Arc::from(text),
            Cow::Owned(text) => Arc::from(text),
        }),
        Some(b'-' | b'0'..=b'9') => number(cursor.number().map_err(malformed)?),
        Some(b'[') => {
            cursor.take(b'[');
            let mut items = Vec::new();
            if !cursor.take(b']') {
                loop {
                    items.push(read_value(cursor, depth + 1)?);
                    if cursor.take(b']') {
                        break;
                    }
                    cursor.expect(b',', "expected a comma").map_err(malformed)?;
                }
            }
            Value::List(Arc::from(items))
        }
        Some(b'{') => {
            cursor.take(b'{');
            let mut map = ValueMap::new();
            if !cursor.take(b'}') {
                loop {
                    let key = MapKey::String(Arc::from(cursor.string().map_err(malformed)?));
                    cursor.expect(b':', "expected a colon").map_err(malformed)?;
                    map.insert(key, read_value(cursor, depth + 1)?);
                    if cursor.take(b'}') {
                        break;
                    }
                    cursor.expect(b',', "expected a comma").map_err(malformed)?;
                }
            }
            Value::Map(Arc::new(map))
        }
        Some(_) | None => match cursor.word().map_err(malformed)? {
            "null" => Value::Null,
            word => Value::Bool(word == "true"),
        },
    })
}

fn number(text: &str) -> Value {
    if !text.contains(['.', 'e', 'E']) {
        if let Ok(number) = text.parse::<i64>() {
            return Value::Int(number);
        }
        if let Ok(number) = text.parse::<u64>() {
            return Value::UInt(number);
        }
        return Value::Message(Box::new(Digits(Arc::from(text))));
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Value::Double(number),
        Ok(_) | Err(_) => Value::Message(Box::new(Digits(Arc::from(text)))),
    }
}

/// Appends the JSON text of a value.
pub(super) fn write(out: &mut String, value: &Value) -> Result<(), Problem> {
    // Values may share parts, so a small value can have an endless text: the bound is checked as it grows.
    if out.len() > PAYLOAD_BYTES_MAX {
        return Err(Problem::TooLarge);
    }
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Int(number) => out.push_str(itoa::Buffer::new().format(*number)),
        Value::UInt(number) => out.push_str(itoa::Buffer::new().format(*number)),
        Value::Double(number) => {
            let text = serde_json::Number::from_f64(*number)
                .ok_or_else(|| Problem::NotJson("a number that is not finite".to_owned()))?;
            out.push_str(&text.to_string());
        }
        Value::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(out, item)?;
            }
            out.push(']');
        }
        Value::Map(map) => {
            out.push('{');
            for (index, (key, item)) in map.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                match key {
                    MapKey::String(text) => json::write_string(out, text),
                    MapKey::Bool(flag) => json::write_string(out, if *flag { "true" } else { "false" }),
                    MapKey::Int(number) => json::write_string(out, itoa::Buffer::new().format(*number)),
                    MapKey::UInt(number) => json::write_string(out, itoa::Buffer::new().format(*number)),
                }
                out.push(':');
                write(out, item)?;
            }
            out.push('}');
        }
        Value::Message(message) => match message.as_any().downcast_ref::<Digits>() {
            Some(digits) => out.push_str(&digits.0),
            None => return Err(Problem::NotJson(kind(value))),
        },
        Value::String(_) | Value::Bytes(_) | Value::Timestamp(_) | Value::Duration(_) => {
            json::write_string(out, &text(value).ok_or_else(|| Problem::NotJson(kind(value)))?);
        }
        Value::Type(_) | Value::Optional(_) | Value::Enum(_) => return Err(Problem::NotJson(kind(value))),
        Value::Error(error) => return Err(Problem::Failed(error.message.clone())),
    }
    Ok(())
}

/// Appends a value as a part of a text: texts as they are, everything else as JSON.
pub(super) fn write_text(out: &mut String, value: &Value) -> Result<(), Problem> {
    match text(value) {
        Some(text) => out.push_str(&text),
        None => write(out, value)?,
    }
    if out.len() > PAYLOAD_BYTES_MAX { Err(Problem::TooLarge) } else { Ok(()) }
}

/// The text of a value that JSON writes as one.
fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Bytes(bytes) => Some(Cow::Owned(base64::engine::general_purpose::STANDARD.encode(bytes))),
        Value::Timestamp(time) => {
            let micros = time.seconds.checked_mul(1_000_000)?.checked_add(i64::from(time.nanos) / 1_000)?;
            Some(Cow::Owned(duration::format_time(crate::domain::Timestamp::from_micros(micros))))
        }
        Value::Duration(span) => {
            let sign = if span.is_negative() { "-" } else { "" };
            let length = Duration::new(span.seconds.unsigned_abs(), span.nanos.unsigned_abs());
            Some(Cow::Owned(format!("{sign}{}", duration::format(length))))
        }
        Value::Null
        | Value::Bool(_)
        | Value::Int(_)
        | Value::UInt(_)
        | Value::Double(_)
        | Value::List(_)
        | Value::Map(_)
        | Value::Type(_)
        | Value::Optional(_)
        | Value::Message(_)
        | Value::Enum(_)
        | Value::Error(_) => None,
    }
}

/// What a value is, for messages.
pub(super) fn kind(value: &Value) -> String {
    value.type_value().name.to_string()
}
