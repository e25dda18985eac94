//! How results look: tables for people, JSON for programs; colours and times.
//!
//! - stdout carries results only, so that they can be piped; notes, progress and errors go to stderr.
//! - Colours need a terminal and no `NO_COLOR`; `CLICOLOR_FORCE` stands in for the terminal. JSON has none.

use super::{error::Error, table::Table};
use crate::{
    clock::{Clock as _, SystemClock},
    proto::json,
};
use std::{
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

/// Form of the results.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum Format {
    /// For people.
    Table,
    /// The JSON of the HTTP interface; of a list one array. Errors are JSON on stderr.
    Json,
}

/// Form of times in tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum Times {
    /// `3m ago`.
    Relative,
    /// RFC 3339, UTC.
    Iso,
}

/// What a piece of text is, for its colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tone {
    /// As it is.
    Plain,
    /// Bold: headers, names.
    Strong,
    /// Dim: what is rarely read.
    Faint,
    /// Went well.
    Good,
    /// Goes on.
    Busy,
    /// Was stopped on purpose, or may be a mistake.
    Warning,
    /// Went wrong.
    Bad,
}

/// Where results go and how they look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output {
    format: Format,
    times: Times,
    stdout_colored: bool,
    stderr_colored: bool,
}

impl Output {
    /// Decides about colours from the streams and the environment.
    pub(super) fn new(format: Format, times: Times) -> Self {
        let colored = |terminal: bool| format == Format::Table && colors_wanted(terminal);
        Self {
            format,
            times,
            stdout_colored: colored(io::stdout().is_terminal()),
            stderr_colored: colored(io::stderr().is_terminal()),
        }
    }

    /// Whether results are JSON.
    pub(super) fn is_json(self) -> bool {
        self.format == Format::Json
    }

    /// Prints a message as indented JSON.
    pub(super) fn json<M: json::Message>(self, message: &M) -> Result<(), Error> {
        self.line(&json::to_string_pretty(message).map_err(|error| Error::failure(error.to_string()))?)
    }

    /// Prints a message as JSON on one line: for results without an end.
    pub(super) fn json_line<M: json::Message>(self, message: &M) -> Result<(), Error> {
        let text = json::to_string(message).map_err(|error| Error::failure(error.to_string()))?;
        // Payloads are kept byte for byte, with their line breaks, which are white space between JSON's tokens only.
        self.line(&text.replace(['\n', '\r'], " "))
    }

    /// Prints messages as one JSON array, `[]` if there are none.
    pub(super) fn json_array<M: json::Message>(self, messages: &[M]) -> Result<(), Error> {
        let texts: Result<Vec<_>, _> = messages.iter().map(json::to_string).collect();
        let texts = texts.map_err(|error| Error::failure(error.to_string()))?;
        self.line(&json::pretty(&format!("[{}]", texts.join(","))))
    }

    /// Prints a table.
    pub(super) fn table(self, table: &Table) -> Result<(), Error> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(table.render(self.stdout_colored).as_bytes())?;
        Ok(stdout.flush()?)
    }

    /// Prints a line of the result.
    pub(super) fn line(self, text: &str) -> Result<(), Error> {
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{text}")?;
        Ok(stdout.flush()?)
    }

    /// Says something beside the result. A closed stderr is nobody's problem.
    pub(super) fn note(self, text: &str) {
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// Says what went wrong and what to do about it.
    pub(super) fn complain(self, message: &str, hint: &str) {
        self.note(&format!("{} {message}", paint(self.stderr_colored, Tone::Bad, "error:")));
        if !hint.is_empty() {
            self.note(&format!("{} {hint}", paint(self.stderr_colored, Tone::Strong, "hint:")));
        }
    }

    /// Colours a piece of a result.
    pub(super) fn paint(self, tone: Tone, text: &str) -> String {
        paint(self.stdout_colored, tone, text)
    }

    /// An instant, as the user wants it; a dash if there is none.
    pub(super) fn time(self, time: Option<&prost_types::Timestamp>) -> String {
        let Some(time) = time else { return "-".to_owned() };
        match self.times {
            Times::Iso => time.to_string(),
            Times::Relative => {
                let now = SystemClock::starting_at(None).wall().as_micros();
                let micros = time.seconds.saturating_mul(1_000_000).saturating_add(i64::from(time.nanos) / 1_000);
                relative(now.saturating_sub(micros))
            }
        }
    }
}

/// Whether to colour a stream, from what the environment says.
pub(super) fn colors_wanted(terminal: bool) -> bool {
    judge_colors(terminal, |name| std::env::var(name).ok())
}

/// What `NO_COLOR`, `CLICOLOR_FORCE` and the terminal say together.
fn judge_colors(terminal: bool, variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name| variable(name).is_some_and(|value| !value.is_empty());
    if set("NO_COLOR") {
        return false;
    }
    if variable("CLICOLOR_FORCE").is_some_and(|value| !value.is_empty() && value != "0") {
        return true;
    }
    terminal && variable("TERM").is_none_or(|term| term != "dumb")
}

/// Wraps a text into the codes of its tone.
pub(super) fn paint(colored: bool, tone: Tone, text: &str) -> String {
    let code = match tone {
        Tone::Plain => return text.to_owned(),
        Tone::Strong => 1,
        Tone::Faint => 2,
        Tone::Good => 32,
        Tone::Busy => 36,
        Tone::Warning => 33,
        Tone::Bad => 31,
    };
    if colored { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}

/// A span from an instant to now, negative for the future: `3m ago`, `in 2h`.
fn relative(micros: i64) -> String {
    let text = span(Duration::from_micros(micros.unsigned_abs()));
    match micros {
        0.. => format!("{text} ago"),
        _ => format!("in {text}"),
    }
}

/// A span in its two largest units, or in milliseconds below ten seconds.
pub(super) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 => format!("{}ms", span.as_millis()),
        1..10 => format!("{:.1}s", span.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(terminal: bool, variables: &[(&str, &str)]) -> bool {
        judge_colors(terminal, |name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn colours_need_a_terminal_and_no_objection() {
        assert!(wanted(true, &[]));
        assert!(!wanted(false, &[]));
        assert!(!wanted(true, &[("NO_COLOR", "1")]));
        assert!(wanted(true, &[("NO_COLOR", "")]));
        assert!(!wanted(true, &[("TERM", "dumb")]));
        assert!(wanted(false, &[("CLICOLOR_FORCE", "1")]));
        assert!(!wanted(false, &[("CLICOLOR_FORCE", "0")]));
        assert!(!wanted(true, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    }

    #[test]
    fn spans_show_their_two_largest_units() {
        for (millis, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_234, "1.2s"),
            (59_999, "59s"),
            (61_000, "1m01s"),
            (3_660_000, "1h01m"),
            (90_000_000, "1d01h"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
        assert_eq!(relative(180_000_000), "3m00s ago");
        assert_eq!(relative(-7_200_000_000), "in 2h00m");
    }
}
