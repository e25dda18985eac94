//! Time and randomness, passed in: the only file that reads a clock or draws a random number.

use crate::domain::Timestamp;
use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::Duration,
};
use uuid::Uuid;

/// What time it is, and how long something has lasted.
///
/// `now` never goes back. It starts from the newest time that any node wrote, or the machine's clock in a new database,
/// and goes on with monotonic time that counts suspend; a node that is behind jumps forward (`advance`).
pub trait Clock: Send + Sync + 'static {
    /// The node's time; every event carries it.
    fn now(&self) -> Timestamp;
    /// Monotonic time since some fixed instant, suspend included: for judging silence.
    fn monotonic(&self) -> Duration;
    /// Jumps forward to a newer time that another node, or an earlier life of this one, wrote.
    fn advance(&self, to: Timestamp);
    /// The machine's wall clock, for `until`, schedules and retention only.
    fn wall(&self) -> Timestamp;
}

/// Waits. By tokio's clock, which a test may pause and move.
#[expect(clippy::disallowed_methods, reason = "the one place that may")]
pub async fn sleep(span: Duration) {
    tokio::time::sleep(span).await;
}

/// Random numbers, for uids, batch ids and pauses between tries; nothing that a history must repeat.
pub trait Entropy: Send + Sync + 'static {
    /// A new random UUID, ordered by time where the source allows it.
    fn uuid(&self) -> Uuid;
    /// A random number.
    fn number(&self) -> u64;
}

/// The machine's clock: `CLOCK_BOOTTIME`, so that suspended time counts.
#[derive(Debug)]
pub struct SystemClock {
    /// Added to monotonic microseconds to give the node's time.
    offset: AtomicI64,
}

impl SystemClock {
    /// Starts from the newest time found in the store, or from the machine's clock.
    #[must_use]
    pub fn starting_at(newest: Option<Timestamp>) -> Self {
        let wall = wall_micros();
        let start = newest.map_or(wall, |newest| newest.as_micros().max(wall));
        Self::starting_exactly_at(Timestamp::from_micros(start))
    }

    /// Starts from this time, whatever the machine's clock says: other nodes and the database go by it.
    #[must_use]
    pub fn starting_exactly_at(start: Timestamp) -> Self {
        Self { offset: AtomicI64::new(start.as_micros() - boot_micros()) }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(boot_micros() + self.offset.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(u64::try_from(boot_micros()).expect("time since boot is not negative"))
    }

    fn advance(&self, to: Timestamp) {
        self.offset.fetch_max(to.as_micros() - boot_micros(), Ordering::Relaxed);
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(wall_micros())
    }
}

fn clock_micros(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec, which the call fills in.
    let done = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(done, 0, "the kernel has this clock");
    time.tv_sec * 1_000_000 + time.tv_nsec / 1_000
}

#[cfg(target_os = "linux")]
fn boot_micros() -> i64 {
    clock_micros(libc::CLOCK_BOOTTIME)
}

// Other systems' monotonic clocks that count suspend.
#[cfg(not(target_os = "linux"))]
fn boot_micros() -> i64 {
    clock_micros(libc::CLOCK_MONOTONIC)
}

fn wall_micros() -> i64 {
    clock_micros(libc::CLOCK_REALTIME)
}

/// The operating system's random numbers.
#[derive(Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn uuid(&self) -> Uuid {
        Uuid::now_v7()
    }

    fn number(&self) -> u64 {
        Uuid::new_v4().as_u64_pair().0
    }
}

/// Random numbers that a seed repeats, for simulations: SplitMix64.
#[derive(Debug)]
pub struct SeededEntropy(AtomicU64);

impl SeededEntropy {
    /// Starts from a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl Entropy for SeededEntropy {
    fn uuid(&self) -> Uuid {
        uuid::Builder::from_random_bytes(((u128::from(self.number()) << 64) | u128::from(self.number())).to_be_bytes())
            .into_uuid()
    }

    fn number(&self) -> u64 {
        let mut z = self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed).wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// Follows tokio's clock, which a test pauses and moves; wall time is the same unless a test makes it jump.
#[derive(Debug)]
pub struct TokioClock {
    start: tokio::time::Instant,
    offset: AtomicI64,
    wall_jump: AtomicI64,
}

impl TokioClock {
    /// Starts at an instant.
    #[must_use]
    pub fn starting_at(start: Timestamp) -> Self {
        Self {
            start: tokio::time::Instant::now(),
            offset: AtomicI64::new(start.as_micros()),
            wall_jump: AtomicI64::new(0),
        }
    }

    /// Moves the wall clock, back too; nothing but wall-clock things may notice.
    pub fn jump_wall(&self, micros: i64) {
        self.wall_jump.fetch_add(micros, Ordering::Relaxed);
    }

    fn elapsed_micros(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_micros()).unwrap_or(i64::MAX)
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.elapsed_micros() + self.offset.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn advance(&self, to: Timestamp) {
        self.offset.fetch_max(to.as_micros() - self.elapsed_micros(), Ordering::Relaxed);
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(self.now().as_micros() + self.wall_jump.load(Ordering::Relaxed))
    }
}
