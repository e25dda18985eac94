//! Collects what is wrong with a request, so that a caller learns all of it at once.

use super::payload;
use std::fmt::Write;

/// One bad field of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path in the request message, as `held[3].task_token`.
    pub field: String,
    /// What is wrong and what is right, for people.
    pub description: String,
}

/// Why a request is refused: everything that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The bad fields; at least one.
    pub violations: Vec<Violation>,
    /// Limit and actual size in bytes of the first payload that is too large, if one is.
    pub too_large: Option<(usize, usize)>,
    /// Whether the page token is what is wrong: damaged, or of a list with other arguments.
    pub page_token: bool,
}

impl Invalid {
    /// Refuses a request for one field.
    #[must_use]
    pub fn field(field: impl Into<String>, description: impl Into<String>) -> Self {
        let violation = Violation { field: field.into(), description: description.into() };
        Self { violations: vec![violation], too_large: None, page_token: false }
    }
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, violation) in self.violations.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{}: {}", violation.field, violation.description)?;
        }
        Ok(())
    }
}

impl std::error::Error for Invalid {}

/// Most violations of one call that are reported; the answer's trailers stay small enough for proxies.
const VIOLATIONS_MAX: usize = 50;

/// The bad fields found so far, and the path of what is looked at.
#[derive(Debug, Default)]
pub struct Violations {
    path: String,
    found: Vec<Violation>,
    too_large: Option<(usize, usize)>,
    page_token: bool,
}

impl Violations {
    /// Nothing found yet, at the root of a message.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks at a message inside the current one.
    pub fn within<T>(&mut self, field: &str, look: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        self.path.push_str(field);
        self.path.push('.');
        let result = look(self);
        self.path.truncate(length);
        result
    }

    /// Looks at an entry of a repeated message field.
    pub fn within_entry<T>(&mut self, field: &str, index: usize, look: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        write!(self.path, "{field}[{index}].").expect("writing to a string does not fail");
        let result = look(self);
        self.path.truncate(length);
        result
    }

    /// Notes a bad field of the current message.
    pub fn add(&mut self, field: &str, description: impl Into<String>) {
        if self.found.len() < VIOLATIONS_MAX {
            self.found.push(Violation { field: format!("{}{field}", self.path), description: description.into() });
        }
    }

    /// Notes a bad payload.
    pub fn add_payload(&mut self, field: &str, fault: &payload::Fault) {
        if let payload::Fault::TooLarge { limit, actual } = *fault {
            self.too_large.get_or_insert((limit, actual));
        }
        self.add(field, fault.to_string());
    }

    /// Notes a page token that is damaged or of another list.
    pub fn add_page_token(&mut self) {
        self.page_token = true;
        self.add("page_token", "is damaged, or of a list with other arguments; begin again without it");
    }

    /// Takes the value, or notes why there is none.
    pub fn take<T>(&mut self, field: &str, value: Result<T, impl Into<String>>) -> Option<T> {
        value.map_err(|description| self.add(field, description)).ok()
    }

    /// Takes the payload, or notes why there is none.
    pub fn take_payload<T>(&mut self, field: &str, value: Result<T, payload::Fault>) -> Option<T> {
        value.map_err(|fault| self.add_payload(field, &fault)).ok()
    }

    /// Ends the look: the value, if nothing was found.
    ///
    /// # Errors
    /// All that was found.
    ///
    /// # Panics
    /// If the value is missing although nothing was found, which is a mistake of the code that looked.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, Invalid> {
        if self.found.is_empty() {
            return Ok(value.expect("a value is missing only where a violation was noted"));
        }
        Err(Invalid { violations: self.found, too_large: self.too_large, page_token: self.page_token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bad_fields_are_reported_with_their_paths() {
        let mut violations = Violations::new();
        violations.add("session_id", "is required");
        violations.within("heartbeat", |v| v.within_entry("held", 3, |v| v.add("task_token", "is damaged")));
        violations.add("credits", "is negative");
        let invalid = violations.finish(None::<()>).unwrap_err();
        let fields: Vec<_> = invalid.violations.iter().map(|v| v.field.as_str()).collect();
        assert_eq!(fields, ["session_id", "heartbeat.held[3].task_token", "credits"]);
    }

    #[test]
    fn a_payload_that_is_too_large_keeps_its_sizes() {
        let mut violations = Violations::new();
        violations.add("id", "is required");
        violations.add_payload("input", &payload::Fault::TooLarge { limit: 10, actual: 11 });
        let invalid = violations.finish(None::<()>).unwrap_err();
        assert_eq!(invalid.violations.len(), 2);
        assert_eq!(invalid.too_large, Some((10, 11)));
    }
}
