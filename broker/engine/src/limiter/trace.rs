//! The last decisions of a limited topic: who, arrival, due, released, sent. In order of decision, bounded; it feeds checker, replay, sizing and penalty.

use std::collections::{HashMap, VecDeque};

use crate::time::Nanos;

/// The sequence number of a message that is in no trace.
pub const NO_TRACE: u64 = u64::MAX;

#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub publisher: u32, // index into `publishers`
    pub wait_us: u32,   // of sent - due, what no subscriber was ready for it
    pub arrival: Nanos,
    pub due: Nanos,      // while it waits: as things stood when it came
    pub released: Nanos, // let go by the bucket; 0: not yet
    pub sent: Nanos,     // last byte of the first delivery written; 0: not yet
    pub version: u64,    // share in force at the release
}

#[derive(Debug, Default)]
pub struct Trace {
    capacity: usize,
    began: u64, // sequence number of the first entry ever
    first: u64, // sequence number of entries[0]
    entries: VecDeque<Entry>,
    publishers: Vec<Box<str>>,
    index: HashMap<Box<str>, u32>,
    last_sent: LastSent,
}

/// The first delivery that was written last: of which entry, and when.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LastSent {
    pub sequence: u64,
    pub at: Nanos,
}

/// More names than this share one: a hostile client could make up names for ever.
const MAX_PUBLISHERS: usize = 1_000_000;

/// The name of those that came too late for one of their own.
const OTHERS: &str = "(others)";

impl Trace {
    /// `first`: the sequence number to begin with, beyond all of an earlier trace of the same topic, whose messages may still be on their way.
    pub fn new(capacity: usize, first: u64) -> Self {
        let mut trace = Self { capacity, began: first, first, ..Self::default() };
        // Address space only, until it is used: growing by copies would stop the reactor for milliseconds. If refused, it grows so after all.
        let _ = trace.entries.try_reserve_exact(capacity);
        trace
    }

    /// The sequence number of the next entry.
    pub fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// The index of a publisher's name, made at its first message.
    pub fn publisher(&mut self, name: &str) -> u32 {
        let name = if self.publishers.len() < MAX_PUBLISHERS || self.index.contains_key(name) { name } else { OTHERS };
        if let Some(index) = self.index.get(name) {
            return *index;
        }
        let index = self.publishers.len() as u32;
        self.publishers.push(name.into());
        self.index.insert(name.into(), index);
        index
    }

    pub fn push(&mut self, entry: Entry) -> u64 {
        if self.capacity == 0 {
            return NO_TRACE;
        }
        if self.entries.len() == self.capacity {
            self.entries.pop_front();
            self.first += 1;
        }
        self.entries.push_back(entry);
        self.next() - 1
    }

    pub fn released(&mut self, sequence: u64, due: Nanos, released: Nanos, version: u64) {
        if let Some(entry) = self.at(sequence) {
            (entry.due, entry.released, entry.version) = (due, released, version);
        }
    }

    /// Only the first delivery counts.
    pub fn sent(&mut self, sequence: u64, sent: Nanos, consumer_wait: Nanos) {
        if let Some(entry) = self.at(sequence).filter(|entry| entry.sent == 0) {
            entry.sent = sent;
            entry.wait_us = u32::try_from(consumer_wait / 1_000).unwrap_or(u32::MAX);
            self.last_sent = LastSent { sequence, at: sent };
        }
    }

    pub fn last_sent(&self) -> LastSent {
        self.last_sent
    }

    fn at(&mut self, sequence: u64) -> Option<&mut Entry> {
        let index = sequence.checked_sub(self.first)?;
        self.entries.get_mut(usize::try_from(index).ok()?)
    }

    /// The names of the publishers from index `first` on, `most` of them at most. They never change, and more come behind them.
    pub fn publishers(&self, first: usize, most: usize) -> Vec<String> {
        self.publishers.iter().skip(first).take(most).map(|name| name.to_string()).collect()
    }

    /// What tells it from an earlier one of the same topic that had entries.
    pub fn began(&self) -> u64 {
        self.began
    }

    /// The range of sequence numbers that is there.
    pub fn range(&self) -> std::ops::Range<u64> {
        self.first..self.next()
    }

    /// What is still there of a range.
    pub fn entries(&self, range: std::ops::Range<u64>) -> Vec<Entry> {
        let index = |sequence: u64| usize::try_from(sequence.clamp(self.first, self.next()) - self.first).unwrap_or(usize::MAX);
        self.entries.range(index(range.start)..index(range.end)).copied().collect()
    }
}

/// Little-endian columns: u32, then 64-bit ones.
#[derive(Debug, Default)]
pub struct Columns {
    pub publishers: Vec<String>,
    pub publisher: Vec<u8>,
    pub arrival_ns: Vec<u8>,
    pub due_ns: Vec<u8>,
    pub released_ns: Vec<u8>,
    pub sent_ns: Vec<u8>,
    pub share_version: Vec<u8>,
}

impl Columns {
    pub fn extend(&mut self, entries: &[Entry]) {
        for entry in entries {
            self.publisher.extend_from_slice(&entry.publisher.to_le_bytes());
            self.arrival_ns.extend_from_slice(&entry.arrival.to_le_bytes());
            self.due_ns.extend_from_slice(&entry.due.to_le_bytes());
            self.released_ns.extend_from_slice(&entry.released.to_le_bytes());
            self.sent_ns.extend_from_slice(&entry.sent.to_le_bytes());
            self.share_version.extend_from_slice(&entry.version.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_given_in_portions_in_the_order_of_their_indices() {
        let mut trace = Trace::new(2, 0);
        assert_eq!(["a", "b", "a", "c"].map(|name| trace.publisher(name)), [0, 1, 0, 2]);
        assert_eq!([0, 2, 4].map(|first| trace.publishers(first, 2)), [vec!["a", "b"], vec!["c"], vec![]]);
    }

    #[test]
    fn the_oldest_entries_go_and_late_news_of_them_is_dropped() {
        let mut trace = Trace::new(2, 0);
        let entry = Entry { publisher: 0, wait_us: 0, arrival: 1, due: 1, released: 0, sent: 0, version: 0 };
        let sequences: Vec<u64> = (0..3).map(|_| trace.push(entry)).collect();
        trace.sent(sequences[0], 9, 0);
        trace.sent(sequences[2], 7, 0);
        trace.sent(sequences[2], 8, 0);
        let mut columns = Columns::default();
        assert_eq!(trace.last_sent(), LastSent { sequence: sequences[2], at: 7 });
        columns.extend(&trace.entries(0..3));
        assert_eq!(columns.sent_ns, [0i64.to_le_bytes(), 7i64.to_le_bytes()].concat());
        assert!(trace.entries(0..1).is_empty());
    }
}
