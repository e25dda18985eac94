//! Where a server keeps its data: a file, or a PostgreSQL database.

use super::PostgresUrl;
use clap::{
    Arg, Command,
    builder::TypedValueParser,
    error::{Error, ErrorKind},
};
use std::{ffi::OsStr, fmt, path::PathBuf, str::FromStr};

/// Where a server keeps its data. Shown without a password.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Database {
    /// A file of the SQLite that is built in. One server has it at a time.
    Sqlite(PathBuf),
    /// A database of a PostgreSQL server, which any number of servers share.
    Postgres(PostgresUrl),
}

impl FromStr for Database {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let path = match text.split_once(':') {
            Some(("sqlite", path)) => path.strip_prefix("//").unwrap_or(path),
            Some(("postgres" | "postgresql", _)) => return text.parse().map(Self::Postgres),
            // Anything else with a colon may be the name of a file, but not what looks like an address.
            Some((scheme, rest)) if rest.starts_with("//") => {
                return Err(format!("{scheme}:// is not known; write sqlite:PATH or postgres://USER@HOST/DATABASE"));
            }
            _ => text,
        };
        if path.is_empty() {
            return Err("the path of the database is empty".to_owned());
        }
        Ok(Self::Sqlite(PathBuf::from(path)))
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => url.fmt(f),
        }
    }
}

/// Reads a value that may hold a password. clap's own parsers repeat a wrong value in their message; this one says only
/// what is wrong with it.
pub fn parse_secretly<T>() -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = String> + Clone + Send + Sync + 'static,
{
    Secretly(std::marker::PhantomData)
}

/// See [`parse_secretly`].
#[derive(Clone)]
struct Secretly<T>(std::marker::PhantomData<fn() -> T>);

impl<T: FromStr<Err = String> + Clone + Send + Sync + 'static> TypedValueParser for Secretly<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        let read = value.to_str().ok_or_else(|| "is not text in UTF-8".to_owned()).and_then(str::parse);
        read.map_err(|why| {
            let name = argument.map(ToString::to_string).unwrap_or_default();
            Error::raw(ErrorKind::ValueValidation, format!("invalid value for '{name}': {why}\n")).with_cmd(command)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_a_path_with_or_without_its_scheme() {
        let sqlite = |path: &str| Ok(Database::Sqlite(PathBuf::from(path)));
        assert_eq!("orbit.db".parse(), sqlite("orbit.db"));
        assert_eq!("sqlite:orbit.db".parse(), sqlite("orbit.db"));
        assert_eq!("sqlite:///var/lib/orbit.db".parse(), sqlite("/var/lib/orbit.db"));
        assert_eq!("a:b.db".parse(), sqlite("a:b.db"));
        assert!("sqlite:".parse::<Database>().is_err());
    }

    #[test]
    fn what_looks_like_an_address_is_not_taken_for_a_file() {
        for text in ["mysql://root:secret@localhost/orbit", "postgress://u:secret@h/db"] {
            let why = text.parse::<Database>().unwrap_err();
            assert!(why.contains("is not known") && !why.contains("secret"), "{why}");
        }
        for text in ["postgres://localhost/orbit", "postgresql://localhost/orbit"] {
            assert!(matches!(text.parse(), Ok(Database::Postgres(_))), "{text}");
        }
        assert!("postgres:orbit".parse::<Database>().is_err());
    }
}
