//! Topics in which changes of traffic are looked for without anybody asking for their histories: some at a time, so that no message waits for all of them. That nothing comes
//! any more shows so, too.

use std::ops::Range;

use crate::bucket::Nanos;
use crate::engine::{Engine, TopicKey};
use crate::history::{BIN_NS, open_at};
use crate::timer::{Armed, Timer};

/// In which all are looked at: a topic that is passed over once, because the list has changed, is still looked at within the time that a history is watched for.
const ROUND_NS: Nanos = 400_000_000;

/// Topics that are looked at in a turn.
const TOPICS_A_TURN: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Watching {
    topics: Vec<String>,
    next: usize, // of them
    armed: Armed,
}

impl Watching {
    pub(crate) fn is_due_at(&self, at: Nanos) -> bool {
        self.armed.is_for(at)
    }

    fn portion(&mut self) -> Range<usize> {
        let from = if self.next < self.topics.len() { self.next } else { 0 };
        self.next = (from + TOPICS_A_TURN).min(self.topics.len());
        from..self.next
    }

    fn pause(&self) -> Nanos {
        ROUND_NS / self.topics.len().div_ceil(TOPICS_A_TURN).max(1) as Nanos
    }
}

impl Engine {
    /// Look for changes in these topics, and in no others unless somebody asks for their histories. Those that are not there, or have no limit, are passed over until they are.
    pub fn watch(&mut self, topics: Vec<String>, now: Nanos) {
        self.watching.topics = topics;
        self.arm_watching(now);
    }

    pub(crate) fn handle_watching(&mut self, at: Nanos, now: Nanos) {
        if !self.watching.armed.fire(at) {
            return;
        }
        let portion = self.watching.portion();
        let topics = std::mem::take(&mut self.watching.topics);
        for key in topics[portion].iter().filter_map(|name| self.topic_key(name)).collect::<Vec<_>>() {
            self.look_at_history(key, open_at(now), now);
        }
        self.watching.topics = topics;
        self.arm_watching(now + self.watching.pause());
    }

    fn arm_watching(&mut self, at: Nanos) {
        if !self.watching.topics.is_empty() {
            self.timers.arm(&mut self.watching.armed, at, Timer::Watching);
        }
    }

    /// Close the bins before number `until`, which is over at `now` at the latest, and look for changes for a while.
    pub(crate) fn look_at_history(&mut self, key: TopicKey, until: i64, now: Nanos) {
        let edge = until * BIN_NS;
        self.release_until(key, edge, now); // what its timer would do in a moment
        if let Some(topic) = self.topics.get_mut(key)
            && let Some(limiter) = topic.limiter.as_mut()
        {
            limiter.history.watch(now);
            limiter.turn_history(edge);
            self.events.extend(limiter.moved(&topic.name));
        }
    }
}
