//! The heaviest subjects of a namespace: the space-saving sketch (Metwally et al., 2005) over a sample of the checks.

use std::collections::{BTreeSet, HashMap};

use crate::table::Hash;

/// Subjects that are followed: each of more than one in so many of all checks is among them.
pub const FOLLOWED: usize = 1_000;

/// One check in so many is counted, for so many: an update takes longer than a decision.
const SAMPLE: u64 = 16;

/// Bytes of a subject's name that are kept.
const NAME_BYTES: usize = 256;

/// How often a subject was checked, at most `error` too often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heavy {
    pub subject: Box<str>,
    pub count: u64,
    pub error: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Heaviest {
    dice: u64,
    followed: HashMap<Hash, Heavy>,
    order: BTreeSet<(u64, Hash)>, // lightest first
}

impl Heaviest {
    pub fn note(&mut self, hash: Hash, subject: &str) {
        // A random sample (Knuth's LCG): a fixed step would miss what comes at a regular pace.
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if (self.dice >> 33).is_multiple_of(SAMPLE) {
            self.add(hash, subject);
        }
    }

    fn add(&mut self, hash: Hash, subject: &str) {
        if let Some(known) = self.followed.get_mut(&hash) {
            self.order.remove(&(known.count, hash));
            known.count += SAMPLE;
            self.order.insert((known.count, hash));
            return;
        }
        let error = if self.followed.len() < FOLLOWED { 0 } else { self.drop_lightest() };
        let end = (0..=NAME_BYTES.min(subject.len())).rev().find(|end| subject.is_char_boundary(*end)).unwrap_or(0);
        self.followed.insert(hash, Heavy { subject: subject[..end].into(), count: error + SAMPLE, error });
        self.order.insert((error + SAMPLE, hash));
    }

    fn drop_lightest(&mut self) -> u64 {
        let Some((count, hash)) = self.order.pop_first() else { return 0 };
        self.followed.remove(&hash);
        count
    }

    /// The heaviest `most`, heaviest first.
    pub fn top(&self, most: usize) -> Vec<Heavy> {
        self.order.iter().rev().take(most).filter_map(|(_, hash)| self.followed.get(hash).cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_more_than_a_thousandth_of_the_checks_is_found() {
        let mut heaviest = Heaviest::default();
        for round in 0..400_000u32 {
            let number = if round % 100 == 0 { 7 } else { 1_000 + round };
            heaviest.note([number, 0, 0, 0], &format!("s{number}"));
            if round % 50 == 1 {
                heaviest.note([8, 0, 0, 0], "s8");
            }
        }
        let top = heaviest.top(2);
        assert_eq!([&*top[0].subject, &*top[1].subject], ["s8", "s7"]);
        assert!((6_000..10_500).contains(&top[0].count) && top.iter().all(|heavy| heavy.count > heavy.error));
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let mut heaviest = Heaviest::default();
        heaviest.add([1, 0, 0, 0], &"é".repeat(200));
        assert_eq!(heaviest.top(1)[0].subject.len(), 256);
    }
}
