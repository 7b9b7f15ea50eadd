//! Arrival of each byte of one TCP stream, from the sequence numbers of its segments.
//!
//! A byte has arrived when it and all bytes before it have, so instants never decrease along a stream. Bytes behind a
//! hole count from its filling, when the kernel can first deliver them. The first copy of a byte counts, not its
//! retransmission.

use std::collections::VecDeque;

use crate::time::Nanos;

/// Unread segments kept of one connection. Further ones share the arrival of the latest: too late, as the kernel's
/// stamp would be.
const MAX_KNOWN: usize = 1_024;

/// Segments behind a hole that are kept.
const MAX_AHEAD: usize = 64;

/// Bytes between a segment and the expected one at most: more than any receive window, far less than half of the
/// sequence space.
const REACH: i64 = 1 << 26;

#[derive(Debug)]
pub struct Sequence {
    first: u32,                    // sequence number of the stream's first byte
    read: u64,                     // offset of the first unread byte
    covered: u64,                  // everything up to here has arrived, as far as known
    known: VecDeque<(u64, Nanos)>, // (end, arrival) of what is unread up to `covered`, both ascending
    ahead: Vec<(u64, u64, Nanos)>, // (start, end, arrival) behind a hole
    latest: Nanos,                 // arrival of the byte before `covered`
}

impl Sequence {
    /// Of a connection whose SYN had this number.
    pub fn opened(syn: u32) -> Self {
        Self {
            first: syn.wrapping_add(1),
            read: 0,
            covered: 0,
            known: VecDeque::new(),
            ahead: Vec::new(),
            latest: Nanos::MIN,
        }
    }

    /// Whether a SYN of that number is the one that opened this.
    pub fn is_opened_by(&self, syn: u32) -> bool {
        self.first == syn.wrapping_add(1)
    }

    /// Offset of a sequence number in the stream, if it is near what is expected.
    fn offset(&self, sequence: u32) -> Option<i64> {
        let expected = self.first.wrapping_add(self.covered as u32);
        let distance = i64::from(sequence.wrapping_sub(expected) as i32);
        (distance.abs() < REACH).then_some(self.covered as i64 + distance)
    }

    /// Whether a segment with that number can be part of this stream.
    pub fn expects(&self, sequence: u32) -> bool {
        self.offset(sequence).is_some()
    }

    /// A segment of `len` bytes came in.
    pub fn note(&mut self, sequence: u32, len: u32, at: Nanos) {
        let Some(start) = self.offset(sequence) else { return };
        let Ok(end) = u64::try_from(start + i64::from(len)) else { return };
        if end <= self.covered {
            return;
        }
        if start <= self.covered as i64 {
            self.extend(end, at);
            self.join_ahead();
        } else if self.ahead.len() < MAX_AHEAD {
            self.ahead.push((start as u64, end, at));
        }
    }

    fn extend(&mut self, end: u64, at: Nanos) {
        self.latest = self.latest.max(at);
        self.covered = end;
        let full = self.known.len() == MAX_KNOWN;
        match self.known.back_mut() {
            Some(last) if full || last.1 == self.latest => *last = (end, self.latest),
            _ => self.known.push_back((end, self.latest)),
        }
    }

    /// What is behind a hole that is none any more.
    fn join_ahead(&mut self) {
        while let Some(index) = self.ahead.iter().position(|(start, ..)| *start <= self.covered) {
            let (_, end, at) = self.ahead.swap_remove(index);
            if end > self.covered {
                self.extend(end, at);
            }
        }
    }

    /// Whether the arrival of the next `len` bytes is known.
    pub fn covers(&self, len: usize) -> bool {
        self.read + len as u64 <= self.covered
    }

