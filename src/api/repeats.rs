//! Log lines that say the same of one call after the other: an outage or an overload is told, not shouted.
//!
//! The first line of a kind is written at once; then that kind is silent for a while, and the next one says how many were
//! left out. The metrics count every call.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// How long a kind of line is silent after each of its lines.
const SILENCE: Duration = Duration::from_secs(10);

/// What makes two lines alike: the text, the RPC, and the code. All three are the program's own words, so there are few.
pub(super) type Kind = (&'static str, &'static str, &'static str);

/// What has been said of each kind.
#[derive(Default)]
pub(super) struct Repeats {
    said: Mutex<HashMap<Kind, Said>>,
}

/// The newest line of a kind.
struct Said {
    /// When it was written, by monotonic time.
    time: Duration,
    /// Lines like it that have been left out since.
    left_out: u64,
}

impl Repeats {
    /// How many lines of this kind were left out since the last one, if another one is to be written now.
    pub(super) fn next(&self, kind: Kind, now: Duration) -> Option<u64> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = said.get_mut(&kind) else {
            said.insert(kind, Said { time: now, left_out: 0 });
            return Some(0);
        };
        if now.saturating_sub(last.time) < SILENCE {
            last.left_out += 1;
            return None;
        }
        last.time = now;
        Some(std::mem::take(&mut last.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Kind = ("a slow call", "StartExecution", "OK");

    #[test]
    fn the_first_line_is_written_and_what_repeats_it_is_counted() {
        let repeats = Repeats::default();
        let second = Duration::from_secs;
        assert_eq!(repeats.next(SLOW, second(100)), Some(0));
        assert_eq!(repeats.next(SLOW, second(100)), None);
        assert_eq!(repeats.next(SLOW, second(109)), None);
        assert_eq!(repeats.next(SLOW, second(110)), Some(2));
        assert_eq!(repeats.next(SLOW, second(111)), None);
        assert_eq!(repeats.next(SLOW, second(200)), Some(1));
        assert_eq!(repeats.next(SLOW, second(300)), Some(0));
    }

    #[test]
    fn kinds_do_not_silence_each_other() {
        let repeats = Repeats::default();
        assert_eq!(repeats.next(SLOW, Duration::ZERO), Some(0));
        assert_eq!(repeats.next(("a slow call", "StartExecution", "UNAVAILABLE"), Duration::ZERO), Some(0));
        assert_eq!(repeats.next(("a slow call", "CompleteTask", "OK"), Duration::ZERO), Some(0));
        assert_eq!(repeats.next(("a call failed", "StartExecution", "OK"), Duration::ZERO), Some(0));
    }
}
