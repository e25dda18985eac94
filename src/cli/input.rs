//! Arguments that carry content: payloads, labels.

use super::error::Error;
use crate::proto::workflow::{Payload, payload::Content};
use std::{fs, io::Read as _};

/// A payload as it stands on the command line: JSON text, `@FILE`, or `-` for stdin.
#[derive(Clone, Debug)]
pub(super) struct PayloadArgument(String);

impl From<&str> for PayloadArgument {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl PayloadArgument {
    /// Reads the text and checks that it is JSON; it is sent byte for byte, so every digit stays.
    pub(super) fn read(&self, option: &str) -> Result<Payload, Error> {
        let (from, text) = match self.0.as_str() {
            "-" => {
                let mut text = String::new();
                let read = std::io::stdin().lock().read_to_string(&mut text);
                ("stdin", read.map(|_| text).map_err(|error| unreadable("stdin", &error))?)
            }
            argument => match argument.strip_prefix('@') {
                Some(path) => (path, fs::read_to_string(path).map_err(|error| unreadable(path, &error))?),
                None => (option, argument.to_owned()),
            },
        };
        if let Err(error) = serde_json::from_str::<&serde_json::value::RawValue>(&text) {
            return Err(Error::usage(format!("{from} is not JSON: {error}"))
                .hint(format!("{option} takes JSON text, @FILE or - for stdin; a text needs its quotes: '\"text\"'")));
        }
        Ok(Payload { content: Some(Content::Json(text)) })
    }
}

fn unreadable(name: &str, error: &std::io::Error) -> Error {
    Error::usage(format!("cannot read {name}: {error}"))
}

/// Splits `KEY=VALUE`.
pub(super) fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("must be KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_sent_byte_for_byte() {
        let text = " {\"n\": 9007199254740993, \"x\": 1.10} ";
        let payload = PayloadArgument::from(text).read("--input").unwrap();
        assert_eq!(payload.content, Some(Content::Json(text.to_owned())));
    }

    #[test]
    fn text_that_is_no_json_is_a_usage_error_with_its_place() {
        let error = PayloadArgument::from("{n: 1}").read("--input").unwrap_err();
        let Error::Local { message, .. } = error else { panic!("{error:?}") };
        assert_eq!(message, "--input is not JSON: key must be a string at line 1 column 2");
    }

    #[test]
    fn a_label_is_split_at_its_first_equals_sign() {
        assert_eq!(parse_label("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(parse_label("a="), Ok(("a".to_owned(), String::new())));
        assert!(parse_label("a").is_err());
        assert!(parse_label("=b").is_err());
    }
}
