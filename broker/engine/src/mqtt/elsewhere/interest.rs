//! What the subscribers of this broker want of the others, and the subscriptions that wait until these know it.

use std::collections::VecDeque;

use crate::keys::{ConnKey, SessionKey};
use crate::mqtt::retained::Replay;
use crate::time::{NS_PER_S, Nanos};
use crate::timer::Armed;

/// Filters that other brokers are told; with more of them they are asked for all messages.
pub const MOST_FILTERS: usize = 64;

/// Bytes of filters that other brokers are told; with more they are asked for all messages.
pub const MOST_FILTER_BYTES: usize = 64 << 10;

/// Shared groups that other brokers are told, and bytes of their names. No message comes from there for further ones,
/// so clients cannot make them. With the filters, and each byte escaped, all fit into the request of 1 MiB.
pub const MOST_GROUPS: usize = 1_000;
pub const MOST_GROUP_BYTES: usize = 64 << 10;

/// The names that other brokers are told, and the first that they are not.
pub fn told_groups<'a>(names: impl Iterator<Item = &'a str>) -> (Vec<&'a str>, Option<&'a str>) {
    let (mut told, mut bytes) = (Vec::new(), 0);
    for name in names {
        bytes += name.len();
        if told.len() == MOST_GROUPS || bytes > MOST_GROUP_BYTES {
            return (told, Some(name));
        }
        told.push(name);
    }
    (told, None)
}

/// A subscription is answered after so long though some other broker does not know of it.
const PATIENCE_NS: Nanos = NS_PER_S;

/// A SUBSCRIBE that was carried out: its answer, and what of what is retained it gets.
#[derive(Debug)]
pub struct Subscribed {
    pub conn: ConnKey,
    pub session: SessionKey,
    pub answer: Vec<u8>,
    pub replays: Vec<Replay>,
}

/// One that waits.
#[derive(Debug)]
struct Waiting {
    version: u64,
    until: Nanos,
    subscribed: Subscribed,
}

#[derive(Debug, Default)]
pub struct Interest {
    pub is_shared: bool, // there are other brokers
    version: u64,
    settled: u64,     // all other brokers know this version
    is_wide: bool,    // they are asked for all messages
    is_durable: bool, // they keep on disk what they acknowledge
    is_told: bool,    // Python knows that it has changed
    waiting: VecDeque<Waiting>,
    pub armed: Armed,
}

impl Interest {
    /// There are other brokers from now on, or none any more.
    pub fn share(&mut self, is_shared: bool) {
        if self.is_shared != is_shared {
            self.is_shared = is_shared;
            self.change();
        }
    }

    /// Somebody subscribed to a pattern that nobody had.
    pub fn note_pattern(&mut self, is_reserved: bool) {
        if !self.is_wide || is_reserved {
            self.change();
        }
    }

    /// Nobody subscribes to some pattern any more; `left` subscriptions are left.
    pub fn lose_pattern(&mut self, left: usize) {
        if !self.is_wide || left <= MOST_FILTERS {
            self.change();
        }
    }

    /// A group got its first member that is connected, or lost the last one.
    pub fn note_groups(&mut self) {
        self.change();
    }

    /// A session that outlives its connection has subscribed.
    pub fn note_durable(&mut self) {
        if !self.is_durable {
            self.is_durable = true;
            self.change();
        }
    }

    fn change(&mut self) {
        if self.is_shared {
            self.version += 1;
            self.is_told = false;
        }
    }

    /// Whether Python is to be told: once for each look that it takes.
    pub fn take_news(&mut self) -> bool {
        self.is_shared && !std::mem::replace(&mut self.is_told, true) && self.version > 0
    }

    /// Python looks: `is_wide` and `is_durable` as it is told. Returns the version.
    pub fn look(&mut self, is_wide: bool, is_durable: bool) -> u64 {
        (self.is_wide, self.is_durable) = (is_wide, is_durable);
        self.version
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn is_settled(&self) -> bool {
        !self.is_shared || self.settled >= self.version
    }

    /// Keeps an answer until all other brokers know what is wanted now; returns until when at the latest.
    pub fn wait(&mut self, subscribed: Subscribed, now: Nanos) -> Nanos {
        let until = now + PATIENCE_NS;
        self.waiting.push_back(Waiting { version: self.version, until, subscribed });
        self.waiting.front().map_or(until, |first| first.until)
    }

    /// A session gives up a pattern: it gets nothing of what is retained for it.
    pub fn forget_replays(&mut self, session: SessionKey, pattern: &str) {
        for Waiting { subscribed, .. } in self.waiting.iter_mut().filter(|one| one.subscribed.session == session) {
            subscribed.replays.retain(|replay| *replay.pattern != *pattern);
        }
    }

    /// All other brokers know `version`.
    pub fn settle(&mut self, version: u64) -> Vec<Subscribed> {
        self.settled = self.settled.max(version.min(self.version));
        let count = self.waiting.iter().take_while(|one| one.version <= self.settled).count();
        self.waiting.drain(..count).map(|one| one.subscribed).collect()
    }

    /// Those that have waited long enough.
    pub fn overdue(&mut self, now: Nanos) -> Vec<Subscribed> {
        let count = self.waiting.iter().take_while(|one| one.until <= now).count();
        self.waiting.drain(..count).map(|one| one.subscribed).collect()
    }

    pub fn next_due(&self) -> Option<Nanos> {
        self.waiting.front().map(|one| one.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(answer: &str) -> Subscribed {
        let (conn, session) = Default::default();
        Subscribed { conn, session, answer: answer.into(), replays: Vec::new() }
    }

    fn shared() -> Interest {
        let mut interest = Interest::default();
        interest.share(true);
        interest
    }

    #[test]
    fn alone_nothing_waits_and_nobody_is_told() {
        let mut alone = Interest::default();
        alone.note_pattern(false);
        assert!(alone.is_settled() && !alone.take_news());
    }

    #[test]
    fn an_answer_waits_for_its_own_version_and_no_longer_than_a_second() {
        let mut interest = shared();
        interest.note_pattern(false);
        let first = interest.look(false, false);
        interest.wait(answered("first"), 0);
        interest.note_pattern(false);
        let until = interest.wait(answered("second"), 5);
        assert_eq!(until, PATIENCE_NS, "that of the first");
        let gone: Vec<Vec<u8>> = interest.settle(first).into_iter().map(|one| one.answer).collect();
        assert_eq!((gone, interest.is_settled()), (vec![b"first".to_vec()], false));
        assert!(interest.overdue(PATIENCE_NS + 4).is_empty());
        assert_eq!(interest.overdue(PATIENCE_NS + 5).len(), 1);
    }

    #[test]
    fn python_is_told_once_until_it_looks_and_patterns_are_no_news_once_all_is_wanted() {
        let mut interest = shared();
        assert!(interest.take_news() && !interest.take_news());
        let wide = interest.look(true, true);
        interest.settle(wide);
        interest.note_pattern(false);
        interest.note_durable();
        assert!(interest.is_settled() && !interest.take_news());
        interest.note_pattern(true);
        assert!(!interest.is_settled() && interest.take_news(), "a wide interest names patterns of reserved names");
    }
}
