//! What a schema says of a value's form, as far as types of programming languages can say it.
//!
//! - What a type cannot say (patterns, bounds, conditions) is left to the server, which judges every payload.
//! - What is no form at all (`{}`, `not`, mixed enumerations, `allOf` of several) is any value.

use super::{
    document::Document,
    name::{self, Scope},
};
use std::collections::HashMap;

/// The form of a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    /// Any JSON.
    Any,
    Null,
    Bool,
    Integer,
    Number,
    Text,
    List(Box<Shape>),
    /// An object with any keys.
    Map(Box<Shape>),
    /// A declaration of this name.
    Named(String),
    Nullable(Box<Shape>),
    /// One of several, none of them null.
    Union(Vec<Shape>),
}

impl Shape {
    /// Whether this form or one inside it passes the test.
    pub(super) fn contains(&self, test: &dyn Fn(&Self) -> bool) -> bool {
        test(self)
            || match self {
                Self::List(inner) | Self::Map(inner) | Self::Nullable(inner) => inner.contains(test),
                Self::Union(parts) => parts.iter().any(|part| part.contains(test)),
                Self::Any | Self::Null | Self::Bool | Self::Integer | Self::Number | Self::Text | Self::Named(_) => {
                    false
                }
            }
    }
}

impl Declaration {
    /// Whether a form in it passes the test.
    pub(super) fn contains(&self, test: &dyn Fn(&Shape) -> bool) -> bool {
        match &self.body {
            Body::Record(fields) => fields.iter().any(|field| field.shape.contains(test)),
            Body::Choice(_) => false,
            Body::Alias(shape) => shape.contains(test),
        }
    }
}

/// A type with a name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Declaration {
    pub(super) name: String,
    /// What the schema says about it, for people. May be empty.
    pub(super) doc: String,
    pub(super) body: Body,
}

/// What a declaration declares.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Body {
    /// An object with known members, at least one.
    Record(Vec<Field>),
    /// One of these texts.
    Choice(Vec<String>),
    /// Another name for a form.
    Alias(Shape),
}

/// A member of a record.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    pub(super) key: String,
    pub(super) shape: Shape,
    pub(super) is_required: bool,
    pub(super) doc: String,
}

