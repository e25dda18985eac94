//! The log of a server: lines on stderr.

use super::error::Error;
use crate::config::{LogFormat, Tuning};
use std::io::{self, IsTerminal as _};
use tracing_subscriber::{EnvFilter, fmt};

/// Begins to log, once a process.
pub(super) fn start(tuning: &Tuning) -> Result<(), Error> {
    let filter = EnvFilter::builder()
        .parse(&tuning.log_filter)
        .map_err(|error| Error::usage(format!("--log {:?}: {error}", tuning.log_filter)))?;
    let lines = fmt().with_env_filter(filter).with_writer(io::stderr);
    let started = match tuning.log_format {
        LogFormat::Text => {
            let colored = super::output::colors_wanted(io::stderr().is_terminal());
            lines.with_ansi(colored).try_init()
        }
        LogFormat::Json => lines.json().try_init(),
    };
    started.map_err(|error| Error::failure(format!("cannot start the log: {error}")))
}
