//! Limits of clients: connections, topics, channels, unfinished input and unread output.

use crate::engine::Engine;
use crate::http::answer::{Exchange, write_refusal};
use crate::keys::ConnKey;
use crate::memory::{LARGE_BYTES, SMALL_BYTES};
use crate::protocol::codec;
use crate::protocol::errors::WireError;
use crate::protocol::verb::Verb;
use crate::scheduling::client_limits::{Limit, TABLES, Unwanted};
use crate::scheduling::work_budget::{ACCEPT_UNITS, QUANTUM_BYTES};
use crate::time::Nanos;

impl Engine {
    /// Sets the number of connections that the host grants, and reserves the tables for them, or for `TABLES`.
    ///
    /// Copying thousands of connections to a larger table would delay all clients for milliseconds; unused room is
    /// address space alone.
    pub fn set_room(&mut self, room: Option<usize>) {
        self.limits.room = room;
        let connections = room.unwrap_or(TABLES).min(TABLES);
        self.conns.reserve(connections.saturating_sub(self.conns.len()));
        self.timers.reserve(connections);
        if self.config.speaks_mqtt() {
            self.mqtt.reserve(connections);
        }
    }

    /// Whether a connection from `remote` (`HOST:PORT`), which was just accepted, may come in.
    pub fn admit(&mut self, remote: &str) -> Result<(), Unwanted> {
        self.work.note(ACCEPT_UNITS);
        self.limits.admit(remote, self.conns.len(), &self.config)
    }

    /// The answer by HTTP to a connection that is refused.
    pub fn unwanted_by_http(&mut self, unwanted: &Unwanted, now: Nanos) -> Vec<u8> {
        let mut out = Vec::new();
        let wall_s = self.clock.wall(now).div_euclid(1_000_000_000);
        self.http.date.set(wall_s);
        write_refusal(&mut out, 503, unwanted.reason(), &[], Exchange::LAST, &self.http.date);
        out
    }

    /// Why `client` may not make one more topic, if it may not.
    #[cold]
    fn no_room_for_topic(&mut self, client: &str) -> Option<String> {
        let most = self.config.max_topics as usize;
        if most == 0 || self.topics.len() < most {
            return None;
        }
        self.limits.note(Limit::Topics, client);
        Some(format!("there may be {most} topics (max_topics)"))
    }

    /// Why `client` may not make one more channel of a topic that has `count`, if it may not.
    #[cold]
    fn no_room_for_channel(&mut self, count: usize, client: &str) -> Option<String> {
        let most = self.config.max_channels_per_topic as usize;
        if most == 0 || count < most {
            return None;
        }
        self.limits.note(Limit::ChannelsPerTopic, client);
        Some(format!("a topic may have {most} channels (max_channels_per_topic)"))
    }

    /// Why a client may not create a topic, or a channel of it ("" = the topic itself). `None`: it may, or they exist.
    pub fn refusal_to_make(&mut self, topic: &str, channel: &str, client: &str) -> Option<String> {
        let there = self.topic_key(topic).and_then(|key| self.topics.get(key)).map(|topic| topic.channels.len());
        match there {
            Some(_) if channel.is_empty() || self.has_channel(topic, channel) => None,
            _ if self.list_is_final => Some("exiting".into()),
            Some(channels) => self.no_room_for_channel(channels, client),
            None => self.no_room_for_topic(client),
        }
    }

    /// Ends the creation of topics and channels by clients, since their list has been written for the last time.
    ///
    /// The next start would forget a channel that is not on the list, with all its messages.
    pub fn finish_list(&mut self) {
        self.list_is_final = true;
    }

    /// Bytes of room that an unfinished command may get before its bytes arrive. All unfinished commands share one
    /// bound.
    pub(crate) fn room_to_promise(&self) -> u64 {
        self.config.max_unfinished_bytes.saturating_sub(self.limits.unfinished.used() + self.limits.promised.used())
    }

    /// Whether a connection that keeps `len` bytes of an unfinished command keeps too much, and why.
    pub(crate) fn keeps_too_much(&mut self, key: ConnKey, len: usize) -> Option<String> {
        let (unfinished, memory) = (self.config.max_unfinished_bytes, self.config.max_memory_bytes);
        let (limit, setting) =
            if unfinished <= memory { (unfinished, "max_unfinished_bytes") } else { (memory, "max_memory_bytes") };
        // Small commands in two packets go on at the limit.
        if self.limits.unfinished.used() <= limit || len <= SMALL_BYTES {
            return None;
        }
        self.note_limit(Limit::UnfinishedBytes, key);
        Some(format!("all clients together may leave {limit} bytes unfinished ({setting})"))
    }

    /// Why the command at the head of a connection's input is refused before it is complete: memory has no room for its
    /// messages.
    pub(crate) fn refusal_of_announced(&mut self, key: ConnKey) -> Option<WireError> {
        let input = &self.conns.get(key)?.input;
        if input.len() <= QUANTUM_BYTES {
            return None;
        }
        let whole = codec::announced_len(input)? as u64;
        let verb =
            [Verb::Pub, Verb::Mpub, Verb::Dpub].into_iter().find(|verb| input.starts_with(verb.name().as_bytes()))?;
        if self.memory.messages.used() + whole <= self.config.max_memory_bytes {
            return None;
        }
        Some(verb.refused(&self.memory_is_reached()))
    }

    /// Whether a client that has left `len` bytes unread must go, for all together leave too much.
    pub(crate) fn leaves_too_much(&mut self, key: ConnKey, len: usize) -> bool {
        let too_much = self.limits.unread.used() > self.config.max_unread_bytes && len > LARGE_BYTES;
        if too_much {
            self.note_limit(Limit::UnreadBytes, key);
        }
        too_much
    }

    #[cold]
    pub(crate) fn note_limit(&mut self, limit: Limit, key: ConnKey) {
        let client = self.conns.get(key).map_or("", |conn| &conn.remote);
        self.limits.note(limit, client);
    }

    pub(crate) fn tell_limits(&mut self, now: Nanos) {
        if self.limits.unsent {
            self.limits.tell(now, &mut self.events);
        }
    }
}
