//! How long bytes are on their way between clients and this broker: half of the smallest round trip that the kernel has seen on their connections. (The
//! smoothed one has delayed acknowledgements in it.) Asked for only while somebody measures, of one topic after the other, a few connections in each turn.

use std::sync::Arc;

use slotmap::SecondaryMap;

use crate::engine::Engine;
use crate::keys::{ConnKey, TopicKey};
use crate::telemetry::measurement::Network;
use crate::time::Nanos;

/// Connections that are looked at in one turn, and asked if they are clients of the topic, at well under a microsecond each.
const VISITED_A_TURN: usize = 32;

/// How long what was found of a topic's clients holds: the least of all round trips seldom changes.
const HOLDS_NS: Nanos = 5_000_000_000;

#[derive(Debug, Default)]
pub(crate) struct Ways {
    asking: Option<(TopicKey, Nanos)>, // of whose clients, and since when
    unvisited: Vec<ConnKey>,
    found: Network,
    of_consumers: Vec<Nanos>,
    known: SecondaryMap<TopicKey, (Nanos, Arc<Network>)>, // asked for when, and what was found
}

impl Engine {
    /// Ask for the ways of all clients of a topic, unless they are known well enough, or others are still asked for.
    pub fn ask_ways(&mut self, topic: &str, now: Nanos) {
        let Some(topic) = self.topic_key(topic) else { return };
        if self.ways.asking.is_some() || self.ways.known.get(topic).is_some_and(|(asked, _)| now < asked + HOLDS_NS) {
            return;
        }
        self.ways.asking = Some((topic, now));
        self.ways.unvisited.extend(self.conns.keys());
    }

    /// Connections whose round trip is to be handed in by `handle_round_trip`, before `end_ways`: some of those asked for.
    pub fn poll_ways(&mut self) -> Vec<ConnKey> {
        let Some((topic, _)) = self.ways.asking else { return Vec::new() };
        let kept = self.ways.unvisited.len().saturating_sub(VISITED_A_TURN);
        let mut visited = self.ways.unvisited.split_off(kept);
        visited.retain(|&key| self.consumes(key, topic) || self.indices_of(key, topic).next().is_some());
        visited
    }

    pub fn handle_round_trip(&mut self, key: ConnKey, round_trip: Nanos) {
        let Some((topic, _)) = self.ways.asking else { return };
        let way = round_trip / 2;
        let mut found = std::mem::take(&mut self.ways.found);
        for index in self.indices_of(key, topic) {
            found.publishers.entry(index).and_modify(|shortest| *shortest = way.min(*shortest)).or_insert(way);
        }
        self.ways.found = found;
        if self.consumes(key, topic) {
            self.ways.of_consumers.push(way);
        }
    }

    /// Once all are visited, what they said is what is known.
    pub fn end_ways(&mut self) {
        let Some((topic, asked)) = self.ways.asking.filter(|_| self.ways.unvisited.is_empty()) else { return };
        let (mut network, mut ways) = (std::mem::take(&mut self.ways.found), std::mem::take(&mut self.ways.of_consumers));
        if !ways.is_empty() {
            let middle = ways.len() / 2;
            network.subscribers = *ways.select_nth_unstable(middle).1;
        }
        self.ways.asking = None;
        if self.topics.contains_key(topic) {
            self.ways.known.insert(topic, (asked, Arc::new(network)));
        }
    }

    /// The ways of a topic's clients, as far as they are known: each publisher's shortest, the median of its subscribers'.
    pub fn network(&self, topic: &str) -> Arc<Network> {
        let known = self.topic_key(topic).and_then(|topic| self.ways.known.get(topic));
        known.map_or_else(Arc::default, |(_, network)| Arc::clone(network))
    }

    /// As which publishers of a topic a connection stands in its trace.
    fn indices_of(&self, key: ConnKey, topic: TopicKey) -> impl Iterator<Item = u32> + '_ {
        let published = self.conns.get(key).into_iter().flat_map(|conn| conn.published.iter());
        published.filter(move |published| published.topic == topic).filter_map(|published| published.trace_index)
    }

    fn consumes(&self, key: ConnKey, topic: TopicKey) -> bool {
        let subscription = self.conns.get(key).and_then(|conn| conn.subscription.as_ref());
        subscription.and_then(|sub| self.channels.get(sub.channel)).is_some_and(|channel| channel.topic == topic)
    }
}
