//! Other brokers: those that may consume here, what came from them lately, and how long that took until it was sent to
//! its subscribers here, for each way: from a broker, of a topic. The promise of a topic is judged by each of them.
//!
//! A message's own broker says how long it had been on its way when it sent it. Here it counts as if it had come so
//! much earlier than it did. The link itself takes half of the smallest round trip that the kernel has seen on it.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::rc::Rc;

use crate::id::MessageId;
use crate::keys::{ChannelKey, GroupKey};
use crate::limiter::trace::NO_TRACE;
use crate::mqtt::filter_trie::FilterTrie;
use crate::protocol::link_frames::SoFar;
use crate::protocol::mqtt::topic_filter::Filter;
use crate::queueing::link_interest::LinkInterest;
use crate::storage::record::Times;
use crate::telemetry::latency::{Latency, Sample};
use crate::time::Nanos;

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
    pub lending: Vec<GroupKey>,        // what waits for them may go to other brokers
    pub groups: Vec<RemoteGroup>,      // by name
    pub by_pattern: FilterTrie<usize>, // where they stand
}

/// A shared subscription at other brokers, by the channels of their links; who is next comes first.
#[derive(Debug)]
pub struct RemoteGroup {
    pub name: Box<str>,
    pub pattern: Box<str>,
    pub with_members: VecDeque<Box<str>>, // that are connected
    pub keepers: VecDeque<Box<str>>,      // keep it until a member comes
}

impl LinkPeers {
    /// The brokers have other groups than before.
    pub fn regroup(&mut self) {
        let mut groups: BTreeMap<&str, [VecDeque<Box<str>>; 2]> = BTreeMap::new();
        for Peer { channel, interest, .. } in self.by_broker.values() {
            for (at, names) in [&interest.groups, &interest.kept].into_iter().enumerate() {
                names.iter().for_each(|name| groups.entry(name).or_default()[at].push_back(channel.clone()));
            }
        }
        let remote = |(name, [with_members, keepers]): (&str, [VecDeque<Box<str>>; 2])| {
            let pattern = Filter::parse(name).filter(|filter| filter.group.is_some())?.pattern.into();
            Some(RemoteGroup { name: name.into(), pattern, with_members, keepers })
        };
        self.groups = groups.into_iter().filter_map(remote).collect();
        self.by_pattern = FilterTrie::default();
        for (at, group) in self.groups.iter().enumerate() {
            self.by_pattern.insert(&group.pattern, at);
        }
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

/// In `Times::trace`: the rest is the number of a way. No decision of a topic's own has so high a number.
const OF_LINK: u64 = 1 << 63;

#[derive(Debug)]
pub struct LinkWay {
    pub origin: Rc<str>, // a broker
    pub topic: Box<str>, // there
    pub latency: Latency,
    pub network: Option<Nanos>, // None: not known yet
}

/// They are kept when their links end: what came still counts.
#[derive(Debug, Default)]
pub struct LinkWays(Vec<LinkWay>);

impl LinkWays {
    /// The number of a way, which is new or known.
    pub fn number_of(&mut self, origin: &str, topic: &str) -> usize {
        let known = self.0.iter().position(|way| &*way.origin == origin && &*way.topic == topic);
        known.unwrap_or_else(|| {
            let (origin, topic) = (origin.into(), topic.into());
            self.0.push(LinkWay { origin, topic, latency: Latency::default(), network: None });
            self.0.len() - 1
        })
    }

    /// `most` of them, from number `from` on.
    pub fn some_mut(&mut self, from: usize, most: usize) -> impl Iterator<Item = &mut LinkWay> {
        self.0.iter_mut().skip(from).take(most)
    }

    pub fn note_network(&mut self, number: usize, delay: Nanos) {
        self.0.get_mut(number).into_iter().for_each(|way| way.network = Some(delay));
    }

    /// A message that went this way was sent to its subscriber.
    pub fn record(&mut self, number: usize, sample: Sample, now: Nanos) {
        self.0.get_mut(number).into_iter().for_each(|way| way.latency.record(sample, 1, 0, now));
    }
}

/// The times of a message that came by a link at `arrived`.
pub fn times_of(number: usize, so_far: SoFar, arrived: Nanos) -> Times {
    let due = arrived - so_far.processing;
    Times { arrival: due - so_far.access, due, queued: arrived, trace: OF_LINK | number as u64 }
}

/// The way that a message came. `None`: it was published here, or its own broker did not say how long it took.
pub fn way_of(trace: u64) -> Option<usize> {
    (trace != NO_TRACE && trace & OF_LINK != 0).then_some((trace & !OF_LINK) as usize)
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

    #[test]
    fn a_message_counts_as_if_it_had_come_so_much_earlier_and_knows_its_way() {
        let mut ways = LinkWays::default();
        let numbers =
            [("a", "t"), ("b", "t"), ("a", "t"), ("a", "u")].map(|(origin, topic)| ways.number_of(origin, topic));
        assert_eq!(numbers, [0, 1, 0, 2]);
        let times = times_of(2, SoFar { access: 5, processing: 30 }, 100);
        assert_eq!((times.arrival, times.due, times.queued), (65, 70, 100));
        assert_eq!((way_of(times.trace), way_of(NO_TRACE), way_of(7)), (Some(2), None, None));
    }
}
