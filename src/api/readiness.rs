//! Whether the server takes new work: its database answers and takes writes, and it does not drain.
//!
//! One probe asks the database every two seconds; `/readyz`, `grpc.health.v1` and the metric read what it found, so
//! that many health checks cost one read and one write that changes nothing.

use crate::clock;
use crate::domain::SessionId;
use crate::store::{self, Store};
use crate::telemetry;
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Pause between two probes.
const PAUSE: Duration = Duration::from_secs(2);

/// How long the database may take to answer one.
const PATIENCE: Duration = Duration::from_secs(3);

/// What keeps a server from being ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// Nothing.
    Ready,
    /// The database does not answer, or takes no writes.
    StoreUnavailable,
    /// It shuts down; it will not be ready again.
    Draining,
}

impl Readiness {
    /// In words, for `/readyz`.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::StoreUnavailable => "not ready: the database does not answer or takes no writes",
            Self::Draining => "not ready: shutting down",
        }
    }
}

/// Tells all who ask, and those who wait for a change.
#[derive(Clone, Debug)]
pub(super) struct Beacon(watch::Sender<Readiness>);

impl Beacon {
    /// Ready until something else is found: the store was opened before there was a server.
    pub(super) fn new() -> Self {
        let beacon = Self(watch::Sender::new(Readiness::Ready));
        telemetry::ready(true);
        beacon
    }

    /// What holds now.
    pub(super) fn now(&self) -> Readiness {
        *self.0.borrow()
    }

    /// Follows the changes.
    pub(super) fn subscribe(&self) -> watch::Receiver<Readiness> {
        self.0.subscribe()
    }

    /// The server shuts down.
    pub(super) fn drain(&self) {
        self.set(Readiness::Draining);
    }

    fn set(&self, readiness: Readiness) {
        let changed = self.0.send_if_modified(|now| {
            // A probe that was under way does not call off the end.
            let changes = *now != readiness && *now != Readiness::Draining;
            if changes {
                *now = readiness;
            }
            changes
        });
        if changed {
            telemetry::ready(readiness == Readiness::Ready);
            tracing::info!(readiness = readiness.text(), "readiness changed");
        }
    }

    /// Asks the database again and again until `stop` is called.
    pub(super) async fn probe(self, store: Arc<dyn Store>, stop: CancellationToken) {
        while stop.run_until_cancelled(clock::sleep(PAUSE)).await.is_some() {
            let answers = tokio::time::timeout(PATIENCE, ask(&*store)).await.is_ok_and(|asked| asked.is_ok());
            self.set(if answers { Readiness::Ready } else { Readiness::StoreUnavailable });
        }
    }
}

/// Reads and deletes a row that cannot be there: both go all the way to the database and change nothing. A database that
/// became a standby still reads.
async fn ask(store: &dyn Store) -> Result<(), store::Error> {
    let nobody = SessionId(uuid::Uuid::nil());
    store.session(nobody).await?;
    store.end_session(nobody, None).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c125_a_draining_server_never_becomes_ready_again() {
        let beacon = Beacon::new();
        let mut changes = beacon.subscribe();
        beacon.set(Readiness::StoreUnavailable);
        assert!(changes.has_changed().unwrap());
        beacon.drain();
        beacon.set(Readiness::Ready);
        assert_eq!(*changes.borrow_and_update(), Readiness::Draining);
    }
}
