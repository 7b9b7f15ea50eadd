//! What ends the steady state of a topic besides a change of its rate: drift, and messages that wait. Pure.

use crate::telemetry::drift_detector::DriftDetector;
use crate::time::Nanos;

/// Bins in a row at whose beginning messages waited: fewer are a passing burst.
pub(crate) const QUEUE_BINS: u32 = 3;

#[derive(Debug)]
pub struct SteadyWatch {
    /// When to look at the topic.
    pub due: Nanos,
    drift: DriftDetector,
    queued: u32, // bins in a row that began with something waiting
    is_over: bool,
}

impl SteadyWatch {
    /// From bin number `first` on.
    pub fn new(first: i64) -> Self {
        Self { due: Nanos::MAX, drift: DriftDetector::new(first), queued: 0, is_over: false }
    }

    /// Note the next bin that is over; those left out were empty.
    pub fn note(&mut self, number: i64, arrivals: u64, waiting: u64) {
        self.queued = if waiting > 0 { self.queued + 1 } else { 0 };
        self.is_over |= self.queued >= QUEUE_BINS;
        if arrivals > 0 {
            self.is_over |= self.drift.note(number, arrivals);
        }
    }

    /// Whether the steady state has ended: the rate has drifted, or messages wait. Then it begins again.
    ///
    /// All bins before `number` are over and noted.
    pub fn ends_before(&mut self, number: i64) -> bool {
        self.is_over |= self.drift.pass(number);
        if self.is_over {
            *self = Self { due: self.due, ..Self::new(number) };
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_stands_for_three_bins_ends_it_once_and_a_burst_that_passes_does_not() {
        let mut watch = SteadyWatch::new(0);
        for number in 0..100 {
            watch.note(number, 1, u64::from(number % 3 > 0));
            assert!(!watch.ends_before(number + 1));
        }
        for (number, ends) in [(100, false), (101, false), (102, true), (103, false)] {
            watch.note(number, 1, 1);
            assert_eq!(watch.ends_before(number + 1), ends, "{number}");
        }
    }

    #[test]
    fn a_drift_ends_it_without_any_further_message() {
        let mut watch = SteadyWatch::new(0);
        for number in 0..500 {
            watch.note(number, 1, 0);
        }
        assert!(!watch.ends_before(749));
        assert!(watch.ends_before(750));
        assert!(!watch.ends_before(2_000), "the rate is learnt anew");
    }
}
