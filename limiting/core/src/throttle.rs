//! Buckets whose parameters come with each request: `CL.THROTTLE key max_burst count period [n]`, as redis-cell has it.
//!
//! A bucket counts in parts of a token, `period` to a token, so that `count` per `period` seconds is an exact rate.

use crate::Nanos;
use crate::bucket::{Bucket, TOKEN};
use crate::limiter::{OVERFLOW_SUBJECTS, hash_of};
use crate::state::{load, save};
use crate::table::{Place, Table};

const MICRO: u64 = 1_000_000;
const STATE_WORDS: usize = 6;
const WORDS: usize = STATE_WORDS + 3;
const SECOND: Nanos = 1_000_000_000;

/// `count` tokens per `period_s` seconds, and a burst of `max_burst` + 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    pub max_burst: u32,
    pub count: u32,    // at least 1
    pub period_s: u32, // at least 1
}

/// The five answers of `CL.THROTTLE`. Whole seconds, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttled {
    pub limited: bool,
    pub limit: i64,
    pub remaining: i64,
    pub retry_after_s: i64, // -1: not limited, or never
    pub reset_s: i64,
}

/// Buckets by key, at most `max_keys`. Keys beyond them share 1,024 buckets.
#[derive(Debug)]
pub struct Throttle {
    key: (u64, u64), // of the hash
    max_keys: usize,
    table: Table,
}

impl Throttle {
    pub fn new(key: (u64, u64), max_keys: usize) -> Self {
        Self { key, max_keys, table: Table::new(WORDS) }
    }

    /// Takes `cost` tokens of `name` if they are there. A cost of 0 looks.
    pub fn take(&mut self, name: &[u8], given: Given, cost: u32, now: Nanos) -> Throttled {
        let place = self.place_of(name, given, now);
        let mut bucket = self.bucket(place, given, now);
        let at = now.max(bucket.at());
        let units = i128::from(cost) * i128::from(given.period_s) * TOKEN;
        let limited = !bucket.take_now(units, at);
        save(self.table.policies_mut(place), &bucket);
        let wait = |units| bucket.instant_of(units).map_or(-1, |then| ceil_s(then - at));
        Throttled {
            limited,
            limit: i64::from(given.max_burst) + 1,
            remaining: (bucket.fill(at).max(0) / (i128::from(given.period_s) * TOKEN)) as i64,
            retry_after_s: if limited && units <= bucket.burst() { wait(units) } else { -1 },
            reset_s: wait(bucket.burst()),
        }
    }

    fn place_of(&mut self, name: &[u8], given: Given, now: Nanos) -> Place {
        let own = hash_of(self.key, b"", name);
        let mut hash = own;
        let found = self.table.find(own, 1).or_else(|| {
            if self.table.len() < self.max_keys {
                return None;
            }
            hash = [own[2] % OVERFLOW_SUBJECTS, 0, 0, 0];
            self.table.find(hash, 1)
        });
        found.unwrap_or_else(|| {
            let place = self.table.add(hash, 1);
            let words = self.table.policies_mut(place);
            save(words, &new_bucket(given, now));
            words[STATE_WORDS..].copy_from_slice(&[given.max_burst, given.count, given.period_s]);
            place
        })
    }

    /// The bucket under `given`. What is there stays where the parameters change: a change mints nothing.
    fn bucket(&mut self, place: Place, given: Given, now: Nanos) -> Bucket {
        let words = self.table.policies_mut(place);
        let kept = Given { max_burst: words[6], count: words[7], period_s: words[8] };
        let mut bucket = restored(kept, words);
        if kept != given {
            let at = now.max(bucket.at());
            let fill = bucket.fill(at) * i128::from(given.period_s) / i128::from(kept.period_s);
            let (rate, burst) = parameters(given);
            bucket = Bucket::restored(rate, burst, (fill, at));
            bucket.set(rate, burst, at, false);
            words[STATE_WORDS..].copy_from_slice(&[given.max_burst, given.count, given.period_s]);
        }
        bucket
    }

    /// Looks at the next `slots` slots, and forgets keys whose buckets are full.
    pub fn sweep(&mut self, slots: usize, now: Nanos) {
        self.table.sweep(slots, |table, place| {
            let words = table.policies(place);
            let bucket = restored(Given { max_burst: words[6], count: words[7], period_s: words[8] }, words);
            bucket.fill(now) >= bucket.burst()
        });
    }

    /// Keys in memory.
    pub fn keys(&self) -> usize {
        self.table.len()
    }
}

fn parameters(given: Given) -> (u64, u64) {
    // 2^32 tokens of 2^32 parts, in millionths, are more than 64 bits hold: such a burst takes centuries to fill.
    let burst = (u64::from(given.max_burst) + 1).saturating_mul(u64::from(given.period_s)).saturating_mul(MICRO);
    (u64::from(given.count) * MICRO, burst)
}

