//! What an error of PostgreSQL means to a caller: told by its SQLSTATE, never by its text.

use crate::store::Error;
use std::sync::Arc;

/// The SQLSTATE, if the error is the server's.
fn code(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

/// Whether the fault lies in what was to be written, so that the same would fail again; else it is the world's.
pub(super) fn is_of_the_data(error: &sqlx::Error) -> bool {
    if matches!(error, sqlx::Error::Encode(_)) {
        return true;
    }
    // 21 a row twice in one statement, 22 a value that cannot be stored, 23 a constraint, 54 larger than the limits.
    code(error).is_some_and(|code| ["21", "22", "23", "54"].contains(&&code[..2]))
}

/// Whether the transaction stood in another's way: the same may work at once, and the connection is as good as before.
pub(super) fn is_of_the_moment(error: &sqlx::Error) -> bool {
    // A serialization failure, a deadlock, a lock that was not to be had in time.
    code(error).is_some_and(|code| ["40001", "40P01", "55P03"].contains(&&*code))
}

/// Whether the server seems to be gone, so that other connections to it are of no use either.
pub(super) fn is_of_the_server(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => true,
        // 08 a broken connection, 57P0x shut down or starting, 25006 turned into a standby.
        other => code(other).is_some_and(|code| code.starts_with("08") || code.starts_with("57P") || code == "25006"),
    }
}

/// Whether what is stored cannot be what was written.
pub(super) fn is_damage(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => true,
        other => code(other).is_some_and(|code| ["XX001", "XX002"].contains(&&*code)),
    }
}

/// The error as callers of the store know it.
pub(super) fn from_sqlx(error: sqlx::Error) -> Error {
    if is_damage(&error) { Error::Damaged { what: error.to_string() } } else { Error::Unavailable(Arc::new(error)) }
}

/// An error at the start, where a person reads it: what he must do something about is refused in plain words.
pub(super) fn at_start(error: sqlx::Error) -> Error {
    let no_tls =
        |why: &dyn std::fmt::Display| Error::Refused(format!("no TLS with the database as it was asked for: {why}"));
    match &error {
        sqlx::Error::Configuration(why) => return Error::Refused(why.to_string()),
        sqlx::Error::Tls(why) => return no_tls(why),
        // A certificate that is not trusted, or for another host: of a broken connection this is never said.
        sqlx::Error::Io(why) if why.kind() == std::io::ErrorKind::InvalidData => return no_tls(why),
        _ => {}
    }
    let said = |said: &str| {
        let message = error.as_database_error().map(|error| error.message().to_owned()).unwrap_or_default();
        Error::Refused(format!("{said}: {message}"))
    };
    match code(&error).as_deref() {
        Some("3D000") => said("there is no such database; create it first (createdb)"),
        Some("28000" | "28P01") => said("the database does not let this user in"),
        Some("42501") => said("this user may not do what is needed; it must own the schema"),
        _ => from_sqlx(error),
    }
}

/// A refusal in plain words, on its way through functions that answer with sqlx's errors.
pub(super) fn refusal(why: impl Into<String>) -> sqlx::Error {
    sqlx::Error::Configuration(why.into().into())
}

/// The database did not answer in time.
pub(super) fn no_answer() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the database did not answer in time"))
}

/// An answer that cannot be.
pub(super) fn damaged(what: impl Into<String>) -> sqlx::Error {
    sqlx::Error::Decode(what.into().into())
}