/// Reads one schema and declares what it needs.
pub(super) struct Reader<'a> {
    root: &'a Document,
    /// What names of definitions inside the schema begin with.
    stem: String,
    scope: &'a mut Scope,
    declarations: &'a mut Vec<Declaration>,
    /// Declarations of what `$ref` names, by pointer, also those that are being made.
    references: HashMap<String, String>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        root: &'a Document,
        stem: &str,
        scope: &'a mut Scope,
        declarations: &'a mut Vec<Declaration>,
    ) -> Self {
        Self { root, stem: stem.to_owned(), scope, declarations, references: HashMap::new() }
    }

    /// Declares the whole schema under a name, whatever its form is.
    pub(super) fn declare(mut self, name: &str) {
        let root = self.root;
        let name = self.scope.unique(name);
        self.references.insert(String::new(), name.clone());
        self.declare_as(root, name);
    }

    /// Declares a schema under a name that is taken already.
    fn declare_as(&mut self, schema: &Document, name: String) {
        // Kept free: what the body needs is declared first, but a reader looks for the whole at the top.
        let place = self.declarations.len();
        let body = match self.body(schema, &name) {
            Ok(body) => body,
            Err(shape) => Body::Alias(shape),
        };
        self.declarations.insert(place, Declaration { name, doc: doc(schema), body });
    }

    /// The form of a schema; `name` is for the declaration that it may need.
    fn shape(&mut self, schema: &Document, name: &str) -> Shape {
        if let Some(pointer) = schema.get("$ref").and_then(Document::text).and_then(|text| text.strip_prefix('#')) {
            return self.reference(pointer);
        }
        let (schema, is_nullable) = without_null(schema);
        let shape = match plain(&schema) {
            Some(shape) => shape,
            None if is_declared(&schema) => {
                let name = self.scope.unique(name);
                self.declare_as(&schema, name.clone());
                Shape::Named(name)
            }
            None => self.compound(&schema, name),
        };
        nullable(shape, is_nullable)
    }

    /// What a declaration of this schema has; a form, if it needs none.
    fn body(&mut self, schema: &Document, name: &str) -> Result<Body, Shape> {
        if let Some(values) = choice(schema) {
            return Ok(Body::Choice(values));
        }
        if is_record(schema) {
            return Ok(Body::Record(self.fields(schema, name)));
        }
        let (inner, is_nullable) = without_null(schema);
        if is_nullable || plain(schema).is_some() || schema.get("$ref").is_some() {
            // The value itself has no name, but what it is when it is not null may need one.
            return Err(if is_nullable && is_declared(&inner) {
                let name = self.scope.unique(&format!("{name}Value"));
                self.declare_as(&inner, name.clone());
                nullable(Shape::Named(name), true)
            } else {
                self.shape(schema, name)
            });
        }
        Err(self.compound(schema, name))
    }

    fn fields(&mut self, schema: &Document, name: &str) -> Vec<Field> {
        let required: Vec<&str> =
            schema.get("required").map(Document::items).unwrap_or_default().iter().filter_map(Document::text).collect();
        let properties = schema.get("properties").map(Document::members).unwrap_or_default();
        properties
            .iter()
            .map(|(key, property)| Field {
                key: key.clone(),
                shape: self.shape(property, &format!("{name}{}", name::upper_camel(key))),
                is_required: required.contains(&key.as_str()),
                doc: doc(property),
            })
            .collect()
    }

    /// Lists, maps and alternatives.
    fn compound(&mut self, schema: &Document, name: &str) -> Shape {
        for word in ["anyOf", "oneOf"] {
            if let Some(parts) = schema.get(word) {
                return self.union(parts.items(), name);
            }
        }
        if let Some([only]) = schema.get("allOf").map(Document::items) {
            return self.shape(only, name);
        }
        match schema.get("type").and_then(Document::text) {
            Some("array") => self.list(schema, name),
            Some("object") => self.map(schema, name),
            None if schema.get("items").is_some() => self.list(schema, name),
            None if schema.get("additionalProperties").is_some() => self.map(schema, name),
            Some(_) | None => self.union_of_types(schema, name),
        }
    }

    fn list(&mut self, schema: &Document, name: &str) -> Shape {
        let item = match schema.get("items") {
            Some(items) if schema.get("prefixItems").is_none() => self.shape(items, &format!("{name}Item")),
            Some(_) | None => Shape::Any,
        };
        Shape::List(Box::new(item))
    }

    fn map(&mut self, schema: &Document, name: &str) -> Shape {
        let value = match schema.get("additionalProperties") {
            Some(values @ Document::Object(_)) => self.shape(values, &format!("{name}Value")),
            Some(_) | None => Shape::Any,
        };
        Shape::Map(Box::new(value))
    }

    fn union(&mut self, parts: &[Document], name: &str) -> Shape {
        let shapes: Vec<Shape> =
            parts.iter().enumerate().map(|(index, part)| self.shape(part, &format!("{name}{}", index + 1))).collect();
        union(shapes)
    }

    /// `type: [string, integer]`.
    fn union_of_types(&mut self, schema: &Document, name: &str) -> Shape {
        let types = schema.get("type").map(Document::items).unwrap_or_default();
        if types.is_empty() {
            return Shape::Any;
        }
        let shapes: Vec<Shape> = types.iter().map(|one| self.shape(&with_type(schema, one), name)).collect();
        union(shapes)
    }

    /// What `$ref` names. It gets a declaration of its own, so that it may refer to itself.
    fn reference(&mut self, pointer: &str) -> Shape {
        if let Some(name) = self.references.get(pointer) {
            return Shape::Named(name.clone());
        }
        let Some(target) = self.root.at(pointer) else { return Shape::Any };
        let last = pointer.rsplit('/').next().unwrap_or_default();
        let name = self.scope.unique(&format!("{}{}", self.stem, name::upper_camel(last)));
        self.references.insert(pointer.to_owned(), name.clone());
        self.declare_as(target, name.clone());
        Shape::Named(name)
    }
}

/// Forms that need neither a declaration nor other forms.
fn plain(schema: &Document) -> Option<Shape> {
    if ["enum", "anyOf", "oneOf", "allOf"].iter().any(|word| schema.get(word).is_some()) && !is_record(schema) {
        return choice_type(schema);
    }
    match schema.get("type").and_then(Document::text) {
        Some("null") => Some(Shape::Null),
        Some("boolean") => Some(Shape::Bool),
        Some("integer") => Some(Shape::Integer),
        Some("number") => Some(Shape::Number),
        Some("string") if schema.get("const").is_none() => Some(Shape::Text),
        Some(_) | None => None,
    }
}

