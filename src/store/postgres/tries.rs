//! Pauses between tries, which grow and are random, so that those who stood in each other's way do not meet again.

use crate::clock::{Entropy as _, SystemEntropy, sleep};
use std::time::Duration;
use tokio::time::Instant;

/// The first pause, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// The tries of one piece of work, all of them within one limit.
pub(super) struct Tries {
    began: Instant,
    limit: Duration,
    pause: Duration,
}

impl Tries {
    pub(super) fn within(limit: Duration) -> Self {
        Self { began: Instant::now(), limit, pause: PAUSE_MIN }
    }

    /// How long the next try may take.
    pub(super) fn left(&self) -> Duration {
        self.limit.saturating_sub(self.began.elapsed())
    }

    /// Waits until the next try; says no where there should be none, since little time would be left for it: callers wait,
    /// and the next call finds out what became of this one.
    pub(super) async fn wait(&mut self) -> bool {
        if self.began.elapsed() >= self.limit * 4 / 5 {
            return false;
        }
        // Between half of it and all of it.
        let thousandths = 500 + u32::try_from(SystemEntropy.number() % 501).expect("less than 501");
        sleep(self.pause * thousandths / 1_000).await;
        self.pause = PAUSE_MAX.min(self.pause * 2);
        true
    }
}
