//! What a connection of the MQTT port has besides its two streams.

use std::collections::HashMap;

use crate::keys::SessionKey;
use crate::mqtt::forms::Alias;
use crate::protocol::mqtt::decode::header;
use crate::protocol::mqtt::property::{self, Properties};
use crate::protocol::mqtt::version::Version;
use crate::time::{NS_PER_S, Nanos, PATIENCE_NS};
use crate::transport::Layers;

/// How long a client may take from its connection to its CONNECT.
const CONNECT_NS: Nanos = 10 * NS_PER_S;

#[derive(Debug)]
pub struct MqttClient {
    pub version: Version,
    pub session: Option<SessionKey>, // None: no CONNECT was accepted, or it has ended
    pub is_connected: bool,          // a CONNECT was accepted
    pub is_bridge: bool,             // its own messages do not come back to it, and they keep their RETAIN flags
    pub keep_alive_ns: Nanos,        // 1.5 times what was agreed; 0: none
    pub longest_packet: u32,         // bytes that the client takes
    pub explains: bool,              // reason strings and user properties are wanted (Request Problem Information)
    pub receipts: bool,              // acknowledgements say how long the message waits
    pub came: Option<i64>,           // when, by the wall clock: its CONNECT has waited for other brokers
    pub leaves: bool,                // it is sent elsewhere soon, and has to send there what is not acknowledged
    aliases: Option<Box<Aliases>>,   // that the client has set; "": not set
    given: Option<Box<Given>>,       // that the broker sets, if the client takes any
    pub fan_out: Option<FanOut>,     // of what it publishes; None: nothing yet
}

/// Where a broker speaks MQTT, by kind of port: HOST:PORT; "": nowhere.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct MqttAddresses {
    pub clear: String,
    pub tls: String,
    pub websocket: String,
    pub websocket_tls: String,
}

impl MqttAddresses {
    /// The one of the kind of port that a connection with these layers came by: a client knows no other kind, or would
    /// send in clear what it wants sealed.
    pub fn like(&self, layers: Option<&Layers>) -> &str {
        let is_encrypted = layers.is_some_and(|layers| layers.session().is_some());
        match (layers.is_some_and(Layers::is_websocket), is_encrypted) {
            (false, false) => &self.clear,
            (false, true) => &self.tls,
            (true, false) => &self.websocket,
            (true, true) => &self.websocket_tls,
        }
    }
}

/// To how many subscribers the messages of a client go: an exponentially weighted moving average, an eighth for each.
#[derive(Debug, Clone, Copy)]
pub struct FanOut(u32); // eighths of a subscriber

impl FanOut {
    pub fn new(subscribers: u32) -> Self {
        Self(subscribers.saturating_mul(8))
    }

    pub fn note(&mut self, subscribers: u32) {
        self.0 = (self.0 - self.0 / 8).saturating_add(subscribers);
    }

    pub fn subscribers(self) -> u32 {
        self.0 / 8
    }
}

/// Aliases that the broker has given to names, first come, first served.
#[derive(Debug, Default)]
struct Given {
    most: u16,
    numbers: HashMap<Box<str>, u16>,
}

/// Topic Aliases that a client may set (5.0, section 3.2.2.3.8).
pub const TOPIC_ALIASES: u16 = 10;

type Aliases = [Box<str>; TOPIC_ALIASES as usize];

impl MqttClient {
    pub fn new() -> Self {
        Self {
            version: Version::V3_1_1,
            session: None,
            is_connected: false,
            is_bridge: false,
            keep_alive_ns: 0,
            longest_packet: u32::MAX,
            explains: false,
            receipts: false,
            came: None,
            leaves: false,
            aliases: None,
            given: None,
            fan_out: None,
        }
    }

    /// The name that an alias stands for. `topic`: that it is to stand for from now on; "": it is only asked for.
    pub fn alias<'a>(&'a mut self, alias: u16, topic: &'a str) -> Option<&'a str> {
        let at = usize::from(alias).checked_sub(1).filter(|at| *at < usize::from(TOPIC_ALIASES))?;
        if topic.is_empty() {
            return self.aliases.as_ref().map(|names| &*names[at]).filter(|name| !name.is_empty());
        }
        let name = &mut self.aliases.get_or_insert_default()[at];
        if **name != *topic {
            *name = topic.into();
        }
        Some(topic)
    }

    /// The alias under which the client is told a name, if it is to have one.
    pub fn alias_for(&mut self, name: &str) -> Option<Alias> {
        let given = self.given.as_mut()?;
        if let Some(&number) = given.numbers.get(name) {
            return Some(Alias { number, is_known: true });
        }
        let number = given.numbers.len() as u16 + 1;
        if number > given.most {
            return None;
        }
        given.numbers.insert(name.into(), number);
        Some(Alias { number, is_known: false })
    }

    /// Takes over what the properties of a CONNECT say of the connection.
    pub fn agree(&mut self, properties: Properties<'_>) {
        self.longest_packet = properties.number(property::MAXIMUM_PACKET_SIZE).unwrap_or(u32::MAX);
        let most = properties.number(property::TOPIC_ALIAS_MAXIMUM).unwrap_or(0).min(u32::from(TOPIC_ALIASES)) as u16;
        self.given = (most > 0).then(|| Box::new(Given { most, ..Given::default() }));
        self.explains = properties.number(property::REQUEST_PROBLEM_INFORMATION) != Some(0);
        self.receipts = self.explains && properties.user("srtm-receipts") == Some("1");
    }

    /// Bytes of the packet that input begins with, if they are known.
    pub fn announced_len(&self, input: &[u8]) -> Option<usize> {
        header(input, Some(self.version), usize::MAX).ok().flatten().map(|header| header.len)
    }

    /// When to look at the connection: it has not sent its CONNECT, was silent for too long, or reads nothing.
    pub fn deadline(&self, last_heard: Nanos, blocked_since: Option<Nanos>, waits: bool) -> Option<Nanos> {
        let heard = match (self.is_connected, self.keep_alive_ns) {
            (false, _) => Some(last_heard + CONNECT_NS),
            (true, 0) => None,
            (true, span) => Some(last_heard + span),
        };
        let patience = if self.keep_alive_ns > 0 { self.keep_alive_ns } else { PATIENCE_NS };
        let blocked = blocked_since.map(|since| since + patience);
        heard.filter(|_| !waits).into_iter().chain(blocked).min()
    }
}

impl Default for MqttClient {
    fn default() -> Self {
        Self::new()
    }
}
