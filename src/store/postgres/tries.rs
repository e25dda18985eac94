//! Pauses between tries, which grow and are random, so that those who stood in each other's way do not meet again.

use crate::clock::{Entropy as _, SystemEntropy, sleep};
use std::time::Duration;
use tokio::time::Instant;

/// After so long no new try is begun: callers wait, and the next call finds out what became of this one.
const PATIENCE: Duration = Duration::from_secs(4);

/// The first pause, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// The tries of one piece of work.
pub(super) struct Tries {
    began: Instant,
    pause: Duration,
}

impl Default for Tries {
    fn default() -> Self {
        Self { began: Instant::now(), pause: PAUSE_MIN }
    }
}

impl Tries {
    /// Waits until the next try; says no where there should be none.
    pub(super) async fn wait(&mut self) -> bool {
        if self.began.elapsed() >= PATIENCE {
            return false;
        }
        // Between half of it and all of it.
        let thousandths = 500 + u32::try_from(SystemEntropy.number() % 501).expect("less than 501");
        sleep(self.pause * thousandths / 1_000).await;
        self.pause = PAUSE_MAX.min(self.pause * 2);
        true
    }
}
