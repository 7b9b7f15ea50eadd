//! A large message is built a portion in each turn. Memory that is new costs a fault a page, several microseconds each, most of them for clearing it: a
//! megabyte in one piece would stop everybody for milliseconds. Its command stays at the head of its connection's input meanwhile, which is parked from turn
//! to turn (`share.rs`); what was built becomes the message without another copy.

use crate::engine::{ConnKey, Engine};
use crate::id::MessageId;
use crate::message::{Charge, Meter};
use crate::share::{LARGE_BODY, LEAST_UNITS, message_units};
use crate::wire::{self, MESSAGE_HEADER};

/// Bytes of new memory that count as a unit of work.
const UNIT_BYTES: usize = 128;

/// The frame of a message as far as it is there: room for a header that is not known yet, and the first part of the body.
#[derive(Debug)]
pub(crate) struct Building {
    frame: Vec<u8>,
    _charge: Charge,
}

impl Building {
    fn new(len: usize, meter: &Meter) -> Self {
        let mut frame = Vec::with_capacity(MESSAGE_HEADER + len);
        frame.resize(MESSAGE_HEADER, 0);
        Self { frame, _charge: meter.charge(len as u64) }
    }

    fn done(&self) -> usize {
        self.frame.len() - MESSAGE_HEADER
    }

    /// Copy more of `body`, up to so many units; gives those that it took.
    fn add(&mut self, body: &[u8], units: u32) -> u32 {
        let rest = &body[self.done()..];
        let portion = &rest[..rest.len().min((units as usize).saturating_mul(UNIT_BYTES))];
        self.frame.extend_from_slice(portion);
        portion.len().div_ceil(UNIT_BYTES) as u32
    }

    /// The frame, with all of `body`.
    pub fn finish(mut self, wall_ns: i64, id: MessageId, body: &[u8]) -> Vec<u8> {
        debug_assert!(body.starts_with(&self.frame[MESSAGE_HEADER..]), "it was begun for another message");
        self.frame.extend_from_slice(&body[self.done()..]);
        self.frame[..MESSAGE_HEADER].copy_from_slice(&wire::message_header(wall_ns, id, body.len()));
        self.frame
    }
}

impl Engine {
    /// Build more of the large message that is next on a connection whose share of the turn ends at `bound`. Whether it is whole and may be published now: it
    /// still has to be copied for all queues but one of its topic.
    pub(crate) fn build(&mut self, key: ConnKey, topic: &str, body: &[u8], bound: u32) -> bool {
        let Some(conn) = self.conns.get_mut(key) else { return true };
        let building = conn.building.get_or_insert_with(|| Box::new(Building::new(body.len(), &self.buildings)));
        let left = if self.work.is_shared() { bound.saturating_sub(self.work.units).max(LEAST_UNITS) } else { u32::MAX };
        self.work.note(building.add(body, left));
        if building.done() < body.len() {
            return false;
        }
        let copies = self.topic_names.get(topic).map_or(1, |topic| self.counted_copies(*topic)).max(1);
        let more = message_units(body.len()).saturating_mul(copies - 1);
        more == 0 || self.work.may_run(more, bound)
    }

    /// What was built of a message that is published now.
    pub(crate) fn built(&mut self, key: ConnKey, body: &[u8]) -> Option<Building> {
        if body.len() < LARGE_BODY {
            return None;
        }
        self.conns.get_mut(key)?.building.take().map(|building| *building)
    }

    /// Its message is refused.
    pub(crate) fn forget_built(&mut self, key: ConnKey) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.building = None;
        }
    }

    pub(crate) fn is_building(&self, key: ConnKey) -> bool {
        self.conns.get(key).is_some_and(|conn| conn.building.is_some())
    }

    /// Whether there is room for a message with a body of `len` bytes, besides all that are built now. One that is begun has its room.
    pub(crate) fn has_room_to_build(&self, key: ConnKey, len: usize) -> bool {
        let cost = Meter::cost_of(1, len as u64, 1);
        self.is_building(key) || self.meter.used() + self.buildings.used() + cost <= self.config.max_memory_bytes
    }

    /// Why there is none, if so: the publish counts as refused.
    pub(crate) fn refusal_to_build(&mut self, key: ConnKey, topic: &str, len: usize) -> Option<String> {
        if self.has_room_to_build(key, len) {
            return None;
        }
        if let Some(topic) = self.topic_names.get(topic).and_then(|key| self.topics.get_mut(*key)) {
            topic.counters.received += 1;
            topic.counters.rejected += 1;
        }
        Some(self.memory_is_reached())
    }
}
