//! Topics at rest, in which changes of traffic are looked for without anybody asking for their histories. Messages show what they mean themselves; each topic is looked at when
//! its silence could mean something, and else every few seconds. Some at a time, so that no message waits for all of them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use crate::engine::Engine;
use crate::keys::TopicKey;
use crate::telemetry::arrival_bins::{BIN_NS, open_at, opens_at};
use crate::time::Nanos;
use crate::timer::{Armed, Timer};

/// Topics that are looked at in a turn.
const TOPICS_A_TURN: usize = 256;

/// Longest time between two looks, of one topic this and of another that, so that they do not fall together.
const LONGEST_BINS: std::ops::Range<i64> = 24..48;

/// The same while messages wait.
const QUEUE_BINS: i64 = 3;

#[derive(Debug, Default)]
pub(crate) struct Watching {
    names: HashSet<String>,
    due: BinaryHeap<Reverse<(Nanos, TopicKey)>>, // stale unless it is what the topic's history says
    looks: i64,
    armed: Armed,
}

impl Watching {
    pub(crate) fn is_due_at(&self, at: Nanos) -> bool {
        self.armed.is_for(at)
    }

    fn next(&self) -> Option<Nanos> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    fn pop(&mut self, now: Nanos) -> Option<(Nanos, TopicKey)> {
        self.next().filter(|at| *at <= now)?;
        self.due.pop().map(|Reverse(due)| due)
    }

    fn longest_pause(&mut self) -> Nanos {
        self.looks += 1;
        (LONGEST_BINS.start + self.looks % (LONGEST_BINS.end - LONGEST_BINS.start)) * BIN_NS
    }
}

impl Engine {
    /// Look for changes in `topics`, too, and in `no_longer` only while somebody asks for their histories. Those that are not there, or have no limit, are looked at once they are.
    pub fn watch(&mut self, topics: Vec<String>, no_longer: &[String], now: Nanos) {
        for name in no_longer {
            self.watching.names.remove(name);
            if let Some(limiter) = self.topic_key(name).and_then(|key| self.topics.get_mut(key)?.limiter.as_mut()) {
                limiter.history.leave(now);
            }
        }
        for name in topics {
            let key = self.topic_key(&name);
            self.watching.names.insert(name);
            if let Some(key) = key {
                self.watch_topic(key, now);
            }
        }
    }

    /// It may have got its limit just now.
    pub(crate) fn watch_if_wanted(&mut self, name: &str, key: TopicKey, now: Nanos) {
        if self.watching.names.contains(name) {
            self.watch_topic(key, now);
        }
    }

    fn watch_topic(&mut self, key: TopicKey, now: Nanos) {
        if let Some(limiter) = self.topics.get_mut(key).and_then(|topic| topic.limiter.as_mut())
            && limiter.history.rest(now)
        {
            self.plan_look(key, now);
        }
    }

    pub(crate) fn handle_watching(&mut self, at: Nanos, now: Nanos) {
        if !self.watching.armed.fire(at) {
            return;
        }
        for _ in 0..TOPICS_A_TURN {
            let Some((due, key)) = self.watching.pop(now) else { break };
            if self.topics.get(key).and_then(|topic| topic.limiter.as_ref()?.history.look_due()) == Some(due) {
                self.look_at_history(key, open_at(now), now);
                self.plan_look(key, now);
            }
        }
        self.arm_watching(now + 1); // what is left is for the next turn
    }

    fn plan_look(&mut self, key: TopicKey, now: Nanos) {
        let longest = self.watching.longest_pause();
        let Some(limiter) = self.topics.get_mut(key).and_then(|topic| topic.limiter.as_mut()) else { return };
        let pause = if limiter.backlog.is_empty() { longest } else { QUEUE_BINS * BIN_NS };
        let number = open_at(limiter.history.speaks_at().min(now + pause)).max(open_at(now)) + 1;
        limiter.history.set_look_due(opens_at(number));
        self.watching.due.push(Reverse((opens_at(number), key)));
        self.arm_watching(now + 1);
    }

    fn arm_watching(&mut self, earliest: Nanos) {
        if let Some(due) = self.watching.next() {
            self.timers.arm(&mut self.watching.armed, due.max(earliest), Timer::Watching);
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
