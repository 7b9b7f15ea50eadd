//! Steady topics, whose traffic is watched although nobody asks for their histories. Messages themselves show changes;
//! a topic is looked at when its silence could mean one, and otherwise every few seconds. A turn looks at some, so that
//! no message waits for all.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use crate::keys::TopicKey;
use crate::telemetry::arrival_bins::BIN_NS;
use crate::time::Nanos;
use crate::timer::Armed;

/// Longest time between two looks, in bins. It differs between topics, so that their looks do not fall together.
const LONGEST_BINS: std::ops::Range<i64> = 24..48;

#[derive(Debug, Default)]
pub(crate) struct WatchList {
    pub(crate) names: HashSet<String>,
    pub(crate) due: BinaryHeap<Reverse<(Nanos, TopicKey)>>, // stale unless it is what the topic's history says
    looks: i64,
    pub(crate) armed: Armed,
}

impl WatchList {
    pub(crate) fn is_due_at(&self, at: Nanos) -> bool {
        self.armed.is_for(at)
    }

    pub(crate) fn next(&self) -> Option<Nanos> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    pub(crate) fn pop(&mut self, now: Nanos) -> Option<(Nanos, TopicKey)> {
        self.next().filter(|at| *at <= now)?;
        self.due.pop().map(|Reverse(due)| due)
    }

    pub(crate) fn longest_pause(&mut self) -> Nanos {
        self.looks += 1;
        (LONGEST_BINS.start + self.looks % (LONGEST_BINS.end - LONGEST_BINS.start)) * BIN_NS
    }
}
