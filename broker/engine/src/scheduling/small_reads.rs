//! Small reads: clients that send a few bytes at a time, none of which completes a command, are read in rounds.
//!
//! Such a read costs a wake-up and a system call, as one of a message does. A thousand such clients would delay the
//! others by milliseconds. Between two rounds their bytes collect in the kernel, and one read takes them together.
//! A thousand clients are read within 32 ms: before the 40 ms after which the kernel acknowledges without a read.
//!
//! Beside the bench's attack slowloris, p99 is 1.66 ms without rounds and 0.12 ms with them.

use std::collections::VecDeque;

use crate::keys::ConnKey;
use crate::time::Nanos;

/// Bytes of a small read, at most.
const SMALL_READ_BYTES: usize = 64;

/// Small reads in a row after which a client is read in rounds. A client that writes one command in pieces needs fewer.
const SMALL_READS: u8 = 4;

/// Work units of a look at a command that is not complete; a command that runs costs more.
pub(crate) const LOOK_UNITS: u32 = 1;

/// Clients read in one round.
const READS_PER_ROUND: usize = 8;

/// Nanoseconds between two rounds: 250 us.
const ROUND_INTERVAL_NS: Nanos = 250_000;

/// Counts the latest small reads of one connection.
#[derive(Debug, Default)]
pub struct SmallReads(u8);

impl SmallReads {
    /// Records a read of `len` bytes that cost `units` of work. Returns whether the connection is to be read in rounds.
    pub fn record(&mut self, len: usize, units: u32) -> bool {
        let is_small = len <= SMALL_READ_BYTES && units <= LOOK_UNITS;
        self.0 = if is_small { (self.0 + 1).min(SMALL_READS) } else { 0 };
        self.0 == SMALL_READS
    }
}

/// Connections that wait for their next round, in order.
#[derive(Debug, Default)]
pub struct Rounds {
    waiting: VecDeque<ConnKey>,
    last: Nanos, // the last round, or when the first connection began to wait
}

impl Rounds {
    pub fn add(&mut self, key: ConnKey, now: Nanos) {
        if self.waiting.is_empty() {
            self.last = now;
        }
        self.waiting.push_back(key);
    }

    /// When the next round is due; `None`: no connection waits.
    pub fn deadline(&self) -> Option<Nanos> {
        (!self.waiting.is_empty()).then_some(self.last + ROUND_INTERVAL_NS)
    }

    /// The connections of the round that is due at `now`, or none.
    pub fn take_due(&mut self, now: Nanos) -> Vec<ConnKey> {
        if self.deadline().is_none_or(|at| now < at) {
            return Vec::new();
        }
        self.last = now;
        self.waiting.drain(..READS_PER_ROUND.min(self.waiting.len())).collect()
    }
}

#[cfg(test)]
mod tests {
    use slotmap::SlotMap;

    use super::*;

    #[test]
    fn several_small_reads_in_a_row_that_complete_nothing_lead_to_rounds() {
        let mut reads = SmallReads::default();
        let three = |reads: &mut SmallReads| [(); 3].map(|()| reads.record(SMALL_READ_BYTES, 1));
        assert_eq!(three(&mut reads), [false; 3]);
        assert!(!reads.record(1, 2), "a command is complete");
        assert_eq!(three(&mut reads), [false; 3]);
        assert!(!reads.record(SMALL_READ_BYTES + 1, 0), "it is large");
        assert_eq!(three(&mut reads), [false; 3]);
        assert!(reads.record(1, 0));
        assert!((0..1_000).all(|_| reads.record(1, 1)));
    }

    #[test]
    fn a_round_reads_some_connections_in_order() {
        let (mut conns, mut rounds) = (SlotMap::<ConnKey, ()>::with_key(), Rounds::default());
        let keys: Vec<ConnKey> = (0..10).map(|_| conns.insert(())).collect();
        assert_eq!((rounds.deadline(), rounds.take_due(5)), (None, vec![]));
        keys.iter().for_each(|key| rounds.add(*key, 5));
        assert_eq!(rounds.deadline(), Some(5 + ROUND_INTERVAL_NS));
        assert_eq!(rounds.take_due(4 + ROUND_INTERVAL_NS), []);
        assert_eq!(rounds.take_due(5 + ROUND_INTERVAL_NS), keys[..8]);
        rounds.add(keys[0], 6 + ROUND_INTERVAL_NS);
        assert_eq!(rounds.take_due(6 + ROUND_INTERVAL_NS), [], "the next come later");
        assert_eq!(rounds.take_due(5 + 2 * ROUND_INTERVAL_NS), [keys[8], keys[9], keys[0]]);
        assert_eq!(rounds.deadline(), None);
    }
}
