//! All timers of an engine in one table.
//!
//! Each owner stores the instant for which it is armed; an entry that fires at another instant is stale.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::keys::{ChannelKey, ConnKey, SessionKey, TopicKey};
use crate::time::Nanos;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// When the head of a topic's backlog is due.
    Release(TopicKey),
    /// When the first deferred message of a channel is due.
    Deferred(ChannelKey),
    /// When the first message in flight to a consumer times out.
    MessageTimeout(ConnKey),
    /// When a consumer may be asked again whether its contract lets it have more.
    Allowance(ConnKey),
    /// When a connection is to get a heartbeat, or has been silent for too long, or has lingered long enough.
    Connection(ConnKey),
    /// When a session without a connection ends.
    Session(SessionKey),
    /// When `$SYS` is told.
    SystemTopics,
    /// When files need a sync or a retry.
    Disk,
    /// When a message has been served (`scheduling::service_time`).
    ServiceTime,
    /// When some of the topics that are watched are to be looked at.
    WatchList,
    /// When answers to SUBSCRIBE have waited for other brokers for long enough.
    Subscriptions,
    /// When clients have waited for their sessions at other brokers for long enough.
    Arrivals,
    /// When a LEFT request may be answered.
    Departures,
}

/// The instant that an owner is armed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Armed(Nanos);

impl Default for Armed {
    fn default() -> Self {
        Self(Nanos::MAX)
    }
}

#[derive(Debug, Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(Nanos, Timer)>>,
}

impl Timers {
    /// Fire at `at`, unless the owner is armed for an earlier instant already (it will arm itself again then).
    pub fn arm(&mut self, armed: &mut Armed, at: Nanos, timer: Timer) {
        if at < armed.0 {
            armed.0 = at;
            self.heap.push(Reverse((at, timer)));
        }
    }

    /// Make room for that many more at once.
    pub fn reserve(&mut self, more: usize) {
        self.heap.reserve(more);
    }

    pub fn entries(&self) -> usize {
        self.heap.len()
    }

    pub fn retain(&mut self, mut live: impl FnMut(Nanos, Timer) -> bool) {
        self.heap.retain(|Reverse((at, timer))| live(*at, *timer));
    }

    pub fn next(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    pub fn pop(&mut self, now: Nanos) -> Option<(Nanos, Timer)> {
        let Reverse((at, timer)) = *self.heap.peek().filter(|Reverse((at, _))| *at <= now)?;
        self.heap.pop();
        Some((at, timer))
    }
}

impl Armed {
    pub fn is_for(&self, at: Nanos) -> bool {
        self.0 == at
    }

    /// Whether the entry for `at` is the live one; disarms if so.
    pub fn fire(&mut self, at: Nanos) -> bool {
        let live = self.0 == at;
        if live {
            *self = Self::default();
        }
        live
    }
}
