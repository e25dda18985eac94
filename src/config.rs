//! Options of a server. Each is a flag or an `ORBIT_…` variable; the flag wins, then the variable, then the default.
//!
//! What a value means and where it may lie stands at its field, which is also the text of `--help`.

mod database;
mod http;
mod postgres;

pub use database::{Database, parse_secretly};
pub use http::{HostRule, Http, Network};
pub use postgres::PostgresUrl;

use std::{net::SocketAddr, time::Duration};

/// Everything that a server can be told.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Server {
    /// Database: a file for one server, as a path or as `sqlite:PATH`, made if it is not there; or one of PostgreSQL for
    /// any number of servers, as `postgres://USER:PASSWORD@HOST:PORT/NAME?sslmode=verify-full`. What its address leaves
    /// out comes from PGHOST, PGUSER, PGPASSWORD, ~/.pgpass and their like
    // Its value stands in no help text and in no message: it may hold a password.
    #[arg(long = "db", env = "ORBIT_DB", value_name = "DATABASE", default_value = "orbit.db", hide_env_values = true,
          value_parser = parse_secretly::<Database>())]
    pub database: Database,

    /// Address for gRPC, HTTP/JSON and metrics, `IP:PORT`; port 0 takes a free one, which the start-up line tells
    #[arg(long, env = "ORBIT_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:7070")]
    pub listen: SocketAddr,

    /// Serves callers without credentials also on an address that is not loopback. Whoever reaches it may do everything
    #[arg(long, env = "ORBIT_ALLOW_ANONYMOUS")]
    pub allow_anonymous: bool,

    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at the type")]
    pub tuning: Tuning,
}

/// Options that a server runs well without.
#[derive(Clone, Debug, clap::Args)]
pub struct Tuning {
    /// Silence after which a worker's session, or a task that its worker does not list, is lost: 1s to 1h. Shorter
    /// finds dead workers sooner; longer bears longer pauses of live ones
    #[arg(long, env = "ORBIT_SESSION_TIMEOUT", value_name = "DURATION", default_value = "30s",
          value_parser = duration_between(Duration::from_secs(1), Duration::from_hours(1)))]
    pub session_timeout: Duration,

    /// How long tasks that are out may still report once their execution is cancelled, failed or timed out: 0s to 24h
    #[arg(long, env = "ORBIT_CANCEL_GRACE", value_name = "DURATION", default_value = "30s",
          value_parser = duration_between(Duration::ZERO, Duration::from_hours(24)))]
    pub cancel_grace: Duration,

    /// How long executions are kept after their end, and runs after theirs: 0s to 36500d. 0 keeps them for ever
    #[arg(long, env = "ORBIT_RETENTION", value_name = "DURATION", default_value = "30d",
          value_parser = duration_between(Duration::ZERO, Duration::from_hours(36_500 * 24)))]
    pub retention: Duration,

    /// How long the ledger of schedules is kept: 0s to 36500d. 0 keeps it for ever
    #[arg(long, env = "ORBIT_SLOT_RETENTION", value_name = "DURATION", default_value = "30d",
          value_parser = duration_between(Duration::ZERO, Duration::from_hours(36_500 * 24)))]
    pub slot_retention: Duration,

    /// Events that one run of an execution may have before it fails with HISTORY_TOO_LONG: 1000 and up. A guard against
    /// loops without an end; it is told at four fifths
    #[arg(long = "max-history-events", env = "ORBIT_MAX_HISTORY_EVENTS", value_name = "COUNT", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u64).range(1_000..))]
    pub history_events_max: u64,

    /// Executions that may be open when another one is started; a start beyond them is refused. Children of open
    /// executions are not, since their parents wait for them [default: no limit]
    #[arg(long = "max-active-executions", env = "ORBIT_MAX_ACTIVE_EXECUTIONS", value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub active_executions_max: Option<u64>,

    /// After SIGTERM, how long to serve on as "not ready" until load balancers have noticed: 0s to 10m
    #[arg(long, env = "ORBIT_DRAIN_DELAY", value_name = "DURATION", default_value = "0s",
          value_parser = duration_between(Duration::ZERO, Duration::from_mins(10)))]
    pub drain_delay: Duration,

    /// After that, how long calls that run may take before they are cut off: 0s to 10m
    #[arg(long, env = "ORBIT_DRAIN_TIMEOUT", value_name = "DURATION", default_value = "20s",
          value_parser = duration_between(Duration::ZERO, Duration::from_mins(10)))]
    pub drain_timeout: Duration,

    /// Memory for executions that are in use, in bytes or as 512KiB, 256MiB, 2GiB: 1MiB to 1TiB. Less costs reads
    #[arg(long, env = "ORBIT_CACHE_SIZE", value_name = "SIZE", default_value = "256MiB", value_parser = parse_cache_size)]
    pub cache_bytes: usize,

    /// Does not sync commits: a power loss then loses acknowledged work. Only for the test that shows that it would notice
    #[arg(long, env = "ORBIT_UNSAFE_WITHOUT_SYNC", hide = true)]
    pub unsafe_without_sync: bool,

    /// What is logged to stderr: a level (error, warn, info, debug, trace) or `orbit::engine=debug,warn`
    #[arg(long = "log", env = "ORBIT_LOG", value_name = "FILTER", default_value = "info")]
    pub log_filter: String,

    /// Form of a log line
    #[arg(long, env = "ORBIT_LOG_FORMAT", value_enum, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,

    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at the type")]
    pub postgres: Postgres,

    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at the type")]
    pub http: Http,
}

