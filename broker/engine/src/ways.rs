//! How long bytes are on their way between clients and this broker: half of the smallest round trip that the kernel has seen on their connections. (The
//! smoothed one has delayed acknowledgements in it.) Asked for only while somebody measures.

use slotmap::SecondaryMap;

use crate::bucket::Nanos;
use crate::engine::{ConnKey, Engine};
use crate::measure::Network;

/// Connections that are asked in one turn, at well under a microsecond each.
const ASKED_A_TURN: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct Ways {
    wanted: Vec<ConnKey>,
    known: SecondaryMap<ConnKey, Nanos>,
}

impl Engine {
    /// Ask for the ways of all clients of a topic, unless some are still asked for.
    pub fn ask_ways(&mut self, topic: &str) {
        let Some(&topic) = self.topic_names.get(topic) else { return };
        if !self.ways.wanted.is_empty() {
            return;
        }
        let publishes = self.conns.iter().filter(|(_, conn)| conn.published.iter().any(|published| published.topic == topic));
        self.ways.wanted.extend(publishes.map(|(key, _)| key));
        for channel in self.topics.get(topic).into_iter().flat_map(|topic| &topic.channels) {
            self.ways.wanted.extend(self.channels.get(*channel).into_iter().flat_map(|channel| &channel.consumers));
        }
    }

    /// Connections whose round trip is to be handed in by `handle_round_trip`: some of those asked for.
    pub fn poll_ways(&mut self) -> impl Iterator<Item = ConnKey> + use<> {
        let kept = self.ways.wanted.len().saturating_sub(ASKED_A_TURN);
        self.ways.wanted.split_off(kept).into_iter()
    }

    pub fn handle_round_trip(&mut self, key: ConnKey, round_trip: Nanos) {
        if self.conns.contains_key(key) {
            self.ways.known.insert(key, round_trip / 2);
        }
    }

    /// The ways of a topic's clients, as far as they are known: each publisher's shortest, the median of its subscribers'.
    pub fn network(&self, topic: &str) -> Network {
        let mut network = Network::default();
        let Some(&key) = self.topic_names.get(topic) else { return network };
        for (way, conn) in self.ways.known.iter().filter_map(|(key, way)| Some((*way, self.conns.get(key)?))) {
            let indices = conn.published.iter().filter(|published| published.topic == key).filter_map(|published| published.trace_index);
            for index in indices {
                network.publishers.entry(index).and_modify(|shortest| *shortest = way.min(*shortest)).or_insert(way);
            }
        }
        let channels = self.topics.get(key).into_iter().flat_map(|topic| &topic.channels);
        let consumers = channels.filter_map(|channel| self.channels.get(*channel)).flat_map(|channel| &channel.consumers);
        let mut ways: Vec<Nanos> = consumers.filter_map(|key| self.ways.known.get(*key).copied()).collect();
        ways.sort_unstable();
        network.subscribers = ways.get(ways.len() / 2).copied().unwrap_or_default();
        network
    }
}