/// The one form of all values of an `enum` whose values are no texts.
fn choice_type(schema: &Document) -> Option<Shape> {
    let of = |value: &Document| match value {
        Document::Null => Shape::Null,
        Document::Bool(_) => Shape::Bool,
        Document::Integer => Shape::Integer,
        Document::Fraction => Shape::Number,
        Document::Text(_) => Shape::Text,
        Document::List(_) | Document::Object(_) => Shape::Any,
    };
    if choice(schema).is_some() {
        return None;
    }
    let mut shapes = schema.get("enum")?.items().iter().map(of);
    let first = shapes.next()?;
    Some(if shapes.all(|shape| shape == first) { first } else { Shape::Any })
}

fn is_declared(schema: &Document) -> bool {
    is_record(schema) || choice(schema).is_some()
}

fn is_record(schema: &Document) -> bool {
    let is_object = schema.get("type").is_none_or(|kind| kind.text() == Some("object"));
    is_object && schema.get("properties").is_some_and(|properties| !properties.members().is_empty())
}

/// The texts of an enumeration of texts.
fn choice(schema: &Document) -> Option<Vec<String>> {
    let values = match (schema.get("enum"), schema.get("const")) {
        (Some(values), _) => values.items(),
        (None, Some(value)) => std::slice::from_ref(value),
        (None, None) => return None,
    };
    let texts: Option<Vec<String>> = values.iter().map(|value| value.text().map(str::to_owned)).collect();
    texts.filter(|texts| !texts.is_empty())
}

/// The schema of what is not null, and whether null is allowed beside it.
fn without_null(schema: &Document) -> (Document, bool) {
    let is_null = |part: &Document| part.get("type").and_then(Document::text) == Some("null");
    let Document::Object(members) = schema else { return (schema.clone(), false) };
    let mut is_nullable = false;
    let mut rest = Vec::new();
    for (key, value) in members {
        let kept: Vec<Document> = match key.as_str() {
            "type" => value.items().iter().filter(|one| one.text() != Some("null")).cloned().collect(),
            "enum" => value.items().iter().filter(|one| **one != Document::Null).cloned().collect(),
            "anyOf" | "oneOf" => value.items().iter().filter(|part| !is_null(part)).cloned().collect(),
            _ => Vec::new(),
        };
        if kept.is_empty() || kept.len() == value.items().len() {
            rest.push((key.clone(), value.clone()));
            continue;
        }
        is_nullable = true;
        match (key.as_str(), <[Document; 1]>::try_from(kept)) {
            ("anyOf" | "oneOf", Ok([only])) => rest.extend(only.members().iter().cloned()),
            ("type", Ok([only])) => rest.push((key.clone(), only)),
            (_, Ok([only])) => rest.push((key.clone(), Document::List(vec![only]))),
            (_, Err(several)) => rest.push((key.clone(), Document::List(several))),
        }
    }
    (Document::Object(rest), is_nullable)
}

fn with_type(schema: &Document, kind: &Document) -> Document {
    let others = schema.members().iter().filter(|(key, _)| key != "type").cloned();
    Document::Object(others.chain([("type".to_owned(), kind.clone())]).collect())
}

fn union(shapes: Vec<Shape>) -> Shape {
    let mut is_nullable = false;
    let mut parts: Vec<Shape> = Vec::new();
    for shape in shapes {
        let shape = match shape {
            Shape::Nullable(inner) => {
                is_nullable = true;
                *inner
            }
            other => other,
        };
        match shape {
            Shape::Any => return Shape::Any,
            Shape::Null => is_nullable = true,
            shape if parts.contains(&shape) => {}
            shape => parts.push(shape),
        }
    }
    match <[Shape; 1]>::try_from(parts) {
        Ok([only]) => nullable(only, is_nullable),
        Err(none) if none.is_empty() => {
            if is_nullable {
                Shape::Null
            } else {
                Shape::Any
            }
        }
        Err(several) => nullable(Shape::Union(several), is_nullable),
    }
}

fn nullable(shape: Shape, is_nullable: bool) -> Shape {
    match shape {
        Shape::Any | Shape::Null | Shape::Nullable(_) => shape,
        _ if !is_nullable => shape,
        _ => Shape::Nullable(Box::new(shape)),
    }
}

fn doc(schema: &Document) -> String {
    let text = ["description", "title"].iter().find_map(|word| schema.get(word).and_then(Document::text));
    text.unwrap_or_default().trim().to_owned()
}
