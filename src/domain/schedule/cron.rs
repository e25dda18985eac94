//! Cron expressions: five fields as POSIX has them, with the names, steps and words that crontabs know.
//!
//! - 0 and 7 are Sunday. A range may end with Sunday (`5-7`, `FRI-SUN`).
//! - Where day of month and weekday are both restricted, either is enough, as in POSIX. As in Vixie cron a field is
//!   restricted unless it begins with `*`: with `*/2` both must match.
//! - What other dialects add (`L`, `W`, `#`, `?`) is refused, not guessed.
//!
//! # Design
//!
//! The crates for this either know no positions, or number weekdays from 1, or judge the clocks' changes by rules of their
//! own. The language is small; read here, every fault of it is found at once, and where.

use super::{
    Fault, code,
    pattern::{DAYS, Days, HOURS, MONTHS, Pattern, SIXTY, WEEKDAYS, Years},
};
use crate::domain::definition::shorten;

/// Most bytes of an expression.
const BYTES_MAX: usize = 1_000;

/// Words for whole expressions.
const WORDS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// A field of an expression.
struct Field {
    name: &'static str,
    first: u32,
    last: u32,
    /// Names of numbers, from `first` on.
    names: &'static [&'static str],
}

const SECOND: Field = Field { name: "second", first: 0, last: 59, names: &[] };
const MINUTE: Field = Field { name: "minute", first: 0, last: 59, names: &[] };
const HOUR: Field = Field { name: "hour", first: 0, last: 23, names: &[] };
const DAY: Field = Field { name: "day of month", first: 1, last: 31, names: &[] };
const MONTH: Field = Field {
    name: "month",
    first: 1,
    last: 12,
    names: &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
};
const WEEKDAY: Field =
    Field { name: "weekday", first: 0, last: 7, names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"] };

/// A piece of the text.
#[derive(Clone, Copy)]
struct Piece<'t> {
    text: &'t str,
    /// Byte at which it begins in the expression.
    at: usize,
}

/// What an expression says.
#[derive(Debug)]
pub(super) struct Cron {
    pub(super) pattern: Pattern,
    /// Whether it follows the clock round, every hour or every minute of some: seconds, minutes or hours begin with `*`.
    pub(super) follows_the_clock: bool,
}

/// Reads an expression; all faults of it at once. `path` is the field that it stands in, for them.
pub(super) fn parse(text: &str, seconds_allowed: bool, path: &str) -> Result<Cron, Vec<Fault>> {
    let mut parser = Parser { text, path, faults: Vec::new() };
    let cron = parser.expression(seconds_allowed);
    match cron {
        Some(cron) if parser.faults.is_empty() => Ok(cron),
        Some(_) | None => Err(parser.faults),
    }
}

struct Parser<'t> {
    text: &'t str,
    path: &'t str,
    faults: Vec<Fault>,
}

impl<'t> Parser<'t> {
    fn refuse(&mut self, at: usize, code: &'static str, message: impl Into<String>, hint: impl Into<String>) {
        let column = u32::try_from(self.text[..at].chars().count()).expect("the text is short") + 1;
        let (message, hint) = (message.into(), hint.into());
        self.faults.push(Fault { code, message, hint, path: self.path.to_owned(), line: 0, column });
    }

