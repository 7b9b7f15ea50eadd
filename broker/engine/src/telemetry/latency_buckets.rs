//! A latency histogram as Prometheus's classic one: counts between twelve bounds around the topic's promise.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::time::Nanos;

pub const BOUNDS: usize = 12;

/// The promise is the eighth bound: each is twice the one before it.
const HALVINGS: u32 = 7;

/// Stands for the promise of a topic that has none.
const NO_PROMISE_NS: Nanos = 10_000_000;

/// Upper bounds in ns, ascending and distinct, from 1/128 of the promise to 16 times the promise. 0: there is none.
pub fn bounds(promise: Nanos) -> [u64; BOUNDS] {
    let promise = if promise > 0 { promise.max(1 << HALVINGS) } else { NO_PROMISE_NS };
    let first = promise as f64 / f64::from(1 << HALVINGS);
    std::array::from_fn(|i| (first * f64::from(1 << i)) as u64)
}

/// `counts`: of the values up to each bound and above the one before; the last one's are above all bounds.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Buckets {
    pub counts: [u64; BOUNDS + 1],
    pub sum_ns: u64,
}

impl Buckets {
    /// A value that the histogram cannot tell from a bound (0.1 %) counts as the bound.
    pub fn of(histogram: &Histogram<u64>, bounds: &[u64; BOUNDS]) -> Self {
        let mut buckets = Self::default();
        for step in histogram.iter_recorded() {
            let (value, count) = (step.value_iterated_to(), step.count_at_value());
            let least = histogram.lowest_equivalent(value);
            buckets.counts[bounds.partition_point(|bound| *bound < least)] += count;
            buckets.sum_ns = buckets.sum_ns.saturating_add(histogram.median_equivalent(value).saturating_mul(count));
        }
        buckets
    }
}

/// The histograms of one topic since its start. `late`: messages whose access and processing took longer than promised.
#[derive(Debug, Serialize)]
pub struct TopicBuckets {
    pub topic: String,
    pub bounds_ns: [u64; BOUNDS],
    pub late: u64,
    pub access: Buckets,
    pub processing: Buckets,
    pub total: Buckets,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::latency::{histogram, note};

    #[test]
    fn the_promise_is_a_bound_and_each_bound_is_twice_the_one_before() {
        let of = bounds(5_000_000);
        assert_eq!((of[0], of[7], of[11]), (39_062, 5_000_000, 80_000_000));
        assert_eq!(bounds(0), bounds(NO_PROMISE_NS));
    }

    #[test]
    fn bounds_are_distinct_and_finite_for_every_promise_that_a_topic_may_make() {
        for promise in [1, 1_000, 86_400_000_000_000, i64::MAX / 1_000] {
            assert!(bounds(promise).is_sorted_by(|a, b| a < b), "{promise}");
        }
    }

    #[test]
    fn a_value_counts_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let bounds = bounds(1_280_000);
        let mut recorded = histogram(3);
        for (value, count) in [(0, 1), (10_000, 2), (10_100, 3), (1_280_000, 4), (1_400_000, 5), (30_000_000, 6)] {
            note(&mut recorded, value, count);
        }
        let buckets = Buckets::of(&recorded, &bounds);
        assert_eq!(buckets.counts, [3, 3, 0, 0, 0, 0, 0, 4, 5, 0, 0, 0, 6]);
        let sum = 2 * 10_000 + 3 * 10_100 + 4 * 1_280_000 + 5 * 1_400_000 + 6 * 30_000_000;
        assert!(buckets.sum_ns.abs_diff(sum) < sum / 1_000, "{}", buckets.sum_ns);
        assert_eq!(Buckets::of(&histogram(3), &bounds), Buckets::default());
    }
}
