//! What one client may take from the others: how many connections, topics and channels there may be, what is kept of what clients neither finish nor
//! read, and how often each bound was met. How much work one may cause in a turn is `scheduling/work_budget.rs`.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use crate::clients::connection::Connection;
use crate::config::Config;
use crate::engine::Engine;
use crate::event::Event;
use crate::http::answer::{Exchange, write_refusal};
use crate::keys::ConnKey;
use crate::memory::Meter;
use crate::protocol::codec;
use crate::protocol::errors::WireError;
use crate::protocol::verb::Verb;
use crate::scheduling::work_budget::ACCEPT_UNITS;
use crate::time::Nanos;

/// A limit that is met for long is told again after this time, with how often it was met since.
const TELL_NS: Nanos = 10_000_000_000;

/// While the limit of unfinished commands is reached, a connection may still keep this much: small commands in two packets go on.
const SMALL_INPUT: usize = 4 << 10;

/// While the limit of unread output is reached, a client may still leave this much unread.
const SMALL_OUTPUT: usize = 64 << 10;

/// Connections for which there is room in all tables from the start.
pub(crate) const TABLES: usize = 1 << 16;

/// An unfinished command is large from here on.
pub(crate) const LARGE_INPUT: usize = 128 << 10;

/// How long a command may stay unfinished where no heartbeat watches over the connection.
pub const UNFINISHED_NS: Nanos = 60_000_000_000;

/// A bound that clients can meet, by the setting that holds it; those whose clients are cut off, by what the client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Connections,
    ConnectionsPerAddress,
    Topics,
    ChannelsPerTopic,
    MpubMessages,
    UnfinishedBytes,
    UnreadBytes,
    /// Took nothing of what it was sent for as long as it may.
    SlowReader,
    /// Said nothing for two heartbeats.
    SilentClient,
}

impl Limit {
    pub const ALL: [Self; 9] = [
        Self::Connections,
        Self::ConnectionsPerAddress,
        Self::Topics,
        Self::ChannelsPerTopic,
        Self::MpubMessages,
        Self::UnfinishedBytes,
        Self::UnreadBytes,
        Self::SlowReader,
        Self::SilentClient,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Connections => "max_connections",
            Self::ConnectionsPerAddress => "max_connections_per_address",
            Self::Topics => "max_topics",
            Self::ChannelsPerTopic => "max_channels_per_topic",
            Self::MpubMessages => "max_mpub_messages",
            Self::UnfinishedBytes => "max_unfinished_bytes",
            Self::UnreadBytes => "max_unread_bytes",
            Self::SlowReader => "slow_reader",
            Self::SilentClient => "silent_client",
        }
    }
}

/// How often one limit was met, and what of that was told.
#[derive(Debug, Default)]
struct Met {
    count: u64,
    told: u64,
    told_at: Option<Nanos>,
    client: Option<Box<str>>, // the first that met it since it was told
}

#[derive(Debug, Default)]
pub(crate) struct Limits {
    met: [Met; Limit::ALL.len()],
    untold: bool,
    addresses: HashMap<IpAddr, usize>, // {whose: connections}
    room: Option<usize>,               // for connections, as far as the host grants it
    pub unfinished: Meter,
    pub promised: Meter, // room for more of it
    pub unread: Meter,
}

impl Limits {
    pub fn note(&mut self, limit: Limit, client: &str) {
        let met = &mut self.met[limit as usize];
        met.count += 1;
        met.client.get_or_insert_with(|| client.into());
        self.untold = true;
    }

    /// {name: times met}.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Limit::ALL.into_iter().map(|limit| (limit.name(), self.met[limit as usize].count))
    }

    fn tell(&mut self, now: Nanos, events: &mut Vec<Event>) {
        self.untold = false;
        for limit in Limit::ALL {
            let met = &mut self.met[limit as usize];
            if met.count == met.told {
                continue;
            }
            if met.told_at.is_some_and(|at| now < at + TELL_NS) {
                self.untold = true;
                continue;
            }
            let client = met.client.take().unwrap_or_default().into();
            events.push(Event::LimitReached { limit: limit.name(), client, times: met.count - met.told });
            (met.told, met.told_at) = (met.count, Some(now));
        }
    }

    /// A connection is there.
    pub fn count_in(&mut self, conn: &Connection) {
        if let Some(whose) = whose(conn.remote_host()) {
            *self.addresses.entry(whose).or_default() += 1;
        }
    }

    /// It is gone.
    pub fn count_out(&mut self, conn: &Connection) {
        let Some(whose) = whose(conn.remote_host()) else { return };
        if let Some(count) = self.addresses.get_mut(&whose) {
            *count -= 1;
            if *count == 0 {
                self.addresses.remove(&whose);
            }
        }
    }

    fn most(&self, config: &Config) -> usize {
        let room = self.room.unwrap_or(usize::MAX);
        if config.max_connections == 0 { room } else { room.min(config.max_connections as usize) }
    }

    /// Where nothing else is said, one address leaves an eighth to the others.
    fn most_per_address(&self, config: &Config) -> usize {
        match config.max_connections_per_address {
            0 => self.most(config).div_ceil(8) * 7,
            most => most as usize,
        }
    }
}

/// Who is behind an address, as far as it tells: of IPv6 the network, since anybody has all of its addresses. `None`: a Unix socket.
fn whose(host: &str) -> Option<IpAddr> {
    match host.trim_matches(['[', ']']).parse().ok()? {
        IpAddr::V6(address) => Some(match address.to_ipv4_mapped() {
            Some(mapped) => mapped.into(),
            None => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        }),
        address => Some(address),
    }
}

