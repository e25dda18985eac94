//! Statements over many rows at once: a list of rows that the statement reads like a table.
//!
//! SQLite has VALUES lists of a few fixed sizes, PostgreSQL an array for each column. Both name the columns `column1`,
//! `column2` …, so the text around the list is the same.

use super::Value;
use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};
use std::{
    fmt::Write as _,
    sync::{Arc, OnceLock},
};

/// Most rows of one VALUES list.
pub(crate) const ROWS_MAX: usize = 256;

/// A statement over a list of rows.
///
/// A row whose first column is null must be passed over: VALUES lists are filled up with such rows.
pub(crate) struct Rows {
    before: &'static str,
    columns: usize,
    after: &'static str,
    // Made for 1, 2, 4 … [`ROWS_MAX`] rows, so that few texts exist and each stays prepared.
    with_values: [OnceLock<Arc<str>>; ROWS_MAX.ilog2() as usize + 1],
    with_arrays: OnceLock<Arc<str>>,
}

impl Rows {
    /// `before`, the list in parentheses, `after`.
    pub(crate) const fn new(before: &'static str, columns: usize, after: &'static str) -> Self {
        Self {
            before,
            columns,
            after,
            with_values: [const { OnceLock::new() }; ROWS_MAX.ilog2() as usize + 1],
            with_arrays: OnceLock::new(),
        }
    }

    /// The text with a VALUES list of at least so many rows (at most [`ROWS_MAX`]), a place for each value.
    pub(crate) fn with_values(&self, rows: usize) -> SqlStr {
        let size = rows.next_power_of_two();
        let text = self.with_values[size.ilog2() as usize].get_or_init(|| {
            let row = format!("({})", vec!["?"; self.columns].join(","));
            format!("{}(VALUES {}){}", self.before, vec![row; size].join(","), self.after).into()
        });
        AssertSqlSafe(text.clone()).into_sql_str()
    }

    /// The text with a place for an array of each column.
    pub(crate) fn with_arrays(&self) -> SqlStr {
        let text = self.with_arrays.get_or_init(|| {
            let (mut places, mut names) = (String::new(), String::new());
            for column in 1..=self.columns {
                let comma = if column > 1 { ", " } else { "" };
                write!(places, "{comma}${column}").expect("a string takes all text");
                write!(names, "{comma}column{column}").expect("a string takes all text");
            }
            format!("{}(SELECT * FROM unnest({places}) AS list ({names})){}", self.before, self.after).into()
        });
        AssertSqlSafe(text.clone()).into_sql_str()
    }
}

/// A list of rows, each of the same columns.
#[derive(Clone, Debug)]
pub(crate) struct List {
    columns: usize,
    values: Vec<Value>,
}

impl List {
    /// A list of these rows.
    pub(crate) fn of<const N: usize>(rows: impl IntoIterator<Item = [Value; N]>) -> Self {
        Self { columns: N, values: rows.into_iter().flatten().collect() }
    }

    /// Whether there is nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Pieces of at most [`ROWS_MAX`] rows: the number of rows and the values, row by row.
    pub(crate) fn pieces(self) -> impl Iterator<Item = (usize, Vec<Value>)> {
        let columns = self.columns;
        let mut rest = self.values.into_iter().peekable();
        std::iter::from_fn(move || {
            rest.peek()?;
            let piece: Vec<Value> = rest.by_ref().take(ROWS_MAX * columns).collect();
            Some((piece.len() / columns, piece))
        })
    }

    /// The values of each column, from the first row down.
    pub(crate) fn columns(&self) -> impl Iterator<Item = impl Iterator<Item = &Value>> {
        (0..self.columns).map(|column| self.values.iter().skip(column).step_by(self.columns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static STATEMENT: Rows = Rows::new("SELECT column2 FROM ", 2, " AS v WHERE column1 IS NOT NULL");

    #[test]
    fn a_list_is_values_of_a_fixed_size_or_an_array_for_each_column() {
        let values = STATEMENT.with_values(3);
        assert_eq!(
            values.as_str(),
            "SELECT column2 FROM (VALUES (?,?),(?,?),(?,?),(?,?)) AS v WHERE column1 IS NOT NULL"
        );
        assert_eq!(
            STATEMENT.with_arrays().as_str(),
            "SELECT column2 FROM (SELECT * FROM unnest($1, $2) AS list (column1, column2)) AS v WHERE column1 IS NOT NULL"
        );
    }

    #[test]
    fn a_long_list_comes_in_pieces() {
        let list = List::of((0..600_i64).map(|number| [number.into(), "text".into()]));
        let columns: Vec<Vec<&Value>> = list.columns().map(Iterator::collect).collect();
        assert_eq!((columns.len(), columns[0][599], columns[1][599]), (2, &599_i64.into(), &"text".into()));
        let sizes: Vec<(usize, usize)> = list.pieces().map(|(rows, values)| (rows, values.len())).collect();
        assert_eq!(sizes, [(256, 512), (256, 512), (88, 176)]);
        assert_eq!(List::of(Vec::<[Value; 2]>::new()).pieces().count(), 0);
    }
}
