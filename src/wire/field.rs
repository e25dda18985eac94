//! Judges the single fields that several requests share: ids, names, texts for people.
//!
//! Each function says what is wrong in words that follow the field's name: "is required", "is longer than …".

use crate::domain::{EXECUTION_ID_LENGTH_MAX, ExecutionId, SessionId, Uid, definition::LABEL_PREFIX_RESERVED};
use std::{borrow::Cow, sync::Arc};

/// Most characters of the name of a workflow, queue or contract's task.
pub const NAME_LENGTH_MAX: usize = 128;

/// Most bytes of a failure's message; longer text is cut.
pub const FAILURE_MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// Most labels of an execution.
pub const LABELS_MAX: usize = 32;

/// The id of an execution that exists, or may; it must be there.
///
/// # Errors
/// What is wrong with it.
pub fn execution_id(text: &str) -> Result<ExecutionId, String> {
    ExecutionId::parse(text).ok_or_else(|| not_an_id(text))
}

/// The id that a new execution is to have; it must be there. Those that the server makes itself cannot be chosen.
///
/// # Errors
/// What is wrong with it.
pub fn new_execution_id(text: &str) -> Result<ExecutionId, String> {
    ExecutionId::choose(text).ok_or_else(|| not_an_id(text))
}

fn not_an_id(text: &str) -> String {
    if text.is_empty() {
        return "is required".to_owned();
    }
    let characters = "A-Z a-z 0-9 . _ : @ + ~ -";
    format!("must be 1 to {EXECUTION_ID_LENGTH_MAX} of {characters}, the first a letter or digit")
}

/// An execution's uid; none if the text is empty.
///
/// # Errors
/// What is wrong with it.
pub fn uid(text: &str) -> Result<Option<Uid>, &'static str> {
    optional_uuid(text).map(|uuid| uuid.map(Uid))
}

/// A session that must be there.
///
/// # Errors
/// What is wrong with it.
pub fn session(text: &str) -> Result<SessionId, &'static str> {
    optional_session(text)?.ok_or("is required")
}

/// A session; none if the text is empty.
///
/// # Errors
/// What is wrong with it.
pub fn optional_session(text: &str) -> Result<Option<SessionId>, &'static str> {
    optional_uuid(text).map(|uuid| uuid.map(SessionId))
}

fn optional_uuid(text: &str) -> Result<Option<uuid::Uuid>, &'static str> {
    // One text for each: the parser also takes braces, capitals and no hyphens.
    const LENGTH: usize = 36;
    if text.is_empty() {
        return Ok(None);
    }
    let plain = text.len() == LENGTH && text.bytes().all(|b| b == b'-' || b.is_ascii_digit() || b.is_ascii_lowercase());
    let uuid = if plain { text.parse().ok() } else { None };
    uuid.map(Some).ok_or("is not one that a server made (a lower-case UUID)")
}

/// The name of a workflow, signal or queue.
///
/// # Errors
/// What is wrong with it.
pub fn name(text: &str) -> Result<Arc<str>, String> {
    if text.is_empty() {
        return Err("is required".to_owned());
    }
    if !is_name(text) {
        let characters = "A-Z a-z 0-9 . _ -";
        return Err(format!("must be 1 to {NAME_LENGTH_MAX} of {characters}, the first a letter or digit"));
    }
    Ok(Arc::from(text))
}

fn is_name(text: &str) -> bool {
    text.len() <= NAME_LENGTH_MAX
        && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// A version of a definition, by semver.
///
/// # Errors
/// What is wrong with it.
pub fn version(text: &str) -> Result<Arc<str>, &'static str> {
    if text.len() > NAME_LENGTH_MAX || semver::Version::parse(text).is_err() {
        return Err("must be a version by semver, for example 1.4.0");
    }
    Ok(Arc::from(text))
}

/// A contract `name@version`.
///
/// # Errors
/// What is wrong with it.
pub fn contract(text: &str) -> Result<Arc<str>, &'static str> {
    match text.split_once('@') {
        Some((name, version)) if is_name(name) && is_version(version) => Ok(Arc::from(text)),
        _ => Err("must be name@version, for example payments.charge@1"),
    }
}

fn is_version(text: &str) -> bool {
    (1..=NAME_LENGTH_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._+-".contains(&b))
}

/// A worker's language; empty for none.
///
/// # Errors
/// What is wrong with it.
pub fn language(text: &str) -> Result<Arc<str>, &'static str> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+#._-".contains(&b);
    if text.len() > 32 || !text.bytes().all(allowed) {
        return Err("must be at most 32 of a-z 0-9 + # . _ -");
    }
    Ok(Arc::from(text))
}

/// A failure's code.
///
/// # Errors
/// What is wrong with it.
pub fn failure_code(text: &str) -> Result<Arc<str>, &'static str> {
    if text.is_empty() {
        return Err("is required");
    }
    if text.len() > 63 || !text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b)) {
        return Err("must be 1 to 63 of A-Z a-z 0-9 _ . -");
    }
    Ok(Arc::from(text))
}

