//! Which messages arrived: one bit a message, so losses and duplicates are exact.

use crate::protocol::body::Stamp;

/// What a receipt is.
#[derive(Debug, PartialEq, Eq)]
pub enum Receipt {
    First,
    Again,
    /// It claims to be a message that this run has not sent.
    Unknown,
}

/// Of one channel; columns by publisher.
pub struct Ledger {
    seen: Vec<Vec<u64>>,
    measured: Vec<u64>,
    duplicates: Vec<u64>,
}

impl Ledger {
    pub fn new(publishers: usize) -> Ledger {
        Ledger { seen: vec![Vec::new(); publishers], measured: vec![0; publishers], duplicates: vec![0; publishers] }
    }

    /// Note a receipt. `sent`: how many this publisher has sent, which bounds the memory that a forged sequence could
    /// claim.
    pub fn note(&mut self, stamp: &Stamp, sent: u64) -> Receipt {
        let publisher = stamp.publisher as usize;
        let Some(bits) = self.seen.get_mut(publisher) else { return Receipt::Unknown };
        if stamp.sequence >= sent {
            return Receipt::Unknown;
        }
        let (word, bit) = ((stamp.sequence / 64) as usize, 1u64 << (stamp.sequence % 64));
        if bits.len() <= word {
            bits.resize(word + 1, 0);
        }
        let again = bits[word] & bit != 0;
        bits[word] |= bit;
        let counts = if again { &mut self.duplicates } else { &mut self.measured };
        counts[publisher] += u64::from(stamp.measured);
        if again { Receipt::Again } else { Receipt::First }
    }

    /// Measured messages of `publisher` that arrived, each counted once.
    pub fn received(&self, publisher: usize) -> u64 {
        self.measured[publisher]
    }

    /// Measured messages of `publisher` that arrived once more.
    pub fn duplicates(&self, publisher: usize) -> u64 {
        self.duplicates[publisher]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_counts_once_and_its_repetitions_apart() {
        let mut ledger = Ledger::new(2);
        let stamp = |publisher, sequence, measured| Stamp { publisher, sequence, intended_ns: 0, measured };
        assert_eq!(ledger.note(&stamp(0, 0, false), 200), Receipt::First);
        assert_eq!(ledger.note(&stamp(0, 64, true), 200), Receipt::First);
        assert_eq!(ledger.note(&stamp(0, 64, true), 200), Receipt::Again);
        assert_eq!(ledger.note(&stamp(1, 199, true), 200), Receipt::First);
        assert_eq!(ledger.note(&stamp(1, 200, true), 200), Receipt::Unknown);
        assert_eq!(ledger.note(&stamp(2, 0, true), 200), Receipt::Unknown);
        assert_eq!([ledger.received(0), ledger.received(1)], [1, 1]);
        assert_eq!([ledger.duplicates(0), ledger.duplicates(1)], [1, 0]);
    }
}
