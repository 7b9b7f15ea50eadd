//! Latencies over the measured part of a run, by when messages were meant to be sent: what an interval log (`.hlog`) is
//! made of.

use serde::Serialize;

use crate::results::histogram::Latencies;

const SECOND_NS: u64 = 1_000_000_000;
/// Bounds the memory of a long run: its intervals are whole seconds, as few as it takes.
const MOST_INTERVALS: u64 = 120;

pub struct Timeline {
    lasts_ns: u64,
    interval_ns: u64,
    intervals: Vec<Latencies>,
}

/// One interval; `start_s` from the start of the measured part.
#[derive(Debug, Serialize)]
pub struct IntervalReport {
    pub start_s: f64,
    pub length_s: f64,
    pub count: u64,
    pub max_ms: f64,
    pub histogram: String,
}

impl Timeline {
    pub fn new(lasts_ns: u64) -> Timeline {
        let interval_ns = lasts_ns.div_ceil(SECOND_NS).div_ceil(MOST_INTERVALS).max(1) * SECOND_NS;
        let intervals = (0..lasts_ns.div_ceil(interval_ns)).map(|_| Latencies::new()).collect();
        Timeline { lasts_ns, interval_ns, intervals }
    }

    /// `at_ns` from the start of the measured part; what is not of it is left out.
    pub fn record(&mut self, at_ns: i64, latency_ns: i64) {
        let interval =
            u64::try_from(at_ns).ok().and_then(|at_ns| self.intervals.get_mut((at_ns / self.interval_ns) as usize));
        if let Some(latencies) = interval {
            latencies.record(latency_ns);
        }
    }

    pub fn report(&self) -> Vec<IntervalReport> {
        let starts_ns = (0..).map(|i| i * self.interval_ns);
        self.intervals.iter().zip(starts_ns).map(|(latencies, start_ns)| self.interval(latencies, start_ns)).collect()
    }

    fn interval(&self, latencies: &Latencies, start_ns: u64) -> IntervalReport {
        IntervalReport {
            start_s: start_ns as f64 / 1e9,
            length_s: self.interval_ns.min(self.lasts_ns - start_ns) as f64 / 1e9,
            count: latencies.count(),
            max_ms: latencies.max_ms(),
            histogram: latencies.encode(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(lasts_s: f64) -> Vec<f64> {
        Timeline::new((lasts_s * 1e9) as u64).report().iter().map(|interval| interval.length_s).collect()
    }

    #[test]
    fn intervals_are_whole_seconds_but_for_the_last_and_at_most_120() {
        assert_eq!(lengths(0.4), [0.4]);
        assert_eq!(lengths(2.5), [1.0, 1.0, 0.5]);
        assert_eq!(lengths(120.0), [1.0; 120]);
        assert_eq!(lengths(121.0), [[2.0; 60].as_slice(), &[1.0]].concat());
        assert_eq!(lengths(86_400.0), [720.0; 120]);
    }

    #[test]
    fn a_message_counts_in_the_interval_that_it_was_meant_for() {
        let mut timeline = Timeline::new(2 * SECOND_NS);
        for (at_ns, latency_ms) in [(0, 3), (999_999_999, 5_000), (1_000_000_000, 1), (-1, 9), (2_000_000_000, 9)] {
            timeline.record(at_ns, latency_ms * 1_000_000);
        }
        let found = timeline.report();
        assert_eq!(found.iter().map(|i| (i.start_s, i.count)).collect::<Vec<_>>(), [(0.0, 2), (1.0, 1)]);
        assert!((found[0].max_ms / 5_000.0 - 1.0).abs() < 1e-3);
    }
}
