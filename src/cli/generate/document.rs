//! A JSON document whose objects keep the order of their members, as the author of a schema wrote them.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// A JSON value. Of numbers only whether they are integers matters to types.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Document {
    Null,
    Bool(bool),
    Integer,
    Fraction,
    Text(String),
    List(Vec<Document>),
    Object(Vec<(String, Document)>),
}

impl Document {
    /// The member `key` of an object.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.members().iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The members of an object; of anything else none.
    pub(super) fn members(&self) -> &[(String, Self)] {
        match self {
            Self::Object(members) => members,
            Self::Null | Self::Bool(_) | Self::Integer | Self::Fraction | Self::Text(_) | Self::List(_) => &[],
        }
    }

    /// The items of a list; of anything else none.
    pub(super) fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            Self::Null | Self::Bool(_) | Self::Integer | Self::Fraction | Self::Text(_) | Self::Object(_) => &[],
        }
    }

    /// A text.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Null | Self::Bool(_) | Self::Integer | Self::Fraction | Self::List(_) | Self::Object(_) => None,
        }
    }

    /// The value at a JSON pointer, without the `#` before it.
    pub(super) fn at(&self, pointer: &str) -> Option<&Self> {
        pointer.split('/').skip(1).try_fold(self, |value, part| {
            let part = part.replace("~1", "/").replace("~0", "~");
            match value {
                Self::List(items) => part.parse::<usize>().ok().and_then(|index| items.get(index)),
                Self::Null | Self::Bool(_) | Self::Integer | Self::Fraction | Self::Text(_) | Self::Object(_) => {
                    value.get(&part)
                }
            }
        })
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Ordered)
    }
}

struct Ordered;

impl<'de> Visitor<'de> for Ordered {
    type Value = Document;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Document, E> {
        Ok(Document::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Document, E> {
        Ok(Document::Bool(value))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Document, E> {
        Ok(Document::Integer)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Document, E> {
        Ok(Document::Integer)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Document, E> {
        Ok(Document::Fraction)
    }

    fn visit_str<E>(self, value: &str) -> Result<Document, E> {
        Ok(Document::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Document, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Document::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Document, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = object.next_entry()? {
            members.push(member);
        }
        Ok(Document::Object(members))
    }
}
