//! Takes a JSON document apart, one level at a time, without copying values.

use std::{borrow::Cow, fmt};

use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// What a JSON text holds, for messages: "expected a string, not {kind}".
pub(super) fn kind(json: &str) -> &'static str {
    match json.as_bytes().first() {
        Some(b'"') => "a string",
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    }
}

/// Whether a JSON text is a number.
pub(super) fn is_number(json: &str) -> bool {
    json.starts_with(|first: char| first.is_ascii_digit() || first == '-')
}

/// The text of a JSON string; none if it is something else or has an escape that is no character.
pub(super) fn string(json: &str) -> Option<Cow<'_, str>> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') { serde_json::from_str(json).ok().map(Cow::Owned) } else { Some(Cow::Borrowed(inner)) }
}

/// Checks that the text is one JSON document and returns it without the white space around it.
pub(super) fn check(json: &[u8]) -> Result<&str, serde_json::Error> {
    serde_json::from_slice::<&RawValue>(json).map(RawValue::get)
}

/// Calls `each` with the name and the text of every member of an object, in their order.
pub(super) fn members(json: &str, each: &mut dyn FnMut(&str, &str)) -> Result<(), serde_json::Error> {
    Members(each).deserialize(&mut serde_json::Deserializer::from_str(json))
}

/// Calls `each` with the text of every element of an array, in their order.
pub(super) fn elements(json: &str, each: &mut dyn FnMut(&str)) -> Result<(), serde_json::Error> {
    Elements(each).deserialize(&mut serde_json::Deserializer::from_str(json))
}

struct Members<'f>(&'f mut dyn FnMut(&str, &str));

impl<'de> DeserializeSeed<'de> for Members<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<Name<'_>>()? {
            (self.0)(&name.0, map.next_value::<&RawValue>()?.get());
        }
        Ok(())
    }
}

struct Elements<'f>(&'f mut dyn FnMut(&str));

impl<'de> DeserializeSeed<'de> for Elements<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(element) = seq.next_element::<&RawValue>()? {
            (self.0)(element.get());
        }
        Ok(())
    }
}

/// A member's name, borrowed unless it has escapes.
struct Name<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(Text)
    }
}
