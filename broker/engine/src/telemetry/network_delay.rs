//! Network delay between clients and this broker: half of the smallest round trip that the kernel has seen on their
//! connections. (Its smoothed one includes delayed acknowledgements.) Asked for while somebody measures, one topic
//! after the other, a few connections per turn.

use std::sync::Arc;

use slotmap::SecondaryMap;

use crate::keys::{ConnKey, TopicKey};
use crate::telemetry::latency::SLOT_NS;
use crate::telemetry::measurement::Network;
use crate::time::Nanos;

/// Connections that one turn asks for their round trip: a system call each.
const VISITED_A_TURN: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct NetworkDelay {
    asking: Option<(TopicKey, Nanos)>, // of whose clients, and since when
    unvisited: Vec<ConnKey>,
    found: Network,
    of_consumers: Vec<Nanos>,
    known: SecondaryMap<TopicKey, (Nanos, Arc<Network>)>, // asked for when, and what was found
}

impl NetworkDelay {
    /// Ask for the delay of a topic's clients, which are among `conns`.
    ///
    /// Does nothing if it was asked for within 5 s, or another topic is under way: the smallest round trip seldom
    /// changes.
    pub fn ask(&mut self, topic: TopicKey, conns: impl Iterator<Item = ConnKey>, now: Nanos) {
        if self.asking.is_some() || self.known.get(topic).is_some_and(|(asked, _)| now < asked + SLOT_NS) {
            return;
        }
        self.asking = Some((topic, now));
        self.unvisited.extend(conns);
    }

    /// The topic whose clients are being asked for.
    pub fn topic(&self) -> Option<TopicKey> {
        self.asking.map(|(topic, _)| topic)
    }

    /// The connections to ask for in this turn.
    pub fn next_connections(&mut self) -> Vec<ConnKey> {
        self.unvisited.split_off(self.unvisited.len().saturating_sub(VISITED_A_TURN))
    }

    /// Note the delay of a publisher; `index`: in the topic's trace.
    pub fn note_publisher(&mut self, index: u32, delay: Nanos) {
        self.found.publishers.entry(index).and_modify(|shortest| *shortest = delay.min(*shortest)).or_insert(delay);
    }

    pub fn note_subscriber(&mut self, delay: Nanos) {
        self.of_consumers.push(delay);
    }

    /// Once all are asked for, keep the result, if the topic is still there.
    pub fn end(&mut self, is_there: impl FnOnce(TopicKey) -> bool) {
        let Some((topic, asked)) = self.asking.filter(|_| self.unvisited.is_empty()) else { return };
        let (mut network, mut delays) = (std::mem::take(&mut self.found), std::mem::take(&mut self.of_consumers));
        if !delays.is_empty() {
            let middle = delays.len() / 2;
            network.subscribers = *delays.select_nth_unstable(middle).1;
        }
        self.asking = None;
        if is_there(topic) {
            self.known.insert(topic, (asked, Arc::new(network)));
        }
    }

    pub fn known(&self, topic: TopicKey) -> Arc<Network> {
        self.known.get(topic).map_or_else(Arc::default, |(_, network)| Arc::clone(network))
    }
}
