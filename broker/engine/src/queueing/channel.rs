//! One channel: its queue, messages in flight, deferred messages, and the ring of ready consumers.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use crate::id::{MessageId, SEQUENCE_BITS};
use crate::keys::{ConnKey, TopicKey};
use crate::memory::Stock;
use crate::queueing::link_interest::LinkInterest;
use crate::queueing::message::Message;
use crate::queueing::queue::Queue;
use crate::queueing::zone_preference::Deliveries;
use crate::telemetry::e2e_latency::E2e;
use crate::time::Nanos;
use crate::timer::Armed;

/// Messages that a channel reads from disk however scarce memory is, so that another channel cannot block it.
const FEW: usize = 16;

const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15; // 2^64 / the golden ratio: its multiples spread evenly
const GROUP: u64 = 16; // places that a table compares at once
const MARK: u64 = 0x7f << 57;

/// Hasher that spreads message ids evenly over a hash table.
///
/// Ids are not random. The ids of a batch count up in their lowest bits; ids made milliseconds apart differ in bits 22
/// and up (`id.rs`). A table uses the low bits of a hash for the place and the top seven to compare neighbours. So the
/// bits above the sequence choose where a millisecond begins. Each step of the sequence moves on by one group of
/// places.
#[derive(Debug, Default, Clone, Copy)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte) ^ self.0.rotate_left(8));
        }
    }

    fn write_u64(&mut self, id: u64) {
        let begin = (id >> SEQUENCE_BITS).wrapping_mul(SPREAD) >> 24;
        let sequence = id & ((1 << SEQUENCE_BITS) - 1);
        self.0 = id.wrapping_mul(SPREAD) & MARK | (begin + sequence * GROUP) & !MARK;
    }
}

#[derive(Debug)]
pub struct InFlight {
    pub message: Message,
    pub owner: ConnKey,
    pub delivered: Nanos,
    pub deadline: Nanos,
}

#[derive(Debug, Default)]
pub struct Counters {
    pub messages: u64,
    pub requeued: u64,
    pub timed_out: u64,
    pub deliveries: Deliveries, // counted only with topology-aware consumption
}

#[derive(Debug)]
pub struct Channel {
    pub name: Box<str>,
    pub topic: TopicKey,
    pub queue: Queue,
    pub in_flight: HashMap<MessageId, InFlight, BuildHasherDefault<IdHasher>>,
    pub deferred: BTreeMap<(Nanos, MessageId), Message>,
    pub stock: Stock, // of what is deferred
    pub consumers: Vec<ConnKey>,
    pub ready: VecDeque<ConnKey>, // each consumer once (`Subscription::listed`); some may lack credit
    pub paused: bool,
    pub dirty: bool, // in the engine's list of channels to deliver from
    pub armed: Armed,
    pub starved: bool, // messages on disk wait for memory
    pub has_due: bool, // in the engine's list of channels with due messages left over from a turn
    pub counters: Counters,
    pub e2e: Option<Box<E2e>>,          // from the first FIN on, if asked for
    pub link: Option<Rc<LinkInterest>>, // of the broker that it is for
}

/// Why a consumer's FIN, REQ or TOUCH is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotYours {
    NotInFlight,
    OtherOwner,
}

impl NotYours {
    pub fn text(self) -> &'static str {
        match self {
            Self::NotInFlight => "ID not in flight",
            Self::OtherOwner => "client does not own message",
        }
    }
}

impl Channel {
    pub fn new(name: &str, topic: TopicKey, queue: Queue, stock: Stock) -> Self {
        Self {
            name: name.into(),
            topic,
            queue,
            in_flight: HashMap::default(),
            deferred: BTreeMap::new(),
            stock,
            consumers: Vec::new(),
            ready: VecDeque::new(),
            paused: false,
            dirty: false,
            armed: Armed::default(),
            starved: false,
            has_due: false,
            counters: Counters::default(),
            e2e: None,
            link: None,
        }
    }

    /// Adds a message from the topic to the tail of the queue, or to the deferred messages. Returns the due instant of
    /// a deferred one.
    pub fn put(&mut self, message: Message, now: Nanos) -> Option<Nanos> {
        self.counters.messages += 1;
        let defer_ns = Nanos::from(message.defer_ms) * 1_000_000;
        if defer_ns == 0 {
            self.queue.push_back(message);
            return None;
        }
        Some(self.defer(message, now + defer_ns))
    }