/// What a connection that is refused gets, as it goes over the socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unwanted(String);

impl Unwanted {
    pub fn frame(&self) -> Vec<u8> {
        let mut out = Vec::new();
        codec::encode_frame(&mut out, codec::FRAME_ERROR, WireError::invalid(self.0.clone()).to_string().as_bytes());
        out
    }
}

impl Engine {
    /// The host grants so many connections. The tables have room for them from the start, or for `TABLES`: a copy of thousands of connections to a larger one
    /// would stop everybody for milliseconds, room that nobody has used is addresses alone.
    pub fn set_room(&mut self, room: Option<usize>) {
        self.limits.room = room;
        let connections = room.unwrap_or(TABLES).min(TABLES);
        self.conns.reserve(connections.saturating_sub(self.conns.len()));
        self.timers.reserve(connections);
    }

    /// Whether a connection from `remote` (`HOST:PORT`), which was just accepted, may come in.
    pub fn admit(&mut self, remote: &str) -> Result<(), Unwanted> {
        self.work.note(ACCEPT_UNITS);
        self.work.newcomers.note();
        let most = self.limits.most(&self.config);
        if self.conns.len() >= most {
            self.limits.note(Limit::Connections, remote);
            return Err(Unwanted(format!("too many connections: there may be {most} (max_connections)")));
        }
        let host = remote.rsplit_once(':').map_or(remote, |(host, _)| host);
        let most = self.limits.most_per_address(&self.config);
        let Some(whose) = whose(host) else { return Ok(()) };
        if self.limits.addresses.get(&whose).is_some_and(|count| *count >= most) {
            self.limits.note(Limit::ConnectionsPerAddress, remote);
            return Err(Unwanted(format!("too many connections of {host}: there may be {most} (max_connections_per_address)")));
        }
        Ok(())
    }

    /// The answer by HTTP to a connection that is refused.
    pub fn unwanted_by_http(&mut self, unwanted: &Unwanted, now: Nanos) -> Vec<u8> {
        let mut out = Vec::new();
        let wall_s = (now + self.wall_offset).div_euclid(1_000_000_000);
        self.http.date.set(wall_s);
        write_refusal(&mut out, 503, &unwanted.0, &[], Exchange::LAST, &self.http.date);
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

    /// Why a client may not have a topic, or a channel of one, made for it ("" = the topic itself). `None`: it may, or they are there.
    pub fn refusal_to_make(&mut self, topic: &str, channel: &str, client: &str) -> Option<String> {
        let there = self.topic_key(topic).and_then(|key| self.topics.get(key)).map(|topic| topic.channels.len());
        match there {
            Some(_) if channel.is_empty() || self.has_channel(topic, channel) => None,
            _ if self.list_is_final => Some("exiting".into()),
            Some(channels) => self.no_room_for_channel(channels, client),
            None => self.no_room_for_topic(client),
        }
    }

    /// From now on nothing is made for a client: the list of topics and channels is written for the last time, and a channel that it does not have would be
    /// forgotten with all that was to come to it.
    pub fn finish_list(&mut self) {
        self.list_is_final = true;
    }

    /// How many bytes of room an unfinished command may still be given before they come: all of it together is no more than may be unfinished.
    pub(crate) fn room_to_promise(&self) -> u64 {
        self.config.max_unfinished_bytes.saturating_sub(self.limits.unfinished.used() + self.limits.promised.used())
    }

    /// Whether a connection that keeps `len` bytes of an unfinished command keeps too much, and why.
    pub(crate) fn keeps_too_much(&mut self, key: ConnKey, len: usize) -> Option<String> {
        let (unfinished, memory) = (self.config.max_unfinished_bytes, self.config.max_memory_bytes);
        let (limit, setting) = if unfinished <= memory { (unfinished, "max_unfinished_bytes") } else { (memory, "max_memory_bytes") };
        if self.limits.unfinished.used() <= limit || len <= SMALL_INPUT {
            return None;
        }
        self.note_limit(Limit::UnfinishedBytes, key);
        Some(format!("all clients together may leave {limit} bytes unfinished ({setting})"))
    }

    /// Why the command that a connection's input begins with can be refused before it is whole: large, for messages that memory has no room for. The
    /// rest is not waited for.
    pub(crate) fn refusal_of_announced(&mut self, key: ConnKey) -> Option<WireError> {
        let input = &self.conns.get(key)?.input;
        if input.len() <= LARGE_INPUT {
            return None;
        }
        let whole = codec::announced_len(input)? as u64;
        let verb = [Verb::Pub, Verb::Mpub, Verb::Dpub].into_iter().find(|verb| input.starts_with(verb.name().as_bytes()))?;
        if self.meter.used() + whole <= self.config.max_memory_bytes {
            return None;
        }
        if let Some(topic) = codec::announced_topic(input).and_then(|topic| self.topic_key(topic)) {
            self.work.note_topic(topic); // others have waited for its reads
        }
        Some(verb.refused(&self.memory_is_reached()))
    }

    /// Whether a client that has left `len` bytes unread must go, for all together leave too much.
    pub(crate) fn leaves_too_much(&mut self, key: ConnKey, len: usize) -> bool {
        let too_much = self.limits.unread.used() > self.config.max_unread_bytes && len > SMALL_OUTPUT;
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
        if self.limits.untold {
            self.limits.tell(now, &mut self.events);
        }
    }
}
