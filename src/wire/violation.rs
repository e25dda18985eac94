//! Collects what is wrong with a request, so that a caller learns all of it at once.

use super::payload;
use crate::domain::definition::Fault;
use std::fmt::Display;

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
    /// How many more there are than are listed.
    pub unlisted: usize,
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
        Self { violations: vec![violation], unlisted: 0, too_large: None, page_token: false }
    }
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, violation) in self.violations.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{}: {}", violation.field, violation.description)?;
        }
        match self.unlisted {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl std::error::Error for Invalid {}

/// The path of what stands in a field: `a.b`, but `a[0]` for an entry, and `a` for the field itself.
#[must_use]
pub fn field_path(outer: &str, inner: &str) -> String {
    let dot = if outer.is_empty() || inner.is_empty() || inner.starts_with('[') { "" } else { "." };
    format!("{outer}{dot}{inner}")
}

/// Most violations of one call that are reported; the answer's trailers stay small enough for proxies.
const VIOLATIONS_MAX: usize = 50;

/// The bad fields found so far, and the path of what is looked at.
#[derive(Debug)]
pub struct Violations {
    path: String,
    most: usize,
    found: Vec<Violation>,
    unlisted: usize,
    too_large: Option<(usize, usize)>,
    page_token: bool,
}

impl Default for Violations {
    fn default() -> Self {
        Self::new()
    }
}

impl Violations {
    /// Nothing found yet, at the root of a message.
    #[must_use]
    pub fn new() -> Self {
        Self {
            path: String::new(),
            most: VIOLATIONS_MAX,
            found: Vec::new(),
            unlisted: 0,
            too_large: None,
            page_token: false,
        }
    }

    /// The same, but all are listed, for who chooses among them.
    #[must_use]
    pub fn without_most() -> Self {
        Self { most: usize::MAX, ..Self::new() }
    }

    /// Notes those of a message inside the current one that are wanted, and tells whether there are any.
    pub fn take_over(&mut self, invalid: Invalid, is_wanted: impl Fn(&str) -> bool) -> bool {
        let before = self.count();
        for Violation { field, description } in invalid.violations {
            if is_wanted(&field) {
                self.add(&field, description);
            }
        }
        let is_any = self.count() > before;
        if is_any {
            self.too_large = self.too_large.or(invalid.too_large);
        }
        is_any
    }

    /// Looks at a message inside the current one.
    pub fn within<T>(&mut self, field: &str, look: impl FnOnce(&mut Self) -> T) -> T {
        let inner = field_path(&self.path, field);
        let outer = std::mem::replace(&mut self.path, inner);
        let result = look(self);
        self.path = outer;
        result
    }

    /// Looks at an entry of a repeated message field.
    pub fn within_entry<T>(&mut self, field: &str, index: usize, look: impl FnOnce(&mut Self) -> T) -> T {
        self.within(&format!("{field}[{index}]"), look)
    }

    /// Notes a bad field of the current message.
    pub fn add(&mut self, field: &str, description: impl Into<String>) {
        if self.found.len() < self.most {
            self.found.push(Violation { field: field_path(&self.path, field), description: description.into() });
        } else {
            self.unlisted += 1;
        }
    }

    /// Notes a bad field of the current message under a code for programs.
    pub fn refuse(&mut self, field: &str, code: &str, description: impl Display) {
        self.add(field, format!("{code}: {description}"));
    }

    /// Notes faults of the current message, each with its code, its place and what to do about it.
    pub fn faults(&mut self, faults: &[Fault]) {
        for fault in faults {
            self.add(&fault.path, fault.to_string());
        }
    }

    /// How many bad fields were found so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.found.len() + self.unlisted
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

    /// Takes the value, or notes under a code why there is none.
    pub fn take_coded<T>(&mut self, field: &str, code: &str, value: Result<T, impl Display>) -> Option<T> {
        value.map_err(|description| self.refuse(field, code, description)).ok()
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
        let Self { found, unlisted, too_large, page_token, .. } = self;
        Err(Invalid { violations: found, unlisted, too_large, page_token })
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
    fn an_entry_has_no_dot_before_it_and_a_message_as_such_none_behind() {
        let mut violations = Violations::new();
        violations.within("start", |v| v.within("input", |v| v.add("[0].a", "is bad")));
        violations.within("spec", |v| v.add("", "is bad"));
        violations.add("", "is bad");
        let invalid = violations.finish(None::<()>).unwrap_err();
        let fields: Vec<_> = invalid.violations.iter().map(|v| v.field.as_str()).collect();
        assert_eq!(fields, ["start.input[0].a", "spec", ""]);
    }

    #[test]
    fn those_beyond_the_most_are_counted() {
        let mut violations = Violations::new();
        for _ in 0..VIOLATIONS_MAX + 3 {
            violations.add("a", "is bad");
        }
        let invalid = violations.finish(None::<()>).unwrap_err();
        assert_eq!((invalid.violations.len(), invalid.unlisted), (VIOLATIONS_MAX, 3));
        assert!(invalid.to_string().ends_with("; and 3 more"), "{invalid}");
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
