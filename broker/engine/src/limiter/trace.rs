//! Bounded log of a topic's last limiter decisions, in order: publisher, arrival, due, released, sent. The checker,
//! replay, sizing and penalty read it.

use std::collections::{HashMap, VecDeque};

use crate::memory::Meter;
use crate::time::Nanos;

/// The sequence number of a message without a trace entry.
pub const NO_TRACE: u64 = u64::MAX;

#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub publisher: u32, // index into `publishers`
    pub wait_us: u32,   // the part of sent - due in which no consumer was ready
    pub arrival: Nanos,
    pub due: Nanos,      // while it waits: as computed at its arrival
    pub released: Nanos, // released by the bucket; 0: not yet
    pub sent: Nanos,     // last byte of the first delivery written; 0: not yet
    pub version: u64,    // share in force at the release
}

#[derive(Debug, Default)]
pub struct Trace {
    capacity: usize,
    began: u64, // sequence number of the first entry ever
    first: u64, // sequence number of entries[0]
    entries: VecDeque<Entry>,
    names: Names,
    last_sent: LastSent,
}

/// Names of publishers, each once. All traces of an engine share a bound of memory for them.
#[derive(Debug, Default)]
struct Names {
    all: Vec<Box<str>>,
    index: HashMap<Box<str>, u32>,
    room: NameRoom,
    charged: u64, // bytes
}

impl Names {
    fn index_of(&mut self, name: &str) -> u32 {
        if let Some(index) = self.index.get(name) {
            return *index;
        }
        let cost = 2 * name.len() as u64 + NAME_OVERHEAD;
        if self.room.used.used() + cost > self.room.limit && name != OTHERS {
            return self.index_of(OTHERS);
        }
        self.room.used.add(cost);
        self.charged += cost;
        let index = self.all.len() as u32;
        self.all.push(name.into());
        self.index.insert(name.into(), index);
        index
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.room.used.subtract(self.charged);
    }
}

/// Memory for names of publishers in traces: bytes used by all, and how many may be.
#[derive(Debug, Clone, Default)]
pub struct NameRoom {
    pub used: Meter,
    pub limit: u64,
}

/// Bytes that a name takes besides its text, which is kept twice: two pointers with lengths, the table's entry, two
/// blocks of the allocator.
const NAME_OVERHEAD: u64 = 128;

/// The most recently written first delivery: its entry and its instant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LastSent {
    pub sequence: u64,
    pub at: Nanos,
}

/// The name that all publishers share for which there is no room: a hostile client can invent any number.
const OTHERS: &str = "(others)";

impl Trace {
    /// An empty trace that begins at sequence number `first`. It must exceed all numbers of an earlier trace of the
    /// topic, whose messages may still be in flight.
    pub fn new(capacity: usize, first: u64, room: NameRoom) -> Self {
        let names = Names { all: Vec::new(), index: HashMap::new(), room, charged: 0 };
        let mut trace = Self { capacity, began: first, first, names, ..Self::default() };
        // Reserves address space alone. Growing by copies would stop the reactor for milliseconds; if the system
        // refuses the reservation, the trace grows that way.
        let _ = trace.entries.try_reserve_exact(capacity);
        trace
    }

    /// The sequence number of the next entry.
    pub fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// The index of a publisher's name, created at its first message.
    pub fn publisher(&mut self, name: &str) -> u32 {
        self.names.index_of(name)
    }

    /// An empty trace that follows this one.
    pub fn renewed(&self) -> Self {
        Self::new(self.capacity, self.next(), self.names.room.clone())
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

    /// Records the first delivery of a message; later ones do not count.
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

    /// At most `limit` publisher names from index `first` on. Names keep their index; new ones are appended.
    pub fn publishers(&self, first: usize, limit: usize) -> Vec<String> {
        self.names.all.iter().skip(first).take(limit).map(|name| name.to_string()).collect()
    }

    /// The first sequence number ever, which identifies this trace among those of the topic.
    pub fn began(&self) -> u64 {
        self.began
    }

    /// The range of sequence numbers in the trace.
    pub fn range(&self) -> std::ops::Range<u64> {
        self.first..self.next()
    }

    /// The entries of `range` that the trace still has.
    pub fn entries(&self, range: std::ops::Range<u64>) -> Vec<Entry> {
        let index =
            |sequence: u64| usize::try_from(sequence.clamp(self.first, self.next()) - self.first).unwrap_or(usize::MAX);
        self.entries.range(index(range.start)..index(range.end)).copied().collect()
    }
}

/// Trace entries as little-endian columns: publishers as u32, the rest as 64-bit integers.
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

    fn room(limit: u64) -> NameRoom {
        NameRoom { limit, ..NameRoom::default() }
    }

    #[test]
    fn names_of_all_traces_share_a_bound_and_give_it_back() {
        let room = room(3 * (NAME_OVERHEAD + 2));
        let (mut one, mut two) = (Trace::new(2, 0, room.clone()), Trace::new(2, 0, room.clone()));
        assert_eq!(["a", "b", "a"].map(|name| one.publisher(name)), [0, 1, 0]);
        assert_eq!(["c", "d", "e", "c"].map(|name| two.publisher(name)), [0, 1, 1, 0]);
        assert_eq!(two.publishers(0, 9), ["c", OTHERS]);
        drop(two);
        assert_eq!(room.used.used(), 2 * (NAME_OVERHEAD + 2));
        assert_eq!(one.publisher("d"), 2, "there is room again");
        one = one.renewed();
        assert_eq!((one.publishers(0, 9).len(), room.used.used()), (0, 0));
    }

    #[test]
    fn names_are_given_in_portions_in_the_order_of_their_indices() {
        let mut trace = Trace::new(2, 0, room(u64::MAX));
        assert_eq!(["a", "b", "a", "c"].map(|name| trace.publisher(name)), [0, 1, 0, 2]);
        assert_eq!([0, 2, 4].map(|first| trace.publishers(first, 2)), [vec!["a", "b"], vec!["c"], vec![]]);
    }

    #[test]
    fn the_oldest_entries_go_and_late_news_of_them_is_dropped() {
        let mut trace = Trace::new(2, 0, room(u64::MAX));
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
