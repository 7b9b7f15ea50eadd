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
            self.tell_broker(broker, Word::Flush { number }, now);
        }
        for flushing in &sessions {
            if let Flushing::Arrival(client, wall_ns) = flushing {
                let arrival = self.mqtt.moves.arrivals.get_mut(client).filter(|arrival| arrival.wall_ns == *wall_ns);
                arrival.into_iter().for_each(|arrival| _ = arrival.flush.get_or_insert(number));
            }
        }
        let left = brokers.into_iter().map(|broker| (broker, HashSet::new())).collect();
        self.mqtt.moves.flushes.push(Flush { number, left, sessions, is_told: false });
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
        let mut flushes = std::mem::take(&mut self.mqtt.moves.flushes);
        let linked = if flushes.is_empty() { Vec::new() } else { self.linked_brokers() };
        flushes.retain_mut(|flush| {
            flush.left.retain(|broker, _| linked.contains(broker)); // nothing comes of one that is no member any more
            let is_final = flush.left.is_empty();
            if is_final || !flush.is_told && !flush.left.keys().any(|broker| self.is_hearing(broker)) {
                flush.is_told = true;
                flush.sessions.iter().for_each(|flushing| self.note_flushed(flushing, is_final, now));
            }
            !is_final
        });
        self.mqtt.moves.flushes.append(&mut flushes);
    }

    fn note_flushed(&mut self, flushing: &Flushing, is_final: bool, now: Nanos) {
        match flushing {
            Flushing::Arrival(client, wall_ns) => {
                let arrival = self.mqtt.moves.arrivals.get(client).filter(|arrival| arrival.wall_ns == *wall_ns);
                if let Some(giver) = arrival.and_then(|arrival| arrival.giver.clone()) {
                    self.tell_broker(&giver, Word::Known { client, wall_ns: *wall_ns, is_final }, now);
                }
            }
            Flushing::End(client, wall_ns) => {
                let arrival = self.mqtt.moves.arrivals.get(client);
                if arrival.is_none_or(|arrival| arrival.wall_ns != *wall_ns) {
                    return;
                }
                self.mqtt.moves.arrivals.remove(client);
                let session = self.mqtt.session_of(client).and_then(|key| self.mqtt.sessions.get_mut(key));
                session.into_iter().for_each(|session| session.arrives = false);
            }
            Flushing::Departure(key, epoch, are_all_known) => {
                let departure = self.mqtt.moves.departures.get_mut(key);
                if let Some(departure) = departure.filter(|departure| departure.epoch == *epoch) {
                    departure.flushed = departure.flushed.max(Some(is_final && *are_all_known));
                    self.list_owing(*key);
                }
            }
        }
    }
}
