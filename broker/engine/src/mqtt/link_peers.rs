//! Other brokers: those that may consume here, and what came from them lately.

use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;

use crate::id::MessageId;
use crate::queueing::link_interest::LinkInterest;

/// A broker that may open links to this one.
#[derive(Debug)]
pub struct Peer {
    pub channel: Box<str>, // of its links
    pub key: Box<str>,     // which it shows when it opens one
    pub interest: Rc<LinkInterest>,
}

#[derive(Debug, Default)]
pub struct LinkPeers {
    pub by_broker: HashMap<Box<str>, Peer>,
    pub latest: HashMap<Rc<str>, Latest>, // {link: what came by it}
}

impl LinkPeers {
    /// Whether this key shows that the client is that broker.
    pub fn is_known(&self, broker: &str, key: &str) -> bool {
        self.by_broker.get(broker).is_some_and(|peer| &*peer.key == key)
    }

    /// What the broker wants whose links have this channel.
    pub fn interest_of(&self, channel: &str) -> Rc<LinkInterest> {
        let known = self.by_broker.values().find(|peer| &*peer.channel == channel);
        known.map_or_else(|| Rc::new(LinkInterest::EVERYTHING), |peer| Rc::clone(&peer.interest))
    }
}

/// The latest messages of a link: after a break, those that were not answered come again.
#[derive(Debug)]
pub struct Latest {
    order: VecDeque<MessageId>,
    known: HashSet<MessageId>,
    most: usize,
}

impl Latest {
    /// `most`: as many as may be unanswered.
    pub fn new(most: usize) -> Self {
        Self { order: VecDeque::new(), known: HashSet::new(), most: most.max(1) }
    }

    /// Whether the message is new.
    pub fn note(&mut self, id: MessageId) -> bool {
        if !self.known.insert(id) {
            return false;
        }
        self.order.push_back(id);
        if self.order.len() > self.most {
            self.order.pop_front().map(|oldest| self.known.remove(&oldest));
        }
        true
    }

    pub fn contains(&self, id: MessageId) -> bool {
        self.known.contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_lately_is_known_again_and_no_more_than_that_is_kept() {
        let mut latest = Latest::new(2);
        let news: Vec<bool> = [1, 2, 1, 3, 2, 1].into_iter().map(|id| latest.note(MessageId(id))).collect();
        assert_eq!(news, [true, true, false, true, false, true]);
        assert_eq!(latest.known.len(), 2);
    }
}
