//! Other brokers: those that may consume here, and what came from them lately.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::rc::Rc;

use crate::id::MessageId;
use crate::keys::ChannelKey;
use crate::protocol::mqtt::topic_filter::Filter;
use crate::queueing::link_interest::LinkInterest;

/// A broker that may open links to this one.
#[derive(Debug)]
pub struct Peer {
    pub channel: Box<str>, // of its links
    pub key: Box<str>,     // which it shows when it opens one
    pub interest: Rc<LinkInterest>,
}

/// A new channel that gets all that is retained, so much in a turn.
#[derive(Debug)]
pub struct Seeding {
    pub channel: ChannelKey,
    pub after: Option<Box<str>>, // the last name that it has got
    pub mark: Option<String>,    // that it gets behind the last
}

#[derive(Debug, Default)]
pub struct LinkPeers {
    pub by_broker: HashMap<Box<str>, Peer>,
    pub latest: HashMap<Rc<str>, Latest<MessageId>>, // {link: what came by it}
    pub seeding: Vec<Seeding>,
    pub groups: Vec<RemoteGroup>,
}

/// A shared subscription that has members at other brokers.
#[derive(Debug)]
pub struct RemoteGroup {
    pub name: Box<str>,
    pub pattern: Box<str>,
    pub channels: VecDeque<Box<str>>, // of these brokers' links; who is next comes first
}

impl LinkPeers {
    /// The brokers have other groups than before.
    pub fn regroup(&mut self) {
        let mut groups: BTreeMap<&str, VecDeque<Box<str>>> = BTreeMap::new();
        for peer in self.by_broker.values() {
            peer.interest
                .groups
                .iter()
                .for_each(|name| groups.entry(name).or_default().push_back(peer.channel.clone()));
        }
        let remote = |(name, channels): (&str, VecDeque<Box<str>>)| {
            let pattern = Filter::parse(name).filter(|filter| filter.group.is_some())?.pattern.into();
            Some(RemoteGroup { name: name.into(), pattern, channels })
        };
        self.groups = groups.into_iter().filter_map(remote).collect();
    }

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
pub struct Latest<K> {
    order: VecDeque<K>,
    known: HashSet<K>,
    most: usize,
}

impl<K: Copy + Eq + Hash> Latest<K> {
    /// `most`: as many as may be unanswered.
    pub fn new(most: usize) -> Self {
        Self { order: VecDeque::new(), known: HashSet::new(), most: most.max(1) }
    }

    /// Whether the message is new.
    pub fn note(&mut self, id: K) -> bool {
        if !self.known.insert(id) {
            return false;
        }
        self.order.push_back(id);
        if self.order.len() > self.most {
            self.order.pop_front().map(|oldest| self.known.remove(&oldest));
        }
        true
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
