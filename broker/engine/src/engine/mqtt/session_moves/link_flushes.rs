//! Marks in links: what was under way when a session left has come once they have.

use std::collections::HashSet;

use crate::engine::Engine;
use crate::keys::ChannelKey;
use crate::mqtt::elsewhere::moves::{Flush, Flushing, Word};
use crate::time::Nanos;

impl Engine {
    /// Asks all brokers how far their links to here have come, for sessions that leave.
    pub(super) fn start_flush(&mut self, now: Nanos) {
        let wall_ns = self.clock.wall(now);
        let moves = &mut self.mqtt.moves;
        if moves.to_flush.is_empty() || moves.flushes.iter().any(|flush| !flush.is_told) {
            return;
        }
        let sessions = std::mem::take(&mut moves.to_flush);
        let number = moves.next_epoch(wall_ns) as u64; // marks of an earlier incarnation may be on their way
        let brokers = self.linked_brokers();
        for broker in &brokers {
            if self.is_hearing(broker) {
                self.tell_broker(broker, Word::Flush { number }, now); // the others are asked when they hear again
            }
        }
        for flushing in &sessions {
            if let Flushing::Arrival(client, wall_ns) = flushing {
                let arrival = self.mqtt.moves.arrivals.get_mut(client).filter(|arrival| arrival.wall_ns == *wall_ns);
                arrival.into_iter().for_each(|arrival| _ = arrival.flush.get_or_insert(number));
            }
        }
        let left = brokers.into_iter().map(|broker| (broker, HashSet::new())).collect();
        self.mqtt.moves.flushes.push(Flush { first: number, number, left, sessions, is_told: false });
    }

    /// Puts a mark into each link of a broker.
    pub(super) fn mark_links(&mut self, broker: &str, number: u64, now: Nanos) {
        let theirs = self.channels.iter().filter(|(_, channel)| channel.link.is_some() && &*channel.name == broker);
        let theirs: Vec<ChannelKey> = theirs.map(|(key, _)| key).collect();
        let count = theirs.len() as u32;
        for channel in theirs {
            self.tell_by(channel, Word::Flushed { number, count }, now);
        }
    }

    pub(super) fn end_flushes(&mut self, now: Nanos) {
        let flushes = std::mem::take(&mut self.mqtt.moves.flushes);
        let linked = if flushes.is_empty() { Vec::new() } else { self.linked_brokers() };
        let mut pending: Vec<Flush> = Vec::new();
        for mut flush in flushes {
            flush.left.retain(|broker, _| linked.contains(broker)); // nothing comes of one that is no member any more
            let is_final = flush.left.is_empty();
            if is_final || !flush.is_told && !flush.left.keys().any(|broker| self.is_hearing(broker)) {
                flush.is_told = true;
                flush.sessions.iter().for_each(|flushing| self.note_flushed(flushing, is_final, now));
            }
            if is_final {
                continue;
            }
            if flush.is_told {
                flush.sessions.retain(|flushing| self.mqtt.moves.is_awaited(flushing)); // others have moved on since
                pending.pop().into_iter().for_each(|earlier| flush.follow(earlier));
            }
            pending.push(flush);
        }
        self.mqtt.moves.flushes = pending;
    }

    fn note_flushed(&mut self, flushing: &Flushing, is_final: bool, now: Nanos) {
        if !self.mqtt.moves.is_awaited(flushing) {
            return;
        }
        match flushing {
            Flushing::Arrival(client, wall_ns) => {
                let arrival = self.mqtt.moves.arrivals.get(client);
                let givers: Vec<Box<str>> =
                    arrival.into_iter().flat_map(|arrival| arrival.givers.keys()).cloned().collect();
                for giver in givers {
                    self.tell_broker(&giver, Word::Known { client, wall_ns: *wall_ns, is_final }, now);
                }
            }
            Flushing::End(client, _) => {
                if self.mqtt.moves.arrivals.get(client).is_some_and(|arrival| !arrival.is_whole()) {
                    return; // a broker was killed, and sends again
                }
                self.mqtt.moves.arrivals.remove(client);
                let session = self.mqtt.session_of(client).and_then(|key| self.mqtt.sessions.get_mut(key));
                session.into_iter().for_each(|session| session.arrives = false);
            }
            Flushing::Departure(key, _, are_all_known) => {
                if let Some(departure) = self.mqtt.moves.departures.get_mut(key) {
                    departure.flushed = departure.flushed.max(Some(is_final && *are_all_known));
                    self.list_owing(*key);
                }
            }
        }
    }
}