    /// Consumes the next `len` bytes: pushes the ends of their spans, relative to the first byte, and their arrivals.
    ///
    /// Returns false and pushes nothing if segments of them were not seen.
    pub fn take(&mut self, len: usize, spans: &mut Vec<(usize, Nanos)>) -> bool {
        let (start, end) = (self.read, self.read + len as u64);
        self.read = end;
        if end > self.covered {
            self.covered = end;
            self.known.clear();
            self.join_ahead();
            return false;
        }
        while let Some((known, at)) = self.known.front().copied() {
            spans.push(((known.min(end) - start) as usize, at));
            if known > end {
                break;
            }
            self.known.pop_front();
            if known == end {
                break;
            }
        }
        if self.known.is_empty() {
            self.known.shrink_to(MAX_AHEAD);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    const SYN: u32 = u32::MAX - 3; // the stream wraps around at its third byte

    fn sequence() -> Sequence {
        Sequence::opened(SYN)
    }

    fn number(offset: u64) -> u32 {
        SYN.wrapping_add(1).wrapping_add(offset as u32)
    }

    fn take(sequence: &mut Sequence, len: usize) -> Option<Vec<(usize, Nanos)>> {
        let mut spans = Vec::new();
        sequence.take(len, &mut spans).then_some(spans)
    }

    #[test]
    fn each_segment_keeps_its_arrival_however_they_are_read() {
        let mut stream = sequence();
        for (start, len, at) in [(0, 10, 1), (10, 5, 2), (15, 5, 3)] {
            stream.note(number(start), len, at);
        }
        assert_eq!(take(&mut stream, 12), Some(vec![(10, 1), (12, 2)]));
        assert_eq!(take(&mut stream, 8), Some(vec![(3, 2), (8, 3)]));
        assert!(!stream.covers(1));
    }

    #[test]
    fn the_first_copy_of_a_byte_counts() {
        let mut stream = sequence();
        stream.note(number(0), 10, 1);
        stream.note(number(0), 10, 7); // sent again
        stream.note(number(5), 10, 8); // sent again, with more behind it
        assert_eq!(take(&mut stream, 15), Some(vec![(10, 1), (15, 8)]));
    }

    #[test]
    fn what_came_behind_a_hole_counts_from_its_filling() {
        let mut stream = sequence();
        stream.note(number(10), 10, 1);
        stream.note(number(30), 10, 2);
        stream.note(number(20), 10, 3);
        assert!(!stream.covers(1));
        stream.note(number(0), 10, 9);
        assert_eq!(take(&mut stream, 40), Some(vec![(40, 9)]));
    }

    #[test]
    fn a_segment_that_was_not_seen_is_told_once_and_the_next_ones_count_again() {
        let mut stream = sequence();
        stream.note(number(0), 10, 1);
        stream.note(number(20), 10, 3); // 10 to 20 was lost
        assert_eq!(take(&mut stream, 25), None);
        assert_eq!(take(&mut stream, 5), Some(vec![(5, 3)]));
        stream.note(number(30), 10, 4);
        assert_eq!(take(&mut stream, 10), Some(vec![(10, 4)]));
    }

    #[test]
    fn numbers_from_elsewhere_change_nothing() {
        let mut stream = sequence();
        stream.note(number(0).wrapping_add(1 << 31), 10, 1);
        stream.note(number(0).wrapping_sub(1_000), 10, 1);
        stream.note(number(0).wrapping_sub(REACH as u32), 10, 1);
        stream.note(number(0), 10, 2);
        assert_eq!(take(&mut stream, 10), Some(vec![(10, 2)]));
    }

    #[test]
    fn memory_is_bounded_and_what_shares_an_arrival_takes_the_latest() {
        let mut stream = sequence();
        for i in 0..2 * MAX_KNOWN as u64 {
            stream.note(number(i), 1, i as Nanos);
        }
        for i in 0..1_000 {
            stream.note(number(10_000 + 2 * i), 1, 0);
        }
        assert_eq!((stream.known.len(), stream.ahead.len()), (MAX_KNOWN, MAX_AHEAD));
        let spans = take(&mut stream, 2 * MAX_KNOWN).expect("known");
        assert_eq!(spans[MAX_KNOWN - 2], (MAX_KNOWN - 1, MAX_KNOWN as Nanos - 2));
        assert_eq!(spans[MAX_KNOWN - 1], (2 * MAX_KNOWN, 2 * MAX_KNOWN as Nanos - 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: RngSeed::Fixed(11), failure_persistence: None, ..ProptestConfig::default()
        })]

        /// Segments of a stream in any order, repeated or missing. A reported arrival is that of the last missing byte
        /// up to there.
        #[test]
        fn what_is_told_of_a_shuffled_stream_is_true(
            syn in any::<u32>(),
            lens in prop::collection::vec(1u32..50, 1..30),
            order in prop::collection::vec(any::<prop::sample::Index>(), 0..90),
            reads in prop::collection::vec(1usize..200, 1..10),
        ) {
            let starts: Vec<u32> = lens.iter().scan(0, |at, len| { *at += len; Some(*at - len) }).collect();
            let total: u32 = lens.iter().sum();
            let mut stream = Sequence::opened(syn);
            let mut arrival = vec![None; total as usize];
            for (at, index) in order.iter().enumerate() {
                let (start, len) = (starts[index.index(lens.len())], lens[index.index(lens.len())]);
                stream.note(syn.wrapping_add(1).wrapping_add(start), len, at as Nanos);
                for byte in start..start + len {
                    arrival[byte as usize].get_or_insert(at as Nanos);
                }
            }
            let mut read = 0;
            let mut told = Vec::new();
            for len in reads {
                let len = len.min(total as usize - read);
                let known = arrival[..read + len].iter().all(Option::is_some);
                let mut spans = Vec::new();
                let taken = stream.take(len, &mut spans);
                if !known || len == 0 {
                    break; // from here on the truth is not known either
                }
                prop_assert!(taken);
                prop_assert_eq!(spans.last().map(|(end, _)| *end), Some(len));
                let mut start = 0;
                for (end, at) in spans {
                    told.extend(std::iter::repeat_n(at, end - start));
                    start = end;
                }
                read += len;
            }
            let later = |latest: &mut Nanos, at: &Option<Nanos>| {
                *latest = (*latest).max(at.expect("known"));
                Some(*latest)
            };
            let truth: Vec<_> = arrival[..told.len()].iter().scan(Nanos::MIN, later).collect();
            prop_assert_eq!(told, truth);
        }
    }
}
