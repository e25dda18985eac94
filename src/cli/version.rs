//! Tells the version of this program, without a server: `version`.

use super::{error::Error, output::Output};

/// Version of this program, by semver.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How it was built.
pub(super) const PROFILE: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

/// Tells the version of this program.
#[derive(Debug, clap::Args)]
pub(super) struct Version {}

impl Version {
    pub(super) fn run(self, output: Output) -> Result<(), Error> {
        if output.is_json() {
            return output.line(&format!("{:#}", serde_json::json!({ "version": VERSION, "profile": PROFILE })));
        }
        output.line(&format!("orbit {VERSION} ({PROFILE})"))
    }
}
