//! Windows of many subjects, for nodes that hold one limit together: tokens by slice, by the number of a slice.
//!
//! A slot has a ring of all slices that count, from the oldest in the window to the next one: clocks of nodes differ by
//! little. What is further ahead, of a clock that is wrong, is kept beside the table.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;

use crate::levels::{Subject, hash_of, subject_of};
use crate::table::{Place, Table};

const HEAD: usize = 2; // words of a ring in front of its counts: the number of its first slice
const POLICY: u32 = 1; // all subjects are under the same one

/// Numbers of slices and their tokens, none of them 0.
pub type Counts = Vec<(i64, u32)>;

/// The subjects of one policy.
#[derive(Debug)]
pub struct Slices {
    behind: i64,
    ahead: i64,
    table: Table,
    beyond: HashMap<Subject, Counts>, // of slices after the next one
}

impl Slices {
    /// `slices` of a window; `weighted`: one more counts, in part.
    pub fn new(slices: NonZeroU32, weighted: bool) -> Self {
        let slices = slices.get();
        let (behind, ahead) = (i64::from(slices) - i64::from(!weighted), i64::from(slices));
        Self { behind, ahead, table: Table::new(HEAD + behind as usize + 2), beyond: HashMap::new() }
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

    pub fn has(&self, subject: &Subject) -> bool {
        self.find(subject).is_some()
    }

    /// What counts in slice `now`. What is ahead by more than a window is of a clock that is wrong: it counts in `now`.
    pub fn counts(&self, subject: &Subject, now: i64) -> Option<Counts> {
        self.find(subject).map(|place| self.counts_at(place, now))
    }

    /// Sets what a subject has, of a new one too, as of slice `now`.
    pub fn put(&mut self, subject: &Subject, counts: &[(i64, u32)], now: i64) {
        let place = self.find(subject).unwrap_or_else(|| self.table.add(hash_of(subject), POLICY));
        self.write(place, counts, now);
    }

    /// Adds `tokens` in the slice of this number; below 0 takes away, at most what it has. As of slice `now`.
    pub fn add(&mut self, subject: &Subject, number: i64, tokens: i64, now: i64) -> bool {
        let Some(place) = self.find(subject) else { return false };
        self.bring_to(place, now);
        let more = |count: u32| i64::from(count).saturating_add(tokens).clamp(0, u32::MAX.into()) as u32;
        if let Some(count) = ring(self.table.policies_mut(place), number) {
            *count = more(*count);
        } else if (now..=now + self.ahead).contains(&number) {
            let mut counts = self.counts_at(place, now);
            match counts.iter_mut().find(|(at, _)| *at == number) {
                Some((_, count)) => *count = more(*count),
                None => counts.push((number, more(0))),
            }
            self.write(place, &counts, now);
        }
        true
    }

    /// All subjects, and what counts of them in slice `now`.
    pub fn all(&self, now: i64) -> impl Iterator<Item = (Subject, Counts)> {
        self.table.places().map(move |place| (subject_of(self.table.hash(place)), self.counts_at(place, now)))
    }

    /// Drops the subjects that have nothing in slice `now`, but for the `kept`. Returns how many.
    pub fn forget(&mut self, kept: &HashSet<Subject>, now: i64) -> usize {
        let places: Vec<_> = self.table.places().collect();
        for place in places {
            self.bring_to(place, now);
        }
        let before = self.table.len();
        let beyond = &self.beyond;
        self.table.sweep(usize::MAX, |table, place| {
            let subject = subject_of(table.hash(place));
            let is_idle = counted(table.policies(place)).next().is_none() && !beyond.contains_key(&subject);
            is_idle && !kept.contains(&subject)
        });
        before - self.table.len()
    }

    fn find(&self, subject: &Subject) -> Option<Place> {
        self.table.find(hash_of(subject), POLICY)
    }

    /// Lets the ring begin with the oldest slice that counts in `now`.
    fn bring_to(&mut self, place: Place, now: i64) {
        if first(self.table.policies(place)) != now - self.behind {
            let counts = self.counts_at(place, now);
            self.write(place, &counts, now);
        }
    }

    fn counts_at(&self, place: Place, now: i64) -> Counts {
        let (oldest, latest) = (now - self.behind, now + self.ahead);
        let (mut counts, mut moved) = (Counts::new(), 0u32);
        let beyond = self.beyond.get(&subject_of(self.table.hash(place))).into_iter().flatten().copied();
        let all = counted(self.table.policies(place)).chain(beyond);
        for (number, tokens) in all.filter(|(number, _)| *number >= oldest) {
            if number > latest {
                moved = moved.saturating_add(tokens);
            } else {
                counts.push((number, tokens));
            }
        }
        match counts.iter_mut().find(|(number, _)| *number == now) {
            Some((_, tokens)) => *tokens = tokens.saturating_add(moved),
            None if moved > 0 => counts.push((now, moved)),
            None => {}
        }
        counts
    }

    fn write(&mut self, place: Place, counts: &[(i64, u32)], now: i64) {
        let subject = subject_of(self.table.hash(place));
        let words = self.table.policies_mut(place);
        let first = (now - self.behind) as u64;
        (words[0], words[1]) = (first as u32, (first >> 32) as u32);
        words[HEAD..].fill(0);
        let mut beyond = Counts::new();
        for &(number, tokens) in counts.iter().filter(|(_, tokens)| *tokens > 0) {
            match ring(words, number) {
                Some(count) => *count = tokens,
                None if (now..=now + self.ahead).contains(&number) => beyond.push((number, tokens)),
                None => {}
            }
        }
        if beyond.is_empty() {
            self.beyond.remove(&subject);
        } else {
            self.beyond.insert(subject, beyond);
        }
    }
}

fn first(words: &[u32]) -> i64 {
    (u64::from(words[0]) | u64::from(words[1]) << 32) as i64
}

/// The count of the slice of this number. None: the ring has no room for it.
fn ring(words: &mut [u32], number: i64) -> Option<&mut u32> {
    let at = usize::try_from(number.checked_sub(first(words))?).ok()?;
    words[HEAD..].get_mut(at)
}

/// Numbers and tokens of all slices that have any.
fn counted(words: &[u32]) -> impl Iterator<Item = (i64, u32)> {
    (first(words)..).zip(words[HEAD..].iter().copied()).filter(|(_, tokens)| *tokens > 0)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use proptest::prelude::*;

    use super::*;

    type Model = HashMap<Subject, BTreeMap<i64, i64>>;

    fn slices_of(slices: u32, weighted: bool) -> Slices {
        Slices::new(NonZeroU32::new(slices).expect("above 0"), weighted)
    }

    fn subject(number: u8) -> Subject {
        let mut subject = [0; 16];
        (subject[1], subject[15]) = (number % 3, number);
        subject
    }

    /// The rule, for one subject: what is over is dropped, what is too far ahead counts from now on.
    fn tidy(counts: &mut BTreeMap<i64, i64>, slices: i64, weighted: bool, now: i64) {
        let moved: i64 = counts.split_off(&(now + slices + 1)).values().sum();
        *counts = counts.split_off(&(now - slices + i64::from(!weighted)));
        *counts.entry(now).or_default() += moved;
        counts.retain(|_, tokens| *tokens > 0);
    }

    proptest! {
        #[test]
        fn they_are_those_of_a_plain_map(
            (slices, weighted) in (1u32..6, any::<bool>()),
            steps in prop::collection::vec((0u8..6, 0u8..6, -6i64..9, -9i64..7, -1i64..2), 1..150),
        ) {
            let (mut kept, mut model, mut now) = (slices_of(slices, weighted), Model::new(), 1_000);
            let width = i64::from(slices);
            for (number, what, tokens, offset, later) in steps {
                now += if what == 5 { 20 * later } else { later };
                let subject = subject(number);
                match what {
                    0 => {
                        kept.put(&subject, &[(now, 5)], now);
                        model.insert(subject, BTreeMap::from([(now, 5)]));
                    }
                    1 => {
                        let before = model.len();
                        for counts in model.values_mut() {
                            tidy(counts, width, weighted, now);
                        }
                        model.retain(|each, counts| *each == subject || !counts.is_empty());
                        prop_assert_eq!(kept.forget(&HashSet::from([subject]), now), before - model.len());
                    }
                    _ => {
                        let place = now + offset.clamp(1 - width, width);
                        prop_assert_eq!(kept.add(&subject, place, tokens, now), model.contains_key(&subject));
                        if let Some(counts) = model.get_mut(&subject) {
                            tidy(counts, width, weighted, now);
                            let count = counts.entry(place).or_default();
                            *count = (*count + tokens).max(0);
                        }
                    }
                }
                prop_assert_eq!(kept.len(), model.len());
                prop_assert_eq!(kept.has(&subject), model.contains_key(&subject));
                let found: Model = kept
                    .all(now)
                    .map(|(subject, counts)| (subject, counts.into_iter().map(|(at, n)| (at, n.into())).collect()))
                    .collect();
                let mut expected = model.clone();
                for counts in expected.values_mut() {
                    tidy(counts, width, weighted, now);
                }
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn a_slice_counts_up_to_the_largest_quota() {
        let mut kept = slices_of(2, true);
        kept.put(&subject(1), &[], 0);
        assert!(kept.add(&subject(1), 0, i64::MAX, 0) && kept.add(&subject(1), 0, i64::MAX, 0));
        assert_eq!(kept.counts(&subject(1), 0), Some(vec![(0, u32::MAX)]));
        assert!(kept.add(&subject(1), 0, i64::MIN, 0));
        assert_eq!(kept.counts(&subject(1), 0), Some(vec![]));
    }

    #[test]
    fn a_slice_that_cannot_count_is_not_counted() {
        let mut kept = slices_of(2, true);
        kept.put(&subject(1), &[(-3, 1), (3, 1), (i64::MIN, 1), (i64::MAX, 1)], 0);
        assert!(kept.add(&subject(1), -3, 1, 0) && kept.add(&subject(1), 3, 1, 0));
        assert_eq!(kept.counts(&subject(1), 0), Some(vec![]));
    }
}
