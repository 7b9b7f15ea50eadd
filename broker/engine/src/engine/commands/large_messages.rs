//! Large messages, built a quantum in each turn while their connection waits.

use crate::clients::connection::Connection;
use crate::clients::partial_message::{Building, no_memory_for};
use crate::engine::Engine;
use crate::http::Http;
use crate::keys::ConnKey;
use crate::memory::LARGE_BYTES;
use crate::protocol::codec;
use crate::queueing::message::cost_of;

/// What is begun of messages that have not all come in takes at most one in so many bytes of the memory limit.
const UNFINISHED_PART: u64 = 4;

impl Engine {
    /// Build more of the large message that was begun on a connection, until the turn's work has come to `bound`. Gives
    /// whether it is whole.
    pub(crate) fn build(&mut self, key: ConnKey, body: &[u8], bound: u32) -> bool {
        let Some(building) = self.conns.get_mut(key).and_then(|conn| conn.building.as_mut()) else { return true };
        self.work.note(building.add(body, bound.saturating_sub(self.work.units)));
        building.done() == body.len()
    }

    /// What was built of a message that is published now.
    pub(crate) fn built(&mut self, key: ConnKey, body: &[u8]) -> Option<Building> {
        if body.len() < LARGE_BYTES {
            return None;
        }
        self.conns.get_mut(key)?.building.take().map(|building| *building)
    }

    /// Copy what has come of a large PUB or DPUB, or message by HTTP, to a topic with a bucket. It runs in the turn in
    /// which it is whole, for behind later arrivals it would wait for their tokens: so little is left to copy then.
    pub(crate) fn build_unfinished(&mut self, key: ConnKey) {
        let announced = self.conns.get(key).and_then(|conn| announced_publish(conn.http.as_deref(), &conn.input));
        let Some(len) =
            announced.filter(|(topic, _, len)| *len >= LARGE_BYTES && self.has_limit(topic)).map(|(_, _, len)| len)
        else {
            return;
        };
        // A client may take its time with the rest: what all have begun so leaves room for those that are whole.
        // Without, it is built when it is.
        let leaves_room = self.memory.partial.used() + len as u64 <= self.config.max_memory_bytes / UNFINISHED_PART;
        if !(self.is_building(key) || leaves_room && self.begin_building(key, len)) {
            return;
        }
        if let Some(Connection { building: Some(building), input, http, deficit, .. }) = self.conns.get_mut(key)
            && let Some((_, body, _)) = announced_publish(http.as_deref(), input)
        {
            let units = building.add(body, u32::MAX);
            self.work.note(units);
            deficit.spend(units, units);
        }
    }

    pub(crate) fn is_building(&self, key: ConnKey) -> bool {
        self.conns.get(key).is_some_and(|conn| conn.building.is_some())
    }

    /// Begin a message with a body of `len` bytes, if it is not begun and there is room for it, besides all that are
    /// built now.
    pub(crate) fn begin_building(&mut self, key: ConnKey, len: usize) -> bool {
        if self.is_building(key) {
            return true;
        }
        if !self.has_room_for(cost_of(1, len as u64, 1)) {
            return false;
        }
        let Some(conn) = self.conns.get_mut(key) else { return false };
        conn.building = Building::new(len, &self.memory.partial).map(Box::new);
        conn.building.is_some()
    }

    /// Why a message with a body of `len` bytes could not be begun just now.
    #[cold]
    pub(crate) fn no_room_to_build(&self, len: usize) -> String {
        if self.has_room_for(cost_of(1, len as u64, 1)) { no_memory_for(len) } else { self.memory_is_reached() }
    }

    /// Why one cannot be begun, if so: the publish counts as refused.
    pub(crate) fn refusal_to_build(&mut self, key: ConnKey, topic: &str, len: usize) -> Option<String> {
        if self.begin_building(key, len) {
            return None;
        }
        if let Some(topic) = self.topic_key(topic).and_then(|key| self.topics.get_mut(key)) {
            topic.counters.received += 1;
            topic.counters.rejected += 1;
        }
        Some(self.no_room_to_build(len))
    }
}

/// Of the message that `input` begins with, where not all of it is there.
fn announced_publish<'a>(http: Option<&'a Http>, input: &'a [u8]) -> Option<(&'a str, &'a [u8], usize)> {
    http.map_or_else(|| codec::announced_publish(input), |http| http.announced_publish(input))
}