    fn expression(&mut self, seconds_allowed: bool) -> Option<Cron> {
        if self.text.len() > BYTES_MAX {
            let message = format!("it has {} bytes; one may have {BYTES_MAX}", self.text.len());
            self.refuse(0, code::TEXT_TOO_LONG, message, "use several crons, or a calendar");
            return None;
        }
        let mut pieces = pieces(self.text);
        let first = pieces.first().copied().unwrap_or(Piece { text: "", at: 0 });
        if first.text.starts_with('@') {
            return self.word(&pieces, seconds_allowed);
        }
        if let Some((name, _)) = first.text.split_once('=') {
            let message = format!("`{}=` is no part of an expression", shorten(name, 20));
            self.refuse(first.at, code::CRON_INVALID, message, "name the zone in `timezone`");
            return None;
        }
        let has_seconds = pieces.len() == 6 && seconds_allowed;
        if pieces.len() != 5 && !has_seconds {
            let expected = if seconds_allowed { "5, or 6 with seconds first" } else { "5" };
            let hint = match pieces.len() {
                6 if !seconds_allowed => {
                    "the fields are minute, hour, day of month, month and weekday; seconds before them need `six_field_crons`"
                }
                7.. => "the fields are minute, hour, day of month, month and weekday; years are in calendars only",
                0..=6 => "the fields are minute, hour, day of month, month and weekday, such as `30 9 * * 1-5`",
            };
            let at =
                pieces.get(if seconds_allowed { 6 } else { 5 }).map_or(self.text.trim_end().len(), |piece| piece.at);
            self.refuse(at, code::CRON_INVALID, format!("it has {} fields, not {expected}", pieces.len()), hint);
            return None;
        }
        let second = if has_seconds { Some(pieces.remove(0)) } else { None };
        let [minute, hour, day, month, weekday] = pieces[..] else { return None };
        let before = self.faults.len();
        let seconds = second.map_or(1, |second| self.field(&SECOND, second));
        let minutes = self.field(&MINUTE, minute);
        let hours = self.field(&HOUR, hour);
        let days = self.field(&DAY, day);
        let months = self.field(&MONTH, month);
        let weekdays = self.field(&WEEKDAY, weekday);
        if self.faults.len() > before {
            return None;
        }
        let is_star = |piece: Piece<'_>| piece.text.starts_with('*');
        let weekdays = (weekdays | weekdays >> 7) & u64::from(WEEKDAYS);
        let narrow = "each number of a field is in its range";
        let pattern = Pattern {
            seconds: seconds & SIXTY,
            minutes: minutes & SIXTY,
            hours: u32::try_from(hours).expect(narrow) & HOURS,
            days: Days {
                of_month: u32::try_from(days).expect(narrow) & DAYS,
                from_end: 0,
                weekdays: u8::try_from(weekdays).expect(narrow),
                either: !is_star(day) && !is_star(weekday),
            },
            months: u16::try_from(months).expect(narrow) & MONTHS,
            years: Years::all(),
        };
        if pattern.next(super::civil::Civil(0)).is_none() {
            let message = "it never fires: no month that it names has such a day";
            self.refuse(
                day.at,
                code::NEVER_FIRES,
                message,
                "name a day that the month has; the 29th of February is one",
            );
            return None;
        }
        Some(Cron { pattern, follows_the_clock: [second, Some(minute), Some(hour)].into_iter().flatten().any(is_star) })
    }

    /// An expression such as `@daily`.
    fn word(&mut self, pieces: &[Piece<'t>], seconds_allowed: bool) -> Option<Cron> {
        let word = pieces[0];
        if let Some((_, meaning)) = WORDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(word.text)) {
            if let Some(extra) = pieces.get(1) {
                let message = format!("nothing comes after `{}`", word.text);
                self.refuse(extra.at, code::CRON_INVALID, message, "remove it, or write the five fields");
                return None;
            }
            return parse(meaning, seconds_allowed, self.path).ok();
        }
        let hint = match word.text.to_ascii_lowercase().as_str() {
            "@every" => "use an interval",
            "@reboot" => "a schedule does not know when machines start; use a trigger",
            _ => "use @yearly, @monthly, @weekly, @daily or @hourly",
        };
        let message = format!("`{}` is none of the words", shorten(word.text, 20));
        self.refuse(word.at, code::CRON_INVALID, message, hint);
        None
    }

    /// A list of numbers, ranges and steps, as bits.
    fn field(&mut self, field: &Field, piece: Piece<'t>) -> u64 {
        let mut bits = 0;
        let mut at = piece.at;
        for text in piece.text.split(',') {
            bits |= self.item(field, Piece { text, at }).unwrap_or(0);
            at += text.len() + 1;
        }
        bits
    }

    /// `*`, a number or a range, each perhaps with a step.
    fn item(&mut self, field: &Field, piece: Piece<'t>) -> Option<u64> {
        let (range, step) = match piece.text.split_once('/') {
            Some((range, step)) => (range, Some(Piece { text: step, at: piece.at + range.len() + 1 })),
            None => (piece.text, None),
        };
        let ends = self.range(field, Piece { text: range, at: piece.at }, step.is_some());
        let step = match step {
            Some(step) => self.step(field, step)?,
            None => 1,
        };
        let (first, last) = ends?;
        Some((first..=last).step_by(step).fold(0, |bits, number| bits | 1 << number))
    }

