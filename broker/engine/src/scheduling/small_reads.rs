//! Commands that come in crumbs: whoever goes on sending a few bytes at a time, of commands that are not whole yet, is left alone for a moment and read a
//! few at a time.
//!
//! A byte that completes nothing costs a wake-up and a read as any message does. A thousand connections that send one each hold the others up for
//! milliseconds; left in the kernel, what comes next is read with it. Not for long: within the 40 ms after which the kernel acknowledges by itself a thousand are
//! read in turn, for it would do so for all of them at once.

use std::collections::VecDeque;

use crate::keys::ConnKey;
use crate::time::Nanos;

/// A read of more is no crumb.
const CRUMB_BYTES: usize = 64;

/// Crumbs in a row, none of which completes a command, that are read as they come: no client needs as many for one that it writes in pieces.
const CRUMBS: u8 = 4;

/// What it costs to look at a command and find it unfinished; one that runs costs more.
pub(crate) const LOOKED_UNITS: u32 = 1;

/// So many are read at once,
const READS: usize = 8;

/// this long after the last time.
const PAUSE_NS: Nanos = 250_000;

/// How a connection's bytes have come lately.
#[derive(Debug, Default)]
pub struct Crumbs(u8);

impl Crumbs {
    /// A read brought `len` bytes and so many units of `work`. True: what comes, comes in crumbs.
    pub fn note(&mut self, len: usize, work: u32) -> bool {
        let crumb = len <= CRUMB_BYTES && work <= LOOKED_UNITS;
        self.0 = if crumb { (self.0 + 1).min(CRUMBS) } else { 0 };
        self.0 == CRUMBS
    }
}

/// Those who wait for their next read.
#[derive(Debug, Default)]
pub struct Fragments {
    keys: VecDeque<ConnKey>,
    since: Nanos, // the last ones were read, or the first has waited
}

impl Fragments {
    pub fn add(&mut self, key: ConnKey, now: Nanos) {
        if self.keys.is_empty() {
            self.since = now;
        }
        self.keys.push_back(key);
    }

    /// When the next are to be read; `None`: there are none.
    pub fn deadline(&self) -> Option<Nanos> {
        (!self.keys.is_empty()).then_some(self.since + PAUSE_NS)
    }

    /// Those to be read, if it is time.
    pub fn take_due(&mut self, now: Nanos) -> Vec<ConnKey> {
        if self.deadline().is_none_or(|at| now < at) {
            return Vec::new();
        }
        self.since = now;
        self.keys.drain(..READS.min(self.keys.len())).collect()
    }
}

#[cfg(test)]
mod tests {
    use slotmap::SlotMap;

    use super::*;

    #[test]
    fn crumbs_are_what_is_small_and_completes_nothing_several_times_in_a_row() {
        let mut crumbs = Crumbs::default();
        let three = |crumbs: &mut Crumbs| [(); 3].map(|()| crumbs.note(CRUMB_BYTES, 1));
        assert_eq!(three(&mut crumbs), [false; 3]);
        assert!(!crumbs.note(1, 2), "a command is whole");
        assert_eq!(three(&mut crumbs), [false; 3]);
        assert!(!crumbs.note(CRUMB_BYTES + 1, 0), "it is large");
        assert_eq!(three(&mut crumbs), [false; 3]);
        assert!(crumbs.note(1, 0));
        assert!((0..1_000).all(|_| crumbs.note(1, 1)));
    }

    #[test]
    fn they_are_read_a_few_at_a_time_in_turn() {
        let (mut conns, mut fragments) = (SlotMap::<ConnKey, ()>::with_key(), Fragments::default());
        let keys: Vec<ConnKey> = (0..10).map(|_| conns.insert(())).collect();
        assert_eq!((fragments.deadline(), fragments.take_due(5)), (None, vec![]));
        keys.iter().for_each(|key| fragments.add(*key, 5));
        assert_eq!(fragments.deadline(), Some(5 + PAUSE_NS));
        assert_eq!(fragments.take_due(4 + PAUSE_NS), []);
        assert_eq!(fragments.take_due(5 + PAUSE_NS), keys[..8]);
        fragments.add(keys[0], 6 + PAUSE_NS);
        assert_eq!(fragments.take_due(6 + PAUSE_NS), [], "the next come later");
        assert_eq!(fragments.take_due(5 + 2 * PAUSE_NS), [keys[8], keys[9], keys[0]]);
        assert_eq!(fragments.deadline(), None);
    }
}