/// Options of a server whose database is one of PostgreSQL; without effect on SQLite.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Options with PostgreSQL")]
pub struct Postgres {
    /// Connections of this server for reads and for what is no commit: 1 to 1000. A call beyond them waits for one. Two
    /// more hear and tell news
    #[arg(long = "db-connections", env = "ORBIT_DB_CONNECTIONS", value_name = "COUNT", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub connections: u32,

    /// Connections for commits, each of which writes one batch after the other: 1 to 32. Few make large batches, which
    /// cost less; more help where a commit has far to go
    #[arg(long = "db-committers", env = "ORBIT_DB_COMMITTERS", value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=32))]
    pub committers: u32,

    /// Longest that the database may take for one statement, one commit or a new connection, before callers are told that
    /// it is unavailable: 1s to 1m
    #[arg(long = "db-timeout", env = "ORBIT_DB_TIMEOUT", value_name = "DURATION", default_value = "5s",
          value_parser = duration_between(Duration::from_secs(1), Duration::from_mins(1)))]
    pub timeout: Duration,

    /// How long a start waits for a database that does not answer, before it ends with 6: 0s to 1h
    #[arg(long = "db-wait", env = "ORBIT_DB_WAIT", value_name = "DURATION", default_value = "30s",
          value_parser = duration_between(Duration::ZERO, Duration::from_hours(1)))]
    pub wait: Duration,
}

/// Form of a log line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line, for programs.
    Json,
}

impl Server {
    /// Refuses what no single option is wrong with: a public address without credentials, certificates that are not
    /// there.
    ///
    /// # Errors
    /// The text for the user, which names the way out.
    pub fn check(&self) -> Result<(), String> {
        if let Database::Postgres(url) = &self.database {
            url.check_files()?;
        }
        if self.listen.ip().is_loopback() || self.allow_anonymous {
            return Ok(());
        }
        Err(format!(
            "{} is not a loopback address, and this server asks nobody for credentials: everybody who reaches it could \
             do everything. Listen on 127.0.0.1, or say --allow-anonymous (ORBIT_ALLOW_ANONYMOUS=true)",
            self.listen
        ))
    }
}

/// Makes a parser of durations from `min` to `max`, ends included.
pub fn duration_between(
    min: Duration,
    max: Duration,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| {
        let duration = parse_duration(text)?;
        if duration < min || duration > max {
            return Err(format!("must be {min:?} to {max:?}"));
        }
        Ok(duration)
    }
}

/// Parses `250ms`, `30s`, `1h30m`, `7d`: numbers with units from the longest to the shortest, or `0`.
///
/// # Errors
/// What is wrong, for people.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let wrong = || format!("{text:?} is not a duration such as 250ms, 30s, 1h30m or 7d");
    let mut rest = text;
    let mut millis = 0_u64;
    let mut longest = u64::MAX;
    while !rest.is_empty() || millis == 0 && longest == u64::MAX {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let letters = rest[digits..].find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len() - digits);
        let (number, unit) = (&rest[..digits], &rest[digits..digits + letters]);
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        if *unit >= longest {
            return Err(wrong());
        }
        longest = *unit;
        let part = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*unit)).ok_or_else(wrong)?;
        millis = millis.checked_add(part).ok_or_else(wrong)?;
        rest = &rest[digits + letters..];
    }
    Ok(Duration::from_millis(millis))
}

fn parse_cache_size(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text)?;
    if !(1 << 20..=1 << 40).contains(&bytes) {
        return Err("must be 1MiB to 1TiB".to_owned());
    }
    usize::try_from(bytes).map_err(|_| "is more than this machine can address".to_owned())
}

/// Parses a number of bytes: `4096`, `512KiB`, `256MiB`, `2GiB`, `1TiB`.
fn parse_size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u32); 6] = [("", 0), ("B", 0), ("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let wrong = || format!("{text:?} is not a size such as 1048576, 512KiB, 256MiB or 2GiB");
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let (_, shift) = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(wrong)?;
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_units() {
        for (text, millis) in
            [("0", 0), ("0s", 0), ("250ms", 250), ("30s", 30_000), ("1h30m", 5_400_000), ("7d", 604_800_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in
            ["", "5", "s", "-1s", "1.5s", "1s1s", "1m1h", "1 s", "99999999999999999999s", "18446744073709551615d"]
        {
            assert!(parse_duration(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn sizes_are_read_with_their_units_and_bounded() {
        assert_eq!(parse_cache_size("1048576"), Ok(1 << 20));
        assert_eq!(parse_cache_size("2gib"), Ok(2 << 30));
        for text in ["1KiB", "2TiB", "MiB", "1.5GiB", "", "99999999999TiB"] {
            assert!(parse_cache_size(text).is_err(), "{text:?}");
        }
    }
}
