//! The address of a PostgreSQL database, as libpq writes it, checked before anybody connects.
//!
//! - What is absent comes from where libpq takes it: `PGHOST`, `PGPORT`, `PGUSER`, `PGPASSWORD`, `PGDATABASE`, `PGSSLMODE`
//!   and their like, `~/.pgpass`, the local socket, the name of the system's user.
//! - A parameter that would not be kept is refused by name: an `sslmode` that is ignored is worse than none.
//! - The password is in [`PostgresUrl::driver_url`] and nowhere else: neither `Display` nor `Debug` nor an error has it.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::{
    fmt::{self, Write as _},
    fs::File,
    str::FromStr,
};

/// What need not be written in percent form where a part is shown.
const PLAIN: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// How to write what would end the part that it stands in.
const ESCAPES: &str = "in a user or a password, write / as %2F, @ as %40, : as %3A and % as %25";

/// How TLS is used, from none to the strictest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TlsMode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl TlsMode {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "disable" => Ok(Self::Disable),
            "prefer" => Ok(Self::Prefer),
            "require" => Ok(Self::Require),
            "verify-ca" => Ok(Self::VerifyCa),
            "verify-full" => Ok(Self::VerifyFull),
            // Plain text first and TLS only if the server insists: nobody wants that, and the driver would not do it.
            _ => Err("sslmode is one of disable, prefer, require, verify-ca, verify-full".to_owned()),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }
}

/// How a PostgreSQL database is reached. Shown without its password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PostgresUrl {
    /// Name, address, or directory of a socket (begins with `/`).
    host: Option<String>,
    port: Option<u16>,
    user: Option<String>,
    password: Option<String>,
    database: Option<String>,
    tls: Option<TlsMode>,
    /// File with the certificates of those who may vouch for the server; also those of the system do.
    root_certificate: Option<String>,
    client_certificate: Option<String>,
    client_key: Option<String>,
    application_name: Option<String>,
    /// Settings of the session, as `-c name=value`.
    options: Option<String>,
}

impl PostgresUrl {
    /// The address for the driver, **with its password**: never for people, logs or the command line of a process.
    #[must_use]
    pub fn driver_url(&self) -> String {
        // All as parameters, so that a socket's directory and an IPv6 address need no form of their own.
        let port = self.port.map(|port| port.to_string());
        let parts: [(&str, Option<&str>); 11] = [
            ("host", self.host.as_deref()),
            ("port", port.as_deref()),
            ("user", self.user.as_deref()),
            ("password", self.password.as_deref()),
            ("dbname", self.database.as_deref()),
            ("sslmode", self.tls.map(TlsMode::name)),
            ("sslrootcert", self.root_certificate.as_deref()),
            ("sslcert", self.client_certificate.as_deref()),
            ("sslkey", self.client_key.as_deref()),
            ("application_name", Some(self.application_name.as_deref().unwrap_or("orbit"))),
            ("options", self.options.as_deref()),
        ];
        let mut url = "postgres:///".to_owned();
        for (index, (name, value)) in parts.iter().filter_map(|(name, value)| Some((name, (*value)?))).enumerate() {
            let sign = if index == 0 { '?' } else { '&' };
            write!(url, "{sign}{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)).expect("a string takes it");
        }
        url
    }

    /// Looks whether the certificates and the key are there, which only a connection would find otherwise.
    ///
    /// # Errors
    /// The text for the user.
    pub fn check_files(&self) -> Result<(), String> {
        for (name, file) in [
            ("sslrootcert", &self.root_certificate),
            ("sslcert", &self.client_certificate),
            ("sslkey", &self.client_key),
        ] {
            if let Some(file) = file {
                File::open(file).map_err(|error| format!("{name} {file} cannot be read: {error}"))?;
            }
        }
        Ok(())
    }

    /// Takes one parameter. An empty value is none, as for libpq.
    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        let text = Some(value.to_owned()).filter(|value| !value.is_empty());
        match name {
            "host" => self.host = text,
            "port" => self.port = parse_port(value)?,
            "user" => self.user = text,
            "password" => self.password = text,
            "dbname" => self.database = text,
            "sslmode" => self.tls = text.as_deref().map(TlsMode::parse).transpose()?,
            "sslrootcert" => self.root_certificate = text,
            "sslcert" => self.client_certificate = text,
            "sslkey" => self.client_key = text,
            "application_name" => self.application_name = text,
            "options" => self.options = text,
            "passfile" => return Err("passfile is read from PGPASSFILE only".to_owned()),
            "target_session_attrs" | "load_balance_hosts" => {
                return Err(format!("{name} is not known: one host is named, and it must be the primary"));
            }
            _ => {
                return Err(format!(
                    "parameter {name:?} is not known; known are host, port, user, password, dbname, sslmode, \
                     sslrootcert, sslcert, sslkey, application_name, options"
                ));
            }
        }
        Ok(())
    }

