//! Subjects in memory: open addressing in slots of one size, in 1,024 parts that grow one at a time by a quarter.
//!
//! A part is copied when it is three quarters full: of a million subjects some 50 KB, in a few microseconds. A slot is
//! a head of six words (hash, contract, tokens that other nodes do not know of) and the words of the contract's
//! policies, side by side.

/// Words of 4 bytes in front of a slot's policies.
pub const HEAD: usize = 6;

const PARTS_BITS: u32 = 10;
const SMALLEST: usize = 4; // slots of a part

/// 128-bit hash of a subject.
pub type Hash = [u32; 4];

/// All subjects whose slots have as many words.
#[derive(Debug)]
pub struct Table {
    words: usize, // a slot
    parts: Vec<Part>,
    len: usize,
    swept: (usize, usize), // the next slot to be looked at: part, slot
}

#[derive(Debug, Default)]
struct Part {
    slots: Box<[u32]>,
    len: usize,
}

/// Where a subject is: valid until a subject is added or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    part: usize,
    slot: usize,
}

impl Table {
    /// For policies of `words` in sum.
    pub fn new(words: usize) -> Self {
        let parts = (0..1 << PARTS_BITS).map(|_| Part::default()).collect();
        Self { words: HEAD + words, parts, len: 0, swept: (0, 0) }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that the slots take, used or not.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.slots.len() * 4).sum::<usize>() + self.parts.len() * size_of::<Part>()
    }

    /// `contract` is above 0.
    pub fn find(&self, hash: Hash, contract: u32) -> Option<Place> {
        let part = part_of(hash);
        self.parts[part].find(self.words, hash, contract).map(|slot| Place { part, slot })
    }

    /// A slot for a subject that is not there. Its policies' words are 0.
    pub fn add(&mut self, hash: Hash, contract: u32) -> Place {
        let part = part_of(hash);
        let slot = self.parts[part].add(self.words, hash, contract);
        self.len += 1;
        Place { part, slot }
    }

    pub fn remove(&mut self, place: Place) {
        self.parts[place.part].remove(self.words, place.slot);
        self.len -= 1;
    }

    pub fn policies(&self, place: Place) -> &[u32] {
        &self.parts[place.part].slot(self.words, place.slot)[HEAD..]
    }

    pub fn policies_mut(&mut self, place: Place) -> &mut [u32] {
        &mut self.parts[place.part].slot_mut(self.words, place.slot)[HEAD..]
    }

    pub fn contract(&self, place: Place) -> u32 {
        self.parts[place.part].slot(self.words, place.slot)[4]
    }

    pub fn hash(&self, place: Place) -> Hash {
        let slot = self.parts[place.part].slot(self.words, place.slot);
        [slot[0], slot[1], slot[2], slot[3]]
    }

    /// Removes those of the next `slots` slots that `rests` says may go. Returns whether the end was passed.
    pub fn sweep(&mut self, slots: usize, mut rests: impl FnMut(&Self, Place) -> bool) -> bool {
        let mut left = slots;
        while left > 0 {
            let (part, slot) = self.swept;
            if slot >= self.parts[part].capacity(self.words) {
                let is_end = part + 1 == self.parts.len();
                self.swept = (if is_end { 0 } else { part + 1 }, 0);
                if is_end {
                    return true;
                }
                left -= 1; // a part without slots costs a look, too
                continue;
            }
            let place = Place { part, slot };
            let goes = self.contract(place) > 0 && rests(self, place);
            if goes {
                self.remove(place); // another subject may have moved here
            } else {
                self.swept.1 += 1;
            }
            left -= 1;
        }
        false
    }

    /// All subjects, each once as long as none is added or removed.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        (0..self.parts.len())
            .flat_map(|part| (0..self.parts[part].capacity(self.words)).map(move |slot| Place { part, slot }))
            .filter(|place| self.contract(*place) > 0)
    }
}

fn part_of(hash: Hash) -> usize {
    (hash[0] >> (32 - PARTS_BITS)) as usize
}

impl Part {
    fn capacity(&self, words: usize) -> usize {
        self.slots.len() / words
    }

    fn slot(&self, words: usize, slot: usize) -> &[u32] {
        &self.slots[slot * words..(slot + 1) * words]
    }

