//! The rate of a topic's share at the ends of its bins, kept where it changes. Pure.

use std::collections::VecDeque;

#[derive(Debug, Default)]
pub struct ShareRates {
    changes: VecDeque<(i64, u64)>, // ascending: number of the first bin at whose end it was in force, micro-msg/s
}

impl ShareRates {
    /// Note the rate at the end of bin `number`, and of later ones until the next call. What is older than bin `oldest`
    /// is forgotten.
    pub fn note(&mut self, number: i64, rate_micro: u64, oldest: i64) {
        if self.changes.back().is_none_or(|(_, known)| *known != rate_micro) {
            self.changes.push_back((number, rate_micro));
        }
        while self.changes.get(1).is_some_and(|(number, _)| *number <= oldest) {
            self.changes.pop_front();
        }
    }

    /// The rate (msg/s) at the end of bin `first`, and each other one before bin `until`, with the bin at whose end it
    /// began.
    pub fn between(&self, first: i64, until: i64) -> Vec<(i64, f64)> {
        let from = self.changes.partition_point(|(number, _)| *number <= first).saturating_sub(1);
        let there = self.changes.range(from..).take_while(|(number, _)| *number < until);
        there.map(|(number, rate)| (*number.max(&first), *rate as f64 / 1e6)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One bin after the other, from number 0 on.
    fn noted(rates: &[u64], kept: i64) -> ShareRates {
        let mut supply = ShareRates::default();
        for (number, rate) in (0..).zip(rates) {
            supply.note(number, rate * 1_000_000, number - kept);
        }
        supply
    }

    #[test]
    fn the_rate_is_told_where_it_is_another_one_and_of_the_first_bin() {
        let supply = noted(&[5, 5, 7, 7, 0, 5], 100);
        assert_eq!(supply.between(0, 6), [(0, 5.0), (2, 7.0), (4, 0.0), (5, 5.0)]);
        assert_eq!(supply.between(3, 5), [(3, 7.0), (4, 0.0)]);
        assert_eq!(supply.between(1, 2), [(1, 5.0)]);
        assert_eq!(supply.between(9, 12), [(9, 5.0)], "it is in force until another is noted");
    }

    #[test]
    fn of_bins_before_the_first_that_was_noted_it_is_not_known() {
        let mut supply = ShareRates::default();
        assert_eq!(supply.between(0, 9), []);
        supply.note(7, 3_000_000, 0);
        assert_eq!((supply.between(5, 9), supply.between(5, 7)), (vec![(7, 3.0)], vec![]));
    }

    #[test]
    fn a_rate_that_is_always_another_one_is_kept_as_long_as_its_bins() {
        let supply = noted(&(1..1_000).collect::<Vec<_>>(), 128);
        assert_eq!(supply.changes.len(), 129);
        let told = supply.between(998 - 128, 999);
        assert_eq!((told.len(), told[0], told.last()), (129, (870, 871.0), Some(&(998, 999.0))));
    }
}
