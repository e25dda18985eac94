//! What an error of SQLite means to a caller.

use crate::store::Error;
use std::sync::Arc;

// Primary result codes, the low byte of SQLite's extended ones.
const ERROR: i32 = 1;
const CORRUPT: i32 = 11;
const TOO_BIG: i32 = 18;
const CONSTRAINT: i32 = 19;
const MISMATCH: i32 = 20;
const NOT_A_DATABASE: i32 = 26;

/// The primary result code, if the error is SQLite's.
pub(super) fn code(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}

/// Whether the fault lies in what was to be written, so that the same would fail again; else it is the world's.
pub(super) fn is_of_the_data(error: &sqlx::Error) -> bool {
    matches!(code(error), Some(ERROR | TOO_BIG | CONSTRAINT | MISMATCH))
}

/// Whether the file is no SQLite database at all.
pub(super) fn is_not_a_database(error: &sqlx::Error) -> bool {
    code(error) == Some(NOT_A_DATABASE)
}

/// The error as callers of the store know it.
pub(super) fn from_sqlx(error: sqlx::Error) -> Error {
    let damaged = match &error {
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => true,
        other => matches!(code(other), Some(CORRUPT | NOT_A_DATABASE)),
    };
    if damaged { Error::Damaged { what: error.to_string() } } else { Error::Unavailable(Arc::new(error)) }
}
