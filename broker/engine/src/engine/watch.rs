//! Watches beside the message path: steady topics for rate changes, connections for their network delay.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::engine::Engine;
use crate::keys::{ConnKey, TopicKey, VISITS_A_TURN};
use crate::telemetry::arrival_bins::{BIN_NS, open_at, opens_at};
use crate::telemetry::measurement::Network;
use crate::time::Nanos;
use crate::timer::Timer;

impl Engine {
    /// Adds `topics` to the watch list; those of `no_longer` are checked only while their histories are polled.
    ///
    /// A topic that is missing or without a limit is checked once it has one.
    pub fn watch(&mut self, topics: Vec<String>, no_longer: &[String], now: Nanos) {
        for name in no_longer {
            self.watch_list.names.remove(name);
            if let Some(limiter) = self.topic_key(name).and_then(|key| self.topics.get_mut(key)?.limiter.as_mut()) {
                limiter.history.end_steady(now);
            }
        }
        for name in topics {
            let key = self.topic_key(&name);
            self.watch_list.names.insert(name);
            if let Some(key) = key {
                self.watch_topic(key, now);
            }
        }
    }

    /// It may have got its limit just now.
    pub(crate) fn watch_if_wanted(&mut self, name: &str, key: TopicKey, now: Nanos) {
        if self.watch_list.names.contains(name) {
            self.watch_topic(key, now);
        }
    }

    fn watch_topic(&mut self, key: TopicKey, now: Nanos) {
        if let Some(limiter) = self.topics.get_mut(key).and_then(|topic| topic.limiter.as_mut())
            && limiter.history.watch_steady(now)
        {
            self.plan_look(key, now);
        }
    }

    pub(crate) fn handle_watch_list(&mut self, at: Nanos, now: Nanos) {
        if !self.watch_list.armed.fire(at) {
            return;
        }
        for _ in 0..VISITS_A_TURN {
            let Some((due, key)) = self.watch_list.pop(now) else { break };
            if self.topics.get(key).and_then(|topic| topic.limiter.as_ref()?.history.look_due()) == Some(due) {
                self.look_at_history(key, open_at(now), now);
                self.plan_look(key, now);
            }
        }
        self.arm_watch_list(now + 1); // what is left is for the next turn
    }

    fn plan_look(&mut self, key: TopicKey, now: Nanos) {
        let longest = self.watch_list.longest_pause();
        let Some(limiter) = self.topics.get_mut(key).and_then(|topic| topic.limiter.as_mut()) else { return };
        let number = open_at(limiter.history.speaks_at().min(now + longest)).max(open_at(now)) + 1;
        limiter.history.set_look_due(opens_at(number));
        self.watch_list.due.push(Reverse((opens_at(number), key)));
        self.arm_watch_list(now + 1);
    }

    fn arm_watch_list(&mut self, earliest: Nanos) {
        if let Some(due) = self.watch_list.next() {
            self.timers.arm(&mut self.watch_list.armed, due.max(earliest), Timer::WatchList);
        }
    }

    /// Closes the bins before number `until`, which ends at `now` at the latest, and checks for changes for a while.
    pub(crate) fn look_at_history(&mut self, key: TopicKey, until: i64, now: Nanos) {
        let edge = until * BIN_NS;
        self.release_until(key, edge, now); // what its timer would do in a moment
        if let Some(topic) = self.topics.get_mut(key)
            && let Some(limiter) = topic.limiter.as_mut()
        {
            limiter.history.watch(now);
            limiter.turn_history(edge);
            self.events.extend(limiter.take_event(&topic.name, now));
        }
    }

    /// Requests the network delay of all clients of limited topics, unless it is known well enough.
    pub fn ask_network_delay(&mut self, now: Nanos) {
        self.network_delay.ask(self.conns.keys(), now);
    }

    /// Some of the requested connections. The caller passes their round trips to `handle_round_trip`, then calls
    /// `end_network_delay`.
    pub fn poll_network_delay(&mut self) -> Vec<ConnKey> {
        let mut visited = self.network_delay.next_connections();
        let is_link = |key| self.conns.get(key).is_some_and(|conn| conn.link.is_some());
        visited.retain(|&key| self.traced(key).next().is_some() || self.consumed(key).is_some() || is_link(key));
        visited
    }

    pub fn handle_round_trip(&mut self, key: ConnKey, round_trip: Nanos) {
        let (delay, published) = (round_trip / 2, self.traced(key).collect::<Vec<_>>());
        published.into_iter().for_each(|(topic, index)| self.network_delay.note_publisher(topic, index, delay));
        if let Some(topic) = self.consumed(key) {
            self.network_delay.note_subscriber(topic, delay);
        }
        if let Some(link) = self.conns.get(key).and_then(|conn| conn.link.as_ref()) {
            self.mqtt.ways.note_network(link.way, delay);
        }
    }

    /// Once all are visited, what they said is what is known.
    pub fn end_network_delay(&mut self) {
        self.network_delay.end();
    }

    /// The known delay of a topic's clients: each publisher's shortest, the median of its subscribers'.
    pub fn network(&self, topic: &str) -> Arc<Network> {
        self.topic_key(topic).and_then(|topic| self.network_delay.known(topic)).map_or_else(Arc::default, Arc::clone)
    }

    /// To which limited topics a connection publishes, and as which publisher of each it stands in its trace.
    fn traced(&self, key: ConnKey) -> impl Iterator<Item = (TopicKey, u32)> + '_ {
        let published = self.conns.get(key).into_iter().flat_map(|conn| conn.published.iter());
        published.filter_map(|published| Some((published.topic, published.trace_index?)))
    }

    /// The limited topic that a connection consumes.
    fn consumed(&self, key: ConnKey) -> Option<TopicKey> {
        let subscription = self.conns.get(key).and_then(|conn| conn.subscription.as_ref());
        let topic = subscription.and_then(|sub| self.channels.get(sub.channel))?.topic;
        self.topics.get(topic).filter(|topic| topic.limiter.is_some()).map(|_| topic)
    }
}