    fn slot_mut(&mut self, words: usize, slot: usize) -> &mut [u32] {
        &mut self.slots[slot * words..(slot + 1) * words]
    }

    /// The slot where a search begins.
    fn home(&self, words: usize, hash: &[u32]) -> usize {
        ((u64::from(hash[1]) * self.capacity(words) as u64) >> 32) as usize
    }

    fn next(&self, words: usize, slot: usize) -> usize {
        if slot + 1 == self.capacity(words) { 0 } else { slot + 1 }
    }

    fn find(&self, words: usize, hash: Hash, contract: u32) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mut slot = self.home(words, &hash);
        loop {
            let found = self.slot(words, slot);
            if found[4] == contract && found[..4] == hash {
                return Some(slot);
            }
            if found[4] == 0 {
                return None;
            }
            slot = self.next(words, slot);
        }
    }

    fn add(&mut self, words: usize, hash: Hash, contract: u32) -> usize {
        let capacity = self.capacity(words);
        if (self.len + 1) * 4 > capacity * 3 {
            self.grow(words, (capacity + capacity / 4 + 1).max(SMALLEST));
        }
        self.len += 1;
        let slot = self.vacant(words, &hash);
        let head = &mut self.slot_mut(words, slot)[..HEAD];
        head[..4].copy_from_slice(&hash);
        (head[4], head[5]) = (contract, 0);
        slot
    }

    /// The slot of a subject that is not there. One in four is empty.
    fn vacant(&self, words: usize, hash: &[u32]) -> usize {
        let mut slot = self.home(words, hash);
        while self.slot(words, slot)[4] != 0 {
            slot = self.next(words, slot);
        }
        slot
    }

    fn grow(&mut self, words: usize, capacity: usize) {
        let old = std::mem::replace(&mut self.slots, vec![0; capacity * words].into_boxed_slice());
        for slot in old.chunks_exact(words).filter(|slot| slot[4] != 0) {
            let at = self.vacant(words, &slot[..4]);
            self.slot_mut(words, at).copy_from_slice(slot);
        }
    }

    /// Empties a slot, and moves those back that are behind it only because it was taken.
    fn remove(&mut self, words: usize, slot: usize) {
        let (mut hole, mut next) = (slot, self.next(words, slot));
        while self.slot(words, next)[4] != 0 {
            let home = self.home(words, &self.slot(words, next)[..4]);
            // Whether its home is not within (hole, next], cyclically.
            let stays = if hole <= next { hole < home && home <= next } else { hole < home || home <= next };
            if !stays {
                self.slots.copy_within(next * words..(next + 1) * words, hole * words);
                hole = next;
            }
            next = self.next(words, next);
        }
        self.slot_mut(words, hole).fill(0);
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn hash(number: u32) -> Hash {
        // Few parts and few homes: collisions are the rule.
        [(number % 2) << 31, (number % 7) << 29, number, 0]
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0u32..40, 1u32..3, any::<bool>()), 1..300)) {
            let (mut table, mut model) = (Table::new(1), HashMap::new());
            for (step, (number, contract, adds)) in steps.into_iter().enumerate() {
                let found = table.find(hash(number), contract);
                prop_assert_eq!(found.map(|place| table.policies(place)[0]), model.get(&(number, contract)).copied());
                match found {
                    None if adds => {
                        let place = table.add(hash(number), contract);
                        prop_assert_eq!(table.policies(place), &[0]);
                        table.policies_mut(place)[0] = step as u32;
                        model.insert((number, contract), step as u32);
                    }
                    Some(place) if !adds => {
                        table.remove(place);
                        model.remove(&(number, contract));
                    }
                    _ => {}
                }
                prop_assert_eq!(table.len(), model.len());
            }
            prop_assert_eq!(table.places().count(), model.len());
            while !table.sweep(5, |_, _| true) {}
            prop_assert!(table.is_empty());
        }
    }

    #[test]
    fn a_live_subject_takes_at_most_100_bytes_at_any_size() {
        let mut table = Table::new(6);
        let mut random = 1u64;
        for count in 1..=200_000usize {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (high, low) = ((random >> 32) as u32, random as u32);
            table.add([high.rotate_left(7) ^ low, high, low, 0], 1);
            assert!(count < 20_000 || table.bytes() <= 100 * count, "{} bytes for {count}", table.bytes());
        }
    }
}
