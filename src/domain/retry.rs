//! The arithmetic of retries: how long to pause after a failed attempt.
//!
//! - A pause is never above `max_interval` and never negative, whatever the policy says (overflow, NaN, infinity). Only a
//!   worker that asks for a longer one gets it (`retry_after`, in `decide::task`).
//! - The jitter comes from the ids of the attempt by a named hash, so a replay and every CPU get the same pause.

use sha2::{Digest, Sha256};
use std::{sync::Arc, time::Duration};

/// What happens after a failed attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// How many attempts there may be in all, at least 1.
    pub max_attempts: u32,
    /// Pause after the first attempt.
    pub initial_interval: Duration,
    /// Factor from one pause to the next.
    pub coefficient: f64,
    /// Longest pause.
    pub max_interval: Duration,
    /// Share of each pause that the jitter may take away, 0 to 1.
    pub jitter: f64,
    /// Error codes that end the step at the first attempt.
    pub non_retryable: Vec<Arc<str>>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            initial_interval: Duration::from_secs(1),
            coefficient: 2.0,
            max_interval: Duration::from_secs(60),
            jitter: 0.2,
            non_retryable: Vec::new(),
        }
    }
}

impl RetryPolicy {
    /// The pause between the end of `attempt` (numbered from 1) and the start of the next one.
    ///
    /// `seed` names the attempt for the jitter: the same seed and attempt give the same pause. The result lies in
    /// 0 to `max_interval`. The jitter only shortens, so it also spreads pauses that have reached the maximum.
    #[must_use]
    pub fn pause(&self, attempt: u32, seed: &[u8]) -> Duration {
        let base = self.base(attempt);
        let jitter = if self.jitter.is_nan() { 0.0 } else { self.jitter.clamp(0.0, 1.0) };
        // Both factors are in 0..=1, so the product is too and the result cannot pass the base.
        scale(base, 1.0 - jitter * fraction(b"orbit.retry.jitter\0", attempt, seed)).min(base)
    }

    /// Whether a failure with this code may be tried again.
    #[must_use]
    pub fn retries(&self, code: &str) -> bool {
        !self.non_retryable.iter().any(|known| **known == *code)
    }

    /// The pause without jitter.
    fn base(&self, attempt: u32) -> Duration {
        let initial = self.initial_interval.min(self.max_interval);
        // A coefficient below 1, or none at all, does not shrink pauses: the policy's floor is its first pause.
        if initial.is_zero() || self.coefficient.is_nan() || self.coefficient <= 1.0 {
            return initial;
        }
        // Repeated squaring uses only multiplications, which IEEE 754 fixes to the bit; `powf` differs between
        // platforms.
        let mut factor = 1.0_f64;
        let mut square = self.coefficient;
        let mut left = attempt.saturating_sub(1);
        while left > 0 {
            if left & 1 == 1 {
                factor *= square;
            }
            square *= square;
            left >>= 1;
        }
        scale(initial, factor).min(self.max_interval)
    }
}