    /// Judges the parts together.
    fn finish(mut self) -> Result<Self, String> {
        if let Some(host) = &self.host {
            if host.contains(',') {
                return Err("several hosts are not known; name one that always leads to the primary, such as a \
                            virtual address or a proxy"
                    .to_owned());
            }
            if host.contains('@') {
                return Err(format!("there is more than one @; {ESCAPES}"));
            }
            if host.contains(|c: char| c.is_whitespace() || c.is_control()) {
                return Err("the host has white space in it".to_owned());
            }
        }
        if self.client_certificate.is_some() != self.client_key.is_some() {
            return Err("sslcert and sslkey come together: a certificate and its key".to_owned());
        }
        if self.root_certificate.as_deref() == Some("system") {
            // The system's certificates are always trusted. As with libpq, only the strictest check makes sense with
            // them: they vouch for anybody, so the name must be right.
            self.root_certificate = None;
            if *self.tls.get_or_insert(TlsMode::VerifyFull) != TlsMode::VerifyFull {
                return Err("sslrootcert=system goes with sslmode=verify-full only".to_owned());
            }
        }
        // As with libpq: who names a certificate wants it checked.
        if self.root_certificate.is_some() && self.tls == Some(TlsMode::Require) {
            self.tls = Some(TlsMode::VerifyCa);
        }
        Ok(self)
    }
}

impl FromStr for PostgresUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest = ["postgres://", "postgresql://"].iter().find_map(|scheme| text.strip_prefix(scheme));
        let rest = rest.ok_or("write postgres://USER@HOST:PORT/DATABASE")?;
        let mut url = Self::default();
        // As libpq reads it: user and password end at the first @ before any slash.
        let rest = match rest.find(['@', '/']).map(|at| rest.split_at(at)) {
            Some((who, rest)) if rest.starts_with('@') => {
                let (user, password) = who.split_once(':').unwrap_or((who, ""));
                url.take("user", &decode("the user", user)?)?;
                url.take("password", &decode("the password", password)?)?;
                &rest[1..]
            }
            _ => rest,
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = split_place(place)?;
        url.take("host", &decode("the host", host)?)?;
        url.take("port", port)?;
        url.take("dbname", &decode("the database", database)?)?;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(|| {
                // What stands there may be the end of a password with a question mark.
                format!("a parameter has no value; parameters are written NAME=VALUE, and {ESCAPES}, ? as %3F")
            })?;
            url.take(&decode("a parameter", name)?, &decode(name, value)?)?;
        }
        url.finish()
    }
}

/// Host and port as they are written; an IPv6 address has brackets.
fn split_place(place: &str) -> Result<(&str, &str), String> {
    if let Some(rest) = place.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("the host begins with [ but has no ]")?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, port)),
            None if rest.is_empty() => Ok((host, "")),
            None => Err("after the host in brackets comes :PORT or nothing".to_owned()),
        };
    }
    Ok(place.split_once(':').unwrap_or((place, "")))
}

/// A port; none if there is nothing. The text is not repeated: it may be the password of an address without an @.
fn parse_port(text: &str) -> Result<Option<u16>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse() {
        Ok(port @ 1..) => Ok(Some(port)),
        Ok(0) | Err(_) => Err(format!("the port is not a number from 1 to 65535; {ESCAPES}")),
    }
}

