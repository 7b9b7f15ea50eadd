//! Deferred reads of answers: a consumer with credit to spare gets nothing sooner if each of its FINs wakes the broker,
//! so they are left in the kernel for a moment and read together.
//!
//! Which costs half the wake-ups of a steady flow, and a wake-up is the dearest part of a lone message. Only a consumer
//! that is delivered to often and whose credit would last for some more of the same is read so, and never for longer
//! than `DEFERRED_READ_NS`: what else it says (REQ, TOUCH, CLS, RDY, its end) waits no longer.

use crate::keys::ConnKey;
use crate::time::Nanos;

/// Answers are read this long after the last time, with whatever turn comes then. (A lone message's is read at once:
/// only a flow of more than one message in this time comes to rest.)
pub const DEFERRED_READ_NS: Nanos = 1_000_000;

/// If no turn comes, there will be one this long after the last time.
const LONGEST_NS: Nanos = 5_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credit {
    /// At most a quarter is used: its answers may wait.
    Plenty,
    /// Leave it as it is.
    Enough,
    /// More than half is used, or it is no consumer that could wait: it is read as soon as it says something.
    Scarce,
}

/// The consumers whose reads are deferred.
#[derive(Debug, Default)]
pub struct DeferredReads {
    keys: Vec<ConnKey>,
    since: Nanos, // the first of them rests since
}

impl DeferredReads {
    pub fn add(&mut self, key: ConnKey, now: Nanos) {
        if self.keys.is_empty() {
            self.since = now;
        }
        self.keys.push(key);
    }

    /// When they have to be read at the latest; `None`: there are none.
    pub fn deadline(&self) -> Option<Nanos> {
        (!self.keys.is_empty()).then_some(self.since + LONGEST_NS)
    }

    /// Those to be read, if it is time. The ones that stay are added again.
    pub fn take_due(&mut self, now: Nanos) -> Vec<ConnKey> {
        if now < self.since + DEFERRED_READ_NS { Vec::new() } else { std::mem::take(&mut self.keys) }
    }

    /// The list that `take_due` gave, to be used again.
    pub fn give_back(&mut self, mut keys: Vec<ConnKey>) {
        if self.keys.is_empty() {
            keys.clear();
            self.keys = keys;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    #[test]
    fn answers_rest_for_a_moment_and_never_beyond_the_deadline() {
        let mut reads = DeferredReads::default();
        assert_eq!(reads.deadline(), None);
        reads.add(ConnKey::default(), MS);
        reads.add(ConnKey::default(), 2 * MS);
        assert_eq!(reads.deadline(), Some(6 * MS));
        assert!(reads.take_due(2 * MS - 1).is_empty());
        assert_eq!(reads.take_due(2 * MS).len(), 2);
        assert_eq!(reads.deadline(), None);
    }
}