fn new_bucket(given: Given, now: Nanos) -> Bucket {
    let (rate, burst) = parameters(given);
    Bucket::new(rate, burst, now, true)
}

fn restored(given: Given, words: &[u32]) -> Bucket {
    let (rate, burst) = parameters(given);
    Bucket::restored(rate, burst, load(words))
}

fn ceil_s(wait: Nanos) -> i64 {
    (wait.max(0) + SECOND - 1) / SECOND
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEN_A_MINUTE: Given = Given { max_burst: 4, count: 10, period_s: 60 };

    fn throttle() -> Throttle {
        Throttle::new((1, 2), 100)
    }

    #[test]
    fn a_burst_passes_and_then_one_a_period() {
        let mut throttle = throttle();
        for left in (0..5).rev() {
            let answer = throttle.take(b"k", TEN_A_MINUTE, 1, 0);
            assert_eq!((answer.limited, answer.limit, answer.remaining, answer.retry_after_s), (false, 5, left, -1));
            assert_eq!(answer.reset_s, 6 * (5 - left));
        }
        let refused = throttle.take(b"k", TEN_A_MINUTE, 1, SECOND / 2);
        assert_eq!((refused.limited, refused.remaining, refused.retry_after_s), (true, 0, 6));
        assert!(!throttle.take(b"k", TEN_A_MINUTE, 1, 6 * SECOND).limited);
        assert_eq!(throttle.take(b"k", TEN_A_MINUTE, 6, 6 * SECOND).retry_after_s, -1, "more than it ever has");
        assert!(!throttle.take(b"k", TEN_A_MINUTE, 0, 6 * SECOND).limited, "a look");
    }

    #[test]
    fn a_rate_below_a_millionth_is_exact() {
        let given = Given { max_burst: 0, count: 1, period_s: 86_400 };
        let mut throttle = throttle();
        assert!(!throttle.take(b"k", given, 1, 0).limited);
        assert!(throttle.take(b"k", given, 1, 86_400 * SECOND - 1).limited);
        assert!(!throttle.take(b"k", given, 1, 86_400 * SECOND).limited);
    }

    #[test]
    fn changed_parameters_hold_at_once_and_mint_nothing() {
        let mut throttle = throttle();
        for _ in 0..3 {
            throttle.take(b"k", TEN_A_MINUTE, 1, 0);
        }
        let wider = Given { max_burst: 99, count: 100, period_s: 10 };
        assert_eq!(throttle.take(b"k", wider, 0, 0).remaining, 2);
        assert_eq!(throttle.take(b"k", Given { max_burst: 0, ..wider }, 0, 0).remaining, 1);
    }

    #[test]
    fn a_flood_of_keys_shares_and_full_buckets_are_forgotten() {
        let mut throttle = throttle();
        for number in 0..50_000 {
            throttle.take(format!("k{number}").as_bytes(), TEN_A_MINUTE, 1, 0);
        }
        assert!(throttle.keys() <= 100 + OVERFLOW_SUBJECTS as usize);
        throttle.sweep(100_000, 3_600 * SECOND);
        assert_eq!(throttle.keys(), 0);
    }

    proptest! {
        #[test]
        fn it_is_the_bucket_of_count_per_period(
            (burst, count, period) in (0u32..6, 1u32..9, 1u32..9),
            steps in prop::collection::vec((0..2 * SECOND, 0u32..4), 1..60),
        ) {
            let mut throttle = throttle();
            let given = Given { max_burst: burst, count, period_s: period };
            let (mut used, mut last, mut now) = (0i128, 0, 0); // in parts: period * 1e9 to a token
            let token = i128::from(period) * i128::from(SECOND);
            for (pause, cost) in steps {
                now += pause;
                used = (used - i128::from(count) * i128::from(now - last)).max(0);
                last = now;
                let fits = used + i128::from(cost) * token <= i128::from(burst + 1) * token;
                let answer = throttle.take(b"k", given, cost, now);
                prop_assert_eq!(answer.limited, !fits);
                used += if fits { i128::from(cost) * token } else { 0 };
                prop_assert_eq!(i128::from(answer.remaining), (i128::from(burst + 1) * token - used) / token);
            }
        }

        #[test]
        fn no_parameters_panic(
            (burst, count, period, cost) in (any::<u32>(), 1..=u32::MAX, 1..=u32::MAX, any::<u32>()),
            now in 0..Nanos::MAX,
        ) {
            let mut throttle = throttle();
            let given = Given { max_burst: burst, count, period_s: period };
            throttle.take(b"k", given, cost, 0);
            throttle.take(b"k", given, cost, now);
            throttle.take(b"k", TEN_A_MINUTE, 1, now);
        }
    }
}
