//! What SQLite and PostgreSQL share: the SQL, written once, and the work that puts it together and reads its answers.
//!
//! - A text in [`text`] is understood by both; where the dialects part, [`Dialect`] knows how, and nothing else.
//! - Columns have the same names, order and kinds in both: integers (64 bits), text, bytes.
//! - Each function here is a statement or two on a [`Connection`] or a [`Transaction`], which each dialect has of its own.
//!   A read that must see one state of the database is one statement, so nobody begins a transaction to read.
//!
//! # Design
//! Committing is not here: SQLite has one writer and writes each table with a statement of its own, PostgreSQL writes a
//! batch from several connections with a single statement.

pub(crate) mod batches;
pub(crate) mod definitions;
pub(crate) mod executions;
pub(crate) mod list;
pub(crate) mod many;
pub(crate) mod retention;
pub(crate) mod row;
pub(crate) mod schedules;
pub(crate) mod sessions;
pub(crate) mod text;
pub(crate) mod values;

pub(crate) use many::{List, Rows};
pub(crate) use row::{Row, damaged};
pub(crate) use values::{Value, Values};

use super::Change;
use futures_util::future::BoxFuture;
use sqlx::SqlSafeStr;

/// Whose SQL a connection speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dialect {
    /// SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
}

impl Dialect {
    /// Said after a table: which index to walk. PostgreSQL decides that by itself, and a test looks whether it does so well.
    pub(crate) fn indexed_by(self, index: &str) -> String {
        match self {
            Self::Sqlite => format!(" INDEXED BY {index}"),
            Self::Postgres => String::new(),
        }
    }
}

/// A connection to a database. Every statement stays prepared.
pub(crate) trait Connection: Send {
    /// A row of an answer.
    type Row: Row;

    /// The dialect.
    const DIALECT: Dialect;

    /// Reads all rows of a statement.
    fn rows(&mut self, sql: impl SqlSafeStr, values: Values) -> BoxFuture<'_, sqlx::Result<Vec<Self::Row>>>;

    /// Reads all rows of a statement over a list.
    fn rows_of_many(&mut self, statement: &'static Rows, list: List) -> BoxFuture<'_, sqlx::Result<Vec<Self::Row>>>;

    /// Reads the only row of a statement, if there is one.
    fn row(&mut self, sql: impl SqlSafeStr, values: Values) -> BoxFuture<'_, sqlx::Result<Option<Self::Row>>> {
        let rows = self.rows(sql, values);
        Box::pin(async move { Ok(rows.await?.pop()) })
    }
}

/// An open transaction that writes, and counts what it changes.
pub(crate) trait Transaction: Connection {
    /// Runs a statement; answers how many rows it changed.
    fn run(&mut self, change: Change, sql: impl SqlSafeStr, values: Values) -> BoxFuture<'_, sqlx::Result<u64>>;

    /// Runs a statement over a list; answers how many rows it changed.
    fn run_many(&mut self, change: Change, statement: &'static Rows, list: List) -> BoxFuture<'_, sqlx::Result<u64>>;

    /// Notes rows that a statement whose RETURNING was read has changed.
    fn changed(&mut self, change: Change, rows: u64);

    /// Runs a statement whose RETURNING gives a row for each row that it changed.
    fn returning(
        &mut self,
        change: Change,
        sql: impl SqlSafeStr,
        values: Values,
    ) -> BoxFuture<'_, sqlx::Result<Vec<Self::Row>>> {
        let sql = sql.into_sql_str();
        Box::pin(async move {
            let rows = self.rows(sql, values).await?;
            self.changed(change, rows.len() as u64);
            Ok(rows)
        })
    }

    /// Runs a statement over a list whose RETURNING gives a row for each row that it changed.
    fn returning_of_many(
        &mut self,
        change: Change,
        statement: &'static Rows,
        list: List,
    ) -> BoxFuture<'_, sqlx::Result<Vec<Self::Row>>> {
        Box::pin(async move {
            let rows = self.rows_of_many(statement, list).await?;
            self.changed(change, rows.len() as u64);
            Ok(rows)
        })
    }
}