/// `pause * factor`, rounded to nanoseconds and saturating; 0 for NaN and negative factors.
fn scale(pause: Duration, factor: f64) -> Duration {
    if factor.is_nan() || factor <= 0.0 {
        return Duration::ZERO;
    }
    let seconds = pause.as_secs_f64() * factor;
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// A fraction in 0..1 that depends on nothing but its arguments: the first 53 bits of SHA-256. `purpose` keeps those of
/// one use apart from those of another.
pub(super) fn fraction(purpose: &[u8], number: u32, seed: &[u8]) -> f64 {
    let mut hash = Sha256::new();
    hash.update(purpose);
    hash.update(number.to_be_bytes());
    hash.update(seed);
    let digest = hash.finalize();
    let mut bits = 0_u64;
    for byte in &digest[..8] {
        bits = bits << 8 | u64::from(*byte);
    }
    // 53 bits fit a double exactly, and so does the division by a power of two.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
    let numerator = (bits >> 11) as f64;
    numerator / 9_007_199_254_740_992.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn policy(initial: u64, coefficient: f64, max: u64, jitter: f64) -> RetryPolicy {
        RetryPolicy {
            max_attempts: 1_000_000,
            initial_interval: Duration::from_millis(initial),
            coefficient,
            max_interval: Duration::from_millis(max),
            jitter,
            non_retryable: Vec::new(),
        }
    }

    #[test]
    fn c021_the_maximum_caps_a_pause_and_does_not_replace_it() {
        let policy = policy(200, 2.0, 3_600_000, 0.0);
        let expected = [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200];
        for (attempt, millis) in (1..).zip(expected) {
            assert_eq!(policy.pause(attempt, b""), Duration::from_millis(millis), "attempt {attempt}");
        }
        assert_eq!(policy.pause(16, b""), Duration::from_secs(3_600));
    }

    #[test]
    fn c023_pauses_are_the_same_on_every_machine() {
        // Written down once; another CPU, compiler or library must not change them.
        let policy = policy(1_000, 1.7, 86_400_000, 0.5);
        for (attempt, nanos) in
            [(1, 921_557_761), (2, 1_268_253_882), (20, 17_293_134_818_464), (4_000_000_000, 61_033_267_540_926)]
        {
            let pause = policy.pause(attempt, b"uid/charge/1");
            assert_eq!(pause.as_nanos(), nanos, "attempt {attempt}");
        }
    }

    #[test]
    fn c023_many_attempts_stay_at_the_maximum() {
        let policy = policy(1_000, 2.0, 60_000, 0.0);
        for attempt in [7, 61, 64, 65, 1_000, u32::MAX] {
            assert_eq!(policy.pause(attempt, b""), Duration::from_secs(60), "attempt {attempt}");
        }
    }

    #[test]
    fn c025_seventy_attempts_neither_wrap_nor_panic() {
        let policy = policy(100, 2.0, 5_000, 0.5);
        for attempt in 1..=70 {
            let pause = policy.pause(attempt, b"seed");
            assert!(pause <= Duration::from_secs(5), "attempt {attempt}: {pause:?}");
            assert!(pause >= Duration::from_millis(50), "attempt {attempt}: {pause:?}");
        }
    }

    #[test]
    fn c027_jitter_spreads_pauses_also_at_the_maximum() {
        let policy = policy(1_000, 2.0, 60_000, 0.2);
        let mut pauses: Vec<u128> =
            (0..1_000).map(|n| policy.pause(20, format!("uid-{n}").as_bytes()).as_millis()).collect();
        pauses.sort_unstable();
        assert!(pauses[0] >= 48_000 && pauses[999] <= 60_000);
        let mut tenths = [0; 12];
        for pause in pauses {
            tenths[usize::try_from((pause - 48_000) / 1_000).unwrap().min(11)] += 1;
        }
        assert!(tenths.iter().all(|count| (40..=130).contains(count)), "{tenths:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_pause_and_another_attempt_another() {
        let policy = RetryPolicy { coefficient: 1.0, ..RetryPolicy::default() };
        assert_eq!(policy.pause(2, b"a"), policy.pause(2, b"a"));
        assert_ne!(policy.pause(2, b"a"), policy.pause(3, b"a"));
        assert_ne!(policy.pause(2, b"a"), policy.pause(2, b"b"));
    }

    #[test]
    fn codes_that_are_listed_are_not_retried() {
        let policy = RetryPolicy { non_retryable: vec![Arc::from("CARD_DECLINED")], ..RetryPolicy::default() };
        assert!(!policy.retries("CARD_DECLINED"));
        assert!(policy.retries("CARD_DECLINE"));
    }

    proptest! {
        #[test]
        fn c025_any_policy_gives_a_pause_between_zero_and_the_maximum(
            initial in any::<u64>(), max in any::<u64>(), attempt in any::<u32>(), jitter in any::<f64>(),
            coefficient in prop_oneof![any::<f64>(), Just(0.0), Just(1.0), Just(0.5), Just(-2.0), Just(1e308), Just(f64::NAN), Just(f64::INFINITY), Just(f64::NEG_INFINITY)],
        ) {
            let policy = RetryPolicy {
                initial_interval: Duration::from_nanos(initial),
                max_interval: Duration::from_nanos(max),
                ..policy(0, coefficient, 0, jitter)
            };
            prop_assert!(policy.pause(attempt, b"seed") <= policy.max_interval);
        }
    }
}
