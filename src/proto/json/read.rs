//! Reads fields from JSON or from query parameters and collects every fault with its path.

use std::{collections::HashMap, fmt};

use super::{Codec, Message, document, nearest};

/// Most faults that one reading reports: enough to correct a request, too few to make a large answer.
pub const FAULTS_MAX: usize = 50;

/// What a field is read from.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// The text of one JSON value, known to be well formed.
    Json(&'a str),
    /// The text of a query parameter.
    Text {
        /// What remains of the parameter's dotted name: the path inside of the field.
        rest: Option<&'a str>,
        /// The parameter's value.
        text: &'a str,
    },
}

impl Source<'_> {
    fn is_null(self) -> bool {
        matches!(self, Self::Json("null"))
    }
}

/// One thing that is wrong with a document or a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Path of the field, as the caller wrote it: `steps[2].retry.jiter`. Empty for the document itself.
    pub field: String,
    /// What is wrong, a fragment that fits after "field: ".
    pub description: String,
}

/// All that is wrong with a document. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Fault { field, description }) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            let colon = if field.is_empty() { "" } else { ": " };
            write!(f, "{separator}{field}{colon}{description}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// Where a reading is, and what it has found wrong so far.
#[derive(Debug, Default)]
pub struct Reader {
    path: String,
    faults: Vec<Fault>,
    /// Parameters of fields that hold one value, to refuse a second one.
    given: Vec<String>,
}

impl Reader {
    /// Reads a JSON document into a message.
    pub fn document<M: Message>(&mut self, into: &mut M, json: &[u8]) {
        match document::check(json) {
            Ok(json) => self.message(into, Source::Json(json)),
            Err(why) => self.fault(format!("not a JSON document: {why}")),
        }
    }

    /// Reads a query parameter, whose dotted name is a path of fields, into a message.
    pub fn parameter<M: Message>(&mut self, into: &mut M, name: &str, text: &str) {
        self.at(name, |reader| reader.message(into, Source::Text { rest: Some(name), text }));
    }

    /// Runs `read` with a field or parameter of this name as the one that faults are of.
    pub fn at(&mut self, name: &str, read: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        read(self);
        self.path.truncate(length);
    }

    /// Says what is wrong with the field that is being read.
    pub fn fault(&mut self, description: impl Into<String>) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(Fault { field: self.path.clone(), description: description.into() });
        }
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// What was found wrong.
    pub fn finish(self) -> Result<(), Faults> {
        if self.faults.is_empty() { Ok(()) } else { Err(Faults(self.faults)) }
    }

    /// Reads a field that always has a value; `null` leaves it as it is.
    pub fn plain<C: Codec<T>, T>(&mut self, into: &mut T, from: Source<'_>) {
        self.once(from);
        if C::NULL || !from.is_null() {
            C::read(into, from, self);
        }
    }

    /// Reads a field that may be unset; `null` leaves it unset.
    pub fn optional<C: Codec<T>, T: Default>(&mut self, into: &mut Option<T>, from: Source<'_>) {
        self.once(from);
        if C::NULL || !from.is_null() {
            C::read(into.get_or_insert_default(), from, self);
        }
    }

    /// Reads one arm of a oneof; `null` leaves it unset.
    pub fn arm<C: Codec<T>, T: Default, O>(&mut self, into: &mut Option<O>, wrap: fn(T) -> O, from: Source<'_>) {
        if !C::NULL && from.is_null() {
            return;
        }
        if into.is_some() {
            return self.fault("only one of the fields that exclude each other may be given");
        }
        let mut value = T::default();
        C::read(&mut value, from, self);
        *into = Some(wrap(value));
    }

    /// Reads a list; a parameter adds one element, `null` none.
    pub fn list<C: Codec<T>, T: Default>(&mut self, into: &mut Vec<T>, from: Source<'_>) {
        let Source::Json(json) = from else {
            let mut value = T::default();
            C::read(&mut value, from, self);
            return into.push(value);
        };
        if from.is_null() {
            return;
        }
        if !json.starts_with('[') {
            return self.fault(format!("expected an array, not {}", document::kind(json)));
        }
        let length = self.path.len();
        let ended = document::elements(json, &mut |element| {
            self.path.push_str(&format!("[{}]", into.len()));
            let mut value = T::default();
            C::read(&mut value, Source::Json(element), self);
            into.push(value);
            self.path.truncate(length);
        });
        self.ended(ended);
    }

    /// Reads a map; `null` is an empty one.
    pub fn map<C: Codec<T>, T: Default>(&mut self, into: &mut HashMap<String, T>, from: Source<'_>) {
        let Source::Json(json) = from else {
            return self.fault("a map has no form as a query parameter");
        };
        if from.is_null() {
            return;
        }
        if !json.starts_with('{') {
            return self.fault(format!("expected an object, not {}", document::kind(json)));
        }
        let length = self.path.len();
        let ended = document::members(json, &mut |key, member| {
            self.path.push_str(&format!("[{key:?}]"));
            let mut value = T::default();
            C::read(&mut value, Source::Json(member), self);
            if into.insert(key.to_owned(), value).is_some() {
                self.fault("given twice");
            }
            self.path.truncate(length);
        });
        self.ended(ended);
    }

    pub(super) fn message<M: Message>(&mut self, into: &mut M, from: Source<'_>) {
        self.fields(M::FIELDS, from, &mut |field, from, reader| into.read(field, from, reader));
    }

    /// Finds the fields of a message by their names. Not generic, so that it is compiled once.
    fn fields(&mut self, fields: Fields, from: Source<'_>, read: &mut dyn FnMut(usize, Source<'_>, &mut Self)) {
        match from {
            Source::Json(json) if json.starts_with('{') => {
                let mut seen = vec![false; fields.len()];
                let ended = document::members(json, &mut |name, member| {
                    self.at(name, |reader| match place(fields, name) {
                        None => reader.unknown(fields, name),
                        Some(field) if seen[field] => reader.fault("given twice"),
                        Some(field) => {
                            seen[field] = true;
                            read(field, Source::Json(member), reader);
                        }
                    });
                });
                self.ended(ended);
            }
            Source::Json(json) => self.fault(format!("expected an object, not {}", document::kind(json))),
            Source::Text { rest: None, .. } => self.fault("has fields of its own; name one of them after a dot"),
            Source::Text { rest: Some(path), text } => {
                let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
                match place(fields, name) {
                    None => self.unknown(fields, name),
                    Some(field) => read(field, Source::Text { rest, text }, self),
                }
            }
        }
    }

    fn unknown(&mut self, fields: Fields, name: &str) {
        if self.faults.len() < FAULTS_MAX {
            let meant = nearest(name, fields.iter().map(|(_, json)| *json));
            let hint = meant.map(|meant| format!("; did you mean \"{meant}\"?")).unwrap_or_default();
            self.fault(format!("no such field{hint}"));
        }
    }

    /// Refuses a second parameter for a field that holds one value.
    fn once(&mut self, from: Source<'_>) {
        if matches!(from, Source::Text { rest: None, .. }) {
            let name: String = self.path.replace('_', "").to_lowercase();
            if self.given.contains(&name) {
                self.fault("given twice");
            } else {
                self.given.push(name);
            }
        }
    }

    /// The text was checked as a whole, so taking it apart does not fail; if it does, that is said and not hidden.
    fn ended(&mut self, ended: Result<(), serde_json::Error>) {
        if let Err(why) = ended {
            self.fault(why.to_string());
        }
    }
}

type Fields = &'static [(&'static str, &'static str)];

fn place(fields: Fields, name: &str) -> Option<usize> {
    fields.iter().position(|(proto, json)| *json == name || *proto == name)
}
