//! Random waits, so that a thousand agents do not come back at the same moment.

use std::time::Duration;

/// A small deterministic generator (SplitMix64; Steele, Lea, Flood, 2014). Not for secrets.
#[derive(Clone, Debug)]
pub(super) struct Jitter(u64);

impl Jitter {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Anything from zero to `base` doubled for every failure, at most `cap` ("full jitter").
    pub(super) fn full(&mut self, failures: u32, base: Duration, cap: Duration) -> Duration {
        self.below(ceiling(failures, base, cap))
    }

    /// As [`Jitter::full`], but never less than half of it: for attempts that cost others something each time.
    pub(super) fn half(&mut self, failures: u32, base: Duration, cap: Duration) -> Duration {
        let half = ceiling(failures, base, cap) / 2;
        half + self.below(half)
    }

    fn below(&mut self, bound: Duration) -> Duration {
        let millis = u64::try_from(bound.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.next() % millis.saturating_add(1))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn ceiling(failures: u32, base: Duration, cap: Duration) -> Duration {
    base.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(cap)
}
