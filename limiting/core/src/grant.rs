//! Grants: what a check hands out so that its cost can be corrected afterwards, once.
//!
//! A grant carries what was taken, signed by the limiter's key, so nothing is kept for the many that are never
//! corrected. Only the corrected ones are remembered, until the grant is too old.

use std::collections::{HashSet, VecDeque};
use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::Nanos;
use crate::table::Hash;

/// How long after its check a grant may be corrected or released.
pub const CORRECT_WITHIN_NS: Nanos = 60 * 1_000_000_000;

/// Corrections that are remembered; beyond them none is taken.
const MAX_REMEMBERED: usize = 1_000_000;

pub const GRANT_BYTES: usize = 48;

/// What was taken for whom, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    pub number: u64, // of this limiter
    pub hash: Hash,
    pub contract: u32,
    pub cost: u32,
    pub at: Nanos,
}

impl Grant {
    pub fn encode(&self, key: (u64, u64)) -> [u8; GRANT_BYTES] {
        let mut bytes = [0; GRANT_BYTES];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        for (place, word) in bytes[8..24].chunks_exact_mut(4).zip(self.hash) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes[24..28].copy_from_slice(&self.contract.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.cost.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.at.to_le_bytes());
        let signature = signature(&bytes[..40], key);
        bytes[40..].copy_from_slice(&signature.to_le_bytes());
        bytes
    }

    /// None: this key did not sign it.
    pub fn decode(bytes: &[u8], key: (u64, u64)) -> Option<Self> {
        let bytes: &[u8; GRANT_BYTES] = bytes.try_into().ok()?;
        if signature(&bytes[..40], key) != u64::from_le_bytes(bytes[40..].try_into().ok()?) {
            return None;
        }
        let word = |at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes).ok();
        Some(Self {
            number: u64::from_le_bytes(bytes[..8].try_into().ok()?),
            hash: [word(8)?, word(12)?, word(16)?, word(20)?],
            contract: word(24)?,
            cost: word(28)?,
            at: Nanos::from_le_bytes(bytes[32..40].try_into().ok()?),
        })
    }
}

fn signature(bytes: &[u8], (one, two): (u64, u64)) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(one ^ 0x6772_616e_7400_0000, two); // not the key of subjects
    hasher.write(bytes);
    hasher.finish()
}

/// Numbers of grants that were corrected lately.
#[derive(Debug, Default)]
pub(crate) struct Corrected {
    numbers: HashSet<u64>,
    by_age: VecDeque<(Nanos, u64)>, // when they may be forgotten
}

impl Corrected {
    /// Notes a correction. False: it was corrected before, or there is no room to remember it.
    pub fn note(&mut self, number: u64, now: Nanos) -> bool {
        while let Some(&(_, old)) = self.by_age.front().filter(|(until, _)| *until < now) {
            self.by_age.pop_front();
            self.numbers.remove(&old);
        }
        if self.numbers.len() >= MAX_REMEMBERED || !self.numbers.insert(number) {
            return false;
        }
        self.by_age.push_back((now + CORRECT_WITHIN_NS, number));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRANT: Grant = Grant { number: 7, hash: [1, 2, 3, 4], contract: 5, cost: 6, at: 8 };

    #[test]
    fn a_grant_is_read_by_the_key_that_signed_it_alone() {
        let bytes = GRANT.encode((1, 2));
        assert_eq!(Grant::decode(&bytes, (1, 2)), Some(GRANT));
        assert_eq!(Grant::decode(&bytes, (1, 3)), None);
        for at in 0..GRANT_BYTES {
            let mut forged = bytes;
            forged[at] ^= 1;
            assert_eq!(Grant::decode(&forged, (1, 2)), None);
        }
        assert_eq!(Grant::decode(&bytes[1..], (1, 2)), None);
    }

    #[test]
    fn a_grant_is_corrected_once() {
        let mut corrected = Corrected::default();
        assert!(corrected.note(1, 0));
        assert!(!corrected.note(1, CORRECT_WITHIN_NS), "as long as it may be corrected");
        assert!(corrected.note(2, CORRECT_WITHIN_NS + 1));
        assert_eq!(corrected.numbers.len(), 1, "what is too old for a correction is forgotten");
    }
}
