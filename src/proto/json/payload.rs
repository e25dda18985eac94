//! A payload is its JSON document: the one message whose JSON form is not an object of its fields.

use prost_types::{Value, value::Kind};

use super::{Codec, F64, Reader, Scalar, Source, Writer, document};
use crate::proto::workflow::{Payload, payload::Content};

/// The codec of a [`Payload`]. Reading keeps the text byte for byte, `null` included.
///
/// What a payload may hold beyond well-formed JSON is judged where requests of all forms are judged, not here.
#[derive(Debug)]
pub struct Document;

impl Codec<Payload> for Document {
    const NULL: bool = true;

    fn read(into: &mut Payload, from: Source<'_>, reader: &mut Reader) {
        let json = match from {
            Source::Json(json) => json,
            Source::Text { rest: Some(_), .. } => return reader.fault("no such field; a payload is one JSON document"),
            Source::Text { rest: None, text } => match document::check(text.as_bytes()) {
                Ok(json) => json,
                Err(why) => return reader.fault(format!("not a JSON document: {why}")),
            },
        };
        into.content = Some(Content::Json(json.to_owned()));
    }

    fn write(value: &Payload, writer: &mut Writer) {
        match &value.content {
            None => writer.raw("null"),
            // Text of a foreign server or a damaged row must not break the document around it.
            Some(Content::Json(json)) => match document::check(json.as_bytes()) {
                Ok(json) => writer.raw(json),
                Err(why) => writer.fail(format!("a payload is no JSON document: {why}")),
            },
            Some(Content::Value(value)) => write_value(value, writer),
            Some(Content::Reference(_)) => writer.fail("a payload is a reference whose content was not put back"),
        }
    }
}

fn write_value(value: &Value, writer: &mut Writer) {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => writer.raw("null"),
        Some(Kind::BoolValue(value)) => writer.raw(if *value { "true" } else { "false" }),
        Some(Kind::NumberValue(number)) if number.is_finite() => F64::print(number, writer),
        Some(Kind::NumberValue(number)) => writer.fail(format!("a payload has the number {number}")),
        Some(Kind::StringValue(text)) => writer.string(text),
        Some(Kind::ListValue(list)) => writer.array(&list.values, write_value),
        Some(Kind::StructValue(members)) => writer.object(|writer| {
            for (name, value) in &members.fields {
                writer.name(name);
                write_value(value, writer);
            }
        }),
    }
}