    /// Whether there is a message to deliver; reads from disk if memory has none.
    ///
    /// While memory is `scarce`, a channel with more than `FEW` messages in flight or deferred reads nothing. Otherwise
    /// a consumer that never answers would fill the memory of all publishers.
    pub fn has_next(&mut self, scarce: bool, now: Nanos) -> bool {
        self.starved = scarce && self.queue.memory().is_empty() && self.in_flight.len() + self.deferred.len() > FEW;
        !self.starved && self.queue.ready(now)
    }

    pub fn defer(&mut self, message: Message, due: Nanos) -> Nanos {
        let message = message.detached();
        self.stock.add(message.cost());
        if let Some(same) = self.deferred.insert((due, message.id), message) {
            self.stock.subtract(same.cost()); // files that were written by hand can hold an id twice
        }
        due
    }

    pub fn next_deferred(&self) -> Option<Nanos> {
        self.deferred.first_key_value().map(|((due, _), _)| *due)
    }

    /// Moves at most `limit` due messages to the tail of the queue; returns whether any moved.
    pub fn undefer(&mut self, limit: usize, now: Nanos) -> bool {
        let before = self.queue.len();
        for _ in 0..limit {
            let Some(entry) = self.deferred.first_entry().filter(|entry| entry.key().0 <= now) else { break };
            let message = entry.remove();
            self.stock.subtract(message.cost());
            self.queue.push_back(message);
        }
        self.queue.len() > before
    }

    /// Removes an answered message from flight.
    pub fn answered(&mut self, id: Option<MessageId>, by: ConnKey) -> Result<InFlight, NotYours> {
        let id = id.ok_or(NotYours::NotInFlight)?;
        match self.in_flight.entry(id) {
            Entry::Vacant(_) => Err(NotYours::NotInFlight),
            Entry::Occupied(entry) if entry.get().owner != by => Err(NotYours::OtherOwner),
            Entry::Occupied(entry) => Ok(entry.remove()),
        }
    }

    /// Requeues the messages in flight of a consumer that disconnected, oldest delivery (or TOUCH) first, at the head
    /// of the queue.
    ///
    /// `ids` lists at least those, in that order. The channel is not searched: many consumers may disconnect at once.
    pub fn requeue_of(&mut self, owner: ConnKey, ids: impl DoubleEndedIterator<Item = MessageId>) {
        for id in ids.rev() {
            if let Ok(entry) = self.answered(Some(id), owner) {
                self.counters.requeued += 1;
                self.queue.push_front(entry.message);
            }
        }
    }

    pub fn remove_consumer(&mut self, consumer: ConnKey) {
        self.consumers.retain(|other| *other != consumer);
        self.ready.retain(|other| *other != consumer);
    }

    /// Drops all messages: queued, in flight, deferred.
    pub fn empty(&mut self) {
        self.queue.clear();
        self.in_flight.clear();
        self.deferred.clear();
        self.stock.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    use super::*;
    use crate::id::IdMaker;

    /// Mean number of ids in an id's group of a half-full table, itself included, of `count` ids made `each` at once
    /// every `every_ms` ms. A group has 16 places.
    fn crowd(count: usize, each: usize, every_ms: i64) -> f64 {
        let (mut maker, hasher) = (IdMaker::new(7), BuildHasherDefault::<IdHasher>::default());
        let groups = (2 * count).next_power_of_two() as u64 / GROUP;
        let ids = (0..count).map(|i| maker.next(1_700_000_000_000_000_000 + (i / each) as i64 * every_ms * 1_050_000));
        let mut wanted: HashMap<u64, usize> = HashMap::new();
        for id in ids {
            *wanted.entry((hasher.hash_one(id) / GROUP) & (groups - 1)).or_default() += 1;
        }
        wanted.values().map(|ids| ids * ids).sum::<usize>() as f64 / count as f64
    }

    #[test]
    fn ids_spread_over_a_table_however_far_apart_they_were_made() {
        for (each, every_ms) in
            [(1, 1), (1, 2), (1, 16), (1, 100), (1, 1_024), (3, 1), (16, 1), (200, 1), (200, 64), (4_096, 1)]
        {
            let found = crowd(32_768, each, every_ms);
            assert!(found < 12.0, "{found} ids want the same group at {each} every {every_ms} ms"); // random numbers: 9
        }
    }

    #[test]
    fn ids_in_a_row_are_told_apart_by_what_a_table_keeps_of_each() {
        let hasher = BuildHasherDefault::<IdHasher>::default();
        let marks: HashSet<u64> = (0..16).map(|low| hasher.hash_one(MessageId(1 << 40 | low)) >> 57).collect();
        assert!(marks.len() > 12, "{marks:?}");
    }
}
