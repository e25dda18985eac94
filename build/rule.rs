//! One `google.api.http` rule: what it may say, and where it contradicts another one.
//!
//! Knows nothing of descriptors, so that the crate's own tests can include this file.

/// A part of a path between two slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// Has to be there word for word.
    Literal(String),
    /// Is the value of this field.
    Variable(String),
}

/// A rule of one method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// HTTP method, in capitals.
    pub(crate) method: String,
    /// Segments of the path.
    pub(crate) segments: Vec<Segment>,
    /// What follows the last segment after a colon; empty for none.
    pub(crate) verb: String,
    /// Whether the request is the body. Otherwise its fields are query parameters.
    pub(crate) takes_body: bool,
}

impl Rule {
    /// Reads a rule. `is_text` tells whether the request has a field of this name that holds one string, if it has one.
    ///
    /// # Errors
    /// The rule is one that the gateway does not serve; the text says why.
    pub(crate) fn parse(
        method: &str,
        path: &str,
        body: &str,
        is_text: impl Fn(&str) -> Option<bool>,
    ) -> Result<Self, String> {
        let takes_body = match (method, body) {
            ("GET" | "DELETE", "") => false,
            ("POST" | "PUT" | "PATCH", "*") => true,
            ("GET" | "DELETE", _) => return Err(format!("{method} {path}: takes no body")),
            ("POST" | "PUT" | "PATCH", _) => return Err(format!("{method} {path}: the body must be \"*\"")),
            _ => return Err(format!("{method} {path}: not a method of the gateway")),
        };
        let (segments, verb) = template(path).map_err(|why| format!("{method} {path}: {why}"))?;
        for segment in &segments {
            let Segment::Variable(name) = segment else { continue };
            match is_text(name) {
                None => return Err(format!("{method} {path}: the request has no field {name}")),
                Some(false) => return Err(format!("{method} {path}: the field {name} is not one string")),
                Some(true) => {}
            }
        }
        Ok(Self { method: method.to_owned(), segments, verb, takes_body })
    }

    /// Whether some request would fit both rules equally well.
    pub(crate) fn contradicts(&self, other: &Self) -> bool {
        let same = |(a, b): (&Segment, &Segment)| match (a, b) {
            (Segment::Literal(a), Segment::Literal(b)) => a == b,
            (Segment::Variable(_), Segment::Variable(_)) => true,
            _ => false,
        };
        self.method == other.method
            && self.verb == other.verb
            && self.segments.len() == other.segments.len()
            && self.segments.iter().zip(&other.segments).all(same)
    }
}

/// Takes `/v1/things/{id}:cancel` apart. A variable fills exactly one segment.
fn template(path: &str) -> Result<(Vec<Segment>, String), String> {
    let path = path.strip_prefix('/').ok_or("must begin with /")?;
    let (path, verb) = match path.rsplit_once(':') {
        Some((path, verb)) if is_word(verb) => (path, verb),
        Some((_, verb)) => return Err(format!("{verb:?} is no verb")),
        None => (path, ""),
    };
    let segment = |part: &str| match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
        Some(name) if is_word(name) => Ok(Segment::Variable(name.to_owned())),
        Some(name) => Err(format!("{{{name}}} is not the name of one field")),
        None if is_word(part) => Ok(Segment::Literal(part.to_owned())),
        None => Err(format!("{part:?} is neither a word nor a variable")),
    };
    Ok((path.split('/').map(segment).collect::<Result<_, _>>()?, verb.to_owned()))
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}
