//! MQTT's sessions and subscriptions, without connections: who wants which names, and what a session is still owed.
//!
//! Imports `protocol`, `queueing`, `storage`, `telemetry`, `limiter`, `event`, `id`, `keys`, `memory`, `time` and
//! `timer`. Begin with `Hub`; `filter_trie` finds subscribers, `managed_names` topics, `forms` has the bytes that they
//! share, and `session` what one client has, also while it is away, `elsewhere` what concerns other brokers, and
//! `reporting` what operators are told.

pub mod elsewhere;
pub mod filter_trie;
pub mod forms;
pub mod group;
pub mod managed_names;
pub mod outgoing;
pub mod reporting;
pub mod retained;
pub mod saved_session;
pub mod session;
pub mod takeovers;
pub mod topic_news;
pub mod topic_tally;
pub mod will;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use slotmap::SlotMap;

use crate::keys::{GroupKey, SessionKey, TallyKey};
use crate::memory::Stock;
use crate::mqtt::elsewhere::interest::Interest;
use crate::mqtt::elsewhere::link_peers::{LinkPeers, LinkWays};
use crate::mqtt::elsewhere::moves::Moves;
use crate::mqtt::filter_trie::{FilterTrie, Subscriber, Who};
use crate::mqtt::group::{DeclaredGroups, Group};
use crate::mqtt::managed_names::ManagedNames;
use crate::mqtt::reporting::denials::Denials;
use crate::mqtt::reporting::excess::Excess;
use crate::mqtt::retained::Retained;
use crate::mqtt::session::Session;
use crate::mqtt::takeovers::Takeovers;
use crate::mqtt::topic_news::TopicNews;
use crate::mqtt::topic_tally::TopicTally;
use crate::protocol::mqtt::packet::Options;
use crate::queueing::disk_ticket::Owner;
use crate::queueing::queue::Queue;
use crate::time::Nanos;
use crate::timer::Armed;

/// All that the clients of the MQTT port have in common.
#[derive(Debug, Default)]
pub struct Hub {
    pub sessions: SlotMap<SessionKey, Session>,
    pub kept: Stock,                  // of sessions that outlive their connections, and of wills
    pub durable: usize,               // such sessions
    by_client: HashTable<SessionKey>, // by client id
    client_key: RandomState,
    pub filters: FilterTrie,
    pub names: ManagedNames,
    pub groups: SlotMap<GroupKey, Group>,
    pub by_group: HashMap<Box<str>, GroupKey>, // {$share/NAME/PATTERN: its group}
    pub declared: DeclaredGroups,
    pub retained: Retained,
    pub interest: Interest,
    pub peers: LinkPeers,
    pub ways: LinkWays,
    pub moves: Moves,
    pub counters: Counters,
    pub tally: TopicTally,
    pub(crate) uncounted: Vec<Owner>, // which had messages on disk at the start
    pub denials: Denials,
    pub excess: Excess,
    pub takeovers: Takeovers,
    pub news: TopicNews,
    pub began: Option<Nanos>, // to tell `$SYS`
    pub most_clients: usize,  // that it has told
    pub armed: Armed,         // to tell it again
}

impl Hub {
    /// `retained`: of the messages that are. `kept`: of what is no message.
    pub fn new(retained: Stock, kept: Stock) -> Self {
        Self { retained: Retained::new(retained), kept, ..Self::default() }
    }

    /// Makes room for so many clients with a subscription each: tables that grow would be copied while all wait.
    pub fn reserve(&mut self, clients: usize) {
        self.sessions.reserve(clients);
        self.by_client.reserve(clients, |key| hash_of(&self.client_key, &self.sessions, *key));
        self.filters.reserve(clients);
    }

    pub fn session_of(&self, client_id: &str) -> Option<SessionKey> {
        let is_its = |key: &SessionKey| self.sessions.get(*key).is_some_and(|one| *one.client_id == *client_id);
        self.by_client.find(self.client_key.hash_one(client_id), is_its).copied()
    }

    /// Adds the session of a client that has none.
    pub fn add_session(&mut self, session: Session) -> SessionKey {
        self.kept.add(session.cost());
        self.durable += usize::from(session.is_durable());
        let key = self.sessions.insert(session);
        let Self { by_client, client_key, sessions, .. } = self;
        by_client.insert_unique(hash_of(client_key, sessions, key), key, |key| hash_of(client_key, sessions, *key));
        key
    }

    /// Changes how long a session is kept, or its will.
    pub fn amend(&mut self, key: SessionKey, change: impl FnOnce(&mut Session)) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let (cost, was_durable) = (session.cost(), session.is_durable());
        change(session);
        self.kept.subtract(cost);
        self.kept.add(session.cost());
        self.durable = self.durable + usize::from(session.is_durable()) - usize::from(was_durable);
    }

    /// Removes a session with all that it is owed, also on disk.
    pub fn remove_session(&mut self, key: SessionKey) {
        let hash = hash_of(&self.client_key, &self.sessions, key);
        if let Ok(entry) = self.by_client.find_entry(hash, |other| *other == key) {
            entry.remove();
        }
        let Some(session) = self.sessions.remove(key) else { return };
        self.kept.subtract(session.cost());
        self.durable -= usize::from(session.is_durable());
        let Some(mut outgoing) = session.outgoing else { return };
        self.tally.end(&outgoing.owed);
        outgoing.end_flights().for_each(|sent| self.tally.end_flight(sent.topic));
        outgoing.queue.clear();
    }

    /// Adds a group without members: `name` is `$share/NAME/PATTERN`; `stock` is of what waits in memory.
    pub fn add_group(&mut self, name: &str, pattern: &str, stock: Stock) -> GroupKey {
        let key = self.groups.insert(Group::new(name, Queue::in_stock(stock)));
        let subscriber = Subscriber { who: Who::Group(key), slot: 0, id: 0, options: Options::default() };
        self.groups[key].place = self.filters.insert(pattern, subscriber);
        self.by_group.insert(name.into(), key);
        key
    }

    /// A delivery of a message of the topic is dropped for want of room.
    pub fn count_drop(&mut self, topic: TallyKey) {
        self.counters.dropped += 1;
        self.tally.drop(topic, 1);
    }

    /// Messages of the topic are dropped since their shared group has ended. `holder`: the group, or the client to
    /// which they were in flight.
    pub fn drop_with_group(&mut self, topic: TallyKey, holder: &str, count: u64) {
        self.counters.dropped += count;
        self.tally.drop(topic, count);
        self.excess.note_ended(self.tally.topic_of(topic), holder, count);
    }

    /// The same since as many messages wait for a session or a group as may, `holder` by name.
    pub fn drop_for_full(&mut self, topic: TallyKey, holder: &str) {
        self.counters.dropped += 1;
        self.tally.drop_for_full(topic);
        self.excess.note_full(self.tally.topic_of(topic), holder, false);
    }
}

fn hash_of(by: &RandomState, sessions: &SlotMap<SessionKey, Session>, key: SessionKey) -> u64 {
    by.hash_one(sessions.get(key).map_or("", |session| &*session.client_id))
}

/// Since the start.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counters {
    pub packets_in: u64,
    pub packets_out: u64,
    pub bytes_in: u64, // of payloads
    pub bytes_out: u64,
    pub published: u64,
    pub delivered: u64,
    pub dropped: u64, // deliveries: their client did not read, or its session was full
    pub denied: u64,  // connections, publishes and subscriptions, by passwords and access rules
    pub expired: u64,
    pub refused: u64, // publishes above a limit, or without room, of which no client was told
}