/// Undoes the percent form.
fn decode(what: &str, text: &str) -> Result<String, String> {
    let wrong = || format!("{what} is not in percent form: % is followed by two hexadecimal digits, as in %25 for %");
    let escapes = text.match_indices('%').map(|(at, _)| text.as_bytes().get(at + 1..at + 3));
    if !escapes.into_iter().all(|digits| digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))) {
        return Err(wrong());
    }
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| wrong())?;
    if decoded.contains('\0') {
        return Err(format!("{what} has a zero byte in it"));
    }
    Ok(decoded.into_owned())
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |text: &str| utf8_percent_encode(text, &PLAIN).to_string();
        f.write_str("postgres://")?;
        if self.user.is_some() || self.password.is_some() {
            f.write_str(&self.user.as_deref().map(plain).unwrap_or_default())?;
            f.write_str(if self.password.is_some() { ":***@" } else { "@" })?;
        }
        match self.host.as_deref() {
            Some(address) if address.contains(':') => write!(f, "[{address}]")?,
            Some(host) => f.write_str(&plain(host))?,
            None => {}
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        write!(f, "/{}", self.database.as_deref().map(plain).unwrap_or_default())
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> PostgresUrl {
        text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    fn refused(text: &str) -> String {
        text.parse::<PostgresUrl>().expect_err(text)
    }

    #[test]
    fn an_address_is_shown_as_it_was_written_but_for_the_password() {
        for (text, shown) in [
            ("postgres://", "postgres:///"),
            ("postgresql://db.example/orbit", "postgres://db.example/orbit"),
            ("postgres://ada:s%40cret@db.example:6432/orbit", "postgres://ada:***@db.example:6432/orbit"),
            ("postgres://ada@[::1]:5433/orbit", "postgres://ada@[::1]:5433/orbit"),
            ("postgres://%2Fvar%2Frun%2Fpostgresql/orbit", "postgres://%2Fvar%2Frun%2Fpostgresql/orbit"),
            ("postgres:///orbit?host=/run/pg&user=ada&password=secret", "postgres://ada:***@%2Frun%2Fpg/orbit"),
            ("postgres://h:/d?dbname=other&port=1", "postgres://h:1/other"),
            ("postgres://h/d?application_name=a&options=-c%20x=secret", "postgres://h/d"),
        ] {
            assert_eq!(read(text).to_string(), shown, "{text}");
            assert!(!format!("{:?}", read(text)).contains("secret"), "{text}");
        }
    }

    #[test]
    fn the_driver_gets_every_part() {
        let url = read(
            "postgres://a%2Fda:p%26=%3F@db:1/orbit?sslmode=verify-full&sslrootcert=/ca&sslcert=/c&sslkey=/k&options=-c%20a=b",
        );
        assert_eq!(
            url.driver_url(),
            "postgres:///?host=db&port=1&user=a%2Fda&password=p%26%3D%3F&dbname=orbit&sslmode=verify%2Dfull\
             &sslrootcert=%2Fca&sslcert=%2Fc&sslkey=%2Fk&application_name=orbit&options=%2Dc%20a%3Db"
        );
        assert_eq!(read("postgres://").driver_url(), "postgres:///?application_name=orbit");
    }

    #[test]
    fn tls_is_never_weaker_than_it_was_asked_for() {
        let mode = |parameters: &str| read(&format!("postgres://h/d?{parameters}")).tls;
        assert_eq!(mode("sslmode=require"), Some(TlsMode::Require));
        assert_eq!(mode("sslmode=require&sslrootcert=/ca"), Some(TlsMode::VerifyCa));
        assert_eq!(mode("sslmode=verify-full&sslrootcert=/ca"), Some(TlsMode::VerifyFull));
        assert_eq!(mode("sslrootcert=system"), Some(TlsMode::VerifyFull));
        for parameters in ["sslmode=allow", "sslmode=Require", "sslmode=require&sslrootcert=system", "sslcert=/c"] {
            refused(&format!("postgres://h/d?{parameters}"));
        }
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        for (name, said) in [
            ("channel_binding", "\"channel_binding\" is not known; known are host"),
            ("ssl-mode", "\"ssl-mode\""),
            ("target_session_attrs", "the primary"),
            ("passfile", "PGPASSFILE"),
        ] {
            let why = refused(&format!("postgres://h/d?{name}=x"));
            assert!(why.contains(said), "{why}");
        }
        assert!(refused("postgres://a,b/d").contains("one that always leads to the primary"));
    }

    #[test]
    fn a_password_that_is_written_wrong_is_not_repeated() {
        for text in [
            "postgres://ada:sec/ret@db/orbit",
            "postgres://ada:sec@ret@db/orbit",
            "postgres://ada:secret%@db/orbit",
            "postgres://ada:secret%zz@db/orbit",
            "postgres://ada:secret%00@db/orbit",
            "postgres://ada:%ffsecret@db/orbit",
            "postgres://db:secret/orbit",
            "postgres://db:0/orbit",
            "postgres://[::1/orbit",
            "postgres://[::1]secret/orbit",
            "postgres://d b/orbit",
            "postgres://db/orbit?secret",
            "postgres:orbit",
        ] {
            let why = refused(text);
            assert!(!why.contains("sec") && !why.contains("ret"), "{text}: {why}");
        }
    }

    #[test]
    fn files_that_are_missing_are_named() {
        assert_eq!(read("postgres://h/d").check_files(), Ok(()));
        let why = read("postgres://h/d?sslrootcert=/does/not/exist").check_files().unwrap_err();
        assert!(why.starts_with("sslrootcert /does/not/exist cannot be read: "), "{why}");
    }
}
