//! One channel: its queue, what is in flight, what is deferred, and the ring of consumers that are ready.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use crate::bucket::Nanos;
use crate::e2e::E2e;
use crate::engine::{ConnKey, TopicKey};
use crate::id::MessageId;
use crate::message::Message;
use crate::queue::Queue;
use crate::timer::Armed;
use crate::topology::Deliveries;

/// Ids are unique by construction and nobody can choose them: one multiplication spreads them well enough.
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
        self.0 = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
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
    pub deliveries: Deliveries, // counted only where nearness matters
}

#[derive(Debug)]
pub struct Channel {
    pub name: Box<str>,
    pub topic: TopicKey,
    pub queue: Queue,
    pub in_flight: HashMap<MessageId, InFlight, BuildHasherDefault<IdHasher>>,
    pub deferred: BTreeMap<(Nanos, MessageId), Message>,
    pub consumers: Vec<ConnKey>,
    pub ready: VecDeque<ConnKey>, // each consumer at most once (`Subscription::listed`); some may have lost their credit since
    pub paused: bool,
    pub dirty: bool, // in the engine's list of channels to deliver from
    pub armed: Armed,
    pub overdue: bool, // in the engine's list of those with more deferred that is due than a turn takes
    pub counters: Counters,
    pub e2e: Option<Box<E2e>>, // from the first FIN on, if asked for
}

/// Why an answer of a consumer does not count.
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
    pub fn new(name: &str, topic: TopicKey, queue: Queue) -> Self {
        Self {
            name: name.into(),
            topic,
            queue,
            in_flight: HashMap::default(),
            deferred: BTreeMap::new(),
            consumers: Vec::new(),
            ready: VecDeque::new(),
            paused: false,
            dirty: false,
            armed: Armed::default(),
            overdue: false,
            counters: Counters::default(),
            e2e: None,
        }
    }

    /// Take a message from the topic: to the tail of the queue, or among the deferred. Gives the instant at which it is due then.
    pub fn put(&mut self, message: Message, now: Nanos) -> Option<Nanos> {
        self.counters.messages += 1;
        let defer_ns = Nanos::from(message.defer_ms) * 1_000_000;
        if defer_ns == 0 {
            self.queue.push_back(message);
            return None;
        }
        Some(self.defer(message, now + defer_ns))
    }

    pub fn defer(&mut self, message: Message, due: Nanos) -> Nanos {
        let message = Message { frame: message.frame.detached(), ..message };
        self.deferred.insert((due, message.id), message);
        due
    }

    pub fn next_deferred(&self) -> Option<Nanos> {
        self.deferred.first_key_value().map(|((due, _), _)| *due)
    }

    /// Move what is due to the tail of the queue, `most` messages at most; true if anything moved.
    pub fn undefer(&mut self, most: usize, now: Nanos) -> bool {
        let before = self.queue.len();
        for _ in 0..most {
            let Some(entry) = self.deferred.first_entry().filter(|entry| entry.key().0 <= now) else { break };
            self.queue.push_back(entry.remove());
        }
        self.queue.len() > before
    }

    /// Take an answered message out of flight.
    pub fn answered(&mut self, id: Option<MessageId>, by: ConnKey) -> Result<InFlight, NotYours> {
        let id = id.ok_or(NotYours::NotInFlight)?;
        match self.in_flight.entry(id) {
            Entry::Vacant(_) => Err(NotYours::NotInFlight),
            Entry::Occupied(entry) if entry.get().owner != by => Err(NotYours::OtherOwner),
            Entry::Occupied(entry) => Ok(entry.remove()),
        }
    }

    /// A consumer is gone: what it had in flight goes back to the head of the queue at once, oldest delivery (or TOUCH) first. `ids` names all of that in
    /// that order, among others: the channel is not searched, for a fleet of consumers may leave together.
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

    /// Drop everything: queued, in flight, deferred.
    pub fn empty(&mut self) {
        self.queue.clear();
        self.in_flight.clear();
        self.deferred.clear();
    }
}
