//! Values for the places of a statement, before a dialect makes its own arguments of them.

use std::sync::Arc;

/// One value. Even a null has a kind, since PostgreSQL wants to know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    /// An integer.
    Integer(Option<i64>),
    /// Text.
    Text(Option<Arc<str>>),
    /// Bytes.
    Bytes(Option<Vec<u8>>),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(Some(value))
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        i64::from(value).into()
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        i64::from(value).into()
    }
}

impl From<Option<i64>> for Value {
    fn from(value: Option<i64>) -> Self {
        Self::Integer(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(Some(value.into()))
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(Some(value.into()))
    }
}

impl From<&Arc<str>> for Value {
    fn from(value: &Arc<str>) -> Self {
        Self::Text(Some(value.clone()))
    }
}

impl From<Option<&str>> for Value {
    fn from(value: Option<&str>) -> Self {
        Self::Text(value.map(Arc::from))
    }
}

impl From<&[u8]> for Value {
    fn from(value: &[u8]) -> Self {
        Self::Bytes(Some(value.to_vec()))
    }
}

impl<const N: usize> From<&[u8; N]> for Value {
    fn from(value: &[u8; N]) -> Self {
        value.as_slice().into()
    }
}

impl From<Option<&[u8]>> for Value {
    fn from(value: Option<&[u8]>) -> Self {
        Self::Bytes(value.map(<[u8]>::to_vec))
    }
}

/// The values of a statement: `$1` is the first.
#[derive(Clone, Default, Debug)]
pub(crate) struct Values(pub(crate) Vec<Value>);

impl Values {
    /// Adds the next value.
    pub(crate) fn push(&mut self, value: impl Into<Value>) {
        self.0.push(value.into());
    }

    /// Adds the next value.
    pub(crate) fn with(mut self, value: impl Into<Value>) -> Self {
        self.push(value);
        self
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl<const N: usize> From<[Value; N]> for Values {
    fn from(values: [Value; N]) -> Self {
        Self(values.into())
    }
}

impl From<Vec<Value>> for Values {
    fn from(values: Vec<Value>) -> Self {
        Self(values)
    }
}
