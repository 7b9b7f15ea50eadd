//! End-to-end processing latency of a channel (nsqd's `e2e_processing_latency`): from publish to FIN, over a sliding
//! window.

use std::collections::VecDeque;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::telemetry::latency::{histogram, note};
use crate::time::Nanos;

/// The window moves by this fraction of it.
const SLOTS: i64 = 6;

/// Kept where percentiles are asked for: a slot with samples takes about 20 KiB.
#[derive(Debug, Default)]
pub struct E2e {
    slots: VecDeque<(i64, Histogram<u32>)>, // ascending numbers (now / slot); those without a sample are missing
}

/// The view in a snapshot: `values_ns` in the order of the percentiles asked for.
#[derive(Debug, Serialize)]
pub struct E2eView {
    count: u64,
    values_ns: Vec<u64>,
}

impl E2e {
    pub fn record(&mut self, latency_ns: Nanos, window_ns: Nanos, now: Nanos) {
        let number = now / slot_ns(window_ns);
        if self.slots.back().is_none_or(|(last, _)| *last != number) {
            self.slots.retain(|(slot, _)| *slot > number - SLOTS);
            self.slots.push_back((number, histogram(2)));
        }
        if let Some((_, slot)) = self.slots.back_mut() {
            note(slot, latency_ns.max(0) as u64, 1);
        }
    }

    fn add_to(&self, sum: &mut Histogram<u32>, window_ns: Nanos, now: Nanos) {
        let oldest = now / slot_ns(window_ns) - SLOTS;
        for (_, slot) in self.slots.iter().filter(|(number, _)| *number > oldest) {
            // safe: an auto-resizing histogram takes every value that another one holds
            sum.add(slot).expect("auto-resizing");
        }
    }
}

fn slot_ns(window_ns: Nanos) -> Nanos {
    (window_ns / SLOTS).max(1)
}

/// Several channels seen as one. `shares`: percentiles, above 0 and at most 1.
pub fn view<'a>(parts: impl Iterator<Item = &'a E2e>, shares: &[f64], window_ns: Nanos, now: Nanos) -> E2eView {
    let mut sum: Histogram<u32> = histogram(2);
    for part in parts {
        part.add_to(&mut sum, window_ns, now);
    }
    E2eView { count: sum.len(), values_ns: shares.iter().map(|share| sum.value_at_quantile(*share)).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_NS: Nanos = 60_000_000_000;

    fn seen(e2e: &E2e, now: Nanos) -> (u64, Vec<u64>) {
        let view = view(std::iter::once(e2e), &[1.0, 0.5], WINDOW_NS, now);
        (view.count, view.values_ns)
    }

    #[test]
    fn percentiles_come_in_the_order_asked_for_and_old_samples_leave() {
        let mut e2e = E2e::default();
        for latency in [100, 200, 90_000] {
            e2e.record(latency, WINDOW_NS, 5);
        }
        let (count, values) = seen(&e2e, 5);
        assert_eq!((count, values[1]), (3, 200));
        assert!(values[0].abs_diff(90_000) < 900);
        assert_eq!(seen(&e2e, 59_999_999_999).0, 3);
        assert_eq!(seen(&e2e, 61_000_000_000).0, 0);
        e2e.record(7, WINDOW_NS, 61_000_000_000);
        assert_eq!((seen(&e2e, 61_000_000_000), e2e.slots.len()), ((1, vec![7, 7]), 1));
    }

    #[test]
    fn a_clock_that_went_back_counts_as_no_latency() {
        let mut e2e = E2e::default();
        e2e.record(-5, WINDOW_NS, 0);
        assert_eq!(seen(&e2e, 0), (1, vec![0, 0]));
    }
}
