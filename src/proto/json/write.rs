//! Writes JSON text.

use std::collections::HashMap;

use super::Codec;

/// A value has no JSON form. Text from here never reaches a caller as a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no JSON form: {0}")]
pub struct Unwritable(String);

/// JSON text in the making.
#[derive(Debug, Default)]
pub struct Writer {
    /// Whether fields without presence are left out where they have their default.
    sparse: bool,
    text: String,
    fault: Option<Unwritable>,
}

impl Writer {
    /// Leaves out what says nothing: zero scalars, empty lists and maps. For readers that take a field that is there
    /// for one that was meant.
    #[must_use]
    pub fn sparse() -> Self {
        Self { sparse: true, ..Self::default() }
    }

    /// The text.
    ///
    /// # Errors
    /// The first value that has no JSON form.
    pub fn finish(self) -> Result<String, Unwritable> {
        self.fault.map_or(Ok(self.text), Err)
    }

    /// Says that a value has no JSON form.
    pub fn fail(&mut self, why: impl Into<String>) {
        self.fault.get_or_insert_with(|| Unwritable(why.into()));
    }

    /// Appends text that is JSON already.
    pub fn raw(&mut self, json: &str) {
        self.text.push_str(json);
    }

    /// Appends a string, quoted.
    pub fn string(&mut self, text: &str) {
        self.text.push_str(&serde_json::to_string(text).expect("a string always has a JSON form"));
    }

    /// Appends an object with the members that `members` writes.
    pub fn object(&mut self, members: impl FnOnce(&mut Self)) {
        self.text.push('{');
        members(self);
        self.text.push('}');
    }

    /// Appends an array of the elements.
    pub fn array<T>(&mut self, elements: impl IntoIterator<Item = T>, mut write: impl FnMut(T, &mut Self)) {
        self.text.push('[');
        for element in elements {
            self.separate();
            write(element, self);
        }
        self.text.push(']');
    }

    /// Begins a member; its value must follow.
    pub fn name(&mut self, name: &str) {
        self.separate();
        self.string(name);
        self.text.push(':');
    }

    /// Writes a field that always has a value.
    pub fn plain<C: Codec<T>, T: Default + PartialEq>(&mut self, name: &str, value: &T) {
        if !self.sparse || *value != T::default() {
            self.always::<C, T>(name, value);
        }
    }

    /// Writes a field that is set, whatever its value.
    pub fn always<C: Codec<T>, T>(&mut self, name: &str, value: &T) {
        self.name(name);
        C::write(value, self);
    }

    /// Writes a field unless it is unset.
    pub fn optional<C: Codec<T>, T>(&mut self, name: &str, value: &Option<T>) {
        if let Some(value) = value {
            self.always::<C, T>(name, value);
        }
    }

    /// Writes a list.
    pub fn list<C: Codec<T>, T>(&mut self, name: &str, values: &[T]) {
        if self.sparse && values.is_empty() {
            return;
        }
        self.name(name);
        self.array(values, C::write);
    }

    /// Writes a map, by its keys' order: the same message gives the same text.
    pub fn map<C: Codec<T>, T>(&mut self, name: &str, values: &HashMap<String, T>) {
        if self.sparse && values.is_empty() {
            return;
        }
        let mut entries: Vec<_> = values.iter().collect();
        entries.sort_by_key(|(key, _)| *key);
        self.name(name);
        self.object(|writer| {
            for (key, value) in entries {
                writer.always::<C, T>(key, value);
            }
        });
    }

    /// Puts a comma, except before the first member or element. No JSON value ends in `{` or `[`.
    fn separate(&mut self) {
        if !self.text.ends_with(['{', '[']) {
            self.text.push(',');
        }
    }
}