    /// First and last number of a range.
    fn range(&mut self, field: &Field, piece: Piece<'t>, has_step: bool) -> Option<(u32, u32)> {
        // A star of weekdays is the seven once: counted to 7, a step would come out on other days.
        let widest = if field.last == 7 { 6 } else { field.last };
        if piece.text == "*" {
            return Some((field.first, widest));
        }
        let Some((from, to)) = piece.text.split_once('-') else {
            let number = self.number(field, piece)?;
            return Some((number, if has_step { widest.max(number) } else { number }));
        };
        let to_piece = Piece { text: to, at: piece.at + from.len() + 1 };
        let (first, last) = (self.number(field, Piece { text: from, at: piece.at }), self.number(field, to_piece));
        let (first, last) = (first?, last?);
        // `FRI-SUN` and `5-0` end with the Sunday after.
        let last = if field.last == 7 && last == 0 && first > 0 { 7 } else { last };
        if first > last {
            let beginning = self.named(field, field.first, from);
            let hint = if first > widest {
                format!("{from} is {beginning} as well; write `{beginning}-{to}`")
            } else {
                let end = self.named(field, widest, from);
                format!("a range does not go on at the field's beginning; write `{from}-{end},{beginning}-{to}`")
            };
            self.refuse(piece.at, code::CRON_INVALID, format!("the range {} runs backwards", piece.text), hint);
            return None;
        }
        Some((first, last))
    }

    /// A number as the person would write it who wrote `like`.
    fn named(&self, field: &Field, number: u32, like: &str) -> String {
        let name = field.names.get((number - field.first) as usize);
        match name {
            Some(name) if like.starts_with(|c: char| c.is_ascii_alphabetic()) => (*name).to_owned(),
            Some(_) | None => number.to_string(),
        }
    }

    /// A number or the name of one.
    fn number(&mut self, field: &Field, piece: Piece<'t>) -> Option<u32> {
        let Field { name, first, last, names } = field;
        if let Some(index) = names.iter().position(|known| known.eq_ignore_ascii_case(piece.text)) {
            return Some(first + u32::try_from(index).expect("there are few names"));
        }
        let shown = shorten(piece.text, 20);
        if piece.text.is_empty() || !piece.text.bytes().all(|byte| byte.is_ascii_digit()) {
            let message = if piece.text.is_empty() {
                "a number is missing".to_owned()
            } else {
                format!("`{shown}` is no {name}")
            };
            self.refuse(piece.at, code::CRON_INVALID, message, self.hint(field, piece.text));
            return None;
        }
        // Nine digits are beyond every field, and fit.
        let number = piece.text.get(..9).map_or_else(|| piece.text.parse().ok(), |_| None);
        if let Some(number) = number.filter(|number| (first..=last).contains(&number)) {
            return Some(number);
        }
        self.refuse(
            piece.at,
            code::CRON_INVALID,
            format!("{shown} is no {name}; it is {first} to {last}"),
            self.hint(field, piece.text),
        );
        None
    }

    fn hint(&self, field: &Field, text: &str) -> String {
        let upper = text.to_ascii_uppercase();
        match upper.as_str() {
            "?" => "write `*`".to_owned(),
            "L" | "LW" => "the last day of a month is day -1 of a calendar".to_owned(),
            _ if upper.contains(['#', 'W', 'L']) && upper.bytes().any(|byte| byte.is_ascii_digit()) => {
                "POSIX has no `L`, `W` and `#`; use several crons, or a calendar".to_owned()
            }
            _ if upper.starts_with('H') => {
                "`H` is of another program; write a number, and use `jitter` to spread".to_owned()
            }
            _ if field.names.is_empty() => {
                format!("write {} to {}, lists, ranges and steps of them", field.first, field.last)
            }
            _ => format!("write {} to {} or {} …", field.first, field.last, field.names[..3].join(", ")),
        }
    }

    fn step(&mut self, field: &Field, piece: Piece<'t>) -> Option<usize> {
        let number = if piece.text.len() <= 9 { piece.text.parse::<usize>().ok() } else { None };
        let is_number = !piece.text.is_empty() && piece.text.bytes().all(|byte| byte.is_ascii_digit());
        let span = (field.last - field.first) as usize;
        match number {
            Some(number) if is_number && (1..=span).contains(&number) => Some(number),
            Some(_) | None => {
                let message =
                    format!("`{}` is no step of a {}; it is 1 to {span}", shorten(piece.text, 20), field.name);
                let hint = if is_number && number != Some(0) {
                    "each field begins again by itself; use an interval for longer steps"
                } else {
                    "write it like `*/15` or `0-30/5`"
                };
                self.refuse(piece.at, code::CRON_INVALID, message, hint);
                None
            }
        }
    }
}

/// The parts of a text between blanks.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let base = text.as_ptr() as usize;
    text.split_whitespace().map(|piece| Piece { text: piece, at: piece.as_ptr() as usize - base }).collect()
}
