//! The token bucket: two parameters, one fill, exact integers, no clock and no floats.
//!
//! A token is `TOKEN` = 1e15 units. A rate of `m` micro-messages/s accrues `m` units/ns, so whole nanoseconds give an
//! exact product without drift. The fill is negative only after `debit`. `srtm/token_bucket/bucket.py` is the
//! reference; a differential test compares the two to the nanosecond.

use crate::Nanos;

/// Units in one token.
pub const TOKEN: i128 = 1_000_000_000_000_000;

/// Units in one micro-message of burst.
const UNITS_PER_MICRO: i128 = 1_000_000_000;

#[derive(Debug, Clone)]
pub struct Bucket {
    rate: i128,  // units/ns
    burst: i128, // units; fill <= burst whenever nothing waits
    fill: i128,  // units available at `at`
    at: Nanos,   // instant of `fill`; never decreases
}

impl Bucket {
    /// A bucket at `at`. `full` is for a topic that never had a grant. All other buckets start empty: a crash must not
    /// mint a burst.
    pub fn new(rate_micro: u64, burst_micro: u64, at: Nanos, full: bool) -> Self {
        let burst = i128::from(burst_micro) * UNITS_PER_MICRO;
        Self { rate: i128::from(rate_micro), burst, fill: if full { burst } else { 0 }, at }
    }

    /// A bucket as `state` left it, under these parameters. Both are non-negative.
    pub fn restored(rate_micro: u64, burst_micro: u64, (fill, at): (i128, Nanos)) -> Self {
        Self { rate: i128::from(rate_micro), burst: i128::from(burst_micro) * UNITS_PER_MICRO, fill, at }
    }

    /// Units available at an instant, and that instant.
    pub fn state(&self) -> (i128, Nanos) {
        (self.fill, self.at)
    }

    /// Units available at `at`, capped at the burst, for a message that finds no queue.
    pub fn fill(&self, at: Nanos) -> i128 {
        self.accrued(at).min(self.burst)
    }

    /// Units available at `at` while messages wait, without the cap: the head takes tokens as they accrue.
    pub fn accrued(&self, at: Nanos) -> i128 {
        self.fill + self.rate * (i128::from(at) - i128::from(self.at)).max(0)
    }

    pub fn rate_micro(&self) -> u64 {
        self.rate as u64
    }

    pub fn burst(&self) -> i128 {
        self.burst
    }

    pub fn at(&self) -> Nanos {
        self.at
    }

    /// Takes `cost` units at `at` if the bucket has them. An `at` before the bucket's own instant counts as that
    /// instant.
    pub fn take_now(&mut self, cost: i128, at: Nanos) -> bool {
        let at = at.max(self.at);
        let fill = self.fill(at);
        if fill < cost {
            return false;
        }
        self.fill = fill - cost;
        self.at = at;
        true
    }

    /// First instant at which `cost` units are available without a cap. `None`: never under these parameters.
    pub fn instant_of(&self, cost: i128) -> Option<Nanos> {
        let missing = cost - self.fill;
        if missing <= 0 {
            return Some(self.at);
        }
        if self.rate == 0 {
            return None;
        }
        let wait = (missing + self.rate - 1) / self.rate;
        Nanos::try_from(wait).ok().and_then(|wait| self.at.checked_add(wait))
    }

    /// Pays `cost` units at `at`, an instant from `instant_of`, without a cap. The bucket's instant moves to `at`.
    pub fn pay_at(&mut self, cost: i128, at: Nanos) {
        self.fill = self.accrued(at) - cost;
        self.at = self.at.max(at);
    }

    /// Takes `cost` units; the fill may become negative.
    pub fn debit(&mut self, cost: i128, at: Nanos) {
        let at = at.max(self.at);
        self.fill = self.fill(at) - cost;
        self.at = at;
    }

    /// Sets new parameters from `at` on. A change never mints: a shrink clamps the fill, a growth leaves it. `waiting`:
    /// messages wait, so no cap applied until `at`.
    pub fn set(&mut self, rate_micro: u64, burst_micro: u64, at: Nanos, waiting: bool) {
        let at = at.max(self.at);
        let fill = if waiting { self.accrued(at) } else { self.fill(at) };
        self.rate = i128::from(rate_micro);
        self.burst = i128::from(burst_micro) * UNITS_PER_MICRO;
        self.fill = fill.min(self.burst);
        self.at = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: u64 = 1_000_000;

    #[test]
    fn a_full_bucket_lets_a_burst_go_and_then_one_message_a_period() {
        let mut bucket = Bucket::new(1_000 * MICRO, 2 * MICRO, 0, true);
        assert!(bucket.take_now(TOKEN, 0));
        assert!(bucket.take_now(TOKEN, 0));
        assert!(!bucket.take_now(TOKEN, 0));
        assert_eq!(bucket.instant_of(TOKEN), Some(1_000_000));
    }

    #[test]
    fn a_billion_messages_at_the_rate_do_not_drift() {
        // 3 msg/s: a third of a second is not a whole number of nanoseconds, so an inexact bucket would drift.
        let mut bucket = Bucket::new(3 * MICRO, MICRO, 0, false);
        for _ in 0..300_000 {
            let at = bucket.instant_of(TOKEN).expect("rate > 0");
            bucket.pay_at(TOKEN, at);
        }
        assert_eq!(bucket.at(), 100_000 * 1_000_000_000);
    }

    #[test]
    fn a_shrink_clamps_the_fill_and_a_growth_mints_nothing() {
        let mut bucket = Bucket::new(MICRO, 10 * MICRO, 0, true);
        bucket.set(MICRO, 3 * MICRO, 0, false);
        assert_eq!(bucket.fill(0), 3 * TOKEN);
        bucket.set(MICRO, 10 * MICRO, 0, false);
        assert_eq!(bucket.fill(0), 3 * TOKEN);
    }

    #[test]
    fn a_share_of_nothing_never_releases() {
        let bucket = Bucket::new(0, 0, 0, false);
        assert_eq!(bucket.instant_of(TOKEN), None);
    }
}
