//! Levels of many subjects, for nodes that hold one limit together: what is taken of a bucket and has not drained yet.
//!
//! A level says nothing of the burst, so that nodes can add up and join what they know. It is the bucket seen from
//! below: its fill is the burst less the level. Each policy of a subject has a slot of its own.

use std::collections::HashSet;

use crate::Nanos;
use crate::state::{load, store};
use crate::table::{Hash, Place, Table};

const WORDS: usize = 6; // units, and the instant at which they were as many

pub type Subject = [u8; 16];

/// A subject, and the number of its policy.
pub type Key = (Subject, u8);

#[derive(Debug)]
pub struct Levels {
    rates: Vec<i128>,
    table: Table,
}

impl Levels {
    /// `rates`: units/ns, one for each policy.
    pub fn new(rates: Vec<i128>) -> Self {
        Self { rates, table: Table::new(WORDS) }
    }

    pub fn policies(&self) -> usize {
        self.rates.len()
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Bytes that the slots take, used or not.
    pub fn bytes(&self) -> usize {
        self.table.bytes()
    }

    pub fn has(&self, key: &Key) -> bool {
        self.find(key).is_some()
    }

    /// Units at `at`.
    pub fn level(&self, key: &Key, at: Nanos) -> Option<i128> {
        self.find(key).map(|place| drained(&self.table, &self.rates, place, at).0)
    }

    /// Sets the level at `at`, of a new subject too.
    pub fn put(&mut self, key: &Key, units: i128, at: Nanos) {
        let place = self.find(key).unwrap_or_else(|| self.table.add(hash_of(&key.0), u32::from(key.1) + 1));
        store(self.table.policies_mut(place), (units, at));
    }

    /// Adds `units`; below 0 takes away, down to a level of 0. Returns the level.
    pub fn add(&mut self, key: &Key, units: i128, at: Nanos) -> Option<i128> {
        self.find(key).map(|place| self.add_at(place, units, at))
    }

    /// Adds `units`, one for each policy.
    pub fn add_to_all(&mut self, units: &[i128], at: Nanos) {
        let places: Vec<_> = self.table.places().collect();
        for place in places {
            self.add_at(place, units[usize::from(policy_at(&self.table, place))], at);
        }
    }

    /// Raises each level that is lower to `units`, one for each policy.
    pub fn raise_all(&mut self, units: &[i128], at: Nanos) {
        let places: Vec<_> = self.table.places().collect();
        for place in places {
            let (level, _) = drained(&self.table, &self.rates, place, at);
            let least = units[usize::from(policy_at(&self.table, place))];
            self.add_at(place, least.saturating_sub(level).max(0), at);
        }
    }

    /// From `at` on levels drain at these rates, as many as before.
    pub fn change(&mut self, rates: Vec<i128>, at: Nanos) {
        self.add_to_all(&vec![0; self.rates.len()], at);
        self.rates = rates;
    }

    /// All levels at `at`.
    pub fn all(&self, at: Nanos) -> impl Iterator<Item = (Key, i128)> {
        self.table
            .places()
            .map(move |place| (key_at(&self.table, place), drained(&self.table, &self.rates, place, at).0))
    }

    /// Drops what has drained, of policies that are `dropped`, but for the `kept`. Returns how many.
    pub fn forget(&mut self, dropped: &[u8], kept: &HashSet<Key>, at: Nanos) -> usize {
        let before = self.table.len();
        let rates = &self.rates;
        self.table.sweep(usize::MAX, |table, place| {
            drained(table, rates, place, at).0 == 0
                && dropped.contains(&policy_at(table, place))
                && !kept.contains(&key_at(table, place))
        });
        before - self.table.len()
    }

    fn find(&self, key: &Key) -> Option<Place> {
        self.table.find(hash_of(&key.0), u32::from(key.1) + 1)
    }

    fn add_at(&mut self, place: Place, units: i128, at: Nanos) -> i128 {
        let (level, at) = drained(&self.table, &self.rates, place, at);
        let level = level.saturating_add(units).max(0);
        store(self.table.policies_mut(place), (level, at));
        level
    }
}

/// The level at `at`, or where that is before the slot's own instant, at that; and which it is.
fn drained(table: &Table, rates: &[i128], place: Place, at: Nanos) -> (i128, Nanos) {
    let (level, since) = load(table.policies(place));
    let at = at.max(since);
    let elapsed = i128::from(at) - i128::from(since);
    (level.saturating_sub(rates[usize::from(policy_at(table, place))].saturating_mul(elapsed)).max(0), at)
}

fn policy_at(table: &Table, place: Place) -> u8 {
    (table.contract(place) - 1) as u8
}

fn key_at(table: &Table, place: Place) -> Key {
    (subject_of(table.hash(place)), policy_at(table, place))
}

/// A subject's bytes as words. Shared places differ in the last 10 of the first 16 bits alone (`levels.place_of` in
/// Python): turned to the front, each is in a part of the table of its own.
pub(crate) fn hash_of(subject: &Subject) -> Hash {
    let word = |at: usize| u32::from_be_bytes([subject[at], subject[at + 1], subject[at + 2], subject[at + 3]]);
    [word(0).rotate_left(6), word(4), word(8), word(12)]
}

pub(crate) fn subject_of([first, rest @ ..]: Hash) -> Subject {
    let mut subject = [0; 16];
    for (bytes, word) in subject.chunks_exact_mut(4).zip([first.rotate_right(6)].into_iter().chain(rest)) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    subject
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const RATES: [i128; 2] = [3, 0];

    fn key(number: u8, policy: u8) -> Key {
        let mut subject = [0; 16];
        (subject[1], subject[15]) = (number % 5, number);
        (subject, policy)
    }

    proptest! {
        #[test]
        fn levels_are_those_of_a_plain_map(
            steps in prop::collection::vec((0u8..9, 0u8..2, 0u8..7, -40i128..100, 0i64..20), 1..200),
        ) {
            let (mut levels, mut model) = (Levels::new(RATES.to_vec()), HashMap::<Key, (i128, Nanos)>::new());
            let (mut now, mut rates) = (0, RATES);
            for (number, policy, what, units, later) in steps {
                now += later;
                for ((_, policy), (level, at)) in &mut model {
                    (*level, *at) = ((*level - rates[usize::from(*policy)] * i128::from(now - *at)).max(0), now);
                }
                let key = key(number, policy);
                match what {
                    0 | 1 if !model.contains_key(&key) => {
                        levels.put(&key, units.max(0), now);
                        model.insert(key, (units.max(0), now));
                    }
                    4 => {
                        levels.add_to_all(&[units, 2 * units], now);
                        for ((_, policy), (level, _)) in &mut model {
                            *level = (*level + units * (i128::from(*policy) + 1)).max(0);
                        }
                        rates = [rates[1], rates[0]];
                        levels.change(rates.to_vec(), now);
                    }
                    6 => {
                        levels.raise_all(&[units, 30], now);
                        for ((_, policy), (level, _)) in &mut model {
                            *level = (*level).max(if *policy == 0 { units } else { 30 });
                        }
                    }
                    5 => {
                        let before = model.len();
                        model.retain(|each, (level, _)| *level > 0 || each.1 != policy || *each == key);
                        prop_assert_eq!(levels.forget(&[policy], &HashSet::from([key]), now), before - model.len());
                    }
                    _ => {
                        let after = model.get_mut(&key).map(|(level, _)| {
                            *level = (*level + units).max(0);
                            *level
                        });
                        prop_assert_eq!(levels.add(&key, units, now), after);
                    }
                }
                prop_assert_eq!(levels.level(&key, now + 5), model.get(&key).map(|(level, _)| {
                    (level - rates[usize::from(policy)] * 5).max(0)
                }));
                prop_assert_eq!(levels.has(&key), model.contains_key(&key));
                let expected: HashMap<_, _> = model.iter().map(|(key, (level, _))| (*key, *level)).collect();
                prop_assert_eq!(levels.len(), expected.len());
                prop_assert_eq!(levels.all(now).collect::<HashMap<_, _>>(), expected);
            }
        }
    }

    #[test]
    fn an_instant_before_the_level_of_a_subject_drains_nothing() {
        let mut levels = Levels::new(RATES.to_vec());
        levels.put(&key(1, 0), 30, 100);
        assert_eq!(levels.level(&key(1, 0), 50), Some(30));
        assert_eq!(levels.add(&key(1, 0), 0, 50), Some(30));
        assert_eq!(levels.level(&key(1, 0), 101), Some(27));
    }

    #[test]
    fn a_level_without_bound_ends_at_the_largest_number() {
        let mut levels = Levels::new(vec![i128::MAX, 0]);
        levels.put(&key(1, 1), i128::MAX, 0);
        assert_eq!(levels.add(&key(1, 1), 7, Nanos::MAX), Some(i128::MAX));
        levels.put(&key(1, 0), i128::MAX, Nanos::MIN);
        assert_eq!(levels.level(&key(1, 0), Nanos::MAX), Some(0));
    }
}