/// One line for people, at most `length_max` characters, without control characters.
///
/// # Errors
/// What is wrong with it.
pub fn line(text: &str, length_max: usize) -> Result<Arc<str>, String> {
    if text.chars().count() > length_max {
        return Err(format!("is longer than {length_max} characters"));
    }
    if text.chars().any(char::is_control) {
        return Err("holds a control character".to_owned());
    }
    Ok(Arc::from(text))
}

/// A reason for people, at most 1,024 characters; control characters are replaced as in a failure's message.
///
/// # Errors
/// What is wrong with it.
pub fn reason(text: &str) -> Result<Arc<str>, &'static str> {
    if text.chars().count() > 1_024 {
        return Err("is longer than 1,024 characters");
    }
    Ok(clean_text(text))
}

/// A label that a caller sets, or what is wrong with it.
///
/// # Errors
/// What is wrong with it.
pub fn new_label(key: &str, value: &str) -> Result<(), &'static str> {
    if key.starts_with(LABEL_PREFIX_RESERVED) {
        return Err("has a key that begins with `orbit.`, as only the server's own do");
    }
    label(key, value)
}

/// A label's key and value, or what is wrong with them.
///
/// # Errors
/// What is wrong with it.
pub fn label(key: &str, value: &str) -> Result<(), &'static str> {
    if !(1..=63).contains(&key.len()) || !key.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) {
        return Err("has a key that is not 1 to 63 of a-z A-Z 0-9 . _ -");
    }
    if value.chars().count() > 255 {
        return Err("has a value longer than 255 characters");
    }
    if value.chars().any(char::is_control) {
        return Err("has a value with a control character");
    }
    Ok(())
}

/// Text from a worker as it is kept: control characters but tab and line feed replaced, cut at 16 KiB.
///
/// A failure report is never refused for its text: the task would then be stuck with its failure untold.
#[must_use]
pub fn clean_text(text: &str) -> Arc<str> {
    let text: Cow<'_, str> = if text.contains('\r') { text.replace("\r\n", "\n").into() } else { text.into() };
    let bad = |c: char| c.is_control() && c != '\n' && c != '\t';
    let text: Cow<'_, str> = if text.contains(bad) { text.replace(bad, "\u{FFFD}").into() } else { text };
    if text.len() <= FAILURE_MESSAGE_BYTES_MAX {
        return Arc::from(text);
    }
    const MARK: &str = " … (cut)";
    let mut end = FAILURE_MESSAGE_BYTES_MAX - MARK.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Arc::from(format!("{}{MARK}", &text[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_with_path_nul_or_blank_characters_are_refused() {
        for text in
            ["", "a/b", "../../etc/passwd", "..%2f", ".", "..", "a\0b", "a b", "ü", "-a", "a\n", &"a".repeat(129)]
        {
            assert!(execution_id(text).is_err(), "{text:?}");
        }
        for text in ["a", "order:42", "x:cancel", "A1._:@+~-", &"a".repeat(128)] {
            assert!(execution_id(text).is_ok(), "{text:?}");
        }
    }

    #[test]
    fn a_uuid_has_one_text() {
        assert_eq!(uid(""), Ok(None));
        assert!(matches!(uid("0190a000-0000-7000-8000-000000000001"), Ok(Some(_))));
        for text in ["0190A000-0000-7000-8000-000000000001", "0190a000000070008000000000000001", "x", "{}"] {
            assert!(uid(text).is_err(), "{text}");
        }
        assert_eq!(session(""), Err("is required"));
    }

    #[test]
    fn names_contracts_and_codes_keep_to_their_characters() {
        assert!(name("payments").is_ok() && name("").is_err() && name(".a").is_err() && name("a/b").is_err());
        assert!(contract("payments.charge@1").is_ok() && contract("a@1.0.0-b+c").is_ok());
        for text in ["a", "@1", "a@", "a@@", "a b@1", "a@1 "] {
            assert!(contract(text).is_err(), "{text}");
        }
        assert!(language("c++").is_ok() && language("c#").is_ok() && language("").is_ok() && language("Go").is_err());
        assert!(failure_code("CARD_DECLINED").is_ok() && failure_code("a b").is_err() && failure_code("").is_err());
        assert!(line("host-1", 128).is_ok() && line("a\nb", 128).is_err() && line("äää", 2).is_err());
        assert!(label("team", "shop").is_ok() && label("", "x").is_err() && label("a b", "x").is_err());
    }

    #[test]
    fn a_failures_text_is_cleaned_and_cut_but_never_refused() {
        assert_eq!(&*clean_text("x\0y\u{1b}[31m\r\n\tz"), "x\u{FFFD}y\u{FFFD}[31m\n\tz");
        let long = clean_text(&"ä".repeat(20_000));
        assert!(long.len() <= FAILURE_MESSAGE_BYTES_MAX && long.ends_with("(cut)"));
    }
}
