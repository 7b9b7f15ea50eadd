//! Network delay between clients and this broker: half of the smallest round trip that the kernel has seen on their
//! connections. (Its smoothed one includes delayed acknowledgements.) Asked for in passes over all connections, a few
//! per turn.

use std::collections::HashMap;
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
    began: Option<Nanos>, // the latest pass
    is_under_way: bool,
    unvisited: Vec<ConnKey>,
    found: SecondaryMap<TopicKey, Found>,
    known: SecondaryMap<TopicKey, Arc<Network>>,
}

/// Of one topic's clients, in the pass under way.
#[derive(Debug, Default)]
struct Found {
    publishers: HashMap<u32, Nanos>,
    subscribers: Vec<Nanos>,
}

impl NetworkDelay {
    /// Begin a pass over `conns`.
    ///
    /// Does nothing if one began within 5 s, or is under way: the smallest round trip seldom changes.
    pub fn ask(&mut self, conns: impl Iterator<Item = ConnKey>, now: Nanos) {
        if self.is_under_way || self.began.is_some_and(|began| now < began + SLOT_NS) {
            return;
        }
        (self.began, self.is_under_way) = (Some(now), true);
        self.unvisited.extend(conns);
    }

    /// The connections to ask for in this turn.
    pub fn next_connections(&mut self) -> Vec<ConnKey> {
        self.unvisited.split_off(self.unvisited.len().saturating_sub(VISITED_A_TURN))
    }

    /// Note the delay of a publisher; `index`: in the topic's trace.
    pub fn note_publisher(&mut self, topic: TopicKey, index: u32, delay: Nanos) {
        if let Some(found) = self.of(topic) {
            found.publishers.entry(index).and_modify(|shortest| *shortest = delay.min(*shortest)).or_insert(delay);
        }
    }

    pub fn note_subscriber(&mut self, topic: TopicKey, delay: Nanos) {
        if let Some(found) = self.of(topic) {
            found.subscribers.push(delay);
        }
    }

    fn of(&mut self, topic: TopicKey) -> Option<&mut Found> {
        Some(self.found.entry(topic)?.or_default())
    }

    /// Once all are visited, what they said is what is known.
    pub fn end(&mut self) {
        if !self.is_under_way || !self.unvisited.is_empty() {
            return;
        }
        self.is_under_way = false;
        self.known = self.found.drain().map(|(topic, found)| (topic, Arc::new(found.into_network()))).collect();
    }

    /// `None`: no client of the topic was there in the latest whole pass.
    pub fn known(&self, topic: TopicKey) -> Option<&Arc<Network>> {
        self.known.get(topic)
    }
}

impl Found {
    fn into_network(self) -> Network {
        Network {
            typical_publisher: median(self.publishers.values().copied().collect()),
            subscribers: median(self.subscribers),
            publishers: self.publishers,
        }
    }
}

/// 0 of none.
fn median(mut delays: Vec<Nanos>) -> Nanos {
    if delays.is_empty() {
        return 0;
    }
    let middle = delays.len() / 2;
    *delays.select_nth_unstable(middle).1
}
