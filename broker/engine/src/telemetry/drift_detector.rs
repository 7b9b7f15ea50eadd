//! Detects that a rate of arrivals drifts, too slowly for `telemetry/change_detector.rs`, which learns the rate
//! meanwhile. Pure.

/// Bins from which the rate is known: 50 s.
const KNOWN_BINS: i64 = 500;
/// Bins of a window that is compared with the known rate: 25 s.
const WINDOW_BINS: i64 = 250;
/// Standard errors that are a drift: by chance in one of 150,000 windows. A false one costs some seconds of reports.
const SIGMAS: f64 = 4.5;
/// Part of the rate that is a drift: less makes no difference to a share.
const LEAST: f64 = 0.05;

/// Messages of some bins.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    bins: f64,
    sum: f64,
    squares: f64,
}

impl Counts {
    fn mean(self) -> f64 {
        self.sum / self.bins
    }

    /// Sum of the squared differences from their mean.
    fn scatter(self) -> f64 {
        self.squares - self.sum * self.mean()
    }
}

/// The detector of one topic, from the bin on with which its rate began to be known.
#[derive(Debug)]
pub struct DriftDetector {
    known: Option<Counts>,
    present: Counts,
    end: i64, // number of the bin behind the present window
}

impl DriftDetector {
    pub fn new(first: i64) -> Self {
        Self { known: None, present: Counts::default(), end: first + KNOWN_BINS }
    }

    /// Note `count` messages in bin `number`, behind those that were noted; bins between them are empty. True: the rate
    /// has drifted.
    pub fn note(&mut self, number: i64, count: u64) -> bool {
        let has_drifted = self.pass(number);
        let count = count as f64;
        self.present.sum += count;
        self.present.squares += count * count;
        has_drifted
    }

    /// Note that all bins before `number` are over. True: the rate has drifted.
    pub fn pass(&mut self, number: i64) -> bool {
        let mut has_drifted = false;
        while number >= self.end {
            self.end += WINDOW_BINS;
            let over = std::mem::take(&mut self.present);
            match self.known {
                None => self.known = Some(Counts { bins: KNOWN_BINS as f64, ..over }),
                Some(known) => has_drifted |= is_other(known, Counts { bins: WINDOW_BINS as f64, ..over }),
            }
        }
        has_drifted
    }
}

/// Whether the rates differ. The noise is that of one rate for both, and no less than that of single messages at
/// random, of which few bins may show too little.
fn is_other(known: Counts, window: Counts) -> bool {
    let bins = known.bins + window.bins;
    let variance = ((known.scatter() + window.scatter()) / bins).max((known.sum + window.sum) / bins);
    let apart = (window.mean() - known.mean()).abs();
    apart * apart > SIGMAS * SIGMAS * variance * (1.0 / known.bins + 1.0 / window.bins) && apart > LEAST * known.mean()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts of messages that come at random, `rate` a bin, `batch` at once.
    fn counts(seed: u64, rate: f64, batch: u64) -> impl Iterator<Item = u64> {
        let mut state = seed;
        let mut uniform = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
        };
        let mut left = -uniform().ln() / rate;
        std::iter::repeat_with(move || {
            let mut count = 0;
            while left < 1.0 {
                left -= uniform().ln() / rate;
                count += batch;
            }
            left -= 1.0;
            count
        })
    }

    /// How often a drift is detected in so many bins.
    fn said(drift: &mut DriftDetector, first: i64, bins: usize, counts: impl Iterator<Item = u64>) -> usize {
        (first..).zip(counts.take(bins)).filter(|(number, count)| drift.note(*number, *count)).count()
    }

    #[test]
    fn hours_of_traffic_at_one_rate_are_no_drift() {
        for (rate, batch) in [(0.03, 1), (0.5, 1), (50.0, 1), (0.05, 100)] {
            let mut drift = DriftDetector::new(0);
            assert!(said(&mut drift, 0, 400_000, counts(7, rate, batch)) <= 1, "{rate} in {batch}");
        }
    }

    #[test]
    fn another_rate_shows_in_the_first_window_that_is_all_of_it() {
        for (rate, factor) in [(20.0, 0.5), (20.0, 1.1), (0.5, 2.0), (0.3, 0.25)] {
            let mut drift = DriftDetector::new(0);
            assert_eq!(said(&mut drift, 0, 500, counts(3, rate, 1)), 0);
            assert_eq!(said(&mut drift, 500, 251, counts(5, rate * factor, 1)), 1, "{rate} by {factor}");
        }
    }

    #[test]
    fn what_is_clear_but_makes_no_difference_is_no_drift() {
        let mut drift = DriftDetector::new(0);
        assert_eq!(said(&mut drift, 0, 500, counts(3, 5_000.0, 1)), 0);
        assert_eq!(said(&mut drift, 500, 2_000, counts(5, 5_200.0, 1)), 0);
    }

    #[test]
    fn bins_that_are_not_told_are_empty_ones() {
        let mut drift = DriftDetector::new(10);
        assert!((10..510).all(|number| !drift.note(number, 1)));
        assert!(!drift.pass(759));
        assert!(drift.pass(760), "a window in which nothing came");
    }
}
