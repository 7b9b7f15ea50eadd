//! What one client may take from the others: how many connections, topics and channels there may be, what is kept of
//! what clients neither finish nor read, and how often each bound was met. How much work one may cause in a turn is
//! `scheduling/work_budget.rs`.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use crate::config::Config;
use crate::event::Event;
use crate::memory::Meter;
use crate::protocol::codec;
use crate::protocol::errors::WireError;
use crate::time::Nanos;

/// A limit that is met for long is sent again after this time, with how often it was met since.
const SEND_AGAIN_NS: Nanos = 10_000_000_000;

/// Connections for which there is room in all tables from the start.
pub(crate) const TABLES: usize = 1 << 16;

/// How long a command may stay unfinished where no heartbeat watches over the connection.
pub const UNFINISHED_NS: Nanos = 60_000_000_000;

/// A bound that clients can meet, by the setting that holds it; those whose clients are cut off, by what the client
/// does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Connections,
    ConnectionsPerAddress,
    Topics,
    ChannelsPerTopic,
    MpubMessages,
    UnfinishedBytes,
    UnreadBytes,
    /// Of a session of MQTT or a shared group, whose further messages are dropped.
    QueuedMessages,
    /// The same, for their bytes in memory.
    QueuedBytes,
    /// Sessions of MQTT that outlive their connections.
    Sessions,
    /// What these and wills take.
    SessionBytes,
    /// Of MQTT, of which other brokers are told.
    SharedGroups,
    /// Took nothing of what it was sent for as long as it may.
    SlowReader,
    /// Said nothing for two heartbeats.
    SilentClient,
}

impl Limit {
    pub const ALL: [Self; 14] = [
        Self::Connections,
        Self::ConnectionsPerAddress,
        Self::Topics,
        Self::ChannelsPerTopic,
        Self::MpubMessages,
        Self::UnfinishedBytes,
        Self::UnreadBytes,
        Self::QueuedMessages,
        Self::QueuedBytes,
        Self::Sessions,
        Self::SessionBytes,
        Self::SharedGroups,
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
            Self::QueuedMessages => "mqtt_max_queued",
            Self::QueuedBytes => "mqtt_queued_bytes",
            Self::Sessions => "mqtt_max_sessions",
            Self::SessionBytes => "max_memory_bytes",
            Self::SharedGroups => "shared_groups",
            Self::SlowReader => "slow_reader",
            Self::SilentClient => "silent_client",
        }
    }
}

/// How often one limit was met, and what of that was sent.
#[derive(Debug, Default)]
struct Met {
    count: u64,
    sent: u64,
    sent_at: Option<Nanos>,
    client: Option<Box<str>>, // the first that met it since it was sent
}

#[derive(Debug, Default)]
pub(crate) struct Limits {
    met: [Met; Limit::ALL.len()],
    pub(crate) unsent: bool,
    addresses: HashMap<IpAddr, usize>, // {whose: connections}
    pub(crate) room: Option<usize>,    // for connections, as far as the host grants it
    pub unfinished: Meter,
    pub promised: Meter, // room for more of it
    pub unread: Meter,
}

impl Limits {
    pub fn note(&mut self, limit: Limit, client: &str) {
        let met = &mut self.met[limit as usize];
        met.count += 1;
        met.client.get_or_insert_with(|| client.into());
        self.unsent = true;
    }

    /// {name: times met}.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Limit::ALL.into_iter().map(|limit| (limit.name(), self.met[limit as usize].count))
    }

    pub(crate) fn tell(&mut self, now: Nanos, events: &mut Vec<Event>) {
        self.unsent = false;
        for limit in Limit::ALL {
            let met = &mut self.met[limit as usize];
            if met.count == met.sent {
                continue;
            }
            if met.sent_at.is_some_and(|at| now < at + SEND_AGAIN_NS) {
                self.unsent = true;
                continue;
            }
            let client = met.client.take().unwrap_or_default().into();
            events.push(Event::LimitReached { limit: limit.name(), client, times: met.count - met.sent });
            (met.sent, met.sent_at) = (met.count, Some(now));
        }
    }

    /// Whether one more connection, from `remote` (`HOST:PORT`), may come in beside so many.
    pub fn admit(&mut self, remote: &str, connections: usize, config: &Config) -> Result<(), Unwanted> {
        let most = self.most(config);
        if connections >= most {
            self.note(Limit::Connections, remote);
            return Err(Unwanted(format!("too many connections: there may be {most} (max_connections)")));
        }
        let host = remote.rsplit_once(':').map_or(remote, |(host, _)| host);
        let most = self.most_per_address(config);
        let Some(whose) = whose(host) else { return Ok(()) };
        if self.addresses.get(&whose).is_some_and(|count| *count >= most) {
            self.note(Limit::ConnectionsPerAddress, remote);
            return Err(Unwanted(format!(
                "too many connections of {host}: there may be {most} (max_connections_per_address)"
            )));
        }
        Ok(())
    }

    /// A connection from `host` is there.
    pub fn count_in(&mut self, host: &str) {
        if let Some(whose) = whose(host) {
            *self.addresses.entry(whose).or_default() += 1;
        }
    }

    /// It is gone.
    pub fn count_out(&mut self, host: &str) {
        let Some(whose) = whose(host) else { return };
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

/// Who is behind an address, as far as it tells: of IPv6 the network, since anybody has all of its addresses. `None`: a
/// Unix socket.
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
    pub fn reason(&self) -> &str {
        &self.0
    }

    pub fn frame(&self) -> Vec<u8> {
        let mut out = Vec::new();
        codec::encode_frame(
            &mut out,
            codec::FrameType::Error,
            WireError::invalid(self.0.clone()).to_string().as_bytes(),
        );
        out
    }
}
