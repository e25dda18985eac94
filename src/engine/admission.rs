//! How many executions may be open when another one is started: a limit that is off unless it is set.
//!
//! - It is kept to about a second: what each node knows are the counters of that long ago and its own starts since.
//! - Calls that start or rerun are refused. Children start beyond it, since a parent whose child must not start would keep
//!   its own place for ever; so do retries, which are an operator's repair.
//! - Where the counters cannot be read starts are let through: they fail by themselves where the store is out.

use super::{Core, call::Error};
use std::time::Duration;
use tokio::sync::Mutex;

/// How long a count is good for as long as there is room.
const COUNT_AGE_MAX: Duration = Duration::from_secs(1);
/// The same where there is none: whoever closes an execution wants to start the next one.
const FULL_AGE_MAX: Duration = Duration::from_millis(100);

/// What is known of the open executions.
#[derive(Default)]
pub(super) struct Admission {
    // Held while the counters are read, so that a burst of starts does not go by the same old count.
    count: Mutex<Option<Count>>,
}

#[derive(Clone, Copy)]
struct Count {
    open: u64,
    /// When it was taken, by monotonic time.
    taken: Duration,
}

impl Core {
    /// Lets a start through, or says that as many executions are open as may be.
    pub(super) async fn admit(&self) -> Result<(), Error> {
        let Some(limit) = self.config.active_executions_max else { return Ok(()) };
        let mut known = self.admission.count.lock().await;
        let now = self.clock.monotonic();
        let is_good = |count: &Count| {
            let age_max = if count.open < limit { COUNT_AGE_MAX } else { FULL_AGE_MAX };
            now.saturating_sub(count.taken) < age_max
        };
        let mut count = match known.filter(is_good) {
            Some(count) => count,
            None => Count { open: self.open_executions().await.unwrap_or(0), taken: now },
        };
        let is_full = count.open >= limit;
        count.open += u64::from(!is_full);
        *known = Some(count);
        if is_full { Err(Error::TooManyExecutions { limit }) } else { Ok(()) }
    }

    async fn open_executions(&self) -> Result<u64, Error> {
        let counts = self.store.count().await.map_err(Error::Store)?;
        Ok(counts.into_iter().filter(|(state, _)| !state.is_closed()).map(|(_, count)| count).sum())
    }
}
