//! Columns of text for people.

use super::output::{Output, Tone, paint};

/// Rows under headers, or `name  value` lines without them.
#[derive(Debug, Default)]
pub(super) struct Table {
    headers: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

/// One field.
#[derive(Debug)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A field that looks like what it says.
    pub(super) fn toned(tone: Tone, text: impl Into<String>) -> Self {
        Self { text: text.into(), tone }
    }

    /// The field in its colour, without a table around it.
    pub(super) fn painted(&self, output: Output) -> String {
        output.paint(self.tone, &shown(&self.text))
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::toned(Tone::Plain, text)
    }
}

impl Table {
    /// With a header line.
    pub(super) fn with_headers(headers: &[&'static str]) -> Self {
        Self { headers: headers.to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Adds a `name  value` line, unless the value is empty.
    pub(super) fn field(&mut self, name: &'static str, value: impl Into<Cell>) {
        let value = value.into();
        if !value.text.is_empty() {
            self.row([Cell::toned(Tone::Strong, name), value]);
        }
    }

    /// The text, each line with its end. The last column is not padded, so nothing trails.
    pub(super) fn render(&self, colored: bool) -> String {
        let headers: Vec<_> = self.headers.iter().map(|header| Cell::toned(Tone::Strong, *header)).collect();
        let lines = || (!headers.is_empty()).then_some(&headers).into_iter().chain(&self.rows);
        let mut widths = Vec::new();
        for line in lines() {
            widths.resize(widths.len().max(line.len()), 0);
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = (*width).max(shown(&cell.text).chars().count());
            }
        }
        let mut out = String::new();
        for line in lines() {
            for (column, cell) in line.iter().enumerate() {
                let text = shown(&cell.text);
                out.push_str(&paint(colored, cell.tone, &text));
                if column + 1 < line.len() {
                    out.extend(std::iter::repeat_n(' ', widths[column] + 2 - text.chars().count()));
                }
            }
            // An empty last field leaves the padding of the one before.
            out.truncate(out.trim_end_matches(' ').len());
            out.push('\n');
        }
        out
    }
}

/// What comes from others must not move the cursor or break the table.
pub(super) fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_nothing_trails() {
        let mut table = Table::with_headers(&["ID", "STATE"]);
        table.row(["order-1".into(), Cell::toned(Tone::Good, "SUCCEEDED")]);
        table.row(["ä".into(), "RUNNING".into()]);
        assert_eq!(table.render(false), "ID       STATE\norder-1  SUCCEEDED\nä        RUNNING\n");
    }

    #[test]
    fn colours_do_not_count_as_width() {
        let mut table = Table::default();
        table.row([Cell::toned(Tone::Bad, "a"), "b".into()]);
        table.row(["ccc".into(), "d".into()]);
        assert_eq!(table.render(true), "\u{1b}[31ma\u{1b}[0m    b\nccc  d\n");
    }

    #[test]
    fn control_characters_of_others_are_not_printed() {
        let mut table = Table::default();
        table.field("Reason", "\u{1b}[2Jgone\nno");
        table.field("Empty", "");
        assert_eq!(table.render(false), "Reason   [2Jgone no\n");
    }
}
