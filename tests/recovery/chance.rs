//! Random choices that a seed repeats.

use std::{sync::OnceLock, time::Duration};

/// A stream of random numbers (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// The stream of this name. All streams follow from one seed, which is printed once: `SEED`, or a fresh one.
    pub(crate) fn named(name: &str) -> Self {
        static SEED: OnceLock<u64> = OnceLock::new();
        let seed = *SEED.get_or_init(|| {
            let given = std::env::var("SEED").ok().map(|seed| seed.parse().expect("SEED is a number"));
            let seed = given.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0 >> 32);
            eprintln!("SEED={seed}");
            seed
        });
        name.bytes().fold(Self(seed), |chance, byte| chance.fork(u64::from(byte)))
    }

    /// A stream of its own for one of many.
    pub(crate) fn fork(&self, number: u64) -> Self {
        let mut chance = Self(self.0 ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        Self(chance.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `end`, without `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let count = u64::try_from(items.len()).expect("a length is a number");
        &items[usize::try_from(self.below(count)).expect("an index is a number")]
    }
}

/// How many faults a run makes: this variable, or the number for every day.
pub(crate) fn count(variable: &str, everyday: usize) -> usize {
    std::env::var(variable).map_or(everyday, |count| count.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}
